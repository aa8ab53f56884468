import functools
import random

import pytest
from encoders import project_text

from sbert_plugins import data
from sbert_plugins.data.substitutions import WordKinds, half_of_words
from sbert_plugins.data.synonyms import find_words


@functools.cache
def made():
    text = project_text()
    return data.label_free_texts(text[:200], text=text[200:], limit=50)


@pytest.fixture
def texts(wordnet):
    return made()


class TestTexts:
    def test_copies_differ_in_one_word(self, texts):
        for sentence, synonym, other in texts.substitutions:
            words = [set(copy.lower().split()) for copy in (sentence, synonym, other)]
            assert len({sentence, synonym, other}) == 3
            assert all(len(words[0] ^ copy) <= 2 for copy in words[1:])

    def test_halves_are_half_of_the_words_in_their_order(self, texts):
        for sentence, half in texts.halves:
            words = iter(sentence.split())
            assert all(word in words for word in half.split())
            assert len(half.split()) == len(sentence.split()) - round(len(sentence.split()) / 2)

    def test_are_the_same_for_a_seed_and_no_more_than_asked(self, texts):
        text = project_text()
        assert data.label_free_texts(text[:200], text=text[200:], limit=50) == texts
        assert data.label_free_texts(text[:200], text=text[200:], limit=50, seed=1) != texts
        assert max(len(texts.substitutions), len(texts.halves)) <= 50
        assert texts.sentences == list(dict.fromkeys(text[:200]))

    def test_half_by_hand(self):
        assert len(half_of_words("one two three four", random.Random(0)).split()) == 2


def test_the_synonym_is_of_the_first_sense_and_the_other_word_is_none(wordnet):
    kinds = WordKinds(["A car and an automobile stand here.", "The city has a town hall.", "A table, a garden, a metropolis."])
    sentence, synonym, other = kinds.substitution("The car stands.", random.Random(0))
    assert synonym == "The automobile stands."
    assert other not in (sentence, synonym)
    assert "auto" not in kinds.synonyms("car")  # the text does not have it
    assert kinds.substitution("Of the and.", random.Random(0)) is None


class TestBadInput:
    def test_few_sentences(self):
        with pytest.raises(ValueError, match="sentences must be at least 100 different ones, got 3"):
            data.label_free_texts(["One.", "Two.", "Three."] * 50)

    def test_another_language(self, wordnet):
        """WordNet knows some of its words: "ne" would become "neon"."""
        sentences = [f"Il ne part pas du port avec la table {number}, mais on va au bar." for number in range(120)]
        with pytest.raises(ValueError, match=r"must be English as it is written: 20% of the words .*, got 6.7%"):
            data.label_free_texts(sentences)

    @pytest.mark.parametrize(
        ("sentence", "message"),
        [
            ("He was not there with the {} of them.", "must have a word with a synonym in the text, got 0"),
            ("A car: the automobile {}.", "six words or more, got 0"),
        ],
    )
    def test_nothing_to_replace_or_to_halve(self, wordnet, sentence, message):
        with pytest.raises(ValueError, match=message):
            data.label_free_texts([sentence.format(number) for number in range(120)])

    def test_the_least_that_will_do(self, wordnet):
        sentences = [f"There is a car, and the city has number {number}." for number in range(100)]
        texts = data.label_free_texts(sentences, text=["An automobile. A metropolis, a town, a garden."] * 50, limit=30)
        assert (len(texts.sentences), len(texts.substitutions), len(texts.halves)) == (100, 30, 30)

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"sentences": "text.txt"}, "sentences must be a list of sentences, got str"),
            ({"text": "text.txt"}, "text must be a list of sentences, got str"),
            ({"text": ["one", None]}, "text must hold strings, got None in row 1"),
            ({"limit": 10}, "limit must be at least 30, got 10"),
        ],
    )
    def test_what_is_no_text(self, given, message):
        with pytest.raises(ValueError, match=message):
            data.label_free_texts(**{"sentences": ["One of them."] * 120} | given)


def test_the_other_word_is_as_frequent_as_the_synonym_and_is_none(texts):
    kinds = WordKinds(project_text())
    for copies in texts.substitutions:
        words = zip(*([match[0] for match in find_words(copy)] for copy in copies), strict=True)
        (changed,) = {each for each in words if len(set(each)) > 1}
        word, synonym, other = changed[0].lower(), *changed[1:]
        assert synonym in kinds.synonyms(word)
        assert other not in kinds.replacer.synonyms(word)
        assert kinds.band(other) == kinds.band(synonym)
        assert kinds.part_of_speech(other) == kinds.part_of_speech(word)


def test_other_words_are_of_one_kind_and_as_frequent_in_dictionary_form(wordnet):
    """Bands are powers of two; satellites ("huge") are adjectives as any; what is no word of letters is none."""
    kinds = WordKinds(["A car, cars, an x-ray.", "Huge houses, a happy house, the house, a house."])
    assert kinds.bands == {("n", 1): ["car"], ("n", 2): ["house"], ("a", 1): ["happy", "huge"]}


def test_a_synonym_of_another_sense_is_none(wordnet):
    kinds = WordKinds(["The table stands on a board.", "The globe is an orb, and the world a ball."])
    assert kinds.synonyms("table") == []
    assert kinds.synonyms("globe") == ["world"]


def test_short_sentences_have_no_half(wordnet):
    text = project_text()
    halves = data.label_free_texts(["It rained a lot here.", *text[:200]], text=text[200:], limit=50).halves
    assert all(len(sentence.split()) >= 6 for sentence, _ in halves)


def test_a_synonym_that_the_sentence_has_is_none(wordnet):
    kinds = WordKinds(["A car and an automobile stand here.", "The city has a town hall.", "A table, a garden, a metropolis."])
    assert kinds.substitution("The car stands.", random.Random(0)) is not None
    assert kinds.substitution("The car of the automobile.", random.Random(0)) is None


def test_another_synonym_is_no_other_word(wordnet):
    assert WordKinds(["A car, an automobile, an auto."]).substitution("The car.", random.Random(0)) is None
