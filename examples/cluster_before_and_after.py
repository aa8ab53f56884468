"""Cluster texts with scikit-learn, and find the nearest text of each, before and after an adaptation to them.

    python examples/cluster_before_and_after.py topics.tsv

Each line of ``topics.tsv`` is a topic and a text, separated by a tab. The model is trained on the texts
alone. The topics only score the result. Without a network, add ``--offline``: the start is then the
all-MiniLM-L6-v2 of the extra ``offline``.
"""

import sys

import numpy as np
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sklearn.cluster import KMeans
from sklearn.metrics import v_measure_score

from sbert_plugins import evaluation, recipes

UPDATES = 60


def cluster(model: SentenceTransformer, texts: list[str], topics: list[str]) -> tuple[float, np.ndarray]:
    """Return the v-measure of clusters of the texts (100 if they equal the topics), and the nearest texts."""
    vectors = model.encode(texts, normalize_embeddings=True)
    # BERTopic takes the same vectors: BERTopic().fit_transform(texts, vectors)
    clusters = KMeans(n_clusters=len(set(topics)), n_init=10, random_state=0).fit_predict(vectors)
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -np.inf)
    return 100 * v_measure_score(topics, clusters), cosines.argmax(axis=1)


def main() -> None:
    """Train and cluster."""
    labelled = evaluation.own_topics(sys.argv[1])
    texts, topics = labelled.sentences, labelled.labels
    if "--offline" in sys.argv:
        model = recipes.offline_encoder(num_layers=6)
    else:
        model = SentenceTransformer("sentence-transformers/all-MiniLM-L6-v2")
    v_before, before = cluster(model, texts, topics)
    sentences = Dataset.from_dict({"anchor": texts})
    # Scores the share of neighbours with the same topic, too, before and after.
    results = recipes.train(
        "recommended", sentences, model, output="runs/clusters", evaluators=[labelled], max_steps=UPDATES
    )
    v_after, after = cluster(model, texts, topics)
    names = np.array(topics)
    was_right, is_right = names[before] == names, names[after] == names
    became_right = np.flatnonzero(~was_right & is_right)
    for place in became_right[:3]:
        print(f"\n{topics[place]}: {texts[place]}")
        for when, found in (("before", before[place]), ("after", after[place])):
            print(f"  nearest {when}, {topics[found]}: {texts[found]}")
    print(
        f"\n{len(became_right)} nearest texts got the right topic, {(was_right & ~is_right).sum()} lost it."
    )
    print(f"v-measure of the clusters: {v_before:.1f} before, {v_after:.1f} after")
    print(*results["verdict"], sep="\n")


if __name__ == "__main__":
    main()
