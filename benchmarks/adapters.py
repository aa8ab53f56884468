"""Every loss on an encoder with LoRA adapters: what moves, does it resume to the bit, and is what is saved loaded the same?

    pip install peft
    python benchmarks/adapters.py
    python benchmarks/adapters.py --rates 5e-5 5e-4 2e-3

Four updates of each loss on the first two layers of the offline encoder, adapters on its queries and values, a checkpoint
after two and a training that goes on from it; the saved model is loaded as anyone would. Writes
``benchmarks/results/adapters.json``. With ``--rates`` what 60 updates of ``recommended`` make of minilm-mlm by its adapters
alone, at each learning rate: ``benchmarks/results/adapter_rates.json``.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from functools import partial
from importlib.metadata import version
from pathlib import Path

import testbeds
import torch
import transformers
from datasets import Dataset
from encoders import LOSSES, SENTENCES
from peft import LoraConfig, TaskType
from provenance import ROOT, provenance, refuse_changes
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments

from sbert_plugins import evaluation, recipes, training
from sbert_plugins.recipes.output import write_json

RESULT = ROOT / "benchmarks" / "results" / "adapters.json"
UPDATES = 4
RATES = RESULT.with_name("adapter_rates.json")
RATES_LORA = {"r": 16, "lora_alpha": 32, "target_modules": ["query", "value"]}
LORA = {"r": 4, "lora_alpha": 8, "lora_dropout": 0.1, "target_modules": ["query", "value"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", nargs="+", type=float, metavar="RATE")
    options = parser.parse_args()
    refuse_changes()
    if options.rates:
        rates(options.rates)
        return
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


def rates(learning_rates: list[float]) -> None:
    """Train ``recommended`` at each rate, score it, and put it on record beside the rates that are there."""
    torch.set_num_threads(1)
    dev = evaluation.load_sts("STS-B dev")
    settings = recipes.with_changes(recipes.RECOMMENDED.settings, eval_steps=30)
    with tempfile.TemporaryDirectory() as folder:
        result = recipes.compare(
            [f"recommended:learning_rate={rate:g}" for rate in learning_rates],
            testbeds.text("short", 20_000),
            output=folder,
            evaluators=[
                evaluation.PairsEvaluator(dev, name="STS-B dev", write_csv=False),
                evaluation.STSSuiteEvaluator(write_csv=False),
            ],
            model=with_adapters,
            seeds=1,
            settings=settings,
            dev=dev,
            bf16=False,
            keep_models=False,
            neighbours=0,
            report=partial(print, flush=True),
        )
    shared = {"updates": settings.max_steps, "lora": RATES_LORA, "peft": version("peft"), **provenance()}
    known = json.loads(RATES.read_text(encoding="utf-8")) if RATES.exists() else {}
    for rate, row in zip(learning_rates, result.rows, strict=True):
        known[f"{rate:g}"] = {title: number.mean for title, number in row.scores.items()} | shared
    write_json(RATES, dict(sorted(known.items(), key=lambda item: float(item[0]))))
    print(RATES)


def with_adapters() -> SentenceTransformer:
    model = testbeds.encoder("minilm-mlm", pooling="mean", max_seq_length=32)
    torch.manual_seed(0)  # the same each time
    model.add_adapter(LoraConfig(task_type=TaskType.FEATURE_EXTRACTION, **RATES_LORA))
    return model


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
