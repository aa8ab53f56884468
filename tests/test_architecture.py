"""Rooms import only the rooms below them, without circles, and docstrings begin as they should."""

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

import sbert_plugins

ROOT = Path(sbert_plugins.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

MAY_IMPORT = {
    "catalogue": set(),
    "host": set(),
    "functional": set(),
    "encoder": {"host", "functional"},
    "modules": {"host", "functional", "encoder"},
    "losses": {"host", "functional", "encoder", "modules", "data"},
    "training": {"host", "functional", "encoder", "modules", "losses"},
    "data": {"host"},
    "evaluation": {"host", "functional", "data"},
}
MAY_IMPORT["recipes"] = set(MAY_IMPORT)
MAY_IMPORT["cli"] = {*MAY_IMPORT}


def imported_modules(source: str, package: str) -> set[str]:
    """Dotted names that a source imports, also inside functions and for type checkers."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return found


def package_of(path: Path) -> str:
    return ".".join(["sbert_plugins", *path.relative_to(ROOT).parts[:-1]])


def forbidden_rooms(source: str, room: str, package: str) -> set[str]:
    names = (name.split(".") for name in imported_modules(source, package))
    rooms = {name[1] for name in names if name[0] == "sbert_plugins" and len(name) > 1}
    return {other for other in rooms & set(MAY_IMPORT) if other != room} - MAY_IMPORT[room]


def test_a_room_imports_only_the_rooms_below_it():
    rooms = {path: path.relative_to(ROOT).with_suffix("").parts[0] for path in FILES}
    found = {
        str(path): forbidden_rooms(path.read_text(encoding="utf-8"), room, package_of(path))
        for path, room in rooms.items()
        if room != "__init__"
    }
    assert {path: rooms for path, rooms in found.items() if rooms} == {}


def test_an_import_of_a_room_above_is_found():
    checked = "if TYPE_CHECKING:\n    from sbert_plugins.losses import Loss\n"
    source = checked + "def f():\n    from ..recipes import train"
    assert forbidden_rooms(source, "modules", "sbert_plugins.modules") == {"losses", "recipes"}


def test_modules_import_in_no_circle():
    names = {".".join([package_of(path), path.stem]).removesuffix(".__init__"): path for path in FILES}
    graph = {}
    for name, path in names.items():
        if path.name == "__init__.py":
            continue  # loaded with any module of its package
        found = imported_modules(path.read_text(encoding="utf-8"), package_of(path))
        graph[name] = {other for other in found if other in names and names[other].name != "__init__.py"}
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_docstrings_begin_with_a_verb_or_a_noun():
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    folders = [ROOT, *(Path(__file__).parent.parent / name for name in ("tests", "benchmarks", "examples"))]
    trees = (ast.parse(path.read_text("utf-8")) for folder in folders for path in folder.rglob("*.py"))
    nodes = (node for tree in trees for node in ast.walk(tree) if isinstance(node, kinds))
    docstrings = [ast.get_docstring(node) or "" for node in nodes]
    assert len(docstrings) > 1_000
    bad = re.compile(r"(What|Who|Whether|Where|Say|Tell|Refuse)\b")
    assert [text for text in docstrings if bad.match(text)] == []
