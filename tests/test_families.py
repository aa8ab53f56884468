"""Encoder families beyond those that every suite runs, each with what is special about it."""

import pytest
import torch
from encoders import SENTENCES, build_tokenizers
from methods import METHODS
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM

from sbert_plugins import losses
from sbert_plugins.encoder import TokenRoles, View, apply_views
from sbert_plugins.modules import MLMHead, WordEmbeddings

_SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
_DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
_FUNNEL = {"architectures": ["FunnelModel"], "block_sizes": [1, 1], "d_model": 32, "n_head": 4, "d_head": 8}
# name -> (kind of tokenizer, whether it was pretrained with masks, configuration)
FAMILIES = {
    "eurobert": ("bpe", True, {**_SIZE, "attention_dropout": 0.1}),  # output weights of its own
    "rembert": (
        "unigram",
        True,
        {**_SIZE, **_DROPOUT, "input_embedding_size": 16, "output_embedding_size": 48},
    ),
    "longformer": ("bpe", True, {**_SIZE, "attention_window": 64}),  # adds padding for its attention window
    "mobilebert": ("wordpiece", True, {**_SIZE, "embedding_size": 16, "intra_bottleneck_size": 16}),
    "nomic_bert": ("wordpiece", True, {**_SIZE, **_DROPOUT}),
    "big_bird": ("unigram", True, {**_SIZE, "block_size": 8}),
    "funnel": ("wordpiece", True, {**_FUNNEL, "d_inner": 64}),  # vectors that depend on the padding
    "xlnet": (
        "unigram",
        True,
        {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64},
    ),  # tokens x sentences
    "t5": ("unigram", False, {"d_model": 32, "num_layers": 2, "num_heads": 4, "d_kv": 8, "d_ff": 64}),
    "gpt2": ("bpe", False, {"n_embd": 32, "n_layer": 2, "n_head": 4}),
}
_NEED_MASKS = {"arccse", "paser", "paser words", "slt-fai", "slt-fai consert", "denosent with paraphrases"}
_CHANGE_EMBEDDINGS = {"consert", "self-distillation", "slt-fai consert"}
_NEED_HEAD = {"denosent", "paser", "denosent with paraphrases"}


@pytest.fixture
def build(tmp_path):
    """Build an encoder of a family, in eval mode."""

    def build(family, *, with_head=False):
        kind, has_mask, sizes = FAMILIES[family]
        tokenizer = build_tokenizers(has_mask=has_mask)[kind]
        places = {} if family in ("xlnet", "t5") else {"max_position_embeddings": 160}
        ids = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
        config = AutoConfig.for_model(family, **(places | ids | sizes))
        (AutoModelForMaskedLM if with_head else AutoModel).from_config(config).save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
        transformer = Transformer(str(tmp_path))
        pooling = Pooling(transformer.get_embedding_dimension(), "mean")
        return SentenceTransformer(modules=[transformer, pooling], device="cpu").eval()

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
        vectors = model.encode(SENTENCES)
        model.save_pretrained(str(tmp_path / name))
        assert (SentenceTransformer(str(tmp_path / name), device="cpu").encode(SENTENCES) == vectors).all(), (
            name
        )
    assert found == refused


@pytest.mark.parametrize("family", ["eurobert", "rembert", "longformer", "mobilebert", "nomic_bert"])
def test_logits_are_those_of_the_full_model(build, tmp_path, family):
    model = build(family, with_head=True)
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
