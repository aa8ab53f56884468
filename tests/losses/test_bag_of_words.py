import pytest
import reference
import torch
from encoders import ARCHITECTURES, SENTENCES, project_counts
from tools import batch, words_of

from sbert_plugins import losses
from sbert_plugins.losses.vocabulary import build_word_scorer
from sbert_plugins.modules import MLMHead, WordEmbeddings


def build(model, **keywords):
    return losses.BagOfWordsLoss(model, **({"frequencies": project_counts(model.tokenizer)} | keywords))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("token_weights", [1e-3, None])
def test_is_that_of_the_reference(tiny_encoder, architecture, token_weights):
    # The map starts as the identity, and words are scored by their own embeddings.
    model = tiny_encoder(architecture, "mean").eval()
    loss = build(model, token_weights=token_weights)
    texts = words_of(model, SENTENCES)
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


def test_words_are_scored_by(tiny_encoder, minilm_mlm, caplog):
    assert isinstance(build_word_scorer(tiny_encoder(), "embeddings"), WordEmbeddings)
    assert isinstance(build_word_scorer(minilm_mlm, "pretrained"), MLMHead)
    assert not caplog.records
    assert isinstance(build_word_scorer(tiny_encoder(), "pretrained"), WordEmbeddings)
    assert "no pretrained head" in caplog.text
    with pytest.raises(OSError):
        build_word_scorer(tiny_encoder(), "nobody/nothing")
