"""A template with a mask token around every sentence, made of modules of plain sentence-transformers."""

import math
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer, WordWeights
from tokenizers import Tokenizer
from tokenizers.normalizers import Replace, Sequence
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from sbert_plugins import host

from .model import unwrap
from .tokens import added_around

_SENTENCE, _MASK = "[X]", "[MASK]"


def apply_mask_template(
    model: SentenceTransformer, template: str = "[X] means [MASK]."
) -> SentenceTransformer:
    """Put a template around each sentence and pool its mask token (DenoSent, PromptBERT).

    Three modules of sentence-transformers do it: a tokenizer that adds the template as others add [CLS] and
    [SEP], ``WordWeights`` of 1 for the mask and 0 for all other tokens, and mean pooling. The template is
    there in training, ``encode``, ``encode_query`` and ``encode_document``, and the saved model loads without
    this package. Truncation cuts the sentence, never the template. A mask token in a sentence is read as
    text.

    The model is changed in place. A model that already has this template keeps it. Its 0-1 weights, which
    become trainable when a saved model is loaded, are frozen again.

    Args:
        model: A Transformer with a fast tokenizer and a mask token, then Pooling, then any other modules.
        template: Text with ``[X]`` for the sentence and ``[MASK]`` for the mask token, once each, separated
            by spaces where words are separate.

    Returns:
        The model. Its ``max_seq_length`` grows by the template's tokens, if the encoder has the positions.

    Raises:
        ValueError: If the template lacks these marks, the model has other modules or another template, or the
            tokenizer is slow or has no mask token.

    Example:
        >>> model = apply_mask_template(SentenceTransformer("bert-base-uncased"))
        >>> model.tokenizer.decode(model.preprocess(["A dog runs."])["input_ids"][0])
        '[CLS] a dog runs. means [MASK]. [SEP]'
    """
    transformer: Any = model[0]
    tokenizer: Any = getattr(transformer, "tokenizer", None)
    is_fast = isinstance(tokenizer, PreTrainedTokenizerBase) and tokenizer.is_fast
    if not isinstance(transformer, Transformer) or not is_fast:
        raise ValueError(
            "A mask template needs a model that begins with a Transformer with a fast tokenizer, got "
            f"{type(transformer).__name__} with {type(tokenizer).__name__}."
        )
    before, after = _template_ids(tokenizer, template)
    left, right = added_around(tokenizer)
    if has_mask_template(model):
        if left[len(left) - len(before) :] != before or right[: len(after)] != after:
            raise ValueError(
                f"The model already has another template, {tokenizer.decode(left + right)!r}. "
                f"Start from a model without it to use {template!r}."
            )
    else:
        if len(model) < 2 or not isinstance(model[1], Pooling):
            raise ValueError(
                "A mask template needs a model that is a Transformer and a Pooling, got "
                f"{[type(part).__name__ for part in model]}."
            )
        transformer.processor = _with_template(tokenizer, left + before, after + right)
        host.forget_prompt_lengths(transformer)
        transformer.unpad_inputs = False  # WordWeights reads the attention mask
        config = transformer.model.config
        longer = (transformer.max_seq_length or math.inf) + len(before + after)
        # RoBERTa and similar encoders have two positions that no token uses.
        if longer <= getattr(config, "max_position_embeddings", 0) - 2:
            transformer.max_seq_length = longer
        # WordWeights finds a word by its position. The other words may be empty, which keeps the saved file
        # short.
        words = [""] * max(len(tokenizer), config.vocab_size)
        words[tokenizer.mask_token_id] = tokenizer.mask_token
        weights = WordWeights(words, {tokenizer.mask_token: 1.0}, unknown_word_weight=0.0).to(model.device)
        model[1] = weights
        model.insert(2, Pooling(transformer.get_embedding_dimension(), "mean"))
    freeze_token_weights(model)
    return model


def has_token_weights(model: SentenceTransformer) -> bool:
    """Return whether the pooling weighs the tokens, as with a mask template or by their frequency."""
    return len(model) > 1 and isinstance(model[1], WordWeights)


