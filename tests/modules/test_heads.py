import copy
import os
import subprocess
import sys
from itertools import product

import pytest
import torch
from encoders import ARCHITECTURES, SENTENCES
from sentence_transformers import SentenceTransformer, util
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import AutoModelForMaskedLM, GPT2Config

from sbert_plugins.modules import (
    CompletenessDiscriminator,
    MLMHead,
    NoPretrainedHeadError,
    ProjectionHead,
    TokenFrequencyDiscriminator,
    WordEmbeddings,
)


def test_the_projection_head_starts_with_nearly_the_cosines_of_the_vectors():
    head, groups = ProjectionHead(384), torch.randn(8, 1, 384)
    vectors = (groups + torch.randn(8, 8, 384) * torch.linspace(0.2, 2, 8)[:, None]).flatten(0, 1) / 4
    projected = head(vectors).detach()
    assert torch.equal(projected, head.linear(vectors).tanh())
    before, after = (util.cos_sim(x, x) for x in (vectors, projected))
    assert (after - before).abs().mean() < 384**-0.5
    assert head(vectors.bfloat16()).dtype == torch.float32


def test_diagnostics_of_discriminators_by_hand(monkeypatch):
    # One of three tokens is rare, and one is classified wrongly. One of two originals is, too.
    for kind in (TokenFrequencyDiscriminator, CompletenessDiscriminator):
        monkeypatch.setattr(kind, "forward", lambda self, embeddings: embeddings)
    counted, calls = torch.tensor([[True, True, True, False]]), torch.eye(2)[torch.tensor([[1, 1, 0, 1]])]
    _, found = TokenFrequencyDiscriminator(2).loss(calls, torch.tensor([[1, 0, 0, 1]]), counted)
    assert [value.item() for value in found.values()] == pytest.approx([2 / 3, 1 / 3])
    originals, copies = (torch.eye(2)[torch.tensor(calls)] for calls in ([0, 1, 0], [1, 1, 1]))
    _, found = CompletenessDiscriminator(2).loss(originals, copies, torch.tensor([True, True, False]))
    assert [value.item() for value in found.values()] == pytest.approx([3 / 4, 2 / 3])


IDS = torch.tensor([5, 7, 30])


def table_of(model):
    return model.transformers_model.get_input_embeddings().weight


def fresh(model):
    return MLMHead(model, checkpoint="fresh")


@pytest.fixture
def with_head(tiny_encoder, tmp_path):
    """Build a checkpoint with a head, and load the encoder from it as sentence-transformers does."""

    def build(architecture="bert"):
        plain = tiny_encoder(architecture)
        full = AutoModelForMaskedLM.from_config(plain.transformers_model.config).eval()
        for parameter in full.parameters():
            torch.nn.init.normal_(parameter, std=0.1)
        full.save_pretrained(tmp_path)
        plain.tokenizer.save_pretrained(tmp_path)
        transformer = Transformer(str(tmp_path))
        pooling = Pooling(transformer.get_embedding_dimension(), "cls")
        return full, SentenceTransformer(modules=[transformer, pooling], device="cpu").eval()

    return build


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_logits_are_those_of_the_full_model(with_head, architecture):
    full, model = with_head(architecture)
    head, features = MLMHead(model, allow_new=False).eval(), model.preprocess(SENTENCES)
    inputs = {key: features[key] for key in ("input_ids", "attention_mask")}
    expected, tokens = full(**inputs).logits, model(features)["token_embeddings"]
    assert torch.allclose(head(tokens.flatten(0, 1)), expected.flatten(0, 1), atol=1e-5)
    assert torch.allclose(head(tokens[:, 0], IDS), expected[:, 0, IDS], atol=1e-5)
    shared = {id(parameter) for parameter in head.parameters()} & {
        id(parameter) for parameter in model.parameters()
    }
    assert shared == {id(head.table)} == {id(table_of(model))}  # nothing else of the encoder is in the head


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_word_embeddings_score_by_products(tiny_encoder, architecture):
    words = WordEmbeddings(tiny_encoder(architecture))
    vectors = torch.randn(5, words.width)
    torch.testing.assert_close(words(vectors), vectors @ words.table.T)
    torch.testing.assert_close(words(vectors, IDS), vectors @ words.table[IDS].T)


