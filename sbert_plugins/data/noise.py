"""Words left out, moved (EDA, Wei and Zou 2019, as PaSeR section 3.1.3 uses it) or said twice (PT-BERT's baselines)."""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import eq

from datasets import Dataset

from .synonyms import find_words

logger = logging.getLogger(__name__)


def delete_words(sentence: str, ratio: float, rng: random.Random, *, keep: str = "") -> str:
    """Delete each word with probability ``ratio``; ``keep`` (the mask token) stays, and so does one word at least."""
    matches = [match for match in find_words(sentence, keep) if match[0] != keep]
    deleted = [match for match in matches if rng.random() < ratio]
    if matches and len(deleted) == len(matches):
        deleted.remove(rng.choice(deleted))
    for match in reversed(deleted):
        sentence = sentence[: match.start()] + sentence[match.end() :]
    return re.sub(r"\s+", " ", sentence).strip() if deleted else sentence


def swap_words(sentence: str, ratio: float, rng: random.Random, *, keep: str = "") -> str:
    """Swap two random words as many times as ``ratio`` of the sentence has words, at least once; ``keep`` is not moved."""
    matches = [match for match in find_words(sentence, keep) if match[0] != keep]
    if ratio == 0 or len(matches) < 2:
        return sentence
    words = [match[0] for match in matches]
    for _ in range(max(1, int(ratio * len(words)))):
        i, j = rng.sample(range(len(words)), 2)
        words[i], words[j] = words[j], words[i]
    for match, word in zip(reversed(matches), reversed(words), strict=True):
        sentence = sentence[: match.start()] + word + sentence[match.end() :]
    return sentence


def duplicate_words(sentence: str, ratio: float, rng: random.Random, *, keep: str = "") -> str:
    """Say each word twice with probability ``ratio``; ``keep`` (the mask token) is said once."""
    matches = [match for match in find_words(sentence, keep) if match[0] != keep]
    for match in reversed([match for match in matches if rng.random() < ratio]):
        sentence = f"{sentence[: match.end()]} {sentence[match.start() :]}"
    return sentence


def recombine_roles(
    sentence: str,
    label: Callable[[str], Iterable[Mapping[str, str]]],
    *,
    order: Sequence[str] = ("ARG0", "V", "ARGM-NEG", "ARG1"),
) -> str:
    """Say who does what to whom and nothing else: PT-BERT's augmentation by semantic roles (section 4.4).

    Args:
        sentence: Any text.
        label: A semantic role labeller of yours. It gets the sentence and returns a dict for each predicate, from the name of
            a role (PropBank's, with ``V`` for the predicate itself) to its words. None ships with this package.
        order: The roles that are kept, in their order; the set of the paper is not legible in the copies at hand.

    Returns:
        The roles of all predicates in a row; the sentence itself where there are none, as in the paper.

    Example:
        >>> from sbert_plugins import data
        >>> def label(sentence):
        ...     return [{"V": "caught", "ARG0": "I", "ARG1": "a caterpillar", "ARGM-TMP": "yesterday"}]
        >>> data.recombine_roles("Yesterday a caterpillar was caught by me.", label)
        'I caught a caterpillar'
    """
    words = [roles[role] for roles in label(sentence) for role in order if roles.get(role)]
    return " ".join(words) or sentence


AUGMENTATIONS = {"reorder": swap_words, "duplication": duplicate_words, "deletion": delete_words}


def positive_pairs(
    sentences: Dataset | Iterable[str],
    augment: str | Callable[[str, random.Random], str],
    *,
    ratio: float = 0.1,
    seed: int = 0,
) -> Dataset:
    """Give each sentence an altered copy, for ``losses.PTBERTLoss(model, num_pseudo_tokens=0)``: PT-BERT's discrete baselines.

    Args:
        sentences: Texts, or a dataset with the column ``anchor``.
        augment: ``"reorder"``, ``"duplication"``, ``"deletion"``, or a callable that gets a sentence and a ``random.Random``
            and returns the copy: ``lambda sentence, rng: recombine_roles(sentence, label)`` is the paper's MoCo + SRL.
        ratio: Share of the words that change, for the three named ones. The paper gives none; 0.1 is EDA's.
        seed: Another seed, other changes.

    Returns:
        A dataset with the columns ``anchor`` and ``positive``.

    Raises:
        ValueError: On an unknown name, a ratio outside (0, 1], or a sentence that is no string.
    """
    if not callable(augment):
        if augment not in AUGMENTATIONS:
            raise ValueError(f"augment must be {', '.join(AUGMENTATIONS)} or a callable, got {augment!r}.")
        if not 0 < ratio <= 1:
            raise ValueError(f"ratio must be in (0, 1], got {ratio}. It is the share of the words that change.")
        function = AUGMENTATIONS[augment]

        def augment(sentence: str, rng: random.Random) -> str:
            return function(sentence, ratio, rng)

    rng, anchors = random.Random(seed), texts_of(sentences)
    positives = [text_from(augment, augment(sentence, rng)) for sentence in anchors]
    if same := sum(map(eq, anchors, positives)):
        logger.warning("%s of %s copies are their sentence as it is.", f"{same:,}", f"{len(anchors):,}")
    return Dataset.from_dict({"anchor": anchors, "positive": positives})


def texts_of(sentences: Dataset | Iterable[str]) -> list[str]:
    """Return sentences, or the column ``anchor`` of a dataset, each of which must be text, as a list."""
    refuse_no_list(sentences)
    if isinstance(sentences, Dataset):
        if "anchor" not in sentences.column_names:
            raise ValueError(f"sentences must have a column anchor, got {', '.join(sentences.column_names) or 'none'}.")
        sentences = python_rows(sentences)["anchor"][:]  # at once: row by row takes fifty times as long
    texts = list(sentences)
    if bad := [place for place, text in enumerate(texts) if not isinstance(text, str)]:
        raise ValueError(f"sentences must be text, got {texts[bad[0]]!r} in row {bad[0]}.")
    return texts


def python_rows(dataset: Dataset) -> Dataset:
    """Return a dataset that gives strings, whatever library's arrays it was set to give; a transform of one's own stays."""
    return dataset if dataset.format["type"] in (None, "custom") else dataset.with_format(None)


def text_from(made_by: Callable[..., object], made: object) -> str:
    """Return what a callable made, which must be text."""
    if not isinstance(made, str):
        raise ValueError(f"{made_by!r} must return a string, got {made!r}: a return is missing?")
    return made


def refuse_no_list(sentences: object) -> None:
    """Refuse a string, whose letters would be the sentences, and what goes by keys, whose names would be."""
    if isinstance(sentences, str):
        raise ValueError("sentences must be a list of sentences, got one string: put it in a list.")
    if goes_by_keys(sentences):
        raise ValueError(
            f"sentences must be a list of sentences or a dataset, got {type(sentences).__name__}: give one of its splits or "
            "columns (dataset_dict['train'], table['text'])."
        )


def goes_by_keys(texts: object) -> bool:
    """Whether what shall be texts gives names instead: a DatasetDict those of its splits, a DataFrame those of its columns."""
    return isinstance(texts, Mapping) or hasattr(texts, "columns")
