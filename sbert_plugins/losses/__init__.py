"""One loss class a method. Each reads text columns by position and returns its weighted terms."""

from .arccse import ArcCSELoss
from .paser import PaSeRLoss

__all__ = ["ArcCSELoss", "PaSeRLoss"]
