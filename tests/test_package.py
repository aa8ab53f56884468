"""Wheel and sdist build, and the wheel made from the sdist works in an empty environment."""

import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import sbert_plugins

ROOT = Path(__file__).parent.parent


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
def test_they_hold_the_package_and_its_text(distributions):
    wheel, sdist = distributions
    names = zipfile.ZipFile(wheel).namelist()
    for name in (
        "py.typed",
        "data/resources/bookcorpus_counts.npz",
        "data/resources/graded_pairs.tsv",
        "data/resources/sentences.txt",
        "evaluation/report.html",
        "losses/arccse.py",
    ):
        assert f"sbert_plugins/{name}" in names
    assert not any(name.startswith(("tests", "benchmarks", "examples")) for name in names)
    assert any(name.endswith("LICENSE") for name in names)
    with tarfile.open(sdist) as archive:
        assert any(name.endswith("/setup.cfg") for name in archive.getnames())


@pytest.mark.slow
def test_the_wheel_in_an_empty_environment(distributions, tmp_path):
    """Import and ``--help`` need no dependency at all: they load no torch."""
    wheel, _ = distributions
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    site = next((tmp_path / "venv" / "lib").glob("python*")) / "site-packages"
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--quiet", "--no-index", "--target", str(site), str(wheel)]
    subprocess.run(install, check=True)
    script = "import sbert_plugins, sys; print(sbert_plugins.__version__); assert 'torch' not in sys.modules"
    result = subprocess.run([python, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert result.stdout.strip() == sbert_plugins.__version__
    result = subprocess.run(
        [python, "-m", "sbert_plugins.cli", "--help"], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert "train" in result.stdout


@pytest.mark.slow
def test_rooms_load_on_first_use():
    script = (
        "import sys, sbert_plugins\nassert 'torch' not in sys.modules\nassert 'losses' in dir(sbert_plugins)\n"
        "from sbert_plugins import losses, functional, data, evaluation, training, recipes, modules\n"
        "assert losses.ArcCSELoss\nassert 'torch' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_an_unknown_name():
    with pytest.raises(AttributeError, match="has no attribute 'loses'"):
        sbert_plugins.loses  # noqa: B018
