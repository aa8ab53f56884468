"""The code of the guide *Use the model* runs, with all-MiniLM-L6-v2, token weights and a linear map."""

import ast
import configparser
import re
import shutil
from pathlib import Path
from unittest.mock import Mock, create_autospec

import numpy as np
import pytest
import torch
from encoders import project_text
from huggingface_hub import HfApi
from sentence_transformers import SentenceTransformer
from sentence_transformers.base import model as base
from sentence_transformers.base.modules import Dense

from sbert_plugins import modules, recipes

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "guides" / "use_the_model.md").read_text(encoding="utf-8")
FIRST, *BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
TEXTS = project_text()[:120]
NAME = "me/my-model"  # on the Hub, where it has no card yet
CONFIG = configparser.ConfigParser()
CONFIG.read(ROOT / "setup.cfg")


def imports_of(block):
    """Return the packages that a block imports."""
    nodes = list(ast.walk(ast.parse(block)))
    names = [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
    names += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    return {name.partition(".")[0] for name in names}


def is_installed_for(package):
    """Return whether ``integrations``, which ``test`` includes, or the package itself needs a package."""
    lines = CONFIG["options.extras_require"]["integrations"] + CONFIG["options"]["install_requires"]
    return any(line.replace("-", "_").startswith(package) for line in lines.split("\n"))


@pytest.fixture(scope="module")
def folder(once):
    """Make the folder of a user, with a model as ``train search`` makes it."""

    def make(target):
        model = recipes.offline_encoder(num_layers=2)
        modules.apply_token_weights(model, modules.count_idf(model, TEXTS) ** 0.5)
        dense = Dense(384, 384, bias=False, activation_function=torch.nn.Identity())
        with torch.no_grad():
            dense.linear.weight.copy_(torch.eye(384) + 0.05 * torch.randn(384, 384))
        model.insert(3, dense)  # behind the pooling
        model.save_pretrained(str(target / "runs/mine/model"))
        (target / "runs/mine/model/README.md").write_text("---\n{}\n---\n\n# Mine\n\nBetter.\n", "utf-8")
        (target / "sentences.txt").write_text("\n".join(TEXTS), encoding="utf-8")

    return once("use_the_model", make)


@pytest.fixture
def run(folder, monkeypatch):
    """Run the first block and the one with a word."""

    def run(word, folder=folder):
        (block,) = [block for block in BLOCKS if word in block]
        monkeypatch.chdir(folder)
        names = {}
        exec(FIRST, names)
        names["nearest"] = nearest(names["model"])
        exec(block, names)
        return names

    return run


def nearest(model):
    """Return the texts that a search in the page's texts should find."""
    similarities = model.similarity(model.encode_query("wind tunnel"), model.encode_document(TEXTS))
    return [TEXTS[row] for row in similarities[0].argsort(descending=True)[:3]]


def test_the_extra_has_all_packages():
    packages = set().union(*map(imports_of, BLOCKS))
    assert len(packages) > 7
    assert all(is_installed_for(package) for package in packages)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("library", "found"),
    [
        ("qdrant", lambda names: [point.payload["text"] for point in names["points"]]),
        ("langchain", lambda names: [document.page_content for document in names["found"]]),
        ("llama_index", lambda names: [node.text for node in names["nodes"]]),
    ],
)
def test_a_search(library, found, run):
    names = run(library)
    assert found(names) == names["nearest"]


@pytest.mark.slow
def test_bertopic(run, capsys):
    assert len(run("bertopic")["topics"]) == len(TEXTS)
    assert "Representative_Docs" in capsys.readouterr().out


@pytest.mark.slow
def test_int8_has_nearly_the_same_vectors(run):
    # Also of an empty text, which has no tokens but those with the smallest weights.
    names = run("openvino")
    texts = [*TEXTS, ""]
    found, expected = names["run"](names["read"](texts))[0], names["model"].encode(texts)
    found, expected = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (found, expected))
    assert (found * expected).sum(axis=1).min() > 0.997
    assert names["vectors"].shape == (64, 384)


@pytest.mark.slow
def test_static_vectors(run, folder, tiny_encoder, tmp_path):
    # With a tiny encoder: each word piece of a vocabulary passes through the transformer.
    tiny_encoder(pooling="mean").save_pretrained(str(tmp_path / "runs/mine/model"))
    shutil.copy(folder / "sentences.txt", tmp_path)
    names = run("StaticEmbedding", tmp_path)
    loaded = SentenceTransformer("runs/mine/static").encode(TEXTS)
    np.testing.assert_array_equal(loaded, names["static"].encode(TEXTS))
    assert len(np.unique(loaded.round(6), axis=0)) > 100


@pytest.mark.slow
def test_the_hub(run, monkeypatch):
    # The model and its card are uploaded to a private repository.
    files, card = set(), []

    def upload(*, folder_path, **_):
        folder = Path(folder_path)
        files.update(path.relative_to(folder).as_posix() for path in folder.rglob("*"))
        card.append((folder / "README.md").read_text("utf-8"))
        return Mock(commit_url="")

    api = create_autospec(HfApi, instance=True)
    api.create_repo.return_value = Mock(repo_id=NAME)
    api.upload_folder.side_effect = upload
    load = base.load_file_path
    monkeypatch.setattr(base, "HfApi", lambda token: api)
    monkeypatch.setattr(
        base, "load_file_path", lambda name, *rest, **how: None if name == NAME else load(name, *rest, **how)
    )
    run("push_to_hub")
    assert api.create_repo.call_args.kwargs["private"]
    assert {"model.safetensors", "1_WordWeights/model.safetensors", "3_Dense/model.safetensors"} <= files
    assert "Better." in card[0]
