import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from encoders import project_text
from scipy.stats import spearmanr

from sbert_plugins.evaluation import HardLengthEvaluator
from sbert_plugins.evaluation.embeddings import Embeddings

LONG = "one two three four five six seven"


def write_years(folder, rows):
    (folder / "sts").mkdir(parents=True, exist_ok=True)
    lines = "".join(f"subset\t{score}\t{first}\t{second}\n" for score, first, second in rows)
    for year in range(12, 17):
        (folder / "sts" / f"sts{year}.tsv").write_text(lines, encoding="utf-8")
    return folder


def test_which_pairs_are_kept(tmp_path):
    """Differences of 6 and 5 words for positive pairs, of 1 and 2 for negative pairs, and each threshold at its bound."""
    rows = [
        (4.0, LONG, "one"),  # 7 - 1 = 6 words: kept
        (4.0, "one", LONG),  # the order does not matter: kept
        (4.0, LONG, "one two"),  # 5 words: not more than 5
        (3.9, LONG, "one"),  # neither positive nor negative
        (1.0, "a cat", "a  red   house"),  # white space does not count; 1 word: kept
        (0.0, "a cat", "no dog"),  # 0 words: kept
        (1.0, "a cat", "a red house there"),  # 2 words: not fewer than 2
        (1.1, "a cat", "a red house"),
    ]
    data = write_years(tmp_path, rows)
    evaluator = HardLengthEvaluator(data, positive=">=4", negative="<=1")
    assert evaluator.pairs["STS13"].scores == [4.0, 4.0, 1.0, 0.0]
    assert evaluator.pairs["STS13"].sentences1 == [LONG, "one", "a cat", "a cat"]
    assert (evaluator.num_pairs, evaluator.num_positives) == (20, 10)
    assert evaluator.get_config_dict()["pairs"] == 20
    assert HardLengthEvaluator(data, positive="> 3.5", negative="<1").num_pairs == 5 * (3 + 1)


def test_another_count_of_words(tmp_path):
    """Full stops that stand alone are words once a tokenizer has cut them off."""

    def with_punctuation(sentence):
        return len(sentence.replace(".", " .").split())

    rows = [(5, "one two three four five six.", "one"), (5, LONG, "one"), (0, "a", "b")]
    data = write_years(tmp_path, rows)
    assert HardLengthEvaluator(data, positive=">4", negative="<1").num_positives == 5
    evaluator = HardLengthEvaluator(data, positive=">4", negative="<1", count_words=with_punctuation)
    assert evaluator.num_positives == 10
    assert "with_punctuation" in evaluator.get_config_dict()["count_words"]


def test_scores_are_those_of_the_subset(tiny_encoder, tmp_path):
    texts = ["a cat", "no dog", "two birds", "red roses", "old men"]
    rows = [(5 - 0.1 * i, f"{LONG} {text}", text) for i, text in enumerate(texts)]
    rows += [(0.1 * i, text, other) for i, (text, other) in enumerate(itertools.pairwise(texts))]
    model = tiny_encoder()
    metrics = HardLengthEvaluator(write_years(tmp_path, rows), positive=">4", negative="<1", name="hard")(model)
    first, second = (model.encode([row[i] for row in rows], normalize_embeddings=True) for i in (1, 2))
    expected = 100 * spearmanr((first * second).sum(axis=1), [row[0] for row in rows]).statistic
    assert set(metrics) == {*(f"hard_STS{year}" for year in range(12, 17)), "hard_avg5", "hard_union"}
    assert list(metrics.values()) == pytest.approx([expected] * 7, abs=1e-4)


