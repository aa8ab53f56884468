"""The progress of a training on the console: a bar in a terminal, and one line per minute elsewhere."""

import sys
from typing import Any

from tqdm import tqdm
from transformers import ProgressCallback, TrainerControl, TrainerState, TrainingArguments

from sbert_plugins.training import SentenceTransformerTrainer

_LINE = "{n_fmt}/{total_fmt} updates, {rate_inv_fmt}, {remaining} left{postfix}\n"


class Progress(ProgressCallback):
    """Shows the update, the rate, the remaining time, and the loss with its terms or the checkpoint's score.

    Args:
        trainer: The trainer, which knows the terms of the loss.
    """

    training_bar: Any

    def __init__(self, trainer: SentenceTransformerTrainer) -> None:
        super().__init__()
        self.trainer = trainer

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Start the clock."""
        seconds, text = (0.1, None) if sys.stderr.isatty() else (60, _LINE)
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
        logs: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Keep the numbers to show."""
        terms = self.trainer.terms if len(self.trainer.terms) > 1 else ()
        names = ("loss", *terms, f"eval_{args.metric_for_best_model}")
        if shown := {name: f"{logs[name]:.4g}" for name in names if logs and name in logs}:
            self.training_bar.set_postfix(shown, refresh=False)
