import struct

import pytest
import torch

from sbert_plugins.modules import decoding
from sbert_plugins.modules.decoding import probe_information


def loss(memory):
    """Each row asks for its own number; noise beside it."""
    return (memory.squeeze(1) - torch.arange(4.0)).square().mean() + torch.rand(())


@pytest.fixture
def each_time(monkeypatch):
    monkeypatch.setattr(decoding, "EVERY", 1)


def probed(batches, scored=lambda i: 1920, draw=lambda: torch.rand(1)):
    """Return which batches are probed, something being drawn before each."""
    found = []
    for i in range(batches):
        draw()
        if probe_information(loss, torch.zeros(4, 1), scored=scored(i)):
            found.append(i)
    return found


def test_is_what_another_rows_memory_costs(each_time):
    """Rolled by one row the distances are 3, 1, 1, 1: a mean square of 3; the noise is the same for both."""
    memory = torch.arange(4.0).unsqueeze(1)
    assert abs(probe_information(loss, memory, scored=100)["information"].item() - 3.0) < 1e-6


def test_the_draws_are_taken_back(each_time):
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    assert probe_information(loss, torch.zeros(4, 1), scored=50)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("scored", [1920, 50, 49])
def test_one_batch_in_fifty_where_all_have_as_many_tokens(scored):
    """As where all texts are truncated: with 64 of 32 tokens it was never, with others each time."""
    torch.manual_seed(0)
    assert 25 < len(probed(2000, lambda i: scored)) < 55


def test_one_batch_in_fifty_where_nothing_is_drawn():
    """A training without dropout, of texts of many lengths."""
    torch.manual_seed(0)
    assert 25 < len(probed(2000, lambda i: 900 + i, draw=lambda: None)) < 55


def test_one_batch_in_fifty_by_a_generator_that_counts(monkeypatch):
    """A GPU's state is a seed and how much was drawn of it: the same more with each batch; the CPU draws nothing."""
    drawn = [0]

    def state(device):
        return torch.frombuffer(bytearray(struct.pack("<qq", 12, drawn[0])), dtype=torch.uint8)

    monkeypatch.setattr(decoding.host, "generator_state", state)
    monkeypatch.setattr(decoding.host, "set_generator_state", lambda device, state: None)
    assert 25 < len(probed(2000, draw=lambda: drawn.__setitem__(0, drawn[0] + 52))) < 55


def test_the_same_batches_after_a_resume():
    torch.manual_seed(0)
    probed(100)
    state = torch.get_rng_state()
    whole = probed(300)
    torch.manual_seed(1)
    torch.set_rng_state(state)
    assert probed(300) == whole != []


def test_one_row_has_no_other(each_time):
    assert probe_information(loss, torch.zeros(1, 1), scored=50) == {}


def test_nothing_scored_tells_nothing(each_time):
    assert probe_information(loss, torch.zeros(4, 1), scored=0) == {}
