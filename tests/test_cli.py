import contextlib
import io
import json
import logging
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from encoders import project_text
from recipe_inputs import interrupted as interrupted_after
from safetensors import SafetensorError
from sentence_transformers import SentenceTransformer

from sbert_plugins import __version__, cli, evaluation, recipes
from sbert_plugins.cli.evaluate import _template, _trainings, short_names
from sbert_plugins.cli.printing import LoadReports
from sbert_plugins.recipes.keywords import read_value

QUICK = ["--max-steps", "2", "--batch-size", "8"]


def write_text(folder):
    path = folder / "text.txt"
    path.write_text("\n\n".join(project_text()[:30]), encoding="utf-8")
    return path


def write_plain(tiny_encoder, folder):
    """A transformer without a pooling of its own."""
    tiny_encoder()[0].model.save_pretrained(folder / "plain")
    tiny_encoder().tokenizer.save_pretrained(folder / "plain")
    return str(folder / "plain")


def write_data_dir(folder):
    (folder / "data" / "sts").mkdir(parents=True)
    text = project_text()
    names = [f"sts{year}" for year in range(12, 17)] + ["stsb_dev", "stsb_test", "sick_test"]
    for name in names:
        rows = [f"subset\t{1 + i % 4}\t{text[i]}\t{text[50 + i]}\n" for i in range(20)]
        (folder / "data" / "sts" / f"{name}.tsv").write_text("".join(rows), encoding="utf-8")
    return folder / "data"


@pytest.fixture
def text(tmp_path):
    return write_text(tmp_path)


@pytest.fixture
def encoder(tiny_encoder, tmp_path):
    tiny_encoder().save_pretrained(str(tmp_path / "encoder"))
    return str(tmp_path / "encoder")


def table(printed):
    """The rows of a printed table by their first cell."""
    return {line.split()[0]: line.split()[1:] for line in printed.strip().splitlines() if line}


@pytest.fixture(scope="module", autouse=True)
def no_data():
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SBERT_PLUGINS_DATA", raising=False)
        yield


@pytest.mark.slow
def test_train_then_evaluate(text, encoder, tmp_path, capsys, caplog):
    output = tmp_path / "run"
    assert cli.main(["train", "arccse", str(text), "--model", encoder, "--output", str(output), *QUICK]) == 0
    printed = capsys.readouterr().out
    assert "Training ArcCSE on 30 sentences, seed 42." in printed
    assert printed.startswith(f"{encoder} is a sentence encoder already.")
    assert "skipped 29 blank lines" in caplog.text
    assert "before  after" in printed
    assert "graded pairs" in printed
    assert "360 English ones that ship with this package" in printed
    assert f"Model: {output / 'model'}" in printed
    assert "arccon" in printed

    assert cli.main(["evaluate", str(output / "model"), encoder, "--offline"]) == 0
    printed = capsys.readouterr().out.strip().splitlines()
    assert printed[0].split() == ["model", "pooling", "graded", "pairs"]
    assert len(printed) == 3


