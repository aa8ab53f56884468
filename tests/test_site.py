"""The documentation and the README: sizes, links, language, commands and code that run, and the site."""

import configparser
import importlib
import json
import re
import shlex
from itertools import pairwise
from pathlib import Path

import furo
import pytest
from encoders import project_text
from methods import METHODS
from sphinx.cmd import build as sphinx

from sbert_plugins import cli, data, losses, recipes
from sbert_plugins.recipes.compare import read_method

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
MADE = ("docs/_", "docs/api/", "docs/notebooks/")
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        ROOT / "CONTRIBUTING.md",
        *sorted(DOCS.rglob("*.md")),
    )
    if not path.relative_to(ROOT).as_posix().startswith(MADE)
}
CODE = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for folder in ("sbert_plugins", "examples")
    for path in sorted((ROOT / folder).rglob("*.py"))
}
COMMANDS = sorted(
    {
        line
        for text in PAGES.values()
        for block in re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
        for line in block.replace("\\\n", " ").splitlines()
        if line.startswith("sbert-plugins ")
    }
)
# Words that made readers stumble.
BANNED = re.compile(
    r"\bthe host\b|\bbeside\b(?! besides)|\ba seed\b|\bthe seven(?! (STS )?tasks)\b|\bparted\b|"
    r"\bis none that\b|(?<!there )\bis no (?!longer)|\bround (a|an|the|any|it|this|another)\b|"
    r"(?<![\w.:+%/*(=-])\.\d|\b(is|are|be) (refused|told)\b|"
    r"\b(program|command|trainer|report|loss|warning|message|error|page) (tells|hears|knows|refuses|says)\b",
    re.IGNORECASE,
)


def prose_of(text):
    """Return a text without code, formulas and links."""
    return re.sub(r"```.*?```|`[^`]*`|\$[^$]*\$|\]\([^)]*\)|https?://\S+", " ", text, flags=re.DOTALL)


def strings_of(code):
    """Return the comments and the strings of Python code, one per line."""
    return "\n".join(re.findall(r'"""(?s:.*?)"""|"[^"\n]*"|#.*', code))


def test_sizes_hold():
    docs = {page: len(text.encode()) for page, text in PAGES.items() if page.startswith("docs/")}
    assert sum(docs.values()) <= 140_000
    assert docs["docs/benchmarks.md"] <= 15_000
    assert len(PAGES["CHANGELOG.md"].encode()) <= 3_000
    assert len(PAGES["README.md"].encode()) <= 7_000


def test_the_language_is_plain():
    texts = {page: prose_of(text) for page, text in PAGES.items()}
    texts |= {path: strings_of(code) for path, code in CODE.items()}
    found = {
        page: [text[max(0, match.start() - 40) : match.end() + 20] for match in BANNED.finditer(text)]
        for page, text in texts.items()
    }
    assert {page: bad for page, bad in found.items() if bad} == {}


