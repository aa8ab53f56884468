import numpy as np
import pytest
import reference
import torch
from torch import nn

from sbert_plugins.modules import DenoisingDecoder

ATTENDED = torch.tensor([[True] * 5, [True] * 3 + [False] * 2, [True] + [False] * 4])


SMALL = {"num_layers": 3, "num_heads": 1, "feedforward_dimension": 24, "dropout": 0.1, "noise_dropout": 0.825}


def build(**keywords):
    torch.manual_seed(0)
    decoder = DenoisingDecoder(16, **(SMALL | keywords)).double().eval()
    for parameter in decoder.parameters():  # biases and norms away from 0 and 1, so that none can be forgotten
        nn.init.normal_(parameter, std=0.3)
    return decoder


def inputs(batch=3, length=5, width=16, memory_width=16):
    torch.manual_seed(1)
    return torch.randn(batch, length, width).double(), torch.randn(batch, memory_width).double()


@pytest.mark.parametrize("num_heads", [1, 4])
def test_against_the_reference(num_heads):
    decoder = build(num_heads=num_heads)
    embedded, memory = inputs()
    weights = {name: tensor.detach().numpy() for name, tensor in decoder.state_dict().items()}
    expected = [
        reference.denoising_decoder(e.numpy(), m.numpy(), weights, num_layers=3, num_heads=num_heads, attended=a.tolist())
        for e, m, a in zip(embedded, memory, ATTENDED, strict=True)
    ]
    decoded = decoder(embedded, memory, ATTENDED).detach()
    assert decoded[ATTENDED].numpy() == pytest.approx(np.array(expected)[ATTENDED.numpy()], rel=1e-8, abs=1e-10)
    assert not decoded[~ATTENDED].any()


@pytest.mark.parametrize(("num_layers", "num_heads"), [(1, 1), (16, 1), (2, 4)])
def test_equal_to_the_transformer_decoder_of_torch(num_layers, num_heads):
    """With any query and key weights in its cross-attention: they cannot matter."""
    decoder = build(num_layers=num_layers, num_heads=num_heads).float()
    layer = nn.TransformerDecoderLayer(16, num_heads, 24, batch_first=True)
    theirs = nn.TransformerDecoder(layer, num_layers).eval()
    with torch.no_grad():
        for own, other in zip(decoder.layers, theirs.layers, strict=True):
            other.self_attn.in_proj_weight.copy_(own.self_in.weight)
            other.self_attn.in_proj_bias.copy_(own.self_in.bias)
            other.self_attn.out_proj.load_state_dict(own.self_out.state_dict())
            nn.init.normal_(other.multihead_attn.in_proj_weight)
            other.multihead_attn.in_proj_weight[32:].copy_(own.memory_value.weight)
            other.multihead_attn.in_proj_bias[32:].copy_(own.memory_value.bias)
            other.multihead_attn.out_proj.load_state_dict(own.memory_out.state_dict())
            for name in ("linear1", "linear2", "norm1", "norm2", "norm3"):
                getattr(other, name).load_state_dict(getattr(own, name).state_dict())
        embedded, memory = (x.float() for x in inputs())
        ours = decoder(embedded, memory, ATTENDED)
        expected = theirs(embedded, memory.unsqueeze(1), tgt_key_padding_mask=~ATTENDED)
    assert (ours - expected)[ATTENDED].abs().max() < 1e-5
    dead = num_layers * (2 * 16 * 16 + 2 * 16)
    assert sum(p.numel() for p in decoder.parameters()) == sum(p.numel() for p in theirs.parameters()) - dead


def test_by_hand():
    """(3, 1) is normed to (1, -1); a memory of (0, 4) turns it into (1, 3) and so into (-1, 1)."""
    decoder = DenoisingDecoder(2, **(SMALL | {"num_layers": 1, "feedforward_dimension": 2})).eval()
    for parameter in decoder.parameters():
        nn.init.zeros_(parameter)
    layer = decoder.layers[0]
    for norm in (layer.norm1, layer.norm2, layer.norm3):
        nn.init.ones_(norm.weight)
    for part in (layer.memory_value, layer.memory_out):
        nn.init.eye_(part.weight)
    embedded, seen = torch.tensor([[[3.0, 1.0]]]), torch.ones(1, 1, dtype=torch.bool)
    assert decoder(embedded, torch.zeros(1, 2), seen).flatten().tolist() == pytest.approx([1, -1], abs=1e-4)
    assert decoder(embedded, torch.tensor([[0.0, 4.0]]), seen).flatten().tolist() == pytest.approx([-1, 1], abs=1e-4)


def test_gradients():
    decoder = build(num_layers=2)
    embedded, memory = (x.requires_grad_() for x in inputs())
    for parameter in decoder.parameters():
        parameter.requires_grad_(False)
    assert torch.autograd.gradcheck(lambda e, m: decoder(e, m, ATTENDED)[ATTENDED], (embedded, memory))


