"""By its mark a comparison knows what it was scored on."""

import math

import pytest
from encoders import project_text
from sentence_transformers.base.evaluation import BaseEvaluator, SequentialEvaluator
from sentence_transformers.sentence_transformer.evaluation import (
    EmbeddingSimilarityEvaluator,
    InformationRetrievalEvaluator,
    ParaphraseMiningEvaluator,
    TripletEvaluator,
)

from sbert_plugins import data, evaluation
from sbert_plugins.evaluation import RetrievalEvaluator
from sbert_plugins.recipes.scoring import Scorer

OTHERS = (0.1, 0.4, 0.2, 0.3, 0.9)
A, B, C = (project_text()[start : start + 5] for start in (0, 5, 10))


def topics(seed):
    return evaluation.TopicsEvaluator([*A, *B], [0] * 5 + [1] * 5, neighbours=3, name="mine", seed=seed, write_csv=False)


def graded(scores=(0.1, 0.4, 0.2, 0.9, 0.3), **how):
    return EmbeddingSimilarityEvaluator(A, B, list(scores), name="mine", **how)


BUILDS = {
    "triplets": lambda: TripletEvaluator(A, B, C, name="mine"),
    "triplets, others": lambda: TripletEvaluator(A, C, B, name="mine"),
    "triplets, cut": lambda: TripletEvaluator(A, B, C, name="mine", truncate_dim=8),
    "pairs": graded,
    "pairs, other scores": lambda: graded(OTHERS),
    "pairs, cosine first": lambda: graded(main_similarity="cosine"),
    "pairs, dot product first": lambda: graded(main_similarity="dot"),
    "pairs, dot product": lambda: graded(similarity_fn_names=["dot"]),
    "pairs, both": lambda: graded(similarity_fn_names=["cosine", "dot"]),
    "wrapped": lambda: evaluation.JointEvaluator([graded()]),
    "wrapped, other scores": lambda: evaluation.JointEvaluator([graded(OTHERS)]),
    "wrapped by the host": lambda: SequentialEvaluator([graded()]),
    "wrapped by the host, other scores": lambda: SequentialEvaluator([graded(OTHERS)]),
    "retrieval": lambda: InformationRetrievalEvaluator({"q": A[0]}, {"a": A[1], "b": A[2]}, {"q": {"a", "b"}}, name="mine"),
    "retrieval, one answer": lambda: InformationRetrievalEvaluator(
        {"q": A[0]}, {"a": A[1], "b": A[2]}, {"q": {"a"}}, name="mine"
    ),
    "paraphrases": lambda: ParaphraseMiningEvaluator(dict(zip("abcde", A, strict=True)), [("a", "b")], name="mine"),
    "topics": lambda: topics(seed=1),
    "topics, another draw": lambda: topics(seed=2),
}


@pytest.mark.parametrize("candidates", [None, {"q": ["a", "b", "c"], "r": ["a", "b", "c"]}], ids=["all", "candidates"])
def test_a_second_model_is_ranked_as_the_first(candidates, tiny_encoder):
    corpus = dict(zip("abcde", A, strict=True))
    queries, relevant = {"q": A[0], "r": A[2]}, {"q": ["b"], "r": ["a"]}  # texts of the corpus, which are no answers
    scorer = Scorer([RetrievalEvaluator(queries, corpus, relevant, candidates=candidates, name="mine", write_csv=False)])
    model = tiny_encoder()
    first = scorer(model)
    assert scorer(model) == first == scorer(model)


def test_two_that_score_otherwise_have_two_marks():
    marks = {name: Scorer([build()]).mark["sha256"] for name, build in BUILDS.items()}
    for wrapped in ("wrapped", "wrapped by the host"):  # scored as what is in them
        assert marks.pop(wrapped) == marks["pairs"]
        assert marks.pop(f"{wrapped}, other scores") == marks["pairs, other scores"]
    assert len(set(marks.values())) == len(marks)


@pytest.mark.parametrize("name", BUILDS)
def test_the_same_again_has_the_same_mark_whatever_was_scored_by_it(name, tiny_encoder):
    scorer = Scorer([BUILDS[name]()])
    before = dict(scorer.mark)
    scorer(tiny_encoder())
    assert scorer.mark == before == Scorer([BUILDS[name]()]).mark


