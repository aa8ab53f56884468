"""A model that counts its calls, files of rows, and the data folder in small."""

import gzip
from collections import Counter
from pathlib import Path

from encoders import project_text


class CountingEncoder:
    """Keeps the texts that reach the model's own ``encode``."""

    def __init__(self, model):
        self.calls = []
        encode = model.encode

        def counted(inputs, *arguments, **keywords):
            self.calls.append([inputs] if isinstance(inputs, str) else list(inputs))
            return encode(inputs, *arguments, **keywords)

        model.encode = counted
        self.model = model

    @property
    def times(self):
        return Counter(text for call in self.calls for text in call)


def write_rows(path: Path, *rows) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join("\t".join(map(str, row)) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def write_sts(data: Path, pairs: int = 10) -> Path:
    """Write the STS files. Half of the sentences occur in every task."""
    text = project_text()
    names = [f"sts{year}" for year in range(12, 17)]
    names += ["stsb_train", "stsb_dev", "stsb_test", "sick_train", "sick_trial", "sick_test"]
    for number, name in enumerate(names, start=1):
        rows = [("subset", 1 + i % 5, text[i], text[pairs * number + i]) for i in range(pairs)]
        write_rows(data / "sts" / f"{name}.tsv", *rows)
    return data
