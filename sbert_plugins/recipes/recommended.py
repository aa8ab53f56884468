"""What this library's own tables say is best: ConSERT and ArcCSE in equal parts, both at ConSERT's temperature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sbert_plugins.recipes.settings import Recipe, Settings

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def recommended_loss(model: SentenceTransformer, *, temperature: float = 0.1) -> Any:
    """Build the mean of ConSERT and ArcCSE, for one column of sentences, or two of sentences and positives.

    Args:
        model: The encoder.
        temperature: Of both. ArcCSE's own is 0.05, which is worse here.
    """
    from sbert_plugins import losses

    members = {"consert": losses.ConSERTLoss, "arccse": losses.ArcCSELoss}
    return losses.WeightedSumLoss(
        model, {name: (build(model, temperature=temperature), 0.5) for name, build in members.items()}
    )


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
        epochs=1,  # 21 updates; after three epochs the graded pairs were below the start (61.37 to 60.90)
        pooling="mean",
        max_seq_length=32,
        eval_steps=10,
    ),
    build=recommended_loss,
    note="recommended is the mean of ConSERT and ArcCSE at temperature 0.1, the best on sentence similarity in this library's "
    "tables of short trainings (https://sbert-plugins.github.io/sbert-plugins/benchmarks.html). Contrast can harm topics and "
    "clusters: for those compare it with bag-of-words, which has no negatives. An encoder that was trained with labels, as "
    "all-MiniLM-L6-v2 was, hardly gains by any of them.",
)
