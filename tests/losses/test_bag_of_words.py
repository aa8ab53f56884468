import pytest
import reference
import torch
from encoders import ARCHITECTURES, SENTENCES, project_counts
from tools import batch

from sbert_plugins import losses
from sbert_plugins.losses.vocabulary import build_word_scorer
from sbert_plugins.modules import MLMHead, WordEmbeddings

pytestmark = pytest.mark.filterwarnings("ignore:.*owns weights")


def build(model, **keywords):
    return losses.BagOfWordsLoss(model, **({"frequencies": project_counts(model.tokenizer)} | keywords))


class TestValue:
    @pytest.mark.parametrize("architecture", ARCHITECTURES)
    @pytest.mark.parametrize("token_weights", [1e-3, None])
    def test_is_that_of_the_reference(self, tiny_encoder, architecture, token_weights):
        """The map starts as the identity, and words are scored by their own embeddings."""
        model = tiny_encoder(architecture, "mean").eval()
        loss = build(model, token_weights=token_weights)
        texts = [model.tokenizer(text, add_special_tokens=False)["input_ids"] for text in SENTENCES]
        table = model.transformers_model.get_input_embeddings().weight.detach()
        with torch.no_grad():
            read = torch.from_numpy(model.encode(SENTENCES))
            if architecture == "electra":  # word embeddings that are narrower than the vectors
                read = loss.decoder.map(read)
        shares = project_counts(model.tokenizer).probabilities()
        weights = [
            1.0 if token_weights is None else reference.token_weight(share, token_weights) for share in shares
        ]
        expected = reference.bag_of_words_loss(texts, (read @ table.T).double().tolist(), weights)
        assert loss(batch(model, SENTENCES))["words"].item() == pytest.approx(expected, rel=1e-4)

    def test_information_is_the_cost_of_another_vector(self, tiny_encoder):
        model = tiny_encoder(pooling="mean").eval()
        loss, columns = build(model), batch(model, SENTENCES)
        value = loss(columns)["words"]
        vectors = model(dict(columns[0]))["sentence_embedding"].roll(1, dims=0)
        content = loss.tokens.content(columns[0])
        other, _ = loss.decoder.loss(vectors, loss.head, columns[0]["input_ids"], content, loss.weights)
        assert loss.diagnostics["information"].item() == pytest.approx((other - value).item(), rel=1e-4)

    def test_learns_the_words(self, tiny_encoder):
        model = tiny_encoder(pooling="mean").train()
        loss = build(model)
        optimizer = torch.optim.AdamW(loss.parameters(), lr=2e-3)
        for _ in range(30):
            optimizer.zero_grad()
            loss(batch(model, SENTENCES))["words"].backward()
            optimizer.step()
        assert loss.diagnostics["token_accuracy"] > 0.5
        assert loss.diagnostics["information"] > 0.5


def test_a_batch_without_a_word(tiny_encoder):
    """All parameters have a gradient, which other ranks average."""
    loss = build(tiny_encoder(pooling="mean").train())
    value = loss(batch(loss.model, ["", " "]))["words"]
    value.backward()
    assert value == 0
    assert loss.decoder.map.weight.grad is not None


class TestFrequencies:
    def test_of_another_vocabulary(self, tiny_encoder, tmp_path):
        with pytest.raises(ValueError, match=r"data\.TokenFrequencies\.from_corpus"):
            losses.BagOfWordsLoss(tiny_encoder())
        counts = project_counts(tiny_encoder("bert").tokenizer)
        with pytest.raises(ValueError, match="vocabulary"):
            build(tiny_encoder("roberta"), frequencies=counts)
        losses.BagOfWordsLoss(tiny_encoder(), token_weights=None)
        counts.save(tmp_path / "counts.npz")
        from_file = build(tiny_encoder(), frequencies=str(tmp_path / "counts.npz"))
        assert torch.equal(from_file.weights, build(tiny_encoder()).weights)
        assert counts.mark in from_file.get_config_dict()["frequencies"]

    def test_bookcorpus_is_the_default(self, minilm):
        assert "BookCorpus" in losses.BagOfWordsLoss(minilm).get_config_dict()["frequencies"]

    @pytest.mark.parametrize("value", [0.0, 1.5])
    def test_thresholds(self, tiny_encoder, value):
        with pytest.raises(ValueError, match=f"threshold .* got {value}"):
            build(tiny_encoder(), token_weights=value)


def test_words_are_scored_by(tiny_encoder, minilm_mlm, caplog):
    assert isinstance(build_word_scorer(tiny_encoder(), "embeddings"), WordEmbeddings)
    assert isinstance(build_word_scorer(minilm_mlm, "pretrained"), MLMHead)
    assert not caplog.records
    assert isinstance(build_word_scorer(tiny_encoder(), "pretrained"), WordEmbeddings)
    assert "has no head" in caplog.text
    with pytest.raises(OSError):
        build_word_scorer(tiny_encoder(), "nobody/nothing")
