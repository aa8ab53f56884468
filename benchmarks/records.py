"""Records of the benchmarks: one line of JSON per measurement, in ``results/NAME.jsonl``."""

import argparse
import datetime
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"


def read(name: str) -> list[dict[str, Any]]:
    """Return the lines of a record; none if there is no such file."""
    path = RESULTS / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def holds(name: str, cell: dict[str, Any]) -> bool:
    """Return whether a record has a line with all values of ``cell``. None stands for no value."""
    return any(all(line.get(key) == value for key, value in cell.items()) for line in read(name))


def append(name: str, record: dict[str, Any]) -> None:
    """Append one line, with commit, versions and hardware."""
    provenance = {
        "date": datetime.date.today().isoformat(),
        "commit": _git("rev-parse", "--short=12", "HEAD"),
        "versions": {name: version(name) for name in ("torch", "transformers", "sentence-transformers")},
        "hardware": hardware(),
    }
    with (RESULTS / f"{name}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(record | provenance, ensure_ascii=False) + "\n")


def replace(name: str, record: dict[str, Any], key: str) -> None:
    """Append one line in place of the line with the same ``key``."""
    others = [line for line in read(name) if line[key] != record[key]]
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in others)
    (RESULTS / f"{name}.jsonl").write_text(text, encoding="utf-8")
    append(name, record)


def parser(
    description: str | None, choices: Mapping[str, Iterable[str]] = MappingProxyType({}), **defaults: Any
) -> argparse.ArgumentParser:
    """Build a parser of options whose types are those of the defaults. A list stands for several values."""
    found = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in defaults.items():
        how: dict[str, Any] = {"action": argparse.BooleanOptionalAction}
        if not isinstance(default, bool):
            first = (default or [""])[0] if isinstance(default, list) else default
            how = {"type": type(first), "choices": choices.get(name), "metavar": name.upper()}
            how |= {"nargs": "+"} if isinstance(default, list) else {}
        found.add_argument(f"--{name}", default=default, **how)
    return found


def require_clean_tree() -> None:
    """Exit if files other than records have uncommitted changes, because a record names its commit."""
    if _git("status", "--porcelain", "--", ".", ":!benchmarks/results"):
        raise SystemExit("There are uncommitted changes. Commit them first: a record names its commit.")


def hardware() -> str:
    """Return the name of the GPU, or of the processor with the number of its cores."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8").splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{models[0] if models else platform.processor()}, {os.cpu_count()} cores"


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
