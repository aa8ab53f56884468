import functools
import importlib
import os
import re
import ssl
import subprocess
import sys
import xmlrpc.client

import datasets
import pandas
import pytest
from datasets import Dataset
from encoders import project_text

from sbert_plugins import data
from sbert_plugins.data.cache import code_of

MASK = "[MASK]"


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return tmp_path / "cache" / "sbert_plugins"


def columns(sentences, **keywords):
    return data.paser_columns(sentences, **{"mask_token": MASK, "synonyms": None, **keywords})


class FirstWord(data.Rake):
    def __call__(self, sentence):
        return [(0, len(sentence.split()[0]), 1.0)]


class TestRows:
    def test_one_row_for_each_sentence_and_phrase(self):
        rows = columns(["The old man met two young dogs near the sea.", "It is so.", "Prices fell."], top_k=2)
        assert (
            rows.to_dict()
            == {
                "anchor": ["The old man met two young dogs near the sea."],
                "masked": ["The [MASK] [MASK] [MASK] [MASK] [MASK] [MASK] near the sea."],
                "phrase": [" old man met two young dogs"],
            }
            or len(rows) == 2
        )
        assert rows.column_names == ["anchor", "masked", "phrase"]

    @pytest.mark.parametrize("top_k", [1, 2, 3, 10])
    def test_the_best_phrases(self, top_k):
        sentences = project_text()[:100]
        rows = columns(sentences, top_k=top_k)
        expected = [
            (sentence, data.hide_phrase(sentence, phrase, mask_token=MASK), space + sentence[start:end])
            for sentence in sentences
            for phrase in data.locate_phrases(sentence)[:top_k]
            for start, end in phrase.spans[:1]
            for space in [" " if sentence[:start].endswith(" ") else ""]
        ]
        assert list(zip(rows["anchor"], rows["masked"], rows["phrase"], strict=True)) == expected

    def test_one_mask_a_word(self):
        for row in columns(project_text()[:100]):
            assert row["masked"].count(MASK) % len(row["phrase"].split()) == 0

    def test_further_columns_are_carried(self):
        triplets = Dataset.from_dict(
            {"anchor": ["A dog runs to the sea.", "It is so."], "positive": ["p", "q"], "negative": ["n", "m"]}
        )
        rows = columns(triplets, top_k=1, keep_without_phrase=True)
        assert rows.column_names == ["anchor", "positive", "negative", "masked", "phrase"]
        assert rows[0] == {
            "anchor": "A dog runs to the sea.",
            "positive": "p",
            "negative": "n",
            "masked": "A [MASK] [MASK] to the sea.",
            "phrase": " dog runs",
        }
        assert rows[1] == {"anchor": "It is so.", "positive": "q", "negative": "m", "masked": "It is so.", "phrase": ""}

    @pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
    def test_the_tokens_of_a_phrase_are_those_that_it_has_in_the_sentence(self, tokenizers, kind):
        """A byte-level BPE has other tokens for a word that no space precedes."""
        rows = columns(project_text()[:200])
        ids = {name: tokenizers[kind](rows[name][:], add_special_tokens=False)["input_ids"] for name in ("anchor", "phrase")}
        parts = [
            any(anchor[i : i + len(phrase)] == phrase for i in range(len(anchor)))
            for anchor, phrase in zip(ids["anchor"], ids["phrase"], strict=True)
        ]
        assert len(parts) > 400
        assert all(parts)

    def test_the_space_is_nothing_to_sentencepiece(self, tokenizers):
        phrases = columns(project_text()[:200])["phrase"][:]
        bare = [phrase.strip() for phrase in phrases]
        assert bare != phrases
        assert tokenizers["unigram"](phrases)["input_ids"] == tokenizers["unigram"](bare)["input_ids"]

    def test_a_phrase_behind_a_sign_has_no_space(self):
        assert columns(["The (grey) boat."], top_k=1)["phrase"][:] == ["grey"]

    def test_a_mask_in_the_sentence_hides_nothing(self):
        rows = columns([f"The {MASK} sails to the old harbour.", "A dog runs to the sea."], keep_without_phrase=True)
        assert rows[0] == {name: f"The {MASK} sails to the old harbour." for name in ("anchor", "masked")} | {"phrase": ""}

    @pytest.mark.parametrize("make", [dict, datasets.DatasetDict], ids=["dict", "DatasetDict"])
    def test_keys_are_no_sentences(self, make):
        table = make(train=Dataset.from_dict({"anchor": ["A dog runs."]}))
        for read in (columns, data.back_translate, lambda rows: data.positive_pairs(rows, "deletion")):
            with pytest.raises(ValueError, match=f"got {make.__name__}: give one of its splits or columns"):
                read(table)

    def test_a_column_of_a_data_frame(self):
        frame = pandas.DataFrame({"text": ["A dog runs to the sea.", "It rains on the old harbour."]})
        assert set(columns(frame["text"])["anchor"]) == set(frame["text"])
        with pytest.raises(ValueError, match="got DataFrame: give one of its splits or columns"):
            columns(frame)

    def test_a_transform_is_applied_once(self):
        table = Dataset.from_dict({"anchor": ["A dog runs to the sea."]})
        rows = columns(table.with_transform(lambda batch: {"anchor": [f"query: {text}" for text in batch["anchor"]]}), top_k=1)
        assert rows[0] == {"anchor": "query: A dog runs to the sea.", "masked": "query: A [MASK] [MASK] to the sea.",
                           "phrase": " dog runs"}  # fmt: skip

    @pytest.mark.parametrize("kind", ["numpy", "arrow", "pandas"])
    def test_other_libraries_arrays(self, kind):
        table = Dataset.from_dict({"anchor": ["A dog runs to the sea."]})
        assert columns(table.with_format(kind))[:] == columns(table)[:]

    @pytest.mark.parametrize("name", ["text", "sentence"])
    def test_usual_names_of_the_column(self, name):
        sentence = "A dog runs to the sea."
        assert columns(Dataset.from_dict({name: [sentence]})).to_dict() == columns([sentence]).to_dict()

    def test_other_extractors(self):
        rows = columns(["Ann met Robert."], extractor=lambda sentence: [(0, 3, 1.0)])
        assert rows["masked"][:] == ["[MASK] met Robert."]


