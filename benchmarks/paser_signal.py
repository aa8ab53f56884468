"""What PaSeR's decoder can read from the four vectors, with the absolute values of eq. 2 and without.

    python benchmarks/paser_signal.py

trains the decoder alone, ``encoders/minilm-mlm`` of the data directory (``SBERT_PLUGINS_DATA``) frozen, on phrases of
Wikipedia sentences, each seen once: what it gets right it has read, not remembered. ``benchmarks/results/paser_signal.json``
holds loss and token accuracy over the updates.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import torch
from datasets import Dataset
from provenance import provenance
from sentence_transformers import SentenceTransformerTrainingArguments
from transformers import set_seed

from sbert_plugins import data, losses, recipes, training

RESULT = Path(__file__).parent / "results" / "paser_signal.json"
BATCH = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    folder = Path(os.environ["SBERT_PLUGINS_DATA"])
    sentences = data.read_sentences(folder / "corpus" / "wiki_sentences_1m.parquet", limit=2 * BATCH * options.steps)
    curves = {
        name: trained(sentences, str(folder / "encoders" / "minilm-mlm"), options, signed=signed)
        for name, signed in (("absolute", False), ("signed", True))
    }
    record = {"settings": vars(options), "text": "corpus/wiki_sentences_1m.parquet", "curves": curves, **provenance()}
    RESULT.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def trained(sentences: Dataset, encoder: str, options: argparse.Namespace, *, signed: bool) -> list[dict[str, float]]:
    set_seed(options.seed)
    model = recipes.build_encoder(encoder, pooling="mean", max_seq_length=32, device="cpu").requires_grad_(False)
    rows = data.paser_columns(sentences, mask_token=model.tokenizer.mask_token, top_k=1, synonyms=None, seed=options.seed)
    loss = losses.PaSeRLoss(model, mlm_weight=0, signed=signed)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        arguments = SentenceTransformerTrainingArguments(
            output_dir=scratch,
            max_steps=options.steps,
            per_device_train_batch_size=BATCH,
            learning_rate=options.learning_rate,
            warmup_steps=50,
            bf16=True,
            use_cpu=True,
            seed=options.seed,
            logging_steps=max(1, options.steps // 6),
            save_strategy="no",
            report_to="none",
        )
        trainer = training.SentenceTransformerTrainer(model=model, args=arguments, train_dataset=rows, loss=loss)
        trainer.train()
    print("signed" if signed else "absolute", f"{time.perf_counter() - start:.0f} s", flush=True)
    keys = {"step": "step", "nats_a_token": "generative", "token_accuracy": "token_accuracy"}
    return [{name: entry[key] for name, key in keys.items()} for entry in trainer.state.log_history if "generative" in entry]


if __name__ == "__main__":
    main()
