"""Trainings stop at the first number that is not finite, and where nothing would be learned."""

import math

import pytest
import torch
from datasets import Dataset
from encoders import LONG, SENTENCES
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import nn
from trainings import ROWS, Probe, Value, trainer_of

from sbert_plugins import losses, recipes
from sbert_plugins.training import DivergedError
from sbert_plugins.training.trainer import SKIPPED_UPDATES


class Breaks(nn.Module):
    """A loss of two terms, one of which, or its gradient, is not finite in one batch."""

    def __init__(self, model, at=4, value=math.nan, where="term"):
        super().__init__()
        self.model = model
        self.head = nn.Linear(32, 32)
        self.at, self.value, self.where = at, value, where
        self.batches = 0

    def forward(self, features, labels=None):
        self.batches += 1
        vectors = self.head(self.model(dict(features[0]))["sentence_embedding"])
        terms = {"good": vectors.pow(2).mean(), "bad": vectors.mean()}
        if self.batches == self.at:
            terms["bad"] = (
                self.value * terms["bad"] if self.where == "term" else (0 * vectors).abs().sum().sqrt()
            )
        return terms


def is_finite(loss):
    return all(parameter.isfinite().all() for parameter in loss.parameters())


@pytest.mark.parametrize(
    ("keywords", "changes", "message"),
    [
        ({}, {}, "update 4, bad is nan"),
        ({"value": -math.inf}, {}, "update 4, bad is -?inf"),
        ({"where": "gradient"}, {}, "update 4, the gradient norm is nan"),
        ({}, {"gradient_accumulation_steps": 2}, "update 2, bad is nan"),
        ({}, {"sam_rho": 0.05}, "update 2, bad is nan"),  # in its second pass, away from the weights
    ],
)
def test_stops_with_update_and_term_before_the_update(model, tmp_path, keywords, changes, message):
    loss = Breaks(model, **keywords)
    trainer = trainer_of(model, loss, tmp_path, save_strategy="steps", save_steps=1, **changes)
    with pytest.raises(DivergedError, match=message) as caught:
        trainer.train()
    last = 1 if changes else 3
    assert f"checkpoint-{last}." in str(caught.value)
    assert "learning_rate (now 0.001)" in str(caught.value)
    assert is_finite(loss)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"checkpoint-{step}" for step in range(1, last + 1)
    ]


def test_a_loss_that_is_one_number(model, tmp_path):
    pairs = ROWS.add_column("positive", ROWS["anchor"][::-1])
    loss = MultipleNegativesRankingLoss(model, scale=math.inf)
    with pytest.raises(DivergedError, match="update 1, MultipleNegativesRankingLoss is nan.*is none"):
        trainer_of(model, loss, tmp_path, pairs).train()


@pytest.mark.parametrize("save_strategy", ["no", "steps"])
def test_a_last_update_that_breaks_the_weights(model, tmp_path, save_strategy):
    # Loss and gradient are finite to the end.
    changes = {"learning_rate": 1e39, "max_steps": 1, "save_strategy": save_strategy}
    with pytest.raises(DivergedError, match=r"After update 1, .* is not finite"):
        trainer_of(model, Breaks(model, at=99), tmp_path, **changes).train()
    assert not list(tmp_path.rglob("*.safetensors"))


def test_the_gradient_scaler_may_skip_some_updates_in_a_row(model, tmp_path):
    # With fp16 it tries scales that are too large.
    trainer = trainer_of(model, Breaks(model), tmp_path)
    trainer.accelerator.scaler = object()
    for norm in ([math.inf] * (SKIPPED_UPDATES - 1) + [1.0]) * 2:
        trainer.check_norm(norm)
    with pytest.raises(DivergedError, match="the gradient norm is inf"):
        for _ in range(SKIPPED_UPDATES):
            trainer.check_norm(math.inf)


def test_on_a_gpu_the_norm_is_checked_with_the_next_batch(model, tmp_path, monkeypatch):
    trainer = trainer_of(model, Breaks(model), tmp_path)
    monkeypatch.setattr(type(trainer.args), "device", torch.device("cuda"))
    trainer.check_norm(torch.tensor(math.nan))
    with pytest.raises(DivergedError, match="update 1, the gradient norm is nan"):
        trainer.save_model(str(tmp_path / "checkpoint-1"), _internal_call=True)
    assert not list(tmp_path.iterdir())


