"""Follow the score without labels and STS-B dev along trainings: does one rise and fall with the other?

    python benchmarks/label_free.py --methods "SimCSE 0.1" "TSDAE" --updates 100

Each training appends a line to ``results/label_free.jsonl`` with its curve: update, STS-B dev, score without
labels. The score is computed on 600 sentences that are not trained on.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterable, Sequence
from typing import Any

import label_free_score
import numpy as np
import quality
import records
import testbeds
from datasets import Dataset
from scipy.stats import spearmanr

from sbert_plugins import evaluation, recipes

HELD_OUT = 600
Curve = Sequence[tuple[int, float, float]]


def main() -> None:
    """Train the methods that are asked for."""
    defaults = {"encoder": "minilm-mlm", "text": "short", "sentences": 12_000, "updates": 100}
    defaults |= {"learning_rate": 1e-4, "batch_size": 32, "seed": 0}
    options = vars(records.parser(__doc__, {"methods": quality.METHODS}, methods=[], **defaults).parse_args())
    records.require_clean_tree()
    for method in options.pop("methods"):
        line = {"set": "new", "label": method, **options, "curve": follow(method, **options)}
        records.append("label_free", line)
        print(method, line["curve"], flush=True)


def follow(
    name: str,
    *,
    encoder: str,
    text: str,
    sentences: int,
    updates: int,
    learning_rate: float,
    batch_size: int,
    seed: int,
) -> list[list[float]]:
    """Train a method and return update, STS-B dev and the score without labels, ten times."""
    texts = testbeds.text(text, sentences + HELD_OUT)["anchor"][:]
    random.Random(0).shuffle(texts)
    held_out, rows = texts[:HELD_OUT], Dataset.from_dict({"anchor": texts[HELD_OUT:]})
    if name == "TSDAE":
        rows = quality.delete_words(rows, seed)
    dev = evaluation.PairsEvaluator(evaluation.load_sts("STS-B dev"), name="dev", write_csv=False)
    copies = label_free_score.label_free_texts(held_out, text=texts[HELD_OUT:])
    score = label_free_score.LabelFreeEvaluator(copies, name="own", write_csv=False)
    model, (method, keywords) = testbeds.encoder(encoder), quality.METHODS[name]
    start = evaluation.evaluate(model, [dev, score])
    with tempfile.TemporaryDirectory() as folder:
        results = recipes.train(
            method,
            rows,
            model,
            output=folder,
            loss_keywords=keywords,
            dev=evaluation.JointEvaluator([dev, score]),
            seed=seed,
            max_steps=updates,
            eval_steps=updates // 10,
            learning_rate=learning_rate,
            per_device_train_batch_size=batch_size,
            gradient_accumulation_steps=1,
            bf16=True,
        )
    curve = [[0, start["dev"]["spearman"], start["own"]["label_free"]]]
    names = ("step", "eval_dev_spearman", "eval_own_label_free")
    curve += [[entry[name] for name in names] for entry in results["log"] if "eval_dev_spearman" in entry]
    return [[round(value, 4) for value in point] for point in curve]


def summarize(curves: Iterable[Curve]) -> dict[str, Any]:
    """Return how the score follows STS-B dev in a set of trainings from one start.

    ``overall`` is Spearman's correlation over all checkpoints, ``within`` the median over the trainings of
    the correlation in one.
    """
    curves = [np.array(curve) for curve in curves]
    start, later = curves[0][:1], [curve[curve[:, 0] > 0] for curve in curves]
    points = np.concatenate([start, *later])
    within = [spearmanr(curve[:, 1], curve[:, 2]).statistic for curve in curves]
    return {
        "trainings": len(curves),
        "checkpoints": len(points),
        "overall": float(spearmanr(points[:, 1], points[:, 2]).statistic),
        "within": float(np.median(within)),
    }


if __name__ == "__main__":
    main()
