import pytest
import reference
import torch
from encoders import SENTENCES, given
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from tools import Recorder, batch, linear, numpy, weights_of

from sbert_plugins import losses
from sbert_plugins.modules import ProjectionHead


@pytest.mark.parametrize("projection_head", [True, False])
def test_is_that_of_the_reference(encoder, projection_head):
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
def test_both_views_pass_at_once(encoder, columns):
    recorder = Recorder(encoder)
    terms = losses.SimCSELoss(encoder)(batch(encoder, *[SENTENCES, SENTENCES[::-1]][:columns]))
    assert recorder.rows() == [2 * len(SENTENCES)]
    assert set(terms) == {"contrastive"}
    first, second = recorder.outputs[0]["sentence_embedding"].chunk(2)
    assert not torch.equal(first, second)


def test_without_head_it_is_a_ranking_loss_on_pairs(encoder):
    columns = batch(encoder.eval(), SENTENCES, SENTENCES[::-1])
    expected = MultipleNegativesRankingLoss(encoder, scale=10)([dict(column) for column in columns], None)
    loss = losses.SimCSELoss(encoder, temperature=0.1, projection_head=False)
    torch.testing.assert_close(loss(columns)["contrastive"], expected)
