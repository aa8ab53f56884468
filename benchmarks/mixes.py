"""Rivals and mixes that have no recipe in the package, as recipes of the benchmarks.

``register()`` adds them to :data:`recipes.RECIPES`, after which a comparison takes them like any other method.
"""

from __future__ import annotations

import copy
import random
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import testbeds
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses as host

from sbert_plugins import data, evaluation, losses, recipes


def tsdae(model: SentenceTransformer) -> Any:
    """The host's, whose settings name the encoder and not where on a machine it lies."""
    loss = host.DenoisingAutoEncoderLoss(model)
    loss.decoder.config._name_or_path = Path(loss.decoder.config._name_or_path).name
    return loss


def ct(model: SentenceTransformer, *, temperature: float = 0.05) -> Any:
    """Contrastive Tension as the host has it with negatives of the batch; the scale is trained, from here on."""
    return host.ContrastiveTensionLossInBatchNegatives(model, scale=1 / temperature)


def noisy(sentences: Dataset, model: SentenceTransformer, seed: int) -> tuple[Dataset, dict[str, Any]]:
    """TSDAE's columns: 60 % of the words deleted, and the sentence."""
    rng = random.Random(seed)
    texts = sentences["anchor"][:]
    return Dataset.from_dict({"noisy": [data.delete_words(text, 0.6, rng) for text in texts], "text": texts}), {"deleted": 0.6}


def paraphrases(sentences: Dataset, model: SentenceTransformer, seed: int) -> tuple[Dataset, dict[str, Any]]:
    """As many pairs that people marked as the same question: supervision, not noise. None is of an STS test set."""
    unwanted = {sentence.lower() for sentence in testbeds.test_sentences()}
    rows = testbeds.table("paraphrase/quora_dup_train.tsv.gz")
    rows = [row for row in rows if unwanted.isdisjoint(text.lower() for text in row)]
    rows = random.Random(seed).sample(rows, min(len(sentences), len(rows)))
    pairs = Dataset.from_dict({"anchor": [row[0] for row in rows], "positive": [row[1] for row in rows]})
    return pairs, {"positives": "marked by people"}


def scored(sentences: Dataset, model: SentenceTransformer, seed: int) -> tuple[Dataset, dict[str, Any]]:
    """STS-B train with its scores, the supervised ceiling; without the many pairs that STS12 to STS16 test on."""
    train = evaluation.read_scored_pairs(testbeds.folder() / "sts" / "stsb_train.tsv")
    unwanted = {sentence.lower() for sentence in testbeds.test_sentences()}
    rows = [row for row in zip(*train, strict=True) if unwanted.isdisjoint(text.lower() for text in row[:2])]
    first, second, scores = zip(*rows, strict=True)
    table = {"sentence1": first, "sentence2": second, "score": [score / 5 for score in scores]}
    return Dataset.from_dict(table), {"labels": "STS-B train"}


def consert_arccse(model: SentenceTransformer, *, temperature: float = 0.1) -> Any:
    """The mean of both, which was the recommended loss until a projection head did as much for ConSERT alone."""
    members = {"consert": losses.ConSERTLoss, "arccse": losses.ArcCSELoss}
    return losses.WeightedSumLoss(
        model, {name: (build(model, temperature=temperature), 0.5) for name, build in members.items()}
    )


def _words_by_the_head(model: SentenceTransformer) -> Any:
    """The bag of words as it was when these mixes were measured; it had a pass of its own, or ArcCSE's, then."""
    return losses.BagOfWordsLoss(model, mlm_head="pretrained")


def consert_arccse_words(model: SentenceTransformer, *, temperature: float = 0.1, balance: float = 1.0) -> Any:
    """That mean with the words of the sentence beside it, these bounded by it."""
    members = {"contrast": (consert_arccse(model, temperature=temperature), 1.0), "words": (_words_by_the_head(model), 1.0)}
    return losses.WeightedSumLoss(model, members, balance=balance)


def recommended_own_pass(model: SentenceTransformer, *, words: float = 0.3) -> Any:
    """What is recommended, its words read in a pass of their own."""
    loss = recipes.recommended_loss(model, words=words)
    loss.share_passes = False
    return loss


