"""Sharpness-Aware Minimization as a step of the trainer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sbert_plugins import host

from .loss_state import named_losses, own_state

if TYPE_CHECKING:
    from .trainer import SentenceTransformerTrainer


class SharpnessAwareStep:
    r"""Replaces the gradients of an update by those at the worst point nearby (Foret et al., ICLR 2021, eq. 2 and 3).

    .. math::
        \hat\epsilon = \rho\, g / \lVert g \rVert_2,\quad w \leftarrow \mathrm{step}(w, \nabla L(w + \hat\epsilon))

    With :math:`g` the gradient of the whole update: all its micro-batches, all ranks, encoder and loss together. The second
    pass replays the micro-batches with the same random states, so that dropout and masks are those of the first; the
    logged loss is that of the first. Libraries of optimizers offer SAM as an optimizer whose ``step`` takes a closure or
    comes in two halves, and the trainer calls ``step`` once, without one.

    Args:
        trainer: The trainer whose micro-batches are run.
        rho: Radius, above 0.
    """

    def __init__(self, trainer: SentenceTransformerTrainer, rho: float) -> None:
        if not rho > 0:
            raise ValueError(f"sam_rho must be above 0, got {rho}. 0.05 is its paper's default; None leaves SAM out.")
        self.trainer = trainer
        self.rho = rho
        self.is_replaying = False
        self._batches: list[tuple[dict[str, Any], Any, tuple]] = []

    def check(self) -> None:
        """Refuse what cannot be right, before the first step."""
        if self.trainer.args.fp16:
            raise ValueError("sam_rho cannot be used with fp16: its gradient scaler would be asked twice. Use bf16.")
        if self.trainer.args.device.type not in ("cpu", "cuda"):
            raise ValueError(
                f"sam_rho replays random states, which is tested on cpu and cuda, got {self.trainer.args.device.type}: "
                "train without it."
            )
        self._batches.clear()

    def training_step(
        self, step: Callable[..., Tensor], model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any
    ) -> Tensor:
        """Run a micro-batch; after the last one of an update perturb, replay, restore."""
        random_state = host.random_state(self.trainer.args.device)
        before = self._versions()
        # A copy, because the trainer takes keys out of the batch.
        self._batches.append((dict(inputs), num_items_in_batch, random_state))
        try:
            loss = step(model, inputs, num_items_in_batch)
        except BaseException:
            self._batches.clear()  # whoever goes on, out of memory with fewer rows, begins the update anew
            raise
        self._check_state(before)
        if self.trainer.accelerator.sync_gradients:
            self.trainer.average_own_gradients()
            self._replay(step, model)
            self.trainer.average_own_gradients()
        return loss

    def _replay(self, step: Callable[..., Tensor], model: nn.Module) -> None:
        optimizer = self.trainer.optimizer
        assert optimizer is not None  # the trainer builds it before the first step
        parameters = [
            parameter for group in optimizer.param_groups for parameter in group["params"] if parameter.grad is not None
        ]
        saved = [parameter.detach().clone() for parameter in parameters]
        with torch.no_grad():
            gradients = [parameter.grad for parameter in parameters]
            norm = torch.linalg.vector_norm(torch.stack([gradient.float().norm() for gradient in gradients]))
            host.add_all(parameters, gradients, self.rho / (norm + 1e-12))
        for parameter in parameters:
            parameter.grad = None
        batches, self._batches = self._batches, []
        self.is_replaying = True
        try:
            for i, (inputs, num_items_in_batch, random_state) in enumerate(batches):
                host.set_random_state(self.trainer.args.device, random_state)
                is_last = i == len(batches) - 1
                with nullcontext() if is_last else self.trainer.accelerator.no_sync(model=model):
                    step(model, inputs, num_items_in_batch)
        finally:
            self.is_replaying = False
            with torch.no_grad():
                host.copy_all(parameters, saved)

    def _versions(self) -> dict[str, tuple[int, int]]:
        """Identity and number of in-place changes of each buffer that a loss owns."""
        return {
            f"{type(member).__name__}.{name}": (id(tensor), host.count_changes(tensor))
            for member in named_losses(self.trainer.loss).values()
            for name, tensor in own_state(member, self.trainer.model).items()
            if not isinstance(tensor, nn.Parameter)
        }

    def _check_state(self, before: dict[str, tuple[int, int]]) -> None:
        """A queue or counter that a forward moves would move twice an update."""
        if moved := [name for name, version in self._versions().items() if before.get(name) != version]:
            raise ValueError(
                f"sam_rho runs each batch twice, but {', '.join(moved)} changes in every forward and would change twice: "
                "train this loss without sam_rho."
            )
