import pytest
import torch

from sbert_plugins import functional
from sbert_plugins.encoder import GradientTap, bound_gradients


def run(main, *others, balance, dtype=torch.float32):
    """Give linear objectives, by their gradients. Return the gradient that arrives, and the diagnostics."""
    x = torch.zeros(2, dtype=dtype, requires_grad=True)
    output, taps = x * 1.0, [GradientTap() for _ in (main, *others)]
    gradients = zip(taps, (main, *others), strict=True)
    values = [(tap(output).float() * torch.tensor(gradient)).sum() for tap, gradient in gradients]
    first, *rest = zip(values, taps, strict=True)
    found = bound_gradients(first, dict(zip("ab", rest, strict=False)), balance=balance)
    assert not any(tap.tensors for tap in taps)  # otherwise each step's graph would live on
    sum(values).backward()
    return x.grad, found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("main", "other", "factor", "share", "cosine"),
    [
        ([3.0, 4.0], [0.0, 20.0], 0.125, 1 / 3, 0.8),
        ([3.0, 4.0], [0.0, 2.0], 1.0, 2 / 7, 0.8),
        ([0.0, 0.0], [1.0, 1.0], 0.0, 0.0, 0.0),
    ],
)
def test_the_other_gradient_is_limited(main, other, factor, share, cosine, dtype):
    found, diagnostics = run(main, other, balance=0.5, dtype=dtype)
    main, other = torch.tensor(main), torch.tensor(other)
    assert functional.balance_factor(main.norm(), other.norm(), balance=0.5).item() == pytest.approx(factor)
    assert found.tolist() == pytest.approx((main + factor * other).tolist(), rel=1e-2)
    assert [value.item() for value in diagnostics.values()] == pytest.approx([factor, share, cosine])


def test_watched_rows_and_nested_taps():
    # The first row of the main gradient counts. The other objective reads through two taps, and twice.
    x = torch.zeros(2, 2, requires_grad=True)
    main, outer, other, output = GradientTap(), GradientTap(), GradientTap(), x * 1.0
    main.watch(output, rows=slice(0, 1))
    first = (output * torch.tensor([[3.0, 4.0], [0.0, 12.0]])).sum()
    second = 5 * other(outer(output))[0, 1] + 15 * other(output)[0, 1]
    found = bound_gradients((first, main), {"other": (second, other)}, balance=0.5)
    assert [value.item() for value in found.values()] == pytest.approx([0.125, 1 / 3, 0.8])


def test_an_evaluation_and_a_frozen_encoder_need_no_factors():
    tap, frozen = GradientTap(), torch.ones(2)
    assert tap(frozen) is frozen
    with torch.no_grad():
        value = tap(torch.ones(2, requires_grad=True)).sum()
    assert bound_gradients((value, tap), {"other": (value, tap)}, balance=1.0) == {}


def test_all_processes_use_the_same_factor(monkeypatch):
    # The squared norm of the main gradient is 25 here, and 144 in all processes together.
    monkeypatch.setattr("sbert_plugins.encoder.balance.get_world_size", lambda: 2)
    monkeypatch.setattr("torch.distributed.all_reduce", lambda sums: sums.add_(torch.tensor([119.0, 0, 0])))
    _, found = run([3.0, 4.0], [0.0, 20.0], balance=0.5)
    assert found["balance_factor"].item() == pytest.approx(0.3)
