"""A loss class of one's own by its name."""

import json
import sys

import pytest
from recipe_inputs import anchors, quick
from sentence_transformers import SentenceTransformer

from sbert_plugins import cli, recipes, training

MODULE = '''
import torch
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss


class Pull(torch.nn.Module):
    """Draws all sentences together."""

    def __init__(self, model, strength: float = 1.0, name=None):
        super().__init__()
        self.model = model
        self.strength = strength

    def forward(self, sentence_features, labels=None):
        vectors = self.model(next(iter(sentence_features)))["sentence_embedding"]
        return self.strength * vectors.var(dim=0).sum()

    def get_config_dict(self):
        return {"strength": self.strength, "dtype": torch.float32}


class Open(Pull):
    def __init__(self, model, **keywords):
        super().__init__(model, **keywords)


class NeedsMore(Pull):
    def __init__(self, model, teacher):
        super().__init__(model)


class Elsewhere(Pull):
    """Keeps the encoder under another name, and a part of it under a third."""

    def __init__(self, model):
        super().__init__(None)
        self.words, self.encoder, self.weight = model[0], model, torch.nn.Parameter(torch.ones(1))

    def forward(self, sentence_features, labels=None):
        return self.weight.sum() * self.encoder(next(iter(sentence_features)))["sentence_embedding"].var(dim=0).sum()


class Forgetful(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))


class Plain:
    pass


def function(model):
    return Pull(model)
'''


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    """A module that lies in the current directory, under a name that no other test has imported."""
    name = f"mine_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{name}.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    return name


@pytest.fixture
def on_path(module, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    return module


def test_from_python(on_path, tiny_encoder, tmp_path):
    model, method = tiny_encoder(), f"{on_path}:Pull"
    results = recipes.train(
        method, anchors(20), model, output=tmp_path / "run", settings=quick(), loss_keywords={"strength": 2.0}
    )
    assert results["method"] == method
    assert results["loss"] == {"strength": 2.0, "dtype": "torch.float32"}
    assert recipes.settings_of(method) == recipes.RECOMMENDED.settings
    saved = SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu")
    assert recipes.load_loss(tmp_path / "run", saved).strength == 2.0


@pytest.mark.parametrize(("name", "own"), [("Elsewhere", {"weight"}), ("Pull", set())])
def test_the_rate_of_the_loss_is_of_what_it_owns_alone(name, own, on_path, tiny_encoder, tmp_path, monkeypatch, caplog):
    optimizers, create = [], training.SentenceTransformerTrainer.create_optimizer

    def created(trainer, *arguments):
        names = {id(parameter): name for name, parameter in trainer.loss.named_parameters()}
        optimizers.append(
            [(group["lr"], names[id(p)]) for group in create(trainer, *arguments).param_groups for p in group["params"]]
        )
        return trainer.optimizer

    monkeypatch.setattr(training.SentenceTransformerTrainer, "create_optimizer", created)
    settings = quick(max_steps=1, learning_rate=1e-5, loss_learning_rate=1e-3, learning_rate_schedule="constant")
    recipes.train(f"{on_path}:{name}", anchors(20), tiny_encoder(), output=tmp_path / "run", settings=settings)
    assert {parameter for rate, parameter in optimizers[0] if rate == 1e-3} == own
    assert ("The loss owns no weights" in caplog.text) is not bool(own)
    assert "learning_rate_mapping" not in (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")


def test_from_the_command_line(module, tiny_encoder, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("SBERT_PLUGINS_DATA", raising=False)  # scored by the graded pairs alone
    tiny_encoder().save_pretrained(str(tmp_path / "encoder"))
    (tmp_path / "text.txt").write_text("\n".join(anchors(20)["anchor"]), encoding="utf-8")
    arguments = ["--model", "encoder", "--max-steps", "2", "--batch-size", "8", "--output", "run"]
    assert cli.main(["train", f"{module}:Pull", "text.txt", "--loss", "strength=3", *arguments]) == 0
    assert "Training Pull (strength=3) on 20 sentences" in capsys.readouterr().out
    assert json.loads((tmp_path / "run" / "results.json").read_text())["loss"]["strength"] == 3
    assert cli.main(["evaluate", "run/model", "--offline"]) == 0


def test_a_class_that_takes_any_keyword(on_path):
    assert recipes.read_keywords(f"{on_path}:Open", ["strength=3", "name=x"]) == {"strength": 3, "name": "x"}
    assert recipes.known_keywords(f"{on_path}:Pull") == {"strength": ("float",), "name": ("Any",)}


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (
            "no_such_module:Pull",
            r"no_such_module cannot be imported \(ModuleNotFoundError: .*\): it must be installed, or lie",
        ),
        ("MODULE:Pul", "has no Pul; its classes are Pull, Open, NeedsMore, Elsewhere, Forgetful, Plain"),
        ("MODULE:Plain", "Plain is a class that is not a torch.nn.Module class"),
        ("MODULE:function", "function is a function that is not a torch.nn.Module class"),
        ("MODULE:NeedsMore", r"must be built by NeedsMore\(model\), .* it takes \(model, teacher\)"),
        ("MODULE:", "which is not of that form"),
        (":Pull", "which is not of that form"),
        ("a b:Pull", "which is not of that form"),
        ("MODULE:Pull:x", "which is not of that form"),
    ],
)
def test_what_is_no_loss(method, message, on_path):
    with pytest.raises(ValueError, match=message):
        recipes.recipe_of(method.replace("MODULE", on_path))


def test_a_module_that_fails_when_it_is_read(on_path, tmp_path):
    (tmp_path / f"{on_path}_broken.py").write_text("1 / 0", encoding="utf-8")
    with pytest.raises(ValueError, match=r"cannot be imported \(ZeroDivisionError: division by zero\)"):
        recipes.recipe_of(f"{on_path}_broken:Pull")


@pytest.mark.parametrize(
    ("name", "keywords", "message"),
    [
        ("Pull", {"force": 1}, "keywords of .*:Pull's loss must be among strength, name; got force"),
        ("Pull", {"strength": "much"}, "strength takes a finite number, got 'much'"),
        ("Open", {"force": 1}, r"Open\(model, force=1\) of .* fails with TypeError"),
        ("Forgetful", {}, "must keep the model that it is given"),
        ("Forgetful", {"force": 1}, "keywords of .*:Forgetful's loss are none; got force"),
    ],
)
def test_what_cannot_be_built(name, keywords, message, on_path, tiny_encoder, tmp_path):
    with pytest.raises(ValueError, match=message):
        recipes.train(
            f"{on_path}:{name}", anchors(20), tiny_encoder(), output=tmp_path / "run", settings=quick(), loss_keywords=keywords
        )
    assert not (tmp_path / "run").exists()
