"""The description of a method: what it computes, what it reads and how it is trained."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from datasets import Dataset
from sentence_transformers import SentenceTransformer
from torch import nn

from sbert_plugins import losses
from sbert_plugins.catalogue import METHODS, About, did_you_mean
from sbert_plugins.data import TokenFrequencies
from sbert_plugins.data.columns import read_columns

LENGTH_GROUPED = "length_grouped"  # stands for training.LengthGroupedBatchSampler in the files of protocols


@dataclass(frozen=True)
class Recipe:
    """A method with its loss, its columns and its training settings.

    Attributes:
        name: What the command line calls it.
        loss: The name of a class in :mod:`sbert_plugins.losses`, or a function that builds the loss around a
            model.
        loss_class: With a function in ``loss``, the class that takes its further keywords.
        arguments: Fields of :class:`training.TrainingArguments`.
        reads: Roles of the text columns that the method reads (:func:`data.columns.read_columns`).
        optional: Roles of columns that the method reads in addition where the text has them.
        made_columns: The columns that the loss reads, if ``prepare`` makes them from what is read.
        prepare: Prepares a training: ``prepare(rows, model, given, column_keywords=, seed=, epochs=)`` with
            the keywords of the loss that were given or stand in the protocol. It makes columns, and chooses
            what depends on the text or the model. It returns the columns, and keywords of the loss. Those in
            ``given`` keep their value.
        make_columns: The function that takes the column keywords, if ``prepare`` calls one.
        fit: Adapts a model without a loss and a trainer: ``fit(model, rows, seed=..., **keywords)``, with
            ``arguments`` and the keywords of the loss. The result has the attributes ``updates`` and ``log``.
        pooling: The pooling that a plain transformer gets.
        max_seq_length: Tokens per sentence in training; None keeps the limit of the model.
        paper_updates: Most updates of a training whose length was not chosen: those that the paper's text and
            epochs make. No paper states a number.
    """

    name: str
    loss: str | Callable[..., Any]
    arguments: dict[str, Any]
    loss_class: str = ""
    reads: tuple[str, ...] = ("anchor",)
    optional: tuple[str, ...] = ()
    made_columns: tuple[str, ...] = ()
    prepare: Callable[..., tuple[Dataset, dict[str, Any]]] | None = None
    make_columns: Callable[..., Dataset] | None = None
    fit: Callable[..., Any] | None = None
    pooling: str = "mean"
    max_seq_length: int | None = 32
    paper_updates: int | None = None

    @property
    def about(self) -> About:
        """The description of the method for people."""
        own = About(self.name.rpartition(":")[2], "a loss of your own", url="", summary="")
        return METHODS.get(self.name, own)

    def read(
        self, texts: Dataset | Iterable[str], columns: str | Sequence[str] | None = None, source: str = ""
    ) -> Dataset:
        """Return what the method reads of a text: sentences, pairs, triplets, or columns that were made.

        Args:
            texts: A list of texts, or a dataset.
            columns: Names of the columns to read, in the order of ``reads`` and ``optional``.
            source: Name of the text, for messages.
        """
        is_made = self.made_columns and {*self.made_columns} <= {*getattr(texts, "column_names", ())}
        return read_columns(
            texts,
            self.made_columns if is_made else self.reads,
            optional=() if is_made else self.optional,
            labels=":" in self.name,  # only a loss of one's own reads labels
            columns=columns,
            source=source or "The dataset",
        )

    def build_loss(self, model: SentenceTransformer, **keywords: Any) -> nn.Module:
        """Build the loss around ``model``.

        Args:
            model: The encoder.
            **keywords: Keywords of the loss. ``official=True`` builds the class of :mod:`losses.official`,
                which computes what the authors' code computes.
        """
        if not isinstance(self.loss, str):
            return self.loss(model, **keywords)
        room = losses.official if keywords.pop("official", False) else losses
        return getattr(room, self.loss)(model, **keywords)

    def check_keywords(
        self, keywords: Mapping[str, Any], column_keywords: Mapping[str, Any] | None = None
    ) -> None:
        """Raise for a keyword that does not exist or is missing, or a word in place of true or false.

        Args:
            keywords: Keywords of the loss.
            column_keywords: Keywords of the function that makes the columns.

        Raises:
            ValueError: With the nearest keyword.
        """
        if column_keywords and not self.made_columns:
            raise ValueError(f"{self.name} makes no columns, got the keywords {', '.join(column_keywords)}.")
        made = inspect.signature(self.make_columns).parameters.values() if self.make_columns else ()
        of_columns = {each.name: each.default for each in made if each.default is not each.empty}
        for owner, given, known in (
            ("The loss", keywords, self.known_keywords()),
            ("The function for the columns", column_keywords or {}, of_columns or None),
        ):
            for key, value in given.items():
                if known is not None and key not in known:
                    raise ValueError(
                        f"{owner} of {self.name} has no keyword {key!r}.{did_you_mean(key, known)} It has "
                        f"{', '.join(known)}."
                    )
                if known is not None and isinstance(known[key], bool) and isinstance(value, str):
                    raise ValueError(f"{key} is true or false, got {value!r}.")
        if ":" in self.name and callable(self.loss):
            try:
                inspect.signature(self.loss).bind(None, **keywords)
            except TypeError as error:
                raise ValueError(
                    f"{self.name} cannot be built, {error}. Give it with --loss KEY=VALUE, in compare with "
                    "METHOD:KEY=VALUE, in Python with loss_keywords."
                ) from error

    def known_keywords(self) -> dict[str, Any] | None:
        """Return the keywords of the loss with their defaults; None if it takes any."""
        builders = [
            getattr(losses, each) if isinstance(each, str) else each
            for each in (self.loss_class or self.loss, self.loss)
        ]
        found = [each for build in builders for each in [*inspect.signature(build).parameters.values()][1:]]
        if not self.loss_class and any(each.kind is each.VAR_KEYWORD for each in found):
            return None
        # A loss of one's own may need a keyword.
        known = {one.name: one.default for one in found if ":" in self.name or one.default is not one.empty}
        if isinstance(self.loss, str) and hasattr(losses.official, self.loss):
            known["official"] = False
        others = (*self.arguments, "seed") if self.fit else ()
        return {name: default for name, default in known.items() if name not in others}


def count_tokens(rows: Dataset, model: SentenceTransformer, given: Mapping[str, Any]) -> dict[str, Any]:
    """Count the tokens of the first column for the keyword ``frequencies`` of losses that weigh tokens.

    Return nothing if the keyword is given, if tokens are not weighted (``token_weights=None``), or if the
    built-in counts fit the vocabulary.
    """
    is_weighted = given.get("token_weights", True) is not None
    if not is_weighted or "frequencies" in given or TokenFrequencies.bookcorpus().fits(model.tokenizer):
        return {}
    anchors = (row[rows.column_names[0]] for row in rows)
    source = "the sentences of the training"
    return {"frequencies": TokenFrequencies.from_corpus(anchors, model.tokenizer, source=source)}


def override(arguments: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return training arguments with those given in their place.

    Epochs replace a number of updates, and the other way round.

    Example:
        >>> override({"max_steps": 60, "eval_steps": 20}, {"num_train_epochs": 1})
        {'eval_steps': 20, 'num_train_epochs': 1}
    """
    lengths = {"num_train_epochs", "max_steps"}
    asked = {name for name in lengths & given.keys() if name != "max_steps" or given[name] > 0}
    replaced = lengths - asked if asked else set()
    return {name: value for name, value in {**arguments, **given}.items() if name not in replaced}
