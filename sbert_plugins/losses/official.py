"""The losses as the authors' public code computes them, for who compares with the papers' printed numbers.

That code and the papers part at the places below. Each class here is the main loss but for them, with the keywords that the
code was run with as its defaults; arguments, columns and terms are those of the main loss. ``benchmarks/fidelity.py`` runs
both side by side, from the same weights, on the same ids and draws: ``benchmarks/results/fidelity.json``.

Example:
    >>> from sentence_transformers import SentenceTransformer
    >>> from sbert_plugins.losses import official
    >>> loss = official.PTBERTLoss(SentenceTransformer("bert-base-uncased"))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from sbert_plugins import modules
from sbert_plugins.encoder import Encoder, GradientTap, Pass, require_tokenizer, sentence_width, transformer_of, unwrap
from sbert_plugins.losses import denosent, paser, pt_bert, slt_fai
from sbert_plugins.losses.decoding import in_own_dtype, linear_projector
from sbert_plugins.modules.denoising_decoder import DenoisingLayer, Places

__all__ = ["DenoSentLoss", "PTBERTLoss", "PaSeRLoss", "SLTFAILoss"]


def _start(module: nn.Module) -> None:
    """N(0, .02), biases 0: to be applied."""
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    for name, parameter in module.named_parameters(recurse=False):
        if name.endswith("bias"):
            nn.init.zeros_(parameter)


class PaSeRLoss(paser.PaSeRLoss):
    """PaSeR as in chengzhipanpan/PaSeR: :class:`losses.PaSeRLoss`, but for these.

    - The decoder reads what the encoder's whole embedding module gives (words, positions, LayerNorm, dropout), and trains it.
    - The output matrix is a copy of the word embeddings, trained apart from them.
    - Its attention and activations are without dropout; what it owns starts from N(0, .02), biases from 0.
    - The masked copy's vector passes a Linear. Difference and product keep their sign, factors are 1.
    - A row whose sentence or copy reaches ``max_seq_length`` is taken for truncated and not scored.

    Deviations:
        The masked language model never turns a token into a special one.
    """

    fixed: ClassVar = {"project_masked": True}

    def __init__(self, model: SentenceTransformer, **keywords: Any) -> None:
        code = {"difference_scale": 1.0, "product_scale": 1.0, "mlm_weight": 1.0, "normalize_memory": False}
        super().__init__(model, **({"decoder_layers": 6, "token_weights": None} | code | keywords))
        if isinstance(self.head, modules.MLMHead):  # without layers it need not be
            self.head.untie()
        self.projection = linear_projector(sentence_width(model))
        self.to(model.device)

    def _layered_decoder(self, **keywords: Any) -> modules.PhraseDecoder:
        decoder = super()._layered_decoder(**keywords).apply(_start)
        for layer in decoder.layers.layers:
            layer.self_attn.dropout = layer.multihead_attn.dropout = 0.0
            layer.dropout.p = 0.0  # between the two linear maps
        return decoder

    @property
    def decoder_inputs(self) -> Any:
        """The encoder's embedding module."""
        encoder = transformer_of(self.model)
        return getattr(encoder, "embeddings", None) or encoder.get_input_embeddings()

    def memory(self, sentences: Tensor, copies: Tensor) -> Tensor:
        """Return (B, 4, D), what the decoder reads, of two (B, D)."""
        return super().memory(sentences, in_own_dtype(self.projection, copies))

    def _usable(self, anchor: dict[str, Tensor], masked: dict[str, Tensor]) -> Tensor:
        longest = torch.maximum(*(column["attention_mask"].sum(dim=1) for column in (anchor, masked)))
        most: Any = unwrap(self.model).max_seq_length
        return longest < (most or torch.inf)


