"""Checkpoints and models of commit 9c97ebd (``old_checkpoints/make.py``) still load, and train on as they would have."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from old_checkpoints import make
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from transformers import TrainerCallback

from sbert_plugins.training.loss_state import own_state

FOLDER = Path(make.__file__).parent
# Keywords that came later, at what the commit did.
SINCE = {
    "denosent": {"token_weights": None, "balance": None},
    "paser": {"token_weights": None, "normalize_memory": False},
    "slt-fai": {"balance": None},
    "slt-fai-consert": {"balance": None},
}


def expected(method):
    return json.loads((FOLDER / method / "expected.json").read_text(encoding="utf-8"))


class _State(TrainerCallback):
    """Copies encoder and what the loss owns as they are when the first update begins."""

    def __init__(self, model, loss):
        self.model, self.loss, self.found = model, loss, []

    def on_step_begin(self, args, state, control, **_):
        states = self.model[0].model.state_dict(), own_state(self.loss, self.model)
        self.found.append([{name: tensor.detach().clone() for name, tensor in state.items()} for state in states])


@pytest.mark.parametrize("method", make.METHODS)
class TestWrittenBy9c97ebd:
    @pytest.mark.parametrize("name", ["model", "checkpoint-2"])
    def test_is_a_plain_model(self, method, name):
        model = SentenceTransformer(str(FOLDER / method / name), device="cpu")
        vectors = np.array(expected(method)["vectors"][name])
        assert np.abs(model.encode(make.TEXTS[: len(vectors)]) - vectors).max() < 1e-6

    def test_trains_on(self, method, tmp_path):
        """From what the checkpoint holds, bit for bit, over the same terms to the same weights."""
        checkpoint = shutil.copytree(FOLDER / method / "checkpoint-2", tmp_path / "checkpoint-2")
        build, dataset = make.METHODS[method]
        model = SentenceTransformer(str(checkpoint), device="cpu")
        torch.manual_seed(99)
        for parameter in model.parameters():  # a resumed training owes nothing to the encoder that it is given
            torch.nn.init.normal_(parameter)
        loss = build(model, **SINCE.get(method, {}))
        trainer, seen = make.make_trainer(tmp_path, model, loss, dataset())
        state = _State(model, loss)
        trainer.add_callback(state)
        trainer.train(resume_from_checkpoint=True)

        ((encoder, own),) = state.found
        for found, file in ((encoder, "model.safetensors"), (own, "loss_state.safetensors")):
            saved = load_file(checkpoint / file)
            assert found.keys() == saved.keys()
            assert all(torch.equal(found[name], saved[name]) for name in saved)
        assert seen == [pytest.approx(expected(method)["third update"], rel=1e-5)]
        ends = (model[0].model.state_dict(), "model/model"), (own_state(loss, model), "own")
        for found, file in ends:
            saved = load_file(FOLDER / method / f"{file}.safetensors")
            assert max((found[name].float() - saved[name].float()).abs().max() for name in saved) < 1e-6
