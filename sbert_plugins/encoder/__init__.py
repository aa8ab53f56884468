"""Running the encoder: passes, views, dropout, token roles, mask templates, gradients and processes."""

from .balance import GradientTap, bound_gradients
from .distributed import rows_of_all_ranks, rows_of_other_ranks
from .dropout import dropout_off, require_dropout, set_dropout
from .encode import Encoder, MemberEncoder, Pass, first_token_is_blind, input_embeddings
from .mask_template import apply_mask_template, freeze_token_weights, has_mask_template, has_token_weights
from .model import (
    is_compiled,
    is_training,
    position_limit,
    sentence_width,
    transformer_of,
    unwrap,
    without_ddp,
)
from .tokens import TokenRoles, added_around, mlm_mask, nested_span_masks, random_subset
from .views import VIEW_PARTS, View, apply_views

__all__ = [
    "VIEW_PARTS",
    "Encoder",
    "GradientTap",
    "MemberEncoder",
    "Pass",
    "TokenRoles",
    "View",
    "added_around",
    "apply_mask_template",
    "apply_views",
    "bound_gradients",
    "dropout_off",
    "first_token_is_blind",
    "freeze_token_weights",
    "has_mask_template",
    "has_token_weights",
    "input_embeddings",
    "is_compiled",
    "is_training",
    "mlm_mask",
    "nested_span_masks",
    "position_limit",
    "random_subset",
    "require_dropout",
    "rows_of_all_ranks",
    "rows_of_other_ranks",
    "sentence_width",
    "set_dropout",
    "transformer_of",
    "unwrap",
    "without_ddp",
]
