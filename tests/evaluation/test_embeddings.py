import pytest
import torch

from sbert_plugins.evaluation import EmbeddingEvaluator, Embeddings


def test_looked_up_in_the_order_asked_for(tiny_encoder):
    model = tiny_encoder()
    embeddings = Embeddings(model, ["b c", "a", "b c", "d"])
    assert list(embeddings.row) == ["b c", "a", "d"]
    assert embeddings(["d", "a", "d"]).shape[0] == 3
    torch.testing.assert_close(embeddings(["d", "b c"]), model.encode(["d", "b c"], convert_to_tensor=True))
    first, second = embeddings(["a", "d"]), embeddings(["b c", "d"])
    expected = torch.nn.functional.cosine_similarity(first, second)
    torch.testing.assert_close(embeddings.cosines(["a", "d"], ["b c", "d"]), expected)


def test_an_evaluator_is_its_sentences_and_its_formula(tiny_encoder, tmp_path, caplog):
    class NormEvaluator(EmbeddingEvaluator):
        sentences = ("a", "b", "a")
        csv_file = "norms.csv"

        def compute(self, embeddings):
            return {"norm": float(embeddings(self.sentences).norm(dim=1).mean())}

    model = tiny_encoder()
    evaluator = NormEvaluator(name="x")
    evaluator.primary_metric = "norm"
    with caplog.at_level("INFO", logger="sbert_plugins"):
        metrics = evaluator(model, str(tmp_path), epoch=1, steps=2)
    expected = float(torch.tensor(model.encode(["a", "b", "a"])).norm(dim=1).mean())
    assert metrics == {"x_norm": pytest.approx(expected)}
    assert evaluator.primary_metric == "x_norm"
    assert "Norm: norm" in caplog.text
    assert (tmp_path / "x_norms.csv").read_text(encoding="utf-8").splitlines()[0] == "epoch,steps,norm"


def test_the_base_class_has_no_formula(tiny_encoder):
    evaluator = EmbeddingEvaluator()
    evaluator.sentences = ["a"]
    with pytest.raises(NotImplementedError):
        evaluator(tiny_encoder())
