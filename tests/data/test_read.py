import csv
import gzip
import json
import os

import pandas
import pyarrow.parquet
import pytest
from datasets import Dataset

from sbert_plugins.data import read_documents, read_pairs, read_sentences, read_triplets
from sbert_plugins.data.text import is_path

LINES = ["First sentence.", "Zweiter Satz, größer.", "第三句。"]


def texts(dataset):
    assert dataset.column_names == ["anchor"]
    return dataset["anchor"][:]


@pytest.mark.parametrize("name", ["text.txt", "text", "text.txt.gz", "text.gz"])
def test_text_files(tmp_path, name):
    opener = gzip.open if name.endswith(".gz") else open
    with opener(tmp_path / name, "wt", encoding="utf-8") as file:
        file.write("\n".join(LINES))
    assert texts(read_sentences(tmp_path / name)) == LINES
    assert texts(read_sentences(tmp_path / name, limit=2)) == LINES[:2]


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl", "parquet.gz", "csv.gz", "jsonl.gz"])
@pytest.mark.parametrize("column", ["text", "sentence"])
def test_tables(tmp_path, suffix, column):
    path = tmp_path / f"table.{suffix}"
    table = Dataset.from_dict({column: LINES, "id": [1, 2, 3]})
    if suffix.startswith("parquet"):
        table.to_parquet(tmp_path / "plain")
        plain = (tmp_path / "plain").read_bytes()
        path.write_bytes(gzip.compress(plain) if suffix.endswith(".gz") else plain)
    else:
        opener = gzip.open if suffix.endswith(".gz") else open
        with opener(path, "wt", encoding="utf-8") as file:
            if suffix.startswith("csv"):
                file.write(f"{column},id\n" + "".join(f'"{line}",{i}\n' for i, line in enumerate(LINES)))
            else:
                file.writelines(json.dumps({column: line, "id": i}) + "\n" for i, line in enumerate(LINES))
    assert texts(read_sentences(path, column=column)) == LINES
    assert texts(read_sentences(path)) == LINES  # text, or the only column of strings


def test_blank_lines_are_skipped_and_counted(tmp_path, caplog):
    path = tmp_path / "text.txt"
    path.write_text("\n  First.  \r\n\t\nSecond.\n\n", encoding="utf-8")
    assert texts(read_sentences(path)) == ["First.", "Second."]
    assert "skipped 3 blank lines" in caplog.text


def test_empty_cells_are_skipped_and_counted(tmp_path, caplog):
    Dataset.from_dict({"text": ["First.", None, " "]}).to_parquet(tmp_path / "table.parquet")
    assert texts(read_sentences(tmp_path / "table.parquet")) == ["First."]
    assert "skipped 2 blank lines" in caplog.text


def test_byte_order_mark(tmp_path):
    (tmp_path / "text.txt").write_bytes(b"\xef\xbb\xbfFirst.\n")
    assert texts(read_sentences(tmp_path / "text.txt")) == ["First."]


def test_a_name_is_no_pattern(tmp_path):
    for name in ("s[ab]", "sa", "sb", "s*"):
        (tmp_path / f"{name}.csv").write_text(f"text\nThe file {name}.\n", encoding="utf-8")
    for name in ("s[ab]", "s*"):
        assert texts(read_sentences(tmp_path / f"{name}.csv")) == [f"The file {name}."]
    (tmp_path / "t[ab].csv").write_text("anchor,positive,negative\na,b,c\n", encoding="utf-8")
    assert len(read_triplets(tmp_path / "t[ab].csv")) == 1


@pytest.mark.parametrize("name", ["t.tsv", "t.TSV", "t.tsv.gz", "T.CSV", "T.Csv.GZ", "t.Parquet", "t.JSONL"])
def test_suffixes_of_tables(tmp_path, name):
    table = Dataset.from_dict({"text": LINES, "id": [1, 2, 3]})
    kind = name.lower().removesuffix(".gz").rpartition(".")[2]
    path = tmp_path / "plain"
    if kind == "parquet":
        table.to_parquet(path)
    elif kind == "jsonl":
        table.to_json(path, force_ascii=False)
    else:
        table.to_csv(path, sep="\t" if kind == "tsv" else ",", index=False)
    content = path.read_bytes()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.lower().endswith(".gz") else content)
    assert texts(read_sentences(tmp_path / name)) == LINES


def test_a_quotation_mark_in_a_tsv_is_one(tmp_path):
    (tmp_path / "t.tsv").write_text('id\ttext\n1\t"Go, he said.\n2\tThen "stop".\n', encoding="utf-8")
    assert texts(read_sentences(tmp_path / "t.tsv")) == ['"Go, he said.', 'Then "stop".']


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_cells_that_say_none_are_text(tmp_path, suffix, caplog):
    cells = ["NA", "null", "None", "nan", "n/a", "A sentence."]
    separator = "," if suffix == "csv" else "\t"
    rows = "".join(f"{cell}{separator}1\n" for cell in [*cells, ""])
    (tmp_path / f"t.{suffix}").write_text(f"text{separator}id\n{rows}", encoding="utf-8")
    assert texts(read_sentences(tmp_path / f"t.{suffix}")) == cells
    assert "skipped 1 blank line" in caplog.text


