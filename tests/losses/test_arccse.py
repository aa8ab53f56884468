import math

import numpy as np
import pytest
import reference
import torch
from encoders import ARCHITECTURES, LONG, POOLED, SENTENCES
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from updates import losses_of_updates

from sbert_plugins import losses
from sbert_plugins.losses import arccse


@pytest.fixture
def encoder(tiny_encoder):
    return tiny_encoder()


class Recorder:
    """Counts encoder passes and keeps their inputs and outputs."""

    def __init__(self, model):
        self.passes = []
        model.register_forward_hook(self._record)

    def _record(self, module, inputs, output):
        self.passes.append((output["input_ids"], output["sentence_embedding"].detach(), module[0].model.training))


class TestValue:
    def test_terms_are_those_of_the_reference(self, encoder):
        """With the embeddings of the loss's own passes and the head in numpy, the loops give the same numbers."""
        loss = losses.ArcCSELoss(encoder, triplet_weight=0.5, triplet_margin=0.4).double()
        recorder = Recorder(encoder)
        encoder.train()
        terms = loss([encoder.preprocess(SENTENCES)])
        weight, bias = (parameter.detach().numpy() for parameter in loss.head.parameters())

        views, triplets = (np.tanh(embeddings.numpy() @ weight.T + bias) for _, embeddings, _ in recorder.passes)
        assert len(views) == 2 * len(SENTENCES)
        expected = reference.arccon_loss(views[: len(SENTENCES)], views[len(SENTENCES) :], margin_degrees=10, temperature=0.05)
        assert terms["arccon"].item() == pytest.approx(expected, rel=1e-9)
        expected = 0.5 * reference.order_triplet_loss(triplets[:2], triplets[2:4], triplets[4:], margin=0.4)
        assert terms["triplet"].item() == pytest.approx(expected, rel=1e-9)
        assert terms["triplet"] > 0

    def test_without_margin_triplet_and_head_it_is_simcse(self, encoder):
        loss = losses.ArcCSELoss(encoder, margin_degrees=0, triplet_weight=0, projection_head=False)
        host = MultipleNegativesRankingLoss(encoder)
        encoder.eval()  # dropout off: the two forwards of the host and the one of ours see the same views
        features = encoder.preprocess(SENTENCES)
        assert loss([features])["arccon"].item() == pytest.approx(
            host([dict(features), dict(features)], None).item(), rel=1e-5
        )

    def test_pairs_are_those_of_the_reference(self, encoder):
        """The columns, of different lengths, in one forward; the masked copies are the anchor's."""
        loss = losses.ArcCSELoss(encoder.train(), triplet_margin=2.0, projection_head=False).double()
        recorder = Recorder(encoder)
        columns = [encoder.preprocess(side) for side in (SENTENCES, SENTENCES[:2] * 4)]
        assert columns[0]["input_ids"].shape[1] > columns[1]["input_ids"].shape[1]
        terms = loss(columns)
        (ids, views, _), (copies, _, _) = recorder.passes
        anchors, positives = views.chunk(2)
        expected = reference.arccon_loss(anchors.numpy(), positives.numpy(), margin_degrees=10, temperature=0.05)
        assert terms["arccon"].item() == pytest.approx(expected, rel=1e-9)
        for part, column in zip(ids.chunk(2), columns, strict=True):
            read = column["attention_mask"].bool()
            assert torch.equal(part[:, : read.shape[1]][read], column["input_ids"][read])
        assert torch.equal(copies[:2], columns[0]["input_ids"][[2, 7]])  # the long ones
        assert loss.diagnostics["long_share"] == 0.25
        assert torch.equal(loss(columns[::-1])["triplet"], torch.zeros(()))  # no anchor is long

    def test_a_positive_that_is_the_anchor_is_one_column(self, encoder):
        features = encoder.preprocess(SENTENCES)
        values = []
        for columns in ([features], [features, dict(features)]):
            torch.manual_seed(0)
            values.append(losses.ArcCSELoss(encoder.eval(), projection_head=False)(columns))
        assert values[0] == values[1]

    def test_pairs_without_margin_triplet_and_head_are_the_hosts(self, encoder):
        loss = losses.ArcCSELoss(encoder.eval(), margin_degrees=0, triplet_weight=0, projection_head=False)
        columns = [encoder.preprocess(side) for side in (SENTENCES, SENTENCES[::-1])]
        expected = MultipleNegativesRankingLoss(encoder)([dict(column) for column in columns], None)
        assert loss(columns)["arccon"].item() == pytest.approx(expected.item(), rel=1e-5)

    def test_features_are_left_as_they_came(self, encoder):
        features = encoder.preprocess(SENTENCES)
        before = dict(features)
        losses.ArcCSELoss(encoder.train())([features])
        assert set(features) == set(before)
        assert all(features[key] is before[key] for key in before)


