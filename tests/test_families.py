"""Encoder families beyond those that every suite runs, each with what is special about it."""

import pytest
import torch
from encoder_families import load_encoder, save_encoder
from encoders import SENTENCES
from methods import METHODS
from sentence_transformers import SentenceTransformer
from transformers import AutoModelForMaskedLM

from sbert_plugins import losses
from sbert_plugins.encoder import TokenRoles, View, apply_views
from sbert_plugins.modules import MLMHead, WordEmbeddings

_NEED_MASKS = {"arccse", "paser", "paser words", "slt-fai", "slt-fai consert", "denosent with paraphrases"}
_CHANGE_EMBEDDINGS = {"consert", "self-distillation", "slt-fai consert"}
_NEED_HEAD = {"denosent", "paser", "denosent with paraphrases"}


@pytest.fixture
def build(tmp_path):
    """Build an encoder of a family, in eval mode."""

    def build(family):
        if not (tmp_path / "config.json").exists():
            save_encoder(family, tmp_path)
        return load_encoder(tmp_path).eval()

    return build


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "refused"),
    [
        ("eurobert", set()),
        ("longformer", set()),
        ("funnel", set()),
        ("xlnet", _NEED_HEAD | _CHANGE_EMBEDDINGS | {"consert with token weights"}),
        ("gpt2", _NEED_HEAD | _NEED_MASKS),
    ],
)
def test_each_method_trains_a_family_or_refuses_it(build, family, refused, tmp_path):
    found = set()
    for name, (method, dataset) in METHODS.items():
        model, rows = build(family).train(), dataset(8)
        try:
            loss = method(model)
            sum(loss([model.preprocess(rows[column][:]) for column in rows.column_names]).values()).backward()
        except ValueError as error:
            assert "encoder" in str(error)
            found.add(name)
            continue
        torch.optim.AdamW(loss.parameters(), lr=1e-3).step()
        trained = model
    assert found == refused
    trained.save_pretrained(str(tmp_path / "model"))
    again = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    assert (again.encode(SENTENCES) == trained.encode(SENTENCES)).all()


@pytest.mark.parametrize("family", ["eurobert", "rembert", "longformer", "mobilebert", "nomic_bert"])
def test_logits_are_those_of_the_full_model(build, tmp_path, family):
    model = build(family)
    head, features, candidates = MLMHead(model).eval(), model.preprocess(SENTENCES), torch.tensor([7, 40, 12])
    chosen, inputs = (
        features["attention_mask"].bool(),
        {key: features[key] for key in ("input_ids", "attention_mask")},
    )
    expected = AutoModelForMaskedLM.from_pretrained(tmp_path).eval()(**inputs).logits[chosen]
    tokens = model(features)["token_embeddings"][chosen]
    assert torch.allclose(head(tokens), expected, atol=1e-5)
    assert torch.allclose(head(tokens, candidates), expected[:, candidates], atol=1e-5)
    # Output weights that were pretrained separately are not tied.
    assert (head.table is WordEmbeddings(model).table) == (family not in ("eurobert", "rembert"))


@pytest.mark.parametrize("family", ["longformer", "t5", "gpt2", "big_bird", "eurobert"])
def test_views(build, family):
    model = build(family)
    features = model.preprocess(SENTENCES)
    view = View(["token_shuffling"], TokenRoles(model.tokenizer).content(features))
    written = {**features, "input_ids": features["input_ids"].take_along_dim(view.order, dim=1)}
    plain, expected = (model(dict(each))["sentence_embedding"] for each in (features, written))
    with apply_views(model, view):
        shuffled = model(dict(features))["sentence_embedding"]
    assert torch.allclose(shuffled, expected, atol=1e-5) and not torch.allclose(shuffled, plain, atol=1e-5)


def test_dropout_views_train_an_encoder_that_hooks_cannot_change(build):
    model = build("xlnet").train()
    loss = losses.ConSERTLoss(model, first_view=("dropout",), second_view=("dropout",))
    sum(loss([model.preprocess(SENTENCES)]).values()).backward()
    assert any(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in model.parameters())