def test_one_of_several_processes_prints(text, encoder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sentence_transformers.util.get_rank", lambda: 1)
    assert cli.main(["train", "arccse", str(text), "--model", encoder, "--output", str(tmp_path / "run"), *QUICK]) == 0
    assert "before  after" not in capsys.readouterr().out


def write_pairs(folder):
    rows = [f"{i % 6}\t{line}\t{project_text()[150 + i]}\n" for i, line in enumerate(project_text()[30:60])]
    (folder / "graded.tsv").write_text("".join(rows), encoding="utf-8")
    return str(folder / "graded.tsv")


def write_topics(folder):
    rows = [f"{'even' if i % 2 else 'odd'}\t{line}\n" for i, line in enumerate(project_text()[30:60])]
    (folder / "topics.tsv").write_text("".join(rows), encoding="utf-8")
    return str(folder / "topics.tsv")


@pytest.mark.slow
def test_ones_own_labels_score_a_training_and_its_model(text, encoder, tmp_path, capsys):
    pairs, output = write_pairs(tmp_path), tmp_path / "run"
    arguments = ["train", "arccse", str(text), "--model", encoder, "--output", str(output), "--pairs", pairs, *QUICK]
    assert cli.main([*arguments, "--learning-rate", "1e-2"]) == 0
    printed = capsys.readouterr().out
    assert "360 English ones" not in printed
    results = json.loads((output / "results.json").read_text(encoding="utf-8"))
    assert list(results["before"]) == ["graded.tsv"]
    trained, score = SentenceTransformer(str(output / "model")), evaluation.own_pairs(pairs)
    assert score(trained)[score.primary_metric] == pytest.approx(results["after"]["graded.tsv"], abs=1e-4)
    before, after = (f"{results[when]['graded.tsv']:.2f}" for when in ("before", "after"))
    assert before != after
    assert table(printed)["graded.tsv"] == [before, after]
    assert after in (output / "model" / "README.md").read_text(encoding="utf-8")

    models = [encoder, str(output / "model")]
    assert cli.main(["evaluate", *models, "--pairs", pairs, "--topics", write_topics(tmp_path)]) == 0
    heading, *lines = capsys.readouterr().out.strip().splitlines()
    titles = ["graded: Spearman", "topics: v-measure", "topics: accuracy", "topics: purity@10"]
    assert re.split("  +", heading)[2:] == titles
    assert [line.split()[2] for line in lines] == [before, after]


@pytest.mark.parametrize("command", [["train", "arccse", "t.txt", "--output", "run"], ["evaluate", "m"]], ids=lambda c: c[0])
def test_labels_that_are_not_there(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main([*command, "--pairs", "graded.tsv"]) == 2
    assert "graded.tsv" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_sign_that_the_terminal_has_not_ends_nothing(monkeypatch):
    """A comparison prints ± behind hours of training."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    assert cli.main(["methods"]) == 0
    stream.write("73.2 ± 0.1\n")
    stream.flush()
    assert stream.buffer.getvalue().endswith(b"73.2 \\xb1 0.1\n")


@pytest.mark.slow
class TestOneNumber:
    """What is scored once is the same wherever it is read."""

    @pytest.fixture(scope="class")
    @classmethod
    def folder(cls, tmp_path_factory):
        return tmp_path_factory.mktemp("one_number")

    @pytest.fixture(scope="class")
    @classmethod
    def plain(cls, tiny_encoder, folder):
        return write_plain(tiny_encoder, folder)

    @pytest.fixture(scope="class")
    @classmethod
    def data_dir_with_dev(cls, folder):
        data_dir = write_data_dir(folder)
        rows = [f"x\t{i % 6}\t{line}\t{project_text()[150 + i]}\n" for i, line in enumerate(project_text()[30:110])]
        for name in ("stsb_dev", "stsb_test"):  # the same pairs under both names: two ways to one number
            (data_dir / "sts" / f"{name}.tsv").write_text("".join(rows), encoding="utf-8")
        return data_dir

    @pytest.fixture(scope="class")
    @classmethod
    def run(cls, folder, plain, data_dir_with_dev):
        output, printed = folder / "run", io.StringIO()
        changes = ["--max-seq-length", "9", "--learning-rate", "1e-2", "--eval-steps", "1", "--max-steps", "3"]
        text = str(write_text(folder))
        arguments = ["train", "arccse", text, "--model", plain, "--output", str(output), "--batch-size", "8", *changes]
        with contextlib.redirect_stdout(printed):
            assert cli.main([*arguments, "--data-dir", str(data_dir_with_dev)]) == 0
        return output, printed.getvalue()

    def test_printed_in_the_results_on_the_card_and_evaluated(self, run, plain, data_dir_with_dev, tmp_path, capsys):
        output, printed = run
        assert "is a sentence encoder already" not in printed
        results = json.loads((output / "results.json").read_text(encoding="utf-8"))
        names = {"graded pairs": None, "STS-B dev": None}
        for name in names:
            (row,) = [line for line in printed.splitlines() if line.startswith(f"{name}  ")]
            names[name] = row.split()[-2:]
            assert names[name] == [f"{results[when][name]:.2f}" for when in ("before", "after")]
            assert names[name][0] != names[name][1]
        assert "Spearman x 100, cls pooling" in printed

        card = (output / "model" / "README.md").read_text(encoding="utf-8")
        measured = yaml.safe_load(card.split("---")[1])["model-index"][0]["results"]
        on_card = {entry["dataset"]["type"]: entry["metrics"] for entry in measured}
        assert set(on_card) == set(names)
        for name, (before, after) in names.items():
            metrics = {metric["type"]: metric["value"] for metric in on_card[name]}
            assert metrics == {"spearman": float(after), "before_training": float(before)}
            assert f"**{float(after)}**" in card

        models = [plain, str(output / "model")]
        assert cli.main(["evaluate", *models, "--offline"]) == 0
        rows = table(capsys.readouterr().out)
        assert [rows[model] for model in models] == [["cls", score] for score in names["graded pairs"]]

        page = tmp_path / "page"
        assert cli.main(["evaluate", *models, "--data-dir", str(data_dir_with_dev), "--report", str(page)]) == 0
        rows = table(capsys.readouterr().out)
        place = rows["model"].index("STS-B")
        assert [rows[model][place] for model in models] == names["STS-B dev"]
        shown = (page / "index.html").read_text(encoding="utf-8")
        (row,) = re.findall("<th>STS-B</th>.*", shown)
        assert re.findall(r">([\d.-]+)</td>", row) == names["STS-B dev"]
        updates = "3" if results["saved_update"] == 3 else f"3 (saved: {results['saved_update']})"
        assert f"\nUpdates: {updates} in " in printed
        assert re.search(rf"\bupdates`?: {re.escape(updates)}$", card, re.MULTILINE)
        for told in (
            "text.txt, 30 sentences",
            f"{updates}, each of 8 x 2 rows",
            "ArcCSE",
            "<td>plain</td>",
            "<td>cls</td><td>cls</td>",
        ):
            assert told in shown, told

    def test_the_saved_model_has_the_encoders_own_length(self, run):
        output, printed = run
        saved = SentenceTransformer(str(output / "model"), device="cpu")
        assert saved.max_seq_length == 128
        assert "up to 9 tokens a sentence in training and 128 in the saved model" in printed
        card = (output / "model" / "README.md").read_text(encoding="utf-8")
        assert "`max_seq_length`: 9 in training, 128 in this model" in card

    def test_pooling_is_chosen_where_it_is_not_clear(self, run, plain, tmp_path, capsys):
        output, _ = run
        assert cli.main(["evaluate", plain, "--offline"]) == 0
        assert table(capsys.readouterr().out)[plain][0] == "mean"
        assert cli.main(["evaluate", plain, "--offline", "--pooling", "cls"]) == 0
        assert table(capsys.readouterr().out)[plain][0] == "cls"
        other = tmp_path / "other"
        shutil.copytree(output / "model", other / "model")
        notes = json.loads((output / "results.json").read_text(encoding="utf-8"))
        (other / "results.json").write_text(json.dumps(notes | {"pooling": "mean"}), encoding="utf-8")
        models = [plain, str(output / "model"), str(other / "model")]
        assert cli.main(["evaluate", *models, "--offline"]) == 2
        assert "pool differently (cls, mean): say with --pooling" in capsys.readouterr().err


@pytest.mark.slow
class TestCard:
    def test_says_how_and_keeps_the_sentences(self, text, encoder, tmp_path):
        cards = {}
        for name, share in (("private", []), ("shared", ["--share-examples"])):
            arguments = ["train", "arccse", str(text), "--model", encoder, "--output", str(tmp_path / name), *QUICK, *share]
            assert cli.main([*arguments, "--sam-rho", "0.02"]) == 0
            cards[name] = (tmp_path / name / "model" / "README.md").read_text(encoding="utf-8")
        sentences = project_text()[:30]
        assert not any(sentence in cards["private"] for sentence in sentences)
        assert not any(
            sentence in path.read_text() for path in tmp_path.glob("private/**/README.md") for sentence in sentences
        )
        assert any(sentence in cards["shared"] for sentence in sentences)
        for told in ("`sam_rho`: 0.02", "`group_by_length`: True", "`pooling`: cls", "`encoder`: encoder", "#### text.txt"):
            assert told in cards["private"], told

    def test_base_model_and_licence_are_those_of_the_encoders_card(self, text, encoder, tmp_path):
        with open(f"{encoder}/README.md", "w", encoding="utf-8") as card:
            card.write("---\nbase_model: someone/bert\nlicense: mit\n---\n# An encoder\n")
        arguments = ["train", "arccse", str(text), "--model", encoder, "--output", str(tmp_path / "run"), *QUICK]
        assert cli.main(arguments) == 0
        card = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
        told = yaml.safe_load(card.split("---")[1])
        assert (told["base_model"], told["license"]) == ("someone/bert", "mit")


@pytest.mark.slow
def test_offline_first_command(tmp_path, capsys):
    """README's first command, two steps of it: encoder and text come from installed packages."""
    readme = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
    command = re.search(r"^sbert-plugins (train .*--offline.*)$", readme, re.MULTILINE)[1]
    arguments = command.replace("runs/demo", str(tmp_path / "demo")).split()
    assert cli.main([*arguments, "--max-steps", "2", "--limit", "32", "--batch-size", "16"]) == 0
    printed = capsys.readouterr().out
    assert "Training ConSERT with a projection head, and words (words=3) on 32 sentences" in printed
    assert "2 updates; loss with words=3." in printed
    (row,) = [line for line in printed.splitlines() if line.startswith("graded pairs")]
    before, after = (float(value) for value in row.split()[2:])
    assert before == pytest.approx(61.37, abs=0.1)
    assert after != before
    words, command = printed.splitlines()[-1].split("sbert-plugins ")
    assert words.startswith("Next, your own text")
    assert cli.build_parser().parse_args(command.split()).text == "sentences.txt"


def test_text_may_stand_behind_flags(text, encoder, capsys):
    assert cli.main(["train", "recommended", "--model", encoder, str(text), "--dry-run"]) == 0
    assert str(text) in capsys.readouterr().out
    for rest in ([str(text), "another.txt"], ["--no-such-flag"]):
        with pytest.raises(SystemExit):
            cli.main(["train", "recommended", "--model", encoder, *rest, "--dry-run"])
        assert f"unrecognized arguments: {' '.join(rest)}" in capsys.readouterr().err


@pytest.mark.parametrize("protocol", [[], ["--protocol", "paper"]], ids=str)
def test_a_dry_run_shows_the_pooling_that_the_encoder_keeps(text, encoder, tiny_encoder, tmp_path, capsys, protocol):
    def rows(model, *flags):
        assert cli.main(["train", "arccse", str(text), "--model", model, *protocol, *flags, "--dry-run"]) == 0
        found = [line.split("  ") for line in capsys.readouterr().out.splitlines() if line.startswith("pooling")]
        return {name: [cell.strip() for cell in cells if cell.strip()] for name, *cells in found}

    own = rows(encoder)
    assert len(own) == 1 + bool(protocol)
    for value, source in own.values():
        assert value == "its own"
        assert source.startswith("--model; else cls, paper 4.1")
    assert [value for value, _ in rows(write_plain(tiny_encoder, tmp_path)).values()] == ["cls"] * len(own)
    assert [value for value, _ in rows("organization/name").values()] == ["cls, or its own"] * len(own)
    asked = rows(encoder, "--pooling", "mean")
    assert [value for value, _ in asked.values()] == ["mean"] * len(own)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["arccse", "--epochs", "1", "--max-steps", "6"], "--epochs and --max-steps are two lengths"),
        (
            ["slt-fai", "--backbone", "simcse", "--loss", "backbone=consert"],
            "--backbone simcse and --loss backbone=consert differ",
        ),
    ],
)
def test_flags_that_contradict(text, encoder, capsys, flags, message):
    assert cli.main(["train", flags[0], str(text), "--model", encoder, *flags[1:], "--dry-run"]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["TEXT", "--limit", "0"], "--limit must be at least 1, got 0"),
        (["TEXT", "--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["TEXT", "--seed", "-1"], "seed must be a whole number in [0, 4294967295], got -1"),
        (["TEXT", "--patience", "2"], "patience counts evaluations by STS-B dev, and there is none"),
        (["no_such.txt"], "TEXT no_such.txt does not exist"),
        (["TEXT", "--model", "./no_such"], "--model ./no_such does not exist"),
        (["TEXT", "--report-to", "nobody"], "names of trackers that transformers knows"),
        (["TEXT", "--push-to-hub", "name"], "must be organization/name or user/name, got 'name'"),
        (["TEXT", "--output", "."], "output must be a new or an empty directory"),
    ],
    ids=str,
)
def test_a_dry_run_refuses_what_the_training_does(text, encoder, capsys, monkeypatch, flags, message):
    monkeypatch.delenv("SBERT_PLUGINS_DATA", raising=False)
    flags = [str(text) if flag == "TEXT" else flag for flag in flags]
    assert cli.main(["train", "recommended", "--model", encoder, *flags, "--dry-run"]) == 2
    assert message in capsys.readouterr().err


