"""Everything that this package measures offline, as one evaluator."""

from __future__ import annotations

from pathlib import Path

from sentence_transformers.base.evaluation import BaseEvaluator

from .clustering import agnews_clustering, biomedical_clustering
from .geometry import AlignmentUniformityEvaluator, CosineDensityEvaluator
from .hard_length import HardLengthEvaluator
from .one_pass import OnePassEvaluator
from .probes import TransferEvaluator
from .retrieval import cranfield_retrieval, quora_reranking, quora_retrieval
from .sts import STSSuiteEvaluator
from .tables import data_path


def offline_evaluators(data_dir: str | Path | None = None) -> list[BaseEvaluator]:
    """Return an evaluator of each kind on the data directory's own files.

    The seven STS tasks, the hard-length subset (``>=4``, ``<=1``), alignment and uniformity on STS-B dev and test, cosines by
    level on STS-B test, the seven transfer tasks, Quora's development questions as retrieval and as reranking, Cranfield, and
    the topics of AG News and of biomedical titles.

    Args:
        data_dir: By default the directory in ``SBERT_PLUGINS_DATA``.

    Raises:
        FileNotFoundError: On a missing data directory or file.
        ValueError: On a malformed row, with file and line.
    """
    data_dir = data_path(data_dir, "sts").parent  # without one the STS tasks alone would be there, from the Hub
    return [
        STSSuiteEvaluator(data_dir),
        HardLengthEvaluator(data_dir, positive=">=4", negative="<=1"),
        AlignmentUniformityEvaluator(data_dir, split="dev"),
        AlignmentUniformityEvaluator(data_dir, split="test"),
        CosineDensityEvaluator(data_dir),
        TransferEvaluator(data_dir),
        quora_retrieval(data_dir),
        quora_reranking(data_dir),
        cranfield_retrieval(data_dir),
        agnews_clustering(data_dir),
        biomedical_clustering(data_dir),
    ]


def offline_suite(data_dir: str | Path | None = None, *, show_progress_bar: bool = False) -> OnePassEvaluator:
    """Return :func:`offline_evaluators` on one pass of encoding; ``sequential_score`` is the average of the seven STS tasks.

    Args:
        data_dir: By default the directory in ``SBERT_PLUGINS_DATA``.
        show_progress_bar: Whether ``encode`` shows its bar.

    Example:
        >>> from sbert_plugins import evaluation
        >>> evaluation.offline_suite()(model)["transfer_avg7"]  # doctest: +SKIP
    """
    return OnePassEvaluator(offline_evaluators(data_dir), show_progress_bar=show_progress_bar)
