"""PaSeR's decoder, which writes a phrase from four vectors."""

import torch
from torch import Tensor, nn

from .decoding import decoding_loss, linear_unless_equal
from .mlm_head import WordScorer


class PhraseDecoder(nn.Module):
    """Causal transformer decoder with a memory of a few vectors (PaSeR section 3.2.3). Used in training only.

    It reads word embeddings from the encoder's table, and a head tied to the same table predicts words. Its
    matrices start from N(0, 0.02), as BERT's and the official code's do. Without this start the layers of
    ``nn.TransformerDecoder`` would be copies of one layer.

    Args:
        dimension: Width D, that of the encoder's token embeddings.
        num_layers: Number of layers.
        num_heads: Attention heads, a divisor of D.
        dropout: Probability in training.
        normalize_memory: Applies LayerNorm to each memory vector.
        embedding_dimension: Width E of the word embeddings, by default D. A Linear layer maps another width
            to D (ELECTRA, ALBERT).
        memory_dimension: Width M of the memory vectors, by default D. A Linear layer maps another width to D.
        feedforward_dimension: Inner width of a layer, by default D.
    """

    max_positions = 128

    def __init__(
        self,
        dimension: int,
        *,
        num_layers: int,
        num_heads: int,
        dropout: float,
        normalize_memory: bool,
        embedding_dimension: int | None = None,
        memory_dimension: int | None = None,
        feedforward_dimension: int | None = None,
    ) -> None:
        super().__init__()
        self.widen = linear_unless_equal(embedding_dimension or dimension, dimension)
        self.norm_memory = nn.LayerNorm(memory_dimension or dimension) if normalize_memory else nn.Identity()
        self.read_memory = linear_unless_equal(memory_dimension or dimension, dimension)
        self.positions = nn.Embedding(self.max_positions, dimension)
        nn.init.normal_(self.positions.weight, std=0.02)
        self.norm = nn.LayerNorm(dimension)
        self.dropout = nn.Dropout(dropout)
        layer = nn.TransformerDecoderLayer(
            dimension,
            num_heads,
            feedforward_dimension or dimension,
            dropout,
            activation="gelu",
            batch_first=True,
        )
        self.layers = nn.TransformerDecoder(layer, num_layers)
        for parameter in self.layers.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, word_embeddings: Tensor, memory: Tensor) -> Tensor:
        """Decode (B, T, E) word embeddings with a (B, K, M) memory to (B, T, D), causally."""
        dtype = self.norm.weight.dtype
        length = word_embeddings.shape[1]
        hidden = self.widen(word_embeddings.to(dtype)) + self.positions.weight[:length].to(dtype)
        hidden = self.dropout(self.norm(hidden))
        causal = nn.Transformer.generate_square_subsequent_mask(
            length, device=hidden.device, dtype=hidden.dtype
        )
        memory = self.read_memory(self.norm_memory(memory.to(dtype)))
        return self.layers(hidden, memory, tgt_mask=causal, tgt_is_causal=True)

    def loss(
        self,
        memory: Tensor,
        head: WordScorer,
        ids: Tensor,
        content: Tensor,
        weights: Tensor | None,
        *,
        embed: nn.Module,
        start_id: int,
        end_id: int,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of writing a batch's phrases and their ends.

        Args:
            memory: (B, K, M), one memory per phrase.
            head: The word scorer.
            ids: (B, T), the phrases' tokens.
            content: (B, T) bool, the tokens to predict, at most 127 in a row. A row without one is not
                scored.
            weights: (V,), the weight of each token of the vocabulary, or None for 1.
            embed: Maps ids to word embeddings.
            start_id: Id before a phrase.
            end_id: Id after a phrase.

        Returns:
            The loss, and the diagnostics ``token_accuracy`` and, on some batches, ``information``.
        """
        length = content.sum(dim=1, keepdim=True)
        # The tokens of a phrase move to the left. The last column collects the others, and is then cut off.
        place = torch.where(content, content.cumsum(dim=1) - 1, ids.shape[1])
        targets = torch.full((len(ids), ids.shape[1] + 1), end_id, device=ids.device)
        targets = targets.scatter(1, place, ids)[:, :-1][:, : self.max_positions]
        # The decoder reads the start and the phrase, and predicts the phrase and its end.
        start = torch.full_like(ids[:, :1], start_id)
        embedded = embed(torch.cat([start, targets[:, :-1]], dim=1))
        scored = (torch.arange(targets.shape[1], device=ids.device) <= length) & (length > 0)
        places = scored.nonzero(as_tuple=True)
        return decoding_loss(
            lambda memory: self(embedded, memory)[places],
            head,
            memory,
            targets[places],
            weights,
            training=self.training,
        )

    @torch.no_grad()
    def write(
        self,
        memory: Tensor,
        head: nn.Module,
        embed: nn.Module,
        *,
        start_id: int,
        end_id: int,
        max_tokens: int,
    ) -> Tensor:
        """Write a phrase for each memory, greedily.

        Args:
            memory: (B, K, M)
            head: Maps decoder outputs to logits.
            embed: Maps ids to word embeddings.
            start_id: Id before a phrase.
            end_id: Id after a phrase. It also pads the shorter phrases.
            max_tokens: Most tokens per phrase.

        Returns:
            (B, T) ids, T at most ``max_tokens``.
        """
        ids = torch.full((len(memory), 1), start_id, device=memory.device)
        ended = torch.zeros_like(ids, dtype=torch.bool)
        for _ in range(max_tokens):
            hidden = self(embed(ids), memory)[:, -1]
            following = head(hidden).argmax(dim=1, keepdim=True).masked_fill(ended, end_id)
            ended = following == end_id
            ids = torch.cat([ids, following], dim=1)
            if ended.all():
                break
        return ids[:, 1:]
