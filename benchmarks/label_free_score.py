"""A score without labels, from altered copies of sentences."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from sbert_plugins.data.phrases import WORD
from sbert_plugins.data.synonyms import SynonymReplacer, open_wordnet
from sbert_plugins.evaluation import EmbeddingEvaluator
from sbert_plugins.evaluation.encoding import Encode, unit_rows

# The ratio of the standard deviations of the two parts over the checkpoints that chose the formula; 2 to 10
# work as well.
_MARGIN_WEIGHT = 5.0


class Substitution(NamedTuple):
    """A sentence, a copy with one word replaced by a synonym, and a copy with another word in that place."""

    sentence: str
    synonym: str
    other: str


class LabelFreeTexts(NamedTuple):
    """The texts of ``LabelFreeEvaluator``."""

    sentences: list[str]
    substitutions: list[Substitution]
    halves: list[tuple[str, str]]  # a sentence, and half of its words


def label_free_texts(
    sentences: Sequence[str], *, text: Sequence[str] = (), limit: int = 300, seed: int = 0
) -> LabelFreeTexts:
    """Make copies of English sentences that keep their meaning, lose it, or lose half of their words.

    The synonym belongs to the first sense that NLTK lists, nouns before verbs, and occurs in the text. The
    other word has the part of speech of that sense and is about as frequent as the synonym.

    Args:
        sentences: Some hundred different sentences that are not trained on.
        text: Further sentences from which the frequencies of words are counted, such as those of the
            training.
        limit: Largest number of substitutions, and of halves.
        seed: Seed of the choices.

    Raises:
        FileNotFoundError: If WordNet is not installed.
    """
    sentences = list(dict.fromkeys(sentences))
    kinds, rng = WordKinds([*text, *sentences]), random.Random(seed)
    substitutions = [found for sentence in sentences if (found := kinds.substitute(sentence, rng))][:limit]
    halves = []
    for sentence in [sentence for sentence in sentences if len(sentence.split()) >= 6][:limit]:
        words = sentence.split()
        dropped = set(rng.sample(range(len(words)), round(len(words) / 2)))
        kept = " ".join(word for place, word in enumerate(words) if place not in dropped)
        halves.append((sentence, kept))
    return LabelFreeTexts(sentences, substitutions, halves)


class WordKinds:
    """The words of a text, grouped by part of speech and frequency.

    Args:
        sentences: The text.
    """

    def __init__(self, sentences: Sequence[str]) -> None:
        self.replacer = SynonymReplacer()
        self.wordnet = open_wordnet()
        self.counts = Counter(word.lower() for sentence in sentences for word in WORD.findall(sentence))
        self.groups: dict[tuple[str, int], list[str]] = {}
        for word in sorted(self.counts):
            part = self.part_of_speech(word)
            # Only words in dictionary form, because synonyms are in that form, too.
            if part and word.isalpha() and self.wordnet.morphy(word, part) == word:
                self.groups.setdefault((part, self.magnitude(word)), []).append(word)

    def magnitude(self, word: str) -> int:
        """Return the frequency of a word as a power of two."""
        return int(math.log2(1 + self.counts[word]))

    def part_of_speech(self, word: str) -> str | None:
        """Return the part of speech of a word's first sense, or None for a word without synonyms."""
        if not self.replacer.synonyms(word):
            return None
        return self.wordnet.synsets(word)[0].pos().replace("s", "a")

    def synonyms(self, word: str) -> list[str]:
        """Return the synonyms of the word's first sense that occur in the text."""
        synsets = self.wordnet.synsets(word)
        first = {name.replace("_", " ") for name in synsets[0].lemma_names()} if synsets else set()
        return [
            name
            for name in self.replacer.synonyms(word)
            if name in first and self.counts[name] and name.isalpha()
        ]

    def substitute(self, sentence: str, rng: random.Random) -> Substitution | None:
        """Replace one word, by a synonym and by another word. Return None if no word has both."""
        matches = list(WORD.finditer(sentence))
        present = {match[0].lower() for match in matches}
        for match in rng.sample(matches, len(matches)):
            word = match[0].lower()
            synonyms = [name for name in self.synonyms(word) if name.lower() not in present]
            if not synonyms:
                continue
            synonym = rng.choice(synonyms)
            excluded = present | {name.lower() for name in self.replacer.synonyms(word)}
            group = (self.part_of_speech(word) or "", self.magnitude(synonym))
            others = [other for other in self.groups.get(group, []) if other not in excluded]
            if others:
                copies = (
                    sentence[: match.start()] + new + sentence[match.end() :]
                    for new in (synonym, rng.choice(others))
                )
                return Substitution(sentence, *copies)
        return None


