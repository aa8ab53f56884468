import pytest
from datasets import Dataset
from encoders import SENTENCES
from sentence_transformers import SentenceTransformerTrainingArguments

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


def test_bf16_is_timed():
    assert precision.bf16_multiple() > 0
