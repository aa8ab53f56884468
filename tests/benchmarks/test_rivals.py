"""Encoders without training: what each promises of the vectors of the text that it was fitted on."""

import sys
from pathlib import Path

import numpy as np
import pytest
from encoders import project_counts, project_text
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from sbert_plugins import evaluation

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


def test_tfidf_has_the_cosines_of_latent_semantic_analysis():
    weighted = TfidfVectorizer(stop_words="english", sublinear_tf=True).fit_transform(TEXTS)
    expected = TruncatedSVD(8, random_state=0).fit_transform(weighted)
    model = rivals.tfidf_svd(TEXTS, dimensions=8)
    np.testing.assert_allclose(model.encode(TEXTS), expected, atol=1e-5)
    pairs = evaluation.ScoredPairs(TEXTS[:10], TEXTS[10:20], list(range(10)))
    scores = evaluation.OnePassEvaluator([evaluation.PairsEvaluator(pairs, name="own", write_csv=False)])(model)
    assert np.isfinite(scores["own_spearman"])
