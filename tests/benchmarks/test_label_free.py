"""The score without labels, and how it follows STS-B dev."""

import functools
import random
from itertools import groupby

import label_free
import pytest
import records
import torch
from encoders import project_text
from label_free_score import LabelFreeEvaluator, LabelFreeTexts, Substitution, WordKinds, label_free_texts

from sbert_plugins.data.phrases import WORD


def test_summary_by_hand():
    rising = [[0, 60.0, 1.0], [10, 70.0, 2.0], [20, 80.0, 3.0]]
    late = [[0, 60.0, 1.0], [10, 75.0, 2.5], [20, 72.0, 4.0]]
    found = label_free.summarize([rising, late])
    assert (found["trainings"], found["checkpoints"]) == (2, 5)
    assert found["within"] == pytest.approx(0.75)  # the median of 1 and 0.5


def test_the_docstring_of_the_evaluator_has_the_numbers_of_the_record():
    lines = [line for line in records.read("label_free") if line["set"] in ("chosen on", "validated on")]
    for name, runs in groupby(lines, key=lambda line: line["set"]):
        found = label_free.summarize([line["curve"] for line in runs])
        row = f"{found['checkpoints']} checkpoints, {found['trainings']} runs"
        (line,) = [one for one in LabelFreeEvaluator.__doc__.splitlines() if row in one]
        assert line.split()[-2:] == [f"{found['overall']:.2f}", f"{found['within']:.2f}"], name


def test_by_hand():
    # One synonym is at 60 degrees. One half finds its sentence, one finds the other first.
    texts = LabelFreeTexts(
        ["a", "b"],
        [Substitution("a", "a'", "a-"), Substitution("b", "b'", "b-")],
        [("a", "half a"), ("b", "half b")],
    )
    places = {"a": (1, 0), "b": (0, 1), "a'": (0.5, 3**0.5 / 2), "a-": (0, 2), "b'": (0, 1), "b-": (1, 0)}
    places |= {"half a": (3, 1), "half b": (1, 0)}
    metrics = LabelFreeEvaluator(texts).compute(
        lambda chosen: torch.tensor([places[text] for text in chosen]).float()
    )
    assert metrics["substitution_margin"] == pytest.approx((0.5 + 1) / 2, rel=1e-6)
    assert metrics["half_mrr"] == pytest.approx((1 + 1 / 2) / 2)
    assert metrics["label_free"] == pytest.approx(100 * (5 * 0.75 + 0.75))


def test_in_a_training(wordnet, tiny_encoder):
    text = project_text()
    texts = label_free_texts(text[:150], text=text[150:])
    evaluator = LabelFreeEvaluator(texts, name="own")
    metrics = evaluator(tiny_encoder())
    assert list(metrics) == ["own_label_free", "own_substitution_margin", "own_half_mrr"]
    assert evaluator.primary_metric == "own_label_free"
    assert evaluator.get_config_dict()["sentences"] == 150
    collapsed = evaluator.compute(lambda chosen: torch.ones(len(chosen), 4))
    assert collapsed["substitution_margin"] == 0
    assert collapsed["half_mrr"] == pytest.approx(1 / 150)


@functools.cache
def make_texts(seed=0):
    text = project_text()
    return label_free_texts(["It rained a lot here.", *text[:200]], text=text[200:], limit=50, seed=seed)


def test_copies_of_sentences(wordnet):
    # Copies differ in one word, halves have half of the words in their order; all follow the seed.
    texts = make_texts()
    make_texts.cache_clear()
    assert make_texts() == texts != make_texts(seed=1)
    assert max(len(texts.substitutions), len(texts.halves)) <= 50
    assert texts.sentences == ["It rained a lot here.", *dict.fromkeys(project_text()[:200])]
    for copies in texts.substitutions:
        words = [set(copy.lower().split()) for copy in copies]
        assert len({*copies}) == 3 and all(len(words[0] ^ copy) <= 2 for copy in words[1:])
    for sentence, half in texts.halves:
        words, count = iter(sentence.split()), len(sentence.split())
        assert all(word in words for word in half.split())
        assert len(half.split()) == count - round(count / 2) and count >= 6


def test_the_other_word_is_as_frequent_as_the_synonym_and_not_one(wordnet):
    kinds = WordKinds(["It rained a lot here.", *project_text()])
    for copies in make_texts().substitutions:
        words = zip(*map(WORD.findall, copies), strict=True)
        (changed,) = {each for each in words if len(set(each)) > 1}
        word, synonym, other = changed[0].lower(), *changed[1:]
        assert synonym in kinds.synonyms(word)
        assert other not in kinds.replacer.synonyms(word)
        assert kinds.magnitude(other) == kinds.magnitude(synonym)
        assert kinds.part_of_speech(other) == kinds.part_of_speech(word)
    text = [
        "A car and an automobile stand here.",
        "The city has a town hall.",
        "A table, a garden, a metropolis.",
    ]
    copies = WordKinds(text).substitute("The car stands.", random.Random(0))
    assert copies.synonym == "The automobile stands." != copies.other
    for nothing in ("Of the and.", "The car of the automobile."):  # the sentence has the synonym
        assert WordKinds(text).substitute(nothing, random.Random(0)) is None
