import json
import math

import numpy as np
import pytest
from encoders import project_text
from scipy.stats import spearmanr
from sentence_transformers.base.evaluation import BaseEvaluator

from sbert_plugins import evaluation, recipes
from sbert_plugins.evaluation import Score, judge, judge_all, measure
from sbert_plugins.evaluation.encoding import label_items
from sbert_plugins.evaluation.sts import spearman_items
from sbert_plugins.evaluation.topics import purity_items


def score(items, **changes):
    """A score of queries with the given values per query."""
    values = {"nDCG@10": float(np.mean(items))}
    return Score(
        **({"name": "mine", "values": values, "noun": "queries", "items": np.array(items)} | changes)
    )


def number(value, **changes):
    """A score of an evaluator that gives one number."""
    return Score("theirs", {"accuracy": value}, **changes)


def graded(name="graded", step=12):
    some = evaluation.ScoredPairs(*(values[::step] for values in recipes.graded_pairs()))
    return evaluation.PairsEvaluator(some, name=name, write_csv=False)


@pytest.fixture
def start():
    return np.random.default_rng(0).uniform(20, 80, 300)


@pytest.fixture
def noise():
    """Differences with a mean of 0 and a standard error of 1."""
    drawn = np.random.default_rng(1).normal(size=300)
    return (drawn - drawn.mean()) / drawn.std(ddof=1) * math.sqrt(300)


class TestJudge:
    @pytest.mark.parametrize(
        ("gain", "is_higher", "result"),
        [
            (3, True, "better"),
            (-3, True, "worse"),
            (1, True, "level"),
            (3, False, "worse"),
            (-3, False, "better"),
        ],
    )
    def test_difference_and_standard_error(self, start, noise, gain, is_higher, result):
        change = judge(*(score(each, higher_is_better=is_higher) for each in (start, start + noise + gain)))
        assert change.result == result
        assert change.error == pytest.approx(1)
        assert 2 < change.margin < 3
        assert change.basis == "300 queries"
        assert change.gain == pytest.approx(gain if is_higher else -gain)
        assert result in change.sentence
        assert "300 queries" in change.sentence

    def test_the_error_leaves_out_what_both_models_share(self, start, noise):
        assert judge(score(start), score(start + noise)).error < score(start).error

    def test_a_model_is_level_with_itself(self, start):
        assert judge(score(start), score(start)).result == "level"

    @pytest.mark.parametrize("count", [1, 2, 5])
    def test_few_labels(self, count):
        change = judge(score(np.zeros(count)), score(np.full(count, 50)))
        assert change.result == "too few labels to say"
        assert change.error is None
        assert f"{count} queries" in change.sentence

    def test_few_labels_that_differ(self, start):
        after = start.copy()
        after[:4] += 20  # four of one sign in a row are no rarity
        assert judge(score(start), score(after)).result == "level"
        after[:40] += 20
        assert judge(score(start), score(after)).result == "better"

    def test_one_number_has_no_error(self):
        change = judge(number(0.7), number(0.9))
        assert (change.result, change.error) == ("no verdict", None)
        assert "0.7000 to 0.9000 (+0.2000" in change.sentence

    def test_nan(self, start):
        assert judge(number(math.nan), number(0.8)).result == "no verdict"
        assert judge(score(start), score(start * math.nan)).result == "no verdict"

    def test_one_number_of_several_seeds(self):
        seeds = [number(value) for value in (0.80, 0.82, 0.81)]
        change = judge(number(0.70), seeds)
        assert change.result == "better"
        assert change.error == pytest.approx(0.01 * math.sqrt(1 + 1 / 3))  # the start is one more seed
        assert change.basis == "3 seeds"
        assert judge(number(0.805), seeds).result == "level"
        assert judge([number(value) for value in (0.70, 0.71, 0.69)], seeds).error == pytest.approx(
            0.01 * math.sqrt(2 / 3)
        )

    def test_labels_and_seeds(self, start, noise):
        # The standard error of 1 over the labels is the same for each seed, 2 over the seeds.
        after = [score(start + noise + shift) for shift in np.array([-2, 0, 2]) * math.sqrt(3)]
        change = judge(score(start), after)
        assert change.error == pytest.approx(math.hypot(1, 2))
        assert change.margin > 3 * change.error  # three seeds say little
        assert change.basis == "300 queries and 3 seeds"

    def test_two_methods(self, start, noise):
        first, second = ([score(start + noise + gain + shift) for shift in (-0.1, 0, 0.1)] for gain in (2, 3))
        change = judge(first, second, against="simcse")
        assert change.result == "better"
        assert "better than simcse" in change.sentence
        assert change.error == pytest.approx(0.1 * math.sqrt(2 / 3))


