"""The decoder without layers: which words a text holds, read from its vector by one linear map."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sbert_plugins import functional

from .decoding import require_width
from .word_embeddings import WordScorer

logger = logging.getLogger(__name__)


class BagOfWordsDecoder(nn.Module):
    """Scores of candidate words for a text: ``head(W z)``, the same at each place. Used in training only.

    The map starts as the identity. What an encoder makes of a text lies nearer to the embeddings of its words than to those of
    others, and a mean of token embeddings where a pretrained masked-language-model head reads words: either way the first
    gradient already says which words the vector lacks. Behind random weights it tells nothing.

    Args:
        head: What scores words, :class:`WordEmbeddings` or a pretrained :class:`MLMHead`. It stays the caller's.
        memory_dimension: Width M of the vectors. Where that is not what is read, the map starts with orthogonal rows.
        start: For a memory of several vectors, what each is multiplied by at the start.
    """

    max_positions = math.inf  # words stand in no order

    def __init__(self, head: WordScorer, memory_dimension: int, *, start: Sequence[float] = (1.0,)) -> None:
        super().__init__()
        self.map = nn.Linear(len(start) * memory_dimension, head.width)
        with torch.no_grad():
            block = torch.empty(head.width, memory_dimension)
            (nn.init.eye_ if memory_dimension == head.width else nn.init.orthogonal_)(block)
            self.map.weight.copy_(torch.cat([factor * block for factor in start], dim=1))
        nn.init.zeros_(self.map.bias)
        self._has_begun = False

    def forward(self, memory: Tensor, head: WordScorer, candidates: Tensor) -> Tensor:
        """Map (B, M) vectors, or (B, K, M) of several each, and (C,) ids to (B, C) logits.

        Raises:
            ValueError: On vectors of another width.
        """
        memory = memory.flatten(1)
        require_width(memory, self.map.in_features)
        return head(self.map(memory.to(self.map.weight.dtype)), candidates)

    @torch.no_grad()
    def likeliest(self, memory: Tensor, head: WordScorer, ids: Tensor, counts: Sequence[int]) -> list[list[int]]:
        """Return the likeliest of the (V,) ids for each text, best first, as many as ``counts`` says."""
        logits = self(memory, head, ids)
        best = ids[logits.topk(max([1, *counts]), dim=1).indices].tolist()
        return [found[:count] for found, count in zip(best, counts, strict=True)]

    def loss(
        self, memory: Tensor, head: WordScorer, ids: Tensor, content: Tensor, weights: Tensor | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute :func:`functional.bag_of_words_loss` of a batch, the candidates its own different tokens.

        Args:
            memory: (B, M), a vector a text.
            head: What scores words.
            ids: (B, L), the texts' tokens.
            content: (B, L) bool, those to predict.
            weights: (V,), of each token of the vocabulary, or None for 1.

        Returns:
            The loss, and diagnostics: ``token_accuracy`` (share of tokens that are among as many best candidates as their
            text has tokens) and ``information`` (nats a token that the loss rises with another text's vector), both NaN
            where there is no token.
        """
        if self.training and not self._has_begun:  # at the first batch: a later one may be the rest of an epoch
            self._has_begun = True
            if len(ids) == 1:
                logger.warning(
                    "A batch of one text: its words are told from those of the batch's other texts, of which there are none, "
                    "and little is learned. Raise per_device_train_batch_size; batches that are accumulated do not count."
                )
        rows, columns = content.nonzero(as_tuple=True)  # once: a device is waited for each time
        tokens = ids[rows, columns]
        candidates, targets = tokens.unique(return_inverse=True)
        weighed = None if weights is None else weights[tokens]
        logits = self(memory, head, candidates)
        loss = functional.bag_of_words_loss(logits, rows, targets, weighed)
        with torch.no_grad():
            others = functional.bag_of_words_loss(logits, (rows - 1) % len(ids), targets, weighed)
            # The score of the last candidate that counts, a text: comparing each token with all would take (N, C).
            best = logits.sort(dim=1, descending=True).values if len(candidates) else logits.new_zeros(len(ids), 1)
            last = best.gather(1, content.sum(dim=1, keepdim=True).clamp(1, best.shape[1]) - 1)
            hits = (logits[rows, targets] >= last[rows, 0]).sum()
            information = others - loss.detach() if len(rows) else loss.new_full((), math.nan)
            diagnostics = {"token_accuracy": hits / len(rows), "information": information}
        return loss, diagnostics
