"""Scores of words for a vector: an encoder's masked-language-model head, or its word embeddings."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import transformers
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.func import functional_call
from transformers import AutoModelForMaskedLM, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from sbert_plugins import host
from sbert_plugins.encoder import transformer_of, unwrap

logger = logging.getLogger(__name__)


class NoPretrainedHeadError(ValueError):
    """A checkpoint has no masked-language-model head that fits the encoder."""


class MLMHead(nn.Module):
    """The pretrained head that maps token embeddings to logits over the vocabulary.

    sentence-transformers loads encoders without their head. This class loads the architecture's
    ``ForMaskedLM`` model, and replaces its encoder twice: by the trained one, which ties the output weights
    to the trained word embeddings, and then by a stub that returns its input. This works for BERT, RoBERTa,
    XLM-R, MPNet, DistilBERT, ELECTRA, DeBERTa-v2, ModernBERT and similar classes. Output weights that are not
    tied in the checkpoint (EuroBERT, RemBERT) stay the head's.

    Args:
        model: The encoder that is trained.
        checkpoint: Path or Hub name to load the head from, or ``"fresh"`` for new random weights. By default
            the checkpoint, and the revision, that the encoder was loaded from.
        allow_new: Uses a new head, with a warning, if the encoder's checkpoint has none.

    Raises:
        ValueError: If the architecture has no masked-language-model class, or the head of ``checkpoint`` has
            another vocabulary or width.
        NoPretrainedHeadError: If there is no head and ``allow_new`` is False.
        OSError: If ``checkpoint`` is given and cannot be loaded.
    """

    def __init__(
        self, model: SentenceTransformer, *, checkpoint: str | None = None, allow_new: bool = True
    ) -> None:
        super().__init__()
        encoder = transformer_of(model)
        full, is_pretrained = self._load(model, encoder, checkpoint, allow_new)
        setattr(full, full.base_model_prefix, encoder)
        full.tie_weights()
        table, output = word_table(encoder), full.get_output_embeddings()
        if not is_pretrained and output.weight.shape == table.shape:
            output.weight = table  # the configuration may not tie them
        setattr(full, full.base_model_prefix, _PassThrough())
        self.full = full.to(device=table.device, dtype=table.dtype)  # type: ignore[call-arg]
        self._is_tied = output.weight is table
        self._silent_id = silent_padding_id(encoder) if self._is_tied else None

    @property
    def table(self) -> Tensor:
        """The output weights (V, E)."""
        return self.full.get_output_embeddings().weight

    @property
    def width(self) -> int:
        """Width D of the token embeddings that the head reads."""
        return self.full.config.hidden_size

    def untie(self) -> None:
        """Give the head its own copy of the output weights."""
        output = self.full.get_output_embeddings()
        output.weight = nn.Parameter(output.weight.detach().clone())
        self._is_tied, self._silent_id = False, None

    def follow(self, model: nn.Module) -> None:
        """Take over the encoder's dtype and table as they are now. Call in each forward."""
        table = word_table(transformer_of(model))
        if any(parameter.dtype != table.dtype for parameter in self.parameters()):
            with torch.inference_mode(False):  # weights that are made in inference mode cannot be trained
                self.to(table.dtype)
        if self._is_tied:
            self.full.get_output_embeddings().weight = table

    def forward(self, token_embeddings: Tensor, candidates: Tensor | None = None) -> Tensor:
        """Map (N, D) token embeddings to (N, V) logits, or to the (N, C) logits of (C,) candidate ids."""
        size = len(self.table)
        inputs = {"inputs_embeds": token_embeddings.to(self.table.dtype).unsqueeze(0)}
        if candidates is None:
            return without_gradient_at(self.full(**inputs).logits.squeeze(0), self._silent_id)
        # The same head with a smaller vocabulary. Parameter names differ between families.
        fewer = {
            name: tensor.index_select(tensor.shape.index(size), candidates)
            for name, tensor in self.full.named_parameters()
            if size in tensor.shape
        }
        return functional_call(self.full, fewer, kwargs=inputs).logits.squeeze(0)

    @staticmethod
    def _load(
        model: SentenceTransformer, encoder: PreTrainedModel, checkpoint: str | None, allow_new: bool
    ) -> tuple[PreTrainedModel, bool]:
        """Return the full model and whether its head is pretrained."""
        if not host.has_masked_language_model(encoder.config):
            raise ValueError(
                f"transformers has no masked-language-model head for {type(encoder).__name__}: use an "
                "encoder that was pretrained with masks (BERT, RoBERTa, MPNet, DeBERTa, ModernBERT, ...)."
            )
        if checkpoint != "fresh":
            try:
                revision = None if checkpoint else host.revision_of(unwrap(model))
                return _load_pretrained(encoder, checkpoint, revision), True
            except NoPretrainedHeadError as error:
                if checkpoint or not allow_new:
                    raise
                logger.warning("The masked-language-model head starts from random weights: %s.", error)
        return AutoModelForMaskedLM.from_config(encoder.config), False


