"""Temporary: what the training room still imports."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sentence_transformers.base.model import BaseModel
from torch import Tensor, nn

from sbert_plugins.encoder import freeze_mask_template  # noqa: F401


def talks_to_others(loss: nn.Module) -> bool:
    return any(
        getattr(part, "gather_across_devices", False) or getattr(part, "balance", None) is not None or hasattr(part, "queue")
        for part in loss.modules()
    )


def keeps_its_mode(module: nn.Module, *, of_model: Collection[int] = ()) -> bool:
    own = [parameter for parameter in module.parameters() if id(parameter) not in of_model]
    is_frozen = bool(own) and not any(parameter.requires_grad for parameter in own)
    return isinstance(module, BaseModel) or (is_frozen and not module.training)


def check_value(loss: object, value: object) -> None:
    rule = f"{type(loss).__name__}.forward must return a scalar tensor, or a dict of them by name"
    terms: Any = value if isinstance(value, Mapping) else {"": value}
    if not terms or not all(isinstance(term, Tensor) and term.ndim == 0 for term in terms.values()):
        raise ValueError(f"{rule}, got {value!r}.")