class TestBadInput:
    @pytest.mark.parametrize(
        ("positive", "negative", "message"),
        [
            ("4", "<1", r"positive must be '>' or '>=' and a gold score in \[0, 5\], such as '>=4', got '4'"),
            ("<4", "<1", "positive must be '>'"),
            (4, "<1", "positive must be '>' .* got 4"),
            (">4", ">1", "negative must be '<' or '<=' .* such as '<=1', got '>1'"),
            (">4", "<7", "negative must be .* got '<7'"),
            (">=2", "<=2", "positive '>=2' and negative '<=2' must not overlap, both hold for a score of 2.0"),
            (">=2.00005", "<=2.00005", "must not overlap, both hold for a score of 2.00005"),
            (">1", "<1.5", "must not overlap, both hold for a score of 1.25"),
        ],
    )
    def test_thresholds(self, tmp_path, positive, negative, message):
        with pytest.raises(ValueError, match=message):
            HardLengthEvaluator(tmp_path, positive=positive, negative=negative)

    def test_a_year_without_such_pairs(self, tmp_path):
        data = write_years(tmp_path, [(5, LONG, "one"), (2, "a", "b")])
        with pytest.raises(ValueError, match="STS12 has 1 hard positive pairs .* and 0 hard negative pairs .* wider"):
            HardLengthEvaluator(data, positive=">4", negative="<1")

    def test_missing_file(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="sts12.tsv does not exist"):
            HardLengthEvaluator(tmp_path, positive=">4", negative="<1")


@pytest.mark.parametrize(
    ("positive", "negative", "pairs", "positives"),
    [
        (">4", "<1", 1242, 128),
        (">=4", "<=1", 1563, 207),
        (">3", "<2", 2542, 588),
        (">=3", "<3", 3436, 679),
        (">2.5", "<=2.5", 3264, 783),
    ],
)
def test_sizes_of_five_readings(data_dir, positive, negative, pairs, positives):
    evaluator = HardLengthEvaluator(data_dir, positive=positive, negative=negative)
    assert (evaluator.num_pairs, evaluator.num_positives) == (pairs, positives)


def test_the_years_are_averaged_and_their_union_is_scored(tiny_encoder, tmp_path):
    texts, model = project_text()[:40], tiny_encoder()
    (tmp_path / "sts").mkdir()
    rows = {}
    for year in range(12, 17):
        own = [f"{text.split()[0]} {year} {i}" for i, text in enumerate(texts[8 * (year - 12) :][:8])]
        rows[year] = [(5 - 0.1 * i, f"{LONG} {text}", text) for i, text in enumerate(own)]
        rows[year] += [(0.1 * i, text, other) for i, (text, other) in enumerate(zip(own, own[1:] + own[:1], strict=True))]
        lines = "".join(f"subset\t{score}\t{first}\t{second}\n" for score, first, second in rows[year])
        (tmp_path / "sts" / f"sts{year}.tsv").write_text(lines, encoding="utf-8")
    metrics = HardLengthEvaluator(tmp_path, positive=">4", negative="<1", name="hard")(model)

    def spearman(rows):
        first, second = (model.encode([row[i] for row in rows], normalize_embeddings=True) for i in (1, 2))
        return 100 * spearmanr((first * second).sum(axis=1), [row[0] for row in rows]).statistic

    years = [spearman(of_year) for of_year in rows.values()]
    assert [metrics[f"hard_STS{year}"] for year in rows] == pytest.approx(years, abs=1e-3)
    assert metrics["hard_avg5"] == pytest.approx(np.mean(years), abs=1e-3)
    union = spearman([row for of_year in rows.values() for row in of_year])
    assert metrics["hard_union"] == pytest.approx(union, abs=1e-3)
    assert abs(union - np.mean(years)) > 0.1


def test_each_year_counts_alike_however_many_pairs_it_has(tmp_path):
    (tmp_path / "sts").mkdir()
    far = "one two three four five six seven eight"
    for year in range(12, 17):
        rows = [(5, f"{far} {i}", f"nine {i}") for i in range(year - 10)]
        rows += [(0, f"a {i}", f"b {i * year % 7}") for i in range(3)]
        lines = "".join(f"subset\t{score}\t{first}\t{second}\n" for score, first, second in rows)
        (tmp_path / "sts" / f"sts{year}.tsv").write_text(lines, encoding="utf-8")
    evaluator = HardLengthEvaluator(tmp_path, positive=">4", negative="<1")
    model = SimpleNamespace(encode=lambda sentences, **_: torch.randn(len(sentences), 4))
    metrics = evaluator.compute(Embeddings(model, evaluator.sentences))
    assert metrics["avg5"] == pytest.approx(sum(metrics[f"STS{year}"] for year in range(12, 17)) / 5)
