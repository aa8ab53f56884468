import torch

from sbert_plugins.modules import InformationProbe


def loss(memory):
    """Each row asks for its own number; noise beside it."""
    return (memory.squeeze(1) - torch.arange(4.0)).square().mean() + torch.rand(())


def test_is_what_another_rows_memory_costs():
    """Rolled by one row the distances are 3, 1, 1, 1: a mean square of 3; the noise is the same for both."""
    memory = torch.arange(4.0).unsqueeze(1)
    assert abs(InformationProbe()(loss, memory)["information"].item() - 3.0) < 1e-6


def test_the_draws_are_taken_back():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    InformationProbe()(loss, torch.zeros(4, 1))
    assert torch.equal(torch.rand(3), expected)


def test_asks_now_and_then():
    probe = InformationProbe()
    found = [bool(probe(loss, torch.zeros(4, 1))) for _ in range(101)]
    assert [place for place, there in enumerate(found) if there] == [0, 50, 100]


def test_one_row_has_no_other():
    assert InformationProbe()(loss, torch.zeros(1, 1)) == {}
