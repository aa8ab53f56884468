import json

import numpy as np
import pytest
import torch
from encoders import project_text
from evaluation_inputs import CountingEncoder, write_rows
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import evaluation as host
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

from sbert_plugins import evaluation
from sbert_plugins.evaluation import (
    RerankingEvaluator,
    RetrievalEvaluator,
    measure,
    own_reranking,
    own_retrieval,
)


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
    # Documents are ranked, and the metrics are named, by the similarity function of the model.
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
    # Copies of answers and of other documents change no score, whichever copy the judgements name.
    queries, corpus, relevant = toy()
    expected = RetrievalEvaluator(queries, corpus, relevant)(model)
    copies = corpus | {f"x{name}": text for name, text in corpus.items()}
    judged = {  # gains, of which 0 is not relevant
        query: dict.fromkeys(copies, 0) | {min(ids): 1, f"x{max(ids)}": 2} for query, ids in relevant.items()
    }
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
    # Texts that differ only in white space have the same vector.
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
        write_rows(tmp_path / f"corpus.jsonl{ending}", ['{"_id": "1", "text": null}'])
        with pytest.raises(ValueError, match=r"corpus\.jsonl.*line 1"):
            own_retrieval(tmp_path)

    def test_mistakes(self, tmp_path):
        for gain in ("1,0", "nan", "inf"):
            with pytest.raises(ValueError, match=rf"qrels\.tsv, line 1.*{gain}"):
                own_retrieval(self.write(tmp_path / "a", judged=("q1", "d1", gain)))
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


CANDIDATES = [
    ("a cat", "two dogs in the rain", 0),
    ("a cat", "one cat sleeps", 1),
    ("rain", "it is raining again", 2),
    ("a cat", "prices fell", 0),
    ("rain", "a small church", 0),
    ("rain", "rain in the village", 1),
    ("nothing relevant", "prices fell", 0),
]


class At(SentenceTransformer):
    """A model that puts each text at an angle of the plane, and has another prompt for queries."""

    def __init__(self, degrees):
        super().__init__(
            modules=[torch.nn.Identity()], device="cpu", prompts={"query": "q: ", "document": ""}
        )
        self.degrees = degrees

    def encode(self, texts, prompt_name=None, **options):
        angles = torch.deg2rad(torch.tensor([self.degrees[self.prompts[prompt_name] + t] for t in texts]))
        return torch.stack([angles.cos(), angles.sin()], dim=1)


def test_reranking_by_hand():
    # First query: the relevant candidate is second, 1 / log2(3). Second query: first of two.
    model = At({"q: x": 0.0, "a": 10.0, "b": 20.0, "q: y": 90.0, "c": 80.0, "d": 0.0})
    samples = [
        {"query": "x", "positive": ["b"], "negative": ["a"]},
        {"query": "y", "positive": ["c"], "negative": ["d"]},
    ]
    evaluator = RerankingEvaluator(samples, name="mine", write_csv=False)
    metrics = evaluator(model)
    second = 100 / np.log2(3)
    assert evaluator.items == pytest.approx([second, 100])
    assert metrics == pytest.approx(
        {"mine_map": 75, "mine_mrr@10": 75, "mine_ndcg@10": (second + 100) / 2}, abs=1e-9
    )


def test_a_file_of_candidates_and_the_scores_of_sentence_transformers(tiny_encoder, tmp_path):
    counted = CountingEncoder(tiny_encoder(pooling="mean"))
    evaluator = own_reranking(write_rows(tmp_path / "mine.tsv", *CANDIDATES))
    score = measure(counted.model, [evaluator])["mine"]
    assert max(counted.times.values()) == 1
    expected = host.RerankingEvaluator(
        [
            {
                "query": "a cat",
                "positive": [CANDIDATES[1][1]],
                "negative": [CANDIDATES[0][1], CANDIDATES[3][1]],
            },
            {
                "query": "rain",
                "positive": [CANDIDATES[2][1], CANDIDATES[5][1]],
                "negative": [CANDIDATES[4][1]],
            },
        ],
        write_csv=False,
    )(tiny_encoder(pooling="mean"))
    assert score.values == pytest.approx({"nDCG@10": 100 * expected["ndcg@10"]})
    assert score.items.mean() == pytest.approx(score.value)
    assert (score.labels, score.noun) == (2, "queries")


def test_candidates_by_the_similarity_of_the_model(tiny_encoder, tmp_path):
    model = tiny_encoder()
    model.similarity_fn_name = "dot"
    evaluator = own_reranking(write_rows(tmp_path / "mine.tsv", *CANDIDATES))
    evaluator(model)
    assert evaluator.similarity == "dot"
    vectors = torch.tensor([[3.0, 4.0]])
    assert evaluator.similarity_fct(vectors, vectors).item() == 25


