"""Scores of an encoder that need no labels: the texts that they are computed on, and the scores."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import Ridge
from sklearn.model_selection import cross_val_predict

from sbert_plugins.data.label_free import Substitution, WordKinds
from sbert_plugins.data.phrases import find_words

VIEWS = 300
TRIPLES = 300


class Texts(NamedTuple):
    """What a person's own sentences give to compare."""

    own: list[str]
    any_sense: list[Substitution]  # the synonym is of any sense, and may be several words
    first_sense: list[Substitution]  # it is of the word's most frequent sense and in the text; the other is as frequent
    nested: list[tuple[str, str, str]]  # without a quarter and without half of its words
    halves: list[tuple[str, str]]

    def all(self) -> Iterator[str]:
        """Return every text."""
        yield from self.own
        for group in (self.any_sense, self.first_sense, self.nested, self.halves):
            for texts in group:
                yield from texts


def make_texts(held_out: Sequence[str], text: Sequence[str], seed: int = 0) -> Texts:
    """Make them from held-out sentences; ``text``, those of the training, tells how frequent words are."""
    any_words, words = AnySense([*text, *held_out]), WordKinds([*text, *held_out])
    rng = random.Random(seed)
    any_sense = [found for sentence in held_out if (found := any_words.substitute(sentence, rng))]
    first_sense = [found for sentence in held_out if (found := words.substitute(sentence, rng))]
    nested = [(sentence, *deleted(sentence, rng)) for sentence in held_out if len(sentence.split()) >= 6]
    halves = [half(sentence) for sentence in held_out if len(sentence.split()) >= 8]
    return Texts(list(held_out), any_sense[:TRIPLES], first_sense[:TRIPLES], nested[:TRIPLES], halves[:TRIPLES])


def deleted(sentence: str, rng: random.Random) -> tuple[str, str]:
    """Return the sentence without a quarter of its words, and without these and another quarter."""
    words = sentence.split()
    order = rng.sample(range(len(words)), len(words))
    few, many = (set(order[: round(share * len(words))]) for share in (0.25, 0.5))
    return tuple(" ".join(word for place, word in enumerate(words) if place not in gone) for gone in (few, many))


