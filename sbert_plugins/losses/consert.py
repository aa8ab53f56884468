"""ConSERT: a contrastive loss on two views that are made inside the encoder's embeddings."""

from collections.abc import Sequence

from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from sbert_plugins import functional
from sbert_plugins.encoder import (
    VIEW_PARTS,
    Encoder,
    TokenRoles,
    View,
    require_dropout,
    sentence_width,
)
from sbert_plugins.losses.base import Loss, Terms
from sbert_plugins.modules import ProjectionHead


class ConSERTLoss(Loss):
    r"""ConSERT (Yan et al., ACL 2021, https://aclanthology.org/2021.acl-long.393).

    Each sentence passes the encoder twice, each time in another view: features set to 0, tokens set to 0,
    tokens shuffled, the encoder's dropout, or several of these. The two views are a positive pair. All views
    of the other sentences are negatives. With two columns, the first view is of the first column and the
    second of the second.

    .. math::
        L = -\frac{1}{2B}\sum_i \log\frac{e^{\cos(r_i, r_{i^*})/\tau}}{\sum_{k \ne i} e^{\cos(r_i, r_k)/\tau}}

    This is its eq. 1: :func:`functional.nt_xent`.

    Inputs:
        +---------------------------------------------------------------+--------+
        | Columns                                                       | Labels |
        +===============================================================+========+
        | anchor (a sentence)                                           | unused |
        +---------------------------------------------------------------+--------+
        | anchor, positive (any pairs, such as :func:`data.crop_pairs`) | unused |
        +---------------------------------------------------------------+--------+

    Returns from ``forward``: a dict with the term ``nt_xent``.

    Args:
        model: Any transformers encoder.
        first_view: Parts of the first view: any of ``"feature_cutoff"``, ``"token_cutoff"``,
            ``"token_shuffling"`` and ``"dropout"``. ``()`` leaves the sentence as it is. The defaults are the
            authors' unsupervised setting, in which the encoder's dropout is off.
        second_view: Parts of the second view.
        feature_cutoff_rate: Share of the embedding features that are set to 0, the same for all tokens of a
            sentence.
        token_cutoff_rate: Share of a sentence's tokens whose embeddings are set to 0. Special tokens stay.
        temperature: :math:`\tau`, above 0.
        projection_head: Adds a Linear layer and tanh on the sentence vector in training (SimCSE section 6.3).
            It is not saved with the model.

    Raises:
        ValueError: If a value is out of range, the two views of a sentence are equal, a view needs dropout
            and the model has none, hooks cannot change the encoder's embeddings (XLNet), or torch.compile has
            wrapped the model.

    Relations:
        - ``first_view=second_view=("dropout",)`` is SimCSE with the views of both sides as negatives.
        - With ``projection_head=True`` it is the contrastive loss of ``recipes.recommended_loss``.
        - :class:`SLTFAILoss` around it is the paper's "ConSERT + SLT-FAI".

    Deviations:
        The official code shuffles position ids; here word embeddings move and positions stay, which is
        equivalent. Special tokens are never moved or set to 0. Neither paper nor code has a projection head.

    Example:
        >>> from datasets import Dataset
        >>> from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
        >>> from sbert_plugins import losses
        >>> model = SentenceTransformer("bert-base-uncased")
        >>> train = Dataset.from_dict({"anchor": ["It is raining.", "He plays the organ.", "Prices fell."]})
        >>> loss = losses.ConSERTLoss(model)
        >>> SentenceTransformerTrainer(model=model, train_dataset=train, loss=loss).train()
    """

    citation = """
@inproceedings{yan-etal-2021-consert,
    title = "{C}on{SERT}: A Contrastive Framework for Self-Supervised Sentence Representation Transfer",
    author = "Yan, Yuanmeng and Li, Rumei and Wang, Sirui and Zhang, Fuzheng and Wu, Wei and Xu, Weiran",
    booktitle = "Proceedings of the 59th Annual Meeting of the Association for Computational Linguistics",
    year = "2021",
    url = "https://aclanthology.org/2021.acl-long.393",
}
"""
    waits_for_other_ranks = False
    columns = ("anchor", "positive")
    optional_columns = 1

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        first_view: Sequence[str] = ("feature_cutoff",),
        second_view: Sequence[str] = ("token_shuffling",),
        feature_cutoff_rate: float = 0.2,
        token_cutoff_rate: float = 0.15,
        temperature: float = 0.1,
        projection_head: bool = False,
    ) -> None:
        super().__init__(
            model,
            first_view=tuple(first_view),
            second_view=tuple(second_view),
            feature_cutoff_rate=feature_cutoff_rate,
            token_cutoff_rate=token_cutoff_rate,
            temperature=temperature,
            projection_head=projection_head,
        )
        for name, view in (("first_view", first_view), ("second_view", second_view)):
            if isinstance(view, str) or not set(view) <= set(VIEW_PARTS):
                raise ValueError(
                    f"{name} must be a sequence of {', '.join(map(repr, VIEW_PARTS))}, got {view!r}."
                )
        functional.check_share("feature_cutoff_rate", feature_cutoff_rate)
        functional.check_share("token_cutoff_rate", token_cutoff_rate)
        self.tokens = TokenRoles(model.tokenizer)
        self.works_in_matryoshka = not projection_head
        self.head = ProjectionHead(sentence_width(model)) if projection_head else nn.Identity()
        self.to(model.device)

    def compute(
        self, encode: Encoder, columns: Sequence[dict[str, Tensor]], labels: Tensor | None = None
    ) -> Terms:
        """Return the term ``nt_xent``."""
        anchor, positive = columns[0], columns[-1]
        if positive is anchor and not (self.first_view or self.second_view):
            raise ValueError(
                "The two views of a sentence are equal, because first_view and second_view are empty. Add "
                "an augmentation to one of them, or train on pairs."
            )
        has_dropout = ["dropout" in parts for parts in (self.first_view, self.second_view)]
        if any(has_dropout):
            require_dropout(self.model, "ConSERTLoss with a dropout view")
        rates = {"feature_cutoff_rate": self.feature_cutoff_rate, "token_cutoff_rate": self.token_cutoff_rate}
        views = [
            View(self.first_view, self.tokens.content(anchor), **rates),
            View(self.second_view, self.tokens.content(positive), **rates),
        ]
        first, second = (  # (B, D) each
            self.head(one.vectors) for one in encode([anchor, positive], views=views, dropout=has_dropout)
        )
        return Terms(nt_xent=functional.nt_xent(first, second, temperature=self.temperature))