@pytest.mark.parametrize("scorer", [fresh, WordEmbeddings])
class TestTable:
    def test_it_learns(self, tiny_encoder, scorer):
        # All words, or the candidates. An embedding of padding that is 0 stays 0.
        model = tiny_encoder()
        torch.nn.init.zeros_(table_of(model).data[model.tokenizer.pad_token_id])
        head, trained = scorer(model), []
        for candidates in (IDS, None):
            head(torch.randn(4, 32), candidates).logsumexp(dim=1).sum().backward()
            trained.append(table_of(model).grad.any(dim=1))
        assert trained[0].nonzero().flatten().tolist() == IDS.tolist()
        assert (~trained[1]).nonzero().flatten().tolist() == [model.tokenizer.pad_token_id]

    def test_it_follows_the_encoder(self, tiny_encoder, scorer):
        # To new embeddings and another dtype. Weights that change in an evaluation can be trained later.
        model = tiny_encoder()
        head, transformer = scorer(model), model.transformers_model
        transformer.set_input_embeddings(copy.deepcopy(transformer.get_input_embeddings()))
        model.bfloat16()
        with torch.inference_mode():
            head.follow(model)
        assert head.table is table_of(model)
        head(torch.randn(2, 32)).sum().backward()
        assert all(each.grad is not None and each.dtype == torch.bfloat16 for each in head.parameters())


def test_a_new_head_is_announced(tiny_encoder, caplog):
    model = tiny_encoder()
    fresh(model)
    with pytest.raises(NoPretrainedHeadError, match="no such head"):
        MLMHead(model, allow_new=False)
    assert caplog.text == ""
    MLMHead(model)
    model.transformers_model.config._name_or_path = "nobody/nothing"
    MLMHead(model)
    assert caplog.text.count("random weights") == 2
    with pytest.raises(OSError, match="huggingface.co"):
        MLMHead(model, checkpoint="nobody/nothing")
    model.transformers_model.config = GPT2Config()
    with pytest.raises(ValueError, match="pretrained with masks"):
        fresh(model)


def test_added_tokens_keep_the_head(with_head, tmp_path):
    full, model = with_head()
    before, size = full(input_ids=IDS[None]).logits[0], len(table_of(model))
    model.transformers_model.resize_token_embeddings(size + 3, mean_resizing=False)
    tokens = model.transformers_model(input_ids=IDS[None]).last_hidden_state[0]
    logits = MLMHead(model, allow_new=False)(tokens)
    assert logits.shape[1] == size + 3 and torch.allclose(logits[:, :size], before, atol=1e-5)
    with pytest.raises(ValueError, match=f"{size + 3}"):
        MLMHead(model, checkpoint=str(tmp_path))


# A checkpoint that is named has the newest revision.
_REVISIONS = """
import os, sys
from sentence_transformers import SentenceTransformer
from sbert_plugins.modules import MLMHead
for home in sys.argv[1:]:
    os.environ |= {"SENTENCE_TRANSFORMERS_HOME": home} if home else {}
    for revision in (None, "v2", "b" * 40):
        model = SentenceTransformer("an/encoder", revision=revision)
        for checkpoint in (None, "an/encoder"):
            print(MLMHead(model, checkpoint=checkpoint).full.cls.predictions.bias[0].item())
"""


@pytest.mark.slow
def test_the_head_has_the_encoders_revision(tiny_encoder, tmp_path):
    # In the Hub's cache, and in another one that sentence-transformers is given.
    plain, more = tiny_encoder(), {"hub": 0.0, "other": 2.0}
    for cache, (commit, name, bias) in product(more, (("a" * 40, "main", 1.0), ("b" * 40, "v2", 2.0))):
        repository = tmp_path / cache / "models--an--encoder"
        full = AutoModelForMaskedLM.from_config(plain.transformers_model.config)
        torch.nn.init.constant_(full.cls.predictions.bias, bias + more[cache])
        full.save_pretrained(repository / "snapshots" / commit)
        plain.tokenizer.save_pretrained(repository / "snapshots" / commit)
        (repository / "refs").mkdir(exist_ok=True)
        (repository / "refs" / name).write_text(commit)
    environment = os.environ | {"HF_HOME": str(tmp_path / "empty"), "HF_HUB_CACHE": str(tmp_path / "hub")}
    command = [sys.executable, "-c", _REVISIONS, "", str(tmp_path / "other")]
    result = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    first = [1.0, 1.0, 2.0, 1.0, 2.0, 1.0]
    assert [float(each) for each in result.stdout.split()] == [*first, *(bias + 2 for bias in first)]
