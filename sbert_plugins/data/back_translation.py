"""Paraphrases by translating there and back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset, concatenate_datasets
from datasets.fingerprint import Hasher

from sbert_plugins import __version__

from .cache import cache_folder, code_of, hash_of
from .noise import texts_of

logger = logging.getLogger(__name__)

Translator = Callable[[list[str]], list[str]]


def back_translate(
    sentences: Dataset | Sequence[str],
    *,
    forward: str | Translator = "Helsinki-NLP/opus-mt-en-zh",
    backward: str | Translator = "Helsinki-NLP/opus-mt-zh-en",
    batch_size: int = 64,
    shard_size: int = 10_000,
    device: str | None = None,
    generation: dict[str, Any] | None = None,
) -> Dataset:
    """Translate sentences into another language and back: the discrete noise of DenoSent, the columns of its loss.

    The paper's pair, English to Chinese and back, is the default. Sentences are translated from long to short, so that
    batches hold little padding and a batch too large for the memory fails at once. Finished shards lie in the cache of
    ``datasets``: a call that was interrupted, or is made again, continues after the last of them. MarianMT's tokenizers need
    sentencepiece: ``pip install "sbert-plugins[translation]"``.

    Args:
        sentences: Sentences, or a dataset with the column ``anchor``.
        forward: Translation model of transformers (MarianMT, or any other whose tokenizer knows its languages without being
            told), by its name on the Hub or its path; or a callable that translates a list of sentences.
        backward: The way back, likewise. A callable is known again by its code, the modules of one's own that it names, and
            all that it holds (pickled), as it is when it is given: build it anew for a call that shall go on. What it reads
            of its module's globals, where that is no function, class or module, is not looked at.
        batch_size: Sentences translated at a time.
        shard_size: Sentences after which the work is written down.
        device: Of the models, by default a GPU where there is one.
        generation: Keywords of ``model.generate``; by default each model's own. ``{"num_beams": 1}`` is several times faster
            than beams, ``{"do_sample": True}`` gives other words.

    Returns:
        A dataset with the columns ``anchor`` and ``paraphrase``, in the order of ``sentences``. Where nothing comes back the
        sentence is its own paraphrase; a warning tells how often. Of a text beyond a model's length (512 tokens of MarianMT)
        the beginning alone is translated, with a warning: such texts are for :func:`crop_pairs`.

    Raises:
        ValueError: On a size below 1, a dataset without ``anchor``, no sentence, and a callable that returns other than as
            many texts.
        OSError: If a model is neither a path nor within reach on the Hub.

    Example:
        >>> pairs = back_translate(["The old harbour master counts the boats."])  # doctest: +SKIP
        >>> pairs.to_parquet("pairs.parquet")  # doctest: +SKIP
    """
    for name, value in (("batch_size", batch_size), ("shard_size", shard_size)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}.")
    anchors = _anchors(sentences)
    order = sorted(range(len(anchors)), key=lambda i: -len(anchors[i]))
    generation = generation or {}
    there, back = (_translator(translate, device, generation) for translate in (forward, backward))
    # Hashed once: a callable may change while it works.
    work = Hasher.hash([_identity(forward), _identity(backward), sorted(generation.items()), __version__])
    shards = []
    for start in range(0, len(anchors), shard_size):
        shard = Dataset.from_dict({"anchor": [anchors[i] for i in order[start : start + shard_size]]})
        name = Hasher.hash([shard["anchor"][:], work])
        shards.append(
            shard.map(
                _back_translated,
                batched=True,
                batch_size=batch_size,
                fn_kwargs={"there": there, "back": back},
                new_fingerprint=name,
                cache_file_name=str(cache_folder() / f"back-translation-{name}.arrow"),
                desc=f"Back-translation, {start:,} to {start + len(shard):,} of {len(anchors):,}",
            )
        )
    pairs = concatenate_datasets(shards)
    if same := sum(a == b for a, b in zip(pairs["anchor"], pairs["paraphrase"], strict=True)):
        logger.warning("%d of %d sentences came back unchanged or empty and are their own paraphrase.", same, len(pairs))
    places = [0] * len(order)
    for place, i in enumerate(order):
        places[i] = place
    return pairs.select(places)


def _back_translated(batch: dict[str, list[str]], *, there: Translator, back: Translator) -> dict[str, list[str]]:
    paraphrases = [text.strip() for text in _checked(back, _checked(there, batch["anchor"]))]
    return {"paraphrase": [new or old for old, new in zip(batch["anchor"], paraphrases, strict=True)]}


def _checked(translate: Translator, texts: list[str]) -> list[str]:
    translated = translate(texts)
    if not isinstance(translated, list) or [type(text) for text in translated] != [str] * len(texts):
        got = f"{len(translated)} items" if isinstance(translated, list) else type(translated).__name__
        raise ValueError(f"a translator must return a list of as many strings as it is given, {len(texts)}, got {got}.")
    return translated


def _translator(translate: str | Translator, device: str | None, generation: dict[str, Any]) -> Translator:
    return translate if callable(translate) else _Model(str(translate), device, generation)


class _Model:
    """A translation model of transformers, loaded when the first text comes: a finished shard needs none."""

    def __init__(self, name: str, device: str | None, generation: dict[str, Any]) -> None:
        self.name, self.device, self.generation = name, device, generation
        self.model: Any = None
        self.has_told = False

    def __call__(self, texts: list[str]) -> list[str]:
        import torch

        if self.model is None:
            self._load()
        self._tell_of_long(texts)
        inputs = self.tokenizer(texts, padding=True, truncation=True, return_tensors="pt").to(self.model.device)
        with torch.inference_mode():
            ids = self.model.generate(**inputs, **self.generation)
        return self.tokenizer.batch_decode(ids, skip_special_tokens=True)

    def _tell_of_long(self, texts: list[str]) -> None:
        most = self.tokenizer.model_max_length
        if not self.has_told and any(len(ids) > most for ids in self.tokenizer(texts, verbose=False)["input_ids"]):
            logger.warning("%s reads %d tokens: of longer texts the rest is left out, and missing in the paraphrase.",
                           self.name, most)  # fmt: skip
            self.has_told = True

    def _load(self) -> None:
        import torch
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

        device = self.device or ("cuda" if torch.cuda.is_available() else "cpu")
        try:
            self.tokenizer = AutoTokenizer.from_pretrained(self.name)
            model = AutoModelForSeq2SeqLM.from_pretrained(self.name)
        except OSError as error:
            said, _, _ = str(error).strip().partition("\n")
            raise OSError(
                f"{self.name} is neither a path here nor a translation model within reach on the Hugging Face Hub "
                f"({type(error).__name__}: {said})."
            ) from error
        if codes := getattr(self.tokenizer, "supported_language_codes", None):
            logger.warning(
                "%s translates into several languages, and wants one named at the beginning of a text (%s): none is given.",
                self.name,
                ", ".join(codes[:5]),
            )
        self.model = model.to(device).eval()


def _anchors(sentences: Dataset | Sequence[str]) -> list[str]:
    anchors = texts_of(sentences)
    if not anchors:
        raise ValueError("sentences must hold at least one sentence, got none.")
    return anchors


def _identity(translate: str | Translator) -> Any:
    """Return what tells one translator from another: a callable's code and file, a name, a path with the time of its files."""
    if callable(translate):
        return hash_of(translate, held="a translator"), code_of(translate)
    folder = Path(translate)
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    return str(translate), [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
