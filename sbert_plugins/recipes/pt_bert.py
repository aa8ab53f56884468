"""PT-BERT's training settings, each beside the paper's sentence, and the attention that goes with a pooling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sbert_plugins.recipes.encoders import pooling_of
from sbert_plugins.recipes.settings import Recipe, Settings

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer


def attention_of(model: SentenceTransformer) -> str:
    """Return what the pseudo tokens attend to so that the vector that is trained is like the one that is saved.

    The vector of one token, [CLS] or a mask, goes with the pooled one: Spearman .89 of the cosines of the two vectors at the
    start, all tokens .43. With the mean of the tokens both are .71 (docs/records.md), and all tokens are what the paper has.
    """
    return "tokens" if pooling_of(model) == "mean" else "pooled"


def attention_keyword(
    sentences: Dataset, model: SentenceTransformer, settings: Settings, given: dict[str, Any]
) -> dict[str, Any]:
    """Find the keyword ``attend_to``, which the authors' code leaves no choice of."""
    return {} if given.get("official") else {"attend_to": attention_of(model)}


PT_BERT = Recipe(
    method="pt-bert",
    name="PT-BERT",
    paper="Tan et al., Findings of ACL 2022",
    url="https://aclanthology.org/2022.findings-acl.22",
    loss="PTBERTLoss",
    columns=("anchor",),
    second_column="positive",
    equation="pseudo tokens + queue of a momentum encoder (eq. 1-5)",
    settings=Settings(
        learning_rate=3e-5,  # the official script's; the paper gives none
        batch_size=64,  # "With batches of 64 sentences and an additional dynamically maintained queue of 256 sentences"
        gradient_accumulation_steps=1,
        epochs=1,  # "Following the settings of SimCSE (Gao et al., 2021), it takes 50 minutes to run an epoch"
        # the official script's, whose pseudo tokens attend to [CLS], as they do here with this pooling; the paper: "the
        # sentence embedding encoded by BERT", of which they "attend to the core part"
        pooling="cls",
        max_seq_length=64,  # the official script's: the paper shows that SimCSE's 32 hides how much it leans on length
        eval_steps=125,  # "evaluate the model every 125 steps to find the best checkpoints"
    ),
    rows_read=1_000_000,  # "1-million sentences randomly sampled from English Wikipedia"
    official=True,
    # The first four layers of MiniLM, where [CLS] carries little, and 1,281 short sentences.
    offline=Settings(
        learning_rate=1e-4,
        batch_size=64,
        gradient_accumulation_steps=1,
        epochs=1,
        pooling="mean",
        max_seq_length=64,
        eval_steps=10,
    ),
    keywords=attention_keyword,
    chosen=("attend_to",),
)
