import csv

import numpy as np
import pytest
import torch
from encoders import SENTENCES, project_text
from evaluation_inputs import CountingEncoder
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer.evaluation import (
    EmbeddingSimilarityEvaluator,
    RerankingEvaluator,
)
from sentence_transformers.sentence_transformer.trainer import SentenceTransformerTrainer

from sbert_plugins.evaluation import (
    EmbeddingEvaluator,
    JointEvaluator,
    RetrievalEvaluator,
    encode_once,
    evaluate,
)


def similarity(**keywords):
    text = project_text()[:20]
    grades = [i / 10 for i in range(10)]
    return EmbeddingSimilarityEvaluator(text[:10], text[10:], grades, write_csv=False, **keywords)


class Norm(EmbeddingEvaluator):
    def compute(self, encode):
        norms = encode(project_text()[:5]).norm(dim=1)
        return {"norm": norms.mean().item(), "largest": norms.max().item()}


class TestEncodeOnce:
    @pytest.mark.parametrize(
        "how",
        [
            {},
            {"convert_to_tensor": True},
            {"convert_to_numpy": False},
            {"normalize_embeddings": True},
            {"truncate_dim": 8},
            {"precision": "binary"},
            {"output_value": "token_embeddings"},
            {"output_value": None},
        ],
        ids=str,
    )
    def test_returns_what_the_model_returns(self, tiny_encoder, how):
        model = tiny_encoder()
        for texts in (project_text()[:6], project_text()[0]):
            expected = model.encode(texts, **how)
            with encode_once(model):
                for found in (model.encode(texts, **how), model.encode(texts, **how)):
                    assert type(found) is type(expected)
                    if isinstance(expected, dict) or (
                        isinstance(expected, list) and isinstance(expected[0], dict)
                    ):
                        continue
                    for one, other in zip(found, expected, strict=True):
                        np.testing.assert_allclose(one, other, atol=1e-6)

    def test_only_new_texts_are_encoded(self, tiny_encoder):
        counting = CountingEncoder(tiny_encoder())
        model = counting.model
        with encode_once(model):
            model.encode(["a", "b", "a"])
            model.encode("b")
            model.encode_query(["c", "a"])
            with encode_once(model):
                model.encode_document(["c", "d"])
            model.encode(["d"])
        assert counting.calls == [["a", "b"], ["c"], ["d"]]
        model.encode(["a"])
        assert counting.calls[-1] == ["a"]

    def test_prompts_and_truncation_are_distinguished(self, tiny_encoder):
        model = tiny_encoder()
        model.prompts = {"query": "question: ", "document": ""}
        calls = [{}, {"prompt": "question: "}, {"prompt_name": "query"}, {"prompt_name": "document"}]
        expected = [model.encode(["a"], **call) for call in calls]
        counting = CountingEncoder(model)
        with encode_once(model):
            for call, vectors in zip(calls, expected, strict=True):
                np.testing.assert_allclose(model.encode(["a"], **call), vectors, atol=1e-6)
            np.testing.assert_allclose(model.encode_query(["a"]), expected[1], atol=1e-6)
            assert len(counting.calls) == 2
            with model.truncate_embeddings(4):
                assert model.encode(["a"]).shape == (1, 4)

    def test_a_router_encodes_queries_and_documents_differently(self, tiny_encoder):
        routes = [[*tiny_encoder(pooling=pooling)] for pooling in ("cls", "mean")]
        model = SentenceTransformer(modules=[Router.for_query_document(*routes)], device="cpu")
        expected = [model.encode_query(["a cat"]), model.encode_document(["a cat"])]
        with encode_once(model):
            found = [model.encode_query(["a cat"]), model.encode_document(["a cat"])]
        np.testing.assert_allclose(found, expected, atol=1e-6)

    def test_embeddings_that_are_not_finite(self, tiny_encoder):
        model = tiny_encoder()
        with torch.no_grad():
            model[0].model.embeddings.word_embeddings.weight.fill_(float("nan"))
        with pytest.raises(ValueError, match="2 of 2 texts contain NaN"), encode_once(model):
            model.encode(["a", "b"])
        assert "encode" not in vars(model)


class TestEvaluate:
    def test_scores_by_name_from_one_encoding(self, tiny_encoder):
        model = tiny_encoder(pooling="mean")
        text = project_text()
        samples = [{"query": text[0], "positive": [text[1]], "negative": text[2:9]}]
        corpus = {f"d{i}": text[i] for i in range(20)}
        search = RetrievalEvaluator({"q": text[20]}, corpus, {"q": {"d1"}}, name="search", write_csv=False)
        evaluators = [
            similarity(name="pairs"),
            RerankingEvaluator(samples, write_csv=False),
            search,
            Norm("norm"),
        ]
        alone = [evaluator(model) for evaluator in evaluators]
        counting = CountingEncoder(model)
        scores = evaluate(model, evaluators)
        assert list(scores) == ["pairs", "Reranking", "search", "Norm"]
        assert scores["pairs"]["spearman_cosine"] == pytest.approx(alone[0]["pairs_spearman_cosine"])
        assert scores["search"]["cosine_mrr@10"] == pytest.approx(alone[2]["search_cosine_mrr@10"])
        assert scores["Norm"] == pytest.approx(alone[3])
        assert set(counting.times.values()) == {1}

    @pytest.mark.parametrize("names", [[], ["a", "a"], ["", ""]])
    def test_names_must_differ(self, tiny_encoder, names):
        with pytest.raises(ValueError, match="name"):
            evaluate(tiny_encoder(), [Norm("norm", name=name) for name in names])


def test_several_evaluators_in_a_trainer(tiny_encoder, tmp_path):
    # Each evaluation encodes each text once, with the weights of that moment.
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainingArguments
    from sentence_transformers.sentence_transformer import losses

    model = tiny_encoder()
    counting = CountingEncoder(model)
    evaluator = JointEvaluator([similarity(name="pairs"), Norm("norm", name="own"), similarity(name="again")])
    arguments = SentenceTransformerTrainingArguments(
        str(tmp_path), max_steps=4, eval_strategy="steps", eval_steps=2, learning_rate=1e-2,
        save_strategy="no", disable_tqdm=True, report_to="none", metric_for_best_model="eval_own_norm",
    )  # fmt: skip
    rows = Dataset.from_dict({"anchor": SENTENCES, "positive": SENTENCES[::-1]})
    loss = losses.MultipleNegativesRankingLoss(model)
    trainer = SentenceTransformerTrainer(model, arguments, train_dataset=rows, loss=loss, evaluator=evaluator)
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "eval_sequential_score" in entry]
    assert [entry["eval_sequential_score"] for entry in logged] == [
        entry["eval_pairs_spearman_cosine"] for entry in logged
    ]
    assert logged[0]["eval_own_norm"] != logged[1]["eval_own_norm"]
    assert set(counting.times.values()) == {2}


def test_csv_card_and_main_metric(tiny_encoder, tmp_path):
    model, evaluator = tiny_encoder(), Norm("norm", name="own")
    for step in (5, 10):
        metrics = evaluator(model, str(tmp_path / "eval"), epoch=0, steps=step)
    with open(tmp_path / "eval" / "own_results.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["steps"] for row in rows] == ["5", "10"]
    assert float(rows[1]["norm"]) == metrics[evaluator.primary_metric] == metrics["own_norm"]
    assert model.model_card_data.eval_results_dict[evaluator] == metrics
