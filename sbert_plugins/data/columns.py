"""Text columns that the methods learn from, made from plain sentences."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from sbert_plugins import __version__, host

from .cache import cache_folder, code_of, hash_of
from .noise import delete_words, python_rows, swap_words, text_from, texts_of
from .phrases import (
    WORD,
    Extractor,
    Phrase,
    hide_phrase,
    locate_phrases,
    resolve_extractor,
    stop_word_share,
)
from .synonyms import SynonymReplacer, open_wordnet

logger = logging.getLogger(__name__)

_PLACE = "place of the sentence"  # of the text, while the rows are made
_FEWEST_STOP_WORDS, _JUDGED = 0.12, 200  # of how many words at least
_FORM = 3  # of the file: another one is not read


def paser_columns(
    sentences: Dataset | Sequence[str],
    *,
    mask_token: str,
    top_k: int = 3,
    extractor: str | Extractor = "rake",
    synonyms: Callable[..., str] | float | str | None = "if installed",
    deletion: float = 0.0,
    swap: float = 0.0,
    keep_without_phrase: bool = False,
    seed: int = 42,
    num_proc: int | None = None,
) -> Dataset:
    """Make the columns of :class:`losses.PaSeRLoss`: one row for each sentence and phrase.

    For each of the ``top_k`` best phrases the sentence is copied with the phrase hidden, one mask token a word; then both
    copies are augmented, independently of each other. The phrase is what stood in the sentence, letter for letter, and the
    space before it: with that a byte-level BPE (RoBERTa, ModernBERT) gives it the tokens that it has in the sentence.

    Args:
        sentences: Sentences, or a dataset with the column ``anchor`` (or else ``text`` or ``sentence``). Further columns are
            carried along: with (``anchor``, ``positive``, ``negative``) the phrase's columns are the fourth and fifth. Of a
            sentence that holds the mask token itself no phrase is hidden.
        mask_token: The tokenizer's (``model.tokenizer.mask_token``).
        top_k: Phrases a sentence, at most, each hidden in a row of its own: the paper's "number of the most important phrases
            we choose to mask in the sentence" could be read as all in one copy, but eq. 3 writes one. In its Table 5 a fourth
            and fifth gain SICK-R a point, the others nothing.
        extractor: As in :func:`rank_phrases`.
        synonyms: Share of words replaced by :class:`SynonymReplacer`, which is what matters (Table 4: STS-B 79.3 with, 74.5
            without); a callable ``(sentence, rng, keep=mask_token)`` in its place; None for none. By default 0.5, the ratio in
            the authors' README, where WordNet is installed and the text English by its stop words; else a warning says so.
        deletion: Probability that a word is left out.
        swap: Share of words that change places.
        keep_without_phrase: Whether a sentence without a phrase gives one row that hides nothing, with an empty ``phrase``,
            for a further loss on the same rows; PaSeR scores nothing there. By default it gives none.
        seed: Of the augmentation; a row's draws follow from the seed and its place, so the number of processes is no matter.
        num_proc: Processes.

    Returns:
        The columns of ``sentences``, then ``masked`` and ``phrase``. It lies in the cache of ``datasets`` and is read from
        there, here and in later calls with the same arguments.

    Raises:
        ValueError: On a value out of range, missing or clashing columns, a sentence that is None, and if none holds a phrase.
        FileNotFoundError: If the chunks, or a share of synonyms that is given, find no data.

    Example:
        >>> rows = paser_columns(["The old harbour master counts the boats."], mask_token="[MASK]", synonyms=None)
        >>> rows[0]["masked"]
        'The [MASK] [MASK] [MASK] [MASK] the boats.'
    """
    _check_values(mask_token, top_k, deletion=deletion, swap=swap)
    sentences = _with_anchor(sentences)
    columns = sentences.column_names
    arguments = {
        "mask_token": mask_token,
        "top_k": top_k,
        "extractor": resolve_extractor(extractor),
        "synonyms": _replacer(synonyms, sentences),
        "deletion": deletion,
        "swap": swap,
        "keep_without_phrase": keep_without_phrase,
        "seed": seed,
        "version": __version__,  # datasets takes a function for unchanged as long as its name is
    }
    file = _cache_file(sentences, arguments)
    is_made = any(file.parent.glob(f"{file.stem}*"))
    if num_proc and num_proc > 1 and isinstance(arguments["synonyms"], SynonymReplacer) and not is_made:
        open_wordnet()  # before the processes are forked: each would read the index
    rows = sentences.map(
        _rows_of_batch,
        batched=True,
        with_indices=True,
        fn_kwargs=arguments,
        num_proc=num_proc,
        remove_columns=columns,
        cache_file_name=str(file),
        desc="Phrases",
    )
    return _whole(rows, sentences, mask_token)


def _whole(rows: Dataset, sentences: Dataset, mask_token: str) -> Dataset:
    """Return rows that are some, and say how many sentences gave none."""
    if len(rows) == 0:
        raise ValueError(
            f"sentences must hold phrases, got {len(sentences)} without any (one that holds {mask_token!r} has none). For "
            "text that is not English pass extractor=data.Rake(stop_words=...) with the language's stop words; for scripts "
            "without spaces between words an extractor of your own."
        )
    without = len(sentences) - len(np.unique(rows.data.column(_PLACE).to_numpy()))
    if without:
        logger.warning("Left out %s of %s sentences, which hold no phrase.", f"{without:,}", f"{len(sentences):,}")
    return rows.remove_columns(_PLACE).with_format(None)  # of a transform, too, which would see its own rows again


def _check_values(mask_token: object, top_k: int, **shares: float) -> None:
    for name, value in shares.items():
        if not 0 <= value < 1:
            raise ValueError(f"{name} must be in [0, 1), got {value}. It is a share of words; 0 leaves it out.")
    if top_k < 1:
        raise ValueError(f"top_k must be at least 1, got {top_k}. It is the number of phrases taken from a sentence.")
    if not isinstance(mask_token, str) or not mask_token:
        raise ValueError(f"mask_token must be the tokenizer's mask token, got {mask_token!r}.")


def _replacer(synonyms: Callable[..., str] | float | str | None, sentences: Dataset) -> Callable[..., str] | None:
    if isinstance(synonyms, str):
        if synonyms != "if installed":
            raise ValueError(f"synonyms must be a share of words, a callable, None or 'if installed', got {synonyms!r}.")
        synonyms = synonyms_if_installed(sentences["anchor"])
    if synonyms is None or callable(synonyms):
        return synonyms
    if isinstance(synonyms, bool) or not 0 < synonyms <= 1:
        raise ValueError(
            f"synonyms must be a share of words in (0, 1], got {synonyms}. None leaves them out; the authors' README has 0.5."
        )
    return SynonymReplacer(synonyms)


def synonyms_if_installed(sentences: Iterable[str] = (), *, warn: bool = True) -> float | None:
    """Return the share of synonyms in the authors' README, or None where there is no WordNet, by default after a warning.

    None, too, if ``sentences`` are not English by the stop words of the first thousand: WordNet knows words of most languages
    and takes them for English ones. Fewer words than 200 are not judged.
    """
    share = 0.5
    some = [sentence for sentence in islice(sentences, 1000) if isinstance(sentence, str)]
    english = stop_word_share(some)
    if english < _FEWEST_STOP_WORDS and sum(len(WORD.findall(sentence)) for sentence in some) >= _JUDGED:
        if warn:
            logger.warning(
                "Only %.1f %% of the words are English stop words, of headlines 19 %%, of sentences a third at least: making "
                "PaSeR's columns WITHOUT synonyms, which are English. So are the stop words by which RAKE finds phrases: for "
                "another language make the columns with paser_columns(..., extractor=Rake(stop_words=...)); for keywords in "
                "English with paser_columns(..., synonyms=0.5). Train on these.",
                100 * english,
            )
        return None
    try:
        SynonymReplacer(share)
    except FileNotFoundError as error:
        if warn:
            logger.warning(
                "Making PaSeR's columns WITHOUT synonyms, which cost the paper 4.8 points of STS-B (Table 4): %s", error
            )
        return None
    return share


def _with_anchor(sentences: Dataset | Sequence[str]) -> Dataset:
    if not isinstance(sentences, Dataset):
        return Dataset.from_dict({"anchor": texts_of(sentences)})
    others = [name for name in ("text", "sentence") if name in sentences.column_names]
    is_named = "anchor" in sentences.column_names or not others
    table = python_rows(sentences if is_named else sentences.rename_column(others[0], "anchor"))
    columns = table.column_names
    if taken := {"masked", "phrase"} & set(columns):
        raise ValueError(
            f"sentences must have no column {' or '.join(sorted(taken))}, which are made here; got {', '.join(columns)}: "
            f"dataset.remove_columns({sorted(taken)})."
        )
    if "anchor" not in columns:
        example = f': dataset.rename_column("{columns[0]}", "anchor")' if columns else ""
        raise ValueError(f"sentences must have a column anchor, got {', '.join(columns) or 'none'}{example}.")
    if table.data.column("anchor").null_count:  # of some rows, which a selection may have left out
        texts_of(table["anchor"])
    return table


def _rows_of_batch(batch: dict[str, list[Any]], indices: list[int], *, version: str, **arguments: Any) -> dict[str, list[Any]]:
    rows: dict[str, list[Any]] = {name: [] for name in (*batch, "masked", "phrase", _PLACE)}
    carried = [name for name in batch if name != "anchor"]
    for place, index in enumerate(indices):
        copies = _rows_of_sentence(batch["anchor"][place], index, **arguments)
        for name in carried:
            rows[name] += [batch[name][place]] * len(copies)
        for anchor, masked, phrase in copies:
            rows["anchor"].append(anchor)
            rows["masked"].append(masked)
            rows["phrase"].append(phrase)
            rows[_PLACE].append(index)
    return rows


def _rows_of_sentence(
    sentence: str,
    index: int,
    *,
    mask_token: str,
    top_k: int,
    extractor: Extractor,
    keep_without_phrase: bool,
    seed: int,
    **noise: Any,
) -> list[tuple[str, str, str]]:
    phrases = locate_phrases(sentence, extractor=extractor)[:top_k]
    if phrases and mask_token in sentence:  # which would be counted as a word that is hidden
        phrases = []
    copies = [
        (sentence, hide_phrase(sentence, phrase, mask_token=mask_token), _with_space(sentence, phrase)) for phrase in phrases
    ]
    if not copies and keep_without_phrase:
        copies = [(sentence, sentence, "")]
    rng = random.Random(f"{seed} {index}")
    return [
        (_augment(anchor, rng, mask_token, **noise), _augment(masked, rng, mask_token, **noise), phrase)
        for anchor, masked, phrase in copies
    ]


def _with_space(sentence: str, phrase: Phrase) -> str:
    """Return the phrase with the space before it, if there is one."""
    start = phrase.spans[0][0]
    return " " * sentence[:start][-1:].isspace() + phrase.text


def _augment(
    sentence: str, rng: random.Random, keep: str, *, synonyms: Callable[..., str] | None, deletion: float, swap: float
) -> str:
    if synonyms is not None:
        sentence = text_from(synonyms, synonyms(sentence, rng, keep=keep))
    if deletion:
        sentence = delete_words(sentence, deletion, rng, keep=keep)
    if swap:
        sentence = swap_words(sentence, swap, rng, keep=keep)
    return sentence


def _cache_file(sentences: Dataset, arguments: dict[str, Any]) -> Path:
    """Name the file of the rows: those of a dataset in memory ``datasets`` alone would keep in memory."""
    transform = (sentences.format["format_kwargs"] or {}).get("transform")  # of set_transform; its fingerprint has the name
    codes = [code_of(made_by) for made_by in (arguments["extractor"], arguments["synonyms"], transform)]
    made_from = [_FORM, host.fingerprint(sentences), sorted(arguments.items()), codes]
    name = hash_of(made_from, held="each of extractor and synonyms")
    return cache_folder() / f"paser-{name}.arrow"
