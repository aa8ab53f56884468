import gzip
import math
import sys
from types import SimpleNamespace

import pandas
import pytest
from datasets import Dataset, IterableDataset, concatenate_datasets

from sbert_plugins.data import (
    back_translate,
    crop_pairs,
    read,
    read_documents,
    read_pairs,
    read_sentences,
    read_triplets,
)
from sbert_plugins.data.columns import describe_texts, read_columns

CELLS = ["NA", "null", "007", "1.50", "True", "5 inch", "x" * 200_000]
LINES = ["First sentence.", "Zweiter Satz, größer.", "第三句。"]


@pytest.fixture
def write(tmp_path):
    """Write text, bytes or the columns of a table to a file, and return its path."""

    def write(name, content):
        path = tmp_path / name
        if isinstance(content, dict) and "parquet" in name:
            pandas.DataFrame(content).to_parquet(path)
        elif isinstance(content, dict) and "jsonl" in name:
            pandas.DataFrame(content).to_json(path, orient="records", lines=True)
        elif isinstance(content, dict):
            pandas.DataFrame(content).to_csv(path, sep="\t" if "tsv" in name else ",", index=False)
        else:
            content = content.encode() if isinstance(content, str) else content
            path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return write


class TestSentences:
    @pytest.mark.parametrize("name", ["text.txt", "text", "text.txt.gz"])
    def test_text_files(self, write, name, caplog):
        path = write(name, "\ufeff\n  " + "  \r\n\t\n".join(LINES) + "\n")
        assert read_sentences(path).to_dict() == {"anchor": LINES}
        assert "3 blank rows" in caplog.text
        assert read_sentences(path, limit=2)["anchor"][:] == LINES[:2]

    @pytest.mark.parametrize(
        "name", ["t.parquet", "t.csv", "t.tsv", "t.jsonl", "t.csv.gz", "t.tsv.gz", "t.jsonl.gz", "t.CSV"]
    )
    @pytest.mark.parametrize("column", ["text", "sentence", "anchor"])
    def test_tables(self, write, name, column, caplog):
        path = write(name, {"id": ["1", "2", "3", "4"], column: [*LINES, " "]})
        for given in ({}, {"column": column}):
            assert read_sentences(path, **given).to_dict() == {"anchor": LINES}
        assert "1 blank rows" in caplog.text
        assert read_sentences(path, column="id")["anchor"][:] == ["1", "2", "3", "4"]

    @pytest.mark.parametrize(
        ("name", "content", "sentences"),
        [
            ("t.jsonl", {"id": [1, 2, 3], "comment": LINES}, LINES),  # the only column of strings
            ("t.csv", {"text": CELLS}, CELLS),
            ("t.tsv", {"text": CELLS}, CELLS),
            # A quotation mark in a TSV file is a character.
            ("t.tsv", 'id\ttext\n1\t"Go, he said.\n2\tThen "stop".\n', ['"Go, he said.', 'Then "stop".']),
            # A text file is never a table.
            ("t.txt", "text\tlabel\nA dog, a cat.\t1\n", ["text\tlabel", "A dog, a cat.\t1"]),
            ("t.txt", '{"text": "It rains."}', ['{"text": "It rains."}']),
            # A CSV file may have other separators.
            ("t.csv", "id;text\n1;An old one, it leaks.\n2;Rain.", ["An old one, it leaks.", "Rain."]),
            ("t.csv", "id\ttext\n1\tAn old one, it leaks.\n2\tRain.", ["An old one, it leaks.", "Rain."]),
            ("t.csv", "id|text\n1|An old one, it leaks.\n2|Rain.", ["An old one, it leaks.", "Rain."]),
        ],
    )
    def test_what_is_a_sentence(self, write, name, content, sentences):
        assert read_sentences(write(name, content))["anchor"][:] == sentences

    def test_a_name_is_not_a_pattern(self, write):
        for name in ("sa", "sb", "s[ab]", "s*"):
            write(f"{name}.txt", f"The file {name}.")
        for name in ("s[ab]", "s*"):
            path = write(f"{name}.txt", f"The file {name}.")
            assert read_sentences(path)["anchor"][:] == [f"The file {name}."]

    @pytest.mark.parametrize("name", ["t.txt", "t.csv", "t.jsonl"])
    def test_a_nul_is_kept_with_one_warning(self, write, name, caplog):
        path = write(name, {"text": ["A\0dog.", "A\0cat."]} if name != "t.txt" else "A\0dog.\nA\0cat.\n")
        assert read_sentences(path)["anchor"][:] == ["A\0dog.", "A\0cat."]
        assert caplog.text.count("NUL") == 1


