"""Where a number comes from: the commit that a process runs, not the one that is made meanwhile."""

import subprocess

import pytest

from sbert_plugins.recipes import provenance


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository in the place of this one, and what makes a commit in it."""
    (tmp_path / "sbert_plugins").mkdir()
    (tmp_path / "benchmarks").mkdir()

    def git(*arguments):
        who = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
        command = ["git", "-C", str(tmp_path), *who, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def commit(text):
        (tmp_path / "sbert_plugins" / "__init__.py").write_text(text)
        git("add", "-A")
        git("commit", "-qm", "x")
        return git("rev-parse", "--short=12", "HEAD")

    git("init", "-q")
    monkeypatch.setattr(provenance, "_ROOT", tmp_path)
    provenance._commit.cache_clear()
    yield commit
    provenance._commit.cache_clear()


def test_what_is_committed_while_a_process_works_is_not_what_it_runs(repository, tmp_path):
    first = repository("1\n")
    assert provenance.provenance()["commit"] == first
    repository("2\n")
    (tmp_path / "sbert_plugins" / "__init__.py").write_text("3\n")
    found = provenance.provenance()
    assert (found["commit"], found["uncommitted_changes"]) == (first, False)


def test_a_tree_with_changes_says_so(repository, tmp_path):
    repository("1\n")
    (tmp_path / "sbert_plugins" / "__init__.py").write_text("2\n")
    assert provenance.provenance()["uncommitted_changes"] is True


def test_an_installed_package_has_no_commit(repository):
    found = provenance.provenance()
    assert (found["commit"], found["uncommitted_changes"]) == (None, None)
