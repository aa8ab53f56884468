"""The whole suite in the trainer and on one pass; check numbers on real text of all-MiniLM-L6-v2.

All check numbers: ``benchmarks/evaluation_check.py``.
"""

import functools
import math

import pytest
from datasets import Dataset
from encoders import SENTENCES
from evaluation_inputs import CountingEncoder, write_data
from sacremoses import MosesTokenizer
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from sbert_plugins import training
from sbert_plugins.evaluation import (
    TASKS,
    TRANSFER_TASKS,
    AlignmentUniformityEvaluator,
    CosineDensityEvaluator,
    EncodeOnce,
    HardLengthEvaluator,
    OnePassEvaluator,
    STSSuiteEvaluator,
    offline_evaluators,
    offline_suite,
)


@pytest.fixture(scope="module")
def small_data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data"))


class TestOfflineSuite:
    def test_each_distinct_sentence_is_encoded_once(self, tiny_encoder, small_data):
        model = tiny_encoder()
        one_by_one = CountingEncoder(tiny_encoder())
        expected = {}
        for evaluator in offline_evaluators(small_data):
            expected |= evaluator(one_by_one.model)
        counting = CountingEncoder(model)
        metrics = offline_suite(small_data)(model)
        assert len(counting.calls) == 1
        assert set(counting.times.values()) == {1}
        assert counting.times.keys() == one_by_one.times.keys()
        assert sum(one_by_one.times.values()) > 1.5 * len(counting.times)
        assert metrics.keys() == {*expected, "sequential_score"}
        for name, value in expected.items():
            assert metrics[name] == pytest.approx(value, rel=1e-3, abs=1e-3), name

    def test_what_it_measures(self, tiny_encoder, small_data):
        metrics = offline_suite(small_data)(tiny_encoder())
        assert metrics["sequential_score"] == metrics["avg7"]
        names = [*TASKS, *(f"transfer_{task}" for task in TRANSFER_TASKS), "hard_length_avg5", "stsb_dev_alignment"]
        names += ["stsb_test_uniformity", "stsb_test_cosine_mean_4-5", "quora_dev_cosine_map@100", "quora_dev_cosine_mrr@10"]
        names += ["quora_dev_cosine_ndcg@10", "quora_rerank_dev_cosine_mrr@10", "cranfield_cosine_ndcg@10"]
        names += ["agnews_v_measure", "biomedical_accuracy", "biomedical_purity@10"]
        assert {name for name in names if not math.isfinite(metrics[name])} == set()

    def test_missing_data(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="sts12.tsv does not exist"):
            offline_suite(tmp_path)

    @pytest.mark.parametrize("trainer_class", [training.SentenceTransformerTrainer, SentenceTransformerTrainer])
    def test_in_the_trainer(self, tiny_encoder, small_data, tmp_path, trainer_class):
        """The suite and the geometry run during a training, are logged, and a metric of theirs chooses the checkpoint."""
        model = tiny_encoder()
        evaluator = OnePassEvaluator(
            [AlignmentUniformityEvaluator(small_data), STSSuiteEvaluator(small_data), CosineDensityEvaluator(small_data)]
        )
        trainer = trainer_class(
            model=model,
            args=SentenceTransformerTrainingArguments(
                str(tmp_path),
                max_steps=4,
                per_device_train_batch_size=4,
                eval_strategy="steps",
                eval_steps=2,
                save_steps=2,
                load_best_model_at_end=True,
                metric_for_best_model="eval_stsb_dev_alignment",
                greater_is_better=False,
                learning_rate=1e-2,
                report_to="none",
                disable_tqdm=True,
                use_cpu=True,
            ),
            train_dataset=Dataset.from_dict({"anchor": SENTENCES, "positive": SENTENCES}),
            loss=MultipleNegativesRankingLoss(model),
            evaluator=evaluator,
        )
        trainer.train()
        logged = [entry for entry in trainer.state.log_history if "eval_avg7" in entry]
        assert [entry["step"] for entry in logged] == [2, 4]
        alignments = [entry["eval_stsb_dev_alignment"] for entry in logged]
        assert alignments[0] != alignments[1]
        assert trainer.state.best_metric == min(alignments)
        after = evaluator(model)
        assert after["stsb_dev_alignment"] == pytest.approx(min(alignments), rel=1e-4)


