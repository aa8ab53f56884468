"""Check every evaluator on STS data against numbers measured without this library: all-MiniLM-L6-v2.

    python benchmarks/evaluation_check.py

One pass of encoding gives the seven tasks, SICK-R in both readings, STS-B dev, the five years as means of their subsets,
alignment, uniformity, cosines by level, and the hard-length subset under five pairs of thresholds and two counts of words.
Writes ``benchmarks/results/evaluation_check.json`` and fails where a number is further from the expected one than its
tolerance. The expected values were measured with mteb, sentence-transformers and scipy; six of the tasks and SICK-R 77.58
are also public. The hard-length ones are from a copy of STS12-16 that Moses' tokenizer has been over, as SentEval's:
``count_words`` counts with sacremoses, which differs on 2 to 4 pairs, hence their tolerance.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
from provenance import provenance, refuse_changes
from sacremoses import MosesTokenizer
from scipy.stats import spearmanr
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

from sbert_plugins import evaluation, recipes
from sbert_plugins.evaluation.hard_length import YEARS
from sbert_plugins.evaluation.tables import read_table
from sbert_plugins.recipes.output import write_json

# metric -> (expected, tolerance)
EXPECTED: dict[str, tuple[float, float]] = {
    "STS12": (72.3713, 0.02), "STS13": (80.6032, 0.02), "STS14": (75.5891, 0.02), "STS15": (85.3896, 0.02),
    "STS16": (78.9895, 0.02), "STS-B": (82.0325, 0.02), "SICK-R": (77.1469, 0.02), "avg7": (78.8746, 0.02),
    "all_SICK-R": (77.5825, 0.02), "STS-B dev": (86.7170, 0.02),
    "stsb_dev_>4_alignment": (0.23597, 1e-3), "stsb_dev_>=4_alignment": (0.26721, 1e-3),
    "stsb_test_>4_alignment": (0.25120, 1e-3), "stsb_test_>=4_alignment": (0.32975, 1e-3),
    "stsb_dev_drop_uniformity": (-3.84870, 1e-3), "stsb_test_drop_uniformity": (-3.81904, 1e-3),
    "stsb_dev_keep_uniformity": (-3.84081, 1e-3), "stsb_test_keep_uniformity": (-3.80471, 1e-3),
}  # fmt: skip
MEANS = {  # mean of the subsets' correlations, and the mean weighted by their pairs
    "STS12": (70.00, 71.06),
    "STS13": (74.46, 78.97),
    "STS14": (75.93, 77.22),
    "STS15": (83.40, 83.84),
    "STS16": (81.32, 81.21),
}
DENSITY = {  # split -> pairs, means and variances of the five levels
    "test": [
        (243, 198, 265, 335, 338),
        (0.2203, 0.4949, 0.5984, 0.7340, 0.8351),
        (0.02411, 0.02745, 0.02742, 0.01573, 0.01806),
    ],
    "dev": [
        (344, 254, 273, 365, 264),
        (0.1962, 0.4728, 0.6214, 0.7368, 0.8664),
        (0.02386, 0.03025, 0.01959, 0.01538, 0.00891),
    ],
}
HARD = {  # thresholds -> pairs, positive pairs, union, mean of the years, as counted on Moses' tokens
    (">4", "<1"): (1249, 231, 70.27, 62.99),
    (">=4", "<=1"): (1594, 344, 79.14, 76.39),
    (">3", "<2"): (2622, 824, 82.50, 78.67),
    (">=3", "<3"): (3491, 946, 78.17, 75.15),
    (">2.5", "<=2.5"): (3367, 1075, 78.36, 74.73),
}
HARD_TOLERANCE = {"pairs": 5, "score": 0.15}


def main() -> None:
    refuse_changes()
    model = recipes.offline_encoder(num_layers=6, max_seq_length=256, device="cpu")
    moses = MosesTokenizer("en")
    hard = {
        (words, *thresholds): evaluation.HardLengthEvaluator(
            positive=thresholds[0],
            negative=thresholds[1],
            count_words=count,
            name=f"hard {words} {' '.join(thresholds)}",
        )
        for thresholds in HARD
        for words, count in (
            ("white space", None),
            ("Moses", lambda text: len(moses.tokenize(text, escape=False))),
        )
    }
    evaluators = [
        evaluation.STSSuiteEvaluator(),
        evaluation.STSSuiteEvaluator(tasks=["SICK-R"], sick="all", name="all"),
        EmbeddingSimilarityEvaluator(
            *evaluation.load_sts("STS-B dev"), name="dev", main_similarity="cosine", write_csv=False
        ),
        *(
            evaluation.AlignmentUniformityEvaluator(
                split=split,
                positive=positive,
                duplicates=duplicates,
                name=f"stsb_{split}_{positive}_{duplicates}",
            )
            for split in ("dev", "test")
            for positive, duplicates in ((">4", "drop"), (">=4", "keep"))
        ),
        *(density := [evaluation.CosineDensityEvaluator(split=split) for split in DENSITY]),
        *hard.values(),
    ]
    view = evaluation.EncodeOnce(model)
    start = time.perf_counter()
    raw = evaluation.JointEvaluator(evaluators, show_progress_bar=True)(view)
    seconds = time.perf_counter() - start

    scores = {name: raw[name] for name in EXPECTED if name in raw} | {
        "STS-B dev": 100 * raw["dev_spearman_cosine"]
    }
    for split in ("dev", "test"):
        for positive, duplicates in ((">4", "drop"), (">=4", "keep")):
            scores[f"stsb_{split}_{positive}_alignment"] = raw[
                f"stsb_{split}_{positive}_{duplicates}_alignment"
            ]
            scores[f"stsb_{split}_{duplicates}_uniformity"] = raw[
                f"stsb_{split}_{positive}_{duplicates}_uniformity"
            ]
    misses = [
        f"{name}: {scores[name]:.5f}, expected {e}"
        for name, (e, near) in EXPECTED.items()
        if abs(scores[name] - e) > near
    ]

    means = {year: _means(view, year) for year in YEARS}
    misses += [
        f"{y} means: {means[y]}, expected {MEANS[y]}"
        for y in YEARS
        if not np.allclose(means[y], MEANS[y], rtol=0, atol=0.05)
    ]

    levels = {}
    for evaluator in density:
        prefix, expected = f"stsb_{evaluator.split}_cosine", DENSITY[evaluator.split]
        levels[evaluator.split] = [
            [*evaluator.counts.values()],
            *(
                [raw[f"{prefix}_{name}_{level}"] for level in evaluator.counts]
                for name in ("mean", "variance")
            ),
        ]
        if not np.allclose(levels[evaluator.split], expected, rtol=0, atol=5e-4):
            misses.append(
                f"density of STS-B {evaluator.split}: {levels[evaluator.split]}, expected {expected}"
            )

    subsets = []
    for (words, positive, negative), evaluator in hard.items():
        row = (
            evaluator.num_pairs,
            evaluator.num_positives,
            raw[f"{evaluator.name}_union"],
            raw[f"{evaluator.name}_avg5"],
        )
        subsets.append({"words": words, "positive": positive, "negative": negative}
                       | dict(zip(("pairs", "positive_pairs", "union", "mean_of_years"), row, strict=True)))  # fmt: skip
        if words == "Moses":
            expected = HARD[positive, negative]
            subsets[-1]["expected"] = expected
            near = np.repeat([HARD_TOLERANCE["pairs"], HARD_TOLERANCE["score"]], 2)
            if (np.abs(np.subtract(row, expected)) > near).any():
                misses.append(f"hard length {positive} {negative}: {row}, expected {expected}")

    record = {
        "model": "all-MiniLM-L6-v2",
        "seconds": round(seconds, 1),
        "scores": scores,
        "expected": {name: value for name, (value, _) in EXPECTED.items()},
        "mean_and_weighted_mean_of_subsets": means,
        "expected_means": MEANS,
        "density_pairs_means_variances": levels,
        "expected_density": DENSITY,
        "hard_length": subsets,
    }
    path = Path(__file__).parent / "results" / "evaluation_check.json"
    write_json(path, record | provenance())
    print(json.dumps(record, indent=1))
    if misses:
        raise SystemExit("further from the expected value than tolerated:\n" + "\n".join(misses))


def _means(view: evaluation.EncodeOnce, year: str) -> tuple[float, float]:
    """SentEval's other two readings of a year: the mean over its subsets, plain and weighted by their pairs."""
    subsets = defaultdict(list)
    path = Path(os.environ["SBERT_PLUGINS_DATA"], "sts", f"{year.lower()}.tsv")
    for _, (subset, score, first, second) in read_table(path, ("subset", "score", "sentence1", "sentence2")):
        subsets[subset].append((float(score), first, second))
    scores, weights = [], []
    for rows in subsets.values():
        gold, first, second = zip(*rows, strict=True)
        embeddings = evaluation.Embeddings(view, [*first, *second])
        scores.append(100 * spearmanr(embeddings.cosines(first, second).numpy(), gold).statistic)
        weights.append(len(rows))
    return float(np.mean(scores)), float(np.average(scores, weights=weights))


if __name__ == "__main__":
    main()
