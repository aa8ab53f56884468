"""One loss class a method. Each reads text columns by position and returns its weighted terms."""

from .arccse import ArcCSELoss

__all__ = ["ArcCSELoss"]
