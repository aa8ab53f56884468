"""Parts of a model: the SentenceTransformer inside wrappers, its transformer, its width and its mode."""

from collections.abc import Iterator
from typing import Any

from sentence_transformers import SentenceTransformer
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from transformers import PreTrainedModel

from sbert_plugins import host


def unwrap(model: Any) -> SentenceTransformer:
    """Return the SentenceTransformer inside DistributedDataParallel and torch.compile.

    Use it to look at the model's parts, never to call it: the wrapper's forward averages the gradients.
    """
    return list(_wrappers(model))[-1]


def without_ddp(model: nn.Module) -> nn.Module:
    """Return the module inside a DistributedDataParallel wrapper, for a pass that not every rank makes.

    The wrapper's forward may wait for the other ranks. The gradients of the pass are averaged with the
    others, if every rank also makes a pass through the wrapper in the same step.
    """
    inside = (each.module for each in _wrappers(model) if isinstance(each, DistributedDataParallel))
    return next(inside, model)


def is_compiled(model: nn.Module) -> bool:
    """Return whether torch.compile has wrapped the model. Forward hooks inside it then do nothing."""
    return any(host.inside_compiled(each) is not None for each in _wrappers(model))


def is_training(model: nn.Module) -> bool:
    """Return whether the model is in training mode."""
    return unwrap(model).training  # model.eval() does not reach the flag of a wrapper


def _wrappers(model: Any) -> Iterator[Any]:
    """Yield a model, then the model inside it, and so on to the innermost one."""
    while model is not None:
        yield model
        compiled = host.inside_compiled(model)
        model = getattr(model, "module", None) if compiled is None else compiled


def transformer_of(model: nn.Module) -> PreTrainedModel:
    """Return the transformers encoder of a model, or raise ``ValueError`` if it has none."""
    encoder: Any = unwrap(model).transformers_model
    encoder = host.inside_compiled(encoder) or encoder
    if not isinstance(encoder, PreTrainedModel):
        raise ValueError(
            "The model must begin with a transformers encoder, got one that begins with "
            f"{type(unwrap(model)[0]).__name__}."
        )
    return encoder


def position_limit(model: nn.Module) -> int | None:
    """Return the most tokens that a table of learned positions holds, or None if a model has no such table.

    RoBERTa numbers the positions from behind the id of the padding, so it uses fewer rows.
    """
    table = getattr(getattr(transformer_of(model), "embeddings", None), "position_embeddings", None)
    if not isinstance(table, nn.Embedding):
        return None
    return table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)


def sentence_width(model: SentenceTransformer) -> int:
    """Return the width of the sentence vectors in training, which ``truncate_dim`` does not change."""
    with model.truncate_embeddings(None):
        return model.get_embedding_dimension()  # type: ignore[return-value]