def has_mask_template(model: SentenceTransformer) -> bool:
    """Return whether the model has a mask template."""
    tokenizer = getattr(model[0], "tokenizer", None)
    if not has_token_weights(model) or not isinstance(tokenizer, PreTrainedTokenizerBase):
        return False
    left, right = added_around(tokenizer)
    return tokenizer.mask_token_id in left + right


def freeze_token_weights(model: SentenceTransformer) -> None:
    """Freeze the weights of tokens in the pooling, if any, and shorten their vocabulary in the model card.

    ``WordWeights`` saves the weights that it was built with, so trained ones would be lost.
    """
    inside = unwrap(model)
    if has_token_weights(inside):
        weights: Any = inside[1]
        weights.requires_grad_(False)
        weights.vocab = _Vocabulary(weights.vocab)
        weights.word_weights = _WordWeights(weights.word_weights)


class _Vocabulary(list):
    """A vocabulary with a short ``repr``, which the model card prints."""

    def __repr__(self) -> str:
        return f"[{len(self)} tokens]"


class _WordWeights(dict):
    """Weights of words with a short ``repr``, which the model card prints."""

    def __repr__(self) -> str:
        return f"{{{len(self)} weights}}"


def _template_ids(tokenizer: PreTrainedTokenizerBase, template: str) -> tuple[list[int], list[int]]:
    """Tokenize the template around a word and return the ids before and after that word."""
    if template.count(_SENTENCE) != 1 or template.count(_MASK) != 1:
        raise ValueError(f"The template must have {_SENTENCE} and {_MASK} once each, got {template!r}.")
    if tokenizer.mask_token is None:
        raise ValueError(
            "A mask template needs a tokenizer with a mask token: use an encoder pretrained with masks."
        )
    word = "a"
    start, end = (part.replace(_MASK, tokenizer.mask_token) for part in template.split(_SENTENCE))
    encoding = tokenizer(
        start + word + end, add_special_tokens=False, split_special_tokens=False, return_offsets_mapping=True
    )
    tokens = list(zip(encoding["input_ids"], encoding["offset_mapping"], strict=True))
    # The end of the text before the word, without a space that may belong to the word's token.
    edge = len(start.rstrip())
    first, last = len(start), len(start + word)
    if any(begin < edge <= first < stop or begin < last < stop for _, (begin, stop) in tokens):
        raise ValueError(f"The template must have spaces around {_SENTENCE}, got {template!r}.")
    before = [id for id, (begin, _) in tokens if begin < edge]
    return before, [id for id, (_, stop) in tokens if stop > last]


def _with_template(
    tokenizer: PreTrainedTokenizerBase, left: list[int], right: list[int]
) -> PreTrainedTokenizerFast:
    """Return a copy of a tokenizer that puts these ids around each text."""
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    sides = {name: ids for name, ids in (("before", left), ("after", right)) if ids}
    single = [name for name in ("before", "$A", "after") if name in sides or name == "$A"]
    pieces = [
        {"id": name, "ids": ids, "tokens": [backend.id_to_token(id) for id in ids]}
        for name, ids in sides.items()
    ]
    backend.post_processor = TemplateProcessing(single=single, special_tokens=pieces)
    backend.encode_special_tokens = True
    mask = tokenizer.mask_token
    if tokenizer.mask_token_id in backend.encode(mask, add_special_tokens=False).ids:
        # The Unigram model of SentencePiece finds the mask in plain text all the same. A space inside it
        # prevents that.
        apart = Replace(mask, f"{mask[0]} {mask[1:]}")
        backend.normalizer = apart if backend.normalizer is None else Sequence([backend.normalizer, apart])
    # Not the tokenizer's own class: BertTokenizer and others rebuild their post-processor when loaded.
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=tokenizer.model_max_length,
        model_input_names=list(tokenizer.model_input_names),
        padding_side=tokenizer.padding_side,
        truncation_side=tokenizer.truncation_side,
        split_special_tokens=True,  # a mask token in the text stays text
        **tokenizer.special_tokens_map,
    )
