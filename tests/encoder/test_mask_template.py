import copy
import json

import numpy as np
import pytest
import torch
from encoders import ARCHITECTURES, SENTENCES, hostile_texts
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, StaticEmbedding
from transformers import PreTrainedTokenizerFast, RobertaTokenizer, XLMRobertaTokenizer

from sbert_plugins import recipes
from sbert_plugins.encoder import TokenRoles, added_around, apply_mask_template, freeze_mask_template, has_mask_template


@pytest.fixture(params=["minilm", *ARCHITECTURES])
def encoder(request, tiny_encoder):
    if request.param == "minilm":  # a real WordPiece vocabulary, and a tokenizer of its own class
        return request.getfixturevalue("offline")
    return tiny_encoder(request.param)


@pytest.fixture
def offline():
    return recipes.offline_encoder(num_layers=1, max_seq_length=64, device="cpu")


class TestTokens:
    def test_as_in_running_text(self, encoder):
        """The ids of the sentence with the template written around it."""
        tokenizer, mask = encoder.tokenizer, encoder.tokenizer.mask_token
        for template in ("[X] means [MASK].", 'This sentence : " [X] " means [MASK].'):
            expected = tokenizer([template.replace("[X]", s).replace("[MASK]", mask) for s in SENTENCES])["input_ids"]
            features = apply_mask_template(_copy(encoder), template).preprocess(SENTENCES)
            got = [ids[seen.bool()].tolist() for ids, seen in zip(*_columns(features), strict=True)]
            if template.startswith("[X]") or "Ġ" not in "".join(tokenizer.convert_ids_to_tokens(range(300))):
                assert got == expected
            else:  # byte-level BPE: the sentence begins as at the start of a text, not as after a space
                assert [len(ids) for ids in got] == pytest.approx([len(ids) for ids in expected], abs=3)

    def test_truncation_cuts_the_sentence(self, encoder):
        encoder.max_seq_length = 16
        alone = encoder.preprocess(["word " * 100])["input_ids"][0].tolist()
        apply_mask_template(encoder)
        _, right = added_around(encoder.tokenizer)
        ids = encoder.preprocess(["word " * 100])["input_ids"][0].tolist()
        assert encoder.max_seq_length == len(ids) == 16 + len(right) - 1
        assert ids[-len(right) :] == right
        assert ids[: -len(right)] == alone[:-1]  # the room that the sentence had
        assert encoder.tokenizer.mask_token_id in right

    def test_no_more_places_than_the_encoder_has(self, tiny_encoder):
        encoder = tiny_encoder()
        encoder.max_seq_length = 160
        apply_mask_template(encoder)
        assert encoder.max_seq_length == 160
        assert encoder.encode("word " * 300).shape == (32,)

    def test_one_mask_whatever_the_text(self, encoder):
        apply_mask_template(encoder)
        ids = encoder.preprocess(hostile_texts(encoder))["input_ids"]
        assert (ids == encoder.tokenizer.mask_token_id).sum(dim=1).tolist() == [1] * len(ids)

    def test_content_is_the_sentence(self, encoder):
        tokenizer = encoder.tokenizer
        expected = [tokenizer(sentence, add_special_tokens=False)["input_ids"] for sentence in SENTENCES]
        apply_mask_template(encoder, 'Words : " [X] " means [MASK].')
        roles, features = TokenRoles(encoder.tokenizer), encoder.preprocess(SENTENCES)
        content = roles.content(features)
        assert [ids[own].tolist() for ids, own in zip(features["input_ids"], content, strict=True)] == expected

    def test_a_prompt_is_not_content(self, tiny_encoder):
        encoder = tiny_encoder()
        expected = encoder.tokenizer("A dog runs.", add_special_tokens=False)["input_ids"]
        features = apply_mask_template(encoder).preprocess(["A dog runs."], prompt="Today: ")
        content = TokenRoles(encoder.tokenizer).content(features)
        assert features["input_ids"][content].tolist() == expected


