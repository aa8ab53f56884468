import math

import pytest
import torch

from sbert_plugins.evaluation import EmbeddingEvaluator, Embeddings, PairsEvaluator, ScoredPairs
from sbert_plugins.evaluation.embeddings import append_csv, check_finite


def test_looked_up_in_the_order_asked_for(tiny_encoder):
    model = tiny_encoder()
    embeddings = Embeddings(model, ["b c", "a", "b c", "d"])
    assert list(embeddings.row) == ["b c", "a", "d"]
    assert embeddings(["d", "a", "d"]).shape[0] == 3
    torch.testing.assert_close(embeddings(["d", "b c"]), model.encode(["d", "b c"], convert_to_tensor=True))
    first, second = embeddings(["a", "d"]), embeddings(["b c", "d"])
    expected = torch.nn.functional.cosine_similarity(first, second)
    torch.testing.assert_close(embeddings.cosines(["a", "d"], ["b c", "d"]), expected)


def test_the_metric_that_chooses_is_known_before_a_call(tiny_encoder):
    pairs = ScoredPairs(["a cat", "a dog", "two birds"], ["a kitten", "a car", "some birds"], [4, 0, 5])
    for name, metric in (("", "spearman"), ("mine", "mine_spearman"), ("spearman", "spearman_spearman")):
        evaluator = PairsEvaluator(pairs, name=name, write_csv=False)
        assert evaluator.primary_metric == metric
        assert metric in evaluator(tiny_encoder())
        assert evaluator.primary_metric == metric


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


ONE = {"epoch": 1, "STS-B": 70.0, "avg1": 70.0}
TWO = {"epoch": 1, "SICK-R": 50.0, "STS-B": 70.0, "avg2": 60.0}


class TestCsv:
    def test_other_columns_are_not_written_under_a_header(self, tmp_path, caplog):
        path, second = tmp_path / "results.csv", tmp_path / "results_2.csv"
        for values in (ONE, TWO, ONE, TWO):
            append_csv(path, values)
        assert path.read_text(encoding="utf-8").split() == ["epoch,STS-B,avg1", *["1,70.0,70.0"] * 2]
        assert second.read_text(encoding="utf-8").split() == ["epoch,SICK-R,STS-B,avg2", *["1,50.0,70.0,60.0"] * 2]
        (message,) = caplog.messages
        assert message == f"{path} has other columns: rows of epoch, SICK-R, STS-B, avg2 are written to {second}."

    def test_the_first_number_that_is_free_or_agrees(self, tmp_path):
        path = tmp_path / "results.csv"
        for values in (ONE, TWO, {"epoch": 1, "map": 0.5}, {"epoch": 2, "map": 0.6}):
            append_csv(path, values)
        assert (tmp_path / "results_3.csv").read_text(encoding="utf-8").split() == ["epoch,map", "1,0.5", "2,0.6"]
        assert len([*tmp_path.iterdir()]) == 3

    def test_an_empty_file_gets_the_header(self, tmp_path, caplog):
        path = tmp_path / "results.csv"
        path.touch()
        append_csv(path, ONE)
        assert path.read_text(encoding="utf-8").split() == ["epoch,STS-B,avg1", "1,70.0,70.0"]
        assert not caplog.messages

    @pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
    def test_what_a_spreadsheet_saved_ends_no_training(self, tmp_path, encoding):
        path = tmp_path / "results.csv"
        path.write_text("epoch,STS-B,avg1\n", encoding=encoding)
        append_csv(path, ONE)
        assert (tmp_path / "results_2.csv").exists() == (encoding == "utf-16")


def test_half_precision_is_compared_in_float32():
    class Half:
        def encode(self, sentences, **_):
            return torch.tensor([[1.0, 0.01 * i] for i, _ in enumerate(sentences)], dtype=torch.float16)

    embeddings = Embeddings(Half(), ["a", "b", "c"])
    assert embeddings(["c"]).dtype == embeddings.cosines(["a"], ["b"]).dtype == torch.float32


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_finite(value):
    with pytest.raises(ValueError, match="got NaN or infinity for 1 of 2 sentences"):
        check_finite(torch.tensor([[1.0, value], [0.0, 1.0]]))
