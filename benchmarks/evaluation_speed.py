"""What one pass of encoding saves: the whole offline suite at once, and its evaluators one by one.

    python benchmarks/evaluation_speed.py [--bf16]

all-MiniLM-L6-v2, two threads, everything of ``evaluation.offline_evaluators`` on the data directory. Both ways score the
same (the script fails where they do not). Wall time suffers from whatever else the machine does; the CPU time of the process,
which counts both threads, hardly does. Writes ``benchmarks/results/evaluation_speed.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from provenance import provenance, refuse_changes

from sbert_plugins import evaluation, recipes
from sbert_plugins.recipes.output import write_json

TOLERANCE = 0.5  # Spearman or accuracy x 100: batches of other lengths round otherwise, and near-equal pairs change places


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bf16", action="store_true")
    options = parser.parse_args()
    refuse_changes()
    with torch.autocast("cpu", torch.bfloat16, enabled=options.bf16):
        measure(bf16=options.bf16)


def measure(*, bf16: bool) -> None:
    torch.set_num_threads(2)
    model = recipes.offline_encoder(num_layers=6, max_seq_length=256, device="cpu")
    encode, sentences = model.encode, []
    model.encode = lambda inputs, **keywords: (sentences.extend(inputs), encode(inputs, **keywords))[1]
    evaluators = evaluation.offline_evaluators()
    scores, together = timed(lambda: evaluation.JointEvaluator(evaluators)(model))
    together["sentences_encoded"] = len(sentences)
    if len(set(sentences)) < len(sentences):
        raise SystemExit("a sentence was encoded twice")
    one_by_one, apart = {}, {}
    for evaluator in evaluators:
        sentences.clear()
        apart[key(evaluator)], one_by_one[key(evaluator)] = timed(lambda evaluator=evaluator: evaluator(model))
        one_by_one[key(evaluator)]["sentences_encoded"] = len(sentences)
    total = {name: round(sum(row[name] for row in one_by_one.values()), 1) for name in together}
    record = {
        "model": "all-MiniLM-L6-v2",
        "bf16": bf16,
        "one_pass": together,
        "one_by_one": total,
        "ratio": {name: round(total[name] / together[name], 2) for name in together},
        "evaluators": one_by_one,
        "load_average": os.getloadavg(),
        "scores": scores,
    }
    path = Path(__file__).parent / "results" / "evaluation_speed.json"
    write_json(path, record | provenance())
    print(json.dumps({name: record[name] for name in ("one_pass", "one_by_one", "ratio")}, indent=1))
    alone = {name: value for metrics in apart.values() for name, value in metrics.items()}
    far = {name: (scores[name], value) for name, value in alone.items() if abs(scores[name] - value) > TOLERANCE}
    if far:
        raise SystemExit(f"one pass and one by one differ by more than {TOLERANCE}: {far}")


def timed(call: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    wall, cpu = time.perf_counter(), time.process_time()
    result = call()
    return result, {
        "seconds": round(time.perf_counter() - wall, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
    }


def key(evaluator: evaluation.EmbeddingEvaluator) -> str:
    return f"{type(evaluator).__name__} {evaluator.name}".strip()


if __name__ == "__main__":
    main()
