"""A training saves a plain sentence-transformers model."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from encoders import SENTENCES, hostile_texts
from methods import EVERY

from sbert_plugins import recipes
from sbert_plugins.encoder import apply_mask_template

TEMPLATES = ["minilm", "bert", "roberta", "xlm-roberta"]  # one of each kind of tokenizer

# Runs where importing this package is impossible, with plain sentence-transformers and no trust_remote_code.
_RELOAD = """
import json, sys
sys.modules["sbert_plugins"] = None
import numpy, torch
from sentence_transformers import SentenceTransformer
torch.set_num_threads(1)
for folder, texts in json.loads(sys.argv[1]).items():
    model = SentenceTransformer(folder + "/model", device="cpu")
    vectors = [encode(texts) for encode in (model.encode, model.encode_query, model.encode_document)]
    model.save_pretrained(folder + "/again")
    vectors.append(SentenceTransformer(folder + "/again", device="cpu").encode(texts))
    numpy.save(folder + "/vectors.npy", numpy.stack(vectors))
try:
    import sbert_plugins
except ImportError:
    print("blocked")
"""


def one_update(method, model):
    """Train a model by one update of a method."""
    torch.manual_seed(0)
    build, dataset = EVERY[method]
    loss, rows = build(model), dataset(8)
    optimizer = torch.optim.AdamW(loss.parameters(), lr=1e-3)
    model.train()
    sum(loss([model.preprocess(rows[column][:]) for column in rows.column_names]).values()).backward()
    optimizer.step()


@pytest.fixture(scope="module")
def saved(once, tiny_encoder):
    """Folders with a model of each method and of each kind of tokenizer under a mask template.

    Each folder also holds vectors of the model: those of this process, and those of a process without this
    package, from ``encode``, ``encode_query``, ``encode_document``, and from the model that it saved again.
    """

    def make(folder):
        jobs = {}

        def add(name, model, texts):
            model.save_pretrained(str(folder / name / "model"))
            np.save(folder / name / "expected.npy", model.encode(texts))
            jobs[str(folder / name)] = texts

        for method in EVERY:
            model = tiny_encoder()
            one_update(method, model)
            add(method, model, SENTENCES)
        for name in TEMPLATES:
            offline = name == "minilm"
            model = recipes.offline_encoder(num_layers=1, device="cpu") if offline else tiny_encoder(name)
            add(f"template {name}", apply_mask_template(model), hostile_texts(model))
        command = [sys.executable, "-c", _RELOAD, json.dumps(jobs)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        assert "blocked" in result.stdout

    return once("saved", make)


def assert_bit_for_bit(folder):
    expected = np.load(folder / "expected.npy")
    assert np.array_equal(np.load(folder / "vectors.npy"), np.stack([expected] * 4))


@pytest.mark.slow
@pytest.mark.parametrize("method", EVERY)
def test_loads_without_this_package_bit_for_bit(method, saved):
    folder = saved / method
    modules = json.loads((folder / "model" / "modules.json").read_text(encoding="utf-8"))
    assert all(module["type"].startswith("sentence_transformers.") for module in modules)
    assert_bit_for_bit(folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", TEMPLATES)
def test_a_mask_template_loads_without_this_package(name, saved):
    folder = saved / f"template {name}"
    card = (folder / "model" / "README.md").read_text(encoding="utf-8")
    assert "[unused1]" not in card  # the card prints modules, and a mask template holds the vocabulary
    assert_bit_for_bit(folder)
