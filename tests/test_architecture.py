"""Imports run along the arrows of the house only."""

import ast
from pathlib import Path

import pytest

import sbert_plugins

ROOT = Path(sbert_plugins.__file__).parent

# room -> the rooms it may import
ARROWS = {
    "functional": set(),
    "modules": {"functional"},
    "losses": {"functional", "modules", "data"},
    "evaluation": {"functional"},
    "training": set(),
    "data": set(),
}
ARROWS["recipes"] = ARROWS["cli"] = {*ARROWS, "recipes"}


def imported_rooms(source: str, package: tuple[str, ...]) -> set[str]:
    """Names of the rooms that a module's source imports; ``package`` is the module's own package path."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            base += [node.module] if node.module else []
            names |= {".".join([*base, alias.name]) for alias in node.names}
    parts = [name.split(".") for name in names]
    return {name[1] for name in parts if name[0] == "sbert_plugins" and len(name) > 1 and name[1] in ARROWS}


def forbidden(source: str, room: str, package: tuple[str, ...]) -> set[str]:
    return imported_rooms(source, package) - ARROWS[room] - {room}


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


def test_tests_mirror_the_package():
    """A module has its test file at the same place under the same name."""
    tests = Path(__file__).parent
    missing = [
        str(path.relative_to(ROOT))
        for path in ROOT.rglob("*.py")
        if path.name != "__init__.py" and not (tests / path.relative_to(ROOT).with_name(f"test_{path.name}")).exists()
    ]
    assert missing == []
