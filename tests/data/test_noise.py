import random

import pytest

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