@pytest.mark.parametrize(
    ("name", "rows", "named"),
    [
        ("t.jsonl", [{"id": "a1", "text": ["one", "two"]}, {"id": "a2", "text": ["three"]}], "'text', whose cells are"),
        ("t.jsonl", [{"id": "a1", "text": {"body": "one"}}], "'text', whose cells are empty, numbers, lists, objects"),
        ("t.json", {"version": "1", "data": [{"text": "one"}, {"text": "two"}]}, "'text'. It has: version"),
        ("t.csv", "id,label,text\n1,pos,\n2,neg,\n", "'text', whose cells are empty"),
        ("t.parquet", {"id": ["a1", "a2"], "text": [["one"], ["two"]]}, "'text', whose cells are"),
    ],
)
def test_no_other_column_takes_the_place_of_the_text(tmp_path, name, rows, named):
    path = tmp_path / name
    if name.endswith("parquet"):
        Dataset.from_dict(rows).to_parquet(path)
    else:
        lines = isinstance(rows, list)
        path.write_text(rows if isinstance(rows, str) else "\n".join(map(json.dumps, rows)) if lines else json.dumps(rows))
    with pytest.raises(ValueError, match=f"column must name a column of strings in .*, got {named}"):
        read_sentences(path)


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_file_of_the_same_time_is_read_anew(tmp_path, suffix):
    """Archives that are made alike have one time for all."""
    path = tmp_path / f"t.{suffix}"
    for words in (["one", "two"], ["three", "four"]):
        table = Dataset.from_dict({"text": words})
        table.to_parquet(path) if suffix == "parquet" else table.to_json(path)
        os.utime(path, (10**9, 10**9))
        assert texts(read_sentences(path)) == words


def test_the_only_column_is_named(tmp_path, caplog):
    (tmp_path / "t.tsv").write_text("comment\nA dog runs.\nA cat sleeps.\n", encoding="utf-8")
    with caplog.at_level("INFO", logger="sbert_plugins"):
        assert texts(read_sentences(tmp_path / "t.tsv")) == ["A dog runs.", "A cat sleeps."]
    assert "reading its only column of strings, 'comment'" in caplog.text


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
@pytest.mark.parametrize(
    "first", ["A dog runs over there", "Rain.", "第三句。", "今天天气，很好", "今天天气很好我们去公园", "वह आया।"]
)
def test_a_sentence_is_no_header(tmp_path, suffix, first):
    """The first sentence of a table without a header would be lost."""
    path = tmp_path / f"t.{suffix}"
    path.write_text(f"{first}\nA cat sleeps.\n", encoding="utf-8")
    with pytest.raises(ValueError, match=f"must begin with a header, got '{first}', which looks like a sentence: put a line"):
        read_sentences(path)
    assert texts(read_sentences(path, column=first)) == ["A cat sleeps."]


@pytest.mark.parametrize("name", ["文本", "性别（男、女）", "問題：本文"])
def test_a_name_in_chinese_is_a_header(tmp_path, name):
    (tmp_path / "t.csv").write_text(f"{name}\n第一句。\n", encoding="utf-8")
    assert texts(read_sentences(tmp_path / "t.csv")) == ["第一句。"]


def test_a_row_with_a_number_is_no_header(tmp_path):
    path = tmp_path / "t.tsv"
    path.write_text("1\tGood morning\n2\tGood evening to you\n", encoding="utf-8")
    with pytest.raises(ValueError, match="must begin with a header, got 'Good morning', which looks like a sentence"):
        read_sentences(path)


@pytest.mark.parametrize(("header", "warns"), [("Blue car", True), ("comment", False)])
def test_a_header_of_two_words_may_be_a_short_sentence(tmp_path, caplog, header, warns):
    (tmp_path / "t.csv").write_text(f"{header}\nRed house\nGreen tree\n", encoding="utf-8")
    assert texts(read_sentences(tmp_path / "t.csv")) == ["Red house", "Green tree"]
    assert ("its first line is read as a header, and no sentence: the column is called 'Blue car'" in caplog.text) is warns


@pytest.mark.parametrize("suffix", ["csv", "tsv.gz"])
def test_blank_lines_of_a_table_are_counted(tmp_path, suffix, caplog):
    content = f"\n\ntext\nA dog runs.\n\n  \n{'' if suffix != 'csv' else chr(34) * 2}\nA cat sleeps.\n".encode()
    (tmp_path / f"t.{suffix}").write_bytes(gzip.compress(content) if suffix.endswith("gz") else content)
    assert texts(read_sentences(tmp_path / f"t.{suffix}")) == ["A dog runs.", "A cat sleeps."]
    assert "skipped 3 blank lines" in caplog.text


@pytest.mark.parametrize(
    ("name", "content", "line", "cells"),
    [
        ("t.csv", "text,stars\nGreat phone, I love it,5\nBad, returned,1\n", 2, 3),
        ("t.csv", "text,stars\nGreat phone,5\nBad, returned,1\n", 3, 3),
        ("t.csv", "\n\ntext\nYes, I know.\nA dog runs.\n", 4, 2),
        ("t.csv", 'text\n"A dog,\nwhich runs."\nA cat, too.\n', 4, 2),
        ("t.tsv", "text\tstars\nGreat\tphone\t5\n", 2, 3),
    ],
)
def test_a_row_with_more_cells_than_the_header_is_refused(tmp_path, name, content, line, cells):
    """pandas takes the first cell for an index where the first row has one too many: ``text`` is then the second half."""
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(
        ValueError, match=rf"{name}, line {line}: expected . cells? parted by \w+, as in the header, got {cells}"
    ):
        read_sentences(tmp_path / name)


