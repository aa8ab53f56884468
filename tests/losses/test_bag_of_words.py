import pytest
import reference
import torch
from encoders import ARCHITECTURES, SENTENCES, project_counts, project_text
from tools import batch, words_of

from sbert_plugins import losses
from sbert_plugins.encoder import TokenRoles
from sbert_plugins.losses.vocabulary import build_word_scorer
from sbert_plugins.modules import BagOfWordsDecoder, MLMHead, WordEmbeddings


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


@pytest.fixture
def head(tiny_encoder):
    return MLMHead(tiny_encoder(), checkpoint="fresh")


def test_the_map_starts_as_the_identity(head):
    memory = torch.randn(3, 3, 32)
    assert torch.equal(BagOfWordsDecoder(head, 32).map(memory), memory)
    several = BagOfWordsDecoder(head, 32, start=(1.0, 0.0, -2.0)).map(memory.flatten(1))
    assert torch.allclose(several, memory[:, 0] - 2 * memory[:, 2], atol=1e-6)
    rows = BagOfWordsDecoder(head, 90).map.weight
    assert torch.allclose(rows @ rows.T, torch.eye(32), atol=1e-5)


@pytest.mark.parametrize(("scorer", "least"), [(WordEmbeddings, 0.1), (MLMHead, 1.0)])
def test_the_start_already_reads_words(minilm_mlm, scorer, least):
    model = minilm_mlm.eval()
    features, head, information = model.preprocess(project_text()[:64]), scorer(model), []
    decoder, content = BagOfWordsDecoder(head, 384), TokenRoles(model.tokenizer).content(features)
    with torch.no_grad():
        vectors = model(dict(features))["sentence_embedding"]
        for _ in range(2):
            _, found = decoder.loss(vectors, head, features["input_ids"], content, None)
            information.append(found["information"].item())
            torch.nn.init.normal_(decoder.map.weight, std=0.02)
    # The own vector gives a lower loss than another sentence's. After a random map it does not.
    assert information[0] > least > 10 * abs(information[1])


@pytest.mark.parametrize("length", [3, 40])
def test_token_accuracy(head, length):
    # Of a text with k tokens, those among its k best candidates are correct. There may be fewer.
    decoder, memory = BagOfWordsDecoder(head, 32), torch.randn(6, 32)
    ids, content = torch.randint(5, 12, (6, length)), torch.rand(6, length) > 0.3
    candidates = ids[content].unique().tolist()
    logits = decoder(memory, head, torch.tensor(candidates))
    hits = [
        (row > row[candidates.index(token)]).sum().item() < own.sum().item()
        for row, tokens, own in zip(logits, ids, content, strict=True)
        for token in tokens[own].tolist()
    ]
    _, found = decoder.loss(memory, head, ids, content, None)
    assert found["token_accuracy"].item() == pytest.approx(sum(hits) / len(hits))
    loss, found = decoder.loss(memory, head, ids, torch.zeros_like(content), None)
    assert loss == 0 and found["token_accuracy"].isnan() and found["information"].isnan()
