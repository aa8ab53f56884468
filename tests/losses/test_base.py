"""Rules for all losses: columns, modes, precision, settings, and losses around or inside them."""

import inspect
import json
import math

import pytest
import torch
from encoders import ARCHITECTURES, SENTENCES, project_counts
from methods import EVERY, METHODS
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer import losses as st_losses
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss, MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Dense, StaticEmbedding
from tools import Recorder, Wrapper, batch, gradients, is_same, state, trained
from torch import nn

from sbert_plugins import functional, losses
from sbert_plugins.encoder import Encoder, apply_mask_template
from sbert_plugins.losses import official
from sbert_plugins.losses.base import Terms, compute_inner_loss
from sbert_plugins.modules import DenoisingDecoder, PhraseDecoder

PLAIN = {
    "arccse": lambda model: losses.ArcCSELoss(model, triplet_margin=0.5, projection_head=False),
    "consert": losses.ConSERTLoss,
}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
# SearchDistillationLoss reads other columns and labels.
CLASSES = [getattr(losses, name) for name in losses.__all__ if name != "SearchDistillationLoss"]
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
        "DenoSentLoss": {"decoder_feedforward": 48},
        "PaSeRLoss": {"decoder_layers": 1, "decoder_heads": 4, "mlm_head": "fresh"},
        "WeightedSumLoss": {"losses": {"a": (MultipleNegativesRankingLoss(model), 1.0, [0, 0])}},
    }
    return kind(model, **needed.get(kind.__name__, {}) | keywords)


def test_arithmetic_of_terms_is_by_name():
    a, b = torch.tensor(2.0), torch.tensor(3.0)
    first, second = Terms(x=a, y=b), Terms(y=a, x=b)
    assert first + second == {"x": 5.0, "y": 5.0}
    assert sum([first, second]) == 0.0 + first + second == first + second
    assert 2 * first == {"x": 4.0, "y": 6.0}
    assert isinstance(0.5 * first + second, Terms)
    with pytest.raises(KeyError):
        first + Terms(x=a, z=b)
    with pytest.raises(TypeError):
        first + 1


def checked(loss, columns):
    """Return the terms after a backward pass, in which all numbers must be finite."""
    terms = loss(columns)
    sum(terms.values()).backward()
    assert all(number.isfinite().all() for number in (*terms.values(), *gradients(loss).values()))
    return terms


class TestEveryLoss:
    def test_a_batch(self, built):
        # Terms are scalars, all trained weights get gradients, and the features stay as they came.
        loss, columns = built
        before = [dict(column) for column in columns]
        terms = checked(loss, columns)
        assert isinstance(terms, Terms)
        assert all(term.ndim == 0 and term.dtype == torch.float32 for term in terms.values())
        assert not any(value.requires_grad for value in loss.diagnostics.values())
        for column, copy in zip(columns, before, strict=True):
            assert column.keys() == copy.keys()
            assert all(column[key] is copy[key] for key in copy)
        names = {name for name, parameter in loss.named_parameters() if parameter.requires_grad}
        idle = names - set(gradients(loss))
        assert all("pooler" in name or "discriminator" in name for name in idle)  # these have a warm-up

    def test_an_evaluation_changes_no_state_and_repeats(self, built):
        # Own modules follow the encoder's mode.
        loss, columns = built
        held = {name: part for name, part in loss.named_modules() if name}
        parts = [part for name, part in held.items() if "momentum" not in name and "loss" not in name]
        for training in (True, False):
            loss.model.train(training)
            rerun(loss, columns)
            assert {part.training for part in parts} == {training}
        before = state(loss)
        assert is_same(*(rerun(loss, columns) for _ in range(2)))
        assert is_same(before, state(loss))

    @pytest.mark.parametrize("how", ["autocast", "model", "loss", "double"])
    def test_precision(self, built, how):
        # By autocast, and with an encoder, or all of the loss, in bfloat16, or an encoder in float64.
        loss, columns = built
        changed = loss if how == "loss" else loss.model
        changed.to({"autocast": torch.float32, "double": torch.float64}.get(how, torch.bfloat16))
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=how == "autocast"):
            terms = checked(loss, columns)
        # MultipleNegativesRankingLoss itself computes cosines in bfloat16.
        wanted = {torch.float32, torch.float64} if how == "double" else {torch.float32}
        assert all(term.dtype in wanted for name, term in terms.items() if "simcse" not in name)

    def test_a_frozen_encoder_with_some_trained_weights(self, built):
        # As with adapters: only these get a gradient.
        loss, columns = built
        loss.model.requires_grad_(False)
        layer = loss.model.transformers_model.encoder.layer[1].requires_grad_(True)
        checked(loss, columns)
        assert gradients(loss.model).keys() == {
            name for name, parameter in loss.model.named_parameters() if parameter.requires_grad
        }
        assert all(parameter.grad is not None for parameter in layer.parameters())

    def test_learns(self, built):
        loss, columns = built
        optimizer, values = torch.optim.AdamW(trained(loss), lr=3e-3), []
        for _ in range(10):
            optimizer.zero_grad()
            values.append(sum(checked(loss, columns).values()).item())
            optimizer.step()
        # A queue fills in the first updates, and SLT-FAI adds its terms after the warm-up.
        assert sum(values[-3:]) < sum(values[4:7]) or hasattr(loss, "updates")

    @pytest.mark.parametrize("architecture", ARCHITECTURES)
    @pytest.mark.parametrize("method", METHODS)
    def test_every_architecture(self, tiny_encoder, architecture, method):
        # Some with a layer on the pooling that changes the width, some with vectors that ``encode`` cuts.
        build, dataset = METHODS[method]
        model = tiny_encoder(architecture, "mean").train()
        model.truncate_dim = 16 if architecture in ("roberta", "electra") else None
        if architecture in ("distilbert", "xlm-roberta") and method != "pt-bert":  # which attends to tokens
            model.append(Dense(32, 12))
        checked(build(model), batch(model, *dataset(6)[:].values()))

    def test_odd_texts(self, built):
        loss, columns = built
        for texts in (["", " "], ["", "A dog runs."], ["word " * 300, "a"], ["<mask> <s>", "."]):
            checked(loss, batch(loss.model, *[texts] * len(columns)))
            loss.zero_grad()


