"""Paraphrases by translation into another language and back."""

import logging
from collections.abc import Callable, Iterable
from functools import lru_cache
from operator import eq
from typing import Any

from datasets import Dataset, concatenate_datasets
from datasets.fingerprint import Hasher

from .read import as_dataset, cached_map

logger = logging.getLogger(__name__)

Translator = Callable[[list[str]], list[str]]


def back_translate(
    sentences: Dataset | Iterable[str],
    *,
    forward: str | Translator = "Helsinki-NLP/opus-mt-en-zh",
    backward: str | Translator = "Helsinki-NLP/opus-mt-zh-en",
    batch_size: int = 64,
    shard_size: int = 10_000,
    device: str | None = None,
    generation: dict[str, Any] | None = None,
) -> Dataset:
    """Translate sentences into another language and back: the discrete noise of DenoSent.

    The default is the paper's: English to Chinese and back. Work is saved in shards in the cache of
    ``datasets``; run the same call again to resume. Long sentences come first, so that a batch that does not
    fit into memory fails at once. The tokenizers of MarianMT need sentencepiece: ``pip install
    "sbert-plugins[translation]"``.

    Args:
        sentences: Sentences, or a dataset with the column ``anchor``.
        forward: Translation model of transformers, by its name on the Hub or its path: a MarianMT model or
            another one that needs no language code. Or a function that translates a list of sentences.
        backward: Model or function for the way back. As everywhere in ``datasets``, a function of a module is
            recognized by its name: after a change of its code, delete the cache or rename the function.
        batch_size: Sentences translated at a time.
        shard_size: Sentences after which the work is saved.
        device: Device of the models, by default a GPU if there is one.
        generation: Keywords of ``model.generate``. With ``{"num_beams": 1}`` translation is several times
            faster than with the beams that MarianMT has by default. ``{"do_sample": True}`` gives more varied
            words.

    Returns:
        A dataset with the columns ``anchor`` and ``positive``, in the order of ``sentences``. A sentence
        without a translation is its own positive; the number of such sentences is logged. Texts that are
        longer than a model reads (512 tokens for MarianMT) are cut, with a warning.

    Example:
        >>> pairs = back_translate(["The old harbour master counts the boats."])  # doctest: +SKIP
        >>> pairs.to_parquet("pairs.parquet")  # doctest: +SKIP
    """
    anchors = as_dataset(sentences, "anchor")["anchor"][:]
    order = sorted(range(len(anchors)), key=lambda place: -len(anchors[place]))
    arguments = {"forward": forward, "backward": backward, "generation": generation or {}, "device": device}
    # Before the first call, because a function with a state has another hash afterwards.
    key = Hasher.hash([forward, backward, generation])
    shards = [
        cached_map(
            Dataset.from_dict({"anchor": [anchors[place] for place in order[start : start + shard_size]]}),
            _translate_batch,
            name="back-translation",
            key=key,
            fn_kwargs=arguments,
            batch_size=batch_size,
        )
        for start in range(0, len(anchors), shard_size)
    ]
    _load_translator.cache_clear()
    pairs = concatenate_datasets(shards)
    if unchanged := sum(map(eq, pairs["anchor"][:], pairs["positive"][:])):
        logger.warning("%d of %d sentences came back unchanged or empty.", unchanged, len(pairs))
    return pairs.select(sorted(range(len(order)), key=order.__getitem__))


def _translate_batch(
    batch: dict[str, list[str]],
    *,
    forward: str | Translator,
    backward: str | Translator,
    generation: dict[str, Any],
    device: str | None,
) -> dict[str, list[str]]:
    texts = batch["anchor"]
    for translator in (forward, backward):
        made: Any = (
            translator(texts) if callable(translator) else _translate(texts, translator, generation, device)
        )
        if made is None or len(made) != len(texts):
            raise ValueError(
                f"{translator} must return a list of {len(texts)} texts, one per text, got {made!r:.80}."
            )
        texts = [text or "" for text in made]
    return {"positive": [text.strip() or anchor for anchor, text in zip(batch["anchor"], texts, strict=True)]}


def _translate(texts: list[str], name: str, generation: dict[str, Any], device: str | None) -> list[str]:
    import torch

    tokenizer, model = _load_translator(name, device)
    inputs = tokenizer(texts, padding=True, truncation=True, return_tensors="pt").to(model.device)
    if inputs["input_ids"].shape[1] == tokenizer.model_max_length:
        logger.warning("%s reads at most %d tokens: longer texts are cut.", name, tokenizer.model_max_length)
    with torch.inference_mode():
        ids = model.generate(**inputs, **generation)
    return tokenizer.batch_decode(ids, skip_special_tokens=True)


@lru_cache(maxsize=2)
def _load_translator(name: str, device: str | None) -> tuple[Any, Any]:
    import torch
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    model = AutoModelForSeq2SeqLM.from_pretrained(name)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    return AutoTokenizer.from_pretrained(name), model.to(device).eval()
