"""The methods that the parametrised suites run: a later one joins with one line."""

from functools import cache

import numpy as np
from datasets import Dataset
from encoders import SENTENCES, project_counts, project_text
from sentence_transformers.sentence_transformer.losses import (
    ContrastiveTensionLossInBatchNegatives,
    MultipleNegativesRankingLoss,
)

from sbert_plugins import data, losses, modules
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


_DENOSENT = {"decoder_layers": 2, "decoder_feedforward": 48}
_PASER = {"decoder_layers": 2, "decoder_heads": 4, "mlm_head": "fresh"}
_PT_BERT = {"num_pseudo_tokens": 16, "queue_size": 10}


def _counts(model):
    return {"frequencies": project_counts(model.tokenizer)}


def _balanced(model):
    words = losses.BagOfWordsLoss(model, **_counts(model))
    members = {"simcse": (MultipleNegativesRankingLoss(model), 1.0, [0, 0]), "words": (words, 1.0, [0])}
    return losses.WeightedSumLoss(model, members, balance=0.5)


def _paser_words(model):
    keywords = {"decoder_layers": 0, "mlm_head": "embeddings", "mlm_weight": 0.0, "token_weights": 1e-6}
    return losses.PaSeRLoss(model, **keywords, **_counts(model))


def _self_distillation(model):
    members = {"consert": losses.ConSERTLoss(model), "keep": losses.SelfDistillationLoss(model)}
    return losses.WeightedSumLoss(model, {name: (loss, 1.0) for name, loss in members.items()})


def _weighted(model):
    model[1].pooling_mode = "mean"
    return modules.apply_token_weights(model, modules.count_idf(model, SENTENCES))


def _slt_fai(model, base=None, kind=losses.SLTFAILoss, **keywords):
    return kind(model, base, **_counts(model), **keywords)


# name -> (loss of a model, dataset of a number of rows)
METHODS = {
    "simcse": (losses.SimCSELoss, _anchors),
    "arccse": (lambda model: losses.ArcCSELoss(model, triplet_margin=0.5), _anchors),
    "consert": (losses.ConSERTLoss, _anchors),
    "consert with token weights": (lambda model: losses.ConSERTLoss(_weighted(model)), _anchors),
    "denosent": (lambda model: losses.DenoSentLoss(model, **_DENOSENT), _anchors),
    "denosent with paraphrases": (
        lambda model: losses.DenoSentLoss(modules.apply_mask_template(model), **_DENOSENT),
        _pairs,
    ),
    "pt-bert": (lambda model: losses.PTBERTLoss(model, **_PT_BERT), _anchors),
    "bag of words": (lambda model: losses.BagOfWordsLoss(model, **_counts(model)), _anchors),
    "balanced sum": (_balanced, _anchors),
    "self-distillation": (_self_distillation, _anchors),
    "paser": (lambda model: losses.PaSeRLoss(model, **_PASER), _phrases),
    "paser words": (_paser_words, _phrases),
    "slt-fai": (lambda model: _slt_fai(model, warmup_steps=1), _anchors),
    "slt-fai consert": (lambda model: _slt_fai(model, losses.ConSERTLoss(model), warmup_steps=0), _anchors),
}

# The authors' computations: in the suites that train, save, reload and resume.
OFFICIAL = {
    "official denosent": (lambda model: official.DenoSentLoss(model, **_DENOSENT), _pairs),
    "official paser": (lambda model: official.PaSeRLoss(model, **_PASER), _phrases),
    "official pt-bert": (lambda model: official.PTBERTLoss(model, **_PT_BERT), _anchors),
    "official slt-fai": (
        lambda model: _slt_fai(model, losses.ConSERTLoss(model), official.SLTFAILoss, warmup_steps=1),
        _anchors,
    ),
}
EVERY = METHODS | OFFICIAL


@cache
def _searches():
    documents = project_text()[:30]
    queries = SENTENCES + project_text()[30:70]
    return queries, documents, data.bm25_scores(documents, queries)


# A method with labels, of which the other suites pass none: in the suites that resume and that run two ranks.
LABELLED = {
    "search distillation": (
        lambda model: losses.SearchDistillationLoss(_weighted(model), _searches()[2], np.eye(30)),
        lambda count: data.search_rows(*_searches(), size=2).select(range(count)),
    )
}

# A loss of sentence-transformers that owns weights, and whose settings show one that it has learned.
HOST = {"contrastive tension": (ContrastiveTensionLossInBatchNegatives, _pairs)}

# Their forwards change a buffer (a queue), which Sharpness-Aware Minimization does not allow.
WITHOUT_SAM = {"pt-bert"}
