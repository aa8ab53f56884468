"""One pass over a model: tokens, views, dropout, templates, processes, and the gradients at what it gives."""

from .balance import GradientTap, bound_gradients, passes_tapped
from .distributed import is_compiled, refuse_bypass, rows_of_all_ranks, rows_of_other_ranks, unwrap, without_ddp
from .dropout import dropout_off, max_dropout, require_dropout
from .mask_template import apply_mask_template, freeze_mask_template, has_mask_template
from .passes import ENCODER_TOKENS, encoder_tokens_kept, sentence_width, shared_passes
from .routes import require_one_encoder
from .seen import FirstPass, Pass
from .tokens import TokenRoles, added_around, mlm_mask, nested_span_masks, random_subset
from .views import VIEW_PARTS, View, active_view, require_views, viewed

__all__ = [
    "ENCODER_TOKENS",
    "VIEW_PARTS",
    "FirstPass",
    "GradientTap",
    "Pass",
    "TokenRoles",
    "View",
    "active_view",
    "added_around",
    "apply_mask_template",
    "bound_gradients",
    "dropout_off",
    "encoder_tokens_kept",
    "freeze_mask_template",
    "has_mask_template",
    "is_compiled",
    "max_dropout",
    "mlm_mask",
    "nested_span_masks",
    "passes_tapped",
    "random_subset",
    "refuse_bypass",
    "require_dropout",
    "require_one_encoder",
    "require_views",
    "rows_of_all_ranks",
    "rows_of_other_ranks",
    "sentence_width",
    "shared_passes",
    "unwrap",
    "viewed",
    "without_ddp",
]
