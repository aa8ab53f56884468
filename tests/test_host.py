"""Every reach into another library fails with the version that is needed where its target is gone."""

import ast
import inspect
import random
from pathlib import Path

import numpy as np
import pytest
import sentence_transformers
import torch
import transformers
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from datasets import Dataset
from nltk.corpus.reader.wordnet import WordNetCorpusReader
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Transformer
from transformers import modeling_layers

import sbert_plugins
from sbert_plugins import host, training

ROOT = Path(sbert_plugins.__file__).parent


class Bare:
    """Has nothing of what is reached for."""


@pytest.mark.parametrize(
    ("owner", "name", "reach", "needs"),
    [
        (SentenceTransformer, "encode_query", lambda: host.asked_of_encode("encode_query", model(), print, []), "sentence-t"),
        (
            transformers.AutoModelForMaskedLM,
            "_model_mapping",
            lambda: host.has_masked_language_model(None),
            "transformers>=5.3",
        ),
        (torch, "_foreach_mul", lambda: host.add_all([], [], torch.tensor(1.0)), "torch>=2.6"),
        (torch, "_foreach_add_", lambda: host.add_all([torch.ones(1)], [torch.ones(1)], torch.tensor(1.0)), "torch>=2.6"),
        (torch, "_foreach_copy_", lambda: host.copy_all([], []), "torch>=2.6"),
        (WordNetCorpusReader, "map_wn", lambda: host.wordnet_reader(None), "nltk>=3.9.1"),
        (WordNetCorpusReader, "_data_file", lambda: host.wordnet_reader(None), "nltk>=3.9.1"),
        (Bare, None, lambda: host.resolve_prompt(Bare(), None, None), "sentence-transformers>=6.2"),
        (Bare, None, lambda: host.forget_prompt_lengths(Bare()), "sentence-transformers>=6.2"),
        (Bare, None, lambda: host.count_changes(Bare()), "torch>=2.6"),
        (Bare, None, lambda: host.fingerprint(Bare()), "datasets>=4.0"),
        (modeling_layers, "GradientCheckpointingLayer", lambda: host.checkpointed_layers([]), "transformers>=5.3"),
        (Bare, None, lambda: host.checkpointing_by([Bare()], print).__enter__(), "transformers>=5.3"),
    ],
)
def test_what_is_gone_is_named(owner, name, reach, needs, monkeypatch):
    if name is not None:
        monkeypatch.delattr(owner, name)
    with pytest.raises(ImportError, match=f"needs {needs}.* is gone: run pip install"):
        reach()


def model():
    """Stands for a model without prompts."""
    bare = Bare()
    bare.prompts = {}
    return bare


def test_what_is_there_is_reached(tiny_encoder):
    encoder = tiny_encoder()
    encoder.prompts = {"query": "q: "}
    assert host.resolve_prompt(encoder, None, "query") == "q: "
    encoder[0]._prompt_length_mapping["q: "] = 3
    host.forget_prompt_lengths(encoder[0])
    assert encoder[0]._prompt_length_mapping == {}
    encoder.model_card_data._training_start_time = 1.0
    shown = {"training_time": "9.0 seconds", "evaluation_time": "3.0 seconds", "total_time": "12.0 seconds"}
    for seconds, evaluating, expected in ((12.0, 3.0, shown), (None, None, dict.fromkeys(shown))):
        with host.training_time_named(encoder, seconds, evaluating):
            assert encoder.model_card_data.get_training_duration_data() == expected
    asked = []
    host.asked_of_encode(
        "encode_query", encoder, lambda inputs, prompt_name=None, **_: asked.append((inputs, prompt_name)), ["a"]
    )
    assert asked == [(["a"], "query")]
    assert host.has_masked_language_model(encoder[0].model.config)
    tensor = torch.zeros(2)
    before = host.count_changes(tensor)
    host.add_all([tensor], [torch.ones(2)], torch.tensor(2.0))
    assert tensor.tolist() == [2, 2]
    host.copy_all([tensor], [torch.ones(2)])
    assert tensor.tolist() == [1.0, 1.0]
    assert host.count_changes(tensor) > before
    rows = Dataset.from_dict({"a": [1]})
    assert host.fingerprint(rows) == rows._fingerprint
    assert host.inside_compiled(encoder) is None
    assert host.inside_compiled(torch.compile(encoder)) is encoder
    assert isinstance(encoder[0], Transformer)


@pytest.fixture
def accelerator():
    """In bfloat16; what accelerate shares between all of a process is as before afterwards."""
    AcceleratorState._reset_state(reset_partial_state=True)
    yield Accelerator(cpu=True, mixed_precision="bf16")
    AcceleratorState._reset_state(reset_partial_state=True)


def test_marks_that_are_read_are_still_left(tiny_encoder, accelerator):
    """Without one, what reads it would take what was done for not done, without a word."""
    model = tiny_encoder()
    forward = model.forward
    assert not host.is_prepared(model)
    accelerator.prepare_model(model)
    assert host.is_prepared(model)
    assert model.forward != forward
    host.undo_preparation(model)
    assert not host.is_prepared(model)
    assert model.forward == forward
    assert hasattr(model.transformers_model.config, "_attn_implementation")


