"""The site: its commands can be parsed, its code runs, and what it includes is made. ``.ci/run`` builds it."""

import argparse
import dataclasses
import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from datasets import Dataset
from sentence_transformers import SentenceTransformerTrainingArguments

from sbert_plugins import cli, data, losses, recipes, training
from sbert_plugins.cli.flags import changed

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = {page.relative_to(DOCS).as_posix(): page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md")}
PAGES = {name: text for name, text in PAGES.items() if not name.startswith(("_", "api/"))}
PAGES["README"] = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = {
    (name, line)
    for name, text in PAGES.items()
    for block in re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    for line in block.splitlines()
    if line.startswith("sbert-plugins ")
}

sys.path[:0] = [str(DOCS), str(ROOT / "benchmarks")]

import generate
import quality_tables
import tables


def python_of(page):
    return re.findall(r"```python\n(.*?)```", PAGES[page], re.DOTALL)


def test_there_are_commands():
    assert len(COMMANDS) > 30


@pytest.mark.parametrize(("page", "line"), sorted(COMMANDS))
def test_commands_are_those_that_there_are(page, line):
    """Each flag exists, each method too, and each keyword of its loss."""
    options = cli.build_parser().parse_args(shlex.split(line, comments=True)[1:])
    methods = [getattr(options, "method", None), *getattr(options, "methods", [])]
    for method in filter(None, methods):
        if not method.startswith("my_package"):
            recipes.recipe_of(method.partition(":")[0])
    if getattr(options, "loss", None):
        recipes.read_keywords(options.method, options.loss)


def test_keywords_in_the_text_are_those_that_there_are():
    """``--loss key=value`` in a sentence of a method's page is a keyword of that method."""
    found = 0
    for recipe in recipes.RECIPES.values():
        page = PAGES.get(f"methods/{recipe.method.replace('-', '_')}.md", "")
        for keyword in re.findall(r"`--loss ([^`]+)`", page):
            recipes.read_keywords(recipe.method, keyword.split())
            found += 1
    assert found >= 2


@pytest.fixture(scope="module")
def fragments():
    return generate.fragments()


class TestGenerated:
    def test_what_is_included_is_made(self, fragments):
        included = {
            name for text in PAGES.values() for name in re.findall(r"\{(?:literal)?include\} .*_generated/(\S+)", text)
        }
        assert included == set(fragments)

    def test_settings_are_the_protocols_and_the_recipe_s(self, fragments):
        table = fragments["settings_arccse.md"]
        assert "| `learning_rate` | 3e-05 | paper 4.1; 1e-5 for large models | 3e-05 |" in table
        assert "| `loss.margin_degrees` | 10 | paper 4.1 | 10 |" in table
        table = fragments["settings_denosent.md"]
        assert "| `loss.noise_dropout` | 0.825 | paper, Implementation Details | 0.825 |" in table
        assert "--protocol official" in table
        assert "| `learning_rate` | 5e-05 |" in fragments["settings_consert.md"]

    def test_settings_are_what_the_command_trains_with(self, fragments):
        """Some keywords follow from the pooling or the length of a training."""
        assert "| tokens with mean pooling, else pooled |" in fragments["settings_pt-bert.md"]
        assert "| 0.1 epochs, round consert 0.5; at most half of the training |" in fragments["settings_slt-fai.md"]
        assert "share_passes" not in fragments["settings_simcse.md"]  # no keyword of its command
        assert (
            "| `columns.synonyms` | 0.5 | paper 4.5.2; the share is in the code's README | 0.5, where WordNet is installed |"
            in (fragments["settings_paser.md"])
        )
        assert "| `columns.extractor` | rake | paper 4.5.3 | rake |" in fragments["settings_paser.md"]
        chosen = {key for recipe in recipes.RECIPES.values() for key in recipe.chosen}
        assert generate.FOUND.keys() == chosen | {"synonyms"}

    def test_a_cost_is_updates_times_a_step(self, tmp_path, monkeypatch):
        """30,000 sentences are 469 steps of 64, of 2.92 s each in this record: 0.4 hours."""
        record = {"median_seconds": {"PT-BERT": 2.92, "PT-BERT pooled": 1.0}, "hardware": "a processor", "commit": "abc"}
        (tmp_path / "speed.json").write_text(json.dumps(record), encoding="utf-8")
        monkeypatch.setattr(tables, "RESULTS", tmp_path)
        table = generate.cost_table("pt-bert")
        assert "| 30,000 sentences, one epoch | 469 | PT-BERT | 2.92 | 0.4 |" in table
        assert "| `--protocol paper` | 15,625 | PT-BERT | 2.92 | 12.7 |" in table

    def test_each_method_has_its_measurements(self, fragments):
        for name in ("arccse", "paser", "denosent", "pt-bert", "slt-fai", "consert", "recommended", "bag-of-words"):
            rows = re.findall(r"^\| (.+?) \|", fragments[f"expect_{name}.md"], re.MULTILINE)
            assert "simcse" in rows, name
            assert any(row.startswith(name) for row in rows), name

    @pytest.mark.parametrize("method", generate.STEPS)
    def test_a_command_as_measured_has_the_settings_of_the_tables(self, method):
        text = generate.as_measured(method)
        command = re.search(r"```bash\n(.+?)```", text, re.DOTALL)
        assert bool(command) is (method not in ("consert", "recommended", "bag-of-words"))
        flags = command[1].replace("\\\n", "") if command else f"sbert-plugins train {method} sentences.txt"
        settings = changed(recipes.RECIPES[method].settings, cli.build_parser().parse_args(shlex.split(flags)[1:]))
        same = {"epochs": 1, "eval_steps": 10, "sam_rho": settings.sam_rho or None}
        assert dataclasses.replace(settings, **same) == quality_tables.settings_of_tables()

    def test_commands_have_their_help(self, fragments):
        assert "--resume" in fragments["command_train.md"]
        assert "--create-pr" in fragments["command_mteb_submit.md"]

    def test_a_room_s_page_names_all_that_is_public(self):
        lines = generate.api_page("losses").splitlines()
        assert all(f"   {name}" in lines for name in losses.__all__)

    def test_subcommands_of_a_parser_without_any(self):
        assert generate.subcommands(argparse.ArgumentParser()) == []


@pytest.mark.slow
def test_a_script_s_card_without_sentences(tiny_encoder, tmp_path, monkeypatch):
    """The host's collects some in two places, which may move."""
    monkeypatch.chdir(tmp_path)
    (code,) = [code for code in python_of("guides/hub.md") if "widget" in code]
    model = tiny_encoder()
    sentences = Dataset.from_dict({"anchor": [f"A dog runs {i} times round the house." for i in range(16)]})
    arguments = SentenceTransformerTrainingArguments("run", max_steps=1, save_strategy="no", report_to="none", use_cpu=True)
    names = {"model": model, "arguments": arguments, "sentences": sentences, "loss": losses.ConSERTLoss(model)}
    exec(code, names | {"training": training})
    card = (tmp_path / "my-model" / "README.md").read_text(encoding="utf-8")
    assert "ConSERT" in card
    assert "A dog runs" not in card


def test_the_mixes_are_built(tiny_encoder):
    model = tiny_encoder()
    blocks = [code for code in python_of("guides/scripts.md") if "WeightedSumLoss(" in code]
    assert len(blocks) == 2
    names = {"losses": losses, "model": model}
    exec(blocks[0], names)
    assert list(names["loss"].losses) == ["consert", "arccse"]


def test_the_page_builds_what_is_recommended(minilm_mlm):
    (code,) = python_of("methods/recommended.md")
    names = {"losses": losses, "model": minilm_mlm}
    exec(code, names)
    expected = recipes.recommended_loss(minilm_mlm)
    assert type(names["loss"]) is type(expected)
    assert names["loss"].get_config_dict() == expected.get_config_dict()


@pytest.mark.slow
def test_the_loss_of_one_s_own_trains(tiny_encoder, tmp_path, monkeypatch):
    from encoders import project_text

    (tmp_path / "mine.py").write_text(python_of("guides/own_loss.md")[0], encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "sentences.txt").write_text("\n".join(project_text()[:16]), encoding="utf-8")
    settings = recipes.with_changes(recipes.settings_of("mine:MyLoss"), max_steps=2, batch_size=8)
    sentences = data.read_sentences(tmp_path / "sentences.txt")
    results = recipes.train("mine:MyLoss", sentences, tiny_encoder(), output=tmp_path / "out", settings=settings)
    assert results["steps"] == 2
    logged = {key for entry in results["log"] for key in entry}
    assert {"arccon", "positive_cosine"} <= logged


@pytest.mark.slow
def test_the_recipe_in_a_script_trains(tiny_encoder, tmp_path, monkeypatch):
    from encoders import project_text

    (code,) = [code for code in python_of("guides/scripts.md") if "recipes.train(" in code]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(recipes, "build_encoder", lambda name, pooling: tiny_encoder())
    (tmp_path / "sentences.txt").write_text("\n".join(project_text()[:64]), encoding="utf-8")
    names = {}
    exec(code, names)
    assert names["results"]["steps"] == 1
    assert (tmp_path / "runs" / "mine" / "results.json").exists()