class TestErrors:
    @pytest.mark.parametrize("name", ["t.txt", "t.csv", "t.tsv", "t.jsonl", "t.txt.gz"])
    @pytest.mark.parametrize("reader", [read_sentences, read_documents])
    def test_not_utf8(self, write, name, reader):
        path = write(name, b'{"text": "a"}\n{"text": "caf\xe9"}\n')
        with pytest.raises(ValueError, match=rf"{name}, line 2.*0xe9"):
            reader(path)

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("t.txt", ""),
            ("t.txt", "\n \n"),
            ("t.txt", "\u200b\n \u200d\u2060 \n"),  # characters without width
            ("t.jsonl", ""),
            ("t.csv", ""),
            ("t.csv", "text,id\n,1\n"),
            ("t.parquet", {"text": [" "]}),
        ],
    )
    def test_nothing_left(self, write, name, content):
        with pytest.raises(ValueError, match="no text"):
            read_sentences(write(name, content))

    @pytest.mark.parametrize("column", ["missing", "id", None])
    def test_an_unknown_column(self, write, column):
        path = write("t.parquet", {"a": ["x"], "b": ["y"], "id": [1]})
        with pytest.raises(ValueError, match="a, b"):
            read_sentences(path, column=column)
        with pytest.raises(ValueError, match="two columns with the same name"):
            read_sentences(write("t.csv", "text, text\nIt rains.,Prices fell.\n"), column=column)

    @pytest.mark.parametrize(
        "content",
        [
            "text,stars\nGreat phone, I love it,5\n",
            "text,stars\nGreat phone\n",
            'text\n"Go," he said.\n',
            'text\n"A dog.\nRain.\n',
        ],
    )
    def test_a_csv_without_quotation_marks_where_they_are_needed(self, write, content):
        with pytest.raises(ValueError, match=r"t\.csv, row"):
            read_sentences(write("t.csv", content))

    @pytest.mark.parametrize("name", ["", "mistyped.txt", "./folder", "a/b/c", "no/such-dataset"])
    @pytest.mark.parametrize("reader", [read_sentences, read_documents, read_triplets])
    def test_neither_a_file_nor_a_dataset(self, name, reader):
        with pytest.raises(FileNotFoundError, match=f"{name}.*file|no file"):
            reader(name)


class TestPairs:
    def test_from_one_file_and_two(self, write, caplog):
        text = write("a.txt", "\n".join([*LINES, "4"]))
        table = write(
            "t.parquet", {"anchor": [*LINES, "4"], "paraphrase": [*LINES[::-1], " "], "id": list("1234")}
        )
        expected = {"anchor": LINES, "positive": LINES[::-1]}
        assert read_pairs(text, table).to_dict() == read_pairs(table, table).to_dict() == expected
        assert "1 blank rows" in caplog.text
        expected = {"anchor": ["1", "2"], "positive": LINES[:2]}
        for second, column in ((text, "id"), (table, ["id", "anchor"])):
            assert read_pairs(table, second, column=column, limit=2).to_dict() == expected

    def test_unequal_numbers(self, write):
        with pytest.raises(ValueError, match="3 rows"):
            read_pairs(write("a.txt", "\n".join(LINES)), write("b.txt", "\n".join(LINES[:2])), limit=1)


