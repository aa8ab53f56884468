"""``--report-to`` and ``--push-to-hub``: what cannot work is said before anything is loaded."""

import pytest
from encoders import project_text
from fake_hub import FakeHub

from sbert_plugins import cli

ID = "somebody/their-model"
QUICK = ["--max-steps", "1", "--batch-size", "8"]


@pytest.fixture
def hub(monkeypatch):
    hub = FakeHub()
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.delenv("SBERT_PLUGINS_DATA", raising=False)
    monkeypatch.setattr("huggingface_hub.HfApi", hub)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: "a token")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    return hub


@pytest.fixture
def command(tmp_path, encoder_path):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(project_text()[:16]), encoding="utf-8")
    return ["train", "arccse", str(text), "--model", encoder_path, "--output", str(tmp_path / "run"), *QUICK]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--report-to", "tensorbord"], "tensorbord is not supported, only azure_ml"),
        (["--report-to", "none", "wandb"], "report_to must be none, or names of trackers, got both"),
        (["--report-to", "swanlab"], "needs the package swanlab, which is not installed: pip install swanlab"),
        (["--public"], "--public is about --push-to-hub ID, which is not there"),
        (["--push-to-hub", ID, "--offline"], "--push-to-hub needs the network, and --offline uses none"),
        (["--push-to-hub", ID, "--seeds", "2"], "--push-to-hub pushes one model, and --seeds trains several"),
        (["--push-to-hub", "my-model"], "must be organization/name or user/name, got 'my-model'"),
        (["--push-to-hub", ""], "must be organization/name or user/name, got ''"),
    ],
)
def test_refused_before_anything_is_loaded(flags, message, hub, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sbert_plugins.recipes.reporting.find_spec", lambda module: None)
    arguments = ["train", "arccse", "no-such-text", "--model", "no/such/model", "--output", str(tmp_path / "run")]
    assert cli.main([*arguments, *flags]) == 2
    assert message in capsys.readouterr().err
    assert not hub.repositories
    assert not (tmp_path / "run").exists()


def test_no_token(hub, command, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    assert cli.main([*command, "--push-to-hub", ID]) == 2
    assert "needs a token of the Hub, and there is none" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_no_right_to_write_there(hub, command, tmp_path, capsys):
    """Only the Hub knows; it is asked before the training, not after it."""
    hub.refuses = {"create_repo"}
    assert cli.main([*command, "--push-to-hub", ID]) == 2
    assert f"{ID} cannot be made on the Hub: HfHubHTTPError: 403 Forbidden" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("public", [False, True])
def test_the_model_is_pushed(public, hub, command, tmp_path, capsys):
    assert cli.main([*command, "--push-to-hub", ID, *(["--public"] if public else [])]) == 0
    assert hub.repositories[ID].private is not public
    assert hub.repositories[ID].files["model.safetensors"] == (tmp_path / "run/model/model.safetensors").read_bytes()
    assert f"Pushed to https://huggingface.co/{ID} ({'public' if public else 'private'})." in capsys.readouterr().out


def test_a_push_that_fails_loses_nothing(hub, command, tmp_path, capsys):
    hub.refuses = {"upload_folder"}
    assert cli.main([*command, "--push-to-hub", ID]) == 2
    printed, errors = capsys.readouterr()
    assert "before  after" in printed
    assert f"hf upload {ID} {tmp_path / 'run/model'} --private" in errors
    assert (tmp_path / "run/results.json").exists()
    assert (tmp_path / "run/model/model.safetensors").exists()
