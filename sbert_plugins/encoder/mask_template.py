"""A prompt with a mask around every sentence, out of parts that plain sentence-transformers has."""

from __future__ import annotations

from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer, WordWeights
from tokenizers import Tokenizer
from tokenizers.normalizers import Replace, Sequence
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from sbert_plugins import host

from .distributed import unwrap
from .tokens import added_around

_SENTENCE, _MASK = "[X]", "[MASK]"


def apply_mask_template(model: SentenceTransformer, template: str = "[X] means [MASK].") -> SentenceTransformer:
    """Make the vector of a mask token, in a template around each sentence, the sentence vector (DenoSent, PromptBERT).

    Three stock parts do it: a tokenizer that adds the template as others add [CLS] and [SEP], ``WordWeights`` of 1 for the
    mask and 0 for all else, and mean pooling. So training, ``encode``, ``encode_query`` and ``encode_document`` see the
    template, and the saved model loads in sentence-transformers without this package. Truncation cuts the sentence, never
    the template. A sentence that contains the mask token is read as text.

    Changed in place. A model that has this template already (a saved one, loaded to be trained further) keeps it, and the
    0-1 weights, which loading makes trainable, are frozen again: call this, or build ``DenoSentLoss``, before training it.

    Args:
        model: A Transformer with a fast tokenizer and a mask token, then Pooling, then what there may be.
        template: Text with ``[X]`` for the sentence and ``[MASK]`` for the mask token, once each. It is tokenized as in
            running text after a word: put a space where words shall be apart.

    Returns:
        The model. Its ``max_seq_length`` has grown by the template's tokens, if the encoder has the positions.

    Raises:
        ValueError: On a template without these marks, a model of other parts, a tokenizer without a mask token or without
            a Rust backend, and a model with another template.

    Example:
        >>> model = apply_mask_template(SentenceTransformer("bert-base-uncased"))
        >>> model.tokenizer.decode(model.preprocess(["A dog runs."])["input_ids"][0])
        '[CLS] a dog runs. means [MASK]. [SEP]'
    """
    transformer, tokenizer = model[0], getattr(model[0], "tokenizer", None)
    if not isinstance(transformer, Transformer) or not isinstance(tokenizer, PreTrainedTokenizerBase) or not tokenizer.is_fast:
        raise ValueError(
            f"model must begin with a Transformer that has a fast tokenizer, got {type(transformer).__name__} with "
            f"{type(tokenizer).__name__}: a template needs the tokenizers library."
        )
    before, after = _template_ids(tokenizer, template)
    left, right = added_around(tokenizer)
    if has_mask_template(model):
        if left[len(left) - len(before) :] != before or right[: len(after)] != after:
            present = tokenizer.decode(left + right)
            raise ValueError(
                f"model has another template already ({present!r}), got {template!r}: begin with a plain encoder."
            )
    else:
        if len(model) < 2 or not isinstance(model[1], Pooling):
            raise ValueError(f"model must be a Transformer and a Pooling, got {[type(part).__name__ for part in model]}.")
        if model[1].pooling_output_dimension != transformer.get_embedding_dimension():
            raise ValueError(
                "the model's Pooling joins several vectors, and a mask is one: load the model with one pooling mode."
            )
        transformer.processor = _with_template(tokenizer, left + before, after + right)
        host.forget_prompt_lengths(transformer)
        transformer.unpad_inputs = False  # WordWeights reads the attention mask
        _lengthen(transformer, len(before + after))
        size = max(len(tokenizer), transformer.model.config.vocab_size)
        words = [""] * size  # names that nothing reads would only make the saved file longer
        words[tokenizer.mask_token_id] = tokenizer.mask_token
        weights = WordWeights(words, {tokenizer.mask_token: 1.0}, unknown_word_weight=0.0).to(model.device)
        parts = [transformer, weights, Pooling(transformer.get_embedding_dimension(), "mean"), *list(model)[2:]]
        del model[:]
        model.extend(parts)
    freeze_mask_template(model)
    return model


def has_mask_template(model: SentenceTransformer) -> bool:
    """Return whether the sentence vector is that of a mask in a template."""
    tokenizer = getattr(model[0], "tokenizer", None)
    if len(model) < 2 or not isinstance(model[1], WordWeights) or not isinstance(tokenizer, PreTrainedTokenizerBase):
        return False
    return tokenizer.mask_token_id in [id for ids in added_around(tokenizer) for id in ids]


