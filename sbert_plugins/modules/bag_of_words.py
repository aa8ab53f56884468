"""A decoder without layers: it predicts the words of a text from its vector by one linear map."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sbert_plugins import functional

from .mlm_head import WordScorer


class BagOfWordsDecoder(nn.Module):
    """Decoder that scores candidate words for a text by ``head(W z)``, in any order. Used in training only.

    The map ``W`` starts as the identity. The vector of a text is nearer to the embeddings of its own words
    than to others, and a pretrained masked-language-model head reads words from a mean of token embeddings.
    The first gradient therefore already shows which words the vector lacks. A random map would hide them.

    Args:
        head: The word scorer: :class:`WordEmbeddings` or a pretrained :class:`MLMHead`. The decoder reads its
            width and does not own it.
        memory_dimension: Width M of the vectors. If the head reads another width, the map starts with
            orthogonal rows.
        start: For a memory of several vectors, the factor of each vector at the start.
    """

    max_positions = math.inf

    def __init__(self, head: WordScorer, memory_dimension: int, *, start: Sequence[float] = (1.0,)) -> None:
        super().__init__()
        self.map = nn.Linear(len(start) * memory_dimension, head.width)
        with torch.no_grad():
            block = torch.empty(head.width, memory_dimension)
            (nn.init.eye_ if memory_dimension == head.width else nn.init.orthogonal_)(block)
            self.map.weight.copy_(torch.cat([factor * block for factor in start], dim=1))
        nn.init.zeros_(self.map.bias)

    def forward(self, memory: Tensor, head: WordScorer, candidates: Tensor) -> Tensor:
        """Map (B, M) vectors, or (B, K, M), and (C,) ids to (B, C) logits."""
        return head(self.map(memory.flatten(1).to(self.map.weight.dtype)), candidates)

    @torch.no_grad()
    def most_likely(
        self, memory: Tensor, head: WordScorer, ids: Tensor, counts: Sequence[int]
    ) -> list[list[int]]:
        """Return the ``counts`` most likely of the (V,) ids for each text, best first."""
        logits = self(memory, head, ids)
        best = ids[logits.topk(max([1, *counts]), dim=1).indices].tolist()
        return [found[:count] for found, count in zip(best, counts, strict=True)]

    def loss(
        self, memory: Tensor, head: WordScorer, ids: Tensor, content: Tensor, weights: Tensor | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute :func:`functional.bag_of_words_loss`, with the distinct tokens of the batch as candidates.

        Args:
            memory: (B, M), one vector per text, or (B, K, M).
            head: The word scorer.
            ids: (B, L), the texts' tokens.
            content: (B, L) bool, the tokens to predict.
            weights: (V,), the weight of each token of the vocabulary, or None for 1.

        Returns:
            The loss, and the diagnostics ``token_accuracy`` and ``information``, which are NaN without a
            token.
        """
        rows, columns = content.nonzero(as_tuple=True)  # one call, because each waits for the device
        tokens = ids[rows, columns]
        candidates, targets = tokens.unique(return_inverse=True)
        token_weights = None if weights is None else weights[tokens]
        logits = self(memory, head, candidates)
        loss = functional.bag_of_words_loss(logits, rows, targets, token_weights)
        with torch.no_grad():
            other = functional.bag_of_words_loss(logits, (rows - 1) % len(ids), targets, token_weights)
            information = other - loss if len(rows) else loss.new_full((), math.nan)
            # A token is a hit if it reaches the k-th best score of its text, which has k tokens.
            counts = content.sum(dim=1, keepdim=True).clamp(1, max(len(candidates), 1))
            best = logits.sort(dim=1, descending=True).values if len(candidates) else logits.sum(1, True)
            hits = (logits[rows, targets] >= best.gather(1, counts - 1)[rows, 0]).sum()
        return loss, {"token_accuracy": hits / len(rows), "information": information}
