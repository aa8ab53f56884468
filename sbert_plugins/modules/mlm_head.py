"""Scores of words for a vector: an encoder's masked-language-model head, or its word embeddings."""

import logging
from typing import Any

import torch
import transformers
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.func import functional_call
from transformers import MODEL_FOR_MASKED_LM_MAPPING, AutoModelForMaskedLM, PreTrainedModel
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
        if type(encoder.config) not in MODEL_FOR_MASKED_LM_MAPPING:
            raise ValueError(
                f"transformers has no masked-language-model head for {type(encoder).__name__}: use an "
                "encoder that was pretrained with masks (BERT, RoBERTa, MPNet, DeBERTa, ModernBERT, ...)."
            )
        full = None
        if checkpoint != "fresh":
            try:
                full = _load(encoder, checkpoint, None if checkpoint else host.revision_of(unwrap(model)))
            except NoPretrainedHeadError as error:
                if checkpoint or not allow_new:
                    raise
                logger.warning("The masked-language-model head starts from random weights: %s.", error)
        is_pretrained = full is not None
        full = AutoModelForMaskedLM.from_config(encoder.config) if full is None else full
        setattr(full, full.base_model_prefix, encoder)
        full.tie_weights()
        table, output = word_table(encoder), full.get_output_embeddings()
        if not is_pretrained and output.weight.shape == table.shape:
            output.weight = table  # the configuration may not tie them
        setattr(full, full.base_model_prefix, _PassThrough())
        self.width: int = full.config.hidden_size  # of the token embeddings that the head reads
        self.full = full.to(device=table.device, dtype=table.dtype)  # type: ignore[call-arg]
        self._is_tied = output.weight is table
        self._silent_id = _silent_padding_id(encoder) if self._is_tied else None

    @property
    def table(self) -> Tensor:
        """The output weights (V, E)."""
        return self.full.get_output_embeddings().weight

    def untie(self) -> None:
        """Give the head its own copy of the output weights."""
        output = self.full.get_output_embeddings()
        output.weight = nn.Parameter(output.weight.detach().clone())
        self._is_tied, self._silent_id = False, None

    def follow(self, model: nn.Module) -> None:
        """Take over the encoder's dtype and word embeddings as they are now. Call it in each forward."""
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
            return _without_gradient_at(self.full(**inputs).logits.squeeze(0), self._silent_id)
        # The same head with a smaller vocabulary. The names of its parameters differ between families, so
        # their shapes show which of them have one entry per word.
        fewer = {
            name: tensor.index_select(tensor.shape.index(size), candidates)
            for name, tensor in self.full.named_parameters()
            if size in tensor.shape
        }
        return functional_call(self.full, fewer, kwargs=inputs).logits.squeeze(0)


class WordEmbeddings(nn.Module):
    """Logits as products with the encoder's word embeddings, instead of :class:`MLMHead`. It owns no weights.

    Args:
        model: The encoder that is trained, whose word embeddings are trained with it.
    """

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        self.table = word_table(transformer_of(model))
        self.width = self.table.shape[1]
        self._silent_id = _silent_padding_id(transformer_of(model))

    def follow(self, model: nn.Module) -> None:
        """Take over the encoder's word embeddings as they are now. Call it in each forward."""
        self.table = word_table(transformer_of(model))

    def forward(self, vectors: Tensor, candidates: Tensor | None = None) -> Tensor:
        """Map (N, E) vectors to (N, V) logits, or to the (N, C) logits of (C,) candidate ids."""
        vectors = vectors.to(self.table.dtype)
        if candidates is None:
            return _without_gradient_at(vectors @ self.table.T, self._silent_id)
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


def _silent_padding_id(encoder: PreTrainedModel) -> int | None:
    """Return the id of the padding if its embedding is 0, as in some encoders (Funnel).

    transformers sets it to 0 when it loads the model, so it must not be trained.
    """
    padding = getattr(encoder.get_input_embeddings(), "padding_idx", None)
    return padding if padding is not None and not word_table(encoder)[padding].any() else None


def _without_gradient_at(logits: Tensor, token: int | None) -> Tensor:
    """Return (N, V) logits whose gradient is 0 at one token, so that its embedding stays."""
    if token is not None and logits.requires_grad:
        is_other = torch.arange(logits.shape[1], device=logits.device) != token
        logits.register_hook(lambda gradient: gradient.where(is_other, 0.0))
    return logits


class _PassThrough(nn.Module):
    """Stand-in for the encoder inside a full model. It returns its input."""

    def get_input_embeddings(self) -> None:
        """Return None. Without this method some classes do not return their output layer (EuroBERT)."""

    def forward(self, *_: object, inputs_embeds: Tensor, **__: object) -> BaseModelOutput:
        return _Passed(last_hidden_state=inputs_embeds)


class _Passed(BaseModelOutput):
    """Token embeddings, with None for other outputs that some families read (Longformer's attentions)."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


def _load(encoder: PreTrainedModel, checkpoint: str | None, revision: str | None) -> PreTrainedModel:
    """Return the full model of a checkpoint, by default the encoder's, if its head fits the encoder."""
    name = checkpoint or encoder.config.name_or_path
    if not name:
        raise NoPretrainedHeadError("the encoder was not loaded from a checkpoint")
    where = {"revision": revision or "main", "cache_dir": host.model_cache()}
    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()  # our own message replaces the report of missing weights
    try:
        full, info = AutoModelForMaskedLM.from_pretrained(name, output_loading_info=True, **where)
    except (OSError, ValueError) as error:
        if checkpoint:
            raise
        first_line = str(error).strip().partition("\n")[0]
        raise NoPretrainedHeadError(f"{name} could not be loaded ({first_line})") from error
    finally:
        transformers.logging.set_verbosity(level)
    missing = {key for key in info["missing_keys"] if not key.startswith(f"{full.base_model_prefix}.")}
    if missing - set(getattr(full, "all_tied_weights_keys", ())):
        raise NoPretrainedHeadError(f"{name} has no such head")
    wanted, found = word_table(encoder).shape, word_table(full).shape
    if not checkpoint and found[0] < wanted[0] and found[1] == wanted[1]:  # tokens were added to the encoder
        full.resize_token_embeddings(wanted[0], mean_resizing=False)
    elif found != wanted:
        raise NoPretrainedHeadError(
            f"the head of {name} is for word embeddings of shape {tuple(found)}, the encoder has "
            f"{tuple(wanted)}"
        )
    return full
