"""Each access to a private part of another library works, and raises with the needed version if it cannot."""

import inspect
import random
import re
from pathlib import Path

import numpy as np
import pytest
import rake_nltk
import sentence_transformers
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from datasets import Dataset
from encoders import SENTENCES
from nltk.corpus.reader.wordnet import WordNetCorpusReader
from transformers import modeling_layers

import sbert_plugins
from sbert_plugins import host


class Bare:
    """An object without private parts."""


@pytest.mark.parametrize(
    ("owner", "name", "access", "needs"),
    [
        (rake_nltk.Rake, "_generate_phrases", host._rake_scorer_class.__wrapped__, "rake-nltk>=1.0.6"),
        (WordNetCorpusReader, "_data_file", lambda: host.wordnet_reader(None), "nltk>=3.9.1"),
        (
            modeling_layers,
            "GradientCheckpointingLayer",
            lambda: host.checkpointed_layers([]),
            "transformers>=5.3",
        ),
        (None, None, lambda: host.checkpointing_by([Bare()], print).__enter__(), "transformers>=5.3"),
        (None, None, lambda: host.resolve_prompt(Bare(), None, None), "sentence-transformers>=6.2"),
        (None, None, lambda: host.forget_prompt_lengths(Bare()), "sentence-transformers>=6.2"),
        (None, None, lambda: host.count_changes(Bare()), "torch>=2.6"),
        (None, None, lambda: host.fingerprint(Bare()), "datasets>=4.0"),
    ],
)
def test_a_missing_part_raises_with_the_needed_version(owner, name, access, needs, monkeypatch):
    if owner is not None:
        monkeypatch.delattr(owner, name)
    with pytest.raises(ImportError, match=needs):
        access()


def test_the_parts_are_there(tiny_encoder):
    encoder, tensor = tiny_encoder(), torch.zeros(2)
    encoder.prompts = {"query": "q: "}
    assert host.resolve_prompt(encoder, None, "query") == "q: "
    encoder[0]._prompt_length_mapping["q: "] = 3
    host.forget_prompt_lengths(encoder[0])
    assert encoder[0]._prompt_length_mapping == {}
    before = host.count_changes(tensor)
    assert host.count_changes(tensor.add_(1)) > before
    assert host.fingerprint(Dataset.from_dict({"a": [1]}))
    assert host.inside_compiled(torch.compile(encoder)) is encoder


def test_marks_that_accelerate_leaves_on_a_model(tiny_encoder):
    model = tiny_encoder()
    before = model.forward, set(vars(model))
    AcceleratorState._reset_state(reset_partial_state=True)
    Accelerator(cpu=True, mixed_precision="bf16").prepare_model(model)
    AcceleratorState._reset_state(reset_partial_state=True)
    assert model.forward != before[0] and model._is_accelerate_prepared
    host.undo_preparation(model)
    assert (model.forward, set(vars(model))) == before


def test_adapters():
    # The layer has the names of PEFT, which need not be installed.
    layer = torch.nn.Linear(3, 3).requires_grad_(False)
    layer.lora_A, layer.lora_B = torch.nn.Linear(3, 2, bias=False), torch.nn.Linear(2, 3, bias=False)
    layer._disable_adapters = False
    assert not host.has_new_adapter(layer)
    torch.nn.init.zeros_(layer.lora_B.weight)
    assert host.has_new_adapter(layer)
    assert not host.has_new_adapter(torch.nn.Sequential(layer, torch.nn.Linear(3, 3)))  # trains other weights
    with host.adapter_off(torch.nn.Sequential(layer)):
        assert layer._disable_adapters
    assert not layer._disable_adapters


@pytest.mark.parametrize("name", host.TRAINER_METHODS)
def test_the_trainer_has_the_methods_that_ours_overrides(name):
    theirs = getattr(sentence_transformers.SentenceTransformerTrainer, name)
    own = inspect.signature(vars(host.ConnectedTrainer)[name]).parameters
    if "args" not in own:
        assert list(inspect.signature(theirs).parameters) == list(own)


class Generator:
    """The module of a device, whose state is a number."""

    state = 0

    def get_rng_state(self, *device):
        return torch.tensor(self.state)

    def set_rng_state(self, state, *device):
        self.state = state.item()


@pytest.mark.parametrize("name", ["cpu", "xla:0", "cuda:1", "mps"])
def test_random_states(monkeypatch, name):
    device, generator = torch.device(name), Generator()
    if name in ("cuda:1", "mps"):
        monkeypatch.setattr(torch, device.type, generator)
    assert (host.generator_state(device) is None) == (name in ("cpu", "xla:0"))
    expected = [random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()]  # noqa: NPY002
    with host.kept_random_state(device):
        random.random(), np.random.rand(1), torch.rand(1)  # noqa: NPY002
        generator.state = 7
    found = [random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()]  # noqa: NPY002
    assert found == expected and generator.state == (7 if name in ("cpu", "xla:0") else 0)


def test_attention_is_fused_again_after_the_block(tiny_encoder):
    model = tiny_encoder()
    found, expected = [], model.encode(SENTENCES)
    for enabled in (True, False):
        with host.eager_attention(model, enabled):
            found.append(model.transformers_model.config._attn_implementation)
            np.testing.assert_allclose(model.encode(SENTENCES), expected, atol=1e-5)
    assert [*found, model.transformers_model.config._attn_implementation] == ["eager", "sdpa", "sdpa"]


def test_no_other_file_names_private_parts():
    paths = [path for path in Path(sbert_plugins.__file__).parent.rglob("*.py") if path.name != "host.py"]
    code = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    read = (r"[\w)\]]\.(_(?!_)\w+)", r"attr\([^)]*?\"(_(?!_)\w+)\"", r"\bimport .*?\b(_(?!_)\w+)")
    written = (r"(?:def|class) (_\w+)", r"self\.(_\w+)[^=\n(]* = ")
    found, own = ({name for form in forms for name in re.findall(form, code)} for forms in (read, written))
    assert found - own <= {"_asdict", "_fields"}  # public parts of named tuples
