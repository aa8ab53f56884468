import numpy as np
import torch

from sbert_plugins.modules import ProjectionHead


def test_is_a_linear_map_and_tanh():
    head = ProjectionHead(6)
    x = torch.randn(3, 6)
    weight, bias = (parameter.detach().numpy() for parameter in head.linear.parameters())
    np.testing.assert_allclose(head(x).detach().numpy(), np.tanh(x.numpy() @ weight.T + bias), atol=1e-6)


def test_takes_an_encoder_of_another_dtype():
    assert ProjectionHead(6)(torch.randn(3, 6, dtype=torch.bfloat16)).dtype == torch.float32
