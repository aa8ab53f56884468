"""The first updates of a training, in which an objective waits."""

from __future__ import annotations

import logging
import math

from torch import Tensor

logger = logging.getLogger(__name__)


class WarmUp:
    """Whether the first updates are over.

    Args:
        steps: A number of updates, or as a float below 1 a share of the training.
        name: Of the loss that waits.

    Raises:
        ValueError: On a number that is neither.
    """

    def __init__(self, steps: float, name: str) -> None:
        if not 0 <= steps < math.inf or (steps >= 1 and steps != int(steps)):
            raise ValueError(
                f"warmup_steps must be a number of updates or a share of the training in [0, 1), got {steps}. "
                "0 leaves the warm-up out."
            )
        self._name = name
        self._is_over = False
        self._has_warned = False

    def ask_again(self) -> None:
        """Look at the number of updates again: an earlier one may have been loaded."""
        self._is_over = False

    def is_on(self, steps: float, updates: Tensor, training_steps: int | None) -> bool:
        """Tell it of now; for forwards in training.

        Args:
            steps: As they are by now.
            updates: Number of updates that were made.
            training_steps: Updates of the whole training; None where nobody told.
        """
        if self._is_over or not steps:
            return False
        if steps < 1:
            if training_steps is None:
                if not self._has_warned:
                    logger.warning(
                        "warmup_steps=%s is a share of the training, and nobody told %s how long that is: no warm-up. "
                        "Train with sbert_plugins.training.SentenceTransformerTrainer, or pass a number of updates.",
                        steps,
                        self._name,
                    )
                    self._has_warned = True
                return False  # who knows the length may still tell it
            steps = round(steps * training_steps)
        # A transfer from the device in each step, but during the warm-up only.
        self._is_over = int(updates) >= steps
        return not self._is_over
