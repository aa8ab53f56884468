import json

import numpy as np
import pytest
import torch
from encoders import ARCHITECTURES, SENTENCES, hostile_texts
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize
from transformers import RobertaTokenizer, XLMRobertaTokenizer

from sbert_plugins import recipes
from sbert_plugins.encoder import TokenRoles, added_around, apply_mask_template, has_mask_template


@pytest.fixture(params=["minilm", *ARCHITECTURES])
def encoder(request, tiny_encoder):
    if request.param == "minilm":  # a real WordPiece vocabulary, and a tokenizer of its own class
        model = recipes.offline_encoder(num_layers=1, max_seq_length=64, device="cpu")
        del model[2]  # Normalize
        return model
    return tiny_encoder(request.param)


def ids_of(model, texts, **keywords):
    """Return all ids of each text, and those of the sentence."""
    features = model.preprocess(texts, **keywords)
    content, attended = TokenRoles(model.tokenizer).content(features), features["attention_mask"].bool()
    masks = attended, content
    return [
        [ids[own].tolist() for ids, own in zip(features["input_ids"], mask, strict=True)] for mask in masks
    ]


@pytest.mark.parametrize("template", ["[X] means [MASK].", 'This sentence : " [X] " means [MASK].'])
def test_ids_are_those_of_the_written_template(encoder, template):
    tokenizer = encoder.tokenizer
    written = [template.replace("[X]", s).replace("[MASK]", tokenizer.mask_token) for s in SENTENCES]
    expected, sentences = tokenizer(written)["input_ids"], tokenizer(SENTENCES, add_special_tokens=False)
    found, content = ids_of(apply_mask_template(encoder, template), SENTENCES)
    assert content == sentences["input_ids"]
    if template.startswith("[X]") or "Ġthe" not in tokenizer.get_vocab():
        assert found == expected
    else:  # in byte-level BPE the sentence begins without its space
        assert [len(ids) for ids in found] == pytest.approx([len(ids) for ids in expected], abs=3)


def test_truncation_cuts_the_sentence(encoder):
    encoder.max_seq_length = 16
    ((alone,), _) = ids_of(encoder, ["word " * 100])
    _, right = added_around(apply_mask_template(encoder).tokenizer)
    ((ids,), _) = ids_of(encoder, ["word " * 100])
    assert ids == alone[:-1] + right and encoder.tokenizer.mask_token_id in right
    assert encoder.max_seq_length == len(ids)


@pytest.mark.parametrize("template", ["[X] means [MASK].", "[X] [MASK]"])
def test_a_prompt_is_not_content(tiny_encoder, template):
    model = apply_mask_template(tiny_encoder(), template)
    assert ids_of(model, SENTENCES, prompt="Today: ")[1] == ids_of(model, SENTENCES)[1]


def test_the_vector_is_that_of_the_one_mask(encoder):
    # Also for texts that contain a mask token, and in every way of encoding.
    encoder[0].unpad_inputs = True
    texts = hostile_texts(apply_mask_template(encoder))
    features = encoder.preprocess(texts)
    rows, places = (features["input_ids"] == encoder.tokenizer.mask_token_id).nonzero(as_tuple=True)
    assert rows.tolist() == list(range(len(texts)))
    with torch.no_grad():
        hidden = encoder.eval()[0](dict(features))["token_embeddings"]
        assert torch.equal(encoder(features)["sentence_embedding"], hidden[rows, places])
    vectors, query, document = (
        encode(texts) for encode in (encoder.encode, encoder.encode_query, encoder.encode_document)
    )
    assert np.array_equal(query, vectors) and np.array_equal(document, vectors)


def test_a_saved_template_is_not_applied_twice(tiny_encoder, tmp_path):
    # Its weights are frozen again, and modules behind the pooling stay.
    model = SentenceTransformer(modules=[*tiny_encoder(), Dense(32, 12), Normalize()], device="cpu")
    apply_mask_template(model).save_pretrained(str(tmp_path))
    again = SentenceTransformer(str(tmp_path), device="cpu")
    assert has_mask_template(again) and again[1].emb_layer.weight.requires_grad
    assert len(apply_mask_template(again)) == 5 and again.max_seq_length == model.max_seq_length
    assert len(repr(again)) < 1_500  # without the vocabulary
    again.train()(again.preprocess(SENTENCES))["sentence_embedding"].square().sum().backward()
    assert again[1].emb_layer.weight.grad is None and again[0].model.get_input_embeddings().weight.grad.any()
    assert np.array_equal(again.encode(SENTENCES), model.encode(SENTENCES))
    with pytest.raises(ValueError, match="another template"):
        apply_mask_template(again, "It says [MASK] : [X].")


@pytest.mark.parametrize("architecture", ["roberta", "xlm-roberta"])
def test_tokenizers_that_build_their_own_template_when_loaded(tiny_encoder, tmp_path, architecture):
    # Published checkpoints name these classes. BertTokenizer is all-MiniLM's above.
    model = tiny_encoder(architecture)
    spec = json.loads(model.tokenizer.backend_tokenizer.to_str())["model"]
    if architecture == "roberta":
        own = RobertaTokenizer(vocab=spec["vocab"], merges=[tuple(pair) for pair in spec["merges"]])
    else:
        own = XLMRobertaTokenizer(vocab=[tuple(piece) for piece in spec["vocab"]])
    own.model_max_length, model[0].processor = 64, own
    expected = own([f"{sentence} means {own.mask_token}." for sentence in SENTENCES])["input_ids"]
    assert ids_of(apply_mask_template(model), SENTENCES)[0] == expected
    model.save_pretrained(str(tmp_path))
    again = SentenceTransformer(str(tmp_path), device="cpu")
    assert np.array_equal(again.encode(hostile_texts(model)), model.encode(hostile_texts(model)))


def test_errors(tiny_encoder):
    model = tiny_encoder()
    for template, word in (
        ("[X] means.", "once each"),
        ("[X] [X] [MASK]", "once each"),
        ("l[X]nd [MASK].", "spaces"),
    ):
        with pytest.raises(ValueError, match=word):
            apply_mask_template(model, template)
