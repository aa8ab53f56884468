"""BERT without padding, on a CPU: every layer computes the batch's own tokens only.

    packed.install()

A batch of short sentences is half padding, and without a kernel for batches of many lengths (flash attention, on a GPU) the
host computes all of it. Here linear maps, norms and dropout see the tokens in a row; only attention itself is padded. The
numbers at the tokens are those of the host up to rounding (``tests/benchmarks/test_packed.py``); at padding they are 0, and
dropout draws other noise from the same seed.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions
from transformers.models.bert.modeling_bert import BertEncoder

NAME = "packed"
_HOSTS = BertEncoder.forward


def install() -> None:
    """Let every BERT of this process that has ``attn_implementation`` "packed" compute its tokens only."""
    AttentionInterface.register(NAME, _attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    if BertEncoder.forward is not _forward:
        BertEncoder.forward = _forward


def use(transformer: Any, *, scores_in_bf16: bool = False) -> None:
    """Switch one BERT over; another architecture is left as it is.

    Args:
        transformer: The host's model.
        scores_in_bf16: Whether it embeds in bfloat16 where it does not train: less than half the time.
    """
    if transformer.config.model_type == "bert":
        transformer.config._attn_implementation = NAME
        transformer.encoder.scores_in_bf16 = scores_in_bf16


def _attention(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **keywords: Any) -> tuple:
    """Attend within sentences: (1, H, N, D) in and (1, N, H, D) out, padded in between."""
    places, shape = keywords["places"], keywords["shape"]
    padded = []
    for x in (query, key, value):
        flat = x.new_zeros(shape[0] * shape[1], x.shape[1], x.shape[3])
        padded.append(flat.index_copy(0, places, x[0].transpose(0, 1)).view(*shape, *flat.shape[1:]).transpose(1, 2))
    mixed = F.scaled_dot_product_attention(
        *padded, attn_mask=mask, dropout_p=keywords.get("dropout", 0.0), scale=keywords.get("scaling")
    )
    return mixed.transpose(1, 2).flatten(0, 1)[places].unsqueeze(0), None


def _forward(
    self: BertEncoder, hidden_states: Tensor, attention_mask: Tensor | None = None, *others: Any, **keywords: Any
) -> Any:
    if self.config._attn_implementation != NAME:  # another BERT of the process, a decoder for one
        return _HOSTS(self, hidden_states, attention_mask, *others, **keywords)
    shape = hidden_states.shape[:2]
    if attention_mask is None:
        kept = torch.ones(shape, dtype=torch.bool, device=hidden_states.device)
    else:
        kept = attention_mask[:, 0, 0, :]  # the keys that a sentence's first token sees: all its tokens
        kept = kept if kept.dtype == torch.bool else kept == 0
    places = kept.flatten().nonzero().squeeze(1)
    mask = kept[:, None, None, :]
    packed = hidden_states.flatten(0, 1)[places].unsqueeze(0)
    with torch.autocast("cpu", torch.bfloat16) if self.scores_in_bf16 and not self.training else nullcontext():
        for layer in self.layer:
            packed = layer(packed, mask, None, places=places, shape=shape)
    packed = packed.to(hidden_states.dtype)
    padded = hidden_states.new_zeros(shape[0] * shape[1], packed.shape[2]).index_copy(0, places, packed[0])
    return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=padded.view(*shape, -1))
