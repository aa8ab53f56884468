import torch
from torch import nn

from sbert_plugins.losses.warm_up import WarmUp


def test_a_share_is_rounded():
    """0.29 * 100 is 28.999999999999996."""
    assert WarmUp(0.29, nn.Module()).is_on(0.29, torch.tensor(28), 100)
    assert not WarmUp(0.29, nn.Module()).is_on(0.29, torch.tensor(29), 100)
