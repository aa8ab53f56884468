import json
import subprocess
from types import SimpleNamespace

import mteb
import pytest
from datasets import Dataset, DatasetDict
from encoders import project_text
from evaluation_inputs import write_rows
from mteb.abstasks import AbsTaskSTS
from mteb.models import ModelMeta

from sbert_plugins import cli
from sbert_plugins.evaluation import (
    TASK_SETS,
    PairsEvaluator,
    ScoredPairs,
    evaluate_mteb,
    own_retrieval,
    own_task,
    submit_mteb,
)
from sbert_plugins.evaluation import mteb as module

COMMIT = "0123456789abcdef0123456789abcdef01234567"
NAME = "me/my-model.v1"


def scored_pairs(size=30):
    text = project_text()
    return ScoredPairs(
        text[:size], [text[(7 * i + 1) % 300] for i in range(size)], [float(i % 6) for i in range(size)]
    )


@pytest.fixture
def loads(monkeypatch):
    """Official STS tasks read 30 pairs instead of the Hub's. The list counts how often."""
    loaded = []

    def load_data(self, *arguments, **keywords):
        loaded.append(self.metadata.name)
        columns = dict(zip(("sentence1", "sentence2", "score"), scored_pairs(), strict=True))
        self.dataset = {"default": DatasetDict(test=Dataset.from_dict(columns))}
        self.data_loaded = True

    monkeypatch.setattr(AbsTaskSTS, "load_data", load_data)
    return loaded


def run(model, tasks, cache, **keywords):
    return evaluate_mteb(model, tasks, cache=cache, show_progress_bar=False, **keywords)


class TestEvaluate:
    def test_the_score_is_that_of_our_evaluator(self, tiny_encoder, loads, tmp_path):
        (result,) = run(tiny_encoder(), "STSBenchmark", tmp_path)
        expected = PairsEvaluator(scored_pairs())(tiny_encoder())["spearman"]
        assert 100 * result.get_score() == pytest.approx(expected, abs=1e-3)

    def test_another_model_does_not_get_the_stored_score(self, tiny_encoder, loads, tmp_path):
        first = run(tiny_encoder(), "STS12", tmp_path)
        second = run(tiny_encoder(pooling="mean"), "STS12", tmp_path)
        assert first.model_name == second.model_name == "local/model"
        assert first[0].get_score() != second[0].get_score()
        again = run(tiny_encoder(), "STS12", tmp_path)
        assert loads == ["STS12", "STS12"]
        assert again[0].get_score() == pytest.approx(first[0].get_score(), abs=1e-6)  # mteb stores six digits

    @pytest.mark.parametrize(
        "change",
        [
            lambda model: setattr(model[1], "pooling_mode", "mean"),
            lambda model: setattr(model, "max_seq_length", 9),
            lambda model: setattr(model, "truncate_dim", 4),
            lambda model: setattr(model, "prompts", {"query": "find: "}),
            lambda model: setattr(model, "similarity_fn_name", "dot"),
            lambda model: model[0].model.embeddings.word_embeddings.weight.data[5].add_(1e-3),
            lambda model: model.bfloat16(),
        ],
        ids=["pooling", "length", "dimensions", "prompts", "similarity", "weight", "dtype"],
    )
    def test_what_makes_another_model(self, tiny_encoder, change):
        model = tiny_encoder()
        before = module.fingerprint(model)
        model.encode(["one", "two or three"])
        assert module.fingerprint(model) == before
        change(model)
        assert module.fingerprint(model) != before

    def test_a_stored_result_on_older_data_is_computed_again(self, tiny_encoder, loads, tmp_path):
        run(tiny_encoder(), "STS12", tmp_path)
        (file,) = tmp_path.rglob("STS12.json")
        file.write_text(
            file.read_text(encoding="utf-8").replace(mteb.get_task("STS12").metadata.revision, "old")
        )
        run(tiny_encoder(), "STS12", tmp_path)
        assert loads == ["STS12", "STS12"]

    def test_more_splits_in_a_stored_result_change_no_score(self, tiny_encoder, loads, tmp_path):
        (first,) = run(tiny_encoder(), "STS12", tmp_path)
        (file,) = tmp_path.rglob("STS12.json")
        record = json.loads(file.read_text(encoding="utf-8"))
        record["scores"]["validation"] = [record["scores"]["test"][0] | {"main_score": 1.0}]
        file.write_text(json.dumps(record), encoding="utf-8")
        (again,) = run(tiny_encoder(), "STS12", tmp_path)
        assert again.get_score() == pytest.approx(first.get_score(), abs=1e-5)

    def test_bad_values(self, tiny_encoder, tmp_path):
        model = tiny_encoder()
        for keywords, match in [
            ({"name": "mine"}, "organization/model"),
            ({"revision": "main"}, "commit"),
            ({"training_datasets": {"STS-B"}}, "STS-B"),
            ({"licence": "mit"}, "licence"),
        ]:
            with pytest.raises(ValueError, match=match):
                run(model, "STS12", tmp_path, **keywords)
        with pytest.raises(ValueError, match="no-task"):
            run(model, "no-task", tmp_path)


