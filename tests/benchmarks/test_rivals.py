"""Encoders without training: what each promises of the vectors of the text that it was fitted on."""

import sys
from pathlib import Path

import numpy as np
import pytest
from encoders import project_counts, project_text
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from sbert_plugins import data, evaluation

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import rivals

TEXTS = project_text()[:80]


def test_whitening_gives_the_texts_mean_zero_and_covariance_one(tiny_encoder):
    model = tiny_encoder()
    before = model.encode(TEXTS)
    vectors = rivals.whitening(model, TEXTS).encode(TEXTS)
    assert np.abs(vectors.mean(axis=0)).max() < 1e-3
    assert vectors.shape[1] == before.shape[1] - 1  # the last LayerNorm takes a direction away
    assert np.abs(np.cov(vectors.T) - np.eye(vectors.shape[1])).max() < 1e-2
    # Mahalanobis' distances, whatever the rotation.
    inverse = np.linalg.pinv(np.cov(before.T.astype(np.float64)), rcond=1e-6)
    difference = (before[0] - before[1]).astype(np.float64)
    assert np.sum((vectors[0] - vectors[1]) ** 2) == pytest.approx(difference @ inverse @ difference, rel=1e-2)


def test_sif_is_the_weighted_mean_without_the_common_direction(tiny_encoder):
    model = tiny_encoder()
    frequencies = project_counts(model.tokenizer)
    probability = frequencies.counts / frequencies.counts.sum()
    means = []
    for text in TEXTS:
        output = model.encode(text, output_value=None)
        ids, tokens = output["input_ids"].numpy(), output["token_embeddings"].numpy()
        weight = np.where(np.isin(ids, model.tokenizer.all_special_ids), 0, 1e-3 / (1e-3 + probability[ids]))[: len(tokens)]
        means.append(weight @ tokens / weight.sum())
    common = np.linalg.svd(np.array(means))[2][0]
    expected = np.array(means) - np.outer(np.array(means) @ common, common)
    vectors = rivals.sif(model, TEXTS, frequencies=frequencies).encode(TEXTS)
    np.testing.assert_allclose(vectors, expected, atol=2e-4)


def test_sif_of_words_is_the_papers(minilm):
    """The sum of a / (a + p) v by the number of tokens, without the first singular vector of all."""
    frequencies = data.TokenFrequencies.bookcorpus()
    table = minilm.transformers_model.get_input_embeddings().weight.detach().numpy()
    probability = frequencies.counts / frequencies.counts.sum()
    means = []
    for text in TEXTS:
        ids = minilm.tokenizer(text, add_special_tokens=False)["input_ids"]
        means.append((1e-3 / (1e-3 + probability[ids])) @ table[ids] / len(ids))
    common = np.linalg.svd(np.array(means))[2][0]
    expected = np.array(means) - np.outer(np.array(means) @ common, common)
    np.testing.assert_allclose(rivals.sif_of_words(minilm, TEXTS).encode(TEXTS), expected, atol=2e-4)


def test_another_pooling_of_the_same_transformer(tiny_encoder):
    model = tiny_encoder(pooling="mean")
    tokens = model.encode(TEXTS[0], output_value=None)["token_embeddings"]
    np.testing.assert_allclose(rivals.by_cls(model).encode(TEXTS[0]), tokens[0].numpy(), atol=1e-6)


@pytest.mark.filterwarnings("ignore:The number of components")
def test_characters_have_the_cosines_of_all_runs():
    weighted = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), min_df=3, sublinear_tf=True).fit_transform(TEXTS)
    vectors = rivals.tfidf_of_characters(TEXTS).encode(TEXTS)
    assert np.abs(vectors @ vectors.T - (weighted @ weighted.T).toarray()).max() < 0.1


def test_tfidf_has_the_cosines_of_latent_semantic_analysis():
    weighted = TfidfVectorizer(stop_words="english", sublinear_tf=True).fit_transform(TEXTS)
    expected = TruncatedSVD(8, random_state=0).fit_transform(weighted)
    model = rivals.tfidf_svd(TEXTS, dimensions=8)
    np.testing.assert_allclose(model.encode(TEXTS), expected, atol=1e-5)
    pairs = evaluation.ScoredPairs(TEXTS[:10], TEXTS[10:20], list(range(10)))
    scores = evaluation.JointEvaluator([evaluation.PairsEvaluator(pairs, name="own", write_csv=False)])(model)
    assert np.isfinite(scores["own_spearman"])
