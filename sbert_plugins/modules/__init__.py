"""Parts of the losses that hold parameters, tables or state. None of them is saved with the model."""

from .distributed import rows_of_all_ranks, rows_of_other_ranks, without_ddp
from .dropout import dropout_off, max_dropout, require_dropout
from .ema import after_optimizer_step, ema_update
from .embedding_queue import EmbeddingQueue
from .mlm_head import MLMHead
from .momentum_encoder import MomentumEncoder
from .phrase_decoder import PhraseDecoder
from .projection_head import ProjectionHead
from .pseudo_token_attention import PseudoTokenAttention
from .state import warn_unless_kept
from .tokens import TokenRoles, mlm_mask, nested_span_masks

__all__ = [
    "EmbeddingQueue",
    "MLMHead",
    "MomentumEncoder",
    "PhraseDecoder",
    "ProjectionHead",
    "PseudoTokenAttention",
    "TokenRoles",
    "after_optimizer_step",
    "dropout_off",
    "ema_update",
    "max_dropout",
    "mlm_mask",
    "nested_span_masks",
    "require_dropout",
    "rows_of_all_ranks",
    "rows_of_other_ranks",
    "warn_unless_kept",
    "without_ddp",
]
