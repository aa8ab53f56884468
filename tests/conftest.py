"""Shared fixtures: tiny random encoders, all-MiniLM-L6-v2, and the directory of real data."""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # no test may touch the network

import copy
from pathlib import Path

import pytest
import torch
import transformers
from encoders import ARCHITECTURES, build_tokenizers
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import AutoConfig, AutoModel

from sbert_plugins import recipes

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)  # tiny models: threads would only wait for each other


@pytest.fixture(scope="session")
def tokenizers():
    return build_tokenizers()


@pytest.fixture(scope="session")
def tiny_encoder(tokenizers, tmp_path_factory):
    """Build ``tiny_encoder(architecture="bert", pooling="cls", **config)``: a random encoder, the same every time."""
    built: dict[str, SentenceTransformer] = {}

    def build(architecture: str = "bert", pooling: str = "cls", **config) -> SentenceTransformer:
        key = f"{architecture} {pooling} {sorted(config.items())}"
        if key not in built:
            kind, size = ARCHITECTURES[architecture]
            tokenizer = tokenizers[kind]
            with torch.random.fork_rng():
                torch.manual_seed(0)
                model = AutoModel.from_config(
                    AutoConfig.for_model(
                        architecture,
                        vocab_size=len(tokenizer),
                        max_position_embeddings=160,
                        pad_token_id=tokenizer.pad_token_id,
                        initializer_range=0.2,  # ten times the usual: sentence vectors that differ
                        **{**size, **config},
                    )
                )
            folder = tmp_path_factory.mktemp("tiny")
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            transformer = Transformer(str(folder))
            pooled = Pooling(transformer.get_embedding_dimension(), pooling)
            built[key] = SentenceTransformer(modules=[transformer, pooled], device="cpu")
        return copy.deepcopy(built[key])

    return build


@pytest.fixture(scope="session")
def encoder_path(tiny_encoder, tmp_path_factory) -> str:
    """A tiny encoder on disk, for processes of their own."""
    folder = tmp_path_factory.mktemp("encoder")
    tiny_encoder().save_pretrained(str(folder))
    return str(folder)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The directory of real data. Without it the tests on real data are skipped, but never in CI."""
    if "SBERT_PLUGINS_DATA" not in os.environ:
        if os.environ.get("CI"):
            pytest.fail("CI must set SBERT_PLUGINS_DATA: the tests on real data may not be skipped there.")
        pytest.skip("SBERT_PLUGINS_DATA is not set: it names a directory with the STS tasks (README, Development).")
    return Path(os.environ["SBERT_PLUGINS_DATA"])


@pytest.fixture(scope="session")
def minilm() -> SentenceTransformer:
    """all-MiniLM-L6-v2 with its own pooling, from the installed package."""
    return recipes.offline_encoder(num_layers=6, max_seq_length=256, device="cpu")
