import pytest
import reference
import torch

from sbert_plugins.modules import PseudoTokenAttention


def build(num_pseudo_tokens=8, attend_to="tokens"):
    return PseudoTokenAttention(6, num_pseudo_tokens=num_pseudo_tokens, attend_to=attend_to)


def test_is_eq_1_to_3_with_its_own_weights():
    attention = build(num_pseudo_tokens=5).double()
    sentence, tokens = torch.randn(2, 6).double(), torch.randn(2, 4, 6).double()
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
    mapped = attention(sentence, tokens, mask)
    matrices = {name: getattr(attention, name).weight.detach().numpy().T for name in ("query", "key", "value")}
    pseudo_tokens = attention.pseudo_tokens.detach().numpy()
    for i, length in enumerate((4, 3)):
        expected = reference.pseudo_token_mapping(pseudo_tokens, sentence[i].numpy(), tokens[i].numpy(), length, **matrices)
        assert mapped[i].detach().numpy() == pytest.approx(expected, rel=1e-10)


def test_padding_changes_nothing():
    attention = build()
    sentence, tokens, mask = torch.randn(2, 6), torch.randn(2, 4, 6), torch.ones(2, 4)
    longer = torch.cat([tokens, 9 * torch.randn(2, 3, 6)], dim=1)
    padded = torch.cat([mask, torch.zeros(2, 3)], dim=1)
    torch.testing.assert_close(attention(sentence, longer, padded), attention(sentence, tokens, mask))


@pytest.mark.parametrize("attend_to", ["tokens", "pooled"])
def test_who_gets_a_gradient(attend_to):
    """Every pseudo token of the tokens' reading, none of the pooled one: the official code's no-op."""
    attention = build(128, attend_to)
    attention(torch.randn(2, 6), torch.randn(2, 4, 6), torch.ones(2, 4)).pow(2).sum().backward()
    moved = attention.pseudo_tokens.grad.abs().sum(dim=1) > 0
    assert moved.all() if attend_to == "tokens" else not moved.any()
    assert attention.value.weight.grad.any()


def test_tokens_are_missed():
    with pytest.raises(ValueError, match="tokens must be"):
        build()(torch.randn(2, 6))


def test_pooled_is_two_linear_maps_and_reads_no_tokens():
    attention = build(attend_to="pooled")
    sentence = torch.randn(3, 6)
    torch.testing.assert_close(attention(sentence), attention.value(attention.value(sentence)))


def test_takes_an_encoder_of_another_dtype():
    mapped = build()(torch.randn(2, 6).bfloat16(), torch.randn(2, 4, 6).bfloat16(), torch.ones(2, 4))
    assert mapped.dtype == torch.float32


def test_values():
    with pytest.raises(ValueError, match="num_pseudo_tokens must be at least 1, got 0"):
        build(num_pseudo_tokens=0)
    with pytest.raises(ValueError, match="attend_to must be 'tokens' or 'pooled', got 'cls'"):
        build(attend_to="cls")


def test_pseudo_tokens_start_with_unit_variance():
    pseudo_tokens = PseudoTokenAttention(64, num_pseudo_tokens=128, attend_to="tokens").pseudo_tokens
    assert pseudo_tokens.std().item() == pytest.approx(1.0, rel=0.1)
    assert pseudo_tokens.mean().item() == pytest.approx(0.0, abs=0.1)
