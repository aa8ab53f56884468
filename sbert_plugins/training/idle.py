"""What the log of a finished training says did nothing, in words."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from .loss_state import named_losses

_LEAST_INFORMATION = 0.05  # nats a token
_HINTS = {
    "triplet": "no sentence was long enough (long_share; lower min_words or raise max_seq_length), or all were in order "
    "already (triplet_active; raise triplet_margin), or leave it out with triplet_weight=0",
    "adversarial": "the warm-up lasted to the end (lower warmup_steps)",
    "filtering": "the warm-up lasted to the end (lower warmup_steps), or no sentence had a rare token to mask (masked_share)",
    "generative": "no row had a phrase to read (scored_share): look at the columns",
}


def with_layers(loss: Any) -> set[str]:
    """Return the datasets, ``""`` where there is one loss, whose loss, or one inside it, has a decoder with layers."""
    return {name for name, member in named_losses(loss).items() if any(map(_has_layers, member.modules()))}


def _has_layers(module: Any) -> bool:
    settings = getattr(module, "settings", None)
    return isinstance(settings, Mapping) and bool(settings.get("decoder_layers"))


def idle_parts(
    history: Sequence[Mapping[str, Any]],
    terms: Iterable[str],
    *,
    without_gradient: Collection[str] = (),
    small: Collection[str] = (),
    with_layers: Collection[str] = (),
) -> list[str]:
    """Return a sentence for each part of a loss that taught the encoder nothing.

    Args:
        history: The trainer's ``state.log_history``.
        terms: Names of the loss's terms among its keys.
        without_gradient: Those of them that had a gradient in no batch.
        small: Those that were not 0 in some batch, though the log, which has four digits, may say so.
        with_layers: Of which datasets' losses the decoder has layers, which learn to read late: :func:`with_layers`.
    """
    notes = []
    for term in terms:
        values = _logged(history, term)
        # The host logs four digits: a smaller term reads 0, the share of rows that have it does not.
        is_idle = term not in small and not any(entry.get(f"{term}_active") for entry in history)
        if values and not any(values) and is_idle:
            hint = _HINTS.get(term.rpartition("/")[2])
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
            likely = (
                "Likely the encoder's head knows no words (random, or not in its checkpoint), or the training was too short."
            )
            if "" in with_layers or key.partition("/")[0] in with_layers:
                likely = "Longer trainings may read; decoder_layers=0 reads from the start."
            notes.append(
                f"The decoder did not read the sentence vectors: {key} ended at {end:.3f} nats a token (another "
                f"sentence's vector did as well). What it taught is noise. {likely}"
            )
    return notes


def _logged(history: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    """Return what was logged under a name; None stands for what was no number."""
    return [entry[key] for entry in history if entry.get(key) is not None]
