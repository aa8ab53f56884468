"""PaSeR's training settings, unsupervised and supervised, each beside the paper's sentence, and its columns from raw text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sbert_plugins.recipes.frequencies import frequencies_of
from sbert_plugins.recipes.protocols import protocol_of
from sbert_plugins.recipes.settings import Recipe, Settings
from sbert_plugins.recipes.simcse import ranking_loss

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

    from sbert_plugins.data import TokenFrequencies


def paser_rows(sentences: Dataset, model: SentenceTransformer, seed: int, **how: Any) -> tuple[Dataset, dict[str, Any]]:
    """Make PaSeR's columns: the three best phrases by RAKE, at which the paper's gains end, and synonyms in both copies.

    ``how`` are keywords of :func:`data.paser_columns` in the place of these.
    """
    from sbert_plugins import data

    chosen = paser_rows_with(sentences, **how)
    if chosen["synonyms"] is None:
        data.synonyms_if_installed(_anchors(sentences))  # says what is missing, and what that costs
    return data.paser_columns(sentences, mask_token=model.tokenizer.mask_token, seed=seed, **chosen), chosen


def paser_rows_with(sentences: Dataset | None, **how: Any) -> dict[str, Any]:
    """Return all of ``how`` for :func:`paser_rows`; English text has synonyms where WordNet is installed."""
    from sbert_plugins import data

    if "synonyms" not in how:  # "(SR) is extremely effective" (section 4.5.2)
        how["synonyms"] = data.synonyms_if_installed(_anchors(sentences), warn=False)
    return {"extractor": "rake", "top_k": 3} | how  # "the top three phrases contribute the most"


def _anchors(sentences: Dataset | None) -> Iterable[str]:
    return () if sentences is None else sentences[sentences.column_names[0]]


def paser_supervised_rows(
    triplets: Dataset, model: SentenceTransformer, seed: int, **how: Any
) -> tuple[Dataset, dict[str, Any]]:
    """Add the hidden best phrase of each anchor; the anchor itself stays as it is, for the contrastive term reads it too."""
    from sbert_plugins import data

    chosen = paser_supervised_rows_with(triplets, **how)
    return data.paser_columns(triplets, mask_token=model.tokenizer.mask_token, seed=seed, **chosen), chosen


def paser_supervised_rows_with(_: Dataset | None, **how: Any) -> dict[str, Any]:
    """Return all of ``how`` for :func:`paser_supervised_rows`."""
    return {"extractor": "rake", "top_k": 1, "synonyms": None, "keep_without_phrase": True} | how


def paser_supervised_loss(
    model: SentenceTransformer,
    *,
    alpha: float = 0.1,
    temperature: float = 0.05,
    token_weights: float | None = 1e-6,
    frequencies: TokenFrequencies | str | None = None,
    mlm_head: str = "pretrained",
    decoder_layers: int = 0,
    decoder_heads: int = 16,
    decoder_dropout: float = 0.1,
    difference_scale: float = 10.0,
    product_scale: float = 10.0,
    signed: bool = True,
    normalize_memory: bool = True,
) -> Any:
    r"""Build PaSeR eq. 5: :math:`L = L_{contrastive} + \alpha L_{gen}`.

    Args:
        model: The encoder, best one that was trained without labels before: "We initialize the sentence encoder from the
            best checkpoint of our unsupervised PaSeR".
        alpha: :math:`\alpha`, "searched in our experiments"; neither paper nor code gives the value found.
        temperature: Of the contrastive loss, SimCSE's.
        token_weights: As in :class:`losses.PaSeRLoss`, and so are all that follow.
        frequencies: Counts of the encoder's vocabulary.
        mlm_head: What scores words.
        decoder_layers: The paper's 6, or the words alone.
        decoder_heads: Of a layer.
        decoder_dropout: Likewise.
        difference_scale: :math:`m` of eq. 2.
        product_scale: :math:`n` of eq. 2.
        signed: Whether the differences keep their sign.
        normalize_memory: Whether each memory vector is normalised.
    """
    from sbert_plugins import losses

    contrastive = ranking_loss(model, temperature)
    paser = losses.PaSeRLoss(
        model,
        token_weights=token_weights,
        frequencies=frequencies,
        mlm_head=mlm_head,
        decoder_layers=decoder_layers,
        decoder_heads=decoder_heads,
        decoder_dropout=decoder_dropout,
        difference_scale=difference_scale,
        product_scale=product_scale,
        signed=signed,
        normalize_memory=normalize_memory,
    )
    return losses.WeightedSumLoss(model, {"contrastive": (contrastive, 1.0, [0, 1, 2]), "paser": (paser, alpha, [0, 3, 4])})


PASER = Recipe(
    method="paser",
    name="PaSeR",
    paper="Wu and Zhao, EMNLP 2022",
    url="https://aclanthology.org/2022.emnlp-main.221",
    loss="PaSeRLoss",
    columns=("anchor", "masked", "phrase"),
    equation="writes a hidden phrase from two sentence vectors (eq. 2-4)",
    settings=Settings(
        learning_rate=3e-5,  # "an initial learning rate of 3e-5"
        batch_size=64,  # "The batch size is selected from [32, 64, 96]"; the official script has 64
        gradient_accumulation_steps=1,
        epochs=5,  # "train all versions for 5 epochs on the dataset": the seven STS tasks' texts, not a million sentences
        pooling="cls",  # "we take the [CLS] representation as the sentence representation for most of the experiments"
        max_seq_length=32,  # "we restrict the maximum sequence length to 32"
        eval_steps=125,  # the official script's
    ),
    rows_read=932_970,  # five epochs (paper 4.5.1) of 62,198 sentences (ours: it has no number) at three phrases
    rows_a_sentence=3,
    official=True,
    # The first four layers of MiniLM and 1,281 short sentences.
    offline=Settings(
        learning_rate=1e-4,
        batch_size=64,
        gradient_accumulation_steps=1,
        epochs=1,
        pooling="mean",
        max_seq_length=32,
        eval_steps=20,
        loss_learning_rate=1e-3,  # the decoder starts from random weights and has a few dozen updates
    ),
    prepare=paser_rows,
    prepare_with=paser_rows_with,
    paper_keywords=protocol_of("paser", "paper").loss_keywords,
    keywords=frequencies_of,
    reload={"mlm_head": "fresh", "token_weights": None},  # the head's weights are part of the state
)

PASER_SUPERVISED = Recipe(
    method="paser-supervised",
    name="PaSeR, supervised",
    paper="Wu and Zhao, EMNLP 2022",
    url="https://aclanthology.org/2022.emnlp-main.221",
    loss="WeightedSumLoss",
    columns=("anchor", "positive", "negative", "masked", "phrase"),
    equation="contrast with hard negatives + the hidden phrase (eq. 5)",
    settings=Settings(
        learning_rate=3e-5,  # "an initial learning rate of 3e-5"
        batch_size=64,  # "The batch size is selected from [32, 64, 96]"
        gradient_accumulation_steps=1,
        epochs=3,  # the paper takes over "the contrastive learning framework of SimCSE", whose supervised runs have 3
        pooling="cls",  # "we take the [CLS] representation as the sentence representation for most of the experiments"
        max_seq_length=32,  # "we restrict the maximum sequence length to 32"
        eval_steps=125,
    ),
    rows_read=3 * 557_850,  # its protocol's
    offline=replace(PASER.offline, learning_rate=3e-5),
    prepare=paser_supervised_rows,
    prepare_with=paser_supervised_rows_with,
    reads="triplets",
    text="sentence-transformers/all-nli",  # "a combination of SNLI dataset (Bowman et al., 2015) and MNLI dataset"
    build=paser_supervised_loss,
    keywords=frequencies_of,
    reload={"mlm_head": "fresh", "token_weights": None},
)
