"""The tests import the benchmarks as modules, as the programs do among themselves."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import records
import tables


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write records that replace those of the repository: ``write("quality", line, line)``."""
    monkeypatch.setattr(records, "RESULTS", tmp_path)

    def write(name, *lines):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
        tables.quality.cache_clear()

    yield write
    tables.quality.cache_clear()
