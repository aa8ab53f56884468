"""Train each loss on a tiny random encoder of each family, and load the saved model without this package.

    python benchmarks/families.py

Each loss makes two updates. A cell is "trained" if the loaded model gives the vectors of the trained one;
else it is the message of the ``ValueError`` with which the loss rejects the encoder. Any other result ends
the program. Writes ``results/families.jsonl``, a line per family.
"""

import sys
import tempfile

import numpy as np
import records
import torch

sys.path.insert(0, str(records.ROOT / "tests"))

from encoder_families import FAMILIES, load_encoder, save_encoder
from encoders import SENTENCES
from methods import METHODS
from sentence_transformers import SentenceTransformer


def main() -> None:
    """Train all losses on the families that are asked for."""
    options = records.parser(__doc__, {"families": FAMILIES}, families=list(FAMILIES)).parse_args()
    records.require_clean_tree()
    torch.set_num_threads(1)
    for family in options.families:
        with tempfile.TemporaryDirectory() as folder:
            save_encoder(family, folder)
            cells = {name: train(load_encoder(folder), name) for name in METHODS}
        print(family, cells, flush=True)
        records.replace("families", {"family": family, "losses": cells}, key="family")


def train(model: SentenceTransformer, name: str) -> str:
    """Train a loss and return the outcome."""
    build, make_rows = METHODS[name]
    before = model.encode(SENTENCES)
    torch.manual_seed(1)
    try:
        loss = build(model).train()
        loss.state_is_kept = True
        optimizer = torch.optim.AdamW([one for one in loss.parameters() if one.requires_grad], lr=1e-3)
        for _ in range(2):
            columns = [model.preprocess(texts) for texts in make_rows(8).to_dict().values()]
            sum(loss(columns).values()).backward()
            optimizer.step()
            optimizer.zero_grad()
    except ValueError as error:
        return str(error)
    trained = model.eval().encode(SENTENCES)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        again = SentenceTransformer(folder, device="cpu").encode(SENTENCES)
    assert np.isfinite(trained).all() and not np.allclose(before, trained, atol=1e-6), name
    assert np.array_equal(again, trained), name
    return "trained"


if __name__ == "__main__":
    main()
