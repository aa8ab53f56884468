import numpy as np
import torch
from sentence_transformers import util

from sbert_plugins.modules import ProjectionHead


def test_is_a_linear_map_and_tanh():
    head = ProjectionHead(6)
    x = torch.randn(3, 6)
    weight, bias = (parameter.detach().numpy() for parameter in head.linear.parameters())
    np.testing.assert_allclose(head(x).detach().numpy(), np.tanh(x.numpy() @ weight.T + bias), atol=1e-6)


def test_takes_an_encoder_of_another_dtype():
    assert ProjectionHead(6)(torch.randn(3, 6, dtype=torch.bfloat16)).dtype == torch.float32


def test_starts_with_the_cosines_that_the_vectors_have():
    """Give or take 1 / sqrt(D), so that the first updates teach the encoder and not how to read a head."""
    torch.manual_seed(0)
    groups = torch.randn(8, 1, 384) + torch.randn(8, 8, 384) * torch.linspace(0.2, 2, 8)[:, None]
    vectors = groups.flatten(0, 1) / 4  # as long as those of a small encoder
    projected = ProjectionHead(384)(vectors)
    cosines, after = (util.cos_sim(x, x).detach() for x in (vectors, projected))
    assert (after - cosines).abs().mean() < 384**-0.5
