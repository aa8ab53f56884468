import json
import logging
import re
import shlex
import subprocess
import sys
import time
from dataclasses import fields, replace
from types import SimpleNamespace

import pytest
from datasets import Dataset
from encoders import project_text
from recipe_inputs import interrupted
from sentence_transformers import SentenceTransformer

from sbert_plugins import cli, data, evaluation, recipes, training
from sbert_plugins.cli import command as command_module
from sbert_plugins.cli import run as run_module

QUICK = ["--max_steps", "2", "--per-device-train-batch-size", "8", "--eval_steps", "1", "--sam_rho", "0"]


@pytest.fixture(autouse=True)
def no_data(monkeypatch):
    monkeypatch.delenv("SBERT_PLUGINS_DATA", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text.txt").write_text("\n".join(project_text()[:30]), encoding="utf-8")
    return str(tmp_path / "text.txt")


@pytest.fixture
def pairs(tmp_path):
    lines = [
        f"{place % 6}\t{one}\t{project_text()[150 + place]}\n"
        for place, one in enumerate(project_text()[30:60])
    ]
    (tmp_path / "graded.tsv").write_text("".join(lines), encoding="utf-8")
    return str(tmp_path / "graded.tsv")


@pytest.fixture
def topics(tmp_path):
    lines = [f"{'even' if place % 2 else 'odd'}\t{one}\n" for place, one in enumerate(project_text()[30:60])]
    (tmp_path / "topics.tsv").write_text("".join(lines), encoding="utf-8")
    return str(tmp_path / "topics.tsv")


@pytest.fixture
def seen(monkeypatch):
    """The arguments of each call of recipes.train, which trains nothing."""
    calls = []

    def train(method, sentences, model, **keywords):
        calls.append({"method": method, "sentences": sentences, "model": model, **keywords})
        return {"changes": [], "verdict": [], "updates": 1, "worse": []}

    monkeypatch.setattr(recipes, "train", train)
    return calls


@pytest.fixture
def train(text, encoder_path):
    """Run ``train METHOD OPTIONS`` on the text and the encoder, and return the exit status."""
    return lambda method, *options: cli.main(["train", method, text, "--model", encoder_path, *options])


def rows_of(printed):
    """The rows of a printed table by their first cell."""
    cells = [re.split(" {2,}", line) for line in printed.strip().splitlines() if line]
    return {first: " ".join(others).split() for first, *others in cells}


class TestHelp:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        "command",
        [
            ["--help"],
            ["train", "--help"],
            ["compare", "-h"],
            ["methods"],
            ["train", "recomended"],
            ["train", "recommended", "text.txt", "--lerning_rate", "3"],
        ],
    )
    def test_loads_no_torch(self, command):
        script = (
            f"import sys\nfrom sbert_plugins import cli\ntry:\n    cli.main({command!r})\n"
            "except SystemExit:\n    pass\n"
            "assert not {'torch', 'transformers', 'datasets', 'numpy'} & {*sys.modules}\n"
        )
        subprocess.run([sys.executable, "-c", script], check=True)

    def test_the_names_of_all_arguments_are_known_without_torch(self):
        assert command_module._read_argument_names() == {
            field.name for field in fields(training.TrainingArguments)
        }

    def test_names_own_options_and_common_arguments(self, capsys):
        with pytest.raises(SystemExit):
            cli.main(["train", "--help"])
        printed = capsys.readouterr().out
        for option in ("--resume", "--protocol", "--keep", "--learning_rate", "--report_to", "sbert.net"):
            assert option in printed


