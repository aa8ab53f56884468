"""SimCSE's training settings, and its loss: the host's ranking loss on a sentence and itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sbert_plugins.recipes.settings import Recipe, Settings

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer


def simcse_loss(model: SentenceTransformer, *, temperature: float = 0.05, pairs: bool = False) -> Any:
    """Build SimCSE for one column of sentences, or two of sentences and positives.

    Args:
        model: The encoder.
        temperature: Of the cosines.
        pairs: Whether there are positives; a sentence is contrasted with itself, in another dropout view, otherwise.
    """
    from sbert_plugins import losses

    ranking = ranking_loss(model, temperature)
    return losses.WeightedSumLoss(model, {"simcse": (ranking, 1.0, [0, 1] if pairs else [0, 0])})


def ranking_loss(model: SentenceTransformer, temperature: float) -> Any:
    """Build the host's ranking loss, whose scale is the inverse of a temperature.

    Raises:
        ValueError: If that is not above 0.
    """
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    from sbert_plugins import functional

    functional.check_temperature(temperature)
    return MultipleNegativesRankingLoss(model, scale=1 / temperature)


def pairs_of(sentences: Dataset, model: SentenceTransformer, settings: Settings, given: dict[str, Any]) -> dict[str, Any]:
    """Find the keyword ``pairs``: whether there is a second column, of positives.

    Raises:
        ValueError: If somebody gives it.
    """
    if "pairs" in given:
        raise ValueError(f"pairs follows from the columns, got {given['pairs']}: leave it out.")
    return {"pairs": True} if len(sentences.column_names) == 2 else {}


SIMCSE = Recipe(
    method="simcse",
    name="SimCSE",
    paper="Gao et al., EMNLP 2021",
    url="https://aclanthology.org/2021.emnlp-main.552",
    loss="WeightedSumLoss",
    columns=("anchor",),
    second_column="positive",
    equation="contrast of a sentence with itself under another dropout: what the others are measured against",
    settings=Settings(
        learning_rate=3e-5,  # of its table of unsupervised settings, for bert-base
        batch_size=64,  # likewise
        gradient_accumulation_steps=1,
        epochs=1,  # of a million Wikipedia sentences
        pooling="cls",  # with a layer on top in training only, which is left out here
        max_seq_length=32,  # the official script's
        eval_steps=125,  # likewise, on STS-B dev
    ),
    rows_read=1_000_000,
    # The first four layers of MiniLM, where [CLS] carries little, and 1,281 short sentences.
    offline=Settings(
        learning_rate=1e-4,
        batch_size=64,
        gradient_accumulation_steps=1,
        epochs=1,
        pooling="mean",
        max_seq_length=32,
        eval_steps=10,
    ),
    build=simcse_loss,
    keywords=pairs_of,
    citations={
        "SimCSE": """
@inproceedings{gao-etal-2021-simcse,
    title = "{S}im{CSE}: Simple Contrastive Learning of Sentence Embeddings",
    author = "Gao, Tianyu and Yao, Xingcheng and Chen, Danqi",
    booktitle = "Proceedings of the 2021 Conference on Empirical Methods in Natural Language Processing",
    year = "2021",
    url = "https://aclanthology.org/2021.emnlp-main.552",
}
"""
    },
)
