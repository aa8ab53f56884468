"""What this library's own tables say is best: ConSERT and ArcCSE in equal parts, both at ConSERT's temperature."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from sbert_plugins.recipes.bag_of_words import BAG_OF_WORDS
from sbert_plugins.recipes.frequencies import frequencies_of
from sbert_plugins.recipes.settings import Recipe, Settings

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

    from sbert_plugins.data import TokenFrequencies


def recommended_loss(
    model: SentenceTransformer,
    *,
    temperature: float = 0.1,
    words: float = 0.0,
    token_weights: float | None = 1e-6,
    frequencies: TokenFrequencies | str | None = None,
    mlm_head: str | None = None,
) -> Any:
    """Build the mean of ConSERT and ArcCSE, for one column of sentences, or two of sentences and positives.

    Args:
        model: The encoder.
        temperature: Of both. ArcCSE's own is 0.05, which is worse here.
        words: Above 0, :class:`losses.BagOfWordsLoss` of the sentences stands beside the mean, and this is the most that its
            gradient at the sentence vectors may be, as a multiple of the mean's. 0.3 loses 0.07 on the seven STS tasks after
            60 updates and gains 0.43 after 400 (docs/benchmarks.md).
        token_weights: As in :class:`losses.BagOfWordsLoss`, like the two that follow.
        frequencies: See there.
        mlm_head: See there.

    Raises:
        ValueError: If ``words`` is not a finite number, 0 or above.
    """
    from sbert_plugins import losses

    is_number = isinstance(words, int | float) and not isinstance(words, bool)
    if not is_number or not 0 <= words < math.inf:  # not true of NaN
        raise ValueError(f"words must be a finite number, 0 or above, got {words!r}: 0 leaves the words out.")
    members = {"consert": losses.ConSERTLoss, "arccse": losses.ArcCSELoss}
    mean = losses.WeightedSumLoss(
        model, {name: (build(model, temperature=temperature), 0.5) for name, build in members.items()}
    )
    if words == 0:
        return mean
    bag = losses.BagOfWordsLoss(model, token_weights=token_weights, frequencies=frequencies, mlm_head=mlm_head)
    return losses.WeightedSumLoss(model, {"contrast": (mean, 1.0), "words": (bag, 1.0, [0])}, balance=words)


def counts_for_words(
    sentences: Dataset, model: SentenceTransformer, settings: Settings, given: dict[str, Any]
) -> dict[str, Any]:
    """Find ``frequencies``, where there are words to weigh.

    Raises:
        ValueError: If what is read of the words is given, and no words are.
    """
    if given.get("words"):
        return frequencies_of(sentences, model, settings, given)
    if unread := [key for key in ("token_weights", "frequencies", "mlm_head") if key in given]:
        raise ValueError(f"{', '.join(unread)} would be of words that are left out: give words a bound, 0.3 for one.")
    return {}


RECOMMENDED = Recipe(
    method="recommended",
    name="ConSERT + ArcCSE",
    paper="this library, of two papers",
    url="https://aclanthology.org/2021.acl-long.393",
    loss="WeightedSumLoss",
    columns=("anchor",),
    second_column="positive",
    equation="ConSERT's views and ArcCSE's margin and order, half each, temperature 0.1",
    # Those of the table that it leads (docs/benchmarks.md), which compares methods at equal updates.
    settings=Settings(
        learning_rate=5e-5,
        batch_size=64,
        gradient_accumulation_steps=1,
        epochs=1,
        # Minutes on a laptop. 400 updates add .3 on short sentences, and on Wikipedia end 1.7 of STS-B dev below the best.
        max_steps=60,
        pooling="mean",
        max_seq_length=32,
        eval_steps=20,
    ),
    # The first four layers of MiniLM and 1,281 short sentences.
    offline=Settings(
        learning_rate=1e-4,
        batch_size=64,
        gradient_accumulation_steps=1,
        epochs=1,  # 20 updates
        pooling="mean",
        max_seq_length=32,
        eval_steps=10,
    ),
    build=recommended_loss,
    keywords=counts_for_words,
    reload=BAG_OF_WORDS.reload,
    note="recommended is the mean of ConSERT and ArcCSE at temperature 0.1, the best on sentence similarity in this library's "
    "tables of short trainings (https://sbert-plugins.github.io/sbert-plugins/benchmarks.html). Contrast can harm topics and "
    "clusters: for those compare it with bag-of-words, which has no negatives. An encoder that was trained with labels, as "
    "all-MiniLM-L6-v2 was, hardly gains by any of them.",
)
