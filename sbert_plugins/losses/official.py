"""The losses as the authors' public code computes them, for comparisons with the papers' printed numbers.

Each class is the loss of the paper with the differences that its docstring lists. Columns, terms and
arguments are the same, except for ``attend_to`` of PT-BERT, which is fixed. ``benchmarks/fidelity.py``
compares values and gradients with the authors' code.

Example:
    >>> from sentence_transformers import SentenceTransformer
    >>> from sbert_plugins.losses import official
    >>> loss = official.PTBERTLoss(SentenceTransformer("bert-base-uncased"))
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from sbert_plugins import modules
from sbert_plugins.encoder import Encoder, GradientTap, Pass, sentence_width, transformer_of, unwrap
from sbert_plugins.losses import denosent, paser, pt_bert, slt_fai
from sbert_plugins.modules.denoising_decoder import DenoisingLayer, Places

__all__ = ["DenoSentLoss", "PTBERTLoss", "PaSeRLoss", "SLTFAILoss"]


def _start(module: nn.Module) -> None:
    """Set weights from N(0, 0.02) and biases to 0, for ``nn.Module.apply``."""
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    for name, parameter in module.named_parameters(recurse=False):
        if name.endswith("bias"):
            nn.init.zeros_(parameter)


class PaSeRLoss(paser.PaSeRLoss):
    """PaSeR as in chengzhipanpan/PaSeR, which differs from :class:`losses.PaSeRLoss`.

    - The decoder reads the output of the encoder's whole embedding module (words, positions, LayerNorm,
      dropout), and trains it.
    - The output matrix is a copy of the word embeddings, which is trained separately.
    - The decoder has no dropout in its attention and activations; its weights start from N(0, 0.02), biases
      from 0.
    - The masked copy's vector passes a Linear layer. The factors of difference and product are 1; no
      LayerNorm.
    - A row whose sentence or copy has the maximum number of tokens counts as truncated and is not scored.

    Deviations:
        The masked language model never replaces a token by a special one.
    """

    def __init__(self, model: SentenceTransformer, **keywords: Any) -> None:
        code = {"difference_scale": 1.0, "product_scale": 1.0, "normalize_memory": False}
        super().__init__(model, **(code | keywords))
        if isinstance(self.head, modules.MLMHead):
            self.head.untie()
        width = sentence_width(model)
        self.projection = nn.Linear(width, width).apply(_start)
        self.to(model.device)

    def _build_decoder(self) -> modules.PhraseDecoder:
        decoder = super()._build_decoder().apply(_start)
        for layer in decoder.layers.layers:
            layer.self_attn.dropout = layer.multihead_attn.dropout = layer.dropout.p = 0.0
        return decoder

    @property
    def decoder_inputs(self) -> Any:
        """The encoder's embedding module."""
        encoder = transformer_of(self.model)
        return getattr(encoder, "embeddings", None) or encoder.get_input_embeddings()

    def memory(self, sentences: Tensor, copies: Tensor) -> Tensor:
        """Return (B, 4, D), the decoder's memory, from two (B, D)."""
        return super().memory(sentences, self.projection(copies.to(self.projection.weight.dtype)))

    def _find_usable_rows(self, anchor: dict[str, Tensor], masked: dict[str, Tensor]) -> Tensor:
        limit = self.max_length or unwrap(self.model).max_seq_length or torch.inf
        lengths = [column["attention_mask"].sum(dim=1) for column in (anchor, masked)]  # (B,) each
        return torch.maximum(*lengths) < limit


class _ForgettingLayer(DenoisingLayer):
    def _read_memory(self, memory: Tensor, places: Places) -> Tensor:
        value = places.repeated(self.memory_value(memory))
        # float32, because bfloat16 rounds 1 / 0.9.
        weight = torch.ones_like(value[:, :1], dtype=torch.promote_types(value.dtype, torch.float32))
        weight = F.dropout(weight, self.dropout.p, self.training)
        return self.memory_out((weight * value).to(value.dtype))


class _ForgettingDecoder(modules.DenoisingDecoder):
    layer = _ForgettingLayer


class DenoSentLoss(denosent.DenoSentLoss):
    """DenoSent as in xinghaow99/DenoSent, which differs from :class:`losses.DenoSentLoss`.

    - The decoder reads and scores the template's and special tokens, too.
    - Dropout on the attention weight can remove the whole memory at a place.
    - The paraphrase is restored, from the sentence's vector. The encoder's dropout of 0.1 is part of the
      noise: 0.8425.
    - Temperature 0.05, weights 5 and 7, as in the authors' script and released model.

    Deviations:
        All of the noise is drawn anew. In the code, the encoder's part of it is the draw of the encoder's own
        pass.
    """

    decoder_class = _ForgettingDecoder

    def __init__(self, model: SentenceTransformer, **keywords: Any) -> None:
        code: dict[str, Any] = {
            "temperature": 0.05,
            "contrastive_weight": 5.0,
            "denoising_weight": 7.0,
            "noise_dropout": 0.8425,
            "reconstruct": "paraphrase",
        }
        super().__init__(model, **(code | keywords))

    def _scored_tokens(self, features: dict[str, Tensor]) -> tuple[Tensor, int]:
        return features["attention_mask"].bool(), features["input_ids"].shape[1]