class TestModelMeta:
    def test_fields_of_the_author(self, tiny_encoder):
        model = tiny_encoder()
        model.model_card_data.base_model = "someone/base"
        known = {
            "training_datasets": {"STS12"},
            "license": "apache-2.0",
            "public_training_code": "https://a.b/c",
        }
        meta = module.model_meta(model, NAME, COMMIT, **known, citation="@misc{x}", languages=["eng-Latn"])
        assert (meta.name, meta.revision, meta.adapted_from) == (NAME, COMMIT, "someone/base")
        assert meta.reference == f"https://huggingface.co/{NAME}"
        assert meta.training_datasets == {"STS12"}
        assert meta.n_parameters == sum(parameter.numel() for parameter in model.parameters())
        assert meta.openness_score == 5  # all but the training data

    @pytest.mark.parametrize("datasets", [None, set()])
    def test_unknown_and_no_training_datasets_differ(self, tiny_encoder, datasets):
        assert (
            module.model_meta(tiny_encoder(), NAME, training_datasets=datasets).training_datasets == datasets
        )

    def test_a_model_is_not_adapted_from_itself(self, tiny_encoder):
        # mteb would look for the training data of its base forever.
        model = tiny_encoder()
        model.model_card_data.base_model = NAME
        assert module.model_meta(model, NAME, COMMIT).adapted_from is None


class TestTasks:
    def test_sets_have_the_splits_and_languages_of_the_benchmark(self):
        tasks = module.find_tasks(list(TASK_SETS))
        assert len(tasks) == 7 + 10 + 4 + 1
        benchmark = {task.metadata.name: task for task in mteb.get_benchmark("MTEB(eng, v1)").tasks}
        for task in tasks:
            same = benchmark[task.metadata.name]
            assert (task.eval_splits, task.hf_subsets) == (same.eval_splits, same.hf_subsets)

    @pytest.mark.parametrize(("name", "count"), [("MTEB(eng, v1)", 56), ("MTEB(eng, v2)", 41), ("STS17", 1)])
    def test_benchmarks_and_tasks(self, name, count):
        assert len(module.find_tasks(name)) == count


MY_TASK = """
from datasets import Dataset, DatasetDict
from mteb.abstasks import AbsTaskSTS
from mteb.abstasks.task_metadata import TaskMetadata


class MyPairs(AbsTaskSTS):
    metadata = TaskMetadata(
        name="MyPairs", description="Mine.", dataset={"path": "mine", "revision": "1"}, type="STS",
        category="t2t", eval_langs=["eng-Latn"], main_score="cosine_spearman",
    )

    def load_data(self, num_proc=None, **options):
        rows = [line.split("\\t") for line in open(%r, encoding="utf-8")]
        columns = {"sentence1": [row[1] for row in rows], "sentence2": [row[2].strip() for row in rows]}
        columns["score"] = [float(row[0]) for row in rows]
        self.dataset, self.data_loaded = {"default": DatasetDict(test=Dataset.from_dict(columns))}, True
"""


@pytest.fixture
def pairs_file(tmp_path):
    first, second, scores = scored_pairs()
    return write_rows(tmp_path / "my pairs.tsv", *zip(scores, first, second, strict=True))


