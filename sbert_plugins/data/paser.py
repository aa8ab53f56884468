"""The columns of PaSeR: a sentence, a copy that hides one of its phrases, and the phrase."""

import random
from collections.abc import Callable, Iterable
from typing import Any

from datasets import Dataset

from .augment import delete_words, swap_words
from .phrases import Extractor, hide_phrase, locate_phrases
from .read import INDEX, as_dataset, expand_rows
from .synonyms import SynonymReplacer, open_wordnet, synonyms_if_installed


def paser_columns(
    sentences: Dataset | Iterable[str],
    *,
    mask_token: str,
    top_k: int = 3,
    extractor: str | Extractor = "rake",
    synonyms: Callable[..., str] | float | str | None = "if installed",
    deletion: float = 0.0,
    swap: float = 0.0,
    versions: int = 1,
    keep_without_phrase: bool = False,
    seed: int = 42,
    num_proc: int | None = None,
) -> Dataset:
    """Make the columns of :class:`losses.PaSeRLoss`, one row for each sentence and phrase.

    For each of the ``top_k`` best phrases the sentence is copied, with one mask token instead of each word of
    the phrase. Then words of the sentence and of the copy are changed, independently of each other. The
    phrase stays as written, with the space before it: so a byte-level BPE (RoBERTa, ModernBERT) gives it the
    tokens that it has in the sentence.

    Args:
        sentences: Sentences, or a dataset with the column ``anchor`` (or else ``text`` or ``sentence``).
            Further columns are kept: with (``anchor``, ``positive``, ``negative``) the new columns are the
            fourth and fifth. In a sentence that contains the mask token no phrase is hidden.
        mask_token: The tokenizer's mask token (``model.tokenizer.mask_token``).
        top_k: Largest number of phrases per sentence, each hidden in a row of its own. In the paper's Table 5
            more than three phrases help SICK-R only.
        extractor: As in :func:`locate_phrases`.
        synonyms: Share of words that :class:`SynonymReplacer` replaces, or a function ``(sentence, rng,
            keep=mask_token)`` instead of it, or None. By default 0.5, the ratio in the authors' README, if
            WordNet is installed and the text is English. Otherwise there are none, with a warning, because
            they matter: STS-B is 79.3 with and 74.5 without them (Table 4).
        deletion: Probability that a word is deleted.
        swap: Number of swaps of two words, as a share of the number of words.
        versions: Number of rows for each sentence and phrase, whose words are changed independently. With
            ``versions=5`` and ``num_train_epochs=1`` a training has new synonyms where five epochs would
            repeat theirs.
        keep_without_phrase: Whether a sentence without a phrase gives one row that hides nothing, with an
            empty ``phrase``. PaSeR ignores this row, but another loss on the same rows reads it. By default
            the sentence is left out.
        seed: Seed of the changes. Those of a row depend on the seed and the position of its sentence only,
            and not on the number of processes.
        num_proc: Number of processes.

    Returns:
        The columns of ``sentences``, then ``masked`` and ``phrase``. The rows are kept in the cache of
        ``datasets``, and the same call finds them there. As everywhere in ``datasets``, a function of a
        module is recognized by its name: after a change of its code, delete the cache or rename the function.

    Raises:
        ValueError: If ``mask_token`` is empty, or no sentence has a phrase.
        FileNotFoundError: If ``synonyms`` is a number and WordNet is not installed.

    Example:
        >>> sentences = ["The old harbour master counts the boats."]
        >>> rows = paser_columns(sentences, mask_token="[MASK]", synonyms=None)
        >>> rows[0]["masked"]
        'The [MASK] [MASK] [MASK] [MASK] the boats.'
    """
    if not mask_token:
        raise ValueError("mask_token is empty. PaSeR needs a tokenizer with a mask token.")
    rows = as_dataset(sentences, "anchor", "text", "sentence")
    if synonyms == "if installed":
        synonyms = synonyms_if_installed(rows["anchor"])
    if synonyms is not None and not callable(synonyms):
        synonyms = SynonymReplacer(float(synonyms))
    if num_proc and isinstance(synonyms, SynonymReplacer):
        open_wordnet()
    return expand_rows(
        rows,
        _make_rows,
        name="paser",
        arguments={
            "mask_token": mask_token,
            "top_k": top_k,
            "extractor": extractor,
            "synonyms": synonyms,
            "deletion": deletion,
            "swap": swap,
            "versions": versions,
            "keep_without_phrase": keep_without_phrase,
            "seed": seed,
        },
        wanted="a phrase",
        advice="For another language than English pass extractor=data.Rake(stop_words=...). For scripts "
        "without spaces pass a function as extractor.",
        num_proc=num_proc,
    )


def _make_rows(
    batch: dict[str, list[Any]],
    indices: list[int],
    *,
    mask_token: str,
    top_k: int,
    extractor: str | Extractor,
    synonyms: Callable[..., str] | None,
    deletion: float,
    swap: float,
    versions: int,
    keep_without_phrase: bool,
    seed: int,
) -> dict[str, list[Any]]:
    def change(text: str) -> str:
        if synonyms is not None:
            text = synonyms(text, rng, keep=mask_token)
        if deletion:
            text = delete_words(text, deletion, rng, keep=mask_token)
        if swap:
            text = swap_words(text, swap, rng, keep=mask_token)
        return text

    rows: list[dict[str, Any]] = []
    for place, index in enumerate(indices):
        sentence = batch["anchor"][place]
        copies = []
        if mask_token not in sentence:  # it would be taken for a hidden word
            for phrase in locate_phrases(sentence, extractor=extractor)[:top_k]:
                start = phrase.spans[0][0]
                space = " " if sentence[:start][-1:].isspace() else ""
                copies.append((hide_phrase(sentence, phrase, mask_token=mask_token), space + phrase.text))
        if not copies and keep_without_phrase:
            copies = [(sentence, "")]
        rng = random.Random(f"{seed} {index}")
        for masked, text in copies * versions:
            new = {"anchor": change(sentence), "masked": change(masked), "phrase": text, INDEX: index}
            rows.append({name: values[place] for name, values in batch.items()} | new)
    return {name: [row[name] for row in rows] for name in (*batch, "masked", "phrase", INDEX)}