def test_a_dry_run_shows_every_flag(text, encoder, capsys):
    flags = ["--positives", "crops", "--crops-by", "spans", "--share-examples", "--limit", "100", "--report-to", "tensorboard"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipes, "check_report_to", lambda names: names)
        assert cli.main(["train", "arccse", str(text), "--model", encoder, *flags, "--dry-run"]) == 0
    rows = [re.split(r"  +", line.strip()) for line in capsys.readouterr().out.splitlines()]
    assert ["positives", "crops", "--positives"] in rows
    assert ["crops by", "spans", "--crops-by"] in rows
    assert ["card shows sentences", "true", "--share-examples"] in rows
    assert ["sentences", "up to 100", "--limit"] in rows
    assert ["report to", "tensorboard", "--report-to"] in rows


@pytest.mark.parametrize(
    ("method", "row", "changed"),
    [("denosent", "means [MASK]", ["--pooling", "mean"]), ("pt-bert", "\nnegatives ", ["--loss", "queue_size=64"])],
)
def test_a_protocol_has_no_row_of_what_a_flag_took_away(method, row, changed, text, encoder, capsys):
    for flags, is_shown in (([], True), (changed, False)):
        given = ["train", method, str(text), "--model", encoder, "--protocol", "paper", *flags, "--dry-run"]
        assert cli.main(given) == 0
        assert (row in capsys.readouterr().out) == is_shown


