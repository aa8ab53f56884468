"""Run the README's first command and keep what it measured: ``benchmarks/results/demo.json``.

python benchmarks/demo.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from provenance import ROOT, provenance


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch) / "demo"
        command = [sys.executable, "-m", "sbert_plugins.cli", "train", "recommended", "--offline", "--output", str(output)]
        start = time.perf_counter()
        subprocess.run(command, check=True, env={k: v for k, v in os.environ.items() if k != "SBERT_PLUGINS_DATA"})
        seconds = time.perf_counter() - start
        results = json.loads((output / "results.json").read_text(encoding="utf-8"))
    record = {
        "command": "sbert-plugins train recommended --offline --output runs/demo",
        "whole_command_seconds": round(seconds, 1),
        **{key: results[key] for key in ("before", "after", "steps", "seconds", "settings", "seed")},
        **provenance(),
    }
    path = ROOT / "benchmarks" / "results" / "demo.json"
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
