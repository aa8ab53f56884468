import numpy as np
import pytest
import reference
import torch
from encoders import ARCHITECTURES, LONG, SENTENCES
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from tools import Recorder, batch, linear, weights_of

from sbert_plugins import losses

LONG_ROWS = [2, 7]  # of SENTENCES


@pytest.fixture
def encoder(tiny_encoder):
    return tiny_encoder().train()


class TestValue:
    @pytest.mark.parametrize("keywords", [{}, {"triplet_weight": 0.5, "triplet_margin": 0.4}])
    @pytest.mark.parametrize("pairs", [False, True])
    def test_terms_are_those_of_the_reference(self, encoder, pairs, keywords):
        # The loops give the same numbers from the vectors of the loss's own passes.
        loss = losses.ArcCSELoss(encoder, **keywords).double()
        recorder = Recorder(encoder)
        terms = loss(batch(encoder, SENTENCES, SENTENCES[:2] * 4) if pairs else batch(encoder, SENTENCES))
        views, triplets = (
            np.tanh(linear(weights_of(loss.head), "linear", output["sentence_embedding"].detach().numpy()))
            for output in recorder.outputs
        )
        anchors, positives = np.split(views, 2)
        expected = reference.arccon_loss(anchors, positives, margin_degrees=10, temperature=0.05)
        assert terms["arccon"].item() == pytest.approx(expected, rel=1e-9)
        weight, margin = keywords.get("triplet_weight", 0.1), keywords.get("triplet_margin", 0.0)
        expected = weight * reference.order_triplet_loss(*np.split(triplets, 3), margin=margin)
        assert terms["triplet"].item() == pytest.approx(expected, rel=1e-9)
        assert terms["triplet"] > 0 or not keywords

    @pytest.mark.parametrize("columns", [[SENTENCES], [SENTENCES, SENTENCES[::-1]]])
    def test_without_margin_triplet_and_head_it_is_simcse(self, encoder, columns):
        # No mask token is needed then.
        encoder.tokenizer.mask_token = None
        loss = losses.ArcCSELoss(encoder.eval(), margin_degrees=0, triplet_weight=0, projection_head=False)
        expected = MultipleNegativesRankingLoss(encoder)(batch(encoder, columns[0], columns[-1]), None)
        torch.testing.assert_close(dict(loss(batch(encoder, *columns))), {"arccon": expected})

    def test_diagnostics(self, encoder):
        # With all triplets active, their loss is the margin minus the gap.
        for margin, active in ((-2.0, 0.0), (2.0, 1.0)):
            loss = losses.ArcCSELoss(encoder, triplet_weight=1.0, triplet_margin=margin)
            value = loss(batch(encoder, SENTENCES))["triplet"].item()
            assert loss.diagnostics["triplet_active"] == active
            assert value == pytest.approx(active * (2 - loss.diagnostics["triplet_gap"].item()), rel=1e-5)
            assert loss.diagnostics["long_share"] == 0.25
            assert loss.diagnostics["triplet_gap"] != 0


class TestTriplets:
    def test_are_made_of_long_sentences_only(self, encoder):
        # Of those of the first column. A batch without one makes no pass for them.
        loss = losses.ArcCSELoss(encoder)
        recorder = Recorder(encoder)
        assert loss(batch(encoder, SENTENCES[:2]))["triplet"] == 0
        assert loss.diagnostics["long_share"] == 0
        columns = batch(encoder, SENTENCES, SENTENCES[:2] * 4)
        loss(columns)
        assert recorder.rows() == [4, 2 * len(SENTENCES), 3 * len(LONG_ROWS)]
        assert torch.equal(recorder.inputs[2][0]["input_ids"][:2], columns[0]["input_ids"][LONG_ROWS])
        assert loss(columns[::-1])["triplet"] == 0

    @pytest.mark.parametrize(("more", "share"), [(0, 0.25), (1, 0.0)])
    def test_min_words(self, encoder, more, share):
        loss = losses.ArcCSELoss(encoder, min_words=len(LONG.split()) + more)
        loss(batch(encoder, SENTENCES))
        assert loss.diagnostics["long_share"] == share

    def test_have_no_dropout(self, encoder):
        loss, recorder = losses.ArcCSELoss(encoder), Recorder(encoder)
        loss(batch(encoder, [LONG, LONG]))
        views, triplets = (output["sentence_embedding"] for output in recorder.outputs)
        assert recorder.training == [True, False]
        assert not torch.equal(views[0], views[1])
        assert torch.equal(triplets[0], triplets[1])  # the same unmasked sentence twice
        assert encoder[0].model.training

    @pytest.mark.parametrize("architecture", ARCHITECTURES)
    def test_masks_are_nested_and_leave_out_special_tokens(self, tiny_encoder, architecture):
        model = tiny_encoder(architecture).train()
        loss, recorder = losses.ArcCSELoss(model, far_mask_ratio=0.5), Recorder(model)
        loss(batch(model, SENTENCES))
        original, near, far = recorder.inputs[1][0]["input_ids"].chunk(3)
        special = torch.isin(original, torch.tensor(model.tokenizer.all_special_ids))
        for masked, ratio in ((near, 0.2), (far, 0.5)):
            changed = masked != original
            assert (masked[changed] == model.tokenizer.mask_token_id).all()
            assert not (changed & special).any()
            # One span in each half, whose lengths are rounded.
            wanted = ratio * (~special).sum(dim=1)
            assert ((changed.sum(dim=1) - wanted).abs() <= 1).all()
        assert ((near != original) <= (far != original)).all()


@pytest.mark.parametrize(
    ("keywords", "modes"),
    [
        ({"triplet_dropout": True}, [True, True]),
        ({"positive_dropout": False, "triplet_weight": 0}, [True, False]),  # Table 3, second row
    ],
)
def test_passes_with_dropout(encoder, keywords, modes):
    loss, recorder = losses.ArcCSELoss(encoder, **keywords), Recorder(encoder)
    loss(batch(encoder, SENTENCES[:3]))
    assert recorder.training == modes


@pytest.mark.parametrize("architecture", ["bert", "roberta", "xlm-roberta"])
def test_a_length_of_its_own(tiny_encoder, architecture):
    # The first term reads what the tokenizer cuts at 12 tokens, and the triplets read whole sentences.
    model = tiny_encoder(architecture).train()
    loss, recorder = losses.ArcCSELoss(model, arccon_max_length=12), Recorder(model)
    (whole,) = batch(model, SENTENCES)
    loss([whole])
    cut = model.tokenizer(SENTENCES, max_length=12, truncation=True, padding=True, return_tensors="pt")
    views, triplets = (features["input_ids"] for features, *_ in recorder.inputs)
    assert torch.equal(views, cut["input_ids"].repeat(2, 1))
    assert triplets.shape[1] == whole["input_ids"].shape[1] > 12


def test_a_length_of_its_own_needs_padding_at_the_right(encoder):
    encoder.tokenizer.padding_side = "left"
    with pytest.raises(ValueError, match="left"):
        losses.ArcCSELoss(encoder, arccon_max_length=12)