def test_a_plain_encoder_is_scored_with_the_template_of_the_trainings():
    official = {"method": "denosent", "protocol": "official"}
    template = recipes.protocol_of("denosent", "official")["template"]
    assert _template({"a": official, "b": {"method": "simcse", "protocol": None}, "c": {"method": "simcse"}}) == {
        "template": template
    }
    other = {"method": "denosent", "protocol": "paper"}
    assert recipes.protocol_of("denosent", "paper")["template"] != template
    assert _template({"a": official, "b": other}) == {}  # of two there is none that is right
    assert _template({}) == {}


def test_data_dir_adds_sts_b_dev(text, encoder, data_dir_with_dev, tmp_path, capsys):
    arguments = ["train", "arccse", str(text), "--model", encoder, "--output", str(tmp_path / "run"), *QUICK]
    assert cli.main([*arguments, "--eval-steps", "1", "--data-dir", str(data_dir_with_dev)]) == 0
    printed = capsys.readouterr().out
    assert "STS-B dev" in printed
    assert re.search(r"^update 1/2  STS-B dev -?\d+\.\d\d$", printed, re.MULTILINE)


def test_paser_from_raw_text_to_its_reconstructions(text, encoder, tmp_path, capsys):
    output = tmp_path / "run"
    assert cli.main(["train", "paser", str(text), "--model", encoder, "--output", str(output), *QUICK]) == 0
    printed = capsys.readouterr().out
    assert "Training PaSeR on 30 sentences" in printed
    assert "generative" in printed
    assert cli.main(["evaluate", str(output / "model"), "--reconstruct", str(text), "--limit", "4"]) == 0
    lines = capsys.readouterr().out.strip().splitlines()
    assert lines[0].split() == ["model", "masked", "hidden", "written"]
    assert len(lines) == 5
    assert all(line.startswith("run  ") and "<mask>" in line for line in lines[1:])
    assert cli.main(["evaluate", encoder, "--reconstruct", str(text)]) == 2
    assert "must be the output of a training" in capsys.readouterr().err


def test_a_training_that_writes_no_phrases(text, encoder, tmp_path, capsys):
    """Of a sum of losses, too, which PaSeR's is."""
    for method in ("recommended", "arccse"):
        output = tmp_path / method
        assert cli.main(["train", method, str(text), "--model", encoder, "--output", str(output), *QUICK]) == 0
        assert cli.main(["evaluate", str(output / "model"), "--reconstruct", str(text)]) == 2
        assert f"must be a training of paser or paser-supervised, got one of {method}." in capsys.readouterr().err


def test_pt_bert_from_raw_text(text, encoder, tmp_path, capsys):
    output = tmp_path / "run"
    assert cli.main(["train", "pt-bert", str(text), "--model", encoder, "--output", str(output), *QUICK]) == 0
    printed = capsys.readouterr().out
    assert "Training PT-BERT on 30 sentences" in printed
    assert "contrastive" in printed
    assert "queue_filled" in printed
    assert (output / "model" / "modules.json").exists()


def test_supervised_paser_from_triplets(encoder, tmp_path, capsys):
    rows = project_text()[:30]
    path = tmp_path / "triplets.tsv"
    path.write_text(
        "".join(f"mnli\t{a}\t{b}\t{c}\n" for a, b, c in zip(rows, rows[1:], rows[2:], strict=False)), encoding="utf-8"
    )
    arguments = ["train", "paser-supervised", str(path), "--model", encoder, "--output", str(tmp_path / "run"), *QUICK]
    assert cli.main(arguments) == 0
    assert "paser/generative" in capsys.readouterr().out
    assert cli.main(["train", "paser-supervised", "--offline", "--output", str(tmp_path / "other")]) == 2
    assert "reads triplets, and none ship with the package" in capsys.readouterr().err
    assert cli.main(["train", "paser-supervised", str(path), "--column", "x", "--output", str(tmp_path / "other")]) == 2
    assert "--column names a column of sentences, got 'x'" in capsys.readouterr().err