class WordEmbeddings(nn.Module):
    """Logits as products with the encoder's word embeddings, instead of :class:`MLMHead`. It owns no weights.

    Args:
        model: The encoder that is trained, whose word embeddings are trained with it.
    """

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        self.table = word_table(transformer_of(model))
        self._silent_id = silent_padding_id(transformer_of(model))

    @property
    def width(self) -> int:
        """Width E of the vectors that it reads."""
        return self.table.shape[1]

    def follow(self, model: nn.Module) -> None:
        """Take over the encoder's table as it is now. Call in each forward."""
        self.table = word_table(transformer_of(model))

    def forward(self, vectors: Tensor, candidates: Tensor | None = None) -> Tensor:
        """Map (N, E) vectors to (N, V) logits, or to the (N, C) logits of (C,) candidate ids."""
        vectors = vectors.to(self.table.dtype)
        if candidates is None:
            return without_gradient_at(vectors @ self.table.T, self._silent_id)
        return vectors @ self.table[candidates].T


WordScorer = MLMHead | WordEmbeddings


def word_table(encoder: PreTrainedModel) -> nn.Parameter:
    """Return the word embeddings (V, E) of an encoder, or raise ``ValueError`` if an adapter changes them."""
    embeddings: Any = encoder.get_input_embeddings()
    if hasattr(embeddings, "base_layer"):
        raise ValueError(
            "Leave the word embeddings out of the adapter's target_modules: this loss reads their table."
        )
    return embeddings.weight


def silent_padding_id(encoder: PreTrainedModel) -> int | None:
    """Return the id of the padding if its embedding is 0, as in some encoders (Funnel)."""
    padding = getattr(encoder.get_input_embeddings(), "padding_idx", None)
    return padding if padding is not None and not word_table(encoder)[padding].any() else None


def without_gradient_at(logits: Tensor, token: int | None) -> Tensor:
    """Return (N, V) logits whose gradient is 0 at one token, so that its embedding stays."""
    if token is not None and logits.requires_grad:
        logits.register_hook(partial(_clear_column, column=token))
    return logits


def _clear_column(gradient: Tensor, *, column: int) -> Tensor:
    gradient = gradient.clone()
    gradient[:, column] = 0
    return gradient


class _PassThrough(nn.Module):
    """Replaces the encoder inside a full model, and returns its input."""

    def get_input_embeddings(self) -> None:
        """Return None: some classes show their output layer only if there is an input layer (EuroBERT)."""

    def forward(self, *_: object, inputs_embeds: Tensor, **__: object) -> BaseModelOutput:
        return _Passed(last_hidden_state=inputs_embeds)


class _Passed(BaseModelOutput):
    """Token embeddings, and None for the other outputs of some families (Longformer's global attentions)."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


def _load_pretrained(
    encoder: PreTrainedModel, checkpoint: str | None, revision: str | None
) -> PreTrainedModel:
    """Return the full model of a checkpoint, by default the encoder's, whose head fits the encoder."""
    name = checkpoint or encoder.config.name_or_path
    if not name:
        raise NoPretrainedHeadError("the encoder was not loaded from a checkpoint")
    where = {"revision": revision or "main", "cache_dir": host.model_cache()}
    try:
        with _quiet():  # transformers' report of missing weights is replaced by our own message
            full, info = AutoModelForMaskedLM.from_pretrained(name, output_loading_info=True, **where)
    except (OSError, ValueError) as error:
        if checkpoint:
            raise
        first_line = str(error).strip().partition("\n")[0]
        raise NoPretrainedHeadError(
            f"{name} could not be loaded ({first_line or type(error).__name__})"
        ) from error
    prefix = re.compile(rf"^{full.base_model_prefix}\.")
    missing = {key for key in info["missing_keys"] if not prefix.match(key)}
    if missing - set(getattr(full, "all_tied_weights_keys", ())):
        raise NoPretrainedHeadError(f"{name} has no such head")
    (size, width), (own_size, own_width) = word_table(encoder).shape, word_table(full).shape
    if not checkpoint and own_size < size and own_width == width:  # tokens were added to the encoder
        full.resize_token_embeddings(size, mean_resizing=False)
    elif (own_size, own_width) != (size, width):
        raise NoPretrainedHeadError(
            f"the head of {name} is for word embeddings of shape {(own_size, own_width)}, the encoder has "
            f"{(size, width)}"
        )
    return full


@contextmanager
def _quiet() -> Iterator[None]:
    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers.logging.set_verbosity(level)
