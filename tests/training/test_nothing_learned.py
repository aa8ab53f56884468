"""Trainings that would teach nothing stop by their first update. What was idle is named at the end."""

import pytest
from datasets import Dataset
from encoders import LONG, SENTENCES
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from trainings import ROWS, Probe, Value, trainer_of

from sbert_plugins import losses, recipes

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


def test_frozen_weights(model, tmp_path):
    model.requires_grad_(False)
    with pytest.raises(ValueError, match="frozen"):
        trainer_of(model, losses.ConSERTLoss(model), tmp_path).train()
    trainer_of(model, losses.ArcCSELoss(model), tmp_path, max_steps=1).train()  # its head learns


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
    "changes", [{"learning_rate": 0.0}, {"max_steps": 0}, {"max_steps": -1, "num_train_epochs": 0}]
)
def test_a_training_of_length_or_rate_0(model, tmp_path, changes):
    with pytest.raises(ValueError, match="would teach nothing"):
        trainer_of(model, Probe(model), tmp_path, **changes).train()
    head = {"learning_rate": 0.0, "learning_rate_mapping": {"head": 1e-3}, "max_steps": 1}
    trainer_of(model, Probe(model), tmp_path, **head).train()  # a rate of 0 for the encoder alone
