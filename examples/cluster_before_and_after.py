"""Cluster texts with scikit-learn, before and after a model was adapted to them.

    python examples/cluster_before_and_after.py topics.tsv

Each line of ``topics.tsv`` is a topic and a text, separated by a tab. The model is trained on the texts
alone. The topics only score the clusters. Without a network, add ``--offline``: the start is then the
all-MiniLM-L6-v2 of the extra ``offline``.
"""

import sys

from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sklearn.cluster import KMeans
from sklearn.metrics import v_measure_score

from sbert_plugins import evaluation, recipes

UPDATES = 60


def cluster(model: SentenceTransformer, texts: list[str], topics: list[str]) -> float:
    """Cluster the texts, print one cluster, and return the v-measure: 100 if clusters equal topics."""
    vectors = model.encode(texts, normalize_embeddings=True)
    # BERTopic takes the same vectors: BERTopic().fit_transform(texts, vectors)
    clusters = KMeans(n_clusters=len(set(topics)), n_init=10, random_state=0).fit_predict(vectors)
    print(
        "  one cluster:",
        *[text[:80] for text, number in zip(texts, clusters, strict=True) if number == 0][:5],
        sep="\n    ",
    )
    return 100 * v_measure_score(topics, clusters)


def main() -> None:
    """Train and cluster."""
    labelled = evaluation.own_topics(sys.argv[1])
    texts, topics = labelled.sentences, labelled.labels
    if "--offline" in sys.argv:
        model = recipes.offline_encoder(num_layers=6)
    else:
        model = SentenceTransformer("sentence-transformers/all-MiniLM-L6-v2")
    before = cluster(model, texts, topics)
    sentences = Dataset.from_dict({"anchor": texts})
    # Scores the share of neighbours with the same topic, too, before and after.
    results = recipes.train(
        "recommended", sentences, model, output="runs/clusters", evaluators=[labelled], max_steps=UPDATES
    )
    after = cluster(model, texts, topics)
    print(f"v-measure of the clusters: {before:.1f} before, {after:.1f} after")
    print(*results["verdict"], sep="\n")


if __name__ == "__main__":
    main()
