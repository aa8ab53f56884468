import random
import re

import pytest
import rake_nltk
import reference
from encoders import SENTENCES, project_text

from sbert_plugins import data
from sbert_plugins.data import phrases

# Computed on paper. A word of a single phrase of n words scores n, so that such a phrase scores n * n.
BY_HAND = {
    "The cat sleeps.": [("cat sleeps", 4)],
    "A dog runs across the wet field.": [("dog runs", 4), ("wet field", 4)],
    "It is raining again today.": [("raining", 1), ("today", 1)],
    "Prices fell for the third month in a row.": [("Prices fell", 4), ("third month", 4), ("row", 1)],
    "The old harbour master counts the boats before dawn.": [
        ("old harbour master counts", 16),
        ("boats", 1),
        ("dawn", 1),
    ],
    # old: degree 2 + 2, frequency 2, so 2; house 2, barn 2
    "The old house and the old barn.": [("old house", 4), ("old barn", 4)],
    # tea: degree 2 + 1, frequency 2, so 1.5; green 2
    "Green tea is the tea of the south.": [("Green tea", 3.5), ("tea", 1.5), ("south", 1)],
    # river: degree 3 + 2 + 1, frequency 3, so 2; long 3, brown 3, wide 2
    "A long brown river, a wide river and a river.": [
        ("long brown river", 8),
        ("wide river", 4),
        ("river", 2),
    ],
    # a repeated phrase is listed once; new: degree 4, frequency 2
    "New York is not the New York of old songs.": [("New York", 4), ("old songs", 4)],
    # a word that is repeated within a phrase: degree 3 * 3 = 9 for knock, frequency 3
    "Knock knock knock at the door.": [("Knock knock knock", 9), ("door", 1)],
    # punctuation of any kind ends a phrase
    "Apples, pears; plums: figs!": [("Apples", 1), ("pears", 1), ("plums", 1), ("figs", 1)],
    "He said “good morning” (very softly).": [("good morning", 4), ("said", 1), ("softly", 1)],
    "Wind – rain … snow": [("Wind", 1), ("rain", 1), ("snow", 1)],
    # hyphens, apostrophes and decimal points do not end one
    "A state-of-the-art engine is Mary's.": [("state-of-the-art engine", 4), ("Mary's", 1)],
    "It costs 1,250.50 dollars or 3.5 more.": [("costs 1,250.50 dollars", 9), ("3.5", 1)],
    "We don’t know and they didn't ask.": [("know", 1), ("ask", 1)],
    "THE BIG RED BUS of the big city": [("BIG RED BUS", 8.5), ("big city", 4.5)],  # big: (3 + 2) / 2
    "3 red balls and 3 blue balls": [("3 red balls", 9), ("3 blue balls", 9)],  # 3 and balls: (3 + 3) / 2
    "snow_white of the seven dwarfs": [("seven dwarfs", 4), ("snow_white", 1)],
    "Größe und Übermut of the Straße": [("Größe und Übermut", 9), ("Straße", 1)],
}


def rank(sentence, **keywords):
    return [(phrase.text, phrase.score) for phrase in data.locate_phrases(sentence, **keywords)]


@pytest.mark.parametrize("sentence", BY_HAND)
def test_by_hand(sentence):
    assert rank(sentence) == BY_HAND[sentence]


def test_the_example_of_rakes_authors():
    # Rose et al. 2010, figures 1.2 to 1.4: the candidates of their abstract and the printed scores.
    candidates = (
        "Compatibility; systems; linear constraints; set; natural numbers. Criteria; compatibility; system; "
        "linear Diophantine equations; strict inequations; nonstrict inequations. Upper bounds; components; "
        "minimal set; solutions; algorithms; minimal generating sets; solutions; systems. Criteria; "
        "corresponding algorithms; constructing; minimal supporting set; solving; systems; systems."
    )
    expected = {
        "minimal generating sets": 8.7,
        "linear Diophantine equations": 8.5,
        "minimal supporting set": 7.7,
        "minimal set": 4.7,
        "linear constraints": 4.5,
        "natural numbers": 4,
        "strict inequations": 4,
        "nonstrict inequations": 4,
        "Upper bounds": 4,
        "corresponding algorithms": 3.5,
    }
    ranked = rank(candidates)
    assert {phrase: round(score, 1) for phrase, score in ranked[:10]} == expected
    assert (dict(ranked)["set"], dict(ranked)["algorithms"]) == (2, 1.5)


