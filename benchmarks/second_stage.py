"""Train a plain language model twice: does a second training with self-distillation from the first one help?

    python benchmarks/second_stage.py --updates 60 200 --seeds 0

The encoder is ``minilm-mlm`` with mean pooling, the text is the short sentences, and the method is
``recommended``. The second stage starts from the result of the first and is as long. Its weights of
self-distillation are ``KEEP``; 0 is the same second training without it. One stage of twice the length is
the rival. The last update of each training is scored, in bfloat16. The five models of a seed append a line
each to ``results/second_stage.jsonl``, unless it is there already.
"""

from __future__ import annotations

import copy
import tempfile
from itertools import product
from typing import Any

import quality
import records
import testbeds
from sentence_transformers import SentenceTransformer

from sbert_plugins import recipes

KEEP = (0.0, 0.1, 0.3)


def main() -> None:
    """Run the trainings that are asked for and not recorded yet."""
    options = records.parser(__doc__, updates=[60, 200], seeds=[0]).parse_args()
    records.require_clean_tree()
    for updates, seed in product(options.updates, options.seeds):
        cell = {"stages": "one", "updates": updates, "seed": seed, "keep": 0.0}
        longer, seconds = cell | {"updates": 2 * updates}, [cell | {"stages": "two", "keep": k} for k in KEEP]
        if not records.holds("second_stage", longer):
            record(train(testbeds.encoder("minilm-mlm"), 2 * updates, seed, keep=0.0), longer)
        missing = [one for one in (cell, *seconds) if not records.holds("second_stage", one)]
        first = train(testbeds.encoder("minilm-mlm"), updates, seed, keep=0.0) if missing else None
        for one in missing:
            model = copy.deepcopy(first)
            if one["stages"] == "two":
                train(model, updates, seed + 1_000, keep=one["keep"])
            record(model, one)


def train(model: SentenceTransformer, updates: int, seed: int, *, keep: float) -> SentenceTransformer:
    """Train ``model`` in place with the settings of ``recommended``, and return it."""
    with tempfile.TemporaryDirectory() as folder:
        recipes.train(
            "recommended",
            testbeds.text("short"),
            model,
            output=folder,
            loss_keywords={"keep": keep, "words": 0.3, "second_view": ("token_shuffling",)},
            seed=seed,
            max_seq_length=32,
            max_steps=updates,
            save_strategy="no",
            bf16=True,
        )
    return model


def record(model: SentenceTransformer, cell: dict[str, Any]) -> None:
    """Append the line of one model."""
    scores = quality.score(model, is_quick=True)
    records.append("second_stage", cell | {"scores": scores})
    print(cell, scores["stsb_dev"], scores["avg7"], flush=True)


if __name__ == "__main__":
    main()
