import copy
import os
import subprocess
import sys

import pytest
import torch
from encoders import ARCHITECTURES, SENTENCES
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding, Transformer
from transformers import AutoModelForMaskedLM, GPT2Config

from sbert_plugins.modules import MLMHead
from sbert_plugins.modules.mlm_head import NoPretrainedHead


@pytest.fixture
def with_head(tiny_encoder, tmp_path):
    """A checkpoint with a head, and the encoder that sentence-transformers loads from it."""

    def build(architecture):
        plain = tiny_encoder(architecture)
        torch.manual_seed(3)
        full = AutoModelForMaskedLM.from_config(plain.transformers_model.config).eval()
        for parameter in full.parameters():
            torch.nn.init.normal_(parameter, std=0.1)
        full.save_pretrained(tmp_path)
        plain.tokenizer.save_pretrained(tmp_path)
        transformer = Transformer(str(tmp_path))
        pooling = Pooling(transformer.get_embedding_dimension(), "cls")
        return full, SentenceTransformer(modules=[transformer, pooling], device="cpu").eval()

    return build


class TestFollowing:
    @pytest.mark.parametrize("how", ["set_input_embeddings", "another encoder", "assign"])
    def test_a_tied_head_scores_by_the_table_that_the_encoder_has_now(self, tiny_encoder, how):
        model = tiny_encoder()
        head = MLMHead(model, checkpoint="fresh")
        transformer = model.transformers_model
        if how == "another encoder":
            model[0].model = copy.deepcopy(transformer)
        elif how == "assign":
            model.load_state_dict(copy.deepcopy(model.state_dict()), assign=True)
        else:
            transformer.set_input_embeddings(copy.deepcopy(transformer.get_input_embeddings()))
        table = model.transformers_model.get_input_embeddings().weight
        assert head.table is not table
        head.follow(model)
        assert head.table is table

    def test_an_untied_one_keeps_its_own(self, tiny_encoder):
        model = tiny_encoder()
        head = MLMHead(model, checkpoint="fresh")
        head.untie()
        table = head.table
        head.follow(model)
        assert head.table is table

    def test_half_precision_is_followed_in_an_evaluation_and_trained_later(self, tiny_encoder):
        model = tiny_encoder()
        head = MLMHead(model, checkpoint="fresh")
        model.bfloat16()
        with torch.inference_mode():
            head.follow(model)
        head(torch.randn(2, model.transformers_model.config.hidden_size)).sum().backward()
        assert all(parameter.grad is not None for parameter in head.parameters())


@pytest.mark.parametrize("architecture", ARCHITECTURES)
class TestEveryArchitecture:
    def test_logits_are_those_of_the_whole_model(self, with_head, architecture):
        full, model = with_head(architecture)
        head = MLMHead(model).eval()
        assert head.is_pretrained
        features = model.preprocess(SENTENCES)
        inputs = {key: features[key] for key in ("input_ids", "attention_mask")}
        expected = full(**inputs).logits
        tokens = model(dict(features))["token_embeddings"]
        chosen = features["attention_mask"].bool()
        assert torch.equal(head(tokens[chosen]), expected[chosen]) or torch.allclose(
            head(tokens[chosen]), expected[chosen], atol=1e-5
        )

    def test_the_output_weights_are_the_trained_word_embeddings(self, tiny_encoder, architecture):
        model = tiny_encoder(architecture)
        head = MLMHead(model, checkpoint="fresh")
        embeddings = model.transformers_model.get_input_embeddings().weight
        assert head.full.get_output_embeddings().weight is embeddings
        own = {id(parameter) for parameter in head.parameters()} - {id(parameter) for parameter in model.parameters()}
        assert len(own) == len(list(head.parameters())) - 1  # nothing else of the encoder is in the head
        width = model.transformers_model.config.hidden_size
        assert head(torch.randn(5, width)).shape == (5, len(model.tokenizer))
        assert head(torch.randn(0, width)).shape == (0, len(model.tokenizer))


