"""SLT-FAI around SimCSE as in its paper. Sources of the values: protocols/slt-fai.paper.toml."""

from collections.abc import Mapping
from typing import Any

from datasets import Dataset
from sentence_transformers import SentenceTransformer
from torch import nn

from sbert_plugins import losses
from sbert_plugins.recipes.recipe import Recipe, count_tokens

# Base losses by name.
_BASES = {
    "simcse": "SimCSELoss",
    "consert": "ConSERTLoss",
    "arccse": "ArcCSELoss",
    "denosent": "DenoSentLoss",
    "pt-bert": "PTBERTLoss",
}


def slt_fai_loss(
    model: SentenceTransformer,
    *,
    backbone: str = "simcse",
    temperature: float | None = None,
    official: bool = False,
    **keywords: Any,
) -> nn.Module:
    """Build SLT-FAI around a base loss.

    Args:
        model: The encoder.
        backbone: The base loss: ``"simcse"``, ``"consert"``, ``"arccse"``, ``"denosent"`` or ``"pt-bert"``.
        temperature: Temperature of the base loss; None for its default.
        official: Whether to build :class:`losses.official.SLTFAILoss`, which computes what the authors' code
            computes.
        **keywords: Keywords of :class:`losses.SLTFAILoss`.

    Raises:
        ValueError: For an unknown base loss.
    """
    if backbone not in _BASES:
        raise ValueError(f"backbone must be {', '.join(_BASES)}, got {backbone!r}.")
    given: dict[str, Any] = {} if temperature is None else {"temperature": temperature}
    if backbone == "simcse":  # as the default of SLTFAILoss
        given["projection_head"] = False
    base = getattr(losses, _BASES[backbone])(model, **given)
    room = losses.official if official else losses
    return room.SLTFAILoss(model, base, **keywords)


def prepare(
    rows: Dataset, model: SentenceTransformer, given: Mapping[str, Any], *, epochs: float, **_: Any
) -> tuple[Dataset, dict[str, Any]]:
    """Find the warm-up, which the paper gives in epochs, and token counts."""
    # The paper gives it for its two base losses. Any other has that of SimCSE.
    warmup = 0.5 if given.get("backbone") == "consert" else 0.1
    return rows, {"warmup_steps": min(0.5, warmup / epochs)} | count_tokens(rows, model, given)


SLT_FAI = Recipe(
    name="slt-fai",
    loss=slt_fai_loss,
    loss_class="SLTFAILoss",
    optional=("positive",),
    arguments={
        "learning_rate": 3e-5,
        "per_device_train_batch_size": 32,
        "num_train_epochs": 1,
        "eval_steps": 125,
    },
    prepare=prepare,
    paper_updates=31_250,  # computed: one epoch of a million sentences, 32 per update
)
