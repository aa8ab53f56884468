"""The notebooks are what their scripts give, were run, and run."""

import importlib.util
import re
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parent.parent
ONE_LAYER = """
import functools
from sbert_plugins import recipes
recipes.offline_encoder = functools.partial(recipes.offline_encoder, num_layers=1)
"""
_spec = importlib.util.spec_from_file_location("make_notebooks", ROOT / "docs" / "notebooks" / "make.py")
make = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(make)


@pytest.fixture(params=make.NAMES)
def name(request):
    return request.param


@pytest.fixture
def kept(name):
    return nbformat.read(ROOT / "docs" / "notebooks" / f"{name}.ipynb", as_version=4)


def test_there_are_no_others():
    assert {path.stem for path in (ROOT / "docs" / "notebooks").glob("*.ipynb")} == set(make.NAMES)


def test_it_is_what_its_script_gives(name, kept):
    """Otherwise run ``python docs/notebooks/make.py``."""
    made = make.notebook_of(name)
    assert [(cell.cell_type, cell.id, cell.source) for cell in kept.cells] == [
        (cell.cell_type, cell.id, cell.source) for cell in made.cells
    ]
    assert kept.metadata == made.metadata


def test_it_was_run_in_order_and_shows_no_machine(kept):
    code = [cell for cell in kept.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == [*range(1, len(code) + 1)]
    shown = nbformat.writes(kept)
    assert not re.search(r"/(home|root|tmp|work|usr|opt|mnt)/|Traceback", shown)


@pytest.mark.slow
def test_it_runs(name, tmp_path):
    """With fewer sentences and layers, and one seed."""
    notebook = make.notebook_of(name)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(ONE_LAYER))
    changed = []
    for cell in notebook.cells:
        for key, value in (("SENTENCES", 64), ("SEEDS", 1)):
            cell.source, found = re.subn(rf"^{key} = \d+", f"{key} = {value}", cell.source, flags=re.MULTILINE)
            changed += [key] * found
    make.run(notebook, tmp_path)
    models = [path.parent.parent.name for path in tmp_path.glob("runs/**/model/modules.json")]
    if name == "compare_three_methods":
        assert changed == ["SENTENCES", "SEEDS"]
        assert sorted(models) == ["arccse_seed0", "consert_seed0", "simcse_seed0"]
    else:
        assert changed == ["SENTENCES"]
        assert len(models) == 1
