"""Each example runs offline, as it stands but for fewer sentences, and saves a model."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("train_*.py"))
UPDATES = 3

# Runs each script in a folder and a process of its own. Python starts, and torch is read, once.
_RUN = """
import json, os, runpy, sys, traceback
import sentence_transformers.sentence_transformer.evaluation
import sbert_plugins.losses, sbert_plugins.recipes, sbert_plugins.training

statuses = {}
for script in sys.argv[1:]:
    child = os.fork()
    if not child:
        os.chdir(os.path.dirname(script))
        for stream, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), stream)
        status = 1
        try:
            runpy.run_path(script, run_name="__main__")
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush(), sys.stderr.flush()
            os._exit(status)
    statuses[script] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(json.dumps(statuses))
"""


@pytest.fixture(scope="module")
def finished(once):
    """Folders with what each example wrote, and their exit statuses."""

    def make(folder):
        scripts = []
        for example in EXAMPLES:
            source = example.read_text(encoding="utf-8")
            batch = int(re.search(r"^BATCH_SIZE = (\d+)", source, re.MULTILINE)[1])
            source, changed = re.subn(r"^SENTENCES = \d+", f"SENTENCES = {UPDATES * batch}", source, flags=re.MULTILINE)
            assert changed == 1, example
            (folder / example.stem).mkdir()
            scripts.append(folder / example.stem / example.name)
            scripts[-1].write_text(source, encoding="utf-8")
        result = subprocess.run(
            [sys.executable, "-c", _RUN, *map(str, scripts)],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"OMP_NUM_THREADS": "1"},  # beside other workers
        )
        assert result.returncode == 0, result.stderr
        (folder / "statuses.json").write_text(result.stdout.strip().splitlines()[-1])

    return once("examples", make)


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example(example, finished):
    assert len(example.read_text(encoding="utf-8").splitlines()) <= 90
    folder = finished / example.stem
    statuses = json.loads((finished / "statuses.json").read_text())
    assert statuses[str(folder / example.name)] == 0, (folder / "stderr").read_text()
    before, after = map(float, re.search(r"([\d.]+) before, ([\d.]+) after", (folder / "stdout").read_text()).groups())
    assert after != before  # how much a method gains is for the benchmarks
    (model,) = folder.glob("runs/*/model")
    assert SentenceTransformer(str(model), device="cpu").encode("It is raining.").shape == (384,)
