"""The papers' equations once more, written from the papers alone: numpy, float64, loops, no torch.

Independent of ``sbert_plugins.functional`` on purpose (arccos where that uses an identity, sums where that
uses ``cross_entropy``), so that a mistake is not made twice.
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
        numerator = math.exp(
            math.cos(angle(anchor, positives[i]) + math.radians(margin_degrees)) / temperature
        )
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
    """PaSeR section 3.1.1: the sum over a phrase's words of degree / frequency."""
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


def decoding_signal(sentence, masked, *, m, n):
    """PaSeR eq. 2, number by number."""
    signal = []
    for s, k in zip(sentence, masked, strict=True):
        difference, product = [], []
        for a, b in zip(s, k, strict=True):
            difference.append(m * (a - b if a > b else b - a))
            product.append(n * (a * b if a * b > 0 else -a * b))
        signal.append([list(s), list(k), difference, product])
    return np.array(signal)


def mean_negative_log_likelihood(logits, targets):
    """PaSeR eq. 3, mean over tokens."""
    losses = []
    for row, target in zip(logits, targets, strict=True):
        highest = max(row)
        losses.append(-(row[target] - highest - math.log(sum(math.exp(x - highest) for x in row))))
    return sum(losses) / len(losses) if losses else 0.0


def token_weight(p, t):
    """min(1, sqrt(t / p)), 1 for what never occurs."""
    return 1.0 if p == 0 else min(1.0, math.sqrt(t / p))


def weighted_negative_log_likelihood(logits, targets, weights):
    """A mean over tokens in which some count less."""
    total = sum(
        weight * class_loss(row, target) for row, target, weight in zip(logits, targets, weights, strict=True)
    )
    return total / sum(weights)


def bag_of_words_loss(texts, logits, weights):
    """``texts`` are lists of words, ``logits[i][c]`` scores word c for text i, ``weights[c]`` weighs it."""
    candidates = sorted({word for text in texts for word in text})
    total = mass = 0.0
    for text, scores in zip(texts, logits, strict=True):
        below = sum(math.exp(scores[candidate]) for candidate in candidates)
        for word in text:
            total -= weights[word] * math.log(math.exp(scores[word]) / below)
            mass += weights[word]
    return total / mass


def balance_factor(main, other, *, rho):
    """So that ``other`` times it is at most ``rho`` times ``main``."""
    return 1.0 if other <= rho * main else rho * main / other


def class_loss(logits, target):
    """Cross entropy of one row."""
    total = sum(math.exp(x) for x in logits)
    return -math.log(math.exp(logits[target]) / total)


def token_class_loss(logits, targets, counted):
    """SLT-FAI eq. 4: mean over the counted tokens of each sentence, then over sentences that have any."""
    means = []
    for rows, labels, flags in zip(logits, targets, counted, strict=True):
        losses = [
            class_loss(row, label) for row, label, flag in zip(rows, labels, flags, strict=True) if flag
        ]
        if losses:
            means.append(sum(losses) / len(losses))
    return sum(means) / len(means) if means else 0.0


def incomplete_sentence_loss(original, incomplete, usable):
    """SLT-FAI eq. 6: original sentences are class 0, incomplete ones class 1."""
    losses = []
    for whole, lacking, flag in zip(original, incomplete, usable, strict=True):
        if flag:
            losses.append(class_loss(lacking, 1) + class_loss(whole, 0))
    return sum(losses) / len(losses) if losses else 0.0


def nt_xent(first, second, *, temperature):
    """ConSERT eq. 1, over both views as anchors; all views but the anchor are in the denominator."""
    views = [*first, *second]
    losses = []
    for i, anchor in enumerate(views):
        partner = (i + len(first)) % len(views)
        denominator = sum(
            math.exp(cosine(anchor, view) / temperature) for k, view in enumerate(views) if k != i
        )
        losses.append(-math.log(math.exp(cosine(anchor, views[partner]) / temperature) / denominator))
    return sum(losses) / len(losses)


