"""What the losses that predict words share: the scorer of words, and weights of tokens by their frequency."""

from __future__ import annotations

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
    """Return the module that scores words for a vector without a trained decoder before it.

    Args:
        model: The encoder.
        mlm_head: ``"embeddings"``, ``"pretrained"``, or the path or Hub name of a checkpoint with a head. If
            the encoder has no pretrained head, the word embeddings are used and a warning is logged.
    """
    if mlm_head == "embeddings":
        return WordEmbeddings(model)
    try:
        return MLMHead(model, checkpoint=None if mlm_head == "pretrained" else mlm_head, allow_new=False)
    except NoPretrainedHeadError as error:
        logger.warning(
            "The words are scored by their embeddings, because the encoder has no head: %s.", error
        )
        return WordEmbeddings(model)


def load_frequencies(
    frequencies: TokenFrequencies | str | Path | None, tokenizer: PreTrainedTokenizerBase
) -> TokenFrequencies:
    """Return counts for a tokenizer: those given, those of a file, or by default BookCorpus.

    Raises:
        ValueError: If they are counts of another vocabulary.
    """
    if frequencies is None:
        frequencies = TokenFrequencies.bookcorpus()
        if not frequencies.fits(tokenizer):
            raise ValueError(
                "The token counts that ship with the package are for the vocabulary of bert-base-uncased, "
                "not for this encoder. Pass frequencies=data.TokenFrequencies.from_corpus(texts, "
                "model.tokenizer)."
            )
    elif not isinstance(frequencies, TokenFrequencies):
        frequencies = TokenFrequencies.load(frequencies)
    frequencies.check_tokenizer(tokenizer)
    return frequencies


def weigh_tokens(
    threshold: float | None, frequencies: TokenFrequencies | None, *, end_id: int | None = None
) -> Tensor | None:
    """Return (V,) weights by :func:`functional.token_weights`, or None without a threshold.

    The token that ends a phrase never occurs in the counts, and as the rarest token it would get most of a
    short phrase's loss. ``end_id`` therefore gets the smallest weight.
    """
    if threshold is None or frequencies is None:
        return None
    probabilities = torch.from_numpy(frequencies.probabilities())
    weights = functional.token_weights(probabilities, threshold=threshold).float()
    if end_id is not None:
        weights[end_id] = weights.min()
    return weights


def describe_frequencies(frequencies: TokenFrequencies | None) -> str | None:
    """Return a name for counts that differs if the counts differ."""
    if frequencies is None:
        return None
    return f"{frequencies.source} [{frequencies.mark}]" if frequencies.source else frequencies.mark