class DenoSentLoss(denosent.DenoSentLoss):
    """DenoSent as in xinghaow99/DenoSent: :class:`losses.DenoSentLoss`, but for these.

    - The decoder reads and scores the template's and special tokens, too.
    - Dropout hits its single attention weight, which is the whole memory at a place.
    - The paraphrase is restored, from the sentence's vector; the encoder's dropout of .1 is part of the noise, .8425.
    - Temperature .05, weights 5 and 7: the authors' script and released model, not the paper.

    Deviations:
        The noise is drawn anew, where the code's tenth of it is the draw of the encoder's own pass.
    """

    def __init__(self, model: SentenceTransformer, **keywords: Any) -> None:
        code = {"temperature": 0.05, "contrastive_weight": 5.0, "denoising_weight": 7.0, "noise_dropout": 0.8425}
        whole = {"decoder_layers": 16, "projector": True, "token_weights": None, "balance": None, "mlm_head": "pretrained"}
        super().__init__(model, **(whole | {"reconstruct": "paraphrase"} | code | keywords))

    def _scored(self, features: dict[str, Tensor]) -> tuple[Tensor, int]:
        return features["attention_mask"].bool(), features["input_ids"].shape[1]

    def _layered_decoder(self, build: type | None = None, **keywords: Any) -> modules.DenoisingDecoder:
        return super()._layered_decoder(build or _ForgettingDecoder, **keywords)


class _ForgettingLayer(DenoisingLayer):
    def _remember(self, memory: Tensor, places: Places) -> Tensor:
        value = places.each(self.memory_value(memory))
        weight = torch.ones_like(value[:, :1], dtype=torch.promote_types(value.dtype, torch.float32))  # bfloat16 rounds 1 / .9
        return self.memory_out((F.dropout(weight, self.dropout.p, self.training) * value).to(value.dtype))


class _ForgettingDecoder(modules.DenoisingDecoder):
    layer = _ForgettingLayer


class PTBERTLoss(pt_bert.PTBERTLoss):
    """PT-BERT as in Namco0816/PT-BERT: :class:`losses.PTBERTLoss`, but for these.

    - Pseudo tokens attend to the sentence vector alone. The attention has biases, the encoder's number of heads and dropout.
    - A batch is scored against its own keys and the queue before it, and enters the queue then: with 64 and 256 each sentence
      has 319 negatives.
    - The copy's second attention is the trained one.
    - The head starts from N(0, .02).

    Raises:
        ValueError: On tokens to attend to, or vectors whose width the encoder's heads do not divide.

    Deviations:
        The copy starts as the encoder. The code's starts from random weights, which leave it as .885 to the power of the
        updates: under 1 % after 38 of 15,625.
    """

    fixed: ClassVar = {"enqueue_first": False}

    def __init__(self, model: SentenceTransformer, **keywords: Any) -> None:
        super().__init__(model, **({"attend_to": "pooled"} | keywords))

    def _attention(self, num_pseudo_tokens: int, attend_to: str) -> _Attention | None:
        if attend_to != "pooled":
            raise ValueError(f"attend_to must be 'pooled' as in the official code, got {attend_to!r}: take losses.PTBERTLoss.")
        require_tokenizer(self.model.tokenizer)  # whose encoder is one of transformers
        config, size = transformer_of(self.model).config, sentence_width(self.model)
        dropout = getattr(config, "attention_probs_dropout_prob", 0.0)
        return _Attention(size, num_pseudo_tokens, config.num_attention_heads, dropout) if num_pseudo_tokens else None

    def _head(self, projection_head: bool) -> nn.Module:
        return super()._head(projection_head).apply(_start)

    @torch.no_grad()
    def _keys(self, column: dict[str, Tensor], *, training: bool) -> Tensor:
        trained: Any = self.mapping.attention
        copied: Any = self.momentum_encoder.copies[1]
        if trained is None:
            return super()._keys(column, training=training)
        sentences = self.momentum_encoder.encode(column, training=training).vectors
        return copied.head(trained.back(sentences, copied.attention.forth(sentences)))


