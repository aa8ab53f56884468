"""Scores of models, and the verdict on the difference of two models or methods."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from scipy.special import stdtrit
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.evaluation import BaseEvaluator

from .encoding import EmbeddingEvaluator, encode_once, evaluate, named
from .retrieval import RetrievalEvaluator

# Equal models are called better or worse in at most 5 % of the cases: benchmarks/calibration.py. For that,
# the quantile of t is above the usual 0.975, because differences per label are tied, sparse and skewed. With
# fewer labels the rare queries that change a lot may be missing altogether.
LEAST_LABELS = 30
QUANTILE = 0.985
_RETRIEVAL = {"ndcg@10": "nDCG@10", "map@100": "MAP@100", "mrr@10": "MRR@10"}
_TITLES = {
    "spearman": "Spearman",
    "v_measure": "v-measure",
    "v_measure_deviation": "deviation of v-measure",
    "mrr@10": "MRR@10",
    "ndcg@10": "nDCG@10",
}
_RECORDED = ("name", "values", "higher_is_better", "similarity", "noun")  # fields of a score
_WORDS = {"better": "better than {}", "worse": "worse than {}", "level": "level with {}"}


@dataclass(frozen=True)
class Score:
    """The score of one model by one evaluator.

    Attributes:
        name: Name of the evaluator.
        values: Scores by title, the main one first. They are multiplied by 100, except those of an evaluator
            from elsewhere.
        higher_is_better: Whether a higher main score is better.
        similarity: The similarity function of the model, by which texts were compared.
        noun: What the labels are: ``"pairs"``, ``"texts"``, ``"queries"``.
        items: One value per different label. Their mean is the main score. None if the evaluator gives
            nothing but its scores.
        note: A sentence that readers need to compare the scores with others.
    """

    name: str
    values: Mapping[str, float]
    higher_is_better: bool = True
    similarity: str = "cosine"
    noun: str = "labels"
    items: np.ndarray | None = field(default=None, repr=False, compare=False)
    note: str = ""

    @property
    def metric(self) -> str:
        """The title of the main score."""
        return next(iter(self.values))

    @property
    def value(self) -> float:
        """The main score."""
        return self.values[self.metric]

    @property
    def labels(self) -> int | None:
        """The number of different labels."""
        return None if self.items is None else len(self.items)

    @property
    def error(self) -> float | None:
        """The standard error of the score over the labels, or None if it is not known."""
        return None if self.items is None or len(self.items) < 2 else _standard_error(self.items)

    def to_dict(self, *, items: bool = False) -> dict[str, Any]:
        """Return the score for JSON.

        Args:
            items: Whether to include the value of each label. ``Score.from_dict`` needs them for a score that
                will be judged.
        """
        record = {name: getattr(self, name) for name in (*_RECORDED, "labels", "error")}
        if items:
            record["items"] = None if self.items is None else self.items.round(4).tolist()
        return record

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Return the score that ``to_dict`` wrote."""
        items = record.get("items")
        given = {name: record[name] for name in _RECORDED}
        return cls(**given, items=None if items is None else np.array(items))


#: The scores of one model by the name of the evaluator.
Scores = dict[str, Score]


def measure(
    model: SentenceTransformer, evaluators: Sequence[BaseEvaluator], *, bf16: bool | None = None
) -> Scores:
    """Score a model by several evaluators. Each text is encoded once.

    An evaluator can have two attributes in addition to those of sentence-transformers: ``items``, an array
    that a call sets, with the main score of each label multiplied by 100; and ``noun``, the name of the
    labels. Without ``items``, the standard error of its score is not known.

    Args:
        model: The model.
        evaluators: Evaluators of this package or of sentence-transformers, each with a name of its own.
        bf16: Whether to encode in bfloat16 mixed precision; None where it is faster.

    Example:
        >>> from sbert_plugins import evaluation, recipes
        >>> pairs = evaluation.PairsEvaluator(recipes.graded_pairs(), name="pairs", write_csv=False)
        >>> score = evaluation.measure(model, [pairs])["pairs"]
        >>> score.metric, score.labels
        ('Spearman', 360)
    """
    if not evaluators:
        return {}
    with encode_once(model, bf16=bf16):
        metrics = evaluate(model, evaluators)
    return {
        name: Score(
            name,
            titled_scores(evaluator, metrics[name]),
            higher_is_better=evaluator.greater_is_better,
            similarity=getattr(evaluator, "similarity", "cosine"),
            noun=getattr(evaluator, "noun", "labels"),
            items=getattr(evaluator, "items", None),
            note=getattr(evaluator, "note", ""),
        )
        for name, evaluator in named(evaluators).items()
    }