class TestPasses:
    def test_one_forward_without_a_long_sentence_and_two_with(self, encoder):
        loss = losses.ArcCSELoss(encoder.train())
        recorder = Recorder(encoder)
        terms = loss([encoder.preprocess(SENTENCES[:2])])
        assert len(recorder.passes) == 1
        assert terms["triplet"] == 0
        assert loss.diagnostics["long_share"] == 0
        loss([encoder.preprocess(SENTENCES)])
        assert len(recorder.passes) == 3
        assert [len(ids) for ids, _, _ in recorder.passes] == [4, 2 * len(SENTENCES), 3 * 2]

    def test_views_have_dropout_and_triplets_have_none(self, encoder):
        loss = losses.ArcCSELoss(encoder.train())
        recorder = Recorder(encoder)
        loss([encoder.preprocess([LONG, LONG])])
        (_, views, views_training), (_, triplets, triplets_training) = recorder.passes
        assert views_training
        assert not triplets_training
        assert not torch.equal(views[0], views[1])
        assert torch.equal(triplets[0], triplets[1])  # the same unmasked sentence twice
        assert encoder[0].model.training

    @pytest.mark.parametrize("architecture", ARCHITECTURES)
    def test_masks_are_nested_and_spare_special_tokens(self, tiny_encoder, architecture):
        model = tiny_encoder(architecture).train()
        loss = losses.ArcCSELoss(model)
        recorder = Recorder(model)
        loss([model.preprocess(SENTENCES)])
        original, near, far = recorder.passes[1][0].chunk(3)
        mask = model.tokenizer.mask_token_id
        special = torch.isin(original, torch.tensor(model.tokenizer.all_special_ids))
        content = (~special).sum(dim=1)
        for masked, ratio in ((near, 0.2), (far, 0.4)):
            changed = masked != original
            assert (masked[changed] == mask).all()
            assert not (changed & special).any()
            assert changed.sum(dim=1).tolist() == [round(ratio * n) for n in content.tolist()]
        assert ((near != original) <= (far != original)).all()

    def test_a_prompt_is_never_masked(self, encoder):
        loss = losses.ArcCSELoss(encoder.train())
        recorder = Recorder(encoder)
        prompt = "Represent this sentence for us: "
        features = encoder.preprocess(SENTENCES, prompt=prompt)
        for _ in range(10):
            loss([dict(features)])
        for ids, _, _ in recorder.passes[1::2]:
            original, _, far = ids.chunk(3)
            assert torch.equal(far[:, : features["prompt_length"]], original[:, : features["prompt_length"]])

    def test_no_triplet_weight_no_triplet_pass(self, encoder):
        loss = losses.ArcCSELoss(encoder.train(), triplet_weight=0)
        recorder = Recorder(encoder)
        assert set(loss([encoder.preprocess(SENTENCES)])) == {"arccon"}
        assert len(recorder.passes) == 1

    @pytest.mark.parametrize(("min_words", "share"), [(1, 1.0), (len(LONG.split()), 0.25), (len(LONG.split()) + 1, 0.0)])
    def test_min_words(self, encoder, min_words, share):
        loss = losses.ArcCSELoss(encoder.train(), min_words=min_words)
        loss([encoder.preprocess(SENTENCES)])
        assert loss.diagnostics["long_share"] == share


class TestGradients:
    @pytest.mark.parametrize("term", ["arccon", "triplet"])
    def test_each_term_reaches_encoder_and_head(self, encoder, term):
        loss = losses.ArcCSELoss(encoder.train(), triplet_margin=2.0)
        loss([encoder.preprocess(SENTENCES)])[term].backward()
        assert encoder[0].model.embeddings.word_embeddings.weight.grad.any()
        assert loss.head.linear.weight.grad.any()

    def test_inactive_triplets_are_seen(self, encoder):
        for margin, active in ((-2.0, 0.0), (2.0, 1.0)):
            loss = losses.ArcCSELoss(encoder.train(), triplet_margin=margin)
            terms = loss([encoder.preprocess(SENTENCES)])
            assert loss.diagnostics["triplet_active"] == active
            assert (terms["triplet"] > 0) == bool(active)
            assert not any(value.requires_grad for value in loss.diagnostics.values())

    @pytest.mark.parametrize(("architecture", "pooling"), POOLED)
    def test_every_architecture_learns(self, tiny_encoder, architecture, pooling):
        model = tiny_encoder(architecture, pooling).train()
        loss = losses.ArcCSELoss(model, triplet_margin=0.5)
        values = losses_of_updates(loss, [model.preprocess(SENTENCES)], learning_rate=3e-3, count=6)
        assert all(map(math.isfinite, values))
        assert sum(values[-2:]) < sum(values[:2])


