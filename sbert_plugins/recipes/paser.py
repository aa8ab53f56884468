"""PaSeR as in its paper, without and with labels. Sources of the values: protocols/paser*.paper.toml."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sbert_plugins.recipes.recipe import Recipe, count_tokens_if_needed

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from torch import nn


def paser_rows(sentences: Dataset, model: SentenceTransformer, *, seed: int, **keywords: Any) -> Dataset:
    """Make PaSeR's columns: up to three phrases per sentence, and synonyms where WordNet is installed.

    ``keywords`` are those of :func:`data.paser_columns`.
    """
    from sbert_plugins import data

    return data.paser_columns(
        sentences, mask_token=model.tokenizer.mask_token, seed=seed, **({"top_k": 3} | keywords)
    )


def paser_supervised_rows(
    triplets: Dataset, model: SentenceTransformer, *, seed: int, **keywords: Any
) -> Dataset:
    """Add the best phrase of each anchor to triplets. The contrastive loss reads the anchors unchanged."""
    from sbert_plugins import data

    ours = {"top_k": 1, "synonyms": None, "keep_without_phrase": True}
    return data.paser_columns(triplets, mask_token=model.tokenizer.mask_token, seed=seed, **(ours | keywords))


def find_keywords(
    rows: Dataset, model: SentenceTransformer, epochs: float, given: dict[str, Any]
) -> dict[str, Any]:
    """Find counts of the encoder's vocabulary, if tokens are to be weighted."""
    is_weighted = given.get("token_weights") is not None
    return count_tokens_if_needed(rows, model, epochs, given) if is_weighted else {}


def paser_supervised_loss(
    model: SentenceTransformer, *, alpha: float = 0.1, temperature: float = 0.05, **keywords: Any
) -> nn.Module:
    r"""Build PaSeR eq. 5: :math:`L = L_{contrastive} + \alpha L_{gen}`.

    Args:
        model: The encoder; in the paper the best checkpoint that was trained without labels.
        alpha: :math:`\alpha`. Neither paper nor code states the value that was found.
        temperature: Temperature of the contrastive loss.
        **keywords: Keywords of :class:`losses.PaSeRLoss`, here without its masked language model.
    """
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    from sbert_plugins import losses

    contrastive = MultipleNegativesRankingLoss(model, scale=1 / temperature)
    paser = losses.PaSeRLoss(model, **({"mlm_weight": 0.0} | keywords))
    return losses.WeightedSumLoss(
        model, {"contrastive": (contrastive, 1.0, [0, 1, 2]), "paser": (paser, alpha, [0, 3, 4])}
    )


# At the encoder's rate, the decoder's random weights learn too slowly. For the first hundred updates they
# ignore the sentence vectors, and the encoder gets worse. This rate was chosen on STS-B dev.
DECODER_RATE = {r"^(?!model\.).*decoder\.": 1e-3}

PASER = Recipe(
    name="paser",
    title="PaSeR",
    paper="Wu and Zhao, EMNLP 2022",
    url="https://aclanthology.org/2022.emnlp-main.221",
    summary="a six-layer decoder writes a hidden phrase from the vectors; masked language model (eq. 2 to 4)",
    loss="PaSeRLoss",
    columns=("anchor", "masked", "phrase"),
    pooling="cls",
    arguments={
        "learning_rate": 3e-5,
        "learning_rate_mapping": DECODER_RATE,
        "per_device_train_batch_size": 64,
        "num_train_epochs": 5,
        "eval_steps": 125,
    },
    offline_arguments={"max_steps": 60, "eval_steps": 20},
    make_columns=paser_rows,
    find_keywords=find_keywords,
    paper_updates=14_578,  # five epochs of 62,198 sentences with three phrases each
)

PASER_SUPERVISED = replace(
    PASER,
    name="paser-supervised",
    title="PaSeR, supervised",
    summary="contrastive loss with labelled negatives, and the hidden phrase (eq. 5)",
    columns=("anchor", "positive", "negative", "masked", "phrase"),
    arguments=PASER.arguments | {"num_train_epochs": 3},
    build=paser_supervised_loss,
    make_columns=paser_supervised_rows,
    text="sentence-transformers/all-nli",
    text_columns=("anchor", "positive", "negative"),
    paper_updates=26_150,
)