class TestAugmentation:
    def test_both_copies_after_masking_and_the_phrase_never(self, wordnet):
        plain, rows = columns(project_text()[:60]), columns(project_text()[:60], synonyms=0.5)
        assert rows["phrase"][:] == plain["phrase"][:]
        for before, after in zip(plain, rows, strict=True):
            assert after["masked"].count(MASK) == before["masked"].count(MASK)
        for column in ("anchor", "masked"):
            assert sum(a != b for a, b in zip(plain[column], rows[column], strict=True)) > 0.9 * len(rows)
        unmasked = [a == b.replace(MASK, "") for a, b in zip(rows["anchor"], rows["masked"], strict=True)]
        assert not any(unmasked)

    @pytest.mark.parametrize("noise", [{"deletion": 0.3}, {"swap": 0.3}, {"deletion": 0.2, "swap": 0.2}])
    def test_deletion_and_swap(self, noise):
        rows, plain = columns(project_text()[:40], **noise), columns(project_text()[:40])
        assert rows["phrase"][:] == plain["phrase"][:]
        assert rows["anchor"][:] != plain["anchor"][:]
        assert all(a.count(MASK) == b.count(MASK) for a, b in zip(rows["masked"], plain["masked"], strict=True))

    def test_a_callable_for_synonyms(self):
        rows = columns(
            ["A dog runs to the sea."], synonyms=lambda sentence, rng, *, keep: f"{sentence} {keep} {rng.random() < 2}"
        )
        assert rows["anchor"][:] == ["A dog runs to the sea. [MASK] True"] * len(rows)

    def test_missing_wordnet(self, monkeypatch):
        monkeypatch.setattr("nltk.data.path", [])
        with pytest.raises(FileNotFoundError, match="synonyms need WordNet"):
            data.paser_columns(["A dog runs to the sea."], mask_token=MASK, synonyms=0.5)

    def test_missing_wordnet_where_none_is_asked_for(self, monkeypatch, caplog):
        """As the README says: a warning tells what it costs."""
        monkeypatch.setattr("nltk.data.path", [])
        rows = data.paser_columns(["A dog runs to the sea."], mask_token=MASK)
        assert rows["anchor"][0] == "A dog runs to the sea."
        assert "WITHOUT synonyms, which cost the paper 4.8 points" in caplog.text
        assert "nltk.download('wordnet')" in caplog.text

    def test_synonyms_by_default(self, wordnet):
        default, given = (data.paser_columns(project_text()[:30], mask_token=MASK, **k) for k in ({}, {"synonyms": 0.5}))
        assert default.to_dict() == given.to_dict()

    def test_other_languages_have_none(self, wordnet, caplog):
        """WordNet takes "war" and "mit" for English words."""
        german = ["Der alte Mann hat das Boot am Hafen gesehen.", "Das Boot war alt, und er ging mit dem Hund."] * 20
        rows = data.paser_columns(german, mask_token=MASK)
        assert set(rows["anchor"]) <= set(german)
        assert "Only 5.3 % of the words are English stop words" in caplog.text
        assert "WITHOUT synonyms, which are English" in caplog.text
        assert data.synonyms_if_installed(german, warn=False) is None
        assert data.synonyms_if_installed(project_text()[:50]) == data.synonyms_if_installed() == 0.5
        headlines = ["Market falls on the news", "Senate passes tax bill", "Storm hits coast, thousands flee"] * 20  # 15 %
        assert data.synonyms_if_installed(headlines) == data.synonyms_if_installed(german[:10]) == 0.5
        given = data.paser_columns(german, mask_token=MASK, synonyms=0.5)  # who asks for them has them
        assert not set(given["anchor"]) <= set(german)


