"""BERT without padding is the host's, and embeds in bfloat16 only where that is asked for and nothing trains."""

import sys
from pathlib import Path

import pytest
import torch
from transformers.models.bert.modeling_bert import BertEncoder

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import packed

SENTENCES = ["A dog runs.", "A small dog runs across the wide green field.", "Rain."]


@pytest.fixture
def build(tiny_encoder, monkeypatch):
    monkeypatch.setattr(BertEncoder, "forward", BertEncoder.forward)  # put back afterwards
    packed.install()

    def build(**keywords):
        model = tiny_encoder()
        packed.use(model.transformers_model, **keywords)
        return model

    return build


def test_without_padding_the_vectors_are_the_hosts(build, tiny_encoder):
    expected = tiny_encoder().encode(SENTENCES, convert_to_tensor=True)
    torch.testing.assert_close(build().encode(SENTENCES, convert_to_tensor=True), expected, atol=1e-6, rtol=1e-5)


def test_scores_in_bfloat16_and_trains_in_float32(build):
    exact, halved = build(), build(scores_in_bf16=True)
    a, b = (model.encode(SENTENCES, convert_to_tensor=True) for model in (exact, halved))
    assert b.dtype == torch.float32
    assert not torch.equal(a, b)
    assert torch.cosine_similarity(a, b).min() > 0.999
    features = exact.preprocess(SENTENCES)
    for model in (exact, halved):
        model.train()
    vectors = []
    for model in (exact, halved):
        torch.manual_seed(0)
        vectors.append(model(dict(features))["sentence_embedding"])
    assert torch.equal(*vectors)
