"""The progress of a training on the console: a bar in a terminal, and one line per minute elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from typing import Any

from tqdm import tqdm
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

logger = logging.getLogger(__name__)
_SECONDS = 60
_SHOWN = 4  # numbers
_UNSHOWN = {"epoch", "learning_rate", "grad_norm", "total_flos", "step", "train_runtime"}


class Progress(TrainerCallback):
    """Shows the update, the rate, the remaining time and at most four numbers: the loss, its first terms or a score.

    Args:
        score: Key of the score that selects the checkpoint, and its name.
    """

    def __init__(self, score: tuple[str, str] | None = None) -> None:
        self.score = score
        self.values = ""
        self.bar: tqdm | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Start the clock."""
        self.first, self.began = state.global_step, time.monotonic()
        self.printed = self.began
        if state.is_world_process_zero and sys.stderr.isatty():
            self.bar = tqdm(total=state.max_steps, initial=state.global_step, dynamic_ncols=True)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Move the bar, or print a line if a minute has passed."""
        if self.bar is not None:
            self.bar.update(state.global_step - self.bar.n)
        elif time.monotonic() - self.printed >= _SECONDS:
            self._print_line(state)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Keep the numbers to show; a score is shown at once."""
        logs = logs or {}
        if self.score is not None and self.score[0] in logs:
            self.values = f"{self.score[1]} {logs[self.score[0]]:.4g}"
            if self.bar is None:
                self._print_line(state)
        elif "loss" in logs:
            keys = ["loss", *(key for key in logs if key != "loss" and key not in _UNSHOWN)]
            self.values = ", ".join(f"{key} {logs[key]:.4g}" for key in keys[:_SHOWN])
        if self.bar is not None:
            self.bar.set_postfix_str(self.values)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Close the bar, or print the last line."""
        if self.bar is not None:
            self.bar.close()
            self.bar = None
        else:
            self._print_line(state)

    def _print_line(self, state: TrainerState) -> None:
        if not state.is_world_process_zero:
            return
        self.printed = time.monotonic()
        rate = (state.global_step - self.first) / max(self.printed - self.began, 1e-9)
        left = (state.max_steps - state.global_step) / rate if rate else 0.0
        remaining = f", {tqdm.format_interval(left)} left" if left else ""
        logger.info(
            "Update %d of %d (%.2f per second%s): %s",
            state.global_step,
            state.max_steps,
            rate,
            remaining,
            self.values,
        )