def test_the_offline_encoder_keeps_its_pooling(text, tmp_path, capsys):
    arguments = ["train", "simcse", str(text), "--offline", "--output", str(tmp_path / "run")]
    assert cli.main([*arguments, "--pooling", "cls"]) == 2
    assert "--pooling cls is for a plain transformer, and the offline encoder is a sentence" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["compare", "t.txt", "--output", "o", "--seed", "7"], ["evaluate", "m", "--pool", "cls"]], ids=lambda a: a[0]
)
def test_no_flag_is_taken_for_the_beginning_of_another(arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(arguments)
    assert f"unrecognized arguments: {' '.join(arguments[-2:])}" in capsys.readouterr().err


def test_slt_fai_takes_a_backbone(text, encoder, tmp_path, capsys):
    arguments = ["--model", encoder, "--output", str(tmp_path / "run"), *QUICK]
    assert cli.main(["train", "slt-fai", str(text), "--backbone", "consert", *arguments]) == 0
    printed = capsys.readouterr().out
    assert "base/nt_xent" in printed
    assert "filtering" in printed
    for method, backbone, message in (("slt-fai", "bert", "backbone must be one of"), ("arccse", "simcse", "is for slt-fai")):
        assert cli.main(["train", method, str(text), "--backbone", backbone, "--output", str(tmp_path / "other")]) == 2
        assert message in capsys.readouterr().err


def test_keywords_of_the_loss(text, encoder, tmp_path, capsys):
    arguments = ["train", "arccse", str(text), "--model", encoder]
    keywords = ["--loss", "margin_degrees=5", "projection_head=false"]
    assert cli.main([*arguments, *keywords, "--output", str(tmp_path / "run"), *QUICK]) == 0
    results = json.loads((tmp_path / "run" / "results.json").read_text(encoding="utf-8"))
    assert results["loss_keywords"] == {"margin_degrees": 5, "projection_head": False}
    assert results["loss"]["margin_degrees"] == 5
    capsys.readouterr()
    for given, message in (
        ("margin_degrees", "--loss takes KEY=VALUE, got 'margin_degrees'"),
        ("margins=5", "keywords of arccse's loss must be among margin_degrees, .*; got margins"),
        ("model=1", "keywords of arccse's loss must be among .*; got model"),
        ("projection_head=maybe", "projection_head takes true or false, got 'maybe'"),
        ("margin_degrees=nan", "margin_degrees takes a finite number, got 'nan'"),
        ("margin_degrees=500", "margin_degrees must be"),
    ):
        assert cli.main([*arguments, "--loss", given, "--output", str(tmp_path / "other"), *QUICK]) == 2
        assert re.search(message, capsys.readouterr().err)
        assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(("pair", "value"), [("signed=False", False), ("share=true", True), ("name=a b", "a b"), ("n=5", 5)])
def test_keywords_without_a_signature(pair, value):
    assert read_value(pair.partition("=")[2]) == value


def test_a_keyword_that_says_no(text, encoder, tmp_path):
    """As Python writes it, which once was a string, and true."""
    arguments = ["train", "paser", str(text), "--model", encoder, "--output", str(tmp_path / "run"), *QUICK]
    assert cli.main([*arguments, "--loss", "signed=False", "--loss", "decoder_layers=1", "decoder_heads=4"]) == 0
    results = json.loads((tmp_path / "run" / "results.json").read_text(encoding="utf-8"))
    assert results["loss_keywords"] == {"signed": False, "decoder_layers": 1, "decoder_heads": 4}
    assert results["loss"]["signed"] is False


def test_denosent_with_paraphrases(text, encoder, tmp_path, capsys):
    rows = [line for line in text.read_text(encoding="utf-8").splitlines() if line]
    (tmp_path / "a.txt").write_text("\n".join(rows), encoding="utf-8")
    (tmp_path / "b.txt").write_text("\n".join(reversed(rows)), encoding="utf-8")
    output = tmp_path / "run"
    arguments = [str(tmp_path / "a.txt"), "--paraphrases", str(tmp_path / "b.txt"), "--model", encoder]
    assert cli.main(["train", "denosent", *arguments, "--pooling", "mask", "--output", str(output), *QUICK]) == 0
    printed = capsys.readouterr().out
    assert "Training DenoSent on 30 pairs" in printed
    assert "denoising" in printed
    assert "- `columns`: positives paraphrases" in (output / "model" / "README.md").read_text(encoding="utf-8")
    assert SentenceTransformer(str(output / "model"), device="cpu").preprocess(["a"])["input_ids"].shape[1] == 7
    assert cli.main(["train", "arccse", *arguments, "--output", str(tmp_path / "other")]) == 2
    assert "--paraphrases is for denosent, got it with arccse, which reads anchor [, positive]." in capsys.readouterr().err
    (tmp_path / "b.txt").write_text("one\n", encoding="utf-8")
    assert cli.main(["train", "denosent", *arguments, "--output", str(tmp_path / "other")]) == 2
    assert "has 1. A sentence and its paraphrase" in capsys.readouterr().err


@pytest.fixture
def documents(tmp_path):
    text = project_text()
    path = tmp_path / "documents.txt"
    path.write_text("\n\n".join("\n".join(text[i : i + 4]) for i in range(0, 80, 4)), encoding="utf-8")
    return path


@pytest.mark.slow
class TestCrops:
    @pytest.mark.parametrize(
        ("method", "by", "term"), [("arccse", "sentences", "arccon"), ("slt-fai", "spans", "base/simcse")]
    )
    def test_from_documents(self, documents, encoder, tmp_path, capsys, method, by, term):
        output = tmp_path / "run"
        arguments = ["train", method, str(documents), "--positives", "crops", "--crops-by", by, "--seed", "3"]
        assert cli.main([*arguments, "--model", encoder, "--output", str(output), *QUICK]) == 0
        printed = capsys.readouterr().out
        assert "on 20 pairs, seed 3" in printed
        assert term in printed
        made = {"positives": "crops", "by": by, "seed": 3}
        for name in ("run.json", "results.json"):
            assert json.loads((output / name).read_text(encoding="utf-8"))["columns"] == made

    def test_a_resume_with_other_positives_is_refused(self, documents, encoder, tmp_path, capsys):
        output = tmp_path / "run"
        arguments = [
            "train",
            "arccse",
            str(documents),
            "--model",
            encoder,
            "--output",
            str(output),
            "--eval-steps",
            "1",
            *QUICK,
        ]
        assert cli.main([*arguments, "--positives", "crops"]) == 0
        (output / "results.json").unlink()  # as if it had been interrupted behind the last checkpoint
        for change in (["--positives", "dropout"], [], ["--positives", "crops", "--crops-by", "spans"]):
            assert cli.main([*arguments, *change, "--resume"]) == 2
            assert "columns {'positives': 'crops', 'by': 'sentences', 'seed': 42} (now {" in capsys.readouterr().err
        assert cli.main([*arguments, "--positives", "crops", "--resume"]) == 0

    def test_dropout_is_the_default_and_on_record(self, text, encoder, tmp_path):
        output = tmp_path / "run"
        assert cli.main(["train", "pt-bert", str(text), "--model", encoder, "--output", str(output), *QUICK]) == 0
        assert json.loads((output / "run.json").read_text(encoding="utf-8"))["columns"] == {"positives": "dropout"}

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (
                ["paser", "TEXT", "--positives", "crops"],
                "slt-fai, consert, simcse, got it with paser, which",
            ),
            (
                ["paser-supervised", "TEXT", "--positives", "crops"],
                "got it with paser-supervised, which reads anchor, positive",
            ),
            (["denosent", "TEXT", "--positives", "crops", "--paraphrases", "TEXT"], "--paraphrases are the positives"),
            (["arccse", "TEXT", "--crops-by", "spans"], "add --positives crops"),
            (["arccse", "--offline", "--positives", "crops"], "the default text holds sentences: name documents as TEXT"),
            (["arccse", "TEXT", "--positives", "crops"], "None of the 30 texts has two sentences of at least 5 words"),
        ],
        ids=str,
    )
    def test_mistakes(self, text, encoder, tmp_path, capsys, arguments, message):
        output = tmp_path / "run"
        arguments = [str(text) if argument == "TEXT" else argument for argument in arguments]
        assert cli.main(["train", *arguments, "--model", encoder, "--output", str(output)]) == 2
        assert message in capsys.readouterr().err
        assert not output.exists()


@pytest.fixture
def data_dir_with_dev(tmp_path):
    return write_data_dir(tmp_path)


def test_evaluate_seven_tasks(encoder, data_dir_with_dev, capsys):
    assert cli.main(["evaluate", encoder, "--data-dir", str(data_dir_with_dev)]) == 0
    header, row = capsys.readouterr().out.strip().splitlines()
    assert header.split() == ["model", "pooling", *["STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R", "average"]]
    assert len(row.split()) == 10