class TestScore:
    def test_json_and_back(self, start):
        one = score(start, similarity="dot")
        record = one.to_dict()
        assert "items" not in record
        assert (record["labels"], record["noun"]) == (300, "queries")
        assert record["error"] == pytest.approx(start.std(ddof=1) / math.sqrt(300))
        again = Score.from_dict(json.loads(json.dumps(one.to_dict(items=True))))
        assert again == one
        np.testing.assert_allclose(again.items, start, atol=1e-4)
        assert number(0.7).to_dict()["error"] is None

    def test_the_similarity_is_named_unless_it_is_the_cosine(self, start):
        cosine, dot = score(start), score(start, similarity="dot")
        assert "cosine" not in judge(cosine, cosine).sentence
        assert "dot" in judge(cosine, dot).sentence
        assert evaluation.name_similarity("a", {"mine": cosine}) == ""
        assert "dot" in evaluation.name_similarity("a", {"mine": cosine, "other": dot})

    def test_digits(self):
        assert [evaluation.format_score(value) for value in (71.3, 0.713, -0.5)] == [
            "71.30",
            "0.7130",
            "-0.5000",
        ]


class TestMeasure:
    def test_an_evaluator_of_ones_own(self, tiny_encoder):
        class Spread(BaseEvaluator):
            def __init__(self):
                super().__init__()
                self.greater_is_better, self.primary_metric = False, "spread"

            def __call__(self, model, *_, **__):
                return {"spread": float(model.encode(project_text()[:9]).std())}

        class Number(BaseEvaluator):
            def __call__(self, model, *_, **__):
                return 0.5

        scores = measure(tiny_encoder(), [Spread(), graded(), Number()])
        assert (scores["Spread"].metric, scores["Spread"].higher_is_better) == ("spread", False)
        assert scores["Spread"].items is None
        assert scores["graded"].higher_is_better
        assert scores["Number"].values == {"score": 0.5}
        assert not evaluation.JointEvaluator([Spread(), graded()]).greater_is_better
        assert evaluation.JointEvaluator([graded(), Spread()]).greater_is_better
        assert [change.result for change in judge_all(scores, scores)] == [
            "no verdict",
            "level",
            "no verdict",
        ]

    def test_items_have_the_mean_of_the_score(self, tiny_encoder):
        text, shown = project_text(), {"write_csv": False}
        labels = ["a", "b"] * 20
        queries = {str(place): text[place] for place in range(8)}
        corpus = {f"d{place}": text[place + 40] for place in range(30)}
        relevant = {str(place): {f"d{place}", f"d{2 * place + 1}"} for place in range(8)}
        evaluators = [
            evaluation.TopicsEvaluator(text[:40], labels, name="topics", neighbours=5, **shown),
            evaluation.RetrievalEvaluator(queries, corpus, relevant, name="search", **shown),
            graded(),
        ]
        scores = measure(tiny_encoder(pooling="mean"), evaluators)
        assert [one.metric for one in scores.values()] == ["purity@5", "nDCG@10", "Spearman"]
        assert [one.labels for one in scores.values()] == [40, 8, 30]
        assert [one.noun for one in scores.values()] == ["texts", "queries", "pairs"]
        for one in scores.values():
            assert one.items.mean() == pytest.approx(one.value, abs=1e-4)

    def test_equal_similarities_rank_as_in_the_score(self, tiny_encoder):
        # The documents have the same vector, because they differ in white space only.
        corpus = {f"d{place:02}": "one cat" + " " * place for place in range(15)}
        for document in corpus:
            search = evaluation.RetrievalEvaluator({"q": "a dog"}, corpus, {"q": {document}}, name="search")
            one = measure(tiny_encoder(), [search])["search"]
            assert one.items[0] == pytest.approx(one.value)


class TestItems:
    def test_copies_of_a_label_count_once(self):
        values, labels = np.array([1.0, 1, 1, 5, 5, 5, 3, 3, 3]), list("aaabbbccc")
        np.testing.assert_allclose(label_items(values, labels), [1, 5, 3])
        np.testing.assert_allclose(label_items(np.array([2.0, 4, 6]), list("aab")), [8 / 3, 16 / 3])
        assert label_items(np.array([2.0, 4, 6, 9]), list("abab")).mean() == pytest.approx(5.25)

    @pytest.mark.parametrize("ties", [False, True])
    def test_the_error_of_spearman(self, ties):
        # The spread of the values is that of the correlation over samples of pairs.
        generator = np.random.default_rng(0)
        drawn = [generator.normal(size=(200, 2)) @ [[1, 0.6], [0, 0.8]] for _ in range(300)]
        samples = [one.round() if ties else one for one in drawn]
        expected = [spearmanr(*one.T).statistic for one in samples]
        items = [spearman_items(*one.T) for one in samples]
        np.testing.assert_allclose([each.mean() for each in items], expected, atol=1e-12)
        errors = [each.std(ddof=1) / math.sqrt(200) for each in items]
        assert np.mean(errors) == pytest.approx(np.std(expected), rel=0.1)

    def test_purity_without_a_text(self):
        # The value of a text is what the sum of all purities loses without it: the jackknife.
        generator = np.random.default_rng(0)
        vectors, labels = generator.normal(size=(30, 3)), generator.integers(3, size=30)
        names = [f"text {place}" for place in range(30)]
        own = purity_items(vectors, labels, names, neighbours=4)
        sums = [
            sum(
                purity_items(np.delete(vectors, place, 0), np.delete(labels, place), names[:-1], neighbours=4)
            )
            for place in range(30)
        ]
        losses = own.sum() - np.array(sums)
        np.testing.assert_allclose(own - own.mean(), losses - losses.mean(), atol=1e-6)