class TestTriplets:
    ROWS = [("a dog", "an animal", "a cat"), ("rain", "wet weather", "sun")]  # noqa: RUF012

    @pytest.mark.parametrize("name", ["t.tsv", "t.txt", "t.tsv.gz"])
    @pytest.mark.parametrize("before", [(), ("snli",)])
    def test_without_header(self, write, name, before):
        path = write(name, "\n\n".join("\t".join([*before, *row]) for row in self.ROWS))
        triplets = read_triplets(path)
        assert triplets.column_names == ["anchor", "positive", "negative"]
        assert [tuple(row.values()) for row in triplets] == self.ROWS
        assert len(read_triplets(path, limit=1)) == 1

    @pytest.mark.parametrize("name", ["t.tsv", "t.csv", "t.jsonl", "t.parquet"])
    def test_with_names(self, write, name, caplog):
        path = write(
            name, {"negative": ["n", " "], "anchor": ["a", "b"], "x": ["1", "2"], "positive": ["p", "q"]}
        )
        assert read_triplets(path).to_dict() == {"anchor": ["a"], "positive": ["p"], "negative": ["n"]}
        assert "1 blank rows" in caplog.text

    def test_names_in_capitals_and_quotation_marks(self, write):
        path = write("t.tsv", 'Negative\tid\tPositive\tAnchor\r\nn\t0\tp\t"a\r\n')
        assert read_triplets(path).to_dict() == {"anchor": ['"a'], "positive": ["p"], "negative": ["n"]}

    def test_real_file(self, data_dir):
        assert len(read_triplets(data_dir / "nli" / "nli_triplets.tsv.gz")) == 14_460

    @pytest.mark.parametrize(
        ("name", "content"),
        [("t.tsv", "a\tb\n"), ("t.tsv", "a\tb\tc\na\tc\n"), ("t.csv", "anchor,positive\na,b\n")],
    )
    def test_missing_cells(self, write, name, content):
        with pytest.raises(ValueError, match="cells|anchor|negative"):
            read_triplets(write(name, content))

    @pytest.mark.parametrize(
        ("configurations", "read_one"), [(["triplet", "pair"], "triplet"), (["default"], None)]
    )
    def test_the_configuration_of_a_hub_dataset(self, monkeypatch, configurations, read_one):
        rows = {
            (read_one, "train"): Dataset.from_dict({"negative": ["c"], "anchor": ["a"], "positive": ["b"]})
        }
        monkeypatch.setattr(read.datasets, "get_dataset_config_names", lambda name: configurations)
        monkeypatch.setattr(
            read, "load_dataset", lambda name, configuration, split: rows[configuration, split]
        )
        assert read_triplets("organization/name")[0] == {"anchor": "a", "positive": "b", "negative": "c"}


class TestDocuments:
    @pytest.mark.parametrize("name", ["text.txt", "text.gz"])
    def test_separated_by_blank_lines(self, write, name, caplog):
        path = write(name, "First one\n  goes on. \n\n \t\nSecond.\r\n\r\n\n")
        assert read_documents(path).to_dict() == {"document": ["First one\ngoes on.", "Second."]}
        assert len(read_documents(path, limit=1)) == 1
        assert caplog.text == ""

    @pytest.mark.parametrize("column", ["document", "text", "body"])
    def test_tables(self, write, column):
        path = write("t.jsonl", {column: ["A text.\n\nIt goes on.", None, "Another."], "id": [1, 2, 3]})
        for given in ({}, {"column": column}):
            assert read_documents(path, **given)["document"][:] == ["A text.\n\nIt goes on.", "Another."]

    @pytest.mark.parametrize("name", ["t.jsonl", "t.csv"])
    def test_titles_of_a_table(self, write, name):
        path = write(name, {"id": ["1", "2"], "title": ["A title", ""], "text": ["A text.", "Another."]})
        columns = {"document": ["A text.", "Another."], "title": ["A title", ""]}
        assert read_documents(path).to_dict() == columns
        assert read_documents(path, column="title").column_names == ["document"]
        (pair,) = crop_pairs(["A short document of six words. It has two long sentences here."])
        rows = read_documents(write("u.jsonl", {"title": ["t"], "text": [" ".join(pair.values())]}))
        assert crop_pairs(rows)[0] == pair