def anchors_of(page):
    headings = re.findall(r"^#+ (.+)$", PAGES[page], re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_internal_links_hold():
    # Links between pages, to files of the repository, and to pages of the published site.
    links = [(page, link) for page, text in PAGES.items() for link in re.findall(r"\]\(([^)\s]+)\)", text)]
    for page, link in links:
        path, _, anchor = link.partition("#")
        if file := re.match(
            r"https://github\.com/sbert-plugins/sbert-plugins/(?:blob|tree|raw)/main/(.+)", path
        ):
            assert (ROOT / file[1]).exists(), link
            continue
        if site := re.match(r"https://sbert-plugins\.github\.io/sbert-plugins/(.*)", path):
            target = DOCS / (site[1] or "index.html").replace(".html", ".md")
        elif path.startswith("http"):
            continue
        else:
            target = ((ROOT / page).parent / path).resolve() if path else ROOT / page
        name = target.relative_to(ROOT).as_posix()
        assert target.exists() or name.startswith("docs/api/"), link
        assert not anchor or anchor in anchors_of(name), link


def test_links_that_the_package_prints_hold():
    for text in CODE.values():
        for name in re.findall(r"https://sbert-plugins\.github\.io/sbert-plugins/([\w/-]+)\.html", text):
            assert (DOCS / f"{name}.md").exists(), name


def test_commands_can_be_parsed():
    # Each option, method and keyword exists.
    for line in COMMANDS:
        words = shlex.split(line, comments=True)[1:]
        if "--help" in words or len(words) < 2:
            continue
        options = cli.parse(words)
        if words[0] == "train" and ":" not in options.method:
            recipes.find_recipe(options.method).check_keywords(recipes.read_keywords(options.loss))
        for method in getattr(options, "methods", ()):
            if ":" not in method or "=" in method:
                read_method(method)


def test_names_in_code_exist():
    # ``recipes.train`` in the code of a page is a function of the package.
    blocks = [
        block for text in PAGES.values() for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    ]
    rooms = "data|evaluation|functional|losses|modules|recipes|training"
    for block in blocks:
        compile(block, "a page", "exec")
        for room, name in re.findall(rf"\b({rooms})\.(\w+)", block):
            assert hasattr(importlib.import_module(f"sbert_plugins.{room}"), name), f"{room}.{name}"


@pytest.mark.slow
@pytest.mark.parametrize("page", ["docs/guides/adapt.md", "docs/guides/evaluate.md"])
def test_the_code_of_a_guide_runs(page, tiny_encoder, wordnet, tmp_path, monkeypatch):
    # With a tiny encoder, in a folder with the files that the guide names.
    monkeypatch.chdir(tmp_path)
    lines = project_text()
    files = {
        "sentences.txt": lines,
        "documents.txt": [f"{first} {second}\n" for first, second in pairwise(lines[:20])],
        "graded.tsv": [f"{grade}\t{lines[grade]}\t{lines[grade + 9]}" for grade in range(9)],
        "topics.tsv": [f"{place % 2}\t{line}" for place, line in enumerate(lines[:30])],
    }
    for name, rows in files.items():
        Path(name).write_text("\n".join(rows), encoding="utf-8")
    for block in re.findall(r"```python\n(.*?)```", PAGES[page], re.DOTALL):
        if "push_to_hub" not in block:
            exec(block, {"model": tiny_encoder(), "start": tiny_encoder()})


LOOPS = PAGES["docs/guides/training_loops.md"]
BLOCKS = re.findall(r"```python\n(.*?)```", LOOPS, re.DOTALL)
LINES = BLOCKS[1].splitlines()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "loop"), [*((line, 2 + line % 3) for line in range(len(LINES))), (0, 3), (0, 4)]
)
def test_each_loss_in_a_loop_and_each_loop(line, loop, tiny_encoder, tmp_path, monkeypatch):
    # The code of the page, as written, with a tiny encoder and its vocabulary.
    monkeypatch.chdir(tmp_path)
    Path("sentences.txt").write_text("\n".join(project_text()[:128]), encoding="utf-8")
    model = tiny_encoder()
    counts = data.TokenFrequencies.from_corpus(project_text(), model.tokenizer)
    monkeypatch.setattr(recipes, "build_encoder", lambda *names, **keywords: model)
    monkeypatch.setattr(data.TokenFrequencies, "bookcorpus", lambda: counts)
    names = {}
    exec(f"{BLOCKS[0]}{LINES[line]}", names)
    before = {name: value.clone() for name, value in names["loss"].state_dict().items()}
    exec(BLOCKS[loop], names)
    after = names["loss"].state_dict()
    changed = {name for name, value in before.items() if not value.equal(after[name])}
    assert any(name.startswith("model.") for name in changed)
    assert any(not name.startswith("model.") for name in changed)


def test_each_key_of_a_log_is_explained(tiny_encoder):
    documented = {
        key
        for cell in re.findall(r"^\| (`[^|]*) \|", LOOPS, re.MULTILINE)
        for key in re.findall(r"`(\w+)`", cell)
    }
    logged = set()
    for build, rows in METHODS.values():
        loss, dataset = build(tiny_encoder().train()), rows(12)
        for _ in range(2):
            terms = loss([loss.model.preprocess(list(column)) for column in dataset[:].values()])
            sum(terms.values()).backward()
            logged |= {key.rpartition("/")[2] for key in (*terms, *loss.diagnostics)}
            for part in loss.modules():
                if isinstance(part, losses.SLTFAILoss):
                    part.begin_training(steps=4, resumed=False)
                    part.updates.add_(4)
    assert logged == documented


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")
def test_the_site_builds_without_a_warning(tmp_path, capsys, monkeypatch):
    # The theme builds the same menu again for each of 200 pages, which takes most of the time.
    monkeypatch.setattr(furo, "_compute_navigation_tree", lambda context: "", raising=False)
    assert sphinx.main(["-W", "--keep-going", "-q", "-b", "html", str(DOCS), str(tmp_path)]) == 0, (
        capsys.readouterr().err
    )
    home = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert 'src="_images/couples.svg"' in home
    assert "<h2>Ten lines" in home  # a part of README.md


ROOT = Path(__file__).parent.parent
README = PAGES["README.md"]
NAME = "sentence-transformers/all-MiniLM-L6-v2"


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


def test_links_of_the_readme_are_absolute():
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
