"""The masked-language-model head of any encoder, on positions that somebody else has chosen."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
import transformers
from huggingface_hub.constants import HF_HUB_OFFLINE
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.func import functional_call
from transformers import AutoModelForMaskedLM, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from sbert_plugins import host
from sbert_plugins.encoder import unwrap

logger = logging.getLogger(__name__)


class NoPretrainedHead(ValueError):
    """An encoder's checkpoint holds no masked-language-model head."""


class MLMHead(nn.Module):
    """Token embeddings to logits over the vocabulary, by the head that the encoder was pretrained with.

    sentence-transformers loads encoders without their head. Here the architecture's own ``ForMaskedLM`` class is loaded,
    its encoder replaced by the trained one to tie the output weights to the trained word embeddings, and then by a stub that
    passes the token embeddings through: one mechanism for BERT, RoBERTa, XLM-R, MPNet, DistilBERT, ELECTRA, DeBERTa-v2,
    ModernBERT and every class built like them. Output weights that were pretrained apart from the word embeddings (EuroBERT),
    or are of another width (RemBERT), stay the head's own.

    Args:
        model: The encoder that is trained. Its word embeddings are the output weights where the two are tied.
        checkpoint: Path or Hub name to read the head from: by default the one that the encoder was loaded from, in the
            ``revision`` that SentenceTransformer was asked for (not with ``local_files_only=True``, which does not note it).
            ``"fresh"`` takes new random weights, and ``"saved"`` those of a pretrained head whose state is loaded afterwards.
        or_new: Whether a new head takes the place of one that the encoder's checkpoint does not hold.

    Tokens that were added to the encoder get rows in its own head, too. Where the checkpoint holds no head (a saved
    sentence-transformers model, for instance) the head is fresh and a warning says so.

    Raises:
        ValueError: If the architecture has no masked-language-model class, the encoder is not a transformer, or the head of
            ``checkpoint`` is of another vocabulary or width.
        NoPretrainedHead: A ValueError too, if there is none and ``or_new`` is False.
        OSError: If ``checkpoint`` is given and cannot be loaded.
    """

    def __init__(self, model: SentenceTransformer, *, checkpoint: str | None = None, or_new: bool = True) -> None:
        super().__init__()
        encoder = encoder_of(model)
        # The head is of the encoder's own revision.
        revision = None if checkpoint else host.revision_of(unwrap(model))
        full, self.is_pretrained = _load_full_model(encoder, checkpoint, revision, or_new)
        setattr(full, full.base_model_prefix, encoder)
        full.tie_weights()
        embeddings, output = table_of(encoder), full.get_output_embeddings()
        if not (self.is_pretrained or output.weight.shape != embeddings.shape):
            output.weight = embeddings  # tie_word_embeddings may be off
        setattr(full, full.base_model_prefix, _PassThrough())
        # transformers' decorator hides self from the checker.
        self.full = full.to(device=embeddings.device, dtype=embeddings.dtype)  # type: ignore[call-arg]
        self._is_tied = output.weight is embeddings
        self._pad = silent_token(encoder) if self._is_tied else None

    @property
    def table(self) -> Tensor:
        """The output matrix (V, E): the encoder's word embeddings, or the head's own where they were not pretrained as one."""
        return self.full.get_output_embeddings().weight

    @property
    def width(self) -> int:
        """Width D of the token embeddings that it reads."""
        return self.full.config.hidden_size

    def untie(self) -> None:
        """Give the output matrix weights of its own, a copy of what they are: not tied to the word embeddings any more."""
        output = self.full.get_output_embeddings()
        output.weight = nn.Parameter(output.weight.detach().clone())
        self._is_tied, self._pad = False, None

    def follow(self, model: nn.Module) -> None:
        """Take the encoder's dtype, which ``model.bfloat16()`` changes without the head, and its table where it has another.

        To be called in each forward. Weights that are tied stay so until :meth:`untie`.

        Raises:
            ValueError: If the encoder has another number of word embeddings by now, to which the head does not fit.
        """
        output = self.full.get_output_embeddings()
        words = table_of(encoder_of(model), before=output.out_features)
        if any(parameter.dtype != words.dtype for parameter in self.parameters()):
            with torch.inference_mode(False):  # of an evaluation, whose tensors cannot be trained
                self.to(words.dtype)
        if self._is_tied and output.weight is not words:
            output.weight = words

    def forward(self, token_embeddings: Tensor, candidates: Tensor | None = None) -> Tensor:
        """Map (N, D) token embeddings to (N, V) logits, or to those of the (C,) ids that are candidates."""
        size = len(self.table)
        inputs = {"inputs_embeds": token_embeddings.to(self.table.dtype).unsqueeze(0)}
        if candidates is None:
            return keep_silent(self.full(**inputs).logits.squeeze(0), self._pad)
        # The same head with a smaller vocabulary: names differ from family to family, and MobileBERT has its matrix in two.
        fewer = {
            name: tensor.index_select(tensor.shape.index(size), candidates)
            for name, tensor in self.full.named_parameters()
            if size in tensor.shape
        }
        return functional_call(self.full, fewer, kwargs=inputs).logits.squeeze(0)


