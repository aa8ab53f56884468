import pytest
import torch
from encoders import ARCHITECTURES, project_text

from sbert_plugins import losses
from sbert_plugins.modules import BagOfWordsDecoder, MLMHead


def batch(model, sentences):
    return [model.preprocess(sentences)]


class TestStart:
    def test_the_map_is_the_identity(self, tiny_encoder):
        decoder = BagOfWordsDecoder(MLMHead(tiny_encoder(), checkpoint="fresh"), 32)
        assert torch.equal(decoder.map.weight, torch.eye(32))
        assert not decoder.map.bias.any()

    def test_of_several_vectors_each_has_its_share(self, tiny_encoder):
        decoder = BagOfWordsDecoder(MLMHead(tiny_encoder(), checkpoint="fresh"), 32, start=(1.0, 0.0, -2.0))
        memory = torch.randn(3, 3, 32)
        assert torch.allclose(decoder.map(memory.flatten(1)), memory[:, 0] - 2 * memory[:, 2], atol=1e-6)

    def test_of_another_width_it_keeps_lengths(self, tiny_encoder):
        decoder = BagOfWordsDecoder(MLMHead(tiny_encoder(), checkpoint="fresh"), 90)
        assert torch.allclose(decoder.map.weight @ decoder.map.weight.T, torch.eye(32), atol=1e-5)

    def test_a_pretrained_head_is_read_through(self, minilm_mlm):
        """Its transform and its bias, at the candidates."""
        loss = losses.BagOfWordsLoss(minilm_mlm, mlm_head="pretrained")
        vectors, ids = torch.randn(3, 384), torch.tensor([2003, 4937, 1012])
        expected = loss.head(vectors)[:, ids]
        assert torch.allclose(loss.decoder(vectors, loss.head, ids), expected, atol=1e-4)

    @pytest.mark.parametrize(("scored_by", "least"), [("embeddings", 0.1), ("pretrained", 1.0)])
    def test_it_reads_words_at_once(self, minilm_mlm, scored_by, least):
        """Before any update the own vector tells more than another's; through random weights it tells nothing."""
        loss = losses.BagOfWordsLoss(minilm_mlm, mlm_head=scored_by)
        minilm_mlm.eval()
        features = batch(minilm_mlm, project_text()[:64])
        loss([dict(features[0])])
        at_the_start = loss.diagnostics["information"]
        torch.nn.init.normal_(loss.decoder.map.weight, std=0.02)
        loss([dict(features[0])])
        assert at_the_start > least
        assert loss.diagnostics["information"].abs() < least / 10


@pytest.mark.parametrize("length", [3, 40])
def test_token_accuracy_is_the_share_of_tokens_among_the_best(tiny_encoder, length):
    """As many candidates as the text has tokens count; texts with more tokens than there are candidates, and ties."""
    head = MLMHead(tiny_encoder(), checkpoint="fresh")
    decoder = BagOfWordsDecoder(head, 32)
    torch.manual_seed(1)
    ids, content = torch.randint(5, 12, (6, length)), torch.rand(6, length) > 0.3
    memory = torch.randn(6, 32)
    memory[0] = 0  # all candidates alike, but for the bias
    _, found = decoder.loss(memory, head, ids, content, None)
    candidates = ids[content].unique()
    logits = decoder(memory, head, candidates)
    hits = [
        (logits[row] > logits[row, candidates.tolist().index(token)]).sum().item() < content[row].sum().item()
        for row in range(6)
        for token in ids[row][content[row]].tolist()
    ]
    assert sum(hits) > 0
    assert found["token_accuracy"].item() == pytest.approx(sum(hits) / len(hits))


class TestHead:
    @pytest.mark.parametrize("architecture", ARCHITECTURES)
    def test_candidates_are_columns_of_the_whole(self, tiny_encoder, architecture):
        model = tiny_encoder(architecture)
        head = MLMHead(model, checkpoint="fresh")
        hidden, ids = torch.randn(5, model.get_embedding_dimension()), torch.tensor([7, 5, 30])
        assert torch.allclose(head(hidden, ids), head(hidden)[:, ids], atol=1e-5)

    def test_the_table_learns(self, tiny_encoder):
        model = tiny_encoder()
        head = MLMHead(model, checkpoint="fresh")
        head(torch.randn(5, 32), torch.tensor([7, 5, 30])).sum().backward()
        reached = model.transformers_model.get_input_embeddings().weight.grad.abs().sum(dim=1).nonzero().flatten()
        assert reached.tolist() == [5, 7, 30]
