import numpy as np
import pytest
import torch
from encoders import project_text

from sbert_plugins import evaluation


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
    """The default prompt is that of neither."""
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
