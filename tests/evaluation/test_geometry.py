import numpy as np
import pytest
from evaluation_inputs import write_rows

from sbert_plugins.evaluation import AlignmentUniformityEvaluator

ROWS = [
    (5.0, "a dog runs", "one dog is running"),
    (4.0, "it rains", "rain falls"),
    (3.9, "a red car", "a blue car"),
    (2.0, "a red car", "he sings"),
    (1.0, "a man walks", "stones are hard"),
    (0.0, "a dog runs", "stones are hard"),
]


@pytest.fixture
def data(tmp_path):
    for split in ("dev", "test"):
        write_rows(tmp_path / "sts" / f"stsb_{split}.tsv", *(("genre", *row) for row in ROWS))
    return tmp_path


def unit(model, sentences):
    return model.encode(sentences, normalize_embeddings=True).astype(np.float64)


@pytest.mark.parametrize(("positive", "kept"), [(">4", 1), (">=4", 2), (">3", 3)])
def test_alignment_of_the_positive_pairs(tiny_encoder, data, positive, kept):
    model, evaluator = tiny_encoder(), AlignmentUniformityEvaluator(data, positive=positive)
    first, second = (unit(model, [row[side] for row in ROWS[:kept]]) for side in (1, 2))
    expected = ((first - second) ** 2).sum(axis=1).mean()
    assert evaluator(model)["stsb_dev_alignment"] == pytest.approx(expected, rel=1e-4)
    assert evaluator.get_config_dict()["positive_pairs"] == kept


@pytest.mark.parametrize(("keep_duplicates", "count"), [(False, 9), (True, 12)])
def test_uniformity_with_and_without_repeated_sentences(tiny_encoder, data, keep_duplicates, count):
    model = tiny_encoder()
    sentences = [row[side] for side in (1, 2) for row in ROWS]
    rows = unit(model, sentences if keep_duplicates else sorted(set(sentences)))
    potentials = [np.exp(-2 * ((rows[i] - rows[j]) ** 2).sum()) for i in range(len(rows)) for j in range(i)]
    evaluator = AlignmentUniformityEvaluator(data, split="test", keep_duplicates=keep_duplicates)
    assert evaluator(model)["stsb_test_uniformity"] == pytest.approx(np.log(np.mean(potentials)), rel=1e-4)
    assert evaluator.get_config_dict()["sentences"] == count == len(rows)


def test_lower_is_better(data):
    evaluator = AlignmentUniformityEvaluator(data)
    assert not evaluator.greater_is_better
    assert evaluator.primary_metric == "stsb_dev_alignment"


@pytest.mark.parametrize("keywords", [{"split": "validation"}, {"positive": "4"}])
def test_bad_values(data, keywords):
    with pytest.raises((KeyError, SyntaxError)):
        AlignmentUniformityEvaluator(data, **keywords)
