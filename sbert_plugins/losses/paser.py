"""PaSeR: a sentence vector from which a decoder can write the phrase that a masked copy hides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from sbert_plugins import functional
from sbert_plugins.contract import Terms, begin_forward, follow_mode, keep_settings, settings_of
from sbert_plugins.data import TokenFrequencies
from sbert_plugins.encoder import Encoder, Pass, TokenRoles, dropout_off, mlm_mask, require_one_encoder, sentence_width, unwrap
from sbert_plugins.losses.citations import CITATIONS
from sbert_plugins.losses.decoding import decoding_loss, in_own_dtype, weights_of_tokens
from sbert_plugins.modules import BagOfWordsDecoder, MLMHead, PhraseDecoder
from sbert_plugins.modules.phrase_decoder import phrase_targets

# What the bag of words reads of [E_s, E_s~, difference, product] at the start: the sentence. The pretrained head reads words
# in vectors like it, not in a difference of two, which it then learns.
_START = (1.0, 0.0, 0.0, 0.0)


class PaSeRLoss(nn.Module):
    r"""PaSeR (Wu and Zhao, EMNLP 2022, https://aclanthology.org/2022.emnlp-main.221): generative, without negatives.

    1. Sentence and masked copy pass the encoder in one forward. Their two vectors, their difference and their product are
       the memory of a small decoder, which tells the hidden phrase: its words, rare ones above all (no layers, the default),
       or the phrase word by word (with layers, the paper's).
    2. With ``mlm_weight`` a third copy with 15 % of its tokens masked keeps the token embeddings a language model's.

    .. math::
        L = L_{gen} + \lambda L_{MLM},\quad L_{gen} = -\frac{1}{\sum_i w_i}\sum_i w_i \log P(t_i \mid t_{<i}, S),\quad
        S = [E_s, E_{\tilde s}, m\,(E_s - E_{\tilde s}), n\,E_s * E_{\tilde s}]

    (eq. 2, 3 and 4: :func:`functional.decoding_signal`, :func:`functional.token_cross_entropy`, without layers
    :func:`functional.bag_of_words_loss`; eq. 3 is a sum, here the mean over the tokens of the batch's phrases).

    Inputs (:func:`data.paser_columns` makes them from sentences):
        +------------------------------------------------------------------------------------+--------+
        | Columns                                                                            | Labels |
        +====================================================================================+========+
        | anchor (sentence), masked (the sentence, a phrase hidden), phrase (what is hidden) | unused |
        +------------------------------------------------------------------------------------+--------+

    Returns from ``forward``: a dict with the scalars ``generative`` and, unless its weight is 0, ``mlm``, weights applied, to
    be summed. A batch with nothing to score gives 0.0. ``diagnostics`` then holds ``scored_share`` (share of rows whose
    phrase is scored), ``token_accuracy`` (share of phrase tokens that the decoder ranks first; without layers, among as many
    best as the phrase has) and ``information`` (nats a token that the loss rises with another row's memory: near 0 the decoder
    does not read it; with layers on one batch in fifty).

    Args:
        model: Any encoder that sentence-transformers loads, with a mask token.
        decoder_layers: Layers of the decoder; 0 for :class:`modules.BagOfWordsDecoder`. The paper's are 6.
        token_weights: Threshold :math:`t` of :func:`functional.token_weights`, a share of running text: tokens rarer than
            this count fully, others less. None, the paper's, weighs all alike.
        frequencies: :class:`data.TokenFrequencies` of the encoder's vocabulary, or where they are saved; by default the counts
            of BookCorpus that ship with the package, for that of ``bert-base-uncased``.
        difference_scale: :math:`m`. With ``normalize_memory`` only its being above 0 matters.
        product_scale: :math:`n`, likewise.
        decoder_heads: Attention heads, a divisor of the encoder's width. The official code's 16.
        decoder_feedforward: Inner width, by default the encoder's: the official code's 768 for a width of 768.
        decoder_dropout: Dropout of the decoder with layers.
        positions: Its positions, ``"learned"`` or ``"sinusoidal"``.
        mlm_weight: :math:`\lambda`. 0 leaves the masked language model and its pass out; the paper's is 1.
        mlm_probability: Share of the sentence's tokens to predict.
        mlm_head: Checkpoint to read the pretrained head from, by default the encoder's own; ``"fresh"`` for random weights.
        signed: Difference and product as they are, as in the official code; False takes their absolute values, eq. 2 as
            printed. Under [CLS] pooling a decoder reads 2.09 nats with the sign and .01 without, normalised 3.99 and 1.90.
        normalize_memory: Whether each memory vector passes a LayerNorm before the decoder with layers; the paper has none.
        project_masked: Pass the masked copy's vector through a Linear first, as the official code does.
        drop_truncated: Leave rows out whose sentence fills the model's ``max_seq_length``, as the official code does.

    Raises:
        ValueError: On a value out of range, an encoder of another vocabulary without ``frequencies``, a model without a mask
            token or without a head for its family, a number of columns other than three, a first batch whose ``masked`` holds
            no mask token, and a prompt before ``phrase``.

    Relations:
        - ``**recipes.PASER.paper_keywords`` are the paper's keywords: eq. 2 as printed, six layers, the masked language model.
        - As a second objective it is the generative term of supervised PaSeR (eq. 5): :class:`WeightedSumLoss` adds it to
          ``MultipleNegativesRankingLoss`` (with ``balance`` the contrast leads), ``recipes.PASER_SUPERVISED`` does both.
        - ``DenoisingAutoEncoderLoss`` (TSDAE) writes the whole sentence from one vector; this writes the phrase from two.

    Deviations:
        From the paper, by default: the decoder, its weights and sign, and no masked language model. Without layers the map
        starts by reading :math:`E_s` alone: the pretrained head knows words in such vectors, not in differences, which it
        learns to read. From the official code: no projection (a keyword); a decoder of its own, its words looked up in the
        encoder's table, with positions and LayerNorm; the end of the phrase is scored with its tokens, as there. A row with
        an empty phrase, or whose mask was truncated away, is not scored: there is nothing to read it from.

    Example:
        >>> from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
        >>> from sbert_plugins import data, losses
        >>> model = SentenceTransformer("bert-base-uncased")
        >>> sentences = ["The old harbour master counts the boats."]
        >>> train = data.paser_columns(sentences, mask_token=model.tokenizer.mask_token, synonyms=None)
        >>> loss = losses.PaSeRLoss(model)
        >>> SentenceTransformerTrainer(model=model, train_dataset=train, loss=loss).train()
        >>> loss.reconstruct(["The old man sleeps."], ["The [MASK] [MASK] sleeps."])
    """

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
        positions: str = "learned",
        mlm_weight: float = 0.0,
        mlm_probability: float = 0.15,
        mlm_head: str | None = None,
        signed: bool = True,
        normalize_memory: bool = True,
        project_masked: bool = False,
        drop_truncated: bool = False,
    ) -> None:
        super().__init__()
        keep_settings(self, locals())
        if decoder_layers < 0:
            raise ValueError(f"decoder_layers must be at least 0, got {decoder_layers}. 0 tells words; the paper uses 6.")
        functional.check_weight("mlm_weight", mlm_weight, "the masked language model")
        functional.check_finite("difference_scale", difference_scale)
        functional.check_finite("product_scale", product_scale)
        if not 0 < mlm_probability < 1:
            raise ValueError(f"mlm_probability must be in (0, 1), got {mlm_probability}. The paper's 0.15 is BERT's.")
        require_one_encoder(model, "PaSeRLoss")
        self.model = model
        self.tokens = TokenRoles(model.tokenizer)
        self.tokenizer = model.tokenizer
        self.start_id = _token_id(self.tokenizer, "cls", "bos")
        self.end_id = _token_id(self.tokenizer, "sep", "eos")
        self.mask_id = _token_id(self.tokenizer, "mask")
        self.difference_scale = difference_scale
        self.product_scale = product_scale
        self.mlm_weight = mlm_weight
        self.mlm_probability = mlm_probability
        self.signed = signed
        self.max_seq_length = model.max_seq_length if drop_truncated else None
        self.head = MLMHead(model, checkpoint=mlm_head, is_needed=bool(decoder_layers or mlm_weight))
        width, size = model.transformers_model.config.hidden_size, sentence_width(model)
        if decoder_layers:
            self.decoder = PhraseDecoder(
                width,
                embedding_dimension=self._word_embeddings.weight.shape[1],
                memory_dimension=size,
                num_layers=decoder_layers,
                num_heads=decoder_heads,
                feedforward_dimension=decoder_feedforward,
                dropout=decoder_dropout,
                positions=positions,
                normalize_memory=normalize_memory,
            )
        else:
            self.decoder = BagOfWordsDecoder(self.head, size, start=_START)
        self.register_buffer("weights", weights_of_tokens(model, frequencies, token_weights), persistent=False)
        self.projection = nn.Linear(size, size) if project_masked else nn.Identity()
        ordinary = (~self.tokens.special).nonzero().squeeze(1)
        self.register_buffer("ordinary_ids", ordinary, persistent=False)
        self.diagnostics: dict[str, Tensor] = {}
        self.state_is_kept = False
        self._has_seen_mask = False
        self.to(model.device)  # for loops that do not move the loss themselves

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
                "data.paser_columns makes them from sentences."
            )
        anchor, masked, phrase = columns
        self._check(masked, phrase)
        begin_forward(self)
        follow_mode(self)
        self.head.follow(self.model)
        if not self.mlm_weight:
            sentences, copies = encode([anchor, masked])
            return Terms(generative=self._generative(sentences, copies, phrase, self._usable(anchor, masked)))
        corrupted, chosen = mlm_mask(
            anchor["input_ids"],
            self.tokens.content(anchor),
            mask_token_id=self.mask_id,
            ordinary_ids=self.ordinary_ids,
            probability=self.mlm_probability,
        )
        sentences, copies, third = encode([anchor, masked, {**anchor, "input_ids": corrupted}], tokens=True)
        terms = Terms(generative=self._generative(sentences, copies, phrase, self._usable(anchor, masked)))
        logits = self.head(third.tokens[:, : chosen.shape[1]][chosen])
        terms["mlm"] = self.mlm_weight * functional.token_cross_entropy(logits, anchor["input_ids"][chosen])
        return terms

    def _generative(self, sentences: Pass, copies: Pass, phrase: dict[str, Tensor], usable: Tensor) -> Tensor:
        """Eq. 3 at the tokens of the usable rows' phrases and at their ends."""
        memory, content = self._signal(sentences.vectors, copies.vectors), self.tokens.content(phrase)
        usable = usable & content.any(dim=1)
        if isinstance(self.decoder, BagOfWordsDecoder):
            hidden = content & usable.unsqueeze(1)
            loss, found = self.decoder.loss(memory, self.head, phrase["input_ids"], hidden, self.weights)
        else:
            inputs, targets, scored = phrase_targets(phrase["input_ids"], content, start_id=self.start_id, end_id=self.end_id)
            scored = scored & usable.unsqueeze(1)
            loss, found = decoding_loss(
                lambda memory: self.decoder(self._word_embeddings(inputs), memory)[scored],
                self.head,
                memory,
                targets[scored],
                self.weights,
                training=self.model.training,
            )
        self.diagnostics = {"scored_share": usable.float().mean(), **found}
        return loss

    def _signal(self, sentences: Tensor, copies: Tensor) -> Tensor:
        return functional.decoding_signal(
            sentences,
            in_own_dtype(self.projection, copies),
            difference_scale=self.difference_scale,
            product_scale=self.product_scale,
            signed=self.signed,
        )

    def _usable(self, anchor: dict[str, Tensor], masked: dict[str, Tensor]) -> Tensor:
        """Return (B,) bool: the rows whose copy still hides something after truncation."""
        usable = (masked["input_ids"] == self.mask_id).any(dim=1)
        if self.max_seq_length is not None:
            for features in (anchor, masked):
                usable &= features["attention_mask"].sum(dim=1) < self.max_seq_length
        return usable

    @property
    def _word_embeddings(self) -> nn.Module:
        # Looked up at each use: the trainer wraps self.model, and as an attribute the table would be registered twice.
        return unwrap(self.model).transformers_model.get_input_embeddings()

    def _check(self, masked: dict[str, Tensor], phrase: dict[str, Tensor]) -> None:
        if phrase.get("prompt_length") is not None:
            raise ValueError(
                "phrase must be the hidden words alone, got a prompt before it: name the columns that take the prompt, "
                "SentenceTransformerTrainingArguments(prompts={'anchor': ..., 'masked': ...})."
            )
        if not self._has_seen_mask:  # the first batch only: the answer is a transfer from the device
            if not (masked["input_ids"] == self.mask_id).any():
                raise ValueError(
                    f"the second column must be the sentence with a phrase hidden by {self.tokenizer.mask_token!r}, got a "
                    "first batch without one: data.paser_columns(sentences, mask_token=model.tokenizer.mask_token) makes it."
                )
            self._has_seen_mask = True

    @torch.no_grad()
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
        if len(sentences) != len(masked):
            raise ValueError(f"sentences and masked must be of one length, got {len(sentences)} and {len(masked)}.")
        model, phrases = unwrap(self.model), []
        whole = {"convert_to_tensor": True, "show_progress_bar": False, "truncate_dim": sentence_width(model)}
        with dropout_off(self):
            for start in range(0, len(sentences), batch_size):
                columns = [list(texts[start : start + batch_size]) for texts in (sentences, masked)]
                vectors = [model.encode(texts, **whole) for texts in columns]
                signal = self._signal(*vectors)
                if isinstance(self.decoder, BagOfWordsDecoder):
                    counts = [min(text.count(self.tokenizer.mask_token), max_tokens) for text in columns[1]]
                    ids = self.decoder.likeliest(signal, self.head, self.ordinary_ids, counts)
                else:
                    ends = {"start_id": self.start_id, "end_id": self.end_id, "max_tokens": max_tokens}
                    ids = self.decoder.write(signal, self.head, self._word_embeddings, **ends)
                phrases += self.tokenizer.batch_decode(ids, skip_special_tokens=True)
        return [phrase.strip() for phrase in phrases]

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings that the model card shows."""
        return settings_of(self)

    @property
    def citation(self) -> str:
        """BibTeX entry for the model card."""
        return CITATIONS["paser"]


def _token_id(tokenizer: Any, *names: str) -> int:
    for name in names:
        if getattr(tokenizer, f"{name}_token_id", None) is not None:
            return getattr(tokenizer, f"{name}_token_id")
    raise ValueError(
        f"PaSeRLoss needs a tokenizer with {' or '.join(f'{name}_token' for name in names)}, which this model's has not: "
        "use an encoder pretrained with masks."
    )
