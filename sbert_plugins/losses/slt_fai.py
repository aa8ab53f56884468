"""SLT-FAI: frequency-induced adversarial tuning and incomplete sentence filtering, added to any loss."""

import logging
from collections.abc import Sequence
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from sbert_plugins import functional
from sbert_plugins.data import TokenFrequencies
from sbert_plugins.encoder import (
    Encoder,
    GradientTap,
    MemberEncoder,
    Pass,
    TokenRoles,
    bound_gradients,
    is_compiled,
    is_training,
    random_subset,
    sentence_width,
    transformer_of,
)
from sbert_plugins.losses.base import (
    Loss,
    Terms,
    check_inner_loss,
    compute_inner_loss,
    describe_loss,
)
from sbert_plugins.losses.simcse import SimCSELoss
from sbert_plugins.losses.vocabulary import describe_frequencies, load_frequencies
from sbert_plugins.modules import CompletenessDiscriminator, TokenFrequencyDiscriminator, after_optimizer_step

logger = logging.getLogger(__name__)


class SLTFAILoss(Loss):
    r"""SLT-FAI (Wang et al., 2023, https://arxiv.org/abs/2305.08655): two objectives added to a base loss.

    1. Adversarial tuning: a discriminator classifies token embeddings as rare or frequent. Its gradient
       reaches the encoder reversed, so the encoder removes the difference.
    2. Incomplete sentence filtering: rare tokens of a copy are masked. A second discriminator classifies the
       vectors of copy and original, and the encoder helps it, so rare tokens count more in the sentence
       vector.

    .. math::
        L = L_{base} + \alpha L_{AT} + \beta L_{ISF},\quad
        L_{AT} = \frac{1}{N}\sum_i \frac{1}{|s_i|}\sum_{j \in s_i} \ell_{CE}(p_{ij}, y_{ij}),\quad
        L_{ISF} = \frac{1}{N}\sum_i \ell_{CE}(\hat{p_i}, 1) + \ell_{CE}(p_i, 0)

    These are eq. 2, 4 and 6: :func:`functional.token_class_loss` and
    :func:`functional.incomplete_sentence_loss`. Both objectives read the base loss's first pass over the
    first column; the copy is the only further pass.

    A small language model scores 56.5 on average over the seven STS tasks. After 60 updates it reached 71.1,
    and 70.7 after 400. With ``recipes.recommended_loss`` it reached 73.2 and 74.0.

    Inputs:
        +----------------------------------------------------+---------------------------+
        | Columns                                            | Labels                    |
        +====================================================+===========================+
        | those of the base loss, the first one of sentences | those of the base loss    |
        +----------------------------------------------------+---------------------------+

    Returns from ``forward``: a dict with the terms of the base loss (``base`` or ``base/term``) and the
    weighted terms ``adversarial`` and ``filtering``, which are 0 during the warm-up.

    ``diagnostics`` holds those of the base loss as ``base/key``, with ``balance`` three numbers for each
    objective, and

    - ``frequency_accuracy``: accuracy of the first discriminator. That of a fooled one is the share of the
      larger class;
    - ``low_share``: share of rare tokens;
    - ``completeness_accuracy``: accuracy of the second discriminator, by chance 0.5;
    - ``masked_share``: share of sentences with a masked token.

    Args:
        model: The encoder, with a mask token.
        loss: The base loss, which reads sentences from the first column. By default SimCSE with temperature
            0.05 and, as in the authors' contrastive loss, without a projection head.
        frequencies: :class:`data.TokenFrequencies` of the encoder's vocabulary, or a file of them; by default
            BookCorpus.
        low_frequency_by: ``"types"``: ``low_frequency_share`` is a share of the tokens that occur, as in the
            paper. ``"mass"``: a share of running text. By types 1.2 % of BookCorpus' tokens and 12 % of
            Wikipedia's are rare.
        low_frequency_share: :math:`\lambda`, in (0, 1).
        adversarial_weight: :math:`\alpha`. 0 leaves out the first objective.
        filtering_weight: :math:`\beta`. 0 leaves out the second objective and its pass.
        balance: Limits the gradient of each objective, at the outputs that it reads, to this multiple of the
            base loss's gradient there. None, as in the paper, sets no limit.
        reversal_strength: Factor of the reversed gradient.
        masking_ratio: :math:`\epsilon`, share of a sentence's rare tokens that are masked, at least one.
        warmup_steps: Number of updates in which only the base loss is trained, or a share of the training
            below 1. In a loop of your own, whose length is unknown, a share counts as 0.

    Raises:
        ValueError: If a value is out of range, the base loss trains another model or cannot be computed
            inside another loss, the counts are of another vocabulary, the model has no mask token or
            has a mask template, or ``balance`` is set with torch.compile.

    Relations:
        ``adversarial_weight=0`` and ``filtering_weight=0`` are the rows "w/o AT" and "w/o ISF" of the paper's
        Table 1.

    Deviations:
        Where the base loss changes the sentence in its first view, the objectives read that view. The warm-up
        happens once, in the official code in each epoch. Eq. 2 and 3 swap min and max for the discriminator;
        gradient reversal is what the text describes.
        :class:`losses.official.SLTFAILoss` follows the authors' code.

    Example:
        >>> from datasets import Dataset
        >>> from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
        >>> from sbert_plugins import losses
        >>> model = SentenceTransformer("bert-base-uncased")
        >>> train = Dataset.from_dict({"anchor": ["It is raining.", "He plays the organ.", "Prices fell."]})
        >>> loss = losses.SLTFAILoss(model, losses.ConSERTLoss(model))
        >>> SentenceTransformerTrainer(model=model, train_dataset=train, loss=loss).train()
    """

    citation = """
@article{wang-etal-2023-unsupervised,
    title = "Unsupervised Sentence Representation Learning with Frequency-induced Adversarial Tuning
             and Incomplete Sentence Filtering",
    author = "Wang, Bing and Li, Ximing and Yang, Zhiyao and Guan, Yuanyuan and Li, Jiayin and
              Wang, Shengsheng",
    journal = "arXiv preprint arXiv:2305.08655",
    year = "2023",
    url = "https://arxiv.org/abs/2305.08655",
}
"""
    works_in_matryoshka = False

    def __init__(
        self,
        model: SentenceTransformer,
        loss: nn.Module | None = None,
        *,
        frequencies: TokenFrequencies | str | None = None,
        low_frequency_by: str = "types",
        low_frequency_share: float = 0.5,
        adversarial_weight: float = 1.0,
        filtering_weight: float = 1.0,
        balance: float | None = None,
        reversal_strength: float = 1.0,
        masking_ratio: float = 0.2,
        warmup_steps: float = 0.1,
    ) -> None:
        super().__init__(
            model,
            low_frequency_by=low_frequency_by,
            low_frequency_share=low_frequency_share,
            adversarial_weight=adversarial_weight,
            filtering_weight=filtering_weight,
            balance=balance,
            reversal_strength=reversal_strength,
            masking_ratio=masking_ratio,
            warmup_steps=warmup_steps,
        )
        loss = SimCSELoss(model, projection_head=False) if loss is None else loss
        check_inner_loss("loss", loss, model)
        functional.check_balance(balance)
        functional.check_weights(adversarial_weight=adversarial_weight, filtering_weight=filtering_weight)
        if not 0 < masking_ratio <= 1:
            raise ValueError(f"masking_ratio must be in (0, 1], got {masking_ratio}.")
        self.loss = loss
        self.waits_for_other_ranks = balance is not None
        self.tokens = TokenRoles(model.tokenizer)
        if adversarial_weight:
            self.frequency_discriminator = TokenFrequencyDiscriminator(
                transformer_of(model).config.hidden_size, reversal_strength=reversal_strength
            )
        if filtering_weight:
            self.completeness_discriminator = CompletenessDiscriminator(sentence_width(model))
            self.mask_token_id = self.tokens.mask_id("filtering_weight above 0")
        self.frequencies = load_frequencies(frequencies, model.tokenizer)
        low_ids = self.frequencies.low_frequency_ids(low_frequency_share, low_frequency_by)
        # Not bool: gloo cannot send that type to other ranks.
        low_frequency = torch.zeros(len(self.frequencies.counts), dtype=torch.uint8)
        low_frequency[torch.as_tensor(low_ids)] = 1
        self.register_buffer("low_frequency", low_frequency)
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))
        # None until begin_training if the warm-up is a share of the training. 0 once it is over.
        self._warmup_updates = None if 0 < warmup_steps < 1 else int(warmup_steps)
        self.to(model.device)

    def begin_training(self, *, steps: int, resumed: bool) -> None:
        """Count the updates from now on. A new training begins with a warm-up."""
        if not resumed:
            self.updates.zero_()
        is_share = 0 < self.warmup_steps < 1
        self._warmup_updates = round(self.warmup_steps * steps) if is_share else int(self.warmup_steps)
        after_optimizer_step(self, lambda loss: loss.updates.add_(1))

    def _ends_warmup(self) -> bool:
        """Return whether the warm-up is over. Once it is, the updates are no longer read from the device."""
        if self._warmup_updates is None:
            logger.warning(
                "There is no warm-up, because warmup_steps=%s is a share of a training of unknown length. "
                "Pass a number of updates, or train with a trainer.",
                self.warmup_steps,
            )
            self._warmup_updates = 0
        if self._warmup_updates and int(self.updates) >= self._warmup_updates:
            self._warmup_updates = 0
        return not self._warmup_updates

    def check_columns(self, columns: Sequence[dict[str, Tensor]]) -> None:
        """Leave the number of columns to the base loss."""

    def compute(
        self, encode: Encoder, columns: Sequence[dict[str, Tensor]], labels: Tensor | None = None
    ) -> Terms:
        """Return the terms of the base loss, ``adversarial`` and ``filtering``."""
        training = is_training(self.model)
        if training:
            if self.balance is not None and self.adversarial_weight and is_compiled(self.model):
                raise ValueError("balance does not work with torch.compile. Pass balance=None.")
            # A copy of a loss registers itself here.
            after_optimizer_step(self, lambda loss: loss.updates.add_(1))
        anchor = columns[0]
        member = MemberEncoder(encode, tokens=True)
        terms, self.diagnostics = compute_inner_loss("base", self.loss, member, columns, labels)
        base = sum(terms.values(), torch.zeros(()))
        seen = member.passes_over(anchor) or member([anchor])  # a base loss may encode the other column only
        weights = {"adversarial": self.adversarial_weight, "filtering": self.filtering_weight}
        names = [name for name, weight in weights.items() if weight]
        if training and not self._ends_warmup():
            terms.update({name: torch.zeros((), device=base.device) for name in names})
            return terms
        taps = {} if self.balance is None else {name: GradientTap() for name in names}
        if self.adversarial_weight:
            loss = self._classify_tokens(anchor, seen, taps.get("adversarial"))
            terms["adversarial"] = self.adversarial_weight * loss
        if self.filtering_weight:
            loss = self._classify_sentences(encode, anchor, seen[0], taps.get("filtering"))
            terms["filtering"] = self.filtering_weight * loss
        self._bound_gradients(base, seen[0], terms, taps)
        return terms

    def _tokens_to_classify(self, anchor: dict[str, Tensor]) -> Tensor:
        return self.tokens.content(anchor)

    def _classify_tokens(
        self, anchor: dict[str, Tensor], seen: Sequence[Pass], tap: GradientTap | None
    ) -> Tensor:
        """Return eq. 4 over the tokens of the base loss's first pass."""
        first = seen[0]
        is_low = self.low_frequency[anchor["input_ids"]].long()  # (B, L)
        tokens = first.read_through(tap).tokens[:, : is_low.shape[1]]
        if first.view is not None and first.view.order is not None:
            is_low = is_low.gather(1, first.view.order)  # a shuffled view has other words at each place
        loss, found = self.frequency_discriminator.loss(tokens, is_low, self._tokens_to_classify(anchor))
        self.diagnostics |= found
        return loss

    def _classify_sentences(
        self, encode: Encoder, anchor: dict[str, Tensor], original: Pass, tap: GradientTap | None
    ) -> Tensor:
        """Return eq. 6 over the sentences and their incomplete copies."""
        copies, usable = self._encode_incomplete(encode, anchor, original)
        whole, part = (one.read_through(tap).vectors for one in (original, copies))  # (B, D) each
        loss, found = self.completeness_discriminator.loss(whole, part, usable)
        self.diagnostics |= found
        return loss

    def _encode_incomplete(
        self, encode: Encoder, anchor: dict[str, Tensor], original: Pass
    ) -> tuple[Pass, Tensor]:
        """Encode copies that lack some rare tokens. Also return (B,) bool: the copies that differ."""
        rare = self.tokens.content(anchor) & self.low_frequency[anchor["input_ids"]].bool()  # (B, L)
        masked = random_subset(rare, self.masking_ratio, at_least=1)
        copy = {**anchor, "input_ids": anchor["input_ids"].masked_fill(masked, self.mask_token_id)}
        views = None if original.view is None else [original.view]
        (incomplete,) = encode([copy], views=views, dropout=original.dropout, bypass_ddp=True)
        shown = masked if original.view is None else original.view.shown(masked)
        return incomplete, shown.any(dim=1)

    def _bound_gradients(
        self, base: Tensor, original: Pass, terms: Terms, taps: dict[str, GradientTap]
    ) -> None:
        """Limit the gradient of each objective with a tap, at the tokens or sentence vectors."""
        outputs = {"adversarial": original.all_tokens, "filtering": original.all_vectors}
        for name, tap in taps.items():
            output = outputs[name]
            # An evaluation, and the tokens of a frozen transformer, have no gradient.
            if self.balance is not None and output is not None and output.requires_grad:
                main = GradientTap()
                main.watch(output, rows=original.rows)
                found = bound_gradients((base, main), {name: (terms[name], tap)}, balance=self.balance)
                self.diagnostics |= {f"{name}_{key}": value for key, value in found.items()}

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings, with those of the base loss."""
        return super().get_config_dict() | {
            "loss": describe_loss(self.loss),
            "frequencies": describe_frequencies(self.frequencies),
        }
