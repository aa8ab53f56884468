"""What holds for all losses: columns, modes, precision, settings, and what may wrap or hold them."""

import inspect
import json
import math
import warnings

import pytest
import torch
from encoders import ARCHITECTURES, SENTENCES, project_counts
from methods import EVERY, METHODS
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer import losses as st_losses
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss, MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Dense
from tools import Recorder, batch, gradients, is_same, state, trained
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from updates import losses_of_updates

from sbert_plugins import functional, losses
from sbert_plugins.losses import official
from sbert_plugins.losses.base import Loss, Terms, check_inner_loss, compute_inner_loss, owned_state

pytestmark = pytest.mark.filterwarnings("ignore:.*owns weights")
PLAIN = {
    "arccse": lambda model: losses.ArcCSELoss(model, triplet_margin=0.5, projection_head=False),
    "consert": losses.ConSERTLoss,
}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
CLASSES = [*(getattr(losses, name) for name in losses.__all__)]
CLASSES += [getattr(official, name) for name in official.__all__]


@pytest.fixture
def model(tiny_encoder):
    return tiny_encoder().train()


@pytest.fixture(params=EVERY)
def built(request, tiny_encoder):
    """A loss of each method on an encoder in training mode, and a batch for it."""
    build, dataset = EVERY[request.param]
    model = tiny_encoder().train()
    loss = build(model)
    loss.state_is_kept = True
    return loss, batch(model, *dataset(8)[:].values())


def rerun(loss, columns, seed=0):
    torch.manual_seed(seed)
    return loss([dict(column) for column in columns])


def small(kind, model, **keywords):
    """Build a loss of a class with few and untrained weights."""
    frequencies = {"frequencies": project_counts(model.tokenizer)}
    needed = {
        "BagOfWordsLoss": frequencies,
        "SLTFAILoss": frequencies,
        "DenoSentLoss": {"decoder_layers": 1, "mlm_head": "fresh"},
        "PaSeRLoss": {"decoder_layers": 1, "decoder_heads": 4, "mlm_head": "fresh"},
        "WeightedSumLoss": {"losses": {"a": (MultipleNegativesRankingLoss(model), 1.0, [0, 0])}},
    }
    return kind(model, **needed.get(kind.__name__, {}) | keywords)


class TestTerms:
    def test_arithmetic_is_term_by_term(self):
        a, b = torch.tensor(2.0), torch.tensor(3.0)
        first, second = Terms(x=a, y=b), Terms(y=a, z=b)
        assert first + second == {"x": 2.0, "y": 5.0, "z": 3.0}
        assert sum([first, second]) == 0.0 + first + second == first + second
        assert 2 * first == first * 2 == first * torch.tensor(2.0) == {"x": 4.0, "y": 6.0}
        assert isinstance(0.5 * first + second, Terms)
        assert first == {"x": 2.0, "y": 3.0}  # unchanged

    @pytest.mark.parametrize(
        "wrong", [lambda t: t + 1, lambda t: t + {"x": 1}, lambda t: "a" * t, lambda t: t * t]
    )
    def test_nothing_else(self, wrong):
        with pytest.raises(TypeError):
            wrong(Terms(x=torch.tensor(2.0)))


