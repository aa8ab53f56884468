"""Copies of a sentence with words deleted, swapped (EDA, Wei and Zou 2019) or duplicated."""

import logging
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import eq

from datasets import Dataset

from .phrases import split_words
from .read import as_dataset

logger = logging.getLogger(__name__)


def delete_words(sentence: str, ratio: float, rng: random.Random, *, keep: str = "") -> str:
    """Delete each word with probability ``ratio``, but not all, and never the token ``keep`` (the mask)."""
    pieces, places = split_words(sentence, keep)
    deleted = [place for place in places if rng.random() < ratio]
    if places and len(deleted) == len(places):
        deleted.remove(rng.choice(deleted))
    for place in deleted:
        pieces[place] = ""
    return re.sub(r"\s+", " ", "".join(pieces)).strip() if deleted else sentence


def swap_words(sentence: str, ratio: float, rng: random.Random, *, keep: str = "") -> str:
    """Swap two random words, ``ratio`` times the number of words, at least once. ``keep`` is not moved."""
    pieces, places = split_words(sentence, keep)
    if ratio == 0 or len(places) < 2:
        return sentence
    for _ in range(max(1, int(ratio * len(places)))):
        i, j = rng.sample(places, 2)
        pieces[i], pieces[j] = pieces[j], pieces[i]
    return "".join(pieces)


def duplicate_words(sentence: str, ratio: float, rng: random.Random, *, keep: str = "") -> str:
    """Repeat each word with probability ``ratio``, but never the token ``keep`` (the mask)."""
    pieces, places = split_words(sentence, keep)
    for place in places:
        if rng.random() < ratio:
            pieces[place] += f" {pieces[place]}"
    return "".join(pieces)


def recombine_roles(
    sentence: str,
    label: Callable[[str], Iterable[Mapping[str, str]]],
    *,
    order: Sequence[str] = ("ARG0", "V", "ARGM-NEG", "ARG1"),
) -> str:
    """Keep only who does what to whom: PT-BERT's augmentation by semantic roles (section 4.4).

    Args:
        sentence: One sentence.
        label: A semantic role labeller, which does not come with this package. It takes the sentence and
            returns a dict for each predicate: the words of each role, by PropBank's names, with ``V`` for the
            predicate.
        order: The roles to keep, in their order. The paper's are missing in its text; these are ours.

    Returns:
        The roles of all predicates, joined. Without a predicate it is the sentence itself, as in the paper.

    Example:
        >>> def label(sentence):
        ...     return [{"V": "caught", "ARG0": "I", "ARG1": "a caterpillar", "ARGM-TMP": "yesterday"}]
        >>> recombine_roles("Yesterday a caterpillar was caught by me.", label)
        'I caught a caterpillar'
    """
    kept = [roles[role] for roles in label(sentence) for role in order if roles.get(role)]
    return " ".join(kept) or sentence


AUGMENTATIONS = {"reorder": swap_words, "duplication": duplicate_words, "deletion": delete_words}


def positive_pairs(
    sentences: Dataset | Iterable[str],
    augment: str | Callable[[str, random.Random], str],
    *,
    ratio: float = 0.1,
    seed: int = 0,
) -> Dataset:
    """Pair each sentence with an altered copy.

    With ``PTBERTLoss(model, num_pseudo_tokens=0)`` the pairs are PT-BERT's discrete baselines. For new copies
    in each epoch, concatenate the datasets of several seeds, and train one epoch.

    Args:
        sentences: Sentences, or a dataset with the column ``anchor``.
        augment: ``"reorder"``, ``"duplication"`` or ``"deletion"``, or a function of a sentence and a
            ``random.Random`` that returns the copy, such as ``lambda sentence, rng: recombine_roles(sentence,
            label)``.
        ratio: Number of swaps, duplications or deletions per word. The paper does not give it; 0.1 is EDA's.
        seed: Seed of the changes.

    Returns:
        A dataset with the columns ``anchor`` and ``positive``.

    Raises:
        KeyError: If the augmentation is unknown.

    Example:
        >>> pairs = positive_pairs(["The old harbour master counts the boats."], "duplication", ratio=0.4)
        >>> pairs["positive"][0]
        'The old harbour master master counts the boats.'
    """
    rng, anchors = random.Random(seed), as_dataset(sentences, "anchor")["anchor"][:]
    if callable(augment):
        positives = [augment(sentence, rng) for sentence in anchors]
    else:
        positives = [AUGMENTATIONS[augment](sentence, ratio, rng) for sentence in anchors]
    if unchanged := sum(map(eq, anchors, positives)):
        logger.warning("%s of %s copies are equal to their sentence.", f"{unchanged:,}", f"{len(anchors):,}")
    return Dataset.from_dict({"anchor": anchors, "positive": positives})
