import functools
import random

import pytest
from encoders import project_text

from sbert_plugins import data
from sbert_plugins.data.label_free import WordKinds
from sbert_plugins.data.phrases import find_words

TEXT = [
    "A car and an automobile stand here.",
    "The city has a town hall.",
    "A table, a garden, a metropolis.",
]


@functools.cache
def make_texts(seed=0):
    text = project_text()
    return data.label_free_texts(["It rained a lot here.", *text[:200]], text=text[200:], limit=50, seed=seed)


@pytest.fixture
def texts(wordnet):
    return make_texts()


def test_copies_differ_in_one_word(texts):
    for sentence, synonym, other in texts.substitutions:
        words = [set(copy.lower().split()) for copy in (sentence, synonym, other)]
        assert len({sentence, synonym, other}) == 3
        assert all(len(words[0] ^ copy) <= 2 for copy in words[1:])


def test_halves_are_half_of_the_words_in_their_order(texts):
    for sentence, half in texts.halves:
        words = iter(sentence.split())
        assert all(word in words for word in half.split())
        assert len(half.split()) == len(sentence.split()) - round(len(sentence.split()) / 2)
        assert len(sentence.split()) >= 6


def test_the_same_for_the_same_seed_and_within_the_limit(texts):
    make_texts.cache_clear()
    assert make_texts() == texts != make_texts(seed=1)
    assert max(len(texts.substitutions), len(texts.halves)) <= 50
    assert texts.sentences == ["It rained a lot here.", *dict.fromkeys(project_text()[:200])]


def test_the_other_word_is_as_frequent_as_the_synonym_and_not_one(texts):
    kinds = WordKinds(["It rained a lot here.", *project_text()])
    for copies in texts.substitutions:
        words = zip(*([match[0] for match in find_words(copy)] for copy in copies), strict=True)
        (changed,) = {each for each in words if len(set(each)) > 1}
        word, synonym, other = changed[0].lower(), *changed[1:]
        assert synonym in kinds.synonyms(word)
        assert other not in kinds.replacer.synonyms(word)
        assert kinds.magnitude(other) == kinds.magnitude(synonym)
        assert kinds.part_of_speech(other) == kinds.part_of_speech(word)


class TestWordKinds:
    def test_a_synonym_of_the_first_sense_that_the_text_has(self, wordnet):
        kinds = WordKinds(TEXT)
        sentence, synonym, other = kinds.substitute("The car stands.", random.Random(0))
        assert synonym == "The automobile stands."
        assert other not in (sentence, synonym)
        assert "auto" not in kinds.synonyms("car")  # the text does not have it
        senses = WordKinds(["The table stands on a board.", "The globe is an orb, and the world a ball."])
        assert senses.synonyms("table") == []
        assert senses.synonyms("globe") == ["world"]

    @pytest.mark.parametrize(
        ("text", "sentence"),
        [
            (TEXT, "Of the and."),
            (TEXT, "The car of the automobile."),  # the sentence has the synonym
            (["A car, an automobile, an auto."], "The car."),  # the only other word is a synonym, too
        ],
    )
    def test_nothing_to_substitute(self, wordnet, text, sentence):
        assert WordKinds(text).substitute(sentence, random.Random(0)) is None


class TestBadText:
    def test_another_language(self, wordnet):
        """WordNet contains some of its words: "ne" would become "neon"."""
        sentences = [
            f"Il ne part pas du port avec la table {number}, mais on va au bar." for number in range(120)
        ]
        with pytest.raises(ValueError, match="English"):
            data.label_free_texts(sentences)

    @pytest.mark.parametrize(
        "sentence", ["He was not there with the {} of them.", "A car: the automobile {}."]
    )
    def test_nothing_to_replace_or_to_halve(self, wordnet, sentence):
        with pytest.raises(ValueError, match="At least 30"):
            data.label_free_texts([sentence.format(number) for number in range(120)])
