import itertools

import numpy as np
import pytest
import torch
from encoders import project_text
from evaluation_inputs import CountingEncoder, write_rows, write_sts
from scipy.stats import spearmanr
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

from sbert_plugins.evaluation import (
    TASKS,
    HardLengthEvaluator,
    PairsEvaluator,
    ScoredPairs,
    STSSuiteEvaluator,
    load_sts,
    own_pairs,
    read_scored_pairs,
    sts_sentences,
)

LONG = "one two three four five six seven"


@pytest.fixture
def small_data(tmp_path):
    return write_sts(tmp_path / "data")


class TestSuite:
    def test_each_task_is_the_spearman_of_sentence_transformers(self, tiny_encoder, small_data):
        model = tiny_encoder()
        metrics = STSSuiteEvaluator(small_data)(model)
        assert list(metrics) == [*TASKS, "avg7"]
        for task in TASKS:
            expected = EmbeddingSimilarityEvaluator(
                *load_sts(task, small_data), main_similarity="cosine", write_csv=False
            )
            assert metrics[task] == pytest.approx(100 * expected(model)["spearman_cosine"], abs=1e-4)
        assert metrics["avg7"] == pytest.approx(np.mean([metrics[task] for task in TASKS]))

    def test_no_sentence_is_encoded_twice(self, tiny_encoder, small_data):
        counting = CountingEncoder(tiny_encoder())
        STSSuiteEvaluator(small_data)(counting.model)
        assert set(counting.times.values()) == {1}

    def test_subsets_are_concatenated_not_averaged(self, tiny_encoder, tmp_path):
        # SentEval "all": one correlation over the rows of all subsets.
        rows = [
            ("a", 1, "one dog", "two cats"),
            ("a", 2, "a red car", "a blue car"),
            ("b", 5, "it rains", "rain falls"),
            ("b", 0, "he sings", "stones are hard"),
            ("b", 4, "a man runs", "a man is running"),
        ]
        write_rows(tmp_path / "sts" / "sts16.tsv", *rows)
        model = tiny_encoder()
        first, second = (model.encode([row[i] for row in rows], normalize_embeddings=True) for i in (2, 3))
        expected = 100 * spearmanr((first * second).sum(axis=1), [row[1] for row in rows]).statistic
        metrics = STSSuiteEvaluator(tmp_path, tasks=["STS16"])(model)
        assert metrics == pytest.approx({"STS16": expected, "avg1": expected}, abs=1e-4)

    def test_all_pairs_of_sick(self, small_data):
        evaluator = STSSuiteEvaluator(small_data, sick="all", tasks=["SICK-R"])
        assert len(evaluator.pairs["SICK-R"].scores) == 30
        assert "9,927" in evaluator.note
        assert STSSuiteEvaluator(small_data).note == ""

    def test_model_card(self, tiny_encoder, small_data, tmp_path):
        model, evaluator = tiny_encoder(), STSSuiteEvaluator(small_data, name="suite")
        metrics = evaluator(model)
        assert evaluator.primary_metric == "suite_avg7"
        assert set(metrics) == {f"suite_{key}" for key in (*TASKS, "avg7")}
        model.save_pretrained(str(tmp_path / "model"))
        card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
        assert all(f"| {task} " in card for task in (*TASKS, "**avg7**"))

    @pytest.mark.slow
    def test_published_value_of_minilm(self, minilm, data_dir):
        # STS16 with the full model takes half a minute; the published Spearman correlation is 78.99.
        assert STSSuiteEvaluator(data_dir, tasks=["STS16"])(minilm)["STS16"] == pytest.approx(78.99, abs=0.03)


