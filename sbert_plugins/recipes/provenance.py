"""Where a number comes from: commit if there is one, versions and hardware."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sbert_plugins import __version__

if TYPE_CHECKING:
    import torch

_ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("sentence-transformers", "transformers", "torch", "datasets", "numpy", "scipy", "scikit-learn")


def provenance(device: torch.device | None = None) -> dict[str, object]:
    """Return what a record says of the program that made it.

    ``commit`` is None where the package is installed; ``hardware`` that of the device, by default a GPU where there is one.
    """
    import torch

    packages = {name: version(name) for name in _PACKAGES} | {"torch": str(torch.__version__)}  # and its build: +cpu, +cu130
    return {
        **_commit(),
        "python": platform.python_version(),
        "versions": {"sbert-plugins": __version__, **packages},
        "hardware": _hardware(device),
        "threads": torch.get_num_threads(),
    }


@cache
def _commit() -> dict[str, object]:
    """Return the commit, once in a process: what is committed while it works is not what it runs."""
    # Not the repository that somebody has an environment in.
    is_checkout = _git("ls-files", "--error-unmatch", "sbert_plugins/__init__.py") is not None
    changed = _git("status", "--porcelain", "--", "sbert_plugins", "benchmarks", ":!benchmarks/results")
    return {
        "commit": _git("rev-parse", "--short=12", "HEAD") if is_checkout else None,
        "uncommitted_changes": bool(changed) if is_checkout else None,
    }


def versions_of(records: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the versions that records were made with, by package; with commas between where there are several of one."""
    found: dict[str, dict[str, None]] = {}
    for record in records:
        for package, number in record.get("versions", {}).items():  # those of earlier versions of this library have none
            found.setdefault(package, {})[number] = None
    return {package: ", ".join(numbers) for package, numbers in found.items()}


def provenance_of(made: Sequence[Mapping[str, Any]]) -> dict[str, object]:
    """Return what a record says of the programs that made it one after the other, each going on where the last one stopped."""
    found = {**made[-1], "versions": versions_of(made)}
    for key in found.keys() - {"versions", "uncommitted_changes"}:
        values = list(dict.fromkeys(each.get(key) for each in made))
        found[key] = values[0] if len(values) == 1 else "; ".join(map(str, values))
    if any(each.get("uncommitted_changes") for each in made):
        found["uncommitted_changes"] = True
    return found


def mixed_versions(records: Iterable[Mapping[str, Any]]) -> str:
    """Say that records were made with several versions of a package; empty where each has one."""
    mixed = [f"{package} {numbers}" for package, numbers in versions_of(records).items() if ", " in numbers]
    if not mixed:
        return ""
    return f"Made with several versions, whose differences are in the numbers, too: {'; '.join(mixed)}."


def _git(*arguments: str) -> str | None:
    try:
        command = ["git", "-C", str(_ROOT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _hardware(device: torch.device | None) -> str:
    import torch

    if torch.cuda.is_available() and (device is None or device.type == "cuda"):
        return torch.cuda.get_device_name(device)
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.is_file() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    cores = f"{names[0] if names else platform.processor()}, {os.cpu_count()} cores"
    # Machines of one name may lack bfloat16, or have it.
    instructions = torch.backends.cpu.get_cpu_capability()
    return cores if instructions == "DEFAULT" else f"{cores}, {instructions}"
