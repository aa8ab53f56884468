import logging

import numpy as np
import pytest
import reference
import torch
from encoders import ARCHITECTURES, SENTENCES, project_counts
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from tools import Recorder, batch, gradients, linear, numpy, trained, weights_of

from sbert_plugins import functional, losses
from sbert_plugins.encoder import View
from sbert_plugins.losses import consert

BASES = {
    "simcse": lambda model: None,  # the default
    "simcse on pairs": MultipleNegativesRankingLoss,
    "consert": lambda model: losses.ConSERTLoss(model, first_view=("token_shuffling",)),
    "consert with dropout": lambda model: losses.ConSERTLoss(model, first_view=("token_cutoff", "dropout")),
    "arccse": losses.ArcCSELoss,
    "arccse on pairs": losses.ArcCSELoss,
    "consert on pairs": lambda model: losses.ConSERTLoss(model, first_view=("token_cutoff",)),
}


@pytest.fixture
def views(monkeypatch):
    """The views that ConSERT has drawn."""
    made = []
    monkeypatch.setattr(consert, "View", lambda *a, **k: made.append(View(*a, **k)) or made[-1])
    return made


def build(model, base=None, **keywords):
    given = {"warmup_steps": 0, "low_frequency_by": "mass"} | keywords
    torch.manual_seed(0)
    return losses.SLTFAILoss(model, base, frequencies=project_counts(model.tokenizer), **given)


def columns_of(name, model):
    """Return a column, or two of different lengths."""
    return batch(model, SENTENCES, [text * 2 for text in SENTENCES])[: 2 if name.endswith("on pairs") else 1]


def read_differently(ids, copy, view):
    """Return whether the encoder reads another word at some place of each copy."""
    changed = (ids != copy).numpy()
    if view is not None and view.order is not None:
        changed = np.take_along_axis(changed, view.order.numpy(), axis=1)
    if view is not None and view.cut_tokens is not None:
        changed &= ~view.cut_tokens.numpy()
    return changed.any(axis=1)


class TestValue:
    @pytest.mark.parametrize("name", ["paper", *BASES])
    def test_terms_are_those_of_the_reference(self, encoder, views, name):
        # From the base loss's first pass and one more; discriminators and losses are numpy.
        if name == "paper":
            keywords, base = {"low_frequency_by": "types"}, None
        else:
            keywords, base = {"adversarial_weight": 0.5, "filtering_weight": 2.0}, BASES[name](encoder)
        loss, recorder = build(encoder, base, **keywords).double(), Recorder(encoder)
        columns = columns_of(name, encoder)
        terms = loss(columns)
        original, copy = recorder.outputs[0], recorder.outputs[-1]
        ids, rows, length = columns[0]["input_ids"], *columns[0]["input_ids"].shape
        own = weights_of(loss)

        def classify(part, x):
            hidden = np.maximum(linear(own, f"{part}_discriminator.layers.0", numpy(x)), 0)
            return linear(own, f"{part}_discriminator.layers.2", hidden)

        content = columns[0]["attention_mask"].bool()
        content &= ~torch.isin(ids, torch.tensor(encoder.tokenizer.all_special_ids))
        low_ids = project_counts(encoder.tokenizer).low_frequency_ids(
            0.5, keywords.get("low_frequency_by", "mass")
        )
        low = np.isin(ids, low_ids).astype(int)
        if views and views[0].order is not None:  # other words are at each place
            low = np.take_along_axis(low, views[0].order.numpy(), axis=1)
        logits = classify("frequency", original["token_embeddings"][:rows, :length])
        weight = keywords.get("adversarial_weight", 1.0)
        expected = weight * reference.token_class_loss(logits, low, content.numpy())
        assert terms["adversarial"].item() == pytest.approx(expected, rel=1e-9)
        pair = [classify("completeness", each["sentence_embedding"][:rows]) for each in (original, copy)]
        usable = read_differently(ids, copy["input_ids"], views[0] if views else None)
        weight = keywords.get("filtering_weight", 1.0)
        expected = weight * reference.incomplete_sentence_loss(*pair, usable)
        assert terms["filtering"].item() == pytest.approx(expected, rel=1e-9)
        assert loss.diagnostics["masked_share"].item() == pytest.approx(sum(usable) / rows)

    @pytest.mark.parametrize("name", BASES)
    def test_the_base_loss_is_what_it_is_alone(self, encoder, name):
        # With the same draws, and with one pass less.
        loss, recorder = build(encoder, BASES[name](encoder)), Recorder(encoder)
        torch.manual_seed(0)
        inside = [term for key, term in loss(columns_of(name, encoder)).items() if key.startswith("base")]
        rows = recorder.rows()
        torch.manual_seed(0)
        alone = loss.loss(columns_of(name, encoder), None)
        assert inside == ([*alone.values()] if isinstance(alone, dict) else [alone])
        assert rows == [*recorder.rows()[len(rows) :], len(SENTENCES)]


