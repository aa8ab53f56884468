"""Make the notebooks from the scripts that they are written in, run them, and keep what they show.

``python docs/notebooks/make.py`` after a change of ``examples/own_text_in_ten_minutes.py`` or
``examples/compare_three_methods.py``. Needs ``pip install -e ".[test]"`` and no network.
"""

import os
import tempfile
from pathlib import Path

import jupytext
import nbclient
import nbformat

NOTEBOOKS = Path(__file__).parent
SCRIPTS = NOTEBOOKS.parent.parent / "examples"
NAMES = ("own_text_in_ten_minutes", "compare_three_methods")


def notebook_of(name: str) -> nbformat.NotebookNode:
    """Return the notebook that a script gives, the same each time, before it is run."""
    notebook = jupytext.read(SCRIPTS / f"{name}.py")
    del notebook.metadata["jupytext"]  # how the script is written, and with which version it was read
    for place, cell in enumerate(notebook.cells):
        cell.id = f"cell-{place}"
    return notebook


def run(notebook: nbformat.NotebookNode, folder: str | Path) -> nbformat.NotebookNode:
    """Run a notebook in a folder; an error in a cell is raised."""
    where = {"metadata": {"path": str(folder)}}
    client = nbclient.NotebookClient(notebook, timeout=600, coalesce_streams=True, resources=where)
    # tqdm would rather draw a widget, and says so with a path of this machine.
    return client.execute(env=os.environ | {"PYTHONWARNINGS": "ignore:IProgress not found"})


def shown(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Leave out what differs between two runs and is not the reader's: times of execution, the kernel's version."""
    notebook.metadata.pop("language_info", None)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    return notebook


def main() -> None:
    """Write both notebooks."""
    for name in NAMES:
        with tempfile.TemporaryDirectory() as folder:
            notebook = shown(run(notebook_of(name), folder))
        nbformat.write(notebook, NOTEBOOKS / f"{name}.ipynb")


if __name__ == "__main__":
    main()
