import pytest
import torch
from encoders import ARCHITECTURES, SENTENCES
from torch import nn

from sbert_plugins.encoder import TokenRoles, View, apply_views, dropout_off, require_dropout, set_dropout

PARTS = ("feature_cutoff", "token_cutoff", "token_shuffling")


def view_of(model, features, *parts):
    return View(parts, TokenRoles(model.tokenizer).content(features))


def embed(model, features, *views):
    if not views:
        return model(dict(features))["sentence_embedding"]
    with apply_views(model, *views):
        return model(dict(features))["sentence_embedding"]


class TestDraws:
    # Two rows: a special token, content of 6 and 3 tokens, a special token, padding.
    content = (torch.arange(8) > 0) & (torch.arange(8) < torch.tensor([[7], [4]]))

    def test_shuffling_permutes_content_only(self):
        orders = [View(["token_shuffling"], self.content).order for _ in range(50)]
        for order in orders:
            assert (order.sort(dim=1).values == torch.arange(8)).all()
            assert (order[~self.content] == torch.arange(8).expand(2, 8)[~self.content]).all()
        assert len({tuple(order[1, 1:4].tolist()) for order in orders}) == 6  # every permutation of three

    def test_cutoffs(self):
        view = View(["token_cutoff"], self.content, token_cutoff_rate=0.5)
        cut = view.change_inputs(torch.ones(2, 8, 4)) == 0
        assert cut.all(dim=2).sum(dim=1).tolist() == [3, 2] and not cut[~self.content].any()
        view = View(["feature_cutoff"], self.content, feature_cutoff_rate=0.25)
        cut, again = (view.change_inputs(torch.ones(2, 8, 40)) == 0 for _ in range(2))
        assert torch.equal(cut, again)
        assert (cut == cut[:, :1]).all() and cut[:, 0].sum(dim=1).tolist() == [10, 10]

    def test_shown_follows_marked_tokens(self):
        view, ids = View(PARTS, self.content, token_cutoff_rate=0.5), torch.arange(1, 9).expand(2, 8)
        seen = view.change_inputs(view.change_words(ids.unsqueeze(2).expand(2, 8, 40).float())).amax(dim=2)
        assert torch.equal(view.shown(ids == 3), seen == 3)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_part_changes_the_vectors_of_every_encoder(tiny_encoder, architecture):
    model = tiny_encoder(architecture, "mean").eval()
    features = model.preprocess(SENTENCES)
    plain = embed(model, features)
    for part in PARTS:
        view = view_of(model, features, part)
        changed = embed(model, features, view)
        assert (changed - plain).norm(dim=1).min() > 1e-3
        assert torch.equal(embed(model, features, view), changed)  # a view can be applied again
    assert torch.equal(embed(model, features), plain)
    # Shuffling embeddings before positions are added is equal to shuffling the text.
    written = {**features, "input_ids": features["input_ids"].take_along_dim(view.order, dim=1)}
    assert torch.allclose(changed, embed(model, written), atol=1e-5)


def test_encoders_that_hooks_cannot_change(tiny_encoder, monkeypatch):
    model = tiny_encoder().eval()
    features = model.preprocess(SENTENCES)
    view = view_of(model, features, "token_cutoff")
    with pytest.raises(ValueError, match="embeddings"):  # rows of another shape, as in XLNet
        embed(model, model.preprocess(SENTENCES[:3]), view)
    assert not any(module._forward_hooks for module in model.modules())
    table = torch.nn.Embedding(3, 32)
    monkeypatch.setattr(model.transformers_model, "get_input_embeddings", lambda: table)
    with pytest.raises(ValueError, match="embeddings"):
        embed(model, features, view)
    assert torch.equal(embed(model, features, view_of(model, features, "dropout")), embed(model, features))


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
