import gzip

import pytest

from sbert_plugins.evaluation.tables import data_path, read_table


def test_rows_and_places(tmp_path):
    path = tmp_path / "folder" / "rows.tsv.gz"
    path.parent.mkdir()
    path.write_bytes(gzip.compress('1\tHe said "no"\r\n2\twith\u2028a separator\n'.encode()))
    assert [*read_table(path, ("label", "sentence"))] == [
        (f"{path}, line 1", ["1", 'He said "no"']),
        (f"{path}, line 2", ["2", "with\u2028a separator"]),
    ]


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
