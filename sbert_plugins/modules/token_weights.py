"""Weights of the word pieces in the mean that makes a sentence vector, counted on documents."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer, WordWeights
from torch import Tensor

from sbert_plugins import functional
from sbert_plugins.encoder import freeze_token_weights, transformer_of

_BATCH = 256


def count_idf(model: SentenceTransformer, documents: Iterable[str]) -> Tensor:
    """Return (V,), the inverse document frequency of each word piece: :func:`functional.idf`.

    A document counts as far as the model reads it. The special tokens around a text, and the pieces of the
    model's prompts, count as pieces of every document, so they have the smallest value. A piece that no
    document has the largest one.

    Args:
        model: A Transformer and mean pooling, then any other modules.
        documents: The documents that will be searched.

    Raises:
        ValueError: If the model cannot have token weights (:func:`apply_token_weights`), or there are no
            documents.
    """
    texts = list(documents)
    if not texts:
        raise ValueError("There are no documents to count word pieces in.")
    _check(model)
    counts = torch.zeros(max(len(model.tokenizer), transformer_of(model).config.vocab_size))
    for start in range(0, len(texts), _BATCH):
        for pieces in _pieces(model, texts[start : start + _BATCH]):
            counts[pieces] += 1
    for prompt in filter(None, model.prompts.values()):
        counts[_pieces(model, [prompt])[0]] = len(texts)
    return functional.idf(counts, len(texts))


def apply_token_weights(model: SentenceTransformer, weights: Tensor) -> SentenceTransformer:
    r"""Weigh the tokens of a text in the mean pooling: :math:`\sum_t w_t h_t / \sum_t w_t`.

    sentence-transformers' ``WordWeights`` is put between Transformer and Pooling, in place. The saved model
    loads without this package. The weights are not trained, because ``WordWeights`` does not save what it
    has learned.

    Args:
        model: A Transformer and mean pooling, then any other modules, which stay.
        weights: (V,), the weight of each word piece, above 0. Usually a power of :func:`count_idf`.

    Returns:
        The model.

    Raises:
        ValueError: If the model has other modules, does not pool by the mean, leaves its prompts out of the
            mean, or already has token weights.

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> from sbert_plugins import modules
        >>> model = SentenceTransformer("all-MiniLM-L6-v2")
        >>> documents = ["The wing was tested in the wind tunnel.", "The wing failed.", "Air is a gas."]
        >>> model = modules.apply_token_weights(model, modules.count_idf(model, documents) ** 0.5)
    """
    _check(model)
    transformer: Any = model[0]
    transformer.unpad_inputs = False  # WordWeights reads the attention mask
    tokens = model.tokenizer.convert_ids_to_tokens(list(range(len(weights))))
    vocabulary = [token or "" for token in tokens]
    known = dict(zip(vocabulary, weights.double().tolist(), strict=True))
    model.insert(1, WordWeights(vocabulary, known).to(model.device))
    freeze_token_weights(model)
    return model


def _check(model: SentenceTransformer) -> None:
    """Raise ``ValueError`` unless the model can have token weights."""
    parts = [type(part).__name__ for part in model]
    pooling = model[1] if len(model) > 1 else None
    if not isinstance(model[0], Transformer) or not isinstance(pooling, Pooling):
        raise ValueError(f"Token weights need a model of Transformer and Pooling, got {', '.join(parts)}.")
    if pooling.pooling_mode != "mean":
        raise ValueError(
            f"Token weights need mean pooling, got {pooling.pooling_mode}: the model's vector is not a mean."
        )
    if not pooling.include_prompt:
        raise ValueError(
            "Token weights need the prompt in the mean, got include_prompt=False: WordWeights would count it."
        )


def _pieces(model: SentenceTransformer, texts: Sequence[str]) -> list[Tensor]:
    """Return the different word pieces of each text, with the special tokens around it."""
    features = model.preprocess(list(texts))
    rows = zip(features["input_ids"], features["attention_mask"].bool(), strict=True)
    return [ids[attended].unique() for ids, attended in rows]
