"""Encode each text once for any number of evaluators, and the base class of our evaluators."""

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.evaluation import BaseEvaluator, SequentialEvaluator
from torch import Tensor

from sbert_plugins import host

logger = logging.getLogger(__name__)
#: A function from N texts to their (N, D) embeddings in float32. With ``"query"`` or ``"document"`` as second
#: argument, the texts have the model's prompt for queries or documents.
Encode = Callable[..., Tensor]
# The arguments of ``encode`` whose effect on the embeddings is known here.
_KNOWN = {
    *("prompt", "prompt_name", "truncate_dim", "normalize_embeddings", "task", "output_value", "precision"),
    *("batch_size", "show_progress_bar", "convert_to_numpy", "convert_to_tensor"),
}


@contextmanager
def encode_once(model: SentenceTransformer, *, bf16: bool | None = False) -> Iterator[None]:
    """Let ``model.encode`` remember its embeddings inside the block, so that no text is encoded twice.

    This includes ``encode_query`` and ``encode_document``, which call ``encode``. Two calls share the
    embedding of a text if they agree in prompt, truncation, normalisation and, for a model that routes by
    task, in the task. Calls for anything else than float32 sentence embeddings of strings go to the model
    unchanged. Blocks can be nested: the outermost one keeps the embeddings. The weights must not change
    inside the block.

    Args:
        model: The model. Its method is replaced inside the block and restored afterwards.
        bf16: Whether to encode in bfloat16 mixed precision; None where it is faster. Similarities are
            computed in float32 in any case.

    Raises:
        ValueError: From ``encode``, if an embedding is not finite.

    Example:
        >>> from sbert_plugins import evaluation
        >>> with evaluation.encode_once(model):
        ...     first = model.encode(["A dog runs.", "It rains."])
        ...     second = model.encode(["It rains.", "It rains."])  # nothing is computed
    """
    original: Any = model.encode
    if hasattr(original, "remembered"):
        yield
        return
    reads_task = "task" in model.get_model_kwargs()
    remembered: dict[tuple, dict[str, Tensor]] = {}

    def encode(inputs: str | Sequence[str], *positional: Any, **options: Any) -> Any:
        texts = [inputs] if isinstance(inputs, str) else list(inputs)
        given = {name: value for name, value in options.items() if value is not None}
        is_embedding = options.get("output_value", "sentence_embedding") == "sentence_embedding"
        is_plain = is_embedding and given.get("precision", "float32") == "float32" and given.keys() <= _KNOWN
        if positional or not texts or not is_plain or not all(isinstance(text, str) for text in texts):
            return original(inputs, *positional, **options)
        to_tensor, to_numpy = given.pop("convert_to_tensor", False), given.pop("convert_to_numpy", True)
        key = (
            host.resolve_prompt(model, given.get("prompt"), given.get("prompt_name")),
            given.get("truncate_dim", model.truncate_dim),
            given.get("normalize_embeddings", False),
            given.get("task") if reads_task else None,
        )
        known = remembered.setdefault(key, {})
        if new := [text for text in dict.fromkeys(texts) if text not in known]:
            with host.autocast_bf16(model.device, bf16):
                embeddings = original(new, **given, convert_to_tensor=True)
            if bad := int((~torch.isfinite(embeddings)).any(dim=1).sum()):
                raise ValueError(
                    f"The embeddings of {bad} of {len(new)} texts contain NaN or infinity. The training has "
                    "diverged, or the model overflows in its precision."
                )
            known.update(zip(new, embeddings, strict=True))
        rows = torch.stack([known[text] for text in texts])
        result = rows if to_tensor else rows.float().cpu().numpy() if to_numpy else list(rows)
        return result[0] if isinstance(inputs, str) else result

    encode.remembered = remembered  # type: ignore[attr-defined]
    own = vars(model).get("encode")  # usually None: the method belongs to the class
    model.encode = encode  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        if own is None:
            del model.encode
        else:
            model.encode = own  # type: ignore[method-assign]


