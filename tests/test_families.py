"""Encoder families beyond those that every suite runs: rows of the matrix of ``benchmarks/families.py``, what they need."""

import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForMaskedLM

from sbert_plugins import losses
from sbert_plugins.encoder import TokenRoles, View, viewed
from sbert_plugins.modules import MLMHead, WordEmbeddings

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import families


@pytest.fixture
def build(tmp_path):
    """An encoder of a family, in evaluation mode."""

    def build(family, *, with_head=False):
        families.build_encoder(family, tmp_path, with_head=with_head)
        return families.load(tmp_path, "mean").eval()

    return build


def features_of(model):
    return model.preprocess(["She plays the organ in a small church.", "It is raining again today.", "Who invented it?"])


_NEEDS_MASKS = {"ArcCSE", "SLT-FAI", "PaSeR"}
_NEEDS_HEAD = {"DenoSent by layers", "PaSeR by layers"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "refused"),
    [
        ("eurobert", set()),  # an output layer of its own weights
        ("longformer", set()),  # fills its attention's window with padding
        ("funnel", set()),  # vectors that hold some of the padding
        ("xlnet", _NEEDS_HEAD | {"ConSERT", "SLT-FAI", "WeightedSum"}),  # tokens before sentences
        ("gpt2", _NEEDS_HEAD | _NEEDS_MASKS),
    ],
)
def test_a_loss_trains_a_family_or_refuses_it(family, refused):
    for cell in families.row(family, "cls", families.LOSSES):
        if cell["loss"] in refused:
            assert cell["outcome"] == "refused", cell
            assert "use an encoder" in cell["message"].lower(), cell
        else:
            assert (cell["outcome"], cell.get("reload_difference")) == ("trained", 0.0), cell


class TestHead:
    @pytest.mark.parametrize("family", ["eurobert", "rembert", "longformer", "mobilebert", "nomic_bert"])
    def test_logits_are_those_of_the_whole_model(self, build, tmp_path, family):
        model = build(family, with_head=True)
        head = MLMHead(model).eval()
        assert head.is_pretrained
        features = features_of(model)
        inputs = {key: features[key] for key in ("input_ids", "attention_mask")}
        chosen = features["attention_mask"].bool()
        expected = AutoModelForMaskedLM.from_pretrained(tmp_path).eval()(**inputs).logits[chosen]
        tokens = model(features)["token_embeddings"][chosen]
        assert torch.allclose(head(tokens), expected, atol=1e-5)
        candidates = torch.tensor([7, 40, 12])
        assert torch.allclose(head(tokens, candidates), expected[:, candidates], atol=1e-5)

    @pytest.mark.parametrize("family", ["eurobert", "rembert"])
    def test_output_weights_that_were_pretrained_apart_stay_so(self, build, family):
        model = build(family, with_head=True)
        words = model.transformers_model.get_input_embeddings().weight
        assert MLMHead(model).table is not words
        assert WordEmbeddings(model).table is words

    def test_those_of_a_new_head_are_apart_where_the_widths_differ(self, build):
        for family, apart in (("rembert", True), ("eurobert", False)):
            model = build(family)
            head = MLMHead(model, checkpoint="fresh")
            assert (head.table is not model.transformers_model.get_input_embeddings().weight) == apart
            assert head(torch.randn(2, 32)).shape == (2, len(model.tokenizer))

    def test_the_vector_of_padding_stays_zero(self, build):
        """Funnel's is set to zero when it is loaded, and a saved model would not be the trained one."""
        model = build("funnel")
        head, pad = MLMHead(model, checkpoint="fresh"), model.tokenizer.pad_token_id
        assert not head.table[pad].any()
        head(torch.randn(4, 32)).logsumexp(dim=1).sum().backward()
        assert not head.table.grad[pad].any()
        assert head.table.grad.any(dim=1).sum() == len(head.table) - 1


class TestViews:
    @pytest.mark.parametrize("family", ["longformer", "t5", "gpt2", "big_bird", "eurobert"])
    def test_shuffling_is_shuffled_text(self, build, family):
        model = build(family)
        features = features_of(model)
        view = View(["token_shuffling"], TokenRoles(model.tokenizer).content(features))
        plain = model(dict(features))["sentence_embedding"]
        with viewed(model, view):
            shuffled = model(dict(features))["sentence_embedding"]
        written = {**features, "input_ids": features["input_ids"].take_along_dim(view.order, dim=1)}
        assert torch.allclose(shuffled, model(written)["sentence_embedding"], atol=1e-5)
        assert not torch.allclose(shuffled, plain, atol=1e-5)

    @pytest.mark.parametrize("part", ["feature_cutoff", "token_cutoff"])
    def test_padding_behind_the_tokens_is_left_alone(self, build, part):
        model = build("longformer")
        features = features_of(model)
        seen = []
        with viewed(model, View([part], TokenRoles(model.tokenizer).content(features))):
            model.transformers_model.embeddings.register_forward_hook(lambda *arguments: seen.append(arguments[2]))
            model(dict(features))
        length = features["input_ids"].shape[1]
        assert seen[0].shape[1] > length
        assert (seen[0][:, :length] == 0).any() and not (seen[0][:, length:] == 0).any()

    def test_tokens_before_sentences_are_refused(self, build):
        model = build("xlnet").train()
        with pytest.raises(
            ValueError, match=r"as \(sentences, tokens, width\), got \(\d+, 1, 32\) from XLNetModel for 1 sentence"
        ):
            losses.ConSERTLoss(model)
        assert not any(module._forward_hooks for module in model.modules())
        loss = losses.ConSERTLoss(model, first_view=("dropout",), second_view=("dropout",))  # the way out
        assert loss([features_of(model)])["nt_xent"] > 0

    def test_embeddings_out_of_sight_are_refused(self, build, monkeypatch):
        model = build("bert")
        monkeypatch.setattr(model.transformers_model, "get_input_embeddings", lambda: torch.nn.Embedding(3, 32))
        with pytest.raises(ValueError, match="ConSERTLoss changes embeddings, which must come once a pass"):
            losses.ConSERTLoss(model)
