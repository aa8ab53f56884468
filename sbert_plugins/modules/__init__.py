"""Parts of the losses that hold parameters, tables or state. None of them is saved with the model."""

from .discriminators import CompletenessDiscriminator, TokenFrequencyDiscriminator
from .distributed import rows_of_other_ranks, unwrap, without_ddp
from .dropout import dropout_off, max_dropout, require_dropout
from .ema import after_optimizer_step, ema_update
from .mlm_head import MLMHead
from .passes import ENCODER_TOKENS, encoder_tokens_kept, shared_passes
from .phrase_decoder import PhraseDecoder
from .projection_head import ProjectionHead
from .state import warn_unless_kept
from .tokens import TokenRoles, mlm_mask, nested_span_masks, random_subset
from .views import VIEW_PARTS, View, active_view, viewed

__all__ = [
    "ENCODER_TOKENS",
    "VIEW_PARTS",
    "CompletenessDiscriminator",
    "MLMHead",
    "PhraseDecoder",
    "ProjectionHead",
    "TokenFrequencyDiscriminator",
    "TokenRoles",
    "View",
    "active_view",
    "after_optimizer_step",
    "dropout_off",
    "ema_update",
    "encoder_tokens_kept",
    "max_dropout",
    "mlm_mask",
    "nested_span_masks",
    "random_subset",
    "require_dropout",
    "rows_of_other_ranks",
    "shared_passes",
    "unwrap",
    "viewed",
    "warn_unless_kept",
    "without_ddp",
]