def freeze_mask_template(model: SentenceTransformer) -> None:
    """Keep training from moving the 0-1 weights of a mask template, and a model card from printing them, if there are any.

    To be called in each forward, too: all of an encoder may have been unfrozen since.
    """
    inside = unwrap(model)
    weights: Any = inside[1] if len(inside) > 1 else None
    is_frozen = isinstance(getattr(weights, "vocab", None), _Vocabulary) and not weights.emb_layer.weight.requires_grad
    if not is_frozen and has_mask_template(inside):  # which looks into the tokenizer
        weights.requires_grad_(False)
        weights.vocab = _Vocabulary(weights.vocab)


class _Vocabulary(list):
    """A vocabulary that the model card, made of ``repr``, does not print."""

    def __repr__(self) -> str:
        return f"[{len(self)} tokens]"


def _template_ids(tokenizer: PreTrainedTokenizerBase, template: str) -> tuple[list[int], list[int]]:
    """Tokenize the template around a word and return the ids before and after it."""
    if template.count(_SENTENCE) != 1 or template.count(_MASK) != 1:
        raise ValueError(
            f"template must hold {_SENTENCE} for the sentence and {_MASK} for the mask token, once each, got {template!r}."
        )
    if tokenizer.mask_token is None:
        raise ValueError(
            "a mask template needs a tokenizer with a mask token, which this model's has not (mask_token is None): "
            "use an encoder pretrained with masks."
        )
    word = "a"
    start, end = (part.replace(_MASK, tokenizer.mask_token) for part in template.split(_SENTENCE))
    encoding = tokenizer(start + word + end, add_special_tokens=False, split_special_tokens=False, return_offsets_mapping=True)
    # A token may carry the space before its word.
    edge, first, last = len(start.rstrip()), len(start), len(start + word)
    places = list(zip(encoding["input_ids"], encoding["offset_mapping"], strict=True))
    if any(begin < edge <= first < stop or begin < last < stop for _, (begin, stop) in places):
        raise ValueError(f"the template's words run into the sentence, got {template!r}: put a space beside {_SENTENCE}.")
    before = [id for id, (begin, _) in places if begin < edge]
    return before, [id for id, (_, stop) in places if stop > last]


def _with_template(tokenizer: PreTrainedTokenizerBase, left: list[int], right: list[int]) -> PreTrainedTokenizerFast:
    """Copy a tokenizer, with other ids around each text."""
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    sides = {name: ids for name, ids in (("before", left), ("after", right)) if ids}
    single = [name for name in ("before", "$A", "after") if name in sides or name == "$A"]
    pieces = [{"id": name, "ids": ids, "tokens": [backend.id_to_token(id) for id in ids]} for name, ids in sides.items()]
    backend.post_processor = TemplateProcessing(single=single, special_tokens=pieces)
    backend.encode_special_tokens = True
    mask = tokenizer.mask_token
    if tokenizer.mask_token_id in backend.encode(mask, add_special_tokens=False).ids:
        # SentencePiece's Unigram has the mask among its pieces and finds it in plain text, too.
        apart = Replace(mask, f"{mask[0]} {mask[1:]}")
        backend.normalizer = apart if backend.normalizer is None else Sequence([backend.normalizer, apart])
    # Not the tokenizer's own class: BertTokenizer and its like build their post-processor anew when they are loaded.
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=tokenizer.model_max_length,
        model_input_names=list(tokenizer.model_input_names),
        padding_side=tokenizer.padding_side,
        truncation_side=tokenizer.truncation_side,
        split_special_tokens=True,  # a mask token in the text is no second mask
        **tokenizer.special_tokens_map,
    )


def _lengthen(transformer: Transformer, added: int) -> None:
    """Leave the sentence the room it had, where the encoder has positions."""
    longer = (transformer.max_seq_length or 0) + added
    # RoBERTa and its like count two positions that hold no token.
    if transformer.max_seq_length and longer <= getattr(transformer.model.config, "max_position_embeddings", 0) - 2:
        transformer.max_seq_length = longer
