import gzip
from unittest.mock import Mock

import pytest
import torch
from encoders import project_text
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator, RerankingEvaluator
from sentence_transformers.util import cos_sim

from sbert_plugins.evaluation import RetrievalEvaluator, cranfield_retrieval, quora_reranking, quora_retrieval, retrieval


def toy(count=12):
    """Queries, a corpus of distinct texts without them, and two answers to each query."""
    text = project_text()
    queries = {f"q{i}": text[i] for i in range(count)}
    corpus = {f"d{i:03}": text[100 + i] for i in range(60)}
    for i in range(count):  # answers share words with the query, some more than others
        corpus[f"d{i:03}"] = text[i] + " and so on" * (1 + i % 4)
    relevant = {f"q{i}": {f"d{i:03}", f"d{i + 20:03}"} for i in range(count)}
    return queries, corpus, relevant


class TestRetrieval:
    def test_the_hosts_numbers_on_distinct_texts(self, tiny_encoder):
        queries, corpus, relevant = toy()
        model = tiny_encoder(pooling="mean")
        host = InformationRetrievalEvaluator(queries, corpus, relevant, write_csv=False)(model)
        assert RetrievalEvaluator(queries, corpus, relevant)(model) == pytest.approx(host)

    def test_a_text_ranks_once(self, tiny_encoder):
        """Copies of answers and of other documents change no number, whichever copy the judgements name."""
        queries, corpus, relevant = toy()
        model = tiny_encoder(pooling="mean")
        expected = RetrievalEvaluator(queries, corpus, relevant)(model)
        copies = corpus | {f"x{name}": text for name, text in corpus.items()}
        named = {query: {min(names), f"x{max(names)}"} for query, names in relevant.items()}
        assert RetrievalEvaluator(queries, copies, named)(model) == pytest.approx(expected)

    def test_the_querys_own_text_is_no_answer(self, tiny_encoder):
        queries, corpus, relevant = toy()
        one, answers = {"q0": queries["q0"]}, {"q0": relevant["q0"]}
        model = tiny_encoder(pooling="mean")
        without = RetrievalEvaluator(one, corpus, answers)(model)
        corpus["own"] = queries["q0"]
        assert RetrievalEvaluator(one, corpus, answers)(model) == pytest.approx(without)
        host = InformationRetrievalEvaluator(one, corpus, answers, write_csv=False)(model)
        assert host["cosine_mrr@10"] < without["cosine_mrr@10"]  # there it takes the first rank

    def test_a_query_whose_only_answer_is_itself_is_left_out(self):
        queries, corpus, relevant = toy()
        corpus["same"] = queries["q0"]
        evaluator = RetrievalEvaluator(queries, corpus, relevant | {"q0": {"same"}})
        assert "q0" not in evaluator.queries_ids
        assert len(evaluator.queries_ids) == 11

    def test_equal_scores_rank_by_id(self, tiny_encoder):
        """Documents that differ by white space only are one vector, and the order of the corpus is nothing."""
        model = tiny_encoder()
        assert (model.encode(["one cat"]) == model.encode(["one  cat"])).all()
        for corpus in ({"b": "one cat", "a": "one  cat"}, {"a": "one  cat", "b": "one cat"}):
            metrics = RetrievalEvaluator({"q": "a dog"}, corpus, {"q": {"b"}})(model)
            assert metrics["cosine_mrr@10"] == 0.5