@pytest.mark.parametrize("kind", CLASSES)
class TestSettings:
    def test_hold_every_keyword(self, kind, model):
        # By name, as they are now, and as JSON, for the card and for the check of a resumed training.
        loss = small(kind, model)
        written = next(each for each in kind.__mro__ if "keywords" not in inspect.signature(each).parameters)
        keywords = [*inspect.signature(written).parameters][1:]
        config = loss.get_config_dict()
        assert sorted(config) == sorted(keywords)
        json.dumps(config)
        assert loss.citation.strip().startswith("@") or kind is losses.WeightedSumLoss

    def test_columns(self, kind, model):
        if "SLTFAI" not in kind.__name__ and kind is not losses.WeightedSumLoss:
            with pytest.raises(ValueError, match=f"{kind.__name__} reads the text columns anchor.* got 4"):
                small(kind, model)(batch(model, *[SENTENCES] * 4))

    def test_adaptive_layers_are_refused(self, kind, model):
        loss, columns = (
            small(kind, model),
            batch(model, *[SENTENCES] * (3 if "PaSeR" in kind.__name__ else 1)),
        )
        for outer in (
            st_losses.AdaptiveLayerLoss(model, loss),
            st_losses.Matryoshka2dLoss(model, loss, [32]),
        ):
            with pytest.raises(ValueError, match=f"{kind.__name__} does not work inside AdaptiveLayerLoss"):
                outer(columns, None)


@pytest.mark.parametrize("kind", [kind for kind in CLASSES if "temperature" in str(inspect.signature(kind))])
def test_temperature(kind, model):
    # Its value is checked in the first step, by the function that divides by it.
    loss = small(kind, model, temperature=0.6)
    assert loss.get_config_dict()["temperature"] == 0.6
    for wrong in (0, -1.0, math.nan, "0.05"):
        loss.temperature = wrong
        assert loss.get_config_dict()["temperature"] is wrong
        with pytest.raises(ValueError, match="temperature"):
            loss(batch(model, SENTENCES))


def test_a_router_is_an_error(model):
    router = Router({"query": [model[0]], "document": [model[0]]}, default_route="query")
    with pytest.raises(ValueError, match="Router"):
        losses.ConSERTLoss(SentenceTransformer(modules=[router, model[1]], device="cpu"))


@pytest.mark.parametrize("kind", CLASSES)
def test_static_embeddings_are_an_error(kind, model):
    static = SentenceTransformer(modules=[StaticEmbedding(model.tokenizer, embedding_dim=8)], device="cpu")
    with pytest.raises(ValueError, match="StaticEmbedding"):
        kind(static, **{"losses": {}} if kind is losses.WeightedSumLoss else {})


