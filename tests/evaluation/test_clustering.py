import gzip

import numpy as np
import pytest
import torch
from encoders import project_text
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

from sbert_plugins import evaluation
from sbert_plugins.evaluation import ClusteringEvaluator, OnePassEvaluator, clustering_scores


def at(*degrees):
    """Unit vectors in the plane."""
    angles = np.deg2rad(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def names(vectors):
    return [f"text {i}" for i in range(len(vectors))]


class TestScores:
    def test_perfect_clusters(self):
        vectors = at(0, 1, 2, 90, 91, 92)
        scores = clustering_scores(vectors, [7, 7, 7, 3, 3, 3], names(vectors), neighbours=2)
        assert scores == {"v_measure": 100, "accuracy": 100, "purity@2": 100}

    def test_the_names_of_the_clusters_do_not_matter(self):
        vectors, labels = at(0, 1, 120, 121, 240, 241), ["c", "c", "a", "a", "b", "b"]
        for seed in range(4):
            assert clustering_scores(vectors, labels, names(vectors), neighbours=1, seed=seed)["accuracy"] == 100

    def test_one_text_in_the_wrong_cluster(self):
        r"""Clusters {a a b} and {b b}: four of five are matched.

        H(label) = H(2/5) = .6730 nats. H(label | cluster) = 3/5 H(1/3) = .3819, so homogeneity is 1 - .3819/.6730 = .4325.
        H(cluster) = H(2/5) as well and H(cluster | label) = 3/5 H(1/3): completeness, and thus v, is .4325 too.
        """
        vectors = at(0, 1, 2, 90, 91)
        scores = clustering_scores(vectors, ["a", "a", "b", "b", "b"], names(vectors), neighbours=1)
        assert scores["accuracy"] == pytest.approx(80)
        assert scores["v_measure"] == pytest.approx(43.2538, abs=1e-3)

    def test_matched_one_to_one(self):
        """Both clusters hold more of a than of b; only one of them may be a: (2 + 1) / 6, not 4 / 6."""
        vectors = at(0, 1, 2, 90, 91, 92)
        scores = clustering_scores(vectors, ["a", "a", "b", "a", "a", "b"], names(vectors), neighbours=1)
        assert scores["accuracy"] == pytest.approx(50)
        assert scores["v_measure"] == pytest.approx(0, abs=1e-9)

    def test_purity_by_hand(self):
        """Two nearest of each: 0: 10 25 | 10: 0 25 | 25: 10 0 | 60: 70 25 | 70: 60 25. Hits 1 + 1 + 0 + 2 + 2 of 10."""
        vectors = at(0, 10, 25, 60, 70)
        scores = clustering_scores(vectors, ["a", "a", "b", "b", "b"], names(vectors), neighbours=2)
        assert scores["purity@2"] == pytest.approx(60)

    def test_the_length_of_a_vector_does_not_matter(self):
        vectors, labels = at(0, 10, 25, 60, 70), ["a", "a", "b", "b", "b"]
        longer = vectors * np.array([[1], [30], [0.1], [5], [2]])
        expected = clustering_scores(vectors, labels, names(vectors), neighbours=2)
        assert clustering_scores(longer, labels, names(vectors), neighbours=2) == pytest.approx(expected)

    def test_copies_of_a_text_are_no_neighbours(self):
        """Without its copy, of its own label, the nearest of "x" is "y", of the other."""
        vectors, labels = at(0, 0, 10, 90), ["a", "a", "b", "b"]
        assert clustering_scores(vectors, labels, ["x", "x", "y", "z"], neighbours=1)["purity@1"] == pytest.approx(25)
        assert clustering_scores(vectors, labels, ["x", "w", "y", "z"], neighbours=1)["purity@1"] == pytest.approx(75)

    def test_in_blocks(self, monkeypatch):
        """As a loop over all texts has it, whatever the block."""
        rng = np.random.default_rng(0)
        vectors, labels = rng.standard_normal((50, 5)), rng.integers(3, size=50).tolist()
        texts = [f"text {i % 45}" for i in range(50)]
        hits = []
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        for i in range(50):
            others = [j for j in range(50) if texts[j] != texts[i]]
            nearest = sorted(others, key=lambda j: -unit[i] @ unit[j])[:10]
            hits += [labels[j] == labels[i] for j in nearest]
        for block in (1, 7, 50, 512):
            monkeypatch.setattr("sbert_plugins.evaluation.clustering._BLOCK", block)
            assert clustering_scores(vectors, labels, texts)["purity@10"] == pytest.approx(100 * np.mean(hits))

    def test_the_same_every_time(self):
        rng = np.random.default_rng(0)
        vectors, labels = rng.standard_normal((300, 8)), rng.integers(5, size=300).tolist()
        first = clustering_scores(vectors, labels, names(vectors))
        torch.manual_seed(1)
        np.random.seed(1)  # noqa: NPY002 (the global state is what must not matter)
        assert clustering_scores(vectors, labels, names(vectors)) == first
        assert clustering_scores(torch.tensor(vectors), np.array(labels), names(vectors)) == first
        assert clustering_scores(vectors, labels, names(vectors), seed=1) != first

    def test_more_topics_than_different_vectors(self):
        """A collapsed encoder has a score as well."""
        with pytest.warns(match="Number of distinct clusters"):
            scores = clustering_scores(np.ones((6, 2)), [0, 0, 1, 1, 2, 2], list("abcdef"), neighbours=1)
        assert scores["v_measure"] == pytest.approx(0)
        assert scores["accuracy"] == pytest.approx(100 / 3)


class TestBadInput:
    @pytest.mark.parametrize(
        ("texts", "labels", "keywords", "message"),
        [
            (["a", "b"], [0], {}, "labels must be one for each text, got 1 for 2 texts"),
            (["a", "b"], [0, 0], {}, "labels must be of two topics or more, got 1"),
            ([], [], {}, "labels must be of two topics or more, got 0"),
            (["a", "b"], [0, 1], {"neighbours": 0}, "neighbours must be at least 1, got 0"),
            (
                list("abcdefghij"),
                [0, 1] * 5,
                {},
                r"got 10 for a text with 9 others \(of 10, copies left out\): give more texts",
            ),
            (["a", "a", "b"], [0, 0, 1], {"neighbours": 2}, "got 2 for a text with 1 others"),
            (["a", "b"], torch.tensor([0, 1]), {}, r"strings or numbers, got tensors: say labels.tolist\(\)"),
        ],
    )
    def test_texts_and_labels(self, texts, labels, keywords, message):
        with pytest.raises(ValueError, match=message):
            ClusteringEvaluator(texts, labels, **keywords)
        with pytest.raises(ValueError, match=message):
            clustering_scores(np.ones((len(texts), 2)), labels, texts, **keywords)

    def test_one_string(self):
        with pytest.raises(ValueError, match="sentences must be a list of texts, got the string 'abab': put it in a list"):
            ClusteringEvaluator("abab", [0, 1, 0, 1], neighbours=1)

    @pytest.mark.parametrize("shape", [(3, 2), (2,), (2, 2, 2)])
    def test_vectors(self, shape):
        with pytest.raises(ValueError, match=r"vectors must be \(texts, dimensions\), \(2, D\), got \("):
            clustering_scores(np.ones(shape), [0, 1], ["a", "b"], neighbours=1)

    def test_vectors_that_are_not_finite(self):
        with pytest.raises(ValueError, match="embeddings must be finite, got NaN or infinity for 1 of 2 sentences"):
            clustering_scores(np.array([[0, 1], [np.nan, 1]]), [0, 1], ["a", "b"], neighbours=1)

    def test_a_diverged_model(self, tiny_encoder):
        model = tiny_encoder()
        with torch.no_grad():
            model[0].model.embeddings.word_embeddings.weight.fill_(float("nan"))
        with pytest.raises(ValueError, match="embeddings must be finite"):
            topics()(model)

    def test_files(self, tmp_path, monkeypatch):
        with pytest.raises(FileNotFoundError, match="agnews_8000.tsv.gz does not exist: .* whose folder clustering holds"):
            evaluation.agnews_clustering(tmp_path)
        (tmp_path / "clustering").mkdir()
        (tmp_path / "clustering" / "biomedical_titles.tsv.gz").write_bytes(gzip.compress(b"1\ta title\nanother title\t2\n"))
        with pytest.raises(ValueError, match="line 2: topic must be a whole number from 0, got 'another title'"):
            evaluation.biomedical_clustering(tmp_path)
        monkeypatch.delenv("SBERT_PLUGINS_DATA", raising=False)
        with pytest.raises(FileNotFoundError, match="set SBERT_PLUGINS_DATA"):
            evaluation.agnews_clustering()


def topics(**keywords):
    """Sentences whose topic is in their words; two are there twice."""
    text = project_text()[:38]
    sentences = [f"{sentence} {['cat dog', 'tax bank'][i % 2] * 4}" for i, sentence in enumerate(text)]
    return ClusteringEvaluator([*sentences, *sentences[:2]], [i % 2 for i in range(40)], write_csv=False, **keywords)


class TestEvaluator:
    def test_it_scores_the_models_vectors(self, tiny_encoder):
        model, evaluator = tiny_encoder(pooling="mean"), topics(name="pets", neighbours=3, n_init=2, seed=5)
        vectors = model.encode(evaluator.sentences)
        expected = clustering_scores(vectors, evaluator.labels, evaluator.sentences, neighbours=3, n_init=2, seed=5)
        metrics = evaluator(model)
        assert metrics == pytest.approx({f"pets_{name}": value for name, value in expected.items()})
        assert metrics["pets_purity@3"] > 60
        assert evaluator(model) == metrics

    def test_card_csv_and_primary_metric(self, tiny_encoder, tmp_path):
        model, evaluator = tiny_encoder(), topics(name="pets")
        evaluator.write_csv = True
        metrics = evaluator(model, str(tmp_path), epoch=1, steps=2)
        assert evaluator.primary_metric == "pets_v_measure"
        assert evaluator.description == "Clustering"
        lines = (tmp_path / "pets_clustering_results.csv").read_text(encoding="utf-8").splitlines()
        assert lines[0] == "epoch,steps,v_measure,accuracy,purity@10"
        assert model.model_card_data.eval_results_dict[evaluator] == metrics
        assert evaluator.get_config_dict()["clustering"] == "k-means on normalised vectors, best of 10 starts"
        assert (evaluator.test_sets, topics(test_sets=("AG News",)).test_sets) == ((), ("AG News",))

    def test_on_one_pass(self, tiny_encoder):
        model = tiny_encoder(pooling="mean")
        text = project_text()[:20]
        pairs = EmbeddingSimilarityEvaluator(text[:10], text[10:], [i / 10 for i in range(10)], write_csv=False)
        metrics = OnePassEvaluator([topics(name="pets"), pairs])(model)
        alone = topics(name="pets")(model)
        assert {name: metrics[name] for name in alone} == pytest.approx(alone, abs=1e-4)
        assert metrics["sequential_score"] == metrics["pets_v_measure"]


class TestRealCollections:
    @pytest.mark.parametrize(
        ("load", "texts", "topics"), [("agnews_clustering", 8000, 4), ("biomedical_clustering", 20_000, 20)]
    )
    def test_what_is_read(self, data_dir, load, texts, topics):
        evaluator = getattr(evaluation, load)(data_dir, n_init=3)
        counts = np.unique(evaluator.labels, return_counts=True)[1]
        assert counts.tolist() == [texts // topics] * topics
        assert evaluator.test_sets == ()
        assert evaluator.n_init == 3
        assert not any(text != text.strip() for text in evaluator.sentences)

    @pytest.mark.slow
    def test_a_subset_of_the_news(self, data_dir, minilm):
        """75 of each topic; a guess has purity and accuracy near 25 and next to no v-measure."""
        whole = evaluation.agnews_clustering(data_dir)
        kept = [i for topic in (1, 2, 3, 4) for i in [i for i, label in enumerate(whole.labels) if label == topic][:75]]
        evaluator = ClusteringEvaluator([whole.sentences[i] for i in kept], [whole.labels[i] for i in kept])
        metrics = evaluator(minilm)
        assert metrics["purity@10"] > 60
        assert metrics["accuracy"] > 60
        assert metrics["v_measure"] > 40


def test_v_measure_is_of_both_sides():
    """Clusters {a a b}, {a a a}: homogeneity 1 - H(1/3) / 2 / H(1/6) = .2936, completeness 1 - 5/6 H(2/5) / H(1/2) = .1909."""
    vectors = at(0, 1, 2, 90, 91, 92)
    scores = clustering_scores(vectors, ["a", "a", "b", "a", "a", "a"], names(vectors), neighbours=1)
    assert scores["v_measure"] == pytest.approx(100 * 2 * 0.29362 * 0.19087 / (0.29362 + 0.19087), abs=1e-2)


def test_the_best_of_several_starts():
    rng = np.random.default_rng(0)
    vectors, labels = rng.standard_normal((300, 8)), rng.integers(5, size=300).tolist()
    scores = [clustering_scores(vectors, labels, names(vectors), n_init=count)["v_measure"] for count in (1, 10)]
    assert scores[0] != scores[1]
