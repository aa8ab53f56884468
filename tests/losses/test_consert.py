from contextlib import nullcontext

import pytest
import reference
import torch
from encoders import ARCHITECTURES, SENTENCES
from sentence_transformers.base.losses.merged_forward import column_merging_disabled
from tools import Recorder, batch, gradients

from sbert_plugins import losses
from sbert_plugins.losses import consert

pytestmark = pytest.mark.filterwarnings("ignore:.*owns weights")
PARTS = ("feature_cutoff", "token_cutoff", "token_shuffling", "dropout")
LONGER = [f"{sentence} {sentence} {sentence}" for sentence in SENTENCES]


@pytest.fixture
def encoder(tiny_encoder):
    return tiny_encoder("bert", "mean").train()


def views_of(recorder):
    return torch.cat([output["sentence_embedding"].detach() for output in recorder.outputs]).chunk(2)


@pytest.mark.parametrize("head", [False, True])
def test_the_value_is_that_of_the_reference(encoder, head):
    loss = losses.ConSERTLoss(encoder, projection_head=head).double()
    recorder = Recorder(encoder)
    value = loss(batch(encoder, SENTENCES))["nt_xent"].item()
    first, second = (loss.head(view).detach().numpy() for view in views_of(recorder))
    assert value == pytest.approx(reference.nt_xent(first, second, temperature=0.1), rel=1e-9)


class TestViews:
    @pytest.mark.parametrize("part", PARTS)
    def test_each_part_changes_its_view_alone(self, encoder, part):
        loss, recorder = losses.ConSERTLoss(encoder, first_view=(), second_view=(part,)), Recorder(encoder)
        loss(batch(encoder, SENTENCES))
        first, second = views_of(recorder)
        assert not torch.allclose(first, second, atol=1e-3)
        plain = encoder.eval()(batch(encoder, SENTENCES)[0])["sentence_embedding"]
        assert torch.allclose(first, plain, atol=1e-5)

    def test_dropout_is_on_in_the_views_that_have_it(self, encoder):
        recorder, columns = Recorder(encoder), batch(encoder, SENTENCES)
        losses.ConSERTLoss(encoder)(columns)
        losses.ConSERTLoss(encoder, first_view=PARTS, second_view=("dropout",))(columns)
        losses.ConSERTLoss(encoder, second_view=("dropout",))(columns)
        assert recorder.training == [False, True, False, True]
        assert recorder.rows() == [16, 16, 8, 8]
        assert encoder[0].model.training

    def test_the_same_views_without_a_merged_pass(self, encoder):
        loss = losses.ConSERTLoss(encoder, first_view=("token_cutoff",))  # drawn before the passes
        values = []
        for context in (nullcontext(), column_merging_disabled()):
            torch.manual_seed(0)
            with context:
                values.append(loss(batch(encoder, SENTENCES))["nt_xent"].item())
        assert values[0] == pytest.approx(values[1], rel=1e-4)

    @pytest.mark.parametrize(
        "sides", [(SENTENCES, LONGER), (LONGER, SENTENCES), (SENTENCES, SENTENCES[::-1])]
    )
    def test_each_column_has_a_view(self, encoder, sides):
        """Also with columns of one length: the number of passes must not depend on the text."""
        loss = losses.ConSERTLoss(encoder, first_view=(), second_view=()).double()
        recorder = Recorder(encoder)
        value = loss(batch(encoder, *sides))["nt_xent"].item()
        assert len(recorder.outputs) == 2
        views = views_of(recorder)
        encoder.eval()
        for view, column in zip(views, batch(encoder, *sides), strict=True):
            assert torch.allclose(view, encoder(column)["sentence_embedding"])
        expected = reference.nt_xent(*(view.numpy() for view in views), temperature=0.1)
        assert value == pytest.approx(expected, rel=1e-9)

    @pytest.mark.parametrize("architecture", ARCHITECTURES)
    def test_all_parts_in_columns_of_two_lengths(self, tiny_encoder, architecture):
        model = tiny_encoder(architecture, "mean").train()
        loss = losses.ConSERTLoss(model, first_view=PARTS, second_view=PARTS)
        for sides in ((SENTENCES, LONGER), (LONGER, SENTENCES)):
            loss(batch(model, *sides))["nt_xent"].backward()
            assert all(gradient.isfinite().all() for gradient in gradients(model).values())

    def test_rates(self, encoder, monkeypatch):
        made, view = [], consert.View
        monkeypatch.setattr(consert, "View", lambda *a, **rates: made.append(view(*a, **rates)) or made[-1])
        parts = {"first_view": ("token_cutoff",), "second_view": ("feature_cutoff",)}
        loss = losses.ConSERTLoss(encoder, token_cutoff_rate=0.5, feature_cutoff_rate=0.25, **parts)
        columns = batch(encoder, SENTENCES)
        loss(columns)
        content = loss.tokens.content(columns[0]).sum(dim=1)
        assert torch.equal(made[0].cut_tokens.sum(dim=1), (0.5 * content).round().long())
        cut = made[1].change_inputs(torch.ones(len(SENTENCES), made[1].shape[1], 32)) == 0
        assert (cut[:, 0].sum(dim=1) == 8).all()


@pytest.mark.parametrize("views", [{}, {"second_view": ("token_shuffling", "dropout")}])
def test_gradient_checkpointing_changes_nothing(tiny_encoder, views):
    """It runs the layers twice, in the same views and with the same dropout."""
    found = []
    for checkpointing in (False, True):
        model, runs = tiny_encoder("bert", "mean").double().train(), []
        if checkpointing:
            model.transformers_model.activation_checkpointing_enable()
        loss = losses.ConSERTLoss(model, **views)
        query = model.transformers_model.encoder.layer[0].attention.self.query
        query.register_forward_hook(lambda *_, runs=runs: runs.append(True))
        torch.manual_seed(0)
        loss(batch(model, SENTENCES))["nt_xent"].backward()
        found.append((gradients(model), len(runs)))
    (expected, once), (again, twice) = found
    assert twice == 2 * once
    assert all(torch.equal(again[name], expected[name]) for name in expected)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"first_view": ("cutoff",)}, r"first_view .* got \('cutoff',\)"),
        ({"second_view": "dropout"}, "second_view .* got 'dropout'"),
        ({"feature_cutoff_rate": 0}, "feature_cutoff_rate .* got 0"),
        ({"token_cutoff_rate": 1.0}, "token_cutoff_rate .* got 1.0"),
        ({"first_view": (), "second_view": ()}, r"must change the sentence"),
    ],
)
def test_values_out_of_range(encoder, keywords, message):
    with pytest.raises(ValueError, match=message):
        losses.ConSERTLoss(encoder, **keywords)(batch(encoder, SENTENCES))


def test_a_compiled_model_is_refused(encoder):
    """Hooks inside it do nothing, so both views would be equal."""
    loss = losses.ConSERTLoss(encoder)
    loss.model = torch.compile(encoder, backend="eager")
    with pytest.raises(ValueError, match=r"torch\.compile"):
        loss(batch(encoder, SENTENCES))
