"""What the log of a finished training says did nothing, in words."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from .loss_state import named_losses

_LEAST_INFORMATION = 0.05  # nats a token


def hints_of(loss: Any) -> dict[str, dict[str, str]]:
    """Return, by dataset (``""`` where there is one loss), what its loss and all in it say of what taught nothing.

    A module says so in ``idle_hints``: by a term's name, or ``information``, where to look.
    """
    hints: dict[str, dict[str, str]] = {}
    for name, member in named_losses(loss).items():
        found = hints.setdefault(name, {})
        for part in member.modules():
            found.update(getattr(part, "idle_hints", {}))
    return hints


def idle_parts(
    history: Sequence[Mapping[str, Any]],
    terms: Iterable[str],
    *,
    without_gradient: Collection[str] = (),
    small: Collection[str] = (),
    hints: Mapping[str, Mapping[str, str]] | None = None,
) -> list[str]:
    """Return a sentence for each part of a loss that taught the encoder nothing.

    Args:
        history: The trainer's ``state.log_history``.
        terms: Names of the loss's terms among its keys.
        without_gradient: Those of them that had a gradient in no batch.
        small: Those that were not 0 in some batch, though the log, which has four digits, may say so.
        hints: Where to look, as :func:`hints_of` returns them.
    """
    notes = []
    for term in terms:
        values = _logged(history, term)
        # The host logs four digits: a smaller term reads 0, the share of rows that have it does not.
        is_idle = term not in small and not any(entry.get(f"{term}_active") for entry in history)
        if values and not any(values) and is_idle:
            hint = _hint(hints or {}, term)
            notes.append(f"The term {term} was 0 in all of the training" + (f": {hint}." if hint else "."))
        elif values and term in without_gradient:
            notes.append(
                f"The term {term} had no gradient in any batch: it stands in the loss and taught nothing. Compute it from "
                "what the model gives, with no detach, item or no_grad between, or make it one of the loss's diagnostics."
            )
    logged = dict.fromkeys(key for entry in history for key in entry if key.rpartition("/")[2] == "information")
    for key in logged:
        if key.startswith("eval_") and key.removeprefix("eval_") in logged:
            continue  # the same decoder, evaluated
        values = _logged(history, key)
        late = values[-max(len(values) // 3, 1) :]
        if late and sum(late) / len(late) < _LEAST_INFORMATION:
            end = round(late[-1], 3) + 0.0  # no -0.000
            likely = _hint(hints or {}, key) or (
                "Likely the encoder's head knows no words (random, or not in its checkpoint), or the training was too short."
            )
            notes.append(
                f"The decoder did not read the sentence vectors: {key} ended at {end:.3f} nats a token (another "
                f"sentence's vector did as well). What it taught is noise. {likely}"
            )
    return notes


def _hint(hints: Mapping[str, Mapping[str, str]], key: str) -> str | None:
    """Return what is said of a logged key, which begins with its dataset where there are several."""
    said = {**hints.get("", {}), **hints.get(key.partition("/")[0], {})}
    return said.get(key.rpartition("/")[2])


def _logged(history: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    """Return what was logged under a name; None stands for what was no number."""
    return [entry[key] for entry in history if entry.get(key) is not None]
