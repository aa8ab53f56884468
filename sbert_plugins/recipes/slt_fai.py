"""SLT-FAI's training settings for each backbone, each beside the paper's sentence, and its counts from raw text."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sbert_plugins.recipes.arccse import ARCCSE
from sbert_plugins.recipes.bag_of_words import BAG_OF_WORDS
from sbert_plugins.recipes.consert import CONSERT
from sbert_plugins.recipes.denosent import DENOSENT
from sbert_plugins.recipes.frequencies import frequencies_of
from sbert_plugins.recipes.pt_bert import PT_BERT, attention_of
from sbert_plugins.recipes.settings import Recipe, Settings, processes
from sbert_plugins.recipes.simcse import SIMCSE, pairs_of, simcse_loss

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

# "we implement our experiments with the same settings as ConSERT and SimCSE, but the batch size is set to 32": of ConSERT
# the tables' settings, the official ones being for the protocols.
_OWN: dict[str, Any] = {
    "batch_size": 32,
    "pooling": "mean",  # "we compute each sentence embedding by averaging the embeddings of its word tokens" (eq. 1)
}
_SIMCSE = replace(SIMCSE.settings, **_OWN)
_CONSERT = replace(CONSERT.settings, **_OWN)
_SETTINGS = {"simcse": _SIMCSE, "consert": _CONSERT}
# Epochs: "we fix the warm-up iterations to 0.5 epochs for ConSERT + SLT-FAI and 0.1 epochs for SimCSE + SLT-FAI"
_WARMUP = {"consert": 0.5}
_LONGEST_WARMUP = 0.5  # share of the training, where that has less than an epoch or so


# Other methods that are trained on plain sentences.
_OTHERS = {recipe.method: recipe for recipe in (ARCCSE, DENOSENT, PT_BERT, BAG_OF_WORDS)}
BACKBONES = (*_SETTINGS, *_OTHERS)


def slt_fai_settings(backbone: str = "simcse", *, offline: bool = False) -> Settings:
    """Return the settings for a backbone: the paper's two, or any other method's own; those of the demo if ``offline``.

    Raises:
        ValueError: For a backbone that is neither, or that does not read sentences alone.
    """
    if backbone in _SETTINGS:
        return SLT_FAI.offline if offline else _SETTINGS[backbone]
    if backbone not in BACKBONES:
        raise ValueError(f"backbone must be one of {', '.join(BACKBONES)}, got {backbone!r}.")
    return _OTHERS[backbone].offline if offline else _OTHERS[backbone].settings


def slt_fai_loss(
    model: SentenceTransformer,
    *,
    backbone: str = "simcse",
    frequencies: Any = None,
    temperature: float | None = None,
    mlm_head: str | None = None,
    pairs: bool = False,
    official: bool = False,
    **keywords: Any,
) -> Any:
    r"""Build SLT-FAI round a backbone, for one column of sentences, or two of sentences and positives.

    Args:
        model: The encoder.
        backbone: ``"simcse"``, ``"consert"``, ``"arccse"``, ``"denosent"``, ``"pt-bert"`` or ``"bag-of-words"``.
        frequencies: :class:`data.TokenFrequencies`, or the path of saved ones; by default those of BookCorpus. ``"saved"``
            where a state is loaded afterwards, which holds the labels.
        temperature: Of the backbone; by default its own.
        mlm_head: Of a backbone that reads one, such as ``"denosent"``; by default its own.
        pairs: Whether there are positives, for ``"simcse"``, which contrasts a sentence with itself otherwise.
        official: Whether as the authors' code: :class:`losses.official.SLTFAILoss`.
        **keywords: Of :class:`losses.SLTFAILoss`.
    """
    from sbert_plugins import data, losses

    slt_fai_settings(backbone)
    if frequencies is None:
        frequencies = data.TokenFrequencies.bookcorpus()
    elif frequencies == "saved":
        frequencies = data.TokenFrequencies.of_no_corpus(model.tokenizer)
    elif isinstance(frequencies, (str, Path)):
        frequencies = data.TokenFrequencies.load(frequencies)
    plain: dict[str, Any] = {"simcse": partial(simcse_loss, pairs=pairs), "consert": losses.ConSERTLoss}
    build = plain[backbone] if backbone in plain else getattr(losses, _OTHERS[backbone].loss)
    known = signature(build).parameters
    given = {key: value for key, value in {"temperature": temperature, "mlm_head": mlm_head}.items() if value is not None}
    for key in given.keys() - known.keys():
        raise ValueError(f"{key} is no keyword of {backbone}'s loss, got {given[key]}: leave it out.")
    found = {"frequencies": frequencies} if "frequencies" in known else {}
    found |= {"attend_to": attention_of(model)} if backbone == PT_BERT.method else {}
    base = build(model, **given, **found)
    room = losses.official if official else losses
    return room.SLTFAILoss(model, base, frequencies=frequencies, **keywords)


def slt_fai_keywords(
    sentences: Dataset, model: SentenceTransformer, settings: Settings, given: dict[str, Any]
) -> dict[str, Any]:
    """Find the warm-up that the paper gives in epochs, whether there are positives, and counts of the encoder's vocabulary."""
    epochs = settings.epochs
    if settings.max_steps > 0:
        rows = settings.max_steps * settings.batch_size * settings.gradient_accumulation_steps * processes()
        epochs = rows / len(sentences)
    warmup = _WARMUP.get(given.get("backbone", "simcse"), 0.1) / epochs
    found: dict[str, Any] = {"warmup_steps": min(warmup, _LONGEST_WARMUP)}
    return found | pairs_of(sentences, model, settings, given) | frequencies_of(sentences, model, settings, given)


SLT_FAI = Recipe(
    method="slt-fai",
    name="SLT-FAI",
    paper="Wang et al., 2023",
    url="https://arxiv.org/abs/2305.08655",
    loss="SLTFAILoss",
    columns=("anchor",),
    second_column="positive",
    equation="round any loss: token embeddings without frequency, vectors that miss rare words (eq. 2-6)",
    settings=_SIMCSE,
    rows_read=1_000_000,  # "randomly sampled 1,000,000 raw sentences"
    official=True,
    # The first four layers of MiniLM and 1,281 short sentences.
    offline=Settings(
        learning_rate=3e-5,
        batch_size=32,
        gradient_accumulation_steps=1,
        epochs=1,
        pooling="mean",
        max_seq_length=32,
        eval_steps=10,
    ),
    build=slt_fai_loss,
    choose_settings=lambda given, offline: slt_fai_settings(given.get("backbone", "simcse"), offline=offline),
    paper_keywords={"balance": None},
    keywords=slt_fai_keywords,
    chosen=("warmup_steps",),
    reload={"frequencies": "saved"},
)
