import pytest
import torch

from sbert_plugins.encoder import GradientTap, bound_gradients


def taps(*names):
    return {name: GradientTap() for name in names}


def test_the_gradient_that_arrives_is_bounded():
    """By hand: |(3, 4)| = 5 leads, |(0, 20)| is cut to half of it, 2.5."""
    x = torch.zeros(2, requires_grad=True)
    output = x * 1.0
    tap = taps("main", "other")
    main = (tap["main"](output) * torch.tensor([3.0, 4.0])).sum()
    other = (tap["other"](output) * torch.tensor([0.0, 20.0])).sum()
    found = bound_gradients((main, tap["main"]), {"other": (other, tap["other"])}, balance=0.5)
    (main + other).backward()
    assert x.grad.tolist() == pytest.approx([3.0, 4.0 + 2.5])
    assert found["balance_factor"].item() == pytest.approx(0.125)
    assert found["balance_share"].item() == pytest.approx(2.5 / 7.5)
    assert found["balance_cosine"].item() == pytest.approx(0.8)


def test_a_small_gradient_is_left_alone():
    x = torch.zeros(2, requires_grad=True)
    tap = taps("main", "other")
    output = x * 1.0
    main, other = tap["main"](output).sum(), 0.1 * tap["other"](output).sum()
    bound_gradients((main, tap["main"]), {"other": (other, tap["other"])}, balance=0.5)
    (main + other).backward()
    assert x.grad.tolist() == pytest.approx([1.1, 1.1])


def test_what_lies_behind_the_tap_learns_at_full_speed():
    x, decoder = torch.ones(2, requires_grad=True), torch.full((2,), 50.0, requires_grad=True)
    tap = taps("main", "other")
    output = x * 1.0
    main, other = tap["main"](output).sum(), (tap["other"](output) * decoder).sum()
    bound_gradients((main, tap["main"]), {"other": (other, tap["other"])}, balance=1.0)
    (main + other).backward()
    assert decoder.grad.tolist() == [1.0, 1.0]
    assert x.grad.tolist() == pytest.approx([2.0, 2.0])


def test_several_objectives_and_several_outputs():
    """Each has a factor of its own, over all outputs that it reads; outputs that only one reads count for it alone."""
    x = torch.zeros(3, requires_grad=True)
    first, second = x[:2] * 1.0, x[2:] * 1.0
    tap = taps("main", "a", "b")
    main = (tap["main"](first) * torch.tensor([3.0, 4.0])).sum()
    a = (tap["a"](first) * torch.tensor([6.0, 0.0])).sum() + 8 * tap["a"](second).sum()  # norm 10
    b = tap["b"](second).sum()
    found = bound_gradients((main, tap["main"]), {"a": (a, tap["a"]), "b": (b, tap["b"])}, balance=1.0)
    (main + a + b).backward()
    assert x.grad.tolist() == pytest.approx([3 + 3, 4, 4 + 1])
    assert found["a_balance_factor"] == 0.5
    assert found["a_balance_cosine"].item() == pytest.approx(18 / 50)
    assert found["b_balance_factor"] == 1
    assert found["b_balance_cosine"] == 0


def test_without_a_main_gradient_nothing_passes():
    x = torch.ones(2, requires_grad=True)
    tap = taps("main", "other")
    output = x * 1.0
    main, other = tap["main"](output).sum() * 0.0, tap["other"](output).sum()
    bound_gradients((main, tap["main"]), {"other": (other, tap["other"])}, balance=1.0)
    (main + other).backward()
    assert x.grad.tolist() == [0.0, 0.0]


def test_rows_that_nobody_else_reads_are_left_out():
    """By hand: of the main gradients (3, 4) and (0, 12) of a merged pass the first row counts alone."""
    x = torch.zeros(2, 2, requires_grad=True)
    tap, output = taps("main", "other"), x * 1.0
    tap["main"].watch(output, rows=slice(0, 1))
    main = (output * torch.tensor([[3.0, 4.0], [0.0, 12.0]])).sum()
    other = (tap["other"](output)[0] * torch.tensor([0.0, 20.0])).sum()
    found = bound_gradients((main, tap["main"]), {"other": (other, tap["other"])}, balance=0.5)
    assert found["balance_factor"].item() == pytest.approx(0.125)
    assert found["balance_cosine"].item() == pytest.approx(0.8)


