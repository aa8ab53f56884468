"""One loss class a method. Each reads text columns by position and returns its weighted terms."""

from typing import TYPE_CHECKING

from .arccse import ArcCSELoss
from .bag_of_words import BagOfWordsLoss
from .consert import ConSERTLoss
from .denosent import DenoSentLoss
from .paser import PaSeRLoss
from .pt_bert import PTBERTLoss
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
    "WeightedSumLoss",
]

if TYPE_CHECKING:
    from sbert_plugins.contract import Loss

    _: tuple[type[Loss], ...] = (  # that each keeps the contract is the type checker's to see
        ArcCSELoss,
        BagOfWordsLoss,
        ConSERTLoss,
        DenoSentLoss,
        PaSeRLoss,
        PTBERTLoss,
        SLTFAILoss,
        WeightedSumLoss,
    )