ERRORS = [
    (losses.ArcCSELoss, {"margin_degrees": 180}, "margin_degrees .* got 180"),
    (losses.ArcCSELoss, {"near_mask_ratio": 0.5}, "got 0.5 and 0.4"),
    (losses.ArcCSELoss, {"far_mask_ratio": 1.0}, "got 0.2 and 1.0"),
    (losses.BagOfWordsLoss, {"token_weights": 0.0}, "threshold .* got 0.0"),
    (losses.ConSERTLoss, {"first_view": ("cutoff",)}, "first_view .* got .*cutoff"),
    (losses.ConSERTLoss, {"second_view": "dropout"}, "second_view .* got 'dropout'"),
    (losses.ConSERTLoss, {"feature_cutoff_rate": 0}, "feature_cutoff_rate .* got 0"),
    (losses.ConSERTLoss, {"token_cutoff_rate": 1.0}, "token_cutoff_rate .* got 1.0"),
    (losses.DenoSentLoss, {"reconstruct": "positive"}, "reconstruct .* got 'positive'"),
    (losses.PaSeRLoss, {"mlm_probability": 0}, "mlm_probability .* got 0"),
    (losses.PTBERTLoss, {"attend_to": "cls"}, "attend_to .* got 'cls'"),
    (losses.SelfDistillationLoss, {"teacher_temperature": 0}, "temperature .* got 0"),
    (losses.SLTFAILoss, {"masking_ratio": 0}, "masking_ratio .* got 0"),
    (losses.SLTFAILoss, {"low_frequency_share": 1.0}, "share"),
    (losses.SLTFAILoss, {"low_frequency_by": "count"}, "low_frequency_by"),
    (losses.SLTFAILoss, {"balance": 0}, "balance .* got 0"),
    (losses.ArcCSELoss, {"triplet_weight": -0.1}, "triplet_weight .* got -0.1"),
    (losses.DenoSentLoss, {"contrastive_weight": -1}, "contrastive_weight .* got -1"),
    (losses.DenoSentLoss, {"denoising_weight": -1}, "denoising_weight .* got -1"),
    (losses.PaSeRLoss, {"mlm_weight": -1}, "mlm_weight .* got -1"),
    (losses.SLTFAILoss, {"adversarial_weight": -1}, "adversarial_weight .* got -1"),
    (losses.SLTFAILoss, {"filtering_weight": -1}, "filtering_weight .* got -1"),
]


@pytest.mark.parametrize(("kind", "keywords", "message"), ERRORS)
def test_values_out_of_range(model, kind, keywords, message):
    # In the constructor, or in the first step, by the function that uses the value.
    with pytest.raises(ValueError, match=message):
        small(kind, model, **keywords)(batch(model, SENTENCES))


class TestTheDefaultsAreThePapers:
    @pytest.mark.parametrize(
        ("kind", "paper"),
        [
            (losses.ArcCSELoss, {"margin_degrees": 10, "temperature": 0.05, "triplet_weight": 0.1}),
            (losses.PTBERTLoss, {"attend_to": "tokens", "queue_size": 256, "num_pseudo_tokens": 128}),
            (
                losses.PaSeRLoss,
                {"decoder_layers": 6, "mlm_weight": 1.0, "signed": True, "token_weights": None},
            ),
            (losses.DenoSentLoss, {"decoder_heads": 1, "noise_dropout": 0.825, "temperature": 0.03}),
            (losses.SimCSELoss, {"temperature": 0.05, "projection_head": True}),
            (losses.DenoSentLoss, {"contrastive_weight": 1, "denoising_weight": 1, "reconstruct": "anchor"}),
            (losses.SLTFAILoss, {"balance": None, "low_frequency_by": "types", "low_frequency_share": 0.5}),
            (losses.ConSERTLoss, {"first_view": ("feature_cutoff",), "second_view": ("token_shuffling",)}),
        ],
    )
    def test_keywords(self, kind, paper):
        assert {name: kind.__init__.__kwdefaults__[name] for name in paper} == paper

    def test_parts(self, model):
        # A decoder of six layers and a language model; a decoder of 16 layers; SimCSE as the base loss.
        paser = losses.PaSeRLoss(model)
        assert isinstance(paser.decoder, PhraseDecoder) and len(paser.decoder.layers.layers) == 6
        assert set(paser(batch(model, *[SENTENCES] * 3))) == {"generative", "mlm"}
        denosent = losses.DenoSentLoss(model)
        assert isinstance(denosent.decoder, DenoisingDecoder)
        assert (len(denosent.decoder.layers), denosent.decoder.noise.p) == (16, 0.825)
        slt_fai = small(losses.SLTFAILoss, model)
        assert slt_fai.balance is None
        simcse = slt_fai.get_config_dict()["loss"]
        assert (simcse["class"], simcse["settings"]["temperature"]) == ("SimCSELoss", 0.05)


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


@pytest.mark.parametrize("kind", [losses.ArcCSELoss, losses.PaSeRLoss, losses.SLTFAILoss])
def test_a_mask_token_is_needed_and_no_mask_template(model, kind):
    # A vector under a template is the mean over all masks, also of masked words.
    apply_mask_template(model)
    with pytest.raises(ValueError, match="mask template"):
        small(kind, model)
    frequencies = {"frequencies": project_counts(model.tokenizer)} if kind is losses.SLTFAILoss else {}
    model.tokenizer.mask_token = None
    with pytest.raises(ValueError, match="mask token"):
        kind(model, **frequencies)


