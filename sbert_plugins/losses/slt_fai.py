"""SLT-FAI: word frequencies neither in the token embeddings nor in what the sentence vector leaves out, round any loss."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from sbert_plugins import functional
from sbert_plugins.contract import LossModule, Terms, begin_forward, begin_init, prefixed, settings_of
from sbert_plugins.data import TokenFrequencies
from sbert_plugins.encoder import (
    Encoder,
    GradientTap,
    Pass,
    TokenRoles,
    bound_gradients_at,
    is_training,
    random_subset,
    refuse_bypass,
    refuse_compiled,
    require_one_encoder,
    sentence_width,
    transformer_of,
)
from sbert_plugins.losses.citations import CITATIONS
from sbert_plugins.losses.decoding import rare_tokens
from sbert_plugins.losses.inner import InnerLoss, check_inner, check_uncached, inner_settings
from sbert_plugins.losses.warm_up import IDLE_HINTS, WarmUp
from sbert_plugins.modules import CompletenessDiscriminator, TokenFrequencyDiscriminator, after_optimizer_step


class SLTFAILoss(LossModule):
    r"""SLT-FAI (Wang et al., 2023, https://arxiv.org/abs/2305.08655): two objectives beside any loss on sentences.

    1. Adversarial tuning: a discriminator tells rare from frequent tokens by their embeddings; its gradient reaches the
       encoder reversed, which unlearns the difference.
    2. Incomplete sentence filtering: some rare tokens of a copy are masked; a second discriminator tells the vectors of
       copy and original apart, and the encoder helps, so that rare tokens weigh more in the sentence vector.

    .. math::
        L = L_{base} + \alpha L_{AT} + \beta L_{ISF},\quad
        L_{AT} = \frac{1}{N}\sum_i \frac{1}{|s_i|}\sum_{j \in s_i} \ell_{CE}(p_{ij}, y_{ij}),\quad
        L_{ISF} = \frac{1}{N}\sum_i \ell_{CE}(\hat{p_i}, 1) + \ell_{CE}(p_i, 0)

    (eq. 2, 4 and 6: :func:`functional.token_class_loss`, :func:`functional.incomplete_sentence_loss`). The token embeddings
    are those of the base loss's own first pass over the first column; the copy is the one further pass.

    Inputs:
        +----------------------------------------------+-----------------+
        | Columns                                      | Labels          |
        +==============================================+=================+
        | the base loss's, the first of them sentences | the base loss's |
        +----------------------------------------------+-----------------+

    Returns from ``forward``: a dict with the base loss's terms (``base``, or ``base/term`` each) and the weighted scalars
    ``adversarial`` and ``filtering``, to be summed; 0 in training during the warm-up. ``diagnostics`` then holds
    ``frequency_accuracy`` (share of tokens that the first discriminator classifies rightly, beside ``low_share``, the share of
    rare ones: fooled, it knows no more than the larger class), ``completeness_accuracy`` (of the second, 0.5 is chance),
    ``masked_share`` (of sentences, where a masked token shows), three ``balance_...`` of each objective, and the base's own.

    Args:
        model: The encoder that the base loss trains, with a mask token.
        loss: Any that embeds the first column through ``model`` with gradients: :class:`ConSERTLoss`, SimCSE (below).
        frequencies: :class:`data.TokenFrequencies` of the encoder's vocabulary, or a file of them; by default BookCorpus'.
        low_frequency_by: What ``low_frequency_share`` is a share of: ``"types"``, the vocabulary, as in the paper (12 % of
            Wikipedia's tokens are then rare, 1.2 % of BookCorpus'), or ``"mass"``, running text.
        low_frequency_share: :math:`\lambda`, in (0, 1).
        balance: Most that the gradient of each objective may be where it reads the encoder (tokens, sentence vectors), as a
            multiple of the base loss's there; None, the paper's, leaves it as it is.
        adversarial_weight: :math:`\alpha`. 0 leaves the first objective out.
        filtering_weight: :math:`\beta`. 0 leaves the second out, and its pass.
        reversal_strength: Factor of the reversed gradient.
        masking_ratio: :math:`\epsilon`, share of a sentence's rare tokens to mask, at least one.
        warmup_steps: Updates with the base loss alone: a number of them, or as a float below 1 a share of the training. The
            length of a training is known to this library's trainer and callback; without, a share is taken for 0.

    Raises:
        ValueError: On a value out of range, a base loss round another model, one that caches gradients (``Cached...``) or
            does not embed the first column, counts of another vocabulary, a model without a mask token, and in training one
            compiled by torch.compile, with ``balance`` and the first objective: what the base loss asks of tokens is not seen.

    Relations:
        - ``adversarial_weight=0`` and ``filtering_weight=0`` are the rows "w/o AT" and "w/o ISF" of the paper's Table 1.
        - SimCSE on one column is ``WeightedSumLoss(model, {"simcse": (MultipleNegativesRankingLoss(model), 1.0, [0, 0])})``.
        - It may stand in a :class:`WeightedSumLoss`, and round one.

    Deviations:
        From the official code: the discriminators' form, which tokens are labelled, counted and masked, and in which views
        (:class:`losses.official.SLTFAILoss` has them); the warm-up happens once, not in each epoch. From the paper: what both
        read is the base loss's first view, where that alters sentences; the warm-up's length, and the bound: round SimCSE a
        small encoder's STS-B dev ends at 80.04 after 400 updates, with the paper's keywords at 71.49 (five seeds).

    Example:
        >>> from datasets import Dataset
        >>> from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
        >>> from sbert_plugins import losses
        >>> model = SentenceTransformer("bert-base-uncased")
        >>> train = Dataset.from_dict({"anchor": ["It is raining.", "He plays the organ.", "Prices fell again."]})
        >>> loss = losses.SLTFAILoss(model, losses.ConSERTLoss(model))
        >>> SentenceTransformerTrainer(model=model, train_dataset=train, loss=loss).train()
    """

    citation = CITATIONS["slt_fai"]
    idle_hints = IDLE_HINTS
    low_frequency: Tensor
    updates: Tensor

    def __init__(
        self,
        model: SentenceTransformer,
        loss: nn.Module,
        *,
        frequencies: TokenFrequencies | str | None = None,
        low_frequency_by: str = "types",
        low_frequency_share: float = 0.5,
        balance: float | None = 0.1,
        adversarial_weight: float = 1.0,
        filtering_weight: float = 1.0,
        reversal_strength: float = 1.0,
        masking_ratio: float = 0.2,
        warmup_steps: float = 0.1,
    ) -> None:
        super().__init__()
        begin_init(self, locals())
        check_inner("loss", loss, model)
        check_uncached("loss", loss)
        _check_values(adversarial_weight, filtering_weight, masking_ratio, balance)
        require_one_encoder(model, "SLTFAILoss")
        self.model = model
        self.loss = loss
        self.tokens = TokenRoles(model.tokenizer)
        self.balance = balance
        self.adversarial_weight = adversarial_weight
        self.filtering_weight = filtering_weight
        self.masking_ratio = masking_ratio
        self.warmup_steps = warmup_steps
        self.training_steps: int | None = None  # of the whole training; set by who knows it
        if adversarial_weight:
            width = transformer_of(model).config.hidden_size
            self.frequency_discriminator = TokenFrequencyDiscriminator(width, reversal_strength=reversal_strength)
        if filtering_weight:
            self.completeness_discriminator = CompletenessDiscriminator(sentence_width(model))
            self.mask_token_id = self.tokens.mask_id("incomplete sentences are masked", "filtering_weight=0", apart=True)
        rare = rare_tokens(self, low_frequency_share, low_frequency_by)
        self.register_buffer("low_frequency", rare.to(torch.uint8))  # not bool: gloo cannot send that to other ranks
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))
        self._own_diagnostics: dict[str, Tensor] = {}
        self._inner = InnerLoss()
        self.warm_up = WarmUp(warmup_steps, self)
        self.state_is_kept = False
        self.to(model.device)  # for loops that do not move the loss themselves

    def begin_training(self, *, resumed: bool) -> None:
        """Count the updates of the encoder from now on; a new training warms up anew."""
        if not resumed:
            self.updates.zero_()
            self.warm_up.ask_again()
        after_optimizer_step(self, lambda loss: loss.updates.add_(1))

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Terms:
        """Compute the weighted terms of one batch, those of the base loss among them."""
        return self.compute_loss_from_passes(Encoder(self.model), list(sentence_features), labels)

    def compute_loss_from_passes(
        self, encode: Encoder, columns: Sequence[dict[str, Tensor]], labels: Tensor | None = None
    ) -> Terms:
        """Compute them from passes that ``encode`` makes."""
        if not columns:
            raise ValueError("SLTFAILoss reads the first text column, got none.")
        begin_forward(self, reads_tokens=True)
        if training := is_training(self.model):
            refuse_bypass(self, self.loss)
            if self.balance is not None and self.adversarial_weight:
                refuse_compiled(self.model)  # before the warm-up, not after it
            self.begin_training(resumed=True)  # again, for a loop that does not tell when it begins
        value, seen = self._inner(self.loss, encode, columns, labels)
        terms = prefixed("base", value)
        self._own_diagnostics = {}
        names = [name for name in ("adversarial", "filtering") if getattr(self, f"{name}_weight")]
        own = {name: torch.zeros((), device=seen[0].vectors.device) for name in names}
        if not (training and self.warm_up.is_on(self.warmup_steps, self.updates, self.training_steps)):
            taps = {name: GradientTap() for name in own if self.balance is not None}
            if self.adversarial_weight:
                content = self.tokens.content(columns[0])
                own["adversarial"] = self._tell_rare(columns[0], content, seen, taps.get("adversarial"))
            if self.filtering_weight:
                own["filtering"] = self._tell_incomplete(encode, columns[0], seen[0], taps.get("filtering"))
            if self.balance is not None:
                self._bound(sum(terms.values(), torch.zeros(())), seen[0], own, taps)
        return Terms(terms | own)

    def _tell_rare(self, anchor: dict[str, Tensor], content: Tensor, seen: Sequence[Pass], tap: GradientTap | None) -> Tensor:
        """Eq. 4, weighted, over the content of the base loss's first pass, read through the tap."""
        is_low = self.low_frequency[anchor["input_ids"]].long()  # (B, L), 1 for rare
        # A view that shuffles has the words of other places at each place; padding and special tokens stay where they are.
        order = None if seen[0].view is None else seen[0].view.order
        tokens = seen[0].read_through(tap).require_tokens()[:, : is_low.shape[1]]
        targets = is_low if order is None else is_low.gather(1, order)
        loss, found = self.frequency_discriminator.loss(tokens, targets, content)
        self._own_diagnostics |= found
        return self.adversarial_weight * loss

    def _tell_incomplete(self, encode: Encoder, anchor: dict[str, Tensor], original: Pass, tap: GradientTap | None) -> Tensor:
        """Eq. 6, weighted, over the sentences' vectors and those of their copies, read through the tap."""
        copies, usable = self._incomplete(encode, anchor, original)
        whole, part = (one.read_through(tap).vectors for one in (original, copies))
        loss, found = self.completeness_discriminator.loss(whole, part, usable)
        self._own_diagnostics |= found
        return self.filtering_weight * loss

    def _incomplete(self, encode: Encoder, anchor: dict[str, Tensor], original: Pass) -> tuple[Pass, Tensor]:
        """Pass copies that lack rare tokens, seen as the originals, and return (B,) bool, too: which lack any seen there."""
        rare = self.tokens.content(anchor) & self.low_frequency[anchor["input_ids"]].bool()
        masked = random_subset(rare, self.masking_ratio, at_least=1)
        copy = {**anchor, "input_ids": anchor["input_ids"].masked_fill(masked, self.mask_token_id)}
        views = None if original.view is None else [original.view]
        # Beside DistributedDataParallel: its gradients are averaged with those of the base loss's passes.
        (incomplete,) = encode([copy], views=views, dropout=original.dropout, beside_ddp=True)
        return incomplete, (masked if original.view is None else original.view.shown(masked)).any(dim=1)

    def _bound(self, base: Tensor, original: Pass, terms: dict[str, Tensor], taps: dict[str, GradientTap]) -> None:
        """Bound each objective where it reads the encoder: at the tokens, and at the sentence vectors."""
        for name, output in (("adversarial", original.all_tokens), ("filtering", original.all_vectors)):
            if name in terms and output is not None:
                others = {name: (terms[name], taps[name])}
                found = bound_gradients_at(output, base, others, balance=self.balance, rows=original.rows)
                self._own_diagnostics |= {f"{name}_{key}": value for key, value in found.items()}

    @property
    def diagnostics(self) -> dict[str, Tensor]:
        """Detached scalars of this loss and, as ``base/key``, of the base loss."""
        return self._own_diagnostics | {f"base/{key}": value for key, value in getattr(self.loss, "diagnostics", {}).items()}

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings that the model card shows, those of the base loss among them."""
        return {"loss": {"class": type(self.loss).__name__, "settings": inner_settings(self.loss)}, **settings_of(self)}


def _check_values(adversarial_weight: float, filtering_weight: float, masking_ratio: float, balance: float | None) -> None:
    functional.check_weight("adversarial_weight", adversarial_weight, "0 leaves the objective out.")
    functional.check_weight("filtering_weight", filtering_weight, "0 leaves the objective out.")
    if not adversarial_weight and not filtering_weight:
        raise ValueError("adversarial_weight and filtering_weight are both 0, which is the base loss: train with that.")
    if not 0 < masking_ratio <= 1:
        raise ValueError(f"masking_ratio must be in (0, 1], got {masking_ratio}. The paper's is 0.2.")
    functional.check_balance(balance)
