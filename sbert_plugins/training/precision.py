"""What a precision costs on the machine that trains."""

from __future__ import annotations

import logging

import torch
from torch import nn
from torch.utils.benchmark import Timer
from transformers import TrainingArguments

logger = logging.getLogger(__name__)


def has_bf16(device: torch.device) -> bool:
    """Whether a GPU computes bfloat16; those before Ampere (T4, V100) emulate it."""
    if device.type != "cuda":
        return False
    with torch.cuda.device(device):  # it asks of the current one
        return torch.cuda.is_bf16_supported(including_emulation=False)


def tell_of_slow_bf16(arguments: TrainingArguments) -> None:
    """Warn where bfloat16 is only emulated: each update takes several times as long, and nobody says why."""
    if arguments.bf16 and arguments.device.type == "cuda" and not has_bf16(arguments.device):
        logger.warning(
            "This GPU only emulates bfloat16, which is slow: train without it (bf16=False, --no-bf16), or with fp16=True."
        )
    if arguments.bf16 and arguments.device.type == "cpu" and (multiple := bf16_multiple()) > 4:
        logger.warning(
            "This CPU multiplies bfloat16 %.0f times as slowly as float32: train without bf16 (bf16=False, --no-bf16).",
            multiple,
        )


def tell_of_half_weights(model: nn.Module) -> None:
    """Warn where the trained weights are of half precision: most updates are too small to change one, and nobody says so."""
    if half := half_dtypes(model):
        logger.warning(
            "The model has trained weights in %s, in which most updates are too small to change them: call model.float(), or "
            "load it with model_kwargs={'dtype': 'float32'}. bf16=True computes in bfloat16 and keeps the weights.",
            half,
        )


def half_dtypes(model: nn.Module) -> str:
    """Name the dtypes of trained weights that have less than float32; empty where there are none."""
    found = {str(weight.dtype) for weight in model.parameters() if weight.requires_grad and weight.element_size() < 4}
    return ", ".join(sorted(found))


def bf16_multiple() -> float:
    """Return the time of a product of matrices in bfloat16, in that of float32."""

    def seconds(dtype: torch.dtype) -> float:
        matrix = torch.ones(256, 256, dtype=dtype)
        return Timer("matrix @ matrix", globals={"matrix": matrix}).blocked_autorange(min_run_time=0.05).median

    return seconds(torch.bfloat16) / seconds(torch.float32)
