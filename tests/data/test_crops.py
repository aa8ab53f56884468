import pytest
from datasets import Dataset

from sbert_plugins import data
from sbert_plugins.data import split_passages, split_sentences

DOCUMENTS = [
    " ".join(f"Sentence number {i} of document {d} is here." for i in range(length))
    for d, length in enumerate((6, 2, 9))
]
WORDS = [f"w{i}" for i in range(100)]


def number(sentence):
    return int(sentence.split()[2])


def pairs_of(documents, **keywords):
    pairs = data.crop_pairs(documents, **keywords)
    assert pairs.column_names == ["anchor", "positive"]
    return [tuple(pair.values()) for pair in pairs]


class TestSentences:
    @pytest.mark.parametrize("count", [1, 2, 3, 100])
    def test_neighbours_and_each_sentence_once(self, count):
        pairs = pairs_of(DOCUMENTS, pairs_per_document=count)
        assert len(pairs) == sum(
            min(count, len(data.split_sentences(document)) // 2) for document in DOCUMENTS
        )
        assert len({sentence for pair in pairs for sentence in pair}) == 2 * len(pairs)
        for anchor, positive in pairs:
            assert f"{anchor} {positive}" in " ".join(DOCUMENTS)
            assert number(positive) == number(anchor) + 1

    @pytest.mark.parametrize(
        ("document", "pair"),
        [
            (
                "The History\n\nIt began a long time ago. See below. Nobody knows how it ended.",
                ("It began a long time ago.", "Nobody knows how it ended."),
            ),
            (  # a refrain is not paired with itself
                "It rains on the old town. It rains on the old  town. Nobody is out in the streets.",
                ("It rains on the old town.", "Nobody is out in the streets."),
            ),
            (
                "A first\nsentence  is here. And a\tsecond one follows.",
                ("A first sentence is here.", "And a second one follows."),
            ),
            (
                "今天天气很好。我们去公园吧。好。",
                ("今天天气很好。", "我们去公园吧。"),
            ),  # each letter is a word
        ],
    )
    def test_short_repeated_and_other_sentences(self, document, pair):
        assert pairs_of([document]) == [pair]

    def test_own_splitter(self):
        pairs = pairs_of(["今天下雨。我们走吧!"], min_words=1, split=lambda text: text.split("。"))
        assert pairs == [("今天下雨", "我们走吧!")]


class TestSpans:
    @pytest.mark.parametrize("length", [10, 11, 25, 100])
    def test_two_spans_without_common_words(self, length):
        document = " ".join(WORDS[:length])
        pairs = pairs_of([document] * 50, by="spans", pairs_per_document=4)
        assert len(pairs) == 200
        for pair in pairs:
            assert all(f" {text} " in f" {document} " for text in pair)
            assert all(5 <= len(text.split()) <= min(32, length // 2) for text in pair)
            assert not set(pair[0].split()) & set(pair[1].split())

    def test_from_everywhere_and_of_all_lengths(self):
        pairs = pairs_of([" ".join(WORDS)] * 500, by="spans")
        assert {word for pair in pairs for text in pair for word in text.split()} == set(WORDS)
        for texts in zip(*pairs, strict=True):
            assert {len(text.split()) for text in texts} == set(range(5, 33))
        short = pairs_of([" ".join(WORDS)] * 50, by="spans", min_words=2, max_words=3)
        assert {len(text.split()) for pair in short for text in pair} == {2, 3}


class TestSplitting:
    @pytest.mark.parametrize(
        ("text", "sentences"),
        [
            ("", []),
            (" \n ", []),
            ("no end", ["no end"]),
            ("One. Two! Three? Four... Five…", ["One.", "Two!", "Three?", "Four...", "Five…"]),
            (
                'He said "Go." Then he went. (He did.) "Why?" Nobody knew.',
                ['He said "Go."', "Then he went.", "(He did.)", '"Why?"', "Nobody knew."],
            ),
            (
                "We met Prof. Ash. Plan B! Only 5. They left.",
                ["We met Prof. Ash.", "Plan B!", "Only 5.", "They left."],
            ),
            (
                "Dr. Smith met J. R. Jones of the U.S. Navy, i.e. him. No. 5 et al. stayed.",
                ["Dr. Smith met J. R. Jones of the U.S. Navy, i.e. him.", "No. 5 et al. stayed."],
            ),
            (
                "It cost 3.5 million in the village of St. Mary. 1984 was worse.",
                ["It cost 3.5 million in the village of St. Mary.", "1984 was worse."],
            ),
            (
                "lift of a wing . the tests agree .",
                ["lift of a wing .", "the tests agree ."],
            ),
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
        assert data.split_sentences(text) == sentences

    def test_real_paragraphs(self, data_dir, caplog):
        documents = data.read_documents(data_dir / "corpus" / "wiki_paragraphs.parquet", limit=1000)[
            "document"
        ][:]
        for document in documents:
            assert "".join("".join(data.split_sentences(document)).split()) == "".join(document.split())
        pairs = pairs_of(documents)
        assert 750 < len(pairs) < 950
        assert f"{1000 - len(pairs)} of 1,000" in caplog.text
        known = iter(" ".join(document.split()) for document in documents)
        assert all(any(anchor in text and positive in text for text in known) for anchor, positive in pairs)
        ends = sum(text.rstrip("\"'”’)")[-1] in ".!?…" for pair in pairs for text in pair)
        assert ends > 0.97 * 2 * len(pairs)


class TestReproducible:
    @pytest.mark.parametrize("by", ["sentences", "spans"])
    def test_by_seed(self, by):
        draws = [pairs_of(DOCUMENTS * 5, by=by, seed=seed) for seed in (0, 0, 1)]
        assert draws[0] == draws[1] != draws[2]
        assert pairs_of(DOCUMENTS * 5, by=by) == pairs_of(DOCUMENTS * 6, by=by)[: len(DOCUMENTS) * 5]

    def test_from_a_list_a_dataset_a_column_and_a_generator(self):
        table = Dataset.from_dict({"document": DOCUMENTS, "id": [1, 2, 3]})
        for documents in (table, table["document"], iter(DOCUMENTS)):
            assert pairs_of(documents) == pairs_of(DOCUMENTS)

    def test_kept_once_on_disk(self, cache):
        first, second, other = (data.crop_pairs(DOCUMENTS * 5, seed=seed) for seed in (0, 0, 1))
        assert first.cache_files == second.cache_files != other.cache_files
        assert len(list(cache.iterdir())) == 2


@pytest.mark.parametrize(
    ("documents", "keywords"),
    [
        (DOCUMENTS, {"by": "words"}),
        ([], {}),
        (["Only one sentence is in here."], {}),
        (["Nine words are one too few for two spans."], {"by": "spans"}),
        (Dataset.from_dict({"text": DOCUMENTS}), {}),
    ],
    ids=str,
)
def test_no_pairs(documents, keywords):
    with pytest.raises(ValueError, match="sentences|two|document"):
        data.crop_pairs(documents, **keywords)


SENTENCES = ["It rains.", "Nobody in the village sails today.", "The boats stay in the harbour.", "Why?"]


@pytest.fixture
def tokenizer(tiny_encoder):
    return tiny_encoder().tokenizer


def lengths(tokenizer, texts):
    return [len(tokenizer(text)["input_ids"]) for text in texts]


@pytest.mark.parametrize("architecture", ["bert", "roberta", "xlm-roberta"])
def test_passages_take_as_many_sentences_as_fit(tiny_encoder, architecture):
    tokenizer = tiny_encoder(architecture).tokenizer
    (first, second, third, _), document = lengths(tokenizer, SENTENCES), "\n".join(SENTENCES)
    special = tokenizer.num_special_tokens_to_add()
    assert split_passages([document], tokenizer, first + second - special)["document"][:] == [
        " ".join(SENTENCES[:2]),
        " ".join(SENTENCES[2:]),
    ]
    assert split_passages([document], tokenizer, max(second, third))["document"][:2] == SENTENCES[:2]
    assert split_passages([document], tokenizer, 1000)["document"][:] == [" ".join(SENTENCES)]


def test_a_long_sentence_is_cut_and_nothing_is_lost(tokenizer):
    text = "It rains. A " + " ".join(f"word{i}" for i in range(100)) + ". Why?"
    passages = split_passages([text], tokenizer, 16)["document"][:]
    assert "".join("".join(passages).split()) == "".join(text.split())
    assert max(lengths(tokenizer, passages)) <= 17  # the first token of a piece may be split anew
    assert passages[0] == "It rains."


def test_columns_titles_and_the_number_of_passages(tokenizer, caplog):
    caplog.set_level("INFO")
    rows = {"document": [" ".join(SENTENCES), "Why?"], "title": ["A long title about rain", ""], "id": [7, 8]}
    passages = split_passages(Dataset.from_dict(rows), tokenizer, 20)
    assert passages["id"][:] == [7] * (len(passages) - 1) + [8]
    assert passages["title"][0] == rows["title"][0]
    with_title = [f"{row['title']} {row['document']}" for row in passages]
    assert max(lengths(tokenizer, with_title)) <= 20
    assert len(split_passages(rows["document"], tokenizer, 20)) < len(passages)
    assert f"2 documents into {len(passages)} passages" in caplog.text


def test_another_splitter_of_passages(tokenizer):
    text = "one; two; three"
    (length,) = lengths(tokenizer, ["one two"])
    passages = split_passages([text], tokenizer, length, split=lambda text: text.split("; "))
    assert passages["document"][:] == ["one two", "three"]
    assert split_sentences(text) == [text]
