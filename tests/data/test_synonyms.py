import functools
import pickle
import random
import re
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
from datasets.fingerprint import Hasher
from encoders import project_text

from sbert_plugins import data
from sbert_plugins.data import synonyms
from sbert_plugins.data.phrases import WORD

SENTENCE = "The small car stops near a big house, and the DOG barks at Robert."


@pytest.fixture
def replacer(wordnet):
    return data.SynonymReplacer()


@pytest.fixture
def unread(monkeypatch):
    """WordNet is read anew."""
    for name in ("open_wordnet", "_look_up"):
        monkeypatch.setattr(synonyms, name, functools.cache(getattr(synonyms, name).__wrapped__))


def replaced(replacer, seed, sentence=SENTENCE, **keywords):
    return replacer(sentence, random.Random(seed), **keywords)


class TestSynonyms:
    def test_synonyms_of_all_senses(self, replacer):
        assert {"auto", "automobile", "railway car", "cable car"} <= set(replacer.synonyms("car"))
        assert list(replacer.synonyms("car")) == sorted(replacer.synonyms("car"))

    def test_never_the_word_itself(self, replacer):
        for word in ("car", "dogs", "stops", "bigger", "Houses"):
            assert replacer.synonyms(word)
            assert not {word.lower(), "dog", "stop", "house"} & {
                name.lower() for name in replacer.synonyms(word)
            }

    @pytest.mark.parametrize("word", ["the", "don't", "xqzzy", "a", "3.5", "你好"])
    def test_words_without(self, replacer, word):
        assert replacer.synonyms(word) == ()

    @pytest.mark.parametrize("stop_word", ["Dog", "dog"])
    def test_own_stop_words(self, wordnet, stop_word):
        assert data.SynonymReplacer(stop_words=[stop_word]).synonyms("DOG") == ()

    def test_from_a_zip(self, wordnet, unread, tmp_path, monkeypatch):
        # NLTK's downloader leaves one.
        shutil.make_archive(str(tmp_path / "corpora" / "wordnet"), "zip", wordnet / "corpora", "wordnet")
        monkeypatch.setattr("nltk.data.path", [str(tmp_path)])
        assert "automobile" in data.SynonymReplacer().synonyms("car")


class TestReplacement:
    def test_by_seed(self, replacer):
        assert replaced(replacer, 0) == replaced(replacer, 0)
        assert len({replaced(replacer, seed) for seed in range(10)}) > 5

    def test_stop_words_punctuation_unknown_names_and_capitals_stay(self, replacer):
        for seed in range(20):
            result = replaced(replacer, seed, "The xqzzy is near the Dog, and not the CAT!")
            kept = re.fullmatch("The xqzzy is near the (.+), and not the (.+)!", result)
            assert kept[1][0].isupper()
            assert kept[2].isupper()

    @pytest.mark.parametrize(("ratio", "count"), [(0.01, 1), (0.25, 2), (0.5, 4), (1.0, 6)])
    def test_share(self, wordnet, ratio, count):
        # Of 8 words, 6 of which have a synonym; at least one.
        replacer = data.SynonymReplacer(ratio)
        replacer.synonyms = lambda word: () if word in ("the", "near") else ("new",)
        for seed in range(5):
            result = replaced(replacer, seed, "the big dogs quickly eat cars near houses")
            assert result.split().count("new") == count

    @pytest.mark.parametrize("token", ["[MASK]", "<mask>", "big"])
    def test_the_mask_stays(self, wordnet, token):
        replacer, sentence = data.SynonymReplacer(1.0), f"The {token} {token} mask stops near a house."
        for seed in range(20):
            assert replaced(replacer, seed, sentence, keep=token).startswith(f"The {token} {token} ")

    @pytest.mark.parametrize("sentence", ["", " ", "the of", "😀", "你好世界", "x " * 5_000])
    def test_nothing_to_replace(self, replacer, sentence):
        assert replaced(replacer, 0, sentence) == sentence

    @pytest.mark.parametrize("ratio", [0, 1.5])
    def test_bad_ratio(self, ratio):
        with pytest.raises(ValueError, match=r"\(0, 1\]"):
            data.SynonymReplacer(ratio)


def test_a_used_replacer_has_the_same_hash(replacer):
    fingerprint = Hasher.hash(replacer)
    replaced(replacer, 0)
    assert Hasher.hash(replacer) == fingerprint == Hasher.hash(pickle.loads(pickle.dumps(replacer)))
    assert Hasher.hash(data.SynonymReplacer(0.3)) != fingerprint


@pytest.mark.slow
def test_many_threads(replacer, unread, often_switched):
    words = sorted({word for text in project_text()[:200] for word in WORD.findall(text)})
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(replacer.synonyms, words))
    synonyms._look_up.cache_clear()
    assert found == list(map(data.SynonymReplacer().synonyms, words))


class TestIfInstalled:
    GERMAN = ["Der alte Mann hat das Boot am Hafen gesehen.", "Das Boot war alt, und er ging mit dem Hund."]  # noqa: RUF012
    HEADLINES = ["Market falls on the news", "Senate passes tax bill", "Storm hits coast, thousands flee"]  # noqa: RUF012

    @pytest.mark.parametrize("sentences", [project_text()[:50], HEADLINES * 20, [], GERMAN])
    def test_english_and_short_text(self, wordnet, sentences):
        assert data.synonyms_if_installed(sentences) == 0.5

    def test_other_languages_have_none(self, wordnet, caplog):
        # WordNet takes "war" and "mit" for English words.
        assert data.synonyms_if_installed(self.GERMAN * 20) is None
        assert "5.3%" in caplog.text

    def test_without_wordnet(self, monkeypatch, caplog):
        monkeypatch.setattr("nltk.data.path", [])
        assert data.synonyms_if_installed(project_text()[:50]) is None
        assert "nltk.download('wordnet')" in caplog.text
        with pytest.raises(FileNotFoundError, match="NLTK_DATA"):
            data.SynonymReplacer()