def titled_scores(evaluator: BaseEvaluator, metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the scores of ``evaluate`` that a table shows, by title. The main score comes first.

    Scores of retrieval are multiplied by 100. Of an evaluator from elsewhere only the main score is shown.
    """
    if isinstance(evaluator, RetrievalEvaluator):
        return {title: 100 * metrics[f"{evaluator.similarity}_{key}"] for key, title in _RETRIEVAL.items()}
    main = evaluator.primary_metric or next(iter(metrics))
    main = main.removeprefix(f"{getattr(evaluator, 'name', '')}_")
    others = [key for key in metrics if key != main] if isinstance(evaluator, EmbeddingEvaluator) else []
    return {
        "average" if key.startswith("avg") else _TITLES.get(key, key): metrics[key] for key in (main, *others)
    }


@dataclass(frozen=True)
class Change:
    """A main score of two models or methods, and the verdict on the difference.

    Attributes:
        name: Name of the evaluator.
        metric: Title of the score.
        before: Score of the first model. The mean over the seeds, if it was trained with several.
        after: Score of the second model, or the mean over its seeds.
        error: Standard error of the difference, over the labels and the seeds. None if it is not known.
        margin: The largest difference that counts as level. None if there is no verdict.
        basis: What the standard error was computed from, such as ``"360 pairs and 3 seeds"``; or why there is
            none.
        result: ``"better"``, ``"worse"``, ``"level"``, ``"too few labels to say"`` or ``"no verdict"``.
        against: Name of the first model in the sentence.
        similarity: The similarity function of the second model.
        higher_is_better: Whether a higher score is better.
    """

    name: str
    metric: str
    before: float
    after: float
    error: float | None
    margin: float | None
    basis: str
    result: str
    against: str = "the start"
    similarity: str = "cosine"
    higher_is_better: bool = True

    @property
    def title(self) -> str:
        """The heading of the score in tables."""
        return f"{self.name}: {self.metric}"

    @property
    def gain(self) -> float:
        """The difference, above 0 if the second model is better."""
        return self.after - self.before if self.higher_is_better else self.before - self.after

    def format_error(self) -> str:
        """Return the standard error with the digits of the score, empty if there is none."""
        return "" if self.error is None else f"{self.error:.{_digits(self.after)}f}"

    @property
    def sentence(self) -> str:
        """The verdict in one sentence. It names the similarity function, unless that is the cosine."""
        digits = _digits(self.after)
        verdict = _WORDS.get(self.result, self.result).format(self.against)
        similarity = "" if self.similarity == "cosine" else f" by {self.similarity} similarity"
        values = f"{self.metric}{similarity} {format_score(self.before)} to {format_score(self.after)}"
        difference = f"{self.after - self.before:+.{digits}f}"
        error = "" if self.margin is None else f"standard error {self.format_error()} over "
        level = "" if self.margin is None else f"; up to {self.margin:.{digits}f} is level"
        return f"{self.name}: {verdict}, {values} ({difference}; {error}{self.basis}{level})."


def judge(
    before: Score | Sequence[Score], after: Score | Sequence[Score], *, against: str = "the start"
) -> Change:
    r"""Return the difference of two models or methods, with a verdict.

    The difference is compared with its standard error. With :math:`d_i` the difference on label :math:`i` of
    :math:`n`, and :math:`\bar y_s` the score of seed :math:`s` of :math:`S`:

    .. math::
        \mathrm{margin}^2 = t_{m}^2 \frac{\mathrm{var}(d_i)}{n} + t_{S-1}^2 \frac{\mathrm{var}(\bar y_s)}{S},
        \qquad m = \frac{(\sum_i d_i^2)^2}{\sum_i d_i^4} - 1

    The second part is there for each side with several seeds. :math:`t` is the 0.985 quantile. The degrees of
    freedom :math:`m` are small if few labels decide the difference. Without values per label, the standard
    error is that over the seeds, and the score of a single model counts as one more seed.

    Args:
        before: The score of a model, or the scores of several seeds of a method.
        after: As ``before``.
        against: Name of the first model or method in the sentence.

    Example:
        >>> import numpy as np
        >>> from sbert_plugins.evaluation import Score, judge
        >>> generator = np.random.default_rng(0)
        >>> start = generator.uniform(40, 60, 100)
        >>> trained = start + generator.uniform(0, 4, 100)
        >>> scores = [Score("mine", {"nDCG@10": each.mean()}, items=each) for each in (start, trained)]
        >>> judge(*scores).result
        'better'
    """
    first, second = ([each] if isinstance(each, Score) else list(each) for each in (before, after))
    one, (old, new) = second[0], (np.array([score.value for score in side]) for side in (first, second))
    gain, several = float(new.mean() - old.mean()), [side for side in (old, new) if len(side) > 1]
    # Each part of the error is a variance with its degrees of freedom.
    parts: list[tuple[float, float]] = [(side.var(ddof=1) / len(side), len(side) - 1) for side in several]
    basis, result = [f"{len(several[-1])} seeds"] if several else [], ""
    items = [[score.items for score in side if score.items is not None] for side in (first, second)]
    if [len(side) for side in items] == [len(first), len(second)]:
        difference = np.mean(items[1], axis=0) - np.mean(items[0], axis=0)
        basis.insert(0, f"{len(difference):,} {one.noun}")
        if len(difference) < LEAST_LABELS:
            result, basis = "too few labels to say", [f"{basis[0]}, {LEAST_LABELS} are needed"]
        else:
            squares = (difference - difference.mean()) ** 2
            freedom = max(squares.sum() ** 2 / max((squares**2).sum(), 1e-300) - 1, 1)
            parts.append((_standard_error(difference) ** 2, freedom))
    elif not several:
        result, basis = "no verdict", ["no standard error is known"]
    elif all(np.ptp(side) == 0 for side in several):
        result, basis = "no verdict", [f"{basis[0]} with equal scores"]
    elif len(several) == 1:
        parts = [(parts[0][0] + several[0].var(ddof=1), parts[0][1])]
    error = margin = None
    if not math.isfinite(gain):
        result, basis = "no verdict", ["a score is not a number"]
    elif not result:
        error = math.sqrt(sum(variance for variance, _ in parts))
        margin = math.sqrt(sum(part * stdtrit(freedom, QUANTILE) ** 2 for part, freedom in parts))
        is_better = (gain > 0) == one.higher_is_better
        result = "level" if abs(gain) <= margin + 1e-9 else "better" if is_better else "worse"
    return Change(
        name=one.name,
        metric=one.metric,
        before=float(old.mean()),
        after=float(new.mean()),
        error=error,
        margin=margin,
        basis=" and ".join(basis),
        result=result,
        against=against,
        similarity=one.similarity,
        higher_is_better=one.higher_is_better,
    )


def judge_all(
    before: Scores | Sequence[Scores], after: Scores | Sequence[Scores], **options: Any
) -> list[Change]:
    """Return the change of each score: ``judge`` for all evaluators.

    Args:
        before: Scores of a model, or of several seeds of a method.
        after: As ``before``.
        **options: ``against`` of ``judge``.
    """
    first, second = ([each] if isinstance(each, dict) else list(each) for each in (before, after))
    return [
        judge([scores[name] for scores in first], [scores[name] for scores in second], **options)
        for name in second[0]
    ]


def summarize(name: str, changes: Sequence[Change]) -> str:
    """Return the verdicts on a model in one sentence: on which scores it is better, worse or level."""
    groups: dict[str, list[str]] = {}
    for change in changes:
        verdict = _WORDS.get(change.result, change.result).format(change.against)
        difference = f"{change.after - change.before:+.{_digits(change.after)}f}"
        groups.setdefault(verdict, []).append(f"{change.name} ({change.metric} {difference})")
    verdicts = (f"{verdict} on {', '.join(each)}" for verdict, each in groups.items())
    return f"{name}: {'; '.join(verdicts)}."


def name_similarity(name: str, scores: Scores) -> str:
    """Return a sentence on the similarity function of a model, empty if it is the cosine."""
    others = {score.similarity for score in scores.values()} - {"cosine"}
    return f"{name} compares texts by its own similarity function, {', '.join(others)}." if others else ""


def format_score(score: float) -> str:
    """Return a score with two decimals. A score of at most 1, which is not in points, has four.

    Example:
        >>> format_score(71.3), format_score(0.713)
        ('71.30', '0.7130')
    """
    return f"{score:.{_digits(score)}f}"


def _digits(score: float) -> int:
    return 2 if abs(score) > 1 else 4


def _standard_error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / math.sqrt(len(values)))
