import csv
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from encoders import project_text
from evaluation_inputs import CountingEncoder
from scipy.stats import spearmanr
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

from sbert_plugins import evaluation
from sbert_plugins.evaluation import TASKS, PairsEvaluator, ScoredPairs, STSSuiteEvaluator, load_sts, read_scored_pairs
from sbert_plugins.evaluation.sts import ALL_OF_SICK
from sbert_plugins.recipes.scoring import Scorer

FILES = {
    "STS12": "sts12", "STS13": "sts13", "STS14": "sts14", "STS15": "sts15", "STS16": "sts16",
    "STS-B": "stsb_test", "SICK-R": "sick_test",
}  # fmt: skip


@pytest.fixture
def small_data(tmp_path):
    """The layout of the data directory with ten pairs a task; half of the sentences occur in every task."""
    folder = tmp_path / "data" / "sts"
    folder.mkdir(parents=True)
    text = project_text()
    for number, stem in enumerate([*FILES.values(), "stsb_dev", "sick_train", "sick_trial"], start=1):
        lines = [f"subset\t{1 + i % 5}\t{text[i]}\t{text[10 * number + i]}\n" for i in range(10)]
        (folder / f"{stem}.tsv").write_text("".join(lines), encoding="utf-8")
    return tmp_path / "data"


def test_seven_tasks_one_deduplicated_encode(tiny_encoder, small_data):
    encoder = CountingEncoder(tiny_encoder())
    metrics = STSSuiteEvaluator(small_data)(encoder.model)
    assert set(metrics) == {*TASKS, "avg7"}
    assert metrics["avg7"] == pytest.approx(np.mean([metrics[task] for task in TASKS]))
    (sentences,) = encoder.calls
    assert len(sentences) == len(set(sentences)) == 10 + 7 * 10


def test_each_task_is_the_hosts_spearman(tiny_encoder, small_data):
    model = tiny_encoder()
    metrics = STSSuiteEvaluator(small_data)(model)
    for task in TASKS:
        pairs = load_sts(task, small_data)
        host = EmbeddingSimilarityEvaluator(*pairs, main_similarity="cosine", write_csv=False)
        assert metrics[task] == pytest.approx(100 * host(model)["spearman_cosine"], abs=1e-4)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ((["a", "b", "c"], ["a"], [1.0, 2.0, 3.0]), "three columns of one length, got 3, 1, 3"),
        ((["a", "b", "c"], ["a", "b", "c"], [1.0, float("nan"), 3.0]), "must be finite, got nan in row 1"),
        ((["a", "b", "c"], ["a", "b", "c"], [1.0, 1.0, 1.0]), "at least 3, with two different grades, got 3 of 1"),
        ((["a"], ["a"], [1.0]), "got 1 of 1"),
        ((["a", "b", "c"], ["a", "b", None], [1.0, 2.0, 3.0]), "must be text, got None in row 2"),
        ((["a", "b", "c"], ["a", "b", "c"], ["1", "2", "3"]), "must be numbers, got '1' in row 0"),
        (([], [], []), "got 0 of 0"),
    ],
)
def test_pairs_that_say_nothing(pairs, message):
    with pytest.raises(ValueError, match=message):
        PairsEvaluator(ScoredPairs(*pairs))


def test_any_pairs_are_the_hosts_spearman(tiny_encoder, small_data):
    model, pairs = tiny_encoder(), load_sts("STS-B dev", small_data)
    host = EmbeddingSimilarityEvaluator(*pairs, main_similarity="cosine", write_csv=False)
    expected = pytest.approx(100 * host(model)["spearman_cosine"], abs=1e-4)
    assert PairsEvaluator(pairs, name="dev")(model) == {"dev_spearman": expected}
    assert PairsEvaluator(pairs).get_config_dict()["pairs"] == 10


def test_subsets_are_concatenated_not_averaged(tiny_encoder, tmp_path):
    """SentEval "all": one correlation over the rows of all subsets."""
    (tmp_path / "sts").mkdir()
    rows = [("a", 1, "one dog", "two cats"), ("a", 2, "a red car", "a blue car"), ("b", 5, "it rains", "rain falls")]
    rows += [("b", 0, "he sings", "stones are hard"), ("b", 4, "a man runs", "a man is running")]
    (tmp_path / "sts" / "sts16.tsv").write_text("".join("\t".join(map(str, row)) + "\n" for row in rows), encoding="utf-8")
    model = tiny_encoder()
    first, second = (model.encode([row[i] for row in rows], normalize_embeddings=True) for i in (2, 3))
    expected = 100 * spearmanr((first * second).sum(axis=1), [row[1] for row in rows]).statistic
    assert STSSuiteEvaluator(tmp_path, tasks=["STS16"])(model) == {
        "STS16": pytest.approx(expected, abs=1e-4),
        "avg1": pytest.approx(expected, abs=1e-4),
    }


