import multiprocessing
import pickle
import random
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
from datasets.fingerprint import Hasher
from encoders import project_text

from sbert_plugins import data
from sbert_plugins.data import phrases
from sbert_plugins.data.synonyms import open_wordnet, wordnet_digest

SENTENCE = "The small car stops near a big house, and the DOG barks at Robert."


@pytest.fixture
def replacer(wordnet):
    return data.SynonymReplacer()


def words(text):
    return phrases.WORD.findall(text)


def replaced(replacer, seed, sentence=SENTENCE, **keywords):
    return replacer(sentence, random.Random(seed), **keywords)


class TestSynonyms:
    def test_synonyms_of_all_senses(self, replacer):
        assert {"auto", "automobile", "railway car", "cable car"} <= set(replacer.synonyms("car"))
        assert list(replacer.synonyms("car")) == sorted(replacer.synonyms("car"))

    def test_never_the_word_itself(self, replacer):
        for word in ("car", "dogs", "stops", "bigger", "Houses"):
            assert replacer.synonyms(word)
            assert not {word.lower(), "dog", "stop", "house"} & {name.lower() for name in replacer.synonyms(word)}

    @pytest.mark.parametrize("word", ["the", "don't", "xqzzy", "a", "3.5", "你好"])
    def test_words_without(self, replacer, word):
        assert replacer.synonyms(word) == ()


class TestReplacement:
    def test_by_seed(self, replacer):
        assert replaced(replacer, 0) == replaced(replacer, 0)
        assert len({replaced(replacer, seed) for seed in range(10)}) > 5

    def test_stop_words_of_ones_own(self, replacer):
        """In any case, as Rake's; the letters of one string would be the words."""
        for stop_words in (["Dog"], ["dog"]):
            assert data.SynonymReplacer(1.0, stop_words=stop_words).synonyms("DOG") == ()
        with pytest.raises(ValueError, match="stop_words must be a list of words, got the string 'dog'"):
            data.SynonymReplacer(1.0, stop_words="dog")

    def test_stop_words_punctuation_and_unknown_names_stay(self, replacer):
        for seed in range(20):
            result = replaced(replacer, seed, "The xqzzy is near the dog, and not the cat!")
            assert result.startswith("The xqzzy is near the ")
            assert ", and not the " in result
            assert result.endswith("!")

    def test_capitals(self, replacer):
        for seed in range(20):
            result = replaced(replacer, seed, "Dogs of the DOG")
            first, last = result.split(" of the ")
            assert first[0].isupper()
            assert last.isupper()

    @pytest.mark.parametrize(("ratio", "count"), [(0.01, 1), (0.25, 2), (0.5, 4), (1.0, 6)])
    def test_share(self, wordnet, ratio, count):
        """Of 8 words, 6 of which have a synonym; at least one."""
        replacer = data.SynonymReplacer(ratio)
        replacer.synonyms = lambda word: () if word in ("the", "near") else ("new",)
        for seed in range(5):
            result = replaced(replacer, seed, "the big dogs quickly eat cars near houses")
            assert result.split().count("new") == count

    def test_the_mask_is_no_word(self, replacer):
        for token in ("[MASK]", "<mask>"):
            sentence = f"The {token} {token} mask stops near a big house."
            for seed in range(20):
                result = replaced(replacer, seed, sentence, keep=token)
                assert result.startswith(f"The {token} {token} ")

    @pytest.mark.parametrize("sentence", ["", " ", "the of", "😀", "你好世界", "x " * 5_000])
    def test_nothing_to_replace(self, replacer, sentence):
        assert replaced(replacer, 0, sentence) == sentence


@pytest.mark.slow
def test_a_forked_process_shares_the_index_and_opens_its_own_files(replacer):
    """An open WordNet file shared over a fork has one reading position for both processes."""
    replacer.synonyms("warm")
    reader, context = open_wordnet(), multiprocessing.get_context("fork")
    file = reader._data_file("n")

    def seen() -> tuple:
        return replacer.synonyms("car"), open_wordnet() is reader, reader._data_file("n") is file

    queue = context.Queue()
    child = context.Process(target=lambda: queue.put(seen()))
    child.start()
    assert queue.get(timeout=120) == (replacer.synonyms("car"), True, False)
    child.join()
    assert seen()[1:] == (True, True)


@pytest.mark.slow
def test_many_threads(replacer, monkeypatch, often_switched):
    words = sorted({word for text in project_text()[:200] for word in phrases.WORD.findall(text)})
    monkeypatch.setattr("sbert_plugins.data.synonyms._opened", {})
    new = data.SynonymReplacer()
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(new.synonyms, words)) == list(map(replacer.synonyms, words))


def test_a_zip_is_read_once(wordnet, tmp_path, monkeypatch):
    """NLTK's downloader may leave one, and makes a new pointer into it each time."""
    shutil.make_archive(str(tmp_path / "corpora" / "wordnet"), "zip", wordnet / "corpora", "wordnet")
    monkeypatch.setattr("nltk.data.path", [str(tmp_path)])
    assert open_wordnet() is open_wordnet()
    assert "automobile" in data.SynonymReplacer().synonyms("car")


def test_a_wordnet_is_known_by_what_it_holds(wordnet, tmp_path, monkeypatch):
    """In a folder, in a zip, and with a word more; what is missing is no matter here."""
    here = wordnet_digest()
    shutil.make_archive(str(tmp_path / "zip" / "corpora" / "wordnet"), "zip", wordnet / "corpora", "wordnet")
    monkeypatch.setattr("nltk.data.path", [str(tmp_path / "zip")])
    assert wordnet_digest() == here
    other = tmp_path / "other" / "corpora" / "wordnet"
    other.mkdir(parents=True)
    (other / "data.noun").write_bytes(b"00001740 03 n 01 entity")
    monkeypatch.setattr("nltk.data.path", [str(tmp_path / "other")])
    assert wordnet_digest() != here
    assert Hasher.hash(data.SynonymReplacer()) != Hasher.hash(data.SynonymReplacer(0.3))


def test_equal_settings_have_one_fingerprint(replacer):
    fingerprint = Hasher.hash(replacer)
    replaced(replacer, 0)
    assert Hasher.hash(replacer) == fingerprint == Hasher.hash(pickle.loads(pickle.dumps(replacer)))
    assert Hasher.hash(data.SynonymReplacer(0.3)) != fingerprint


class Shouting(data.SynonymReplacer):
    def _look_up(self, word):
        return (word.upper(),)


def test_a_subclass_stays_one(wordnet):
    replacer = Shouting()
    replacer.note = "mine"
    copy = pickle.loads(pickle.dumps(replacer))
    assert copy.synonyms("the") == ("THE",)
    assert copy.note == "mine"
    assert isinstance(copy.stop_words, frozenset)
    assert Hasher.hash(copy) == Hasher.hash(replacer) != Hasher.hash(data.SynonymReplacer())


@pytest.mark.parametrize("ratio", [0, -0.1, 1.5])
def test_bad_ratio(ratio):
    with pytest.raises(ValueError, match=rf"ratio must be in \(0, 1\], got {ratio}"):
        data.SynonymReplacer(ratio)


def test_missing_wordnet(monkeypatch):
    monkeypatch.setattr("nltk.data.path", [])
    with pytest.raises(FileNotFoundError, match=r"nltk.download\('wordnet'\), or set NLTK_DATA"):
        data.SynonymReplacer()


def test_a_word_to_keep_is_kept(wordnet):
    assert data.SynonymReplacer(1.0)("big", random.Random(0), keep="big") == "big"