class TestReranking:
    def test_the_hosts_numbers_without_ties(self, tiny_encoder):
        queries, corpus, relevant = toy()
        candidates = {query: {*relevant[query], *(f"d{40 + i:03}" for i in range(15))} for query in queries}
        model = tiny_encoder(pooling="mean")
        samples = [
            {
                "query": text,
                "positive": [corpus[name] for name in sorted(relevant[query])],
                "negative": [corpus[name] for name in sorted(candidates[query] - relevant[query])],
            }
            for query, text in queries.items()
        ]
        host = RerankingEvaluator(samples, write_csv=False)(model)
        ours = RetrievalEvaluator(queries, corpus, relevant, candidates=candidates)(model)
        assert ours["cosine_map@17"] == pytest.approx(host["map"])
        assert ours["cosine_mrr@10"] == pytest.approx(host["mrr@10"])
        assert ours["cosine_ndcg@10"] == pytest.approx(host["ndcg@10"])

    def test_only_candidates_are_ranked(self, tiny_encoder):
        queries, corpus, relevant = toy()
        evaluator = RetrievalEvaluator(queries, corpus, relevant, candidates=relevant)
        assert evaluator(tiny_encoder())["cosine_map@2"] == 1.0
        assert evaluator.description == "Reranking"


class TestBadInput:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"relevant_docs": {"q99": {"d000"}}}, "relevant_docs names the query 'q99', which is not in queries"),
            ({"relevant_docs": {"q1": {"x"}}}, r"relevant_docs\['q1'\] names the document 'x', which is not in corpus"),
            ({"candidates": {"q1": {"x"}}}, r"candidates\['q1'\] names the document 'x'"),
            ({"candidates": {"q1": {"d001"}}}, "candidates must have every query with judgements, 'q0' is missing"),
            ({"relevant_docs": {}}, "no query has a relevant document"),
        ],
    )
    def test_ids(self, changes, message):
        queries, corpus, relevant = toy()
        with pytest.raises(ValueError, match=message):
            RetrievalEvaluator(**({"queries": queries, "corpus": corpus, "relevant_docs": relevant} | changes))

    def test_a_diverged_model(self, tiny_encoder):
        model = tiny_encoder()
        with torch.no_grad():
            model[0].model.embeddings.word_embeddings.weight.fill_(float("nan"))
        with pytest.raises(ValueError, match="embeddings must be finite, got NaN or infinity for 12 of 12"):
            RetrievalEvaluator(*toy())(model)

    def test_files(self, tmp_path):
        folder = tmp_path / "rerank" / "quora_dup"
        folder.mkdir(parents=True)
        (folder / "dev_corpus.tsv.gz").write_bytes(gzip.compress(b"1\ta\n2\tb\n"))
        (folder / "dev_queries.tsv").write_text("1\ta\n", encoding="utf-8")
        with pytest.raises(FileNotFoundError, match="dev_qrels.tsv does not exist"):
            quora_retrieval(tmp_path)
        (folder / "dev_qrels.tsv").write_text("1\t3\t1\n", encoding="utf-8")
        with pytest.raises(ValueError, match="dev_qrels.tsv, line 1: no query '1' or no document '3' in the files beside it"):
            quora_retrieval(tmp_path)
        (folder / "dev_qrels.tsv").write_text("1\t2\tyes\n", encoding="utf-8")
        with pytest.raises(ValueError, match="dev_qrels.tsv, line 1: gain must be a whole number from 0, got 'yes'"):
            quora_retrieval(tmp_path)
        with pytest.raises(ValueError, match="split must be 'dev' or 'test', got 'train'"):
            quora_retrieval(tmp_path, split="train")


class TestRealData:
    def test_sizes(self, data_dir):
        assert quora_retrieval(data_dir).get_config_dict() == {"queries": 1000, "documents": 7313, "similarity": "cosine"}
        assert quora_retrieval(data_dir, split="dev").test_sets == ()
        assert cranfield_retrieval(data_dir).test_sets == ("Cranfield",)
        assert len(cranfield_retrieval(data_dir).queries) == 225

    def test_candidates_of_a_question(self, data_dir):
        evaluator = quora_reranking(data_dir)
        for query in evaluator.queries_ids:
            assert evaluator.relevant_docs[query] <= evaluator.candidates[query]
            assert len(evaluator.candidates[query]) == 20
        again = quora_reranking(data_dir)
        assert again.candidates == evaluator.candidates