def test_sick_all_is_the_three_files(small_data):
    evaluator = STSSuiteEvaluator(small_data, sick="all", tasks=["SICK-R"])
    assert len(evaluator.pairs["SICK-R"].scores) == 30


@pytest.mark.parametrize(
    ("how", "notes"),
    [({"sick": "all"}, [ALL_OF_SICK]), ({}, []), ({"sick": "all", "tasks": ["STS12"]}, [])],
)
def test_a_page_says_that_sick_is_all_of_it(small_data, how, notes):
    assert Scorer([STSSuiteEvaluator(small_data, **how)]).notes == notes


def test_model_card_csv_and_name(tiny_encoder, small_data, tmp_path):
    model = tiny_encoder()
    evaluator = STSSuiteEvaluator(small_data, name="suite")
    for step in (5, 10):
        metrics = evaluator(model, output_path=str(tmp_path / "eval"), epoch=0, steps=step)
    assert evaluator.primary_metric == "suite_avg7"
    assert set(metrics) == {f"suite_{key}" for key in (*TASKS, "avg7")}
    with open(tmp_path / "eval" / "suite_sts_suite_results.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["steps"] for row in rows] == ["5", "10"]
    assert float(rows[1]["avg7"]) == metrics["suite_avg7"]
    model.save_pretrained(str(tmp_path / "model"))
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    for task in TASKS:
        assert f"| {task} " in card
    assert "| **avg7** " in card


class TestBadInput:
    def test_missing_directory_and_file(self, small_data, tmp_path):
        with pytest.raises(FileNotFoundError, match=r"nowhere/sts/sts12.tsv does not exist: SBERT_PLUGINS_DATA or data_dir"):
            STSSuiteEvaluator(tmp_path / "nowhere")
        (small_data / "sts" / "sts14.tsv").unlink()
        with pytest.raises(FileNotFoundError, match="sts14.tsv does not exist"):
            STSSuiteEvaluator(small_data)

    @pytest.mark.usefixtures("no_hub")
    def test_neither_data_nor_hub(self, monkeypatch):
        monkeypatch.delenv("SBERT_PLUGINS_DATA", raising=False)
        with pytest.raises(ConnectionError, match="set SBERT_PLUGINS_DATA .* or make mteb/sts12-sts reachable on the Hugging"):
            STSSuiteEvaluator()

    def test_environment_variable(self, monkeypatch, small_data):
        monkeypatch.setenv("SBERT_PLUGINS_DATA", str(small_data))
        assert len(STSSuiteEvaluator().pairs) == 7

    def test_the_hub_has_no_test_set_of_sick(self):
        with pytest.raises(ValueError, match="pass sick='all'"):
            load_sts("SICK-R", hub=True)
        with pytest.raises(ValueError, match="pass sick='all'"):  # before it loads the other six
            STSSuiteEvaluator(sick="test", hub=True)

    @pytest.mark.parametrize("how", [{"hub": True}, {"hub": True, "sick": "all"}, {"hub": True, "tasks": ["STS12"]}, {}])
    def test_from_the_hub_all_of_sick_is_scored_and_said(self, monkeypatch, caplog, how):
        monkeypatch.delenv("SBERT_PLUGINS_DATA", raising=False)
        asked = []
        rows = {"sentence1": ["a", "b", "c"], "sentence2": ["d", "e", "f"], "score": [1, 2, 3]}
        monkeypatch.setattr("datasets.load_dataset", lambda name, split: asked.append((name, split)) or rows)
        suite = STSSuiteEvaluator(**how)
        assert asked[-1] == (("mteb/sts12-sts", "test") if "tasks" in how else ("mteb/sickr-sts", "test"))
        assert suite.get_config_dict()["sick"] == "all"
        assert ("the papers score its 4,927" in caplog.text) is ("tasks" not in how and "sick" not in how)

    @pytest.mark.parametrize(
        ("keywords", "message"),
        [
            ({"tasks": ["STS17"]}, r"tasks must be a selection, each once, of STS12, .* got \['STS17'\]"),
            ({"tasks": []}, r"tasks must be a selection"),
            ({"tasks": ["STS12", "STS12"]}, r"each once, of STS12"),
            ({"sick": "train"}, "sick must be 'test' .* got 'train'"),
        ],
    )
    def test_values(self, small_data, keywords, message):
        with pytest.raises(ValueError, match=message):
            STSSuiteEvaluator(small_data, **keywords)
        with pytest.raises(ValueError, match="task must be one of STS12, .* got 'STS17'"):
            load_sts("STS17", small_data)

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("a\t3.0\tonly one", "line 2: expected 4 tab-separated fields .* got 3"),
            ("a\t5.2\tx\ty", r"line 2: score must be a number in \[0, 5\], got '5.2'"),
            ("a\t-0.1\tx\ty", r"line 2: score must be a number in \[0, 5\], got '-0.1'"),
            ("a\thigh\tx\ty", r"line 2: score must be a number in \[0, 5\], got 'high'"),
            ("a\tnan\tx\ty", r"line 2: score must be a number in \[0, 5\], got 'nan'"),
        ],
    )
    def test_rows(self, tmp_path, line, message):
        path = tmp_path / "pairs.tsv"
        path.write_text(f"a\t1\tx\ty\n{line}\n", encoding="utf-8")
        with pytest.raises(ValueError, match=f"pairs.tsv, {message}"):
            read_scored_pairs(path)

    def test_a_model_that_has_diverged(self, tiny_encoder, small_data):
        model = tiny_encoder()
        with torch.no_grad():
            model[0].model.embeddings.word_embeddings.weight.fill_(float("nan"))
        with pytest.raises(ValueError, match="embeddings must be finite, got NaN or infinity for 80 of 80 sentences"):
            STSSuiteEvaluator(small_data)(model)


