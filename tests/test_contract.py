import inspect

import pytest
import torch
from encoders import SENTENCES
from methods import EVERY, METHODS
from sentence_transformers.sentence_transformer import losses as host_losses
from sentence_transformers.sentence_transformer.losses import AdaptiveLayerLoss, Matryoshka2dLoss, MatryoshkaLoss
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from trainings import trainer_of

from sbert_plugins import data, functional, losses
from sbert_plugins.contract import (
    Terms,
    asks_for_passes,
    check_negatives,
    has_learned,
    prefixed,
    settings_of,
    value_of,
    warn_unless_kept,
)
from sbert_plugins.encoder import Encoder
from sbert_plugins.training.loss_state import inform_losses

BUILD = {
    "arccse": lambda model: losses.ArcCSELoss(model, triplet_margin=0.5, projection_head=False),
    "consert": losses.ConSERTLoss,
}
DIMENSIONS, WEIGHTS = [32, 16, 8], [1, 0.5, 0.25]


@pytest.fixture
def model(tiny_encoder):
    return tiny_encoder().train()


def gradients(model):
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


class TestArithmetic:
    def test_term_by_term(self):
        a, b = torch.tensor(2.0), torch.tensor(3.0)
        first, second = Terms(x=a, y=b), Terms(y=a, z=b)
        assert first + second == {"x": 2.0, "y": 5.0, "z": 3.0}
        assert sum([first, second]) == 0.0 + first + second == first + second
        assert 2 * first == first * 2 == first * torch.tensor(2.0) == {"x": 4.0, "y": 6.0}
        assert isinstance(0.5 * first + second, Terms)
        total = 0.0
        total += 1 * first
        total += 0.5 * second
        assert total == {"x": 2.0, "y": 4.0, "z": 1.5}
        assert first == {"x": 2.0, "y": 3.0}  # as it was

    @pytest.mark.parametrize(
        "wrong", [lambda t: t + 1, lambda t: t + {"x": 1}, lambda t: "a" * t, lambda t: t * t, lambda t: t + torch.tensor(1.0)]
    )
    def test_nothing_else(self, wrong):
        with pytest.raises(TypeError):
            wrong(Terms(x=torch.tensor(2.0)))


HOSTS = [
    host_losses.ContrastiveLoss,
    host_losses.CoSENTLoss,
    host_losses.AnglELoss,
    host_losses.CosineSimilarityLoss,
    host_losses.MultipleNegativesRankingLoss,
    host_losses.OnlineContrastiveLoss,
    host_losses.TripletLoss,
]