class TestReproducible:
    @pytest.mark.slow
    def test_by_seed_whatever_the_number_of_processes(self, wordnet, tmp_path, monkeypatch):
        results = []
        for number, (seed, num_proc) in enumerate([(0, None), (0, 2), (1, None)]):
            monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / str(number))  # no run sees another's
            rows = columns(project_text()[:50], synonyms=0.5, deletion=0.1, swap=0.1, seed=seed, num_proc=num_proc)
            results.append(rows.to_dict())
        assert results[0] == results[1]
        assert results[0]["anchor"] != results[2]["anchor"]

    def test_from_a_file_as_from_memory(self, tmp_path):
        sentences = project_text()[:50]
        path = tmp_path / "text.parquet"
        Dataset.from_dict({"anchor": sentences}).to_parquet(str(path))
        from_file = datasets.load_dataset("parquet", data_files=str(path), split="train", cache_dir=str(tmp_path))
        assert columns(from_file, deletion=0.2).to_dict() == columns(sentences, deletion=0.2).to_dict()

    @pytest.mark.parametrize("num_proc", [None, 2])
    def test_a_subclass_of_rake_is_not_taken_for_it(self, num_proc):
        sentences = project_text()[:20]
        columns(sentences, extractor=data.Rake(), num_proc=num_proc)
        rows = columns(sentences, extractor=FirstWord(), num_proc=num_proc)
        assert rows["phrase"] == [sentence.split()[0] for sentence in sentences]

    def test_made_once(self, cache):
        calls = tuple(columns(project_text()[:20], seed=seed) for seed in (0, 0, 1))
        assert len(list(cache.glob("*.arrow"))) == 2
        assert calls[0].cache_files == calls[1].cache_files != calls[2].cache_files

    def test_a_changed_module_makes_other_rows(self, cache, tmp_path, monkeypatch):
        """To ``datasets`` a function of a module is the same as long as its name is."""
        monkeypatch.syspath_prepend(str(tmp_path))
        for ending in ("one", "two"):
            (tmp_path / "my_synonyms.py").write_text(f"def replaced(text, rng, keep=''):\n    return text + ' {ending}'\n")
            importlib.invalidate_caches()
            sys.modules.pop("my_synonyms", None)
            monkeypatch.setattr(sys, "dont_write_bytecode", True)
            rows = columns(["A dog runs to the sea."], synonyms=importlib.import_module("my_synonyms").replaced)
            assert rows["anchor"][0].endswith(ending)

    @pytest.mark.parametrize(
        "synonyms",
        [
            "lambda text, rng, keep: my_words.replaced(text)",
            "lambda text, rng, keep: (lambda: replaced(text))()",
            "functools.partial(lambda how, text, rng, keep: how(text), replaced)",
            "Words().replace",
            "Words()",
            "kept(replaced)",
            "cached",
        ],
    )
    def test_a_changed_module_behind_a_script_makes_other_rows(self, cache, tmp_path, synonyms):
        """A function of ``__main__`` is known by its own lines, and calls those of another file."""
        script = tmp_path / "script.py"
        script.write_text(
            "import functools\n"
            "import my_words\n"
            "from my_words import ending, replaced\n"
            "class Words:\n"
            "    def replace(self, text, rng, keep):\n"
            "        return replaced(text)\n"
            "    __call__ = replace\n"
            "def kept(how):\n"
            "    return lambda text, rng, keep: how(text)\n"
            "@functools.wraps(replaced)\n"
            "def cached(text, rng, keep):\n"
            "    return replaced(text)\n"
            "from sbert_plugins import data\n"
            f"synonyms = {synonyms}\n"
            "rows = data.paser_columns(['A dog runs to the sea.'], mask_token='[MASK]', synonyms=synonyms)\n"
            "there = lambda texts: [text + ending() for text in texts]\n"
            "pairs = data.back_translate(['A dog runs.'], forward=there, backward=lambda texts: texts)\n"
            "assert rows['anchor'][0].endswith(ending()), rows['anchor'][0]\n"
            "assert pairs['paraphrase'][0].endswith(ending()), pairs['paraphrase'][0]\n"
        )
        environment = os.environ | {"HF_DATASETS_CACHE": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
        for ending in ("one", "two"):
            (tmp_path / "my_endings.py").write_text(f"def ending():\n    return ' {ending}'\n")
            (tmp_path / "my_words.py").write_text(
                "from my_endings import ending\ndef replaced(text):\n    return text + ending()\n"
            )
            subprocess.run([sys.executable, script], check=True, env=environment, cwd=tmp_path)


class TestCode:
    """What a callable's rows are known again by."""

    def test_objects_are_not_asked_for_anything(self):
        class Settings(dict):
            __getattr__ = dict.__getitem__

        settings, server = Settings(lower=True), xmlrpc.client.ServerProxy("http://localhost:1")
        assert code_of(lambda text: settings.lower and server.translate(text)) is not None  # this file

    def test_what_a_module_loads_later_is_no_other_code(self, tmp_path, monkeypatch):
        (tmp_path / "my_heavy.py").write_text("class MT:\n    pass\n")
        (tmp_path / "my_translator.py").write_text(
            "MODEL = None\n"
            "def there(texts):\n"
            "    global MODEL\n"
            "    if MODEL is None:\n"
            "        from my_heavy import MT\n"
            "        MODEL = MT()\n"
            "    return texts\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        there = importlib.import_module("my_translator").there
        before = code_of(there)
        there([])
        assert code_of(there) == before is not None

    def test_what_an_object_or_a_closure_holds(self, tmp_path, monkeypatch):
        """In a list, an attribute, or as a bound method's own object: pickle has of a function its name alone."""
        monkeypatch.syspath_prepend(str(tmp_path))
        (tmp_path / "my_chain.py").write_text(
            "class Chain:\n"
            "    def __init__(self, parts):\n"
            "        self.parts = parts\n"
            "    def __call__(self, text):\n"
            "        return self.parts[0](text)\n"
            "def compose(*parts):\n"
            "    return lambda text: parts[0](text)\n"
            "def each(parts, text):\n"
            "    return parts[0](text)\n"
        )
        chain = importlib.import_module("my_chain")
        found = {}
        for line in ("def f(text): return text\n", "def f(text): return ''\n"):
            (tmp_path / "my_parts.py").write_text(line)
            f = importlib.import_module("my_parts").f
            holders = [
                chain.Chain([f]),
                chain.Chain({"f": f}),
                chain.compose(f),
                chain.Chain([f]).__call__,
                functools.partial(chain.each, [f]),
            ]
            for place, holder in enumerate(holders):
                found.setdefault(place, set()).add(code_of(holder))
        assert [len(marks) for marks in found.values()] == [2] * len(holders)

    def test_a_transform(self, tmp_path, monkeypatch):
        monkeypatch.syspath_prepend(str(tmp_path))
        text, made = "A dog runs to the sea in the morning.", []
        for how in ("upper", "title"):
            line = f"def f(rows): return {{'anchor': [text.{how}() for text in rows['anchor']]}}"
            (tmp_path / "my_transform.py").write_text(line)
            transform = importlib.reload(importlib.import_module("my_transform")).f
            made.append(columns(Dataset.from_dict({"anchor": [text]}).with_transform(transform))["anchor"][0])
        assert made == [text.upper(), text.title()]

    @pytest.mark.parametrize("made_by", [len, str.upper, data.Rake(), re.compile("a").sub, data.swap_words])
    def test_without_code_of_ones_own(self, made_by):
        assert code_of(made_by) is None

    def test_a_folder_without_an_init_file(self, tmp_path, monkeypatch):
        (tmp_path / "my_folder").mkdir()
        monkeypatch.syspath_prepend(str(tmp_path))
        (tmp_path / "my_user.py").write_text("import my_folder.words\ndef used(text):\n    return my_folder.words.f(text)\n")
        found = set()
        for line in ("def f(text): return text\n", "def f(text): return ''\n"):
            (tmp_path / "my_folder" / "words.py").write_text(line)
            found.add(code_of(importlib.import_module("my_user").used))
        assert len(found) == 2


class TestBadInput:
    @pytest.mark.parametrize(
        ("keywords", "message"),
        [
            ({"top_k": 0}, "top_k must be at least 1, got 0"),
            ({"mask_token": None}, "mask_token must be the tokenizer's mask token, got None"),
            ({"deletion": 1.0}, r"deletion must be in \[0, 1\), got 1.0"),
            ({"swap": -0.1}, r"swap must be in \[0, 1\), got -0.1"),
            ({"synonyms": 2.0}, r"synonyms must be a share of words in \(0, 1\], got 2.0"),
            ({"synonyms": True}, r"synonyms must be a share of words in \(0, 1\], got True"),
            ({"synonyms": 0}, r"synonyms must be a share of words in \(0, 1\], got 0. None leaves them out"),
            ({"extractor": "yake"}, "extractor must be one of"),
            ({"synonyms": "wordnet"}, "synonyms must be a share of words, .*, got 'wordnet'"),
        ],
    )
    def test_values(self, keywords, message):
        with pytest.raises(ValueError, match=message):
            columns(["A dog runs to the sea."], **keywords)

    def test_one_string(self):
        with pytest.raises(ValueError, match="sentences must be a list of sentences, got one string"):
            columns("A dog runs to the sea.")

    @pytest.mark.parametrize(
        ("names", "message"),
        [
            (["title"], r'must have a column anchor, got title: dataset.rename_column\("title", "anchor"\)'),
            ([], r"must have a column anchor, got none\."),
            (
                ["anchor", "masked"],
                r"must have no column masked, .*; got anchor, masked: dataset.remove_columns\(\['masked'\]\)",
            ),
            (["anchor", "phrase"], "must have no column phrase, "),
        ],
        ids=str,
    )
    def test_columns(self, names, message):
        with pytest.raises(ValueError, match=message):
            columns(Dataset.from_dict({name: ["A dog runs."] for name in names}))

    def test_sentences_without_a_phrase_are_counted(self, caplog):
        rows = columns(["It is so.", "A dog runs to the sea.", "Why not?"])
        assert rows.column_names == ["anchor", "masked", "phrase"]
        assert len(rows) == 2
        assert "Left out 2 of 3 sentences, which hold no phrase." in caplog.text
        caplog.clear()
        columns(["It is so.", "A dog runs to the sea."], keep_without_phrase=True)
        assert caplog.text == ""

    @pytest.mark.parametrize("missing", [None, float("nan"), 5])
    def test_none_is_no_sentence(self, missing):
        with pytest.raises(ValueError, match=f"sentences must be text, got {missing} in row 1"):
            columns(["A dog runs to the sea.", missing])

    def test_a_missing_sentence_of_a_dataset_is_found_before_any_is_read(self):
        table = Dataset.from_dict({"anchor": ["A dog runs to the sea.", None, "The cat sleeps."]})
        with pytest.raises(ValueError, match="sentences must be text, got None in row 1"):
            columns(table, extractor=lambda _: pytest.fail("a sentence was read"))
        assert len(columns(table.select([0, 2]), top_k=1)) == 2  # without it

    def test_a_callable_that_returns_nothing(self):
        with pytest.raises(ValueError, match=r"must return a string, got None: a return is missing\?"):
            columns(["A dog runs to the sea."], synonyms=lambda text, rng, keep: None)

    def test_an_extractor_that_cannot_be_pickled(self):
        client = ssl.create_default_context()
        with pytest.raises(
            ValueError, match="each of extractor and synonyms must be a callable that can be pickled, .*make what it holds"
        ):
            columns(["A dog runs to the sea."], extractor=lambda sentence: client and [(0, 5, 1.0)])

    @pytest.mark.parametrize("sentences", [["It is so.", ""], ["你好世界"]])
    def test_no_phrase_at_all(self, sentences):
        with pytest.raises(ValueError, match=f"must hold phrases, got {len(sentences)} without any"):
            columns(sentences)


def test_draws_follow_from_the_place_in_the_text(monkeypatch, tmp_path):
    """Not from that in a batch of ``datasets``, which has 1,000 rows, or fewer in several processes."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    sentence = "The old man met two young dogs near the sea where nobody had ever seen a dog before."
    rows = data.paser_columns([sentence] * 1100, mask_token="[MASK]", synonyms=None, top_k=1, deletion=0.4)["anchor"][:]
    assert rows[:100] != rows[1000:]
    assert len(set(rows)) > 500
