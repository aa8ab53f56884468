import numpy as np
import pytest
import torch
from encoders import project_text
from evaluation_inputs import TRANSFER_FILES, transfer_rows, write_transfer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from sbert_plugins.evaluation import TRANSFER_TASKS, Embeddings, TransferEvaluator
from sbert_plugins.evaluation.probes import Labelled, _features


@pytest.fixture
def data(tmp_path):
    for stem in TRANSFER_FILES:
        write_transfer(tmp_path, stem, transfer_rows(stem))
    return tmp_path


def accuracy(x, y, x_test, y_test):
    """Standardise by the training rows, fit, score: in numpy but for the classifier."""
    mean, deviation = x.mean(axis=0), x.std(axis=0)
    deviation[deviation == 0] = 1
    classifier = LogisticRegression(C=0.01, max_iter=2000).fit((x - mean) / deviation, y)
    return np.mean(classifier.predict((x_test - mean) / deviation) == y_test)


def features(model, rows):
    first, *second = (model.encode([row[i] for row in rows]).astype(np.float64) for i in range(1, len(rows[0])))
    return np.concatenate([abs(first - second[0]), first * second[0]], axis=1) if second else first


def test_all_seven(tiny_encoder, data):
    evaluator = TransferEvaluator(data)
    metrics = evaluator(tiny_encoder())
    assert set(metrics) == {*(f"transfer_{task}" for task in TRANSFER_TASKS), "transfer_avg7"}
    assert metrics["transfer_avg7"] == pytest.approx(np.mean([metrics[f"transfer_{task}"] for task in TRANSFER_TASKS]))
    assert evaluator.primary_metric == "transfer_avg7"
    assert evaluator.test_sets == TRANSFER_TASKS


def test_ten_folds_where_there_is_no_test_set(tiny_encoder, data):
    model, rows = tiny_encoder(), transfer_rows("cr")
    x, y = features(model, rows), np.array([row[0] for row in rows])
    folds = StratifiedKFold(10, shuffle=True, random_state=1111).split(x, y)
    expected = 100 * np.mean([accuracy(x[fit], y[fit], x[held], y[held]) for fit, held in folds])
    assert TransferEvaluator(data, tasks=["CR"])(model)["transfer_CR"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("task", "train", "test"),
    [
        ("SST2", ["sst2_train"], "sst2_test"),
        ("TREC", ["trec_train"], "trec_test"),
        ("MRPC", ["mrpc_train", "mrpc_val"], "mrpc_test"),
    ],
)
def test_the_given_split(tiny_encoder, data, task, train, test):
    model = tiny_encoder()
    rows, held = [row for stem in train for row in transfer_rows(stem)], transfer_rows(test)
    expected = accuracy(features(model, rows), [row[0] for row in rows], features(model, held), [row[0] for row in held])
    assert TransferEvaluator(data, tasks=[task])(model)[f"transfer_{task}"] == pytest.approx(100 * expected)


def test_it_can_learn_and_cannot_from_noise(tiny_encoder, tmp_path):
    """One word decides the label, or nothing does."""
    text = project_text()[:200]
    write_transfer(tmp_path, "mr", [(i % 2, ["yes " * 5, "no " * 5][i % 2] + sentence) for i, sentence in enumerate(text)])
    labels = np.random.default_rng(0).permutation([0, 1] * 100)
    write_transfer(tmp_path, "cr", [*zip(labels, text, strict=True)])
    metrics = TransferEvaluator(tmp_path, tasks=["MR", "CR"])(tiny_encoder(pooling="mean"))
    assert metrics["transfer_MR"] > 90
    assert 30 < metrics["transfer_CR"] < 70


class TestBadInput:
    @pytest.mark.parametrize(
        ("rows", "message"),
        [
            ([(0, "a"), (1,)], r"mr.tsv.gz, line 2: expected 2 tab-separated fields \(label, sentence\), got 1"),
            ([(0, "a"), ("good", "b")], "mr.tsv.gz, line 2: label must be a whole number from 0, got 'good'"),
            ([(0, "a")] * 20, "MR must have rows of two labels or more in mr.tsv.gz, got 1"),
            ([(0, "a")] * 20 + [(1, "b")] * 9, "MR has 9 rows of one label, and 10 folds need as many"),
            ([], "mr.tsv.gz must have at least one row"),
        ],
    )
    def test_rows(self, tmp_path, rows, message):
        write_transfer(tmp_path, "mr", rows)
        with pytest.raises(ValueError, match=message):
            TransferEvaluator(tmp_path, tasks=["MR"])

    def test_missing(self, data, monkeypatch):
        (data / "transfer" / "trec_test.tsv.gz").unlink()
        with pytest.raises(FileNotFoundError, match="trec_test.tsv.gz does not exist: .* whose folder transfer holds"):
            TransferEvaluator(data)
        monkeypatch.delenv("SBERT_PLUGINS_DATA", raising=False)
        with pytest.raises(FileNotFoundError, match="set SBERT_PLUGINS_DATA"):
            TransferEvaluator()

    @pytest.mark.parametrize("tasks", [["SST5"], [], ["CR", "CR"]])
    def test_tasks(self, data, tasks):
        with pytest.raises(ValueError, match="tasks must be a selection, each once, of MR, CR"):
            TransferEvaluator(data, tasks=tasks)

    def test_a_diverged_model(self, tiny_encoder, data):
        model = tiny_encoder()
        with torch.no_grad():
            model[0].model.embeddings.word_embeddings.weight.fill_(float("nan"))
        with pytest.raises(ValueError, match="embeddings must be finite"):
            TransferEvaluator(data, tasks=["CR"])(model)


def test_a_pair_is_its_difference_and_its_product(tmp_path):
    class Given(Embeddings):
        def __init__(self, **vectors):
            self.row, self.matrix = {name: i for i, name in enumerate(vectors)}, torch.tensor(list(vectors.values()))

    pair = Labelled([1], (["a"], ["b"]))
    assert _features(Given(a=[1.0, -2.0], b=[3.0, 1.0]), pair).tolist() == [[2, 3, 3, -2]]
