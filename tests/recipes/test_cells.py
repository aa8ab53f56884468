from dataclasses import replace

import pytest

from sbert_plugins import recipes
from sbert_plugins.recipes.cells import Cell, read_methods, slug

LOSSES = "sentence_transformers.sentence_transformer.losses"


@pytest.mark.parametrize(
    ("text", "name", "keywords", "changed"),
    [
        ("simcse", "simcse", {}, {}),
        ("simcse:", "simcse", {}, {}),
        ("simcse:temperature=0.1,learning_rate=1e-4", "simcse", {"temperature": 0.1}, {"learning_rate": 1e-4}),
        (
            "arccse:margin_degrees=5,sam_rho=none,group_by_length=yes",
            "arccse",
            {"margin_degrees": 5},
            {"sam_rho": None, "group_by_length": True},
        ),
        # A value with commas goes on until the next key.
        (
            "consert:first_view=dropout,feature_cutoff,temperature=0.2",
            "consert",
            {"first_view": ["dropout", "feature_cutoff"], "temperature": 0.2},
            {},
        ),
        (f"{LOSSES}:MultipleNegativesRankingLoss", f"{LOSSES}:MultipleNegativesRankingLoss", {}, {}),
        (
            f"{LOSSES}:MultipleNegativesRankingLoss:scale=10,max_steps=3",
            f"{LOSSES}:MultipleNegativesRankingLoss",
            {"scale": 10},
            {"max_steps": 3},
        ),
    ],
)
def test_methods(text, name, keywords, changed):
    (method,) = read_methods([text])
    assert (method.text, method.name, method.loss_keywords, method.changes) == (text, name, keywords, changed)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "methods must be at least one of recommended, .*, or package.module:Class; got none"),
        (["simces"], "method must be one of .*simcse.*, got 'simces'"),
        (["simces:temperature=1"], "method must be one of .*simcse.*, got 'simces'"),
        ([""], "method must be one of .*, got ''"),
        (["simcse", "arccse", "simcse"], "methods must differ, got simcse and simcse"),
        (["simcse:temperature=0.1", "simcse:temperature=1e-1"], "methods must differ"),
        (["simcse:temprature=0.1"], "method simcse:temprature=0.1: keywords of simcse's loss must be among temperature"),
        (["simcse:temperature"], "method simcse:temperature: temperature needs a value, temperature=VALUE"),
        (
            ["simcse:group_by_length"],
            "method simcse:group_by_length: group_by_length needs a value",
        ),
        (["simcse:max_steps=10,max_steps=20"], "a setting is given once, got max_steps=10, max_steps=20"),
        (["simcse:epochs=2,max_steps=3"], "epochs and max_steps are two lengths of a training: give one"),
        (["simcse:learning_rate=fast"], "learning_rate takes a finite number, got 'fast'"),
        (["simcse:pooling=cls"], "pooling must be the same for all methods, got it with simcse"),
        (["paser-supervised"], "paser-supervised reads triplets, and a comparison is on sentences"),
        (["no_such_module:Loss"], "no_such_module cannot be imported"),
    ],
)
def test_what_is_no_method(texts, message):
    with pytest.raises(ValueError, match=message):
        read_methods(texts)


def test_settings_of_its_own():
    (method,) = read_methods(["simcse:batch_size=1"])
    with pytest.raises(ValueError, match="batch_size must be at least 2, got 1"):
        method.settings(recipes.RECOMMENDED.settings)


@pytest.mark.parametrize("key", ["max_seq_length", "sam_rho", "loss_learning_rate", "patience"])
def test_none_is_a_setting_of_its_own(key):
    shared = recipes.with_changes(
        recipes.RECOMMENDED.settings, max_seq_length=9, sam_rho=0.1, loss_learning_rate=0.1, patience=9
    )
    (method,) = read_methods([f"simcse:{key}=none"])
    assert method.settings(shared) == replace(shared, **{key: None})


def test_epochs_of_its_own_take_the_place_of_shared_updates():
    (method,) = read_methods(["simcse:epochs=2"])
    assert method.settings(recipes.with_changes(recipes.RECOMMENDED.settings, max_steps=3)).max_steps == -1


def test_file_names():
    assert slug("consert:temperature=0.1") == "consert_temperature=0.1"
    assert slug("a/b c") == "a_b_c"
    long = [slug(f"bag-of-words:frequencies=/{'é' * 300}{end}") for end in "ab"]
    assert long[0] != long[1]
    assert all(len(name.encode()) <= 200 and name.startswith("bag-of-words_frequencies=_") for name in long)


def test_methods_whose_files_would_be_one_are_refused():
    with pytest.raises(ValueError, match="methods must differ, got bag-of-words:mlm_head=a/b and bag-of-words:mlm_head=a_b"):
        read_methods(["bag-of-words:mlm_head=a/b", "bag-of-words:mlm_head=a_b"])


def test_only_what_a_training_of_ours_made_is_removed(tmp_path):
    cell = Cell(read_methods(["simcse"])[0], 0, tmp_path, {})
    cell.folder.mkdir()
    (cell.folder / "mine.txt").write_text("mine")
    cell.record_path.write_text("{}")
    cell.clear()
    assert (cell.folder / "mine.txt").exists()
    assert not cell.record_path.exists()