class TestEveryLoss:
    def test_a_batch(self, built):
        """Terms are float32 scalars with finite gradients; the features stay as they came."""
        loss, columns = built
        before = [dict(column) for column in columns]
        terms = loss(columns)
        assert isinstance(terms, Terms)
        assert all(
            term.ndim == 0 and term.dtype == torch.float32 and term.isfinite() for term in terms.values()
        )
        assert not any(value.requires_grad for value in loss.diagnostics.values())
        for column, copy in zip(columns, before, strict=True):
            assert column.keys() == copy.keys()
            assert all(column[key] is copy[key] for key in copy)
        sum(terms.values()).backward()
        found = gradients(loss)
        assert all(gradient.isfinite().all() for gradient in found.values())
        assert found["model.0.model.embeddings.word_embeddings.weight"].any()

    def test_an_evaluation_changes_no_state_and_repeats(self, built):
        """Own modules follow the encoder's mode."""
        loss, columns = built
        rerun(loss, columns)
        parts = [
            m for name, m in loss.named_modules() if name and "momentum" not in name and "loss" not in name
        ]
        for training in (True, False):
            loss.model.train(training)
            rerun(loss, columns)
            assert {part.training for part in parts} == {training}
        before = state(loss)
        with torch.no_grad():
            first, second = (rerun(loss, columns) for _ in range(2))
        assert is_same(first, second)
        assert is_same(before, state(loss))

    @pytest.mark.parametrize("autocast", [True, False])
    def test_bfloat16(self, built, autocast):
        """By autocast, and with an encoder in bfloat16."""
        loss, columns = built
        if not autocast:
            loss.model.bfloat16()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            terms = loss(columns)
        sum(terms.values()).backward()
        assert all(term.isfinite() for term in terms.values())
        # MultipleNegativesRankingLoss itself computes cosines in bfloat16.
        assert all(term.dtype == torch.float32 for name, term in terms.items() if "simcse" not in name)
        assert all(gradient.isfinite().all() for gradient in gradients(loss).values())

    def test_learns(self, built):
        loss, columns = built
        values = losses_of_updates(loss, columns, learning_rate=3e-3, count=12)
        values = (
            values[4:] if "updates" not in dict(loss.named_buffers()) else values
        )  # a queue fills at first
        assert all(map(math.isfinite, values))
        assert sum(values[-3:]) < sum(values[:3]) or "updates" in dict(loss.named_buffers())

    @pytest.mark.parametrize("architecture", ARCHITECTURES)
    @pytest.mark.parametrize("method", METHODS)
    def test_every_architecture(self, tiny_encoder, architecture, method):
        build, dataset = METHODS[method]
        model = tiny_encoder(architecture, "mean").train()
        loss = build(model)
        terms = loss(batch(model, *dataset(6)[:].values()))
        sum(terms.values()).backward()
        assert all(term.isfinite() for term in terms.values())
        assert all(gradient.isfinite().all() for gradient in gradients(loss).values())

    @pytest.mark.parametrize("method", METHODS)
    def test_another_width_after_the_pooling(self, tiny_encoder, method):
        build, dataset = METHODS[method]
        if method == "pt-bert":
            build = lambda model: losses.PTBERTLoss(model, attend_to="pooled")  # noqa: E731
        model = SentenceTransformer(modules=[*tiny_encoder(), Dense(32, 12)], device="cpu").train()
        loss = build(model)
        sum(loss(batch(model, *dataset(8)[:].values())).values()).backward()
        assert model[-1].linear.weight.grad.any()

    @pytest.mark.parametrize(
        "texts", [["", " "], ["", "A dog runs."], ["word " * 300, "a"], ["<mask> <s>", "[X]"]]
    )
    def test_odd_texts(self, built, texts):
        loss, columns = built
        terms = loss(batch(loss.model, *[texts] * len(columns)))
        sum(terms.values()).backward()
        assert all(term.isfinite() for term in terms.values())
        assert all(gradient.isfinite().all() for gradient in gradients(loss).values())

    def test_the_mode_is_that_of_the_encoder_inside_a_wrapper(self, built):
        """An evaluation in several processes calls ``eval()`` of the model alone."""
        loss, columns = built
        loss.model.eval()
        with torch.no_grad():
            expected = rerun(loss, columns)
            before = [*state(loss).values()]
            model = loss.model
            for part in loss.modules():
                if getattr(part, "model", None) is model:
                    part.model = Wrapper(model)
            assert is_same(expected, rerun(loss, columns))
        assert all(map(torch.equal, before, loss.state_dict().values()))  # no batch is in a queue


class Wrapper(DistributedDataParallel):
    """Without other processes."""

    def __init__(self, module):
        nn.Module.__init__(self)
        self.module = module

    def forward(self, features):
        return self.module(features)