class TestIncompleteSentences:
    @pytest.mark.parametrize("architecture", ARCHITECTURES)
    @pytest.mark.parametrize("ratio", [0.2, 1.0])
    def test_only_rare_tokens_are_masked(self, tiny_encoder, architecture, ratio):
        # Of a prompt none.
        model = tiny_encoder(architecture).train()
        recorder, column = Recorder(model), model.preprocess(SENTENCES, prompt="Represent this sentence: ")
        build(model, masking_ratio=ratio)([column])
        ids, copy = column["input_ids"], recorder.inputs[-1][0]["input_ids"]
        low_ids = project_counts(model.tokenizer).low_frequency_ids(0.5, "mass")
        rare = torch.isin(ids, torch.as_tensor(low_ids))
        rare[:, : column["prompt_length"]] = False
        assert (copy[ids != copy] == model.tokenizer.mask_token_id).all()
        assert ((ids != copy) <= rare).all()
        wanted = [max(1, round(ratio * n)) if n else 0 for n in rare.sum(dim=1).tolist()]
        assert (ids != copy).sum(dim=1).tolist() == wanted

    def test_a_sentence_without_a_rare_token_is_left_out(self, encoder):
        # Otherwise the same vector would belong to both classes.
        loss, (column,) = build(encoder), batch(encoder, SENTENCES)
        loss.low_frequency.zero_()
        assert loss([column])["filtering"] == 0
        rare = int(column["input_ids"][2, 4])
        loss.low_frequency[rare] = 1
        loss([column])
        share = (column["input_ids"] == rare).any(dim=1).float().mean()
        assert loss.diagnostics["masked_share"] == share > 0

    @pytest.mark.parametrize("name", ["consert", "consert with dropout", "consert on pairs"])
    def test_the_copy_is_read_in_the_view_of_its_original(self, encoder, name, monkeypatch):
        # With nothing masked it has the same vector, if there is no dropout.
        nothing = lambda candidates, *_, **__: candidates & False  # noqa: E731
        monkeypatch.setattr("sbert_plugins.losses.slt_fai.random_subset", nothing)
        loss, recorder = build(encoder, BASES[name](encoder)), Recorder(encoder)
        loss(columns_of(name, encoder))
        first, copy = (recorder.outputs[i]["sentence_embedding"][:8] for i in (0, -1))
        assert recorder.training[0] == recorder.training[-1] == ("dropout" in name)
        assert torch.allclose(first, copy, atol=1e-5) == ("dropout" not in name)


class TestGradients:
    @pytest.mark.parametrize("strength", [1.0, 0.3])
    def test_the_encoder_gets_the_discriminators_reversed(self, encoder, strength):
        loss = build(encoder.eval(), reversal_strength=strength, filtering_weight=0).double()
        columns, found = batch(encoder, SENTENCES), []
        for reverse in (functional.gradient_reversal, lambda x, strength: x):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(functional, "gradient_reversal", reverse)
                loss.zero_grad()
                loss(columns)["adversarial"].backward()
            found.append(gradients(loss))
        for name, gradient in found[0].items():
            factor = -strength if name.startswith("model") else 1.0
            torch.testing.assert_close(gradient, factor * found[1][name], rtol=1e-9, atol=1e-15)

    def test_the_filtering_is_not_reversed(self, encoder):
        # A step of the encoder alone makes the two classes easier to separate.
        loss = build(encoder.eval(), adversarial_weight=0, masking_ratio=1.0)
        columns = batch(encoder, SENTENCES)
        before = loss(columns)["filtering"]
        before.backward()
        torch.optim.SGD(encoder.parameters(), lr=0.01).step()
        assert loss(columns)["filtering"] < before


