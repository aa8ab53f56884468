import copy

import pytest
import torch

from sbert_plugins import recipes
from sbert_plugins.encoder import TokenRoles, mlm_mask, nested_span_masks, random_subset

SPANS = {"near_ratio": 0.2, "far_ratio": 0.4, "num_segments": 2}
KINDS = ("wordpiece", "bpe", "unigram")


def words_of(sentence):
    """Words as a reader counts them: between white space, with a letter or digit."""
    return sum(any(character.isalnum() for character in chunk) for chunk in sentence.split())


def count(tokenizer, sentences, **changes):
    batch = tokenizer(sentences, padding=True, return_tensors="pt")
    roles = TokenRoles(tokenizer)
    return roles.count_words(batch["input_ids"], roles.content({**batch, **changes})).tolist()


class TestCountWords:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize(
        "sentence",
        [
            "Two dogs run.",
            "Hello",
            "The state-of-the-art method isn't theirs, it's Jaber's!",
            "Unbelievably unpronounceable Llanfairpwllgwyngyll is in Wales",
            'She said: "Come in" (and he came in).',
            "... , ; !",
        ],
    )
    def test_as_a_reader_counts(self, tokenizers, kind, sentence):
        assert count(tokenizers[kind], [sentence]) == [words_of(sentence)]

    @pytest.mark.parametrize("kind", KINDS)
    def test_padding_and_special_tokens_are_no_words(self, tokenizers, kind):
        sentences = ["Two dogs run.", "A much longer sentence makes padding for the other one necessary."]
        assert count(tokenizers[kind], sentences) == [3, 11]

    @pytest.mark.parametrize(("kind", "least"), [("wordpiece", 0.95), ("bpe", 0.99), ("unigram", 0.99)])
    def test_on_the_projects_sentences(self, tokenizers, kind, least):
        """WordPiece has no white space to look at ("800,000", "U.S."), the other two have."""
        sentences = recipes.offline_sentences_path().read_text(encoding="utf-8").splitlines()
        counted = count(tokenizers[kind], sentences)
        exact = sum(got == words_of(sentence) for got, sentence in zip(counted, sentences, strict=True))
        assert exact / len(sentences) >= least

    def test_real_wordpiece_agrees_on_which_sentences_are_long(self, minilm, data_dir):
        from sbert_plugins.data import read_sentences

        sentences = read_sentences(data_dir / "corpus" / "wiki_sentences_1m.parquet", limit=2000)["anchor"][:]
        long = [words >= 25 for words in count(minilm.tokenizer, sentences)]
        agree = sum(got == (words_of(sentence) >= 25) for got, sentence in zip(long, sentences, strict=True))
        assert agree / len(sentences) > 0.99


class TestContent:
    @pytest.mark.parametrize("kind", KINDS)
    def test_special_and_padding_tokens_are_out(self, tokenizers, kind):
        tokenizer = tokenizers[kind]
        batch = tokenizer(["Two dogs run.", "It is <mask> to say"], padding=True, return_tensors="pt")
        kept = batch["input_ids"][TokenRoles(tokenizer).content(batch)]
        assert not set(kept.tolist()) & set(tokenizer.all_special_ids)
        assert len(kept) == sum(i not in tokenizer.all_special_ids for row in batch["input_ids"].tolist() for i in row)

    @pytest.mark.parametrize("form", [int, lambda n: torch.tensor([n]), lambda n: torch.tensor([n, n])])
    @pytest.mark.parametrize("side", ["right", "left"])
    def test_prompt_tokens_are_out(self, tokenizers, form, side):
        tokenizer = tokenizers["wordpiece"]
        prompt = "query: "
        prompt_length = len(tokenizer(prompt)["input_ids"]) - 1  # <s> and the prompt, as the host counts
        sentences = ["Two dogs run.", "A much longer sentence is here today."]
        batch = tokenizer([prompt + s for s in sentences], padding=True, padding_side=side, return_tensors="pt")
        content = TokenRoles(tokenizer).content({**batch, "prompt_length": form(prompt_length)})
        for row, kept, sentence in zip(batch["input_ids"], content, sentences, strict=True):
            assert row[kept].tolist() == tokenizer(sentence, add_special_tokens=False)["input_ids"]

    def test_flattened_batches_are_refused(self, tokenizers):
        with pytest.raises(ValueError, match="set model\\[0\\].unpad_inputs = False"):
            TokenRoles(tokenizers["bpe"]).content({"input_ids": torch.zeros(1, 9, dtype=torch.long)})

    def test_static_embeddings_are_refused(self, tokenizers):
        with pytest.raises(ValueError, match="must be a transformers tokenizer, got Tokenizer"):
            TokenRoles(tokenizers["bpe"].backend_tokenizer)

    def test_tables_are_no_state(self, tokenizers):
        assert TokenRoles(tokenizers["bpe"]).state_dict() == {}


def content_of(*lengths, width=64, start=1):
    """Rows with ``length`` content tokens from place ``start`` on."""
    place = torch.arange(width)
    return torch.stack([(place >= start) & (place < start + length) for length in lengths])


