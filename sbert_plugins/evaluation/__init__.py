"""Evaluators that plug into the trainer, the data they read, the report, and the way to MTEB."""

from .geometry import AlignmentUniformityEvaluator, CosineDensityEvaluator
from .mteb import TASK_SETS, evaluate_mteb, submit_mteb
from .report import ModelReport, report_on, write_report
from .sts import TASKS, ScoredPairs, STSSuiteEvaluator, load_sts, read_scored_pairs

__all__ = [
    "TASKS",
    "TASK_SETS",
    "AlignmentUniformityEvaluator",
    "CosineDensityEvaluator",
    "ModelReport",
    "STSSuiteEvaluator",
    "ScoredPairs",
    "evaluate_mteb",
    "load_sts",
    "read_scored_pairs",
    "report_on",
    "submit_mteb",
    "write_report",
]
