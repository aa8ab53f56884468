"""Text in, text or datasets out. Knows nothing of models."""

from .text import read_sentences

__all__ = ["read_sentences"]
