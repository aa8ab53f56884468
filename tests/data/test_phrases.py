import multiprocessing
import os
import pickle
import random
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import rake_nltk
import reference
from datasets.fingerprint import Hasher
from encoders import SENTENCES, project_text

from sbert_plugins import data
from sbert_plugins.data import phrases

# Worked out on paper. A word that stands in one phrase of n words scores n, so that such a phrase scores n * n.
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
    "A long brown river, a wide river and a river.": [("long brown river", 8), ("wide river", 4), ("river", 2)],
    # a phrase that stands twice is one phrase; new: degree 4, frequency 2
    "New York is not the New York of old songs.": [("New York", 4), ("old songs", 4)],
    # within a phrase the word meets itself: degree 3 * 3 = 9 for knock, frequency 3
    "Knock knock knock at the door.": [("Knock knock knock", 9), ("door", 1)],
    # punctuation of any kind ends a phrase
    "Apples, pears; plums: figs!": [("Apples", 1), ("pears", 1), ("plums", 1), ("figs", 1)],
    "He said “good morning” (very softly).": [("good morning", 4), ("said", 1), ("softly", 1)],
    "Wind – rain … snow": [("Wind", 1), ("rain", 1), ("snow", 1)],
    # hyphens, apostrophes and decimal points do not
    "A state-of-the-art engine is Mary's.": [("state-of-the-art engine", 4), ("Mary's", 1)],
    "It costs 1,250.50 dollars or 3.5 more.": [("costs 1,250.50 dollars", 9), ("3.5", 1)],
    "We don’t know and they didn't ask.": [("know", 1), ("ask", 1)],
    "THE BIG RED BUS of the big city": [("BIG RED BUS", 8.5), ("big city", 4.5)],  # big: (3 + 2) / 2
    "3 red balls and 3 blue balls": [("3 red balls", 9), ("3 blue balls", 9)],  # 3 and balls: (3 + 3) / 2
    "snow_white of the seven dwarfs": [("seven dwarfs", 4), ("snow_white", 1)],
    "Größe und Übermut of the Straße": [("Größe und Übermut", 9), ("Straße", 1)],
}


@pytest.mark.parametrize("sentence", BY_HAND)
def test_by_hand(sentence):
    assert data.rank_phrases(sentence) == BY_HAND[sentence]


def test_twenty_by_hand():
    assert len(BY_HAND) == 20


