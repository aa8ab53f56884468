"""Where a number comes from: commit, versions and hardware, as every result file carries them."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import torch

ROOT = Path(__file__).parent.parent
PACKAGES = ("sentence-transformers", "transformers", "torch", "datasets", "numpy", "scipy", "scikit-learn")


def provenance() -> dict[str, object]:
    def git(*arguments: str) -> str:
        return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True).stdout.strip()

    return {
        "commit": git("rev-parse", "--short=12", "HEAD"),
        "uncommitted_changes": bool(git("status", "--porcelain", "--", "sbert_plugins", "benchmarks", ":!benchmarks/results")),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES},
        "hardware": _hardware(),
        "threads": torch.get_num_threads(),
    }


def _hardware() -> str:
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    cpuinfo = Path("/proc/cpuinfo")
    names = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()}, {os.cpu_count()} cores"
