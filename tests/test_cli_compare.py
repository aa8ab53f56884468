"""``sbert-plugins compare`` as a person uses it."""

import json
import os
from types import SimpleNamespace

import pytest
from encoders import project_text

from sbert_plugins import cli, evaluation, recipes
from sbert_plugins.cli.compare import evaluators, held_out

QUICK = ["--max-steps", "2", "--batch-size", "8", "--eval-steps", "1", "--seeds", "1"]


@pytest.fixture(autouse=True)
def no_data(monkeypatch):
    monkeypatch.delenv("SBERT_PLUGINS_DATA", raising=False)


@pytest.fixture
def write(tmp_path):
    def written(name, rows):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows), encoding="utf-8")
        return str(path)

    return written


@pytest.fixture
def command(tiny_encoder, tmp_path, write):
    text = project_text()
    tiny_encoder().save_pretrained(str(tmp_path / "encoder"))
    sentences = write("text.txt", [[line] for line in text[:24]])
    return ["compare", sentences, "--model", str(tmp_path / "encoder"), "--output", str(tmp_path / "out"), *QUICK]


@pytest.fixture
def labels(write):
    text = project_text()
    write("shop/queries.tsv", [("a", text[0]), ("b", text[1])])
    write("shop/corpus.tsv", [(i, sentence) for i, sentence in enumerate(text[2:20])])
    folder = os.path.dirname(write("shop/qrels.tsv", [("a", 0, 1), ("b", 3, 1)]))
    return {
        "--pairs": write("grades.tsv", [(i % 4, text[i], text[30 + i]) for i in range(20)]),
        "--topics": write("topics.tsv", [(i % 2, text[i]) for i in range(20)]),
        "--retrieval": folder,
    }


def test_a_text_among_the_methods(write, tmp_path, capsys, monkeypatch):
    """No text is read, and none taken for it, before the methods are known."""
    monkeypatch.setattr("sbert_plugins.recipes.read_text", lambda *_, **__: pytest.fail("a text was read"))
    text = write("s.txt", [["A dog runs."]])
    for method, said in ((text, f"got the file {text}: put TEXT before --methods"), ("simcsee", "simcsee")):
        assert cli.main(["compare", "--methods", "recommended", method, "--output", str(tmp_path / "out")]) == 2
        assert said in capsys.readouterr().err


def test_from_text_to_page(command, labels, tmp_path, capsys):
    given = [part for pair in labels.items() for part in pair]
    assert cli.main([*command, "--methods", "recommended", "simcse:temperature=0.1", *given]) == 0
    printed = capsys.readouterr().out
    first, second = printed.splitlines()[:2]
    assert "encoder is a sentence encoder already." in first
    assert first.endswith("If yours was, too, take --learning-rate 1e-5. Look at labels of your own before and after.")
    assert second.startswith("recommended is, by default, ConSERT with a projection head")
    assert printed.count("recommended is, by default,") == 1
    assert "1/2 recommended, seed 0 ..." in printed
    assert "2/2 simcse:temperature=0.1, seed 0 ..." in printed
    (heading,) = [line for line in printed.splitlines() if "minus recommended" in line]
    assert heading.split("  ")[-1] == "seconds"
    for title in ("grades: Spearman", "topics: v-measure", "shop: MAP"):
        assert title in heading
    rows = {line.split()[0]: line.split() for line in printed.splitlines() if line}
    record = json.loads((tmp_path / "out" / "recommended_seed0.json").read_text(encoding="utf-8"))
    assert rows["recommended"][2] == f"{record['scores']['grades: Spearman']:.2f}"
    assert f"neighbours: {tmp_path / 'out' / 'index.html'}" in printed
    assert record["settings"]["pooling"] == "mean"
    assert record["settings"]["learning_rate"] == 5e-5

    assert cli.main([*command, "--methods", "recommended", "simcse:temperature=0.1", *given]) == 0
    assert "2/2 simcse:temperature=0.1, seed 0: finished before" in capsys.readouterr().out
    assert cli.main([*command, "--methods", "recommended", *given, "--learning-rate", "1e-3"]) == 2
    assert "recommended_seed0 was made with learning_rate 5e-05 (now 0.001): ask for the same" in capsys.readouterr().err


