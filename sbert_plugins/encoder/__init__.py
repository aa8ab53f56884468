"""One pass over a model: tokens, views, dropout, templates, processes, and the gradients at what it gives."""

from .balance import GradientTap, bound_gradients, bound_gradients_at, refuse_compiled
from .distributed import (
    is_compiled,
    is_training,
    refuse_bypass,
    rows_of_all_ranks,
    rows_of_other_ranks,
    transformer_of,
    unwrap,
    without_ddp,
)
from .dropout import dropout_off, dropout_rates, require_dropout, set_dropout
from .encode import Encoder, MemberEncoder, Pass, SharedPasses
from .mask_template import apply_mask_template, freeze_mask_template, has_mask_template
from .passes import input_embeddings, sentence_width
from .routes import require_equal_routes, require_one_encoder, require_sentence_encoder
from .seen import FirstPass
from .tokens import TokenRoles, added_around, mlm_mask, nested_span_masks, random_subset, require_tokenizer
from .views import VIEW_PARTS, VIEWS, View, require_views, viewed

__all__ = [
    "VIEWS",
    "VIEW_PARTS",
    "Encoder",
    "FirstPass",
    "GradientTap",
    "MemberEncoder",
    "Pass",
    "SharedPasses",
    "TokenRoles",
    "View",
    "added_around",
    "apply_mask_template",
    "bound_gradients",
    "bound_gradients_at",
    "dropout_off",
    "dropout_rates",
    "freeze_mask_template",
    "has_mask_template",
    "input_embeddings",
    "is_compiled",
    "is_training",
    "mlm_mask",
    "nested_span_masks",
    "random_subset",
    "refuse_bypass",
    "refuse_compiled",
    "require_dropout",
    "require_equal_routes",
    "require_one_encoder",
    "require_sentence_encoder",
    "require_tokenizer",
    "require_views",
    "rows_of_all_ranks",
    "rows_of_other_ranks",
    "sentence_width",
    "set_dropout",
    "transformer_of",
    "unwrap",
    "viewed",
    "without_ddp",
]
