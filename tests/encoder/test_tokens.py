import json

import numpy as np
import pytest
import torch
from encoders import ARCHITECTURES, SENTENCES, hostile_texts, project_text
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast, RobertaTokenizer, XLMRobertaTokenizer

from sbert_plugins import recipes
from sbert_plugins.encoder import (
    TokenRoles,
    added_around,
    apply_mask_template,
    has_mask_template,
    mlm_mask,
    nested_span_masks,
    random_subset,
)

KINDS = ("wordpiece", "bpe", "unigram")
PROMPT = "query:"


def words_of(sentence):
    """Words as a reader counts them: between white space, with a letter or digit."""
    return sum(any(character.isalnum() for character in chunk) for chunk in sentence.split())


def count(tokenizer, sentences):
    batch = tokenizer(sentences, padding=True, return_tensors="pt")
    roles = TokenRoles(tokenizer)
    return roles.count_words(batch["input_ids"], roles.content(batch)).tolist()


@pytest.mark.parametrize(("kind", "least"), [("wordpiece", 0.95), ("bpe", 0.99), ("unigram", 0.99)])
def test_words_as_a_reader_counts(tokenizers, kind, least):
    # WordPiece is nearly right: it drops the white space of "800,000" and "U.S.".
    sentences = [
        "Two dogs run.",
        "Hello",
        "The state-of-the-art method isn't theirs, it's Jaber's!",
        "Unbelievably unpronounceable Llanfairpwllgwyngyll is in Wales",
        'She said: "Come in" (and he came in).',
        "... , ; !",
    ]
    assert count(tokenizers[kind], sentences) == [words_of(sentence) for sentence in sentences]
    counted = zip(count(tokenizers[kind], project_text()), project_text(), strict=True)
    assert sum(got == words_of(sentence) for got, sentence in counted) / len(project_text()) >= least


@pytest.mark.parametrize("form", [int, lambda n: torch.tensor([n]), lambda n: torch.tensor([n, n])])
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("kind", KINDS)
def test_content(tokenizers, kind, side, form):
    # Special tokens, padding and a prompt are left out.
    tokenizer, sentences = tokenizers[kind], ["Two dogs run.", "A much longer sentence is here today."]
    texts = [f"{PROMPT} {sentence}" for sentence in sentences]
    batch = tokenizer(texts, padding=True, padding_side=side, return_tensors="pt")
    prompt_length = form(len(tokenizer(PROMPT)["input_ids"]) - 1)  # as sentence-transformers counts
    content = TokenRoles(tokenizer).content({**batch, "prompt_length": prompt_length})
    rows = zip(batch["input_ids"], content, strict=True)
    assert [tokenizer.decode(row[kept]).strip() for row, kept in rows] == sentences


def test_an_id_that_the_vocabulary_leaves_out_is_special(tokenizers):
    state = json.loads(tokenizers["wordpiece"].backend_tokenizer.to_str())
    vocabulary = state["model"]["vocab"]
    vocabulary[next(token for token, place in vocabulary.items() if place == 700)] = 1500
    backend, names = Tokenizer.from_str(json.dumps(state)), tokenizers["wordpiece"].special_tokens_map
    roles = TokenRoles(PreTrainedTokenizerFast(tokenizer_object=backend, **names))
    assert len(roles.special) == 1501
    assert roles.special[700] and not roles.wordy[700] and not roles.special[1500]
    assert roles.state_dict() == {}  # the tables are not saved


def test_the_mask(tiny_encoder):
    model = tiny_encoder()
    roles, mask_id = TokenRoles(model.tokenizer), model.tokenizer.mask_token_id
    assert roles.mask_id("SomeLoss") == mask_id
    roles = TokenRoles(apply_mask_template(model).tokenizer)
    with pytest.raises(ValueError, match="template"):
        roles.mask_id("SomeLoss")


def content_of(*lengths, width=64):
    """Rows with so many content tokens from place 1 on."""
    place = torch.arange(width)
    return torch.stack([(place >= 1) & (place < 1 + length) for length in lengths])


class TestNestedSpanMasks:
    @pytest.mark.parametrize("num_segments", [1, 2, 3])
    def test_shares_nesting_and_spans(self, num_segments):
        lengths = [0, 1, *range(25, 62)]
        near, far = nested_span_masks(
            content_of(*lengths), near_ratio=0.2, far_ratio=0.4, num_segments=num_segments
        )
        assert not (near & ~far).any() and not (far & ~content_of(*lengths)).any()
        assert near.sum(dim=1).tolist() == [round(0.2 * n) for n in lengths]
        assert far.sum(dim=1).tolist() == [round(0.4 * n) for n in lengths]
        assert (far[:, 1:] & ~far[:, :-1]).sum(dim=1).max() <= num_segments

    @pytest.mark.parametrize(("length", "near_ratio", "counts"), [(3, 0.2, (0, 1)), (21, 0.39, (7, 8))])
    def test_a_narrow_span_is_cut_to_its_wide_one(self, length, near_ratio, counts):
        content = content_of(*[length] * 100)
        near, far = nested_span_masks(content, near_ratio=near_ratio, far_ratio=0.4, num_segments=3)
        assert not (near & ~far).any()
        assert {*zip(near.sum(dim=1).tolist(), far.sum(dim=1).tolist(), strict=True)} == {counts}


@pytest.mark.parametrize("probability", [0.15, 0.4])
def test_mlm_mask(probability):
    ids, content, others = torch.randint(10, 90, (1600, 64)), content_of(*[40] * 1600), torch.arange(100, 200)
    corrupted, chosen = mlm_mask(ids, content, mask_token_id=5, ordinary_ids=others, probability=probability)
    assert not (chosen & ~content).any() and torch.equal(corrupted[~chosen], ids[~chosen])
    assert chosen[content].float().mean().item() == pytest.approx(probability, abs=0.01)
    found = corrupted[chosen]
    shares = [each.float().mean().item() for each in (found == 5, found >= 100, found == ids[chosen])]
    assert shares == pytest.approx([0.8, 0.1, 0.1], abs=0.02)
    assert {*found[found >= 100].tolist()} == {*others.tolist()}


@pytest.mark.parametrize(
    ("ratio", "at_least", "counts"), [(0.2, 0, [2, 0, 0]), (0.2, 1, [2, 1, 0]), (1.0, 0, [10, 1, 0])]
)
def test_random_subset(ratio, at_least, counts):
    candidates = torch.zeros(3, 12, dtype=torch.bool)
    candidates[0, :10] = candidates[1, 4] = True
    draws = torch.stack([random_subset(candidates, ratio, at_least=at_least) for _ in range(1000)])
    assert not (draws & ~candidates).any() and (draws.sum(dim=2) == torch.tensor(counts)).all()
    assert draws[:, 0, :10].float().mean(dim=0).tolist() == pytest.approx([ratio] * 10, abs=0.06)


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


def test_templates_that_cannot_be_applied(tiny_encoder):
    model = tiny_encoder()
    for template, word in (
        ("[X] means.", "once each"),
        ("[X] [X] [MASK]", "once each"),
        ("l[X]nd [MASK].", "spaces"),
    ):
        with pytest.raises(ValueError, match=word):
            apply_mask_template(model, template)
