"""DenoSent: restore a sentence from heavy noise with the help of its vector."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from sbert_plugins import functional
from sbert_plugins.encoder import (
    Encoder,
    TokenRoles,
    added_around,
    input_embeddings,
    require_dropout,
    rows_of_other_ranks,
    sentence_width,
    transformer_of,
)
from sbert_plugins.losses.base import Loss, Terms
from sbert_plugins.modules import DenoisingDecoder, MLMHead


class DenoSentLoss(Loss):
    r"""DenoSent (Wang et al., AAAI 2024, https://arxiv.org/abs/2401.13621).

    1. The two columns (with one column: two passes with different dropout) give a positive pair. The other
       sentences of the batch are negatives.
    2. A decoder restores the sentence. It sees the sentence's embeddings, of which dropout has set 82.5 % of
       the numbers to 0, and the vector of the other view. It predicts the token at each place.

    .. math::
        L = w_c L_{contrastive} + w_d L_{denoising},\quad
        L_{contrastive} = -\log\frac{e^{\cos(z_i, z_i^+)/\tau}}{\sum_j e^{\cos(z_i, z_j^+)/\tau}},\quad
        L_{denoising} = -\frac{1}{n}\sum_j \log P(t_j \mid \tilde{t_1}, \ldots, \tilde{t_n}, z)

    These are eq. 3 to 6: :func:`functional.info_nce` and :func:`functional.token_cross_entropy`. Eq. 4 is a
    sum, here it is the mean over the tokens of the batch. The paper's encoder reads ``[X] means [MASK].``:
    call :func:`modules.apply_mask_template` before you build the loss.

    A small language model scores 56.5 on average over the seven STS tasks. After 60 updates it reached 66.7,
    and 70.9 after 400. With ``recipes.recommended_loss`` it reached 73.2 and 74.0.

    Inputs:
        +------------------------------------------------------------------------------------+--------+
        | Columns                                                                            | Labels |
        +====================================================================================+========+
        | anchor (a sentence)                                                                | unused |
        +------------------------------------------------------------------------------------+--------+
        | anchor, paraphrase (the discrete noise, such as :func:`data.back_translate`)       | unused |
        +------------------------------------------------------------------------------------+--------+

    Returns from ``forward``: a dict with the weighted terms ``contrastive`` and ``denoising``; a term of
    weight 0 is left out. ``diagnostics`` holds ``token_accuracy`` (share of tokens that the decoder restores)
    and, on about one batch in fifty, ``information`` (increase of the denoising loss, in nats per token, if
    each vector is replaced by another sentence's; near 0 the decoder does not read the vector).

    Args:
        model: Any transformers encoder with a masked-language-model class; with dropout if there is one
            column. Its pretrained head predicts the tokens, or a new head, with a warning, if it has none.
        temperature: :math:`\tau`, above 0.
        noise_dropout: Share of the embeddings' numbers that are set to 0 (the continuous noise).
        decoder_layers: Layers of the decoder. The paper tried 12, 14 and 16.
        decoder_heads: Attention heads of the decoder.
        decoder_feedforward: Inner width of the decoder's layers. The paper is silent; this is the official
            code's.
        decoder_dropout: Dropout of the decoder. The paper is silent; this is the official code's.
        contrastive_weight: :math:`w_c`. 0 leaves out the term.
        denoising_weight: :math:`w_d`. 0 leaves out the term and the decoder.
        reconstruct: Column that is restored, with the vector of the other: ``"anchor"``; ``"paraphrase"`` in
            the official code.
        projector: Adds a Linear layer on the sentence vector in training, for both terms.
        gather_across_devices: Uses the sentences of all ranks as negatives.

    Raises:
        ValueError: If a value is out of range, the architecture has no masked-language-model class, or there
            is one column and no dropout.

    Relations:
        ``denoising_weight=0, projector=False`` is ``MultipleNegativesRankingLoss`` with ``scale=1 /
        temperature``; with one column it is SimCSE.

        The decoder takes long to learn. For short trainings, SimCSE with a bag-of-words loss is::

            simcse = MultipleNegativesRankingLoss(model, scale=10)  # temperature 0.1
            losses.WeightedSumLoss(
                model,
                {"simcse": (simcse, 1.0, [0, 0]), "words": (losses.BagOfWordsLoss(model), 1.0, [0])},
                balance=0.3,
            )

    Deviations:
        - The decoder sees the noisy embeddings of the sentence that it restores, as in the code. Eq. 3 feeds
          it the paraphrase, which has another length.
        - Eq. 5 is printed without the positive in the denominator; the code and this class have it.
        - The decoder starts as in the official code. With Xavier initialization the outputs of 16 layers
          would be nearly the same at all places.
        - Template and special tokens are neither read nor scored.
        - Cross-attention to the vector is two linear maps, to which it reduces for a memory of length 1.

    Example:
        >>> from datasets import Dataset
        >>> from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
        >>> from sbert_plugins import losses
        >>> model = SentenceTransformer("bert-base-uncased")
        >>> train = Dataset.from_dict({"anchor": ["It is raining.", "He plays the organ.", "Prices fell."]})
        >>> loss = losses.DenoSentLoss(model)
        >>> SentenceTransformerTrainer(model=model, train_dataset=train, loss=loss).train()
    """

    citation = """
@inproceedings{wang-etal-2024-denosent,
    title = "{DenoSent}: A Denoising Objective for Self-Supervised Sentence Representation Learning",
    author = "Wang, Xinghao and He, Junliang and Wang, Pengyu and Zhou, Yunhua and Sun, Tianxiang and
              Qiu, Xipeng",
    booktitle = "Proceedings of the AAAI Conference on Artificial Intelligence",
    year = "2024",
    url = "https://arxiv.org/abs/2401.13621",
}
"""
    columns = ("anchor", "paraphrase")
    optional_columns = 1
    decoder_class: ClassVar[type[DenoisingDecoder]] = DenoisingDecoder

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: float = 0.03,
        noise_dropout: float = 0.825,
        decoder_layers: int = 16,
        decoder_heads: int = 1,
        decoder_feedforward: int = 2048,
        decoder_dropout: float = 0.1,
        contrastive_weight: float = 1.0,
        denoising_weight: float = 1.0,
        reconstruct: str = "anchor",
        projector: bool = True,
        gather_across_devices: bool = False,
    ) -> None:
        super().__init__(
            model,
            temperature=temperature,
            noise_dropout=noise_dropout,
            decoder_layers=decoder_layers,
            decoder_heads=decoder_heads,
            decoder_feedforward=decoder_feedforward,
            decoder_dropout=decoder_dropout,
            contrastive_weight=contrastive_weight,
            denoising_weight=denoising_weight,
            reconstruct=reconstruct,
            gather_across_devices=gather_across_devices,
        )
        functional.check_weights(contrastive_weight=contrastive_weight, denoising_weight=denoising_weight)
        if reconstruct not in ("anchor", "paraphrase"):
            raise ValueError(f"reconstruct must be 'anchor' or 'paraphrase', got {reconstruct!r}.")
        self.waits_for_other_ranks = gather_across_devices
        self.works_in_matryoshka = not (projector or denoising_weight)
        width = sentence_width(model)
        self.projector = nn.Linear(width, width) if projector else nn.Identity()
        if isinstance(self.projector, nn.Linear):  # the official code's start
            nn.init.normal_(self.projector.weight, std=0.02)
            nn.init.zeros_(self.projector.bias)
        if denoising_weight:
            self.tokens = TokenRoles(model.tokenizer)
            self.added_tokens = sum(map(len, added_around(model.tokenizer)))
            self.head = MLMHead(model)
            # If a word has the same embedding at two places, the encoder adds no positions to it.
            word = (~self.tokens.special).nonzero()[0].to(model.device)
            first, second = input_embeddings(model, word.repeat(1, 2))[0]
            self.decoder = self.decoder_class(
                transformer_of(model).config.hidden_size,
                num_layers=decoder_layers,
                num_heads=decoder_heads,
                feedforward_dimension=decoder_feedforward,
                dropout=decoder_dropout,
                noise_dropout=noise_dropout,
                embedding_dimension=len(first),
                memory_dimension=width,
                learned_positions=torch.equal(first, second),
            )
        self.to(model.device)

    def compute(
        self, encode: Encoder, columns: Sequence[dict[str, Tensor]], labels: Tensor | None = None
    ) -> Terms:
        """Return the terms ``contrastive`` and ``denoising``."""
        anchor, other = columns[0], columns[-1]
        if other is anchor and self.contrastive_weight:
            require_dropout(self.model, "DenoSentLoss with one column")
        restored, remembered = (anchor, other) if self.reconstruct == "anchor" else (other, anchor)
        terms = Terms()
        if self.contrastive_weight:
            # (B, D) each
            first, second = (self._project(one.vectors) for one in encode([anchor, other]))
            memory = second if self.reconstruct == "anchor" else first
            negatives = rows_of_other_ranks(second) if self.gather_across_devices else None
            contrastive = functional.info_nce(first, second, negatives, temperature=self.temperature)
            terms["contrastive"] = self.contrastive_weight * contrastive
        else:
            memory = self._project(encode([remembered])[0].vectors)
        if self.denoising_weight:
            self.head.follow(self.model)
            ids = restored["input_ids"]
            content, length = self._scored_tokens(restored)
            embedded = input_embeddings(self.model, ids)  # (B, L, E)
            denoising, self.diagnostics = self.decoder.loss(
                memory, self.head, ids, content, embedded=embedded, length=length
            )
            terms["denoising"] = self.denoising_weight * denoising
        return terms

    def _project(self, vectors: Tensor) -> Tensor:
        if isinstance(self.projector, nn.Identity):
            return vectors
        return self.projector(vectors.to(self.projector.weight.dtype))

    def _scored_tokens(self, features: dict[str, Tensor]) -> tuple[Tensor, int]:
        """Return (B, L) bool, the tokens that are read and scored, and the most that a row may have."""
        length = features["input_ids"].shape[1] - self.added_tokens
        return self.tokens.content(features), max(length, 1)

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings."""
        return super().get_config_dict() | {"projector": not isinstance(self.projector, nn.Identity)}
