"""Every method round an encoder that is changed after the loss was built, frozen, routed, or has gaps in its vocabulary."""

import copy
import json

import pytest
import torch
import transformers
from methods import METHODS
from sentence_transformers import SentenceTransformer, SparseEncoder
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from tokenizers import Tokenizer

from sbert_plugins import losses
from sbert_plugins.encoder import TokenRoles, apply_mask_template

# A mask template is for an encoder with one.
BUILDS = {name: entry for name, entry in METHODS.items() if name != "denosent with paraphrases"}
BUILDS["consert"] = (losses.ConSERTLoss, METHODS["arccse"][1])
WITHOUT_OWN_WEIGHTS = ("consert", "slt-fai", "slt-fai consert")


@pytest.fixture(params=BUILDS)
def name(request):
    return request.param


def step(loss, model, dataset, *, task=None):
    """One training step; the terms."""
    model.train()
    rows = dataset[:8]
    terms = loss([model.preprocess(rows[column], task=task) for column in dataset.column_names])
    sum(terms.values()).backward()
    return terms


def test_a_token_that_was_added_later(name, tiny_encoder):
    build, dataset = BUILDS[name]
    model = tiny_encoder()
    loss = build(model)
    model.tokenizer.add_tokens(["organ"])
    model.transformers_model.resize_token_embeddings(len(model.tokenizer))
    rows = dataset(16).map(lambda row: {key: f"{text} organ" for key, text in row.items()})
    with pytest.raises(ValueError, match=r"(1,500 (tokens|word embeddings)|parameters) that it had when the loss"):
        for _ in range(2):  # SLT-FAI's second step is the first after its warm-up
            step(loss, model, rows)
            if hasattr(loss, "updates"):
                loss.updates += 1


# PT-BERT reads no token's role.
@pytest.mark.parametrize("name", [name for name in BUILDS if name != "pt-bert"])
def test_another_tokenizer_later(name, tiny_encoder):
    """Its ids would be read by the tables of the first one: a template's words would be the sentence's own."""
    build, dataset = BUILDS[name]
    for change in (apply_mask_template, lambda model: setattr(model[0], "processor", copy.deepcopy(model.tokenizer))):
        model = tiny_encoder()
        loss = build(model)
        change(model)
        with pytest.raises(ValueError, match="must have the tokenizer that it had when the loss was built"):
            for _ in range(2):  # SLT-FAI's second step is the first after its warm-up
                step(loss, model, dataset(8))
                if hasattr(loss, "updates"):
                    loss.updates += 1


@pytest.mark.parametrize("name", ["denosent", "denosent words", "bag of words", "paser"])
def test_embeddings_that_were_resized_later(name, tiny_encoder):
    build, dataset = BUILDS[name]
    model = tiny_encoder()
    loss = build(model)
    model.transformers_model.resize_token_embeddings(1560)
    with pytest.raises(ValueError, match="1,500 word embeddings .* got 1,560: call resize_token_embeddings before"):
        step(loss, model, dataset(8))


@pytest.mark.parametrize("part", ["model", "loss"])
def test_half_precision_that_was_asked_for_later(name, part, tiny_encoder):
    build, dataset = BUILDS[name]
    model = tiny_encoder()
    loss = build(model)
    (loss if part == "loss" else model).bfloat16()
    terms = step(loss, model, dataset(8))
    transformers.set_seed(1)
    exact = build(tiny_encoder())
    transformers.set_seed(1)
    assert all(torch.isfinite(term) for term in terms.values())
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in loss.parameters())
    assert set(terms) == set(step(exact, exact.model, dataset(8)))


def test_an_encoder_that_is_frozen(name, tiny_encoder):
    build, dataset = BUILDS[name]
    model = tiny_encoder()
    loss = build(model)
    model.requires_grad_(False)
    if name in WITHOUT_OWN_WEIGHTS:
        with pytest.raises(ValueError, match="trains the encoder, got one whose parameters are all frozen: set requires_grad"):
            step(loss, model, dataset(8))
    else:
        with pytest.warns(UserWarning, match="the encoder is frozen: .* trains only what it owns"):
            step(loss, model, dataset(8))


def test_an_encoder_with_a_trained_adapter_is_not_frozen(name, tiny_encoder, recwarn):
    build, dataset = BUILDS[name]
    model = tiny_encoder()
    loss = build(model)
    model.requires_grad_(False)
    model.transformers_model.encoder.layer[1].requires_grad_(True)
    step(loss, model, dataset(8))
    assert not [warning for warning in recwarn if "frozen" in str(warning.message)]


