import numpy as np
import pytest
import torch
from encoders import project_text
from evaluation_inputs import write_rows

from sbert_plugins import evaluation
from sbert_plugins.data import TokenFrequencies
from sbert_plugins.evaluation import (
    AlignmentUniformityEvaluator,
    CosineDensityEvaluator,
    ScoredPairs,
    analysis_sections,
)

TEXT = project_text()
GRADED = ScoredPairs(TEXT[:40], TEXT[100:140], [i % 6 / 1.2 for i in range(40)])  # 0 to 4.17


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def mean_cosine(vectors):
    return (unit(vectors) @ unit(vectors).T).mean()


def test_density_of_each_level(tiny_encoder):
    model = tiny_encoder(pooling="mean")
    pairs = ScoredPairs(TEXT[:8], TEXT[20:28], [0, 0.9, 1, 2.5, 2.9, 4, 5, 4.9])
    evaluator = CosineDensityEvaluator(pairs, name="mine")
    metrics = evaluator(model)
    cosines = (unit(model.encode(TEXT[:8])) * unit(model.encode(TEXT[20:28]))).sum(axis=1)
    levels = {"0-1": cosines[:2], "1-2": cosines[2:3], "2-3": cosines[3:5], "4-5": cosines[5:]}
    expected = {f"mine_mean_{name}": values.mean() for name, values in levels.items()}
    expected |= {f"mine_variance_{name}": values.var() for name, values in levels.items()}
    expected["mine_separation"] = cosines[5:].mean() - cosines[:2].mean()
    assert metrics == pytest.approx(expected, abs=1e-6)
    assert next(iter(metrics)) == evaluator.primary_metric == "mine_separation"
    assert evaluator.get_config_dict() == {"pairs": {"0-1": 2, "1-2": 1, "2-3": 2, "4-5": 3}}


class TestSections:
    @pytest.fixture
    def models(self, tiny_encoder):
        return {"$first": tiny_encoder(pooling="mean").train(), "second": tiny_encoder().eval()}

    def test_a_page(self, models):
        state = torch.get_rng_state()
        related = ["It costs $5 or $6.", "It costs six dollars."]
        sections = analysis_sections(models, TEXT[:60], pairs=GRADED, related=related)
        assert torch.equal(torch.get_rng_state(), state)
        assert not any(model.training for model in models.values())
        assert len(sections) == 4
        assert len(analysis_sections({"mine": models["second"]}, TEXT[:60])) == 3
        page = evaluation.render_page("Analysis", "Vectors", sections)
        assert page.count("<svg") == 4
        assert "currentColor" in page
        density = CosineDensityEvaluator(GRADED)(models["second"])
        names = list(CosineDensityEvaluator(GRADED).rows)
        cells = [f"{density[f'mean_{name}']:.3f} / {density[f'variance_{name}']:.4f}" for name in names]
        assert [row[2] for row in sections[0].rows] == cells

    def test_mean_cosines_by_frequency(self, models):
        # Of all vectors, and of those whose tokens are rarer, or more frequent, than the median.
        model, sentences = models["second"], TEXT[:60]
        counts = TokenFrequencies.from_corpus(TEXT, model.tokenizer)
        tokens, whole = analysis_sections({"mine": model}, sentences, frequencies=counts)[:2]
        ids = model.tokenizer(sentences, add_special_tokens=False)["input_ids"]
        logarithms = [np.log10(counts.counts[row] + 1) for row in ids]
        vectors = [each[1:-1].numpy() for each in model.encode(sentences, output_value="token_embeddings")]
        for section, rows, by in [
            (tokens, np.concatenate(vectors), np.concatenate(logarithms)),
            (whole, model.encode(sentences), np.array([each.mean() for each in logarithms])),
        ]:
            rare = by < np.median(by)
            expected = [mean_cosine(each) for each in (rows, rows[rare], rows[~rare])]
            assert [float(cell) for cell in section.rows[0][1:]] == pytest.approx(expected, abs=6e-4)

    def test_each_pass_has_its_own_dropout(self, models):
        section = analysis_sections({"mine": models["second"]}, TEXT[:60], related=TEXT[:3])[-1]
        clouds = [cloud.get_offsets() for cloud in section.figure.axes[0].collections]
        assert [len(np.unique(cloud, axis=0)) for cloud in clouds] == [30, 30, 30]
        again = analysis_sections({"mine": models["second"]}, TEXT[:60], related=TEXT[:3])[-1]
        assert np.array_equal(clouds[0], again.figure.axes[0].collections[0].get_offsets())

    def test_frequencies_of_another_vocabulary(self, models):
        with pytest.raises(ValueError, match="vocabulary"):
            analysis_sections(models, TEXT[:60], frequencies=TokenFrequencies.bookcorpus())


PAIRS = [
    (5.0, "a dog runs", "one dog is running"),
    (4.0, "it rains", "rain falls"),
    (3.9, "a red car", "a blue car"),
    (2.0, "a red car", "he sings"),
    (1.0, "a man walks", "stones are hard"),
    (0.0, "a dog runs", "stones are hard"),
]


@pytest.fixture
def data(tmp_path):
    for split in ("dev", "test"):
        write_rows(tmp_path / "sts" / f"stsb_{split}.tsv", *(("genre", *row) for row in PAIRS))
    return tmp_path


def unit_vectors(model, sentences):
    return model.encode(sentences, normalize_embeddings=True).astype(np.float64)


@pytest.mark.parametrize(("positive", "kept"), [(">4", 1), (">=4", 2), (">3", 3)])
def test_alignment_of_the_positive_pairs(tiny_encoder, data, positive, kept):
    model, evaluator = tiny_encoder(), AlignmentUniformityEvaluator(data, positive=positive)
    first, second = (unit_vectors(model, [row[side] for row in PAIRS[:kept]]) for side in (1, 2))
    expected = ((first - second) ** 2).sum(axis=1).mean()
    assert evaluator(model)["stsb_dev_alignment"] == pytest.approx(expected, rel=1e-4)
    assert evaluator.get_config_dict()["positive_pairs"] == kept


@pytest.mark.parametrize(("keep_duplicates", "count"), [(False, 9), (True, 12)])
def test_uniformity_with_and_without_repeated_sentences(tiny_encoder, data, keep_duplicates, count):
    model = tiny_encoder()
    sentences = [row[side] for side in (1, 2) for row in PAIRS]
    rows = unit_vectors(model, sentences if keep_duplicates else sorted(set(sentences)))
    potentials = [np.exp(-2 * ((rows[i] - rows[j]) ** 2).sum()) for i in range(len(rows)) for j in range(i)]
    evaluator = AlignmentUniformityEvaluator(data, split="test", keep_duplicates=keep_duplicates)
    assert evaluator(model)["stsb_test_uniformity"] == pytest.approx(np.log(np.mean(potentials)), rel=1e-4)
    assert evaluator.get_config_dict()["sentences"] == count == len(rows)


def test_lower_geometry_is_better(data):
    evaluator = AlignmentUniformityEvaluator(data)
    assert not evaluator.greater_is_better
    assert evaluator.primary_metric == "stsb_dev_alignment"
