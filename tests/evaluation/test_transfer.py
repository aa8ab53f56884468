import numpy as np
import pytest
from encoders import project_text
from evaluation_inputs import write_rows
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from sbert_plugins.evaluation import TRANSFER_TASKS, TransferEvaluator, measure

STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1)
FILES = [
    *("mr", "cr", "subj", "mpqa", "sst2_train", "sst2_dev", "sst2_test", "trec_train", "trec_test"),
    *("mrpc_train", "mrpc_val", "mrpc_test"),
]


def rows_of(name):
    """Rows whose label follows from the length of the sentence, with some noise."""
    start, text = 7 * FILES.index(name), project_text()
    texts = [(text[start + i], text[start + i + 400]) for i in range(60)]
    labels = [int(len(first) > 60) ^ (i % 7 == 0) for i, (first, _) in enumerate(texts)]
    width = 2 if name.startswith("mrpc") else 1
    return [(label, *pair[:width]) for label, pair in zip(labels, texts, strict=True)]


@pytest.fixture
def folder(tmp_path):
    for name in FILES:
        write_rows(tmp_path / "transfer" / f"{name}.tsv.gz", *rows_of(name))
    return tmp_path


def features_of(model, rows):
    """Embeddings, or their absolute difference and their product."""
    labels, *texts = zip(*rows, strict=True)
    vectors = [model.encode(list(column)) for column in texts]
    if len(vectors) == 2:
        u, v = vectors
        return np.concatenate([abs(u - v), u * v], axis=1), np.array(labels)
    return vectors[0], np.array(labels)


def hits(x, y, x_test, y_test, strength):
    mean, deviation = x.mean(axis=0), x.std(axis=0)
    fitted = LogisticRegression(C=strength, max_iter=1000).fit((x - mean) / deviation, y)
    return fitted.predict((x_test - mean) / deviation) == y_test


def choose(x, y, parts):
    """Return the strength with the most hits on the inner splits, the smallest of the best."""
    scores = [np.mean([hits(x[a], y[a], x[b], y[b], c).mean() for a, b in parts]) for c in STRENGTHS]
    return STRENGTHS[int(np.argmax(np.round(scores, 9)))]


def inner(x, y):
    return list(StratifiedKFold(5, shuffle=True, random_state=1111).split(x, y))


def test_average_and_items(tiny_encoder, folder):
    tasks = ("SST2", "TREC", "MRPC")
    evaluator = TransferEvaluator(folder, tasks=tasks, name="transfer")
    metrics = evaluator(tiny_encoder(pooling="mean"))
    scores = [metrics[f"transfer_{task}"] for task in tasks]
    assert list(metrics) == ["transfer_avg3", *(f"transfer_{task}" for task in tasks)]
    assert metrics["transfer_avg3"] == pytest.approx(np.mean(scores))
    assert evaluator.items.mean() == pytest.approx(np.mean(scores))
    assert len(evaluator.items) == 3 * 60
    assert len({*scores}) > 1  # the tasks are not scored by the same rows


def test_seven_tasks_by_default(folder):
    evaluator = TransferEvaluator(folder)
    assert evaluator.primary_metric == "avg7"
    assert list(evaluator.splits) == list(TRANSFER_TASKS)


def test_ten_folds_where_there_is_no_split(tiny_encoder, folder):
    model = tiny_encoder(pooling="mean")
    x, y = features_of(model, rows_of("cr"))
    correct = np.empty(len(y))
    for a, b in StratifiedKFold(10, shuffle=True, random_state=1111).split(x, y):
        correct[b] = hits(x[a], y[a], x[b], y[b], choose(x[a], y[a], inner(x[a], y[a])))
    assert TransferEvaluator(folder, tasks=["CR"])(model)["CR"] == pytest.approx(100 * correct.mean())


@pytest.mark.parametrize(
    ("task", "train", "test", "parts"),
    [
        ("TREC", ["trec_train"], "trec_test", None),
        ("MRPC", ["mrpc_train", "mrpc_val"], "mrpc_test", None),
        # The strength is chosen on a development set.
        ("SST2", ["sst2_train", "sst2_dev"], "sst2_test", [(np.arange(60), np.arange(60, 120))]),
    ],
)
def test_training_and_test_set(tiny_encoder, folder, task, train, test, parts):
    model = tiny_encoder(pooling="mean")
    x, y = features_of(model, [row for name in train for row in rows_of(name)])
    expected = hits(x, y, *features_of(model, rows_of(test)), choose(x, y, parts or inner(x, y)))
    assert TransferEvaluator(folder, tasks=[task])(model)[task] == pytest.approx(100 * expected.mean())


def test_a_label_that_a_word_shows_and_one_that_nothing_shows(tiny_encoder, tmp_path):
    text = project_text()[:100]
    shown = [(i % 2, ("yes " if i % 2 else "no ") * 5 + sentence) for i, sentence in enumerate(text)]
    labels = np.random.default_rng(0).permutation([0, 1] * 50)
    write_rows(tmp_path / "transfer" / "mr.tsv.gz", *shown)
    write_rows(tmp_path / "transfer" / "cr.tsv.gz", *zip(labels, text, strict=True))
    score = measure(
        tiny_encoder(pooling="mean"), [TransferEvaluator(tmp_path, tasks=["MR", "CR"], name="t")]
    )["t"]
    assert score.metric == "average"
    assert score.values["MR"] > 90
    assert 30 < score.values["CR"] < 70
    assert score.error < 7


def test_bad_values(folder, monkeypatch):
    with pytest.raises(KeyError, match="SST5"):
        TransferEvaluator(folder, tasks=["SST5"])
    write_rows(folder / "transfer" / "mr.tsv.gz", (0, "a"), (1,))
    with pytest.raises(ValueError, match=r"mr\.tsv\.gz, line 2"):
        TransferEvaluator(folder, tasks=["MR"])
    (folder / "transfer" / "trec_test.tsv.gz").unlink()
    with pytest.raises(FileNotFoundError, match=r"trec_test"):
        TransferEvaluator(folder, tasks=["TREC"])
    monkeypatch.delenv("SBERT_PLUGINS_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="SBERT_PLUGINS_DATA"):
        TransferEvaluator()