class TestOwnTasks:
    """They need no network: HF_HUB_OFFLINE is set."""

    def test_task_objects(self, tiny_encoder, loads, tmp_path):
        task = mteb.get_task("STS12")
        (one,) = run(tiny_encoder(), task, tmp_path)
        result = run(tiny_encoder(), [task, "STS13"], tmp_path)
        assert [each.task_name for each in result] == ["STS12", "STS13"]
        assert result[0].get_score() == pytest.approx(one.get_score(), abs=1e-6)
        assert loads == ["STS12", "STS13"]  # the stored result is used

    def test_a_python_file(self, tiny_encoder, pairs_file, tmp_path):
        file = tmp_path / "my_task.py"
        file.write_text(MY_TASK % str(pairs_file), encoding="utf-8")
        (result,) = run(tiny_encoder(), str(file), tmp_path / "cache")
        expected = PairsEvaluator(scored_pairs())(tiny_encoder())["spearman"]
        assert result.task_name == "MyPairs"
        assert 100 * result.get_score() == pytest.approx(expected, abs=1e-3)
        write_rows(pairs_file, (0, "a cat", "a cat"), (1, "it rains", "prices"), (2, "a dog", "the sea"))
        (changed,) = run(tiny_encoder(), str(file), tmp_path / "cache")
        assert changed.get_score() != result.get_score()  # never a stored result

    def test_retrieval(self, tiny_encoder, tmp_path):
        text = project_text()
        write_rows(tmp_path / "mine" / "queries.tsv", *((f"q{i}", text[200 + i]) for i in range(5)))
        write_rows(tmp_path / "mine" / "corpus.tsv", *((i, text[i]) for i in range(30)))
        write_rows(tmp_path / "mine" / "qrels.tsv", *((f"q{i}", 3 * i, 1) for i in range(5)))
        (result,) = run(tiny_encoder(), str(tmp_path / "mine"), tmp_path / "cache")
        ours = own_retrieval(tmp_path / "mine")(tiny_encoder())
        scores = result.scores["test"][0]
        for name in ("ndcg@10", "map@100", "mrr@10"):
            assert scores[name.replace("@", "_at_")] == pytest.approx(ours[f"mine_cosine_{name}"], abs=2e-5)
        assert 0 < result.get_score() < 1

    def test_classification(self, tiny_encoder, tmp_path):
        # The word decides, and both halves have both labels.
        text = project_text()
        rows = [(("sea", "war")[i % 2], f"{('boat ', 'army ')[i % 2] * 6}{text[i]}") for i in range(60)]
        file = write_rows(tmp_path / "mine.tsv", *rows)
        (result,) = run(tiny_encoder(pooling="mean"), str(file), tmp_path / "cache")
        assert result.get_score() > 0.9
        task = own_task(file)
        assert {len(task.dataset["default"][split]) for split in ("train", "test")} == {30}

    def test_the_command(self, encoder_path, tiny_encoder, pairs_file, tmp_path, capsys):
        file = tmp_path / "my_task.py"
        file.write_text(MY_TASK % str(pairs_file), encoding="utf-8")
        cache = ["--offline", "--cache", str(tmp_path / "cache")]
        cli.main(["mteb", "run", encoder_path, "--tasks", str(file), str(pairs_file), *cache])
        expected = PairsEvaluator(scored_pairs())(tiny_encoder())["spearman"]
        lines = capsys.readouterr().out.splitlines()
        for task in ("MyPairs", "Ownmy_pairs"):
            (score,) = [line.split()[1] for line in lines if line.startswith(task)]
            assert float(score) == pytest.approx(expected, abs=0.01)

    def test_two_tasks_of_one_name(self, pairs_file, tmp_path):
        other = write_rows(tmp_path / "other" / pairs_file.name, (1, "a", "b"))
        with pytest.raises(ValueError, match="Ownmy_pairs"):
            module.find_tasks([str(pairs_file), str(other)])

    def test_they_cannot_be_submitted(self, tiny_encoder, pairs_file, tmp_path):
        run(tiny_encoder(), str(pairs_file), tmp_path / "cache", name=NAME, revision=COMMIT)
        with pytest.raises(ValueError, match="Ownmy_pairs is not"):
            submit_mteb(NAME, str(pairs_file), cache=tmp_path / "cache")


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository that git uses instead of mteb's repository of results."""
    folder = tmp_path / "stand-in"
    environment = {
        "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{folder}.insteadOf",
        "GIT_CONFIG_VALUE_0": "https://github.com/embeddings-benchmark/results",
    }  # fmt: skip
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    subprocess.run(["git", "init", "-q", "-b", "main", str(folder)], check=True)
    subprocess.run(["git", "-C", str(folder), "commit", "-q", "--allow-empty", "-m", "start"], check=True)
    return folder