class TestPasses:
    """The seam from passes to a loss's value."""

    @pytest.mark.parametrize("method", EVERY)
    def test_forward_is_the_value_of_an_encoder_of_its_own(self, method, tiny_encoder):
        build, dataset = EVERY[method]
        model = tiny_encoder().train()
        loss = build(model)
        columns = [model.preprocess(list(column)) for column in dataset(8)[:].values()]
        values = []
        for call in (loss, lambda columns: value_of(loss, Encoder(model), columns, None)):
            torch.manual_seed(0)
            if hasattr(loss, "queue"):
                loss.queue.rows.zero_()
                loss.queue.seen.zero_()
            values.append(call([dict(column) for column in columns]))
        assert asks_for_passes(loss)
        assert values[0].keys() == values[1].keys()
        for name, value in values[0].items():
            torch.testing.assert_close(values[1][name], value)

    @pytest.mark.parametrize("kind", HOSTS)
    def test_of_the_host(self, kind, model):
        """Each of these embeds each column once, the first by itself: the draws are the same."""
        loss = kind(model)
        columns = [model.preprocess(texts) for texts in (SENTENCES, SENTENCES[::-1], SENTENCES[1:] + SENTENCES[:1])]
        columns = columns if kind is host_losses.TripletLoss else columns[:2]
        labels = torch.tensor([1.0, 0.0] * (len(SENTENCES) // 2))
        assert asks_for_passes(loss)
        torch.manual_seed(0)
        expected = loss([dict(column) for column in columns], labels)
        torch.manual_seed(0)
        assert torch.equal(value_of(loss, Encoder(model), columns, labels), expected)

    def test_of_losses_that_embed_otherwise(self, model):
        class Ranking(host_losses.MultipleNegativesRankingLoss):
            def forward(self, sentence_features, labels):
                return 2 * super().forward(sentence_features, labels)

        class Seen(losses.ConSERTLoss):
            def compute_loss_from_passes(self, encode, columns, labels=None):
                return super().compute_loss_from_passes(encode, columns, labels)

        for kind in (Ranking, host_losses.BatchAllTripletLoss, host_losses.DenoisingAutoEncoderLoss):
            assert not asks_for_passes(kind(model))
        assert asks_for_passes(Seen(model))
        columns = [model.eval().preprocess(SENTENCES)] * 2
        ranking, plain = (kind(model) for kind in (Ranking, host_losses.MultipleNegativesRankingLoss))
        doubled = value_of(ranking, Encoder(model), columns, None)
        torch.testing.assert_close(doubled, 2 * value_of(plain, Encoder(model), columns, None))

    def test_names_inside_another_loss(self):
        assert prefixed("a", torch.tensor(1.0)) == {"a": 1.0}
        assert prefixed("a", {"b": torch.tensor(1.0)}) == {"a/b": 1.0}


class TestMatryoshka:
    @pytest.mark.parametrize("method", BUILD)
    def test_gradients_are_those_of_a_sum_by_hand(self, tiny_encoder, model, method):
        """The same passes, cut, weighted and summed."""
        torch.manual_seed(3)
        terms = MatryoshkaLoss(model, BUILD[method](model), DIMENSIONS, WEIGHTS)([model.preprocess(SENTENCES)], None)
        sum(terms.values()).backward()

        other = tiny_encoder().train()
        loss = BUILD[method](other)
        torch.manual_seed(3)
        passes = Passes(other)
        loss([other.preprocess(SENTENCES)])
        expected = torch.zeros(())
        for dimension, weight in zip(DIMENSIONS, WEIGHTS, strict=True):
            vectors = [output[:, :dimension] for output in passes.vectors]
            first, second = vectors[0].chunk(2)
            if method == "consert":
                expected = expected + weight * functional.nt_xent(first, second, temperature=loss.temperature)
            else:
                arccon = functional.arccon_loss(first, second, margin_degrees=10.0, temperature=0.05)
                triplet = functional.order_triplet_loss(*vectors[1].chunk(3), margin=0.5)
                expected = expected + weight * (arccon + 0.1 * triplet)
        expected.backward()
        torch.testing.assert_close(sum(terms.values()), expected)
        found, by_hand = gradients(model), gradients(other)
        assert found.keys() == by_hand.keys()
        for name, gradient in found.items():
            torch.testing.assert_close(gradient, by_hand[name], rtol=1e-4, atol=1e-5, msg=name)

    @pytest.mark.parametrize("method", BUILD)
    def test_trains_and_logs_each_term(self, model, tmp_path, method):
        trainer = trainer_of(model, MatryoshkaLoss(model, BUILD[method](model), [32, 16]), tmp_path, max_steps=2)
        trainer.train()
        logged = [entry for entry in trainer.state.log_history if "loss" in entry]
        names = {"arccon", "triplet"} if method == "arccse" else {"nt_xent"}
        assert len(logged) == 2
        for entry in logged:
            assert entry["loss"] == pytest.approx(sum(entry[name] for name in names), abs=1e-3)

    def test_a_head_of_one_width_is_refused(self, model):
        loss = MatryoshkaLoss(model, losses.ArcCSELoss(model), [32, 16])
        with pytest.raises(ValueError, match=r"width 32, .*, got 16 \(MatryoshkaLoss .* projection_head=False"):
            loss([model.preprocess(SENTENCES)], None)

    @pytest.mark.parametrize("attend_to", ["tokens", "pooled"])
    def test_pt_bert_is_refused(self, model, attend_to):
        """Its queue and its slow copy have one width, and each call lets the batch into the queue."""
        loss = losses.PTBERTLoss(model, attend_to=attend_to, projection_head=False)
        with pytest.raises(ValueError, match="sentence vectors of width 32, .* got 16: train without MatryoshkaLoss"):
            MatryoshkaLoss(model, loss, [16])([model.preprocess(SENTENCES)], None)
        assert loss.queue.seen == 0

    def test_passes_beside_a_wrapper_are_refused(self, model):
        """In several processes the triplet's passes would come out uncut."""
        loss = MatryoshkaLoss(model, BUILD["arccse"](model), [32, 16])
        loss.model = loss.loss.model = Wrapper(model)
        with pytest.raises(ValueError, match="ArcCSELoss makes passes that MatryoshkaLoss does not cut in several processes"):
            loss([model.preprocess(SENTENCES)], None)
        loss.loss.triplet_weight = 0
        assert set(loss([model.preprocess(SENTENCES)], None)) == {"arccon"}


@pytest.mark.parametrize("wrapper", [AdaptiveLayerLoss, lambda model, loss: Matryoshka2dLoss(model, loss, [32, 16])])
@pytest.mark.parametrize("build", [*BUILD.values(), losses.PTBERTLoss])
def test_layers_of_one_pass_are_refused(model, wrapper, build):
    """A loss with passes of its own has no dict in which the host could hand layers on."""
    with pytest.raises(ValueError, match=r"Loss cannot be trained inside AdaptiveLayerLoss or Matryoshka2dLoss"):
        wrapper(model, build(model))([model.preprocess(SENTENCES)], None)
    assert "forward" not in vars(model) or model.forward.__self__ is model  # the host has tidied up


class Passes:
    """Keeps the sentence vectors of each pass."""

    def __init__(self, model):
        self.vectors = []
        model.register_forward_hook(lambda module, arguments, output: self.vectors.append(output["sentence_embedding"]))


class Wrapper(DistributedDataParallel):
    """Without other processes."""

    def __init__(self, module):
        nn.Module.__init__(self)
        self.module = module

    def forward(self, features):
        return self.module(features)

    def get_embedding_dimension(self):
        return self.module.get_embedding_dimension()


@pytest.mark.parametrize("method", EVERY)
def test_the_mode_is_that_of_the_encoder_in_its_wrapper(model, method):
    """To evaluate in several processes the host sets that alone, and leaves the wrapper in the loss as it was."""
    build, dataset = EVERY[method]
    loss, rows = build(model).train(), dataset(8)
    columns = [model.preprocess(rows[name][:]) for name in rows.column_names]

    def evaluated():
        torch.manual_seed(0)  # of masks and views
        with torch.no_grad():
            return loss([dict(column) for column in columns], None)

    model.eval()
    expected = evaluated()
    before = {name: tensor.clone() for name, tensor in loss.state_dict().items()}
    for part in loss.modules():
        if getattr(part, "model", None) is model:
            part.model = Wrapper(model)
            assert part.model.training
    torch.testing.assert_close(dict(evaluated()), dict(expected), rtol=0, atol=0)
    after = {name.replace("model.module.", "model."): tensor for name, tensor in loss.state_dict().items()}
    assert all(torch.equal(tensor, before[name]) for name, tensor in after.items())  # no batch is in a queue


def test_unsaved_state_is_told_once(recwarn):
    loss = nn.Linear(2, 2)
    loss.state_is_kept = False
    with pytest.warns(UserWarning, match=r"callbacks=\[sbert_plugins.training.LossStateCallback\(loss\)\]"):
        warn_unless_kept(loss)
    warn_unless_kept(loss)
    assert len(recwarn) == 0


class TestNegatives:
    @pytest.fixture
    def loss(self):
        loss = nn.Module()
        loss.model = nn.Linear(1, 1)
        return loss

    def test_a_first_batch_of_one(self, loss):
        with pytest.raises(ValueError, match="Module takes the other sentences of a batch as negatives, got a batch of 1"):
            check_negatives(loss, 1)

    def test_the_rest_of_an_epoch(self, loss, caplog):
        check_negatives(loss, 2)
        check_negatives(loss, 1)
        assert "A batch of one sentence has no negatives" in caplog.text

    def test_evaluation(self, loss, caplog):
        loss.model.eval()
        check_negatives(loss, 1)
        assert caplog.text == ""

    @pytest.mark.parametrize("before", ["an evaluation", "another training"])
    def test_what_came_before_is_no_batch_of_this_training(self, loss, before):
        loss.has_learned = False
        if before == "an evaluation":
            loss.model.eval()
            check_negatives(loss, 2)
            loss.model.train()
        else:
            check_negatives(loss, 2)
            inform_losses(loss, loss.model, steps=3)
        with pytest.raises(ValueError, match="got a batch of 1"):
            check_negatives(loss, 1)

    def test_what_an_evaluation_shows_is_of_evaluations_only(self, loss):
        loss.model.eval()
        assert has_learned(loss, lambda: True) and has_learned(loss, lambda: False)
        loss.model.train()
        assert not has_learned(loss, lambda: False)
        assert has_learned(loss, lambda: True) and has_learned(loss, lambda: False)


class TestSettings:
    @pytest.mark.parametrize("name", METHODS)
    def test_are_the_keywords_of_the_signature(self, name, tiny_encoder):
        loss = METHODS[name][0](tiny_encoder())
        if not isinstance(loss, losses.WeightedSumLoss):
            parameters = inspect.signature(type(loss).__init__).parameters.values()
            assert list(settings_of(loss)) == [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]

    def test_what_was_changed_since_is_shown(self, model):
        loss = losses.ArcCSELoss(model, temperature=0.03)
        loss.temperature = 0.5
        assert loss.get_config_dict()["temperature"] == 0.5
        assert losses.DenoSentLoss(model, projector=True, token_weights=None).get_config_dict()["projector"] is True

    def test_what_is_shown_is_what_is_used(self, model):
        loss = losses.PTBERTLoss(model)
        loss.momentum = 0.5
        assert loss.momentum_encoder.momentum == 0.5
        loss.momentum_encoder.momentum = 0.75
        assert loss.get_config_dict()["momentum"] == 0.75
        views = losses.ConSERTLoss(model.eval(), second_view=("feature_cutoff",))
        features = model.preprocess(SENTENCES)
        losses_at = []
        for views.feature_cutoff_rate in (0.01, 0.9):
            torch.manual_seed(0)
            losses_at.append(views([features])["nt_xent"].item())
            assert views.get_config_dict()["feature_cutoff_rate"] == views.feature_cutoff_rate
        assert losses_at[0] < losses_at[1]

    def test_of_a_subclass_with_a_signature_of_its_own(self, model):
        class Sharp(losses.ArcCSELoss):
            def __init__(self, model, **keywords):
                super().__init__(model, temperature=0.01, **keywords)

        assert (
            Sharp(model, min_words=9).get_config_dict() | {"temperature": 0.01, "min_words": 9}
            == Sharp(model, min_words=9).get_config_dict()
        )

    def test_counts_are_named_by_their_source_and_what_they_are(self, model):
        counts = data.TokenFrequencies.from_corpus(SENTENCES, model.tokenizer, source="eight sentences")
        loss = losses.BagOfWordsLoss(model, frequencies=counts)
        assert loss.get_config_dict()["frequencies"] == f"eight sentences [{counts.mark}]"
