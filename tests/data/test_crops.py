import os
import random
import subprocess
import sys
import time

import datasets
import pandas
import pytest
from datasets import Dataset

from sbert_plugins import data
from sbert_plugins.data import crops
from sbert_plugins.data.scripts import count_words

DOCUMENTS = [
    " ".join(f"Sentence number {i} of document {d} stands here." for i in range(length)) for d, length in enumerate((6, 2, 9))
]


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return tmp_path / "cache" / "sbert_plugins"


def number(sentence):
    return int(sentence.split()[2])


def rows_of(pairs):
    return list(zip(pairs["anchor"], pairs["positive"], strict=True))


class TestSentences:
    def test_neighbours_of_one_document(self):
        pairs = data.crop_pairs(DOCUMENTS)
        assert pairs.column_names == ["anchor", "positive"]
        assert len(pairs) == len(DOCUMENTS)
        for d, (anchor, positive) in enumerate(rows_of(pairs)):
            assert anchor in DOCUMENTS[d]
            assert number(positive) == number(anchor) + 1

    @pytest.mark.parametrize("count", [2, 3, 100])
    def test_no_sentence_stands_in_two_pairs(self, count):
        pairs = rows_of(data.crop_pairs(DOCUMENTS, pairs_per_document=count))
        assert len(pairs) == sum(min(count, len(data.split_sentences(document)) // 2) for document in DOCUMENTS)
        sentences = [sentence for pair in pairs for sentence in pair]
        assert len(set(sentences)) == len(sentences)
        assert all(number(b) == number(a) + 1 for a, b in pairs)

    def test_every_place_is_as_likely(self):
        """Two of the three ways to lay two pairs into five sentences leave the first sentence in."""
        draws = [crops._neighbours(list("abcde"), random.Random(i), 2) for i in range(3000)]
        ways = [(("a", "b"), ("c", "d")), (("a", "b"), ("d", "e")), (("b", "c"), ("d", "e"))]
        assert [sum(tuple(draw) == way for draw in draws) / 3000 for way in ways] == pytest.approx([1 / 3] * 3, abs=0.03)

    def test_short_sentences_are_left_out_before_neighbours_are_sought(self):
        document = "The History\n\nIt began a long time ago. See below. Nobody knows how it ended."
        assert rows_of(data.crop_pairs([document])) == [("It began a long time ago.", "Nobody knows how it ended.")]
        assert rows_of(data.crop_pairs(["今天下雨。我们走吧!"], min_words=1, split=lambda text: text.split("。"))) == [
            ("今天下雨", "我们走吧!")
        ]

    def test_letters_count_where_no_space_parts_words(self):
        assert [count_words(text) for text in ("好的啊。", "GPT 模型", "ไม่", "A dog")] == [3, 3, 2, 2]
        assert rows_of(data.crop_pairs(["今天天气很好。我们去公园吧。好。"])) == [("今天天气很好。", "我们去公园吧。")]

    def test_no_pair_is_a_text_and_itself(self):
        refrain = "It rains on the old town. It rains on the old  town. Nobody is out in the streets."
        assert rows_of(data.crop_pairs([refrain])) == [("It rains on the old town.", "Nobody is out in the streets.")]

    def test_white_space_is_made_single(self):
        assert rows_of(data.crop_pairs(["A first\nsentence  is here. And a\tsecond one follows."])) == [
            ("A first sentence is here.", "And a second one follows.")
        ]


class TestSpans:
    WORDS = [f"w{i}" for i in range(100)]  # noqa: RUF012

    @pytest.mark.parametrize("length", [10, 11, 25, 100])
    def test_two_stretches_that_do_not_overlap(self, length):
        document = " ".join(self.WORDS[:length])
        pairs = rows_of(data.crop_pairs([document] * 50, by="spans", pairs_per_document=4))
        assert len(pairs) == 200
        for anchor, positive in pairs:
            assert f" {anchor} " in f" {document} "
            assert f" {positive} " in f" {document} "
            assert not set(anchor.split()) & set(positive.split())
            assert all(5 <= len(text.split()) <= min(32, length // 2) for text in (anchor, positive))

    def test_they_come_from_everywhere(self):
        pairs = rows_of(data.crop_pairs([" ".join(self.WORDS)] * 500, by="spans"))
        seen = {word for pair in pairs for text in pair for word in text.split()}
        assert seen == set(self.WORDS)
        for texts in zip(*pairs, strict=True):
            assert {len(text.split()) for text in texts} == set(range(5, 33))
        assert {"w0", "w30"} <= {anchor.split()[0] for anchor, _ in pairs}

    @pytest.mark.parametrize(("shortest", "longest"), [(2, 3), (3, 3)])
    def test_lengths(self, shortest, longest):
        documents = [" ".join(self.WORDS)] * 50
        pairs = rows_of(data.crop_pairs(documents, by="spans", min_words=shortest, max_words=longest))
        assert {len(text.split()) for pair in pairs for text in pair} == {shortest, longest}


class TestSplitting:
    @pytest.mark.parametrize(
        ("text", "sentences"),
        [
            ("", []),
            (" \n ", []),
            ("no end", ["no end"]),
            ("One. Two! Three? Four... Five…", ["One.", "Two!", "Three?", "Four...", "Five…"]),
            ('He said "Go." Then he went. (He did.) "Why?" Nobody knew.', None),
            ("We met Prof. Ash. Plan B! Only 5. They left.", ["We met Prof. Ash.", "Plan B!", "Only 5.", "They left."]),
            ("Dr. Smith met J. R. Jones of the U.S. Navy, i.e. him. No. 5 et al. stayed.", None),
            ("It cost 3.5 million in the village of St. Mary. 1984 was worse.", None),
            ('"Ruthless!" has a song. iPhones have none.', ['"Ruthless!" has a song. iPhones have none.']),
            ("Größe zählt. Älter wird er. ¿Qué? Ja.", ["Größe zählt.", "Älter wird er.", "¿Qué?", "Ja."]),
            ("今天下雨。我们走吧?好。", ["今天下雨。", "我们走吧?好。"]),
            ("「今天下雨。」他说。", ["「今天下雨。」", "他说。"]),
            ("राम घर गया। श्याम आया॥ फिर?", ["राम घर गया।", "श्याम आया॥", "फिर?"]),
            ("هل جاء؟ نعم.", ["هل جاء؟", "نعم."]),
            ("وہ آیا۔ وہ گیا۔", ["وہ آیا۔", "وہ گیا۔"]),
            ("Նա եկավ։ Նա գնաց։", ["Նա եկավ։", "Նա գնաց։"]),
            ("هل جاء؟! نعم جاء.", ["هل جاء؟!", "نعم جاء."]),
            ("هل جاء؟... نعم", ["هل جاء؟...", "نعم"]),
            ("(هل جاء؟) نعم.", ["(هل جاء؟)", "نعم."]),
            ("«Նա եկավ։» Այո։", ["«Նա եկավ։»", "Այո։"]),
            ("円周率は３．１４です．次に進む．", ["円周率は３．１４です．", "次に進む．"]),
            ("Ｕ．Ｓ．Ａ．は国だ。", ["Ｕ．Ｓ．Ａ．は国だ。"]),
            ("ሰላም ነው። ደህና ነው።", ["ሰላም ነው።", "ደህና ነው።"]),
            ("A title\n\nAnd a text\n \nIt goes\non.", ["A title", "And a text", "It goes\non."]),
        ],
    )
    def test_by_the_rule(self, text, sentences):
        expected = {
            "He": ['He said "Go."', "Then he went.", "(He did.)", '"Why?"', "Nobody knew."],
            "Dr": ["Dr. Smith met J. R. Jones of the U.S. Navy, i.e. him.", "No. 5 et al. stayed."],
            "It": ["It cost 3.5 million in the village of St. Mary.", "1984 was worse."],
        }
        assert data.split_sentences(text) == (expected[text[:2]] if sentences is None else sentences)

    def test_nothing_is_lost(self, data_dir):
        for document in _paragraphs(data_dir, 300):
            assert "".join(" ".join(data.split_sentences(document)).split()) == "".join(document.split())


def _paragraphs(data_dir, count):
    return data.read_documents(data_dir / "corpus" / "wiki_paragraphs.parquet", limit=count)["document"][:]


def test_real_paragraphs(data_dir, caplog):
    documents = _paragraphs(data_dir, 1000)
    pairs = rows_of(data.crop_pairs(documents))
    assert 750 < len(pairs) < 950
    assert f"Left out {1000 - len(pairs)} of 1,000 documents" in caplog.text
    known = iter(documents)
    for anchor, positive in pairs:  # in the order of the documents, each pair from one
        assert any(anchor in text and positive in text for text in (" ".join(document.split()) for document in known))
    ends = sum(text.rstrip("\"'”’)")[-1] in ".!?…" for pair in pairs for text in pair)
    assert ends > 0.97 * 2 * len(pairs)


class TestReproducible:
    @pytest.mark.parametrize("by", crops.CROPS)
    def test_by_seed(self, by):
        draws = [rows_of(data.crop_pairs(DOCUMENTS * 5, by=by, seed=seed)) for seed in (0, 0, 1)]
        assert draws[0] == draws[1] != draws[2]

    @pytest.mark.slow
    def test_in_another_process(self, tmp_path):
        script = (
            "import datasets, sys\nfrom pathlib import Path\ndatasets.config.HF_DATASETS_CACHE = Path(sys.argv[1])\n"
            "from sbert_plugins import data\n"
            f"print(data.crop_pairs({DOCUMENTS!r}, by='spans').to_dict())\n"
        )
        command = [sys.executable, "-c", script, str(tmp_path / "other")]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        assert printed == str(data.crop_pairs(DOCUMENTS, by="spans").to_dict())

    def test_from_a_column_a_dataset_a_list_and_a_generator(self):
        table = Dataset.from_dict({"document": DOCUMENTS})
        expected = rows_of(data.crop_pairs(DOCUMENTS))
        for documents in (table, table["document"], table["document"][:], (document for document in DOCUMENTS)):
            assert rows_of(data.crop_pairs(documents)) == expected

    def test_a_document_draws_alike_whatever_stands_behind_it(self):
        assert rows_of(data.crop_pairs(DOCUMENTS))[:2] == rows_of(data.crop_pairs(DOCUMENTS[:2]))

    def test_kept_once_on_disk(self, cache):
        first, second, other = (data.crop_pairs(DOCUMENTS * 5, seed=seed) for seed in (0, 0, 1))
        assert first.cache_files == second.cache_files != other.cache_files
        assert first._fingerprint == second._fingerprint
        assert len(list(cache.iterdir())) == 2

    def test_what_a_killed_call_left_goes_after_a_week(self, cache):
        for name, days in (("crops-unfinished-a", 8), ("crops-unfinished-b", 1), ("of another", 8)):
            (cache / name).mkdir(parents=True)
            os.utime(cache / name, (time.time() - days * 24 * 3600,) * 2)
        data.crop_pairs(DOCUMENTS)
        assert sorted(path.name for path in cache.iterdir() if path.is_dir()) == ["crops-unfinished-b", "of another"]

    def test_more_rows_than_are_written_at_once(self, monkeypatch):
        expected = rows_of(data.crop_pairs(DOCUMENTS * 4))
        monkeypatch.setattr(crops, "_ROWS_A_WRITE", 5)
        assert rows_of(data.crop_pairs(DOCUMENTS * 4)) == expected


class TestBadInput:
    @pytest.mark.parametrize(
        ("keywords", "message"),
        [
            ({"by": "words"}, "by must be 'sentences' or 'spans', got 'words'"),
            ({"pairs_per_document": 0}, "pairs_per_document must be at least 1, got 0"),
            ({"min_words": 0}, "min_words must be at least 1, got 0"),
            ({"max_words": 4}, "max_words must be at least min_words, got 4 and 5"),
        ],
    )
    def test_values(self, keywords, message):
        with pytest.raises(ValueError, match=message):
            data.crop_pairs(DOCUMENTS, **keywords)

    @pytest.mark.parametrize(
        ("documents", "message"),
        [
            ("A text. Another one.", "must be a list of texts, got str: put one text in a list"),
            (b"A text.", "must be a list of texts, got bytes"),
            (None, "must be a list of texts, got NoneType"),
            ({"train": DOCUMENTS}, "must be a list of texts, got dict"),
            (
                pandas.DataFrame({"text": DOCUMENTS}),
                r"a list of texts, got DataFrame: .*name a column of a table \(table\['text'\]\)",
            ),
            ([*DOCUMENTS, None], "must be texts, got NoneType at place 3: leave such rows out"),
            ([["a", "b"]], "must be texts, got list at place 0"),
            (Dataset.from_dict({"text": DOCUMENTS}), r"must have a column document, got text: .*dataset\['text'\]"),
        ],
        ids=str,
    )
    def test_types(self, documents, message, cache):
        with pytest.raises(ValueError, match=message):
            data.crop_pairs(documents)
        assert not cache.exists() or not list(cache.iterdir())

    @pytest.mark.parametrize(
        ("documents", "by", "message"),
        [
            ([], "sentences", "two sentences of 5 words or more, got 0 without any"),
            (["", " "], "sentences", "two sentences of 5 words or more, got 2 without any"),
            (["Only one sentence is in here."], "sentences", "two .* got 1 without any. Pass whole texts, not sentences"),
            (["Nine words are one too few for two spans."], "spans", "two spans of 5 words or more, got 1 without any"),
        ],
        ids=str,
    )
    def test_no_pair_at_all(self, documents, by, message, cache):
        with pytest.raises(ValueError, match=f"documents must hold {message}"):
            data.crop_pairs(documents, by=by)
        assert not list(cache.iterdir())

    def test_documents_without_a_pair_are_counted(self, caplog):
        pairs = data.crop_pairs(["", DOCUMENTS[0], "Only one sentence is in here.", DOCUMENTS[1]])
        assert len(pairs) == 2
        assert "Left out 2 of 4 documents, which do not hold two sentences of 5 words or more." in caplog.text
