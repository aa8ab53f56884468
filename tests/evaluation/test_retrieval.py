import json

import pytest
import torch
from encoders import project_text
from evaluation_inputs import write_rows
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

from sbert_plugins.evaluation import RetrievalEvaluator, own_retrieval


def toy(count=12):
    """Queries, a corpus of distinct texts without them, and two answers to each query."""
    text = project_text()
    queries = {f"q{i}": text[i] for i in range(count)}
    corpus = {f"d{i:03}": text[100 + i] for i in range(60)}
    for i in range(count):  # answers share words with the query
        corpus[f"d{i:03}"] = text[i] + " and so on" * (1 + i % 4)
    relevant = {f"q{i}": {f"d{i:03}", f"d{i + 20:03}"} for i in range(count)}
    return queries, corpus, relevant


@pytest.fixture
def model(tiny_encoder):
    return tiny_encoder(pooling="mean")


def test_the_scores_of_sentence_transformers_on_distinct_texts(model):
    expected = InformationRetrievalEvaluator(*toy(), write_csv=False)(model)
    assert RetrievalEvaluator(*toy())(model) == pytest.approx(expected)


def test_the_similarity_of_the_model(model):
    """Documents are ranked, and the metrics are named, by the similarity function of the model."""
    evaluator = RetrievalEvaluator(*toy(), name="toy")
    by_cosine = evaluator(model)
    model[-1].normalize = False
    with torch.no_grad():
        model.similarity_fn_name = "dot"
    expected = InformationRetrievalEvaluator(*toy(), write_csv=False, name="toy")(model)
    found = evaluator(model)
    assert found == pytest.approx(expected)
    assert found["toy_dot_ndcg@10"] == found[evaluator.primary_metric] != by_cosine["toy_cosine_ndcg@10"]
    assert (evaluator.similarity, evaluator.items.mean() / 100) == (
        "dot",
        pytest.approx(found["toy_dot_ndcg@10"]),
    )
    assert not any("cosine" in header for header in evaluator.csv_headers)
    model.similarity_fn_name = "cosine"
    assert evaluator(model) == by_cosine


def test_a_text_has_one_rank(model):
    """Copies of answers and of other documents change no score, whichever copy the judgements name."""
    queries, corpus, relevant = toy()
    expected = RetrievalEvaluator(queries, corpus, relevant)(model)
    copies = corpus | {f"x{name}": text for name, text in corpus.items()}
    judged = {query: {min(ids), f"x{max(ids)}"} for query, ids in relevant.items()}
    evaluator = RetrievalEvaluator(queries, copies, judged)
    assert evaluator(model) == pytest.approx(expected)
    assert evaluator.corpus_ids == sorted(corpus)


def test_the_text_of_the_query_is_skipped(model):
    queries, corpus, relevant = toy()
    one, answers = {"q0": queries["q0"]}, {"q0": relevant["q0"]}
    expected = RetrievalEvaluator(one, corpus, answers)(model)
    corpus["own"] = queries["q0"]
    assert RetrievalEvaluator(one, corpus, answers)(model) == pytest.approx(expected)
    plain = InformationRetrievalEvaluator(one, corpus, answers, write_csv=False)(model)
    assert plain["cosine_mrr@10"] < expected["cosine_mrr@10"]  # there it has rank 1


def test_a_query_whose_only_answer_is_its_own_text(model):
    queries, corpus, relevant = toy()
    corpus["same"] = queries["q0"]
    evaluator = RetrievalEvaluator(queries, corpus, relevant | {"q0": {"same"}})
    assert evaluator.queries_ids == [f"q{i}" for i in range(1, 12)]
    with pytest.raises(ValueError, match="relevant"):
        RetrievalEvaluator(queries, corpus, {"q0": {"same"}})


@pytest.mark.parametrize("corpus", [{"b": "one cat", "a": "one  cat"}, {"a": "one  cat", "b": "one cat"}])
def test_equal_scores_rank_by_id(model, corpus):
    """Texts that differ only in white space have the same vector."""
    assert (model.encode(["one cat"]) == model.encode(["one  cat"])).all()
    assert RetrievalEvaluator({"q": "a dog"}, corpus, {"q": {"b"}})(model)["cosine_mrr@10"] == 0.5


