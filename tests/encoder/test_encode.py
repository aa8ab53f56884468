from functools import partial

import pytest
import torch
from encoders import SENTENCES
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss
from sentence_transformers.sentence_transformer.modules import Normalize
from tools import Wrapper
from torch import nn

from sbert_plugins import functional
from sbert_plugins.encoder import (
    Encoder,
    GradientTap,
    MemberEncoder,
    TokenRoles,
    View,
    apply_mask_template,
    bound_gradients,
    distributed,
    dropout_off,
    is_compiled,
    is_training,
    sentence_width,
    unwrap,
    without_ddp,
)
from sbert_plugins.losses import ConSERTLoss

N = len(SENTENCES)


@pytest.fixture
def model(tiny_encoder):
    return tiny_encoder(pooling="mean").train()


@pytest.fixture
def made(model):
    """The number of rows of each forward of the model."""
    rows = []
    model[0].register_forward_hook(
        lambda module, arguments, output: rows.append(len(output["token_embeddings"]))
    )
    return rows


@pytest.fixture
def column(model):
    return model.preprocess(SENTENCES)


def view_of(model, column, part="token_cutoff"):
    return View([part], TokenRoles(model.tokenizer).content(column))


class TestEncoder:
    def test_columns_pass_in_one_forward_and_stay_unchanged(self, model, made, column):
        short = model.preprocess([text[:12] for text in SENTENCES])
        keys = [*column], [*short]
        passes = Encoder(model)([column, short], dropout=False, tokens=True)
        assert made == [2 * N]
        with dropout_off(model):
            for one, each in zip(passes, (column, short), strict=True):
                torch.testing.assert_close(one.vectors, model(dict(each))["sentence_embedding"])
                assert torch.equal(one.attended[:, : each["input_ids"].shape[1]], each["attention_mask"])
                assert one.tokens.shape[:2] == column["input_ids"].shape
        assert keys == ([*column], [*short])

    def test_vectors_are_those_before_a_final_normalize(self, model, column):
        raw = model.eval()(dict(column))["sentence_embedding"]
        model.append(Normalize())
        (found,) = Encoder(model)([column])
        assert torch.equal(found.vectors, raw)
        assert torch.equal(found.outputs, model(dict(column))["sentence_embedding"])
        MatryoshkaLoss(model, ConSERTLoss(model), [8, 16])([column], None)  # cuts what the model returns

    def test_one_column_twice_is_two_dropout_views(self, model, column):
        encode = Encoder(model)
        first, second = encode([column, column])
        assert not torch.equal(first.vectors, second.vectors)
        assert encode.passes_over(column) == [first, second]
        assert encode.passes_over(dict(column)) == []  # an equal column is another one

    def test_columns_that_do_not_merge(self, model, made, column):
        Encoder(model)([column, {**column, "extra": 1}])  # other keys
        passes = Encoder(model)([column, column], dropout=[False, True])
        assert made == [N] * 4
        assert [one.dropout for one in passes] == [False, True]

    def test_views(self, model, made, column):
        # Views of two columns pass separately, because ranks must make the same number of forwards.
        views = [view_of(model, column, part) for part in ("token_shuffling", "token_cutoff")]
        passes = Encoder(model)([column, column], views=views, dropout=False)
        Encoder(model)([column, model.preprocess(SENTENCES)], views=views, dropout=False)
        assert made == [2 * N, N, N]
        for one, view in zip(passes, views, strict=True):
            (alone,) = Encoder(model)([column], views=[view], dropout=False)
            torch.testing.assert_close(one.vectors, alone.vectors)
            assert one.view is view

    def test_tokens_are_those_before_a_mask_template(self, model):
        (one,) = Encoder(apply_mask_template(model))([model.preprocess(SENTENCES)], tokens=True)
        assert one.tokens.any(dim=2).all()


class TestMembers:
    @pytest.fixture
    def members(self, model):
        return list(map(partial(MemberEncoder, shares=True), [Encoder(model)] * 3))

    def test_each_pass_is_made_once(self, model, made, members, column):
        # Missing passes are made together, and in any order each member gets the same ones.
        other = model.preprocess(SENTENCES[::-1])
        (first,) = members[0]([column])
        found = members[1]([other, column, column])
        assert made == [N, 2 * N]
        assert found[1] is first and not torch.equal(found[1].vectors, found[2].vectors)
        assert [members[2]([each])[0] for each in (column, other, column)] == [first, found[0], found[2]]

    def test_passes_made_otherwise_are_not_shared(self, model, made, members, column):
        view = view_of(model, column)
        for member, passes in zip(members[:2], (4, 5), strict=True):  # only the view is made again
            member([column])
            member([column], dropout=False)
            member([column], views=[view], dropout=False)
            with torch.no_grad():
                assert not member([column])[0].vectors.requires_grad
            assert len(made) == passes

    def test_any_pass(self, model, members, column):
        # In training it is the first one with a gradient, in an evaluation never an altered one.
        with torch.no_grad():
            members[0]([column])
        (altered,) = members[0]([column], views=[view_of(model, column)])
        assert members[1].any_pass(column) is altered
        model.eval()
        assert members[2].any_pass(column).view is None

    def test_nested_sums(self, made, members, column):
        inner = [MemberEncoder(members[0], shares=True) for _ in range(2)]
        first, second, third = (member([column])[0] for member in (*inner, members[1]))
        assert first is second is third and made == [N]

    def test_outputs_are_read_through_the_tap(self, model, column):
        tap, encode = GradientTap(), Encoder(model)
        (one,) = MemberEncoder(encode, tap=tap)([column], tokens=True)
        tap.factor = torch.tensor(0.5)
        (raw,) = encode.passes_over(column)
        for seen, output in ((one.vectors, raw.all_vectors), (one.tokens, raw.all_tokens)):
            (gradient,) = torch.autograd.grad(seen.sum(), output, retain_graph=True)
            assert torch.equal(gradient, torch.full_like(output, 0.5))


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
