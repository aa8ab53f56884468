import numpy as np
import pytest
import reference
import torch

from sbert_plugins.modules import EmbeddingQueue


def oldest_first(queue):
    held = min(int(queue.seen), len(queue.rows))
    start = int(queue.seen) - held
    return queue.rows[torch.arange(start, start + held) % len(queue.rows)]


@pytest.mark.parametrize(
    "sizes",
    [[3], [3, 3], [10], [4, 4, 4], [4, 4, 3, 1, 4, 4], [25], [7, 25, 2], [10, 10, 10], [1] * 23],
    ids=str,
)
def test_holds_the_last_rows_that_came_in(sizes):
    """Filling, wrapping round, partial last batches, batches larger than the queue."""
    queue, batches = EmbeddingQueue(10, 2), []
    for size in sizes:
        batches.append(torch.randn(size, 2))
        rows, filled, slots = queue.after(batches[-1])
        before = queue.rows.clone()
        queue.enqueue(batches[-1])
        assert torch.equal(queue.rows, rows)
        assert torch.equal(queue.filled, filled)
        stayed = slots >= 0
        assert torch.equal(queue.rows[slots[stayed]], batches[-1][stayed])
        assert stayed.sum() == min(size, 10)
        assert not torch.equal(queue.rows, before)
        expected = reference.last([batch.numpy() for batch in batches], 10)
        np.testing.assert_array_equal(oldest_first(queue).numpy(), expected)
        assert int(queue.filled.sum()) == len(expected)


def test_asking_changes_nothing():
    queue = EmbeddingQueue(4, 2)
    queue.after(torch.randn(3, 2))
    assert not queue.rows.any()
    assert not queue.filled.any()


def test_earlier_scores_survive_a_later_batch():
    """Two forwards before one backward: what the first was scored against is not overwritten."""
    queue, query = EmbeddingQueue(4, 2), torch.randn(3, 2, requires_grad=True)
    total = 0
    for _ in range(2):
        keys = torch.randn(3, 2)
        total = total + (query @ queue.after(keys)[0].T).sum()
        queue.enqueue(keys)
    total.backward()
    assert torch.isfinite(query.grad).all()


def test_keeps_no_gradient_and_its_own_dtype():
    queue = EmbeddingQueue(4, 2)
    keys = torch.randn(3, 2, dtype=torch.bfloat16, requires_grad=True)
    queue.enqueue(keys)
    assert queue.rows.dtype == torch.float32
    assert not queue.rows.requires_grad
    assert not queue.after(keys)[0].requires_grad


def test_is_state():
    assert set(EmbeddingQueue(4, 2).state_dict()) == {"rows", "seen"}


def test_size():
    with pytest.raises(ValueError, match="queue_size must be at least 1, got 0"):
        EmbeddingQueue(0, 2)