class _Attention(modules.PseudoTokenAttention):
    """As BERT's, its two steps apart."""

    def __init__(self, dimension: int, num_pseudo_tokens: int, num_heads: int, dropout: float) -> None:
        super().__init__(dimension, num_pseudo_tokens=num_pseudo_tokens, attend_to="pooled")
        if dimension % num_heads:
            raise ValueError(f"the encoder's {num_heads} heads must divide the width of sentence vectors, got {dimension}.")
        self.query, self.key, self.value = (nn.Linear(dimension, dimension) for _ in range(3))
        self.num_heads = num_heads
        self.dropout = dropout

    def forward(self, sentence: Tensor, tokens: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        return self.back(sentence, self.forth(sentence))

    def forth(self, sentence: Tensor) -> Tensor:
        """Map (B, D) to the pseudo sentence (B, P, D)."""
        return self._attend(self.pseudo_tokens.expand(len(sentence), -1, -1), sentence.unsqueeze(1))

    def back(self, sentence: Tensor, pseudo_sentence: Tensor) -> Tensor:
        """Map it to (B, D)."""
        return self._attend(sentence.unsqueeze(1), pseudo_sentence).squeeze(1)

    def _attend(self, reader: Tensor, read: Tensor) -> Tensor:
        dtype = self.query.weight.dtype
        parts = (self.query, reader), (self.key, read), (self.value, read)
        q, k, v = (linear(x.to(dtype)).unflatten(2, (self.num_heads, -1)).transpose(1, 2) for linear, x in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0)
        return mixed.transpose(1, 2).flatten(2)


class SLTFAILoss(slt_fai.SLTFAILoss):
    r"""SLT-FAI as in wangbing1416/SLT-FAI: :class:`losses.SLTFAILoss`, but for these.

    - Its NT-Xent is a sum over both directions, times .15: seen from a mean, :math:`\alpha` and :math:`\beta` are 3.33.
    - The discriminators are linear maps, D - 2D - 2D - D - 2 for tokens, D - D - 2 for sentences, and a ReLU on the logits.
      Where both logits are below 0 nothing is learned: a term may start dead, at log 2 a token or sentence, and stay so.
    - Special tokens and padding are labelled rare and counted; the tokens of both views are read (of a base
      loss that is not of this library, those of its first pass).
    - The copy lacks each frequent token with probability .5, is seen without a view, and counts if nothing is masked.

    Deviations:
        The code leaves both objectives out in the first half of *each* of ten epochs; here ``warmup_steps`` is .05, once.
    """

    def __init__(self, model: SentenceTransformer, loss: nn.Module, **keywords: Any) -> None:
        code = {"adversarial_weight": 1 / 0.3, "filtering_weight": 1 / 0.3, "balance": None, "masking_ratio": 0.5}
        super().__init__(model, loss, **(code | {"warmup_steps": 0.05} | keywords))
        self.low_frequency[self.tokens.special[: len(self.low_frequency)]] = 1
        if self.adversarial_weight:
            width, strength = transformer_of(model).config.hidden_size, self.frequency_discriminator.reversal_strength
            self.frequency_discriminator = _RareDiscriminator(width, reversal_strength=strength)
        if self.filtering_weight:
            self.completeness_discriminator = _IncompleteDiscriminator(sentence_width(model))
        self.to(model.device)

    def _tell_rare(self, anchor: dict[str, Tensor], content: Tensor, seen: Sequence[Pass], tap: GradientTap | None) -> Tensor:
        every = torch.ones_like(content)
        return torch.stack([super(SLTFAILoss, self)._tell_rare(anchor, every, [one], tap) for one in seen]).mean()

    def _incomplete(self, encode: Encoder, anchor: dict[str, Tensor], original: Pass) -> tuple[Pass, Tensor]:
        ids = anchor["input_ids"]
        frequent = self.low_frequency[ids] == 0
        masked = frequent & (torch.rand(ids.shape, device=ids.device) < self.masking_ratio)
        copy = {**anchor, "input_ids": ids.masked_fill(masked, self.mask_token_id)}
        (incomplete,) = encode([copy], dropout=original.dropout, beside_ddp=True)
        return incomplete, torch.ones(len(ids), dtype=torch.bool, device=ids.device)


class _RareDiscriminator(modules.TokenFrequencyDiscriminator):
    def __init__(self, dimension: int, **keywords: Any) -> None:
        super().__init__(dimension, **keywords)
        widths = [dimension, 2 * dimension, 2 * dimension, dimension]
        self.inner = nn.Sequential(*map(nn.Linear, widths, widths[1:]))
        self.outer = nn.Linear(dimension, 2)

    def _logits(self, embeddings: Tensor) -> Tensor:
        return self.outer(self.inner(embeddings)).relu()


class _IncompleteDiscriminator(modules.CompletenessDiscriminator):
    def __init__(self, dimension: int) -> None:
        super().__init__(dimension, dimension)

    def _logits(self, embeddings: Tensor) -> Tensor:
        return self.outer(self.inner(embeddings)).relu()
