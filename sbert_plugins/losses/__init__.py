"""One loss class a method. Each reads text columns by position and returns its weighted terms."""

from .arccse import ArcCSELoss
from .paser import PaSeRLoss
from .pt_bert import PTBERTLoss
from .weighted_sum import WeightedSumLoss

__all__ = ["ArcCSELoss", "PTBERTLoss", "PaSeRLoss", "WeightedSumLoss"]