@pytest.mark.parametrize("build", [graded, lambda: evaluation.JointEvaluator([graded()])], ids=["alone", "wrapped"])
def test_an_evaluator_that_found_its_similarity_has_the_same_mark_again(build, tiny_encoder):
    model, evaluator = tiny_encoder(), build()
    model.similarity_fn_name = "dot"
    scorer = Scorer([evaluator])
    assert "mine_spearman_dot" in scorer(model)
    assert Scorer([evaluator]).mark == scorer.mark


def test_what_decides_no_number_is_no_part_of_it():
    marks = [Scorer([TripletEvaluator(A, B, C, name="mine", batch_size=size, write_csv=size > 4)]).mark for size in (4, 8)]
    assert marks[0] == marks[1]


def test_an_unnamed_search_takes_no_other_scores_away(tiny_encoder):
    search = evaluation.RetrievalEvaluator({"q": A[0]}, {"a": A[1], "b": A[2]}, {"q": {"a"}}, write_csv=False)
    scores = Scorer([search, TripletEvaluator(A, B, C)])(tiny_encoder())
    assert list(scores) == ["MAP", "MRR@10", "nDCG@10", "cosine_accuracy"]


def test_evaluators_in_a_sequence_are_scored_as_they_are_alone(tiny_encoder):
    wrapped = Scorer([evaluation.JointEvaluator([graded(), topics(seed=1)])])
    scores = wrapped(model := tiny_encoder())
    alone = Scorer([graded(), topics(seed=1)])
    assert scores == alone(model)
    assert wrapped.main(scores) == alone.main(scores) == ["mine_spearman_cosine", "mine: v-measure"]


def test_where_lower_is_better(tmp_path, tiny_encoder):
    (tmp_path / "sts").mkdir()
    (tmp_path / "sts" / "stsb_dev.tsv").write_text("news\t5.0\tA dog runs.\tOne dog runs.\nnews\t0.0\tIt rains.\tHe sings.\n")
    geometry = evaluation.AlignmentUniformityEvaluator(tmp_path, write_csv=False)
    scorer = Scorer([graded(), geometry])
    scores = scorer(tiny_encoder())
    assert scorer.lower(scores) == ["stsb_dev_alignment", "stsb_dev_uniformity"]


def test_each_number_has_its_own_title(tiny_encoder):
    """In hundreds, and the main score of each evaluator before all others."""
    search = RetrievalEvaluator(
        {"q": A[0]}, dict(zip("abcdefgh", A[1:] + B[1:], strict=True)), {"q": set("aceg")}, name="find", write_csv=False
    )
    copies = [data.Substitution(*row) for row in zip(A, B, C, strict=True)]
    texts = data.LabelFreeTexts(A, copies, [*zip(A, C, strict=True)])
    free = evaluation.LabelFreeEvaluator(texts, name="own", write_csv=False)
    model, scorer = tiny_encoder(), Scorer([search, free])
    shares, own, scores = search(model), free(model), scorer(model)
    expected = {
        "find: MAP": 100 * shares["find_cosine_map@100"],
        "own: without labels": own["own_label_free"],
        "find: MRR@10": 100 * shares["find_cosine_mrr@10"],
        "find: nDCG@10": 100 * shares["find_cosine_ndcg@10"],
        "own: substitution margin": 100 * own["own_substitution_margin"],
        "own: MRR of half": 100 * own["own_half_mrr"],
    }
    assert len({round(value, 2) for value in expected.values()}) == len(expected)
    assert scores == pytest.approx(expected, abs=1e-3)
    assert list(scores) == list(expected)
    assert scorer.main(scores) == list(expected)[:2]


class Gives(BaseEvaluator):
    primary_metric = "score"

    def __init__(self, score):
        super().__init__()
        self.score = score

    def __call__(self, model, *_, **__):
        return {"score": self.score}


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
def test_scores_are_finite(score, tiny_encoder):
    with pytest.raises(ValueError, match="scores must be finite, got NaN or infinity for score"):
        Scorer([Gives(score)])(tiny_encoder())
