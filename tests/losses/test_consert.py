import math

import numpy as np
import pytest
import reference
import torch
from encoders import ARCHITECTURES, SENTENCES
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.losses.merged_forward import column_merging_disabled
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from updates import losses_of_updates

from sbert_plugins import losses
from sbert_plugins.encoder import View
from sbert_plugins.losses import consert

POSITIVES = [f"{sentence} {sentence} {sentence}" for sentence in SENTENCES]
EVERY_PART = ("feature_cutoff", "token_cutoff", "token_shuffling", "dropout")


@pytest.fixture
def encoder(tiny_encoder):
    return tiny_encoder("bert", "mean")


def passes_of(model):
    found = []
    model.register_forward_hook(
        lambda module, arguments, output: found.append((output["sentence_embedding"].detach(), module.training))
    )
    return found


class TestValue:
    def test_is_the_reference_on_its_own_views(self, encoder):
        loss = losses.ConSERTLoss(encoder).double()
        found = passes_of(encoder)
        terms = loss([encoder.train().preprocess(SENTENCES)])
        ((views, _),) = found  # one forward
        first, second = views.numpy()[: len(SENTENCES)], views.numpy()[len(SENTENCES) :]
        assert terms["nt_xent"].item() == pytest.approx(reference.nt_xent(first, second, temperature=0.1), rel=1e-9)

    def test_is_the_reference_on_projected_views(self, encoder):
        loss = losses.ConSERTLoss(encoder, projection_head=True).double()
        found = passes_of(encoder)
        terms = loss([encoder.train().preprocess(SENTENCES)])
        ((views, _),) = found
        weight, bias = (parameter.detach().numpy() for parameter in loss.head.parameters())
        projected = np.tanh(views.numpy() @ weight.T + bias)
        first, second = projected[: len(SENTENCES)], projected[len(SENTENCES) :]
        assert terms["nt_xent"].item() == pytest.approx(reference.nt_xent(first, second, temperature=0.1), rel=1e-9)

    @pytest.mark.parametrize("part", EVERY_PART)
    def test_a_view_against_the_plain_sentence(self, encoder, part):
        loss = losses.ConSERTLoss(encoder.train(), first_view=(), second_view=(part,))
        found = passes_of(encoder)
        loss([encoder.preprocess(SENTENCES)])
        first, second = torch.cat([vectors for vectors, _ in found]).chunk(2)
        assert not torch.allclose(first, second, atol=1e-3)
        encoder.eval()
        assert torch.allclose(first, encoder(encoder.preprocess(SENTENCES))["sentence_embedding"], atol=1e-5)

    def test_dropout_is_on_where_a_view_has_it(self, encoder):
        found = passes_of(encoder)
        features = encoder.train().preprocess(SENTENCES)
        losses.ConSERTLoss(encoder)([features])
        losses.ConSERTLoss(encoder, first_view=EVERY_PART, second_view=("dropout",))([features])
        losses.ConSERTLoss(encoder, second_view=("dropout",))([features])
        assert [training for _, training in found] == [False, True, False, True]
        assert [len(vectors) // len(SENTENCES) for vectors, _ in found] == [2, 2, 1, 1]
        assert encoder[0].model.training

    def test_unmerged_passes_get_a_view_each(self, encoder):
        loss = losses.ConSERTLoss(encoder, first_view=("token_cutoff",))  # drawn before the passes, like the shuffling
        features = encoder.train().preprocess(SENTENCES)
        torch.manual_seed(0)
        merged = loss([features])["nt_xent"]
        torch.manual_seed(0)
        with column_merging_disabled():
            apart = loss([features])["nt_xent"]
        assert apart.item() == pytest.approx(merged.item(), rel=1e-4)

    @pytest.mark.parametrize("sides", [(SENTENCES, POSITIVES), (POSITIVES, SENTENCES), (SENTENCES, SENTENCES[::-1])])
    def test_a_column_for_each_view(self, encoder, sides):
        """A forward for each, also where they are of one length: how many there are depends on no text."""
        loss = losses.ConSERTLoss(encoder, first_view=(), second_view=()).double()
        found = passes_of(encoder)
        terms = loss([encoder.train().preprocess(side) for side in sides])
        assert len(found) == 2
        views = torch.cat([vectors for vectors, _ in found])
        encoder.eval()
        for view, side in zip(views.chunk(2), sides, strict=True):
            assert torch.allclose(view, encoder(encoder.preprocess(side))["sentence_embedding"])
        first, second = (view.numpy() for view in views.chunk(2))
        assert terms["nt_xent"].item() == pytest.approx(reference.nt_xent(first, second, temperature=0.1), rel=1e-9)

    @pytest.mark.parametrize("views", [{}, {"first_view": EVERY_PART, "second_view": EVERY_PART}], ids=["default", "all"])
    def test_a_positive_that_is_the_anchor_is_one_column(self, encoder, views):
        loss = losses.ConSERTLoss(encoder.train(), **views)
        features = encoder.preprocess(SENTENCES)
        values = []
        for columns in ([features], [features, dict(features)]):
            torch.manual_seed(0)
            values.append(loss(columns)["nt_xent"])
        assert values[0] == values[1]

    @pytest.mark.parametrize("architecture", ARCHITECTURES)
    def test_every_view_of_columns_of_two_lengths(self, tiny_encoder, architecture):
        model = tiny_encoder(architecture, "mean").train()
        loss = losses.ConSERTLoss(model, first_view=EVERY_PART, second_view=EVERY_PART)
        columns = [model.preprocess(SENTENCES), model.preprocess(POSITIVES)]
        for sides in (columns, columns[::-1]):
            value = loss(sides)["nt_xent"]
            value.backward()
            assert torch.isfinite(value)

    def test_features_are_left_as_they_came(self, encoder):
        features = encoder.preprocess(SENTENCES)
        before = dict(features)
        losses.ConSERTLoss(encoder)([features])
        assert all(features[key] is before[key] for key in before)
        assert set(features) == set(before)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_learns(tiny_encoder, architecture):
    model = tiny_encoder(architecture, "mean").train()
    loss = losses.ConSERTLoss(model, first_view=("feature_cutoff", "token_cutoff", "dropout"))
    values = losses_of_updates(loss, [model.preprocess(SENTENCES)], learning_rate=3e-3, count=8)
    assert all(map(math.isfinite, values))
    assert sum(values[-3:]) < sum(values[:3])


@pytest.mark.parametrize("views", [{}, {"second_view": ("token_shuffling", "dropout")}])
def test_gradient_checkpointing_saves_memory_and_changes_nothing(tiny_encoder, views):
    def run(checkpointing):
        model, runs = tiny_encoder("bert", "mean").double().train(), []
        if checkpointing:
            model.transformers_model.activation_checkpointing_enable()
        loss = losses.ConSERTLoss(model, **views)
        model.transformers_model.encoder.layer[0].attention.self.query.register_forward_hook(lambda *_: runs.append(True))
        torch.manual_seed(0)
        loss([model.preprocess(SENTENCES)])["nt_xent"].backward()
        return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}, len(runs)

    (expected, once), (found, twice) = map(run, (False, True))
    assert twice == 2 * once
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


