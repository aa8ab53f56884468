import numpy as np
import pytest
import torch
from encoders import project_text
from evaluation_inputs import write_rows

from sbert_plugins.evaluation import TopicsEvaluator, own_topics, topics


def at(*degrees):
    """Unit vectors in the plane."""
    angles = np.deg2rad(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def names(vectors):
    return [f"text {i}" for i in range(len(vectors))]


def topic_scores(vectors, labels, texts, similarity="cosine", **settings):
    """The scores of given vectors."""
    evaluator = TopicsEvaluator(texts, labels, **settings)
    evaluator.similarity = similarity
    return evaluator.compute(lambda _: torch.as_tensor(vectors).float())


class TestScores:
    @pytest.mark.parametrize(
        ("degrees", "labels", "neighbours", "expected"),
        [
            ((0, 1, 2, 90, 91, 92), [7, 7, 7, 3, 3, 3], 2, {"purity@2": 100, "v_measure": 100}),
            ((0, 1, 90, 91), [1, 1, "b", "b"], 1, {"purity@1": 100, "v_measure_deviation": 0}),
            # Clusters {a a b} and {b b}. H(label) = H(2/5) = 0.6730 nats, and H(label | cluster) is
            # 3/5 H(1/3) = 0.3819: homogeneity 1 - 0.3819 / 0.6730 = 0.4325. H(cluster) and
            # H(cluster | label) are the same, so completeness and v-measure are 0.4325, too.
            ((0, 1, 2, 90, 91), list("aabbb"), 1, {"v_measure": 43.2538}),
            # {a a b}, {a a a}: 1 - H(1/3) / 2 / H(1/6) = 0.29362 and 1 - 5/6 H(2/5) / H(1/2) = 0.19087.
            ((0, 1, 2, 90, 91, 92), list("aabaaa"), 1, {"v_measure": 200 / (1 / 0.29362 + 1 / 0.19087)}),
        ],
    )
    def test_clusters_by_hand(self, degrees, labels, neighbours, expected):
        found = topic_scores(at(*degrees), labels, names(degrees), neighbours=neighbours)
        assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-4)

    def test_purity(self):
        # Nearest: 0: 10 25 | 10: 0 25 | 25: 10 0 | 60: 70 25 | 70: 60 25. Hits 1 + 1 + 0 + 2 + 2 of 10.
        vectors, labels = at(0, 10, 25, 60, 70), ["a", "a", "b", "b", "b"]
        expected = topic_scores(vectors, labels, names(vectors), neighbours=2)
        assert expected["purity@2"] == pytest.approx(60)
        longer = vectors * np.array([[1], [30], [0.1], [5], [2]])
        assert topic_scores(longer, labels, names(vectors), neighbours=2) == pytest.approx(expected)

    def test_copies_of_a_text_are_no_neighbours(self):
        # Without its copy, which has its label, the nearest text to "x" is "y", which has the other.
        vectors, labels = at(0, 0, 10, 90), ["a", "a", "b", "b"]
        assert topic_scores(vectors, labels, ["x", "x", "y", "z"], neighbours=1)["purity@1"] == pytest.approx(
            25
        )
        assert topic_scores(vectors, labels, ["x", "w", "y", "z"], neighbours=1)["purity@1"] == pytest.approx(
            75
        )

    @pytest.mark.parametrize("block", [1, 7, 512])
    def test_blocks(self, monkeypatch, block):
        rng = np.random.default_rng(0)
        vectors, labels = rng.standard_normal((50, 5)), rng.integers(3, size=50).tolist()
        texts = [f"text {i % 45}" for i in range(50)]
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        hits = []
        for i in range(50):
            others = [j for j in range(50) if texts[j] != texts[i]]
            hits += [labels[j] == labels[i] for j in sorted(others, key=lambda j: -unit[i] @ unit[j])[:10]]
        monkeypatch.setattr(topics, "_BLOCK", block)
        assert topic_scores(vectors, labels, texts)["purity@10"] == pytest.approx(100 * np.mean(hits))

    def test_the_similarity(self):
        # By the dot product, the long vector is the nearest of all.
        vectors, labels = at(0, 5, 40) * np.array([[1], [1], [3]]), ["a", "a", "b"]
        by = {
            name: topic_scores(vectors, labels, names(vectors), neighbours=1, similarity=name)["purity@1"]
            for name in ("cosine", "dot")
        }
        assert by == {"cosine": pytest.approx(200 / 3), "dot": pytest.approx(0)}

    def test_the_seed_decides(self):
        rng = np.random.default_rng(0)
        vectors, labels = rng.standard_normal((300, 8)), rng.integers(5, size=300).tolist()
        first = topic_scores(vectors, labels, names(vectors))
        torch.manual_seed(1)
        assert topic_scores(torch.tensor(vectors), np.array(labels), names(vectors)) == first
        assert topic_scores(vectors, labels, names(vectors), seed=1) != first
        one, other = (
            topic_scores(vectors, labels, names(vectors), clusterings=1, seed=seed) for seed in (3, 4)
        )
        both = topic_scores(vectors, labels, names(vectors), clusterings=2, seed=3)
        assert both["v_measure"] == pytest.approx((one["v_measure"] + other["v_measure"]) / 2)
        assert both["v_measure_deviation"] == pytest.approx(abs(one["v_measure"] - other["v_measure"]) / 2)

    def test_a_collapsed_encoder(self):
        with pytest.warns(match="Number of distinct clusters"):
            scores = topic_scores(np.ones((6, 2)), [0, 0, 1, 1, 2, 2], list("abcdef"), neighbours=1)
        assert scores["v_measure"] == pytest.approx(0)


