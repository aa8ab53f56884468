"""Protocols: trainings as a paper or its authors' code describes them, each setting with its source."""

import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, NamedTuple

from sbert_plugins.catalogue import did_you_mean

_FOLDER = files("sbert_plugins.recipes") / "protocols"


class Setting(NamedTuple):
    """A setting of a protocol, and the place where its value is stated."""

    section: str
    name: str
    value: Any
    source: str


@dataclass(frozen=True)
class Protocol:
    """A training with everything that decides its result.

    Attributes:
        method: Name of the method.
        name: ``paper``, ``official`` for the authors' code, or another name.
        settings: In the sections ``about`` (for people), ``start`` (encoder and text), ``arguments`` (fields
            of :class:`training.TrainingArguments`), ``columns`` (keywords of the column maker) and ``loss``
            (keywords of the loss).
    """

    method: str
    name: str
    settings: tuple[Setting, ...]

    def section(self, name: str) -> dict[str, Any]:
        """Return the settings of a section that have a value, by name."""
        return {one.name: one.value for one in self.settings if one.section == name}


def protocol_names() -> dict[str, list[str]]:
    """Return the names of the protocols by method.

    Example:
        >>> protocol_names()["arccse"]
        ['paper']
    """
    files = sorted(path.name.split(".")[:2] for path in _FOLDER.iterdir())
    return {method: [name for other, name in files if other == method] for method, _ in files}


def read_protocol(method: str, name: str) -> Protocol:
    """Read a protocol of a method.

    Raises:
        ValueError: If there is none of that name, with the names that exist.

    Example:
        >>> read_protocol("arccse", "paper").section("arguments")["learning_rate"]
        3e-05
    """
    names = protocol_names().get(method, [])
    if name not in names:
        raise ValueError(
            f"{method} has no protocol {name!r}.{did_you_mean(name, names)} It has "
            f"{', '.join(names) or 'none'}."
        )
    sections = tomllib.loads((_FOLDER / f"{method}.{name}.toml").read_text(encoding="utf-8"))
    settings = [
        Setting(section, key, None if entry["value"] == "none" else entry["value"], entry["source"])
        for section, entries in sections.items()
        for key, entry in entries.items()
    ]
    return Protocol(method, name, tuple(settings))