class TestPrecision:
    def test_under_autocast_the_losses_stay_float32(self, encoder):
        loss = losses.ArcCSELoss(encoder.train())
        with torch.autocast("cpu", dtype=torch.bfloat16):
            terms = loss([encoder.preprocess(SENTENCES)])
        assert all(term.dtype == torch.float32 for term in terms.values())

    def test_an_encoder_in_bfloat16(self, encoder):
        loss = losses.ArcCSELoss(encoder.bfloat16().train())
        terms = loss([encoder.preprocess(SENTENCES)])
        sum(terms.values()).backward()
        assert all(torch.isfinite(term) for term in terms.values())

    def test_identical_sentences(self, encoder):
        """Every negative is a positive: log of the batch size, roughly, and finite gradients."""
        loss = losses.ArcCSELoss(encoder.eval(), margin_degrees=0)
        terms = loss([encoder.preprocess([LONG] * 4)])
        sum(terms.values()).backward()
        assert terms["arccon"].item() == pytest.approx(math.log(4), rel=1e-4)
        assert torch.isfinite(loss.head.linear.weight.grad).all()


class TestBadInput:
    @pytest.mark.parametrize("count", [0, 3])
    def test_columns(self, encoder, count):
        with pytest.raises(ValueError, match=f"reads one text column .* or two \\(anchor, positive\\), got {count}"):
            losses.ArcCSELoss(encoder)([encoder.preprocess(SENTENCES) for _ in range(count)])

    @pytest.mark.parametrize(
        ("keywords", "message"),
        [
            ({"temperature": 0}, "temperature must be a finite number above 0, got 0"),
            ({"min_words": 0}, "min_words must be at least 1, got 0"),
            ({"temperature": -1}, "temperature must be a finite number above 0, got -1"),
            ({"margin_degrees": 180}, r"margin_degrees must be in \[0, 180\), got 180"),
            ({"margin_degrees": -10}, r"margin_degrees must be in \[0, 180\), got -10"),
            ({"triplet_weight": -0.1}, "triplet_weight must be a finite number of at least 0, got -0.1"),
            ({"triplet_weight": math.inf}, "triplet_weight must be a finite number of at least 0, got inf"),
            ({"triplet_margin": math.nan}, "triplet_margin must be a finite number, got nan"),
            ({"near_mask_ratio": 0.5}, "got 0.5 and 0.4"),
            ({"far_mask_ratio": 1.0}, "got 0.2 and 1.0"),
        ],
    )
    def test_values(self, encoder, keywords, message):
        with pytest.raises(ValueError, match=message):
            losses.ArcCSELoss(encoder, **keywords)

    def test_a_model_without_dropout(self, tiny_encoder):
        model = tiny_encoder("modernbert", embedding_dropout=0.0, attention_dropout=0.0, mlp_dropout=0.0)
        loss, features = losses.ArcCSELoss(model), model.preprocess(SENTENCES)
        with pytest.raises(ValueError, match="ArcCSELoss with one column makes its positive pairs by dropout"):
            loss([features])
        assert loss([features, model.preprocess(SENTENCES[::-1])])["arccon"] > 0

    def test_a_tokenizer_without_a_mask_token(self, encoder):
        encoder.tokenizer.mask_token = None
        with pytest.raises(ValueError, match="no mask token .* pass triplet_weight=0"):
            losses.ArcCSELoss(encoder)
        losses.ArcCSELoss(encoder, triplet_weight=0)

    def test_a_batch_of_one(self, encoder, caplog):
        """An error where the batch size is one; the rest of an epoch must not end a long training."""
        loss = losses.ArcCSELoss(encoder.train())
        with pytest.raises(ValueError, match="got a batch of 1: raise per_device_train_batch_size to at least 2"):
            loss([encoder.preprocess(SENTENCES[:1])])
        loss([encoder.preprocess(SENTENCES)])
        terms = loss([encoder.preprocess(SENTENCES[:1])])
        assert terms["arccon"] == 0
        assert "no negatives" in caplog.text

    def test_evaluating_a_batch_of_one(self, encoder):
        assert losses.ArcCSELoss(encoder.eval())([encoder.preprocess(SENTENCES[:1])])["arccon"] == 0


def test_config_shows_every_setting(encoder):
    signature = arccse.ArcCSELoss.__init__.__kwdefaults__
    assert losses.ArcCSELoss(encoder).get_config_dict() == signature
    changed = {"margin_degrees": 5.0, "temperature": 0.1, "projection_head": False, "min_words": 10}
    assert losses.ArcCSELoss(encoder, **changed).get_config_dict() == signature | changed


def test_the_gap_is_what_the_margin_is_set_against(encoder):
    """All triplets being active, their loss is the margin less the gap."""
    loss = losses.ArcCSELoss(encoder.train(), triplet_weight=1.0, triplet_margin=2.0)
    terms = loss([encoder.preprocess(SENTENCES)])
    assert terms["triplet"].item() == pytest.approx(2 - loss.diagnostics["triplet_gap"].item(), rel=1e-5)
    assert loss.diagnostics["triplet_gap"] != 0
