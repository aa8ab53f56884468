# Its values are compared with the numpy reference in tests/losses/test_paser.py.

import pytest
import torch

from sbert_plugins.modules import PhraseDecoder

SMALL = {
    "num_layers": 2,
    "num_heads": 4,
    "dropout": 0.1,
    "feedforward_dimension": 24,
    "normalize_memory": False,
}


@pytest.mark.parametrize("training", [False, True])
def test_a_place_sees_earlier_words_in_their_order_and_the_whole_memory(training):
    decoder = PhraseDecoder(16, **SMALL, embedding_dimension=8, memory_dimension=12).train(training)
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
    decoder = PhraseDecoder(16, **(SMALL | {"normalize_memory": normalize})).eval()
    memory = (torch.randn(3, 4, 16) * torch.tensor([1.0, 1, 1, 30])[:, None]).requires_grad_()
    decoder(torch.randn(3, 5, 16), memory).pow(3).sum().backward()
    effects = (memory.grad * memory.detach()).norm(dim=2).mean(dim=0)
    assert (effects[:3].mean() > 0.5 * effects[3]) == normalize


def test_matrices_start_as_berts():
    decoder = PhraseDecoder(64, **SMALL)
    matrices = [parameter for parameter in decoder.layers.parameters() if parameter.ndim > 1]
    deviations = [each.std().item() for each in (*matrices, decoder.positions.weight)]
    assert deviations == pytest.approx([0.02] * len(deviations), rel=0.1)
    first, second = decoder.layers.layers
    assert not torch.equal(first.linear1.weight, second.linear1.weight)


def test_written_phrases_are_padded_with_the_end():
    written = iter(torch.tensor([[9, 3], [5, 4], [5, 9]]))  # 9 is the end
    decoder, embed = PhraseDecoder(16, **SMALL).eval(), torch.nn.Embedding(10, 16)
    ids = decoder.write(
        torch.randn(2, 4, 16),
        lambda hidden: torch.nn.functional.one_hot(next(written), 10),
        embed,
        start_id=0,
        end_id=9,
        max_tokens=5,
    )
    assert ids.tolist() == [[9, 9, 9], [3, 4, 9]]
