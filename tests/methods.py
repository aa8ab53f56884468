"""The methods that the parametrised suites run: a later one joins with one line."""

from datasets import Dataset
from encoders import SENTENCES, project_text

from sbert_plugins import losses


def _anchors(count):
    return Dataset.from_dict({"anchor": (SENTENCES + project_text())[:count]})


# name -> (loss of a model, dataset of a number of rows)
METHODS = {
    "arccse": (lambda model: losses.ArcCSELoss(model, triplet_margin=0.5), _anchors),
}