@pytest.mark.parametrize("kind", CLASSES)
class TestSettings:
    def test_hold_every_keyword(self, kind, model):
        """By name, as they are now, and as JSON, for the card and for the check of a resumed training."""
        loss = small(kind, model)
        written = next(each for each in kind.__mro__ if "keywords" not in inspect.signature(each).parameters)
        keywords = [*inspect.signature(written).parameters][1:]
        config = loss.get_config_dict()
        assert sorted(config) == sorted(keywords)
        json.dumps(config)
        if "temperature" in keywords:
            loss.temperature = 0.77
            assert loss.get_config_dict()["temperature"] == 0.77
            assert small(kind, model, temperature=0.6).get_config_dict()["temperature"] == 0.6

    def test_citation(self, kind, model):
        citation = small(kind, model).citation.strip()
        assert citation.startswith("@") or kind is losses.WeightedSumLoss

    @pytest.mark.parametrize("temperature", [0, -1.0, math.nan, "0.05"])
    def test_temperature_is_checked(self, kind, model, temperature):
        if "temperature" in small(kind, model).get_config_dict():
            with pytest.raises(ValueError, match="temperature"):
                small(kind, model, temperature=temperature)

    def test_columns(self, kind, model):
        columns = batch(model, *[SENTENCES] * 4)
        if "SLTFAI" not in kind.__name__ and kind is not losses.WeightedSumLoss:
            with pytest.raises(ValueError, match=f"{kind.__name__} reads the text columns anchor.* got 4"):
                small(kind, model)(columns)

    def test_adaptive_layers_are_refused(self, kind, model):
        loss = small(kind, model)
        columns = batch(model, *[SENTENCES] * (3 if "PaSeR" in kind.__name__ else 1))
        for wrapper in (
            st_losses.AdaptiveLayerLoss(model, loss),
            st_losses.Matryoshka2dLoss(model, loss, [32, 16]),
        ):
            with pytest.raises(ValueError, match=f"{kind.__name__} does not work inside AdaptiveLayerLoss"):
                wrapper(columns, None)

    def test_a_router_is_refused(self, kind, model):
        keywords = {"losses": {}} if kind is losses.WeightedSumLoss else {}
        router = Router({"query": [model[0]], "document": [model[0]]}, default_route="query")
        with pytest.raises(ValueError, match="Router"):
            kind(SentenceTransformer(modules=[router, model[1]], device="cpu"), **keywords)


def test_a_model_of_another_kind():
    with pytest.raises(ValueError, match="SentenceTransformer, got str"):
        losses.ConSERTLoss("bert-base-uncased")


class TestTheDefaultsAreThePapers:
    def test_paser(self, model):
        loss = losses.PaSeRLoss(model, decoder_heads=4)  # 16 heads do not divide the tiny width
        assert len(loss.decoder.layers.layers) == 6
        assert set(loss(batch(model, SENTENCES, [f"{text} <mask>" for text in SENTENCES], SENTENCES))) == {
            "generative",
            "mlm",
        }
        settings = loss.get_config_dict() | {"decoder_heads": 16}
        assert settings == losses.PaSeRLoss.__init__.__kwdefaults__
        assert (settings["signed"], settings["normalize_memory"], settings["token_weights"]) == (
            True,
            True,
            None,
        )

    def test_denosent(self, model):
        loss = losses.DenoSentLoss(model)
        assert len(loss.decoder.layers) == 16
        assert loss.decoder.noise.p == 0.825
        settings = loss.get_config_dict()
        assert settings == losses.DenoSentLoss.__init__.__kwdefaults__
        assert (settings["temperature"], settings["contrastive_weight"], settings["denoising_weight"]) == (
            0.03,
            1,
            1,
        )
        assert not {"token_weights", "frequencies", "balance"} & set(settings)

    def test_slt_fai(self, model):
        loss = small(losses.SLTFAILoss, model)
        assert loss.balance is None
        settings = loss.get_config_dict()
        simcse = settings["loss"]["settings"]["losses"]["simcse"]
        assert (simcse["class"], simcse["columns"]) == ("MultipleNegativesRankingLoss", [0, 0])
        assert (simcse["weight"], simcse["settings"]["scale"]) == (1.0, 20.0)
        assert (settings["low_frequency_by"], settings["low_frequency_share"], settings["masking_ratio"]) == (
            "types",
            0.5,
            0.2,
        )

    @pytest.mark.parametrize("kind", [losses.ArcCSELoss, losses.ConSERTLoss, losses.PTBERTLoss])
    def test_of_the_signature(self, kind, model):
        assert kind(model).get_config_dict() == kind.__init__.__kwdefaults__


@pytest.mark.parametrize(
    "build",
    [
        losses.ArcCSELoss,
        losses.PTBERTLoss,
        lambda model: small(losses.DenoSentLoss, model),
        lambda model: losses.ConSERTLoss(model, first_view=("dropout",)),
        lambda model: small(losses.SLTFAILoss, model),
    ],
)
def test_dropout_is_needed_for_a_pair_of_one_column(tiny_encoder, build):
    model = tiny_encoder(**NO_DROPOUT).train()
    loss = build(model)
    with pytest.raises(ValueError, match="makes its positive pairs by dropout"):
        loss(batch(model, SENTENCES))
    if len(loss.columns) == 2 and not isinstance(loss, losses.ConSERTLoss):
        assert all(term.isfinite() for term in loss(batch(model, SENTENCES, SENTENCES[::-1])).values())


