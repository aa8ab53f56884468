"""The cells of a comparison: a method and a seed, its folder, its record, and whether what is there is what is asked for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from sbert_plugins.recipes.keywords import read_keywords, read_setting
from sbert_plugins.recipes.methods import RECIPES, recipe_of
from sbert_plugins.recipes.output import RUN_FILE, changes, read_results, remove_folder, write_json
from sbert_plugins.recipes.settings import Settings

# What a method may not have for itself: sentence vectors are compared, so all are made alike.
_SHARED = ("pooling",)


class Method(NamedTuple):
    """A method as it was named, and what the name says: a recipe, keywords of its loss, settings that are its own."""

    text: str
    name: str
    loss_keywords: dict[str, Any]
    changes: dict[str, Any]

    def settings(self, shared: Settings) -> Settings:
        """Return the comparison's settings with those that are the method's own."""
        own = {"max_steps": -1} | self.changes if "epochs" in self.changes else self.changes
        return replace(shared, **own)  # None, too, is what the name says


def read_methods(texts: Sequence[str]) -> list[Method]:
    """Read ``name``, ``name:key=value,key=value`` or ``package.module:Class:key=value``, keys being the loss's or settings.

    Raises:
        ValueError: Without methods, for one that is there twice, an unknown name, key or value, or one that reads triplets.
    """
    if isinstance(texts, str):
        raise ValueError(f"methods must be a list, got {texts!r}: [{texts!r}].")
    if not texts:
        raise ValueError(f"methods must be at least one of {', '.join(RECIPES)}, or package.module:Class; got none.")
    methods = [_read_method(text) for text in texts]
    for place, method in enumerate(methods):
        for other in methods[:place]:
            if other[1:] == method[1:] or slug(other.text) == slug(method.text):
                raise ValueError(f"methods must differ, got {other.text} and {method.text}: leave one out.")
    return methods


def _read_method(text: str) -> Method:
    name, _, rest = text.partition(":")
    if name not in RECIPES and "=" not in rest.partition(":")[0]:
        module = name  # of package.module:Class
        name, _, rest = rest.partition(":")
        name = f"{module}:{name}" if name else module
    recipe = recipe_of(name)
    if recipe.reads == "triplets":
        raise ValueError(f"{name} reads triplets, and a comparison is on sentences: leave it out.")
    pairs: list[str] = []
    for part in rest.split(",") if rest else []:
        if "=" in part or not pairs:
            pairs.append(part)
        else:  # a value with commas in it
            pairs[-1] += f",{part}"
    if bare := [pair for pair in pairs if "=" not in pair]:
        raise ValueError(f"method {text}: {bare[0]} needs a value, {bare[0]}=VALUE.")
    names = {field.name for field in fields(Settings)}
    own = [pair for pair in pairs if pair.partition("=")[0] in names]
    changed = dict(pair.split("=", 1) for pair in own)
    if len(changed) < len(own):
        raise ValueError(f"method {text}: a setting is given once, got {', '.join(own)}.")
    if shared := [key for key in changed if key in _SHARED]:
        raise ValueError(f"{', '.join(shared)} must be the same for all methods, got it with {name}: give it as a flag.")
    try:
        keywords = read_keywords(name, [pair for pair in pairs if pair not in own])
        settings = {key: read_setting(key, value) for key, value in changed.items()}
        if "epochs" in settings and settings.get("max_steps", -1) != -1:
            raise ValueError("epochs and max_steps are two lengths of a training: give one.")
        return Method(text, name, keywords, settings)
    except ValueError as error:
        raise ValueError(f"method {text}: {error}") from error


_LONGEST = 200  # bytes; file systems take 255, and an ending comes behind


def slug(text: str) -> str:
    """Return a method's text as the beginning of file names, which have an end: of a long one a part and a hash."""
    name = "".join(letter if letter.isalnum() or letter in "-._=" else "_" for letter in text)
    if len(name.encode()) <= _LONGEST:
        return name
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{name.encode()[: _LONGEST - 17].decode(errors='ignore')}_{digest}"


class Cell(NamedTuple):
    """A method with a seed; ``made_with`` is all that decides its numbers."""

    method: Method
    seed: int
    output: Path
    made_with: dict[str, Any]

    @property
    def folder(self) -> Path:
        """Where it is trained, and its model is."""
        return self.output / f"{slug(self.method.text)}_seed{self.seed}"

    @property
    def record_path(self) -> Path:
        """The json that is there when it is finished."""
        return self.output / f"{self.folder.name}.json"

    def record(self) -> dict[str, Any] | None:
        """Return what is on record, also of one that failed; None where nothing is."""
        return read_record(self.record_path) if self.record_path.exists() else None

    @property
    def is_finished(self) -> bool:
        """Whether it has scores on record that are those asked for."""
        record = self.record()
        return record is not None and "scores" in record and not changes(record, self.made_with)

    def what_differs(self) -> str:
        """Return in words how what is there, finished or begun, was made otherwise; empty where there is nothing else."""
        record = self.record()
        if record is not None and "failed" not in record:
            return changes(record, self.made_with)
        if record is not None and not (self.folder / "results.json").exists():
            return ""  # nothing is lost with a training that failed; with one whose scores failed there is
        if (self.folder / RUN_FILE).exists():
            try:
                return changes(read_results(self.folder / RUN_FILE), self.trained_with)
            except ValueError as error:
                return str(error)
        return ""

    @property
    def trained_with(self) -> dict[str, Any]:
        """What decides the training, not the scores."""
        return {key: value for key, value in self.made_with.items() if key not in _OF_SCORES}

    def clear(self) -> None:
        """Remove what is there, if a training of ours made it."""
        self.record_path.unlink(missing_ok=True)
        if (self.folder / RUN_FILE).exists() or not self.folder.exists():  # then what an interrupted removal left
            remove_folder(self.folder)

    def write(self, record: dict[str, Any]) -> None:
        """Write the record, whole or not at all."""
        write_json(self.record_path, self.made_with | {"name": self.method.text} | record)


def leave_out_neighbours(path: Path) -> None:
    """Take sentences of the text out of a cell's record."""
    if (record := read_record(path)).get("neighbours"):
        write_json(path, record | {"neighbours": []})


_OF_SCORES = ("scored_on", "selected_by")


def read_record(path: Path) -> dict[str, Any]:
    """Read a json that a comparison wrote.

    Raises:
        ValueError: If it is something else.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(
            f"{path} must be the json that a comparison wrote, and cannot be read as json ({error}): delete it, or "
            "name another output."
        ) from error
    if not isinstance(record, dict) or not ("scores" in record or "failed" in record):
        raise ValueError(f"{path} must be the json that a comparison wrote, with scores: delete it, or name another output.")
    return record
