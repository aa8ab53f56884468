"""Topics: do clusters and neighbours of the embeddings agree with the labels of the texts?"""

import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import torch
from sentence_transformers.util import SimilarityFunction
from sklearn.cluster import KMeans
from sklearn.metrics import v_measure_score
from torch import Tensor

from sbert_plugins.data.read import read_fields, stem_of

from .encoding import EmbeddingEvaluator, Encode, label_items, unit_rows

logger = logging.getLogger(__name__)

_BLOCK = 512  # texts whose cosines to all texts are in memory at the same time


class TopicsEvaluator(EmbeddingEvaluator):
    """Neighbour purity and v-measure, times 100, of texts with topics.

    STS measures which of two sentences is closer. Topics measure whether whole groups hold together. A
    training can gain on one and lose on the other.

    - ``purity@10``, the main score: the mean share of a text's ten nearest neighbours that have its topic.
      The text itself and exact copies of it are no neighbours. It depends on no seed.
    - ``v_measure``: k-means with as many clusters as topics, compared with the topics (Rosenberg and
      Hirschberg, 2007, https://aclanthology.org/D07-1043/). Its result depends on the seed of k-means, so it
      is the mean over ten seeds. ``v_measure_deviation`` is the standard deviation over these seeds.

    Neighbours are found by the similarity function of the model. K-means runs on the normalised embeddings if
    that is the cosine, otherwise on the embeddings themselves. MTEB's clustering tasks use another procedure
    (mini-batches on samples), so the scores are not comparable.

    Args:
        sentences: The texts.
        labels: The topic of each text, strings or numbers. At least two topics, and fewer topics than texts.
        seed: First seed of k-means.
        neighbours: Number of neighbours. The metric is named after it.
        clusterings: Number of seeds of k-means.
        **options: ``name``, ``batch_size``, ``show_progress_bar`` and ``write_csv`` of
            ``EmbeddingEvaluator``.

    Returns:
        From a call, ``purity@<neighbours>``, ``v_measure`` and ``v_measure_deviation``, with the name in
        front.

    Raises:
        ValueError: For lists of different lengths, an empty text or topic, one topic, a topic of its own for
            each text, a text with fewer other texts than ``neighbours``, or embeddings that are not finite.

    Example:
        >>> from sbert_plugins import evaluation
        >>> titles = ["Rates rise again", "Shares fall in Asia", "Late goal wins the cup", "Striker is out"]
        >>> topics = ["money", "money", "sport", "sport"]
        >>> evaluator = evaluation.TopicsEvaluator(titles, topics, name="titles", neighbours=1)
        >>> purity = evaluator(model)["titles_purity@1"]
    """

    noun = "texts"

    def __init__(
        self,
        sentences: Sequence[str],
        labels: Sequence[Any],
        *,
        seed: int = 0,
        neighbours: int = 10,
        clusterings: int = 10,
        **options: Any,
    ) -> None:
        super().__init__(f"purity@{neighbours}", **options)
        self.sentences, self.labels = list(sentences), list(labels)
        count, topics, others = len(self.sentences), len(set(self.labels)), _fewest_others(self.sentences)
        for row, (text, label) in enumerate(zip(self.sentences, self.labels, strict=True), start=1):
            if not text.strip() or label in (None, "") or label != label:
                raise ValueError(f"Text {row} of {count} or its topic is empty. Leave such texts out.")
        if not 2 <= topics < count or not 1 <= neighbours <= others:
            raise ValueError(
                "Topics need at least two topics that texts share, and more texts than neighbours. Got "
                f"{count} texts, {topics} topics, {neighbours} neighbours, and a text with {others} others."
            )
        self.seed, self.neighbours, self.clusterings = seed, neighbours, clusterings
        self.config = {
            "texts": count,
            "topics": topics,
            "clustering": f"k-means, mean over {clusterings} seeds",
            "seed": seed,
        }

    def compute(self, encode: Encode) -> dict[str, float]:
        """Return purity, v-measure and its deviation."""
        vectors = encode(self.sentences)
        values = purity_items(
            vectors, self.labels, self.sentences, neighbours=self.neighbours, similarity=self.similarity
        )
        self.items = label_items(100 * values, self.sentences)
        points = (unit_rows(vectors) if self.similarity == "cosine" else vectors).cpu().numpy()
        topics, measures = _number(self.labels), []
        for seed in range(self.seed, self.seed + self.clusterings):
            clusters = KMeans(topics.max() + 1, n_init=1, random_state=seed).fit(points).labels_
            measures.append(100 * v_measure_score(topics, clusters))
        return {
            f"purity@{self.neighbours}": 100 * float(values.mean()),
            "v_measure": float(np.mean(measures)),
            "v_measure_deviation": float(np.std(measures)),
        }


