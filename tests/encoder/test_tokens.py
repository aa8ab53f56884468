import json

import pytest
import torch
from encoders import project_text
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from sbert_plugins.encoder import TokenRoles, apply_mask_template, mlm_mask, nested_span_masks, random_subset

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
    """WordPiece is nearly right: it drops the white space of "800,000" and "U.S."."""
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
