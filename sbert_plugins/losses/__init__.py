"""One loss class a method. Each reads text columns by position and returns its weighted terms.

``losses.official``, imported on first use, has those of the authors' public code where that computes something else.
"""

import importlib
import types
from typing import TYPE_CHECKING

from .arccse import ArcCSELoss
from .bag_of_words import BagOfWordsLoss
from .consert import ConSERTLoss
from .denosent import DenoSentLoss
from .paser import PaSeRLoss
from .pt_bert import PTBERTLoss
from .slt_fai import SLTFAILoss
from .weighted_sum import WeightedSumLoss

__all__ = [
    "ArcCSELoss",
    "BagOfWordsLoss",
    "ConSERTLoss",
    "DenoSentLoss",
    "PTBERTLoss",
    "PaSeRLoss",
    "SLTFAILoss",
    "WeightedSumLoss",
]


def __getattr__(name: str) -> types.ModuleType:
    if name == "official":
        return importlib.import_module(f"{__name__}.official")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if TYPE_CHECKING:
    from sbert_plugins.contract import Loss
    from sbert_plugins.losses import official

    _: tuple[type[Loss], ...] = (  # that each keeps the contract is the type checker's to see
        ArcCSELoss,
        BagOfWordsLoss,
        ConSERTLoss,
        DenoSentLoss,
        PaSeRLoss,
        PTBERTLoss,
        SLTFAILoss,
        WeightedSumLoss,
        official.DenoSentLoss,
        official.PaSeRLoss,
        official.PTBERTLoss,
        official.SLTFAILoss,
    )
