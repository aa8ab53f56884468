"""Evaluators that plug into the trainer, the data they read, and the way to MTEB."""

from .mteb import TASK_SETS, evaluate_mteb, submit_mteb
from .sts import TASKS, ScoredPairs, STSSuiteEvaluator, load_sts, read_scored_pairs

__all__ = [
    "TASKS",
    "TASK_SETS",
    "STSSuiteEvaluator",
    "ScoredPairs",
    "evaluate_mteb",
    "load_sts",
    "read_scored_pairs",
    "submit_mteb",
]
