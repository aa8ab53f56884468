"""Parts of the losses that hold parameters, tables or state. None of them is saved with the model."""

from .bag_of_words import BagOfWordsDecoder
from .balance import GradientTap, bound_gradients, passes_tapped
from .denoising_decoder import DenoisingDecoder
from .discriminators import CompletenessDiscriminator, TokenFrequencyDiscriminator
from .distributed import is_compiled, refuse_bypass, rows_of_all_ranks, rows_of_other_ranks, unwrap, without_ddp
from .dropout import dropout_off, max_dropout, require_dropout
from .ema import after_optimizer_step, ema_update
from .embedding_queue import EmbeddingQueue
from .information import decoding_loss, probe_information
from .mask_template import apply_mask_template, freeze_mask_template, has_mask_template
from .mlm_head import MLMHead
from .momentum_encoder import MomentumEncoder
from .negatives import check_negatives
from .passes import ENCODER_TOKENS, encoder_tokens_kept, sentence_width, shared_passes
from .phrase_decoder import PhraseDecoder
from .projection_head import ProjectionHead
from .pseudo_token_attention import PseudoTokenAttention
from .routes import require_one_encoder
from .state import follow_mode, follow_table, require_trained, warn_unless_kept
from .terms import Terms, refuse_wrappers
from .tokens import TokenRoles, added_around, mlm_mask, nested_span_masks, random_subset
from .views import VIEW_PARTS, View, active_view, require_views, viewed

__all__ = [
    "ENCODER_TOKENS",
    "VIEW_PARTS",
    "BagOfWordsDecoder",
    "CompletenessDiscriminator",
    "DenoisingDecoder",
    "EmbeddingQueue",
    "GradientTap",
    "MLMHead",
    "MomentumEncoder",
    "PhraseDecoder",
    "ProjectionHead",
    "PseudoTokenAttention",
    "Terms",
    "TokenFrequencyDiscriminator",
    "TokenRoles",
    "View",
    "active_view",
    "added_around",
    "after_optimizer_step",
    "apply_mask_template",
    "bound_gradients",
    "check_negatives",
    "decoding_loss",
    "dropout_off",
    "ema_update",
    "encoder_tokens_kept",
    "follow_mode",
    "follow_table",
    "freeze_mask_template",
    "has_mask_template",
    "is_compiled",
    "max_dropout",
    "mlm_mask",
    "nested_span_masks",
    "passes_tapped",
    "probe_information",
    "random_subset",
    "refuse_bypass",
    "refuse_wrappers",
    "require_dropout",
    "require_one_encoder",
    "require_trained",
    "require_views",
    "rows_of_all_ranks",
    "rows_of_other_ranks",
    "sentence_width",
    "shared_passes",
    "unwrap",
    "viewed",
    "warn_unless_kept",
    "without_ddp",
]
