"""Encoders that need no training, beside which a training has to stand; each is fitted on texts without labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, InputModule
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding, WordWeights
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.random_projection import SparseRandomProjection
from torch import Tensor, nn

from sbert_plugins import data


def whitening(model: SentenceTransformer, texts: Sequence[str]) -> SentenceTransformer:
    """Append the map that gives the vectors of ``texts`` mean 0 and covariance 1 (Su et al. 2021, arXiv 2103.15316).

    Behind a LayerNorm, means of tokens lie in a plane: the direction in which nothing varies is left out, not blown up.
    """
    fitted = PCA().fit(model.encode(list(texts), batch_size=128).astype(np.float64))
    kept = fitted.explained_variance_ > 1e-6 * fitted.explained_variance_[0]
    weight = fitted.components_[kept] / np.sqrt(fitted.explained_variance_[kept])[:, None]  # (rank, D)
    model.append(_linear(weight, -weight @ fitted.mean_))
    return model


def by_cls(model: SentenceTransformer) -> SentenceTransformer:
    """Return an encoder of the same transformer whose sentence vector is that of [CLS]."""
    return SentenceTransformer(modules=[model[0], Pooling(model.get_embedding_dimension(), "cls")], device=str(model.device))


def sif_of_words(model: SentenceTransformer, texts: Sequence[str], *, a: float = 1e-3) -> SentenceTransformer:
    r"""Return smooth inverse frequency as it was published, of an encoder's word embeddings (Arora et al. 2017).

    The sum of :math:`\frac{a}{a + p} v` over the tokens of a sentence by their number, without the direction that is common
    to all texts: :func:`sif` of vectors that know no context.
    """
    frequencies = data.TokenFrequencies.bookcorpus()
    frequencies.check_tokenizer(model.tokenizer)
    weights = a / (a + frequencies.probabilities())
    table = model.transformers_model.get_input_embeddings().weight.detach().numpy()
    words = StaticEmbedding(model.tokenizer.backend_tokenizer, embedding_weights=(weights[:, None] * table).astype(np.float32))
    return _without_common_direction(SentenceTransformer(modules=[words], device="cpu"), texts)


def sif(
    model: SentenceTransformer,
    texts: Sequence[str],
    *,
    a: float = 1e-3,
    frequencies: data.TokenFrequencies | None = None,
) -> SentenceTransformer:
    r"""Return the mean of an encoder's output tokens, the frequent ones counting little, without their common direction.

    Smooth inverse frequency (Arora et al. 2017, https://openreview.net/forum?id=SyK00v5xx): a token of probability :math:`p`
    has the weight :math:`a / (a + p)`, and the first singular vector of all texts is taken out of each. There the tokens are
    word vectors that know no context, here the encoder's last layer. [CLS] and the like are left out.

    Args:
        model: The encoder; its own pooling is not used.
        texts: What the common direction is found in.
        a: The smaller, the less a frequent token counts. The paper's 1e-3.
        frequencies: Counts of the encoder's vocabulary, by default BookCorpus'.
    """
    frequencies = frequencies or data.TokenFrequencies.bookcorpus()
    frequencies.check_tokenizer(model.tokenizer)
    weights = a / (a + frequencies.probabilities())
    weights[list(frequencies.special_ids)] = 0
    names = [str(place) for place in range(len(weights))]
    words = WordWeights(names, dict(zip(names, weights.tolist(), strict=True)))
    mean = SentenceTransformer(
        modules=[model[0], words, Pooling(model.get_embedding_dimension(), "mean")], device=str(model.device)
    )
    return _without_common_direction(mean, texts)


def _without_common_direction(model: SentenceTransformer, texts: Sequence[str]) -> SentenceTransformer:
    vectors = model.encode(list(texts), batch_size=128)
    common = TruncatedSVD(1, random_state=0).fit(vectors).components_  # (1, D)
    model.append(_linear(np.eye(vectors.shape[1]) - common.T @ common))
    return model


def tfidf_svd(texts: Sequence[str], *, dimensions: int = 384, seed: int = 0) -> SentenceTransformer:
    """Return the directions along which TF-IDF vectors of ``texts`` vary most, latent semantic analysis.

    With logarithmic counts and without English stop words, for topics: scikit-learn's defaults cost 10 points of v-measure on
    biomedical titles and 20 on AG News. For similarity :func:`tfidf_of_characters` is the stronger one.
    """
    pipeline = make_pipeline(
        TfidfVectorizer(stop_words="english", sublinear_tf=True), TruncatedSVD(dimensions, random_state=seed)
    )
    return SentenceTransformer(modules=[_Fitted(pipeline.fit(texts), dimensions)], device="cpu")


def tfidf_of_characters(texts: Sequence[str], *, dimensions: int = 4096, seed: int = 0) -> SentenceTransformer:
    """Return TF-IDF of the runs of three to five letters inside of words, projected at random.

    Nothing is cut: of 37,000 runs 4,096 directions keep the cosines up to .02 each, and Spearman on STS-B dev up to .1.
    """
    vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), min_df=3, sublinear_tf=True, dtype=np.float32)
    projection = SparseRandomProjection(dimensions, dense_output=True, random_state=seed)
    return SentenceTransformer(modules=[_Fitted(make_pipeline(vectorizer, projection).fit(texts), dimensions)], device="cpu")


class _Fitted(InputModule):
    """Vectors of a pipeline of scikit-learn, as the one module of an encoder."""

    save_in_root = False
    modalities = ["text"]  # noqa: RUF012

    def __init__(self, pipeline: Pipeline, dimensions: int) -> None:
        super().__init__()
        self.pipeline, self.dimensions = pipeline, dimensions
        self.tokenizer = None

    def preprocess(self, inputs: list[str], prompt: str | None = None, **keywords: Any) -> dict[str, Tensor]:
        return {"sentence_embedding": torch.tensor(self.pipeline.transform(inputs), dtype=torch.float32)}

    def forward(self, features: dict[str, Tensor], **keywords: Any) -> dict[str, Tensor]:
        return features

    def get_embedding_dimension(self) -> int:
        return self.dimensions

    def save(self, output_path: str, *arguments: Any, **keywords: Any) -> None:
        raise NotImplementedError("a rival is scored, not saved")


def _linear(weight: np.ndarray, bias: np.ndarray | None = None) -> Dense:
    """Return the host's layer for a map of (out, in)."""
    layer = Dense(*weight.shape[::-1], bias=bias is not None, activation_function=nn.Identity())
    with torch.no_grad():
        layer.linear.weight.copy_(torch.from_numpy(weight))
        if bias is not None:
            layer.linear.bias.copy_(torch.from_numpy(bias))
    return layer
