"""Augmentation that is new in each epoch and the same after a resume, and batches of similar length."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from datasets import Dataset
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_pt_utils import get_length_grouped_indices


@dataclass
class AugmentingCollator(SentenceTransformerDataCollator):
    """Changes each row before it is tokenised, with a random generator that depends on seed, epoch and the row's text.

    Python's and torch's global generators are prefetched by loader workers, so that augmentation drawn from them differs
    after a resume. Here a row gets the same change in the same epoch whatever the batch, worker or process, and another one
    in the next epoch, rows of an evaluation dataset too. ``training.SentenceTransformerTrainer`` tells it the epoch and the
    prompts of its arguments; with another trainer add ``callbacks=[training.EpochCallback(collator)]``.

    Args:
        preprocess_fn: ``model.preprocess``.
        augment: Gets a row as dict of columns and a ``random.Random``, returns the changed row. Values have to be text.
        seed: Another seed, other changes.

    Example:
        >>> def shuffle_words(row, rng):
        ...     words = row["anchor"].split()
        ...     rng.shuffle(words)
        ...     return {"anchor": row["anchor"], "shuffled": " ".join(words)}
        >>> collator = AugmentingCollator(model.preprocess, augment=shuffle_words)
    """

    augment: Callable[[dict[str, Any], random.Random], dict[str, Any]] = field(kw_only=True)
    seed: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:  # noqa: D105
        self._epoch = multiprocessing.Value("i", 0)  # shared with loader workers, persistent ones too
        self._of_arguments: dict[str, Any] = {}  # what a trainer has filled in

    def take_arguments(self, **arguments: Any) -> None:
        """Take prompts and routes of a trainer's arguments, where nobody has set them but another trainer."""
        for name, value in arguments.items():
            if not getattr(self, name) or getattr(self, name) is self._of_arguments.get(name):
                setattr(self, name, value)
                self._of_arguments[name] = value

    def set_epoch(self, epoch: int) -> None:
        """Draw other changes from now on."""
        self._epoch.value = epoch

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        """Augment the rows, then tokenise them as the host does."""
        return super().__call__([self._augmented(dict(row)) for row in features])

    def _augmented(self, row: dict[str, Any]) -> dict[str, Any]:
        # Seeds given as text are hashed alike in every process.
        rng = random.Random(f"{self.seed}|{self._epoch.value}|{sorted(row.items())}")
        dataset = {"dataset_name": row.pop("dataset_name")} if "dataset_name" in row else {}  # the host's, not the user's
        augmented = self.augment(row, rng)
        if not isinstance(augmented, Mapping):
            raise ValueError(f"augment must return a row's texts by their columns, got {augmented!r}: a return is missing?")
        return {**augmented, **dataset}


class EpochCallback(TrainerCallback):
    """Tells a collator the epoch at its beginning."""

    def __init__(self, collator: AugmentingCollator) -> None:
        self.collator = collator
        self._next_epoch = 0

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Start from the epoch that is resumed."""
        self._next_epoch = int(state.epoch or 0)

    def on_epoch_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Pass the epoch on; counted here, because of a dataset of unknown length the trainer's own count is a guess."""
        self.collator.set_epoch(self._next_epoch)
        self._next_epoch += 1


class LengthGroupedBatchSampler(DefaultBatchSampler):
    """Batches of sentences of similar length, in random order: less padding, and length tells nothing about negatives.

    transformers' grouping (shuffle, sort within blocks of at most 50 batches) by number of characters of the longest
    text of a row. Give the class to the training arguments: ``batch_sampler=training.LengthGroupedBatchSampler``.
    """

    def __init__(self, dataset: Dataset, batch_size: int, drop_last: bool, *args: Any, **kwargs: Any) -> None:
        super().__init__(dataset, batch_size, drop_last, *args, **kwargs)
        if len(dataset) == 0:
            raise ValueError("dataset must have at least one row, got none.")
        dataset = dataset.with_format(None)  # a transform may name the columns otherwise
        columns = [
            name for name, feature in dataset.features.items() if getattr(feature, "dtype", None) in ("string", "large_string")
        ]
        if not columns:
            raise ValueError(f"dataset must have a column of strings to measure, got {', '.join(dataset.column_names)}.")
        self.lengths = [
            max(len(text or "") for text in texts) for texts in zip(*(dataset[name][:] for name in columns), strict=True)
        ]

    def __iter__(self) -> Iterator[list[int]]:
        """Yield lists of row numbers, another order in each epoch."""
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        indices = get_length_grouped_indices(self.lengths, self.batch_size, generator=generator)
        batches = [indices[i : i + self.batch_size] for i in range(0, len(indices), self.batch_size)]
        if self.drop_last and len(batches[-1]) < self.batch_size:
            batches.pop()
        # The host sorts batches by length, longest first; the rest of an epoch stays last.
        rest = [batches.pop()] if batches and len(batches[-1]) < self.batch_size else []
        for i in torch.randperm(len(batches), generator=generator).tolist():
            yield batches[i]
        yield from rest
