"""PaSeR: a sentence vector from which a decoder can write the phrase that a masked copy hides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from sentence_transformers import SentenceTransformer
from torch import Tensor

from sbert_plugins import functional
from sbert_plugins.contract import LossModule, Terms, begin_forward, begin_init, follow_mode, has_learned, settings_of
from sbert_plugins.data import TokenFrequencies
from sbert_plugins.encoder import Encoder, Pass, TokenRoles, mlm_mask, require_one_encoder, sentence_width, transformer_of
from sbert_plugins.losses.citations import CITATIONS
from sbert_plugins.losses.decoding import check_layers, weights_of_tokens, word_scorer
from sbert_plugins.losses.reconstruction import reconstruct
from sbert_plugins.modules import BagOfWordsDecoder, MLMHead, PhraseDecoder

# What the bag of words reads of [E_s, E_s~, difference, product] at the start: the pretrained head knows words in the first.
_START = (1.0, 0.0, 0.0, 0.0)


class PaSeRLoss(LossModule):
    r"""PaSeR (Wu and Zhao, EMNLP 2022, https://aclanthology.org/2022.emnlp-main.221): generative, without negatives.

    1. Sentence and masked copy pass the encoder in one forward. Their two vectors, their difference and their product are
       the memory of a small decoder, which tells the hidden phrase: its words, rare ones above all (no layers, the default),
       or the phrase word by word (with layers, the paper's).
    2. With ``mlm_weight`` a third copy with 15 % of its tokens masked keeps the token embeddings a language model's.

    .. math::
        L = L_{gen} + \lambda L_{MLM},\quad L_{gen} = -\frac{1}{\sum_i w_i}\sum_i w_i \log P(t_i \mid t_{<i}, S),\quad
        S = [E_s, E_{\tilde s}, m\,(E_s - E_{\tilde s}), n\,E_s * E_{\tilde s}]

    (eq. 2, 3 and 4: :func:`functional.decoding_signal`, :func:`functional.token_cross_entropy`, without layers
    :func:`functional.bag_of_words_loss`; eq. 3 is a sum, here the mean over the phrases' tokens, with layers their ends' too).

    Inputs (:func:`data.paser_columns` makes them from sentences):
        +------------------------------------------------------------------------------------+--------+
        | Columns                                                                            | Labels |
        +====================================================================================+========+
        | anchor (sentence), masked (the sentence, a phrase hidden), phrase (what is hidden) | unused |
        +------------------------------------------------------------------------------------+--------+

    Returns from ``forward``: a dict with the scalars ``generative`` and, unless its weight is 0, ``mlm``, weights applied, to
    be summed. A batch with nothing to score gives 0.0. ``diagnostics`` then holds ``scored_share`` (share of rows whose
    phrase is scored), and the decoder's ``token_accuracy`` and ``information`` (as in :class:`DenoSentLoss`).

    Args:
        model: Any encoder that sentence-transformers loads, with a mask token.
        decoder_layers: Layers of the decoder; 0 for :class:`modules.BagOfWordsDecoder`. The paper's are 6.
        token_weights: As in :class:`DenoSentLoss`; None, the paper's, weighs all alike. A phrase's end has the lowest weight.
        frequencies: As in :class:`DenoSentLoss`.
        difference_scale: :math:`m`. With layers and ``normalize_memory`` only its being above 0 matters.
        product_scale: :math:`n`, likewise.
        decoder_heads: Attention heads, a divisor of the encoder's width. The official code's 16.
        decoder_feedforward: Inner width, by default the encoder's: the official code's 768 for a width of 768.
        decoder_dropout: Dropout of the decoder with layers.
        mlm_weight: :math:`\lambda`. 0 leaves the masked language model and its pass out; the paper's is 1.
        mlm_probability: Share of the sentence's tokens to predict.
        mlm_head: As in :class:`DenoSentLoss`, by default ``"pretrained"``, where there is one: embeddings gained nothing.
        signed: Difference and product as they are; False: their absolute values, eq. 2. Of frozen [CLS] vectors six layers
            read 1.24 nats a token with the sign after 120 updates and .12 without, normalised 1.82 and 1.08.
        normalize_memory: Whether each memory vector passes a LayerNorm before the decoder with layers; the paper has none.

    Raises:
        ValueError: On a value out of range, an encoder of another vocabulary without ``frequencies`` or without mask token,
            layers on a family without head, a first batch without a mask, a prompt before ``phrase``, not three columns.

    Relations:
        - ``**recipes.PASER.paper_keywords`` are the paper's keywords: eq. 2 as printed, six layers, the masked language model.
        - In :class:`WeightedSumLoss` beside a contrast it is supervised PaSeR (eq. 5): ``recipes.PASER_SUPERVISED``.

    Deviations:
        From the paper, by default: the decoder, its weights and sign, and no masked language model. After 60 updates
        of a small encoder STS-B dev is 79.94, with the paper's keywords 70.48 (five seeds). Without layers the map starts by
        reading :math:`E_s` alone. From :class:`losses.official.PaSeRLoss`, the authors': no projection; words looked up in
        the encoder's table; truncated sentences count, unless their mask was cut off.

    Example:
        >>> from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
        >>> from sbert_plugins import data, losses
        >>> model = SentenceTransformer("bert-base-uncased")
        >>> train = data.paser_columns(["The old man counts the boats."], mask_token="[MASK]", synonyms=None)
        >>> loss = losses.PaSeRLoss(model)
        >>> SentenceTransformerTrainer(model=model, train_dataset=train, loss=loss).train()
        >>> loss.reconstruct(["The old man sleeps."], ["The [MASK] [MASK] sleeps."])
    """

    citation = CITATIONS["paser"]
    fixed: ClassVar = {"project_masked": False}  # a keyword once, which checkpoints name
    idle_hints: ClassVar = {"generative": "no row had a phrase to read (scored_share): look at the columns"}
    model: SentenceTransformer
    weights: Tensor | None
    ordinary_ids: Tensor
    has_learned = False  # whether a batch had a mask

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        decoder_layers: int = 0,
        token_weights: float | None = 1e-6,
        frequencies: TokenFrequencies | str | None = None,
        difference_scale: float = 10.0,
        product_scale: float = 10.0,
        decoder_heads: int = 16,
        decoder_feedforward: int | None = None,
        decoder_dropout: float = 0.1,
        mlm_weight: float = 0.0,
        mlm_probability: float = 0.15,
        mlm_head: str = "pretrained",
        signed: bool = True,
        normalize_memory: bool = True,
    ) -> None:
        super().__init__()
        begin_init(self, locals())
        check_layers(self, PaSeRLoss, paper=6)
        functional.check_weight("mlm_weight", mlm_weight, "0 leaves the masked language model out.")
        functional.check_share("mlm_probability", mlm_probability, "The official code's 0.15 is BERT's.")
        functional.check_finite(difference_scale=difference_scale, product_scale=product_scale)
        require_one_encoder(model, "PaSeRLoss")
        self.model = model
        self.tokens = TokenRoles(model.tokenizer)
        self.ends: dict[str, int] = {}  # of what a decoder with layers writes
        self.mask_id, self.mask_token = self.tokens.id_of("mask", needed_by="PaSeRLoss"), model.tokenizer.mask_token
        self.tokens.require_masks_in_text("PaSeRLoss")
        self.difference_scale, self.product_scale = difference_scale, product_scale
        self.mlm_weight, self.mlm_probability = mlm_weight, mlm_probability
        self.signed = signed
        self.head = word_scorer(model, mlm_head, reads_vectors=not decoder_layers)
        if mlm_weight:
            self.language_model = self.head if isinstance(self.head, MLMHead) else MLMHead(model)
        size = sentence_width(model)
        sizes = {"num_layers": decoder_layers, "num_heads": decoder_heads, "feedforward_dimension": decoder_feedforward}
        layered: dict[str, Any] = {**sizes, "dropout": decoder_dropout, "normalize_memory": normalize_memory}
        layers = self._layered_decoder(**layered) if decoder_layers else None
        self.decoder = layers or BagOfWordsDecoder(self.head, size, start=_START)
        weights = weights_of_tokens(self, token_weights, end_id=self.ends.get("end_id"))
        self.register_buffer("weights", weights, persistent=False)
        self.register_buffer("ordinary_ids", (~self.tokens.special).nonzero().squeeze(1), persistent=False)
        self.diagnostics: dict[str, Tensor] = {}
        self.state_is_kept = False
        self.to(model.device)  # for loops that do not move the loss themselves

    def _layered_decoder(self, **keywords: Any) -> PhraseDecoder:
        table: Any = transformer_of(self.model).get_input_embeddings()
        start, end = (self.tokens.id_of(*names, needed_by="PaSeRLoss") for names in (("cls", "bos"), ("sep", "eos")))
        self.ends = {"start_id": start, "end_id": end}
        return PhraseDecoder(
            transformer_of(self.model).config.hidden_size,
            embedding_dimension=table.weight.shape[1],
            memory_dimension=sentence_width(self.model),
            **keywords,
        )

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Terms:
        """Compute the weighted terms of one batch of three columns."""
        return self.compute_loss_from_passes(Encoder(self.model), list(sentence_features), labels)

    def compute_loss_from_passes(
        self, encode: Encoder, columns: Sequence[dict[str, Tensor]], labels: Tensor | None = None
    ) -> Terms:
        """Compute them from passes that ``encode`` makes."""
        if len(columns) != 3:
            raise ValueError(
                f"PaSeRLoss reads three text columns (anchor, masked, phrase), got {len(columns)}: "
                "data.paser_columns makes them from sentences, dataset.select_columns leaves others out."
            )
        anchor, masked, phrase = columns
        self._check(masked, phrase)
        begin_forward(self)
        follow_mode(self)
        self.head.follow(self.model)
        batches = [anchor, masked]
        if self.mlm_weight:
            self.language_model.follow(self.model)
            ids, content, share, mask = anchor["input_ids"], self.tokens.content(anchor), self.mlm_probability, self.mask_id
            corrupted, chosen = mlm_mask(ids, content, mask_token_id=mask, ordinary_ids=self.ordinary_ids, probability=share)
            batches.append({**anchor, "input_ids": corrupted})
        sentences, copies, *third = encode(batches, tokens=bool(self.mlm_weight))
        terms = Terms(generative=self._generative(sentences, copies, phrase, self._usable(anchor, masked)))
        if self.mlm_weight:
            places = chosen.nonzero(as_tuple=True)
            logits = self.language_model(third[0].require_tokens()[places])
            terms["mlm"] = self.mlm_weight * functional.token_cross_entropy(logits, ids[places])
        return terms

    def _usable(self, anchor: dict[str, Tensor], masked: dict[str, Tensor]) -> Tensor:
        """Return (B,) bool: the copy still hides something after truncation."""
        return (masked["input_ids"] == self.mask_id).any(dim=1)

    def _generative(self, sentences: Pass, copies: Pass, phrase: dict[str, Tensor], usable: Tensor) -> Tensor:
        """Eq. 3 at the tokens of the usable rows' phrases and at their ends."""
        memory, content = self.memory(sentences.vectors, copies.vectors), self.tokens.content(phrase)
        usable = usable & content.any(dim=1) & (content.sum(dim=1) < self.decoder.max_positions)
        writes: dict[str, Any] = {"embed": self.decoder_inputs, **self.ends} if self.ends else {}
        hidden = content & usable.unsqueeze(1)
        loss, found = self.decoder.loss(memory, self.head, phrase["input_ids"], hidden, self.weights, **writes)
        self.diagnostics = {"scored_share": usable.float().mean(), **found}
        return loss

    def memory(self, sentences: Tensor, copies: Tensor) -> Tensor:
        """Return (B, 4, D), what the decoder reads (eq. 2), of two (B, D)."""
        scales = {"difference_scale": self.difference_scale, "product_scale": self.product_scale}
        return functional.decoding_signal(sentences, copies, **scales, signed=self.signed)

    @property
    def decoder_inputs(self) -> Any:
        """What gives a decoder with layers the words that it has written so far: the encoder's table."""
        # Looked up at each use: the trainer wraps self.model, and as an attribute the table would be registered twice.
        return transformer_of(self.model).get_input_embeddings()

    def _check(self, masked: dict[str, Tensor], phrase: dict[str, Tensor]) -> None:
        if phrase.get("prompt_length") is not None:
            raise ValueError(
                "phrase must be the hidden words alone, got a prompt before it: name the columns that take the prompt, "
                "SentenceTransformerTrainingArguments(prompts={'anchor': ..., 'masked': ...})."
            )
        # Until the first batch with a mask only: the answers are transfers from the device.
        has_mask = has_learned(self, lambda: bool((masked["input_ids"] == self.mask_id).any()))
        if not has_mask and self.tokens.content(phrase).any():
            raise ValueError(
                f"the second column must be the sentence with a phrase hidden by {self.mask_token!r}, got phrases, and none "
                "of them hidden: data.paser_columns(sentences, mask_token=model.tokenizer.mask_token) makes the columns."
            )

    def reconstruct(
        self, sentences: Sequence[str], masked: Sequence[str], *, max_tokens: int = 16, batch_size: int = 64
    ) -> list[str]:
        """Write the phrase that each masked copy hides, greedily: the paper's Table 7.

        Without decoder layers these are the likeliest words, as many as the copy has mask tokens, best first.

        Args:
            sentences: Whole sentences.
            masked: Their copies, with mask tokens in the place of the phrase.
            max_tokens: Tokens a phrase, at most.
            batch_size: Sentences at a time.
        """
        return reconstruct(self, sentences, masked, max_tokens=max_tokens, batch_size=batch_size)

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings that the model card shows."""
        return settings_of(self) | self.fixed