def encoder_of(model: nn.Module) -> PreTrainedModel:
    """Return the transformers encoder of a model, which may be wrapped.

    Raises:
        ValueError: If it has none.
    """
    encoder = getattr(unwrap(model), "transformers_model", None)
    if encoder is not None:
        encoder = host.inside_compiled(encoder) or encoder  # the transformer alone may be compiled
    if not isinstance(encoder, PreTrainedModel):
        raise ValueError(
            f"words are scored with a transformers encoder, got {type(encoder).__name__}: "
            "use a model that begins with a Transformer module."
        )
    return encoder


def table_of(encoder: PreTrainedModel, *, before: int | None = None) -> nn.Parameter:
    """Return the word embeddings (V, E) of an encoder.

    Raises:
        ValueError: If they are not as many as they were ``before``.
    """
    embeddings = encoder.get_input_embeddings()
    if hasattr(embeddings, "base_layer"):
        raise ValueError(
            "words are scored with the encoder's word embeddings, which an adapter (PEFT) changes where they are read, not in "
            "their table: leave them out of the adapter's target_modules."
        )
    table = embeddings.weight
    assert isinstance(table, nn.Parameter)
    if before is not None and len(table) != before:
        raise ValueError(
            f"the encoder must keep the {before:,} word embeddings that it had when the loss was built, got {len(table):,}: "
            "call resize_token_embeddings before the loss is built."
        )
    return table


def silent_token(encoder: PreTrainedModel) -> int | None:
    """Return the id of the padding if its embedding is 0, which it then stays.

    transformers sets it so when it loads a Funnel, whose vectors hold some of the padding.
    """
    pad = getattr(encoder.get_input_embeddings(), "padding_idx", None)
    return pad if pad is not None and not table_of(encoder)[pad].any() else None


def keep_silent(logits: Tensor, token: int | None) -> Tensor:
    """Return (N, V) logits that teach a token's embedding nothing; None leaves out no token."""
    if token is not None and logits.requires_grad:
        # As detaching the column would do, which in place costs two copies of the gradient instead of one.
        logits.register_hook(partial(_without_column, column=token))
    return logits


def _without_column(gradient: Tensor, *, column: int) -> Tensor:
    gradient = gradient.clone()
    gradient[:, column] = 0
    return gradient


class _PassThrough(nn.Module):
    """Stands where the encoder stood."""

    def get_input_embeddings(self) -> None:
        """Answer classes that show their output layer only beside an input layer (EuroBERT)."""

    def forward(self, *_: object, inputs_embeds: Tensor, **__: object) -> BaseModelOutput:
        return _Passed(last_hidden_state=inputs_embeds)


