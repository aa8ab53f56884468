"""The loss of a decoder with layers, and a probe that shows whether the decoder reads its memory."""

import zlib
from collections.abc import Callable

import torch
from torch import Tensor, nn

from sbert_plugins import functional, host

from .mlm_head import WordScorer

PROBE_EVERY = 50


def linear_unless_equal(width_in: int, width_out: int) -> nn.Module:
    """Return a Linear layer from one width to another, or the identity if they are equal."""
    return nn.Identity() if width_in == width_out else nn.Linear(width_in, width_out)


def decoding_loss(
    decode: Callable[[Tensor], Tensor],
    head: WordScorer,
    memory: Tensor,
    targets: Tensor,
    weights: Tensor | None,
    *,
    training: bool,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Compute :func:`functional.token_cross_entropy` of a decoder at its scored places.

    Args:
        decode: Maps a memory to (N, D), the decoder's outputs at the scored places. Logits over the
            vocabulary are computed only there.
        head: The word scorer.
        memory: (B, ...), one row per text.
        targets: (N,) ids.
        weights: (V,), the weight of each token of the vocabulary, or None for 1.
        training: Whether to probe the memory.

    Returns:
        The loss, and the diagnostics ``token_accuracy`` (NaN without a target) and, on some batches,
        ``information``.
    """
    target_weights = None if weights is None else weights[targets]

    def loss_of(memory: Tensor) -> tuple[Tensor, Tensor]:
        logits = head(decode(memory))
        return functional.token_cross_entropy(logits, targets, target_weights), logits

    loss, logits = loss_of(memory)
    # The probe comes second. Autocast caches the weights that it casts, and those cast in the probe have no
    # gradient.
    diagnostics = probe_memory(lambda memory: loss_of(memory)[0], memory, len(targets)) if training else {}
    with torch.no_grad():
        diagnostics["token_accuracy"] = (logits.argmax(dim=1) == targets).sum() / len(targets)
    return loss, diagnostics


@torch.no_grad()
def probe_memory(loss_of: Callable[[Tensor], Tensor], memory: Tensor, scored: int) -> dict[str, Tensor]:
    """Measure how much a decoder's loss rises if each text gets the memory of another text.

    A decoder that sees most of a sentence may restore it without the memory. Its loss then falls, and the
    encoder learns nothing. The probe runs on about one batch in 50. It computes both losses with the same
    random draws, and resets the generators afterwards, so it does not change the training.

    Args:
        loss_of: Maps a memory to the loss of this batch.
        memory: (B, ...), one row per text.
        scored: Number of tokens that the loss averages.

    Returns:
        The diagnostic ``information``, or an empty dict.
    """
    if not scored or len(memory) < 2 or not _is_sampled(memory.device, scored):
        return {}
    values = []
    for rows in (memory, memory.roll(1, dims=0)):
        with host.kept_random_state(memory.device):
            values.append(loss_of(rows))
    return {"information": values[1] - values[0]}


def _is_sampled(device: torch.device, scored: int) -> bool:
    """Sample one batch in 50 without consuming randomness.

    The states of the generators decide. They are part of checkpoints, so a resumed training samples the same
    batches.
    """
    states = [torch.get_rng_state(), host.generator_state(device)]
    drawn = b"".join(state.cpu().numpy().tobytes() for state in states if state is not None)
    return zlib.crc32(drawn, scored) % PROBE_EVERY == 0
