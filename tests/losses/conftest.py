import pytest


@pytest.fixture
def encoder(tiny_encoder):
    return tiny_encoder("bert", "mean").train()
