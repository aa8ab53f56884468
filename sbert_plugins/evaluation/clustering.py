"""Topics: do clusters and neighbourhoods of the vectors follow labels that nobody has trained on?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from sklearn.metrics import v_measure_score
from sklearn.metrics.cluster import contingency_matrix
from torch import Tensor

from .embeddings import EmbeddingEvaluator, Embeddings, check_finite
from .tables import data_path, read_table, whole_number

_BLOCK = 512  # texts whose cosines to all others are in memory at a time


def clustering_scores(
    vectors: Tensor | np.ndarray,
    labels: Sequence[Hashable],
    texts: Sequence[str],
    *,
    neighbours: int = 10,
    n_init: int = 10,
    seed: int = 0,
) -> dict[str, float]:
    r"""Score any vectors of labelled texts, an encoder's or not; :class:`ClusteringEvaluator` says how.

    Args:
        vectors: (N, D), one for each text.
        labels: The topic of each text.
        texts: They tell which rows are copies of one text.
        neighbours: Neighbours a text whose labels are looked at.
        n_init: Starts of k-means, of which the best by its own objective counts.
        seed: Of the starts.

    Returns:
        ``v_measure``, ``accuracy`` and ``purity@<neighbours>``, all x 100.

    Raises:
        ValueError: As in the class, or if ``vectors`` is not a matrix with a row for each text.

    Example:
        >>> import numpy as np
        >>> from sbert_plugins import evaluation
        >>> vectors = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
        >>> evaluation.clustering_scores(vectors, ["sport", "sport", "trade", "trade"], ["a", "b", "c", "d"], neighbours=1)
        {'v_measure': 100.0, 'accuracy': 100.0, 'purity@1': 100.0}
    """
    _check(labels, texts, neighbours)
    vectors = torch.as_tensor(vectors)
    if vectors.ndim != 2 or len(vectors) != len(texts):
        raise ValueError(f"vectors must be (texts, dimensions), ({len(texts)}, D), got {tuple(vectors.shape)}.")
    check_finite(vectors)
    vectors = torch.nn.functional.normalize(vectors.float(), dim=1)
    topics = _numbered(labels)
    kmeans = KMeans(len(set(labels)), n_init=n_init, random_state=seed).fit(vectors.cpu().numpy())
    counts = contingency_matrix(topics, kmeans.labels_)
    matched = counts[linear_sum_assignment(counts, maximize=True)].sum()
    return {
        "v_measure": 100 * float(v_measure_score(topics, kmeans.labels_)),
        "accuracy": 100 * float(matched / len(texts)),
        f"purity@{neighbours}": 100 * _purity(vectors, topics, _numbered(texts), neighbours),
    }


class ClusteringEvaluator(EmbeddingEvaluator):
    r"""V-measure, accuracy and neighbour purity of labelled texts, x 100.

    STS asks which of two sentences is nearer, topics ask whether whole groups hold together; a training can gain on one and
    lose on the other. All three look at directions only: vectors are L2-normalised first.

    1. scikit-learn's k-means with as many clusters as labels. Of ``n_init`` starts (k-means++) the one with the smallest sum
       of squares counts; labels have no part in that. One start is no number: on AG News the accuracy moves by points
       from seed to seed, and hardly with ten. On 20 topics of biomedical titles, where many clusterings are equally good, ten
       starts leave almost a point, as does float noise in the vectors: average over ``seed`` where a difference is that
       small.
    2. ``v_measure``, the primary metric, as in mteb (Rosenberg and Hirschberg, https://aclanthology.org/D07-1043/): the
       harmonic mean of homogeneity and completeness, :math:`2hc / (h + c)`.
    3. ``accuracy``: the share of texts in the cluster of their label, clusters matched to labels one to one as is best
       (scipy's ``linear_sum_assignment``).
    4. ``purity@10``: the mean share of a text's ten nearest neighbours by cosine that have its label, the text itself and
       exact copies of it left out. It needs no clustering, thus no seed.

    mteb clusters samples of a collection with mini-batches of it and takes the mean: these are not its numbers.

    Args:
        sentences: The texts.
        labels: The topic of each, any hashable.
        name: Prefix of the metric names.
        seed: Of the starts of k-means.
        neighbours: Neighbours a text; ``purity@10`` bears the number in its name. More texts of the same topics
            give more: compare scores on the same texts only.
        n_init: Starts of k-means.
        batch_size: Sentences an encoder call.
        show_progress_bar: Whether ``encode`` shows its bar.
        test_sets: Names of the test sets that the texts are from: choosing a checkpoint by their metrics warns.
        write_csv: Whether to append to ``<name>_clustering_results.csv`` in the evaluator's output path.

    Returns:
        Of a call: ``v_measure``, ``accuracy`` and ``purity@10``, with the name in front.

    Raises:
        ValueError: On fewer than two labels, lengths that differ, a text with fewer others than ``neighbours``, or embeddings
            that are not finite.

    Example:
        >>> from sbert_plugins import evaluation
        >>> titles = ["Rates rise again", "Shares fall in Asia", "Late goal wins the cup", "Striker out for a month"]
        >>> topics = ["money", "money", "sport", "sport"]
        >>> evaluator = evaluation.ClusteringEvaluator(titles, topics, name="titles", neighbours=1)
        >>> v_measure = evaluator(model)["titles_v_measure"]
    """

    csv_file = "clustering_results.csv"

    def __init__(
        self,
        sentences: Sequence[str],
        labels: Sequence[Hashable],
        *,
        name: str = "",
        seed: int = 0,
        neighbours: int = 10,
        n_init: int = 10,
        batch_size: int = 128,
        show_progress_bar: bool = False,
        test_sets: tuple[str, ...] = (),
        write_csv: bool = True,
    ) -> None:
        super().__init__(name=name, batch_size=batch_size, show_progress_bar=show_progress_bar, write_csv=write_csv)
        if isinstance(sentences, str):
            raise ValueError(f"sentences must be a list of texts, got the string {sentences!r}: put it in a list.")
        self.sentences, self.labels = list(sentences), list(labels)
        _check(self.labels, self.sentences, neighbours)
        if len(set(self.labels)) == len(self.labels):  # a cluster a text: found whatever the vectors are
            raise ValueError(f"labels must be topics that texts share, got another one for each of {len(self.labels)} texts.")
        self.seed = seed
        self.neighbours = neighbours
        self.n_init = n_init
        self.test_sets = test_sets
        self.primary_metric = "v_measure"

    def compute(self, embeddings: Embeddings) -> dict[str, float]:
        """Return the three scores."""
        settings = {"neighbours": self.neighbours, "n_init": self.n_init, "seed": self.seed}
        return clustering_scores(embeddings(self.sentences), self.labels, self.sentences, **settings)

    def get_config_dict(self) -> dict[str, Any]:
        """Return what is clustered, and how."""
        return {
            "texts": len(self.sentences),
            "labels": len(set(self.labels)),
            "clustering": f"k-means on normalised vectors, best of {self.n_init} starts",
            "seed": self.seed,
        }


def agnews_clustering(data_dir: str | Path | None = None, **keywords: Any) -> ClusteringEvaluator:
    """Tell world news, sport, business and science apart: 8,000 news of AG News, 2,000 a topic, stop words removed.

    The collection has no split and is for scoring only. It is no test set here: like STS-B dev it may choose a default or a
    checkpoint. Whoever reports it as a result chooses by something else, or says ``test_sets=("AG News",)`` and is warned.

    Args:
        data_dir: A directory with the folder ``clustering``, by default the one in ``SBERT_PLUGINS_DATA``.
        **keywords: Of :class:`ClusteringEvaluator`.
    """
    return _collection("agnews_8000.tsv.gz", data_dir, {"name": "agnews"} | keywords)


def biomedical_clustering(data_dir: str | Path | None = None, **keywords: Any) -> ClusteringEvaluator:
    """Tell 20 topics of biomedical papers apart by their titles: 20,000, 1,000 a topic.

    No test set either, as :func:`agnews_clustering` says.

    Args:
        data_dir: As in :func:`agnews_clustering`.
        **keywords: Of :class:`ClusteringEvaluator`.
    """
    return _collection("biomedical_titles.tsv.gz", data_dir, {"name": "biomedical"} | keywords)


def _collection(file: str, data_dir: str | Path | None, keywords: dict[str, Any]) -> ClusteringEvaluator:
    sentences, labels = [], []
    for place, (topic, text) in read_table(data_path(data_dir, "clustering", file), ("topic", "text")):
        sentences.append(text)
        labels.append(whole_number(topic, "topic", place))
    return ClusteringEvaluator(sentences, labels, **keywords)


def _purity(vectors: Tensor, topics: np.ndarray, copies: np.ndarray, neighbours: int) -> float:
    """Return the mean share of neighbours with a text's own topic; what shares a number in ``copies`` is one text."""
    topic, copy = (torch.as_tensor(numbers, device=vectors.device) for numbers in (topics, copies))
    hits = 0
    for start in range(0, len(vectors), _BLOCK):
        rows = slice(start, start + _BLOCK)
        cosines = vectors[rows] @ vectors.T
        cosines[copy[rows, None] == copy] = -torch.inf
        nearest = cosines.topk(neighbours, dim=1).indices  # (block, neighbours)
        hits += int((topic[nearest] == topic[rows, None]).sum())
    return hits / (neighbours * len(vectors))


def _numbered(values: Sequence[Hashable]) -> np.ndarray:
    """Return a number for each value, the same for equal ones."""
    numbers = {value: i for i, value in enumerate(dict.fromkeys(values))}
    return np.array([numbers[value] for value in values])


def _check(labels: Sequence[Hashable], texts: Sequence[str], neighbours: int) -> None:
    if any(isinstance(label, Tensor) for label in labels):  # each is another one, whatever its value
        raise ValueError("labels must be topics such as strings or numbers, got tensors: say labels.tolist().")
    if len(labels) != len(texts):
        raise ValueError(f"labels must be one for each text, got {len(labels)} for {len(texts)} texts.")
    if (count := len(set(labels))) < 2:
        raise ValueError(f"labels must be of two topics or more, got {count}: one topic is found whatever the vectors are.")
    if any(label != label for label in labels):
        raise ValueError("labels must be topics, got NaN: leave such texts out.")
    if neighbours < 1:
        raise ValueError(f"neighbours must be at least 1, got {neighbours}.")
    others = len(texts) - max(Counter(texts).values())
    if others < neighbours:
        raise ValueError(
            f"neighbours must be at most the number of other texts, got {neighbours} for a text with {others} others "
            f"(of {len(texts)}, copies left out): give more texts or lower neighbours."
        )
