"""What lies next to a sentence in a model's space: the comparison that needs no labels and no statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer


_AMONG = 1000  # distinct sentences from the beginning of the text


def neighbours_of(model: SentenceTransformer, sentences: Dataset, *, shown: int = 10) -> list[dict[str, Any]]:
    """Return some sentences of a text, always the same ones, each with its three nearest of the first thousand.

    Args:
        model: The encoder.
        sentences: A dataset with the column ``anchor``.
        shown: Sentences, taken at equal distances.

    Returns:
        Rows of ``sentence`` and ``nearest``: texts and cosines x 100, the nearest first.
    """
    import torch

    from sbert_plugins.evaluation import encode_once

    if shown == 0:
        return []
    # Two ways to write one sentence are no neighbours worth showing.
    distinct = {text.casefold(): text for text in reversed(sentences[: 2 * _AMONG]["anchor"])}
    pool = list(reversed(distinct.values()))[:_AMONG]
    with encode_once(model):
        embeddings = model.encode(pool, batch_size=128, show_progress_bar=False, convert_to_tensor=True)
    vectors = torch.nn.functional.normalize(embeddings.float(), dim=1)
    places = [len(pool) * i // min(shown, len(pool)) for i in range(min(shown, len(pool)))]
    cosines = vectors[places] @ vectors.T
    cosines[range(len(places)), places] = -torch.inf
    best = cosines.topk(min(3, len(pool) - 1), dim=1)
    return [
        {
            "sentence": pool[place],
            "nearest": [{"text": pool[other], "cosine": 100 * value} for value, other in zip(values, others, strict=True)],
        }
        for place, values, others in zip(places, best.values.tolist(), best.indices.tolist(), strict=True)
    ]