class TestVectors:
    def test_the_vector_is_the_masks(self, encoder):
        apply_mask_template(encoder)
        features = encoder.preprocess(hostile_texts(encoder))
        with torch.no_grad():
            hidden = encoder.eval()[0](dict(features))["token_embeddings"]
            vectors = encoder(dict(features))["sentence_embedding"]
        rows, places = (features["input_ids"] == encoder.tokenizer.mask_token_id).nonzero(as_tuple=True)
        assert rows.tolist() == list(range(len(vectors)))
        assert torch.equal(vectors, hidden[rows, places])

    def test_a_prompt_before_a_template_of_special_tokens_alone(self, tiny_encoder):
        encoder = apply_mask_template(tiny_encoder(), template="[X] [MASK]")
        features = encoder.preprocess(["A dog runs."], prompt="Today: ")
        content = TokenRoles(encoder.tokenizer).content(features)
        plain = encoder.preprocess(["A dog runs."])
        own = TokenRoles(encoder.tokenizer).content(plain)
        assert features["input_ids"][content].tolist() == plain["input_ids"][own].tolist()

    def test_encode_query_and_document_and_a_prompt(self, encoder):
        apply_mask_template(encoder)
        vectors = encoder.encode(SENTENCES)
        assert np.array_equal(encoder.encode_query(SENTENCES), vectors)
        assert np.array_equal(encoder.encode_document(SENTENCES), vectors)
        assert not np.array_equal(encoder.encode(SENTENCES, prompt="Today "), vectors)

    def test_other_parts_stay(self, tiny_encoder):
        encoder = SentenceTransformer(modules=[*tiny_encoder(), Dense(32, 12), Normalize()], device="cpu")
        apply_mask_template(encoder)
        assert [type(part).__name__ for part in encoder] == ["Transformer", "WordWeights", "Pooling", "Dense", "Normalize"]
        assert encoder.encode("A dog.").shape == (12,)

    def test_the_weights_that_pick_the_mask_are_not_trained(self, encoder):
        apply_mask_template(encoder).train()
        encoder(encoder.preprocess(SENTENCES))["sentence_embedding"].square().sum().backward()
        assert encoder[1].emb_layer.weight.grad is None
        assert encoder[0].model.get_input_embeddings().weight.grad.abs().sum() > 0


class TestSaved:
    """That plain sentence-transformers gives the same vectors: ``tests/test_saved_models.py``."""

    def test_loaded_to_be_trained_further(self, tiny_encoder, tmp_path):
        """The same template is not put on twice; the weights are frozen and the card short again."""
        apply_mask_template(tiny_encoder()).save_pretrained(str(tmp_path / "model"))
        model = SentenceTransformer(str(tmp_path / "model"), device="cpu")
        vectors, length = model.encode(SENTENCES), model.max_seq_length
        assert has_mask_template(model)
        assert model[1].emb_layer.weight.requires_grad
        assert apply_mask_template(model) is model
        assert (len(model), model.max_seq_length) == (3, length)
        assert not model[1].emb_layer.weight.requires_grad
        assert len(repr(model)) < 1_000
        assert np.array_equal(model.encode(SENTENCES), vectors)
        with pytest.raises(ValueError, match="has another template already.*means.*, got .It says"):
            apply_mask_template(model, "It says [MASK] : [X].")

    def test_a_model_without_a_template_is_left_alone(self, tiny_encoder):
        model = tiny_encoder()
        freeze_mask_template(model)
        assert not has_mask_template(model)
        assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("architecture", ["roberta", "xlm-roberta"])