class TestRake:
    def test_scores_are_those_of_the_reference(self):
        for sentence in project_text()[:300]:
            found = data.Rake()(sentence)
            runs = [phrases.WORD.findall(sentence[start:end].lower()) for start, end, _ in found]
            assert [score for _, _, score in found] == pytest.approx(reference.rake_scores(runs))

    def test_scores_are_those_of_rake_nltk(self):
        # On sentences in which its tokens are ours: without hyphens, apostrophes and numbers.
        stock = rake_nltk.Rake(stopwords=set(data.ENGLISH_STOP_WORDS), sentence_tokenizer=lambda text: [text])
        sentences = [text for text in project_text() if re.fullmatch(r"[A-Za-z ,]+\.", text)]
        both = []
        for sentence in sentences:
            stock.extract_keywords_from_text(sentence)
            theirs = {phrase: score for score, phrase in stock.get_ranked_phrases_with_scores()}
            both.append(({phrase.lower(): score for phrase, score in rank(sentence)}, theirs))
        # Here a phrase is not listed if it contains all words of the sentence.
        assert len(both) > 500
        assert all(ours == theirs for ours, theirs in both if ours)

    def test_other_languages_by_their_stop_words(self):
        german = data.Rake(["der", "die", "das", "und", "über", "den"])
        ranked = rank("Der alte Hund und die Katze springen über den Zaun.", extractor=german)
        assert ranked == [("alte Hund", 4), ("Katze springen", 4), ("Zaun", 1)]
        ranked = rank("राम और श्याम की बड़ी किताब", extractor=data.Rake(["और", "की"]))
        assert ranked == [("बड़ी किताब", 4), ("राम", 1), ("श्याम", 1)]

    @pytest.mark.parametrize(
        ("listed", "written"),
        [("für", "fu\u0308r"), ("fu\u0308r", "für"), ("için", "İçin"), ("dün", "DÜN"), ("it's", "it’s")],
    )
    def test_a_stop_word_in_any_spelling(self, listed, written):
        ranked = rank(f"eins {written} zwei und drei vier", extractor=data.Rake([listed, "und"]))
        assert sorted(phrase for phrase, _ in ranked) == ["drei vier", "eins", "zwei"]

    def test_stop_words(self):
        assert rank("the cat, of course", extractor=data.Rake([])) == [("the cat", 4), ("of course", 4)]
        with pytest.raises(ValueError, match="list"):
            data.Rake("german")


class TestChunks:
    def test_noun_and_verb_phrases(self, nltk_data):
        ranked = rank("The old man told the visitors a story.", extractor="chunks")
        assert ranked[0] == ("The old man", 1.0)
        assert {"told the visitors a story", "the visitors", "a story"} & dict(ranked).keys()
        assert {score for _, score in ranked} == {1.0}

    @pytest.mark.parametrize(
        "sentence", ["", " ", "hello", "😀 !!", "你好世界", "the of and", "word " * 3_000, *SENTENCES]
    )
    def test_any_text(self, nltk_data, sentence):
        for phrase, _ in rank(sentence, extractor="chunks"):
            assert phrase in sentence


class TestOtherExtractors:
    def test_a_function(self):
        def capitals(sentence):
            return [(*match.span(), len(match[0])) for match in re.finditer(r"[A-Z]\w+", sentence)]

        assert rank("Ann met Robert and Ann in Oslo.", extractor=capitals) == [
            ("Robert", 6),
            ("Oslo", 4),
            ("Ann", 3),
        ]