class TestSources:
    def test_the_environment_variable(self, monkeypatch, small_data):
        monkeypatch.setenv("SBERT_PLUGINS_DATA", str(small_data))
        assert len(STSSuiteEvaluator().pairs) == 7

    def test_a_missing_file(self, small_data):
        (small_data / "sts" / "sts14.tsv").unlink()
        with pytest.raises(FileNotFoundError, match=r"sts14\.tsv"):
            STSSuiteEvaluator(small_data)

    @pytest.mark.usefixtures("no_hub")
    @pytest.mark.parametrize("value", ["", None])
    def test_neither_folder_nor_hub(self, monkeypatch, value):
        monkeypatch.delenv("SBERT_PLUGINS_DATA", raising=False)
        if value is not None:
            monkeypatch.setenv("SBERT_PLUGINS_DATA", value)
        with pytest.raises(ConnectionError, match="SBERT_PLUGINS_DATA"):
            load_sts("STS-B dev")

    @pytest.mark.parametrize(
        ("task", "dataset", "split"),
        [
            *((f"STS{year}", f"mteb/sts{year}-sts", "test") for year in range(12, 17)),
            ("STS-B", "mteb/stsbenchmark-sts", "test"),
            ("STS-B train", "mteb/stsbenchmark-sts", "train"),
            ("STS-B dev", "mteb/stsbenchmark-sts", "validation"),
            ("SICK-R all", "mteb/sickr-sts", "test"),
        ],
    )
    def test_datasets_on_the_hub(self, monkeypatch, task, dataset, split):
        # Dev chooses checkpoints, so it must not be a test set.
        calls, rows = [], {"sentence1": ["a", "b"], "sentence2": ["c", "d"], "score": [1, 4.5]}
        monkeypatch.setattr(
            "datasets.load_dataset", lambda name, *, split: calls.append((name, split)) or rows
        )
        assert load_sts(task, hub=True) == ScoredPairs(["a", "b"], ["c", "d"], [1.0, 4.5])
        assert calls == [(dataset, split)]

    def test_sick_from_the_hub(self, monkeypatch, caplog):
        rows = {"sentence1": ["a", "b", "c"], "sentence2": ["d", "e", "f"], "score": [1, 2, 3]}
        monkeypatch.setattr("datasets.load_dataset", lambda name, split: rows)
        assert STSSuiteEvaluator(hub=True).sick == "all"
        assert "4,927" in caplog.text
        with pytest.raises(ValueError, match="4,927"):
            STSSuiteEvaluator(hub=True, sick="test")

    def test_sentences_of_all_tasks(self, small_data):
        assert sts_sentences(small_data)[:2] == [project_text()[0], project_text()[10]]
        assert sorted(sts_sentences(small_data)) == sorted(project_text()[:120])


class TestPairs:
    @pytest.mark.parametrize(
        "pairs",
        [
            (["a", "b", "c"], ["a"], [1.0, 2.0, 3.0]),
            (["a", "b", "c"], ["a", "b", "c"], [1.0, float("nan"), 3.0]),
            (["a", "b", "c"], ["a", "b", "c"], [1.0, 1.0, 1.0]),
            (["a", "b"], ["a", "b"], [1.0, 2.0]),
            ([], [], []),
        ],
    )
    def test_pairs_without_a_correlation(self, pairs):
        with pytest.raises(ValueError, match="pairs must be"):
            PairsEvaluator(ScoredPairs(*pairs))

    def test_a_collapsed_encoder_scores_0(self, tiny_encoder, caplog):
        # Rounding alone would give a correlation between -20 and 20.
        model = tiny_encoder()
        with torch.no_grad():
            model[0].model.encoder.layer[-1].output.LayerNorm.weight.zero_()
            model[0].model.encoder.layer[-1].output.LayerNorm.bias.normal_()
        sentences = [
            f"{word} and {other}" for word in ("dogs", "cats", "rain") for other in ("men", "sun", "snow")
        ]
        pairs = ScoredPairs(sentences, sentences[::-1], [float(place) for place in range(9)])
        assert PairsEvaluator(pairs, name="x")(model) == {"x_spearman": 0.0}
        assert "set to 0" in caplog.text

    def test_cosines_that_are_close_have_an_order(self):
        # As the cosines of [CLS] vectors before any training.
        angles = {"a": 0.0, "d": 3.5e-3, "b": 0.0, "e": 2.8e-3, "c": 0.0, "f": 1.4e-3}
        vectors = {text: torch.tensor([np.cos(angle), np.sin(angle)]) for text, angle in angles.items()}
        pairs = ScoredPairs(["a", "b", "c"], ["d", "e", "f"], [1.0, 2.0, 3.0])
        metrics = PairsEvaluator(pairs).compute(lambda texts: torch.stack([vectors[text] for text in texts]))
        assert metrics == {"spearman": pytest.approx(100)}


class TestFiles:
    @pytest.mark.parametrize("first_columns", [[], ["news"]])
    @pytest.mark.parametrize("name", ["mine.tsv", "mine.tsv.gz"])
    def test_three_or_four_columns(self, tmp_path, tiny_encoder, first_columns, name):
        path = write_rows(
            tmp_path / name, *([*first_columns, grade, f"a {grade}", "b"] for grade in (0.5, 2, 11))
        )
        evaluator = own_pairs(path)
        assert evaluator.pairs == ScoredPairs(["a 0.5", "a 2", "a 11"], ["b"] * 3, [0.5, 2, 11])
        assert list(evaluator(tiny_encoder())) == ["mine_spearman"]

    def test_characters_are_kept(self, tmp_path):
        path = tmp_path / "pairs.tsv"
        path.write_bytes('\ufeff1\tHe said "no"\twith\u2028a line separator\r\n\r\n'.encode())
        assert read_scored_pairs(path) == ScoredPairs(['He said "no"'], ["with\u2028a line separator"], [1.0])

    @pytest.mark.parametrize(
        "row", [("a", "b", "no grade"), ("a", "high", "x", "y"), ("grade", "first", "second"), ("x",)]
    )
    def test_errors_name_file_and_line(self, tmp_path, row):
        rows = [row] if row[0] == "grade" else [("a", 1, "x", "y"), row]
        path = write_rows(tmp_path / "pairs.tsv", *rows)
        with pytest.raises(ValueError, match=rf"pairs\.tsv, line {len(rows)}"):
            read_scored_pairs(path)


