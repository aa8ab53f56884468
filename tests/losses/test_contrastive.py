import pytest
import reference
import torch
from encoders import ARCHITECTURES, SENTENCES, given
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from tools import Recorder, batch, gradients, linear, numpy, weights_of

from sbert_plugins import losses
from sbert_plugins.modules import ProjectionHead


@pytest.mark.parametrize("projection_head", [True, False])
def test_simcse_is_that_of_the_reference(encoder, projection_head):
    # Its head is on the vectors of both views, in training only.
    loss = losses.SimCSELoss(encoder, projection_head=projection_head).double()
    first, second = torch.randn(2, len(SENTENCES), 32, dtype=torch.float64)
    value = loss.compute(given(first, second), batch(encoder, SENTENCES))["contrastive"].item()
    views = [numpy(first), numpy(second)]
    if projection_head:
        assert isinstance(loss.head, ProjectionHead)
        views = [reference.np.tanh(linear(weights_of(loss.head), "linear", view)) for view in views]
    assert value == pytest.approx(reference.info_nce(*views, temperature=0.05), rel=1e-9)


@pytest.mark.parametrize("columns", [1, 2])
def test_both_views_of_simcse_pass_at_once(encoder, columns):
    recorder = Recorder(encoder)
    terms = losses.SimCSELoss(encoder)(batch(encoder, *[SENTENCES, SENTENCES[::-1]][:columns]))
    assert recorder.rows() == [2 * len(SENTENCES)]
    assert set(terms) == {"contrastive"}
    first, second = recorder.outputs[0]["sentence_embedding"].chunk(2)
    assert not torch.equal(first, second)


def test_simcse_without_head_is_a_ranking_loss_on_pairs(encoder):
    columns = batch(encoder.eval(), SENTENCES, SENTENCES[::-1])
    expected = MultipleNegativesRankingLoss(encoder, scale=10)([dict(column) for column in columns], None)
    loss = losses.SimCSELoss(encoder, temperature=0.1, projection_head=False)
    torch.testing.assert_close(loss(columns)["contrastive"], expected)


PARTS = ("feature_cutoff", "token_cutoff", "token_shuffling", "dropout")
LONGER = [f"{sentence} {sentence} {sentence}" for sentence in SENTENCES]


def views_of(recorder):
    return torch.cat([output["sentence_embedding"].detach() for output in recorder.outputs]).chunk(2)


@pytest.mark.parametrize("head", [False, True])
def test_consert_is_that_of_the_reference(encoder, head):
    loss = losses.ConSERTLoss(encoder, projection_head=head).double()
    recorder = Recorder(encoder)
    value = loss(batch(encoder, SENTENCES))["nt_xent"].item()
    first, second = (loss.head(view).detach().numpy() for view in views_of(recorder))
    assert value == pytest.approx(reference.nt_xent(first, second, temperature=0.1), rel=1e-9)


class TestConSERTViews:
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
        with pytest.raises(ValueError, match="two views of a sentence are equal"):
            losses.ConSERTLoss(encoder, first_view=(), second_view=())(columns)

    @pytest.mark.parametrize(
        "sides", [(SENTENCES, LONGER), (LONGER, SENTENCES), (SENTENCES, SENTENCES[::-1])]
    )
    def test_each_column_has_a_view(self, encoder, sides):
        # Also with columns of one length: the number of passes must not depend on the text.
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


def test_consert_refuses_a_compiled_model(encoder):
    # Hooks inside it do nothing, so both views would be equal.
    loss = losses.ConSERTLoss(encoder)
    loss.model = torch.compile(encoder, backend="eager")
    with pytest.raises(ValueError, match=r"torch\.compile"):
        loss(batch(encoder, SENTENCES))
