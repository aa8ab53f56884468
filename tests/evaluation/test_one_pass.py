import numpy as np
import pytest
import torch
from encoders import project_text
from evaluation_inputs import CountingEncoder
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer.evaluation import (
    EmbeddingSimilarityEvaluator,
    InformationRetrievalEvaluator,
    RerankingEvaluator,
)

from sbert_plugins import evaluation
from sbert_plugins.evaluation import EncodeOnce, OnePassEvaluator


def similarity(**keywords):
    text = project_text()[:20]
    return EmbeddingSimilarityEvaluator(text[:10], text[10:], [i / 10 for i in range(10)], write_csv=False, **keywords)


def retrieval(kind=evaluation.RetrievalEvaluator, **keywords):
    text = project_text()
    corpus = {f"d{i}": text[i + 10] for i in range(20)}
    return kind({"a": text[0], "b": text[1]}, corpus, {"a": {"d1"}, "b": {"d2"}}, write_csv=False, **keywords)


class TestEncodeOnce:
    def test_it_is_the_model_to_every_caller(self, tiny_encoder):
        model = tiny_encoder()
        view, text = EncodeOnce(model), project_text()[:6]
        np.testing.assert_allclose(view.encode(text), model.encode(text), atol=1e-6)
        np.testing.assert_allclose(view.encode(text[0]), model.encode(text[0]), atol=1e-6)
        assert view.encode(text[0]).shape == model.encode(text[0]).shape
        torch.testing.assert_close(view.encode(text, convert_to_tensor=True), model.encode(text, convert_to_tensor=True))
        rows = view.encode(text, convert_to_numpy=False)
        assert isinstance(rows, list)
        assert torch.is_tensor(rows[0])
        np.testing.assert_allclose(
            view.encode(text, normalize_embeddings=True), model.encode(text, normalize_embeddings=True), atol=1e-6
        )
        assert view.encode([]).shape == model.encode([]).shape
        assert view.similarity_fn_name == model.similarity_fn_name
        assert view.model_card_data is model.model_card_data

    def test_what_is_new_is_encoded(self, tiny_encoder):
        counting = CountingEncoder(tiny_encoder())
        view = EncodeOnce(counting.model)
        view.encode(["a", "b", "a"])
        view.encode("b")
        view.encode_query(["c", "a"])
        view.encode_document(["c", "d"])
        assert counting.calls == [["a", "b"], ["c"], ["d"]]

    def test_prompts_and_truncation_are_told_apart(self, tiny_encoder):
        model = tiny_encoder()
        model.prompts = {"query": "question: ", "document": ""}
        counting = CountingEncoder(model)
        view = EncodeOnce(model)
        for call in (
            {},
            {"prompt": "question: "},
            {"prompt_name": "query"},
            {"prompt_name": "document"},
            {"truncate_dim": 8},
        ):
            for _ in range(2):
                np.testing.assert_allclose(
                    view.encode(["a"], **call), SentenceTransformer.encode(model, ["a"], **call), atol=1e-6
                )
        np.testing.assert_allclose(
            view.encode_query(["a"]), SentenceTransformer.encode(model, ["a"], prompt="question: "), atol=1e-6
        )
        assert counting.calls == [["a"]] * 3
        with model.truncate_embeddings(4):
            assert view.encode(["a"]).shape == (1, 4)
        with pytest.raises(ValueError, match="Prompt name 'none' not found"):
            view.encode(["a"], prompt_name="none")

    def test_a_router_tells_queries_from_documents(self, tiny_encoder):
        routed = SentenceTransformer(
            modules=[Router.for_query_document([*tiny_encoder(pooling="cls")], [*tiny_encoder(pooling="mean")])], device="cpu"
        )
        view = EncodeOnce(routed)
        assert not np.allclose(view.encode_query(["a cat"]), view.encode_document(["a cat"]))
        np.testing.assert_allclose(view.encode_document(["a cat"]), routed.encode_document(["a cat"]), atol=1e-6)

    def test_a_models_own_way_to_encode_queries(self, tiny_encoder, tmp_path):
        class Asking(SentenceTransformer):
            def encode_query(self, inputs, **keywords):
                return self.encode([f"A question: {text}" for text in inputs], **keywords)

        tiny_encoder(pooling="mean").save_pretrained(str(tmp_path))
        model, text = Asking(str(tmp_path)), project_text()[:4]
        view = EncodeOnce(model)
        view.encode_ahead([("encode_query", text), ("encode_document", text)])
        for method in ("encode_query", "encode_document"):
            np.testing.assert_allclose(getattr(view, method)(text), getattr(model, method)(text), atol=1e-6)
        assert not np.allclose(view.encode_query(text), view.encode_document(text), atol=1e-2)

    def test_other_outputs_are_the_models(self, tiny_encoder):
        counting = CountingEncoder(tiny_encoder())
        view = EncodeOnce(counting.model)
        for _ in range(2):
            assert view.encode("a cat", output_value="token_embeddings").ndim == 2
            assert view.encode(["a cat"], precision="binary").dtype == np.int8
        assert len(counting.calls) == 4

    def test_a_diverged_model(self, tiny_encoder):
        model = tiny_encoder()
        with torch.no_grad():
            model[0].model.embeddings.word_embeddings.weight.fill_(float("nan"))
        with pytest.raises(ValueError, match="embeddings must be finite, got NaN or infinity for 2 of 2 sentences"):
            EncodeOnce(model).encode(["a", "b"])


