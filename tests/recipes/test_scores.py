import numpy as np
import pytest
from encoders import project_text
from recipe_inputs import pairs
from sentence_transformers.base.evaluation import BaseEvaluator

from sbert_plugins import evaluation
from sbert_plugins.recipes.scores import Change, Measured, compare_scores, measure


@pytest.mark.parametrize(
    ("after", "error", "result", "words"),
    [
        (72.0, 0.5, "better", "better than the start"),
        (69.2, 0.5, "level", "level with the start"),
        (66.0, 0.5, "worse", "worse than the start"),
        (70.4, None, "level", "level with the start"),
        (69.0, None, "worse", "worse than the start"),
    ],
)
def test_a_verdict(after, error, result, words):
    change = Change("own pairs", "Spearman", 70.0, after, error, "by bootstrap")
    assert change.result == result
    assert change.sentence.startswith(
        f"own pairs: {words}, Spearman 70.00 to {after:.2f} ({after - 70:+.2f}; "
    )
    assert ("standard error 0.50" in change.sentence) == (error is not None)


@pytest.mark.parametrize(
    ("after", "is_higher", "result"),
    [
        (0.71, True, "better"),
        (0.69, True, "worse"),
        (0.704, True, "level"),
        (0.69, False, "better"),
        (0.71, False, "worse"),
    ],
)
def test_scores_from_0_to_1_and_lower_is_better(after, is_higher, result):
    change = Change("theirs", "accuracy", 0.7, after, None, "without a standard error", is_higher)
    assert change.result == result
    assert f"accuracy 0.7000 to {after:.4f} ({after - 0.7:+.4f}; up to 0.005 is level" in change.sentence
    assert "standard error 0.0021" in change._replace(error=0.0021).sentence


def test_an_evaluator_knows_whether_lower_is_better(tiny_encoder):
    class Spread(BaseEvaluator):
        def __init__(self):
            super().__init__()
            self.greater_is_better, self.primary_metric = False, "spread"

        def __call__(self, model, *_, **__):
            return {"spread": float(model.encode(project_text()[:9]).std())}

    class Number(BaseEvaluator):
        def __call__(self, model, *_, **__):
            return 0.5

    measured = measure(tiny_encoder(), [Spread(), pairs("graded")])
    spread, graded = compare_scores(measured, measured)
    assert (spread.name, spread.metric, spread.higher_is_better) == ("Spread", "spread", False)
    assert not evaluation.JointEvaluator([Spread(), pairs("graded")]).greater_is_better
    assert evaluation.JointEvaluator([pairs("graded"), Spread()]).greater_is_better
    assert graded.higher_is_better
    assert measure(tiny_encoder(), [Number()]).values == {"Number": {"score": 0.5}}


def test_a_model_is_level_with_itself(tiny_encoder):
    evaluators = [pairs("some", 12), pairs("others", 7)]
    measured = measure(tiny_encoder(), evaluators)
    changes = compare_scores(measured, measured)
    assert [change.name for change in changes] == ["some", "others"]
    assert [(change.result, change.error) for change in changes] == [("level", 0), ("level", 0)]
    assert changes[0].metric == "Spearman"


def test_errors_are_paired():
    """The standard error of a difference leaves out the variation that both models share."""
    generator = np.random.default_rng(0)
    common, noise = generator.normal(50, 5, 300), generator.normal(0, 0.1, 300)
    before, after = (
        Measured({"a": {"Spearman": 50.0}}, {"a": each}, {}) for each in (common, common + noise)
    )
    (change,) = compare_scores(before, after)
    assert change.error == pytest.approx(0.1, rel=0.2)
    items = generator.random(400)
    before, after = (Measured({"t": {"purity@10": 50.0}}, {}, {"t": each}) for each in (items, items + 0.1))
    (change,) = compare_scores(before, after)
    assert change.error == pytest.approx(0, abs=1e-9)
    assert "paired over the texts" in change.sentence


def test_equal_cosines_rank_as_in_the_score(tiny_encoder):
    """The documents have the same vector, because they differ in white space only."""
    corpus = {f"d{place:02}": "one cat" + " " * place for place in range(15)}
    for document in corpus:
        search = evaluation.RetrievalEvaluator({"q": "a dog"}, corpus, {"q": {document}}, name="search")
        values, _, items, _ = measure(tiny_encoder(), [search])
        assert 100 * items["search"][0] == pytest.approx(values["search"]["nDCG@10"])


def test_topics_and_searches_have_items(tiny_encoder):
    text, shown = project_text(), {"write_csv": False}
    topics = evaluation.TopicsEvaluator(text[:40], ["a", "b"] * 20, name="topics", neighbours=5, **shown)
    queries = {str(place): text[place] for place in range(8)}
    corpus = {f"d{place}": text[place + 40] for place in range(30)}
    relevant = {str(place): {f"d{place}", f"d{2 * place + 1}"} for place in range(8)}
    search = evaluation.RetrievalEvaluator(queries, corpus, relevant, name="search", **shown)
    values, _, items, _ = measure(tiny_encoder(pooling="mean"), [topics, search])
    assert next(iter(values["topics"])) == "purity@5"
    assert 100 * items["topics"].mean() == pytest.approx(values["topics"]["purity@5"], abs=1e-4)
    assert len(items["search"]) == 8
    assert 100 * items["search"].mean() == pytest.approx(values["search"]["nDCG@10"], abs=1e-4)
