"""Does the score without labels see a training that sinks, and what is lost by the checkpoint that it chooses?

    python benchmarks/label_free_long.py wiki consert

trains once for :data:`UPDATES` on a text of the testbeds, less the sentences that are held out, looks at the encoder with
STS-B dev and with :class:`evaluation.LabelFreeEvaluator` on the way, and writes ``benchmarks/results/label_free_long``. A
training that has its record is not run again. The settings are those of ``quality.py``'s grids.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import label_free
import mixes
import testbeds
import torch
from provenance import provenance, refuse_changes
from sentence_transformers import SentenceTransformer
from transformers import TrainerCallback

from sbert_plugins import evaluation
from sbert_plugins.recipes.cells import slug
from sbert_plugins.recipes.held_out import hold_out
from sbert_plugins.recipes.output import write_json

RESULTS = Path(__file__).parent / "results" / "label_free_long"
STEPS = (0, 10, 20, 30, 50, 75, 100, 150, 200, 300, 400)
UPDATES, SENTENCES, RATE, BATCH = max(STEPS), 26_600, 5e-5, 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", help="wiki, short or another of testbeds.py")
    parser.add_argument("methods", nargs="+", metavar="METHOD", help="as in quality.py")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    refuse_changes()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    mixes.register()
    RESULTS.mkdir(parents=True, exist_ok=True)
    rows, score = hold_out(testbeds.text(options.text, SENTENCES))
    for method in options.methods:
        path = RESULTS / f"{options.text}_{slug(method)}_seed{options.seed}.json"
        if path.exists():
            continue
        model = testbeds.encoder("minilm-mlm", without_padding=True)
        watcher = Watcher(model, score)
        start = time.perf_counter()
        watcher.look(0)
        label_free.train_watched(
            method, model, rows["anchor"][:], options.seed, watcher, rate=RATE, batch=BATCH, updates=UPDATES, bf16=True
        )
        settings = {"text": options.text, "sentences": len(rows), "held_out": len(score.texts.sentences), "updates": UPDATES}
        settings |= {"learning_rate": RATE, "batch_size": BATCH, "max_seq_length": 32, "bf16": True}
        record = {"method": method, "seed": options.seed, "settings": settings, "curve": watcher.curve}
        write_json(path, record | {"seconds": round(time.perf_counter() - start, 1)} | provenance())


class Watcher(TrainerCallback):
    """Scores the encoder at each of :data:`STEPS`, and draws nothing from the training's random numbers."""

    def __init__(self, model: SentenceTransformer, score: evaluation.LabelFreeEvaluator) -> None:
        self.model, self.score = model, score
        self.dev = evaluation.PairsEvaluator(evaluation.load_sts("STS-B dev"), write_csv=False)
        self.curve: list[dict[str, Any]] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Look at the model after some updates."""
        if state.global_step in STEPS:
            self.look(state.global_step)

    def look(self, step: int) -> None:
        mode = self.model.training
        with torch.random.fork_rng(), torch.no_grad():
            point = {"step": step, "dev": self.dev(self.model)["spearman"], **self.score(self.model)}
        self.model.train(mode)
        self.curve.append(point)
        print(f"update {step:>3}  dev {point['dev']:.2f}  label-free {point['label_free']:.2f}", flush=True)


if __name__ == "__main__":
    main()
