"""What is counted of the texts of the tables."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import texts


def test_a_sentence_is_looked_for_in_three_forms():
    here = "A band, on stage."
    found = {name: {form("a band on-stage")} for name, form in texts.FORMS.items()}
    assert {name: texts.FORMS[name](here) in forms for name, forms in found.items()} == {
        "as it stands": False,
        "in any case": False,
        "by its letters": True,
    }
    assert texts.FORMS["in any case"]("A Band") == texts.FORMS["in any case"]("a band")


def test_a_pair_is_cut_where_one_of_it_is():
    def tokenizer(sentences, truncation):
        assert not truncation
        return {"input_ids": [sentence.split() for sentence in sentences]}

    short, limit, long = "word", "word " * texts.LENGTH, "word " * (texts.LENGTH + 1)
    assert texts.share_cut(tokenizer, [(long, short), (short, limit), (long, long), (limit, short)]) == 0.5
