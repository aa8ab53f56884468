import pytest
import torch
from sentence_transformers import util

from sbert_plugins import functional
from sbert_plugins.modules import (
    CompletenessDiscriminator,
    ProjectionHead,
    PseudoTokenAttention,
    TokenFrequencyDiscriminator,
)


def test_the_projection_head_starts_with_nearly_the_cosines_of_the_vectors():
    head, groups = ProjectionHead(384), torch.randn(8, 1, 384)
    vectors = (groups + torch.randn(8, 8, 384) * torch.linspace(0.2, 2, 8)[:, None]).flatten(0, 1) / 4
    projected = head(vectors).detach()
    assert torch.equal(projected, head.linear(vectors).tanh())
    before, after = (util.cos_sim(x, x) for x in (vectors, projected))
    assert (after - before).abs().mean() < 384**-0.5
    assert head(vectors.bfloat16()).dtype == torch.float32


@pytest.mark.parametrize("attend_to", ["tokens", "pooled"])
def test_pseudo_tokens_learn_only_from_tokens(attend_to):
    # Attention to one vector is two linear maps.
    attention = PseudoTokenAttention(6, num_pseudo_tokens=512, attend_to=attend_to)
    assert attention.pseudo_tokens.std().item() == pytest.approx(1.0, rel=0.1)  # the start
    inputs = torch.randn(2, 6), torch.randn(2, 4, 6), torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
    mapped = attention(*inputs)
    matrices = {name: getattr(attention, name).weight.T for name in ("query", "key", "value")}
    mapping = functional.pseudo_token_mapping(attention.pseudo_tokens, *inputs, **matrices)
    linear = attention.value(attention.value(inputs[0]))
    torch.testing.assert_close(mapped, mapping if attend_to == "tokens" else linear)
    mapped.pow(2).sum().backward()
    learns = attention.pseudo_tokens.grad.any(dim=1)
    assert learns.all() if attend_to == "tokens" else not learns.any()


@pytest.mark.parametrize(
    ("kind", "sign"), [(TokenFrequencyDiscriminator, -1), (CompletenessDiscriminator, 1)]
)
def test_discriminators(kind, sign):
    # The gradient of the tokens is reversed, that of the discriminator itself is not.
    module, x = kind(6), torch.randn(2, 3, 6, requires_grad=True)
    first, _, second = module.layers
    logits, plain = module(x), second(first(x).relu())
    assert torch.equal(logits, plain) and first.out_features == 12
    found, expected = (
        torch.autograd.grad(y.pow(2).sum(), [x, *module.parameters()]) for y in (logits, plain)
    )
    assert torch.equal(found[0], sign * expected[0])
    assert all(map(torch.equal, found[1:], expected[1:]))


def test_diagnostics_of_discriminators_by_hand(monkeypatch):
    # One of three tokens is rare, and one is classified wrongly. One of two originals is, too.
    for kind in (TokenFrequencyDiscriminator, CompletenessDiscriminator):
        monkeypatch.setattr(kind, "forward", lambda self, embeddings: embeddings)
    counted, calls = torch.tensor([[True, True, True, False]]), torch.eye(2)[torch.tensor([[1, 1, 0, 1]])]
    _, found = TokenFrequencyDiscriminator(2).loss(calls, torch.tensor([[1, 0, 0, 1]]), counted)
    assert [value.item() for value in found.values()] == pytest.approx([2 / 3, 1 / 3])
    originals, copies = (torch.eye(2)[torch.tensor(calls)] for calls in ([0, 1, 0], [1, 1, 1]))
    _, found = CompletenessDiscriminator(2).loss(originals, copies, torch.tensor([True, True, False]))
    assert [value.item() for value in found.values()] == pytest.approx([3 / 4, 2 / 3])
