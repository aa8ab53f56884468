import numpy as np
import pytest
import torch

from sbert_plugins.modules import CompletenessDiscriminator, TokenFrequencyDiscriminator


@pytest.mark.parametrize("kind", [TokenFrequencyDiscriminator, CompletenessDiscriminator])
class TestBoth:
    def test_is_linear_relu_linear(self, kind):
        module = kind(6)
        x = torch.randn(2, 3, 6)
        w1, b1, w2, b2 = (parameter.detach().numpy() for parameter in module.parameters())
        assert w1.shape == (12, 6)
        expected = np.maximum(x.numpy() @ w1.T + b1, 0) @ w2.T + b2
        np.testing.assert_allclose(module(x).detach().numpy(), expected, atol=1e-6)

    def test_logits_may_be_negative(self, kind):
        """The official code has the ReLU behind the logits, where it stops gradients."""
        logits = kind(6)(torch.randn(200, 1, 6))
        assert (logits < 0).any()

    def test_takes_an_encoder_of_another_dtype(self, kind):
        assert kind(6, 4)(torch.randn(2, 3, 6, dtype=torch.bfloat16)).dtype == torch.float32

    def test_vectors_of_another_width(self, kind):
        with pytest.raises(ValueError, match=r"reads vectors of width 6, for which the loss was built, got 4 \(Matryoshka"):
            kind(6)(torch.randn(2, 3, 4))

    def test_width(self, kind):
        with pytest.raises(ValueError, match="hidden_dimension must be at least 1, got 0"):
            kind(6, 0)


@pytest.mark.parametrize("strength", [0.5, 1.0])
def test_reversed_before_and_not_within(strength):
    """The input's gradient is minus strength times the plain one; the discriminator's own is the plain one."""
    module = TokenFrequencyDiscriminator(6, reversal_strength=strength)
    x = torch.randn(2, 3, 6, requires_grad=True)
    module(x).pow(2).sum().backward()
    reversed_, own = x.grad.clone(), [parameter.grad.clone() for parameter in module.parameters()]
    x.grad = None
    module.zero_grad()
    module.outer(module.inner(x).relu()).pow(2).sum().backward()
    assert torch.equal(reversed_, -strength * x.grad)
    assert all(torch.equal(a, parameter.grad) for a, parameter in zip(own, module.parameters(), strict=True))


def test_completeness_is_not_reversed():
    module = CompletenessDiscriminator(6)
    x = torch.randn(4, 6, requires_grad=True)
    module(x)[:, 0].sum().backward()
    step = x.detach() - 0.1 * x.grad
    assert module(step)[:, 0].sum() < module(x)[:, 0].sum()


def test_diagnostics_of_tokens_by_hand():
    """Three tokens count, of which one is rare and the second is called wrongly; the last one says nothing."""
    module = TokenFrequencyDiscriminator(2)
    module._logits = lambda embeddings: embeddings
    calls = torch.eye(2)[torch.tensor([[1, 1, 0, 1]])]
    _, found = module.loss(calls, torch.tensor([[1, 0, 0, 1]]), torch.tensor([[True, True, True, False]]))
    expected = {"frequency_accuracy": 2 / 3, "low_share": 1 / 3}
    assert {name: value.item() for name, value in found.items()} == pytest.approx(expected)


def test_diagnostics_of_sentences_by_hand():
    """Of two pairs that differ one original is taken for a copy; the third pair says nothing."""
    module = CompletenessDiscriminator(2)
    module._logits = lambda embeddings: embeddings
    originals, copies = (torch.eye(2)[torch.tensor(calls)] for calls in ([0, 1, 0], [1, 1, 1]))
    _, found = module.loss(originals, copies, torch.tensor([True, True, False]))
    expected = {"completeness_accuracy": 3 / 4, "masked_share": 2 / 3}
    assert {name: value.item() for name, value in found.items()} == pytest.approx(expected)


def test_with_nothing_to_judge_no_share_is_a_number():
    nothing = torch.zeros(1, 3)
    _, found = TokenFrequencyDiscriminator(2).loss(torch.randn(1, 3, 2), nothing.long(), nothing.bool())
    assert all(value.isnan() for value in found.values())
    _, found = CompletenessDiscriminator(2).loss(torch.randn(2, 2), torch.randn(2, 2), torch.zeros(2).bool())
    assert found["completeness_accuracy"].isnan()
    assert found["masked_share"] == 0
