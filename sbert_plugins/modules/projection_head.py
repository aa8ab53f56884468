"""The projection head that contrastive methods use in training."""

from torch import Tensor, nn


class ProjectionHead(nn.Module):
    """Linear layer and tanh on the sentence vector, in training only (SimCSE section 6.3).

    It belongs to the loss and is never saved with the model. It starts as ``nn.Linear`` does: a random map,
    which nearly preserves cosines.

    Args:
        dimension: Size D of the sentence vector.
    """

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dimension, dimension)

    def forward(self, embeddings: Tensor) -> Tensor:
        """Project (B, D) to (B, D), in the head's own dtype."""
        return self.linear(embeddings.to(self.linear.weight.dtype)).tanh()
