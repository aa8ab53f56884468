"""Compare the evaluators on STS and transfer tasks with numbers of all-MiniLM-L6-v2 by other programs.

    python benchmarks/evaluation_check.py

The expected values were measured with mteb, sentence-transformers and scipy. Six of the tasks and SICK-R with
all pairs are also public. Those of the transfer tasks are from a separate logistic regression, by scipy's
minimizer, with the same folds; there are no public ones. Fails if a score is further from its expected value
than the tolerance. Writes ``results/evaluation_check.jsonl``.
"""

import records

from sbert_plugins import evaluation, recipes

# Score: expected value and tolerance.
EXPECTED = {
    "STS12": (72.3713, 0.02),
    "STS13": (80.6032, 0.02),
    "STS14": (75.5891, 0.02),
    "STS15": (85.3896, 0.02),
    "STS16": (78.9895, 0.02),
    "STS-B": (82.0325, 0.02),
    "SICK-R": (77.1469, 0.02),
    "avg7": (78.8746, 0.02),
    "all SICK-R": (77.5825, 0.02),
    "STS-B dev": (86.7170, 0.02),
    "alignment": (0.23597, 1e-3),
    "uniformity": (-3.84870, 1e-3),
    "MR": (76.60, 0.2),
    "CR": (82.82, 0.2),
    "SUBJ": (92.35, 0.2),
    "MPQA": (87.68, 0.2),
    "SST2": (81.33, 0.2),
    "TREC": (90.40, 0.2),
    "MRPC": (72.87, 0.2),
    # STS-B test by level of the grade
    "mean_0-1": (0.2203, 5e-4),
    "mean_1-2": (0.4949, 5e-4),
    "mean_2-3": (0.5984, 5e-4),
    "mean_3-4": (0.7340, 5e-4),
    "mean_4-5": (0.8351, 5e-4),
    "variance_0-1": (0.02411, 1e-4),
    "variance_1-2": (0.02745, 1e-4),
    "variance_2-3": (0.02742, 1e-4),
    "variance_3-4": (0.01573, 1e-4),
    "variance_4-5": (0.01806, 1e-4),
}


def main() -> None:
    """Score the model, write the record, and fail if a score differs."""
    records.require_clean_tree()
    dev = evaluation.load_sts("STS-B dev")
    evaluators = [
        evaluation.STSSuiteEvaluator(name="test"),
        evaluation.STSSuiteEvaluator(tasks=["SICK-R"], sick="all", name="all"),
        evaluation.PairsEvaluator(dev, name="dev"),
        evaluation.AlignmentUniformityEvaluator(split="dev", name="geometry"),
        evaluation.CosineDensityEvaluator(evaluation.load_sts("STS-B"), name="density"),
        evaluation.TransferEvaluator(name="transfer"),
    ]
    found = evaluation.evaluate(recipes.offline_encoder(num_layers=6, max_seq_length=256), evaluators)
    scores = found["test"] | found["geometry"] | found["density"] | {"STS-B dev": found["dev"]["spearman"]}
    scores |= {"all SICK-R": found["all"]["SICK-R"], "transfer average": found["transfer"].pop("avg7")}
    scores |= found["transfer"]
    expected = {name: value for name, (value, _) in EXPECTED.items()}
    line = {"model": "all-MiniLM-L6-v2", "scores": scores, "expected": expected}
    records.replace("evaluation_check", line, key="model")
    print(line)
    wrong = [name for name, (value, near) in EXPECTED.items() if abs(scores[name] - value) > near]
    if wrong:
        raise SystemExit(f"These scores differ from the expected ones: {', '.join(wrong)}.")


if __name__ == "__main__":
    main()
