import pytest
import torch
from encoders import project_counts, project_text
from recipe_inputs import train

from sbert_plugins import recipes
from sbert_plugins.recipes import run
from sbert_plugins.training import loss_state


@pytest.fixture
def trained(monkeypatch):
    """Keep the losses that are built."""
    built = []
    build = recipes.Recipe.build_loss
    monkeypatch.setattr(
        recipes.Recipe,
        "build_loss",
        lambda *args, **kwargs: built.append(build(*args, **kwargs)) or built[-1],
    )
    return built


@pytest.mark.parametrize("method", ["paser", "paser-supervised", "denosent", "pt-bert", "recommended"])
def test_a_loss_is_loaded_as_it_was_trained(method, tiny_encoder, tmp_path, trained, caplog):
    train(method, tiny_encoder(), tmp_path / "run")
    caplog.clear()
    # The record does not hold the counts for another vocabulary.
    counts = {"frequencies": project_counts(tiny_encoder().tokenizer)} if method == "recommended" else {}
    loss = recipes.load_loss(tmp_path / "run", **counts)
    before, after = (loss_state.own_state(one, one.model) for one in (trained[0], loss))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    encoders = (dict(one.model.named_parameters()) for one in (trained[0], loss))
    assert all(torch.equal(*pair) for pair in zip(*(one.values() for one in encoders), strict=True))
    assert not caplog.messages  # no new head, as the trained one is loaded


def test_phrases_of_a_finished_training(tiny_encoder, tmp_path, trained):
    train("paser", tiny_encoder(), tmp_path / "run")
    rows = recipes.reconstruct_phrases(tmp_path / "run", project_text()[:5])
    assert rows.column_names == ["anchor", "masked", "phrase", "written"]
    assert rows["written"][:] == trained[0].reconstruct(rows["anchor"][:], rows["masked"][:])
    assert len(rows) == 5


def test_what_holds_no_decoder(tiny_encoder, tmp_path):
    with pytest.raises(FileNotFoundError, match="no trained loss"):
        recipes.load_loss(tmp_path)
    train("arccse", tiny_encoder(), tmp_path / "arccse")
    with pytest.raises(ValueError, match="Only PaSeR"):
        recipes.reconstruct_phrases(tmp_path / "arccse", project_text()[:5])
    train("consert", tiny_encoder(), tmp_path / "consert")
    assert not (tmp_path / "consert" / "loss").exists()
    assert (tmp_path / "consert" / run.RESULTS_FILE).exists()
