"""Each example runs as it stands, offline, and saves a model."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("train_*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example(example, tmp_path):
    assert len(example.read_text(encoding="utf-8").splitlines()) <= 90
    result = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert result.returncode == 0, result.stderr
    before, after = map(float, re.search(r"([\d.]+) before, ([\d.]+) after", result.stdout).groups())
    assert after != before  # how much a method gains is for the benchmarks
    (model,) = tmp_path.glob("runs/*/model")
    assert SentenceTransformer(str(model), device="cpu").encode("It is raining.").shape == (384,)