class TestArguments:
    def test_code_and_revision_of_the_model(self, train, seen, monkeypatch):
        given = []
        monkeypatch.setattr(recipes, "build_encoder", lambda name, **keywords: given.append(keywords))
        assert train("arccse", "--trust_remote_code", "--revision", "v2") == 0
        monkeypatch.setattr(run_module, "SentenceTransformer", recipes.build_encoder)
        cli.main(["mteb", "run", "me/model", "--tasks", "STS12", "--trust_remote_code", "--revision", "v2"])
        assert [one["trust_remote_code"] and one["revision"] for one in given] == ["v2", "v2"]

    def test_every_training_argument_is_passed_on(self, train, seen):
        given = shlex.split(
            "--learning_rate 2e-5 --report_to tensorboard --save-total-limit 1 --bf16 false --seed 7 "
            """--push_to_hub true --hub_model_id me/model --lr_scheduler_kwargs '{"num_cycles": 2}'"""
        )
        assert train("arccse", *given) == 0
        expected = {
            "learning_rate": 2e-5,
            "save_total_limit": 1,
            "bf16": False,
            "seed": 7,
            "push_to_hub": True,
            "hub_model_id": "me/model",
        }
        assert seen[0].items() >= expected.items()
        assert seen[0]["report_to"] in ("tensorboard", ["tensorboard"])
        assert "num_train_epochs" not in seen[0]
        assert str(seen[0]["output"]) == "arccse-model"

    def test_own_options(self, train, pairs, seen):
        options = "--loss temperature=0.1 near_mask_ratio=0.1 --max-seq-length 9 --limit 20 --resume"
        options += f" --start_weight 0.5 --pairs {pairs} --share_examples --output out"
        assert train("arccse", *options.split()) == 0
        expected = {
            "loss_keywords": {"temperature": 0.1, "near_mask_ratio": 0.1},
            "max_seq_length": 9,
            "start_weight": 0.5,
            "resume": True,
            "share_examples": True,
            "dev": None,
        }
        assert seen[0].items() >= expected.items()
        assert str(seen[0]["output"]) == "out"
        assert len(seen[0]["sentences"]) == 20
        assert [evaluator.name for evaluator in seen[0]["evaluators"]] == ["graded"]

    @pytest.mark.parametrize(
        ("options", "keywords"),
        [(["--keep", "0.3"], {"keep": 0.3}), (["--keep", "0"], {"keep": 0.0}), ([], {})],
    )
    def test_keep(self, options, keywords, train, seen):
        assert train("recommended", *options) == 0
        assert seen[0]["loss_keywords"] == keywords

    @pytest.mark.parametrize(
        "words", ["arccse --learning_rate 1e-4 --model {} {}", "--learning_rate 1e-4 arccse --model {} {}"]
    )
    def test_method_and_text_may_follow_options(self, words, text, encoder_path, seen):
        assert cli.main(["train", *words.format(encoder_path, text).split()]) == 0
        assert (seen[0]["method"].name, seen[0]["learning_rate"]) == ("arccse", 1e-4)

    @pytest.mark.parametrize("option", ["crops", "spans"])
    def test_passages_of_documents_are_pairs(self, option, encoder_path, tmp_path, seen):
        documents = "\n\n".join("\n".join(project_text()[start : start + 6]) for start in range(0, 60, 6))
        (tmp_path / "documents.txt").write_text(documents, encoding="utf-8")
        command = ["train", "arccse", str(tmp_path / "documents.txt"), "--model", encoder_path]
        assert cli.main([*command, "--positives", option]) == 0
        assert len(seen[0]["sentences"].column_names) == 2

    @pytest.mark.parametrize(("column", "status"), [("text", 0), ("text,text", 0), ("text,b", 2)])
    def test_paraphrases(self, column, status, train, text, seen):
        assert train("denosent", "--paraphrases", text, "--column", column) == status
        assert [len(one["sentences"].column_names) for one in seen] == ([] if status else [2])

    def test_a_protocol_chooses_by_stsb_dev_and_translates_what_its_updates_read(
        self, train, seen, monkeypatch
    ):
        monkeypatch.setattr(run_module, "_stsb_dev", lambda options: SimpleNamespace(name="STS-B dev"))
        monkeypatch.setattr(run_module, "_evaluators", lambda *_: [])
        monkeypatch.setattr(data, "back_translate", lambda rows: rows)
        for more, count in ([], 30), (["--max_steps", "3"], 12), (["--num_train_epochs", "1"], 30):
            given = ["--protocol", "paper", "--per_device_train_batch_size", "4", *more]
            assert train("denosent", *given) == 0
            assert len(seen[-1]["sentences"]) == count
        assert seen[0]["protocol"] == "paper"
        assert seen[0]["dev"].name == "STS-B dev"

    def test_a_data_folder_adds_no_test_set(self, train, seen, data_dir, monkeypatch):
        monkeypatch.setenv("SBERT_PLUGINS_DATA", str(data_dir))
        assert train("arccse") == 0
        assert [evaluator.name for evaluator in seen[0]["evaluators"]] == ["graded pairs", "STS-B dev"]
        assert seen[0]["dev"] is None


