"""Evaluators that plug into the trainer, and the data they read."""

from .sts import TASKS, ScoredPairs, STSSuiteEvaluator, load_sts, read_scored_pairs

__all__ = ["TASKS", "STSSuiteEvaluator", "ScoredPairs", "load_sts", "read_scored_pairs"]
