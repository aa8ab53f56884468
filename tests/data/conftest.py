import datasets
import pytest


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """The folder of this package in a cache of ``datasets`` that is empty for each test."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return tmp_path / "cache" / "sbert_plugins"