class LabelFreeEvaluator(EmbeddingEvaluator):
    r"""Score an encoder by altered copies of unlabelled sentences.

    .. math::
        s = 100 \left( 5\, \frac{\frac{1}{N}\sum_i \cos(x_i, x_i^{syn}) - \cos(x_i, x_i^{other})}
        {1 - \overline{\cos(x_j, x_k)}} + \frac{1}{M}\sum_i \frac{1}{\mathrm{rank}_i} \right)

    The first part measures how much closer a sentence is to a copy with a synonym than to a copy with another
    word, relative to the mean distance of two sentences. The second part is the mean reciprocal rank of a
    sentence among all sentences when half of its words are the query.

    The formula was chosen on one set of checkpoints and tested on another:

    =======================================  ===========  =====================
    Spearman correlation with STS-B dev      all          median of a training
    =======================================  ===========  =====================
    chosen on: 53 checkpoints, 13 runs       0.83         0.90
    another encoder: 33 checkpoints, 8 runs  0.87         0.90
    =======================================  ===========  =====================

    It was not tested on retrieval, topics, other languages or larger encoders, and scores on different texts
    are not comparable. It does not detect that a training has run for too long. Use it to compare methods
    after few updates, not to choose a checkpoint.

    Args:
        texts: From ``label_free_texts``, made of sentences that are not trained on.
        **options: ``name``, ``batch_size``, ``show_progress_bar`` and ``write_csv`` of
            ``EmbeddingEvaluator``.

    Returns:
        From a call, ``label_free`` (the score, which can exceed 100) and its parts ``substitution_margin``
        and ``half_mrr``, with the name in front.

    Raises:
        ValueError: If an embedding is not finite.
    """

    description = "Label-Free Score"
    note = (
        "Scores without labels come from altered copies of held-out sentences and can exceed 100. They do "
        "not measure topics or search, and they do not detect a training that runs for too long."
    )

    def __init__(self, texts: LabelFreeTexts, **options: Any) -> None:
        super().__init__("label_free", **options)
        self.texts = texts
        counts = {"substitutions": len(texts.substitutions), "halves": len(texts.halves)}
        self.config = {"sentences": len(texts.sentences), **counts}

    def compute(self, encode: Encode) -> dict[str, float]:
        """Return the score and its parts."""
        sentences, synonyms, others = (
            unit_rows(encode(side)).cpu().double() for side in zip(*self.texts.substitutions, strict=True)
        )
        closer = (sentences * (synonyms - others)).sum(dim=1).mean()
        count = len(sentences)
        mean_cosine = (sentences.sum(dim=0).square().sum() - count) / (count * (count - 1))
        margin = float(closer / (1 - mean_cosine).clamp_min(1e-6))  # 1 - mean is 0 in a collapsed encoder

        pool, wholes, halves = (
            unit_rows(encode(side)).cpu().double()
            for side in (self.texts.sentences, *zip(*self.texts.halves, strict=True))
        )
        correct = (wholes * halves).sum(dim=1, keepdim=True)
        ranks = (halves @ pool.T >= correct - 1e-9).sum(dim=1)  # ties count against the model
        reciprocal = float(ranks.double().reciprocal().mean())
        score = 100 * (_MARGIN_WEIGHT * margin + reciprocal)
        return {"label_free": score, "substitution_margin": margin, "half_mrr": reciprocal}
