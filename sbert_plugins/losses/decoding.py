"""What losses with a decoder share: weights of tokens, checks, and the dtype of what they own."""

from __future__ import annotations

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from sbert_plugins import functional
from sbert_plugins.data import TokenFrequencies


def check_layers(decoder_layers: int, *, paper: int) -> None:
    """Refuse a number of layers below 0."""
    if decoder_layers < 0:
        raise ValueError(f"decoder_layers must be at least 0, got {decoder_layers}. 0 tells words; the paper uses {paper}.")


def linear_projector(size: int) -> nn.Linear:
    """Return a Linear that starts as DenoSent's official code starts its own, and its decoder."""
    linear = nn.Linear(size, size)
    nn.init.normal_(linear.weight, std=0.02)
    nn.init.zeros_(linear.bias)
    return linear


def weights_of_tokens(
    model: SentenceTransformer, frequencies: TokenFrequencies | str | None, threshold: float | None
) -> Tensor | None:
    """Return (V,), :func:`functional.token_weights` of the model's vocabulary, or None where all weigh the same.

    Raises:
        ValueError: On a threshold out of range, or counts of another vocabulary.
    """
    if threshold is None:
        return None
    functional.check_threshold("token_weights", threshold, "; None weighs all tokens alike")
    counted = _counted(model, frequencies, "token_weights", ", or token_weights=None to weigh all alike")
    return functional.token_weights(torch.from_numpy(counted.probabilities()), threshold=threshold).float()


def rare_tokens(model: SentenceTransformer, frequencies: TokenFrequencies | str | None, share: float, by: str) -> Tensor:
    """Return (V,) bool: the tokens of low frequency, as ``TokenFrequencies.low_frequency_ids`` has them.

    Raises:
        ValueError: On a share out of range, another ``by``, or counts of another vocabulary.
    """
    counted = _counted(model, frequencies, "low_frequency_share", "")
    rare = torch.zeros(len(counted.counts), dtype=torch.bool)
    rare[torch.as_tensor(counted.low_frequency_ids(share, by))] = True
    return rare


def _counted(
    model: SentenceTransformer, frequencies: TokenFrequencies | str | None, argument: str, instead: str
) -> TokenFrequencies:
    if frequencies is None:
        frequencies = TokenFrequencies.bookcorpus()
        if not frequencies.fits(model.tokenizer):
            raise ValueError(
                f"{argument} needs to know how often each token occurs, and the counts that ship with the package are for "
                "the vocabulary of bert-base-uncased, not this encoder's: pass frequencies="
                f"data.TokenFrequencies.from_corpus(sentences, model.tokenizer){instead}."
            )
    if not isinstance(frequencies, TokenFrequencies):
        frequencies = TokenFrequencies.load(frequencies)
    frequencies.check_tokenizer(model.tokenizer)
    return frequencies


def in_own_dtype(module: nn.Module, x: Tensor) -> Tensor:
    """Run a module in the dtype of its weights, where it has any: a loss's own stay in float32 when the encoder's do not."""
    parameter = next(module.parameters(), None)
    return module(x if parameter is None else x.to(parameter.dtype))