class TestEvaluator:
    def test_scores_of_a_model(self, tiny_encoder):
        text = project_text()[:38]
        sentences = [f"{sentence} {['cat dog', 'tax bank'][i % 2] * 4}" for i, sentence in enumerate(text)]
        sentences, labels = [*sentences, *sentences[:2]], [i % 2 for i in range(40)]
        settings = {"neighbours": 3, "clusterings": 2, "seed": 5}
        model, evaluator = (
            tiny_encoder(pooling="mean"),
            TopicsEvaluator(sentences, labels, name="pets", **settings),
        )
        expected = topic_scores(model.encode(sentences), labels, sentences, **settings)
        assert evaluator(model) == pytest.approx({f"pets_{name}": value for name, value in expected.items()})
        assert evaluator.primary_metric == "pets_purity@3"
        assert expected["purity@3"] > 60

    @pytest.mark.parametrize(
        ("texts", "labels", "neighbours"),
        [
            (["a", "b"], [0], 1),
            (["a", "b"], [0, 0], 1),
            (["a", "b", "c"], [0, 1, 2], 1),
            ([], [], 1),
            (["a", "b", "c"], [0, 0, 1], 0),
            (list("abcdefghij"), [0, 1] * 5, 10),
            (["a", "a", "b"], [0, 0, 1], 2),
        ],
    )
    def test_texts_without_a_score(self, texts, labels, neighbours):
        with pytest.raises(ValueError, match="topics|shorter"):
            TopicsEvaluator(texts, labels, neighbours=neighbours)


class TestFiles:
    def test_texts_by_topic(self, tmp_path):
        rows = [(["sport", "trade ", "sport "][i % 3], text) for i, text in enumerate(project_text()[:30])]
        evaluator = own_topics(write_rows(tmp_path / "mine.tsv.gz", *rows))
        assert (evaluator.name, evaluator.neighbours, set(evaluator.labels)) == (
            "mine",
            10,
            {"sport", "trade"},
        )

    def test_a_small_file_has_fewer_neighbours(self, tmp_path):
        assert own_topics(write_rows(tmp_path / "x.tsv", ("a", "x"), ("b", "y"), ("a", "z"))).neighbours == 2

    def test_a_header_is_left_out(self, tmp_path):
        rows = [("label", "text"), ("a", "first"), ("b", "second"), ("a", "third"), ("b", "fourth")]
        assert own_topics(write_rows(tmp_path / "x.tsv", *rows)).sentences[0] == "first"

    def test_a_missing_topic(self, tmp_path):
        with pytest.raises(ValueError, match="Text 2 of 3"):
            own_topics(write_rows(tmp_path / "x.tsv", ("a", "x"), (" ", "y"), ("b", "z")))
        for missing in (None, float("nan"), ""):
            with pytest.raises(ValueError, match="3 of 4"):
                TopicsEvaluator(list("wxyz"), ["a", "b", missing, "a"], neighbours=1)

    def test_a_header_is_suspected(self, tmp_path, caplog):
        rows = [("a", "first"), ("b", "second"), ("a", "third"), ("b", "fourth")]
        own_topics(write_rows(tmp_path / "x.tsv", *rows))
        assert not caplog.text
        own_topics(write_rows(tmp_path / "x.tsv", ("Thema", "Satz"), *rows))
        assert "header" in caplog.text

    @pytest.mark.parametrize("rows", [[], [("a", "x"), ("a", "y")], [("a", "x", "y")]])
    def test_mistakes(self, tmp_path, rows):
        with pytest.raises(ValueError, match=r"topic|line 1"):
            own_topics(write_rows(tmp_path / "x.tsv", *rows))