class TestWhatAPlaceSees:
    def test_the_whole_sentence(self):
        embedded, memory = inputs()
        embedded.requires_grad_()
        build()(embedded, memory, ATTENDED)[0, 0].square().sum().backward()
        assert embedded.grad[0].abs().sum(dim=1).min() > 0  # what comes later, too
        assert not embedded.grad[1:].any()

    def test_no_padding(self):
        decoder, (embedded, memory) = build(), inputs()
        before = decoder(embedded, memory, ATTENDED)
        embedded[~ATTENDED] = 7.0
        assert torch.equal(decoder(embedded, memory, ATTENDED)[ATTENDED], before[ATTENDED])

    def test_on_either_side(self):
        decoder, (embedded, memory) = build(), inputs()
        left = decoder(embedded.flip(1), memory, ATTENDED.flip(1)).flip(1)
        torch.testing.assert_close(left, decoder(embedded, memory, ATTENDED))

    def test_it_costs_nothing(self):
        decoder, tokens = build(), []
        decoder.layers[-1].register_forward_pre_hook(lambda module, arguments: tokens.append(len(arguments[0])))
        decoder(*inputs(), ATTENDED)
        assert tokens == [ATTENDED.sum()]

    def test_a_row_of_padding_is_finite(self):
        decoder, (embedded, memory) = build().train(), inputs()
        memory.requires_grad_()
        value = decoder(embedded, memory, torch.zeros(3, 5, dtype=torch.bool))
        value.sum().backward()
        assert torch.isfinite(value).all()
        assert torch.isfinite(memory.grad).all()

    def test_learned_positions_tell_places_apart(self):
        embedded, memory = inputs()
        swapped, seen = embedded[:, [1, 0, 2, 3, 4]], torch.ones(3, 5, dtype=torch.bool)
        blind, sighted = build(), build(learned_positions=True)
        assert torch.allclose(blind(embedded, memory, seen)[:, 2:], blind(swapped, memory, seen)[:, 2:])
        assert not torch.allclose(sighted(embedded, memory, seen)[:, 2:], sighted(swapped, memory, seen)[:, 2:])


def test_the_noise_is_off_in_eval_and_has_its_rate_in_training():
    decoder = DenoisingDecoder(64, **SMALL)
    seen = []
    decoder.layers[0].register_forward_pre_hook(lambda module, arguments: seen.append(arguments[0]))
    embedded, memory, attended = torch.ones(20, 50, 64), torch.ones(20, 64), torch.ones(20, 50, dtype=torch.bool)
    decoder.eval()(embedded, memory, attended)
    decoder.train()(embedded, memory, attended)
    assert torch.equal(seen[0], embedded.flatten(0, 1))
    assert (seen[1] == 0).float().mean().item() == pytest.approx(0.825, abs=0.01)
    assert seen[1].max().item() == pytest.approx(1 / 0.175)


def test_other_widths_are_mapped():
    decoder = build(embedding_dimension=8, memory_dimension=12)
    assert decoder(*inputs(width=8, memory_width=12), ATTENDED).shape == (3, 5, 16)


def test_layers_start_from_different_weights():
    first, second = DenoisingDecoder(16, **SMALL).layers[:2]
    assert not torch.equal(first.linear1.weight, second.linear1.weight)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"num_layers": 0}, "num_layers must be at least 1, got 0"),
        ({"num_heads": 5}, r"num_heads \(a loss's decoder_heads\) must divide the encoder's width 16, got 5"),
        ({"dropout": 1.0}, r"dropout \(a loss's decoder_dropout\) must be in \[0, 1\), got 1.0"),
        ({"noise_dropout": -0.1}, r"noise_dropout must be in \[0, 1\), got -0.1"),
    ],
)
def test_bad_values(keywords, message):
    with pytest.raises(ValueError, match=message):
        DenoisingDecoder(16, **(SMALL | keywords))


def test_a_sentence_beyond_the_table():
    embedded, memory = inputs(length=513)
    attended = torch.ones(3, 513, dtype=torch.bool)
    with pytest.raises(ValueError, match="at most 512 tokens, got 513: lower model.max_seq_length"):
        build(learned_positions=True)(embedded, memory, attended)
    assert build()(embedded, memory, attended).shape == (3, 513, 16)


def test_places_differ_at_the_start():
    """Post-norm layers that each add the same memory vector would make all places alike: Xavier's start leaves .0007."""
    torch.manual_seed(0)
    decoder = DenoisingDecoder(768, **(SMALL | {"num_layers": 16, "feedforward_dimension": 2048})).eval()
    embedded = torch.nn.functional.layer_norm(torch.randn(4, 20, 768), (768,))
    memory = torch.randn(4, 768) * 0.5  # the size that encoders give: norm 14
    with torch.no_grad():
        hidden = decoder(embedded, memory, torch.ones(4, 20, dtype=torch.bool))
    assert hidden.var(dim=1).mean() > 0.1
