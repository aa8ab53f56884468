"""PT-BERT's pseudo sentence: every sentence on the same number of learned tokens."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sbert_plugins import functional


class PseudoTokenAttention(nn.Module):
    """Map a sentence onto learned pseudo tokens and back to one vector (PT-BERT eq. 1 to 3). Used in training only.

    One head and no biases, as the equations are printed. Random start: pseudo tokens of unit variance, matrices as in
    ``nn.Linear``.

    Args:
        dimension: Width D of sentence vectors and token embeddings.
        num_pseudo_tokens: Length of the pseudo sentence.
        attend_to: What the pseudo tokens attend to: the sentence's ``"tokens"``, or the ``"pooled"`` vector alone. With one
            vector to attend to each attention weight is 1, so that all pseudo tokens become the same row, none of them gets
            a gradient, and the map is two linear ones.

    Raises:
        ValueError: On a value out of range.
    """

    def __init__(self, dimension: int, *, num_pseudo_tokens: int, attend_to: str) -> None:
        super().__init__()
        if num_pseudo_tokens < 1:
            raise ValueError(f"num_pseudo_tokens must be at least 1, got {num_pseudo_tokens}. The paper uses 128.")
        check_attend_to(attend_to)
        self.attend_to = attend_to
        self.pseudo_tokens = nn.Parameter(torch.randn(num_pseudo_tokens, dimension))
        self.query = nn.Linear(dimension, dimension, bias=False)
        self.key = nn.Linear(dimension, dimension, bias=False)
        self.value = nn.Linear(dimension, dimension, bias=False)

    def forward(self, sentence: Tensor, tokens: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """Map (B, D) sentence vectors, with their (B, L, D) tokens and (B, L) mask of what is no padding, to (B, D).

        With ``attend_to="pooled"`` tokens and mask are not read.

        Raises:
            ValueError: Without tokens where they are attended to.
        """
        if self.attend_to == "pooled":
            tokens, mask = sentence.unsqueeze(1), None
        elif tokens is None:
            raise ValueError("tokens must be (B, L, D) with attend_to='tokens', got None.")
        return functional.pseudo_token_mapping(
            self.pseudo_tokens,
            sentence,
            tokens,
            mask,
            query=self.query.weight.T,
            key=self.key.weight.T,
            value=self.value.weight.T,
        )


def check_attend_to(attend_to: str) -> None:
    """Refuse what pseudo tokens cannot attend to."""
    if attend_to not in ("tokens", "pooled"):
        raise ValueError(f"attend_to must be 'tokens' or 'pooled', got {attend_to!r}.")
