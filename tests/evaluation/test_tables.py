import gzip

import pytest

from sbert_plugins.evaluation.tables import data_path, read_table, width_of


def test_rows_and_places(tmp_path):
    path = tmp_path / "folder" / "rows.tsv.gz"
    path.parent.mkdir()
    path.write_bytes(gzip.compress('1\tHe said "no"\r\n2\twith\u2028a separator\n'.encode()))
    assert [*read_table(path, ("label", "sentence"))] == [
        (f"{path}, line 1", ["1", 'He said "no"']),
        (f"{path}, line 2", ["2", "with\u2028a separator"]),
    ]


@pytest.mark.parametrize("ending", [".tsv", ".tsv.gz"])
def test_a_byte_order_mark_is_no_text(tmp_path, ending):
    path = tmp_path / f"rows{ending}"
    content = "1\ta\n2\t\ufeffb\n".encode("utf-8-sig")
    path.write_bytes(gzip.compress(content) if ending == ".tsv.gz" else content)
    assert [fields for _, fields in read_table(path, ("label", "sentence"))] == [["1", "a"], ["2", "\ufeffb"]]
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf") if ending == ".tsv.gz" else b"\xef\xbb\xbf")
    assert width_of(path) == 0


def test_errors_name_file_and_line(tmp_path):
    path = tmp_path / "rows.tsv"
    path.write_text("1\ta\n2\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"rows.tsv, line 2: expected 2 tab-separated fields \(label, sentence\), got 1"):
        [*read_table(path, ("label", "sentence"))]
    with pytest.raises(FileNotFoundError, match="none.tsv does not exist: SBERT_PLUGINS_DATA or data_dir must name"):
        [*read_table(tmp_path / "none.tsv", ("a",))]


def test_where_data_are(tmp_path, monkeypatch):
    monkeypatch.setenv("SBERT_PLUGINS_DATA", "/from/variable")
    assert data_path(None, "sts", "x.tsv").parts[1:] == ("from", "variable", "sts", "x.tsv")
    assert data_path(tmp_path, "x.tsv") == tmp_path / "x.tsv"
    monkeypatch.delenv("SBERT_PLUGINS_DATA")
    with pytest.raises(FileNotFoundError, match=r"transfer/mr.tsv.gz is read from a data directory: set SBERT_PLUGINS_DATA"):
        data_path(None, "transfer", "mr.tsv.gz")
