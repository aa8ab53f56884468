"""The README: size, set-up commands, and a script and a command that give the same score."""

import configparser
import json
import re
import shlex
from pathlib import Path

import pytest
from encoders import project_text

from sbert_plugins import cli, recipes

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
NAME = "sentence-transformers/all-MiniLM-L6-v2"


def test_it_is_short():
    assert len(README.encode()) <= 7_000


def test_the_set_up_commands_name_what_exists():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    commands = re.findall(r'^pip install -c (\S+) -e "\.\[(\w+)\]" && (.+)$', README, re.MULTILINE)
    assert [command for *_, command in commands] == [
        "sbert-plugins train recommended --offline --output runs/demo",
        "pytest -n 2",
    ]
    assert "-n" not in config["tool:pytest"]["addopts"].split()  # pytest alone works without xdist
    for constraints, extra, _ in commands:
        assert (ROOT / constraints).exists()
        assert extra in config["options.extras_require"]


def test_links_are_absolute():
    # A package index shows the page without the repository.
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert len(links) > 15
    assert all(link.startswith("https://") for link in links)


@pytest.mark.slow
def test_the_script_and_the_command_give_the_same_score(encoder_path, tmp_path, monkeypatch, capsys):
    # With a tiny encoder in place of all-MiniLM-L6-v2, and few updates.
    for name, value in {"max_steps": 9, "eval_steps": 3}.items():
        monkeypatch.setitem(recipes.RECIPES["recommended"].arguments, name, value)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SBERT_PLUGINS_DATA", raising=False)
    Path("sentences.txt").write_text("\n".join(project_text()[:256]), encoding="utf-8")
    script = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1]
    command = re.search(rf"^sbert-plugins (train .*{NAME}.*)$", README, re.MULTILINE)[1]
    exec(script.replace(NAME, encoder_path), {})
    printed = capsys.readouterr().out
    assert cli.main(shlex.split(command.replace(NAME, encoder_path))) == 0
    by_script, by_command = (
        json.loads(Path(run, "results.json").read_text(encoding="utf-8"))
        for run in ("runs/script", "runs/mine")
    )
    assert by_script["after"] == by_command["after"] != by_command["before"]
    assert by_script["verdict"][0] in printed
    assert by_script["verdict"][0] in capsys.readouterr().out