class TestOnePassEvaluator:
    def test_inputs_that_are_no_plain_text(self, tiny_encoder):
        """The host's evaluator takes them; they are not encoded ahead."""
        text = project_text()
        corpus = {f"d{i}": {"text": text[i]} for i in range(10)}
        evaluator = InformationRetrievalEvaluator(
            {"a": text[10], "b": {"text": text[1]}}, corpus, {"b": {"d1"}}, write_csv=False
        )
        assert OnePassEvaluator([evaluator])(tiny_encoder())["cosine_mrr@10"] == 1.0

    def test_each_sentence_once_in_one_call(self, tiny_encoder):
        model = tiny_encoder(pooling="mean")
        evaluators = [retrieval(name="ours"), retrieval(InformationRetrievalEvaluator, name="host"), Lengths()]
        expected = [evaluator(model) for evaluator in evaluators]
        counting = CountingEncoder(model)
        metrics = OnePassEvaluator(evaluators)(model)
        assert len(counting.calls) == 1
        assert set(counting.times.values()) == {1}
        for one in expected:
            for name, value in one.items():
                assert metrics[name] == pytest.approx(value, abs=1e-6)

    def test_the_hosts_evaluators_share_too(self, tiny_encoder):
        model = tiny_encoder(pooling="mean")
        samples = [{"query": project_text()[0], "positive": [project_text()[1]], "negative": project_text()[2:9]}]
        evaluators = [similarity(name="a"), RerankingEvaluator(samples, write_csv=False), similarity(name="b")]
        alone = similarity(name="a")(model)
        counting = CountingEncoder(model)
        metrics = OnePassEvaluator(evaluators)(model)
        assert set(counting.times.values()) == {1}
        assert metrics["a_spearman_cosine"] == pytest.approx(alone["a_spearman_cosine"]) == metrics["b_spearman_cosine"]

    def test_score_and_card(self, tiny_encoder, tmp_path):
        model = tiny_encoder()
        evaluator = OnePassEvaluator([similarity(name="a"), Lengths()], main_score_function=sum)
        metrics = evaluator(model, str(tmp_path), epoch=1, steps=2)
        assert metrics["sequential_score"] == pytest.approx(metrics["a_spearman_cosine"] + metrics["length"])
        assert OnePassEvaluator([Lengths(), similarity()])(model)["sequential_score"] == metrics["length"]
        assert len(model.model_card_data.eval_results_dict) == 4

    def test_an_evaluator_that_returns_a_number(self, tiny_encoder):
        class Number(BaseEvaluator):
            def __call__(self, model, *_):
                return 0.25

        assert OnePassEvaluator([Number(), Lengths()])(tiny_encoder())["evaluator_0"] == 0.25

    def test_it_follows_the_weights(self, tiny_encoder):
        """What it keeps, it keeps for one call."""
        model, evaluator = tiny_encoder(), OnePassEvaluator([similarity()])
        before = evaluator(model)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter))
        assert evaluator(model) != before

    def test_two_of_one_name(self, tiny_encoder):
        with pytest.raises(ValueError, match="two evaluators return .*spearman_cosine.*: give each a name= of its own"):
            OnePassEvaluator([similarity(), similarity()])(tiny_encoder())
        with pytest.raises(ValueError, match="evaluators must be at least one evaluator, got none"):
            OnePassEvaluator([])


class Lengths(BaseEvaluator):
    """An evaluator of somebody's own, with sentences that the suite collects."""

    sentences = ("first of its own", "second of its own")

    def __init__(self):
        super().__init__()
        self.primary_metric = "length"

    def __call__(self, model, output_path=None, epoch=-1, steps=-1):
        value = float(np.linalg.norm(model.encode(list(self.sentences)), axis=1).mean())
        model.model_card_data.set_evaluation_metrics(self, {"length": value}, epoch, steps)
        return {"length": value}
