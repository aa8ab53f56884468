"""One process; two ranks are in ``training/test_ranks.py``."""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from sbert_plugins.encoder import is_compiled, rows_of_all_ranks, rows_of_other_ranks, unwrap, without_ddp


def test_a_single_process_has_no_others():
    assert rows_of_other_ranks(torch.randn(3, 4)) is None


def test_in_a_single_process_its_rows_are_all():
    rows = torch.randn(3, 4, requires_grad=True)
    everyone, first = rows_of_all_ranks(rows)
    assert torch.equal(everyone, rows)
    assert not everyone.requires_grad
    assert first == 0


def test_a_model_without_a_wrapper_is_itself():
    model = torch.nn.Linear(2, 2)
    assert without_ddp(model) is model


def test_unwrap_finds_the_encoder_inside():
    model, outer = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    assert unwrap(model) is model
    outer.module = model
    assert unwrap(outer) is model
    assert unwrap(torch.compile(model)) is model


def test_a_compiled_model_is_known():
    model, outer = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    assert not is_compiled(model)
    assert is_compiled(torch.compile(model))
    outer.module = model
    assert not is_compiled(outer)
    outer.module = torch.compile(model)
    assert is_compiled(outer)


def test_wrappers_in_either_order():
    """Accelerate compiles what DistributedDataParallel has wrapped; people compile first."""

    class Wrapper(DistributedDataParallel):
        def __init__(self, module):
            nn.Module.__init__(self)
            self.module = module

    model = nn.Linear(2, 2)
    inside, outside = Wrapper(torch.compile(model)), torch.compile(Wrapper(model))
    assert is_compiled(inside)
    assert is_compiled(outside)
    assert unwrap(inside) is unwrap(outside) is without_ddp(outside) is model
    assert without_ddp(inside) is inside.module
