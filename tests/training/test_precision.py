from contextlib import contextmanager
from types import MethodType, SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from datasets import Dataset
from encoders import SENTENCES
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments
from sentence_transformers import SentenceTransformerTrainer as StockTrainer

from sbert_plugins import losses, training
from sbert_plugins.training import precision


@pytest.mark.parametrize(("multiple", "bf16", "is_told"), [(48.3, True, True), (1.5, True, False), (48.3, False, False)])
def test_a_cpu_that_emulates_bf16_is_told(tiny_encoder, tmp_path, monkeypatch, caplog, multiple, bf16, is_told):
    monkeypatch.setattr(precision, "bf16_multiple", lambda: multiple)
    model = tiny_encoder()
    arguments = SentenceTransformerTrainingArguments(str(tmp_path), max_steps=1, bf16=bf16, use_cpu=True, report_to="none")
    rows = Dataset.from_dict({"anchor": SENTENCES})
    loss = losses.ConSERTLoss(model)
    training.SentenceTransformerTrainer(model=model, args=arguments, train_dataset=rows, loss=loss).train()
    assert ("This CPU multiplies bfloat16 48 times as slowly as float32: train without bf16" in caplog.text) is is_told


@pytest.mark.parametrize(("dtype", "is_told"), [("bfloat16", True), ("float32", False)])
def test_weights_of_half_precision_are_told(tiny_encoder, tmp_path, caplog, dtype, is_told):
    model = tiny_encoder().to(getattr(torch, dtype))
    arguments = SentenceTransformerTrainingArguments(str(tmp_path), max_steps=1, use_cpu=True, report_to="none")
    rows = Dataset.from_dict({"anchor": SENTENCES})
    training.SentenceTransformerTrainer(
        model=model, args=arguments, train_dataset=rows, loss=losses.ConSERTLoss(model)
    ).train()
    assert ("trained weights in torch.bfloat16, in which most updates are too small" in caplog.text) is is_told


def test_frozen_weights_of_half_precision_are_not(tiny_encoder, caplog):
    precision.tell_of_half_weights(tiny_encoder().bfloat16().requires_grad_(False))
    assert not caplog.text


def test_bf16_is_timed():
    assert precision.bf16_multiple() > 0


@pytest.mark.parametrize("emulates", [True, False])
def test_a_gpu_that_emulates_bfloat16(monkeypatch, caplog, emulates):
    """A T4 says that it supports it."""
    current = [torch.device("cuda:0")]

    @contextmanager
    def made_current(device):
        current.append(device)
        yield
        current.pop()

    def is_supported(including_emulation=True):
        return including_emulation or current[-1].index == 0 or not emulates

    monkeypatch.setattr(torch.cuda, "device", made_current)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", is_supported)
    device = torch.device("cuda:1")
    assert precision.has_bf16(device) is not emulates
    precision.tell_of_slow_bf16(SimpleNamespace(bf16=True, device=device))
    assert ("only emulates bfloat16" in caplog.text) is emulates


def test_the_default_of_a_cpu_is_float32():
    assert not precision.has_bf16(torch.device("cpu"))


class TestMixedPrecision:
    """accelerate leaves a trained encoder in autocast, in which it scores otherwise than what is saved of it."""

    def trainer(self, model, folder, kind=training.SentenceTransformerTrainer):
        arguments = SentenceTransformerTrainingArguments(
            str(folder), max_steps=1, bf16=True, use_cpu=True, report_to="none", save_strategy="no"
        )
        rows = Dataset.from_dict({"anchor": SENTENCES})
        return kind(model=model, args=arguments, train_dataset=rows, eval_dataset=rows, loss=losses.ConSERTLoss(model))

    def dtypes(self, model):
        """Of what the encoder's first linear map gives in each training step and pass to come."""
        seen = []
        layer = model.transformers_model.encoder.layer[0].attention.self.query
        layer.register_forward_hook(lambda module, arguments, output: seen.append(output.dtype))
        return seen

    def test_ends_with_the_training(self, tiny_encoder, tmp_path):
        model = tiny_encoder()
        trainer, seen = self.trainer(model, tmp_path), self.dtypes(model)
        trainer.train()
        assert set(seen) == {torch.bfloat16}
        assert not vars(model).keys() & {"forward", "_original_forward", "_is_accelerate_prepared"}
        model.save_pretrained(str(tmp_path / "model"))
        assert (model.encode(SENTENCES) == SentenceTransformer(str(tmp_path / "model"), device="cpu").encode(SENTENCES)).all()
        seen.clear()
        trainer.train()
        assert set(seen) == {torch.bfloat16}

    def test_is_not_that_of_an_evaluation_before_or_after(self, tiny_encoder, tmp_path):
        model = tiny_encoder()
        trainer, seen = self.trainer(model, tmp_path), self.dtypes(model)
        trainer.args.eval_strategy, trainer.args.eval_steps = "steps", 1
        for _ in range(2):
            for run, dtype in ((trainer.evaluate, torch.float32), (trainer.train, torch.bfloat16)):
                seen.clear()
                run()
                assert set(seen) == {dtype}
        assert not vars(model).keys() & {"forward", "_original_forward", "_is_accelerate_prepared"}

    def test_ends_with_one_that_failed(self, tiny_encoder, tmp_path, monkeypatch):
        model = tiny_encoder()
        trainer = self.trainer(model, tmp_path)
        monkeypatch.setattr(trainer, "training_step", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            trainer.train()
        assert not vars(model).keys() & {"forward", "_original_forward", "_is_accelerate_prepared"}

    def test_a_forward_of_ones_own_stays(self, tiny_encoder, tmp_path):
        model = tiny_encoder()
        own = model.forward = MethodType(lambda self, *args, **keywords: type(self).forward(self, *args, **keywords), model)
        self.trainer(model, tmp_path).train()
        assert model.forward is own

    def test_a_slow_copy_made_after_it_computes_in_float32(self, tiny_encoder, tmp_path):
        model = tiny_encoder()
        self.trainer(model, tmp_path, kind=StockTrainer).train()  # the host leaves it there
        loss = losses.PTBERTLoss(model, num_pseudo_tokens=4, queue_size=8)
        seen = self.dtypes(loss.momentum_encoder.copies[0])
        loss.momentum_encoder(model.preprocess(SENTENCES), training=False)
        assert set(seen) == {torch.float32}
