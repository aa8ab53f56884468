"""Evaluators that plug into the trainer, and the data they read."""

from .embeddings import EmbeddingEvaluator, Embeddings
from .hard_length import HardLengthEvaluator
from .sts import TASKS, ScoredPairs, STSSuiteEvaluator, load_sts, read_scored_pairs

__all__ = [
    "TASKS",
    "EmbeddingEvaluator",
    "Embeddings",
    "HardLengthEvaluator",
    "STSSuiteEvaluator",
    "ScoredPairs",
    "load_sts",
    "read_scored_pairs",
]
