"""Losses in sentence-transformers' own trainer and in ``fit``, and trainings of adapters, which PEFT adds."""

import warnings
from contextlib import nullcontext
from importlib.metadata import version

import numpy as np
import pytest
import sentence_transformers
import torch
from datasets import Dataset
from encoders import SENTENCES, project_counts
from packaging.version import Version
from peft import LoraConfig, inject_adapter_in_model
from sentence_transformers import InputExample, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch.utils.data import DataLoader
from trainings import EVERY_SECOND, trainer_of

from sbert_plugins import losses, modules, training

ROWS = Dataset.from_dict({"anchor": SENTENCES * 2})
STOCK = {"trainer_class": sentence_transformers.SentenceTransformerTrainer}


def slt_fai(model, **keywords):
    return losses.SLTFAILoss(model, frequencies=project_counts(model.tokenizer), **keywords)


def fit(model, loss, **changes):
    loader = DataLoader([InputExample(texts=[text]) for text in SENTENCES * 2], batch_size=4)
    model.fit([(loader, loss)], epochs=1, warmup_steps=0, show_progress_bar=False, **changes)


def unsaved(train):
    """Return the warnings about weights that a checkpoint lacks."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train()
    return [str(each.message) for each in caught if "owns weights" in str(each.message)]


class TestCheckpoints:
    def test_of_a_loss_inside_another(self, model, tmp_path):
        loss = losses.WeightedSumLoss(model, {"a": (losses.ArcCSELoss(model), 1)})
        (warning,) = unsaved(trainer_of(model, loss, tmp_path, **EVERY_SECOND, **STOCK).train)
        assert "WeightedSumLoss" in warning

    def test_without_the_weights_of_the_loss(self, model, tmp_path):
        # One warning for the outer loss of several, and for many checkpoints.
        trainer = trainer_of(model, slt_fai(model), tmp_path, **EVERY_SECOND, **STOCK)
        (warning,) = unsaved(trainer.train)
        assert "SLTFAILoss" in warning and "LossStateCallback" in warning

    @pytest.mark.parametrize(
        "changes",
        [
            {},  # no checkpoint
            {**EVERY_SECOND, "save_only_model": True},  # from which nothing can be resumed
            {**EVERY_SECOND, "callbacks": "callback"},
            {**EVERY_SECOND, "trainer_class": training.SentenceTransformerTrainer},
        ],
    )
    def test_that_need_no_warning(self, model, tmp_path, changes):
        loss = losses.ArcCSELoss(model)
        if "callbacks" in changes:
            changes = changes | {"callbacks": [training.LossStateCallback(loss)]}
        assert not unsaved(trainer_of(model, loss, tmp_path, **(STOCK | changes)).train)

    def test_of_a_loss_without_weights_or_of_another_training(self, model, tiny_encoder, tmp_path):
        other = losses.ArcCSELoss(tiny_encoder()), losses.ArcCSELoss(model)
        loss = losses.ConSERTLoss(model)
        assert not unsaved(trainer_of(model, loss, tmp_path, **EVERY_SECOND, **STOCK).train)
        assert len(other) == 2

    def test_of_fit(self, model, tmp_path):
        assert not unsaved(lambda: fit(model, losses.ArcCSELoss(model)))
        written = {"checkpoint_path": str(tmp_path), "checkpoint_save_steps": 2}
        assert len(unsaved(lambda: fit(model, losses.ArcCSELoss(model), **written))) == 1


@pytest.mark.parametrize("by_fit", [True, False])
@pytest.mark.parametrize(("warmup_steps", "active"), [(0.5, 2), (0.29, 3), (3, 1), (0, 4)])
def test_a_warm_up(model, tmp_path, caplog, by_fit, warmup_steps, active):
    # A share is one of the four updates of this training, as a number of updates is.
    loss, seen = slt_fai(model, warmup_steps=warmup_steps), []
    forward = loss.forward
    loss.forward = lambda *arguments: seen.append(forward(*arguments)) or seen[-1]
    if by_fit:
        fit(model, loss)
    else:
        trainer_of(model, loss, tmp_path, **STOCK).train()
    assert [bool(terms["filtering"]) for terms in seen] == [False] * (4 - active) + [True] * active
    assert "no warm-up" not in caplog.text


def adapted(path):
    model = SentenceTransformer(path, device="cpu")
    torch.manual_seed(0)
    model.transformers_model.add_adapter(LoraConfig(r=4, target_modules=["query", "value"]))
    return model


def test_lora_is_saved_and_resumed(encoder_path, tmp_path):
    # Not with transformers 5.24 and a PEFT before 0.22, which constraints.txt therefore does not combine.
    is_refused = Version(version("transformers")) >= Version("5.24") and Version(version("peft")) < Version(
        "0.22"
    )
    with pytest.raises(ValueError, match="PEFT") if is_refused else nullcontext():
        model = adapted(encoder_path)
        trainer_of(model, losses.ConSERTLoss(model), tmp_path, **EVERY_SECOND).train()
        model.save_pretrained(str(tmp_path / "model"))
        expected = model.encode(SENTENCES)
        assert (
            SentenceTransformer(str(tmp_path / "model"), device="cpu").encode(SENTENCES) == expected
        ).all()
        again = adapted(encoder_path)
        trainer_of(again, losses.ConSERTLoss(again), tmp_path).train(str(tmp_path / "checkpoint-2"))
        assert (again.encode(SENTENCES) == expected).all()


def test_lora_trains_a_model_with_token_weights(encoder_path, tmp_path):
    model = adapted(encoder_path)
    model[1] = Pooling(32, "mean")
    modules.apply_token_weights(model, modules.count_idf(model, SENTENCES))
    before, start = model.encode(SENTENCES), model[1].emb_layer.weight.clone()
    trainer_of(model, losses.ConSERTLoss(model), tmp_path).train()
    assert not np.allclose(model.encode(SENTENCES), before, atol=1e-6)
    assert torch.equal(model[1].emb_layer.weight, start)


def test_dora_is_refused_before_the_first_update(tiny_encoder, tmp_path):
    # Its magnitudes are not restored with a checkpoint.
    model = tiny_encoder()
    inject_adapter_in_model(LoraConfig(target_modules=["query"], use_dora=True), model.transformers_model)
    with pytest.raises(ValueError, match="DoRA"):
        trainer_of(model, losses.ConSERTLoss(model), tmp_path).train()
