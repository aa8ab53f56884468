"""Evaluators that plug into the trainer, and the data they read."""

from .embeddings import EmbeddingEvaluator, Embeddings
from .geometry import AlignmentUniformityEvaluator, CosineDensityEvaluator
from .hard_length import HardLengthEvaluator
from .one_pass import EncodeOnce, OnePassEvaluator
from .probes import TRANSFER_TASKS, TransferEvaluator
from .retrieval import RetrievalEvaluator, cranfield_retrieval, quora_reranking, quora_retrieval
from .sts import TASKS, ScoredPairs, STSSuiteEvaluator, load_sts, read_scored_pairs
from .suite import offline_evaluators, offline_suite

__all__ = [
    "TASKS",
    "TRANSFER_TASKS",
    "AlignmentUniformityEvaluator",
    "CosineDensityEvaluator",
    "EmbeddingEvaluator",
    "Embeddings",
    "EncodeOnce",
    "HardLengthEvaluator",
    "OnePassEvaluator",
    "RetrievalEvaluator",
    "STSSuiteEvaluator",
    "ScoredPairs",
    "TransferEvaluator",
    "cranfield_retrieval",
    "load_sts",
    "offline_evaluators",
    "offline_suite",
    "quora_reranking",
    "quora_retrieval",
    "read_scored_pairs",
]
