import struct

import pytest
import torch
from torch import nn

from sbert_plugins.modules import DenoisingDecoder, PhraseDecoder, decoding
from sbert_plugins.modules.decoding import probe_memory


def loss(memory):
    """The distance of each row from its own number, and noise."""
    return (memory.squeeze(1) - torch.arange(4.0)).square().mean() + torch.rand(())


def probed(*, scored=lambda i: 1920, draw=lambda: torch.rand(1)):
    """Return which of 2,000 batches are probed if something is drawn before each."""
    return [i for i in range(2000) if [draw(), probe_memory(loss, torch.zeros(4, 1), scored(i))][1]]


def test_information_is_the_cost_of_another_rows_memory(monkeypatch):
    # Rolled by one row the distances are 3, 1, 1 and 1. Both values have the same noise, which is undone.
    monkeypatch.setattr(decoding, "PROBE_EVERY", 1)
    state = torch.get_rng_state()
    assert probe_memory(loss, torch.arange(4.0).unsqueeze(1), 100)["information"].item() == pytest.approx(3.0)
    assert torch.equal(torch.get_rng_state(), state)
    assert probe_memory(loss, torch.zeros(1, 1), 50) == probe_memory(loss, torch.zeros(4, 1), 0) == {}


@pytest.mark.parametrize(
    "how",
    [{}, {"scored": lambda i: 50}, {"scored": lambda i: 900 + i, "draw": lambda: None}],
    ids=["truncated texts", "few tokens", "no dropout"],
)
def test_one_batch_in_fifty_is_probed(how):
    # A resumed training probes the same batches.
    state = torch.get_rng_state()
    found = probed(**how)
    assert 25 < len(found) < 55
    torch.set_rng_state(state)
    assert probed(**how) == found


def test_one_batch_in_fifty_by_a_generator_that_counts(monkeypatch):
    # The state of a GPU's generator is its seed and the number of draws. The CPU draws nothing here.
    drawn = bytearray(16)
    monkeypatch.setattr(
        decoding.host, "generator_state", lambda _: torch.frombuffer(drawn, dtype=torch.uint8)
    )
    monkeypatch.setattr(decoding.host, "set_random_state", lambda device, state: None)
    counts = iter(range(52, 10**6, 52))
    assert 25 < len(probed(draw=lambda: struct.pack_into("<qq", drawn, 0, 12, next(counts)))) < 55


# The decoder of DenoSent. Its values are compared with the numpy reference in tests/losses/test_denosent.py.
ATTENDED = torch.tensor([[True] * 5, [True] * 3 + [False] * 2, [True] + [False] * 4])
DENOISING = {
    "num_layers": 3,
    "num_heads": 1,
    "feedforward_dimension": 24,
    "dropout": 0.1,
    "noise_dropout": 0.825,
}


def build(**keywords):
    decoder = DenoisingDecoder(16, **(DENOISING | keywords)).double().eval()
    for parameter in decoder.parameters():  # biases and norms away from 0 and 1
        nn.init.normal_(parameter, std=0.3)
    return decoder


def inputs(length=5, width=16, memory_width=16):
    return torch.randn(3, length, width).double(), torch.randn(3, memory_width).double()


@pytest.mark.parametrize(("num_layers", "num_heads"), [(16, 1), (2, 4)])
def test_equal_to_the_transformer_decoder_of_torch(num_layers, num_heads):
    # Its cross-attention has any query and key weights: they have no influence.
    decoder, (embedded, memory) = build(num_layers=num_layers, num_heads=num_heads), inputs()
    layer = nn.TransformerDecoderLayer(16, num_heads, 24, batch_first=True).double()
    theirs = nn.TransformerDecoder(layer, num_layers).eval().requires_grad_(False)
    for own, other in zip(decoder.layers, theirs.layers, strict=True):
        other.multihead_attn.in_proj_weight[32:] = own.memory_value.weight.detach()
        other.multihead_attn.in_proj_bias[32:] = own.memory_value.bias.detach()
        other.self_attn.in_proj_weight, other.self_attn.in_proj_bias = own.self_in.weight, own.self_in.bias
        other.self_attn.out_proj.load_state_dict(own.self_out.state_dict())
        other.multihead_attn.out_proj.load_state_dict(own.memory_out.state_dict())
        for name in ("linear1", "linear2", "norm1", "norm2", "norm3"):
            setattr(other, name, getattr(own, name))
    expected = theirs(embedded, memory.unsqueeze(1), tgt_key_padding_mask=~ATTENDED)
    decoded = decoder(embedded, memory, ATTENDED)
    torch.testing.assert_close(decoded[ATTENDED], expected[ATTENDED])
    assert not decoded[~ATTENDED].any()


