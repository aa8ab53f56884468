"""What training leaves behind is a plain sentence-transformers model."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from encoders import SENTENCES
from methods import METHODS
from sentence_transformers import SentenceTransformer

# Runs where importing this package is impossible, with plain sentence-transformers and no trust_remote_code.
_RELOAD = """
import sys
sys.modules["sbert_plugins"] = None
import numpy, torch
from sentence_transformers import SentenceTransformer
torch.set_num_threads(2)
folder, sentences, target = sys.argv[1], sys.argv[2], sys.argv[3]
model = SentenceTransformer(folder, device="cpu")
import json
numpy.save(target, model.encode(json.loads(sentences)))
try:
    import sbert_plugins
except ImportError:
    print("blocked")
"""


@pytest.mark.parametrize("method", METHODS)
def test_loads_without_this_package_bit_for_bit(method, tiny_encoder, tmp_path):
    build, dataset = METHODS[method]
    torch.manual_seed(0)
    model = tiny_encoder()
    loss = build(model)
    optimizer = torch.optim.AdamW(loss.parameters(), lr=1e-3)
    rows = dataset(8)
    model.train()
    sum(loss([model.preprocess(rows[column][:]) for column in rows.column_names]).values()).backward()
    optimizer.step()
    expected = model.encode(SENTENCES)
    model.save_pretrained(str(tmp_path / "model"))

    modules = json.loads((tmp_path / "model" / "modules.json").read_text(encoding="utf-8"))
    assert all(module["type"].startswith("sentence_transformers.") for module in modules)
    result = subprocess.run(
        [sys.executable, "-c", _RELOAD, str(tmp_path / "model"), json.dumps(SENTENCES), str(tmp_path / "vectors.npy")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "blocked" in result.stdout
    assert np.array_equal(np.load(tmp_path / "vectors.npy"), expected)
    assert np.array_equal(SentenceTransformer(str(tmp_path / "model"), device="cpu").encode(SENTENCES), expected)