def evaluate(model: SentenceTransformer, evaluators: Iterable[BaseEvaluator]) -> dict[str, dict[str, float]]:
    """Score a model by several evaluators and encode each text once.

    Args:
        model: The model.
        evaluators: Evaluators of this package or of sentence-transformers, each with a name of its own.

    Returns:
        Scores by evaluator and metric, ``{"pairs": {"spearman": 71.3}}``. Without a name, ``PairsEvaluator``
        is called ``Pairs``. The metrics do not have the name in front.

    Raises:
        ValueError: If two evaluators have the same name, or if an embedding is not finite.

    Example:
        >>> from sbert_plugins import evaluation, recipes
        >>> pairs = evaluation.PairsEvaluator(recipes.graded_pairs(), name="pairs")
        >>> scores = evaluation.evaluate(model, [pairs])
        >>> spearman = scores["pairs"]["spearman"]
    """
    scores = {}
    with encode_once(model):
        for name, evaluator in named(evaluators).items():
            metrics: Any = evaluator(model)
            if not isinstance(metrics, dict):
                metrics = {"score": metrics}
            prefix = f"{getattr(evaluator, 'name', '')}_"
            scores[name] = {key.removeprefix(prefix): float(value) for key, value in metrics.items()}
    return scores


class JointEvaluator(SequentialEvaluator):
    """Several evaluators as one object for a trainer. Each text is encoded once per evaluation.

    A list of evaluators, which sentence-transformers' trainer also accepts, would encode the texts for each
    of them.

    Args:
        evaluators: Evaluators of this package or of sentence-transformers, each with a name of its own.

    Returns:
        From a call, the metrics of all evaluators with their names in front, and ``sequential_score``, the
        first evaluator's main score. Any metric can be the trainer's ``metric_for_best_model``.

    Raises:
        ValueError: If two evaluators have the same name, or if an embedding is not finite.

    Example:
        >>> from sbert_plugins import evaluation, recipes
        >>> pairs = evaluation.PairsEvaluator(recipes.graded_pairs(), name="pairs", write_csv=False)
        >>> evaluator = evaluation.JointEvaluator([pairs])
        >>> sorted(evaluator(model))
        ['pairs_spearman', 'sequential_score']
    """

    def __init__(self, evaluators: Iterable[BaseEvaluator]) -> None:
        super().__init__(named(evaluators).values(), main_score_function=lambda scores: scores[0])
        self.primary_metric = "sequential_score"
        self.greater_is_better = self.evaluators[0].greater_is_better

    def __call__(  # type: ignore[override]
        self, model: SentenceTransformer, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        """Run all evaluators."""
        with encode_once(model):
            return super().__call__(model, output_path, epoch, steps)


def named(evaluators: Iterable[BaseEvaluator]) -> dict[str, BaseEvaluator]:
    """Return evaluators by name. Without a name, ``PairsEvaluator`` is called ``Pairs``.

    Raises:
        ValueError: If there are none, or if two have the same name.
    """
    listed = list(evaluators)
    names = [name_of(evaluator) for evaluator in listed]
    if not listed or len(set(names)) < len(names):
        raise ValueError(f"evaluators must be at least one, each with its own name, got {names}.")
    return dict(zip(names, listed, strict=True))


def name_of(evaluator: BaseEvaluator) -> str:
    """Return the name of an evaluator, or of its class."""
    return getattr(evaluator, "name", "") or type(evaluator).__name__.removesuffix("Evaluator")


def describe_labels(evaluator: BaseEvaluator) -> str:
    """Return what an evaluator has read, in one line.

    Example:
        >>> from sbert_plugins import evaluation, recipes
        >>> evaluation.describe_labels(evaluation.PairsEvaluator(recipes.graded_pairs(), name="mine"))
        'labels of mine: ...pairs 360'
    """
    settings = ", ".join(f"{name} {value}" for name, value in evaluator.get_config_dict().items() if value)
    return f"labels of {name_of(evaluator)}: {settings or type(evaluator).__name__}"


class EmbeddingEvaluator(BaseEvaluator):
    """Base class of evaluators that need nothing but embeddings of texts.

    A subclass writes ``compute``. This class logs the metrics, appends them to a CSV file and stores them in
    the model card, as the evaluators of sentence-transformers do.

    Args:
        main_metric: The metric that can choose a checkpoint.
        name: Prefix of the metrics' names.
        batch_size: Texts per batch.
        show_progress_bar: Whether ``encode`` shows a progress bar.
        write_csv: Whether to append to ``<name>_results.csv`` in the output folder of a call.

    Attributes:
        note: A sentence that readers need to compare the scores with others. Empty for most evaluators.
        config: The settings that decide the scores, for the model card.
        similarity: The similarity function of the model of the last call, ``model.similarity_fn_name``.
        noun: What the labels are, such as ``"pairs"``.
        items: The main score of each different label in the last call, from which ``measure`` computes a
            standard error. ``compute`` may set it (``label_items``).
    """

    note = ""
    noun = "labels"
    similarity = "cosine"
    items: np.ndarray | None = None

    def __init__(
        self,
        main_metric: str,
        *,
        name: str = "",
        batch_size: int = 128,
        show_progress_bar: bool = False,
        write_csv: bool = True,
    ) -> None:
        super().__init__()
        self.name = name
        self.primary_metric = f"{name}_{main_metric}" if name else main_metric
        self.batch_size = batch_size
        self.show_progress_bar = show_progress_bar
        self.write_csv = write_csv
        self.config: dict[str, Any] = {}

    def compute(self, encode: Encode) -> dict[str, float]:
        """Return the metrics, without the name in front."""
        raise NotImplementedError

    def __call__(  # type: ignore[override]
        self, model: SentenceTransformer, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        """Return the metrics, with the name in front."""
        self.similarity = str(model.similarity_fn_name)
        with encode_once(model):
            metrics = self.compute(self.encoder(model))
        logger.info(
            "%s: %s", self.description, ", ".join(f"{key} {value:.4g}" for key, value in metrics.items())
        )
        if output_path is not None and self.write_csv:
            path = Path(output_path) / f"{name_of(self)}_results.csv"
            path.parent.mkdir(parents=True, exist_ok=True)
            row = pandas.DataFrame([{"epoch": epoch, "steps": steps, **metrics}])
            row.to_csv(path, mode="a", header=not path.exists(), index=False)
        metrics = self.prefix_name_to_metrics(metrics, self.name)
        self.store_metrics_in_model_card_data(model, metrics, epoch, steps)
        return metrics

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings for the model card."""
        return self.config

    def encoder(self, model: SentenceTransformer) -> Encode:
        """Return the function that encodes texts with this evaluator's settings."""

        def encode(texts: Sequence[str], kind: str = "") -> Tensor:
            method: Any = {"query": model.encode_query, "document": model.encode_document}.get(
                kind, model.encode
            )
            return method(
                list(texts),
                batch_size=self.batch_size,
                show_progress_bar=self.show_progress_bar,
                convert_to_tensor=True,
            ).float()

        return encode


def label_items(values: np.ndarray, labels: Iterable[Hashable]) -> np.ndarray:
    """Return one value per different label, with the mean of all values.

    A label that occurs several times says as much as one, so it must not make a standard error smaller.

    Args:
        values: (N,), the score of each label.
        labels: What makes N labels equal, such as the texts of the queries.
    """
    places, different = pandas.factorize(pandas.Series(list(labels), dtype=object))
    mean = values.mean()
    return mean + np.bincount(places, values - mean) * len(different) / len(values)


def unit_rows(vectors: Tensor | np.ndarray) -> Tensor:
    """Return the rows of a matrix with length 1."""
    return torch.nn.functional.normalize(torch.as_tensor(vectors).float(), dim=1)
