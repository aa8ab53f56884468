"""Bag of words: predict the words of a sentence from its vector."""

from collections.abc import Sequence
from typing import Any

from sentence_transformers import SentenceTransformer
from torch import Tensor

from sbert_plugins.data import TokenFrequencies
from sbert_plugins.encoder import Encoder, TokenRoles, sentence_width
from sbert_plugins.losses.base import Loss, Terms
from sbert_plugins.losses.vocabulary import (
    build_word_scorer,
    describe_frequencies,
    load_frequencies,
    weigh_tokens,
)
from sbert_plugins.modules import BagOfWordsDecoder


class BagOfWordsLoss(Loss):
    r"""Predict which words a sentence has from its vector.

    A sentence passes the encoder once. One linear map, which starts as the identity, and the encoder's word
    embeddings score all words of the batch. The words of the sentence should score highest; rare words count
    most. There are no negatives, no second view and no decoder that has to be trained first.

    .. math::
        L = -\frac{1}{\sum_{i,j} w_{ij}} \sum_i \sum_{j \in s_i} w_{ij}
        \log \frac{e^{u_{i, t_{ij}}}}{\sum_{c \in C} e^{u_{ic}}},\quad
        u_i = \mathrm{head}(W z_i),\quad w = \min\left(1, \sqrt{t / p}\right)

    :math:`C` are the distinct tokens of the batch, and :math:`p` is the share of a token in running text:
    :func:`functional.bag_of_words_loss` and :func:`functional.token_weights`.

    Inputs:
        +---------------------+--------+
        | Columns             | Labels |
        +=====================+========+
        | anchor (a sentence) | unused |
        +---------------------+--------+

    Returns from ``forward``: a dict with the term ``words``. ``diagnostics`` holds ``token_accuracy`` (share
    of tokens among the top k candidates of their sentence, where k is its number of tokens) and
    ``information`` (increase of the loss, in nats per token, if each vector is replaced by another
    sentence's).

    Args:
        model: Any transformers encoder.
        token_weights: :math:`t`, a share of running text. Tokens rarer than this have weight 1, others less.
            None gives all tokens weight 1.
        frequencies: :class:`data.TokenFrequencies` of the encoder's vocabulary, or a file of them. By default
            the BookCorpus counts that ship with the package, for the vocabulary of ``bert-base-uncased``.
        mlm_head: ``"embeddings"`` scores words with their embeddings, ``"pretrained"`` with the encoder's
            masked-language-model head, a path or Hub name with the head of that checkpoint. Without a
            matching head the embeddings are used, with a warning.

    Raises:
        ValueError: If the threshold is out of range, or the counts are of another vocabulary.

    Relations:
        - In a :class:`WeightedSumLoss` it reads, in training, the first pass of a loss before it, so it costs
          no pass.
        - sentence-transformers' ``DenoisingAutoEncoderLoss`` (TSDAE) writes the sentence with a trained
          decoder.
        - "Drop your Decoder" (Ma et al., 2024, https://arxiv.org/abs/2401.11248) predicts a bag of words to
          pre-train retrieval models.

    Deviations:
        This objective is ours. The weights are word2vec's subsampling (Mikolov et al., 2013, eq. 5) without
        its draws.

    Example:
        >>> from datasets import Dataset
        >>> from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
        >>> from sbert_plugins import losses
        >>> model = SentenceTransformer("bert-base-uncased")
        >>> train = Dataset.from_dict({"anchor": ["It is raining.", "He plays the organ.", "Prices fell."]})
        >>> loss = losses.BagOfWordsLoss(model)
        >>> SentenceTransformerTrainer(model=model, train_dataset=train, loss=loss).train()
    """

    citation = """
@inproceedings{mikolov-etal-2013-distributed,
    title = "Distributed Representations of Words and Phrases and their Compositionality",
    author = "Mikolov, Tomas and Sutskever, Ilya and Chen, Kai and Corrado, Greg and Dean, Jeffrey",
    booktitle = "Advances in Neural Information Processing Systems",
    year = "2013",
    url = "https://arxiv.org/abs/1310.4546",
}
"""
    waits_for_other_ranks = False
    works_in_matryoshka = False

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        token_weights: float | None = 1e-6,
        frequencies: TokenFrequencies | str | None = None,
        mlm_head: str = "embeddings",
    ) -> None:
        super().__init__(model, token_weights=token_weights, mlm_head=mlm_head)
        self.tokens = TokenRoles(model.tokenizer)
        self.head = build_word_scorer(model, mlm_head)
        self.decoder = BagOfWordsDecoder(self.head, sentence_width(model))
        self.frequencies = None if token_weights is None else load_frequencies(frequencies, model.tokenizer)
        self.register_buffer("weights", weigh_tokens(token_weights, self.frequencies), persistent=False)
        self.to(model.device)

    def compute(
        self, encode: Encoder, columns: Sequence[dict[str, Tensor]], labels: Tensor | None = None
    ) -> Terms:
        """Return the term ``words``."""
        (anchor,) = columns
        self.head.follow(self.model)
        # (B, D), and (B, L) bool
        vectors, content = encode.any_pass(anchor).vectors, self.tokens.content(anchor)
        loss, self.diagnostics = self.decoder.loss(
            vectors, self.head, anchor["input_ids"], content, self.weights
        )
        return Terms(words=loss)

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings."""
        return super().get_config_dict() | {"frequencies": describe_frequencies(self.frequencies)}