def purity_items(
    vectors: Tensor | np.ndarray,
    labels: Sequence[Any],
    texts: Sequence[str],
    *,
    neighbours: int = 10,
    similarity: str = "cosine",
) -> np.ndarray:
    """Return a value per text, whose mean is the purity and whose spread gives its error.

    A text counts for its own purity and for that of the texts that have it as a neighbour. Its value is
    therefore not its own purity alone, but what the sum of all purities loses if the text is left out, and
    the next neighbour takes its place: the jackknife.

    Args:
        vectors: (N, D), one row per text.
        labels: The topic of each text.
        texts: The texts, by which exact copies are recognised.
        neighbours: Number of neighbours.
        similarity: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``.
    """
    rows, compare = torch.as_tensor(vectors).float(), SimilarityFunction.to_similarity_fn(similarity)
    topics, copies = (torch.as_tensor(_number(values)).to(rows.device) for values in (labels, texts))
    purities, losses = [], torch.zeros(len(rows), dtype=torch.double, device=rows.device)
    for start in range(0, len(rows), _BLOCK):
        block = slice(start, start + _BLOCK)
        similarities = compare(rows[block], rows)
        similarities[copies[block, None] == copies] = -torch.inf
        nearest = similarities.topk(min(neighbours + 1, len(rows)), dim=1)  # (block, neighbours + 1)
        same = (topics[nearest.indices] == topics[block, None]).double()
        purity = same[:, :neighbours].mean(dim=1)
        following = torch.where(nearest.values[:, -1].isfinite(), same[:, -1], purity)
        lost = (same[:, :neighbours] - following[:, None]) / neighbours
        losses.index_add_(0, nearest.indices[:, :neighbours].flatten(), lost.flatten())
        purities.append(purity)
    values = torch.cat(purities)
    return (values + losses - losses.mean()).cpu().numpy()


def _number(values: Sequence[Any]) -> np.ndarray:
    """Return the same number for equal values, from 0."""
    return pandas.factorize(pandas.Series(values, dtype=object))[0]


def own_topics(path: str | Path, **options: Any) -> TopicsEvaluator:
    """Return the evaluator of a file of texts with topics.

    Args:
        path: Lines of topic and text, separated by tabs or, in a ``.csv`` file, by commas. ``.gz`` is
            decompressed.
        **options: Of ``TopicsEvaluator``. By default no CSV file is written, the name is that of the file
            without its endings, and a file with fewer than eleven texts is scored with fewer neighbours.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: For a line with another number of fields, an empty text or topic, or fewer than two
            topics.
    """
    rows = [fields for _, fields in read_fields(path, 2)]
    topics, texts = [topic.strip() for topic, _ in rows], [text for _, text in rows]
    if topics.count(topics[0] if topics else "") == 1:
        logger.warning(
            "%s: only the first line has the topic %r. Remove the line if it is a header.", path, topics[0]
        )
    neighbours = max(1, min(10, _fewest_others(texts)))
    defaults: dict[str, Any] = {"name": stem_of(path), "write_csv": False, "neighbours": neighbours}
    return TopicsEvaluator(texts, topics, **(defaults | options))


def _fewest_others(texts: Sequence[str]) -> int:
    """Return the number of texts other than the most frequent one."""
    return len(texts) - max(Counter(texts).values(), default=0)
