"""Shared fixtures: tiny random encoders, all-MiniLM-L6-v2, and the directory of real data."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # no test may touch the network

import copy
import shutil
import sys
from pathlib import Path

import pytest
import quick_host
import torch
import transformers
from encoders import ARCHITECTURES, build_tokenizers
from filelock import FileLock
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import AutoConfig, AutoModel

from sbert_plugins import recipes

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)  # tiny models: threads would only wait for each other
quick_host.compile_templates_once()
quick_host.write_without_waiting()


@pytest.fixture(autouse=True)
def _start():
    """Each test draws the same, and compiles anew, whatever ran before it."""
    transformers.set_seed(0)
    # After some recompilations of one forward, torch stops compiling it.
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()


@pytest.fixture
def no_hub(tmp_path, monkeypatch):
    """No dataset of the Hub is within reach, not one that a user's cache has either."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "no-datasets")


def pytest_collection_modifyitems(items):
    """Run slow tests first, so that the workers end at about the same time."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish():
    """All modules are imported by now."""
    quick_host.leave_imports_to_themselves()


@pytest.fixture(scope="session")
def once(tmp_path_factory):
    """Build ``once(name, make)``: a folder that ``make(folder)`` fills once for all workers."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def fill(name, make) -> Path:
        folder, filled = shared / name, shared / f"{name}.filled"
        with FileLock(shared / f"{name}.lock"):
            if not filled.exists():
                shutil.rmtree(folder, ignore_errors=True)  # of a worker that failed
                folder.mkdir()
                make(folder)
                filled.touch()
        return folder

    return fill


@pytest.fixture(scope="session")
def tokenizers():
    return build_tokenizers()


@pytest.fixture(scope="session")
def tiny_encoder(tokenizers, tmp_path_factory):
    """Build ``tiny_encoder(architecture="bert", pooling="cls", **config)``: the same random encoder."""
    built: dict[str, SentenceTransformer] = {}

    def build(architecture: str = "bert", pooling: str = "cls", **config) -> SentenceTransformer:
        key = f"{architecture} {pooling} {sorted(config.items())}"
        if key not in built:
            kind, size = ARCHITECTURES[architecture]
            tokenizer = tokenizers[kind]
            with torch.random.fork_rng():
                torch.manual_seed(0)
                model = AutoModel.from_config(
                    AutoConfig.for_model(
                        architecture,
                        vocab_size=len(tokenizer),
                        max_position_embeddings=160,
                        pad_token_id=tokenizer.pad_token_id,
                        initializer_range=0.2,  # ten times the usual: sentence vectors that differ
                        **{**size, **config},
                    )
                )
            folder = tmp_path_factory.mktemp("tiny")
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            transformer = Transformer(str(folder))
            pooled = Pooling(transformer.get_embedding_dimension(), pooling)
            built[key] = SentenceTransformer(modules=[transformer, pooled], device="cpu")
        return copy.deepcopy(built[key])

    return build


@pytest.fixture(scope="session")
def encoder_path(tiny_encoder, tmp_path_factory) -> str:
    """A tiny encoder on disk, for processes of their own."""
    folder = tmp_path_factory.mktemp("encoder", numbered=False)
    tiny_encoder().save_pretrained(str(folder))
    return str(folder)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data. Without it, tests on real data are skipped; in CI they then fail."""
    if "SBERT_PLUGINS_DATA" not in os.environ:
        if os.environ.get("CI") and not os.environ.get("SBERT_PLUGINS_NO_DATA"):
            pytest.fail(
                "CI must set SBERT_PLUGINS_DATA, or say SBERT_PLUGINS_NO_DATA=1 where there are no real data."
            )
        pytest.skip(
            "SBERT_PLUGINS_DATA is not set: it names a directory with the STS tasks (CONTRIBUTING.md)."
        )
    return Path(os.environ["SBERT_PLUGINS_DATA"])


@pytest.fixture
def often_switched():
    """Threads take turns after microseconds: what they have in common is met half done."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture(scope="session")
def minilm() -> SentenceTransformer:
    """all-MiniLM-L6-v2 with its own pooling, from the installed package."""
    return recipes.offline_encoder(num_layers=6, max_seq_length=256, device="cpu")


@pytest.fixture
def minilm_mlm(data_dir) -> SentenceTransformer:
    """A small encoder with its pretrained masked-language-model head, mean pooling."""
    path = str(data_dir / "encoders" / "minilm-mlm")
    return recipes.build_encoder(path, pooling="mean", max_seq_length=32, device="cpu")


@pytest.fixture(scope="session")
def _nltk_folder(tmp_path_factory, data_dir) -> Path:
    """A folder for NLTK: the tagger from the data folder, WordNet from Debian's package."""
    folder = tmp_path_factory.mktemp("nltk_data")
    shutil.copytree(data_dir / "nltk_data" / "taggers", folder / "taggers")
    wordnet = Path("/usr/share/wordnet")
    if (wordnet / "data.noun").is_file():
        target = folder / "corpora" / "wordnet"
        target.mkdir(parents=True)
        for file in [*wordnet.iterdir(), data_dir / "nltk_data" / "wordnet_extra" / "lexnames"]:
            if file.is_file() and file.name != "index.sense":  # nothing here may need it
                shutil.copy(file, target)
    return folder


@pytest.fixture
def nltk_data(_nltk_folder, monkeypatch) -> Path:
    """NLTK finds the tagger, and WordNet where Debian's package is installed."""
    monkeypatch.setattr("nltk.data.path", [str(_nltk_folder)])
    return _nltk_folder


@pytest.fixture
def wordnet(nltk_data) -> Path:
    """NLTK finds WordNet. Without Debian's package the tests on it are skipped, but never in CI."""
    if not (nltk_data / "corpora").exists():
        if os.environ.get("CI"):
            pytest.fail("CI must install Debian's wordnet-base: .ci/run does.")
        pytest.skip("WordNet is not installed: apt-get install wordnet-base.")
    return nltk_data