@pytest.mark.parametrize(("left_out", "passes"), [("adversarial_weight", 2), ("filtering_weight", 1)])
def test_an_objective_of_weight_0_costs_nothing(encoder, left_out, passes):
    loss, recorder = build(encoder, **{left_out: 0}), Recorder(encoder)
    terms = loss(batch(encoder, SENTENCES))
    assert set(terms) == {"base/contrastive", "adversarial", "filtering"} - {left_out.removesuffix("_weight")}
    assert len(recorder.outputs) == passes
    assert len([name for name, _ in loss.named_children() if "discriminator" in name]) == 1


def test_a_base_loss_that_encodes_the_other_column(encoder):
    base = losses.DenoSentLoss(encoder, contrastive_weight=0, decoder_feedforward=48)
    terms = build(encoder, base)(batch(encoder, SENTENCES, SENTENCES[::-1]))
    assert set(terms) == {"base/denoising", "adversarial", "filtering"}
    sum(terms.values()).backward()


class TestWarmUp:
    def active(self, loss, updates, micro_batches=1):
        """Train, and return in which updates the objectives were active."""
        optimizer, found = torch.optim.SGD(trained(loss), lr=1e-3), []
        for _ in range(updates):
            for _ in range(micro_batches):
                terms = loss(batch(loss.model, SENTENCES))
                sum(terms.values()).backward()
            optimizer.step()
            found.append(bool(terms["adversarial"] > 0 and terms["filtering"] > 0))
        return found

    @pytest.mark.parametrize("micro_batches", [1, 3])
    def test_is_counted_in_updates(self, encoder, micro_batches):
        # Before its end only the base loss makes passes.
        loss, recorder = build(encoder, warmup_steps=2), Recorder(encoder)
        assert self.active(loss, 4, micro_batches) == [False, False, True, True]
        assert len(recorder.outputs) == micro_batches * (2 * 1 + 2 * 2)
        loss.begin_training(steps=4, resumed=False)
        assert self.active(loss, 3) == [False, False, True]

    @pytest.mark.parametrize("warmup_steps", [4, 0.5])
    def test_a_resumed_training_goes_on(self, encoder, warmup_steps):
        first, second = (build(encoder, warmup_steps=warmup_steps) for _ in range(2))
        first.begin_training(steps=8, resumed=False)
        assert self.active(first, 2) == [False, False]
        second.load_state_dict(first.state_dict())
        second.begin_training(steps=8, resumed=True)
        assert self.active(second, 3) == [False, False, True]

    def test_an_evaluation_has_all_terms(self, encoder):
        loss = build(encoder, warmup_steps=2)
        encoder.eval()
        assert all(term > 0 for term in loss(batch(encoder, SENTENCES)).values())
        encoder.train()
        assert self.active(loss, 3) == [False, False, True]

    def test_a_share_of_an_unknown_length(self, encoder, caplog):
        with caplog.at_level(logging.WARNING):
            assert self.active(build(encoder, warmup_steps=0.5), 2) == [True, True]
        assert caplog.text.count("There is no warm-up") == 1


class TestBalance:
    @pytest.mark.parametrize("name", ["simcse", "consert"])
    def test_bounds_each_weighted_term_where_it_reads_the_encoder(self, encoder, name):
        # At the tokens of the first view, or at the vectors of view and copy.
        weights = {"adversarial_weight": 2.0, "filtering_weight": 4.0}
        loss, recorder = build(encoder, BASES[name](encoder), balance=0.001, **weights), Recorder(encoder)
        terms = loss(batch(encoder, SENTENCES))
        first, copy = recorder.outputs[0], recorder.outputs[-1]
        read = {
            "adversarial": [first["token_embeddings"]],
            "filtering": [first["sentence_embedding"], copy["sentence_embedding"]],
        }
        base = sum(term for key, term in terms.items() if key.startswith("base"))
        for key, outputs in read.items():
            (main,) = torch.autograd.grad(base, outputs[:1], retain_graph=True)
            own = torch.autograd.grad(terms[key], outputs, retain_graph=True)
            limit = 0.001 * main[: len(SENTENCES)].norm().item()
            assert torch.cat(own).norm().item() == pytest.approx(limit, rel=1e-3)
            assert 0 < loss.diagnostics[f"{key}_balance_factor"] < 1

    def test_a_compiled_model_is_an_error(self, encoder):
        # Its outputs are computed next to each other. Found before the warm-up is over.
        loss = build(encoder, balance=0.1, warmup_steps=2)
        loss.model = torch.compile(encoder, backend="eager")
        with pytest.raises(ValueError, match="balance=None"):
            loss(batch(encoder, SENTENCES))
