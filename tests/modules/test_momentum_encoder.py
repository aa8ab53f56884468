import pytest
import reference
import torch
from torch import nn

from sbert_plugins.modules import MomentumEncoder, ProjectionHead


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.projection = ProjectionHead(32)

    def forward(self, seen):
        return self.projection(seen.vectors)


@pytest.fixture
def parts(tiny_encoder):
    return tiny_encoder(), Head()


def test_is_an_exact_frozen_copy(parts):
    model, head = parts
    slow = MomentumEncoder(model, head, momentum=0.9)
    features = model.preprocess(["It is raining.", "Prices fell."])
    before = dict(features)
    model.eval()
    assert torch.equal(slow(features, training=False), head.projection(model(dict(features))["sentence_embedding"]))
    assert set(features) == set(before)
    assert not any(parameter.requires_grad for parameter in slow.parameters())
    originals = [*model.parameters(), *head.parameters()]
    assert len(originals) == len(list(slow.parameters()))
    assert all(a is not b and torch.equal(a, b) for a, b in zip(slow.parameters(), originals, strict=True))


def test_after_k_updates_it_is_the_closed_form(parts):
    """theta_k = m^k theta_0 + (1 - m^k) theta, and the reference's loop."""
    head = parts[1]
    slow = MomentumEncoder(head, momentum=0.885)
    start = [parameter.detach().clone() for parameter in head.parameters()]
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(torch.randn_like(parameter))
    expected = [parameter.numpy() for parameter in start]
    for _ in range(5):
        slow.update(head)
        expected = reference.momentum_update(expected, [p.detach().numpy() for p in head.parameters()], m=0.885)
    for average, first, value, stepped in zip(slow.parameters(), start, head.parameters(), expected, strict=True):
        torch.testing.assert_close(average, 0.885**5 * first + (1 - 0.885**5) * value)
        assert abs(average.numpy() - stepped).max() <= 1e-6


def test_it_stays_in_full_precision(parts):
    """``loss.bfloat16()`` is of the copies, too, and most of their steps are below its last bit."""
    model, head = parts
    slow = MomentumEncoder(model, head, momentum=0.99)
    for part in (slow, model, head):
        part.bfloat16()
    slow.encode(model.preprocess(["It is raining."]), training=False)
    assert {parameter.dtype for parameter in slow.parameters()} == {torch.float32}


@pytest.mark.parametrize("dropout", [True, False])
def test_its_mode_follows_training_and_dropout(parts, dropout):
    model, head = parts
    slow = MomentumEncoder(model, head, momentum=0.9, dropout=dropout)
    features = model.preprocess(["It is raining."] * 2)
    first, second = (slow(features, training=True) for _ in range(2))
    assert torch.equal(first, second) != dropout
    first, second = (slow(features, training=False) for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("momentum", [-0.1, 1.0, 2])
def test_momentum(parts, momentum):
    with pytest.raises(ValueError, match=rf"momentum must be in \[0, 1\), got {momentum}"):
        MomentumEncoder(*parts, momentum=momentum)
