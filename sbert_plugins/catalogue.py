"""The methods: their names, papers, and scores of short trainings. This file loads no torch.

So the command line prints its help, the list of methods, and the answer to a typo at once.
"""

import difflib
from collections.abc import Iterable
from typing import NamedTuple


class About(NamedTuple):
    """The description of a method for people.

    Attributes:
        title: What people call it.
        paper: Authors and venue.
        url: Where the paper is.
        summary: What is computed, in one line.
        scores: Average of the seven STS tasks after 60 and after 400 updates of 64 sentences, from a
            six-layer language model. That of SimCSE after 400 updates is without its projection head. Empty
            if it was not measured.
    """

    title: str
    paper: str
    url: str
    summary: str
    scores: tuple[float, ...] = ()


START, UPDATES = 56.5, (60, 400)  # the score before the trainings, and their lengths
METHODS = {
    "recommended": About(
        "Recommended",
        "this library, after ConSERT, DenoSent and RankCSE",
        "https://sbert-plugins.github.io/sbert-plugins/methods/recommended.html",
        "ConSERT, with self-distillation for embedding models, with a bag-of-words loss for others",
        (73.2, 74.0),
    ),
    "search": About(
        "Search",
        "this library, after SIF and GPL",
        "https://sbert-plugins.github.io/sbert-plugins/guides/search.html",
        "token weights and a linear map for search, learned from documents with BM25 as a teacher",
    ),
    "arccse": About(
        "ArcCSE",
        "Zhang et al., ACL 2022",
        "https://aclanthology.org/2022.acl-long.336",
        "contrastive loss with an angular margin; copies with more masks are less similar (eq. 3 to 5)",
        (72.0, 72.9),
    ),
    "paser": About(
        "PaSeR",
        "Wu and Zhao, EMNLP 2022",
        "https://aclanthology.org/2022.emnlp-main.221",
        "a six-layer decoder writes a hidden phrase from the vectors; masked language model (eq. 2 to 4)",
        (57.7, 68.9),
    ),
    "paser-supervised": About(
        "PaSeR, supervised",
        "Wu and Zhao, EMNLP 2022",
        "https://aclanthology.org/2022.emnlp-main.221",
        "contrastive loss with labelled negatives, and the hidden phrase (eq. 5)",
    ),
    "denosent": About(
        "DenoSent",
        "Wang et al., AAAI 2024",
        "https://arxiv.org/abs/2401.13621",
        "contrastive loss, and a 16-layer decoder that restores a noisy sentence (eq. 3 to 6)",
        (66.7, 70.9),
    ),
    "pt-bert": About(
        "PT-BERT",
        "Tan et al., Findings of ACL 2022",
        "https://aclanthology.org/2022.findings-acl.22",
        "contrastive loss on sentences mapped to equal length; negatives of earlier batches (eq. 1 to 5)",
        (71.2, 72.7),
    ),
    "slt-fai": About(
        "SLT-FAI",
        "Wang et al., 2023",
        "https://arxiv.org/abs/2305.08655",
        "adds to another loss: hide how rare a word is, notice missing rare words (eq. 2 to 6)",
        (71.1, 70.7),
    ),
    "consert": About(
        "ConSERT",
        "Yan et al., ACL 2021",
        "https://aclanthology.org/2021.acl-long.393",
        "contrastive loss on two augmented views: features cut off, tokens shuffled (eq. 1)",
        (72.8, 73.4),
    ),
    "bag-of-words": About(
        "Bag of words",
        "this library, after DenoSent",
        "https://arxiv.org/abs/2401.13621",
        "predicts the rare words of a sentence from its vector, without negatives",
        (71.4, 68.5),
    ),
    "simcse": About(
        "SimCSE",
        "Gao et al., EMNLP 2021",
        "https://aclanthology.org/2021.emnlp-main.552",
        "contrastive loss on two dropout views of a sentence: the usual baseline",
        (71.3, 72.2),
    ),
}


# Names that people type for training arguments that are not near to them.
_MEANT = {
    "epochs": "num_train_epochs",
    "batch_size": "per_device_train_batch_size",
    "steps": "max_steps",
    "lr": "learning_rate",
}


def small_budget(method: str) -> str:
    """Return one sentence about a method's short trainings; empty for a method that was not measured.

    Example:
        >>> small_budget("arccse").partition(", ")[2]
        '60 updates gave 72.0 and 400 gave 72.9.'
    """
    if method not in METHODS or not METHODS[method].scores:
        return ""
    short, longer = METHODS[method].scores
    return (
        f"From a small language model ({START} on average over the seven STS tasks), {UPDATES[0]} updates "
        f"gave {short} and {UPDATES[1]} gave {longer}."
    )


def check_method(method: str) -> None:
    """Raise ``ValueError`` for a name that is neither a method nor ``package.module:Class``."""
    if method not in METHODS and ":" not in method:
        raise ValueError(
            f"There is no method {method!r}.{did_you_mean(method, METHODS)} The methods are "
            f"{', '.join(METHODS)}, and package.module:Class for a loss of your own."
        )


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Return a sentence with the nearest of some words, or nothing if none is near.

    Example:
        >>> did_you_mean("temprature", ["temperature", "balance"])
        ' Did you mean temperature?'
    """
    near = difflib.get_close_matches(_MEANT.get(word, word), list(words), n=1)
    return f" Did you mean {near[0]}?" if near else ""
