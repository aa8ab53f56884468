"""What a protocol is: a training as a paper, or its authors' code, describes it, each value beside where it stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from sbert_plugins.recipes.settings import Settings

SETTINGS = tuple(field.name for field in fields(Settings))
_LOSS, _COLUMNS = "loss.", "columns."


class Row(NamedTuple):
    """A value of a protocol and its source: a place in the ``paper``, the authors' ``code``, or ``silent: ours``."""

    setting: str
    value: Any
    source: str


@dataclass(frozen=True)
class Protocol:
    """A training with all that decides its result; ``rows`` are what is printed and what is run.

    A row is a field of :class:`Settings`, ``loss.`` and a keyword of the loss, ``columns.`` and a keyword of what makes the
    columns, or one of ``encoder``, ``text``, ``positives``, ``template``, ``dropout`` and ``bf16``. All others are for people.
    """

    method: str
    name: str
    rows: tuple[Row, ...]

    def __getitem__(self, setting: str) -> Any:
        """Return a value; None where there is no such row."""
        return next((row.value for row in self.rows if row.setting == setting), None)

    def source(self, setting: str) -> str:
        """Return where a value stands."""
        return next((row.source for row in self.rows if row.setting == setting), "silent: ours")

    @property
    def settings(self) -> Settings:
        """How it is trained."""
        return Settings(**{name: self[name] for name in SETTINGS})

    @property
    def loss_keywords(self) -> dict[str, Any]:
        """Keywords of the method's loss."""
        return self._under(_LOSS)

    @property
    def columns(self) -> dict[str, Any]:
        """Keywords of what makes the method's columns."""
        return self._under(_COLUMNS)

    def _under(self, prefix: str) -> dict[str, Any]:
        return {row.setting.removeprefix(prefix): row.value for row in self.rows if row.setting.startswith(prefix)}

    @property
    def printed(self) -> float:
        """The average of the seven STS tasks that is printed, where its source says."""
        return self["printed"]


def protocol(method: str, name: str, *parts: Mapping[str, tuple[Any, str]]) -> Protocol:
    """Build a protocol of parts, the later ones over the earlier ones."""
    values: dict[str, tuple[Any, str]] = {}
    for part in parts:
        values |= part
    return Protocol(method, name, tuple(Row(setting, *value) for setting, value in values.items()))