@pytest.mark.parametrize("kind", [losses.ArcCSELoss, losses.ConSERTLoss, losses.DenoSentLoss])
def test_a_batch_of_one_sentence_has_no_negatives(model, kind):
    loss = small(kind, model)
    with pytest.warns(UserWarning, match=f"{kind.__name__} got a batch of one sentence"):
        terms = loss(batch(model, SENTENCES[:1]))
    assert next(iter(terms.values())) == 0
    model.eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss(batch(model, SENTENCES[:1]))


@pytest.mark.parametrize("kind", [losses.ArcCSELoss, losses.PaSeRLoss, losses.SLTFAILoss])
def test_a_mask_token_is_needed(model, kind):
    tokenizer, mask = model.tokenizer, model.tokenizer.mask_token
    needed = {"frequencies": project_counts(tokenizer)} if kind is losses.SLTFAILoss else {}
    tokenizer.mask_token = None
    with pytest.raises(ValueError, match="mask token"):
        kind(model, **needed)
    tokenizer.mask_token = mask


class TestOwnedWeights:
    def test_a_warning_if_they_are_not_saved(self, model):
        """Once, in training, and only if there are some."""
        plain, owner = PLAIN["arccse"](model), losses.ArcCSELoss(model)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            plain(batch(model, SENTENCES))
            owner(batch(model.eval(), SENTENCES))
        with pytest.warns(UserWarning, match=r"ArcCSELoss owns weights .*LossStateCallback\(loss\)"):
            owner(batch(model.train(), SENTENCES))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            owner(batch(model, SENTENCES))

    def test_are_those_that_are_not_the_encoders(self, model):
        """Each tensor once; the table that a head shares with the encoder is the encoder's."""
        loss = small(losses.PaSeRLoss, model)
        owned = owned_state(loss)
        ids = {id(weight) for weight in model.parameters()}
        assert not any(id(tensor) in ids for tensor in owned.values())
        assert len({id(tensor) for tensor in owned.values()}) == len(owned)
        assert {id(weight) for weight in trained(loss)} <= ids | {id(tensor) for tensor in owned.values()}
        assert {name.split(".")[0] for name in owned} == {"head", "decoder"}
        assert owned_state(PLAIN["consert"](model)) == {}

    def test_a_submodule_that_a_user_has_frozen_keeps_its_mode(self, model):
        """Inner losses hold the encoder as well."""
        loss = small(losses.SLTFAILoss, model)
        loss.eval()
        model.train()
        model[0].model.encoder.layer[0].eval()
        loss(batch(model, SENTENCES))
        assert not model[0].model.encoder.layer[0].training
        assert model[0].model.encoder.layer[1].training
        assert loss.frequency_discriminator.training


