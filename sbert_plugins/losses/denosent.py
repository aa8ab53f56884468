"""DenoSent: a sentence vector that helps a decoder to restore the sentence from heavy noise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from sbert_plugins import functional
from sbert_plugins.contract import LossModule, Terms, begin_forward, begin_init, follow_mode, negatives_of, settings_of
from sbert_plugins.data import TokenFrequencies
from sbert_plugins.encoder import (
    Encoder,
    GradientTap,
    TokenRoles,
    added_around,
    bound_gradients,
    input_embeddings,
    require_dropout,
    require_one_encoder,
    sentence_width,
    transformer_of,
    unwrap,
)
from sbert_plugins.losses.citations import CITATIONS
from sbert_plugins.losses.decoding import check_layers, in_own_dtype, linear_projector, weights_of_tokens, word_scorer
from sbert_plugins.modules import BagOfWordsDecoder, DenoisingDecoder


class DenoSentLoss(LossModule):
    r"""DenoSent (Wang et al., AAAI 2024, https://arxiv.org/abs/2401.13621): restoring a sentence, and contrast.

    1. The two columns (with one column, two dropout views of it) pass the encoder in one forward; they are a positive pair,
       the other sentences of the batch are negatives.
    2. From one column's vector a decoder restores the other one. Without layers, the default, it tells the sentence's words,
       rare ones above all, whatever their places. With layers, the paper's, it sees the sentence's embeddings, of whose
       numbers dropout has left 17.5 %, and predicts the token at each place.
    3. The second term's gradient at the vectors is at most ``balance`` times the first's: the contrast leads, and as it solves
       itself the other term fades with it.

    .. math::
        L = w_c L_{contrastive} + w_d L_{denoising},\quad
        L_{contrastive} = -\log\frac{e^{\cos(z_i, z_i^+)/\tau}}{\sum_j e^{\cos(z_i, z_j^+)/\tau}},\quad
        L_{denoising} = -\frac{1}{\sum_j w_j}\sum_j w_j \log P(t_j \mid \tilde{t_1}, \ldots, \tilde{t_n}, z)

    (eq. 3 to 6: :func:`functional.info_nce`, :func:`functional.token_cross_entropy`, without layers
    :func:`functional.bag_of_words_loss`; eq. 4 is a sum, here the mean over the batch's tokens). The paper's encoder reads
    ``[X] means [MASK].``: :func:`modules.apply_mask_template` before the loss.

    Inputs:
        +------------------------------------------------------------------------------------------+--------+
        | Columns                                                                                  | Labels |
        +==========================================================================================+========+
        | anchor (one sentence)                                                                    | unused |
        +------------------------------------------------------------------------------------------+--------+
        | anchor, paraphrase (the discrete noise: :func:`data.back_translate`, or any rewriting)   | unused |
        +------------------------------------------------------------------------------------------+--------+

    Returns from ``forward``: a dict with the scalars ``contrastive`` and ``denoising``, weights applied, to be summed, a term
    of weight 0 left out. ``diagnostics`` then holds ``token_accuracy`` (share of the sentence's tokens that the
    decoder ranks first; without layers, among as many best as there are), ``information`` (nats a token that the second term
    rises with another sentence's vector: near 0 the decoder does not read it; with layers on one batch in fifty) and
    ``balance_factor``, ``balance_share``, ``balance_cosine`` (of the two gradients at both vectors: the second's is 0 at one).

    Args:
        model: Any encoder that sentence-transformers loads; with dropout where there is one column.
        temperature: :math:`\tau`, above 0. The paper's is 0.03.
        decoder_layers: Layers of the decoder; 0 for :class:`modules.BagOfWordsDecoder`. The paper's are 16.
        token_weights: Threshold :math:`t` of :func:`functional.token_weights`, a share of running text: tokens rarer than
            this count fully, others less. None, the paper's, weighs all alike.
        frequencies: :class:`data.TokenFrequencies` of the encoder's vocabulary, or where they are saved; by default the counts
            of BookCorpus that ship with the package, for that of ``bert-base-uncased``.
        balance: Most that the denoising gradient may be, as a multiple of the contrastive one; None, the paper's, is no bound.
        noise_dropout: Share of the embeddings' numbers that are set to zero, the continuous noise; for a decoder with layers.
        decoder_heads: Heads of its self-attention. More than the paper's 1 cost it accuracy (Figure 4a).
        decoder_feedforward: Its inner width; the official code's.
        decoder_dropout: Its dropout; the official code's.
        contrastive_weight: :math:`w_c`. The authors' released model has 5 and 7 for the two, and temperature 0.05.
        denoising_weight: :math:`w_d`. 0 leaves decoder and head out, too.
        reconstruct: Column that is restored, from the other's vector: ``"anchor"``; in the official code ``"paraphrase"``.
        projector: Whether a Linear, in training only, sits on the vector for both terms, as in the official code.
        mlm_head: What scores words: ``"embeddings"``, their own; ``"pretrained"``, the encoder's masked-language-model head;
            ``"fresh"``, one of new weights, behind layers; or a checkpoint to read it from. The official code's is the second.
        gather_across_devices: Whether the sentences of all ranks are negatives, or those of the own rank only.

    Raises:
        ValueError: On a value out of range, an encoder of another vocabulary without ``frequencies``, layers where no head is
            known, more columns than two, one column without dropout, and a first training batch of one sentence.

    Relations:
        - ``**recipes.DENOSENT.paper_keywords`` are the paper's: 16 layers, temperature 0.03, nothing weighed or bounded.
        - ``denoising_weight=0`` is ``MultipleNegativesRankingLoss`` with ``scale=1 / temperature``: on one column SimCSE.
        - ``contrastive_weight=0`` is :class:`BagOfWordsLoss`.

    Deviations:
        From the paper: with layers the decoder sees what it restores, as in the code, and not the paraphrase (eq. 3 needs one
        length); by default: decoder, temperature, weights, bound. After 60 updates a small encoder's STS-B dev is 81.70, with
        the paper's keywords 76.36 (five seeds). The paper's noise leaves 67 of 384 numbers, enough to name the word: in 120
        updates two layers restored 94 % of a frozen encoder's tokens, and another sentence's vector cost them .18 nats. From
        :class:`losses.official.DenoSentLoss`: the anchor is restored, template and special tokens are neither read nor scored.
        Eq. 5 is printed without the positive in the denominator; here it is there.

    Example:
        >>> from datasets import Dataset
        >>> from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
        >>> from sbert_plugins import losses
        >>> model = SentenceTransformer("bert-base-uncased")
        >>> train = Dataset.from_dict({"anchor": ["It is raining.", "He plays the organ.", "Prices fell again."]})
        >>> loss = losses.DenoSentLoss(model)
        >>> SentenceTransformerTrainer(model=model, train_dataset=train, loss=loss).train()
    """

    citation = CITATIONS["denosent"]
    has_learned = False  # whether a batch had negatives
    model: SentenceTransformer
    weights: Tensor | None

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        temperature: float = 0.1,
        decoder_layers: int = 0,
        token_weights: float | None = 1e-6,
        frequencies: TokenFrequencies | str | None = None,
        balance: float | None = 0.3,
        noise_dropout: float = 0.825,
        decoder_heads: int = 1,
        decoder_feedforward: int = 2048,
        decoder_dropout: float = 0.1,
        contrastive_weight: float = 1.0,
        denoising_weight: float = 1.0,
        reconstruct: str = "anchor",
        projector: bool = False,
        mlm_head: str = "embeddings",
        gather_across_devices: bool = False,
    ) -> None:
        super().__init__()
        begin_init(self, locals())
        functional.check_temperature(temperature)
        check_layers(self, DenoSentLoss, paper=16)
        _check_values(contrastive_weight, denoising_weight, balance, reconstruct)
        self.model = model
        self.temperature = temperature
        self.contrastive_weight = contrastive_weight
        self.denoising_weight = denoising_weight
        self.restored = reconstruct
        self.gather_across_devices = gather_across_devices
        size = sentence_width(model)
        self.balance = balance
        self.projector = linear_projector(size) if projector else nn.Identity()
        if denoising_weight:
            require_one_encoder(model, "DenoSentLoss with denoising_weight above 0")
            self.tokens = TokenRoles(model.tokenizer)
            self.overhead = sum(map(len, added_around(model.tokenizer)))
            self.head = word_scorer(model, mlm_head, reads_vectors=not decoder_layers)
            self.register_buffer("weights", weights_of_tokens(self, token_weights), persistent=False)
            sizes = {"num_layers": decoder_layers, "num_heads": decoder_heads, "feedforward_dimension": decoder_feedforward}
            layered: dict[str, Any] = {**sizes, "dropout": decoder_dropout, "noise_dropout": noise_dropout}
            self.decoder = self._layered_decoder(**layered) if decoder_layers else BagOfWordsDecoder(self.head, size)
        self.diagnostics: dict[str, Tensor] = {}
        self.state_is_kept = not (projector or denoising_weight)
        self.to(model.device)  # for loops that do not move the loss themselves

    def _layered_decoder(self, build: type[DenoisingDecoder] = DenoisingDecoder, **keywords: Any) -> DenoisingDecoder:
        word = (~self.tokens.special).nonzero()[0].to(self.model.device)
        first, second = input_embeddings(self.model, word.repeat(1, 2))[0]
        return build(
            transformer_of(self.model).config.hidden_size,
            embedding_dimension=len(first),
            memory_dimension=sentence_width(self.model),
            learned_positions=torch.equal(first, second),  # one word at two places
            **keywords,
        )

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Terms:
        """Compute the weighted terms of one batch of one or two columns."""
        return self.compute_loss_from_passes(Encoder(self.model), list(sentence_features), labels)

    def compute_loss_from_passes(
        self, encode: Encoder, columns: Sequence[dict[str, Tensor]], labels: Tensor | None = None
    ) -> Terms:
        """Compute them from passes that ``encode`` makes."""
        if len(columns) not in (1, 2):
            raise ValueError(
                f"DenoSentLoss reads one or two text columns (anchor, paraphrase), got {len(columns)}: "
                "drop the others with dataset.select_columns(['anchor', 'paraphrase'])."
            )
        anchor, other = columns[0], columns[-1]
        if other is anchor and self.contrastive_weight:
            require_dropout(unwrap(self.model), "DenoSentLoss with one column")
        begin_forward(self)
        follow_mode(self)
        if self.denoising_weight:
            self.head.follow(self.model)
        restored, remembered = (anchor, other) if self.restored == "anchor" else (other, anchor)
        terms = Terms()
        self.diagnostics = {}
        main, further = GradientTap(), GradientTap()
        is_balanced = bool(self.balance is not None and self.contrastive_weight and self.denoising_weight)
        if self.contrastive_weight:
            views = [one.vectors for one in encode([anchor, other])]
            vectors = views[1] if self.restored == "anchor" else views[0]
            main.watch(*views)
            anchors, positives = (in_own_dtype(self.projector, view) for view in views)
            negatives = negatives_of(self, anchors, positives)
            contrast = functional.info_nce(anchors, positives, negatives, temperature=self.temperature)
            terms["contrastive"] = self.contrastive_weight * contrast
        else:
            vectors = encode([remembered])[0].vectors
        if self.denoising_weight:
            vectors = further(vectors) if is_balanced else vectors
            terms["denoising"] = self.denoising_weight * self._denoise(restored, in_own_dtype(self.projector, vectors))
        if is_balanced:
            taps = (terms["contrastive"], main), {"denoising": (terms["denoising"], further)}
            self.diagnostics |= bound_gradients(*taps, balance=self.balance)
        return terms

    def _scored(self, features: dict[str, Tensor]) -> tuple[Tensor, int]:
        """Return (B, L) bool, the sentence's own tokens, and how many a row may have."""
        return self.tokens.content(features), max(features["input_ids"].shape[1] - self.overhead, 1)

    def _denoise(self, features: dict[str, Tensor], memory: Tensor) -> Tensor:
        """Eq. 4 at the tokens that are read and scored."""
        ids, (content, length), noisy = features["input_ids"], self._scored(features), dict[str, Any]()
        if isinstance(self.decoder, DenoisingDecoder):
            noisy = {"embedded": input_embeddings(self.model, ids), "length": length}
        loss, self.diagnostics = self.decoder.loss(memory, self.head, ids, content, self.weights, **noisy)
        return loss

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings that the model card shows."""
        return settings_of(self)


def _check_values(contrastive_weight: float, denoising_weight: float, balance: float | None, reconstruct: str) -> None:
    if not min(contrastive_weight, denoising_weight) >= 0 or not 0 < contrastive_weight + denoising_weight < math.inf:
        raise ValueError(
            "contrastive_weight and denoising_weight must be finite numbers of at least 0, and one above, "
            f"got {contrastive_weight} and {denoising_weight}. 0 leaves a term out."
        )
    functional.check_balance(balance)
    if reconstruct not in ("anchor", "paraphrase"):
        raise ValueError(f"reconstruct must be 'anchor' or 'paraphrase', got {reconstruct!r}.")
