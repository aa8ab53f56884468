import torch
from tools import Wrapper
from torch import nn

from sbert_plugins.encoder import distributed, is_compiled, is_training, sentence_width, unwrap, without_ddp


def test_a_single_process():
    rows = torch.randn(3, 4, requires_grad=True)
    everyone, first = distributed.rows_of_all_ranks(rows)
    assert torch.equal(everyone, rows) and not everyone.requires_grad and first == 0
    assert distributed.rows_of_other_ranks(rows) is None


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
