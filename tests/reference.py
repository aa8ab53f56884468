"""The papers' equations once more, written from the papers alone: numpy, float64, loops, no torch.

Independent of ``sbert_plugins.functional`` on purpose (arccos where that uses an identity, sums where that uses
``cross_entropy``), so that a mistake is not made twice.
"""

import math

import numpy as np


def cosine(a, b):
    return float(np.dot(a, b) / (math.sqrt(np.dot(a, a)) * math.sqrt(np.dot(b, b))))


def angle(a, b):
    """ArcCSE eq. 2."""
    return math.acos(min(1.0, max(-1.0, cosine(a, b))))


def info_nce(anchors, positives, negatives=(), *, temperature):
    """ArcCSE eq. 1: mean over i of -log(e^(cos(h_i, h_i*)/tau) / sum_j e^(cos(h_i, h_j*)/tau))."""
    losses = []
    for i, anchor in enumerate(anchors):
        denominator = 0.0
        for candidate in [*positives, *negatives]:
            denominator += math.exp(cosine(anchor, candidate) / temperature)
        losses.append(-math.log(math.exp(cosine(anchor, positives[i]) / temperature) / denominator))
    return sum(losses) / len(losses)


def arccon_loss(anchors, positives, negatives=(), *, margin_degrees, temperature):
    """ArcCSE eq. 3."""
    losses = []
    for i, anchor in enumerate(anchors):
        numerator = math.exp(math.cos(angle(anchor, positives[i]) + math.radians(margin_degrees)) / temperature)
        denominator = numerator
        for j, positive in enumerate(positives):
            if j != i:
                denominator += math.exp(math.cos(angle(anchor, positive)) / temperature)
        for negative in negatives:
            denominator += math.exp(math.cos(angle(anchor, negative)) / temperature)
        losses.append(-math.log(numerator / denominator))
    return sum(losses) / len(losses)


def order_triplet_loss(anchors, near, far, *, margin):
    """ArcCSE eq. 4, mean over triplets."""
    losses = []
    for h, h1, h2 in zip(anchors, near, far, strict=True):
        losses.append(max(0.0, cosine(h, h2) - cosine(h, h1) + margin))
    return sum(losses) / len(losses) if losses else 0.0


def alignment(x, y, *, alpha):
    """ArcCSE eq. 6."""
    total = 0.0
    for a, b in zip(x, y, strict=True):
        difference = a / math.sqrt(np.dot(a, a)) - b / math.sqrt(np.dot(b, b))
        total += math.sqrt(np.dot(difference, difference)) ** alpha
    return total / len(x)


def uniformity(x, *, t):
    """ArcCSE eq. 7 over the pairs i < j."""
    potentials = []
    for i in range(len(x)):
        for j in range(i + 1, len(x)):
            difference = x[i] / math.sqrt(np.dot(x[i], x[i])) - x[j] / math.sqrt(np.dot(x[j], x[j]))
            potentials.append(math.exp(-t * np.dot(difference, difference)))
    return math.log(sum(potentials) / len(potentials))


def rake_scores(phrases):
    """PaSeR section 3.1.1 over the words of each phrase: wordScore = degree / frequency, summed over the phrase."""
    together = {}  # (a, b) -> how often a and b are in one phrase
    frequency = {}
    for phrase in phrases:
        for a in phrase:
            frequency[a] = frequency.get(a, 0) + 1
            for b in phrase:
                together[a, b] = together.get((a, b), 0) + 1
    scores = []
    for phrase in phrases:
        score = 0.0
        for word in phrase:
            degree = sum(count for (a, _), count in together.items() if a == word)
            score += degree / frequency[word]
        scores.append(score)
    return scores