class TestMistakes:
    def test_all_lines_of_an_error_are_printed(self, monkeypatch, capsys):
        def fail(options):
            raise ValueError("cannot be submitted:\n  STS12 was not run.")

        monkeypatch.setattr(run_module, "mteb_submit", fail)
        assert cli.main(["mteb", "submit", "me/mine", "--tasks", "STS12"]) == 2
        assert "STS12 was not run." in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("arguments", "hint"),
        [
            (["train", "recomended"], "Did you mean recommended"),
            (["train", "arccse", "--lerning-rate", "3"], "Did you mean learning_rate"),
            (
                ["train", "arccse", "t.txt", "--model", "m", "--loss", "temprature=3"],
                "Did you mean temperature",
            ),
            (["train", "paser", "t.txt", "--model", "m", "--columns", "topk=3"], "Did you mean top_k"),
            (["train", "torch.nn:Linear", "t.txt", "--model", "m"], "'out_features'. Give it with --loss"),
            (["train", "paser", "--protocol", "papr"], "Did you mean paper"),
            (["train", "arccse", "t.txt", "--learning_rate", "fast"], "fast"),
            (["compare", "simsce", "--output", "out", "--offline"], "Did you mean simcse"),
            (["compare", "simcse:temprature=1", "--output", "out", "--offline"], "Did you mean temperature"),
            (
                ["compare", "slt-fai:warmup_steps=1", "--output", "out", "--offline"],
                "Give loss.warmup_steps=",
            ),
            (["train", "arccse", "no-such-file.txt", "--model", "no-such-model"], "no-such"),
            (["train", "simcse", "--offline", "--pooling", "cls"], "leave it out"),
            (["compare", "simcse", "--offline", "--output", "out", "--seed", "7"], "--seeds"),
            (["train", "arccse", "t.txt", "--model", "m", "--limit", "0"], "--limit must be at least 1"),
            (["compare", "simcse", "--output", "out", "--seeds", "0"], "--seeds must be at least 1"),
            (["train", "arccse", "t.txt", "--epochs", "3"], "Did you mean num_train_epochs"),
            (["evaluate", "m", "--pairs", "no.tsv"], "--pairs no.tsv is not a file. It takes your graded"),
            (["train", "arccse", "t.txt", "--retrieval", __file__], "is not a folder. It takes your search"),
            (["evaluate", "runs/no/model", "--offline"], "There is no folder runs/no/model."),
        ],
    )
    def test_are_one_line(self, arguments, hint, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        assert cli.main(arguments) == 2
        line = capsys.readouterr().err.strip().splitlines()[-1]
        assert line.startswith("sbert-plugins: error: ")
        assert hint in line
        assert list(tmp_path.iterdir()) in ([], [tmp_path / "out"])

    def test_the_traceback_is_shown_if_asked(self):
        with pytest.raises(ValueError, match="recomended"):
            cli.main(["--traceback", "train", "recomended"])


class TestNoConnection:
    """One sentence within seconds, whatever the libraries would try."""

    @pytest.fixture
    def online(self, monkeypatch):
        monkeypatch.setenv("HF_HUB_OFFLINE", "")
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)

    def test_is_said_and_names_the_way_out(self, online, text, monkeypatch, capsys):
        monkeypatch.setattr("huggingface_hub.utils.get_session", _fail)
        began = time.monotonic()
        assert cli.main(["train", "recommended", text, "--model", "nobody/no-model", *QUICK]) == 2
        assert time.monotonic() - began < 10
        line = capsys.readouterr().err.strip().splitlines()[-1]
        assert "no connection" in line
        assert "--offline" in line

    def test_a_name_server_that_does_not_answer(self, online, monkeypatch):
        monkeypatch.setattr(command_module, "_SECONDS", 0.1)
        monkeypatch.setattr("huggingface_hub.utils.get_session", lambda: time.sleep(5))
        began = time.monotonic()
        assert not command_module._go_offline_without_connection()
        assert time.monotonic() - began < 2

    def test_an_error_of_the_hub_is_an_answer(self, online, monkeypatch):
        session = SimpleNamespace(head=lambda *_, **__: SimpleNamespace(status_code=503))
        monkeypatch.setattr("huggingface_hub.utils.get_session", lambda: session)
        assert command_module._go_offline_without_connection()

    def test_local_paths_ask_nobody(self, online, train, seen, monkeypatch):
        monkeypatch.setattr("huggingface_hub.utils.get_session", lambda: pytest.fail("asked the Hub"))
        assert train("arccse") == 0


