"""Imports run along the arrows of the house only."""

import ast
import importlib
from pathlib import Path

import pytest

import sbert_plugins

ROOT = Path(sbert_plugins.__file__).parent
TESTS = sorted(Path(__file__).parent.rglob("test_*.py"))

# room -> the rooms it may import
ARROWS = {
    "host": set(),
    "functional": set(),
    "encoder": {"functional", "host"},
    "contract": {"encoder", "host"},
    "modules": {"functional", "encoder", "host"},
    "losses": {"functional", "encoder", "modules", "contract", "data", "host"},
    "evaluation": {"functional", "host"},
    "training": {"contract", "host"},
    "data": {"host"},
}
ARROWS["recipes"] = ARROWS["cli"] = {*ARROWS, "recipes"}


def imports(source: str, package: tuple[str, ...]) -> set[tuple[str, ...]]:
    """Dotted names that a module's source imports, also inside functions; not those for a type checker alone.

    ``package`` is the module's own package path.
    """
    names = set()
    nodes = [ast.parse(source)]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            nodes += node.orelse
            continue
        if isinstance(node, ast.Import):
            names |= {tuple(alias.name.split(".")) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            names |= {(*base, alias.name) for alias in node.names}
        nodes += ast.iter_child_nodes(node)
    return names


def forbidden(source: str, room: str, package: tuple[str, ...]) -> set[str]:
    found = {name[1] for name in imports(source, package) if name[0] == "sbert_plugins" and name[1] in ARROWS}
    return found - ARROWS[room] - {room}


def circle(sources: dict[tuple[str, ...], str]) -> list[tuple[str, ...]]:
    """A circle of imports between modules, first and last alike; empty if there is none.

    A module that imports a name from a package that is not a module itself imports the package's ``__init__``; what that
    imports for others does not count as the module's own, for a package is loaded with any of its modules.
    """
    arrows = {
        name: {
            target
            for path in imports(source, name if is_package(name, sources) else name[:-1])
            for target in (path, path[:-1])
            if target in sources and target != name[: len(target)]
        }
        for name, source in sources.items()
        if not is_package(name, sources)
    }
    finished: set[tuple[str, ...]] = set()

    def visit(name: tuple[str, ...], way: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
        if name in way:
            return [*way[way.index(name) :], name]
        if name in finished or name not in arrows:
            return []
        for target in sorted(arrows[name]):
            if found := visit(target, [*way, name]):
                return found
        finished.add(name)
        return []

    return next(filter(None, (visit(name, []) for name in sorted(arrows))), [])


def is_package(name: tuple[str, ...], sources: dict[tuple[str, ...], str]) -> bool:
    return any(other[:-1] == name for other in sources)


def _modules():
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts != ("__init__",):
            yield pytest.param(path, parts[0], ("sbert_plugins", *parts[:-1]), id="/".join(parts))


@pytest.mark.parametrize(("path", "room", "package"), [*_modules()])
def test_imports_run_along_the_arrows(path, room, package):
    assert forbidden(path.read_text(encoding="utf-8"), room, package) == set()


@pytest.mark.parametrize(
    ("room", "source", "found"),
    [
        ("functional", "from sbert_plugins import losses", {"losses"}),
        ("functional", "import sbert_plugins.modules", {"modules"}),
        ("modules", "from sbert_plugins.losses.arccse import ArcCSELoss", {"losses"}),
        ("modules", "from ..losses import ArcCSELoss", {"losses"}),
        ("modules", "from .. import losses", {"losses"}),
        ("evaluation", "def f():\n    from sbert_plugins import data", {"data"}),
        ("training", "from sbert_plugins import functional", {"functional"}),
        ("losses", "from sbert_plugins import functional, recipes", {"recipes"}),
        ("losses", "from .arccse import ArcCSELoss\nfrom sbert_plugins.modules import TokenRoles", set()),
    ],
)
def test_a_reversed_arrow_is_caught(room, source, found):
    assert forbidden(source, room, ("sbert_plugins", room)) == found


def test_every_room_is_drawn():
    rooms = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert rooms - {"__init__"} <= set(ARROWS)


@pytest.mark.parametrize("room", sorted(path.parent.name for path in ROOT.glob("*/__init__.py")))
def test_a_room_has_what_it_offers(room):
    module = importlib.import_module(f"sbert_plugins.{room}")
    assert [name for name in getattr(module, "__all__", []) if not hasattr(module, name)] == []


def test_no_imports_run_in_a_circle():
    sources = {}
    for path in ROOT.rglob("*.py"):
        parts = ("sbert_plugins", *path.relative_to(ROOT).with_suffix("").parts)
        sources[parts[:-1] if parts[-1] == "__init__" else parts] = path.read_text(encoding="utf-8")
    assert circle(sources) == []


@pytest.mark.parametrize(
    ("first", "second", "is_circle"),
    [
        ("from .b import y", "from .a import x", True),
        ("from p.b import y", "def f():\n    import p.a", True),
        ("from p import b", "from p import a", True),
        ("from .b import y", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .a import x", False),
        ("from .b import y", "from . import c", False),
    ],
)
def test_a_circle_is_caught(first, second, is_circle):
    sources = {("p",): "from .a import x", ("p", "a"): first, ("p", "b"): second, ("p", "c"): ""}
    assert bool(circle(sources)) == is_circle


def long_functions(source: str, most: int = 50) -> list[str]:
    """Names of the functions with more lines than that, docstrings aside."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
            if node.end_lineno - first.lineno + node.body[0].lineno - node.lineno + 1 > most:
                found.append(node.name)
    return found


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_is_long(path):
    source = path.read_text(encoding="utf-8")
    assert long_functions(source) == []
    assert path.parent.name != "losses" or len(source.splitlines()) <= 250


def test_long_functions_are_found():
    body = "\n".join(["    x = 1"] * 50)
    docstring = '    """Docstring.\n' + "\n" * 60 + '    """'
    assert long_functions(f"def f():\n{body}") == ["f"]
    assert long_functions(f"def f():\n{docstring}\n{body}") == ["f"]
    assert long_functions(f"def f():\n{docstring}\n{body.removesuffix(chr(10) + '    x = 1')}") == []


def hidden_tests(source: str) -> list[str]:
    """Return tests that stand in a function, where nothing runs them."""
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    inner = [node for function in functions for node in ast.walk(function) if node is not function]
    return [node.name for node in inner if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]


def test_no_test_stands_in_a_function():
    assert {path.name: found for path in TESTS if (found := hidden_tests(path.read_text(encoding="utf-8")))} == {}
    assert hidden_tests("class TestA:\n    def test_a(self):\n        def test_b():\n            pass\n") == ["test_b"]
