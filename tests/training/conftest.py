import pytest


@pytest.fixture
def model(tiny_encoder):
    return tiny_encoder()