def test_modules_and_parameters_are_those_of_torch_in_their_order(tiny_encoder):
    """What stands twice comes once, where it stands first; what is left out (None) does not come."""
    shared, alone = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2, bias=False)
    inner = torch.nn.Sequential(alone, shared)
    inner.register_module("nothing", None)
    tied = torch.nn.Linear(2, 2)
    tied.weight = alone.weight
    for module in (torch.nn.ModuleList([shared, inner, tied, inner, shared]), shared, tiny_encoder()):
        assert host.modules_of(module) == list(module.modules())
        assert list(map(id, host.parameters_of(module))) == list(map(id, module.parameters()))


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("_save_checkpoint", ["self", "model", "trial"]),
        ("_checkpoint_push_skip_names", ["self", "checkpoint_folder"]),
        ("_load_from_checkpoint", ["self", "checkpoint_path"]),
        ("_clip_grad_norm", ["self", "model"]),
        ("_get_grad_norm", ["self", "model", "grad_norm"]),
        (
            "_run_epoch",
            [
                "self",
                "model",
                "epoch",
                "train_dataloader",
                "steps_in_epoch",
                "num_update_steps_per_epoch",
                "trial",
                "ignore_keys_for_eval",
                "start_time",
                "resume_from_checkpoint",
                "epochs_trained",
                "steps_trained_in_current_epoch",
            ],
        ),
    ],
)
def test_private_methods_of_the_trainer_are_where_they_were(name, parameters):
    theirs = sentence_transformers.SentenceTransformerTrainer
    hint = (
        f"sentence-transformers {sentence_transformers.__version__} with transformers {transformers.__version__} moved or "
        f"changed the trainer's {name}({', '.join(parameters)}): see ConnectedTrainer."
    )
    assert hasattr(theirs, name), hint
    assert list(inspect.signature(getattr(theirs, name)).parameters) == parameters, hint
    assert name in vars(host.ConnectedTrainer), f"{name} is no longer connected: take it off this list."


def test_no_other_private_method_of_the_trainer_is_overridden():
    theirs = sentence_transformers.SentenceTransformerTrainer
    both = vars(training.SentenceTransformerTrainer) | vars(host.ConnectedTrainer)
    ours = {name for name, value in both.items() if inspect.isfunction(value)}
    overridden = {name for name in ours if name.startswith("_") and not name.startswith("__") and hasattr(theirs, name)}
    assert overridden == set(host.TRAINER_METHODS)


def own_names(trees) -> set[str]:
    """Names that the package itself gives to a function, a class, an attribute or a variable."""
    names = set()
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.attr if isinstance(node, ast.Attribute) else node.id)
    return names


def private_reach(tree: ast.AST, own: set[str]) -> set[str]:
    """Private names of others that a file names: attributes, imports, and texts given to getattr and its like."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr", "setattr", "delattr"):
            found |= {argument.value for argument in node.args if isinstance(argument, ast.Constant)}
    found = {name for name in found if isinstance(name, str) and name.startswith("_") and not name.startswith("__")}
    return found - own - {"_SubParsersAction"}  # argparse has no public name for the type of add_subparsers()


def test_nothing_private_of_others_is_named_elsewhere():
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in ROOT.rglob("*.py") if path.name != "host.py"}
    own = own_names(trees.values())
    assert {str(path): reach for path, tree in trees.items() if (reach := private_reach(tree, own))} == {}


@pytest.mark.parametrize(
    "source", ["model._modules.clear()", "from torch import _foreach_add_", "getattr(model, '_orig_mod', None)"]
)
def test_a_private_reach_is_caught(source):
    assert private_reach(ast.parse(source), {"_own"})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("0.model.pooler.dense.weight", True),
        ("pooler.dense.bias", True),
        ("0.model.pooler.weight", True),  # of ALBERT, BigBird
        ("0.model.attention_pooler.weight", False),
        ("1.pooler.projection.weight", False),
    ],
)
def test_the_transformer_s_own_pooler(name, expected):
    assert host.is_of_pooler(name) is expected


def test_flash_attention_is_given_half_precision(tiny_encoder):
    encoder = tiny_encoder().transformers_model
    for asked, expected in (("sdpa", False), ("flash_attention_2", True)):
        encoder.config._attn_implementation = asked
        with host.half_for_flash(encoder):
            assert torch.is_autocast_enabled("cpu") is expected
        with torch.autocast("cpu", torch.float16), host.half_for_flash(encoder):
            assert torch.is_autocast_enabled("cpu")
            assert torch.get_autocast_dtype("cpu") == torch.float16


class Generator:
    """The module of a device whose draws are counted."""

    def __init__(self, *which):
        self.which, self.state = which, 0

    def get_rng_state(self, *which):
        assert which == self.which
        return torch.tensor(self.state)

    def set_rng_state(self, state, *which):
        assert which == self.which
        self.state = state.item()


@pytest.mark.parametrize("name", ["cuda:1", "xpu", "mps"])
def test_the_generator_of_a_device(monkeypatch, name):
    device = torch.device(name)
    generator = Generator(*([] if name == "mps" else [device]))
    monkeypatch.setattr(torch, device.type, generator)
    with pytest.raises(KeyError), host.kept_random_state(device):
        generator.state = 7
        raise KeyError
    assert generator.state == 0


@pytest.mark.parametrize("name", ["cpu", "xla:0"])
def test_a_device_without_a_generator_of_its_own(name):
    device = torch.device(name)
    assert host.generator_state(device) is None
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
    with host.kept_random_state(device):
        random.random()
        np.random.rand(1)  # noqa: NPY002
        torch.rand(1)
    assert before == (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())  # noqa: NPY002
