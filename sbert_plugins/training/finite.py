"""No training goes on, is saved or ends well past a loss, a gradient or a weight that is not a finite number."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from .trainer import SentenceTransformerTrainer

# A gradient scaler begins at 2**16 and halves at each inf: after as many halvings no scale is to blame.
SKIPPED_UPDATES = 32

MOST_UNREAD = 1000  # of numbers that nothing has read


class DivergedError(ValueError):
    """A number of the training is not finite. A ``ValueError``, which the command line prints as one line.

    ``texts`` is the part of the message that names texts of the batch.
    """

    texts = ""


class FiniteCheck:
    """Stops a trainer at the first loss or gradient norm that is not finite, and refuses to save such weights.

    On a CPU each number is read as it comes, so that the weights are still those before the bad update. On a GPU reading
    waits for the device: there the numbers are kept and read where the trainer waits anyway (after each batch with the
    host's ``logging_nan_inf_filter``, its default; else when it logs), before a checkpoint is written or training ends, and
    when there are a thousand.
    Of several processes the one that meets it raises, and torchrun ends the others.

    Args:
        trainer: Whose losses, gradients and weights are looked at.
    """

    def __init__(self, trainer: SentenceTransformerTrainer) -> None:
        self.trainer = trainer
        self.checkpoint: str | None = None  # the last one that was written, or resumed from
        self._unread: list[_Seen] = []
        self._first_ids: Tensor | None = None
        self._skipped = 0

    def begin(self, checkpoint: str | None) -> None:
        """Forget an earlier training, and refuse to begin one anew with weights that are not finite."""
        self.checkpoint = checkpoint
        self._unread, self._first_ids, self._skipped = [], None, 0
        for loss in [] if checkpoint else self._losses():  # a checkpoint is loaded over what diverged
            if bad := not_finite(loss):
                raise ValueError(
                    f"the model and its loss must begin with finite weights, got NaN or infinity in {_named(bad)}: load the "
                    "model anew, from where its weights are whole."
                )

    def see_loss(self, terms: Mapping[str, Tensor], inputs: Mapping[str, Any]) -> None:
        """Look at the terms of one batch."""
        ids = (value for key, value in inputs.items() if key.endswith("input_ids") and isinstance(value, Tensor))
        self._first_ids = next(ids, None)
        self._see({name: term.detach() for name, term in terms.items()}, is_norm=False)

    def see_norm(self, norm: Tensor | float) -> None:
        """Look at the gradient norm of an update, before its step."""
        self._see({"the gradient norm": torch.as_tensor(norm).detach()}, is_norm=True)

    def _see(self, numbers: dict[str, Tensor], *, is_norm: bool) -> None:
        self._unread.append(_Seen(self.trainer.state.global_step + 1, numbers, is_norm, self._first_ids))
        # Where nothing is logged nobody else reads, and each of them holds a batch's ids.
        if self.trainer.args.device.type == "cpu" or len(self._unread) >= MOST_UNREAD:
            self.read()

    def read(self) -> None:
        """Raise :class:`DivergedError` if a number seen since the last time is not finite."""
        unread, self._unread = self._unread, []
        for seen in unread:
            # One transfer for all terms; which of them it was is asked only when the training is over anyway.
            is_finite = bool(torch.stack([number.isfinite() for number in seen.numbers.values()]).all())
            if seen.is_norm and not is_finite and self.trainer.accelerator.scaler is not None:
                # fp16: the scaler tries scales that are too high, and leaves such an update out.
                self._skipped += 1
                if self._skipped < SKIPPED_UPDATES:
                    continue
            elif is_finite:
                self._skipped = 0 if seen.is_norm else self._skipped
                continue
            bad = [f"{name} is {number.item()}" for name, number in seen.numbers.items() if not number.isfinite()]
            texts = _texts(self.trainer.model, seen.ids)
            where = f", in the batch that begins with {', '.join(map(repr, texts))}" if texts else ""
            error = DivergedError(f"update {seen.update}: {', '.join(bad)}{where}. {self._way_out()}")
            error.texts = where
            raise error

    def check_weights(self) -> None:
        """Raise :class:`DivergedError` if a trained weight is not finite."""
        for loss in self._losses():
            if bad := not_finite(loss):
                raise DivergedError(
                    f"after update {self.trainer.state.global_step} {len(bad)} weights are not finite ({_named(bad)}): "
                    f"they are not saved. {self._way_out()}"
                )

    def _losses(self) -> list[nn.Module]:
        losses = self.trainer.loss
        return list(losses.values()) if isinstance(losses, Mapping) else [losses]

    def _way_out(self) -> str:
        kept = self.checkpoint if self.checkpoint and Path(self.checkpoint).is_dir() else None
        return (
            f"The training was stopped; {f'its last good checkpoint is {kept}' if kept else 'it has no complete checkpoint'}. "
            f"Begin anew{', from it as the model or from the start,' if kept else ''} with a lower learning_rate (now "
            f"{self.trainer.args.learning_rate:g}) or, in a script, max_grad_norm (now {self.trainer.args.max_grad_norm:g}): "
            "resumed it would keep its rate. And look at the loss's weights and at the texts."
        )


def _named(bad: Sequence[str]) -> str:
    return ", ".join(bad[:3]) + (", ..." if len(bad) > 3 else "")


class _Seen(NamedTuple):
    update: int
    numbers: dict[str, Tensor]
    is_norm: bool
    ids: Tensor | None  # of the batch's first column


def not_finite(loss: nn.Module) -> list[str]:
    """Return the names of the trained parameters of a loss, its encoder's among them, that hold NaN or infinity."""
    trained = [(name, parameter) for name, parameter in loss.named_parameters() if parameter.requires_grad]
    if not trained:
        return []
    flags = torch.stack([parameter.detach().isfinite().all() for _, parameter in trained]).tolist()  # one transfer
    return [name for (name, _), is_finite in zip(trained, flags, strict=True) if not is_finite]


def json_text(values: Mapping[str, Any]) -> str:
    """Return json, which has no NaN: such numbers are null, and ``not_finite`` says where they stood and what they were."""
    found: dict[str, str] = {}
    written = {key: _without_nan(value, key, found) for key, value in values.items()}
    return json.dumps(written | ({"not_finite": found} if found else {}), indent=1, allow_nan=False) + "\n"


def _without_nan(value: Any, place: str, found: dict[str, str]) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        found[place] = str(float(value))
        return None
    if isinstance(value, Mapping):
        return {key: _without_nan(part, f"{place}.{key}", found) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(part, f"{place}.{i}", found) for i, part in enumerate(value)]
    return value


def _texts(model: nn.Module, ids: Tensor | None) -> list[str]:
    """Return the beginnings of the first texts of a batch."""
    decode = getattr(getattr(model, "tokenizer", None), "batch_decode", None)
    if decode is None or ids is None or ids.ndim != 2:
        return []
    return list(_shortened(decode(ids[:3, :32].tolist(), skip_special_tokens=True)))


def _shortened(texts: list[str]) -> Iterator[str]:
    for text in texts:
        yield text if len(text) <= 60 else f"{text[:57]}..."
