import random

import pytest
from datasets import Dataset, DatasetDict

from sbert_plugins import data

SENTENCE = "The old man, [MASK] [MASK] said, sleeps by the sea."


class TestDeleteWords:
    def test_masks_stay(self):
        for seed in range(30):
            result = data.delete_words(SENTENCE, 0.9, random.Random(seed), keep="[MASK]")
            assert result.count("[MASK]") == 2
            assert "  " not in result

    @pytest.mark.parametrize("sentence", ["", "!", "one", "one two"])
    def test_one_word_is_left(self, sentence):
        for seed in range(10):
            assert len(data.delete_words(sentence, 0.99, random.Random(seed))) >= bool(sentence)


class TestSwapWords:
    def test_words_change_places_and_nothing_else_does(self):
        for seed in range(30):
            result = data.swap_words(SENTENCE, 0.3, random.Random(seed), keep="[MASK]")
            assert sorted(result) == sorted(SENTENCE)
            assert result.split()[3:5] == ["[MASK]", "[MASK]"]
        assert len({data.swap_words(SENTENCE, 0.3, random.Random(seed)) for seed in range(30)}) > 10

    @pytest.mark.parametrize("sentence", ["", "!", "one", "[MASK] one [MASK]"])
    def test_nothing_to_swap(self, sentence):
        assert data.swap_words(sentence, 0.5, random.Random(0), keep="[MASK]") == sentence


def test_duplicate_words():
    expected = "The The old old man man, [MASK] [MASK] said said, sleeps sleeps by by the the sea sea."
    assert data.duplicate_words(SENTENCE, 1.0, random.Random(0), keep="[MASK]") == expected


@pytest.mark.parametrize(("change", "expected"), [(data.delete_words, 70), (data.duplicate_words, 130)])
def test_the_share_of_changed_words(change, expected):
    lengths = [len(change("word " * 100, 0.3, random.Random(seed)).split()) for seed in range(50)]
    assert sum(lengths) / len(lengths) == pytest.approx(expected, abs=2)


class TestPositivePairs:
    @pytest.mark.parametrize("augment", ["reorder", "duplication", "deletion"])
    def test_named(self, augment):
        sentences = ["The old man sleeps by the sea.", "Prices fell for the third month."] * 20
        rows = data.positive_pairs(sentences, augment, ratio=0.5)
        assert rows.column_names == ["anchor", "positive"]
        assert rows["anchor"][:] == sentences
        longer = [len(row["positive"].split()) - len(row["anchor"].split()) for row in rows]
        assert {"reorder": max(longer) == 0, "duplication": sum(longer) > 30, "deletion": sum(longer) < -30}[
            augment
        ]
        assert sum(row["anchor"] != row["positive"] for row in rows) > 30
        again, other = (data.positive_pairs(sentences, augment, ratio=0.5, seed=seed) for seed in (0, 1))
        assert again.to_dict() == rows.to_dict() != other.to_dict()

    def test_a_function_and_a_dataset(self):
        rows = Dataset.from_dict({"anchor": ["a b", "c d"], "id": [1, 2]})
        expected = {"anchor": ["a b", "c d"], "positive": ["A B!", "C D!"]}
        for sentences in (rows, iter(rows["anchor"])):
            pairs = data.positive_pairs(sentences, lambda text, rng: text.upper() + rng.choice("!"))
            assert pairs.to_dict() == expected

    def test_equal_copies_are_counted(self, caplog):
        data.positive_pairs(["今天天气很好", "The old man sleeps."], "reorder", ratio=0.5)
        assert "1 of 2" in caplog.text


class TestRecombineRoles:
    def test_the_roles_of_all_predicates_in_order(self):
        frames = [
            {"V": "caught", "ARG1": "a caterpillar", "ARG0": "I", "ARGM-LOC": "in the garden"},
            {"V": "let", "ARG0": "I", "ARGM-NEG": "not", "ARG1": "it"},
        ]
        assert data.recombine_roles("", lambda sentence: frames) == "I caught a caterpillar I let not it"
        assert data.recombine_roles("", lambda sentence: frames, order=("V", "ARG0")) == "caught I let I"

    @pytest.mark.parametrize("frames", [[], [{}], [{"ARGM-TMP": "yesterday"}]], ids=str)
    def test_without_a_predicate_it_is_the_sentence(self, frames):
        pairs = data.positive_pairs(
            ["He left."], lambda text, rng: data.recombine_roles(text, lambda _: frames)
        )
        assert pairs["positive"][:] == ["He left."]


@pytest.mark.parametrize(
    "texts", ["One text.", DatasetDict(train=Dataset.from_dict({"anchor": ["A dog."]}))], ids=type
)
def test_letters_and_names_of_splits_are_not_sentences(texts):
    for make in (
        lambda rows: data.positive_pairs(rows, "deletion"),
        lambda rows: data.paser_columns(rows, mask_token="[MASK]", synonyms=None),
        lambda rows: data.crop_pairs(rows),
        lambda rows: data.back_translate(rows),
        lambda rows: data.TokenFrequencies.from_corpus(rows, None),
    ):
        with pytest.raises(ValueError, match="list of strings"):
            make(texts)
