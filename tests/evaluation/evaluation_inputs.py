"""A model that counts, and the data directory in small, for the tests of the evaluators."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

from encoders import project_text

TRANSFER_FILES = (
    "mr",
    "cr",
    "subj",
    "mpqa",
    "sst2_train",
    "sst2_test",
    "trec_train",
    "trec_test",
    "mrpc_train",
    "mrpc_val",
    "mrpc_test",
)
STS = [*(f"sts{year}" for year in range(12, 17)), "stsb_dev", "stsb_test", "sick_test"]


class CountingEncoder:
    """Keeps what the model's own ``encode`` is asked for, also through ``encode_query`` and ``encode_document``."""

    def __init__(self, model):
        self.calls = []
        encode = model.encode

        def counted(inputs, **keywords):
            self.calls.append([inputs] if isinstance(inputs, str) else list(inputs))
            return encode(inputs, **keywords)

        model.encode = counted
        self.model = model

    @property
    def times(self):
        return Counter(sentence for call in self.calls for sentence in call)


def write_transfer(folder, stem, rows):
    (folder / "transfer").mkdir(parents=True, exist_ok=True)
    text = "".join("\t".join(map(str, row)) + "\n" for row in rows)
    (folder / "transfer" / f"{stem}.tsv.gz").write_bytes(gzip.compress(text.encode()))


def transfer_rows(stem, count=30):
    """Rows whose label is in the words; the labels of trec are three."""
    text = project_text()
    offset = 7 * TRANSFER_FILES.index(stem)
    labels = [i % (3 if stem.startswith("trec") else 2) for i in range(count)]
    sentences = [f"{text[offset + i]} {['no', 'yes', 'what'][label]}" for i, label in enumerate(labels)]
    if stem.startswith("mrpc"):
        return [(label, a, a if label else b) for label, a, b in zip(labels, sentences, sentences[::-1], strict=True)]
    return [*zip(labels, sentences, strict=True)]


def write_data(data: Path) -> Path:
    """The layout of the data directory, every file small, many sentences in several of them."""
    text = project_text()
    for name in ("sts", "rerank/quora_dup", "rerank/cranfield", "clustering"):
        (data / name).mkdir(parents=True)
    for number, stem in enumerate(STS, start=2):
        rows = [(i % 5 + 0.5 if stem != "sick_test" else i % 5 + 1, text[i], text[10 * number + i]) for i in range(20)]
        rows += [(5 - i / 10, f"{text[i]} and so on and on for six more words", text[i]) for i in range(3)]
        rows += [(1 if stem == "sick_test" else i / 10, text[i], f"{text[i]} .") for i in range(3)]
        lines = "".join(f"subset\t{score}\t{first}\t{second}\n" for score, first, second in rows)
        (data / "sts" / f"{stem}.tsv").write_text(lines, encoding="utf-8")
    for stem in TRANSFER_FILES:
        write_transfer(data, stem, transfer_rows(stem))
    quora, cranfield = data / "rerank" / "quora_dup", data / "rerank" / "cranfield"
    (quora / "dev_corpus.tsv.gz").write_bytes(gzip.compress("".join(f"{i}\t{text[i]}\n" for i in range(40)).encode()))
    (quora / "dev_queries.tsv").write_text(f"1\t{text[1]}\n2\t{text[2]}\n", encoding="utf-8")
    (quora / "dev_qrels.tsv").write_text("1\t3\t1\n2\t4\t1\n", encoding="utf-8")
    (cranfield / "corpus.tsv.gz").write_bytes(
        gzip.compress("".join(f"{i}\t{text[i]}\t{text[i + 1]}\n" for i in range(9)).encode())
    )
    (cranfield / "queries.tsv").write_text(f"1\t{text[50]}\n", encoding="utf-8")
    (cranfield / "qrels.tsv").write_text("1\t3\t2\n1\t4\t0\n", encoding="utf-8")
    for stem, topics in (("agnews_8000", 2), ("biomedical_titles", 3)):
        lines = "".join(f"{i % topics}\t{text[i]} {' '.join([text[i % topics]] * 3)}\n" for i in range(30))
        (data / "clustering" / f"{stem}.tsv.gz").write_bytes(gzip.compress(lines.encode()))
    return data