def test_an_answer_that_is_no_candidate_is_not_looked_for(tiny_encoder, caplog):
    queries, corpus, relevant = toy()
    model, candidates = tiny_encoder(), {query: {min(names), "d050", "d051"} for query, names in relevant.items()}
    first = {query: {min(names)} for query, names in relevant.items()}
    both, alone = (RetrievalEvaluator(queries, corpus, of, candidates=candidates)(model) for of in (relevant, first))
    assert both == alone
    (told,) = caplog.messages
    missed = sum(len(names) - 1 for names in relevant.values())
    assert told.startswith(f"{missed} of {missed + len(relevant)} answers are no candidates and not looked for; 0 of")


@pytest.mark.parametrize("documents", ["d050", 50], ids=repr)
def test_ids_that_are_no_collection(documents):
    """A string would be read letter by letter, which are ids where these are single digits."""
    queries, corpus, relevant = toy()
    query = next(iter(queries))
    with pytest.raises(ValueError, match=f"relevant_docs.*must be a set or a list of ids, got {documents!r}: put it in a set"):
        RetrievalEvaluator(queries, corpus, relevant | {query: documents})


@pytest.mark.parametrize("reranks", [False, True])
@pytest.mark.parametrize("size", [1, 7])
def test_chunks_of_the_corpus_change_no_number(tiny_encoder, size, reranks):
    """The host ranks chunk after chunk: candidates and a query's own text stand at places of the whole corpus."""
    queries, corpus, relevant = toy()
    corpus |= {"own": queries["q3"], "zown": queries["q7"]}
    candidates = {query: {*names, "d050", "own"} for query, names in relevant.items()} if reranks else None
    evaluator = RetrievalEvaluator(queries, corpus, relevant, candidates=candidates)
    model = tiny_encoder(pooling="mean")
    expected = evaluator(model)
    evaluator.corpus_chunk_size = size
    assert [evaluator(model), evaluator(model)] == [pytest.approx(expected)] * 2


def test_a_stopped_ranking_leaves_the_next_one_whole(tiny_encoder, monkeypatch):
    evaluator, model = RetrievalEvaluator(*toy()), tiny_encoder(pooling="mean")
    expected = evaluator(model)
    evaluator.corpus_chunk_size = 10
    monkeypatch.setattr(retrieval, "cos_sim", Mock(side_effect=[cos_sim(torch.ones(12, 2), torch.ones(10, 2)), MemoryError]))
    with pytest.raises(MemoryError):
        evaluator(model)
    monkeypatch.undo()
    assert evaluator(model) == pytest.approx(expected)


def test_memory_of_the_scores_is_bounded():
    queries = {f"q{i}": f"what {i}" for i in range(1000)}
    evaluator = RetrievalEvaluator(queries, {"1": "an answer"}, {query: {"1"} for query in queries})
    assert evaluator.corpus_chunk_size * len(queries) == retrieval.SCORES


def test_a_text_is_found_under_the_first_of_its_ids():
    evaluator = RetrievalEvaluator({"q": "a dog"}, {"b": "one cat", "a": "one cat", "c": "two"}, {"q": {"b"}})
    assert evaluator.corpus_ids == ["a", "c"]
    assert evaluator.relevant_docs == {"q": {"a"}}


def test_candidates_are_those_that_share_most_words(tmp_path):
    folder = tmp_path / "rerank" / "quora_dup"
    folder.mkdir(parents=True)
    corpus = ["how do cats sleep", "where do cats sleep", "why is rain wet", "do fish drink", "who wrote this"]
    lines = "".join(f"{i}\t{text}\n" for i, text in enumerate(corpus))
    (folder / "dev_corpus.tsv.gz").write_bytes(gzip.compress(lines.encode()))
    (folder / "dev_queries.tsv").write_text("q\twhen do cats sleep\n", encoding="utf-8")
    (folder / "dev_qrels.tsv").write_text("q\t2\t1\n", encoding="utf-8")
    assert quora_reranking(tmp_path, size=3).candidates == {"q": {"2", "0", "1"}}
