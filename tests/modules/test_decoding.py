import torch

from sbert_plugins.modules.decoding import probe_information


def loss(memory):
    """Each row asks for its own number; noise beside it."""
    return (memory.squeeze(1) - torch.arange(4.0)).square().mean() + torch.rand(())


def test_is_what_another_rows_memory_costs():
    """Rolled by one row the distances are 3, 1, 1, 1: a mean square of 3; the noise is the same for both."""
    memory = torch.arange(4.0).unsqueeze(1)
    assert abs(probe_information(loss, memory, scored=100)["information"].item() - 3.0) < 1e-6


def test_the_draws_are_taken_back():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    probe_information(loss, torch.zeros(4, 1), scored=50)
    assert torch.equal(torch.rand(3), expected)


def test_now_and_then():
    there = [count for count in range(151) if probe_information(loss, torch.zeros(4, 1), scored=count)]
    assert there == [50, 100, 150]


def test_one_row_has_no_other():
    assert probe_information(loss, torch.zeros(1, 1), scored=50) == {}
