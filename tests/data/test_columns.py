import math

import pytest
from datasets import Dataset, IterableDataset, concatenate_datasets

from sbert_plugins.data import read_pairs, read_sentences
from sbert_plugins.data.columns import describe_texts, read_columns

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

    def test_columns_that_are_asked_for(self):
        rows = dataset(question=TEXTS, answer=TEXTS[::-1])
        read = read_columns(rows, ["anchor"], optional=["positive"], columns=["question", "answer"])
        assert read.to_dict() == {"anchor": TEXTS, "positive": TEXTS[::-1]}

    def test_labels_only_if_wanted(self):
        rows = dataset(label=[[0, 1], [1, 0], [1, 1]], text=TEXTS)
        assert read_columns(rows, ["anchor"]).column_names == ["anchor"]
        assert read_columns(rows, ["anchor"], labels=True)["label"][:] == [[0, 1], [1, 0], [1, 1]]

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

    @pytest.mark.parametrize("separator", [";", "\t"])
    def test_a_csv_with_other_separators(self, separator, tmp_path):
        lines = [("id", "text"), ("1", "The pump, an old one, leaks."), ("2", "It rains.")]
        (tmp_path / "t.csv").write_text("\n".join(map(separator.join, lines)), encoding="utf-8")
        assert read_sentences(tmp_path / "t.csv")["anchor"][:] == [text for _, text in lines[1:]]


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
        (concatenate_datasets([dataset(text=[" "])]), "no text"),
    ],
)
def test_errors_name_the_place(texts, named):
    with pytest.raises(ValueError, match=named):
        read_columns(texts, ["anchor"])
