"""Search that gets better without labels: token weights and a linear map, learned from documents alone."""

import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense
from sentence_transformers.sentence_transformer.modules import Normalize
from sentence_transformers.util import batch_to_device
from torch import Tensor
from torch.nn.functional import normalize

from sbert_plugins import data, evaluation, functional, host
from sbert_plugins.modules import apply_token_weights, count_idf
from sbert_plugins.recipes.recipe import Recipe

logger = logging.getLogger(__name__)
POWERS = (0.0, 0.25, 0.5, 1.0, 1.5)
_BATCH = 64  # texts whose token vectors are in memory at the same time
_DOCUMENTS = 20_000  # at most this many are encoded to learn from


@dataclass(frozen=True)
class SearchFit:
    """The result of :func:`adapt_to_search`.

    Attributes:
        power: The power of the token weights; 0 if there are none.
        has_map: Whether the model has a linear map.
        updates: Updates of the map; 0 if the model has none.
        log: What was measured on the way: known-item search by power, and with and without the map. The last
            row has the power that was chosen.
    """

    power: float
    has_map: bool
    updates: int
    log: list[dict[str, float]]


def join_titles(rows: Dataset) -> list[str]:
    """Return the documents of a dataset, each behind its title if there is one."""
    if "title" not in rows.column_names:
        return rows["document"][:]
    return [f"{title} {text}".strip() for title, text in zip(rows["title"], rows["document"], strict=True)]


