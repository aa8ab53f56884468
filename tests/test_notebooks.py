"""The notebook equals its script, was run, and runs."""

import importlib.util
import re
from pathlib import Path

import nbformat
import pytest

FOLDER = Path(__file__).parent.parent / "docs" / "notebooks"
ONE_LAYER = """
import functools
from sbert_plugins import recipes
whole = recipes.offline_encoder
recipes.offline_encoder = lambda **given: whole(num_layers=1)
"""
_spec = importlib.util.spec_from_file_location("make_notebook", FOLDER / "make.py")
make = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(make)


def test_it_equals_its_script_and_was_run():
    # Otherwise run ``python docs/notebooks/make.py``.
    kept, made = nbformat.read(make.NOTEBOOK, as_version=4), make.make_notebook()
    assert [cell.source for cell in kept.cells] == [cell.source for cell in made.cells]
    code = [cell for cell in kept.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == [*range(1, len(code) + 1)]
    assert not re.search(r"/(home|root|tmp|work|usr|opt|mnt)/|Traceback", nbformat.writes(kept))
    assert [path.name for path in FOLDER.glob("*.ipynb")] == [make.NOTEBOOK.name]


@pytest.mark.slow
def test_it_runs(tmp_path):
    # With two updates of one layer.
    notebook = make.make_notebook()
    notebook.cells.insert(0, nbformat.v4.new_code_cell(ONE_LAYER))
    for cell in notebook.cells:
        cell.source = cell.source.replace("UPDATES = 60", "UPDATES = 2")
    printed = nbformat.writes(make.run(notebook, tmp_path))
    assert "the start, Spearman" in printed
    assert list(tmp_path.glob("runs/*/model/modules.json"))