def test_tokenizers_that_build_their_own_template_when_loaded(tiny_encoder, tmp_path, architecture):
    """The classes that published checkpoints name; BertTokenizer is all-MiniLM's above."""
    model = tiny_encoder(architecture)
    spec = json.loads(model.tokenizer.backend_tokenizer.to_str())["model"]
    if architecture == "roberta":
        own = RobertaTokenizer(vocab=spec["vocab"], merges=[tuple(pair) for pair in spec["merges"]])
    else:
        own = XLMRobertaTokenizer(vocab=[tuple(piece) for piece in spec["vocab"]])
    own.model_max_length = 64
    model[0].processor = own
    expected = own([f"{sentence} means {own.mask_token}." for sentence in SENTENCES])["input_ids"]
    apply_mask_template(model)
    features = model.preprocess(SENTENCES)
    assert [ids[seen.bool()].tolist() for ids, seen in zip(*_columns(features), strict=True)] == expected
    model.save_pretrained(str(tmp_path))
    again = SentenceTransformer(str(tmp_path), device="cpu")
    assert np.array_equal(again.encode(hostile_texts(model)), model.encode(hostile_texts(model)))
    assert (again.preprocess(hostile_texts(model))["input_ids"] == own.mask_token_id).sum(dim=1).max() == 1


class TestBadInput:
    @pytest.mark.parametrize("template", ["[MASK].", "[X] means.", "[X] [X] [MASK]", "[X] [MASK] [MASK]", ""])
    def test_templates(self, tiny_encoder, template):
        with pytest.raises(ValueError, match=r"template must hold \[X\] .* and \[MASK\] .*, once each, got"):
            apply_mask_template(tiny_encoder(), template)

    def test_words_that_run_into_the_sentence(self, tiny_encoder):
        with pytest.raises(ValueError, match=r"run into the sentence, got 'l\[X\]nd .*': put a space beside \[X\]"):
            apply_mask_template(tiny_encoder(), "l[X]nd [MASK].")

    def test_models(self, tiny_encoder, tokenizers):
        static = SentenceTransformer(modules=[StaticEmbedding(tokenizers["bpe"].backend_tokenizer, embedding_dim=8)])
        with pytest.raises(ValueError, match="must begin with a Transformer that has a fast tokenizer, got StaticEmbedding"):
            apply_mask_template(static)
        with pytest.raises(ValueError, match=r"must be a Transformer and a Pooling, got \['Transformer'\]"):
            apply_mask_template(SentenceTransformer(modules=[tiny_encoder()[0]]))
        joined = SentenceTransformer(modules=[tiny_encoder()[0], Pooling(32, ["cls", "mean"])])
        with pytest.raises(ValueError, match="joins several vectors"):
            apply_mask_template(joined)

    def test_a_tokenizer_without_a_mask(self, tiny_encoder):
        encoder = tiny_encoder()
        names = {key: value for key, value in encoder.tokenizer.special_tokens_map.items() if key != "mask_token"}
        encoder[0].processor = PreTrainedTokenizerFast(tokenizer_object=encoder.tokenizer.backend_tokenizer, **names)
        with pytest.raises(ValueError, match="needs a tokenizer with a mask token"):
            apply_mask_template(encoder)

    def test_a_refused_model_is_as_it_was(self, tiny_encoder):
        encoder = tiny_encoder()
        before = encoder.encode(SENTENCES)
        with pytest.raises(ValueError, match="once each"):
            apply_mask_template(encoder, "no marks")
        assert np.array_equal(encoder.encode(SENTENCES), before)


def _columns(features):
    return features["input_ids"], features["attention_mask"]


def _copy(model):
    return copy.deepcopy(model)


def test_robertas_two_positions_are_left_alone(tiny_encoder):
    """Its table has two more rows than tokens it takes."""
    model = tiny_encoder("roberta")
    model.max_seq_length = 155
    apply_mask_template(model)
    assert model.encode("a dog runs " * 200).shape == (model.get_embedding_dimension(),)


def test_batches_are_padded(tiny_encoder):
    model = tiny_encoder()
    model[0].unpad_inputs = True
    assert not apply_mask_template(model)[0].unpad_inputs