def similarity_distillation(student, teacher, *, temperature, teacher_temperature):
    """RankCSE's ListNet term: cross entropy of the teacher's and the student's shares of the other rows."""

    def shares(rows, i, temperature):
        powers = [math.exp(cosine(rows[i], row) / temperature) for j, row in enumerate(rows) if j != i]
        return [power / sum(powers) for power in powers]

    losses = []
    for i in range(len(student)):
        p, q = shares(teacher, i, teacher_temperature), shares(student, i, temperature)
        losses.append(-sum(a * math.log(b) for a, b in zip(p, q, strict=True)))
    return sum(losses) / len(losses)


def listwise_distillation(student, teacher, *, temperature):
    """ListNet: cross entropy of the shares of each list; a score of minus infinity is not in the list."""
    losses = []
    for scores, targets in zip(student, teacher, strict=True):
        kept = [(score, target) for score, target in zip(scores, targets, strict=True) if target > -math.inf]
        total = sum(math.exp(target) for _, target in kept)
        normaliser = math.log(sum(math.exp(score / temperature) for score, _ in kept))
        losses.append(
            -sum(math.exp(target) / total * (score / temperature - normaliser) for score, target in kept)
        )
    return sum(losses) / len(losses)


def layer_norm(x, weight, bias, epsilon=1e-5):
    return (x - x.mean()) / math.sqrt(((x - x.mean()) ** 2).mean() + epsilon) * weight + bias


def gelu(x):
    return np.array([0.5 * value * (1 + math.erf(value / math.sqrt(2))) for value in x])


def attention(queries, keys, values, num_heads, sees):
    """Vaswani et al. eq. 1 in each head; query i sees key j if ``sees(i, j)``."""
    out = np.zeros_like(queries)
    width = queries.shape[1] // num_heads
    for head in range(num_heads):
        part = slice(head * width, (head + 1) * width)
        for i, query in enumerate(queries[:, part]):
            places = [j for j in range(len(keys)) if sees(i, j)]
            scores = [math.exp(np.dot(query, keys[j, part]) / math.sqrt(width)) for j in places]
            for j, score in zip(places, scores, strict=True):
                out[i, part] += score / sum(scores) * values[j, part]
    return out


def phrase_decoder(word_embeddings, memory, weights, *, num_layers, num_heads):
    """PaSeR section 3.2.3 for one phrase: a post-norm decoder with learned positions."""

    def attend(name, queries, keys, sees):
        q, k, v = np.split(weights[f"{name}.in_proj_weight"], 3)
        bq, bk, bv = np.split(weights[f"{name}.in_proj_bias"], 3)
        mixed = attention(queries @ q.T + bq, keys @ k.T + bk, keys @ v.T + bv, num_heads, sees)
        return mixed @ weights[f"{name}.out_proj.weight"].T + weights[f"{name}.out_proj.bias"]

    def normed(name, rows):
        return np.array([layer_norm(row, weights[f"{name}.weight"], weights[f"{name}.bias"]) for row in rows])

    hidden = normed("norm", word_embeddings + weights["positions.weight"][: len(word_embeddings)])
    for i in range(num_layers):
        layer = f"layers.layers.{i}"
        hidden = normed(
            f"{layer}.norm1", hidden + attend(f"{layer}.self_attn", hidden, hidden, lambda i, j: j <= i)
        )
        hidden = normed(
            f"{layer}.norm2", hidden + attend(f"{layer}.multihead_attn", hidden, memory, lambda i, j: True)
        )
        inner = [
            gelu(row @ weights[f"{layer}.linear1.weight"].T + weights[f"{layer}.linear1.bias"])
            for row in hidden
        ]
        outer = np.array(inner) @ weights[f"{layer}.linear2.weight"].T + weights[f"{layer}.linear2.bias"]
        hidden = normed(f"{layer}.norm3", hidden + outer)
    return hidden


