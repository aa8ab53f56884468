"""The first updates of a training, in which an objective waits."""

from __future__ import annotations

import logging
import math
from typing import Any

from torch import Tensor, nn

logger = logging.getLogger(__name__)

# Where to look if an objective taught nothing.
IDLE_HINTS = {
    "adversarial": "the warm-up lasted to the end (lower warmup_steps)",
    "filtering": "the warm-up lasted to the end (lower warmup_steps), or no sentence had a rare token to mask (masked_share)",
}


class WarmUp:
    """Whether the first updates are over.

    Args:
        steps: A number of updates, or as a float below 1 a share of the training.
        owner: The loss that waits, as ``warm_up``.

    Raises:
        ValueError: On a number that is neither.
    """

    def __init__(self, steps: float, owner: nn.Module) -> None:
        if not 0 <= steps < math.inf or (steps >= 1 and steps != int(steps)):
            raise ValueError(
                f"warmup_steps must be a number of updates or a share of the training in [0, 1), got {steps}. "
                "0 leaves the warm-up out."
            )
        self._name = type(owner).__name__
        owner.register_load_state_dict_post_hook(_ask_again)
        self._over_with: float | None = None  # the steps with which it was found to be over
        self._has_warned = False

    def ask_again(self) -> None:
        """Look at the number of updates again: an earlier one may have been loaded."""
        self._over_with = None

    def is_on(self, steps: float, updates: Tensor, training_steps: int | None) -> bool:
        """Tell it of now; for forwards in training.

        Args:
            steps: As they are by now.
            updates: Number of updates that were made.
            training_steps: Updates of the whole training; None where nobody told.
        """
        if not steps or self._over_with == steps:
            return False
        asked = steps
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
        is_over = int(updates) >= steps
        self._over_with = asked if is_over else None
        return not is_over


def _ask_again(owner: Any, _: object) -> None:
    owner.warm_up.ask_again()