def adapt_to_search(
    model: SentenceTransformer,
    documents: Sequence[str],
    *,
    power: float | str = "known items",
    linear_map: bool = True,
    mix: float = 0.3,
    temperature: float = 0.07,
    sharpness: float = 4.0,
    keep: float = 0.1,
    list_size: int = 4,
    max_steps: int = 300,
    learning_rate: float = 3e-4,
    per_device_train_batch_size: int = 64,
    seed: int = 42,
) -> SearchFit:
    """Adapt a model to search in documents, in place, without labels and without training its transformer.

    1. **Token weights.** The tokens of a text are weighed in its mean by their idf on the documents, to a
       power that known-item search chooses (:func:`choose_power`).
    2. **A linear map** behind the pooling. It learns to rank documents for their own sentences as a teacher
       does: a mix of the model's cosines and BM25 (:func:`data.mix_scores`). The document that a sentence is
       from is taken out of its list. The map starts as the identity, so the search is unchanged at first. It
       is learned on cached vectors. If known-item search is worse with it, the model does not get it.

    The model consists of sentence-transformers' own modules. Its vectors are others than before: encode the
    documents again.

    Args:
        model: A model that pools by the mean.
        documents: The documents that will be searched, with their titles in front. At least 20 need three
            sentences.
        power: Power of the idf, or ``"known items"`` to choose it among 0, 0.25, 0.5, 1 and 1.5.
        linear_map: Whether to learn the map.
        mix: Share of BM25 in the teacher.
        temperature: Divides the student's cosines.
        sharpness: Multiplies the teacher's z-scores.
        keep: Weight of :func:`functional.similarity_distillation`, which keeps the similarities among
            documents.
        list_size: Documents of the teacher's best for each query. All queries of a batch share their lists.
        max_steps: Updates of the map.
        learning_rate: Learning rate of the map, which falls to 0.
        per_device_train_batch_size: Queries per update.
        seed: Seed of the sentences and the batches.

    Raises:
        ValueError: If the model does not pool by the mean, or too few documents have three sentences.

    Example:
        >>> from sbert_plugins import data, recipes
        >>> documents = recipes.join_titles(data.read_documents("documents.csv"))  # doctest: +SKIP
        >>> fit = recipes.adapt_to_search(model, documents)  # doctest: +SKIP
        >>> model.save_pretrained("search-model")  # doctest: +SKIP
    """
    # Otherwise the model would be saved with the card and the scores of the start.
    model.model_card_data.add_tags("generated_from_trainer")
    model.model_card_data.eval_results_dict = {}
    texts = list(dict.fromkeys(documents))
    sample = texts if len(texts) <= _DOCUMENTS else random.Random(seed).sample(texts, _DOCUMENTS)
    items = evaluation.KnownItemEvaluator(sample, name="known items", write_csv=False)
    idf = count_idf(model, texts)
    powers = POWERS if power == "known items" else (float(power),)
    power, item_vectors, log = choose_power(model, items, idf, powers)
    if power:
        apply_token_weights(model, idf**power)
    logger.info("Token weights: idf ** %g, counted on %s documents.", power, f"{len(texts):,}")
    if not linear_map:
        return SearchFit(power, False, 0, [*log, {"power": power}])
    # At most 60 million scores of a query and a document are in memory.
    queries, sources = data.pseudo_queries(sample, limit=6 * 10**7 // len(sample), seed=seed)
    logger.info("Encoding %s documents and %s of their sentences.", f"{len(sample):,}", f"{len(queries):,}")
    options: dict[str, Any] = {"batch_size": _BATCH, "normalize_embeddings": True}
    with host.autocast_bf16(model.device), model.truncate_embeddings(None):
        document_vectors = model.encode_document(sample, **options)
        query_vectors = model.encode_query(queries, **options)
    scores = data.mix_scores(
        query_vectors @ document_vectors.T, data.bm25_scores(sample, queries), sources, mix=mix
    )
    matrix = learn_map(
        *(query_vectors, document_vectors, scores),
        list_size=list_size,
        max_steps=max_steps,
        learning_rate=learning_rate,
        batch_size=per_device_train_batch_size,
        temperature=temperature,
        sharpness=sharpness,
        keep=keep,
        seed=seed,
    )
    before, after = (
        100
        * evaluation.reciprocal_ranks(
            evaluation.answer_ranks(item_vectors[0] @ one, item_vectors[1] @ one, items.answers)
        ).mean()
        for one in (torch.eye(len(matrix)), matrix)
    )
    has_map = bool(after >= before) and not matrix.equal(torch.eye(len(matrix)))
    if has_map:
        _append_map(model, matrix)
    used = "used" if has_map else "not used: it does not change the search, or makes it worse"
    logger.info("Linear map: MRR@10 of known items %.2f to %.2f, %s.", before, after, used)
    return SearchFit(
        power,
        has_map,
        updates=max_steps if has_map else 0,
        log=[*log, {"power": power, "mrr@10 with the map": after}],
    )


def choose_power(
    model: SentenceTransformer, items: Any, idf: Tensor, powers: Sequence[float] = POWERS
) -> tuple[float, tuple[Tensor, Tensor], list[dict[str, float]]]:
    """Choose the power of the token weights by known-item search. The texts are encoded once.

    The first power, by default 0, which changes nothing, stays unless another one is better by more than two
    standard errors of the difference on the same items.

    Args:
        model: A model without token weights.
        items: A :class:`evaluation.KnownItemEvaluator`.
        idf: (V,), from :func:`modules.count_idf`.
        powers: Powers. The first one stays unless another is better.

    Returns:
        The power, the vectors of the queries and the documents with it, and MRR@10 by power.
    """
    logger.info("Encoding %s documents to choose the token weights.", f"{len(items.documents):,}")
    weights = [idf**power for power in powers]
    vectors = [
        _pool_with(model, texts, weights, kind)
        for texts, kind in ((items.queries, "query"), (items.documents, "document"))
    ]
    values = [
        evaluation.reciprocal_ranks(evaluation.answer_ranks(both[0], both[1], items.answers))
        for both in zip(*vectors, strict=True)
    ]
    log = [{"power": power, "mrr@10": 100 * each.mean()} for power, each in zip(powers, values, strict=True)]
    gains = [each - values[0] for each in values]
    clear = [
        place for place, gain in enumerate(gains) if gain.mean() > 2 * gain.std(ddof=1) / np.sqrt(len(gain))
    ]
    best = max(clear, key=lambda place: gains[place].mean(), default=0)
    return powers[best], (vectors[0][best], vectors[1][best]), log


def learn_map(
    queries: Any,
    documents: Any,
    scores: Any,
    *,
    list_size: int,
    max_steps: int,
    learning_rate: float,
    batch_size: int,
    temperature: float,
    sharpness: float,
    keep: float,
    seed: int,
) -> Tensor:
    """Learn a linear map that ranks documents as the scores of a teacher do.

    Args:
        queries: (Q, D)
        documents: (N, D)
        scores: (Q, N), minus infinity for a document that is not in the list of a query.
        list_size: Documents that the teacher ranks first, which a query adds to the list of its batch.
        max_steps: Updates.
        learning_rate: Learning rate, which falls to 0.
        batch_size: Queries per update.
        temperature: Of :func:`functional.listwise_distillation`.
        sharpness: Multiplies the scores.
        keep: Weight of :func:`functional.similarity_distillation`.
        seed: Seed of the batches.

    Returns:
        (D, D). A vector times it is the new vector.
    """
    queries, documents, scores = map(torch.as_tensor, (queries, documents, scores))
    best = scores.topk(list_size, dim=1).indices
    matrix = torch.eye(queries.shape[1], requires_grad=True)
    optimizer = torch.optim.Adam([matrix], lr=learning_rate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=max_steps)
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(queries), generator=generator)
    for step in range(max_steps):
        rows = order.roll(-step * batch_size)[:batch_size]
        found = best[rows].unique()
        student = normalize(documents[found] @ matrix, dim=1)
        cosines = normalize(queries[rows] @ matrix, dim=1) @ student.T
        teacher = sharpness * scores[rows][:, found]
        loss = functional.listwise_distillation(cosines, teacher, temperature=temperature)
        loss = loss + keep * functional.similarity_distillation(
            student, documents[found], temperature=0.1, teacher_temperature=0.05
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return matrix.detach()


def _append_map(model: SentenceTransformer, matrix: Tensor) -> None:
    """Put a linear map behind the pooling, in front of a normalisation."""
    size = len(matrix)
    dense = Dense(size, size, bias=False, activation_function=torch.nn.Identity())
    with torch.no_grad():
        dense.linear.weight.copy_(matrix.T)
    places = [place for place, part in enumerate(model) if isinstance(part, Normalize)]
    model.insert(places[0] if places else len(model), dense.to(model.device))


def _pool_with(
    model: SentenceTransformer, texts: Sequence[str], weights: Sequence[Tensor], kind: str
) -> list[Tensor]:
    """Return the vectors of texts for each weighting of the tokens, with one pass over the texts."""
    prompt = host.resolve_prompt(model, None, kind if model.prompts.get(kind) else None)
    order = sorted(range(len(texts)), key=lambda row: -len(texts[row]))
    vectors: list[list[Tensor]] = [[] for _ in weights]
    with torch.inference_mode():
        model.eval()
        for start in range(0, len(order), _BATCH):
            batch = [prompt + texts[row] for row in order[start : start + _BATCH]]
            with host.autocast_bf16(model.device):  # ranks below need all digits
                out = model[0](batch_to_device(model.preprocess(batch), model.device))
            mask, tokens = out["attention_mask"], out["token_embeddings"].float()
            for place, each in enumerate(weights):
                shares = each.to(model.device)[out["input_ids"]] * mask
                mean = torch.einsum("bl,bld->bd", shares, tokens) / shares.sum(dim=1, keepdim=True)
                pooled = {"sentence_embedding": mean}
                for module in list(model)[2:]:
                    pooled = module(pooled)
                vectors[place].append(pooled["sentence_embedding"].cpu())
    back = torch.tensor(order).argsort()
    return [torch.cat(each)[back] for each in vectors]


def _fit(model: SentenceTransformer, rows: Dataset, **keywords: Any) -> SearchFit:
    return adapt_to_search(model, join_titles(rows), **keywords)


SEARCH = Recipe(
    name="search",
    loss=adapt_to_search,
    reads=("document",),
    optional=("title",),
    arguments={"max_steps": 300, "learning_rate": 3e-4, "per_device_train_batch_size": 64},
    fit=_fit,
    max_seq_length=None,
)
