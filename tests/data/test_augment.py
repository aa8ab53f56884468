import random

import numpy as np
import pytest
from datasets import Dataset

from sbert_plugins import data

SENTENCE = "The old man, [MASK] [MASK] said, sleeps by the sea."


class TestDeleteWords:
    def test_share(self):
        lengths = [len(data.delete_words("word " * 100, 0.3, random.Random(seed)).split()) for seed in range(50)]
        assert sum(lengths) / len(lengths) == pytest.approx(70, abs=2)

    def test_masks_stay(self):
        for seed in range(30):
            result = data.delete_words(SENTENCE, 0.9, random.Random(seed), keep="[MASK]")
            assert result.count("[MASK]") == 2
            assert "  " not in result

    @pytest.mark.parametrize("sentence", ["", "!", "one", "one two"])
    def test_one_word_is_left(self, sentence):
        for seed in range(10):
            assert len(data.delete_words(sentence, 0.99, random.Random(seed))) >= bool(sentence)

    def test_nothing_at_zero(self):
        assert data.delete_words(SENTENCE, 0.0, random.Random(0)) == SENTENCE


class TestSwapWords:
    def test_words_change_places_and_nothing_else_does(self):
        for seed in range(30):
            result = data.swap_words(SENTENCE, 0.3, random.Random(seed), keep="[MASK]")
            assert sorted(result) == sorted(SENTENCE)
            assert result.split()[3:5] == ["[MASK]", "[MASK]"]
            assert result.count(",") == 2
        assert len({data.swap_words(SENTENCE, 0.3, random.Random(seed)) for seed in range(30)}) > 10

    @pytest.mark.parametrize("sentence", ["", "!", "one", "[MASK] one [MASK]"])
    def test_nothing_to_swap(self, sentence):
        assert data.swap_words(sentence, 0.5, random.Random(0), keep="[MASK]") == sentence

    def test_nothing_at_zero(self):
        assert data.swap_words(SENTENCE, 0, random.Random(0)) == SENTENCE


class TestDuplicateWords:
    def test_share(self):
        lengths = [len(data.duplicate_words("word " * 100, 0.3, random.Random(seed)).split()) for seed in range(50)]
        assert sum(lengths) / len(lengths) == pytest.approx(130, abs=2)

    def test_each_word_twice_and_masks_once(self):
        expected = "The The old old man man, [MASK] [MASK] said said, sleeps sleeps by by the the sea sea."
        assert data.duplicate_words(SENTENCE, 1.0, random.Random(0), keep="[MASK]") == expected

    @pytest.mark.parametrize("sentence", ["", "!", SENTENCE])
    def test_nothing_at_zero(self, sentence):
        assert data.duplicate_words(sentence, 0.0, random.Random(0)) == sentence


class TestRecombineRoles:
    def test_all_predicates_in_order(self):
        """Figure 1's pair of the paper becomes one sentence."""
        frames = [
            {"V": "caught", "ARG1": "a caterpillar", "ARG0": "I", "ARGM-LOC": "in the garden"},
            {"V": "let", "ARG0": "I", "ARGM-NEG": "not", "ARG1": "it"},
        ]
        mixed = data.recombine_roles("whatever", lambda sentence: frames)
        assert mixed == "I caught a caterpillar I let not it"

    def test_the_labeller_gets_the_sentence(self):
        assert data.recombine_roles("He left.", lambda sentence: [{"V": sentence.split()[0]}]) == "He"

    @pytest.mark.parametrize("frames", [[], [{}], [{"ARGM-TMP": "yesterday"}]], ids=str)
    def test_without_a_predicate_it_is_the_sentence(self, frames):
        assert data.recombine_roles(SENTENCE, lambda sentence: frames) == SENTENCE

    def test_another_order(self):
        label = [{"V": "caught", "ARG0": "I"}]
        assert data.recombine_roles("", lambda sentence: label, order=("V", "ARG0")) == "caught I"


class TestPositivePairs:
    @pytest.mark.parametrize("augment", ["reorder", "duplication", "deletion"])
    def test_named(self, augment):
        sentences = ["The old man sleeps by the sea.", "Prices fell for the third month."] * 20
        rows = data.positive_pairs(sentences, augment, ratio=0.5)
        assert rows.column_names == ["anchor", "positive"]
        assert rows["anchor"][:] == sentences
        counts = [(len(b.split()), len(a.split())) for a, b in zip(rows["anchor"], rows["positive"], strict=True)]
        longer = {"reorder": 0, "duplication": 1, "deletion": -1}[augment]
        assert sum((b > a) - (b < a) for b, a in counts) * longer >= 30 * abs(longer)
        assert sum(a != b for a, b in zip(rows["anchor"], rows["positive"], strict=True)) > 30
        again, other = (data.positive_pairs(sentences, augment, ratio=0.5, seed=seed) for seed in (0, 1))
        assert again.to_dict() == rows.to_dict() != other.to_dict()

    def test_copies_that_are_no_other_are_counted(self, caplog):
        data.positive_pairs(["今天天气很好", "The old man sleeps."], "reorder", ratio=0.5)
        assert "1 of 2 copies are their sentence as it is." in caplog.text

    def test_a_callable(self):
        rows = data.positive_pairs(iter(["a b", "c d"]), lambda sentence, rng: sentence.upper() + rng.choice("!"))
        assert rows.to_dict() == {"anchor": ["a b", "c d"], "positive": ["A B!", "C D!"]}

    def test_a_dataset(self):
        rows = data.positive_pairs(Dataset.from_dict({"anchor": ["a b", "c d"], "id": [1, 2]}), lambda text, rng: text.upper())
        assert rows.to_dict() == {"anchor": ["a b", "c d"], "positive": ["A B", "C D"]}
        with pytest.raises(ValueError, match="sentences must have a column anchor, got text"):
            data.positive_pairs(Dataset.from_dict({"text": ["a b"]}), "deletion")

    def test_a_callable_that_returns_nothing(self):
        with pytest.raises(ValueError, match="must return a string, got None"):
            data.positive_pairs(["a b"], lambda text, rng: None)

    def test_bad_input(self):
        with pytest.raises(ValueError, match="augment must be reorder, duplication, deletion or a callable, got 'crop'"):
            data.positive_pairs(["a"], "crop")
        with pytest.raises(ValueError, match=r"ratio must be in \(0, 1\], got 0"):
            data.positive_pairs(["a"], "deletion", ratio=0)


@pytest.mark.parametrize("sentence", [None, 5])
def test_pairs_of_what_is_no_text(sentence):
    with pytest.raises(ValueError, match=f"sentences must be text, got {sentence} in row 1"):
        data.positive_pairs(["A dog runs.", sentence], "deletion")


@pytest.mark.parametrize(("ratio", "least", "most"), [(0.1, 17, 20), (0.5, 60, 66)])
def test_share_that_is_swapped(ratio, least, most):
    """Of 100 words, ten and fifty swaps of two: 100 (1 - .98 ** 10) = 18 and 64 are in one at least; some come back."""
    words = [f"w{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(100)]
    moved = [
        sum(a != b for a, b in zip(words, data.swap_words(" ".join(words), ratio, random.Random(seed)).split(), strict=True))
        for seed in range(50)
    ]
    assert least < np.mean(moved) < most