def test_an_evaluation_and_a_frozen_encoder_need_nothing():
    tap = taps("main", "other")
    with torch.no_grad():
        value = tap["main"](torch.ones(2, requires_grad=True)).sum()
    assert bound_gradients((value, tap["main"]), {"other": (value, tap["other"])}, balance=1.0) == {}
    frozen = torch.ones(2)
    assert tap["main"](frozen) is frozen


def test_accumulated_micro_batches_have_factors_of_their_own():
    x = torch.zeros(1, requires_grad=True)
    for scale in (10.0, 100.0):
        tap = taps("main", "other")
        output = x * 1.0
        main, other = tap["main"](output).sum(), scale * tap["other"](output).sum()
        bound_gradients((main, tap["main"]), {"other": (other, tap["other"])}, balance=1.0)
        ((main + other) / 2).backward()
    assert x.grad.item() == pytest.approx(2.0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_in_half_precision(dtype):
    x = torch.zeros(4, dtype=dtype, requires_grad=True)
    tap = taps("main", "other")
    output = x * 1.0
    main, other = tap["main"](output).float().sum(), 1000 * tap["other"](output).float().sum()
    bound_gradients((main, tap["main"]), {"other": (other, tap["other"])}, balance=1.0)
    (main + other).backward()
    assert x.grad.tolist() == pytest.approx([2.0] * 4, rel=1e-2)


def test_nothing_is_held_afterwards():
    """A tap that held its tensors would keep a step's graph until Python looks for cycles."""
    x = torch.zeros(1, requires_grad=True)
    for balance in (1.0, None):
        tap = taps("main", "other")
        main, other = (tap[name](x * 1.0).sum() for name in ("main", "other"))
        bound_gradients((main, tap["main"]), {"other": (other, tap["other"])}, balance=balance)
        assert not tap["main"].tensors
        assert not tap["other"].tensors


@pytest.mark.parametrize(("blind", "named"), [("main", "the main loss"), ("other", "other")])
def test_one_that_reads_beside_its_tap_is_refused(blind, named):
    x = torch.zeros(1, requires_grad=True)
    tap = taps("main", "other")
    main, other = ((x * 1.0 if name == blind else tap[name](x * 1.0)).sum() for name in ("main", "other"))
    with pytest.raises(ValueError, match=f"where losses read the encoder, got none for {named}, which embeds"):
        bound_gradients((main, tap["main"]), {"other": (other, tap["other"])}, balance=1.0)


def test_one_output_behind_any_number_of_taps():
    x = torch.zeros(2, requires_grad=True)
    tap, output = {name: GradientTap() for name in ("main", "other", "outer", "outermost")}, x * 1.0
    main = (tap["main"](output) * torch.tensor([3.0, 4.0])).sum()
    other = (tap["other"](tap["outer"](tap["outermost"](output))) * torch.tensor([0.0, 20.0])).sum()
    found = bound_gradients((main, tap["main"]), {"other": (other, tap["other"])}, balance=0.5)
    assert found["balance_cosine"].item() == pytest.approx(0.8)


def test_an_output_that_is_read_twice():
    x, main_tap, other_tap = torch.zeros(2, requires_grad=True), GradientTap(), GradientTap()
    output = x * 1.0
    main = 3 * main_tap(output)[0] + 4 * main_tap(output)[1]
    other = 20 * other_tap(output)[1]
    found = bound_gradients((main, main_tap), {"other": (other, other_tap)}, balance=0.5)
    assert found["balance_factor"].item() == pytest.approx(0.125)


def test_all_processes_take_one_factor(monkeypatch):
    monkeypatch.setattr("sbert_plugins.encoder.balance.get_world_size", lambda: 2)
    monkeypatch.setattr("torch.distributed.all_reduce", lambda sums: sums.add_(torch.tensor([119.0, 0.0, 0.0])))
    x, main_tap, other_tap = torch.zeros(2, requires_grad=True), GradientTap(), GradientTap()
    main = (main_tap(x * 1.0) * torch.tensor([3.0, 4.0])).sum()  # 25 here, 144 in all
    other = (other_tap(x * 1.0) * torch.tensor([0.0, 20.0])).sum()
    found = bound_gradients((main, main_tap), {"other": (other, other_tap)}, balance=0.5)
    assert found["balance_factor"].item() == pytest.approx(0.3)
