"""Run the README's first command and keep what it measured: ``benchmarks/results/demo.json``.

    python benchmarks/demo.py

Beside the command's own table stands what it does not look at, at 32 tokens a text: STS-B dev, and topics of news and titles.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from provenance import ROOT, provenance, refuse_changes
from sentence_transformers import SentenceTransformer

from sbert_plugins import evaluation, recipes
from sbert_plugins.recipes.output import write_json

COMMAND = re.search(
    r"^sbert-plugins train .*--offline.*$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE
)[0]


def main() -> None:
    refuse_changes()
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch) / "demo"
        arguments = COMMAND.replace("runs/demo", str(output)).split()[1:]
        command = [sys.executable, "-m", "sbert_plugins.cli", *arguments]
        start = time.perf_counter()
        subprocess.run(
            command, check=True, env={k: v for k, v in os.environ.items() if k != "SBERT_PLUGINS_DATA"}
        )
        seconds = time.perf_counter() - start
        results = json.loads((output / "results.json").read_text(encoding="utf-8"))
        trained = SentenceTransformer(str(output / "model"), device="cpu")
    models = {"before": recipes.offline_encoder(max_seq_length=256, device="cpu"), "after": trained}
    record = {
        "command": COMMAND,
        "whole_command_seconds": round(seconds, 1),
        **{
            key: results[key]
            for key in ("before", "after", "steps", "seconds", "settings", "loss_keywords", "seed")
        },
        "elsewhere": {when: elsewhere(model) for when, model in models.items()},
        **provenance(),
    }
    path = ROOT / "benchmarks" / "results" / "demo.json"
    write_json(path, record)
    print(path)


def elsewhere(model: SentenceTransformer) -> dict[str, float]:
    """Score what the command does not."""
    dev = evaluation.PairsEvaluator(evaluation.load_sts("STS-B dev"), write_csv=False)
    model.max_seq_length = 32  # as in the table of topics
    topics = {"news": evaluation.agnews_topics, "titles": evaluation.biomedical_topics}
    scores = {"STS-B dev": dev(model)["spearman"]}
    for name, build in topics.items():
        found = build(write_csv=False, n_init=3)(model)
        scores[f"{name}: purity"] = next(value for key, value in found.items() if key.endswith("purity@10"))
    return scores


if __name__ == "__main__":
    main()
