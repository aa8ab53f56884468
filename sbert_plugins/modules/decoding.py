"""The loss of a decoder with layers, and whether it reads its vector."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import torch
from torch import Tensor, nn

from sbert_plugins import functional, host

from .word_embeddings import WordScorer

EVERY = 50
# Where to look if a decoder with layers did not read.
IDLE_HINTS = {"information": "Longer trainings may read; decoder_layers=0 reads from the start."}


def check_sizes(dimension: int, *, num_layers: int, num_heads: int, dropout: float, paper: int) -> None:
    """Refuse sizes that no decoder has; ``paper`` is the paper's number of layers."""
    if num_layers < 1:
        raise ValueError(f"num_layers must be at least 1, got {num_layers}. The paper uses {paper}.")
    if num_heads < 1 or dimension % num_heads:
        raise ValueError(
            f"num_heads (a loss's decoder_heads) must divide the encoder's width {dimension}, got {num_heads}: 1 always does."
        )
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout (a loss's decoder_dropout) must be in [0, 1), got {dropout}.")


def require_width(memory: Tensor, width: int) -> None:
    """Refuse vectors of another width than those for which a decoder was built."""
    if memory.shape[-1] != width:
        raise ValueError(
            f"the decoder reads vectors of width {width}, for which the loss was built, got {memory.shape[-1]} "
            "(MatryoshkaLoss cuts them): train without it."
        )


def linear_unless_equal(width_in: int, width_out: int) -> nn.Module:
    """Return what maps one width to another: nothing where they are equal."""
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
    """Compute :func:`functional.token_cross_entropy` of a decoder at its scored places, as ``BagOfWordsDecoder.loss`` does.

    Args:
        decode: From a memory to (N, D) at the scored places: the vocabulary is met there only.
        head: What scores words.
        memory: (B, ...), one row a text.
        targets: (N,), ids.
        weights: (V,), of each token of the vocabulary, or None for 1.
        training: Whether to probe what the decoder reads.

    Returns:
        The loss, and diagnostics: ``token_accuracy`` (NaN without a target), and on one batch in fifty ``information``.
    """
    weighed = None if weights is None else weights[targets]

    def loss_of(memory: Tensor) -> tuple[Tensor, Tensor]:
        logits = head(decode(memory))
        return functional.token_cross_entropy(logits, targets, weighed), logits

    loss, logits = loss_of(memory)
    # Afterwards: autocast may keep what it casts without gradients.
    probed = probe_information(lambda memory: loss_of(memory)[0], memory, scored=len(targets)) if training else {}
    with torch.no_grad():
        hits = (logits.argmax(dim=1) == targets).sum()
    return loss, {"token_accuracy": hits / len(targets), **probed}


@torch.no_grad()
def probe_information(loss: Callable[[Tensor], Tensor], memory: Tensor, *, scored: int) -> dict[str, Tensor]:
    """Measure, now and then, the nats that a decoder's loss rises when each text is given another one's vector.

    A decoder that sees most of a sentence restores it without the vector: its loss falls, and the encoder learns nothing.
    Measured on about one batch in fifty, by chance. Both values have the same draws of dropout, which are then taken back: a
    training is the same with it and without.

    Args:
        loss: Of a memory, everything else as in this batch.
        memory: (B, ...), one row a text.
        scored: Tokens that the loss is the mean over.

    Returns:
        The diagnostic ``information``, or nothing.
    """
    if not scored or len(memory) < 2 or not _is_its_turn(memory.device, scored):
        return {}
    values = []
    for rows in (memory, memory.roll(1, dims=0)):
        with host.kept_random_state(memory.device):
            values.append(loss(rows))
    right, wrong = values
    return {"information": wrong - right}


def _is_its_turn(device: torch.device, scored: int) -> bool:
    """Say yes once in :data:`EVERY` batches, by where the generators stand, of which nothing is drawn.

    They are kept on the host, and in checkpoints: no wait for the device, and the same batches after a resume, where a counter
    would be one part more of the loss's state. Where nothing is drawn (no dropout) the number of scored tokens differs.
    """
    states = [torch.get_rng_state(), host.generator_state(device)]
    drawn = b"".join(state.cpu().numpy().tobytes() for state in states if state is not None)
    return zlib.crc32(drawn, scored) % EVERY == 0
