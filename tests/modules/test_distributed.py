"""One process; two ranks are in ``training/test_ranks.py``."""

import torch

from sbert_plugins.modules import rows_of_other_ranks, unwrap, without_ddp


def test_a_single_process_has_no_others():
    assert rows_of_other_ranks(torch.randn(3, 4)) is None


def test_a_model_without_a_wrapper_is_itself():
    model = torch.nn.Linear(2, 2)
    assert without_ddp(model) is model


def test_unwrap_finds_the_encoder_inside():
    model, outer = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    assert unwrap(model) is model
    outer.module = model
    assert unwrap(outer) is model
    assert unwrap(torch.compile(model)) is model
