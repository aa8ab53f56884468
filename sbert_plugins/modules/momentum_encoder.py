"""A slowly moving copy of an encoder and of the modules on it (MoCo)."""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from sbert_plugins import host
from sbert_plugins.encoder import Encoder, Pass, unwrap


class MomentumEncoder(nn.Module):
    r"""Frozen copies of modules, which :meth:`update` moves towards them: PT-BERT eq. 5.

    .. math:: \theta_k \leftarrow m\,\theta_k + (1 - m)\,\theta_q

    The copies start equal to the modules. The owner calls :meth:`update` after each optimizer step
    (:func:`after_optimizer_step`).

    Args:
        *modules: The encoder, then the modules that read its :class:`encoder.Pass`.
        momentum: :math:`m`, in [0, 1).
        dropout: Uses dropout in training.
    """

    def __init__(self, *modules: nn.Module, momentum: float, dropout: bool = True) -> None:
        super().__init__()
        self.momentum = momentum
        self.dropout = dropout
        # In a list, because the trainer would replace a copy in an attribute named "model" by the trained
        # encoder.
        self.copies = nn.ModuleList(copy.deepcopy(module) for module in modules).requires_grad_(False)
        host.undo_preparation(self.copies[0])
        self._keep_precision()

    def _keep_precision(self) -> None:
        """Convert half precision to float32, because half precision would lose a change of 1 - m."""
        for parameter in self.copies.parameters():
            if parameter.dtype in (torch.bfloat16, torch.float16):
                parameter.data = parameter.data.float()

    @torch.no_grad()
    def forward(self, features: dict[str, Tensor], *, training: bool) -> Any:
        """Run a batch through all copies. ``training`` is the mode of the trained encoder."""
        output: Any = self.encode(features, training=training)
        for module in self.copies[1:]:
            output = module(output)
        return output

    @torch.no_grad()
    def encode(self, features: dict[str, Tensor], *, training: bool) -> Pass:
        """Run a batch through the copy of the encoder."""
        self._keep_precision()  # loss.bfloat16() converts the copies, too
        self.copies.train(training and self.dropout)
        encoder: Any = self.copies[0]
        # The trainer's autocast covers only the forward of the trained model.
        with host.half_for_flash(unwrap(encoder).transformers_model):
            return Encoder(encoder)([features], tokens=True)[0]

    @torch.no_grad()
    def update(self, *modules: nn.Module) -> None:
        """Move the copies towards the modules.

        Raises:
            ValueError: If the modules have other parameters than those that were copied (adapters, new
                tokens).
        """
        trained = [parameter for module in modules for parameter in module.parameters()]
        averages: list[Tensor] = list(self.copies.parameters())
        if [each.shape for each in trained] != [average.shape for average in averages]:
            raise ValueError(
                "The encoder has other parameters than when the loss was built: build the loss after them."
            )
        values = [each.to(average.dtype) for each, average in zip(trained, averages, strict=True)]
        get_ema_multi_avg_fn(self.momentum)(averages, values, 0)
