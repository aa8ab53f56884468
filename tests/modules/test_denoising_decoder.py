# Its values are compared with the numpy reference in tests/losses/test_denosent.py.

import pytest
import torch
from torch import nn

from sbert_plugins.modules import DenoisingDecoder

ATTENDED = torch.tensor([[True] * 5, [True] * 3 + [False] * 2, [True] + [False] * 4])
SMALL = {"num_layers": 3, "num_heads": 1, "feedforward_dimension": 24, "dropout": 0.1, "noise_dropout": 0.825}


def build(**keywords):
    decoder = DenoisingDecoder(16, **(SMALL | keywords)).double().eval()
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
    decoder = DenoisingDecoder(768, **(SMALL | {"num_layers": 16, "feedforward_dimension": 2048})).eval()
    embedded, memory = nn.functional.layer_norm(torch.randn(4, 20, 768), (768,)), torch.randn(4, 768) * 0.5
    with torch.no_grad():
        hidden = decoder(embedded, memory, torch.ones(4, 20, dtype=torch.bool))
    assert hidden.var(dim=1).mean() > 0.1  # 0.0007 with Xavier's start