SHORT = Dataset.from_dict({"anchor": [text for text in SENTENCES if len(text) < 80]})


@pytest.fixture
def model(tiny_encoder):
    return tiny_encoder("bert", "mean")


@pytest.mark.parametrize(
    "build",
    [
        losses.SimCSELoss,
        losses.ConSERTLoss,
        lambda model: losses.ArcCSELoss(model, triplet_weight=0),
        lambda model: recipes.recommended_loss(model, keep=0.1),
        lambda model: losses.WeightedSumLoss(model, {"a": (MultipleNegativesRankingLoss(model), 1, [0, 0])}),
    ],
)
def test_losses_that_compare_rows_need_several(model, tmp_path, build):
    for accumulated in (1, 2):
        changes = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": accumulated}
        with pytest.raises(ValueError, match="batches have 1 rows"):
            trainer_of(model, build(model), tmp_path, **changes).train()


def test_frozen_weights(model, tmp_path, caplog):
    model.requires_grad_(False)
    with pytest.raises(ValueError, match="frozen"):
        trainer_of(model, losses.ConSERTLoss(model), tmp_path).train()
    trainer_of(model, losses.ArcCSELoss(model), tmp_path, max_steps=1).train()  # its head learns
    assert caplog.text.count("the loss alone learns") == 2


@pytest.mark.parametrize("value", [lambda number: number.detach(), lambda number: 0 * number])
def test_a_loss_without_gradient(model, tmp_path, value):
    with pytest.raises(ValueError, match="teach nothing"):
        trainer_of(model, Value(model, value), tmp_path).train()


class TestRows:
    @pytest.mark.parametrize("loader", [True, False])
    def test_a_prompt_that_fills_the_tokens(self, model, tmp_path, loader):
        # Each row is then the prompt alone: those of the model, or of the data loader.
        model.max_seq_length = 8
        trainer = trainer_of(model, losses.ConSERTLoss(model), tmp_path, prompts=LONG)
        trainer.data_collator.max_length = 7 if loader else None
        with pytest.raises(ValueError, match=f"Only 1 of the 4 rows .* {7 if loader else 8} tokens.* prompt"):
            trainer.train()

    @pytest.mark.parametrize(
        "rows",
        [{"anchor": ["A dog."] * 8, "positive": SENTENCES}, {"anchor": ["A dog."] * 2 + SENTENCES[:2]}],
        ids=["equal in one of two columns", "some equal"],
    )
    def test_repeated_texts(self, model, tmp_path, rows):
        dataset = Dataset.from_dict(rows)
        trainer_of(model, losses.ConSERTLoss(model), tmp_path, dataset, max_steps=1).train()


class TestIdleTerms:
    def test_are_named_at_the_end(self, model, tmp_path, caplog):
        trainer_of(model, losses.ArcCSELoss(model), tmp_path, SHORT).train()
        (record,) = [record for record in caplog.records if "0 in every update" in record.message]
        assert "triplet" in record.message and "arccon" not in record.message

    def test_that_begin_later_are_not(self, model, tmp_path, caplog):
        values = iter([0.0, 0.0, 1.0, 0.0])
        loss = Value(model, lambda number: {"later": number * next(values), "other": number})
        trainer_of(model, loss, tmp_path, ROWS).train()
        assert "0 in every update" not in caplog.text


@pytest.mark.parametrize(
    "changes",
    [
        {"learning_rate": 0.0},
        {"max_steps": 0},
        {"max_steps": -1, "num_train_epochs": 0},
        {"dataloader_drop_last": True, "per_device_train_batch_size": 99},  # no batch is complete
    ],
)
def test_a_training_of_length_or_rate_0(model, tmp_path, changes):
    with pytest.raises(ValueError, match="would teach nothing"):
        trainer_of(model, Probe(model), tmp_path, **changes).train()
    head = {"learning_rate": 0.0, "learning_rate_mapping": {"head": 1e-3}, "max_steps": 1}
    trainer_of(model, Probe(model), tmp_path, **head).train()  # a rate of 0 for the encoder alone