@pytest.fixture(scope="module")
def checked(minilm, data_dir):
    """A view of all-MiniLM-L6-v2 that has encoded what the check numbers below are about, in one call."""
    evaluators = [STSSuiteEvaluator(data_dir, tasks=["STS16", "STS-B"])]
    view = EncodeOnce(minilm)
    view.encode_ahead([("encode", evaluator.sentences) for evaluator in evaluators], batch_size=64)
    return view


@pytest.mark.slow
class TestCheckNumbers:
    """Of the small tasks: one of several subsets, one of one. ``benchmarks/evaluation_check.py`` checks all of them."""

    def test_tasks(self, checked, data_dir):
        metrics = STSSuiteEvaluator(data_dir, tasks=["STS16", "STS-B"])(checked)
        assert {task: metrics[task] for task in ("STS16", "STS-B")} == pytest.approx(
            {"STS16": 78.9895, "STS-B": 82.0325}, abs=0.02
        )

    @pytest.mark.parametrize(
        ("positive", "duplicates", "pairs", "alignment", "uniformity"),
        [(">4", "drop", 231, 0.25120, -3.81904), (">=4", "keep", 338, 0.32975, -3.80471)],
    )
    def test_geometry(self, checked, data_dir, positive, duplicates, pairs, alignment, uniformity):
        evaluator = AlignmentUniformityEvaluator(data_dir, split="test", positive=positive, duplicates=duplicates)
        assert len(evaluator.positive_pairs) == pairs
        expected = {"stsb_test_alignment": alignment, "stsb_test_uniformity": uniformity}
        assert evaluator(checked) == pytest.approx(expected, abs=1e-3)

    def test_density(self, checked, data_dir):
        evaluator = CosineDensityEvaluator(data_dir, split="test", name="")
        metrics = evaluator(checked)
        assert [*evaluator.counts.values()] == [243, 198, 265, 335, 338]
        means = [metrics[f"mean_{level}"] for level in evaluator.counts]
        assert means == pytest.approx([0.2203, 0.4949, 0.5984, 0.7340, 0.8351], abs=5e-4)
        variances = [1000 * metrics[f"variance_{level}"] for level in evaluator.counts]
        assert variances == pytest.approx([24.11, 27.45, 27.42, 15.73, 18.06], abs=0.5)


@pytest.mark.parametrize(("positive", "pairs"), [(">4", 208), (">=4", 264)])
def test_positive_pairs_of_dev(data_dir, positive, pairs):
    assert len(AlignmentUniformityEvaluator(data_dir, split="dev", positive=positive).positive_pairs) == pairs


def test_levels_of_dev(data_dir):
    assert [*CosineDensityEvaluator(data_dir, split="dev").counts.values()] == [344, 254, 273, 365, 264]


def test_size_of_sick_in_both_readings(data_dir):
    assert len(STSSuiteEvaluator(data_dir, tasks=["SICK-R"]).pairs["SICK-R"].scores) == 4927
    assert len(STSSuiteEvaluator(data_dir, tasks=["SICK-R"], sick="all").pairs["SICK-R"].scores) == 9927


@pytest.fixture(scope="module")
def moses_words():
    """Count a sentence's words as Moses does, each sentence once."""
    moses = MosesTokenizer("en")
    return functools.cache(lambda text: len(moses.tokenize(text, escape=False)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("positive", "negative", "pairs", "positives"),
    [
        (">4", "<1", 1249, 231),
        (">=4", "<=1", 1594, 344),
        (">3", "<2", 2622, 824),
        (">=3", "<3", 3491, 946),
        (">2.5", "<=2.5", 3367, 1075),
    ],
)
def test_hard_length_as_moses_counts(moses_words, data_dir, positive, negative, pairs, positives):
    """The expected numbers are from text that Moses had tokenized; its Python port differs on a few pairs."""
    evaluator = HardLengthEvaluator(data_dir, positive=positive, negative=negative, count_words=moses_words)
    assert evaluator.num_pairs == pytest.approx(pairs, abs=5)
    assert evaluator.num_positives == pytest.approx(positives, abs=5)


def test_without_a_directory_nothing_is_asked_of_the_hub(monkeypatch):
    monkeypatch.setenv("SBERT_PLUGINS_DATA", "")
    with pytest.raises(FileNotFoundError, match="sts is read from a data directory: set SBERT_PLUGINS_DATA"):
        offline_evaluators()