def half(sentence: str) -> tuple[str, str]:
    words = sentence.split()
    return " ".join(words[: len(words) // 2]), " ".join(words[len(words) // 2 :])


class AnySense(WordKinds):
    """Synonyms of any sense, also those of several words; the other word is as frequent as the one that is replaced."""

    def synonyms(self, word: str) -> list[str]:
        return list(self.replacer.synonyms(word))

    def substitute(self, sentence: str, rng: random.Random) -> Substitution | None:
        matches = find_words(sentence)
        present = {match[0].lower() for match in matches}
        for match in rng.sample(matches, len(matches)):
            word = match[0].lower()
            synonyms = [name for name in self.synonyms(word) if name.lower() not in present]
            if not synonyms:
                continue
            synonym = rng.choice(synonyms)
            excluded = present | {name.lower() for name in synonyms}
            group = (self.part_of_speech(word) or "", self.magnitude(word))
            others = [other for other in self.groups.get(group, []) if other not in excluded]
            if others:
                copies = (sentence[: match.start()] + new + sentence[match.end() :] for new in (synonym, rng.choice(others)))
                return Substitution(sentence, *copies)
        return None


class Vectors:
    """The vectors of one checkpoint, by text, scaled to length 1 where cosines are taken."""

    def __init__(self, row: dict[str, int], matrix: np.ndarray, views: np.ndarray) -> None:
        self.row, self.matrix = row, matrix.astype(np.float64)
        self.unit = scaled(self.matrix)
        self.views = scaled(views.astype(np.float64))

    def raw(self, texts: Sequence[str]) -> np.ndarray:
        return self.matrix[[self.row[text] for text in texts]]

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        return self.unit[[self.row[text] for text in texts]]

    def cosines(self, first: Sequence[str], second: Sequence[str]) -> np.ndarray:
        return (self(first) * self(second)).sum(axis=1)


def all_scores(vectors: Vectors, texts: Texts, words: WordOverlap, rival: np.ndarray) -> dict[str, float]:
    """Return every candidate, signed so that higher should be better; ``rival`` are vectors made without training."""
    return {
        **geometry(vectors.raw(texts.own)),
        **stability(vectors.views),
        **overlap(vectors(texts.own), words),
        **agreement(vectors(texts.own), scaled(rival)),
        **substitution("any sense", vectors, texts.any_sense),
        **substitution("first sense", vectors, texts.first_sense),
        **deletion(vectors, texts),
        **splits(vectors, texts),
        **ladders(vectors, texts, words),
    }


def geometry(own: np.ndarray) -> dict[str, float]:
    """Return how the vectors lie, whatever they mean."""
    unit = scaled(own)
    above = np.triu_indices(len(unit), 1)
    cosines = unit @ unit.T
    values = np.linalg.svd(own, compute_uv=False)
    centred = np.linalg.svd(own - own.mean(axis=0), compute_uv=False)
    return {
        "uniformity, negative": -float(np.log(np.exp(-2 * (2 - 2 * cosines[above])).mean())),
        "mean cosine, negative": -float(cosines[above].mean()),
        "spread of the cosines": float(cosines[above].std()),
        "RankMe": effective_rank(values),
        "RankMe, centred": effective_rank(centred),
        "IsoScore": iso_score(centred**2 / (len(own) - 1)),
        "alpha-ReQ": -abs(decay(centred**2) - 1),
        "hubness, negative": -hubness(cosines),
    }


def effective_rank(values: np.ndarray) -> float:
    """RankMe (Garrido et al., 2023): the exponential of the entropy of the singular values."""
    shares = values / values.sum() + 1e-12
    return float(np.exp(-(shares * np.log(shares)).sum()))


def iso_score(variances: np.ndarray) -> float:
    """IsoScore (Rudman et al., 2022), of the variances along the principal components."""
    n = len(variances)
    scaled_to = math.sqrt(n) * variances / np.linalg.norm(variances)
    defect = np.linalg.norm(scaled_to - 1) / math.sqrt(2 * (n - math.sqrt(n)))
    used = (n - defect**2 * (n - math.sqrt(n))) ** 2 / n**2
    return float((n * used - 1) / (n - 1))


def decay(eigenvalues: np.ndarray) -> float:
    """alpha-ReQ (Agrawal et al., 2022): the exponent by which eigenvalues fall with their rank, 1 being best."""
    ranks = np.arange(11, 101)
    return -float(np.polyfit(np.log(ranks), np.log(eigenvalues[10:100] + 1e-12), 1)[0])


def hubness(cosines: np.ndarray) -> float:
    """Return the skewness of how often a sentence is among the ten nearest of others."""
    order = np.argsort(-(cosines - 2 * np.eye(len(cosines))), axis=1)[:, :10]
    return float(stats.skew(np.bincount(order.ravel(), minlength=len(cosines))))


def stability(views: np.ndarray) -> dict[str, float]:
    """Return what two dropout views of each sentence say."""
    first, second = views
    above = np.triu_indices(len(first), 1)
    alignment = float(((first - second) ** 2).sum(axis=1).mean())
    potential = float(np.log(np.exp(-2 * (2 - 2 * (first @ first.T)[above])).mean()))
    return {
        "alignment of dropout views, negative": -alignment,
        "alignment + uniformity, negative": -(alignment + potential),
        "a view finds its other": reciprocal_rank(first @ second.T),
        "cosines stable under dropout": rank_correlation((first @ first.T)[above], (second @ second.T)[above]),
    }


class WordOverlap(NamedTuple):
    """How much the held-out sentences share words: TF-IDF cosines, and vectors of 64 dimensions made of them."""

    cosines: np.ndarray
    reduced: np.ndarray

    @classmethod
    def of(cls, sentences: Sequence[str]) -> WordOverlap:
        vectors = TfidfVectorizer(sublinear_tf=True).fit_transform(sentences)
        return cls((vectors @ vectors.T).toarray(), TruncatedSVD(64, random_state=0).fit_transform(vectors))

    @property
    def nearest(self) -> np.ndarray:
        return np.argmax(self.cosines - 2 * np.eye(len(self.cosines)), axis=1)


def overlap(unit: np.ndarray, words: WordOverlap) -> dict[str, float]:
    """Return how the cosines agree with the words that sentences share."""
    cosines, above = unit @ unit.T, np.triu_indices(len(unit), 1)
    shared = words.cosines[above] > 0
    return {
        "agrees with TF-IDF": rank_correlation(cosines[above], words.cosines[above]),
        "agrees with TF-IDF, pairs with a word in common": rank_correlation(
            cosines[above][shared], words.cosines[above][shared]
        ),
        "neighbours of TF-IDF": neighbours_in_common(cosines, words.cosines),
        "predicts TF-IDF": explained(unit, words.reduced),
    }


def agreement(unit: np.ndarray, rival: np.ndarray) -> dict[str, float]:
    """Return how the cosines agree with those of vectors that need no training."""
    cosines, others, above = unit @ unit.T, rival @ rival.T, np.triu_indices(len(unit), 1)
    return {
        "agrees with SIF of the untouched encoder": rank_correlation(cosines[above], others[above]),
        "neighbours of SIF of the untouched encoder": neighbours_in_common(cosines, others),
    }


def neighbours_in_common(first: np.ndarray, second: np.ndarray, count: int = 10) -> float:
    """Return the share of a sentence's nearest others that two matrices of cosines have in common."""
    hidden = 2 * np.eye(len(first))
    near = [np.argsort(-(cosines - hidden), axis=1)[:, :count] for cosines in (first, second)]
    return float(np.mean([len(set(a) & set(b)) / count for a, b in zip(*near, strict=True)]))


def explained(inputs: np.ndarray, targets: np.ndarray) -> float:
    """Return the linear-Gaussian information about ``targets``, in nats a dimension: held out, from 64 components each.

    The information sufficiency of EMIR (Darrin et al., 2024) and FLARE (arXiv 2604.17344) with the plainest density there
    is: a linear regression, where these have mixtures and normalizing flows.
    """
    x, y = (PCA(min(64, side.shape[1]), random_state=0).fit_transform(side) for side in (inputs, targets))
    predicted = cross_val_predict(Ridge(alpha=1e-3 * x.var(axis=0).sum()), x, y, cv=5)
    return float(0.5 * np.log(y.var(axis=0) / ((y - predicted) ** 2).mean(axis=0)).mean())


def sufficiency(own: np.ndarray, others: Sequence[np.ndarray]) -> dict[str, float]:
    """Return what the vectors say of those of the other encoders of a set: the median, as EMIR and FLARE take it."""
    return {"predicts the other encoders": float(np.median([explained(own, other) for other in others]))}


def substitution(name: str, vectors: Vectors, triples: Sequence[Substitution]) -> dict[str, float]:
    """Return whether a copy with a synonym is nearer than one with another word."""
    sentences, synonyms, others = zip(*triples, strict=True)
    near, far = vectors.cosines(sentences, synonyms), vectors.cosines(sentences, others)
    unit = vectors(sentences)
    typical = 1 - (unit @ unit.T)[np.triu_indices(len(unit), 1)].mean()
    return {
        f"synonyms ({name}): share right": float((near > far).mean()),
        f"synonyms ({name}): margin": float((near - far).mean()),
        f"synonyms ({name}): margin, of the mean distance": float((near - far).mean() / typical),
        f"synonyms ({name}): margin, of its spread": float((near - far).mean() / (near - far).std()),
        f"synonyms ({name}): AUC": area(near, far),
    }


def deletion(vectors: Vectors, texts: Texts) -> dict[str, float]:
    sentences, fewer, fewest = zip(*texts.nested, strict=True)
    near, far = vectors.cosines(sentences, fewer), vectors.cosines(sentences, fewest)
    found = vectors(fewest) @ vectors(texts.own).T
    places = [texts.own.index(sentence) for sentence in sentences]
    return {
        "deletions: share right": float((near > far).mean()),
        "deletions: AUC": area(near, far),
        "half the words find the sentence": reciprocal_rank(found, places),
        "half the words against other sentences: effect": effect(found, places),
    }


def splits(vectors: Vectors, texts: Texts) -> dict[str, float]:
    first, second = zip(*texts.halves, strict=True)
    found = vectors(first) @ vectors(second).T
    places = range(len(found))
    return {
        "halves: MRR": reciprocal_rank(found),
        "halves: accuracy": float((found.argmax(axis=1) == np.arange(len(found))).mean()),
        "halves: AUC": area(found.diagonal(), found[~np.eye(len(found), dtype=bool)]),
        "halves: effect": effect(found, places),
    }


def ladders(vectors: Vectors, texts: Texts, words: WordOverlap) -> dict[str, float]:
    """Return what grades made of one's own text say: copies, parts, sentences that share words, any two sentences."""
    others = enumerate(np.random.default_rng(0).permutation(len(texts.own)))
    near = [(sentence, texts.own[place]) for sentence, place in zip(texts.own, words.nearest, strict=True)]
    any_two = [(texts.own[number], texts.own[place]) for number, place in others if number != place]
    steps = {
        "synonym": [(row[0], row[1]) for row in texts.first_sense],
        "quarter": [(row[0], row[1]) for row in texts.nested],
        "other": [(row[0], row[2]) for row in texts.first_sense],
        "half": [(row[0], row[2]) for row in texts.nested],
        "halves": texts.halves,
        "near": near[: len(texts.halves)],
        "any": any_two[: len(texts.halves)],
    }
    cosines = {name: vectors.cosines(*zip(*pairs, strict=True)) for name, pairs in steps.items()}
    grades = {"synonym": 5, "quarter": 4, "half": 3, "halves": 2, "near": 1, "any": 0}
    return {
        "ladder of six": rank_correlation(*graded(cosines, grades)),
        "ladder of halves, near, any": rank_correlation(*graded(cosines, {"halves": 2, "near": 1, "any": 0})),
        "ladder of synonym, other, near, any": rank_correlation(
            *graded(cosines, {"synonym": 3, "other": 2, "near": 1, "any": 0})
        ),
        "synonyms against sentences that share words": area(cosines["synonym"], cosines["near"]),
        "half the words against sentences that share words": area(cosines["half"], cosines["near"]),
        "halves against sentences that share words": area(cosines["halves"], cosines["near"]),
    }


def graded(cosines: dict[str, np.ndarray], grades: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    return (
        np.concatenate([cosines[name] for name in grades]),
        np.concatenate([np.full(len(cosines[name]), grade) for name, grade in grades.items()]),
    )


def scaled(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    return float(stats.spearmanr(first, second).statistic)


def area(higher: np.ndarray, lower: np.ndarray) -> float:
    """Return how often a value of the first is above one of the second: the area under the curve."""
    return float(stats.mannwhitneyu(higher, lower).statistic / (len(higher) * len(lower)))


def reciprocal_rank(found: np.ndarray, places: Sequence[int] | None = None) -> float:
    """Return the mean reciprocal rank of the right column of each row, by default the diagonal."""
    right = found[np.arange(len(found)), range(len(found)) if places is None else places]
    return float((1 / (found >= right[:, None]).sum(axis=1)).mean())


def effect(found: np.ndarray, places: Sequence[int]) -> float:
    """Return how far the right columns are above the others, in standard deviations of these."""
    is_right = np.zeros_like(found, dtype=bool)
    is_right[np.arange(len(found)), places] = True
    return float((found[is_right].mean() - found[~is_right].mean()) / found[~is_right].std())
