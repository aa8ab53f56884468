import pytest
import torch
from encoders import SENTENCES

from sbert_plugins.encoder import apply_mask_template, sentence_width
from sbert_plugins.encoder.passes import encoder_tokens_kept


@pytest.fixture
def model(tiny_encoder):
    return tiny_encoder().train()


def test_token_embeddings_of_a_compiled_template_are_refused(model):
    with encoder_tokens_kept(torch.compile(model)):  # without a template they come out as they are
        pass
    with pytest.raises(ValueError, match=r"mask template must not be compiled.*Train without torch_compile"):
        encoder_tokens_kept(torch.compile(apply_mask_template(model))).__enter__()


def test_the_width_of_a_pass_is_not_that_of_encode(model):
    model.truncate_dim = 8
    assert model.get_embedding_dimension() == 8
    assert sentence_width(model) == model(model.preprocess(SENTENCES))["sentence_embedding"].shape[1] == 32
    assert model.truncate_dim == 8
