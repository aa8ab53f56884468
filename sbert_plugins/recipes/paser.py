"""PaSeR as in its paper, without and with labels. Sources of the values: protocols/paser*.paper.toml."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import nn

from sbert_plugins import data, losses
from sbert_plugins.recipes.recipe import Recipe, count_tokens


def prepare(
    rows: Dataset,
    model: SentenceTransformer,
    given: Mapping[str, Any],
    *,
    column_keywords: Mapping[str, Any],
    seed: int,
    **_: Any,
) -> tuple[Dataset, dict[str, Any]]:
    """Make PaSeR's columns: up to three phrases per sentence, and synonyms where WordNet is installed.

    Of triplets, the best phrase of each anchor is added, and the anchors stay unchanged for the contrastive
    loss. Counts of the encoder's vocabulary are found if tokens are to be weighted. The column keywords are
    those of :func:`data.paser_columns`.
    """
    counts = count_tokens(rows, model, {"token_weights": None, **given})
    if "phrase" in rows.column_names:
        return rows, counts
    ours: dict[str, Any] = {"mask_token": model.tokenizer.mask_token, "seed": seed}
    if "negative" in rows.column_names:
        ours |= {"top_k": 1, "synonyms": None, "keep_without_phrase": True}
    return data.paser_columns(rows, **(ours | dict(column_keywords))), counts


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
    contrastive = MultipleNegativesRankingLoss(model, scale=1 / temperature)
    paser = losses.PaSeRLoss(model, **({"mlm_weight": 0.0} | keywords))
    return losses.WeightedSumLoss(
        model, {"contrastive": (contrastive, 1.0, [0, 1, 2]), "paser": (paser, alpha, [0, 3, 4])}
    )


PASER = Recipe(
    name="paser",
    loss="PaSeRLoss",
    made_columns=("anchor", "masked", "phrase"),
    pooling="cls",
    arguments={
        "learning_rate": 3e-5,
        # At the encoder's rate, the decoder's random weights learn too slowly. For the first hundred updates
        # they ignore the sentence vectors, and the encoder gets worse. This rate was chosen on STS-B dev.
        "learning_rate_mapping": {r"^(?!model\.).*decoder\.": 1e-3},
        "per_device_train_batch_size": 64,
        "num_train_epochs": 5,
        "eval_steps": 125,
    },
    prepare=prepare,
    make_columns=data.paser_columns,
    # Computed: five epochs of 62,198 sentences with three phrases each, 64 rows per update.
    paper_updates=14_578,
)

PASER_SUPERVISED = replace(
    PASER,
    name="paser-supervised",
    made_columns=("anchor", "positive", "negative", "masked", "phrase"),
    arguments=PASER.arguments | {"num_train_epochs": 3},
    loss=paser_supervised_loss,
    loss_class="PaSeRLoss",
    reads=("anchor", "positive", "negative"),
    paper_updates=26_150,  # computed: three epochs, which the paper does not state, of 557,850 triplets
)
