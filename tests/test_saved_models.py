"""What training leaves behind is a plain sentence-transformers model."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from encoders import SENTENCES
from methods import EVERY
from sentence_transformers import SentenceTransformer

# Runs where importing this package is impossible, with plain sentence-transformers and no trust_remote_code.
_RELOAD = """
import json, sys
sys.modules["sbert_plugins"] = None
import numpy, torch
from sentence_transformers import SentenceTransformer
torch.set_num_threads(1)
for folder in json.loads(sys.argv[1]):
    numpy.save(folder + "/vectors.npy", SentenceTransformer(folder + "/model", device="cpu").encode(json.loads(sys.argv[2])))
try:
    import sbert_plugins
except ImportError:
    print("blocked")
"""


@pytest.fixture(scope="module")
def trained(once, tiny_encoder):
    """Folders with a model of each method after one update, its vectors, and those that a process without this package got."""

    def make(folder):
        for method, (build, dataset) in EVERY.items():
            torch.manual_seed(0)
            model = tiny_encoder()
            loss = build(model)
            optimizer = torch.optim.AdamW(loss.parameters(), lr=1e-3)
            rows = dataset(8)
            model.train()
            sum(loss([model.preprocess(rows[column][:]) for column in rows.column_names]).values()).backward()
            optimizer.step()
            model.save_pretrained(str(folder / method / "model"))
            np.save(folder / method / "expected.npy", model.encode(SENTENCES))
        folders = json.dumps([str(folder / method) for method in EVERY])
        command = [sys.executable, "-c", _RELOAD, folders, json.dumps(SENTENCES)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        assert "blocked" in result.stdout

    return once("trained", make)


@pytest.mark.slow
@pytest.mark.parametrize("method", EVERY)
def test_loads_without_this_package_bit_for_bit(method, trained):
    folder = trained / method
    modules = json.loads((folder / "model" / "modules.json").read_text(encoding="utf-8"))
    assert all(module["type"].startswith("sentence_transformers.") for module in modules)
    expected = np.load(folder / "expected.npy")
    assert np.array_equal(np.load(folder / "vectors.npy"), expected)
    assert np.array_equal(SentenceTransformer(str(folder / "model"), device="cpu").encode(SENTENCES), expected)
