import pytest
import torch
from encoders import ARCHITECTURES, SENTENCES
from torch import nn
from transformers import AutoModel, BartConfig, XLMConfig

from sbert_plugins.encoder import dropout_off, dropout_rates, require_dropout, set_dropout

NO_DROPOUT = {
    "bert": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    "modernbert": {"embedding_dropout": 0.0, "attention_dropout": 0.0, "mlp_dropout": 0.0},
    "distilbert": {"dropout": 0.0, "attention_dropout": 0.0},
}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_dropout_off_is_exact_and_keeps_gradients(tiny_encoder, architecture):
    model = tiny_encoder(architecture).train()
    features = model.preprocess(SENTENCES)

    def embed():
        return model(dict(features))["sentence_embedding"]

    assert not torch.equal(embed(), embed())
    with dropout_off(model):
        first, second = embed(), embed()
    assert torch.equal(first, second)
    first.sum().backward()
    assert any(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_another_rate_for_all(tiny_encoder, architecture):
    """Without any, two passes in training mode are one."""
    model = tiny_encoder(architecture).train()
    features = model.preprocess(SENTENCES)
    set_dropout(model, 0.0)
    assert set(dropout_rates(model)) == {0}
    assert torch.equal(*(model(dict(features))["sentence_embedding"] for _ in range(2)))
    set_dropout(model, 0.4)
    assert set(dropout_rates(model)) == {0.4}
    assert not torch.equal(*(model(dict(features))["sentence_embedding"] for _ in range(2)))


def test_a_rate_that_is_the_integer_0_is_one():
    layer = torch.nn.Linear(2, 2)
    layer.attention_dropout, layer.uses_dropout = 0, False
    assert list(dropout_rates(layer)) == [0]
    set_dropout(layer, 0.1)
    assert (layer.attention_dropout, layer.uses_dropout) == (0.1, False)


def test_dropout_off_restores_every_module(tiny_encoder):
    model = tiny_encoder().train()
    model[0].model.encoder.layer[0].eval()  # frozen by the user
    before = [module.training for module in model.modules()]
    with pytest.raises(RuntimeError, match="inside"), dropout_off(model):
        assert not any(module.training for module in model.modules())
        raise RuntimeError("inside")
    assert [module.training for module in model.modules()] == before
    assert True in before
    assert False in before


class TestGradientCheckpointing:
    """Layers are run again in backward, where the block is over: as they were run in it, or the gradient is another's."""

    @staticmethod
    def gradients(tiny_encoder, architecture, checkpointing):
        """Return the gradients of passes without dropout, backward behind the block, and the runs of a Linear of a layer."""
        model = tiny_encoder(architecture, "mean").double().train()
        if checkpointing is not None:
            model.transformers_model.activation_checkpointing_enable(checkpointing)
        inner = [module for module in model.modules() if isinstance(module, nn.Linear)][-3]
        runs = []
        inner.register_forward_hook(lambda *_: runs.append(True))
        features = model.preprocess(SENTENCES)
        modes = [module.training for module in model.modules()]
        with dropout_off(model):
            assert not model.training
            first, second = (model(dict(features))["sentence_embedding"] for _ in range(2))
        assert [module.training for module in model.modules()] == modes
        assert torch.equal(first, second)
        (first * second.detach().roll(1, 0)).sum().backward()
        assert [module.training for module in model.modules()] == modes
        return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}, len(runs)

    @pytest.mark.parametrize("reentrant", [False, True])
    @pytest.mark.parametrize("architecture", sorted({*ARCHITECTURES} - {"mpnet"}))  # which transformers cannot checkpoint
    def test_the_gradients_are_the_same(self, tiny_encoder, architecture, reentrant):
        expected, runs = self.gradients(tiny_encoder, architecture, None)
        found, runs_again = self.gradients(tiny_encoder, architecture, {"use_reentrant": reentrant})
        assert (runs, runs_again) == (2, 3)  # the second pass has no gradient
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], expected[name]) for name in expected)

    def test_beside_a_pass_with_dropout(self, tiny_encoder):
        """One backward through both: each is run again as it was."""
        gradients = []
        for checkpointing in (False, True):
            model = tiny_encoder().double().train()
            if checkpointing:
                model.transformers_model.activation_checkpointing_enable()
            features = model.preprocess(SENTENCES)
            torch.manual_seed(0)
            with dropout_off(model):
                plain = model(dict(features))["sentence_embedding"]
            dropped = model(dict(features))["sentence_embedding"]
            (plain * dropped).sum().backward()
            gradients.append([p.grad for p in model.parameters() if p.grad is not None])
        assert all(map(torch.equal, *gradients))

    def test_a_layer_frozen_in_eval_mode_is_not_checkpointed(self, tiny_encoder):
        model = tiny_encoder().train()
        model.transformers_model.activation_checkpointing_enable()
        layer = model.transformers_model.encoder.layer[0].eval()
        checkpoint = layer._gradient_checkpointing_func
        with dropout_off(model):
            assert not layer.training
            assert layer._gradient_checkpointing_func is checkpoint


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_dropout_rates_of_an_encoder(tiny_encoder, architecture):
    assert max(dropout_rates(tiny_encoder(architecture))) == pytest.approx(0.1)


def test_dropout_that_is_off_is_refused_in_training(tiny_encoder):
    """As ``SentenceTransformer`` loads it: it says that it trains, and what is inside does not."""
    model = tiny_encoder().eval()
    require_dropout(model, "SomeLoss")
    model.training = True
    with pytest.raises(ValueError, match=r"every dropout of this model is in eval mode, .*call model.train\(\)"):
        require_dropout(model, "SomeLoss")
    with torch.no_grad():
        require_dropout(model, "SomeLoss")
    model.train()
    require_dropout(model, "SomeLoss")
    assert list(dropout_rates(model)) == list(dropout_rates(model, in_training=True))


@pytest.mark.parametrize("architecture", NO_DROPOUT)
def test_an_encoder_without_dropout_is_refused(tiny_encoder, architecture):
    model = tiny_encoder(architecture, **NO_DROPOUT[architecture])
    assert set(dropout_rates(model)) == {0.0}
    with pytest.raises(ValueError, match="every dropout probability of this model is 0.0"):
        require_dropout(model, "SomeLoss")


@pytest.mark.parametrize(
    "config",
    [
        XLMConfig(vocab_size=30, emb_dim=8, n_heads=2, n_layers=1),
        BartConfig(vocab_size=30, d_model=16, encoder_layers=1, decoder_layers=1),
    ],
    ids=["xlm", "bart"],
)
def test_dropout_that_is_a_function(config):
    """Where layers hold numbers instead of modules."""
    model = AutoModel.from_config(config).train()
    ids = torch.tensor([[3, 4, 5, 6]])
    assert any(dropout_rates(model))
    set_dropout(model, 0.0)
    first, second = (model(input_ids=ids).last_hidden_state for _ in range(2))
    assert torch.equal(first, second)


def test_dropout_given_as_a_number():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention_dropout = 0.25

    assert list(dropout_rates(nn.Sequential(nn.Dropout(0.1), Attention()))) == [0.1, 0.25]
