"""DenoSent's decoder: restores a sentence from heavy noise with the help of one vector."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .decoding import IDLE_HINTS, check_sizes, decoding_loss, linear_unless_equal, require_width
from .word_embeddings import WordScorer


class Places(NamedTuple):
    """Where the tokens of a batch stand: linear maps and norms compute these alone, attention pads them."""

    flat: Tensor  # (N,), places in B x T
    seen: Tensor  # (B, 1, 1, T) bool, the same for all heads and places

    @classmethod
    def of(cls, attended: Tensor) -> Places:
        """Find them in (B, T) bool."""
        seen = attended.clone()
        seen[:, 0] |= ~attended.any(dim=1)  # a row of padding alone would be 0 / 0; what it becomes is never read
        return cls(attended.flatten().nonzero().squeeze(1), seen[:, None, None, :])

    @property
    def shape(self) -> tuple[int, int]:
        """B and T."""
        return self.seen.shape[0], self.seen.shape[3]

    def packed(self, x: Tensor) -> Tensor:
        """Map (B, T, X) to (N, X)."""
        x = x.reshape(-1, x.shape[2])
        return x if len(self.flat) == len(x) else x.index_select(0, self.flat)

    def padded(self, x: Tensor) -> Tensor:
        """Map (N, X) to (B, T, X), 0 elsewhere."""
        rows, length = self.shape
        whole = rows * length
        x = x if len(x) == whole else x.new_zeros(whole, x.shape[1]).index_copy(0, self.flat, x)
        return x.view(rows, length, x.shape[1])

    def each(self, x: Tensor) -> Tensor:
        """Map (B, X), of each sentence, to (N, X), of its tokens."""
        return self.packed(x.unsqueeze(1).expand(-1, self.shape[1], -1))


class DenoisingLayer(nn.Module):
    """One post-norm layer; numbered like the parts of ``torch.nn.TransformerDecoderLayer``."""

    def __init__(self, dimension: int, num_heads: int, feedforward_dimension: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.self_in = nn.Linear(dimension, 3 * dimension)  # queries, keys, values
        self.self_out = nn.Linear(dimension, dimension)
        self.memory_value = nn.Linear(dimension, dimension)
        self.memory_out = nn.Linear(dimension, dimension)
        self.linear1 = nn.Linear(dimension, feedforward_dimension)
        self.linear2 = nn.Linear(feedforward_dimension, dimension)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(dimension) for _ in range(3))
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: Tensor, memory: Tensor, places: Places) -> Tensor:
        """Map (N, D), the tokens of a batch, with a (B, D) memory."""
        hidden = self.norm1(hidden + self.dropout(self._attend(hidden, places)))
        hidden = self.norm2(hidden + self.dropout(self._remember(memory, places)))
        inner = self.dropout(F.relu(self.linear1(hidden)))
        return self.norm3(hidden + self.dropout(self.linear2(inner)))

    def _remember(self, memory: Tensor, places: Places) -> Tensor:
        """Return what each token reads of the (B, D) memory: all of a sentence the same."""
        return places.each(self.memory_out(self.memory_value(memory)))

    def _attend(self, hidden: Tensor, places: Places) -> Tensor:
        (rows, length), width = places.shape, hidden.shape[1]
        heads = places.padded(self.self_in(hidden)).view(rows, length, 3, self.num_heads, width // self.num_heads)
        queries, keys, values = heads.permute(2, 0, 3, 1, 4)  # (B, H, T, D / H) each
        probability = self.dropout.p if self.training else 0.0
        mixed = F.scaled_dot_product_attention(queries, keys, values, attn_mask=places.seen, dropout_p=probability)
        return self.self_out(places.packed(mixed.transpose(1, 2).reshape(rows, length, width)))


class DenoisingDecoder(nn.Module):
    """Transformer decoder over the noisy embeddings of a sentence and a memory of one vector (DenoSent, "Methodology").

    Each place sees the whole noisy sentence: there is no causal mask. With a memory of length one the softmax of eq. 1 is 1,
    so cross-attention is two linear maps of the memory; its query and key weights, which could never learn, are left out. In
    eval mode equal to ``torch.nn.TransformerDecoder`` (post-norm, ReLU); in training that one also drops the single attention
    weight, which is the whole memory at a place, with probability ``dropout``. Used in training only.

    Args:
        dimension: Width D, that of the encoder's token embeddings.
        num_layers: Layers.
        num_heads: Heads of the self-attention, a divisor of D.
        feedforward_dimension: Width between the two linear maps of a layer.
        dropout: Probability in training.
        noise_dropout: Share of the embeddings' numbers that are set to zero in training, the continuous noise.
        embedding_dimension: Width E of the embeddings; a Linear widens them where it is not D (ELECTRA, ALBERT).
        memory_dimension: Width M of the memory; a Linear maps it where it is not D.
        learned_positions: Whether to add positions, for embeddings that have none (rotary or relative encoders).

    Raises:
        ValueError: On a value out of range, or a sentence longer than the table of learned positions.
    """

    max_positions = 512
    idle_hints = IDLE_HINTS
    layer = DenoisingLayer

    def __init__(
        self,
        dimension: int,
        *,
        num_layers: int,
        num_heads: int,
        feedforward_dimension: int,
        dropout: float,
        noise_dropout: float,
        embedding_dimension: int | None = None,
        memory_dimension: int | None = None,
        learned_positions: bool = False,
    ) -> None:
        super().__init__()
        check_sizes(dimension, num_layers=num_layers, num_heads=num_heads, dropout=dropout, paper=16)
        if not 0 <= noise_dropout < 1:
            raise ValueError(f"noise_dropout must be in [0, 1), got {noise_dropout}. The paper uses 0.825.")
        embedding_dimension = embedding_dimension or dimension
        self.positions = nn.Embedding(self.max_positions, embedding_dimension) if learned_positions else None
        self.noise = nn.Dropout(noise_dropout)
        self.widen = linear_unless_equal(embedding_dimension, dimension)
        self.memory_dimension = memory_dimension or dimension
        self.read_memory = linear_unless_equal(self.memory_dimension, dimension)
        layers = [self.layer(dimension, num_heads, feedforward_dimension, dropout) for _ in range(num_layers)]
        self.layers = nn.ModuleList(layers)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
        for layer in layers:
            for linear in (layer.self_in, layer.memory_value):
                nn.init.uniform_(linear.weight, -(bound := math.sqrt(6 / (4 * dimension))), bound)

    def loss(
        self,
        memory: Tensor,
        head: WordScorer,
        ids: Tensor,
        content: Tensor,
        weights: Tensor | None,
        *,
        embedded: Tensor,
        length: int,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of restoring a batch's sentences.

        Args:
            memory: (B, M), a vector a sentence.
            head: What scores words.
            ids: (B, L), the sentences' tokens.
            content: (B, L) bool, those to predict.
            weights: (V,), of each token of the vocabulary, or None for 1.
            embedded: (B, L, E), their embeddings, to which the noise is added here.
            length: Most tokens to predict in a row: the others cost nothing.

        Returns:
            The loss, and diagnostics: ``token_accuracy``, and on one batch in fifty ``information``.
        """
        # The sentence's own tokens to the left, in their order: there is nothing to do at the others.
        order = (~content).to(torch.uint8).argsort(dim=1, stable=True)[:, :length]
        ids, content = ids.gather(1, order), content.gather(1, order)
        embedded = embedded.gather(1, order.unsqueeze(2).expand(-1, -1, embedded.shape[2]))
        places = content.nonzero(as_tuple=True)
        return decoding_loss(
            lambda memory: self(embedded, memory, content)[places],
            head,
            memory,
            ids[places],
            weights,
            training=self.training,
        )

    def forward(self, embedded: Tensor, memory: Tensor, attended: Tensor) -> Tensor:
        """Decode (B, T, E) embeddings with a (B, M) memory to (B, T, D), 0 at padding.

        Args:
            embedded: (B, T, E), without noise: it is added here.
            memory: (B, M), one vector a sentence.
            attended: (B, T) bool, false at padding, which no other place sees, and which costs nothing but in attention.
        """
        require_width(memory, self.memory_dimension)
        places = Places.of(attended)
        dtype = next(self.layers.parameters()).dtype
        embedded, length = embedded.to(dtype), embedded.shape[1]
        if self.positions is not None:
            if length > self.max_positions:
                raise ValueError(
                    f"a sentence must have at most {self.max_positions} tokens, got {length}: lower model.max_seq_length."
                )
            embedded = embedded + self.positions.weight[:length]
        # The noise is drawn for padding, too: where layers have no dropout an earlier checkpoint trains on as it would have.
        hidden = self.widen(places.packed(self.noise(embedded)))
        memory = self.read_memory(memory.to(dtype))
        for layer in self.layers:
            hidden = layer(hidden, memory, places)
        return places.padded(hidden)
