"""Where a number comes from: commit if there is one, versions and hardware."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

from sbert_plugins import __version__

_ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("sentence-transformers", "transformers", "torch", "datasets", "numpy", "scipy", "scikit-learn")


def provenance() -> dict[str, object]:
    """Return what a record says of the program that made it; ``commit`` is None where the package is installed."""
    import torch

    # Not the repository that somebody has an environment in.
    is_checkout = _git("ls-files", "--error-unmatch", "sbert_plugins/__init__.py") is not None
    changed = _git("status", "--porcelain", "--", "sbert_plugins", "benchmarks", ":!benchmarks/results")
    return {
        "commit": _git("rev-parse", "--short=12", "HEAD") if is_checkout else None,
        "uncommitted_changes": bool(changed) if is_checkout else None,
        "python": platform.python_version(),
        "versions": {"sbert-plugins": __version__, **{name: version(name) for name in _PACKAGES}},
        "hardware": _hardware(),
        "threads": torch.get_num_threads(),
    }


def _git(*arguments: str) -> str | None:
    try:
        command = ["git", "-C", str(_ROOT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _hardware() -> str:
    import torch

    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.is_file() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()}, {os.cpu_count()} cores"