class TestInnerLosses:
    KINDS = (
        "ContrastiveLoss",
        "CoSENTLoss",
        "AnglELoss",
        "CosineSimilarityLoss",
        "MultipleNegativesRankingLoss",
        "OnlineContrastiveLoss",
        "TripletLoss",
    )

    @pytest.mark.parametrize("name", KINDS)
    def test_the_value_is_that_of_their_own_forward(self, name, model):
        """To the last bit, with the same random draws."""
        loss = getattr(st_losses, name)(model)
        columns = batch(model, SENTENCES, SENTENCES[::-1], SENTENCES[1:] + SENTENCES[:1])
        columns = columns if name == "TripletLoss" else columns[:2]
        labels = torch.tensor([1.0, 0.0] * (len(SENTENCES) // 2))
        torch.manual_seed(0)
        expected = loss([dict(column) for column in columns], labels)
        torch.manual_seed(0)
        assert torch.equal(compute_inner_loss(loss, losses.base.Encoder(model), columns, labels), expected)

    def test_others_are_refused(self, model, tiny_encoder):
        class Doubled(MultipleNegativesRankingLoss):
            def forward(self, sentence_features, labels=None):
                return 2 * super().forward(sentence_features, labels)

        class Own(Loss):
            def compute(self, encode, columns, labels):
                return {"norm": encode(columns)[0].vectors.norm()}

        for wrong in (
            Doubled(model),
            st_losses.CachedMultipleNegativesRankingLoss(model),
            MatryoshkaLoss(model, losses.ConSERTLoss(model), [32, 16]),
            st_losses.DenoisingAutoEncoderLoss(model),
            nn.Identity(),
            "simcse",
        ):
            with pytest.raises(ValueError, match=f"got {type(wrong).__name__}"):
                check_inner_loss("loss", wrong, model)
            with pytest.raises(ValueError, match=r"losses\['a'\] must be a loss of"):
                losses.WeightedSumLoss(model, {"a": (wrong, 1.0)})
        with pytest.raises(ValueError, match="loss must be a loss of"):
            losses.SLTFAILoss(model, Doubled(model), frequencies=project_counts(model.tokenizer))
        with pytest.raises(ValueError, match="same model, got a ConSERTLoss"):
            check_inner_loss("loss", losses.ConSERTLoss(tiny_encoder()), model)
        check_inner_loss("loss", Own(model), model)


class TestMatryoshka:
    @pytest.mark.parametrize("method", PLAIN)
    def test_gradients_are_those_of_a_sum_by_hand(self, tiny_encoder, model, method):
        """The same passes, cut, weighted and summed."""
        dimensions, weights = [32, 16, 8], [1, 0.5, 0.25]
        torch.manual_seed(3)
        terms = MatryoshkaLoss(model, PLAIN[method](model), dimensions, weights)(
            batch(model, SENTENCES), None
        )
        sum(terms.values()).backward()
        other = tiny_encoder().train()
        loss, passes = PLAIN[method](other), Recorder(other)
        torch.manual_seed(3)
        loss(batch(other, SENTENCES))
        expected = torch.zeros(())
        for dimension, weight in zip(dimensions, weights, strict=True):
            vectors = [output["sentence_embedding"][:, :dimension] for output in passes.outputs]
            pair = vectors[0].chunk(2)
            if method == "consert":
                expected = expected + weight * functional.nt_xent(*pair, temperature=loss.temperature)
            else:
                arccon = functional.arccon_loss(*pair, margin_degrees=10.0, temperature=0.05)
                triplet = functional.order_triplet_loss(*vectors[1].chunk(3), margin=0.5)
                expected = expected + weight * (arccon + 0.1 * triplet)
        expected.backward()
        torch.testing.assert_close(sum(terms.values()), expected)
        found, by_hand = gradients(model), gradients(other)
        assert found.keys() == by_hand.keys()
        for name, gradient in found.items():
            torch.testing.assert_close(gradient, by_hand[name], rtol=1e-4, atol=1e-5, msg=name)

    @pytest.mark.parametrize("build", [losses.SelfDistillationLoss, METHODS["self-distillation"][0]])
    def test_around_self_distillation(self, model, build):
        terms = MatryoshkaLoss(model, build(model), [32, 16])(batch(model, SENTENCES), None)
        assert all(term.isfinite() for term in terms.values())

    @pytest.mark.parametrize(
        "build",
        [
            losses.ArcCSELoss,
            lambda model: losses.PTBERTLoss(model, projection_head=False),
            *(METHODS[name][0] for name in ("denosent", "paser", "bag of words", "balanced sum", "slt-fai")),
        ],
    )
    def test_losses_with_weights_of_one_width_are_refused(self, model, build):
        loss = build(model)
        before = state(loss)
        columns = batch(model, *[SENTENCES] * (3 if isinstance(loss, losses.PaSeRLoss) else 1))
        with pytest.raises(ValueError, match="does not work inside MatryoshkaLoss"):
            MatryoshkaLoss(model, loss, [32, 16])(columns, None)
        assert is_same(before, state(loss))

    def test_triplets_of_arccse_in_several_processes_are_refused(self, model):
        """Their passes bypass the wrapper, whose forward MatryoshkaLoss replaces: they would stay uncut."""
        loss = MatryoshkaLoss(model, PLAIN["arccse"](model), [32, 16])
        loss.model = loss.loss.model = Wrapper(model)
        with pytest.raises(ValueError, match="MatryoshkaLoss"):
            loss(batch(model, SENTENCES), None)
        loss.loss.triplet_weight = 0
        assert set(loss(batch(model, SENTENCES), None)) == {"arccon"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", [name for name in METHODS if "consert" not in name and name != "self-distillation"]
)
def test_a_compiled_model(tiny_encoder, method):
    """The whole model inside torch.compile gives the same terms; views of ConSERT do not work there."""
    build, dataset = METHODS[method]
    model = tiny_encoder("bert", "mean").eval()
    columns = batch(model, *dataset(8)[:].values())
    loss = build(model)
    expected = rerun(loss, columns)
    for part in loss.modules():
        if getattr(part, "model", None) is model:
            part.model = torch.compile(model, backend="eager")
    if method == "balanced sum":
        loss.balance = None
    found = rerun(loss, columns)
    for name, term in expected.items():
        torch.testing.assert_close(found[name], term, rtol=1e-4, atol=1e-5)
