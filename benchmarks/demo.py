"""Run the README's first command, and score its model on tasks that the command does not look at.

    python benchmarks/demo.py
    python benchmarks/demo.py --threads 1 --no-bf16

Embeddings are scored in bfloat16. Appends a line to ``results/demo.jsonl``. The default is one
thread for each core, as torch takes.
"""

import json
import os
import shlex
import subprocess
import tempfile
import time
from pathlib import Path

import records
import testbeds
from sentence_transformers import SentenceTransformer

from sbert_plugins import evaluation, recipes

COMMAND = "sbert-plugins train recommended --offline --output runs/demo"


def main() -> None:
    """Run the command in an empty folder."""
    options = records.parser(__doc__, threads=os.cpu_count() or 1, bf16=True).parse_args()
    records.require_clean_tree()
    environment = os.environ | {"OMP_NUM_THREADS": str(options.threads)}
    evaluators = {
        "stsb_dev": evaluation.PairsEvaluator(evaluation.load_sts("STS-B dev"), name="stsb_dev"),
        "graded_pairs": evaluation.PairsEvaluator(recipes.graded_pairs(), name="graded_pairs"),
        "agnews_purity": testbeds.agnews(),
        "biomedical_purity": testbeds.biomedical(),
    }
    with tempfile.TemporaryDirectory() as folder:
        command = shlex.split(COMMAND) + ([] if options.bf16 else ["--bf16", "false"])
        began = time.monotonic()
        subprocess.run(command, cwd=folder, check=True, env=environment)
        whole = round(time.monotonic() - began, 1)
        results = json.loads(Path(folder, "runs/demo/results.json").read_text("utf-8"))
        models = {
            "before": recipes.offline_encoder(num_layers=6),
            "after": SentenceTransformer(f"{folder}/runs/demo/model"),
        }
        scores = {}
        for when, model in models.items():
            found = evaluation.evaluate(testbeds.in_bfloat16(model), evaluators.values())
            scores[when] = {
                key: round(found[one.name].get("spearman", found[one.name].get("purity@10")), 4)
                for key, one in evaluators.items()
            }
    line = {
        "command": COMMAND,
        "updates": results["updates"],
        "seconds": results["seconds"],
        **scores,
        "command_seconds": whole,
        "threads": options.threads,
        "bf16": options.bf16,
    }
    records.append("demo", line)
    print(line)


if __name__ == "__main__":
    main()
