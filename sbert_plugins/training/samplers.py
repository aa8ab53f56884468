"""Batches of sentences of similar length."""

from collections.abc import Iterator
from typing import Any

import torch
from datasets import Dataset
from sentence_transformers.base.sampler import DefaultBatchSampler
from transformers.trainer_pt_utils import get_length_grouped_indices


class LengthGroupedBatchSampler(DefaultBatchSampler):
    """Batches of sentences of similar length, in random order.

    Batches then need less padding, and the length of a sentence does not reveal which sentences are its
    negatives. Rows are grouped as in transformers, which shuffles them and sorts blocks of at most 50
    batches. The length of a row is the number of characters of its longest text.

    Example:
        >>> from sbert_plugins import training
        >>> arguments = training.TrainingArguments("output", batch_sampler=training.LengthGroupedBatchSampler)
    """

    def __init__(self, dataset: Dataset, batch_size: int, drop_last: bool, *args: Any, **kwargs: Any) -> None:
        super().__init__(dataset, batch_size, drop_last, *args, **kwargs)
        dataset = dataset.with_format(None)  # without a transform, which may rename columns
        columns = [
            name
            for name, feature in dataset.features.items()
            if getattr(feature, "dtype", None) in ("string", "large_string")
        ]
        self.lengths = [
            max(len(text or "") for text in texts)
            for texts in zip(*(dataset[name][:] for name in columns), strict=True)
        ]

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the row numbers of each batch, in another order in each epoch."""
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        indices = get_length_grouped_indices(self.lengths, self.batch_size, generator=generator)
        batches = [indices[i : i + self.batch_size] for i in range(0, len(indices), self.batch_size)]
        # transformers sorts the batches by length. Here they are shuffled, and an incomplete one stays last.
        rest = [batches.pop()] if batches and len(batches[-1]) < self.batch_size else []
        for i in torch.randperm(len(batches), generator=generator).tolist():
            yield batches[i]
        if not self.drop_last:
            yield from rest