class TestBadInput:
    @pytest.mark.parametrize("count", [0, 3])
    def test_columns(self, encoder, count):
        with pytest.raises(ValueError, match=f"reads one text column .* or two \\(anchor, positive\\), got {count}"):
            losses.ConSERTLoss(encoder)([encoder.preprocess(SENTENCES)] * count)

    def test_one_column_and_views_that_change_nothing(self, encoder):
        with pytest.raises(ValueError, match="must change the sentence where there is one column, got none"):
            losses.ConSERTLoss(encoder, first_view=(), second_view=())([encoder.preprocess(SENTENCES)])

    @pytest.mark.parametrize(
        ("keywords", "message"),
        [
            ({"temperature": 0}, "temperature must be a finite number above 0"),
            ({"first_view": ("cutoff",)}, r"first_view must be a sequence of 'feature_cutoff'.* got \('cutoff',\)"),
            ({"second_view": "dropout"}, "second_view must be a sequence of .* got 'dropout'"),
            ({"feature_cutoff_rate": 0}, r"feature_cutoff_rate must be in \(0, 1\), got 0"),
            ({"token_cutoff_rate": 1.0}, r"token_cutoff_rate must be in \(0, 1\), got 1.0"),
        ],
    )
    def test_values(self, encoder, keywords, message):
        with pytest.raises(ValueError, match=message):
            losses.ConSERTLoss(encoder, **keywords)

    def test_static_embeddings(self, tokenizers):
        static = SentenceTransformer(modules=[StaticEmbedding(tokenizers["bpe"].backend_tokenizer, embedding_dim=8)])
        with pytest.raises(ValueError, match="must be a transformers tokenizer, got Tokenizer"):
            losses.ConSERTLoss(static)

    def test_a_model_without_dropout(self, tiny_encoder):
        model = tiny_encoder("modernbert", embedding_dropout=0.0, attention_dropout=0.0, mlp_dropout=0.0)
        losses.ConSERTLoss(model)
        with pytest.raises(ValueError, match="ConSERTLoss with a view of dropout"):
            losses.ConSERTLoss(model, first_view=("dropout",))


def test_config_shows_every_setting(encoder):
    signature = losses.ConSERTLoss.__init__.__kwdefaults__
    assert losses.ConSERTLoss(encoder).get_config_dict() == signature
    changed = {"first_view": ("dropout",), "temperature": 0.05, "token_cutoff_rate": 0.3}
    assert losses.ConSERTLoss(encoder, **changed).get_config_dict() == signature | changed


def test_a_first_batch_of_one_teaches_nothing(encoder):
    loss = losses.ConSERTLoss(encoder.train())
    with pytest.raises(ValueError, match="ConSERTLoss takes the other sentences of a batch as negatives, got a batch of 1"):
        loss([encoder.preprocess(SENTENCES[:1])])
    loss([encoder.preprocess(SENTENCES)])
    assert loss([encoder.preprocess(SENTENCES[:1])])["nt_xent"].item() == 0


@pytest.mark.parametrize("rate", [0.25, 0.5])
def test_each_rate_is_its_own(encoder, monkeypatch, rate):
    made = []
    monkeypatch.setattr(consert, "View", lambda *of, **rates: made.append(View(*of, **rates)) or made[-1])
    views = {"first_view": ("token_cutoff",), "second_view": ("feature_cutoff",)}
    loss = losses.ConSERTLoss(encoder.eval(), token_cutoff_rate=rate, feature_cutoff_rate=rate / 2, **views)
    loss([features := encoder.preprocess(SENTENCES)])
    assert torch.equal(made[0].cut_tokens.sum(dim=1), (rate * loss.tokens.content(features).sum(dim=1)).round().long())
    cut = made[1].inputs(torch.ones(len(SENTENCES), made[1].length, 32)) == 0
    assert (cut[:, 0].sum(dim=1) == 32 * rate / 2).all()
