"""One pass of encoding per model, shared by any number of evaluators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.evaluation import BaseEvaluator, SequentialEvaluator
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
from torch import Tensor

from sbert_plugins import host

from .embeddings import check_finite


class EncodeOnce:
    """A view of a model that encodes no sentence twice. To an evaluator, ours or the host's, it is the model.

    ``encode``, ``encode_query`` and ``encode_document`` look up what an earlier call has encoded and pass the rest on in one
    call. A sentence is the same only under the same prompt, truncation and, for a model that routes queries and documents
    through different modules, task. Calls for anything but sentence embeddings in float32 go to the model as they are. The
    view belongs to one state of the weights: make a new one after each training step.

    Args:
        model: The model. All else (``similarity``, ``model_card_data``, ...) is its own.
    """

    def __init__(self, model: SentenceTransformer) -> None:
        self.model = model
        self._by_task = any(isinstance(module, Router) for module in model) or "task" in model.get_model_kwargs()
        self._rows: dict[tuple, dict[str, int]] = {}
        self._embeddings: dict[tuple, Tensor] = {}
        # A subclass's own are called as they are, which may do more than choose a prompt.
        is_known = isinstance(model, SentenceTransformer)
        self._own = [
            name for name in _ASKING if is_known and getattr(type(model), name) is not getattr(SentenceTransformer, name)
        ]
        vars(self).update((name, getattr(model, name)) for name in self._own)

    # They choose the prompt and the task and call ``self.encode``.
    encode_query = SentenceTransformer.encode_query
    encode_document = SentenceTransformer.encode_document

    def __getattr__(self, name: str) -> Any:
        """Leave all else to the model."""
        if name == "model":  # asked of a copy in the making: no endless search
            raise AttributeError(name)
        return getattr(self.model, name)

    def encode(
        self,
        inputs: str | Sequence[str],
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        output_value: str | None = "sentence_embedding",
        precision: str | None = "float32",
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        **keywords: Any,
    ) -> Tensor | np.ndarray | list[Tensor]:
        """Return what ``SentenceTransformer.encode`` returns, encoding only sentences that are new.

        Raises:
            ValueError: If an embedding is not finite.
        """
        how: dict[str, Any] = {name: value for name, value in keywords.items() if value is not None}
        how |= {"prompt_name": prompt_name, "prompt": prompt, "batch_size": batch_size, "show_progress_bar": show_progress_bar}
        normalize = how.pop("normalize_embeddings", False)
        sentences = [inputs] if isinstance(inputs, str) else list(inputs)
        is_plain = output_value == "sentence_embedding" and precision in (None, "float32") and not how.keys() - _KNOWN
        if not (sentences and is_plain and all(isinstance(sentence, str) for sentence in sentences)):
            how |= {"output_value": output_value, "precision": precision, "normalize_embeddings": normalize}
            return self.model.encode(inputs, **how, convert_to_numpy=convert_to_numpy, convert_to_tensor=convert_to_tensor)
        key = self._key(prompt_name, prompt, how.get("truncate_dim"), how.get("task"))
        rows = self._rows.setdefault(key, {})
        new = [sentence for sentence in dict.fromkeys(sentences) if sentence not in rows]
        if new:
            embeddings = self.model.encode(new, **how, convert_to_tensor=True)
            check_finite(embeddings)
            self._embeddings[key] = torch.cat([self._embeddings[key], embeddings]) if rows else embeddings
            first = len(rows)
            rows.update((sentence, first + i) for i, sentence in enumerate(new))
        found = self._embeddings[key][[rows[sentence] for sentence in sentences]]
        if normalize:
            found = torch.nn.functional.normalize(found, dim=1)
        result: Tensor | np.ndarray | list[Tensor] = found
        if not convert_to_tensor:
            result = found.float().cpu().numpy() if convert_to_numpy else list(found)
        return result[0] if isinstance(inputs, str) else result

    def encode_ahead(self, columns: Iterable[tuple[str, Sequence[str]]], **keywords: Any) -> None:
        """Encode what is asked for later, ``(name of the method, sentences)`` each.

        What the model encodes alike is one call to it, in which sentences are sorted by length as a whole: for a model
        without prompts all columns are.
        """
        together: dict[tuple, tuple[dict[str, Any], dict[str, None]]] = {}

        def note(inputs: Sequence[str], prompt_name: str | None = None, task: str | None = None, **_: Any) -> None:
            how = {"prompt_name": prompt_name, "task": task}
            together.setdefault(self._key(prompt_name, None, None, task), (how, {}))[1].update(dict.fromkeys(inputs))

        for method, column in columns:
            if method == "encode":
                note(column)
            elif method not in self._own:
                host.asked_of_encode(method, self.model, note, column)
        for how, sentences in together.values():
            self.encode(list(sentences), **how, **keywords, convert_to_tensor=True)

    def _key(self, prompt_name: str | None, prompt: str | None, truncate_dim: int | None, task: str | None) -> tuple:
        prompt = host.resolve_prompt(self.model, prompt, prompt_name)
        return prompt, truncate_dim or self.model.truncate_dim, task if self._by_task else None


_ASKING = ("encode_query", "encode_document")
# The arguments under which the view can tell whether two calls encode alike.
_KNOWN = {"prompt_name", "prompt", "batch_size", "show_progress_bar", "truncate_dim", "task"}


def _first(scores: list[float]) -> float:
    return scores[0]


# How the host's retrieval evaluator may encode otherwise than others.
_OWN_WAYS = ("query_prompt", "query_prompt_name", "corpus_prompt", "corpus_prompt_name", "truncate_dim")


class OnePassEvaluator(SequentialEvaluator):
    """Run evaluators on one pass of encoding: each distinct sentence of all of them is encoded once.

    The evaluators may be this package's or any of sentence-transformers' that call the model's ``encode`` methods. The
    sentences of ours and of the host's retrieval evaluators are collected and encoded in one call, sorted by length as a
    whole; what other evaluators ask for is encoded when they ask, and kept until all have run.

    Args:
        evaluators: The evaluators. No two may return a metric of one name.
        main_score_function: From the list of the evaluators' primary metrics to ``sequential_score``, as in the host's
            ``SequentialEvaluator``; by default the first evaluator's. Any other metric can choose the checkpoint as well.
        batch_size: Sentences an encoder call.
        show_progress_bar: Whether ``encode`` shows its bar.

    Raises:
        ValueError: Without evaluators; from a call on embeddings that are not finite, or two metrics of one name.

    Example:
        >>> from sbert_plugins import evaluation
        >>> evaluator = evaluation.OnePassEvaluator(
        ...     [evaluation.STSSuiteEvaluator(), evaluation.AlignmentUniformityEvaluator(), evaluation.TransferEvaluator()]
        ... )  # doctest: +SKIP
        >>> evaluator(model)["avg7"]  # doctest: +SKIP
    """

    def __init__(
        self,
        evaluators: Iterable[BaseEvaluator],
        main_score_function: Callable[[list[float]], float] = _first,
        *,
        batch_size: int = 128,
        show_progress_bar: bool = False,
    ) -> None:
        super().__init__(evaluators, main_score_function)
        if not self.evaluators:
            raise ValueError("evaluators must be at least one evaluator, got none.")
        self.batch_size = batch_size
        self.show_progress_bar = show_progress_bar
        self.primary_metric = "sequential_score"

    @property
    def chosen_by(self) -> list[BaseEvaluator]:
        """The evaluators whose scores make the ``sequential_score``, as far as that is known."""
        return self.evaluators[:1] if self.main_score_function is _first else self.evaluators

    def __call__(  # type: ignore[override]  # the host's own evaluators take no other kind of model either
        self, model: SentenceTransformer | EncodeOnce, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        """Encode every distinct sentence once and return all metrics."""
        view: Any = model if isinstance(model, EncodeOnce) else EncodeOnce(model)
        view.encode_ahead(self._columns(), batch_size=self.batch_size, show_progress_bar=self.show_progress_bar)
        results: dict[str, float] = {}
        scores = []
        for place, evaluator in enumerate(self.evaluators):
            metrics = evaluator(view, output_path, epoch, steps)
            if not isinstance(metrics, dict):
                metrics = {f"evaluator_{place}": metrics}
            if repeated := results.keys() & metrics.keys():
                raise ValueError(
                    f"two evaluators return {', '.join(sorted(repeated))}: give each a name= of its own, got "
                    f"{', '.join(type(evaluator).__name__ for evaluator in self.evaluators)}."
                )
            results |= metrics
            scores.append(metrics.get(evaluator.primary_metric or "", next(iter(metrics.values()))))
        return results | {"sequential_score": self.main_score_function(scores)}

    def _columns(self) -> Iterable[tuple[str, Sequence[str]]]:
        for evaluator in self.evaluators:
            if isinstance(evaluator, InformationRetrievalEvaluator):
                if any(getattr(evaluator, name, None) for name in _OWN_WAYS):
                    continue  # encoded when it asks, in its own way
                yield "encode_query", [query for query in evaluator.queries if isinstance(query, str)]
                yield "encode_document", [document for document in evaluator.corpus if isinstance(document, str)]
            else:
                yield "encode", getattr(evaluator, "sentences", ())
