"""Loss classes. Each reads text columns by their order and returns its weighted terms.

A class that is named after a paper computes what the paper says, with the differences under "Deviations".
Where the authors' public code computes something else, ``losses.official`` has that form.
"""

from . import official as official
from .arccse import ArcCSELoss
from .bag_of_words import BagOfWordsLoss
from .consert import ConSERTLoss
from .denosent import DenoSentLoss
from .paser import PaSeRLoss
from .pt_bert import PTBERTLoss
from .search_distillation import SearchDistillationLoss
from .self_distillation import SelfDistillationLoss
from .simcse import SimCSELoss
from .slt_fai import SLTFAILoss
from .weighted_sum import WeightedSumLoss

__all__ = [
    "ArcCSELoss",
    "BagOfWordsLoss",
    "ConSERTLoss",
    "DenoSentLoss",
    "PTBERTLoss",
    "PaSeRLoss",
    "SLTFAILoss",
    "SearchDistillationLoss",
    "SelfDistillationLoss",
    "SimCSELoss",
    "WeightedSumLoss",
]
