"""The methods that the parametrised suites run: a later one joins with one line."""

from datasets import Dataset
from encoders import SENTENCES, project_text

from sbert_plugins import data, losses


def _anchors(count):
    return Dataset.from_dict({"anchor": (SENTENCES + project_text())[:count]})


def _phrases(count):
    rows = data.paser_columns(SENTENCES + project_text()[:count], mask_token="<mask>", synonyms=None)
    return Dataset.from_dict(rows[:count])


# name -> (loss of a model, dataset of a number of rows)
METHODS = {
    "arccse": (lambda model: losses.ArcCSELoss(model, triplet_margin=0.5), _anchors),
    "pt-bert": (lambda model: losses.PTBERTLoss(model, num_pseudo_tokens=16, queue_size=10), _anchors),
    "paser": (lambda model: losses.PaSeRLoss(model, decoder_layers=2, decoder_heads=4, mlm_head="fresh"), _phrases),
}

# Their forwards change a buffer (a queue), which Sharpness-Aware Minimization refuses.
WITHOUT_SAM = {"pt-bert"}
