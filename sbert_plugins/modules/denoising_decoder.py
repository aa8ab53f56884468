"""DenoSent's decoder, which restores a sentence from heavy noise with the help of one vector."""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .decoding import decoding_loss, linear_unless_equal
from .mlm_head import WordScorer


class Places(NamedTuple):
    """The places of the N tokens in a batch of B rows of T places.

    Linear layers and norms run on (N, X), without padding. Attention runs on (B, T, X).
    """

    flat: Tensor  # (N,) indices into B x T
    seen: Tensor  # (B, T) bool, the places that attention sees

    @classmethod
    def of(cls, attended: Tensor) -> "Places":
        """Return the places that are true in (B, T) bool."""
        seen = attended.clone()
        # The softmax of a row without tokens would be 0 / 0. The output of such a row is not read.
        seen[:, 0] |= ~attended.any(dim=1)
        return cls(attended.flatten().nonzero().squeeze(1), seen)

    def packed(self, x: Tensor) -> Tensor:
        """Map (B, T, X) to (N, X)."""
        return x.reshape(-1, x.shape[2]).index_select(0, self.flat)

    def padded(self, x: Tensor) -> Tensor:
        """Map (N, X) to (B, T, X), 0 at other places."""
        rows, length = self.seen.shape
        padded = x.new_zeros(rows * length, x.shape[1]).index_copy(0, self.flat, x)
        return padded.view(rows, length, x.shape[1])

    def repeated(self, x: Tensor) -> Tensor:
        """Repeat (B, X), one row per sentence, to (N, X), one row per token."""
        return self.packed(x.unsqueeze(1).expand(-1, self.seen.shape[1], -1))


class DenoisingLayer(nn.Module):
    """One post-norm layer, with the names of ``torch.nn.TransformerDecoderLayer``."""

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
        """Map (N, D), the tokens of a batch, with a (B, D) memory to (N, D)."""
        hidden = self.norm1(hidden + self.dropout(self._attend(hidden, places)))
        hidden = self.norm2(hidden + self.dropout(self._read_memory(memory, places)))
        inner = self.dropout(F.relu(self.linear1(hidden)))
        return self.norm3(hidden + self.dropout(self.linear2(inner)))

    def _read_memory(self, memory: Tensor, places: Places) -> Tensor:
        """Return the memory's contribution at each token, the same for all tokens of a sentence."""
        return places.repeated(self.memory_out(self.memory_value(memory)))

    def _attend(self, hidden: Tensor, places: Places) -> Tensor:
        # (B, T, 3, H, D / H), then three tensors of (B, H, T, D / H)
        heads = places.padded(self.self_in(hidden)).unflatten(2, (3, self.num_heads, -1))
        queries, keys, values = heads.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(
            queries,
            keys,
            values,
            attn_mask=places.seen[:, None, None, :],
            dropout_p=self.dropout.p if self.training else 0.0,
        )
        return self.self_out(places.packed(mixed.transpose(1, 2).flatten(2)))


class DenoisingDecoder(nn.Module):
    """Transformer decoder over noisy embeddings, with a memory of one vector (DenoSent, "Methodology").

    Each place sees the whole noisy sentence: there is no causal mask. With one memory vector the softmax of
    cross-attention is 1, so cross-attention is two linear maps of the memory. Its query and key weights would
    get no gradient and are left out. In eval mode the decoder equals ``torch.nn.TransformerDecoder``
    (post-norm, ReLU). In training torch also drops the single attention weight, which removes the whole
    memory at a place. Used in training only.

    Weights start as in the official code: N(0, 0.02), the attention's input and the memory's value from a
    uniform distribution. With Xavier's start the outputs of 16 layers are nearly the same at all places.

    Args:
        dimension: Width D, that of the encoder's token embeddings.
        num_layers: Number of layers.
        num_heads: Heads of the self-attention, a divisor of D.
        feedforward_dimension: Inner width of a layer.
        dropout: Probability in training.
        noise_dropout: Share of the embeddings' numbers that are set to 0 in training (the continuous noise).
        embedding_dimension: Width E of the embeddings, by default D. A Linear layer maps another width to D
            (ELECTRA, ALBERT).
        memory_dimension: Width M of the memory, by default D. A Linear layer maps another width to D.
        learned_positions: Adds learned positions, for encoders with rotary or relative positions.
    """

    max_positions = 512
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
        embedding_dimension = embedding_dimension or dimension
        self.positions = nn.Embedding(self.max_positions, embedding_dimension) if learned_positions else None
        self.noise = nn.Dropout(noise_dropout)
        self.widen = linear_unless_equal(embedding_dimension, dimension)
        self.read_memory = linear_unless_equal(memory_dimension or dimension, dimension)
        layers = [self.layer(dimension, num_heads, feedforward_dimension, dropout) for _ in range(num_layers)]
        self.layers = nn.ModuleList(layers)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
        bound = math.sqrt(6 / (4 * dimension))
        for layer in layers:
            for linear in (layer.self_in, layer.memory_value):
                nn.init.uniform_(linear.weight, -bound, bound)

    def loss(
        self,
        memory: Tensor,
        head: WordScorer,
        ids: Tensor,
        content: Tensor,
        *,
        embedded: Tensor,
        length: int,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of restoring a batch's sentences.

        Args:
            memory: (B, M), one vector per sentence.
            head: The word scorer.
            ids: (B, L), the sentences' tokens.
            content: (B, L) bool, the tokens to predict.
            embedded: (B, L, E), their embeddings, without noise.
            length: Most tokens to predict in a row.

        Returns:
            The loss, and the diagnostics ``token_accuracy`` and, on some batches, ``information``.
        """
        # Move the tokens to predict to the left, in their order, and cut off the other places.
        order = (~content).to(torch.uint8).argsort(dim=1, stable=True)[:, :length]
        ids, content = ids.gather(1, order), content.gather(1, order)
        embedded = embedded.gather(1, order.unsqueeze(2).expand(-1, -1, embedded.shape[2]))
        places = content.nonzero(as_tuple=True)
        return decoding_loss(
            lambda memory: self(embedded, memory, content)[places],
            head,
            memory,
            ids[places],
            None,
            training=self.training,
        )

    def forward(self, embedded: Tensor, memory: Tensor, attended: Tensor) -> Tensor:
        """Decode (B, T, E) embeddings with a (B, M) memory to (B, T, D), 0 at padding.

        Args:
            embedded: (B, T, E), without noise. The decoder adds it in training.
            memory: (B, M), one vector per sentence.
            attended: (B, T) bool, false at padding.
        """
        places = Places.of(attended)
        dtype = next(self.layers.parameters()).dtype
        embedded, length = embedded.to(dtype), embedded.shape[1]
        if self.positions is not None:
            if length > self.max_positions:
                raise ValueError(
                    f"Lower model.max_seq_length to at most {self.max_positions}, got {length} tokens."
                )
            embedded = embedded + self.positions.weight[:length]
        hidden = self.widen(places.packed(self.noise(embedded)))
        memory = self.read_memory(memory.to(dtype))
        for layer in self.layers:
            hidden = layer(hidden, memory, places)
        return places.padded(hidden)
