import struct

import pytest
import torch

from sbert_plugins.modules import decoding
from sbert_plugins.modules.decoding import probe_memory


def loss(memory):
    """The distance of each row from its own number, and noise."""
    return (memory.squeeze(1) - torch.arange(4.0)).square().mean() + torch.rand(())


def probed(*, scored=lambda i: 1920, draw=lambda: torch.rand(1)):
    """Return which of 2,000 batches are probed if something is drawn before each."""
    return [i for i in range(2000) if [draw(), probe_memory(loss, torch.zeros(4, 1), scored(i))][1]]


def test_information_is_the_cost_of_another_rows_memory(monkeypatch):
    # Rolled by one row the distances are 3, 1, 1 and 1. Both values have the same noise, which is undone.
    monkeypatch.setattr(decoding, "PROBE_EVERY", 1)
    state = torch.get_rng_state()
    found = probe_memory(loss, torch.arange(4.0).unsqueeze(1), 100)
    assert found["information"].item() == pytest.approx(3.0)
    assert torch.equal(torch.get_rng_state(), state)
    assert probe_memory(loss, torch.zeros(1, 1), 50) == probe_memory(loss, torch.zeros(4, 1), 0) == {}


@pytest.mark.parametrize(
    "how",
    [{}, {"scored": lambda i: 50}, {"scored": lambda i: 900 + i, "draw": lambda: None}],
    ids=["truncated texts", "few tokens", "no dropout"],
)
def test_one_batch_in_fifty_is_probed(how):
    # A resumed training probes the same batches.
    state = torch.get_rng_state()
    found = probed(**how)
    assert 25 < len(found) < 55
    torch.set_rng_state(state)
    assert probed(**how) == found


def test_one_batch_in_fifty_by_a_generator_that_counts(monkeypatch):
    # The state of a GPU's generator is its seed and the number of draws. The CPU draws nothing here.
    drawn = bytearray(16)
    monkeypatch.setattr(
        decoding.host, "generator_state", lambda _: torch.frombuffer(drawn, dtype=torch.uint8)
    )
    monkeypatch.setattr(decoding.host, "set_random_state", lambda device, state: None)
    counts = iter(range(52, 10**6, 52))
    assert 25 < len(probed(draw=lambda: struct.pack_into("<qq", drawn, 0, 12, next(counts)))) < 55
