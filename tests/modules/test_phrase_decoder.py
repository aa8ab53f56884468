import numpy as np
import pytest
import reference
import torch

from sbert_plugins import functional
from sbert_plugins.modules import PhraseDecoder

SMALL = {"num_layers": 2, "num_heads": 4, "dropout": 0.1, "feedforward_dimension": 24, "normalize_memory": False}


def build(**keywords):
    torch.manual_seed(0)
    decoder = PhraseDecoder(16, **(SMALL | keywords)).double().eval()
    for parameter in decoder.parameters():  # biases and norms away from 0 and 1, so that none can be forgotten
        torch.nn.init.normal_(parameter, std=0.3)
    return decoder


def inputs(batch=3, length=5, width=16, memory_width=16):
    torch.manual_seed(1)
    return torch.randn(batch, length, width).double(), torch.randn(batch, 4, memory_width).double()


@pytest.mark.parametrize("num_layers", [1, 3])
def test_against_the_reference(num_layers):
    decoder = build(num_layers=num_layers)
    words, memory = inputs()
    weights = {name: tensor.detach().numpy() for name, tensor in decoder.state_dict().items()}
    expected = [
        reference.phrase_decoder(w.numpy(), m.numpy(), weights, num_layers=num_layers, num_heads=4)
        for w, m in zip(words, memory, strict=True)
    ]
    assert decoder(words, memory).detach().numpy() == pytest.approx(np.array(expected), rel=1e-8, abs=1e-10)


class TestCausal:
    def test_a_place_sees_no_later_word(self):
        decoder = build()
        words, memory = inputs()
        before = decoder(words, memory)
        for place in range(1, words.shape[1]):
            changed = words.clone()
            changed[:, place:] = torch.randn_like(changed[:, place:])
            after = decoder(changed, memory)
            assert torch.equal(after[:, :place], before[:, :place])
            assert not torch.allclose(after[:, place], before[:, place])

    def test_in_training_as_well(self):
        words, memory = inputs()
        words.requires_grad_()
        build().train()(words, memory)[:, 1].sum().backward()
        assert words.grad[:, :2].any()
        assert not words.grad[:, 2:].any()

    def test_word_order_counts(self):
        decoder = build()
        words, memory = inputs()
        swapped = words[:, [1, 0, 2, 3, 4]]
        assert not torch.allclose(decoder(words, memory)[:, 2:], decoder(swapped, memory)[:, 2:])

    def test_every_memory_vector_is_read(self):
        words, memory = inputs()
        memory.requires_grad_()
        build()(words, memory).square().sum().backward()
        assert memory.grad.abs().sum(dim=2).min() > 0


def test_other_widths_are_mapped():
    decoder = build(embedding_dimension=8, memory_dimension=12)
    assert decoder(*inputs(width=8, memory_width=12)).shape == (3, 5, 16)


def test_layers_start_from_different_weights():
    torch.manual_seed(0)
    first, second = PhraseDecoder(16, **SMALL).layers.layers
    assert not torch.equal(first.linear1.weight, second.linear1.weight)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"num_layers": 0}, "num_layers must be at least 1, got 0"),
        ({"num_heads": 5}, r"num_heads \(a loss's decoder_heads\) must divide the encoder's width 16, got 5"),
        ({"num_heads": 0}, r"num_heads \(a loss's decoder_heads\) must divide the encoder's width 16, got 0"),
        ({"dropout": 1.0}, r"dropout \(a loss's decoder_dropout\) must be in \[0, 1\), got 1.0"),
    ],
)
def test_bad_values(keywords, message):
    with pytest.raises(ValueError, match=message):
        PhraseDecoder(16, **(SMALL | keywords))


def test_a_phrase_beyond_the_table():
    words, memory = inputs(length=130)
    with pytest.raises(ValueError, match="at most 127 tokens, got 129: take shorter phrases"):
        build()(words, memory)


def test_a_phrase_beyond_the_table_is_not_scored():
    """It would end a training after hours: the other rows of its batch are scored as they are without it."""
    decoder, head = build().eval().float(), torch.nn.Linear(16, 20)
    memory = torch.randn(2, 4, 16)
    ids = torch.randint(1, 20, (2, 200))
    content = torch.arange(200) < torch.tensor([[5], [150]])
    embed = torch.nn.Embedding(20, 16)
    given = {"embed": embed, "start_id": 0, "end_id": 0}
    both, _ = decoder.loss(memory, head, ids, content, None, **given)
    alone, _ = decoder.loss(memory[:1], head, ids[:1, :6], content[:1, :6], None, **given)
    assert both.item() == pytest.approx(alone.item(), abs=1e-5)


def test_a_long_memory_vector_does_not_drown_the_others():
    """Attention over a memory in which one vector is 30 times the others: normalised, each is read."""
    torch.manual_seed(0)
    words, memory = inputs()
    memory[:, 3] *= 30
    shares = []
    for normalize in (True, False):
        decoder = build(normalize_memory=normalize)
        if normalize:
            torch.nn.init.ones_(decoder.norm_memory.weight)
            torch.nn.init.zeros_(decoder.norm_memory.bias)
        memory.requires_grad_()
        decoder(words, memory).square().sum().backward()
        norms = (memory.grad * memory.detach()).norm(dim=2).mean(dim=0)  # what a relative change of each vector does
        shares.append((norms[:3].mean() / norms[3]).item())
        memory.grad = None
    assert shares[0] > 2 * shares[1]  # 1.30 and .51


def test_starts_as_bert_does():
    decoder = PhraseDecoder(64, **SMALL)
    for name, parameter in decoder.layers.named_parameters():
        if parameter.ndim > 1:
            assert parameter.std().item() == pytest.approx(0.02, rel=0.1), name


def test_behind_an_end_stand_ends():
    said = iter([[9, 3], [5, 4], [5, 9]])  # 9 is the end
    decoder, embed = PhraseDecoder(16, **SMALL).eval(), torch.nn.Embedding(10, 16)

    def head(hidden):
        return torch.nn.functional.one_hot(torch.tensor(next(said)), 10)

    ids = decoder.write(torch.randn(2, 4, 16), head, embed, start_id=0, end_id=9, max_tokens=5)
    assert ids.tolist() == [[9, 9, 9], [3, 4, 9]]


def test_positions_start_as_berts():
    assert PhraseDecoder(64, **SMALL).positions.weight.std().item() == pytest.approx(0.02, rel=0.1)


def test_a_phrases_end_is_scored():
    decoder, head = PhraseDecoder(16, **SMALL).eval(), torch.nn.Linear(16, 20)
    ids, content = torch.tensor([[5, 6, 2, 1]]), torch.tensor([[True, True, False, False]])
    memory, embed = torch.randn(1, 4, 16), torch.nn.Embedding(20, 16)
    loss, _ = decoder.loss(memory, head, ids, content, None, embed=embed, start_id=0, end_id=2)
    logits = head(decoder(embed(torch.tensor([[0, 5, 6]])), memory)[0])
    assert loss.item() == pytest.approx(functional.token_cross_entropy(logits, torch.tensor([5, 6, 2])).item(), rel=1e-5)
