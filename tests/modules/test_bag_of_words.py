import pytest
import torch
from encoders import project_text

from sbert_plugins.encoder import TokenRoles
from sbert_plugins.modules import BagOfWordsDecoder, MLMHead, WordEmbeddings


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
