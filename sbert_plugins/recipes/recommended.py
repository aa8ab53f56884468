"""What this library's own tables say is best: ConSERT with a projection head, in training only, and the words beside it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from sbert_plugins.recipes.bag_of_words import BAG_OF_WORDS
from sbert_plugins.recipes.frequencies import frequencies_of
from sbert_plugins.recipes.settings import Recipe, Settings
from sbert_plugins.recipes.simcse import SIMCSE

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

    from sbert_plugins.data import TokenFrequencies


_WORDS = 0.3


def recommended_loss(
    model: SentenceTransformer,
    *,
    projection_head: bool = True,
    words: float = _WORDS,
    token_weights: float | None = 1e-6,
    frequencies: TokenFrequencies | str | None = None,
    mlm_head: str = "embeddings",
    **keywords: Any,
) -> Any:
    """Build :class:`losses.ConSERTLoss` with a projection head, and :class:`losses.BagOfWordsLoss` beside it.

    For one column of sentences, or sentences and positives, of which the words are those of the sentences.

    Args:
        model: The encoder.
        projection_head: As in :class:`losses.ConSERTLoss`.
        words: The most that the gradient of the words may be at the sentence vectors, as a multiple of the contrast's; 0
            leaves them out. ``MatryoshkaLoss`` goes round this with ``words=0, projection_head=False``.
        token_weights: As in :class:`losses.BagOfWordsLoss`, like the two that follow.
        frequencies: See there: an encoder of another vocabulary than ``bert-base-uncased`` needs them.
        mlm_head: See there.
        **keywords: The others of :class:`losses.ConSERTLoss`.

    Raises:
        ValueError: If ``words`` is not a finite number, 0 or above, or for what the two losses refuse.
    """
    from sbert_plugins import losses

    is_number = isinstance(words, int | float) and not isinstance(words, bool)
    if not is_number or not 0 <= words < math.inf:  # not true of NaN
        raise ValueError(f"words must be a finite number, 0 or above, got {words!r}: 0 leaves the words out.")
    contrast = losses.ConSERTLoss(model, projection_head=projection_head, **keywords)
    if words == 0:
        return contrast
    bag = losses.BagOfWordsLoss(model, token_weights=token_weights, frequencies=frequencies, mlm_head=mlm_head)
    return losses.WeightedSumLoss(model, {"contrast": (contrast, 1.0), "words": (bag, 1.0, [0])}, balance=words)


def counts_for_words(
    sentences: Dataset, model: SentenceTransformer, settings: Settings, given: dict[str, Any]
) -> dict[str, Any]:
    """Find ``frequencies``, where there are words to weigh.

    Raises:
        ValueError: If what is read of the words is given, and they are left out.
    """
    if given.get("words", _WORDS):
        return frequencies_of(sentences, model, settings, given)
    if unread := [key for key in ("token_weights", "frequencies", "mlm_head") if key in given]:
        raise ValueError(f"{', '.join(unread)} would be of words, which words=0 leaves out: leave out one or the other.")
    return {}


RECOMMENDED = Recipe(
    method="recommended",
    name="ConSERT with a projection head, and words",
    paper="this library, of two papers",
    url="https://aclanthology.org/2021.acl-long.393",
    loss="ConSERTLoss",
    beside={"BagOfWordsLoss": "words"},
    columns=("anchor",),
    second_column="positive",
    equation="ConSERT's views, SimCSE's head in training, temperature 0.1; a sentence's words beside, bounded",
    # Those of the tables (docs/benchmarks.md), which compare methods at equal updates.
    settings=Settings(
        learning_rate=5e-5,
        batch_size=64,
        gradient_accumulation_steps=1,
        epochs=1,
        # Minutes on a laptop. 400 add .8 to two points (docs/guides/text.md); without the words they may take points away.
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
    citations=SIMCSE.citations,  # of the head
    note="recommended is, by default, ConSERT with a projection head in training and a sentence's words beside it, the best "
    "by STS-B dev in this library's tables of short trainings at one rate "
    "(https://sbert-plugins.github.io/sbert-plugins/benchmarks.html). "
    "Contrast can harm topics and clusters: for those compare it with paser and bag-of-words, which have no negatives.",
)
