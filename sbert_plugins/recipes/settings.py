"""What a recipe consists of."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer


logger = logging.getLogger(__name__)


def processes() -> int:
    """Count the processes of this training, as torchrun says it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first_process() -> bool:
    """Whether this is the first of them, which is all there is without torchrun."""
    return os.environ.get("RANK", "0") == "0"


SCHEDULES = ["linear", "constant"]

# The types of the settings, and how an error names them.
_KINDS: dict[str, tuple[str, type | tuple[type, ...]]] = {
    "bool": ("True or False", bool),
    "int": ("a whole number", int),
    "float": ("a number", (int, float)),
    "str": ("a word", str),
}


@dataclass(frozen=True)
class Settings:
    """How a method is trained. Everything that is not here is the host trainer's default.

    Raises:
        ValueError: On a value that no training can have, with its name.
    """

    learning_rate: float = field(metadata={"help": "of the encoder, at its highest"})
    batch_size: int = field(metadata={"help": "rows of a batch, in each process; a contrast's negatives are of one batch"})
    gradient_accumulation_steps: int = field(metadata={"help": "batches of an update"})
    epochs: float = field(metadata={"help": "passes over the text, in the place of a number of updates"})
    # The vector of the mask is that of a template, which any model is given before it is trained.
    pooling: str = field(
        metadata={"choices": ["cls", "mean", "mask"], "help": "for a plain transformer; mask: in a template"},
    )
    # None: the encoder's own.
    max_seq_length: int | None = field(
        metadata={"help": "tokens a sentence in training; the saved model has the encoder's own limit"}
    )
    eval_steps: int = field(metadata={"help": "updates from one checkpoint, and one evaluation by STS-B dev, to the next"})
    max_steps: int = field(default=-1, metadata={"help": "stop after this many updates"})  # -1: by epochs
    group_by_length: bool = field(default=False, metadata={"help": "batches of sentences of similar length"})
    sam_rho: float | None = field(
        default=None, metadata={"help": "radius of Sharpness-Aware Minimization, 0 for none: two passes an update"}
    )
    loss_learning_rate: float | None = field(  # None: the encoder's
        default=None, metadata={"help": "of what the loss owns: heads, decoders"}
    )
    learning_rate_schedule: str = field(
        default="linear", metadata={"choices": SCHEDULES, "help": "behind the warm-up: down to 0, or as it is"}
    )
    learning_rate_warmup: float = field(
        default=0.0, metadata={"help": "updates over which the rate rises from 0; below 1 their share of the training"}
    )
    weight_decay: float = field(default=0.0, metadata={"help": "of AdamW"})
    patience: int | None = field(
        default=None, metadata={"help": "stop after this many evaluations by STS-B dev without a better one"}
    )

    def __post_init__(self) -> None:
        """Refuse what would train nothing, or end in NaN, after everything is loaded."""
        self._check_kinds()
        if self.batch_size < 2:
            raise ValueError(
                f"batch_size must be at least 2, got {self.batch_size}: the other sentences of a batch are the negatives."
            )
        for name in ("gradient_accumulation_steps", "eval_steps", "max_seq_length", "patience"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}.")
        if self.max_steps != -1 and self.max_steps < 1:
            raise ValueError(f"max_steps must be at least 1, or -1 to go by epochs, got {self.max_steps}.")
        self._check_numbers()
        if self.learning_rate_warmup >= 1 and self.learning_rate_warmup % 1:
            raise ValueError(
                f"learning_rate_warmup must be a share below 1 or a whole number of updates, got {self.learning_rate_warmup}."
            )
        if self.learning_rate_schedule not in SCHEDULES:
            raise ValueError(
                f"learning_rate_schedule must be one of {', '.join(SCHEDULES)}, got {self.learning_rate_schedule!r}."
            )

    def _check_kinds(self) -> None:
        for each in fields(self):
            value, kinds = getattr(self, each.name), str(each.type).split(" | ")  # text, by the import from __future__
            if value is None and "None" in kinds:
                continue
            words, kind = _KINDS[kinds[0]]
            if not isinstance(value, kind) or (isinstance(value, bool) and kinds[0] != "bool"):
                raise ValueError(f"{each.name} must be {words}, got {value!r}.")

    def _check_numbers(self) -> None:
        for name in ("epochs", "learning_rate"):
            value = getattr(self, name)
            if value is None or not 0 < value < math.inf:  # not true of NaN
                raise ValueError(f"{name} must be a finite number above 0, got {value}.")
        for name in ("loss_learning_rate", "sam_rho", "learning_rate_warmup", "weight_decay"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise ValueError(f"{name} must be a finite number, 0 or above, got {value}.")

    def updates(self, rows: int, *, processes: int = 1) -> int:
        """Count the updates of a training on so many rows, as the host will; each of ``processes`` reads its share.

        Raises:
            ValueError: If there is not a batch for each process.
        """
        # Of several processes none has less than a batch: the host drops what is left, of a batch and of a round.
        whole = rows // self.batch_size // processes
        if processes > 1 and not whole:
            raise ValueError(
                f"{processes} processes need a batch of {self.batch_size} each, got {rows} rows: lower batch_size, or train "
                "in one process."
            )
        if self.max_steps > 0:
            return self.max_steps
        batches = whole if processes > 1 or self.leaves_one(rows) else math.ceil(rows / self.batch_size)
        return max(1, math.ceil(self.epochs * math.ceil(batches / self.gradient_accumulation_steps)))

    def leaves_one(self, rows: int) -> bool:
        """Whether the last batch of an epoch would be one row, without another as its negative: it is left out."""
        return rows > self.batch_size and rows % self.batch_size == 1

    def warmup_updates(self, updates: int) -> int:
        """Count those of the warm-up, of a training of so many."""
        warmup = self.learning_rate_warmup
        return int(warmup) if warmup >= 1 else math.ceil(warmup * updates)


def _as_given(_: Dataset | None, **how: Any) -> dict[str, Any]:
    return how


@dataclass(frozen=True)
class Recipe:
    """A method: where it comes from, what it reads and how it is trained."""

    method: str
    name: str
    paper: str
    url: str
    loss: str
    columns: tuple[str, ...]
    equation: str
    settings: Settings
    offline: Settings
    # Makes the loss's columns from sentences, and says how; None where the sentences are the columns.
    prepare: Callable[..., tuple[Dataset, dict[str, Any]]] | None = None  # of sentences, model, seed, **how
    # Completes ``how``, before a training begins: also by the sentences (None: any) and by what this machine has installed.
    prepare_with: Callable[..., dict[str, Any]] = _as_given
    reads: str = "sentences"  # or "triplets": anchor, positive, negative; or "any" columns, of a class of one's own
    second_column: str | None = None  # a positive of each sentence, which the loss takes as well
    text: str = "sentence-transformers/wiki1m-for-simcse"  # what is trained on by default, on the Hub
    build: Callable[..., Any] | None = None  # of the model; None: the class ``loss`` alone
    # Classes of the losses that ``build`` sets beside ``loss``, each with the keyword whose 0 leaves it out.
    beside: dict[str, str] = field(default_factory=dict)
    # Chooses the settings by keywords of the loss, and whether for the demo; None: they are the same for all.
    choose_settings: Callable[[dict[str, Any], bool], Settings] | None = None
    # Rows that the paper's training read, over all its epochs: by default no more are read of any text.
    rows_read: int | None = None
    rows_a_sentence: int = 1  # at most, of those that ``prepare`` makes
    # Finds keywords of the loss; the last argument is those that are given, which replace what is found.
    keywords: Callable[[Dataset, SentenceTransformer, Settings, dict[str, Any]], dict[str, Any]] | None = None
    # Keywords of the loss with which it is the paper's, where the loss's defaults are what trains better.
    paper_keywords: dict[str, Any] = field(default_factory=dict)
    official: bool = False  # whether ``losses.official`` has the loss, too, as the authors' code computes it
    chosen: tuple[str, ...] = ()  # of those that are found: what a loss is rebuilt with as it is on record
    reload: dict[str, Any] = field(default_factory=dict)  # keywords of a loss whose saved state is loaded afterwards
    # BibTeX by name, of what the loss's class does not cite: it is not the paper's, or not all of it.
    citations: dict[str, str] = field(default_factory=dict)
    note: str | None = None  # said when a training starts

    @property
    def columns_text(self) -> str:
        """What the loss reads, for people: ``anchor [, positive]``."""
        return ", ".join(self.columns) + (f" [, {self.second_column}]" if self.second_column else "")

    def losses_text(self, loss_keywords: dict[str, Any] | None = None) -> str:
        """Return the classes of what is trained with, for people: ``ConSERTLoss + BagOfWordsLoss``."""
        given = loss_keywords or {}
        return " + ".join([self.loss, *(name for name, weight in self.beside.items() if given.get(weight) != 0)])

    def settings_for(self, loss_keywords: dict[str, Any], *, offline: bool = False) -> Settings:
        """Return the paper's settings, or those of the demo, for a loss with these keywords."""
        if self.choose_settings is not None:
            return self.choose_settings(loss_keywords, offline)
        return self.offline if offline else self.settings


def shortened(recipe: Recipe, settings: Settings, sentences: int) -> Settings:
    """Return the settings with so few epochs of a text that no more rows are read than in the paper's or its code's training.

    A default that would go on for longer, such as PaSeR's five epochs of a million sentences, is cut with a warning.

    Args:
        recipe: The method.
        settings: Its own, whose length nobody has chosen.
        sentences: Of the text.
    """
    rows = sentences * recipe.rows_a_sentence
    if settings.max_steps > 0 or recipe.rows_read is None or settings.epochs * rows <= recipe.rows_read:
        return settings
    shorter = replace(settings, epochs=recipe.rows_read / rows)
    logger.warning(
        "%s: %s of %s sentences would be up to %s updates. By default it ends after %s, with the rows of its paper's or its "
        "authors' training, %s. Choose another length with epochs or max_steps (--epochs, --max-steps).",
        recipe.name,
        f"{settings.epochs:g} epoch{'s' if settings.epochs != 1 else ''}",
        f"{sentences:,}",
        f"{settings.updates(rows):,}",
        f"{shorter.updates(rows):,}",
        f"{recipe.rows_read:,}",
    )
    return shorter


def with_changes(settings: Settings, **changes: Any) -> Settings:
    """Return ``settings`` with the changes that are not None; ``epochs`` without ``max_steps`` takes the place of these."""
    given = {name: value for name, value in changes.items() if value is not None}
    if "epochs" in given:
        given = {"max_steps": -1} | given
    return replace(settings, **given)
