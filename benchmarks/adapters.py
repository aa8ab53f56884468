"""Every loss on an encoder with LoRA adapters: what moves, does it resume to the bit, and is what is saved loaded the same?

    pip install peft
    python benchmarks/adapters.py

Four updates of each loss on the first two layers of the offline encoder, adapters on its queries and values, a checkpoint
after two and a training that goes on from it; the saved model is loaded as anyone would. Writes
``benchmarks/results/adapters.json``. What adapters make of an encoder is measured by ``quality.py --trained lora``.
"""

from __future__ import annotations

import argparse
import tempfile
from importlib.metadata import version
from pathlib import Path

import torch
import transformers
from datasets import Dataset
from families import LOSSES, SENTENCES
from peft import LoraConfig, TaskType
from provenance import ROOT, provenance, refuse_changes
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments

from sbert_plugins import recipes, training
from sbert_plugins.recipes.output import write_json

RESULT = ROOT / "benchmarks" / "results" / "adapters.json"
UPDATES = 4
LORA = {"r": 4, "lora_alpha": 8, "lora_dropout": 0.1, "target_modules": ["query", "value"]}


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    refuse_changes()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    cells = []
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "base"
        recipes.offline_encoder(num_layers=2).save_pretrained(str(base))  # an adapter names what it belongs to
        for name in LOSSES:
            cells.append(trained(name, base, Path(folder) / name))
            print(*cells[-1].values(), sep="  ", flush=True)
    write_json(RESULT, {"updates": UPDATES, "lora": LORA, "peft": version("peft"), "cells": cells, **provenance()})
    print(RESULT)


def trained(name: str, base: Path, folder: Path) -> dict:
    """Train a loss and go on from its checkpoint in another trainer; return what became of the weights."""
    trainer, before = build(name, base, folder)
    trainer.train()
    again, _ = build(name, base, folder)
    again.train(resume_from_checkpoint=str(folder / f"checkpoint-{UPDATES // 2}"))
    after = trainer.model.state_dict()
    moved = [key for key, value in after.items() if not torch.equal(value, before[key])]
    trainer.model.save_pretrained(str(folder / "model"))
    loaded = SentenceTransformer(str(folder / "model"), device="cpu")
    difference = abs(trainer.model.encode(SENTENCES[:64]) - loaded.encode(SENTENCES[:64])).max()
    return {
        "loss": name,
        "adapters moved": sum(".lora_" in key for key in moved),
        "others moved": sum(".lora_" not in key for key in moved),
        "resumed alike": same(after, again.model.state_dict()) and same(trainer.loss.state_dict(), again.loss.state_dict()),
        "difference when loaded": float(difference),
    }


def build(name: str, base: Path, folder: Path) -> tuple[training.SentenceTransformerTrainer, dict]:
    """Return a trainer of an encoder with adapters, and the encoder's state before it."""
    torch.manual_seed(0)
    model = SentenceTransformer(str(base), device="cpu")
    model.add_adapter(LoraConfig(task_type=TaskType.FEATURE_EXTRACTION, **LORA))
    # PaSeR's columns; the other losses read the first.
    rows, _ = recipes.paser_rows(Dataset.from_dict({"anchor": SENTENCES[:64]}), model, 1)
    loss = LOSSES[name](model)
    arguments = SentenceTransformerTrainingArguments(
        str(folder),
        use_cpu=True,
        max_steps=UPDATES,
        save_steps=UPDATES // 2,
        save_strategy="steps",
        per_device_train_batch_size=8,
        learning_rate=1e-3,
        report_to="none",
        disable_tqdm=True,
    )
    rows = rows if name.startswith("PaSeR") else rows.select_columns(["anchor"])
    trainer = training.SentenceTransformerTrainer(model=model, args=arguments, train_dataset=rows, loss=loss)
    return trainer, {key: value.clone() for key, value in model.state_dict().items()}


def same(one: dict, other: dict) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[key]) for key, value in one.items())


if __name__ == "__main__":
    main()