def test_files_of_candidates_that_cannot_be_read(tmp_path):
    with pytest.raises(ValueError, match=r"mine\.tsv, line 1"):
        own_reranking(write_rows(tmp_path / "mine.tsv", ("query", "candidate", "label")))
    with pytest.raises(ValueError, match="irrelevant"):
        own_reranking(write_rows(tmp_path / "mine.tsv", CANDIDATES[1]))


def documents(count=24, sentences=3):
    return [
        " ".join(f"Sample {i} was put into water {j} hours ago." for j in range(sentences))
        for i in range(count)
    ]


def test_ranks_and_metrics_by_hand(monkeypatch):
    # Cosines with the three documents: 1, 0, 0.6; then 0.6, 0.8, 1; then 1, 1, 1 (the right one ranks last).
    vectors = torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.6, 0.8]])
    queries = torch.tensor([[1.0, 0.0], [3.0, 4.0]])
    assert evaluation.answer_ranks(queries, vectors, [2, 1]).tolist() == [2, 2]
    assert evaluation.answer_ranks(queries, vectors, [0, 0]).tolist() == [1, 3]
    assert evaluation.answer_ranks(queries[:1], torch.ones(3, 2), [1]).tolist() == [3]
    assert evaluation.reciprocal_ranks(np.array([1, 2, 10, 11])).tolist() == [1, 0.5, 0.1, 0]
    evaluator = evaluation.KnownItemEvaluator(documents())
    evaluator.queries = evaluator.queries[:4]
    monkeypatch.setattr(evaluation.known_items, "answer_ranks", lambda *_: np.array([1, 3, 11, 2]))
    found = evaluator.compute(lambda texts, kind: None)
    assert found["mrr@10"] == pytest.approx(100 * (1 + 1 / 3 + 1 / 2) / 4)
    assert found["ndcg@10"] == pytest.approx(100 * (1 + 1 / 2 + 1 / np.log2(3)) / 4)


def test_the_sentence_is_not_in_its_document():
    repeated = "It broke after two days. It broke after two days. Why? Nobody knows."
    short = "Two sentences are too few. They only rank."
    texts = [*documents(), repeated, repeated, short, "One two. Three four. Five."]
    evaluator = evaluation.KnownItemEvaluator(texts)
    assert len(evaluator.documents) == 27 and evaluator.documents[25] == short  # the copy counts once
    assert evaluator.answers == list(range(25))
    for query, place in zip(evaluator.queries, evaluator.answers, strict=True):
        assert query in texts[place] and query not in evaluator.documents[place]
    assert evaluator.documents[24] == "Why? Nobody knows."


def test_the_draw_depends_on_seed_and_text_only():
    texts = documents(40, sentences=6)
    first, again, moved, other = (
        evaluation.KnownItemEvaluator(rows, seed=seed)
        for rows, seed in ((texts, 0), (texts, 0), (texts[::-1], 0), (texts, 1))
    )
    assert first.queries == again.queries == moved.queries[::-1] != other.queries
    drawn = [evaluation.KnownItemEvaluator(texts, limit=30) for _ in range(2)]
    assert drawn[0].documents == drawn[1].documents and len(drawn[0].queries) == 30


def test_a_model_finds_documents_and_equal_vectors_score_nothing(minilm):
    topics = (
        "rain wine iron chess wool bread glass horses money Rome gold tea cars birds oil war law ice art God"
    )
    texts = [
        f"This text is about {topic}. Many people know {topic} very well. Some have never seen {topic}."
        for topic in topics.split()
    ]
    evaluator = evaluation.KnownItemEvaluator(texts, name="texts", write_csv=False)
    scores = evaluator(minilm)
    assert evaluator.primary_metric == "texts_mrr@10" and scores["texts_mrr@10"] > 50
    assert evaluator.compute(lambda rows, kind: torch.ones(len(rows), 4)) == {"mrr@10": 0, "ndcg@10": 0}


def test_queries_and_documents_have_their_own_prompts(tiny_encoder):
    # The default prompt is that of neither.
    model = tiny_encoder(pooling="mean")
    model.prompts = {"query": "find: ", "document": "text: ", "other": "a long prompt of nobody: "}
    model.default_prompt_name = "other"
    texts = ["\n".join(project_text()[3 * place :][:3]) for place in range(40)]
    evaluator = evaluation.KnownItemEvaluator(texts, split=str.splitlines)
    vectors = model.encode_query(evaluator.queries), model.encode_document(evaluator.documents)
    expected = evaluation.reciprocal_ranks(evaluation.answer_ranks(*vectors, evaluator.answers)).mean()
    assert evaluator(model)["mrr@10"] == pytest.approx(100 * expected)
    vectors = model.encode(evaluator.queries), model.encode(evaluator.documents)
    other = evaluation.reciprocal_ranks(evaluation.answer_ranks(*vectors, evaluator.answers)).mean()
    assert expected != other


def test_too_few_documents_of_three_sentences():
    with pytest.raises(ValueError, match="got 19 among 20"):
        evaluation.KnownItemEvaluator([*documents(19), "One sentence."])
