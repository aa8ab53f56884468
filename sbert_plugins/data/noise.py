"""Words left out or moved (EDA, Wei and Zou 2019, as PaSeR section 3.1.3 uses it)."""

from __future__ import annotations

import random
import re

from .synonyms import find_words


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