class TestHardLength:
    def test_selected_pairs(self, tmp_path):
        rows = [
            (4.0, LONG, "one"),  # 7 - 1 = 6 words: kept
            (4.0, "one", LONG),  # kept
            (4.0, LONG, "one two"),  # 5 words
            (3.9, LONG, "one"),  # neither positive nor negative
            (1.0, "a cat", "a  red   house"),  # 1 word: kept
            (0.0, "a cat", "no dog"),  # kept
            (1.0, "a cat", "a red house there"),  # 2 words
            (1.1, "a cat", "a red house"),
        ]
        for year in range(12, 17):
            write_rows(tmp_path / "sts" / f"sts{year}.tsv", *(("subset", *row) for row in rows))
        evaluator = HardLengthEvaluator(tmp_path, positive=">=4", negative="<=1")
        assert evaluator.pairs["STS13"].scores == [4.0, 4.0, 1.0, 0.0]
        assert (evaluator.num_pairs, evaluator.num_positives) == (20, 10)
        assert HardLengthEvaluator(tmp_path, positive="> 3.5", negative="<1").num_pairs == 5 * (3 + 1)
        counted = HardLengthEvaluator(
            tmp_path, positive=">=4", negative="<=1", count_words=lambda text: 2 * len(text.split())
        )
        assert counted.num_positives == 15
        with pytest.raises(ValueError, match="STS12"):
            HardLengthEvaluator(tmp_path, positive=">4.5", negative="<1")
        with pytest.raises(SyntaxError):
            HardLengthEvaluator(tmp_path, positive="4", negative="<1")

    def test_years_mean_and_union(self, tiny_encoder, tmp_path):
        text, model, years = project_text(), tiny_encoder(), {}
        for year in range(12, 17):
            own = text[8 * (year - 12) :][:8]
            years[year] = [(5 - 0.1 * i, f"{LONG} {one} {one}", one) for i, one in enumerate(own)]
            years[year] += [(0.1 * i, one, f"{one} {i}") for i, one in enumerate(own)]
            write_rows(tmp_path / "sts" / f"sts{year}.tsv", *(("subset", *row) for row in years[year]))
        metrics = HardLengthEvaluator(tmp_path, positive=">4", negative="<1", name="hard")(model)

        def correlation(rows):
            first, second = (
                model.encode([row[i] for row in rows], normalize_embeddings=True) for i in (1, 2)
            )
            return 100 * spearmanr((first * second).sum(axis=1), [row[0] for row in rows]).statistic

        expected = [correlation(rows) for rows in years.values()]
        union = correlation(list(itertools.chain(*years.values())))
        assert list(metrics.values()) == pytest.approx([*expected, np.mean(expected), union], abs=1e-3)
        assert list(metrics)[-2:] == ["hard_avg5", "hard_union"]

    @pytest.mark.parametrize(
        ("positive", "negative", "pairs", "positives"),
        [(">4", "<1", 1242, 128), (">2.5", "<=2.5", 3264, 783)],
    )
    def test_sizes_of_the_real_subset(self, data_dir, positive, negative, pairs, positives):
        evaluator = HardLengthEvaluator(data_dir, positive=positive, negative=negative)
        assert (evaluator.num_pairs, evaluator.num_positives) == (pairs, positives)


def test_the_similarity_of_the_model(tiny_encoder):
    # Pairs are compared by the similarity function of the model, as in sentence-transformers.
    text, grades = project_text(), [float(grade) for grade in range(12)]
    pairs = ScoredPairs(text[:12], text[12:24], grades)
    evaluator, found = PairsEvaluator(pairs, name="p", write_csv=False), {}
    model = tiny_encoder(pooling="mean")
    for name in ("cosine", "dot", "euclidean"):
        model.similarity_fn_name = name
        found[name] = evaluator(model)["p_spearman"]
        values = model.similarity_pairwise(model.encode(text[:12]), model.encode(text[12:24]))
        assert found[name] == pytest.approx(100 * spearmanr(values, grades).statistic)
        assert evaluator.similarity == name
    assert found["dot"] != found["cosine"]