def test_rows_keep_odd_characters(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text('a\t1\tHe said "no"\twith\u2028a line separator\r\n', encoding="utf-8", newline="")
    assert read_scored_pairs(path).sentences1 == ['He said "no"']
    assert read_scored_pairs(path).sentences2 == ["with\u2028a line separator"]


@pytest.mark.parametrize("pairs", [(["a", "b"], ["a", "b"], [1.0, 2.0]), {"a": 1}, ScoredPairs])
def test_pairs_are_scored_pairs(pairs):
    with pytest.raises(ValueError, match=r"pairs must be evaluation.ScoredPairs\(.*got (tuple|dict|type)"):
        PairsEvaluator(pairs)


def test_an_encoder_that_has_collapsed_has_no_order(tiny_encoder, caplog):
    """Rounding would give one: -20 to 20."""
    model = tiny_encoder()
    with torch.no_grad():
        model[0].model.encoder.layer[-1].output.LayerNorm.weight.zero_()
        model[0].model.encoder.layer[-1].output.LayerNorm.bias.normal_()
    sentences = [f"{word} and {other}" for word in ("dogs", "cats", "rain") for other in ("men", "sun", "snow")]
    pairs = ScoredPairs(sentences, sentences[::-1], [float(place) for place in range(9)])
    assert PairsEvaluator(pairs, name="x")(model) == {"x_spearman": 0.0}
    assert "All pairs have one cosine, 1.00000" in caplog.text


def test_cosines_that_are_near_have_an_order():
    """As those of [CLS] before any training are: the last digits of float32 alone are noise."""
    pairs = ScoredPairs(["a", "b", "c"], ["d", "e", "f"], torch.tensor([1.0, 2.0, 3.0]))
    near = SimpleNamespace(cosines=lambda *_: torch.tensor([0.999994, 0.999996, 0.999999]))
    assert PairsEvaluator(pairs).compute(near) == {"spearman": pytest.approx(100)}


@pytest.mark.parametrize(
    ("task", "dataset", "split"),
    [
        *((f"STS{year}", f"mteb/sts{year}-sts", "test") for year in range(12, 17)),
        ("STS-B", "mteb/stsbenchmark-sts", "test"),
        ("STS-B train", "mteb/stsbenchmark-sts", "train"),
        ("STS-B dev", "mteb/stsbenchmark-sts", "validation"),
        ("SICK-R all", "mteb/sickr-sts", "test"),
    ],
)
def test_what_is_read_from_the_hub(monkeypatch, task, dataset, split):
    """Dev chooses checkpoints: it must be no test set."""
    asked, rows = [], {"sentence1": ["a", "b"], "sentence2": ["c", "d"], "score": [1, 4.5]}
    monkeypatch.setattr("datasets.load_dataset", lambda name, *, split: asked.append((name, split)) or rows)
    assert evaluation.load_sts(task, hub=True) == evaluation.ScoredPairs(["a", "b"], ["c", "d"], [1.0, 4.5])
    assert asked == [(dataset, split)]


@pytest.mark.usefixtures("no_hub")
def test_an_empty_variable_names_no_directory(monkeypatch):
    monkeypatch.setenv("SBERT_PLUGINS_DATA", "")
    with pytest.raises(ConnectionError, match="STS-B dev is read from a data directory or from the Hub"):
        load_sts("STS-B dev")
