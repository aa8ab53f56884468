"""The progress of a training on the console: a bar in a terminal, and one line per minute elsewhere."""

import re
import sys
from collections.abc import Mapping
from typing import Any

from tqdm import tqdm
from transformers import ProgressCallback, TrainerControl, TrainerState, TrainingArguments

_SECONDS = 60  # between two lines
_SHOWN = 4  # numbers
_UNSHOWN = re.compile(r"^(epoch|learning_rate|grad_norm|total_flos|step)$|balance_")
_FORMAT = "{n_fmt}/{total_fmt} updates, {rate_inv_fmt}, {remaining} left{postfix}"


class Progress(ProgressCallback):
    """Shows the update, the rate, the remaining time and at most four numbers: loss and terms, or a score.

    Args:
        score: Key of the score that selects the checkpoint.
    """

    training_bar: Any

    def __init__(self, score: str = "") -> None:
        super().__init__()
        self.score = score

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Start the clock."""
        seconds, text = (
            (0.1, "{l_bar}{bar} " + _FORMAT) if sys.stderr.isatty() else (_SECONDS, _FORMAT + "\n")
        )
        self.current_step = state.global_step
        self.training_bar = tqdm(
            total=state.max_steps,
            initial=state.global_step,
            mininterval=seconds,
            maxinterval=seconds,
            miniters=1,
            delay=seconds,  # the first line has a rate
            unit="update",
            bar_format=text,
            disable=not state.is_world_process_zero,
        )

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
        if self.score in logs:
            self.training_bar.set_postfix_str(f"{self.score.removeprefix('eval_')} {logs[self.score]:.4g}")
        elif "loss" in logs:
            keys = ["loss", *(key for key in logs if key != "loss" and not _UNSHOWN.search(key))]
            self.training_bar.set_postfix_str(
                ", ".join(f"{key.rpartition('/')[2]} {logs[key]:.4g}" for key in keys[:_SHOWN]), refresh=False
            )