class TestFolder:
    def test_one_document_per_file(self, tmp_path, write, caplog):
        (tmp_path / "b").mkdir()
        (tmp_path / ".hidden").mkdir()
        write("c.txt", "\ufeffBoats in the harbour\n\nIt rains.\nNobody sails.\n")
        write("b/a.md", "# Weather\nIt snows.")
        write("b/wrapped.TXT", "The old man, who had lived by\nthe sea, told a story.")
        write("a.txt", f"{'word ' * 30}\n\nA first line that is too long.")
        write("only.txt", "One line")
        write(".hidden/x.txt", "hidden")
        write("blank.md", " \n")
        write("picture.png", b"\x89PNG")
        rows = read_documents(tmp_path)
        assert rows["title"][:] == ["", "Weather", "", "Boats in the harbour", ""]
        assert rows["document"][1::2] == ["It snows.", "It rains.\nNobody sails."]
        assert rows["document"][2] == "The old man, who had lived by\nthe sea, told a story."
        assert "left out 1 files" in caplog.text
        assert "1 blank" in caplog.text
        assert len(read_documents(tmp_path, limit=2)) == 2

    def test_without_titles(self, tmp_path, write):
        write("a.txt", "It rains.")
        assert read_documents(tmp_path).to_dict() == {"document": ["It rains."]}

    def test_not_utf8(self, tmp_path, write):
        write("a.txt", "It rains.")
        write("b.txt", "Größe\nüber alles".encode("latin-1"))
        with pytest.raises(ValueError, match=r"b\.txt, line 1"):
            read_documents(tmp_path)

    def test_converted_files(self, tmp_path, write, monkeypatch):
        # A stand-in, because markitdown is an extra.

        class MarkItDown:
            def convert(self, path):
                return SimpleNamespace(text_content=f"# Title of {path.name}\n\nIts text.")

        monkeypatch.setitem(sys.modules, "markitdown", SimpleNamespace(MarkItDown=MarkItDown))
        for name in ("a.pdf", "b.docx", "c.html"):
            path = write(name, b"\x00")
        assert read_documents(path).to_dict() == {"document": ["Its text."], "title": ["Title of c.html"]}
        assert read_documents(tmp_path)["title"][:] == [
            f"Title of {n}" for n in ("a.pdf", "b.docx", "c.html")
        ]
        with pytest.raises(FileNotFoundError, match=r"d\.pdf"):
            read_documents("d.pdf")
        monkeypatch.setitem(sys.modules, "markitdown", None)
        with pytest.raises(ModuleNotFoundError, match=r"sbert-plugins\[documents\]"):
            read_documents(path)


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch):
    # Of a file that is read, of a dataset on the Hub, and of columns that are made.
    (tmp_path / "file").write_text("A dog.\nA cat.\n", encoding="utf-8")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "file" / "cache")
    for source in (tmp_path / "file", "organization/name"):
        with pytest.raises(OSError, match="Set HF_DATASETS_CACHE"):
            read_sentences(source)
    with pytest.raises(OSError, match="Set HF_DATASETS_CACHE"):
        back_translate(["A dog."], forward=list, backward=list)


TEXTS = ["It rains.", "Prices fell.", "It rains."]


def dataset(**columns):
    return Dataset.from_dict(columns)


