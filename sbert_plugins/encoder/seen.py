"""The passes that a loss of others makes, seen by hooks: nothing of the loss but its calls of the encoder is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .distributed import is_compiled, is_training, unwrap
from .encode import Pass
from .passes import ENCODER_TOKENS, encoder_tokens_kept
from .views import VIEWS


class FirstPass:
    """Computes a loss and finds its first pass over the first column; remembers which of its passes that is."""

    def __init__(self) -> None:
        self.place: int | None = None

    def __call__(
        self, model: nn.Module, loss: nn.Module, columns: Sequence[dict[str, Tensor]], labels: Tensor | None
    ) -> tuple[Any, Pass]:
        """Return the value of ``loss`` and its pass.

        Raises:
            ValueError: If the loss does not embed the first column through ``model``.
        """
        passes: list[tuple[dict[str, Any], bool]] = []

        def keep(module: nn.Module, arguments: object, output: dict[str, Any]) -> None:
            # A copy: a balanced sum replaces what is in it by what its members read.
            passes.append((dict(output), is_training(model)))

        # Behind the last module: MatryoshkaLoss cuts and normalises what comes out of the model.
        hook = (model if is_compiled(model) else unwrap(model)[-1]).register_forward_hook(keep)
        try:
            with encoder_tokens_kept(model):
                value = loss([dict(column) for column in columns], labels)
        finally:
            hook.remove()
        output, dropout = passes[self._find([output for output, _ in passes], columns[0]["input_ids"], loss)]
        tokens = output.get(ENCODER_TOKENS, output["token_embeddings"])
        view = next(iter(output.get(VIEWS, ())), None)
        rows = slice(len(columns[0]["input_ids"]))
        return value, Pass(output["sentence_embedding"], tokens, output.get("attention_mask"), rows, view, dropout)

    def _find(self, outputs: list[dict[str, Tensor]], ids: Tensor, loss: nn.Module) -> int:
        same = next((i for i, output in enumerate(outputs) if output.get("input_ids") is ids), None)
        if same is not None:
            self.place = same
        elif self.place is None or self.place >= len(outputs):
            # A merged pass holds a copy of the ids. Comparing takes a transfer from the device: once, for such losses make
            # their passes in one order.
            self.place = next((i for i, output in enumerate(outputs) if _begins_with(output, ids)), None)
            if self.place is None:
                raise ValueError(
                    f"the base loss must embed the first column through its model, which {type(loss).__name__} did not "
                    f"in {len(outputs)} passes: its columns may be in another order, or it embeds texts of its own, or this "
                    "column by a copy of the model."
                )
        return self.place


def _begins_with(output: dict[str, Tensor], ids: Tensor) -> bool:
    rows, length = ids.shape
    read = output.get("input_ids")
    return read is not None and read.ndim == 2 and torch.equal(read[:rows, :length], ids)