@pytest.mark.parametrize(("suffix", "separator"), [("csv", ","), ("tsv", "\t")])
def test_a_delimiter_at_the_end_of_each_row_parts_nothing(tmp_path, suffix, separator):
    rows = [["text", "label"], ["A dog runs.", "good", ""], ["A cat sleeps.", "bad", ""], ["Rain."]]
    (tmp_path / f"t.{suffix}").write_text("".join(separator.join(row) + "\n" for row in rows), encoding="utf-8")
    assert texts(read_sentences(tmp_path / f"t.{suffix}")) == ["A dog runs.", "A cat sleeps.", "Rain."]


def test_a_cell_is_read_as_it_is_wherever_it_stands(tmp_path):
    """A reader that guesses types chunk by chunk makes 7 of 007, and refuses a file whose labels change their type."""
    rows = "".join(f"A plain sentence.,{i}\n" for i in range(10_000))
    (tmp_path / "t.csv").write_text(f"text,label\n{rows}007,1\n1.50,2\nTrue,x\n", encoding="utf-8")
    assert texts(read_sentences(tmp_path / "t.csv", column="text"))[-3:] == ["007", "1.50", "True"]


def test_the_only_column_that_is_not_of_numbers(tmp_path):
    (tmp_path / "t.csv").write_text(",stars,ok,comment\n0,4.5,True,Rain.\n1,,false,7\n \n", encoding="utf-8")
    assert texts(read_sentences(tmp_path / "t.csv")) == ["Rain.", "7"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text,text\na,b\n", "must name its columns differently, got 'text' more than once"),
        ('text\nA dog runs.\n"A cat sleeps.\nIt rains.\n', "line 4: cells must be parted by commas and could not be read so"),
        ('text\n"Go," he said.\n', "line 2: cells must be parted by commas and could not be read so"),
    ],
)
def test_a_csv_that_would_lose_text(tmp_path, content, message):
    (tmp_path / "t.csv").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read_sentences(tmp_path / "t.csv")


def test_a_long_cell(tmp_path):
    limit = csv.field_size_limit()
    (tmp_path / "t.csv").write_text(f'text\n"{"word " * 40_000}"\n', encoding="utf-8")
    assert len(texts(read_sentences(tmp_path / "t.csv"))[0]) == 199_999
    assert csv.field_size_limit() == limit