class TestFreshHead:
    def test_the_padding_column_learns_nothing_and_all_else_what_it_would(self, tiny_encoder):
        """As if that column were detached, whoever else reads the gradient of the logits."""
        model = tiny_encoder()
        pad = model.tokenizer.pad_token_id
        with torch.no_grad():
            model.transformers_model.get_input_embeddings().weight[pad] = 0
        head = MLMHead(model, checkpoint="fresh")
        tokens = torch.randn(5, model.transformers_model.config.hidden_size)
        is_pad = torch.arange(len(head.table)) == pad
        factors, other = torch.randn(5, len(head.table)), torch.zeros(5, len(head.table), requires_grad=True)
        ((head(tokens) + other) * factors).sum().backward()
        found = [parameter.grad.clone() for parameter in head.parameters()]
        head.zero_grad()
        (head(tokens) * factors.masked_fill(is_pad, 0.0)).sum().backward()
        for gradient, parameter in zip(found, head.parameters(), strict=True):
            torch.testing.assert_close(gradient, parameter.grad)
        assert not head.table.grad[pad].any()
        assert torch.equal(other.grad, factors)

    def test_a_checkpoint_without_a_head_warns(self, tiny_encoder, caplog):
        head = MLMHead(tiny_encoder())
        assert not head.is_pretrained
        assert "starts from random weights, tied to the word embeddings" in caplog.text
        assert "holds none" in caplog.text

    def test_where_nobody_wants_a_new_one(self, tiny_encoder, caplog):
        with pytest.raises(NoPretrainedHead, match="holds none"):
            MLMHead(tiny_encoder(), or_new=False)
        assert caplog.text == ""

    def test_asked_for(self, tiny_encoder, caplog):
        assert not MLMHead(tiny_encoder(), checkpoint="fresh").is_pretrained
        assert caplog.text == ""

    def test_a_checkpoint_out_of_reach_warns(self, tiny_encoder, caplog):
        model = tiny_encoder()
        model.transformers_model.config._name_or_path = "nobody/nothing"
        assert not MLMHead(model).is_pretrained
        assert "nobody/nothing could not be read" in caplog.text

    def test_a_named_one_out_of_reach_is_an_error(self, tiny_encoder):
        with pytest.raises(OSError, match="huggingface.co"):
            MLMHead(tiny_encoder(), checkpoint="nobody/nothing")

    def test_another_vocabulary_is_not_taken(self, tiny_encoder, with_head, caplog):
        with_head("bert")
        model = tiny_encoder("bert")
        model.transformers_model.resize_token_embeddings(1700, mean_resizing=False)
        assert not MLMHead(model).is_pretrained

    def test_added_tokens_keep_the_head(self, with_head, caplog):
        full, model = with_head("bert")
        before = full(input_ids=(ids := torch.tensor([[5, 6, 7]]))).logits
        words = len(model.transformers_model.get_input_embeddings().weight)
        model.transformers_model.resize_token_embeddings(words + 3, mean_resizing=False)
        head = MLMHead(model, or_new=False)
        assert head.is_pretrained
        assert head.table is model.transformers_model.get_input_embeddings().weight
        logits = head(model.transformers_model(input_ids=ids).last_hidden_state[0])
        assert logits.shape[1] == words + 3
        assert torch.allclose(logits[:, :words], before[0], atol=1e-5)
        assert caplog.text == ""

    def test_a_named_head_that_does_not_fit_is_an_error(self, with_head, tmp_path):
        _, model = with_head("bert")
        model.transformers_model.resize_token_embeddings(1700, mean_resizing=False)
        with pytest.raises(ValueError, match="a checkpoint with the encoder's word embeddings, but that of .*1700"):
            MLMHead(model, checkpoint=str(tmp_path))


class TestOtherModels:
    def test_a_family_without_masks(self, tiny_encoder):
        model = tiny_encoder()
        model.transformers_model.config = GPT2Config()
        with pytest.raises(ValueError, match="no masked-language-model head for BertModel"):
            MLMHead(model, checkpoint="fresh")

    def test_static_embeddings(self, tokenizers):
        model = SentenceTransformer(modules=[StaticEmbedding(tokenizers["bpe"].backend_tokenizer, embedding_dim=8)])
        with pytest.raises(ValueError, match="scored with a transformers encoder"):
            MLMHead(model)


def test_an_encoder_in_bfloat16(tiny_encoder):
    model = tiny_encoder().bfloat16()
    assert MLMHead(model, checkpoint="fresh")(torch.randn(3, 32)).dtype == torch.bfloat16


_OF_REVISIONS = """
import sys
from sentence_transformers import SentenceTransformer
from sbert_plugins.modules import MLMHead
for revision in (None, "main", "v2", "b" * 40):
    model = SentenceTransformer("an/encoder", revision=revision)
    heads = [MLMHead(model, checkpoint=checkpoint) for checkpoint in (None, "an/encoder")]
    print(revision, *(head.full.cls.predictions.bias[0].item() for head in heads), file=sys.stderr)
"""


@pytest.mark.parametrize("trained", [True, False])
def test_a_head_that_came_with_other_words_is_told_of(with_head, caplog, trained):
    """The one sign that is left of another revision, where nobody notes which was loaded."""
    _, encoder = with_head("bert")
    if trained:
        with torch.no_grad():
            encoder.transformers_model.get_input_embeddings().weight[7] += 1
    assert MLMHead(encoder).is_pretrained
    assert ("or is of another revision" in caplog.text) is trained
    caplog.clear()
    MLMHead(encoder, checkpoint=encoder.transformers_model.config.name_or_path)  # as it was asked for
    assert caplog.text == ""


@pytest.mark.parametrize("cache", ["HF_HOME", "SENTENCE_TRANSFORMERS_HOME"])
def test_the_head_is_of_the_encoders_own_revision(tiny_encoder, tmp_path, cache):
    """Of a repository in the host's cache; a checkpoint that is named is read as it is today."""
    plain, repository = tiny_encoder("bert"), tmp_path / "hub" / "models--an--encoder"
    for commit, name, bias in (("a" * 40, "main", 1.0), ("b" * 40, "v2", 2.0)):
        full = AutoModelForMaskedLM.from_config(plain.transformers_model.config)
        torch.nn.init.constant_(full.cls.predictions.bias, bias)
        full.save_pretrained(repository / "snapshots" / commit)
        plain.tokenizer.save_pretrained(repository / "snapshots" / commit)
        (repository / "refs").mkdir(exist_ok=True)
        (repository / "refs" / name).write_text(commit)
    environment = {**os.environ, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    if cache != "HF_HOME":
        environment |= {"HF_HOME": str(tmp_path / "empty"), cache: str(tmp_path / "hub")}
    command = [sys.executable, "-c", _OF_REVISIONS]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 0, result.stderr
    for said in ("None 1.0 1.0", "main 1.0 1.0", "v2 2.0 1.0", f"{'b' * 40} 2.0 1.0"):
        assert said in result.stderr
