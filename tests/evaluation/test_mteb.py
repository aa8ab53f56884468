import copy
import itertools
import json
import random
import subprocess
import sys

import mteb
import numpy as np
import pytest
import torch
import transformers
from datasets import Dataset, DatasetDict
from encoders import project_text
from mteb.abstasks import AbsTaskSTS
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

from sbert_plugins import cli
from sbert_plugins.evaluation import TASK_SETS, STSSuiteEvaluator, evaluate_mteb, load_sts, submit_mteb
from sbert_plugins.evaluation import mteb as module
from sbert_plugins.recipes.output import encoder_mark

COMMIT = "0123456789abcdef0123456789abcdef01234567"
PAIRS = 30


def scored_pairs(size=PAIRS):
    text = project_text()
    return [(f"{i % 6}.0", text[i], text[(7 * i + 1) % 300]) for i in range(size)]


def write_stsb(root, size=PAIRS):
    (root / "sts").mkdir(exist_ok=True)
    lines = ["\t".join(("x", *row)) + "\n" for row in scored_pairs(size)]
    (root / "sts" / "stsb_test.tsv").write_text("".join(lines), encoding="utf-8")


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A directory of data with one small table, which is that of the environment, too."""
    write_stsb(tmp_path)
    monkeypatch.setenv("SBERT_PLUGINS_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def loads(monkeypatch):
    """Official STS tasks read 30 pairs instead of the Hub; the list counts how often."""
    loaded = []

    def load_data(self, *arguments, **keywords):
        loaded.append(self.metadata.name)
        scores, first, second = zip(*scored_pairs(), strict=True)
        columns = {"sentence1": list(first), "sentence2": list(second), "score": [float(score) for score in scores]}
        self.dataset = {"default": DatasetDict(test=Dataset.from_dict(columns))}
        self.data_loaded = True

    monkeypatch.setattr(AbsTaskSTS, "load_data", load_data)
    return loaded


def run(model, tasks, cache, **keywords):
    return evaluate_mteb(model, tasks, cache=cache, show_progress_bar=False, **keywords)


def noisy(model):
    model = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


class TestAgreement:
    """mteb, sentence-transformers and this library give one number."""

    @pytest.mark.slow
    @pytest.mark.parametrize(("task", "ours"), [("LocalSTSBenchmark", "STS-B"), ("LocalSICK-R", "SICK-R")])
    def test_sts(self, minilm, data_dir, tmp_path, task, ours):
        """On the first 300 pairs: the protocols are compared, not the model."""
        (tmp_path / "sts").mkdir()
        for name in ("stsb_test.tsv", "sick_test.tsv"):
            with open(data_dir / "sts" / name, encoding="utf-8") as file:
                (tmp_path / "sts" / name).write_text("".join(itertools.islice(file, 300)), encoding="utf-8")
        model = copy.deepcopy(minilm)
        model.max_seq_length = 32
        del model[0].model.encoder.layer[1:]
        (result,) = run(model, task, tmp_path, data_dir=tmp_path)
        pairs = load_sts(ours, tmp_path)
        assert len(pairs.scores) == 300
        host = EmbeddingSimilarityEvaluator(*pairs, write_csv=False)(model)["spearman_cosine"]
        suite = STSSuiteEvaluator(tmp_path, tasks=[ours])(model)[ours] / 100
        assert result.get_score() == pytest.approx(host, abs=1e-6)
        assert suite == pytest.approx(host, abs=1e-6)


@pytest.mark.parametrize(("base", "noted"), [("me/x", None), ("someone/base", "someone/base")])
def test_a_model_is_not_its_own_ancestor(tiny_encoder, base, noted):
    """mteb would look for what its ancestor was trained on without an end."""
    model = tiny_encoder()
    model.model_card_data.base_model = base
    assert module._model_meta(model, "me/x", "a" * 40).adapted_from == noted


class TestCache:
    def test_models_of_one_name_do_not_share_a_score(self, tiny_encoder, data):
        model = tiny_encoder()
        first = run(model, "LocalSTSBenchmark", data, data_dir=data)
        other = run(noisy(model), "LocalSTSBenchmark", data, data_dir=data)
        assert first.model_name == other.model_name == "local/model"
        assert first.model_revision != other.model_revision
        assert first[0].get_score() != other[0].get_score()

    def test_the_same_model_is_not_run_again(self, tiny_encoder, loads, tmp_path):
        first = run(tiny_encoder(), "STS12", tmp_path)
        second = run(tiny_encoder(), "STS12", tmp_path)
        assert loads == ["STS12"]
        assert second[0].get_score() == pytest.approx(first[0].get_score(), abs=1e-6)  # mteb stores six digits

    def test_what_a_script_draws_next_is_of_its_own_seed(self, tiny_encoder, data):
        """mteb seeds every generator."""
        drawn = []
        for seed in (1, 1, 2):
            transformers.set_seed(seed)
            run(tiny_encoder(), "LocalSTSBenchmark", data, data_dir=data)
            drawn.append((random.random(), np.random.rand(), torch.rand(1).item()))  # noqa: NPY002  as others draw
        assert drawn[0] == drawn[1]
        assert not set(drawn[0]) & set(drawn[2])

    def test_a_result_of_older_data_is_made_anew(self, tiny_encoder, data):
        model = tiny_encoder()
        before = run(model, "LocalSTSBenchmark", data, data_dir=data)[0]
        write_stsb(data, size=PAIRS - 10)
        after = run(model, "LocalSTSBenchmark", data, data_dir=data)[0]
        assert before.dataset_revision != after.dataset_revision
        assert before.get_score() != after.get_score()

    def test_a_cut_off_result_is_made_anew(self, tiny_encoder, data):
        model = tiny_encoder()
        (first,) = evaluate_mteb(model, "LocalSTSBenchmark", cache=data / "cache")
        (file,) = (data / "cache").rglob("LocalSTSBenchmark.json")
        file.write_text(file.read_text(encoding="utf-8")[:80], encoding="utf-8")
        (again,) = evaluate_mteb(model, "LocalSTSBenchmark", cache=data / "cache")
        assert again.get_score() == first.get_score()

    def test_a_revision_is_one_state_of_a_model(self, tiny_encoder, data):
        model, other = tiny_encoder(), tiny_encoder("mpnet")
        given = {"name": "me/x", "revision": COMMIT, "cache": data / "cache"}
        for _ in range(2):
            evaluate_mteb(model, "LocalSTSBenchmark", **given)
        with pytest.raises(ValueError, match="has results of another model .weights "):
            evaluate_mteb(other, "LocalSTSBenchmark", **given)

    def test_what_a_stopped_run_leaves_is_of_its_model(self, tiny_encoder, data, monkeypatch):
        model, other = tiny_encoder(), tiny_encoder("mpnet")
        given = {"name": "me/x", "revision": COMMIT, "cache": data / "cache"}
        stopped, whole = "nothing written", mteb.evaluate

        def stops(*arguments, **keywords):
            if stopped != "nothing written":
                whole(*arguments, **keywords)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(mteb, "evaluate", stops)
            with pytest.raises(KeyboardInterrupt):
                evaluate_mteb(model, "LocalSTSBenchmark", **given)
            stopped = "behind the first result"
            with pytest.raises(KeyboardInterrupt):
                evaluate_mteb(other, "LocalSTSBenchmark", **given)  # there was no result of another one
        with pytest.raises(ValueError, match="has results of another model"):
            evaluate_mteb(model, "LocalSTSBenchmark", **given)
        evaluate_mteb(other, "LocalSTSBenchmark", **given)

    @pytest.mark.parametrize(
        ("key", "change"),
        [
            ("pooling", lambda model: setattr(model[1], "pooling_mode", "mean")),
            ("max_seq_length", lambda model: setattr(model, "max_seq_length", 9)),
            ("truncate_dim", lambda model: setattr(model, "truncate_dim", 4)),
            ("prompts", lambda model: setattr(model, "prompts", {"query": "find: "})),
            ("similarity", lambda model: setattr(model, "similarity_fn_name", "dot")),
        ],
    )
    def test_other_settings_are_another_model(self, tiny_encoder, data, key, change):
        model = tiny_encoder()
        given = {"name": "me/x", "revision": COMMIT, "cache": data / "cache"}
        evaluate_mteb(model, "LocalSTSBenchmark", **given)
        change(model)
        with pytest.raises(ValueError, match=f"has results of another model .*{key} .*, now"):
            evaluate_mteb(model, "LocalSTSBenchmark", **given)

    def test_a_mark_of_an_earlier_version_is_of_the_weights_alone(self, tiny_encoder, data):
        model = tiny_encoder()
        given = {"name": "me/x", "revision": COMMIT, "cache": data / "cache"}
        evaluate_mteb(model, "LocalSTSBenchmark", **given)
        (noted,) = data.rglob("model.txt")
        noted.write_text(json.loads(noted.read_text())["weights"])
        evaluate_mteb(model, "LocalSTSBenchmark", **given)
        assert json.loads(noted.read_text())["pooling"] == ["cls"]

    def test_more_splits_in_the_cache_change_no_score(self, tiny_encoder, data):
        model = tiny_encoder()
        (first,) = evaluate_mteb(model, "LocalSTSBenchmark", cache=data / "cache")
        (file,) = (data / "cache").rglob("LocalSTSBenchmark.json")
        record = json.loads(file.read_text(encoding="utf-8"))
        (row,) = record["scores"]["test"]
        record["scores"]["validation"] = [row | {"main_score": 1.0}]
        file.write_text(json.dumps(record), encoding="utf-8")
        (again,) = evaluate_mteb(model, "LocalSTSBenchmark", cache=data / "cache")
        assert again.get_score() == pytest.approx(first.get_score(), abs=1e-5)

    def test_local_results_are_out_of_sight(self, tiny_encoder, loads, data):
        run(tiny_encoder(), ["STS12", "LocalSTSBenchmark"], data, data_dir=data)
        assert mteb.ResultCache(data).get_task_names() == ["STS12"]
        assert [path.name for path in (data / "sbert-plugins-local" / "results").rglob("Local*")] == ["LocalSTSBenchmark.json"]


class TestFingerprint:
    def test_of_the_same_model(self, tiny_encoder, tmp_path):
        model = tiny_encoder()
        before = module.fingerprint(model)
        model.encode(["one", "two or three"])  # sets the tokenizer's padding
        model.save_pretrained(str(tmp_path / "model"))
        assert module.fingerprint(model) == before
        assert module.fingerprint(SentenceTransformer(str(tmp_path / "model"))) == before

    @pytest.mark.parametrize(
        "change",
        [
            lambda model: model[0].model.embeddings.word_embeddings.weight.data[5].add_(1e-3),
            lambda model: setattr(model, "max_seq_length", 16),
            lambda model: setattr(model, "prompts", {"query": "find: "}),
            lambda model: model.tokenizer.add_tokens(["unheard-of"]),
            lambda model: model.bfloat16(),
            lambda model: setattr(model[0].model.config, "hidden_act", "relu"),
        ],
        ids=["weight", "length", "prompt", "tokenizer", "dtype", "activation"],
    )
    def test_of_another(self, tiny_encoder, change):
        model = tiny_encoder()
        before = module.fingerprint(model)
        change(model)
        assert module.fingerprint(model) != before

    def test_a_pooler_that_is_drawn_at_random_is_no_matter(self, tiny_encoder):
        model, other = tiny_encoder("bert"), tiny_encoder("bert")
        pooler = {name: tensor for name, tensor in other.state_dict().items() if "pooler." in name}
        assert pooler
        for tensor in pooler.values():
            tensor.add_(1)
        assert module.fingerprint(model) == module.fingerprint(other)

    def test_a_pooler_that_is_read(self, tiny_encoder, tmp_path):
        tiny_encoder("bert")[0].model.save_pretrained(tmp_path)
        tiny_encoder("bert").tokenizer.save_pretrained(tmp_path)
        route = {"text": {"method": "forward", "method_output_name": "pooler_output"}}
        models = [
            SentenceTransformer(
                modules=[Transformer(str(tmp_path), modality_config=route, module_output_name="sentence_embedding")]
            )
            for _ in range(2)
        ]
        assert len({module.fingerprint(model) for model in models}) == 1
        models[0][0].model.pooler.dense.bias.data.add_(1)
        assert len({module.fingerprint(model) for model in models}) == 2
        assert len({encoder_mark(model)["sha256"] for model in models}) == 2

    def test_what_a_router_has_inside(self, tiny_encoder):
        transformer, size = tiny_encoder()[0], tiny_encoder().get_embedding_dimension()
        routes = [[transformer, Pooling(size, pooling_mode=mode)] for mode in ("mean", "cls")]
        models = [
            SentenceTransformer(modules=[Router.for_query_document(query_modules=route, document_modules=route)])
            for route in routes
        ]
        assert len({module.fingerprint(model) for model in models}) == 2
        assert len({str(module._mark_of(model)["pooling"]) for model in models}) == 2

    def test_a_pooling_with_weights_is_no_such_pooler(self, tiny_encoder):
        class Attention(torch.nn.Module):
            def __init__(self, value):
                super().__init__()
                self.attention_pooler = torch.nn.Linear(2, 2)
                torch.nn.init.constant_(self.attention_pooler.weight, value)
                torch.nn.init.zeros_(self.attention_pooler.bias)

        models = [SentenceTransformer(modules=[*tiny_encoder(), Attention(value)]) for value in (0.0, 1.0)]
        assert len({module.fingerprint(model) for model in models}) == 2
        assert len({encoder_mark(model)["sha256"] for model in models}) == 2

    def test_the_side_that_is_cut(self, tiny_encoder):
        model, other = tiny_encoder(), tiny_encoder()
        other.tokenizer.truncation_side = "left"
        assert module.fingerprint(model) != module.fingerprint(other)

    def test_word_vectors(self):
        from sentence_transformers.sentence_transformer.modules import WordEmbeddings
        from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer

        settings = ({}, {"stop_words": ["a"]}, {"stop_words": ["b", "a"]}, {"stop_words": ["b", "a"], "do_lower_case": True})
        found = [
            module.fingerprint(SentenceTransformer(modules=[WordEmbeddings(tokenizer, torch.zeros(2, 4)), Pooling(4)]))
            for tokenizer in (WhitespaceTokenizer(["a", "b"], **each) for each in settings)
        ]
        assert all(mark.startswith("weights-") for mark in found)
        assert len(set(found)) == len(settings)  # a word that is left out is still one of the vocabulary

    def test_of_another_pooling(self, tiny_encoder):
        """The weights are the same: a hash of them alone would be, too."""
        assert module.fingerprint(tiny_encoder(pooling="cls")) != module.fingerprint(tiny_encoder(pooling="mean"))


class TestTasks:
    def test_sets(self):
        assert {name: len(tasks) for name, tasks in TASK_SETS.items()} == {
            "paper-sts": 7, "denosent-classification": 10, "reranking": 4, "quora": 1,
            "local-sts": 7, "local-retrieval": 2, "local-classification": 3,
        }  # fmt: skip

    def test_sets_have_the_splits_and_languages_of_the_benchmark(self):
        tasks, local = module._split(["paper-sts", "denosent-classification", "reranking", "quora"], None)
        assert (len(tasks), local) == (22, [])
        benchmark = {task.metadata.name: task for task in mteb.get_benchmark("MTEB(eng, v1)").tasks}
        for task in tasks:
            same = benchmark[task.metadata.name]
            assert (task.eval_splits, task.hf_subsets) == (same.eval_splits, same.hf_subsets)

    @pytest.mark.parametrize(("name", "count"), [("MTEB(eng, v1)", 56), ("MTEB(eng, v2)", 41), ("STS17", 1)])
    def test_benchmarks_and_tasks(self, name, count):
        assert len(module._split(name, None)[0]) == count

    def test_local_sets_exist(self, data_dir):
        _, local = module._split([name for name in TASK_SETS if name.startswith("local")], data_dir)
        assert len(local) == 12

    def test_names(self, tiny_encoder, tmp_path, monkeypatch):
        monkeypatch.delenv("SBERT_PLUGINS_DATA", raising=False)
        model = tiny_encoder()
        with pytest.raises(ValueError, match=r"'STS-B' is not one of the sets paper-sts, .* nor a benchmark of mteb"):
            run(model, "STS-B", tmp_path)
        with pytest.raises(ValueError, match="tasks must name at least one task or set, got none"):
            run(model, [], tmp_path)
        with pytest.raises(ValueError, match="name must be organization/model, such as 'me/my-model', got 'mine'"):
            run(model, "STS12", tmp_path, name="mine")
        with pytest.raises(FileNotFoundError, match="LocalSTS12 reads files: set SBERT_PLUGINS_DATA"):
            run(model, "LocalSTS12", tmp_path)


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A stand-in for mteb's results repository, which git takes for the one on GitHub."""
    folder = tmp_path / "stand-in"
    environment = {
        "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b",
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
    def cache(self, tiny_encoder, loads, tmp_path):
        run(tiny_encoder(), self.TASKS, tmp_path / "cache", name="me/my-model.v1", revision=COMMIT)
        return tmp_path / "cache"

    def test_commits_results_and_writes_the_implementation(self, cache, repository, tmp_path):
        file = tmp_path / "my_model.py"
        submission = submit_mteb("me/my-model.v1", self.TASKS, cache=cache, implementation=file)
        assert submission.answer["status"] == "ready_for_submission"
        assert submission.answer["result_count"] == 2
        committed = subprocess.run(
            ["git", "-C", str(cache / "remote"), "show", "--stat=200", "--format=%s"],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        for name in ("STS12.json", "STSBenchmark.json", "model_meta.json"):
            assert f"results/me__my-model.v1/{COMMIT}/{name}" in committed
        namespace = {}
        exec(file.read_text(encoding="utf-8"), namespace)
        meta = namespace["my_model_v1"]
        assert (meta.name, meta.revision, meta.open_weights) == ("me/my-model.v1", COMMIT, True)
        assert meta.loader.__name__ == "SentenceTransformerEncoderWrapper"
        assert meta.n_parameters > 0
        assert meta.reference == "https://huggingface.co/me/my-model.v1"
        assert {"license", "training_datasets", "languages"} <= set(submission.to_fill_in)

    def test_an_edited_implementation_is_kept(self, cache, repository, tmp_path):
        file = tmp_path / "mine.py"
        file.write_text("edited\n", encoding="utf-8")
        submit_mteb("me/my-model.v1", self.TASKS, cache=cache, implementation=file)
        assert file.read_text(encoding="utf-8") == "edited\n"

    def test_mteb_knows_the_model(self, tiny_encoder, loads, repository, tmp_path):
        name = "sentence-transformers/all-MiniLM-L6-v2"
        run(tiny_encoder(), "STS12", tmp_path / "cache", name=name, revision=COMMIT)
        assert submit_mteb(name, "STS12", cache=tmp_path / "cache").implementation is None

    @pytest.mark.parametrize("tasks", ["local-sts", ["STS12", "LocalSTS12"]])
    def test_refuses_local_tasks(self, cache, tasks):
        with pytest.raises(ValueError, match="local results cannot be submitted: LocalSTS12"):
            submit_mteb("me/my-model.v1", tasks, cache=cache)

    def test_refuses_a_local_model(self, tiny_encoder, loads, tmp_path):
        run(tiny_encoder(), "STS12", tmp_path, name="me/mine")
        with pytest.raises(ValueError, match="is a hash of local weights: publish the model on the Hub"):
            submit_mteb("me/mine", "STS12", cache=tmp_path)

    def test_refuses_what_is_not_complete(self, cache):
        folder = cache / "results" / "me__my-model.v1" / COMMIT

        def edit(task, change):
            content = json.loads((folder / f"{task}.json").read_text(encoding="utf-8"))
            change(content)
            (folder / f"{task}.json").write_text(json.dumps(content), encoding="utf-8")

        edit("STS12", lambda content: content.update(dataset_revision="old"))
        edit("STSBenchmark", lambda content: content.update(scores={"dev": content["scores"]["test"]}))
        with pytest.raises(ValueError) as error:
            submit_mteb("me/my-model.v1", ["paper-sts"], cache=cache)
        lines = str(error.value).splitlines()[1:]
        assert any("STS12 was run on data old" in line for line in lines)
        assert any("STSBenchmark lacks default of split test" in line for line in lines)
        assert [line.strip() for line in lines if "was not run" in line] == [
            f"{task} was not run." for task in ("STS13", "STS14", "STS15", "STS16", "SICK-R")
        ]

    def test_refuses_a_score_that_is_not_finite(self, cache):
        file = cache / "results" / "me__my-model.v1" / COMMIT / "STS12.json"
        content = json.loads(file.read_text(encoding="utf-8"))
        content["scores"]["test"][0]["main_score"] = float("nan")
        file.write_text(json.dumps(content), encoding="utf-8")
        with pytest.raises(ValueError, match="STS12 has a score that is not finite"):
            submit_mteb("me/my-model.v1", "STS12", cache=cache)

    def test_which_revision(self, cache, tiny_encoder, loads):
        with pytest.raises(FileNotFoundError, match="there are none of any revision"):
            submit_mteb("me/nobody", "STS12", cache=cache)
        run(tiny_encoder(), "STS12", cache, name="me/my-model.v1", revision="f" * 40)
        with pytest.raises(ValueError, match=f"revision must be given, for me/my-model.v1 has results of {COMMIT}, ffff"):
            submit_mteb("me/my-model.v1", "STS12", cache=cache)
        with pytest.raises(FileNotFoundError, match=f"there are results of {COMMIT}, ffff"):
            submit_mteb("me/my-model.v1", "STS12", cache=cache, revision="e" * 40)

    def test_no_repository(self, cache, repository, tmp_path):
        repository.rename(tmp_path / "gone")
        with pytest.raises(ConnectionError, match="mteb could not put the results into a clone"):
            submit_mteb("me/my-model.v1", "STS12", cache=cache, implementation=tmp_path / "x.py")


class TestCommandLine:
    def test_run_and_submit(self, tiny_encoder, data, repository, loads, capsys):
        tiny_encoder().save_pretrained(str(data / "run" / "model"))
        path, cache = str(data / "run" / "model"), str(data / "cache")
        arguments = ["mteb", "run", path, "--cache", cache, "--data-dir", str(data), "--tasks", "LocalSTSBenchmark", "STS12"]
        assert cli.main(arguments) == 0
        printed = capsys.readouterr().out
        assert "local/run-model, revision weights-" in printed
        assert [line.split()[0] for line in printed.strip().splitlines()[-2:]] == ["STS12", "LocalSTSBenchmark"]
        assert cli.main(["mteb", "submit", "local/run-model", "--cache", cache, "--tasks", "STS12"]) == 2
        assert "is a hash of local weights" in capsys.readouterr().err

        assert cli.main([*arguments, "--name", "me/mine", "--revision", COMMIT]) == 0
        capsys.readouterr()
        file = str(data / "mine.py")
        submit = ["mteb", "submit", "me/mine", "--cache", cache, "--tasks", "STS12", "--implementation", file]
        assert cli.main(submit) == 0
        printed = capsys.readouterr().out
        assert "mteb: ready_for_submission, 1 results." in printed
        assert "Fill in what you know of: license" in printed

    @pytest.mark.parametrize("folder", ["simcse_temperature=0.1_seed0", "my models"])
    def test_any_path_has_a_name(self, tiny_encoder, data, folder, capsys):
        tiny_encoder().save_pretrained(str(data / folder / "model"))
        arguments = ["mteb", "run", str(data / folder / "model"), "--cache", str(data / "cache"), "--data-dir", str(data)]
        assert cli.main([*arguments, "--tasks", "LocalSTSBenchmark"]) == 0
        name = folder.replace("=", "-").replace(" ", "-")
        assert f"local/{name}-model, revision weights-" in capsys.readouterr().out
        assert cli.main([*arguments, "--tasks", "LocalSTSBenchmark", "--name", "mine"]) == 2
        assert "name must be organization/model" in capsys.readouterr().err

    def test_a_keyword_is_no_name_of_a_model(self):
        assert module._identifier("me/class") == "model_class"

    def test_a_model_of_the_hub_has_its_name_and_commit(self, tiny_encoder, loads, tmp_path, monkeypatch, capsys):
        downloaded = tmp_path / "hub" / "models--org--public"
        tiny_encoder().save_pretrained(str(downloaded / "snapshots" / COMMIT))
        (downloaded / "refs").mkdir()
        (downloaded / "refs" / "main").write_text(COMMIT, encoding="utf-8")
        monkeypatch.setenv("SENTENCE_TRANSFORMERS_HOME", str(tmp_path / "hub"))
        assert cli.main(["mteb", "run", "org/public", "--tasks", "STS12", "--cache", str(tmp_path)]) == 0
        assert f"org/public, revision {COMMIT}" in capsys.readouterr().out
        assert (tmp_path / "results" / "org__public" / COMMIT / "STS12.json").is_file()

    @pytest.mark.parametrize(
        ("model", "message"), [("./nothing", "./nothing does not exist"), ("nothing", "nothing is no directory here")]
    )
    def test_a_model_that_is_not_there(self, model, message, capsys):
        assert cli.main(["mteb", "run", model, "--tasks", "STS12"]) == 2
        assert message in capsys.readouterr().err

    def test_without_mteb(self, tiny_encoder, data, monkeypatch, capsys):
        for name in [name for name in sys.modules if name.split(".")[0] == "mteb"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "mteb", None)
        with pytest.raises(ModuleNotFoundError, match=r'mteb is not installed: pip install "sbert-plugins\[mteb\]"'):
            evaluate_mteb(tiny_encoder(), "STS12")
        tiny_encoder().save_pretrained(str(data / "model"))
        assert cli.main(["mteb", "run", str(data / "model"), "--tasks", "STS12"]) == 2
        assert cli.main(["mteb", "submit", "me/mine", "--tasks", "STS12"]) == 2
        lines = [line for line in capsys.readouterr().err.splitlines() if "mteb is not installed" in line]
        assert len(lines) == 2