LOSSES = [
    losses.ArcCSELoss,
    losses.BagOfWordsLoss,
    losses.ConSERTLoss,
    losses.DenoSentLoss,
    losses.PaSeRLoss,
    losses.PTBERTLoss,
    lambda model: losses.SLTFAILoss(model, None, frequencies=None),
    lambda model: losses.WeightedSumLoss(model, {"a": (None, 1)}),
]


@pytest.mark.parametrize("loss", LOSSES)
def test_what_gives_no_sentence_vectors_is_refused(loss, tiny_encoder):
    model = tiny_encoder()
    for wrong in (SparseEncoder(modules=list(model), device="cpu"), model[0], model.transformers_model, None):
        with pytest.raises(ValueError, match=f"model must be a SentenceTransformer, .* got {type(wrong).__name__}"):
            loss(wrong)


class TestRoutes:
    def routed(self, tiny_encoder, *, shared):
        first, second = tiny_encoder(), tiny_encoder()
        with torch.no_grad():
            second.transformers_model.get_input_embeddings().weight.mul_(-1)
        document = [first[0], Pooling(32, "mean")] if shared else list(second)
        return SentenceTransformer(modules=[Router.for_query_document(list(first), document)], device="cpu")

    def test_of_their_own_encoders(self, name, tiny_encoder):
        """Refused, but by PT-BERT on one of them, which looks into none."""
        build, dataset = BUILDS[name]
        model = self.routed(tiny_encoder, shared=False)
        if name == "pt-bert":
            before = model[0].sub_modules["document"][0].model.get_input_embeddings().weight
            step(build(model), model, dataset(8), task="document")
            assert before.grad.any()
            assert model.transformers_model.get_input_embeddings().weight.grad is None
            columns = [model.preprocess(["a text", "another"], task=task) for task in ("query", "document")]
            with pytest.raises(ValueError, match="two columns looks into one encoder, .* nothing of it would be trained"):
                build(model)(columns)
        else:
            with pytest.raises(ValueError, match="Loss.* looks into one encoder, got a model with one for each of"):
                build(model)

    def test_of_one_encoder(self, name, tiny_encoder):
        """The document route's loss is that of a plain model with its parts."""
        build, dataset = BUILDS[name]
        model = self.routed(tiny_encoder, shared=True)
        plain = SentenceTransformer(modules=list(model[0].sub_modules["document"]), device="cpu")
        values = []
        for each, task in ((model, "document"), (plain, None)):
            transformers.set_seed(5)
            loss = build(each)
            transformers.set_seed(5)
            values.append(sum(step(loss, each, dataset(8), task=task).values()).item())
        assert values[0] == pytest.approx(values[1], rel=1e-5)

    def test_without_terms_that_look_into_the_encoder(self, tiny_encoder):
        model = self.routed(tiny_encoder, shared=False)
        dataset = METHODS["arccse"][1](8)
        for loss in (losses.ArcCSELoss(model, triplet_weight=0), losses.DenoSentLoss(model, denoising_weight=0)):
            assert all(torch.isfinite(term) for term in step(loss, model, dataset, task="document").values())


@pytest.fixture
def gapped(tiny_encoder, tmp_path):
    """A tiny encoder whose WordPiece vocabulary has no token with the id 700, and one with the id 1500."""
    model = tiny_encoder()
    state = json.loads(model.tokenizer.backend_tokenizer.to_str())
    vocabulary = state["model"]["vocab"]
    moved = next(token for token, place in vocabulary.items() if place == 700)
    vocabulary[moved] = 1500
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(state)),
        model_max_length=128,
        model_input_names=["input_ids", "attention_mask"],
        **model.tokenizer.special_tokens_map,
    )
    model.transformers_model.resize_token_embeddings(1501)
    model.transformers_model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    transformer = Transformer(str(tmp_path))
    return SentenceTransformer(modules=[transformer, Pooling(32, "cls")], device="cpu"), moved


class TestVocabularyWithAGap:
    def test_trains(self, name, gapped):
        model, moved = gapped
        build, dataset = BUILDS[name]
        rows = dataset(16).map(lambda row: {key: f"{text} {moved.removeprefix('##')}" for key, text in row.items()})
        assert 1500 in model.preprocess([moved])["input_ids"] or moved.startswith("##")
        assert all(torch.isfinite(term) for term in step(build(model), model, rows).values())

    def test_an_id_that_is_no_token_is_no_content_and_is_never_drawn(self, gapped):
        model, moved = gapped
        roles = TokenRoles(model.tokenizer)
        assert len(roles.special) == 1501
        assert roles.special[700]
        assert not roles.wordy[700]
        assert not roles.special[1500]
        assert bool(roles.wordy[1500]) == any(map(str.isalnum, moved.removeprefix("##")))