@pytest.mark.slow
def test_evaluate_loses_no_model_with_another(encoder, tiny_encoder, data_dir_with_dev, tmp_path, capsys):
    model = tiny_encoder()
    model[0].model.embeddings.word_embeddings.weight.data.fill_(float("nan"))
    model.save_pretrained(str(tmp_path / "diverged"))
    given = ["--data-dir", str(data_dir_with_dev)]
    assert cli.main(["evaluate", encoder, str(tmp_path / "none" / "model"), *given]) == 2
    shown = capsys.readouterr()
    assert "model does not exist" in shown.err
    assert not shown.out
    assert cli.main(["evaluate", encoder, str(tmp_path / "diverged"), *given]) == 2
    shown = capsys.readouterr()
    assert f"error: {tmp_path / 'diverged'}: embeddings must be finite" in shown.err
    assert shown.out.splitlines()[1].split()[0] == encoder


@pytest.mark.slow
def test_evaluate_with_a_report(text, encoder, data_dir_with_dev, tmp_path, capsys, caplog):
    lines = [f"subset\t{i % 6}\t{line}\t{project_text()[40 + i]}\n" for i, line in enumerate(project_text()[:24])]
    (data_dir_with_dev / "sts" / "stsb_test.tsv").write_text("".join(lines), encoding="utf-8")
    run, page = tmp_path / "mine", tmp_path / "page"
    arguments = ["train", "arccse", str(text), "--model", encoder, "--output", str(run), "--eval-steps", "1", *QUICK]
    assert cli.main([*arguments, "--data-dir", str(data_dir_with_dev)]) == 0
    capsys.readouterr()
    models = [encoder, str(run / "model")]
    assert cli.main(["evaluate", *models, "--data-dir", str(data_dir_with_dev), "--report", str(page)]) == 0
    header, *rows, last = capsys.readouterr().out.strip().splitlines()
    assert last == f"Report: {page / 'index.html'}"
    assert header.split()[-3:] == ["average", "alignment", "uniformity"]
    assert [row.split()[0] for row in rows] == models
    written = (page / "index.html").read_text(encoding="utf-8")
    for title in ("Semantic textual similarity", "Alignment and uniformity", "Learning curves of mine"):
        assert f"<h2>{title}</h2>" in written
    assert f">{rows[0].split()[-2]}</td>" in written
    assert "without its training" not in caplog.text
    SentenceTransformer(encoder).save_pretrained(str(run / "model"))
    assert cli.main(["evaluate", *models, "--data-dir", str(data_dir_with_dev), "--report", str(page)]) == 0
    assert f"{run / 'model'} is shown without its training: other weights have been saved there" in caplog.text
    assert "Learning curves" not in (page / "index.html").read_text(encoding="utf-8")


def test_a_pooling_that_is_not_asked_for(encoder, tiny_encoder, tmp_path, capsys):
    plain = write_plain(tiny_encoder, tmp_path)
    assert cli.main(["evaluate", encoder, "--offline", "--pooling", "mean"]) == 2
    assert f"--pooling mean is for a plain transformer, and {encoder} has pooling already" in capsys.readouterr().err
    assert cli.main(["evaluate", encoder, plain, "--offline", "--pooling", "mean"]) == 0
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()[1:]] == ["cls", "mean"]


def test_a_report_needs_tasks(encoder, tmp_path, capsys):
    assert cli.main(["evaluate", encoder, "--offline", "--report", str(tmp_path / "page")]) == 2
    assert "--report would not be read: --offline without a data directory scores the package's" in capsys.readouterr().err


