"""Parts of the losses that hold weights or state. They are not saved with the model."""

from sbert_plugins.encoder import apply_mask_template, freeze_token_weights, has_mask_template

from .bag_of_words import BagOfWordsDecoder
from .denoising_decoder import DenoisingDecoder
from .discriminators import CompletenessDiscriminator, TokenFrequencyDiscriminator
from .embedding_queue import EmbeddingQueue
from .mlm_head import MLMHead, NoPretrainedHeadError, WordEmbeddings, WordScorer
from .momentum_encoder import MomentumEncoder
from .optimizer_step import after_optimizer_step
from .phrase_decoder import PhraseDecoder
from .projection_head import ProjectionHead
from .pseudo_token_attention import PseudoTokenAttention
from .token_weights import apply_token_weights, count_idf

__all__ = [
    "BagOfWordsDecoder",
    "CompletenessDiscriminator",
    "DenoisingDecoder",
    "EmbeddingQueue",
    "MLMHead",
    "MomentumEncoder",
    "NoPretrainedHeadError",
    "PhraseDecoder",
    "ProjectionHead",
    "PseudoTokenAttention",
    "TokenFrequencyDiscriminator",
    "WordEmbeddings",
    "WordScorer",
    "after_optimizer_step",
    "apply_mask_template",
    "apply_token_weights",
    "count_idf",
    "freeze_token_weights",
    "has_mask_template",
]
