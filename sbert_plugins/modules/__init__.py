"""Parts of the losses that hold parameters, tables or state. None of them is saved with the model."""

from .dropout import dropout_off, max_dropout, require_dropout
from .projection_head import ProjectionHead
from .tokens import TokenRoles, nested_span_masks

__all__ = [
    "ProjectionHead",
    "TokenRoles",
    "dropout_off",
    "max_dropout",
    "nested_span_masks",
    "require_dropout",
]