def _fail():
    raise OSError("no route")


class TestDryRun:
    def test_a_recipe(self, text, capsys):
        options = (
            "--model nobody/no-model --dry_run --max_steps 7 --loss temperature=0.1 --save_total_limit 1"
        )
        assert cli.main(["train", "arccse", text, *options.split()]) == 0
        rows = rows_of(capsys.readouterr().out)
        assert rows["max_steps"] == ["7", "given"]
        assert rows["loss.temperature"] == ["0.1", "given"]
        assert rows["learning_rate"][0] == "3e-05"
        assert rows["max_seq_length"][0] == "none"
        assert rows["save_total_limit"][0] == "1"

    def test_a_protocol(self, text, capsys):
        command = ["train", "paser", "--protocol", "paper", "--dry-run", "--learning_rate", "1e-5"]
        assert cli.main([*command, "--model", "nobody/no-model", "--pooling", "mean"]) == 0
        rows = rows_of(capsys.readouterr().out)
        assert rows["encoder"] == ["nobody/no-model", "given"]
        assert rows["pooling"] == ["mean", "given"]
        assert cli.main(command) == 0
        rows = rows_of(capsys.readouterr().out)
        assert rows["encoder"][:3] == ["bert-base-uncased", "paper", "4.2"]
        assert rows["loss.decoder_layers"] == ["6", "paper", "4.2"]
        assert rows["learning_rate"] == ["1e-05", "given"]
        assert rows["loss.token_weights"][0] == "none"
        assert rows["columns.top_k"][0] == "5"
        assert rows["sentences"][0] == "29,510"

    def test_the_defaults_of_recommended_follow_the_start(self, train, capsys):
        assert train("recommended", "--dry_run") == 0
        assert rows_of(capsys.readouterr().out)["loss.keep"][0] == "0.1"
        assert train("recommended", "--dry_run", "--num_train_epochs", "1", "--keep", "0") == 0
        changed = rows_of(capsys.readouterr().out)
        assert "max_steps" not in changed
        assert changed["loss.keep"] == ["0", "given"]
        assert changed["pooling"] == ["cls", "start"]

    def test_offline(self, capsys):
        command = ["train", "recommended", "--offline", "--dry_run"]
        assert cli.main([*command, "--learning_rate", "1e-4"]) == 0
        rows = rows_of(capsys.readouterr().out)
        assert rows["encoder"] == ["sentence-transformers/all-MiniLM-L6-v2", "start"]
        assert rows["pooling"] == ["mean", "start"]
        assert rows["max_steps"] == ["60", "recipe"]
        assert rows["updates"][0] == "60"
        assert rows["learning_rate"] == ["0.0001", "given"]
        assert cli.main([*command, "--num_train_epochs", "2"]) == 0
        rows = rows_of(capsys.readouterr().out)
        assert "max_steps" not in rows
        assert rows["num_train_epochs"] == ["2", "given"]