@pytest.mark.parametrize("size", [1, 7])
def test_parts_of_the_corpus_change_no_score(model, size):
    queries, corpus, relevant = toy()
    corpus |= {"own": queries["q3"], "zown": queries["q7"]}
    evaluator = RetrievalEvaluator(queries, corpus, relevant, name="toy")
    expected = evaluator(model)
    evaluator.corpus_chunk_size = size
    assert evaluator(model) == pytest.approx(expected)
    assert evaluator.primary_metric == "toy_cosine_ndcg@10"
    assert evaluator.primary_metric in expected


class TestFiles:
    def write(
        self,
        folder,
        *,
        ending="",
        corpus=(("d1", "a title", "a text"), ("d2", "", "more")),
        judged=("q1", "d1", 1),
    ):
        write_rows(folder / f"queries.tsv{ending}", ("q1", "one query"), ("q2", "another query"))
        write_rows(folder / f"corpus.tsv{ending}", *corpus)
        write_rows(folder / f"qrels.tsv{ending}", judged, ("q1", "d2", 0))
        return folder

    @pytest.mark.parametrize("ending", ["", ".gz"])
    def test_a_folder(self, tmp_path, ending):
        evaluator = own_retrieval(self.write(tmp_path / "search", ending=ending))
        assert evaluator.name == "search"
        assert evaluator.queries == ["one query"]
        assert evaluator.corpus == ["a title a text", "more"]
        assert evaluator.relevant_docs == {"q1": {"d1"}}

    def test_a_header_is_no_document(self, tmp_path):
        folder = tmp_path / "search"
        write_rows(folder / "queries.tsv", ("query-id", "query"), ("q1", "one query"))
        write_rows(folder / "corpus.tsv", ("_id", "title", "text"), ("d1", "a title", "a text"))
        write_rows(folder / "qrels.tsv", ("query-id", "corpus-id", "score"), ("q1", "d1", 1))
        evaluator = own_retrieval(folder)
        assert (evaluator.corpus_ids, evaluator.queries) == (["d1"], ["one query"])

    def test_judgements_of_trec(self, tmp_path):
        folder = self.write(tmp_path)
        write_rows(folder / "qrels.tsv", ("q1", 0, "d2", 1), ("q2", 0, "d1", 0))
        assert own_retrieval(folder).relevant_docs == {"q1": {"d2"}}

    @pytest.mark.parametrize("ending", ["", ".gz"])
    def test_a_folder_of_beir(self, tmp_path, ending):
        corpus = [
            {"_id": 1, "title": "a title", "text": "a text"},
            {"_id": "2", "text": "more", "metadata": {}},
        ]
        queries = [{"_id": "q1", "text": "one query"}, {"_id": "q2", "text": "of the training"}]
        for name, rows in (("corpus", corpus), ("queries", queries)):
            write_rows(tmp_path / f"{name}.jsonl{ending}", *([json.dumps(row)] for row in rows))
        header = ("query-id", "corpus-id", "score")
        write_rows(tmp_path / "qrels" / f"test.tsv{ending}", header, ("q1", "1", 2), ("q1", "2", 0))
        write_rows(tmp_path / "qrels" / f"train.tsv{ending}", header, ("q2", "2", 1))
        evaluator = own_retrieval(tmp_path)
        assert evaluator.corpus == ["a title a text", "more"]
        assert evaluator.relevant_docs == {"q1": {"1"}}
        write_rows(tmp_path / f"corpus.jsonl{ending}", ['{"_id": "1"}'])
        with pytest.raises(ValueError, match=r"corpus\.jsonl.*line 1"):
            own_retrieval(tmp_path)

    def test_mistakes(self, tmp_path):
        with pytest.raises(ValueError, match=r"qrels\.tsv, line 1.*1,0"):
            own_retrieval(self.write(tmp_path / "a", judged=("q1", "d1", "1,0")))
        with pytest.raises(FileNotFoundError, match="folder"):
            own_retrieval(tmp_path / "a" / "corpus.tsv")
        with pytest.raises(ValueError, match=r"qrels\.tsv, line 1.*d9"):
            own_retrieval(self.write(tmp_path / "a", judged=("q1", "d9", 1)))
        with pytest.raises(ValueError, match=r"corpus\.tsv: .*d1"):
            own_retrieval(self.write(tmp_path / "b", corpus=[("d1", "x"), ("d1", "y")]))
        with pytest.raises(FileNotFoundError, match="queries"):
            own_retrieval(tmp_path / "c")

    def test_a_real_collection(self, data_dir):
        cranfield = own_retrieval(data_dir / "rerank" / "cranfield")
        assert (len(cranfield.queries), len(cranfield.corpus), cranfield.name) == (225, 1399, "cranfield")
