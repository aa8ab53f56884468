"""The description of a method: what it computes, what it reads and how it is trained."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from torch import nn

WIKIPEDIA = "sentence-transformers/wiki1m-for-simcse"
# A name that stands for the class of samplers, so that recipes import no torch.
LENGTH_GROUPED = "length_grouped"


@dataclass(frozen=True)
class Recipe:
    """A method with its loss, its columns and its training settings.

    Attributes:
        name: What the command line calls it.
        title: What people call it.
        paper: Authors and venue.
        url: Where the paper is.
        summary: What is computed, in one line.
        loss: The class in :mod:`sbert_plugins.losses`; with ``build`` the class that takes its further
            keywords.
        columns: The columns that the loss reads.
        arguments: Fields of :class:`training.TrainingArguments`.
        pooling: The pooling that a plain transformer gets.
        max_seq_length: Tokens per sentence in training; None keeps the limit of the model.
        second_column: A column that the loss takes in addition, such as ``positive``.
        build: Builds the loss where the class with its keywords is not enough.
        make_columns: Makes the columns: ``make_columns(sentences, model, seed=..., **column_keywords)``.
        find_keywords: Finds keywords of the loss that depend on the text and on the length of the training:
            ``find_keywords(rows, model, epochs, given)``, where ``given`` are the user's keywords.
        adapt_to: Chooses keywords of the loss by whether the start is an embedding model:
            ``adapt_to(embeds=True)``.
        offline_arguments: Override ``arguments`` in the demo (``--offline`` without a model).
        text: The default text, a dataset on the Hub.
        text_columns: The columns of that text: ``("anchor",)``, or three of triplets.
        paper_updates: How many updates the paper trained.
        citations: BibTeX entries by title, in addition to those of the loss class.
    """

    name: str
    title: str
    paper: str
    url: str
    summary: str
    loss: str
    columns: tuple[str, ...]
    arguments: dict[str, Any]
    pooling: str = "mean"
    max_seq_length: int | None = 32
    second_column: str | None = None
    build: Callable[..., nn.Module] | None = None
    make_columns: Callable[..., Dataset] | None = None
    find_keywords: Callable[[Dataset, SentenceTransformer, float, dict[str, Any]], dict[str, Any]] | None = (
        None
    )
    adapt_to: Callable[..., Adaptation] | None = None
    offline_arguments: dict[str, Any] = field(default_factory=dict)
    text: str = WIKIPEDIA
    text_columns: tuple[str, ...] = ("anchor",)
    paper_updates: int | None = None
    citations: dict[str, str] = field(default_factory=dict)

    def make_rows(
        self, sentences: Dataset, model: SentenceTransformer, *, seed: int, **keywords: Any
    ) -> Dataset:
        """Return what the loss reads: the sentences, or the columns that are made from them."""
        if self.make_columns is None or tuple(sentences.column_names) == self.columns:
            return sentences
        return self.make_columns(sentences, model, seed=seed, **keywords)

    def build_loss(self, model: SentenceTransformer, **keywords: Any) -> nn.Module:
        """Build the loss around ``model``.

        Args:
            model: The encoder.
            **keywords: Keywords of the loss. ``official=True`` builds the class of :mod:`losses.official`,
                which computes what the authors' code computes.
        """
        if self.build is not None:
            return self.build(model, **keywords)
        from sbert_plugins import losses

        room = losses.official if keywords.pop("official", False) else losses
        return getattr(room, self.loss)(model, **keywords)


@dataclass(frozen=True)
class Adaptation:
    """Defaults for one start: keywords of the loss, and one line that explains them."""

    loss_keywords: dict[str, Any]
    reason: str


def count_tokens_if_needed(
    rows: Dataset, model: SentenceTransformer, epochs: float, given: dict[str, Any]
) -> dict[str, Any]:
    """Count the tokens of the first column, unless the built-in counts fit or ``given`` has others.

    It is the ``find_keywords`` of methods whose loss weighs tokens.
    """
    from sbert_plugins.data import TokenFrequencies

    weighs_no_tokens = given.get("token_weights", 0.0) is None
    if weighs_no_tokens or "frequencies" in given or TokenFrequencies.bookcorpus().fits(model.tokenizer):
        return {}
    anchors = (row[rows.column_names[0]] for row in rows)
    return {
        "frequencies": TokenFrequencies.from_corpus(
            anchors, model.tokenizer, source="the sentences of the training"
        )
    }


def override(arguments: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return training arguments with those given in their place. Epochs replace a number of updates.

    Example:
        >>> override({"max_steps": 60, "eval_steps": 20}, {"num_train_epochs": 1})
        {'eval_steps': 20, 'num_train_epochs': 1}
    """
    merged = {**arguments, **given}
    if "num_train_epochs" in given and "max_steps" not in given:
        merged.pop("max_steps", None)
    return merged


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Return a sentence with the nearest of some words, or nothing if none is near.

    Example:
        >>> did_you_mean("temprature", ["temperature", "balance"])
        ' Did you mean temperature?'
    """
    near = difflib.get_close_matches(word, list(words), n=1)
    return f" Did you mean {near[0]}?" if near else ""
