"""Is SimCSE in ``quality.py``'s harness what a loop of a dozen lines makes of it, with the same seed?

    python benchmarks/simcse_check.py

Writes ``results/simcse_check.json``: how far apart the weights are after some updates, beside how far they moved. In
float32, because Adam's first steps have the size of the learning rate, whatever the gradient: bfloat16's rounding is enough
to turn the sign of the smallest ones.
"""

from __future__ import annotations

import argparse
import copy
import json
from pathlib import Path

import quality
import torch
from provenance import provenance
from sentence_transformers import SentenceTransformer
from torch.nn import functional as F
from torch.nn.utils import parameters_to_vector
from torch.utils.data import DataLoader, RandomSampler
from transformers import set_seed

RESULT = Path(__file__).parent / "results" / "simcse_check.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    own = parser.parse_args()
    options = argparse.Namespace(
        encoder="minilm-mlm", text="short", pooling="mean", sentences=20_000, max_seq_length=32,
        learning_rate=5e-5, batch_size=64, steps=own.steps, eval_steps=own.steps, bf16=False,
    )  # fmt: skip
    torch.set_num_threads(1)
    before = quality.encoder(options)
    sentences = quality.text(options, own.seed)
    harness, plain = copy.deepcopy(before), copy.deepcopy(before)
    rows = quality.pairs(sentences, harness, own.seed)
    quality.train(harness, quality.simcse(harness), rows, None, own.seed, options)
    by_hand(plain, sentences["anchor"][:], own.seed, options)
    record = {
        "steps": own.steps,
        "seed": own.seed,
        "apart": distance(harness, plain),
        "moved": distance(harness, before),
        **provenance(),
    }
    RESULT.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"moved by {record['moved']:.4f}, apart by {record['apart']:.2e}")


def by_hand(model: SentenceTransformer, sentences: list[str], seed: int, options: argparse.Namespace) -> None:
    """Train with two dropout passes a sentence."""
    order = RandomSampler(sentences, generator=torch.Generator().manual_seed(seed))
    batches = DataLoader(sentences, batch_size=options.batch_size, sampler=order)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0)
    set_seed(seed)
    model.train()
    for step, batch in zip(range(options.steps), batches, strict=False):
        first, second = (F.normalize(model(model.preprocess(batch))["sentence_embedding"], dim=1) for _ in range(2))
        F.cross_entropy(first @ second.T / 0.05, torch.arange(len(batch))).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.param_groups[0]["lr"] = options.learning_rate * (1 - step / options.steps)
        optimizer.step()
        optimizer.zero_grad()


def distance(first: SentenceTransformer, second: SentenceTransformer) -> float:
    """Return the Euclidean distance of all weights."""
    return float(torch.dist(parameters_to_vector(first.parameters()), parameters_to_vector(second.parameters())))


if __name__ == "__main__":
    main()
