"""Encoders that need no training, to compare trainings with. Some are fitted on unlabelled texts."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, InputModule
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.random_projection import SparseRandomProjection
from torch import Tensor, nn

from sbert_plugins import data


def whiten(model: SentenceTransformer, texts: Sequence[str]) -> SentenceTransformer:
    """Append the linear map that gives the vectors of ``texts`` mean 0 and covariance 1 (arXiv 2103.15316).

    Directions without variance are left out, such as the one that a LayerNorm removes.
    """
    fitted = PCA().fit(model.encode(list(texts), batch_size=128).astype(np.float64))
    kept = fitted.explained_variance_ > 1e-6 * fitted.explained_variance_[0]
    weight = fitted.components_[kept] / np.sqrt(fitted.explained_variance_[kept])[:, None]
    model.append(_linear(weight, -weight @ fitted.mean_))
    return model


def reduce_dimensions(model: SentenceTransformer, texts: Sequence[str], size: int) -> SentenceTransformer:
    """Append the projection on the first principal components of the vectors of ``texts``."""
    fitted = PCA(size, random_state=0).fit(model.encode(list(texts), batch_size=128).astype(np.float64))
    model.append(_linear(fitted.components_, -fitted.components_ @ fitted.mean_))
    return model


def use_cls(model: SentenceTransformer) -> SentenceTransformer:
    """Return an encoder with the same transformer and [CLS] pooling."""
    return SentenceTransformer(
        modules=[model[0], Pooling(model.get_embedding_dimension(), "cls")], device="cpu"
    )


def sif_of_words(
    model: SentenceTransformer,
    texts: Sequence[str],
    *,
    a: float = 1e-3,
    frequencies: data.TokenFrequencies | None = None,
) -> SentenceTransformer:
    r"""Average the encoder's word embeddings as in SIF (Arora et al. 2017).

    A token of probability :math:`p` has the weight :math:`a / (a + p)`. The direction that is common to all
    ``texts`` is removed.
    """
    frequencies = frequencies or data.TokenFrequencies.bookcorpus()
    weights = a / (a + frequencies.probabilities())
    table = model.transformers_model.get_input_embeddings().weight.detach().numpy()
    embedding = (weights[:, None] * table).astype(np.float32)
    words = StaticEmbedding(model.tokenizer.backend_tokenizer, embedding_weights=embedding)
    average = SentenceTransformer(modules=[words], device="cpu")
    common = TruncatedSVD(1, random_state=0).fit(average.encode(list(texts), batch_size=128)).components_
    average.append(_linear(np.eye(table.shape[1]) - common.T @ common))
    return average


def tfidf_of_characters(texts: Sequence[str], *, dimensions: int = 4096) -> SentenceTransformer:
    """Return TF-IDF of three to five letters within words, under a random projection. It suits similarity."""
    vectorizer = TfidfVectorizer(
        analyzer="char_wb", ngram_range=(3, 5), min_df=3, sublinear_tf=True, dtype=np.float32
    )
    projection = SparseRandomProjection(dimensions, dense_output=True, random_state=0)
    return _fit(make_pipeline(vectorizer, projection), texts, dimensions)


class FittedPipeline(InputModule):
    """A pipeline of scikit-learn as the only module of a SentenceTransformer."""

    modalities = ["text"]  # noqa: RUF012
    save_in_root = False

    def __init__(self, pipeline: Pipeline, dimensions: int) -> None:
        super().__init__()
        self.pipeline, self.dimensions, self.tokenizer = pipeline, dimensions, None

    def preprocess(self, inputs: list[str], prompt: str | None = None, **keywords: Any) -> dict[str, Tensor]:
        """Return the vectors of texts."""
        return {"sentence_embedding": torch.tensor(self.pipeline.transform(inputs), dtype=torch.float32)}

    def forward(self, features: dict[str, Tensor], **keywords: Any) -> dict[str, Tensor]:
        """Return the features as they are."""
        return features

    def get_embedding_dimension(self) -> int:
        """Return the number of dimensions."""
        return self.dimensions

    def save(self, output_path: str, *arguments: Any, **keywords: Any) -> None:
        """Raise: it is scored and not saved."""
        raise NotImplementedError


def _fit(pipeline: Pipeline, texts: Sequence[str], dimensions: int) -> SentenceTransformer:
    return SentenceTransformer(modules=[FittedPipeline(pipeline.fit(texts), dimensions)], device="cpu")


def _linear(weight: np.ndarray, bias: np.ndarray | None = None) -> Dense:
    layer = Dense(*weight.shape[::-1], bias=bias is not None, activation_function=nn.Identity())
    with torch.no_grad():
        layer.linear.weight.copy_(torch.from_numpy(weight))
        if bias is not None:
            layer.linear.bias.copy_(torch.from_numpy(bias))
    return layer
