"""The words of a sentence from its vector: the cheapest objective here, without negatives and in one pass."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from sbert_plugins import functional
from sbert_plugins.data import TokenFrequencies
from sbert_plugins.modules import BagOfWordsDecoder, MLMHead, TokenRoles, follow_mode, sentence_width, warn_unless_kept


class BagOfWordsLoss(nn.Module):
    def __init__(
        self,
        model: SentenceTransformer,
        *,
        token_weights: float | None = 1e-6,
        frequencies: TokenFrequencies | None = None,
        mlm_head: str | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.token_weights = token_weights
        self.frequencies = frequencies
        self.mlm_head = mlm_head
        self.tokens = TokenRoles(model.tokenizer)
        self.head = MLMHead(model, checkpoint=mlm_head)
        self.decoder = BagOfWordsDecoder(model.transformers_model.config.hidden_size, sentence_width(model))
        self.register_buffer("weights", weights_of_tokens(model, frequencies, token_weights), persistent=False)
        self.diagnostics: dict[str, Tensor] = {}
        self.state_is_kept = False
        self.to(model.device)  # for loops that do not move the loss themselves

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> dict[str, Tensor]:
        """Compute the loss of one batch of one column."""
        columns = list(sentence_features)
        if len(columns) != 1:
            raise ValueError(
                f"BagOfWordsLoss reads one text column (anchor), got {len(columns)}: "
                "drop the others with dataset.select_columns(['anchor'])."
            )
        follow_mode(self)
        if self.model.training:
            warn_unless_kept(self)
        features = columns[0]
        vectors = self.model(dict(features))["sentence_embedding"]
        content = self.tokens.content(features)
        loss, self.diagnostics = self.decoder.loss(vectors, self.head, features["input_ids"], content, self.weights)
        return {"words": loss}


def weights_of_tokens(
    model: SentenceTransformer, frequencies: TokenFrequencies | None, threshold: float | None
) -> Tensor | None:
    """Return (V,), :func:`functional.token_weights` of the model's vocabulary, or None where all weigh the same.

    Raises:
        ValueError: On a threshold out of range, or counts of another vocabulary.
    """
    if threshold is None:
        return None
    functional.check_threshold(threshold)
    if frequencies is None:
        frequencies = TokenFrequencies.bookcorpus()
        if not frequencies.fits(model.tokenizer):
            raise ValueError(
                "token_weights needs to know how often each token occurs, and the counts that ship with the package are for "
                "the vocabulary of bert-base-uncased, not this encoder's: pass frequencies="
                "data.TokenFrequencies.from_corpus(sentences, model.tokenizer), or token_weights=None to weigh all alike."
            )
    frequencies.check_tokenizer(model.tokenizer)
    return functional.token_weights(torch.from_numpy(frequencies.probabilities()), threshold=threshold).float()