def test_lines_without_a_letter_are_counted(tmp_path, caplog):
    (tmp_path / "t.txt").write_text("A dog [MASK] runs.\n[PAD]\n--\n</s>\n7\n", encoding="utf-8")
    assert len(read_sentences(tmp_path / "t.txt")) == 5
    assert "3 of 5 sentences hold no letter or digit" in caplog.text


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("a.txt", True),
        ("A.CSV", True),
        ("x/y.tsv.gz", True),
        ("./x", True),
        ("/x", True),
        ("a/b/c", True),
        ("~/x", True),
        ("here/x", False),
        ("organization/name", False),
        ("bert-base-uncased", False),
        ("organization/model-v1.5", False),
    ],
)
def test_names_that_can_only_be_paths(name, known, tmp_path, monkeypatch):
    """A folder of an organization's name, as a checkout of sentence-transformers, hides none of its names."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    assert is_path(name) is known


class TestBadInput:
    @pytest.mark.parametrize("content", ["[PAD]\n[PAD] [PAD]\n", "<s></s>\n", "--\n...\n", "[unused7]\n"])
    def test_no_letter(self, tmp_path, content):
        (tmp_path / "t.txt").write_text(content, encoding="utf-8")
        with pytest.raises(ValueError, match="must hold sentences, got [12] without a letter or digit beside special tokens"):
            read_sentences(tmp_path / "t.txt")

    @pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
    def test_utf16_without_a_mark(self, tmp_path, encoding):
        (tmp_path / "t.txt").write_bytes("A dog runs.\nA cat sleeps.\n".encode(encoding))
        with pytest.raises(ValueError, match="t.txt, row 1: text must not hold NUL characters, .* iconv -f utf-16le"):
            read_sentences(tmp_path / "t.txt")

    @pytest.mark.parametrize("name", ["t.txt", "t.csv"])
    @pytest.mark.parametrize("mark", ["\xff\xfe", "\xfe\xff"])
    def test_utf16_with_a_mark(self, tmp_path, name, mark):
        encoding = "utf-16-le" if mark == "\xff\xfe" else "utf-16-be"
        (tmp_path / name).write_bytes(mark.encode("latin1") + "text\nA dog runs.\n".encode(encoding))
        with pytest.raises(ValueError, match=f"{name}: text must be UTF-8, got UTF-16 .* iconv -f utf-16 -t utf-8"):
            read_sentences(tmp_path / name)

    @pytest.mark.parametrize(
        ("name", "header", "advice"),
        [
            ("t.csv", "id;text", "parted by semicolons: convert it: pandas.read_csv"),
            ("t.csv", "id\ttext", "parted by tabs: name it .tsv"),
            ("t.tsv", "id,text", "parted by commas: name it .csv"),
        ],
    )
    def test_another_delimiter(self, tmp_path, name, header, advice):
        (tmp_path / name).write_text(f"{header}\n1;A dog runs, and a cat.\n", encoding="utf-8")
        with pytest.raises(ValueError, match=f"{name} must have columns parted by .*, {advice}"):
            read_sentences(tmp_path / name)

    def test_nul_in_a_table(self, tmp_path):
        Dataset.from_dict({"text": ["A dog.", "a\0b"]}).to_parquet(tmp_path / "t.parquet")
        with pytest.raises(ValueError, match="row 2: text must not hold NUL characters"):
            read_sentences(tmp_path / "t.parquet")

    @pytest.mark.parametrize("name", ["", " "])
    def test_no_name(self, name):
        with pytest.raises(ValueError, match="must be a file or a dataset on the Hub, got the name"):
            read_sentences(name)

    def test_a_column_of_a_text_file(self, tmp_path):
        (tmp_path / "t.txt").write_text("A dog.\n", encoding="utf-8")
        with pytest.raises(ValueError, match="column must be left out where the text has no columns, got 'text' with .*t.txt"):
            read_sentences(tmp_path / "t.txt", column="text")

    def test_a_path_that_is_not_there(self, monkeypatch):
        monkeypatch.setattr("sbert_plugins.data.text.load_dataset", lambda *_, **__: pytest.fail("the Hub was asked"))
        for name in ("mistyped.txt", "./folder", "a/b/c.csv"):
            with pytest.raises(FileNotFoundError, match="does not exist: a text is a file here"):
                read_sentences(name)

    @pytest.mark.parametrize(("content", "blank"), [("", "nothing"), ("\n \n", "2 blank lines")])
    def test_no_sentence(self, tmp_path, content, blank):
        path = tmp_path / "text.txt"
        path.write_text(content, encoding="utf-8")
        with pytest.raises(ValueError, match=f"text.txt must hold at least one sentence, got {blank}"):
            read_sentences(path)

    def test_not_utf8(self, tmp_path):
        path = tmp_path / "text.txt"
        path.write_bytes("Erster.\nGröße\n".encode("latin1"))
        with pytest.raises(ValueError, match=r"text.txt, line 2: text must be UTF-8, got byte 0xf6 at position 2. .*iconv"):
            read_sentences(path)

    @pytest.mark.parametrize("content", [b"not gzip\n", gzip.compress(b"First.\n" * 1000, mtime=0)[:-20]])
    def test_broken_gzip(self, tmp_path, content):
        path = tmp_path / "text.txt.gz"
        path.write_bytes(content)
        with pytest.raises(ValueError, match="is not a whole gzip file"):
            read_sentences(path)

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("table.csv", b"", "must hold at least one sentence, got an empty file"),
            ("table.jsonl", b"", "must hold at least one sentence, got an empty file"),
            ("table.parquet", b"", "must hold at least one sentence, got an empty file"),
            ("table.csv", "text\nGröße\n".encode("latin1"), ", line 2: text must be UTF-8, got byte 0xf6"),
            ("table.jsonl", b'{"text": "x"}\n{"text": \n', "must be a json table in UTF-8"),
            ("table.parquet", b"PAR1 is not all", "must be a parquet table"),
        ],
    )
    def test_broken_tables(self, tmp_path, name, content, message):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=f"{name} ?{message}"):
            read_sentences(tmp_path / name)

    @pytest.mark.parametrize("suffix", ["parquet", "parquet.gz"])
    def test_table_without_rows(self, tmp_path, suffix):
        without = pyarrow.table({"text": pyarrow.array([], pyarrow.string())})
        pyarrow.parquet.write_table(without, tmp_path / "plain")
        content = (tmp_path / "plain").read_bytes()
        (tmp_path / f"table.{suffix}").write_bytes(gzip.compress(content) if suffix.endswith("gz") else content)
        with pytest.raises(ValueError, match=r"must hold at least one sentence, got nothing\."):
            read_sentences(tmp_path / f"table.{suffix}")

    @pytest.mark.parametrize("column", ["missing", "id", None])
    def test_column(self, tmp_path, column):
        Dataset.from_dict({"a": ["x"], "b": ["y"], "id": [1]}).to_parquet(tmp_path / "table.parquet")
        with pytest.raises(ValueError, match=r"column must name a column of strings in .*, got '\w+'.*It has: a, b"):
            read_sentences(tmp_path / "table.parquet", column=column)

    def test_neither_file_nor_dataset(self):
        with pytest.raises(FileNotFoundError, match="no/such-dataset is neither a file here nor a dataset within reach"):
            read_sentences("no/such-dataset")

    def test_directory(self, tmp_path):
        with pytest.raises(ValueError, match="is a directory: name a file in it"):
            read_sentences(tmp_path)

    def test_a_pipe(self, tmp_path):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(ValueError, match="must be a regular file, got a pipe or a device"):
            read_sentences(tmp_path / "pipe")

    def test_limit(self, tmp_path):
        with pytest.raises(ValueError, match="limit must be at least 1, got 0"):
            read_sentences(tmp_path, limit=0)

    @pytest.mark.parametrize("read", [read_sentences, read_documents, read_triplets])
    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"First.\rSecond.\rThird.\r", "carriage returns alone"),
            (b'{"text": "a b"}\n{"text": "c"}\n', "name the file .jsonl"),
        ],
    )
    def test_another_kind_of_file(self, tmp_path, read, content, message):
        (tmp_path / "text.txt").write_bytes(content)
        with pytest.raises(ValueError, match=message):
            read(tmp_path / "text.txt")

    @pytest.mark.parametrize("read", [read_sentences, read_documents])
    def test_json_that_is_not_utf8(self, tmp_path, read):
        (tmp_path / "text.jsonl").write_bytes(b'{"text": "It rains."}\n' * 50 + b'{"text": "caf\xe9"}\n')
        with pytest.raises(ValueError, match=r"text\.jsonl.* UTF-8"):
            read(tmp_path / "text.jsonl")

    def test_a_column_without_text(self, tmp_path):
        (tmp_path / "text.csv").write_text("text,id\n,1\n,2\n", encoding="utf-8")
        with pytest.raises(ValueError, match="got 'text', whose cells are empty, numbers, lists, objects or of several types"):
            read_sentences(tmp_path / "text.csv")

    def test_a_share_is_no_limit(self, tmp_path):
        (tmp_path / "text.txt").write_text("a\nb\n", encoding="utf-8")
        with pytest.raises(ValueError, match=r"limit must be a whole number, got 1\.5"):
            read_sentences(tmp_path / "text.txt", limit=1.5)


@pytest.mark.parametrize("header", [";text;label", "sep=;", "text;", "|text|label", ",text,label"])
def test_another_delimiter_beside_a_name_that_is_missing(tmp_path, header):
    path = tmp_path / ("t.tsv" if "," in header else "t.csv")
    path.write_text(f"{header}\n{header.replace('text', 'It rains today')}\n", encoding="utf-8")
    with pytest.raises(ValueError, match="must have columns parted by"):
        read_sentences(path)


@pytest.mark.parametrize(("name", "delimiter"), [("t.csv", ","), ("t.tsv", "\t")])
def test_a_row_that_lacks_cells_is_said_once(tmp_path, caplog, name, delimiter):
    rows = [["id", "text", "label"], ["1", "The printer"], ["is broken", "pos"], ["2", "It rains.", "neg"]]
    (tmp_path / name).write_text("".join(delimiter.join(row) + "\n" for row in rows), encoding="utf-8")
    assert read_sentences(tmp_path / name)["anchor"][:] == ["The printer", "pos", "It rains."]
    assert f"{name}, line 2: got 2 of 3 cells, and further rows may lack some" in caplog.text
    assert caplog.text.count(" cells, and ") == 1
    caplog.clear()
    (tmp_path / name).write_text("".join(delimiter.join(row) + "\n" for row in (rows[0], [], rows[3])), encoding="utf-8")
    assert read_sentences(tmp_path / name)["anchor"][:] == ["It rains."]
    assert " cells, and " not in caplog.text


def test_a_carriage_return_within_a_line_is_said(tmp_path, caplog):
    (tmp_path / "t.txt").write_bytes(b"It rains.\r\nIt\rsnows.\r\nIt\rhails.\n")
    assert read_sentences(tmp_path / "t.txt")["anchor"][:] == ["It rains.", "It\rsnows.", "It\rhails."]
    assert caplog.text.count("a carriage return alone ends no line") == caplog.text.count("t.txt, line 2: a carriage") == 1


@pytest.mark.parametrize("last", ['"score": 0.5', '"score": 1, "lang": "en"', '"score": null'])
def test_json_lines_whose_other_columns_change_late(tmp_path, last):
    row = '{"score": 1, "text": "It rains."}\n'
    count = (10 << 20) // len(row) + 1  # what the reader of json takes the types from
    (tmp_path / "t.jsonl").write_text(row * count + f'{{{last}, "text": "It snows."}}\n', encoding="utf-8")
    read = read_sentences(tmp_path / "t.jsonl")["anchor"]
    assert (len(read), read[-1]) == (count + 1, "It snows.")


@pytest.mark.parametrize("mark", [b"PK\x03\x04", b"BZh9", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", b"\x1f\x8b"])
def test_a_packed_file_is_no_matter_of_encoding(tmp_path, mark):
    for name in ("t.txt", "t.csv"):
        (tmp_path / name).write_bytes(mark + b"\x8b\xff\x00\n")
        with pytest.raises(ValueError, match="by its first bytes. Unpack it first"):
            read_sentences(tmp_path / name)


@pytest.mark.parametrize(("name", "content"), [("t.ndjson", '{"text": "It rains."}\n'), ("t.tab", "id\ttext\n1\tIt rains.\n")])
def test_other_suffixes_of_tables(tmp_path, name, content):
    (tmp_path / name).write_text(content, encoding="utf-8")
    assert read_sentences(tmp_path / name)["anchor"][:] == ["It rains."]


@pytest.mark.parametrize("first", ['{"a", "b"} is a set in Python.', "A return\rinside of a line."])
def test_a_first_line_that_only_looks_like_another_kind(tmp_path, first):
    (tmp_path / "t.txt").write_bytes(f"{first}\nIt rains.\n".encode())
    assert read_sentences(tmp_path / "t.txt")["anchor"][:] == [first, "It rains."]


def test_white_space_around_the_names_of_columns(tmp_path):
    (tmp_path / "t.csv").write_text("name, text\nx,It rains.\n", encoding="utf-8")
    assert read_sentences(tmp_path / "t.csv", column="text")["anchor"][:] == ["It rains."]


@pytest.mark.parametrize(
    ("lines", "tabs"),
    [(["1\tA dog runs.", "", "2\tIt rains."], "a tab"), (["1\ta\tA dog."], "2 tabs"), (["1\tA dog.", "It rains."], None)],
)
def test_lines_that_look_like_rows_are_warned_of(tmp_path, caplog, lines, tabs):
    path = tmp_path / "s.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    rows = read_sentences(path)["anchor"]
    assert rows[:] == [line for line in lines if line]
    assert (f"s.txt: its lines have {tabs} each" in caplog.text) == (tabs is not None)


@pytest.mark.parametrize("suffix", ["tsv", "tsv.gz"])
@pytest.mark.parametrize("names", [["text", "stars"], ["stars", "text"]])
@pytest.mark.parametrize(
    "rows", [["Plain.", 'He said "go".', "Plain."], ["Plain.", "One line.\nAnother.", "Plain."]], ids=["marks", "a break"]
)
def test_quoting_between_tabs_is_refused(tmp_path, suffix, names, rows):
    """As pandas writes it: read as it stands, marks and half sentences would be trained."""
    path = tmp_path / f"t.{suffix}"
    frame = pandas.DataFrame({"text": rows, "stars": range(len(rows))})
    frame[names].to_csv(path, sep="\t", index=False)
    with pytest.raises(ValueError, match=r"between tabs a quotation mark is a letter.*sep='.t'"):
        read_sentences(path)


def test_a_header_in_marks_is_quoting(tmp_path):
    frame = pandas.DataFrame({"text": ["Plain."], "stars": [1]})
    frame.to_csv(tmp_path / "t.tsv", sep="\t", index=False, quoting=csv.QUOTE_ALL)
    with pytest.raises(ValueError, match="line 1: between tabs"):
        read_sentences(tmp_path / "t.tsv")


@pytest.mark.parametrize(
    "rows",
    [
        ['"Go," she said.'],
        ['"Go"', 'the 5" pipe'],
        ['"Why?" and "How?"', 'the bulb""s path', '"the bulb""s path"'],
        ['"I went home', "and slept."],
        ['"" said he ""'],
    ],
)
def test_marks_between_tabs_are_letters(tmp_path, rows):
    content = "text\tstars\n" + "".join(f"{row}\t3\n" for row in rows)
    (tmp_path / "t.tsv").write_text(content, encoding="utf-8")
    assert texts(read_sentences(tmp_path / "t.tsv", column="text")) == rows


def test_more_text_than_lies_in_one_piece(tmp_path, monkeypatch):
    (tmp_path / "t.txt").write_text("\n".join(LINES * 20), encoding="utf-8")
    whole = read_sentences(tmp_path / "t.txt")
    for most, parts_expected in ((1, 60), (40, 20)):
        monkeypatch.setattr("sbert_plugins.data.text._CHARACTERS_A_PART", most)
        parts = read_sentences(tmp_path / "t.txt")
        assert texts(parts) == texts(whole)
        assert parts.data.column("anchor").num_chunks == parts_expected


class TestTriplets:
    ROWS = [["a dog", "an animal", "a cat"], ["rain", "wet weather", "sun"]]  # noqa: RUF012

    @pytest.mark.parametrize("prefix", ["", "snli\t"])
    def test_tab_separated(self, tmp_path, prefix):
        path = tmp_path / "triplets.tsv"
        path.write_text("".join(prefix + "\t".join(row) + "\n" for row in self.ROWS), encoding="utf-8")
        triplets = read_triplets(path)
        assert triplets.column_names == ["anchor", "positive", "negative"]
        assert [list(row.values()) for row in triplets] == self.ROWS
        assert len(read_triplets(path, limit=1)) == 1

    def test_a_header_is_no_triplet_and_a_blank_line_none(self, tmp_path, caplog):
        path = tmp_path / "triplets.tsv"
        path.write_text("id\tAnchor\tpositive\tnegative\n1\ta\tb\tc\n\n2\td\te\tf\n", encoding="utf-8")
        assert [list(row.values()) for row in read_triplets(path)] == [["a", "b", "c"], ["d", "e", "f"]]
        assert "skipped 1 blank line" in caplog.text

    @pytest.mark.parametrize(
        ("header", "row"),
        [("anchor\tpositive\tnegative\tscore", "a\tb\tc\t.5"), ("negative\tNote\tpositive\tanchor", "c\tx\tb\ta")],
    )
    def test_a_header_says_where_they_are(self, tmp_path, header, row):
        path = tmp_path / "triplets.tsv"
        path.write_text(f"{header}\n{row}\n", encoding="utf-8")
        assert read_triplets(path)[:] == {"anchor": ["a"], "positive": ["b"], "negative": ["c"]}
        path.write_text(f"{header}\n{row}\na\tb\n", encoding="utf-8")
        with pytest.raises(ValueError, match="line 3: expected tab-separated"):
            read_triplets(path)

    def test_a_grade_is_no_negative(self, tmp_path):
        (tmp_path / "t.tsv").write_text("a dog\tan animal\ta cat\t0.5\na fox\tan animal\ta hen\t1\n")
        with pytest.raises(ValueError, match="got numbers in the last .*0.5.*: name the columns in a header, anchor"):
            read_triplets(tmp_path / "t.tsv")
        assert len(read_triplets(tmp_path / "t.tsv", limit=1)) == 1  # which may be any text

    def test_numbers_under_a_header_are_texts(self, tmp_path):
        (tmp_path / "t.tsv").write_text("anchor\tpositive\tnegative\nWhat is two plus two?\t4\t5\n")
        assert read_triplets(tmp_path / "t.tsv")["negative"][:] == ["5"]

    def test_real_file(self, data_dir):
        triplets = read_triplets(data_dir / "nli" / "nli_triplets.tsv.gz")
        assert len(triplets) == 14_460

    def test_table(self, tmp_path):
        path = tmp_path / "triplets.jsonl"
        Dataset.from_dict({"negative": ["n"], "anchor": ["a"], "positive": ["p"], "x": [1]}).to_json(str(path))
        assert read_triplets(path)[0] == {"anchor": "a", "positive": "p", "negative": "n"}

    def test_a_table_without_rows(self, tmp_path):
        (tmp_path / "t.csv").write_text("anchor,positive,negative\n")
        with pytest.raises(ValueError, match="t.csv must hold at least one triplet, got none"):
            read_triplets(tmp_path / "t.csv")

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("a\tb\n", "line 1: expected tab-separated anchor, positive and negative, got 'a\\\\tb'"),
            ("a\tb\tc\na\t\tc\n", "line 2: expected"),
            ("", "must hold at least one triplet"),
            ("anchor\tpositive\tnegative\n", "must hold at least one triplet"),
        ],
    )
    def test_bad_lines(self, tmp_path, content, message):
        path = tmp_path / "triplets.tsv"
        path.write_text(content)
        with pytest.raises(ValueError, match=message):
            read_triplets(path)

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("t.csv", "anchor,positive,negative\na,b,c\na,,c\n"),
            (
                "t.jsonl",
                '{"anchor": "a", "positive": "b", "negative": "c"}\n{"anchor": "a", "positive": " ", "negative": "c"}',
            ),
            (
                "t.jsonl",
                '{"anchor": "a", "positive": "b", "negative": "c"}\n{"anchor": "a", "positive": null, "negative": "c"}',
            ),
        ],
    )
    def test_blank_cells(self, tmp_path, name, content):
        (tmp_path / name).write_text(content)
        with pytest.raises(ValueError, match=f"{name}, row 2: expected a text as anchor, positive and negative, got "):
            read_triplets(tmp_path / name)
        assert read_triplets(tmp_path / name, limit=1)[0] == {"anchor": "a", "positive": "b", "negative": "c"}

    def test_missing_columns(self, tmp_path):
        path = tmp_path / "triplets.csv"
        path.write_text("anchor,positive\na,b\n")
        with pytest.raises(ValueError, match="must have the columns anchor, positive, negative, lacks negative"):
            read_triplets(path)

    def test_limit(self, tmp_path):
        with pytest.raises(ValueError, match="limit must be at least 1, got 0"):
            read_triplets(tmp_path / "x.tsv", limit=0)

    def test_neither_file_nor_hub(self):
        with pytest.raises(FileNotFoundError, match="neither a file here nor a dataset within reach"):
            read_triplets("nobody/nothing")


class TestPairs:
    def test_row_by_row_in_any_of_the_formats(self, tmp_path):
        (tmp_path / "text.txt").write_text("\n".join(LINES), encoding="utf-8")
        table = Dataset.from_dict({"anchor": LINES, "paraphrase": LINES[::-1], "id": ["1", "2", "3"]})
        table.to_parquet(tmp_path / "pairs.parquet")
        expected = {"anchor": LINES, "paraphrase": LINES[::-1]}
        assert read_pairs(tmp_path / "text.txt", tmp_path / "pairs.parquet").to_dict() == expected
        assert read_pairs(tmp_path / "pairs.parquet", tmp_path / "pairs.parquet").to_dict() == expected
        assert read_pairs(tmp_path / "pairs.parquet", tmp_path / "text.txt", column="id")["anchor"][:] == ["1", "2", "3"]
        assert len(read_pairs(tmp_path / "text.txt", tmp_path / "pairs.parquet", limit=2)) == 2

    def test_a_sentence_is_not_its_own_paraphrase(self, tmp_path):
        (tmp_path / "pairs.csv").write_text("text,rewrite\nA dog runs.,The dog is running.\n", encoding="utf-8")
        with pytest.raises(ValueError, match=r"pairs.csv must hold paraphrases of .*, got each sentence again: the column"):
            read_pairs(tmp_path / "pairs.csv", tmp_path / "pairs.csv")

    def test_a_blank_text_leaves_its_row_out(self, tmp_path, caplog):
        (tmp_path / "a.txt").write_text("1\n\n3\n4\n", encoding="utf-8")
        (tmp_path / "b.txt").write_text("one\ntwo\n \nfour\n", encoding="utf-8")
        assert read_pairs(tmp_path / "a.txt", tmp_path / "b.txt").to_dict() == {
            "anchor": ["1", "4"],
            "paraphrase": ["one", "four"],
        }
        assert "skipped 2 blank lines" in caplog.text

    def test_unequal_numbers(self, tmp_path):
        (tmp_path / "a.txt").write_text("1\n2\n3\n", encoding="utf-8")
        (tmp_path / "b.txt").write_text("one\ntwo\n", encoding="utf-8")
        for pair in (("a.txt", "b.txt"), ("b.txt", "a.txt")):
            with pytest.raises(ValueError, match="as many rows, got 2 in the shorter"):
                read_pairs(*(tmp_path / name for name in pair))
            with pytest.raises(
                ValueError, match="as many rows, got 2 in the shorter"
            ):  # the rows before may not belong together
                read_pairs(*(tmp_path / name for name in pair), limit=1)
        with pytest.raises(ValueError, match="limit must be at least 1, got 0"):
            read_pairs(tmp_path / "a.txt", tmp_path / "b.txt", limit=0)


class TestDocuments:
    TEXT = "First one\n  goes on. \n\n \t\nSecond.\r\n\r\n\n"

    @pytest.mark.parametrize("name", ["text.txt", "text.gz"])
    def test_parted_by_blank_lines(self, tmp_path, name, caplog):
        opener = gzip.open if name.endswith(".gz") else open
        with opener(tmp_path / name, "wb") as file:
            file.write(self.TEXT.encode())
        documents = read_documents(tmp_path / name)
        assert documents.to_dict() == {"document": ["First one\ngoes on.", "Second."]}
        assert len(read_documents(tmp_path / name, limit=1)) == 1
        assert caplog.text == ""

    @pytest.mark.parametrize("column", ["document", "text", "body"])
    def test_tables(self, tmp_path, column, caplog):
        rows = [{column: "A text.\n\nIt goes on.", "id": 1}, {column: None, "id": 2}, {column: "Another.", "id": 3}]
        path = tmp_path / "table.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        assert read_documents(path)["document"][:] == ["A text.\n\nIt goes on.", "Another."]
        assert "skipped 1 blank line" in caplog.text
        assert read_documents(path, column=column)["document"][:] == read_documents(path)["document"][:]

    def test_real_paragraphs(self, data_dir):
        documents = read_documents(data_dir / "corpus" / "wiki_paragraphs.parquet", limit=5)
        assert documents.column_names == ["document"]
        assert all(len(document.split()) > 10 for document in documents["document"])

    def test_a_sentence_a_line_is_one_document(self, tmp_path, caplog):
        path = tmp_path / "text.txt"
        path.write_text("\n".join(LINES), encoding="utf-8")
        assert read_documents(path)["document"][:] == ["\n".join(LINES)]
        assert "holds no blank line between its 3 lines: they are one document" in caplog.text

    @pytest.mark.parametrize("text", ["a b.\nc d.\n\n", "\n\na b.\nc d."])
    def test_and_so_it_is_with_blank_lines_before_or_behind(self, text, tmp_path, caplog):
        path = tmp_path / "text.txt"
        path.write_text(text, encoding="utf-8")
        assert read_documents(path)["document"][:] == ["a b.\nc d."]
        assert "between its 2 lines" in caplog.text

    def test_a_document_of_a_line_and_two_of_several_are_no_news(self, tmp_path, caplog):
        path = tmp_path / "text.txt"
        for text in ("a b.\n", "a b.\nc d.\n\ne f.\ng h.\n"):
            path.write_text(text, encoding="utf-8")
            read_documents(path)
        assert "blank line" not in caplog.text

    def test_bad_input(self, tmp_path):
        path = tmp_path / "text.txt"
        path.write_text("\n \n")
        with pytest.raises(ValueError, match="must hold at least one document, got nothing"):
            read_documents(path)
        path.write_bytes("Erster.\n\nGröße\n".encode("latin1"))
        with pytest.raises(ValueError, match="line 3: text must be UTF-8"):
            read_documents(path)
        with pytest.raises(ValueError, match="limit must be at least 1, got 0"):
            read_documents(path, limit=0)
        with pytest.raises(FileNotFoundError, match="neither a file here nor a dataset within reach"):
            read_documents("nobody/nothing")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "a text must be a file or a dataset on the Hub, got the name ''"),
        (None, "a text must be a file or a dataset on the Hub, got NoneType"),
        (".", "is a directory: name a file in it"),
    ],
)
@pytest.mark.parametrize("read", [read_sentences, read_documents, read_triplets])
def test_what_is_no_text(read, source, message):
    with pytest.raises(ValueError, match=message):
        read(source)


def test_an_error_without_words(monkeypatch):
    def fail(*_, **__):
        raise TimeoutError

    monkeypatch.setattr("sbert_plugins.data.text.load_dataset", fail)
    with pytest.raises(FileNotFoundError, match=r"organization/name is neither .* \(TimeoutError: \)"):
        read_sentences("organization/name")


@pytest.mark.parametrize("named", [["triplet", "pair"], ["default"], ["one", "other"]])
def test_triplets_of_the_hub_in_one_configuration_or_several(monkeypatch, named):
    rows = Dataset.from_dict({"anchor": ["a"], "positive": ["b"], "negative": ["c"]})

    def load(name, configuration=None, *, split):
        if configuration not in named and (configuration or len(named) > 1):
            raise ValueError(
                f"{configuration} is missing.\nPlease pick one among the available configs: {named}\nExample: ..."
            )
        return rows

    monkeypatch.setattr("sbert_plugins.data.text.load_dataset", load)
    if named == ["one", "other"]:
        with pytest.raises(FileNotFoundError, match=r"missing. Please pick one among .*\['one', 'other'\]\)\.$"):
            read_triplets("organization/name")
    else:
        assert read_triplets("organization/name")[:] == rows[:]