class PTBERTLoss(pt_bert.PTBERTLoss):
    """PT-BERT as in Namco0816/PT-BERT, which differs from :class:`losses.PTBERTLoss`.

    - Pseudo tokens attend to the sentence vector alone. The attention has biases, dropout and the encoder's
      number of heads.
    - A batch is scored against its own keys and the queue before it: with a batch of 64 and a queue of 256,
      each sentence has 319 negatives.
    - The momentum encoder's second attention is the trained one.
    - The head starts from N(0, 0.02).

    Deviations:
        The momentum encoder starts as a copy of the encoder. The code's starts from random weights. Each
        update multiplies their share by 0.885: after 38 of 15,625 updates it is below 1 %.
    """

    enqueue_first = False

    def __init__(self, model: SentenceTransformer, **keywords: Any) -> None:
        super().__init__(model, attend_to="pooled", **keywords)

    def _build_attention(self) -> "_Attention":
        config, width = transformer_of(self.model).config, sentence_width(self.model)
        dropout = getattr(config, "attention_probs_dropout_prob", 0.0)
        return _Attention(width, self.num_pseudo_tokens, config.num_attention_heads, dropout)

    def _build_head(self) -> nn.Module:
        return super()._build_head().apply(_start)

    @torch.no_grad()
    def _keys(self, column: dict[str, Tensor], *, training: bool) -> Tensor:
        trained: Any = self.mapping.attention
        copied: Any = self.momentum_encoder.copies[1]
        if trained is None:
            return super()._keys(column, training=training)
        sentences = self.momentum_encoder.encode(column, training=training).vectors
        return copied.head(trained.map_back(sentences, copied.attention.map_forth(sentences)))


class _Attention(modules.PseudoTokenAttention):
    """The attention of BERT, with its two steps as methods."""

    def __init__(self, dimension: int, num_pseudo_tokens: int, num_heads: int, dropout: float) -> None:
        super().__init__(dimension, num_pseudo_tokens=num_pseudo_tokens, attend_to="pooled")
        self.query, self.key, self.value = (nn.Linear(dimension, dimension) for _ in range(3))
        self.num_heads = num_heads
        self.dropout = dropout

    def forward(self, sentence: Tensor, tokens: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        return self.map_back(sentence, self.map_forth(sentence))

    def map_forth(self, sentence: Tensor) -> Tensor:
        """Map (B, D) to the pseudo sentence (B, P, D)."""
        return self._attend(self.pseudo_tokens.expand(len(sentence), -1, -1), sentence.unsqueeze(1))

    def map_back(self, sentence: Tensor, pseudo_sentence: Tensor) -> Tensor:
        """Map the pseudo sentence to (B, D)."""
        return self._attend(sentence.unsqueeze(1), pseudo_sentence).squeeze(1)

    def _attend(self, queries: Tensor, keys: Tensor) -> Tensor:
        dtype = self.query.weight.dtype
        parts = (self.query, queries), (self.key, keys), (self.value, keys)
        q, k, v = (
            linear(x.to(dtype)).unflatten(2, (self.num_heads, -1)).transpose(1, 2) for linear, x in parts
        )
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0)
        return mixed.transpose(1, 2).flatten(2)


class SLTFAILoss(slt_fai.SLTFAILoss):
    r"""SLT-FAI as in wangbing1416/SLT-FAI, which differs from :class:`losses.SLTFAILoss`.

    - Its NT-Xent is a sum over both directions, times 0.15. Relative to a mean, :math:`\alpha` and
      :math:`\beta` are 3.33.
    - The discriminators are linear maps, D - 2D - 2D - D - 2 for tokens and D - D - 2 for sentences, with a
      ReLU on the logits. Where both logits are below 0 nothing is learned: a term may stay where it starts.
    - Special tokens and padding count as rare tokens. The tokens of both views are read.
    - Each frequent token of the copy is masked with probability 0.5. The copy has no view. It counts even
      if nothing is masked.

    Deviations:
        The code leaves out both objectives in the first half of each of ten epochs; here ``warmup_steps`` is
        0.05, once.
    """

    def __init__(self, model: SentenceTransformer, loss: nn.Module | None = None, **keywords: Any) -> None:
        code = {
            "adversarial_weight": 1 / 0.3,
            "filtering_weight": 1 / 0.3,
            "masking_ratio": 0.5,
            "warmup_steps": 0.05,
        }
        super().__init__(model, loss, **(code | keywords))
        self.low_frequency[self.tokens.special[: len(self.low_frequency)]] = 1
        if self.adversarial_weight:
            width = transformer_of(model).config.hidden_size
            self.frequency_discriminator.layers = _linear_maps(width, 2 * width, 2 * width, width, 2)
        if self.filtering_weight:
            width = sentence_width(model)
            self.completeness_discriminator.layers = _linear_maps(width, width, 2)
        self.to(model.device)

    def _tokens_to_classify(self, anchor: dict[str, Tensor]) -> Tensor:
        return torch.ones_like(anchor["input_ids"], dtype=torch.bool)

    def _classify_tokens(
        self, anchor: dict[str, Tensor], seen: Sequence[Pass], tap: GradientTap | None
    ) -> Tensor:
        return torch.stack(
            [super(SLTFAILoss, self)._classify_tokens(anchor, [one], tap) for one in seen]
        ).mean()

    def _encode_incomplete(
        self, encode: Encoder, anchor: dict[str, Tensor], original: Pass
    ) -> tuple[Pass, Tensor]:
        ids = anchor["input_ids"]
        masked = (self.low_frequency[ids] == 0) & (
            torch.rand(ids.shape, device=ids.device) < self.masking_ratio
        )
        copy = {**anchor, "input_ids": ids.masked_fill(masked, self.mask_token_id)}
        (incomplete,) = encode([copy], dropout=original.dropout, bypass_ddp=True)
        return incomplete, torch.ones(len(ids), dtype=torch.bool, device=ids.device)


def _linear_maps(*widths: int) -> nn.Sequential:
    """Return linear maps from each width to the next, and a ReLU on the output."""
    return nn.Sequential(*map(nn.Linear, widths, widths[1:]), nn.ReLU())
