"""Make the notebook from its script, ``examples/adapt_in_ten_minutes.py``, and run it.

Run ``python docs/notebooks/make.py`` after a change of the script. It needs the extra ``test``.
"""

import os
import tempfile
from pathlib import Path

import jupytext
import nbclient
import nbformat

NOTEBOOK = Path(__file__).parent / "adapt_in_ten_minutes.ipynb"
SCRIPT = Path(__file__).parent.parent.parent / "examples" / "adapt_in_ten_minutes.py"


def make_notebook() -> nbformat.NotebookNode:
    """Return the notebook of the script, before it is run."""
    notebook = jupytext.read(SCRIPT)
    del notebook.metadata["jupytext"]
    for place, cell in enumerate(notebook.cells):
        cell.id = f"cell-{place}"
    return notebook


def run(notebook: nbformat.NotebookNode, folder: str | Path) -> nbformat.NotebookNode:
    """Run a notebook in a folder. An error in a cell is raised."""
    resources = {"metadata": {"path": str(folder)}}
    client = nbclient.NotebookClient(notebook, timeout=1800, coalesce_streams=True, resources=resources)
    # tqdm warns that it cannot draw a widget.
    return client.execute(env=os.environ | {"PYTHONWARNINGS": "ignore:IProgress not found"})


def main() -> None:
    """Write the notebook."""
    with tempfile.TemporaryDirectory() as folder:
        notebook = run(make_notebook(), folder)
    notebook.metadata.pop("language_info", None)  # versions of the machine
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times
    nbformat.write(notebook, NOTEBOOK)


if __name__ == "__main__":
    main()
