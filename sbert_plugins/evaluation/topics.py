"""Topics: do clusters and neighbours of the embeddings agree with the labels of the texts?"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.metrics import v_measure_score
from torch import Tensor

from .encoding import EmbeddingEvaluator, Encode, unit_rows
from .tables import data_file, read_fields, stem_of

logger = logging.getLogger(__name__)
_BLOCK = 512  # texts whose cosines to all texts are in memory at the same time


class TopicsEvaluator(EmbeddingEvaluator):
    """V-measure and neighbour purity, times 100, of texts with topics.

    STS measures which of two sentences is closer. Topics measure whether whole groups hold together. A
    training can gain on one and lose on the other.

    - ``v_measure``: k-means with as many clusters as topics on the normalised embeddings, the best of
      ``n_init`` starts, compared with the topics (Rosenberg and Hirschberg, 2007,
      https://aclanthology.org/D07-1043/). With 20 similar topics, results of different seeds still differ by
      up to one point.
    - ``purity@10``: the mean share of a text's ten nearest neighbours by cosine that have its topic. The text
      itself and exact copies of it are no neighbours. It depends on no seed.

    MTEB's clustering tasks use another procedure (mini-batches on samples), so the scores are not comparable.

    Args:
        sentences: The texts.
        labels: The topic of each text, strings or numbers. At least two topics, and fewer topics than texts.
        seed: Seed of k-means.
        neighbours: Number of neighbours. The metric is named after it.
        n_init: Number of starts of k-means.
        test_sets: Names of the test sets that the texts come from, if any.
        **options: ``name``, ``batch_size``, ``show_progress_bar`` and ``write_csv`` of
            ``EmbeddingEvaluator``.

    Returns:
        From a call, ``v_measure`` and ``purity@<neighbours>``, with the name in front.

    Raises:
        ValueError: For lists of different lengths, one topic, a topic of its own for each text, a text with
            fewer other texts than ``neighbours``, or embeddings that are not finite.

    Example:
        >>> from sbert_plugins import evaluation
        >>> titles = ["Rates rise again", "Shares fall in Asia", "Late goal wins the cup", "Striker is out"]
        >>> topics = ["money", "money", "sport", "sport"]
        >>> evaluator = evaluation.TopicsEvaluator(titles, topics, name="titles", neighbours=1)
        >>> v_measure = evaluator(model)["titles_v_measure"]
    """

    csv_file = "topics_results.csv"

    def __init__(
        self,
        sentences: Sequence[str],
        labels: Sequence[Any],
        *,
        seed: int = 0,
        neighbours: int = 10,
        n_init: int = 10,
        test_sets: tuple[str, ...] = (),
        **options: Any,
    ) -> None:
        super().__init__("v_measure", **options)
        self.sentences, self.labels = list(sentences), list(labels)
        count, topics, others = len(self.sentences), len(set(self.labels)), _fewest_others(self.sentences)
        if len(self.labels) != count or not 2 <= topics < count or not 1 <= neighbours <= others:
            raise ValueError(
                "Give one topic for each text, at least two topics that texts share, and more texts than "
                f"neighbours. Got {count} texts, {len(self.labels)} labels, {topics} topics, {neighbours} "
                f"neighbours, and a text with {others} other texts."
            )
        self.seed, self.neighbours, self.n_init = seed, neighbours, n_init
        self.test_sets = test_sets
        self.config = {
            "texts": count,
            "topics": topics,
            "clustering": f"k-means, best of {n_init} starts",
            "seed": seed,
        }

    def compute(self, encode: Encode) -> dict[str, float]:
        """Return v-measure and purity."""
        settings = {"neighbours": self.neighbours, "n_init": self.n_init, "seed": self.seed}
        return topic_scores(encode(self.sentences), self.labels, self.sentences, **settings)


def topic_scores(
    vectors: Tensor | np.ndarray,
    labels: Sequence[Any],
    texts: Sequence[str],
    *,
    neighbours: int = 10,
    n_init: int = 10,
    seed: int = 0,
) -> dict[str, float]:
    """Return the scores of ``TopicsEvaluator`` for vectors from any source.

    Args:
        vectors: (N, D), one row per text.
        labels: The topic of each text.
        texts: The texts, by which exact copies are recognised.
        neighbours: Number of neighbours.
        n_init: Number of starts of k-means.
        seed: Seed of k-means.

    Example:
        >>> import numpy as np
        >>> from sbert_plugins import evaluation
        >>> vectors = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
        >>> topics = ["sport", "sport", "trade", "trade"]
        >>> evaluation.topic_scores(vectors, topics, ["a", "b", "c", "d"], neighbours=1)
        {'v_measure': 100.0, 'purity@1': 100.0}
    """
    unit = unit_rows(vectors)
    clusters = KMeans(len(set(labels)), n_init=n_init, random_state=seed).fit(unit.cpu().numpy()).labels_
    purity = text_purities(unit, labels, texts, neighbours=neighbours).mean()
    return {
        "v_measure": 100 * float(v_measure_score(_numbers(labels), clusters)),
        f"purity@{neighbours}": 100 * float(purity),
    }


def text_purities(
    vectors: Tensor | np.ndarray, labels: Sequence[Any], texts: Sequence[str], *, neighbours: int = 10
) -> np.ndarray:
    """Return for each text the share of its nearest neighbours that have its topic.

    The arguments are those of ``topic_scores``.
    """
    unit = unit_rows(vectors)
    topics, copies = (torch.as_tensor(_numbers(values)).to(unit.device) for values in (labels, texts))
    shares = []
    for start in range(0, len(unit), _BLOCK):
        rows = slice(start, start + _BLOCK)
        cosines = unit[rows] @ unit.T
        cosines[copies[rows, None] == copies] = -torch.inf
        nearest = cosines.topk(neighbours, dim=1).indices  # (block, neighbours)
        shares.append((topics[nearest] == topics[rows, None]).double().mean(dim=1))
    return torch.cat(shares).cpu().numpy()


def _numbers(values: Sequence[Any]) -> np.ndarray:
    """Return the same number for equal values."""
    return np.unique(np.array(values, dtype=object), return_inverse=True)[1]


def agnews_topics(data_dir: str | Path | None = None, **options: Any) -> TopicsEvaluator:
    """Return the evaluator of 8,000 news articles in 4 topics: AG News, stop words removed.

    The collection has no splits. It may choose a checkpoint; then it is no longer a test set.

    Args:
        data_dir: Folder with ``clustering/agnews_8000.tsv.gz``. Default: ``SBERT_PLUGINS_DATA``.
        **options: Of ``TopicsEvaluator``.
    """
    return _topics_of(data_file(data_dir, "clustering", "agnews_8000.tsv.gz"), {"name": "agnews"} | options)


def biomedical_topics(data_dir: str | Path | None = None, **options: Any) -> TopicsEvaluator:
    """Return the evaluator of 20,000 titles of biomedical papers in 20 topics.

    The collection has no splits. It may choose a checkpoint; then it is no longer a test set.

    Args:
        data_dir: Folder with ``clustering/biomedical_titles.tsv.gz``. Default: ``SBERT_PLUGINS_DATA``.
        **options: Of ``TopicsEvaluator``.
    """
    return _topics_of(
        data_file(data_dir, "clustering", "biomedical_titles.tsv.gz"), {"name": "biomedical"} | options
    )


def own_topics(path: str | Path, **options: Any) -> TopicsEvaluator:
    """Return the evaluator of a file of texts with topics.

    Args:
        path: Lines of topic and text without header, separated by tabs or, in a ``.csv`` file, by commas.
            ``.gz`` is decompressed.
        **options: Of ``TopicsEvaluator``. By default no CSV file is written, the name is that of the file
            without its endings, and a file with fewer than eleven texts is scored with fewer neighbours.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: For a line with another number of fields, or fewer than two topics.
    """
    return _topics_of(path, {"name": stem_of(path), "write_csv": False} | options)


def _topics_of(path: str | Path, options: dict[str, Any]) -> TopicsEvaluator:
    rows = [fields for _, fields in read_fields(path, 2)]
    texts, topics = [text for _, text in rows], [topic.strip() for topic, _ in rows]
    if topics and topics.count(topics[0]) == 1:
        logger.warning(
            "%s: only the first line has the topic %r. Remove the line if it is a header.", path, topics[0]
        )
    return TopicsEvaluator(
        texts, topics, **({"neighbours": max(1, min(10, _fewest_others(texts)))} | options)
    )


def _fewest_others(texts: Sequence[str]) -> int:
    """Return the number of texts other than the most frequent one."""
    return len(texts) - max(Counter(texts).values(), default=0)
