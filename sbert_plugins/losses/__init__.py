"""Loss classes. Each reads text columns by their order and returns its weighted terms.

``losses.official`` has the forms of the authors' public code where that computes something else than the
paper.
"""

import importlib
import types

from .arccse import ArcCSELoss
from .bag_of_words import BagOfWordsLoss
from .consert import ConSERTLoss
from .denosent import DenoSentLoss
from .paser import PaSeRLoss
from .pt_bert import PTBERTLoss
from .self_distillation import SelfDistillationLoss
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
    "SelfDistillationLoss",
    "WeightedSumLoss",
]


def __getattr__(name: str) -> types.ModuleType:
    if name == "official":
        return importlib.import_module(f"{__name__}.official")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
