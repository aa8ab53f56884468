"""Shared parts of the losses that predict words: the word scorer, and token weights by frequency."""

import logging
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from sbert_plugins import functional
from sbert_plugins.data import TokenFrequencies
from sbert_plugins.modules import MLMHead, NoPretrainedHeadError, WordEmbeddings, WordScorer

logger = logging.getLogger(__name__)


def build_word_scorer(model: SentenceTransformer, mlm_head: str) -> WordScorer:
    """Return the module that scores the words of the vocabulary for a vector.

    An encoder without a pretrained head gets no new head, which would have to be trained first. Its word
    embeddings then score the words, and a warning is logged.

    Args:
        model: The encoder.
        mlm_head: ``"embeddings"``, ``"pretrained"``, or the path or Hub name of a checkpoint with a head.
    """
    if mlm_head == "embeddings":
        return WordEmbeddings(model)
    try:
        return MLMHead(model, checkpoint=None if mlm_head == "pretrained" else mlm_head, allow_new=False)
    except NoPretrainedHeadError as error:
        logger.warning(
            "The word embeddings score the words, because the encoder has no pretrained head: %s.", error
        )
        return WordEmbeddings(model)


def load_frequencies(
    frequencies: TokenFrequencies | str | Path | None, tokenizer: PreTrainedTokenizerBase
) -> TokenFrequencies:
    """Return the given counts, those of a file, or by default those of BookCorpus.

    Raises:
        ValueError: If they are counts of another vocabulary than the tokenizer's.
    """
    if frequencies is None:
        frequencies = TokenFrequencies.bookcorpus()
    elif not isinstance(frequencies, TokenFrequencies):
        frequencies = TokenFrequencies.load(frequencies)
    frequencies.check_tokenizer(tokenizer)
    return frequencies


def weigh_tokens(
    threshold: float | None, frequencies: TokenFrequencies | None, *, end_id: int | None = None
) -> Tensor | None:
    """Return (V,) weights by :func:`functional.token_weights`, or None without a threshold.

    The token that ends a phrase never occurs in the counts. As the rarest token it would get most of a short
    phrase's loss, so ``end_id`` gets the smallest weight.
    """
    if threshold is None or frequencies is None:
        return None
    probabilities = torch.from_numpy(frequencies.probabilities())
    weights = functional.token_weights(probabilities, threshold=threshold).float()
    if end_id is not None:
        weights[end_id] = weights.min()
    return weights


def describe_frequencies(frequencies: TokenFrequencies | None) -> str | None:
    """Return the name of the corpus and a hash of the counts, for a loss's settings."""
    return None if frequencies is None else f"{frequencies.source or 'unnamed'} [{frequencies.mark}]"
