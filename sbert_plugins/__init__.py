"""Five papers on self-supervised sentence embeddings as loss classes for sentence-transformers.

The rooms (``losses``, ``functional``, ``modules``, ``data``, ``training``, ``evaluation``, ``recipes``) are
imported on first use, so that ``import sbert_plugins`` loads no torch.
"""

import importlib
from types import ModuleType

__version__ = "0.1.0"

_ROOMS = ("data", "evaluation", "functional", "losses", "modules", "recipes", "training")
__all__ = ["__version__", *_ROOMS]


def __getattr__(name: str) -> ModuleType:
    if name in _ROOMS:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
