"""The two discriminators of SLT-FAI."""

import torch
from torch import Tensor, nn

from sbert_plugins import functional


class _Discriminator(nn.Module):
    """Linear, ReLU, Linear: "two linear layers and a ReLU activation function" (SLT-FAI section 4.1).

    Args:
        dimension: Size D of the vectors. The inner width is 2 D, as for tokens in the official code.
    """

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(dimension, 2 * dimension), nn.ReLU(), nn.Linear(2 * dimension, 2)
        )

    def forward(self, embeddings: Tensor) -> Tensor:
        """Map (..., D) to logits (..., 2), in the discriminator's own dtype."""
        return self.layers(embeddings.to(next(self.parameters()).dtype))


class TokenFrequencyDiscriminator(_Discriminator):
    """Classifier of token embeddings: class 1 is a rare token, class 0 a frequent one.

    The gradient at the embeddings is reversed (SLT-FAI section 3.2).

    Args:
        dimension: Size D of the token embeddings.
        reversal_strength: Factor of the reversed gradient.
    """

    def __init__(self, dimension: int, *, reversal_strength: float = 1.0) -> None:
        super().__init__(dimension)
        self.reversal_strength = reversal_strength

    def forward(self, embeddings: Tensor) -> Tensor:
        """Map (B, L, D) to logits (B, L, 2)."""
        return super().forward(functional.gradient_reversal(embeddings, strength=self.reversal_strength))

    def loss(self, tokens: Tensor, is_low: Tensor, content: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute :func:`functional.token_class_loss` of a batch.

        Args:
            tokens: (B, L, D) token embeddings.
            is_low: (B, L), 1 for a rare token.
            content: (B, L) bool, the tokens that count.

        Returns:
            The loss, and the diagnostics ``frequency_accuracy`` and ``low_share`` (NaN if no token counts).
        """
        logits = self(tokens)
        with torch.no_grad():
            total = content.sum()
            diagnostics = {
                "frequency_accuracy": ((logits.argmax(dim=2) == is_low) & content).sum() / total,
                "low_share": (content & is_low.bool()).sum() / total,
            }
        return functional.token_class_loss(logits, is_low, content), diagnostics


class CompletenessDiscriminator(_Discriminator):
    """Classifier of sentence vectors: class 0 is an original sentence, class 1 an incomplete copy.

    The gradient is not reversed: the encoder helps (SLT-FAI section 3.3).

    Args:
        dimension: Size D of the sentence vector.
    """

    def loss(self, sentences: Tensor, incomplete: Tensor, usable: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute :func:`functional.incomplete_sentence_loss` of a batch.

        Args:
            sentences: (B, D), vectors of the originals.
            incomplete: (B, D), vectors of the copies.
            usable: (B,) bool, the rows whose copy differs from the original.

        Returns:
            The loss, and the diagnostics ``completeness_accuracy`` (NaN without a usable row) and
            ``masked_share`` (share of usable rows).
        """
        originals, copies = self(sentences), self(incomplete)
        with torch.no_grad():
            right = (originals.argmax(dim=1) == 0).long() + (copies.argmax(dim=1) == 1)
            diagnostics = {
                "completeness_accuracy": (right * usable).sum() / (2 * usable.sum()),
                "masked_share": usable.float().mean(),
            }
        return functional.incomplete_sentence_loss(originals, copies, usable), diagnostics