def test_the_example_of_rakes_authors():
    """Rose et al. 2010, figures 1.2 to 1.4: the candidates of their abstract and the scores that they print."""
    candidates = (
        "Compatibility; systems; linear constraints; set; natural numbers. Criteria; compatibility; system; linear "
        "Diophantine equations; strict inequations; nonstrict inequations. Upper bounds; components; minimal set; solutions; "
        "algorithms; minimal generating sets; solutions; systems. Criteria; corresponding algorithms; constructing; minimal "
        "supporting set; solving; systems; systems."
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
    ranked = data.rank_phrases(candidates)
    assert {phrase: round(score, 1) for phrase, score in ranked[:10]} == expected
    assert [score for _, score in ranked] == sorted((score for _, score in ranked), reverse=True)
    assert dict(ranked)["set"] == 2
    assert dict(ranked)["algorithms"] == 1.5


class TestRake:
    def test_scores_are_the_references(self):
        rake = data.Rake()
        for sentence in project_text()[:300]:
            found = rake(sentence)
            runs = [[word.lower() for word in phrases.WORD.findall(sentence[start:end])] for start, end, _ in found]
            assert [score for _, _, score in found] == pytest.approx(reference.rake_scores(runs))

    def test_scores_are_rake_nltks(self):
        """The stock class with our stop words, where its tokens are ours: no hyphen, apostrophe or number with a sign."""
        checked = 0
        for sentence in project_text():
            if not sentence.isascii() or any(sign in sentence for sign in "-'_") or any(map(str.isdigit, sentence)):
                continue
            stock = rake_nltk.Rake(stopwords=set(data.ENGLISH_STOP_WORDS), sentence_tokenizer=lambda text: [text])
            stock.extract_keywords_from_text(sentence)
            # The stock class takes a run of signs for one word ('").'); here each sign stands alone.
            if any(not word.isalnum() for _, phrase in stock.rank_list for word in phrase.split()):
                continue
            expected = {phrase: score for score, phrase in stock.get_ranked_phrases_with_scores()}
            ours = {phrase.text.lower(): phrase.score for phrase in data.locate_phrases(sentence)}
            if len(ours) == len(expected):  # a phrase that is all of the sentence is none here
                assert ours == pytest.approx(expected)
                checked += 1
        assert checked > 500

    def test_many_threads(self, often_switched):
        sentences = ["The cat sleeps." if i % 2 else "A cat sleeps and dreams of a cat." for i in range(12_000)]
        expected = [len(data.rank_phrases(sentence)) for sentence in sentences[:2]] * 6_000
        with ThreadPoolExecutor(8) as threads:
            assert [len(found) for found in threads.map(data.rank_phrases, sentences)] == expected

    def test_no_data_are_needed(self, monkeypatch):
        monkeypatch.setattr("nltk.data.path", [])
        assert data.Rake()("A dog runs.")

    def test_other_languages_by_their_stop_words(self):
        german = data.Rake(["der", "die", "das", "und", "über", "den"])
        ranked = data.rank_phrases("Der alte Hund und die Katze springen über den Zaun.", extractor=german)
        assert ranked == [("alte Hund", 4), ("Katze springen", 4), ("Zaun", 1)]
        hindi = data.Rake(["और", "की"])
        assert data.rank_phrases("राम और श्याम की बड़ी किताब", extractor=hindi) == [("बड़ी किताब", 4), ("राम", 1), ("श्याम", 1)]

    def test_accents_as_marks_of_their_own(self):
        decomposed = "The cafe\u0301 owner of the town"
        assert data.rank_phrases(decomposed)[0] == ("cafe\u0301 owner", 4)

    @pytest.mark.parametrize(
        ("listed", "written"),
        [("für", "fu\u0308r"), ("fu\u0308r", "für"), ("için", "İçin"), ("dün", "DÜN"), ("it's", "it’s")],
    )
    def test_a_stop_word_in_any_spelling(self, listed, written):
        ranked = data.rank_phrases(f"eins {written} zwei und drei vier", extractor=data.Rake([listed, "und"]))
        assert sorted(phrase for phrase, _ in ranked) == ["drei vier", "eins", "zwei"]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"stop_words": "the of"}, "stop_words must be a collection of words, got the string 'the of'"),
            ({"max_words": 0}, "max_words must be at least 1, got 0"),
        ],
    )
    def test_bad_values(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            data.Rake(**arguments)

    def test_an_empty_stop_list_is_one(self):
        assert data.rank_phrases("the cat, of course", extractor=data.Rake([])) == [("the cat", 4), ("of course", 4)]


_NO_PHRASE = ["", " ", "hello", "Hello!", "the of and", "It is not.", "😀😀 😀", "...?!", "你好世界", "สวัสดีชาวโลก", "___"]
_NO_PHRASE += ["\x00", "\ud800", "word " * 10_000, "Katze " * 21, "dogs, dogs", "\u200b\u200d", "a" * 100_000]


@pytest.mark.parametrize(
    "sentence",
    _NO_PHRASE,
    ids=lambda sentence: repr(sentence[:8]),
)
def test_no_phrase(sentence):
    """Nothing that could be hidden, or nothing that would be left."""
    assert data.rank_phrases(sentence) == []


@pytest.mark.parametrize(
    "sentence",
    [
        "He has 😀 a very good dog 😀.",
        "İstanbul of the ŞEHİR",  # lower case is longer than the word
        "inter\u00adnational of the law",  # a soft hyphen
        "the cat " * 5_000,
        "a\tb\nc d\u2028e the end\u00a0here",
        "((((" * 1_000 + "x and y" + "))))" * 1_000,
        "ﬁne ligatures and Ⅷ numbers",
    ],
    ids=lambda sentence: repr(sentence[:8]),
)
def test_hostile_sentences(sentence):
    start = time.process_time()
    located = data.locate_phrases(sentence)
    assert located
    for phrase in located:
        assert all(sentence[begin:end].lower() == phrase.text.lower() for begin, end in phrase.spans)
        hidden = data.hide_phrase(sentence, phrase, mask_token="[MASK]")
        assert "[MASK]" in hidden
    assert time.process_time() - start < 20


def test_ten_thousand_words_take_linear_time():
    """rake-nltk's graph of one phrase of 10,000 words would have 100 million edges."""
    words = " ".join(f"word{i}" for i in range(10_000))
    assert data.rank_phrases(words) == []
    long = data.Rake(max_words=10_000)
    start = time.process_time()
    assert data.rank_phrases(f"{words} of the end", extractor=long)[0][1] == 10_000**2
    assert time.process_time() - start < 5


def test_spans_are_in_the_sentence():
    for sentence in project_text():
        for phrase in data.locate_phrases(sentence):
            assert phrase.text in sentence
            assert [sentence[start:end].lower() for start, end in phrase.spans] == [phrase.text.lower()] * len(phrase.spans)


def test_hide_phrase():
    sentence = "New York is not the new york of state-of-the-art songs."
    first, second = data.locate_phrases(sentence)
    assert data.hide_phrase(sentence, first, mask_token="<mask>") == (
        "<mask> <mask> is not the <mask> <mask> of state-of-the-art songs."
    )
    assert second.text == "state-of-the-art songs"
    assert data.hide_phrase(sentence, second, mask_token="[MASK]").endswith("of [MASK] [MASK].")
    assert data.hide_phrase(sentence, second, mask_token=r"\1").endswith(r"of \1 \1.")


class TestLongSentences:
    """What is looked at grows with the sentence, not with its square: measured by what a copy would cost, not by a clock."""

    def test_no_copy_a_phrase(self):
        class Counting(str):
            __slots__ = ()
            copied = 0

            def __getitem__(self, place):
                piece = str.__getitem__(self, place)
                Counting.copied += len(piece)
                return piece

        sentence = Counting(" ".join(f"w{i} x{i}, the" for i in range(2000)))
        phrases_found = data.locate_phrases(sentence)
        assert len(phrases_found) == 2000
        assert Counting.copied < 10 * len(sentence)

    def test_a_phrase_in_many_places(self):
        sentence = "a cat, the " * 500 + "house"
        phrase = next(phrase for phrase in data.locate_phrases(sentence) if phrase.text == "cat")
        assert data.hide_phrase(sentence, phrase, mask_token="[M]") == sentence.replace("cat", "[M]")

    def test_spans_that_overlap(self):
        phrase = data.Phrase("b b", 1.0, ((2, 5), (4, 7)))
        assert data.hide_phrase("a b b b c", phrase, mask_token="M") == "a M M M c"


@pytest.mark.parametrize("sentence", [None, 5, b"x"])
def test_a_sentence_is_a_string(sentence):
    with pytest.raises(ValueError, match="a sentence must be a string, got"):
        data.rank_phrases(sentence)


class FirstWord(data.Rake):
    def __call__(self, sentence):
        return [(0, len(sentence.split()[0]), 1.0)]


class OtherChunks(data.Chunks):
    def __init__(self):
        super().__init__(["NP"])


class TestExtractors:
    def test_a_callable(self):
        def capitals(sentence):
            return [
                (match.start(), match.end(), len(match[0]))
                for match in phrases.WORD.finditer(sentence)
                if match[0][0].isupper()
            ]

        assert data.rank_phrases("Ann met Robert in Oslo.", extractor=capitals) == [("Robert", 6), ("Oslo", 4), ("Ann", 3)]

    @pytest.mark.parametrize("span", [(0, 99), (3, 3), (-1, 2), (5, 2)])
    def test_spans_outside(self, span):
        with pytest.raises(ValueError, match=rf"spans inside the sentence \(0 to 8\), got {span[0]} to {span[1]}"):
            data.rank_phrases("Ann met.", extractor=lambda _: [(*span, 1.0)])

    @pytest.mark.parametrize("given", [[(0, 3)], None, ["Ann"], [(0, 3, 1.0), (None, 3, 1.0)]], ids=repr)
    def test_no_spans(self, given):
        with pytest.raises(ValueError, match=r"extractor must give \(start, end, score\) of each phrase: .*; got "):
            data.rank_phrases("Ann met.", extractor=lambda _: given)

    def test_unknown(self):
        with pytest.raises(ValueError, match="extractor must be one of 'rake', 'chunks' or a callable, got 'yake'"):
            data.rank_phrases("A dog.", extractor="yake")

    @pytest.mark.parametrize("extractor", [data.Rake(["b", "a"]), data.Chunks(["NP"])])
    def test_equal_settings_have_one_fingerprint(self, extractor, request):
        copy = pickle.loads(pickle.dumps(extractor))
        assert Hasher.hash(copy) == Hasher.hash(extractor)

    def test_one_fingerprint_in_all_processes(self):
        code = "from datasets.fingerprint import Hasher; from sbert_plugins import data; print(Hasher.hash(data.Rake()))"
        found = {
            subprocess.run(
                [sys.executable, "-c", code],
                env={**os.environ, "PYTHONHASHSEED": seed},
                check=True,
                capture_output=True,
                text=True,
            ).stdout
            for seed in ("1", "2")
        }
        assert len(found) == 1

    @pytest.mark.parametrize(("kind", "base"), [(FirstWord, data.Rake), (OtherChunks, data.Chunks)])
    def test_a_subclass_stays_one(self, kind, base):
        """Workers get a copy, and the cache of datasets knows an extractor by what is pickled."""
        extractor = kind()
        extractor.shortest = 5
        copy = pickle.loads(pickle.dumps(extractor))
        assert type(copy) is kind
        assert copy.shortest == 5
        assert Hasher.hash(copy) == Hasher.hash(extractor) != Hasher.hash(kind())
        assert Hasher.hash(kind()) != Hasher.hash(base())


class TestChunks:
    def test_noun_and_verb_phrases(self, nltk_data):
        ranked = data.rank_phrases("The old man told the visitors a story.", extractor="chunks")
        assert ranked[0] == ("The old man", 1.0)
        assert {"told the visitors a story", "the visitors", "a story"} & dict(ranked).keys()
        assert {score for _, score in ranked} == {1.0}

    def test_kinds(self, nltk_data):
        sentence = "She quickly ate two red apples in the garden."
        nouns = dict(data.rank_phrases(sentence, extractor=data.Chunks(["NP"])))
        verbs = dict(data.rank_phrases(sentence, extractor=data.Chunks(["VP"])))
        assert set(nouns) == {"two red apples", "the garden"}
        assert any("ate two red apples" in phrase for phrase in verbs)

    @pytest.mark.parametrize("sentence", ["", " ", "hello", "😀 !!", "你好世界", "the of and", "word " * 3_000, *SENTENCES])
    def test_hostile_sentences(self, nltk_data, sentence):
        for phrase, _ in data.rank_phrases(sentence, extractor="chunks"):
            assert phrase in sentence

    def test_other_data_of_the_tagger_make_other_rows(self, nltk_data, monkeypatch, tmp_path):
        place = "taggers/averaged_perceptron_tagger_eng"
        shutil.copytree(nltk_data / place, tmp_path / place)
        before = Hasher.hash(data.Chunks())
        monkeypatch.setattr("nltk.data.path", [str(tmp_path)])
        assert Hasher.hash(data.Chunks()) == before != Hasher.hash(data.Chunks(["NP"]))
        (tmp_path / place / "averaged_perceptron_tagger_eng.classes.json").write_text("[]")
        assert Hasher.hash(data.Chunks()) != before

    def test_missing_data(self, monkeypatch):
        monkeypatch.setattr("nltk.data.path", [])
        with pytest.raises(FileNotFoundError, match=r"nltk.download\('averaged_perceptron_tagger_eng'\), or set NLTK_DATA"):
            data.Chunks()("A dog runs.")

    @pytest.mark.parametrize("kinds", [[], ["PP"], "NP"])
    def test_bad_kinds(self, kinds):
        with pytest.raises(ValueError, match="kinds must be a selection of 'NP' and 'VP'"):
            data.Chunks(kinds)


@pytest.mark.parametrize(
    ("sentence", "places"),
    [
        ("We love the New  York pizza, and the New York pizza is cheap.", 2),
        ("The quick fox\njumped over the quick fox jumped", 2),
        ("The caf\u00e9 owner is the cafe\u0301 owner of it", 2),
    ],
)
def test_one_phrase_however_it_is_written(sentence, places):
    """Else its copy would hold the words that it hides."""
    best = phrases.locate_phrases(sentence)[0]
    assert len(best.spans) == places
    assert len({phrase for phrase, _ in data.rank_phrases(sentence)}) == len(phrases.locate_phrases(sentence))


def test_stop_words_are_words():
    assert all(phrases.WORD.fullmatch(word) and word == word.lower() for word in data.ENGLISH_STOP_WORDS)
    assert 200 < len(data.ENGLISH_STOP_WORDS) < 400


def test_they_cover_most_of_nltks(data_dir):
    theirs = (data_dir / "nltk_data" / "corpora" / "stopwords" / "english").read_text(encoding="utf-8").split()
    whole = [word for word in theirs if f"{word}'t" not in theirs]  # "couldn" is a piece of "couldn't"
    assert np.mean([word in data.ENGLISH_STOP_WORDS for word in whole]) > 0.95


@pytest.mark.parametrize("emoji", ["❤️", "⚠️", "✌️", "👩‍⚕️", "👍🏽"])
def test_an_emoji_is_no_word(emoji):
    """Nor is the selector behind it, which has no width: a phrase of nothing was hidden and scored."""
    sentence = f"I love {emoji} Paris in spring"
    assert sorted(phrase for phrase, _ in data.rank_phrases(sentence)) == ["Paris", "love", "spring"]
    assert data.swap_words(f"ok {emoji} stop", 0.5, random.Random(0)) == f"stop {emoji} ok"


@pytest.mark.parametrize(
    "word", ["1️⃣", "葛\U000e0100飾区", "\U0001e900\U0001e945\U0001e922", "o‘zbek", "col·lecció", "צה״ל", "র\u200d\u09cdযাব"]
)
def test_a_word_is_whole(word):
    """With a sign behind its digit, a selector of its writing, marks beyond the first plane, signs inside."""
    assert phrases.WORD.findall(f"x {word} y") == ["x", word, "y"]


def test_the_share_of_english_stop_words():
    assert phrases.stop_word_share(["The cat is on the mat.", "Nein"]) == 4 / 7
    assert phrases.stop_word_share([]) == phrases.stop_word_share(["", "..."]) == 0


@pytest.mark.parametrize("sign", ["\u00ad", "\u200c", "\u200d"], ids=["soft hyphen", "non-joiner", "joiner"])
def test_signs_without_width_join_a_word(sign):
    phrases = [phrase for phrase, _ in data.rank_phrases(f"The inter{sign}national law of the sea.")]
    assert phrases == [f"inter{sign}national law", "sea"]


def test_words_of_ascii_text_are_those_of_any_text():
    alphabet = "aB1_-'., \t\n@"
    rng = random.Random(0)
    for text in ("".join(rng.choices(alphabet, k=12)) for _ in range(3000)):
        assert phrases.ASCII_WORD.findall(text) == phrases.WORD.findall(text), text


def test_a_repeated_phrase_has_its_highest_score():
    found = data.rank_phrases("The cat saw a cat.", extractor=lambda sentence: [(4, 7, 1.0), (14, 17, 2.0)])
    assert found == [("cat", 2.0)]


def test_a_blank_to_fill_in_is_no_phrase():
    assert data.rank_phrases("The ____ of the old form") == [("old form", 4.0)]


def test_a_place_inside_of_another_is_hidden_once():
    phrase = data.Phrase("cat", 1.0, ((0, 5), (1, 4)))
    assert phrases.hide_phrase(" cat sat", phrase, mask_token="[M]") == " [M] sat"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="of forks")
def test_a_fork_waits_for_the_scorer_of_another_thread():
    """A child would wait for ever for a thread that it has not."""
    began, children = threading.Event(), []

    def score() -> None:
        with phrases.ONE_THREAD:
            began.set()
            time.sleep(0.5)

    thread = threading.Thread(target=score)
    thread.start()
    began.wait()
    child = multiprocessing.get_context("fork").Process(target=data.rank_phrases, args=("A dog sees the cat.",))
    child.start()
    child.join(timeout=60)
    children.append(child.exitcode)
    child.kill()
    thread.join()
    assert children == [0]
