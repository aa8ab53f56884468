"""The seven tasks' sentences as a text, and what says that they are no training text like others."""

import json

import pytest
from datasets import Dataset
from encoders import project_text
from recipe_inputs import quick

from sbert_plugins import evaluation, recipes
from sbert_plugins.recipes.output import pairs_mark, text_mark

NAME = "sts-sentences (transductive: the unlabelled sentences of the seven STS tasks)"
FILES = [f"sts{year}" for year in range(12, 17)]
FILES += ["stsb_train", "stsb_dev", "stsb_test", "sick_train", "sick_trial", "sick_test"]


@pytest.fixture
def small_data(tmp_path):
    """Eleven files of two pairs each; the second sentence of a file's last pair is the first of the next file."""
    (tmp_path / "data" / "sts").mkdir(parents=True)
    text = project_text()
    for place, name in enumerate(FILES):
        a, b, c, d = text[3 * place : 3 * place + 4]
        rows = f"x\t1\t{a}\t{b}\nx\t5\t {c} \t{d}\n"
        (tmp_path / "data" / "sts" / f"{name}.tsv").write_text(rows, encoding="utf-8")
    return tmp_path / "data"


def test_each_sentence_once_in_order(small_data):
    assert evaluation.sts_sentences(small_data) == project_text()[:34]
    assert recipes.read_text("sts-sentences", data_dir=small_data)["anchor"][:] == project_text()[:34]
    assert recipes.read_text("sts-sentences", data_dir=small_data, limit=3)["anchor"][:] == project_text()[:3]


def test_from_the_hub(monkeypatch, small_data):
    """mteb's copies: the test split of STS12 to 16 and SICK, which holds all of it there, and the three of STS-B."""
    asked = []

    def load_dataset(name, split):
        asked.append((name, split))
        return Dataset.from_dict({"sentence1": [f"{name} {split}"], "sentence2": ["the same"], "score": [1.0]})

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    names = [f"mteb/sts{year}-sts" for year in range(12, 17)]
    expected = [(name, "test") for name in names]
    expected += [("mteb/stsbenchmark-sts", split) for split in ("train", "validation", "test")] + [("mteb/sickr-sts", "test")]
    monkeypatch.setenv("SBERT_PLUGINS_DATA", str(small_data))
    sentences = recipes.read_text("sts-sentences", hub=True)["anchor"][:]
    assert asked == expected
    assert sentences == [f"{expected[0][0]} test", "the same", *(f"{name} {split}" for name, split in expected[1:])]


@pytest.mark.slow
def test_of_the_papers(data_dir):
    sentences = evaluation.sts_sentences(data_dir)
    assert len(sentences) == len(set(sentences)) == 29_510


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"column": "text"}, ValueError, "column must be left out where the text has no columns"),
        ({"limit": 0}, ValueError, "limit must be at least 1, got 0"),
        ({"data_dir": "nowhere"}, FileNotFoundError, "sts12.tsv does not exist"),
    ],
)
def test_mistakes(arguments, error, message):
    with pytest.raises(error, match=message):
        recipes.read_text("sts-sentences", **arguments)


@pytest.mark.usefixtures("no_hub")
def test_neither_data_nor_hub(monkeypatch):
    monkeypatch.delenv("SBERT_PLUGINS_DATA", raising=False)
    with pytest.raises(ConnectionError, match="STS12 is read from a data directory or from the Hub"):
        recipes.read_text("sts-sentences")


def test_a_file_of_that_name_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sts-sentences").write_text("It rains.\n")
    assert recipes.read_text("sts-sentences")["anchor"][:] == ["It rains."]


def test_it_is_said_wherever_the_text_is_named(tiny_encoder, small_data, tmp_path):
    lines = []
    sentences = recipes.read_text("sts-sentences", data_dir=small_data)
    arguments = {"output": tmp_path / "run", "settings": quick(max_steps=1), "text": "sts-sentences", "report": lines.append}
    results = recipes.train("arccse", sentences, tiny_encoder(), **arguments)
    assert lines[0] == f"Training ArcCSE on 34 sentences of {NAME}, seed 42."
    assert results["text"]["name"] == NAME
    assert json.loads((tmp_path / "run" / "results.json").read_text())["text"]["name"] == NAME
    card = (tmp_path / "run" / "model" / "README.md").read_text()
    assert NAME in card
    assert "datasets/sts-sentences" not in card  # no data set on the Hub


def test_no_more_than_the_papers_training(caplog):
    paser, settings = recipes.PASER, recipes.PASER.settings
    assert recipes.shortened(paser, settings, 62_198) is settings
    shorter = recipes.shortened(paser, settings, 1_000_000)
    assert shorter.updates(3_000_000) == 14_578
    assert caplog.messages == [
        "PaSeR: 5 epochs of 1,000,000 sentences would be up to 234,375 updates. By default it ends after 14,578, with the "
        "rows of its paper's or its authors' training, 932,970. Choose another length with epochs or max_steps (--epochs, "
        "--max-steps)."
    ]
    chosen = recipes.with_changes(settings, max_steps=300_000)
    assert recipes.shortened(paser, chosen, 1_000_000) is chosen


@pytest.mark.parametrize("method", recipes.RECIPES)
def test_no_default_is_a_week(method):
    """On the million sentences that most of them are trained on."""
    recipe = recipes.RECIPES[method]
    settings = recipes.shortened(recipe, recipes.settings_of(method), 1_000_000)
    assert settings.updates(1_000_000 * recipe.rows_a_sentence) <= 46_875


def test_the_row_of_a_none_is_counted_from_the_first():
    rows = Dataset.from_dict({"anchor": [*["A dog."] * 1500, None]})
    with pytest.raises(ValueError, match="got one in row 1500: leave such rows out"):
        text_mark(rows, None)


def test_a_sentence_repeats_whatever_its_positive_is():
    rows = Dataset.from_dict({"anchor": ["A dog.", "A dog.", "A cat."], "positive": ["x", "y", "z"]})
    assert text_mark(rows, None)["repeated"] == 1


def test_graded_pairs_are_known_by_the_order_of_their_scores():
    pairs = evaluation.ScoredPairs(["a", "b", "c"], ["d", "e", "f"], [0.0, 2.5, 5.0])
    mark = pairs_mark("x", pairs)
    assert pairs_mark("x", pairs._replace(scores=[0.0, 0.5, 1.0])) == mark  # of another scale
    assert pairs_mark("x", pairs._replace(scores=[0.0, 1.0, 0.5])) != mark
