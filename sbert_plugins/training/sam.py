"""Sharpness-Aware Minimization as a step of the trainer."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from sentence_transformers import SentenceTransformerTrainer
from torch import Tensor, nn

from sbert_plugins import host

from .loss_state import own_state


class SharpnessAwareStep:
    r"""Replaces the gradients of an update by those at the worst point nearby (Foret et al., 2021, eq. 2, 3).

    .. math::
        \hat\epsilon = \rho\, g / \lVert g \rVert_2,\quad
        w \leftarrow \mathrm{step}(w, \nabla L(w + \hat\epsilon))

    :math:`g` is the gradient of the whole update, over all its micro-batches and processes, of encoder and
    loss together. The second pass repeats the micro-batches with the same random states, so that it draws the
    same dropout and masks.

    Args:
        trainer: The trainer whose micro-batches are run.
        rho: Radius, greater than 0.
        average_gradients: Averages the gradients that DistributedDataParallel leaves to the trainer.
    """

    def __init__(
        self, trainer: SentenceTransformerTrainer, rho: float, average_gradients: Callable[[], None]
    ) -> None:
        self.trainer = trainer
        self.rho = rho
        self.average_gradients = average_gradients
        self.is_repeating = False
        self.batches: list[tuple[dict[str, Any], Any, tuple]] = []  # of the current update

    def training_step(
        self, step: Callable[..., Tensor], model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any
    ) -> Tensor:
        """Run a micro-batch. After the last one of an update, move the weights, repeat all and move back."""
        before = self._buffer_versions()
        # A copy, because the trainer removes keys from the batch.
        self.batches.append((dict(inputs), num_items_in_batch, host.random_state(self.trainer.args.device)))
        loss = step(model, inputs, num_items_in_batch)
        if changed := [name for name, now in self._buffer_versions().items() if before.get(name) != now]:
            raise ValueError(
                f"sam_rho must be 0 for this loss: each of the two passes would change {', '.join(changed)}."
            )
        if self.trainer.accelerator.sync_gradients:
            self.average_gradients()
            self._repeat(step, model)
        return loss

    def _repeat(self, step: Callable[..., Tensor], model: nn.Module) -> None:
        groups = self.trainer.optimizer.param_groups  # type: ignore[union-attr]
        parameters = [one for group in groups for one in group["params"] if one.grad is not None]
        saved = [parameter.detach().clone() for parameter in parameters]
        gradients = [parameter.grad for parameter in parameters]
        with torch.no_grad():
            norm = torch.linalg.vector_norm(torch.stack([gradient.float().norm() for gradient in gradients]))
            scale = self.rho / (norm + 1e-12)
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.add_(gradient * scale)
        for parameter in parameters:
            parameter.grad = None
        batches, self.batches = self.batches, []
        self.is_repeating = True
        try:
            for i, (inputs, num_items_in_batch, random_state) in enumerate(batches, start=1):
                host.set_random_state(self.trainer.args.device, random_state)
                with nullcontext() if i == len(batches) else self.trainer.accelerator.no_sync(model=model):
                    step(model, inputs, num_items_in_batch)
        finally:
            self.is_repeating = False
            with torch.no_grad():
                for parameter, value in zip(parameters, saved, strict=True):
                    parameter.copy_(value)

    def _buffer_versions(self) -> dict[str, tuple[int, int]]:
        """Return for each buffer of the loss its identity and the number of changes in place."""
        state = own_state(self.trainer.loss, self.trainer.model)
        return {
            name: (id(tensor), host.count_changes(tensor))
            for name, tensor in state.items()
            if not isinstance(tensor, nn.Parameter)
        }