def denoising_decoder(embedded, memory, weights, *, num_layers, num_heads, attended):
    """DenoSent eq. 1 and 3 for one sentence: no causal mask, and a softmax over a memory of length one."""

    def linear(name, rows):
        return rows @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def normed(name, rows):
        return np.array([layer_norm(row, weights[f"{name}.weight"], weights[f"{name}.bias"]) for row in rows])

    hidden = np.array(embedded)
    for i in range(num_layers):
        layer = f"layers.{i}"
        queries, keys, values = np.split(linear(f"{layer}.self_in", hidden), 3, axis=1)
        mixed = attention(queries, keys, values, num_heads, lambda i, j: attended[j])
        hidden = normed(f"{layer}.norm1", hidden + linear(f"{layer}.self_out", mixed))
        memory_values = linear(f"{layer}.memory_value", memory[None])
        mixed = attention(hidden, memory[None], memory_values, num_heads, lambda i, j: True)
        hidden = normed(f"{layer}.norm2", hidden + linear(f"{layer}.memory_out", mixed))
        inner = np.maximum(linear(f"{layer}.linear1", hidden), 0.0)
        hidden = normed(f"{layer}.norm3", hidden + linear(f"{layer}.linear2", inner))
    return hidden


def bert_embeddings(ids, weights):
    """The input of BERT's first layer: the sum of word, place and type, normed, from a dict of arrays."""
    norm = weights["LayerNorm.weight"], weights["LayerNorm.bias"], 1e-12
    rows = []
    for place, word in enumerate(ids):
        row = weights["word_embeddings.weight"][word] + weights["position_embeddings.weight"][place]
        rows.append(layer_norm(row + weights["token_type_embeddings.weight"][0], *norm))
    return np.array(rows)


def attend(readers, read, weights, name, *, num_heads):
    """Attention with biases and without an output matrix, as BERT's, from a dict of arrays."""
    maps = {"query": readers, "key": read, "value": read}
    parts = [
        rows @ weights[f"{name}.{part}.weight"].T + weights[f"{name}.{part}.bias"]
        for part, rows in maps.items()
    ]
    return attention(*parts, num_heads, lambda i, j: True)


def pseudo_token_mapping(pseudo_tokens, sentence, tokens, length, *, query, key, value):
    """PT-BERT eq. 1 to 3 for one sentence, as printed: its first ``length`` tokens are no padding."""
    width = pseudo_tokens.shape[1]
    tokens = tokens[:length]
    pseudo_sentence = np.zeros_like(pseudo_tokens)
    for i, pseudo_token in enumerate(pseudo_tokens):
        scores = [math.exp(np.dot(pseudo_token @ query, token @ key) / math.sqrt(width)) for token in tokens]
        for score, token in zip(scores, tokens, strict=True):
            pseudo_sentence[i] += score / sum(scores) * (token @ value)
    scores = [math.exp(np.dot(sentence @ query, row @ key) / math.sqrt(width)) for row in pseudo_sentence]
    mapped = np.zeros(width)
    for score, row in zip(scores, pseudo_sentence, strict=True):
        mapped += score / sum(scores) * (row @ value)
    return mapped


def queue_info_nce(queries, positives, negatives, *, temperature):
    """PT-BERT eq. 4, mean over sentences; ``negatives`` has a list for each."""
    losses = []
    for query, positive, others in zip(queries, positives, negatives, strict=True):
        numerator = math.exp(cosine(query, positive) / temperature)
        denominator = numerator
        for other in others:
            denominator += math.exp(cosine(query, other) / temperature)
        losses.append(-math.log(numerator / denominator))
    return sum(losses) / len(losses)


def last(batches, size):
    """The vectors of a queue after some batches, oldest first: a list, as in the paper, and not a ring."""
    queue = []
    for batch in batches:
        for row in batch:
            queue.append(row)
            if len(queue) > size:
                queue.pop(0)
    return queue


def momentum_update(slow, fast, *, m):
    """PT-BERT eq. 5."""
    return [m * a + (1 - m) * b for a, b in zip(slow, fast, strict=True)]


def idf(count, total):
    """Inverse document frequency of BM25, at least 0.001."""
    return max(0.001, math.log(1 + (total - count + 0.5) / (count + 0.5)))


def weighted_mean(tokens, weights):
    """The mean of the token vectors of one text, each with its weight."""
    return sum(weight * token for weight, token in zip(weights, tokens, strict=True)) / sum(weights)
