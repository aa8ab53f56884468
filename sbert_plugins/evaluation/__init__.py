"""Evaluators for sentence-transformers, the report on their scores, and MTEB."""

from .analysis import CosineDensityEvaluator, analysis_sections
from .encoding import EmbeddingEvaluator, JointEvaluator, describe_labels, encode_once, evaluate
from .geometry import AlignmentUniformityEvaluator
from .known_items import KnownItemEvaluator, answer_ranks, reciprocal_ranks
from .mteb import TASK_SETS, Submission, evaluate_mteb, own_task, submit_mteb
from .report import Section, new_figure, plot_learning_curves, plot_scores, render_page, write_report
from .retrieval import (
    MixedRetrievalEvaluator,
    RerankingEvaluator,
    RetrievalEvaluator,
    own_reranking,
    own_retrieval,
)
from .score import Change, Score, format_score, judge, judge_all, measure, name_similarity, summarize
from .sts import (
    TASKS,
    HardLengthEvaluator,
    PairsEvaluator,
    ScoredPairs,
    STSSuiteEvaluator,
    load_sts,
    own_pairs,
    read_scored_pairs,
    sts_sentences,
)
from .topics import TopicsEvaluator, own_topics
from .transfer import TRANSFER_TASKS, TransferEvaluator

__all__ = [
    "TASKS",
    "TASK_SETS",
    "TRANSFER_TASKS",
    "AlignmentUniformityEvaluator",
    "Change",
    "CosineDensityEvaluator",
    "EmbeddingEvaluator",
    "HardLengthEvaluator",
    "JointEvaluator",
    "KnownItemEvaluator",
    "MixedRetrievalEvaluator",
    "PairsEvaluator",
    "RerankingEvaluator",
    "RetrievalEvaluator",
    "STSSuiteEvaluator",
    "Score",
    "ScoredPairs",
    "Section",
    "Submission",
    "TopicsEvaluator",
    "TransferEvaluator",
    "analysis_sections",
    "answer_ranks",
    "describe_labels",
    "encode_once",
    "evaluate",
    "evaluate_mteb",
    "format_score",
    "judge",
    "judge_all",
    "load_sts",
    "measure",
    "name_similarity",
    "new_figure",
    "own_pairs",
    "own_reranking",
    "own_retrieval",
    "own_task",
    "own_topics",
    "plot_learning_curves",
    "plot_scores",
    "read_scored_pairs",
    "reciprocal_ranks",
    "render_page",
    "sts_sentences",
    "submit_mteb",
    "summarize",
    "write_report",
]
