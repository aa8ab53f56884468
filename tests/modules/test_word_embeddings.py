import copy

import pytest
import torch
from encoders import ARCHITECTURES
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from transformers import GPT2Config

from sbert_plugins.modules import WordEmbeddings


def table_of(model):
    return model.transformers_model.get_input_embeddings().weight


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_scores_are_products(tiny_encoder, architecture):
    model = tiny_encoder(architecture)
    words, ids = WordEmbeddings(model), torch.tensor([7, 5, 30])
    vectors = torch.randn(5, words.width)
    expected = torch.einsum("ne,ve->nv", vectors, table_of(model))
    assert torch.allclose(words(vectors), expected, atol=1e-5)
    assert torch.allclose(words(vectors, ids), expected[:, ids], atol=1e-5)


def test_the_table_learns_and_is_the_encoders(tiny_encoder):
    model = tiny_encoder()
    words = WordEmbeddings(model)
    assert [id(parameter) for parameter in words.parameters()] == [id(table_of(model))]
    words(torch.randn(5, 32), torch.tensor([7, 5, 30])).sum().backward()
    assert table_of(model).grad.abs().sum(dim=1).nonzero().flatten().tolist() == [5, 7, 30]


def test_it_follows_the_encoder(tiny_encoder):
    """Into another dtype, and to embeddings that have taken the place of those it was built with."""
    model = tiny_encoder()
    words = WordEmbeddings(model)
    model.bfloat16()
    model.transformers_model.set_input_embeddings(copy.deepcopy(model.transformers_model.get_input_embeddings()))
    words.follow(model)
    assert words.table is table_of(model)
    assert words(torch.randn(3, 32)).dtype == torch.bfloat16


def test_more_words_than_before_are_an_error(tiny_encoder):
    model = tiny_encoder()
    words, size = WordEmbeddings(model), len(table_of(model))
    model.transformers_model.resize_token_embeddings(size + 3, mean_resizing=False)
    with pytest.raises(ValueError, match=f"must keep the {size:,} word embeddings .* got {size + 3:,}"):
        words.follow(model)


def test_a_family_without_a_head_will_do(tiny_encoder):
    model = tiny_encoder()
    model.transformers_model.config = GPT2Config()
    assert WordEmbeddings(model)(torch.randn(2, 32)).shape == (2, len(table_of(model)))


def test_a_padding_of_zeros_stays_so(tiny_encoder):
    model = tiny_encoder()
    pad = model.tokenizer.pad_token_id
    with torch.no_grad():
        table_of(model)[pad] = 0
    WordEmbeddings(model)(torch.randn(4, 32)).logsumexp(dim=1).sum().backward()
    gradient = table_of(model).grad
    assert not gradient[pad].any()
    assert gradient.any(dim=1).sum() == len(gradient) - 1


def test_static_embeddings(tokenizers):
    model = SentenceTransformer(modules=[StaticEmbedding(tokenizers["bpe"].backend_tokenizer, embedding_dim=8)])
    with pytest.raises(ValueError, match="scored with a transformers encoder, got NoneType"):
        WordEmbeddings(model)
