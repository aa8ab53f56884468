"""PaSeR: a decoder writes the phrase that a masked copy of the sentence hides."""

from collections.abc import Sequence
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from sbert_plugins import functional
from sbert_plugins.data import TokenFrequencies
from sbert_plugins.encoder import (
    Encoder,
    Pass,
    TokenRoles,
    dropout_off,
    mlm_mask,
    sentence_width,
    transformer_of,
    unwrap,
)
from sbert_plugins.losses.base import Loss, Terms
from sbert_plugins.losses.vocabulary import (
    build_word_scorer,
    describe_frequencies,
    load_frequencies,
    weigh_tokens,
)
from sbert_plugins.modules import BagOfWordsDecoder, MLMHead, PhraseDecoder

# Factors of [E_s, E_s~, difference, product] at the start of the decoder without layers: it reads E_s alone.
_START_OF_WORDS = (1.0, 0.0, 0.0, 0.0)


class PaSeRLoss(Loss):
    r"""PaSeR (Wu and Zhao, EMNLP 2022, https://aclanthology.org/2022.emnlp-main.221).

    1. A sentence, and a copy in which one phrase is masked, pass the encoder. Their vectors, the difference
       and the product are the memory of a small decoder. The decoder writes the hidden phrase, word by word.
    2. A masked language model on the sentence keeps the token embeddings useful.

    There are no negatives.

    The decoder starts from random weights and needs a higher learning rate than the encoder. The recipe
    passes ``learning_rate_mapping={r"^(?!model\.).*decoder\.": 1e-3}`` to the training arguments.

    .. math::
        L = L_{gen} + \lambda L_{MLM},\quad L_{gen} = -\frac{1}{n}\sum_i \log P(t_i \mid t_{<i}, S),\quad
        S = [E_s, E_{\tilde s}, m\,(E_s - E_{\tilde s}), n\,E_s * E_{\tilde s}]

    These are eq. 2 (signed), 3 and 4: :func:`functional.decoding_signal` and
    :func:`functional.token_cross_entropy`. Eq. 3 is a sum, here it is the mean over the tokens of the batch's
    phrases and their ends.

    A small language model scores 56.5 on average over the seven STS tasks. After 60 updates it reached 57.7,
    and 68.9 after 400. With ``recipes.recommended_loss`` it reached 73.2 and 74.0.

    Inputs (:func:`data.paser_columns` makes them from sentences):
        +---------------------------------------------------------------------------------+--------+
        | Columns                                                                         | Labels |
        +=================================================================================+========+
        | anchor (a sentence), masked (the sentence with a phrase masked), phrase         | unused |
        +---------------------------------------------------------------------------------+--------+

    Returns from ``forward``: a dict with the weighted terms ``generative`` and, unless its weight is 0,
    ``mlm``. ``diagnostics`` holds ``scored_share`` (share of rows with a phrase to score), ``token_accuracy``
    (share of tokens that the decoder predicts) and ``information`` (increase of the loss, in nats per token,
    if each memory is replaced by another sentence's; near 0 the decoder ignores it). A decoder with layers
    logs it on about one batch in fifty.

    Args:
        model: Any transformers encoder with a mask token.
        decoder_layers: Layers of the decoder. 0 is another objective, "predict the words of the phrase": one
            linear map and the word scorer predict them in any order, as in :class:`BagOfWordsLoss`.
        token_weights: :math:`t` of :func:`functional.token_weights`: tokens rarer than this have weight 1,
            others less. None, as in the paper, gives all tokens weight 1.
        frequencies: Token counts for ``token_weights``, as in :class:`BagOfWordsLoss`.
        difference_scale: :math:`m`. With layers and ``normalize_memory`` it has no effect.
        product_scale: :math:`n`. With layers and ``normalize_memory`` it has no effect.
        decoder_heads: Attention heads. The paper is silent; this is the official code's.
        decoder_feedforward: Inner width of the decoder's layers; None takes the encoder's width.
        decoder_dropout: Dropout of the decoder.
        mlm_weight: :math:`\lambda`. 0 leaves out the masked language model and its pass.
        mlm_probability: Share of the sentence's tokens to predict.
        mlm_head: Head that predicts tokens: ``"pretrained"``, the encoder's own (if it has none: a new one,
            or without layers the embeddings, with a warning); ``"fresh"``, new weights; or the path or Hub
            name of a checkpoint with a head. Without decoder layers also ``"embeddings"``.
        signed: Keeps the sign of difference and product, as the official code does. Eq. 2 has absolute
            values, from which the decoder learns nothing under [CLS] pooling.
        normalize_memory: Applies LayerNorm to each memory vector, if there are layers. Without it a few large
            dimensions of a [CLS] vector make the product much longer than the other memory vectors.

    Raises:
        ValueError: If a value is out of range, the model has no mask token or has a mask template, or the
            counts for ``token_weights`` are of another vocabulary.

    Relations:
        In a :class:`WeightedSumLoss` with ``MultipleNegativesRankingLoss`` it is supervised PaSeR (eq. 5).

    Deviations:
        ``signed`` and ``normalize_memory`` (reasons above). Word embeddings come from the encoder's table.
        Truncated sentences count, unless their mask was cut off. :class:`losses.official.PaSeRLoss` follows
        the authors' code.

    Example:
        >>> from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
        >>> from sbert_plugins import data, losses
        >>> model = SentenceTransformer("bert-base-uncased")
        >>> train = data.paser_columns(["The old man counts the boats."], mask_token="[MASK]", synonyms=None)
        >>> loss = losses.PaSeRLoss(model)
        >>> SentenceTransformerTrainer(model=model, train_dataset=train, loss=loss).train()
        >>> loss.reconstruct(["The old man sleeps."], ["The [MASK] [MASK] sleeps."])
    """

    citation = """
@inproceedings{wu-zhao-2022-sentence,
    title = "Sentence Representation Learning with Generative Objective rather than Contrastive Objective",
    author = "Wu, Bohong and Zhao, Hai",
    booktitle = "Proceedings of the 2022 Conference on Empirical Methods in Natural Language Processing",
    year = "2022",
    url = "https://aclanthology.org/2022.emnlp-main.221",
}
"""
    waits_for_other_ranks = False
    columns = ("anchor", "masked", "phrase")
    works_in_matryoshka = False
    decoder: PhraseDecoder | BagOfWordsDecoder

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        decoder_layers: int = 6,
        token_weights: float | None = None,
        frequencies: TokenFrequencies | str | None = None,
        difference_scale: float = 10.0,
        product_scale: float = 10.0,
        decoder_heads: int = 16,
        decoder_feedforward: int | None = None,
        decoder_dropout: float = 0.1,
        mlm_weight: float = 1.0,
        mlm_probability: float = 0.15,
        mlm_head: str = "pretrained",
        signed: bool = True,
        normalize_memory: bool = True,
    ) -> None:
        super().__init__(
            model,
            decoder_layers=decoder_layers,
            token_weights=token_weights,
            difference_scale=difference_scale,
            product_scale=product_scale,
            decoder_heads=decoder_heads,
            decoder_feedforward=decoder_feedforward,
            decoder_dropout=decoder_dropout,
            mlm_weight=mlm_weight,
            mlm_probability=mlm_probability,
            mlm_head=mlm_head,
            signed=signed,
            normalize_memory=normalize_memory,
        )
        functional.check_share("mlm_probability", mlm_probability)
        functional.check_weights(mlm_weight=mlm_weight)
        self.tokens = TokenRoles(model.tokenizer)
        self.mask_id = self.tokens.mask_id("PaSeRLoss")
        self.head = (
            MLMHead(model, checkpoint=None if mlm_head == "pretrained" else mlm_head)
            if decoder_layers
            else build_word_scorer(model, mlm_head)
        )
        if mlm_weight:
            self.language_model = self.head if isinstance(self.head, MLMHead) else MLMHead(model)
        if decoder_layers:
            start, end = model.tokenizer.cls_token_id, model.tokenizer.sep_token_id
            self.start_id = model.tokenizer.bos_token_id if start is None else start
            self.end_id = model.tokenizer.eos_token_id if end is None else end
            self.decoder = self._build_decoder()
        else:
            self.decoder = BagOfWordsDecoder(self.head, sentence_width(model), start=_START_OF_WORDS)
        self.frequencies = None if token_weights is None else load_frequencies(frequencies, model.tokenizer)
        weights = weigh_tokens(
            token_weights, self.frequencies, end_id=self.end_id if decoder_layers else None
        )
        self.register_buffer("weights", weights, persistent=False)
        self.register_buffer("ordinary_ids", (~self.tokens.special).nonzero().squeeze(1), persistent=False)
        self.to(model.device)

    def _build_decoder(self) -> PhraseDecoder:
        transformer: Any = transformer_of(self.model)
        return PhraseDecoder(
            transformer.config.hidden_size,
            num_layers=self.decoder_layers,
            num_heads=self.decoder_heads,
            dropout=self.decoder_dropout,
            normalize_memory=self.normalize_memory,
            embedding_dimension=transformer.get_input_embeddings().weight.shape[1],
            memory_dimension=sentence_width(self.model),
            feedforward_dimension=self.decoder_feedforward,
        )

    def compute(
        self, encode: Encoder, columns: Sequence[dict[str, Tensor]], labels: Tensor | None = None
    ) -> Terms:
        """Return the terms ``generative`` and ``mlm``."""
        anchor, masked, phrase = columns
        self.head.follow(self.model)
        batches = [anchor, masked]
        if self.mlm_weight:
            self.language_model.follow(self.model)
            ids = anchor["input_ids"]
            corrupted, chosen = mlm_mask(
                ids,
                self.tokens.content(anchor),
                mask_token_id=self.mask_id,
                ordinary_ids=self.ordinary_ids,
                probability=self.mlm_probability,
            )
            batches.append({**anchor, "input_ids": corrupted})
        sentences, copies, *third = encode(batches, tokens=bool(self.mlm_weight))
        usable = self._find_usable_rows(anchor, masked)
        terms = Terms(generative=self._generate(sentences, copies, phrase, usable))
        if self.mlm_weight:
            places = chosen.nonzero(as_tuple=True)  # of the N chosen tokens
            logits = self.language_model(third[0].tokens[places])  # (N, V)
            terms["mlm"] = self.mlm_weight * functional.token_cross_entropy(logits, ids[places])
        return terms

    def _find_usable_rows(self, anchor: dict[str, Tensor], masked: dict[str, Tensor]) -> Tensor:
        """Return (B,) bool: the rows whose copy still has a mask after truncation."""
        return (masked["input_ids"] == self.mask_id).any(dim=1)

    def _generate(self, sentences: Pass, copies: Pass, phrase: dict[str, Tensor], usable: Tensor) -> Tensor:
        """Return eq. 3 over the phrases of the usable rows."""
        memory = self.memory(sentences.vectors, copies.vectors)  # (B, 4, D)
        content = self.tokens.content(phrase)  # (B, T) bool
        length = content.sum(dim=1)
        usable = usable & (length > 0) & (length < self.decoder.max_positions)
        content = content & usable.unsqueeze(1)
        ids = phrase["input_ids"]
        if isinstance(self.decoder, PhraseDecoder):
            loss, found = self.decoder.loss(
                memory,
                self.head,
                ids,
                content,
                self.weights,
                embed=self.decoder_inputs,
                start_id=self.start_id,
                end_id=self.end_id,
            )
        else:
            loss, found = self.decoder.loss(memory, self.head, ids, content, self.weights)
        self.diagnostics = {"scored_share": usable.float().mean(), **found}
        return loss

    def memory(self, sentences: Tensor, copies: Tensor) -> Tensor:
        """Return (B, 4, D), the decoder's memory (eq. 2), from two (B, D)."""
        return functional.decoding_signal(
            sentences,
            copies,
            difference_scale=self.difference_scale,
            product_scale=self.product_scale,
            signed=self.signed,
        )

    @property
    def decoder_inputs(self) -> Any:
        """The encoder's word embeddings, which also embed the words that the decoder has written."""
        # Looked up at each use: as an attribute the table would be registered twice.
        return transformer_of(self.model).get_input_embeddings()

    @torch.no_grad()
    def reconstruct(
        self, sentences: Sequence[str], masked: Sequence[str], *, max_tokens: int = 16, batch_size: int = 64
    ) -> list[str]:
        """Write the phrase that each masked copy hides, greedily (the paper's Table 7).

        Without decoder layers it returns the most likely words, as many as the copy has mask tokens, best
        first.

        Args:
            sentences: Whole sentences.
            masked: Their copies, with mask tokens in place of the phrase.
            max_tokens: Most tokens per phrase.
            batch_size: Sentences per batch.
        """
        model, phrases = unwrap(self.model), list[str]()
        width = sentence_width(model)
        with dropout_off(self):
            for start in range(0, len(sentences), batch_size):
                rows = slice(start, start + batch_size)
                vectors = [
                    model.encode(
                        list(texts[rows]), convert_to_tensor=True, show_progress_bar=False, truncate_dim=width
                    )
                    for texts in (sentences, masked)
                ]
                memory = self.memory(*vectors)
                if isinstance(self.decoder, PhraseDecoder):
                    ids = self.decoder.write(
                        memory,
                        self.head,
                        self.decoder_inputs,
                        start_id=self.start_id,
                        end_id=self.end_id,
                        max_tokens=max_tokens,
                    )
                    written = model.tokenizer.batch_decode(ids, skip_special_tokens=True)
                else:
                    counts = [
                        min(text.count(model.tokenizer.mask_token), max_tokens) for text in masked[rows]
                    ]
                    bags = self.decoder.most_likely(memory, self.head, self.ordinary_ids, counts)
                    written = [
                        " ".join(model.tokenizer.decode([token]).strip() for token in bag) for bag in bags
                    ]
                phrases += [phrase.strip() for phrase in written]
        return phrases

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings."""
        return super().get_config_dict() | {"frequencies": describe_frequencies(self.frequencies)}