class _Passed(BaseModelOutput):
    """Token embeddings, and None for all else that an encoder of this family may give (Longformer's global attentions)."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


def _load_full_model(
    encoder: PreTrainedModel, checkpoint: str | None, revision: str | None, or_new: bool
) -> tuple[PreTrainedModel, bool]:
    is_new = checkpoint in ("fresh", "saved")
    if not is_new:
        full, reason = _pretrained(encoder, checkpoint, revision)
        if full is not None:
            return full, True
        if not or_new:
            raise NoPretrainedHead(reason)
    if not host.has_masked_language_model(encoder.config):
        raise ValueError(
            f"transformers has no masked-language-model head for {type(encoder).__name__}: "
            "use an encoder of a family that was pretrained with masks (BERT, RoBERTa, MPNet, DeBERTa, ModernBERT, ...)."
        )
    if not is_new:
        logger.warning(
            "There is no pretrained masked-language-model head, so a new one starts from random weights, tied to the word "
            "embeddings: %s. Name a checkpoint that has one (mlm_head='bert-base-uncased', for instance).",
            reason,
        )
    return AutoModelForMaskedLM.from_config(encoder.config), checkpoint == "saved"


def _pretrained(encoder: PreTrainedModel, checkpoint: str | None, revision: str | None) -> tuple[PreTrainedModel | None, str]:
    """Return the encoder's class with the head of a checkpoint, by default its own, or None and the reason."""
    name = checkpoint or encoder.config.name_or_path
    reason = f"{name or 'the encoder'} holds none"
    if not name:
        return None, reason
    try:
        with _quiet():  # what is missing is told in words
            where = {"revision": revision or "main", "cache_dir": host.model_cache()}  # as of the encoder
            full, info = AutoModelForMaskedLM.from_pretrained(name, output_loading_info=True, **where)
    except (OSError, ValueError) as error:
        if checkpoint:
            raise
        said, _, _ = str(error).strip().partition("\n")
        why = "it is not on this machine, and HF_HUB_OFFLINE is set" if HF_HUB_OFFLINE else said or type(error).__name__
        return None, f"{name} could not be read ({why})"
    prefix = re.compile(rf"^{full.base_model_prefix}\.")
    missing = sorted(key for key in info["missing_keys"] if not prefix.match(key))
    tied = set(full.all_tied_weights_keys) if hasattr(full, "all_tied_weights_keys") else set()
    if set(missing) - tied:
        return None, reason
    has_its_words = _has_words_of(full, encoder)  # before it grows
    if _fits(full, encoder, grown=not checkpoint):
        if not checkpoint and not has_its_words:
            logger.warning(
                "The head of %s comes with other word embeddings than the encoder has: the encoder was trained since it was "
                "loaded, or is of another revision, of which the head should be, too.",
                name,
            )
        return full, ""
    shapes = [tuple(table_of(each).shape) for each in (full, encoder)]
    reason = f"that of {name} is of word embeddings {shapes[0]}, and the encoder's are {shapes[1]}"
    if checkpoint:
        raise ValueError(f"mlm_head must be a checkpoint with the encoder's word embeddings, but {reason}.")
    return None, reason


def _has_words_of(full: PreTrainedModel, encoder: PreTrainedModel) -> bool:
    """Whether the word embeddings that came with a head are those of an encoder, but for words that were added to it."""
    theirs, ours = table_of(full).detach(), table_of(encoder).detach()
    shared = min(len(theirs), len(ours))
    is_as_wide = theirs.shape[1:] == ours.shape[1:]
    return is_as_wide and torch.equal(theirs[:shared].to(ours.device, ours.dtype), ours[:shared])


@contextmanager
def _quiet() -> Iterator[None]:
    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers.logging.set_verbosity(level)


def _fits(full: PreTrainedModel, encoder: PreTrainedModel, *, grown: bool) -> bool:
    """Return whether a head reads the encoder's vectors, after it got rows for tokens that were added, where it may."""
    words, width = table_of(encoder).shape
    its_words, its_width = table_of(full).shape
    if grown and its_words < words and its_width == width:
        full.resize_token_embeddings(words, mean_resizing=False)
        return True
    return (its_words, its_width) == (words, width)
