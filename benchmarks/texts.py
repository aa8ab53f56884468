"""What the texts of the quality tables are: how many sentences, how long, and how many of them the test sets hold, too.

    python benchmarks/texts.py

A sentence is one of a test set as it stands, in any case of its letters, or by its letters alone, without spaces and
punctuation. Of the seven tasks it counts the pairs that lose words where texts are cut at 32 tokens, as in these tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
import testbeds
from provenance import provenance, refuse_changes
from tables import RESULTS

from sbert_plugins import evaluation
from sbert_plugins.recipes.output import write_json

# How many rows of a text trainings of so many updates are given; each takes its own, in an order of its seed.
ROWS = {60: 20_000, 400: 26_000, 2_000: 128_000}
TEXTS = (("short", 60), ("short", 400), ("short", 2_000), ("wiki", 60), ("wiki", 400))
LENGTH = 32


def main() -> None:
    refuse_changes()
    record = {"length": LENGTH, "texts": [], "tasks": {}}
    tokenizer = testbeds.encoder("minilm-mlm").tokenizer
    tests = {form: {form_of(text) for text in testbeds.test_sentences()} for form, form_of in FORMS.items()}
    for name, updates in TEXTS:
        sentences = testbeds.text(name, ROWS[updates])["anchor"][:]
        distinct = set(sentences)
        record["texts"].append(
            {
                "text": name,
                "updates": updates,
                "sentences": len(sentences),
                "distinct": len(distinct),
                "words": float(np.mean([len(sentence.split()) for sentence in sentences])),
                "cut": share_cut(tokenizer, ([sentence] for sentence in sentences)),
                "of_test_sets": {
                    form: sum(FORMS[form](sentence) in found for sentence in distinct) for form, found in tests.items()
                },
            }
        )
    for task in evaluation.TASKS[:7]:
        pairs = evaluation.load_sts(task)
        record["tasks"][task] = {
            "pairs": len(pairs.scores),
            "cut": share_cut(tokenizer, zip(pairs.sentences1, pairs.sentences2, strict=True)),
        }
    write_json(RESULTS / "texts.json", {**record, **provenance()})


def letters_of(text: str) -> str:
    """Return a text without case, spaces and punctuation."""
    return re.sub(r"[\W_]", "", text.casefold())


FORMS = {"as it stands": str, "in any case": str.casefold, "by its letters": letters_of}


def share_cut(tokenizer, rows: Iterable[Iterable[str]]) -> float:
    """Return the share of rows with a text that is longer than the length of the tables."""
    rows = [list(row) for row in rows]
    lengths = iter(len(ids) for ids in tokenizer([text for row in rows for text in row], truncation=False)["input_ids"])
    return sum(any([next(lengths) > LENGTH for _ in row]) for row in rows) / len(rows)


if __name__ == "__main__":
    main()