def test_methods(capsys):
    assert cli.main(["methods"]) == 0
    printed = capsys.readouterr().out
    for recipe in recipes.RECIPES.values():
        assert recipe.about.summary in printed
        assert recipe.about.url in printed
    assert rows_of(printed)["arccse"][:2] == ["72.0", "72.9"]


class TestEvaluate:
    def test_a_plain_model_is_pooled_as_the_other(self, tiny_encoder, encoder_path, pairs, tmp_path, capsys):
        tiny_encoder()[0].save(str(tmp_path / "plain"))
        assert cli.main(["evaluate", str(tmp_path / "plain"), encoder_path, "--pairs", pairs]) == 0
        rows = rows_of(capsys.readouterr().out)
        assert rows["plain"] == rows["encoder"]
        assert rows["plain"][0] == "cls"

    def test_models_have_names(self, encoder_path, pairs, tmp_path, capsys):
        command = ["evaluate", encoder_path, "--pairs", pairs, "--report", str(tmp_path / "page")]
        assert cli.main([*command, "--names", "mine"]) == 0
        assert "mine" in rows_of(capsys.readouterr().out)
        page = (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
        assert str(tmp_path) not in page

    def test_candidates_and_an_analysis(self, encoder_path, text, tmp_path, capsys):
        rows = [
            f"{query}\t{one}\t{int(query == place)}" for query in range(3) for place, one in enumerate("abc")
        ]
        (tmp_path / "rerank.tsv").write_text("\n".join(rows), encoding="utf-8")
        command = ["evaluate", encoder_path, "--rerank", str(tmp_path / "rerank.tsv"), "--text", text]
        assert cli.main([*command, "--report", str(tmp_path / "page"), "--names", "mine"]) == 0
        assert "rerank: nDCG@10" in capsys.readouterr().out
        assert "mine" in (tmp_path / "page" / "analysis.html").read_text(encoding="utf-8")

    def test_known_items_of_documents(self, encoder_path, tmp_path, capsys):
        documents = "\n\n".join(" ".join(project_text()[start : start + 3]) for start in range(0, 75, 3))
        (tmp_path / "documents.txt").write_text(documents, encoding="utf-8")
        assert cli.main(["evaluate", encoder_path, "--documents", str(tmp_path / "documents.txt")]) == 0
        assert "known items: MRR@10" in capsys.readouterr().out

    def test_a_vector_is_read(self, train, text, tmp_path, capsys):
        options = ["--columns", "synonyms=none", "top_k=1", "--loss", "decoder_layers=1", "decoder_heads=4"]
        assert train("paser", "--output", str(tmp_path / "run"), *QUICK, *options) == 0
        assert cli.main(["evaluate", str(tmp_path / "run" / "model"), "--reconstruct", "--text", text]) == 0
        assert "hidden phrase" in capsys.readouterr().out


@pytest.mark.slow
class TestTrain:
    def test_a_training_and_its_evaluation(self, train, encoder_path, pairs, topics, tmp_path, capsys):
        output = tmp_path / "run"
        options = ["--output", str(output), "--pairs", pairs, *QUICK, "--learning_rate", "1e-2"]
        assert train("simcse", *options) == 0
        printed = capsys.readouterr().out
        results = json.loads((output / "results.json").read_text(encoding="utf-8"))
        (change,) = results["changes"]
        assert rows_of(printed)["graded: Spearman"] == [f"{change['before']:.2f}", f"{change['after']:.2f}"]
        assert results["verdict"][0] in printed
        assert str(output / "model") in printed
        assert SentenceTransformer(str(output / "model"), device="cpu").encode("a").shape == (32,)

        models = [encoder_path, str(output / "model")]
        assert cli.main(["evaluate", *models, "--pairs", pairs, "--topics", topics]) == 0
        printed = capsys.readouterr().out
        assert "1 of 2" in printed
        assert rows_of(printed)["encoder"][1] == f"{change['before']:.2f}"
        assert rows_of(printed)["run"][1] == f"{change['after']:.2f}"

    def test_a_worse_model_is_the_last_line(self, train, pairs, tmp_path, capsys, monkeypatch):
        changes = evaluation.judge_all
        monkeypatch.setattr(
            evaluation, "judge_all", lambda *given: [replace(one, result="worse") for one in changes(*given)]
        )
        assert train("simcse", "--output", str(tmp_path / "run"), "--pairs", pairs, *QUICK) == 0
        assert "worse than the start on graded." in capsys.readouterr().out.strip().splitlines()[-1]
        card = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
        assert "worse than the start" in card

    def test_the_same_command_always_works_with_resume(self, train, tmp_path, capsys, caplog):
        caplog.set_level(logging.INFO, "sbert_plugins")
        options = ["--output", str(tmp_path / "run"), *QUICK, "--resume"]
        with interrupted(1):
            assert train("simcse", *options) == 130
        assert "interrupted. To continue from checkpoint-1," in capsys.readouterr().err
        for _ in range(2):
            assert train("simcse", *options) == 0
            assert "2 updates" in capsys.readouterr().out
        assert all(line in caplog.text for line in ("Continuing from update 1 of 2.", "finished training"))
        assert train("simcse", *options, "--max_steps", "4") == 0
        assert "4 updates" in capsys.readouterr().out

    def test_triplets(self, encoder_path, tmp_path, capsys):
        triplets = [project_text()[start : start + 16] for start in (0, 16, 32)]
        Dataset.from_dict(dict(zip(("anchor", "positive", "negative"), triplets, strict=True))).to_json(
            tmp_path / "t.jsonl"
        )
        options = ["--output", str(tmp_path / "run"), "--loss", "decoder_layers=0", *QUICK]
        command = ["train", "paser-supervised", str(tmp_path / "t.jsonl"), "--model", encoder_path]
        assert cli.main([*command, *options]) == 0

    def test_the_first_command_of_a_new_user(self, tmp_path, capsys):
        # The whole model, the built-in text, the plain defaults; here with fewer updates.
        command = ["train", "recommended", "--offline", "--output", str(tmp_path / "demo")]
        assert cli.main([*command, "--max_steps", "2", "--eval_steps", "2"]) == 0
        results = json.loads((tmp_path / "demo" / "results.json").read_text(encoding="utf-8"))
        assert results["encoder"] == "sentence-transformers/all-MiniLM-L6-v2"
        assert results["loss_keywords"]["keep"] > 0
        assert results["sentences"] == 1281
        assert list(results["before"]) == ["graded pairs"]
        assert results["before"]["graded pairs"]["values"]["Spearman"] == pytest.approx(68.5, abs=0.3)


@pytest.mark.slow
@pytest.mark.parametrize("labels", ["own", "built-in"])
def test_a_report_of_own_labels_or_without_a_network(labels, encoder_path, pairs, tmp_path, capsys):
    given = ["--pairs", pairs] if labels == "own" else ["--offline"]
    assert cli.main(["evaluate", encoder_path, *given, "--report", str(tmp_path / "page")]) == 0
    name = "graded" if labels == "own" else "graded pairs"
    assert f"{name}:<wbr> Spearman" in (tmp_path / "page" / "index.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_compare(text, encoder_path, pairs, tmp_path, capsys):
    command = f"compare simcse arccse:temperature=0.2 --text {text} --model {encoder_path} --pairs {pairs} "
    command = [*command.split(), "--output", str(tmp_path / "out"), "--seeds", "2", *QUICK]
    assert cli.main(command) == 0
    printed = capsys.readouterr().out
    assert "30 pairs and 2 seeds" in printed
    assert "±" in rows_of(printed)["arccse:temperature=0.2"]
    assert printed.count("the start, Spearman") == 2
    assert re.search("(level with|better than) (simcse|arccse)", printed)  # the next best method
    assert (tmp_path / "out" / "index.html").exists()
    assert cli.main([*command, "--limit", "20"]) == 2
    assert "sentences_digest" in capsys.readouterr().err