def simcse_on_first(model: SentenceTransformer, *, temperature: float = 0.1) -> Any:
    """SimCSE on the first column of any rows."""
    ranking = host.MultipleNegativesRankingLoss(model, scale=1 / temperature)
    return losses.WeightedSumLoss(model, {"simcse": (ranking, 1.0, [0, 0])})


def simcse_paser(model: SentenceTransformer, *, temperature: float = 0.1, balance: float = 1.0) -> Any:
    ranking = host.MultipleNegativesRankingLoss(model, scale=1 / temperature)
    members = {"simcse": (ranking, 1.0, [0, 0]), "paser": (losses.PaSeRLoss(model), 1.0)}
    return losses.WeightedSumLoss(model, members, balance=balance)


def consert_arccse_paser(model: SentenceTransformer, *, temperature: float = 0.1, balance: float = 1.0) -> Any:
    contrast = consert_arccse(model, temperature=temperature)
    members = {"contrast": (contrast, 1.0, [0]), "paser": (losses.PaSeRLoss(model), 1.0)}
    return losses.WeightedSumLoss(model, members, balance=balance)


def consert_arccse_on_first(model: SentenceTransformer, *, temperature: float = 0.1) -> Any:
    """That mean on the first column of any rows."""
    return losses.WeightedSumLoss(model, {"contrast": (consert_arccse(model, temperature=temperature), 1.0, [0])})


def simcse_guided(model: SentenceTransformer, *, temperature: float = 0.1) -> Any:
    """SimCSE without the negatives that the frozen start holds nearer than the sentence's own other view."""
    guided = host.GISTEmbedLoss(model, guide=copy.deepcopy(model), temperature=temperature, margin=0.1)
    return losses.WeightedSumLoss(model, {"guided": (guided, 1.0, [0, 0])})


def _mix(method: str, build: Any, base: recipes.Recipe = recipes.SIMCSE, **changes: Any) -> recipes.Recipe:
    plain: dict[str, Any] = {
        "loss": "",
        "official": False,
        "note": None,
        "keywords": None,
        "reload": {},
        "paper_keywords": {},
        "citations": {},
    }
    return replace(base, method=method, name=method, build=build, **(plain | changes))


_ALONE = {"columns": ("anchor",), "second_column": None}
MIXES = [
    _mix("tsdae", tsdae, columns=("noisy", "text"), second_column=None, prepare=noisy),
    _mix("ct", ct, **_ALONE),
    _mix("consert + arccse", consert_arccse, **_ALONE),
    _mix("consert + arccse + words", consert_arccse_words, **_ALONE),
    _mix("recommended with a pass for its words", recommended_own_pass, **_ALONE),
    _mix("simcse on paser's rows", simcse_on_first, recipes.PASER),
    _mix("simcse + paser", simcse_paser, recipes.PASER),
    _mix("consert + arccse on paser's rows", consert_arccse_on_first, recipes.PASER),
    _mix("consert + arccse + paser", consert_arccse_paser, recipes.PASER),
    _mix("simcse guided by the start", simcse_guided, **_ALONE),
    *(
        replace(recipe, method=f"{recipe.method} as in its paper", build=partial(build, **recipe.paper_keywords))
        for recipe, build in (
            (recipes.DENOSENT, losses.DenoSentLoss),
            (recipes.PASER, losses.PaSeRLoss),
            (recipes.SLT_FAI, recipes.slt_fai_loss),
        )
    ),
    # The brackets say what supervises; the report gives these a table of their own.
    _mix(
        "simcse (paraphrases)",
        recipes.simcse_loss,
        columns=("anchor", "positive"),
        second_column=None,
        prepare=paraphrases,
        keywords=recipes.SIMCSE.keywords,
    ),
    _mix(
        "cosent (supervised)",
        host.CoSENTLoss,
        columns=("sentence1", "sentence2", "score"),
        second_column=None,
        prepare=scored,
    ),
]


def register() -> None:
    """Let comparisons know these methods."""
    recipes.RECIPES.update({recipe.method: recipe for recipe in MIXES})