@pytest.mark.parametrize("rate", [["simcse", "--learning-rate", "1e-5"], ["simcse:learning_rate=1e-5"]], ids=str)
def test_no_rate_is_advised_to_who_gave_it(command, labels, capsys, rate):
    assert cli.main([*command, "--pairs", labels["--pairs"], "--methods", *rate]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first.endswith("text.html). Look at labels of your own before and after.")


def test_a_failure_is_no_success(command, labels, capsys):
    methods = ["--methods", "simcse", "simcse:learning_rate=1e38"]
    assert cli.main([*command, *methods, "--pairs", labels["--pairs"]]) == 2
    printed, errors = capsys.readouterr()
    assert "simcse:learning_rate=1e38, seed 0 failed: after update 1 " in printed
    assert "  failed: after update 1 " in printed
    assert "1 of the trainings failed; the same command tries again" in errors


def test_the_traceback_of_a_failure_is_for_who_asks(command, labels, caplog):
    methods = ["--methods", "simcse:learning_rate=1e38", "--pairs", labels["--pairs"], "--seeds", "1"]
    with pytest.raises(ValueError, match="trainings failed"):
        cli.main(["--debug", *command, *methods])
    assert "in check_weights" in caplog.text


def test_the_sts_tasks(command, write, tmp_path, capsys):
    """STS-B dev selects, as in train; a test set is called one."""
    names = [f"sts{year}" for year in range(12, 17)] + ["stsb_dev", "stsb_test", "sick_test"]
    for name in names:
        rows = [("x", 1 + i % 4, line, project_text()[50 + i]) for i, line in enumerate(project_text()[:20])]
        write(f"data/sts/{name}.tsv", rows)
    sts = ["--methods", "simcse", "--data-dir", str(tmp_path / "data")]
    assert cli.main([*command, *sts]) == 0
    printed = capsys.readouterr().out
    assert "STS12, STS13, STS14, STS15, STS16, STS-B, SICK-R are test sets" in printed
    assert "STS-B dev: Spearman  average of 7 STS tasks" in printed
    command[command.index("--output") + 1] = str(tmp_path / "other")
    assert cli.main([*command, *sts, "--dev-only"]) == 0
    printed = capsys.readouterr().out
    assert "test sets" not in printed
    assert "average" not in printed


def test_pairs_in_a_file_that_is_named_as_a_task_are_refused(command, write, tmp_path, capsys):
    rows = [("x", 1 + i % 4, line, project_text()[50 + i]) for i, line in enumerate(project_text()[:20])]
    write("data/sts/stsb_dev.tsv", rows)
    write("STS-B dev.tsv", [row[1:] for row in rows])
    sts = ["--methods", "simcse", "--data-dir", str(tmp_path / "data"), "--dev-only"]
    assert cli.main([*command, *sts, "--pairs", str(tmp_path / "STS-B dev.tsv")]) == 2
    assert "--pairs must not have the name of other scores, got 'STS-B dev'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_hub_is_asked_for_all_that_is_there(command, capsys, monkeypatch):
    asked = {}
    monkeypatch.setattr("sbert_plugins.evaluation.load_sts", lambda *_, hub=False, **__: pairs_of_own() if hub else None)
    monkeypatch.setattr("sbert_plugins.evaluation.STSSuiteEvaluator", lambda *_, **how: how)
    monkeypatch.setattr("sbert_plugins.recipes.compare", lambda *_, **how: asked.update(how) or ended())
    command[1] = "sts-sentences"
    assert cli.main([*command, "--hub", "--methods", "simcse"]) == 0
    assert asked["hub"]
    assert asked["evaluators"][1] == {"hub": True, "sick": "all", "write_csv": False}


def pairs_of_own():
    return evaluation.ScoredPairs(*(values[::12] for values in recipes.graded_pairs()))


def ended():
    return SimpleNamespace(table=[["", "seconds"]], failed={}, page="index.html")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], r"a comparison needs something to score by: graded pairs (--pairs), texts with topics (--topics)"),
        (["--pairs", "PAIRS", "--methods", "simces"], "method must be one of"),
        (["--pairs", "PAIRS", "--methods", "simcse", "simcse"], "methods must differ, got simcse and simcse"),
        (["--pairs", "PAIRS", "--seeds", "0"], "seeds must be at least 1"),
        (["--pairs", "PAIRS", "--batch-size", "1"], "batch_size must be at least 2"),
        (["--pairs", "no.tsv"], "no.tsv does not exist, or is no file"),
        (["--topics", "PAIRS"], "expected 2 tab-separated fields (topic, text), got 3"),
        (["--retrieval", "no"], "no/queries.tsv (or .tsv.gz) does not exist"),
        (["--pairs", "PAIRS", "--methods", "paser-supervised"], "reads triplets"),
        (["--pairs", "PAIRS", "--dev-only"], "--dev-only and --sick are of the STS tasks: name them with --data-dir"),
        (["--hub", "--dev-only", "--sick", "all"], "--sick is of the seven tasks, which --dev-only leaves out"),
        (["--pairs", "PAIRS", "--limit", "1"], "training needs at least 2 sentences"),
    ],
    ids=str,
)
def test_mistakes_are_one_line(command, labels, tmp_path, capsys, arguments, message):
    arguments = [labels["--pairs"] if part == "PAIRS" else part for part in arguments]
    assert cli.main([*command, *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("sbert-plugins: error: ")
    assert message in error
    assert not (tmp_path / "out").exists()


def test_offline_names_what_it_scores_by(capsys):
    (evaluator,) = evaluators(cli.build_parser().parse_args(["compare", "--offline", "--output", "out"]), None)
    assert (evaluator.name, len(evaluator.pairs.scores)) == ("graded pairs", 360)
    assert capsys.readouterr().out.startswith("Scores are of the package's own 360 graded pairs; name yours with --pairs")


def test_without_labels_by_sentences_that_are_held_out(command, write, wordnet, tmp_path, capsys):
    text = list(dict.fromkeys(project_text()))[:800]
    command[1] = write("longer.txt", [[line] for line in text])
    assert cli.main([*command, "--methods", "bag-of-words"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("Nothing is named to score by: scores are made from 200 of the text's sentences")
    assert "own sentences: without labels" in printed
    record = json.loads((tmp_path / "out" / "bag-of-words_seed0.json").read_text(encoding="utf-8"))
    assert record["sentences"] == 600
    assert record["text"]["name"] == "longer.txt"
    assert "Scores without labels are made" in (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert cli.main([*command, "--methods", "bag-of-words"]) == 0
    assert "finished before" in capsys.readouterr().out
    command[1] = write("longer.tsv", [["title", "body"], *([f"No. {place} of all", line] for place, line in enumerate(text))])
    command[command.index("--output") + 1] = str(tmp_path / "of a column")
    assert cli.main([*command, "--methods", "bag-of-words", "--column", "body"]) == 0
    record = json.loads((tmp_path / "of a column" / "bag-of-words_seed0.json").read_text(encoding="utf-8"))
    assert record["sentences"] == 600


def test_what_is_held_out_is_not_trained_on_in_another_spelling(command, write, wordnet, capsys):
    text = list(dict.fromkeys(project_text()))[:800]
    again = [line.lower().rstrip(".!?") for line in text]
    options = cli.build_parser().parse_args(
        ["compare", write("twice.txt", [[line] for line in text + again]), "--output", "o"]
    )
    rows, evaluator = held_out(options, options.text)
    assert len(rows) == 1200
    assert not {line.lower().rstrip(".!?") for line in evaluator.texts.sentences} & {
        line.lower().rstrip(".!?") for line in rows["anchor"]
    }


def test_output_that_cannot_be_written(command, labels, tmp_path, capsys):
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    command[command.index("--output") + 1] = str(tmp_path / "file" / "out")
    assert cli.main([*command, "--pairs", labels["--pairs"]]) == 2
    assert "file" in capsys.readouterr().err
