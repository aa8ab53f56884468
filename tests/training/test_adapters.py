"""Trainings of adapters, which PEFT adds to an encoder."""

from contextlib import nullcontext
from importlib.metadata import version

import pytest
import torch
from encoders import SENTENCES
from packaging.version import Version
from peft import LoraConfig, inject_adapter_in_model
from sentence_transformers import SentenceTransformer
from trainings import EVERY_SECOND, trainer_of

from sbert_plugins import losses


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


def test_dora_is_refused_before_the_first_update(tiny_encoder, tmp_path):
    # Its magnitudes are not restored with a checkpoint.
    model = tiny_encoder()
    inject_adapter_in_model(LoraConfig(target_modules=["query"], use_dora=True), model.transformers_model)
    with pytest.raises(ValueError, match="DoRA"):
        trainer_of(model, losses.ConSERTLoss(model), tmp_path).train()
