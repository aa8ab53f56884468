"""Is the recipe of SimCSE what a loop of a dozen lines makes of it, with the same seed?

    python benchmarks/simcse_check.py

Writes ``results/simcse_check.json``: how far apart the weights are after some updates, beside how far they moved. No padding
is computed, as in the tables. In float32, because Adam's first steps have the size of the learning rate, whatever the
gradient: bfloat16's rounding is enough to turn the sign of the smallest ones.
"""

from __future__ import annotations

import argparse
import copy
import tempfile
from pathlib import Path

import testbeds
import torch
from provenance import provenance, refuse_changes
from sentence_transformers import SentenceTransformer
from torch.nn import functional as F
from torch.nn.utils import parameters_to_vector
from torch.utils.data import DataLoader, RandomSampler
from transformers import set_seed

from sbert_plugins import recipes
from sbert_plugins.recipes.output import write_json

RESULT = Path(__file__).parent / "results" / "simcse_check.json"
RATE, BATCH = 5e-5, 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    refuse_changes()
    torch.set_num_threads(1)
    before = testbeds.encoder("minilm-mlm", without_padding=True)  # as the tables' trainings
    sentences = testbeds.text("short", 20_000)
    harness, plain = copy.deepcopy(before), copy.deepcopy(before)
    settings = recipes.with_changes(
        recipes.SIMCSE.settings, learning_rate=RATE, batch_size=BATCH, max_steps=options.steps, eval_steps=options.steps
    )
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "run"
        recipes.train("simcse", sentences, harness, output=output, settings=settings, seed=options.seed, bf16=False)
    by_hand(plain, sentences["anchor"][:], options.seed, options.steps)
    record = {
        "steps": options.steps,
        "seed": options.seed,
        "apart": distance(harness, plain),
        "moved": distance(harness, before),
        **provenance(),
    }
    write_json(RESULT, record)
    print(f"moved by {record['moved']:.4f}, apart by {record['apart']:.2e}")


def by_hand(model: SentenceTransformer, sentences: list[str], seed: int, steps: int) -> None:
    """Train with two dropout passes a sentence."""
    order = RandomSampler(sentences, generator=torch.Generator().manual_seed(seed))
    batches = DataLoader(sentences, batch_size=BATCH, sampler=order)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0)
    set_seed(seed)
    model.train()
    for step, batch in zip(range(steps), batches, strict=False):
        first, second = (F.normalize(model(model.preprocess(batch))["sentence_embedding"], dim=1) for _ in range(2))
        F.cross_entropy(first @ second.T / 0.05, torch.arange(len(batch))).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.param_groups[0]["lr"] = RATE * (1 - step / steps)
        optimizer.step()
        optimizer.zero_grad()


def distance(first: SentenceTransformer, second: SentenceTransformer) -> float:
    """Return the Euclidean distance of all weights."""
    return float(torch.dist(parameters_to_vector(first.parameters()), parameters_to_vector(second.parameters())))


if __name__ == "__main__":
    main()
