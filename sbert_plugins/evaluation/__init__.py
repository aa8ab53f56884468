"""Evaluators that plug into the trainer, the data they read, the report, and the way to MTEB."""

from .clustering import ClusteringEvaluator, agnews_clustering, biomedical_clustering, clustering_scores
from .embeddings import EmbeddingEvaluator, Embeddings
from .geometry import AlignmentUniformityEvaluator, CosineDensityEvaluator
from .hard_length import HardLengthEvaluator
from .label_free import LabelFreeEvaluator
from .mteb import TASK_SETS, evaluate_mteb, submit_mteb
from .one_pass import EncodeOnce, OnePassEvaluator
from .own import own_pairs, own_retrieval, own_topics
from .probes import TRANSFER_TASKS, TransferEvaluator
from .report import ModelReport, report_on, write_report
from .retrieval import RetrievalEvaluator, cranfield_retrieval, quora_reranking, quora_retrieval
from .sts import TASKS, PairsEvaluator, ScoredPairs, STSSuiteEvaluator, load_sts, read_scored_pairs, sts_sentences
from .suite import offline_evaluators, offline_suite

__all__ = [
    "TASKS",
    "TASK_SETS",
    "TRANSFER_TASKS",
    "AlignmentUniformityEvaluator",
    "ClusteringEvaluator",
    "CosineDensityEvaluator",
    "EmbeddingEvaluator",
    "Embeddings",
    "EncodeOnce",
    "HardLengthEvaluator",
    "LabelFreeEvaluator",
    "ModelReport",
    "OnePassEvaluator",
    "PairsEvaluator",
    "RetrievalEvaluator",
    "STSSuiteEvaluator",
    "ScoredPairs",
    "TransferEvaluator",
    "agnews_clustering",
    "biomedical_clustering",
    "clustering_scores",
    "cranfield_retrieval",
    "evaluate_mteb",
    "load_sts",
    "offline_evaluators",
    "offline_suite",
    "own_pairs",
    "own_retrieval",
    "own_topics",
    "quora_reranking",
    "quora_retrieval",
    "read_scored_pairs",
    "report_on",
    "sts_sentences",
    "submit_mteb",
    "write_report",
]