@pytest.mark.parametrize("kind", [losses.ConSERTLoss, losses.DenoSentLoss, losses.PTBERTLoss])
def test_a_mask_template(model, kind, tmp_path):
    # It is frozen again in a loaded model. Added to a model that has a loss, it would be read as text.
    loss = small(kind, model)
    apply_mask_template(model).save_pretrained(str(tmp_path))
    loaded = SentenceTransformer(str(tmp_path), device="cpu")
    small(kind, loaded)
    assert not loaded[1].emb_layer.weight.requires_grad
    if hasattr(loss, "tokens"):
        with pytest.raises(ValueError, match="tokenizer"):
            loss(batch(model, SENTENCES))


def test_a_submodule_that_a_user_has_frozen_keeps_its_mode(model):
    # Inner losses hold the encoder as well.
    loss = small(losses.SLTFAILoss, model).eval()
    model.train()
    model[0].model.encoder.layer[0].eval()
    loss(batch(model, SENTENCES))
    assert [layer.training for layer in model[0].model.encoder.layer] == [False, True]
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
        # To the last bit, with the same random draws.
        loss = getattr(st_losses, name)(model)
        columns = batch(model, SENTENCES, SENTENCES[::-1], SENTENCES[1:] + SENTENCES[:1])
        columns = columns if name == "TripletLoss" else columns[:2]
        labels = torch.tensor([1.0, 0.0] * (len(SENTENCES) // 2))
        torch.manual_seed(0)
        expected = loss([dict(column) for column in columns], labels)
        torch.manual_seed(0)
        assert compute_inner_loss("a", loss, Encoder(model), columns, labels) == ({"a": expected}, {})

    def test_others_are_refused(self, model, tiny_encoder):
        class Doubled(MultipleNegativesRankingLoss):
            def forward(self, sentence_features, labels=None):
                return 2 * super().forward(sentence_features, labels)

        for wrong in (
            Doubled(model),
            st_losses.CachedMultipleNegativesRankingLoss(model),
            MatryoshkaLoss(model, losses.ConSERTLoss(model), [32, 16]),
            st_losses.DenoisingAutoEncoderLoss(model),
            nn.Identity(),
        ):
            with pytest.raises(ValueError, match=rf"losses\['a'\] must be .* got {type(wrong).__name__}"):
                losses.WeightedSumLoss(model, {"a": (wrong, 1.0)})
            with pytest.raises(ValueError, match=f"loss must be a loss of .* got {type(wrong).__name__}"):
                small(losses.SLTFAILoss, model, loss=wrong)
        with pytest.raises(ValueError, match="same model, got a ConSERTLoss"):
            losses.WeightedSumLoss(model, {"a": (losses.ConSERTLoss(tiny_encoder()), 1.0)})


class TestMatryoshka:
    @pytest.mark.parametrize("method", PLAIN)
    def test_is_a_sum_over_cut_vectors(self, model, method):
        # Of the same passes.
        dimensions, weights, loss = [32, 16, 8], [1, 0.5, 0.25], PLAIN[method](model)
        torch.manual_seed(3)
        terms = MatryoshkaLoss(model, loss, dimensions, weights)(batch(model, SENTENCES), None)
        passes = Recorder(model)
        rerun(loss, batch(model, SENTENCES), seed=3)
        expected = dict.fromkeys(terms, 0.0)
        for dimension, weight in zip(dimensions, weights, strict=True):
            pair, *more = [output["sentence_embedding"][:, :dimension] for output in passes.outputs]
            if method == "consert":
                expected["nt_xent"] += weight * functional.nt_xent(*pair.chunk(2), temperature=0.1)
            else:
                triplet = functional.order_triplet_loss(*more[0].chunk(3), margin=0.5)
                expected["arccon"] += weight * functional.arccon_loss(*pair.chunk(2))
                expected["triplet"] += weight * 0.1 * triplet
        torch.testing.assert_close(dict(terms), expected)

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
        # Their passes bypass the wrapper, whose forward MatryoshkaLoss replaces: they would stay uncut.
        loss = MatryoshkaLoss(model, PLAIN["arccse"](model), [32, 16])
        loss.model = loss.loss.model = Wrapper(model)
        with pytest.raises(ValueError, match="MatryoshkaLoss"):
            loss(batch(model, SENTENCES), None)
        loss.loss.triplet_weight = 0
        assert set(loss(batch(model, SENTENCES), None)) == {"arccon"}
