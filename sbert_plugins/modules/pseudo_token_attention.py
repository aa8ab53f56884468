"""PT-BERT's pseudo sentence: every sentence is mapped onto the same number of learned tokens."""

import torch
from torch import Tensor, nn

from sbert_plugins import functional


class PseudoTokenAttention(nn.Module):
    """Map a sentence onto learned pseudo tokens and back to one vector (PT-BERT eq. 1 to 3).

    It has one head and no biases, as in the printed equations. The pseudo tokens start from N(0, 1), the
    matrices as in ``nn.Linear``.

    Args:
        dimension: Width D of sentence vectors and token embeddings.
        num_pseudo_tokens: Length of the pseudo sentence.
        attend_to: ``"tokens"`` of the sentence, or the ``"pooled"`` vector alone. With ``"pooled"`` each
            attention weight is 1, so all pseudo tokens become the same row and get no gradient.
    """

    def __init__(self, dimension: int, *, num_pseudo_tokens: int, attend_to: str) -> None:
        super().__init__()
        if attend_to not in ("tokens", "pooled"):
            raise ValueError(f"attend_to must be 'tokens' or 'pooled', got {attend_to!r}.")
        self.attend_to = attend_to
        self.pseudo_tokens = nn.Parameter(torch.randn(num_pseudo_tokens, dimension))
        self.query = nn.Linear(dimension, dimension, bias=False)
        self.key = nn.Linear(dimension, dimension, bias=False)
        self.value = nn.Linear(dimension, dimension, bias=False)

    def forward(self, sentence: Tensor, tokens: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """Map (B, D) sentence vectors to (B, D).

        Args:
            sentence: (B, D)
            tokens: (B, L, D) token embeddings. Not read with ``attend_to="pooled"``.
            mask: (B, L), true at tokens that are not padding.
        """
        if self.attend_to == "pooled":
            tokens, mask = sentence.unsqueeze(1), None
        assert tokens is not None
        return functional.pseudo_token_mapping(
            self.pseudo_tokens,
            sentence,
            tokens,
            mask,
            query=self.query.weight.T,
            key=self.key.weight.T,
            value=self.value.weight.T,
        )
