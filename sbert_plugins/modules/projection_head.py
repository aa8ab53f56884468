"""The training-only MLP head of the contrastive methods."""

from __future__ import annotations

from torch import Tensor, nn


class ProjectionHead(nn.Module):
    """Linear and tanh on the sentence vector, used in training only (SimCSE section 6.3, ArcCSE section 4.1).

    It belongs to the loss and is never part of the saved model: sentence vectors at test time are those of the encoder. It
    starts as torch's Linear does, a random map that leaves cosines nearly what they are.

    Args:
        dimension: Size D of the sentence vector.
    """

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dimension, dimension)

    def forward(self, embeddings: Tensor) -> Tensor:
        """Project (B, D) to (B, D), in the head's own dtype.

        Raises:
            ValueError: On vectors of another width.
        """
        if embeddings.shape[-1] != self.linear.in_features:
            raise ValueError(
                f"the projection head reads vectors of width {self.linear.in_features}, for which the loss was built, got "
                f"{embeddings.shape[-1]} (MatryoshkaLoss cuts them): build the loss with projection_head=False."
            )
        return self.linear(embeddings.to(self.linear.weight.dtype)).tanh()
