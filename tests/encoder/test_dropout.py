import pytest
import torch
from encoders import ARCHITECTURES, SENTENCES
from torch import nn

from sbert_plugins.encoder import dropout_off, require_dropout, set_dropout

NO_DROPOUT = {
    "bert": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    "modernbert": {"embedding_dropout": 0.0, "attention_dropout": 0.0, "mlp_dropout": 0.0},
    "distilbert": {"dropout": 0.0, "attention_dropout": 0.0},
}


def embed_twice(model):
    features = model.preprocess(SENTENCES)
    return [model(dict(features))["sentence_embedding"] for _ in range(2)]


def modes(model):
    return [module.training for module in model.modules()]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_dropout_off_is_exact_and_restores_every_mode(tiny_encoder, architecture):
    model = tiny_encoder(architecture).train()
    list(model.modules())[-1].eval()  # frozen by the user
    before = modes(model)
    assert not torch.equal(*embed_twice(model))
    with pytest.raises(RuntimeError, match="inside"), dropout_off(model):
        assert not any(modes(model)) and torch.equal(*embed_twice(model))
        raise RuntimeError("inside")
    assert modes(model) == before and {*before} == {True, False}
    set_dropout(model, 0.0)
    assert torch.equal(*embed_twice(model))


@pytest.mark.parametrize("architecture", NO_DROPOUT)
def test_an_encoder_without_dropout_is_refused(tiny_encoder, architecture):
    with pytest.raises(ValueError, match="probabilities are 0"):
        require_dropout(tiny_encoder(architecture, **NO_DROPOUT[architecture]), "SomeLoss")


def test_dropout_that_is_off_is_refused_in_training(tiny_encoder):
    # SentenceTransformer loads its encoder in eval mode, while its own flag says training.
    model = tiny_encoder().eval()
    require_dropout(model, "SomeLoss")
    model.training = True
    with pytest.raises(ValueError, match=r"model.train\(\)"):
        require_dropout(model, "SomeLoss")
    require_dropout(model.train(), "SomeLoss")


class TestGradientCheckpointing:
    """The layers run again in the backward pass, after the block has ended."""

    # Return the gradients of two passes without dropout and one with, and the runs of one Linear layer.
    @staticmethod
    def train(model, checkpointing):
        if checkpointing is not None:
            model.transformers_model.activation_checkpointing_enable(checkpointing)
        inner, runs = [module for module in model.modules() if isinstance(module, nn.Linear)][-3], []
        inner.register_forward_hook(lambda *_: runs.append(True))
        before = modes(model)
        torch.manual_seed(0)
        with dropout_off(model):
            first, second = embed_twice(model)
        assert torch.equal(first, second) and modes(model) == before
        (first * second.detach().roll(1, 0) * embed_twice(model)[0]).sum().backward()
        assert modes(model) == before
        return [p.grad for p in model.parameters() if p.grad is not None], len(runs)

    @pytest.mark.parametrize("reentrant", [False, True])
    @pytest.mark.parametrize("architecture", sorted({*ARCHITECTURES} - {"mpnet"}))  # MPNet has none
    def test_the_gradients_are_the_same(self, tiny_encoder, architecture, reentrant):
        build = lambda: tiny_encoder(architecture, "mean").double().train()  # noqa: E731
        expected, runs = self.train(build(), None)
        found, runs_again = self.train(build(), {"use_reentrant": reentrant})
        assert (runs, runs_again) == (4, 6)  # two of the four passes have a gradient
        assert all(map(torch.equal, found, expected))
