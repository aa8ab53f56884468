"""The methods that the parametrised suites run: a later one joins with one line."""

from functools import cache

from datasets import Dataset
from encoders import SENTENCES, project_counts, project_text
from sentence_transformers.sentence_transformer.losses import (
    ContrastiveTensionLossInBatchNegatives,
    MultipleNegativesRankingLoss,
)

from sbert_plugins import data, losses, modules, recipes
from sbert_plugins.losses import official


@cache
def _anchors(count):
    return Dataset.from_dict({"anchor": (SENTENCES + project_text())[:count]})


@cache
def _phrases(count):
    rows = data.paser_columns(SENTENCES + project_text()[:count], mask_token="<mask>", synonyms=None)
    return Dataset.from_dict(rows[:count])


@cache
def _pairs(count):
    rows = (SENTENCES + project_text())[: count + 1]
    return Dataset.from_dict({"anchor": rows[:-1], "paraphrase": rows[1:]})


def _denosent(model, **keywords):
    small = recipes.DENOSENT.paper_keywords | {"decoder_layers": 2, "decoder_feedforward": 48, "mlm_head": "fresh"}
    return losses.DenoSentLoss(model, **small, **keywords)


def _paser(model):
    small = recipes.PASER.paper_keywords | {"decoder_layers": 2, "decoder_heads": 4, "mlm_head": "fresh"}
    return losses.PaSeRLoss(model, **small)


def _slt_fai(model, base, **keywords):
    frequencies = project_counts(model.tokenizer)
    return losses.SLTFAILoss(model, base, frequencies=frequencies, **keywords)


def _simcse(model):
    return losses.WeightedSumLoss(model, {"simcse": (MultipleNegativesRankingLoss(model), 1.0, [0, 0])})


def _counts(model):
    return {"frequencies": project_counts(model.tokenizer), "mlm_head": "fresh"}


def _balanced(model):
    words = losses.BagOfWordsLoss(model, **_counts(model))
    ranking = MultipleNegativesRankingLoss(model)
    return losses.WeightedSumLoss(model, {"simcse": (ranking, 1.0, [0, 0]), "words": (words, 1.0, [0])}, balance=0.5)


_SMALL = {"decoder_layers": 2, "mlm_head": "fresh"}


def _official_slt_fai(model):
    frequencies = project_counts(model.tokenizer)
    return official.SLTFAILoss(model, losses.ConSERTLoss(model), frequencies=frequencies, warmup_steps=1)


# name -> (loss of a model, dataset of a number of rows)
METHODS = {
    "arccse": (lambda model: losses.ArcCSELoss(model, triplet_margin=0.5), _anchors),
    "denosent": (_denosent, _anchors),
    "denosent with paraphrases": (lambda model: _denosent(modules.apply_mask_template(model)), _pairs),
    "pt-bert": (lambda model: losses.PTBERTLoss(model, num_pseudo_tokens=16, queue_size=10), _anchors),
    "denosent words": (lambda model: losses.DenoSentLoss(model, **_counts(model)), _anchors),
    "bag of words": (lambda model: losses.BagOfWordsLoss(model, **_counts(model)), _anchors),
    "balanced sum": (_balanced, _anchors),
    "paser": (_paser, _phrases),
    "paser words": (lambda model: losses.PaSeRLoss(model, **_counts(model)), _phrases),
    "slt-fai": (lambda model: _slt_fai(model, _simcse(model), warmup_steps=1), _anchors),
    "slt-fai consert": (lambda model: _slt_fai(model, losses.ConSERTLoss(model), warmup_steps=0), _anchors),
}

# The authors' computations: in the suites that train, save, reload and resume.
OFFICIAL = {
    "official denosent": (lambda model: official.DenoSentLoss(model, decoder_feedforward=48, **_SMALL), _pairs),
    "official paser": (lambda model: official.PaSeRLoss(model, decoder_heads=4, **_SMALL), _phrases),
    "official pt-bert": (lambda model: official.PTBERTLoss(model, num_pseudo_tokens=16, queue_size=10), _anchors),
    "official slt-fai": (_official_slt_fai, _anchors),
}
EVERY = METHODS | OFFICIAL

# A loss of the host's that owns weights, and whose settings say what one of them has learned.
HOST = {"contrastive tension": (ContrastiveTensionLossInBatchNegatives, _pairs)}

# Their forwards change a buffer (a queue), which Sharpness-Aware Minimization refuses.
WITHOUT_SAM = {"pt-bert"}
