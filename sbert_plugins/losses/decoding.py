"""What losses with a decoder share: weights of tokens, checks, and the dtype of what they own."""

from __future__ import annotations

import inspect
import logging
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from sbert_plugins import functional
from sbert_plugins.data import TokenFrequencies
from sbert_plugins.encoder import transformer_of
from sbert_plugins.modules import MLMHead, WordEmbeddings
from sbert_plugins.modules.decoding import require_width
from sbert_plugins.modules.mlm_head import NoPretrainedHead
from sbert_plugins.modules.word_embeddings import WordScorer

logger = logging.getLogger(__name__)


_OF_LAYERS = ("decoder_heads", "decoder_feedforward", "decoder_dropout", "noise_dropout", "normalize_memory")


def check_layers(loss: Any, build: type, *, paper: int) -> None:
    """Refuse a number of layers below 0, and say which keywords nobody reads without a layer.

    Args:
        loss: A loss that has begun its ``__init__``.
        build: The class whose ``__init__`` it is.
        paper: The paper's number.
    """
    given, declared = loss.settings, inspect.signature(build).parameters
    if given["decoder_layers"] < 0:
        raise ValueError(
            f"decoder_layers must be at least 0, got {given['decoder_layers']}. 0 tells words; the paper uses {paper}."
        )
    unread = [name for name in _OF_LAYERS if name in given and given[name] != declared[name].default]
    if unread and not given["decoder_layers"] and type(loss) is build:  # a subclass has other defaults
        logger.warning(
            "%s of %s would be read by a decoder with layers only, and decoder_layers is 0; the paper uses %d.",
            " and ".join(f"{name}={given[name]!r}" for name in unread),
            build.__name__,
            paper,
        )


def word_scorer(model: SentenceTransformer, mlm_head: str, *, reads_vectors: bool) -> WordScorer:
    """Return what scores words: their own embeddings, or a masked-language-model head.

    Args:
        model: The encoder.
        mlm_head: ``"embeddings"``, ``"pretrained"`` for the encoder's own head, ``"fresh"`` for one of new weights, or a
            checkpoint to read it from.
        reads_vectors: Whether nothing stands before it that is trained to be read: a head of random weights then says
            nothing, and the words' own embeddings take its place.

    Raises:
        ValueError: If ``mlm_head`` is no text, or for what the head refuses.
        OSError: If a checkpoint cannot be loaded.
    """
    if not isinstance(mlm_head, str):
        raise ValueError(
            f"mlm_head must be 'embeddings', 'pretrained', 'fresh' or a checkpoint, got {mlm_head!r}: 'pretrained' is the "
            "head of the encoder's own checkpoint."
        )
    if mlm_head == "embeddings" or (mlm_head == "fresh" and reads_vectors):
        words = WordEmbeddings(model)
        width = transformer_of(model).config.hidden_size
        if not reads_vectors and words.width != width:
            raise ValueError(
                f"mlm_head='embeddings' scores vectors of width {words.width}, and a decoder with layers gives {width}: "
                "'pretrained' has the encoder's head, which maps them."
            )
        return words
    try:
        return MLMHead(model, checkpoint=None if mlm_head == "pretrained" else mlm_head, or_new=not reads_vectors)
    except NoPretrainedHead as error:
        logger.warning(
            "There is no pretrained masked-language-model head, so words are scored by their own embeddings: %s. "
            "mlm_head='embeddings' asks for that.",
            error,
        )
        return WordEmbeddings(model)


def linear_projector(size: int) -> nn.Linear:
    """Return a Linear that starts as DenoSent's official code starts its own, and its decoder."""
    linear = nn.Linear(size, size)
    nn.init.normal_(linear.weight, std=0.02)
    nn.init.zeros_(linear.bias)
    return linear


def weights_of_tokens(loss: Any, threshold: float | None, *, end_id: int | None = None) -> Tensor | None:
    """Return (V,), :func:`functional.token_weights` by the counts that a loss was given, or None where all weigh the same.

    An end that a decoder writes, ``end_id``, weighs what the most frequent word does: no text counts it, and as a word that
    never occurs it had most of a short phrase's loss.

    Raises:
        ValueError: On a threshold out of range, or counts of another vocabulary.
    """
    if threshold is None:
        return None
    functional.check_threshold("token_weights", threshold, "; None weighs all tokens alike")
    counted = _counted(loss, "token_weights", ", or token_weights=None to weigh all alike")
    weights = functional.token_weights(torch.from_numpy(counted.probabilities()), threshold=threshold).float()
    if end_id is not None:
        weights[end_id] = weights.min()
    return weights


def rare_tokens(loss: Any, share: float, by: str) -> Tensor:
    """Return (V,) bool: the tokens of low frequency by a loss's counts (``TokenFrequencies.low_frequency_ids``).

    Raises:
        ValueError: On a share out of range, another ``by``, or counts of another vocabulary.
    """
    counted = _counted(loss, "low_frequency_share", "")
    rare = torch.zeros(len(counted.counts), dtype=torch.bool)
    rare[torch.as_tensor(counted.low_frequency_ids(share, by))] = True
    return rare


def _counted(loss: Any, argument: str, instead: str) -> TokenFrequencies:
    """Return the counts that a loss was given; those of a file stand in its settings from now on, for a file may change."""
    frequencies, tokenizer = loss.settings["frequencies"], loss.model.tokenizer
    if frequencies is None:
        frequencies = TokenFrequencies.bookcorpus()
        if not frequencies.fits(tokenizer):
            raise ValueError(
                f"{argument} needs to know how often each token occurs, and the counts that ship with the package are for "
                "the vocabulary of bert-base-uncased, not this encoder's: pass frequencies="
                f"data.TokenFrequencies.from_corpus(texts, model.tokenizer){instead}."
            )
    if not isinstance(frequencies, TokenFrequencies):
        frequencies = loss.settings["frequencies"] = TokenFrequencies.load(frequencies)
    frequencies.check_tokenizer(tokenizer)
    return frequencies


def in_own_dtype(module: nn.Module, x: Tensor) -> Tensor:
    """Run a module in the dtype of its weights, where it has any: a loss's own stay in float32 when the encoder's do not."""
    parameter = next(module.parameters(), None)
    if isinstance(module, nn.Linear):
        require_width(x, module.in_features)
    return module(x if parameter is None else x.to(parameter.dtype))
