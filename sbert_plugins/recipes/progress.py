"""What a person sees of a training: one line at a terminal, a line for each log elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from tqdm import tqdm
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

_UNSHOWN = ("epoch", "learning_rate", "grad_norm", "total_flos", "step")


class ProgressLine(TrainerCallback):
    """Shows a training at a terminal as one line that changes, and elsewhere reports a line for each log.

    Args:
        report: Called with each line where there is no terminal.
        stream: What may be a terminal; by default standard error.
        score: Name of the key of an evaluation's score, and what to call it.
    """

    def __init__(
        self, report: Callable[[str], None], *, stream: TextIO | None = None, score: tuple[str, str] | None = None
    ) -> None:
        self.report = report
        self.stream = sys.stderr if stream is None else stream
        self.score = score
        self.bar: tqdm | None = None

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Open the line."""
        if state.is_world_process_zero and self.stream.isatty():
            self.bar = tqdm(total=state.max_steps, initial=state.global_step, file=self.stream, dynamic_ncols=True)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Move it on."""
        if self.bar is not None:
            self.bar.update(state.global_step - self.bar.n)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Show loss and terms, or a score."""
        values = "  ".join(self._values(logs or {}))
        if not values or not state.is_world_process_zero:
            return
        if self.bar is not None:
            self.bar.set_postfix_str(values)
        else:
            total = str(state.max_steps)
            self.report(f"update {state.global_step:>{len(total)}}/{total}  {values}")

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Close the line."""
        if self.bar is not None:
            self.bar.close()
            self.bar = None

    def _values(self, logs: Mapping[str, Any]) -> list[str]:
        if "train_runtime" in logs:  # the host's summary: what the table at the end says better
            return []
        if self.score is not None and self.score[0] in logs:
            return [f"{self.score[1]} {100 * logs[self.score[0]]:.2f}"]
        shown = {key: value for key, value in logs.items() if key not in _UNSHOWN and not key.startswith("eval_")}
        first = sorted(shown, key=lambda key: key != "loss")
        return [f"{key} {shown[key]:.4g}" for key in first if isinstance(shown[key], int | float)]
