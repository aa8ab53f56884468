from contextlib import nullcontext

import pytest
import torch
from encoders import SENTENCES
from sentence_transformers.base.losses.merged_forward import embed_columns

from sbert_plugins.encoder import (
    TokenRoles,
    View,
    apply_mask_template,
    dropout_off,
    encoder_tokens_kept,
    sentence_width,
    shared_passes,
    viewed,
)


@pytest.fixture
def model(tiny_encoder):
    return tiny_encoder().train()


@pytest.fixture
def passes(model):
    """The number of rows of each pass that was really made."""
    made = []
    model[0].register_forward_hook(lambda module, arguments, output: made.append(len(output["token_embeddings"])))
    return made


def vectors(model, features):
    return model(dict(features))["sentence_embedding"]


def test_the_same_pass_is_made_once(model, passes):
    features = model.preprocess(SENTENCES)
    with shared_passes(model) as begin_loss:
        found = []
        for _ in range(3):
            begin_loss()
            found.append([vectors(model, features), vectors(model, features)])
    assert len(passes) == 2
    assert found[0][0] is found[1][0] is found[2][0]
    assert found[0][1] is found[1][1]
    assert not torch.equal(found[0][0], found[0][1])  # two passes of one loss are two dropout views


def test_merged_columns_are_shared_too(model, passes):
    features, other = model.preprocess(SENTENCES), model.preprocess(SENTENCES[::-1])
    with shared_passes(model) as begin_loss:
        begin_loss()
        first = embed_columns(model, [dict(features), dict(other)], separate_first=False)
        begin_loss()
        second = embed_columns(model, [dict(other), dict(features)], separate_first=False)
    assert len(passes) == 2
    assert first[0] is second[1]
    assert first[1] is second[0]


def test_what_differs_is_made_anew(model, passes):
    features = model.preprocess(SENTENCES)
    masked = {**features, "input_ids": features["input_ids"].clone()}
    view = View(["token_cutoff"], TokenRoles(model.tokenizer).content(features))
    with shared_passes(model) as begin_loss:
        for _ in range(2):
            begin_loss()
            vectors(model, features)
        assert len(passes) == 1
        for _ in range(2):
            begin_loss()
            with dropout_off(model):
                vectors(model, features)
            with torch.no_grad():
                assert not vectors(model, features).requires_grad
            vectors(model, masked)
        assert len(passes) == 4
        for _ in range(2):
            begin_loss()
            with viewed(model, view):
                vectors(model, features)
        assert len(passes) == 6


def test_gradients_are_the_sum(model):
    features = model.eval().preprocess(SENTENCES)
    weight = model[0].model.embeddings.word_embeddings.weight

    def gradient(context):
        model.zero_grad()
        terms = []
        with context as begin_loss:
            for power in (1, 2):
                begin_loss()
                terms.append(vectors(model, features).pow(power).sum())
        sum(terms).backward()
        return weight.grad.clone()

    assert torch.allclose(gradient(shared_passes(model)), gradient(nullcontext(lambda: None)), atol=1e-5)


def test_outputs_of_one_loss_do_not_reach_the_next(model):
    features = model.preprocess(SENTENCES)
    with shared_passes(model) as begin_loss:
        begin_loss()
        first = model(dict(features))
        first["sentence_embedding"] = None
        begin_loss()
        assert model(dict(features))["sentence_embedding"] is not None


def test_the_model_is_left_as_it_was(model):
    with shared_passes(model), pytest.raises(RuntimeError, match="inside"), shared_passes(model):
        raise RuntimeError("inside")
    assert "forward" not in vars(model)
    model.forward = original = lambda features: features
    with shared_passes(model):
        assert model.forward is not original
    assert model.forward is original


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