_MEMORY = torch.OutOfMemoryError("CUDA out of memory. Tried 2 GiB.\nStatistics")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (_MEMORY, "CUDA out of memory. Tried 2 GiB. Give a lower --batch-size."),
        (SafetensorError("I/O error"), "weights cannot be written or read: I/O error. Is the disk full?"),
        (RuntimeError("x"), None),
    ],
)
def test_what_a_device_or_a_disk_lacks_is_one_line(error, said, monkeypatch, capsys):
    def refuse(_):
        raise error

    monkeypatch.setattr("sbert_plugins.cli.evaluate._check_flags", refuse)
    if said is None:  # a defect, whose traceback is wanted
        with pytest.raises(RuntimeError, match="x"):
            cli.main(["evaluate", "m"])
    else:
        assert cli.main(["evaluate", "m"]) == 2
        assert capsys.readouterr().err == f"sbert-plugins: error: {said}\n"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--offline", "--hub", "--sick", "all", "--batch-size", "7"], "--sick and --hub and --batch-size would not be read"),
        (["--offline", "--limit", "3"], "--limit would not be read: sentences are counted for --reconstruct"),
        (["--reconstruct", "t.txt", "--report", "r", "--pooling", "cls"], "--report and --pooling would not be read: --recon"),
        (["--reconstruct", "t.txt", "--pairs", "p"], "--pairs would not be read: --reconstruct shows what a decoder writes"),
        (["--topics", "t", "--report", "r"], "--report would not be read: labels of your own are scored, not the STS tasks"),
    ],
)
def test_flags_that_evaluate_does_not_read(flags, message, capsys, monkeypatch):
    monkeypatch.delenv("SBERT_PLUGINS_DATA", raising=False)
    assert cli.main(["evaluate", "m", *flags]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("models", "report", "message"),
    [
        (["a"], "taken", "must be a folder or not exist yet"),
        (["a"], "compared", "must hold no page or picture but those of an earlier report"),
        (["a", "b", "a"], "page", "each under a name of its own, got ['a', 'b', 'a']"),
    ],
)
def test_a_report_is_refused_before_anything_is_loaded(tmp_path, capsys, models, report, message):
    (tmp_path / "taken").touch()
    (tmp_path / "compared").mkdir()
    for name in ("index.html", "start.json"):
        (tmp_path / "compared" / name).touch()
    none = str(tmp_path / "no data")
    assert cli.main(["evaluate", *models, "--data-dir", none, "--report", str(tmp_path / report)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("models", "names"),
    [
        (["runs/a/model", "runs/b/model", "org/base"], ["a", "b", "base"]),
        (["x/base", "y/base"], ["x/base", "y/base"]),
        (["model"], ["model"]),
    ],
)
def test_short_names(models, names):
    assert short_names(models) == names


def test_methods(capsys):
    assert cli.main(["methods"]) == 0
    printed = capsys.readouterr().out
    for word in ("arccse", "ArcCSELoss", "anchor", "Zhang et al., ACL 2022", "https://aclanthology.org/2022.acl-long.336"):
        assert word in printed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--temperature-typo"], None),
        (["--batch-size", "1"], "batch_size must be at least 2, got 1"),
        (["--column", "x", "--limit", "0"], "--limit must be at least 1, got 0"),
        (["--limit", "1"], "training needs at least 2 sentences, got 1"),
        (["--limit", "-5"], "--limit must be at least 1, got -5"),
        (["--learning-rate", "nan"], "learning_rate must be a finite number above 0, got nan"),
        (["--loss-learning-rate", "inf"], "loss_learning_rate must be a finite number, 0 or above, got inf"),
        (["--sam-rho", "-1"], "sam_rho must be a finite number, 0 or above, got -1.0"),
        (["--epochs", "inf"], "epochs must be a finite number above 0, got inf"),
        (["--gradient-accumulation-steps", "0"], "gradient_accumulation_steps must be at least 1, got 0"),
        (["--eval-steps", "0"], "eval_steps must be at least 1, got 0"),
        (["--max-steps", "0"], "max_steps must be at least 1, or -1 to go by epochs, got 0"),
        (["--max-seq-length", "-3"], "max_seq_length must be at least 1, got -3"),
        (["--seed", "-1"], "seed must be a whole number in [0, 4294967295], got -1"),
        (["--pooling", "mean"], "--pooling mean is for a plain transformer"),
        (["--model", " "], "--model must name an encoder, got ' ': leave it out for bert-base-uncased."),
    ],
)
def test_mistakes_are_one_line(text, encoder, tmp_path, capsys, change, message):
    output = tmp_path / "run"
    arguments = ["train", "arccse", str(text), "--model", encoder, "--output", str(output), *change]
    if message is None:
        with pytest.raises(SystemExit, match="2"):
            cli.main(arguments)
    else:
        assert cli.main(arguments) == 2
        assert f"sbert-plugins: error: {message}" in capsys.readouterr().err
    assert not output.exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.txt", b"", "is empty"),
        ("latin.txt", "Größe\n".encode("latin1"), "line 1: the text is not UTF-8"),
        ("table.csv", b"a,b\nx,y\n", "no column of strings"),
    ],
)
def test_bad_text(tmp_path, encoder, capsys, name, content, message):
    (tmp_path / name).write_bytes(content)
    output = tmp_path / "run"
    assert cli.main(["train", "arccse", str(tmp_path / name), "--model", encoder, "--output", str(output)]) == 2
    assert message in capsys.readouterr().err
    assert not output.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "arccse", "", "--output", "run"], "There is no file ''"),
        (["train", "arccse", "sentences.txt", "--output", "run"], "TEXT sentences.txt does not exist: a text is a file here"),
        (["train", "arccse", "./mine", "--output", "run"], "TEXT ./mine does not exist"),
        (["train", "arccse", "--offline", "--model", "a/b/c", "--output", "run"], "--model a/b/c does not exist: a model is"),
        (["evaluate", "./model", "--offline"], "./model does not exist: a model is a directory here"),
        (["evaluate", "m", "--offline", "--batch-size", "0"], "--batch-size must be at least 1, got 0"),
    ],
)
def test_names_that_are_no_ones(arguments, message, tmp_path, monkeypatch, capsys):
    """Told before the Hub is asked."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda *_, **__: pytest.fail("the Hub was asked"))
    assert cli.main(arguments) == 2
    assert f"sbert-plugins: error: {message}" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_diverged_training_is_no_success(text, encoder, tmp_path, capsys):
    output = tmp_path / "run"
    arguments = ["train", "arccse", str(text), "--model", encoder, "--output", str(output), "--batch-size", "8"]
    assert cli.main([*arguments, "--max-steps", "4", "--learning-rate", "1e38", "--sam-rho", "0"]) == 2
    assert "update 2: arccon is nan, in the batch that begins with" in capsys.readouterr().err
    assert not (output / "model").exists()
    assert not (output / "results.json").exists()


def test_output_without_a_terminal(text, encoder, tmp_path, capsys):
    """Lines that a person reads: no dict, no bar, no table of a checkpoint's weights."""
    arguments = ["train", "arccse", str(text), "--model", encoder, "--output", str(tmp_path / "run"), "--batch-size", "8"]
    assert cli.main([*arguments, "--max-steps", "3"]) == 0
    printed, errors = capsys.readouterr()
    assert re.findall(r"^update (\d)/3  loss [\d.]+  .*arccon [\d.]+", printed, re.MULTILINE) == ["1", "2", "3"]
    assert "{" not in printed + errors
    assert "it/s" not in errors


@pytest.mark.parametrize(
    ("missing", "shown"),
    [([], None), (["pooler.dense.weight"], None), (["pooler.dense.bias", "encoder.x"], "random now: encoder.x.")],
)
def test_load_reports(missing, shown):
    rows = "".join(f"{name:<30} | MISSING    | \n" for name in missing)
    record = logging.LogRecord("x", logging.WARNING, "", 1, f"BertModel LOAD REPORT from: x\nKey | Status\n{rows}", (), None)
    assert LoadReports().filter(record) is bool(shown)
    assert shown is None or record.getMessage().endswith(shown)


