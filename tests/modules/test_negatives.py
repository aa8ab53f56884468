import pytest
from torch import nn

from sbert_plugins.modules import check_negatives


@pytest.fixture
def loss():
    loss = nn.Module()
    loss.model = nn.Linear(1, 1)
    return loss


def test_a_first_batch_of_one(loss):
    with pytest.raises(ValueError, match="Module takes the other sentences of a batch as negatives, got a batch of 1"):
        check_negatives(loss, 1)


def test_the_rest_of_an_epoch(loss, caplog):
    check_negatives(loss, 2)
    check_negatives(loss, 1)
    assert "A batch of one sentence has no negatives" in caplog.text


def test_evaluation(loss, caplog):
    loss.model.eval()
    check_negatives(loss, 1)
    assert caplog.text == ""