def test_each_place_sees_the_whole_sentence_and_no_padding():
    decoder, (embedded, memory) = build(), inputs()
    before = decoder(embedded.requires_grad_(), memory, ATTENDED)
    before[0, 0].square().sum().backward()
    assert embedded.grad[0].any(dim=1).all() and not embedded.grad[1:].any()
    assert torch.equal(decoder(torch.where(ATTENDED.unsqueeze(2), embedded, 7.0), memory, ATTENDED), before)
    left = decoder(embedded.flip(1), memory, ATTENDED.flip(1)).flip(1)  # padding on the other side
    torch.testing.assert_close(left, before)
    assert not decoder(embedded, memory, torch.zeros_like(ATTENDED)).any()  # rows of padding alone


@pytest.mark.parametrize("learned", [False, True])
def test_learned_positions(learned):
    decoder, (embedded, memory) = build(learned_positions=learned), inputs()
    seen, swapped = torch.ones(3, 5, dtype=torch.bool), embedded[:, [1, 0, 2, 3, 4]]
    first, second = (decoder(each, memory, seen)[:, 2:] for each in (embedded, swapped))
    assert torch.allclose(first, second) != learned


def test_other_widths_are_mapped():
    decoder = build(embedding_dimension=8, memory_dimension=12)
    assert decoder(*inputs(width=8, memory_width=12), ATTENDED).shape == (3, 5, 16)
    with pytest.raises(ValueError, match="max_seq_length"):
        build(learned_positions=True)(*inputs(length=513), torch.ones(3, 513, dtype=torch.bool))


def test_places_differ_at_the_start():
    decoder = DenoisingDecoder(768, **(DENOISING | {"num_layers": 16, "feedforward_dimension": 2048})).eval()
    embedded, memory = nn.functional.layer_norm(torch.randn(4, 20, 768), (768,)), torch.randn(4, 768) * 0.5
    with torch.no_grad():
        hidden = decoder(embedded, memory, torch.ones(4, 20, dtype=torch.bool))
    assert hidden.var(dim=1).mean() > 0.1  # 0.0007 with Xavier's start


# The decoder of PaSeR. Its values are compared with the numpy reference in tests/losses/test_paser.py.
PHRASES = {
    "num_layers": 2,
    "num_heads": 4,
    "dropout": 0.1,
    "feedforward_dimension": 24,
    "normalize_memory": False,
}


@pytest.mark.parametrize("training", [False, True])
def test_a_place_sees_earlier_words_in_their_order_and_the_whole_memory(training):
    decoder = PhraseDecoder(16, **PHRASES, embedding_dimension=8, memory_dimension=12).train(training)
    words, memory = torch.randn(3, 5, 8, requires_grad=True), torch.randn(3, 4, 12, requires_grad=True)
    decoder(words, memory)[:, 2].pow(3).sum().backward()
    assert words.grad[:, :3].any(dim=2).all() and not words.grad[:, 3:].any()
    assert memory.grad.any(dim=2).all()
    first, second = (decoder.eval()(each, memory)[:, 2:] for each in (words, words[:, [1, 0, 2, 3, 4]]))
    assert not torch.allclose(first, second, atol=1e-5)


@pytest.mark.parametrize("normalize", [True, False])
def test_normalized_memory_has_no_dominant_vector(normalize):
    # One vector is 30 times longer than the others. The test compares the effects of relative changes.
    torch.manual_seed(0)
    decoder = PhraseDecoder(16, **(PHRASES | {"normalize_memory": normalize})).eval()
    memory = (torch.randn(3, 4, 16) * torch.tensor([1.0, 1, 1, 30])[:, None]).requires_grad_()
    decoder(torch.randn(3, 5, 16), memory).pow(3).sum().backward()
    effects = (memory.grad * memory.detach()).norm(dim=2).mean(dim=0)
    assert (effects[:3].mean() > 0.5 * effects[3]) == normalize


def test_matrices_start_as_berts():
    decoder = PhraseDecoder(64, **PHRASES)
    matrices = [parameter for parameter in decoder.layers.parameters() if parameter.ndim > 1]
    deviations = [each.std().item() for each in (*matrices, decoder.positions.weight)]
    assert deviations == pytest.approx([0.02] * len(deviations), rel=0.1)
    first, second = decoder.layers.layers
    assert not torch.equal(first.linear1.weight, second.linear1.weight)


def test_written_phrases_are_padded_with_the_end():
    written = iter(torch.tensor([[9, 3], [5, 4], [5, 9]]))  # 9 is the end
    decoder, embed = PhraseDecoder(16, **PHRASES).eval(), torch.nn.Embedding(10, 16)
    ids = decoder.write(
        torch.randn(2, 4, 16),
        lambda hidden: torch.nn.functional.one_hot(next(written), 10),
        embed,
        start_id=0,
        end_id=9,
        max_tokens=5,
    )
    assert ids.tolist() == [[9, 9, 9], [3, 4, 9]]