@pytest.mark.slow
class TestResume:
    @staticmethod
    def command(folder):
        files = [str(folder / "text.txt"), "--model", str(folder / "encoder"), "--output", str(folder / "run")]
        return ["train", "arccse", *files, "--eval-steps", "1", "--batch-size", "8", "--max-steps", "4"]

    @pytest.fixture(scope="class")
    @classmethod
    def interrupted(cls, tiny_encoder, tmp_path_factory):
        """Text, encoder, and what a training left that was interrupted after its first checkpoint."""

        folder = tmp_path_factory.mktemp("interrupted")
        write_text(folder)
        tiny_encoder().save_pretrained(str(folder / "encoder"))
        with interrupted_after(2):
            assert cli.main(cls.command(folder)) == 130
        return folder

    @pytest.fixture
    def text(self, tmp_path):
        return tmp_path / "text.txt"

    @pytest.fixture
    def begun(self, interrupted, tmp_path):
        """The command that resumes a copy of it."""
        shutil.copytree(interrupted, tmp_path, dirs_exist_ok=True)
        return [*self.command(tmp_path), "--resume"]

    def test_the_same(self, begun, text, tmp_path):
        text.rename(tmp_path / "moved.txt")  # what was read counts, not where it lies
        begun[2] = str(tmp_path / "moved.txt")
        assert cli.main(begun) == 0

    def test_another_text(self, begun, text, capsys):
        text.write_text("\n".join(project_text()[40:70]), encoding="utf-8")
        assert cli.main(begun) == 2
        assert re.search(r"begun with text text.txt \[\w{16}\] \(now text.txt \[\w{16}\]\): resume", capsys.readouterr().err)

    def test_another_encoder(self, begun, tiny_encoder, tmp_path, capsys):
        tiny_encoder(num_hidden_layers=1).save_pretrained(str(tmp_path / "smaller"))
        begun[begun.index("--model") + 1] = str(tmp_path / "smaller")
        assert cli.main(begun) == 2
        assert re.search(r"begun with encoder encoder \[\w+\] \(now smaller \[\w+\]\)", capsys.readouterr().err)

    def test_another_precision(self, begun, capsys):
        assert cli.main([*begun, "--bf16"]) == 2
        assert "was begun with bf16 False (now True)" in capsys.readouterr().err

    @pytest.mark.parametrize("content", ["", "[]", '{"method": "arccse", "settings": 5}', '{"method": "x"'])
    def test_a_broken_record(self, begun, content, tmp_path, capsys):
        (tmp_path / "run" / "run.json").write_text(content)
        assert cli.main(begun) == 2
        assert "run.json must be the json that a training wrote" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "[]", '{"log": 5}'])
def test_a_model_beside_someone_elses_results(content, tiny_encoder, tmp_path, capsys, caplog):
    tiny_encoder().save_pretrained(str(tmp_path / "model"))
    (tmp_path / "results.json").write_text(content)
    assert cli.main(["evaluate", str(tmp_path / "model"), "--offline"]) == 0
    assert "is shown without its training" in caplog.text
    with pytest.raises(ValueError, match=r"results.json must be the json that a training wrote"):
        recipes.read_results(tmp_path / "results.json")


def test_output_is_checked_first(tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("mine")
    assert cli.main(["train", "arccse", "no-such-text", "--output", str(tmp_path)]) == 2
    assert "output must be a new or an empty directory" in capsys.readouterr().err
    assert cli.main(["train", "arccse", "no-such-text", "--seeds", "2", "--output", str(tmp_path)]) == 2
    assert "output must be new, empty or that of a training with seeds" in capsys.readouterr().err


def test_names_are_checked_before_a_text_is_read(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sbert_plugins.cli.train.read", lambda *_: pytest.fail("the text is read"))
    (tmp_path / "text.txt").write_text("A dog runs.")
    command = ["train", "arccse", str(tmp_path / "text.txt"), "--model", "./no_such", "--output", str(tmp_path / "new")]
    assert cli.main(command) == 2
    assert "--model ./no_such does not exist" in capsys.readouterr().err


@pytest.mark.usefixtures("no_hub")
def test_neither_data_nor_hub(encoder, capsys):
    assert cli.main(["evaluate", encoder]) == 2
    error = capsys.readouterr().err
    assert "SBERT_PLUGINS_DATA" in error
    assert "Hugging Face Hub" in error


def test_debug_shows_the_traceback(tmp_path):
    with pytest.raises(FileNotFoundError):
        cli.main(["--debug", "train", "arccse", "no/such", "--output", str(tmp_path / "run")])


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["compare", "no/such", "--methods", "arccse:margin_degrees=5", "--output", "o"],
        ["train", "sbert_plugins.losses:ArcCSELoss", "no/such", "--output", "o"],
    ],
)
def test_offline_holds_where_a_check_loads_the_hub(tmp_path, arguments):
    script = (
        "import sys\nfrom sbert_plugins import cli\n"
        f"assert cli.main({[*arguments, '--offline']!r}) == 2\n"
        "import huggingface_hub\nassert huggingface_hub.constants.HF_HUB_OFFLINE\n"
    )
    environment = {key: value for key, value in os.environ.items() if key != "HF_HUB_OFFLINE"}
    command = [sys.executable, "-c", script]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert result.returncode == 0, result.stderr
    assert "OfflineModeIsEnabled" in result.stderr


@pytest.mark.slow
def test_help_and_version_load_no_torch(capsys):
    """What keeps ``--help`` quick, checked without a clock."""
    script = (
        "import sys\nfrom sbert_plugins import cli\n"
        "for arguments in (['--help'], ['train', '--help'], ['compare', '--help'], ['--version']):\n"
        "    try:\n        cli.main(arguments)\n    except SystemExit as end:\n        assert end.code == 0\n"
        "cli.main(['methods'])\n"
        "heavy = {'torch', 'transformers', 'sentence_transformers', 'datasets', 'numpy', 'scipy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert f"sbert-plugins {__version__}" in result.stdout


def test_a_reader_that_leaves():
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "sbert_plugins.cli", "methods"]
    result = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert result.returncode == 141
    assert result.stderr == "sbert-plugins: stopped, because nothing reads the output any more.\n"


def test_a_checkpoint_beside_the_model_is_another_state(tmp_path, monkeypatch):
    monkeypatch.setattr(recipes, "read_results", lambda path: {})
    (tmp_path / "results.json").write_text("{}")
    models = [str(tmp_path / name) for name in ("model", "checkpoint")]
    for model in models:
        Path(model).mkdir()
    assert _trainings(models) == {models[0]: {}}


def test_more_sentences_are_read_than_reconstructions_shown(monkeypatch):
    """Some hold no phrase."""
    asked = []
    monkeypatch.setattr("sbert_plugins.data.read_sentences", lambda text, limit: asked.append(limit) or [])
    monkeypatch.setattr(recipes, "reconstructions", lambda *_, limit: asked.append(limit) or [])
    monkeypatch.setattr(recipes, "build_encoder", lambda name: None)
    assert cli.main(["evaluate", "run/model", "--reconstruct", "t.txt", "--limit", "3"]) == 0
    assert asked == [30, 3]