_NO_PHRASE = [
    "",
    " ",
    "hello",
    "Hello!",
    "the of and",
    "It is not.",
    "😀😀 😀",
    "...?!",
    "你好世界",
    "สวัสดีชาวโลก",
    "___",
    "\x00",
    "\ud800",
    "word " * 10_000,
    "Katze " * 21,
    "dogs, dogs",
    "\u200b\u200d",
    "a" * 100_000,
]


@pytest.mark.parametrize("sentence", _NO_PHRASE, ids=lambda sentence: repr(sentence[:8]))
def test_no_phrase(sentence):
    # Nothing can be hidden, or nothing would be left.
    assert rank(sentence) == []


def test_places_in_the_sentence():
    odd = [
        "He has 😀 a very good dog 😀.",
        "İstanbul of the ŞEHİR",  # lower case is longer than the word
        "inter\u00adnational of the law",  # a soft hyphen
        "the cat " * 5_000,
        "a\tb\nc d\u2028e the end\u00a0here",
        "((((" * 1_000 + "x and y" + "))))" * 1_000,
        "ﬁne ligatures and Ⅷ numbers",
    ]
    for sentence in project_text() + odd:
        for phrase in data.locate_phrases(sentence):
            assert all(sentence[start:end].lower() == phrase.text.lower() for start, end in phrase.spans)
            assert "[MASK]" in data.hide_phrase(sentence, phrase, mask_token="[MASK]")


@pytest.mark.parametrize(
    ("sentence", "places"),
    [
        ("We love the New  York pizza, and the New York pizza is cheap.", 2),
        ("The quick fox\njumped over the quick fox jumped", 2),
        ("The caf\u00e9 owner is the cafe\u0301 owner of it", 2),
        ("a cat, the " * 500 + "house", 500),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_all_spellings_of_a_phrase_are_hidden(sentence, places):
    phrase = max(data.locate_phrases(sentence), key=lambda phrase: len(phrase.spans))
    assert len(phrase.spans) == places
    masks = places * len(phrase.text.split())
    assert data.hide_phrase(sentence, phrase, mask_token="[M]").count("[M]") == masks


def test_hide_phrase():
    sentence = "New York is not the new york of state-of-the-art songs."
    first, second = (
        data.hide_phrase(sentence, phrase, mask_token=r"\1") for phrase in data.locate_phrases(sentence)
    )
    assert first == r"\1 \1 is not the \1 \1 of state-of-the-art songs."
    assert second == r"New York is not the new york of \1 \1."
    overlapping = data.Phrase("b b", 1.0, ((2, 5), (4, 7), (4, 5)))
    assert data.hide_phrase("a b b b c", overlapping, mask_token="M") == "a M M M c"


class TestWords:
    def test_stop_words_are_words(self):
        assert all(phrases.WORD.fullmatch(word) and word == word.lower() for word in data.ENGLISH_STOP_WORDS)
        assert phrases.stop_word_share(["The cat is on the mat.", "Nein"]) == 4 / 7
        assert phrases.stop_word_share([]) == 0

    @pytest.mark.parametrize("emoji", ["❤️", "⚠️", "✌️", "👩‍⚕️", "👍🏽"])
    def test_an_emoji_is_not_a_word(self, emoji):
        # Nor is the selector behind it, which has no width.
        ranked = rank(f"I love {emoji} Paris in spring")
        assert sorted(phrase for phrase, _ in ranked) == ["Paris", "love", "spring"]

    @pytest.mark.parametrize(
        "word",
        [
            "1️⃣",
            "葛\U000e0100飾区",
            "\U0001e900\U0001e945\U0001e922",
            "o‘zbek",
            "col·lecció",
            "צה״ל",
            "র\u200d\u09cdযাব",
        ]
        + [f"inter{sign}national" for sign in "\u00ad\u200c\u200d"],
    )
    def test_a_word_is_not_cut(self, word):
        assert phrases.WORD.findall(f"x {word} y") == ["x", word, "y"]

    def test_the_ascii_pattern_finds_the_same_words(self):
        rng = random.Random(0)
        for text in ("".join(rng.choices("aB1_-'., \t\n@", k=12)) for _ in range(3000)):
            assert phrases.ASCII_WORD.findall(text) == phrases.WORD.findall(text), text
