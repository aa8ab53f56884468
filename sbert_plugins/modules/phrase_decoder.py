"""PaSeR's decoder: writes a phrase from four vectors."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .decoding import IDLE_HINTS, check_sizes, decoding_loss, linear_unless_equal, require_width
from .word_embeddings import WordScorer


class PhraseDecoder(nn.Module):
    """Causal transformer decoder over a memory of a few vectors (PaSeR section 3.2.3).

    It has no word embeddings of its own: it reads those that the caller looks up in the encoder's table, and its output goes
    through a head tied to the same table. Used in training only.

    Args:
        dimension: Width D, that of the encoder's token embeddings.
        num_layers: Layers.
        num_heads: Attention heads, a divisor of D.
        dropout: Probability in training.
        normalize_memory: Whether each memory vector passes a LayerNorm. A few large dimensions of a [CLS] vector make its
            product with another 30 times longer than the rest of the memory, and then the only one that attention sees.
        embedding_dimension: Width E of the word embeddings; a Linear widens them where it is not D (ELECTRA, ALBERT).
        memory_dimension: Width M of the memory vectors; a Linear maps them where it is not D.
        feedforward_dimension: Width between the two linear maps of a layer, by default D.

    Raises:
        ValueError: On a value out of range.
    """

    max_positions = 128
    idle_hints = IDLE_HINTS

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
        check_sizes(dimension, num_layers=num_layers, num_heads=num_heads, dropout=dropout, paper=6)
        self.widen = linear_unless_equal(embedding_dimension or dimension, dimension)
        self.norm_memory = nn.LayerNorm(memory_dimension or dimension) if normalize_memory else nn.Identity()
        self.memory_dimension = memory_dimension or dimension
        self.read_memory = linear_unless_equal(self.memory_dimension, dimension)
        self.positions = nn.Embedding(self.max_positions, dimension)
        nn.init.normal_(self.positions.weight, std=0.02)
        self.norm = nn.LayerNorm(dimension)
        self.dropout = nn.Dropout(dropout)
        layer = nn.TransformerDecoderLayer(
            dimension, num_heads, feedforward_dimension or dimension, dropout, activation="gelu", batch_first=True
        )
        self.layers = nn.TransformerDecoder(layer, num_layers)
        for parameter in self.layers.parameters():  # the layers of nn.TransformerDecoder start as copies of one
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.02)  # as the official code's, and BERT's

    def forward(self, word_embeddings: Tensor, memory: Tensor) -> Tensor:
        """Decode (B, T, E) word embeddings with a (B, K, M) memory to (B, T, D); place t sees the places up to t only.

        Rows are aligned to the left: what stands after a phrase's end is not seen by the phrase.
        """
        require_width(memory, self.memory_dimension)
        dtype = self.norm.weight.dtype
        length = word_embeddings.shape[1]
        if length > self.max_positions:
            raise ValueError(
                f"a phrase must have at most {self.max_positions - 1} tokens, got {length - 1}: take shorter phrases."
            )
        hidden = self.widen(word_embeddings.to(dtype)) + self.positions.weight[:length].to(dtype)
        hidden = self.dropout(self.norm(hidden))
        causal = nn.Transformer.generate_square_subsequent_mask(length, device=hidden.device, dtype=hidden.dtype)
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
            memory: (B, K, M), a memory a phrase.
            head: What scores words.
            ids: (B, T), the phrases' tokens.
            content: (B, T) bool, those to predict; a row without any is not scored, nor one with more than the table of
                positions holds, 127 and the end.
            weights: (V,), of each token of the vocabulary, or None for 1.
            embed: From ids to word embeddings.
            start_id: What stands before a phrase.
            end_id: What ends it.

        Returns:
            The loss, and diagnostics: ``token_accuracy``, and on one batch in fifty ``information``.
        """
        content = content & (content.sum(dim=1, keepdim=True) < self.max_positions)
        parts = phrase_targets(ids, content, start_id=start_id, end_id=end_id)
        inputs, targets, scored = (part[:, : self.max_positions] for part in parts)
        places = (scored & content.any(dim=1, keepdim=True)).nonzero(as_tuple=True)  # once: a device is waited for each time
        embedded = embed(inputs)
        return decoding_loss(
            lambda memory: self(embedded, memory)[places], head, memory, targets[places], weights, training=self.training
        )

    @torch.no_grad()
    def write(
        self, memory: Tensor, head: nn.Module, embed: nn.Module, *, start_id: int, end_id: int, max_tokens: int
    ) -> Tensor:
        """Write a phrase for each memory, word by word the likeliest.

        Args:
            memory: (B, K, M)
            head: From what the decoder gives to logits.
            embed: From ids to word embeddings.
            start_id: What stands before a phrase.
            end_id: What ends it, and fills the shorter ones.
            max_tokens: Tokens a phrase, at most.

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


def phrase_targets(ids: Tensor, content: Tensor, *, start_id: int, end_id: int) -> tuple[Tensor, Tensor, Tensor]:
    """Shift phrases for a decoder that writes them.

    Args:
        ids: (B, T)
        content: (B, T) bool, the phrase's own tokens.
        start_id: What stands before a phrase.
        end_id: What ends it.

    Returns:
        Decoder inputs (start, phrase), targets (phrase, end) and which targets count, (B, T) each, aligned to the left.
    """
    length = content.sum(dim=1, keepdim=True)
    place = torch.where(content, content.cumsum(dim=1) - 1, ids.shape[1])  # the last column collects what is no phrase
    targets = torch.full((len(ids), ids.shape[1] + 1), end_id, device=ids.device)
    targets = targets.scatter(1, place, ids)[:, :-1]
    scored = torch.arange(ids.shape[1], device=ids.device) <= length
    start = torch.full_like(ids[:, :1], start_id)
    return torch.cat([start, targets[:, :-1]], dim=1), targets, scored
