"""A word to people whose batches hold nothing to contrast with."""

from __future__ import annotations

import logging

from torch import nn

logger = logging.getLogger(__name__)


def check_negatives(loss: nn.Module, batch_size: int) -> None:
    """Refuse a first training batch of one sentence, warn of a later one (the rest of an epoch).

    Args:
        loss: A contrastive loss around ``loss.model``. It remembers in ``has_seen_negatives`` that a batch had some.
        batch_size: Sentences that are contrasted, those of other processes among them.

    Raises:
        ValueError: If the first training batch holds one sentence.
    """
    if batch_size > 1:
        loss.has_seen_negatives = True
    elif loss.model.training and not getattr(loss, "has_seen_negatives", False):
        raise ValueError(
            f"{type(loss).__name__} takes the other sentences of a batch as negatives, got a batch of 1: "
            "raise per_device_train_batch_size to at least 2."
        )
    elif loss.model.training:
        logger.warning("A batch of one sentence has no negatives and gives no contrastive gradient.")
