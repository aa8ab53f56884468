"""A slow copy of an encoder and of what sits on it (MoCo)."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from sbert_plugins import host
from sbert_plugins.encoder import Encoder, Pass, unwrap

from .ema import ema_update


class MomentumEncoder(nn.Module):
    r"""Exact frozen copies of modules that run one after the other, moved towards them by :meth:`update`: PT-BERT eq. 5.

    .. math:: \theta_k \leftarrow m\,\theta_k + (1 - m)\,\theta_q

    The owner calls :meth:`update` after each optimizer step (:func:`after_optimizer_step`). The first module is the
    encoder; it is held as ``copies``, for the trainer would put the trained encoder in the place of an attribute ``model``.

    Args:
        *modules: What to copy: the encoder first, then what reads its output.
        momentum: :math:`m`, in [0, 1).
        dropout: Whether the copies use dropout in training.

    Raises:
        ValueError: On a momentum out of range.
    """

    def __init__(self, *modules: nn.Module, momentum: float, dropout: bool = True) -> None:
        super().__init__()
        self.momentum = momentum
        self.dropout = dropout
        self.copies = nn.ModuleList(copy.deepcopy(module) for module in modules).requires_grad_(False)
        host.undo_preparation(self.copies[0])  # an earlier training's
        self._keep_precision()

    @property
    def momentum(self) -> float:
        """It may be set during a training."""
        return self._momentum

    @momentum.setter
    def momentum(self, momentum: float) -> None:
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum must be in [0, 1), got {momentum}. PT-BERT's code has 0.885, MoCo 0.999.")
        self._momentum = momentum

    def _keep_precision(self) -> None:
        for parameter in self.copies.parameters():
            if parameter.dtype in (torch.bfloat16, torch.float16):
                parameter.data = parameter.data.float()  # a step of 1 - m is below the last bit of half precision

    @torch.no_grad()
    def forward(self, features: dict[str, Tensor], *, training: bool) -> Any:
        """Run a batch through the copies, ``training`` being the mode of the module that they were copied from.

        What reads the encoder's output is given an :class:`encoder.Pass`.
        """
        output: Any = self.encode(features, training=training)
        for module in self.copies[1:]:
            output = module(output)
        return output

    @torch.no_grad()
    def encode(self, features: dict[str, Tensor], *, training: bool) -> Pass:
        """Run a batch through the first copy, the encoder's; all copies are in their mode then."""
        self._keep_precision()  # loss.bfloat16() is of the copies, too
        self.copies.train(training and self.dropout)  # each time: trainers and loops set the mode of what a loss holds, or not
        encoder: Any = self.copies[0]
        # The trainer's autocast covers the forward of the trained model only.
        with host.half_for_flash(unwrap(encoder).transformers_model):
            (output,) = Encoder(encoder)([features], tokens=True)
        return output

    def check(self, *modules: nn.Module) -> list[nn.Parameter]:
        """Return the modules' parameters, which may be wrapped (DistributedDataParallel, torch.compile) by now.

        Raises:
            ValueError: If they are others than those that were copied: adapters, new tokens.
        """
        parameters = [parameter for module in modules for parameter in host.parameters_of(module)]
        if [value.shape for value in parameters] != [value.shape for value in host.parameters_of(self.copies)]:
            raise ValueError(
                "the encoder must keep the parameters that it had when the loss copied it, got others (adapters such as LoRA, "
                "or new tokens, that were added later): build the loss after them."
            )
        return parameters

    @torch.no_grad()
    def update(self, *modules: nn.Module) -> None:
        """Move the copies towards the modules.

        Raises:
            ValueError: As :meth:`check`.
        """
        ema_update(host.parameters_of(self.copies), self.check(*modules), self.momentum)