class TestNestedSpanMasks:
    @pytest.mark.parametrize("num_segments", [1, 2, 3])
    def test_shares_nesting_and_spans(self, num_segments):
        lengths = list(range(25, 62))
        content = content_of(*lengths)
        near, far = nested_span_masks(content, near_ratio=0.2, far_ratio=0.4, num_segments=num_segments)
        assert not (near & ~far).any()
        assert not (far & ~content).any()
        assert near.sum(dim=1).tolist() == [round(0.2 * n) for n in lengths]
        assert far.sum(dim=1).tolist() == [round(0.4 * n) for n in lengths]
        starts = far[:, 1:] & ~far[:, :-1]
        assert starts.sum(dim=1).max() <= num_segments

    @pytest.mark.parametrize(("length", "near_ratio", "counts"), [(3, 0.2, (0, 1)), (21, 0.39, (7, 8)), (22, 0.39, (8, 9))])
    def test_a_narrow_span_is_cut_to_its_wide_one(self, length, near_ratio, counts):
        masks = nested_span_masks(content_of(length), near_ratio=near_ratio, far_ratio=0.4, num_segments=3)
        assert tuple(mask.sum().item() for mask in masks) == counts
        assert counts[0] < round(near_ratio * length)

    def test_content_need_not_be_contiguous(self):
        """A special token amid the content is never masked and does not end a span's count."""
        content = content_of(40)
        content[0, 20] = False
        near, far = nested_span_masks(content, **SPANS)
        assert far.sum() == round(0.4 * 39)
        assert near.sum() == round(0.2 * 39)
        assert not far[0, 20]

    def test_every_place_gets_its_turn(self):
        torch.manual_seed(0)
        near, far = nested_span_masks(content_of(30, width=32).expand(4000, -1), **SPANS)
        frequency = far[:, 1:31].float().mean(dim=0)
        assert frequency.mean().item() == pytest.approx(0.4, abs=1e-6)
        assert frequency.min() > 0.08  # 1 of 10 at the ends of a stretch
        assert near[:, 1:31].float().mean(dim=0).min() > 0.015

    def test_drawn_with_torchs_generator(self):
        content = content_of(*range(25, 60))
        draws = []
        for seed in (0, 0, 1):
            torch.manual_seed(seed)
            draws.append(torch.stack(nested_span_masks(content, **SPANS)))
        assert torch.equal(draws[0], draws[1])
        assert not torch.equal(draws[0], draws[2])

    @pytest.mark.parametrize("lengths", [(0,), (1,), (0, 3, 40)])
    def test_short_and_empty_rows(self, lengths):
        near, far = nested_span_masks(content_of(*lengths), **SPANS)
        assert not (near & ~far).any()
        assert far.sum(dim=1).tolist() == [round(0.4 * n) for n in lengths]


class TestMlmMask:
    def draw(self, probability=0.15, rows=400):
        torch.manual_seed(0)
        ids = torch.randint(10, 90, (rows, 64))
        content = content_of(*[40] * rows)
        return (
            ids,
            content,
            *mlm_mask(ids, content, mask_token_id=5, ordinary_ids=torch.arange(100, 200), probability=probability),
        )

    @pytest.mark.parametrize("probability", [0.15, 0.4])
    def test_shares(self, probability):
        ids, content, corrupted, chosen = self.draw(probability)
        assert chosen[content].float().mean().item() == pytest.approx(probability, abs=0.01)
        assert (corrupted[chosen] == 5).float().mean().item() == pytest.approx(0.8, abs=0.02)
        assert (corrupted[chosen] >= 100).float().mean().item() == pytest.approx(0.1, abs=0.02)
        assert (corrupted[chosen] == ids[chosen]).float().mean().item() == pytest.approx(0.1, abs=0.02)

    def test_only_content_is_chosen_and_only_the_chosen_change(self):
        ids, content, corrupted, chosen = self.draw()
        assert not (chosen & ~content).any()
        assert torch.equal(corrupted[~chosen], ids[~chosen])

    def test_every_other_token_gets_its_turn(self):
        _, _, corrupted, _ = self.draw(0.9)
        assert set(corrupted[corrupted >= 100].tolist()) == set(range(100, 200))


class TestRandomSubset:
    @pytest.mark.parametrize(("ratio", "at_least", "counts"), [(0.2, 0, [2, 0, 0]), (0.2, 1, [2, 1, 0]), (1.0, 0, [10, 1, 0])])
    def test_counts(self, ratio, at_least, counts):
        candidates = torch.zeros(3, 12, dtype=torch.bool)
        candidates[0, :10] = candidates[1, 4] = True
        chosen = random_subset(candidates, ratio, at_least=at_least)
        assert chosen.sum(dim=1).tolist() == counts
        assert not (chosen & ~candidates).any()

    def test_every_candidate_has_its_chance(self):
        torch.manual_seed(0)
        chosen = sum(random_subset(torch.ones(1, 5, dtype=torch.bool), 0.4).long() for _ in range(1000))
        assert ((chosen / 1000 - 0.4).abs() < 0.06).all()


def test_an_id_that_the_vocabulary_leaves_out_is_special(tokenizers, monkeypatch):
    """No masked language model may draw it, and no text has it."""
    tokenizer = copy.deepcopy(tokenizers["wordpiece"])
    convert = tokenizer.convert_ids_to_tokens
    monkeypatch.setattr(
        tokenizer, "convert_ids_to_tokens", lambda ids: [None if i == 50 else token for i, token in enumerate(convert(ids))]
    )
    roles = TokenRoles(tokenizer)
    assert roles.special[50]
    assert not roles.special[51]


def test_a_narrow_span_lies_in_its_wide_one_in_every_draw():
    content = torch.ones(200, 21, dtype=torch.bool)
    near, far = nested_span_masks(content, near_ratio=0.39, far_ratio=0.4, num_segments=3)
    assert not (near & ~far).any()


def test_words_of_a_prompt_are_not_counted(tokenizers):
    tokenizer = tokenizers["wordpiece"]
    batch = tokenizer(["query: Two dogs run."], return_tensors="pt")
    roles, prompt_length = TokenRoles(tokenizer), len(tokenizer("query: ")["input_ids"]) - 1
    assert roles.count_words(batch["input_ids"], roles.content({**batch, "prompt_length": prompt_length})).tolist() == [3]
