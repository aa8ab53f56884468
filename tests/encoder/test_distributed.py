import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from sbert_plugins.encoder import distributed, is_compiled, is_training, sentence_width, unwrap, without_ddp

BATCHES = [torch.arange(n * 2.0).reshape(n, 2) + 10 * n for n in (3, 1, 4)]


# Two real processes are in tests/training/test_ranks.py.
@pytest.mark.parametrize("rank", range(3))
def test_batches_of_different_sizes(monkeypatch, rank):
    rows, others = BATCHES[rank].clone().requires_grad_(), [*BATCHES[:rank], *BATCHES[rank + 1 :]]

    def gather(own):
        if own.ndim == 1:
            return torch.tensor([len(batch) for batch in BATCHES])
        padded = [F.pad(batch, (0, 0, 0, len(own) - len(batch)), value=-1.0) for batch in others]
        return torch.cat([*padded[:rank], own, *padded[rank:]])

    fakes = {"get_world_size": lambda: 3, "get_rank": lambda: rank}
    for name, value in (fakes | {"all_gather": gather, "all_gather_with_grad": gather}).items():
        monkeypatch.setattr(distributed, name, value)
    everyone, first = distributed.rows_of_all_ranks(rows)
    assert torch.equal(everyone, torch.cat(BATCHES)) and not everyone.requires_grad
    assert torch.equal(everyone[first : first + len(rows)], rows)
    assert torch.equal(distributed.rows_of_other_ranks(rows), torch.cat(others))


def test_a_single_process():
    rows = torch.randn(3, 4, requires_grad=True)
    everyone, first = distributed.rows_of_all_ranks(rows)
    assert torch.equal(everyone, rows) and not everyone.requires_grad and first == 0
    assert distributed.rows_of_other_ranks(rows) is None


class Wrapper(DistributedDataParallel):
    """DistributedDataParallel without a group of processes."""

    def __init__(self, module):
        nn.Module.__init__(self)
        self.module = module


def test_wrappers_in_any_order():
    model = nn.Linear(2, 2).eval()
    wrapped, inside, outside = Wrapper(model), Wrapper(torch.compile(model)), torch.compile(Wrapper(model))
    each = (model, wrapped, torch.compile(model), inside, outside)
    assert all(unwrap(one) is model and not is_training(one) for one in each)
    assert [is_compiled(one) for one in each] == [False, False, True, True, True]
    assert without_ddp(model) is without_ddp(wrapped) is without_ddp(outside) is model
    assert without_ddp(inside) is inside.module


def test_the_width_in_training_is_not_truncated(tiny_encoder):
    model = tiny_encoder()
    model.truncate_dim = 8
    assert (sentence_width(model), model.get_embedding_dimension()) == (32, 8)
