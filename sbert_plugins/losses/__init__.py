"""One loss class a method. Each reads text columns by position and returns its weighted terms."""

from .arccse import ArcCSELoss
from .denosent import DenoSentLoss
from .paser import PaSeRLoss
from .pt_bert import PTBERTLoss
from .weighted_sum import WeightedSumLoss

__all__ = [
    "ArcCSELoss",
    "DenoSentLoss",
    "PTBERTLoss",
    "PaSeRLoss",
    "WeightedSumLoss",
]
