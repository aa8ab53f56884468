"""The words of a sentence from its vector: the cheapest objective here, without negatives and in one pass."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sentence_transformers import SentenceTransformer
from torch import Tensor

from sbert_plugins.contract import LossModule, Terms, begin_forward, begin_init, follow_mode, settings_of
from sbert_plugins.data import TokenFrequencies
from sbert_plugins.encoder import Encoder, TokenRoles, require_one_encoder, sentence_width
from sbert_plugins.losses.citations import CITATIONS
from sbert_plugins.losses.decoding import weights_of_tokens, word_scorer
from sbert_plugins.modules import BagOfWordsDecoder


class BagOfWordsLoss(LossModule):
    r"""Bag of words: a sentence vector that tells which words the sentence has. Learns from single sentences.

    A sentence passes the encoder once. One linear map, which starts as the identity, and the encoder's word embeddings score
    the words of the whole batch for its vector; those of the sentence shall win, rare ones above all. There are no negatives,
    no second view and no decoder to train first. Alone it is for trainings of some tens of updates: of 400 the 50th was the
    best; beside a contrast, bounded, it keeps longer ones from sinking.

    .. math::
        L = -\frac{1}{\sum_{i,j} w_{ij}} \sum_i \sum_{j \in s_i} w_{ij}
        \log \frac{e^{u_{i, t_{ij}}}}{\sum_{c \in C} e^{u_{ic}}},\quad
        u_i = \mathrm{head}(W z_i),\quad w = \min\left(1, \sqrt{t / p}\right)

    (:func:`functional.bag_of_words_loss`, :func:`functional.token_weights`): DenoSent's eq. 4 (Wang et al., AAAI 2024,
    https://arxiv.org/abs/2401.13621) for a decoder without layers. :math:`C` are the different tokens of the batch, :math:`p`
    is the share of a token in running text.

    Inputs:
        +-----------------------+--------+
        | Columns               | Labels |
        +=======================+========+
        | anchor (one sentence) | unused |
        +-----------------------+--------+

    Returns from ``forward``: a dict with the scalar ``words``. ``diagnostics`` then holds ``token_accuracy`` (share of a
    sentence's tokens among as many best candidates as it has) and ``information`` (nats a token that the loss rises with
    another sentence's vector: near 0 the vector is not read).

    Args:
        model: Any encoder that sentence-transformers loads.
        token_weights: :math:`t`, a share of running text: tokens rarer than this count fully, others less. None weighs all
            alike, function words with the rest: it costs points.
        frequencies: :class:`data.TokenFrequencies` of the encoder's vocabulary, or where they are saved; by default the counts
            of BookCorpus that ship with the package, for that of ``bert-base-uncased``.
        mlm_head: What scores the words: ``"embeddings"``, their own; ``"pretrained"``, the masked-language-model head that the
            encoder was pretrained with; or a checkpoint to read that head from.

    Raises:
        ValueError: On a threshold out of range, an encoder of another vocabulary without ``frequencies``, and more or fewer
            columns than one.

    Relations:
        - Beside a contrast: :class:`DenoSentLoss` (its default), or :class:`WeightedSumLoss` with ``balance``, where the words
          are read in the first pass that a loss before this one makes over the column: a view cut or shuffled serves as well.
          In evaluation they have a pass of their own, without views.
        - ``DenoisingAutoEncoderLoss`` (TSDAE) writes the sentence with a decoder that has to be trained first.
        - The weights are word2vec's subsampling (Mikolov et al., 2013, eq. 5) without its draws.

    Deviations:
        No paper's objective by itself: DenoSent restores the sentence through sixteen layers and beside a contrast.

    Example:
        >>> from datasets import Dataset
        >>> from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
        >>> from sbert_plugins import losses
        >>> model = SentenceTransformer("bert-base-uncased")
        >>> train = Dataset.from_dict({"anchor": ["It is raining.", "He plays the organ.", "Prices fell again."]})
        >>> loss = losses.BagOfWordsLoss(model)
        >>> SentenceTransformerTrainer(model=model, train_dataset=train, loss=loss).train()
    """

    citation = CITATIONS["bag_of_words"]
    weights: Tensor | None

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        token_weights: float | None = 1e-6,
        frequencies: TokenFrequencies | str | None = None,
        mlm_head: str = "embeddings",
    ) -> None:
        super().__init__()
        begin_init(self, locals())
        require_one_encoder(model, "BagOfWordsLoss")
        self.model = model
        self.tokens = TokenRoles(model.tokenizer)
        self.head = word_scorer(model, mlm_head, reads_vectors=True)
        self.decoder = BagOfWordsDecoder(self.head, sentence_width(model))
        self.register_buffer("weights", weights_of_tokens(self, token_weights), persistent=False)
        self.diagnostics: dict[str, Tensor] = {}
        self.state_is_kept = False
        self.to(model.device)  # for loops that do not move the loss themselves

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Terms:
        """Compute the loss of one batch of one column."""
        return self.compute_loss_from_passes(Encoder(self.model), list(sentence_features), labels)

    def compute_loss_from_passes(
        self, encode: Encoder, columns: Sequence[dict[str, Tensor]], labels: Tensor | None = None
    ) -> Terms:
        """Compute it from a pass that ``encode`` makes."""
        if len(columns) != 1:
            raise ValueError(
                f"BagOfWordsLoss reads one text column (anchor), got {len(columns)}: "
                "drop the others with dataset.select_columns(['anchor'])."
            )
        begin_forward(self)
        follow_mode(self)
        self.head.follow(self.model)
        (anchor,) = columns
        seen = encode.any_pass(anchor)
        content = self.tokens.content(anchor)
        loss, self.diagnostics = self.decoder.loss(seen.vectors, self.head, anchor["input_ids"], content, self.weights)
        return Terms(words=loss)

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings that the model card shows."""
        return settings_of(self)
