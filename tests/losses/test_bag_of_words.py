import inspect

import pytest
import reference
import torch
from encoders import ARCHITECTURES, SENTENCES, project_counts
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss
from sentence_transformers.sentence_transformer.modules import Dense

from sbert_plugins import losses


def counts(model):
    return project_counts(model.tokenizer)


def build(model, **keywords):
    torch.manual_seed(0)
    loss = losses.BagOfWordsLoss(model, **({"frequencies": counts(model)} | keywords))
    loss.state_is_kept = True
    return loss


def batch(model, sentences=SENTENCES):
    return [model.preprocess(sentences)]


class TestValue:
    @pytest.mark.parametrize("architecture", ARCHITECTURES)
    @pytest.mark.parametrize("token_weights", [1e-3, None])
    def test_is_that_of_the_reference(self, tiny_encoder, architecture, token_weights):
        """The map starts as the identity, and words are scored by their own embeddings."""
        model = tiny_encoder(architecture, "mean")
        loss = build(model, token_weights=token_weights)
        model.eval()
        texts = [model.tokenizer(text, add_special_tokens=False)["input_ids"] for text in SENTENCES]
        table = model.transformers_model.get_input_embeddings().weight.detach()
        with torch.no_grad():
            read = torch.from_numpy(model.encode(SENTENCES))
            if architecture == "electra":  # words narrower than vectors
                read = loss.decoder.map(read)
        logits = (read @ table.T).double().tolist()
        shares = counts(model).probabilities()
        weights = [1.0 if token_weights is None else reference.token_weight(share, token_weights) for share in shares]
        expected = reference.bag_of_words_loss(texts, logits, weights)
        assert loss(batch(model))["words"].item() == pytest.approx(expected, rel=1e-4)

    def test_information_is_what_another_vector_costs(self, tiny_encoder):
        model = tiny_encoder(pooling="mean")
        loss = build(model)
        model.eval()
        value = loss(batch(model))["words"]
        rolled = loss.decoder.loss
        features = batch(model)[0]
        vectors = model(dict(features))["sentence_embedding"].roll(1, dims=0)
        other, _ = rolled(vectors, loss.head, features["input_ids"], loss.tokens.content(features), loss.weights)
        assert loss.diagnostics["information"].item() == pytest.approx((other - value).item(), rel=1e-4)

    def test_a_transformer_that_alone_is_compiled(self, tiny_encoder):
        model = tiny_encoder(pooling="mean").eval()
        plain = build(model)(batch(model))["words"]
        model[0].model = torch.compile(model[0].model, backend="eager")
        torch.testing.assert_close(build(model)(batch(model))["words"], plain)

    def test_features_are_left_as_they_came(self, tiny_encoder):
        model = tiny_encoder(pooling="mean")
        features = batch(model)
        before = dict(features[0])
        build(model)(features)
        assert set(features[0]) == set(before)


class TestHostileInput:
    @pytest.mark.parametrize(
        "sentences", [["", " "], ["", "A dog runs."], ["word " * 300, "a"], ["😀", "<mask> <s>"], ["one"]]
    )
    def test_odd_texts(self, tiny_encoder, sentences):
        model = tiny_encoder(pooling="mean").train()
        loss = build(model)
        value = loss(batch(model, sentences))["words"]
        value.backward()
        assert torch.isfinite(value)
        assert all(torch.isfinite(p.grad).all() for p in loss.parameters() if p.grad is not None)
        assert loss.decoder.map.weight.grad is not None  # every rank has a gradient to average

    def test_columns(self, tiny_encoder):
        model = tiny_encoder()
        with pytest.raises(ValueError, match=r"BagOfWordsLoss reads one text column \(anchor\), got 2"):
            build(model)(batch(model) * 2)

    def test_another_vocabulary(self, tiny_encoder):
        with pytest.raises(ValueError, match=r"pass frequencies=data.TokenFrequencies.from_corpus\(texts, model.tokenizer\)"):
            losses.BagOfWordsLoss(tiny_encoder())
        with pytest.raises(ValueError, match="must be of the encoder's vocabulary"):
            build(tiny_encoder("roberta"), frequencies=counts(tiny_encoder("bert")))
        losses.BagOfWordsLoss(tiny_encoder(), token_weights=None)

    @pytest.mark.parametrize("value", [0.0, -1.0, 1.5, float("nan")])
    def test_thresholds(self, tiny_encoder, value):
        with pytest.raises(ValueError, match="token_weights must be a share of running text"):
            build(tiny_encoder(), token_weights=value)

    def test_cut_vectors_are_refused(self, tiny_encoder):
        model = tiny_encoder(pooling="mean")
        with pytest.raises(ValueError, match=r"reads vectors of width 32, .* got 16 \(MatryoshkaLoss"):
            MatryoshkaLoss(model, build(model), matryoshka_dims=[32, 16])(batch(model), None)


class TestInTraining:
    def test_a_sentence_vector_of_another_width(self, tiny_encoder):
        model = SentenceTransformer(modules=[*tiny_encoder(pooling="mean"), Dense(32, 12)], device="cpu")
        loss = build(model)
        loss(batch(model))["words"].backward()
        assert loss.decoder.map.weight.shape == (32, 12)
        assert loss.decoder.map.weight.grad.abs().sum() > 0

    def test_learns_the_words(self, tiny_encoder):
        model = tiny_encoder(pooling="mean").train()
        loss = build(model)
        optimizer = torch.optim.AdamW(loss.parameters(), lr=2e-3)
        for _ in range(30):
            optimizer.zero_grad()
            loss(batch(model))["words"].backward()
            optimizer.step()
        assert loss.diagnostics["token_accuracy"] > 0.5
        assert loss.diagnostics["information"] > 0.5

    def test_an_encoder_in_bfloat16(self, tiny_encoder):
        model = tiny_encoder(pooling="mean").bfloat16().train()
        value = build(model)(batch(model))["words"]
        assert value.dtype == torch.float32
        value.backward()

    def test_config_holds_every_keyword(self, tiny_encoder):
        names = [name for name in inspect.signature(losses.BagOfWordsLoss).parameters if name != "model"]
        assert list(build(tiny_encoder()).get_config_dict()) == names
