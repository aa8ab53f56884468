import pytest
import torch
from sentence_transformers import util

from sbert_plugins.modules import (
    CompletenessDiscriminator,
    ProjectionHead,
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
