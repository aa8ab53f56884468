"""Tiny random encoders of many families, for the tests and for ``benchmarks/families.py``."""

from pathlib import Path
from typing import Any

import torch
from encoders import build_tokenizers
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
DEBERTA = {**SIZE, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
FUNNEL = {"architectures": ["FunnelModel"], "block_sizes": [1, 1], "d_model": 32, "n_head": 4, "d_head": 8}
XLM = {"emb_dim": 32, "n_layers": 2, "n_heads": 4}
# Family in transformers: kind of tokenizer (with "no mask" if it was pretrained without), and configuration.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("wordpiece", SIZE),
    "roberta": ("bpe", SIZE),
    "xlm-roberta": ("unigram", SIZE),
    "distilbert": ("wordpiece", {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}),
    "albert": ("unigram", {**SIZE, **DROPOUT, "embedding_size": 16}),
    "electra": ("wordpiece", {**SIZE, "embedding_size": 16}),
    "mpnet": ("wordpiece", SIZE),
    "deberta": ("bpe", DEBERTA),
    "deberta-v2": ("unigram", DEBERTA),
    "modernbert": ("bpe", {**SIZE, "embedding_dropout": 0.1, "attention_dropout": 0.1, "mlp_dropout": 0.1}),
    "eurobert": ("bpe", {**SIZE, "attention_dropout": 0.1}),
    "nomic_bert": ("wordpiece", {**SIZE, **DROPOUT}),
    "rembert": ("unigram", {**SIZE, **DROPOUT, "input_embedding_size": 16, "output_embedding_size": 48}),
    "longformer": ("bpe", {**SIZE, "attention_window": 64}),
    "big_bird": ("unigram", {**SIZE, "block_size": 8}),
    "xlnet": ("unigram", {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64}),
    "camembert": ("unigram", SIZE),
    "fnet": ("unigram", SIZE),
    "funnel": ("wordpiece", {**FUNNEL, "d_inner": 64}),
    "mobilebert": ("wordpiece", {**SIZE, "embedding_size": 16, "intra_bottleneck_size": 16}),
    "squeezebert": ("wordpiece", {**SIZE, "embedding_size": 32}),
    "convbert": ("wordpiece", {**SIZE, "embedding_size": 32}),
    "ernie": ("wordpiece", SIZE),
    "megatron-bert": ("wordpiece", SIZE),
    "roformer": ("wordpiece", {**SIZE, "embedding_size": 32}),
    "nystromformer": ("unigram", SIZE),
    "xmod": ("unigram", {**SIZE, "default_language": "en_XX"}),
    "xlm": ("bpe", XLM),
    "flaubert": ("bpe", XLM),
    "t5": ("unigram, no mask", {"d_model": 32, "num_layers": 2, "num_heads": 4, "d_kv": 8, "d_ff": 64}),
    "gpt2": ("bpe, no mask", {"n_embd": 32, "n_layer": 2, "n_head": 4}),
    "qwen3": ("bpe, no mask", {**SIZE, "num_key_value_heads": 2, "head_dim": 8, "attention_dropout": 0.1}),
}


def save_encoder(family: str, folder: str | Path) -> None:
    """Save a tiny random encoder with a tokenizer and, if the family has one, a head that predicts tokens."""
    kind, sizes = FAMILIES[family]
    cut, _, no_mask = kind.partition(", ")
    tokenizer = build_tokenizers(has_mask=not no_mask)[cut]
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("pad", "bos", "eos")}
    known = AutoConfig.for_model(family).to_dict()
    places = {name: 160 for name in ("max_position_embeddings", "n_positions") if name in known}
    config = AutoConfig.for_model(family, vocab_size=len(tokenizer), **ids, **places, **sizes)
    torch.manual_seed(0)
    has_head = family in MODEL_FOR_MASKED_LM_MAPPING_NAMES
    (AutoModelForMaskedLM if has_head else AutoModel).from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def load_encoder(folder: str | Path) -> SentenceTransformer:
    """Load an encoder with mean pooling."""
    transformer = Transformer(str(folder))
    pooling = Pooling(transformer.get_embedding_dimension(), "mean")
    return SentenceTransformer(modules=[transformer, pooling], device="cpu")
