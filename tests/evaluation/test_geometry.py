import numpy as np
import pytest
import torch

from sbert_plugins.evaluation import AlignmentUniformityEvaluator, CosineDensityEvaluator, Embeddings

ROWS = [
    (5.0, "a dog runs", "one dog is running"),
    (4.0, "it rains", "rain falls"),
    (3.9, "a red car", "a blue car"),
    (2.0, "a red car", "he sings"),
    (1.0, "a man walks", "stones are hard"),
    (0.0, "a dog runs", "stones are hard"),
]


@pytest.fixture
def data(tmp_path):
    (tmp_path / "sts").mkdir()
    text = "".join(f"genre\t{score}\t{first}\t{second}\n" for score, first, second in ROWS)
    for split in ("dev", "test"):
        (tmp_path / "sts" / f"stsb_{split}.tsv").write_text(text, encoding="utf-8")
    return tmp_path


def unit(model, sentences):
    return model.encode(sentences, normalize_embeddings=True).astype(np.float64)


class TestAlignmentUniformity:
    @pytest.mark.parametrize(("positive", "kept"), [(">4", 1), (">=4", 2), (">3", 3)])
    def test_alignment_is_of_the_positive_pairs(self, tiny_encoder, data, positive, kept):
        model = tiny_encoder()
        evaluator = AlignmentUniformityEvaluator(data, positive=positive)
        x, y = (unit(model, [row[side] for row in ROWS[:kept]]) for side in (1, 2))
        expected = np.mean([sum((a - b) ** 2 for a, b in zip(u, v, strict=True)) for u, v in zip(x, y, strict=True)])
        assert evaluator(model)["stsb_dev_alignment"] == pytest.approx(expected, rel=1e-4)
        assert evaluator.get_config_dict()["positive_pairs"] == kept

    @pytest.mark.parametrize(("duplicates", "count"), [("drop", 9), ("keep", 12)])
    def test_uniformity_with_and_without_repeated_sentences(self, tiny_encoder, data, duplicates, count):
        model = tiny_encoder()
        sentences = [row[1] for row in ROWS] + [row[2] for row in ROWS]
        sentences = sentences if duplicates == "keep" else sorted(set(sentences))
        rows = unit(model, sentences)
        potentials = [np.exp(-2 * ((rows[i] - rows[j]) ** 2).sum()) for i in range(len(rows)) for j in range(i)]
        evaluator = AlignmentUniformityEvaluator(data, split="test", duplicates=duplicates)
        assert len(sentences) == count == evaluator.get_config_dict()["sentences"]
        assert evaluator(model)["stsb_test_uniformity"] == pytest.approx(np.log(np.mean(potentials)), rel=1e-4)

    def test_lower_is_better_and_the_test_split_says_so(self, data):
        dev, test = (AlignmentUniformityEvaluator(data, split=split) for split in ("dev", "test"))
        assert not dev.greater_is_better
        assert (dev.test_sets, test.test_sets) == ((), ("STS-B",))
        assert dev.get_config_dict()["split"] == "STS-B dev"

    @pytest.mark.parametrize(
        ("keywords", "message"),
        [
            ({"split": "train"}, "split must be 'dev' or 'test' of STS-B, got 'train'"),
            ({"duplicates": "some"}, "duplicates must be 'drop' or 'keep', got 'some'"),
            ({"positive": "4"}, "positive must be '>' or '>=' .* got '4'"),
            ({"positive": ">5"}, "no pair of STS-B dev has a gold score >5: choose a lower threshold"),
        ],
    )
    def test_bad_values(self, data, keywords, message):
        with pytest.raises(ValueError, match=message):
            AlignmentUniformityEvaluator(data, **keywords)


class TestCosineDensity:
    def test_mean_and_variance_of_each_level(self, tiny_encoder, data):
        model = tiny_encoder()
        evaluator = CosineDensityEvaluator(data, split="dev")
        cosines = (unit(model, [row[1] for row in ROWS]) * unit(model, [row[2] for row in ROWS])).sum(axis=1)
        metrics = evaluator(model)
        levels = {"0-1": [5], "1-2": [4], "2-3": [3], "3-4": [2], "4-5": [0, 1]}  # 4.0 and 5.0 share the last
        for level, places in levels.items():
            assert metrics[f"stsb_dev_cosine_mean_{level}"] == pytest.approx(np.mean(cosines[places]), abs=1e-5)
            assert metrics[f"stsb_dev_cosine_variance_{level}"] == pytest.approx(np.var(cosines[places]), abs=1e-5)
        separation = cosines[:2].mean() - cosines[5]
        assert metrics[evaluator.primary_metric] == pytest.approx(separation, abs=1e-5)

    def test_the_cosines_for_a_plot(self, tiny_encoder, data):
        evaluator = CosineDensityEvaluator(data)
        levels = evaluator.cosines(Embeddings(tiny_encoder(), evaluator.sentences))
        assert [(level, len(values)) for level, values in levels.items()] == [*evaluator.counts.items()]
        assert sum(evaluator.counts.values()) == len(ROWS)

    def test_an_empty_level(self, data):
        (data / "sts" / "stsb_test.tsv").write_text("g\t5\ta\tb\ng\t2.5\ta\tc\n", encoding="utf-8")
        with pytest.raises(ValueError, match="STS-B has no pair at the gold level 0-1, 1-2, 3-4"):
            CosineDensityEvaluator(data)

    def test_a_diverged_model(self, tiny_encoder, data):
        model = tiny_encoder()
        with torch.no_grad():
            model[0].model.embeddings.word_embeddings.weight.fill_(float("nan"))
        for evaluator in (CosineDensityEvaluator(data), AlignmentUniformityEvaluator(data)):
            with pytest.raises(ValueError, match="embeddings must be finite, got NaN or infinity for 9 of 9 sentences"):
                evaluator(model)


@pytest.mark.parametrize(("split", "test_sets"), [("dev", ()), ("test", ("STS-B",))])
def test_the_test_split_says_so(tmp_path, split, test_sets):
    (tmp_path / "sts").mkdir()
    rows = "".join(f"genre\t{score}\ta {score}\tb\n" for score in range(5))
    (tmp_path / "sts" / f"stsb_{split}.tsv").write_text(rows, encoding="utf-8")
    assert CosineDensityEvaluator(tmp_path, split=split).test_sets == test_sets
