"""Check the seven-task protocol against public numbers: all-MiniLM-L6-v2, both readings of SICK-R.

    python benchmarks/sts_check.py

Writes ``benchmarks/results/sts_check.json`` and fails where a task is further than 0.02 from its expected value. The
expected values were measured with mteb and sentence-transformers outside of this library; SICK-R 77.58 and the other six are
also public.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from provenance import provenance

from sbert_plugins import evaluation, recipes

EXPECTED = {
    "STS12": 72.37,
    "STS13": 80.60,
    "STS14": 75.59,
    "STS15": 85.39,
    "STS16": 78.99,
    "STS-B": 82.03,
    "SICK-R": 77.15,
    "avg7": 78.87,
    "SICK-R all": 77.58,
}


def main() -> None:
    model = recipes.offline_encoder(num_layers=6, max_seq_length=256, device="cpu")
    start = time.perf_counter()
    scores = evaluation.STSSuiteEvaluator(show_progress_bar=True)(model)
    seconds = time.perf_counter() - start
    scores["SICK-R all"] = evaluation.STSSuiteEvaluator(tasks=["SICK-R"], sick="all")(model)["SICK-R"]
    record = {"model": "all-MiniLM-L6-v2", "scores": scores, "expected": EXPECTED, "seven_tasks_seconds": round(seconds, 1)}
    path = Path(__file__).parent / "results" / "sts_check.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(record | provenance(), indent=1) + "\n", encoding="utf-8")
    for task, expected in EXPECTED.items():
        print(f"{task:10}  {scores[task]:.4f}  expected {expected:.2f}")
    far = {task: scores[task] for task, expected in EXPECTED.items() if abs(scores[task] - expected) > 0.02}
    if far:
        raise SystemExit(f"further than 0.02 from the expected value: {far}")


if __name__ == "__main__":
    main()
