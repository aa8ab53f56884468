"""Wheel and sdist build, and the wheel made from the sdist works in an empty environment."""

import email
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
import yaml
from datasets.fingerprint import Hasher

import sbert_plugins
from sbert_plugins import data, losses

ROOT = Path(__file__).parent.parent
MADE = ("docs/_build/", "docs/_generated/", "docs/api/")  # by Sphinx


@pytest.fixture(scope="module")
def distributions(once):
    def make(target):
        # Without further options build makes the wheel from the sdist.
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target), str(ROOT)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout + result.stderr

    target = once("dist", make)
    (wheel,), (sdist,) = target.glob("*.whl"), target.glob("*.tar.gz")
    return wheel, sdist


@pytest.mark.slow
def test_they_hold_the_package_and_its_data(distributions):
    wheel, sdist = distributions
    names = zipfile.ZipFile(wheel).namelist()
    files = [
        path
        for path in (ROOT / "sbert_plugins").rglob("*")
        if path.is_file() and "__pycache__" not in str(path)
    ]
    assert {path.relative_to(ROOT).as_posix() for path in files} <= {*names}
    assert not any(name.startswith(("tests", "benchmarks", "examples")) for name in names)
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert held >= {
        "LICENSE",
        "README.md",
        "CITATION.cff",
        "constraints.txt",
        ".ci/run",
        "tests/test_package.py",
    }
    assert not any("__pycache__" in name or name.startswith(MADE) for name in held)


@pytest.mark.slow
def test_the_metadata_that_an_index_shows(distributions):
    with zipfile.ZipFile(distributions[0]) as wheel:
        (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(wheel.read(name))
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert (
        metadata.get_payload(decode=True).decode().strip() == (ROOT / "README.md").read_text("utf-8").strip()
    )
    assert {"mteb", "offline", "plot", "test"} <= {*metadata.get_all("Provides-Extra")}


def test_all_papers_are_cited():
    # CITATION.cff has each paper that a model card may cite, with its title and its authors.
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["version"] == sbert_plugins.__version__
    papers = {reference["url"]: reference for reference in cited["references"]}
    kinds = (getattr(losses, name) for name in losses.__all__ if name != "WeightedSumLoss")
    for entry in {kind.citation for kind in kinds}:
        found = re.findall(r"(\w+) = \"(.*?)\",\n", entry, re.DOTALL)
        fields = {key: " ".join(text.split()) for key, text in found}
        reference = papers.pop(fields["url"])
        assert reference["title"] == re.sub("[{}]", "", fields["title"])
        people = [f"{author['family-names']}, {author['given-names']}" for author in reference["authors"]]
        assert " and ".join(people) == fields["author"]
        assert str(reference["year"]) == fields["year"]
    assert not papers


@pytest.mark.slow
def test_the_wheel_in_an_empty_environment(distributions, tmp_path):
    # Import and ``--help`` need no dependency, because they load no torch.
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    site = next((tmp_path / "venv" / "lib").glob("python*")) / "site-packages"
    zipfile.ZipFile(distributions[0]).extractall(site)
    result = subprocess.run(
        [python, "-m", "sbert_plugins.cli", "--help"], capture_output=True, text=True, cwd=tmp_path
    )
    assert "train" in result.stdout, result.stderr


def test_rooms_load_on_first_use():
    script = "import sys, sbert_plugins as s; assert 'losses' in dir(s) and 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
    with pytest.raises(AttributeError, match="has no attribute 'loses'"):
        sbert_plugins.loses  # noqa: B018


@pytest.mark.slow
def test_another_process():
    # It finds RAKE's phrases in the cache, because the hash is the same, and it does not load mteb.
    code = "import sys, datasets, sbert_plugins.evaluation, sbert_plugins.data as d\n"
    code += "print(datasets.fingerprint.Hasher.hash(d.Rake()), 'mteb' in sys.modules)"
    environment = os.environ | {"PYTHONHASHSEED": "1"}
    printed = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    assert printed.split() == [Hasher.hash(data.Rake()), "False"]


def test_the_workflow_has_few_permissions():
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)
    assert "secrets." not in text
    assert workflow["permissions"] == {"contents": "read"}
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    assert all(
        re.fullmatch(r"[\w-]+/[\w-]+@(v\d+|release/v\d+)", step["uses"]) for step in steps if "uses" in step
    )
