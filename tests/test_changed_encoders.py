"""Every method with an encoder that is changed after the loss was built."""

import pytest
from methods import METHODS


def step(loss, model, dataset):
    rows = dataset(8)
    terms = loss([model.preprocess(rows[column][:]) for column in rows.column_names])
    sum(terms.values()).backward()
    return terms


@pytest.mark.parametrize("part", ["model", "loss"])
@pytest.mark.parametrize("method", METHODS)
def test_half_precision(method, part, tiny_encoder):
    (build, dataset), model = METHODS[method], tiny_encoder().train()
    loss = build(model)
    (loss if part == "loss" else model).bfloat16()
    terms = step(loss, model, dataset)
    gradients = [parameter.grad for parameter in loss.parameters() if parameter.grad is not None]
    assert gradients and all(x.isfinite().all() for x in (*gradients, *terms.values()))


@pytest.mark.parametrize("method", METHODS)
def test_a_frozen_encoder_with_some_trained_weights(method, tiny_encoder):
    """As with adapters: only these get a gradient."""
    (build, dataset), model = METHODS[method], tiny_encoder().train()
    loss = build(model)
    model.requires_grad_(False)
    trained = model.transformers_model.encoder.layer[1].requires_grad_(True)
    step(loss, model, dataset)
    assert all(parameter.grad is not None for parameter in trained.parameters())
    assert sum(parameter.grad is not None for parameter in model.parameters()) == len(
        list(trained.parameters())
    )