class TestSubmit:
    TASKS = ("STS12", "STSBenchmark")

    @pytest.fixture
    def cache(self, tiny_encoder, loads, tmp_path, monkeypatch):
        """Results of a model that is also in the local cache of the Hub."""
        downloaded = tmp_path / "hub" / f"models--{NAME.replace('/', '--')}"
        tiny_encoder().save_pretrained(str(downloaded / "snapshots" / COMMIT))
        monkeypatch.setenv("SENTENCE_TRANSFORMERS_HOME", str(tmp_path / "hub"))
        run(
            tiny_encoder(),
            self.TASKS,
            tmp_path / "cache",
            name=NAME,
            revision=COMMIT,
            training_datasets=set(),
        )
        return tmp_path / "cache"

    def test_results_implementation_and_mock_run(self, cache, repository, tmp_path):
        file = tmp_path / "my_model.py"
        submission = submit_mteb(NAME, self.TASKS, cache=cache, implementation=file)
        assert (submission.answer["status"], submission.answer["result_count"]) == ("ready_for_submission", 2)
        show = ["git", "-C", str(cache / "remote"), "show", "--stat=200", "--format=%s"]
        committed = subprocess.run(show, capture_output=True, text=True, check=True).stdout
        for name in ("STS12.json", "STSBenchmark.json", "model_meta.json"):
            assert f"results/me__my-model.v1/{COMMIT}/{name}" in committed
        namespace = {}
        exec(file.read_text(encoding="utf-8"), namespace)
        meta = namespace["my_model_v1"]
        assert isinstance(meta, ModelMeta)
        assert (meta.name, meta.revision, meta.open_weights, meta.training_datasets) == (
            NAME,
            COMMIT,
            True,
            set(),
        )
        assert "license" in submission.to_fill_in
        assert "training_datasets" not in submission.to_fill_in
        assert submission.files == [file, tmp_path / "mteb_mock_run_results.md"]
        mock = submission.files[1].read_text(encoding="utf-8")
        assert NAME in mock
        assert "MockSTSTask" in mock
        assert "✗" not in mock

    @pytest.fixture
    def no_mock_run(self, monkeypatch):
        """The mock run takes seconds."""
        monkeypatch.setattr(mteb, "mock_run", lambda encoder: SimpleNamespace(to_markdown=lambda: "mock"))

    @pytest.mark.usefixtures("no_mock_run")
    def test_an_edited_implementation_is_kept(self, cache, repository, tmp_path):
        file = tmp_path / "mine.py"
        file.write_text("edited\n", encoding="utf-8")
        submit_mteb(NAME, self.TASKS, cache=cache, implementation=file)
        assert file.read_text(encoding="utf-8") == "edited\n"

    def test_a_model_that_mteb_has(self, tiny_encoder, loads, repository, tmp_path):
        name = "sentence-transformers/all-MiniLM-L6-v2"
        run(tiny_encoder(), "STS12", tmp_path / "cache", name=name, revision=COMMIT)
        assert submit_mteb(name, "STS12", cache=tmp_path / "cache").files == []

    def test_results_that_cannot_be_submitted(self, cache, tiny_encoder):
        folder = cache / "results" / "me__my-model.v1" / COMMIT

        def edit(task, change):
            content = json.loads((folder / f"{task}.json").read_text(encoding="utf-8"))
            change(content)
            (folder / f"{task}.json").write_text(json.dumps(content), encoding="utf-8")

        edit("STS12", lambda content: content.update(dataset_revision="old"))
        edit("STSBenchmark", lambda content: content.update(scores={"dev": content["scores"]["test"]}))
        with pytest.raises(ValueError) as error:
            submit_mteb(NAME, ["paper-sts"], cache=cache)
        lines = [line.strip() for line in str(error.value).splitlines()[1:]]
        assert lines[0].startswith("STS12 was run on data old")
        assert [line.split()[0] for line in lines if "was not run" in line] == [
            "STS13",
            "STS14",
            "STS15",
            "STS16",
            "SICK-R",
        ]
        assert any("STSBenchmark lacks default of split test" in line for line in lines)
        edit("STS12", lambda content: content["scores"]["test"][0].update(main_score=float("nan")))
        with pytest.raises(ValueError, match="not finite"):
            submit_mteb(NAME, "STS12", cache=cache)

    def test_a_local_model(self, tiny_encoder, loads, tmp_path):
        run(tiny_encoder(), "STS12", tmp_path, name="me/mine")
        with pytest.raises(ValueError, match="Publish"):
            submit_mteb("me/mine", "STS12", cache=tmp_path)

    def test_revisions(self, cache, tiny_encoder):
        with pytest.raises(FileNotFoundError):
            submit_mteb("me/nobody", "STS12", cache=cache)
        with pytest.raises(FileNotFoundError):
            submit_mteb(NAME, "STS12", cache=cache, revision="e" * 40)
        run(tiny_encoder(), "STS12", cache, name=NAME, revision="f" * 40)
        with pytest.raises(ValueError, match=f"{COMMIT}, ffff"):
            submit_mteb(NAME, "STS12", cache=cache)

    @pytest.mark.usefixtures("no_mock_run")
    def test_no_repository(self, cache, repository, tmp_path):
        repository.rename(tmp_path / "gone")
        with pytest.raises(subprocess.CalledProcessError):
            submit_mteb(NAME, "STS12", cache=cache, implementation=tmp_path / "x.py")
