"""Words scored by their own embeddings, where no masked-language-model head stands."""

from __future__ import annotations

from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from .mlm_head import MLMHead, encoder_of, keep_silent, silent_token, table_of


class WordEmbeddings(nn.Module):
    """Vectors to logits over the vocabulary: their products with the encoder's word embeddings. It owns nothing.

    It stands where :class:`MLMHead` may, and needs no head: encoders that were saved as embedders have none, and some families
    were never pretrained with masks.

    Args:
        model: The encoder that is trained, whose word embeddings are trained with it.

    Raises:
        ValueError: If the encoder is not a transformer.
    """

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        encoder = encoder_of(model)
        self.table = table_of(encoder)
        self._size = len(self.table)  # the table itself grows in its place
        self._pad = silent_token(encoder)

    @property
    def width(self) -> int:
        """Width E of the vectors that it reads."""
        return self.table.shape[1]

    def follow(self, model: nn.Module) -> None:
        """Take the encoder's embeddings as they are now; to be called in each forward.

        Raises:
            ValueError: If there is another number of them by now.
        """
        self.table = table_of(encoder_of(model), before=self._size)

    def forward(self, vectors: Tensor, candidates: Tensor | None = None) -> Tensor:
        """Map (N, E) vectors to (N, V) logits, or to those of the (C,) ids that are candidates."""
        vectors = vectors.to(self.table.dtype)
        if candidates is None:
            return keep_silent(vectors @ self.table.T, self._pad)
        return vectors @ self.table[candidates].T


WordScorer = MLMHead | WordEmbeddings