class TestWhatIsRead:
    @pytest.mark.parametrize("other", ["category", "id", "source", "date", "url"])
    def test_a_column_of_strings_is_no_positive(self, other):
        rows = read_columns(
            dataset(**{other: ["a", "b", "c"]}, text=TEXTS), ["anchor"], optional=["positive"]
        )
        assert rows.column_names == ["anchor"]
        assert rows["anchor"][:] == TEXTS
        assert describe_texts(rows).endswith(f"other columns not read: {other}")

    @pytest.mark.parametrize("name", ["positive", "paraphrase"])
    def test_a_documented_name_is_a_positive(self, name):
        rows = read_columns(dataset(**{name: TEXTS[::-1]}, text=TEXTS), ["anchor"], optional=["positive"])
        assert rows.to_dict() == {"anchor": TEXTS, "positive": TEXTS[::-1]}
        assert f'"{name}" (positive), 3 pairs' in describe_texts(rows)

    def test_labels_only_if_wanted(self):
        rows = dataset(score=[1, 2, 3], label=[[0, 1], [1, 0], [1, 1]], text=TEXTS)
        assert read_columns(rows, ["anchor"]).column_names == ["anchor"]
        labelled = read_columns(rows, ["anchor"], labels=True)
        assert labelled.to_dict() == {"anchor": TEXTS, "label": [[0, 1], [1, 0], [1, 1]]}
        assert describe_texts(labelled).startswith('text: columns "text", "label" (label), 3 sentences')
        alone = rows.select_columns("text").with_transform(lambda batch: {"text": ["A dog."]})
        assert read_columns(alone, ["anchor"], optional=["positive"])[0] == {"text": "A dog."}

    def test_what_was_read_first_is_remembered(self, tmp_path):
        (tmp_path / "t.csv").write_text("id;body\n1;It rains.\n2;\n3;It pours.\n", encoding="utf-8")
        rows = read_sentences(tmp_path / "t.csv", column="body")
        assert rows["anchor"][:] == ["It rains.", "It pours."]
        again = read_columns(rows.select([0]), ["anchor"])
        assert describe_texts(again) == (
            'text: column "body", 1 sentence, 1 blank, 0 duplicates; other columns not read: id'
        )

    def test_duplicates_and_blank_rows_are_counted(self):
        rows = read_columns([*TEXTS, " "], ["anchor"])
        assert describe_texts(rows) == 'text: column "anchor", 3 sentences, 1 blank, 1 duplicate'

    def test_pairs_stay_together_across_blank_lines(self, tmp_path):
        (tmp_path / "a.csv").write_text("text\na1\n\na3\n\n", encoding="utf-8")
        (tmp_path / "b.csv").write_text("text\nb1\nb2\n\n", encoding="utf-8")
        with pytest.raises(ValueError, match="3 rows"):
            read_pairs(tmp_path / "a.csv", tmp_path / "b.csv")
        (tmp_path / "b.csv").write_text("text\nb1\nb2\nb3\n", encoding="utf-8")
        rows = read_pairs(tmp_path / "a.csv", tmp_path / "b.csv")
        assert rows.to_dict() == {"anchor": ["a1", "a3"], "positive": ["b1", "b3"]}


@pytest.mark.parametrize(
    ("texts", "named"),
    [
        (["a", math.nan], "row 1"),
        (["a", ("b",)], "row 1"),
        ({"text": ["a"]}, "dict"),
        (IterableDataset.from_generator(lambda: iter([{"text": "a"}])), "row 0"),
        (dataset(a=["x"], b=["y"]), "a, b"),
        (dataset(text=[["x"], ["y"]]), "List"),
        (dataset(text=[{"x": "y"}], other=["a"], more=["b"]), "other, more"),
        # All columns of a transform would be trained on.
        (
            dataset(text=TEXTS, source=TEXTS).with_transform(lambda rows: rows),
            "turns the columns text, source",
        ),
        (dataset(text=TEXTS).with_transform(lambda rows: {"anchor": rows["text"]}), "to anchor"),
        (concatenate_datasets([dataset(text=[" "])]), "no text"),
        ([], "no text"),
    ],
)
def test_errors_name_the_place(texts, named):
    with pytest.raises(ValueError, match=named):
        read_columns(texts, ["anchor"])
