import pytest
import torch
from encoders import ARCHITECTURES, SENTENCES

from sbert_plugins.encoder import TokenRoles, View, dropout_off, viewed

PARTS = ("feature_cutoff", "token_cutoff", "token_shuffling")


@pytest.fixture
def content():
    """Two rows: a special token, content of 6 and 3 tokens, a special token, padding."""
    content = torch.zeros(2, 8, dtype=torch.bool)
    content[0, 1:7] = content[1, 1:4] = True
    return content


class TestDraws:
    def test_shuffling_permutes_content_only(self, content):
        torch.manual_seed(0)
        seen = set()
        for _ in range(50):
            order = View(["token_shuffling"], content).order
            assert (order.sort(dim=1).values == torch.arange(8)).all()
            assert (order[~content] == torch.arange(8).expand(2, 8)[~content]).all()
            assert content.take_along_dim(order, dim=1).equal(content)
            seen.add(tuple(order[1, 1:4].tolist()))
        assert len(seen) == 6  # every permutation of three

    def test_token_cutoff(self, content):
        view = View(["token_cutoff"], content, token_cutoff_rate=0.5)
        cut = view.inputs(torch.ones(2, 8, 4)) == 0
        assert cut.all(dim=2).sum(dim=1).tolist() == [3, 2]
        assert not cut[~content].any()

    def test_feature_cutoff_is_one_set_for_all_tokens_of_a_sentence(self, content):
        view = View(["feature_cutoff"], content, feature_cutoff_rate=0.25)
        cut = view.inputs(torch.ones(2, 8, 40)) == 0
        assert (cut == cut[:, :1]).all()
        assert cut[:, 0].sum(dim=1).tolist() == [10, 10]
        assert not torch.equal(cut[0, 0], cut[1, 0])
        assert torch.equal(view.inputs(torch.ones(2, 8, 40)) == 0, cut)  # the same when it is applied again

    def test_dropout_alone_changes_nothing_here(self, content):
        view, x = View(["dropout"], content), torch.randn(2, 8, 4)
        assert view.words(x) is x
        assert view.inputs(x) is x


@pytest.mark.parametrize("architecture", ARCHITECTURES)
class TestEveryEncoder:
    @pytest.fixture
    def model(self, tiny_encoder, architecture):
        return tiny_encoder(architecture, "mean").eval()

    @pytest.mark.parametrize("part", PARTS)
    def test_each_part_changes_the_vector(self, model, part):
        features = model.preprocess(SENTENCES)
        plain = model(dict(features))["sentence_embedding"]
        view = View([part], TokenRoles(model.tokenizer).content(features))
        with viewed(model, view):
            once = model(dict(features))["sentence_embedding"]
            twice = model(dict(features))["sentence_embedding"]
        assert (once - plain).norm(dim=1).min() > 1e-3
        assert torch.equal(once, twice)
        assert torch.equal(model(dict(features))["sentence_embedding"], plain)

    def test_shuffling_is_shuffled_text(self, model):
        """Words moved before positions are added are the same words written in another order."""
        features = model.preprocess(SENTENCES)
        view = View(["token_shuffling"], TokenRoles(model.tokenizer).content(features))
        with viewed(model, view):
            viewed_ = model(dict(features))["sentence_embedding"]
        written = {**features, "input_ids": features["input_ids"].take_along_dim(view.order, dim=1)}
        assert torch.allclose(viewed_, model(written)["sentence_embedding"], atol=1e-5)

    def test_gradients_reach_the_word_embeddings(self, model):
        features = model.preprocess(SENTENCES)
        with viewed(model, View(PARTS, TokenRoles(model.tokenizer).content(features))):
            model(features)["sentence_embedding"].sum().backward()
        assert model[0].model.get_input_embeddings().weight.grad.any()


def test_shuffled_behind_the_positions_nothing_would_change(tiny_encoder):
    """Why it has to happen before: the vectors of an encoder with mean pooling do not depend on the order of its inputs."""
    model = tiny_encoder("bert", "mean").eval()
    features = model.preprocess(SENTENCES)
    plain = model(dict(features))["sentence_embedding"]
    view = View(["token_shuffling"], TokenRoles(model.tokenizer).content(features))
    hook = model[0].model.embeddings.register_forward_hook(lambda module, arguments, output: view.words(output))
    behind = model(dict(features))["sentence_embedding"]
    hook.remove()
    with viewed(model, view):
        before = model(dict(features))["sentence_embedding"]
    assert (behind - plain).abs().max() < 1e-5
    assert (before - plain).abs().max() > 1e-2


class TestContext:
    def test_two_views_share_the_rows(self, tiny_encoder):
        model = tiny_encoder().eval()
        features = model.preprocess(SENTENCES)
        content = TokenRoles(model.tokenizer).content(features)
        views = [View(["token_shuffling"], content), View(["token_cutoff"], content)]
        both = {key: value.repeat(2, 1) for key, value in features.items() if isinstance(value, torch.Tensor)}
        with viewed(model, *views):
            first, second = model(both)["sentence_embedding"].chunk(2)
        for view, expected in zip(views, (first, second), strict=True):
            with viewed(model, view):
                assert torch.allclose(model(dict(features))["sentence_embedding"], expected, atol=1e-5)

    def test_nothing_is_left_behind(self, tiny_encoder):
        model = tiny_encoder().eval()
        features = model.preprocess(SENTENCES)
        content = TokenRoles(model.tokenizer).content(features)
        with pytest.raises(RuntimeError, match="inside"), viewed(model, View(["token_shuffling"], content)):
            raise RuntimeError("inside")
        assert not any(module._forward_hooks for module in model.modules())

    def test_rows_of_another_shape_are_an_error(self, tiny_encoder):
        model = tiny_encoder().eval()
        content = TokenRoles(model.tokenizer).content(model.preprocess(SENTENCES))
        with pytest.raises(RuntimeError), viewed(model, View(["token_cutoff"], content)), dropout_off(model):
            model(model.preprocess(SENTENCES[:3]))

    def test_a_compiled_encoder_is_refused(self, tiny_encoder):
        """Its hooks would be left out, and both views be the sentence as it is."""
        model = tiny_encoder()
        content = TokenRoles(model.tokenizer).content(model.preprocess(SENTENCES))
        with pytest.raises(ValueError, match=r"must not be compiled.*Train without torch_compile"):
            viewed(torch.compile(model), View(("feature_cutoff",), content)).__enter__()
