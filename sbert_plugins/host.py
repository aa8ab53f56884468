"""Access to private parts of other libraries, one function each. No other file of the package names one.

Each docstring ends with the version in which the private part was checked first. If it is missing, the
function raises ``ImportError`` with the version to install. Marks that another library leaves on a model may
be missing for good reasons; ``tests/test_host.py`` checks that they are still left. Libraries are imported
inside the functions, so that this file imports quickly.
"""

from __future__ import annotations

import os
import random
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import torch
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
    from torch import Tensor, nn

_Trainer = TypeVar("_Trainer", bound="SentenceTransformerTrainer")

_POOLER = re.compile(r"(^|\.)pooler\.(dense\.)?(weight|bias)$")  # ALBERT and BigBird have no dense layer
TRAINER_METHODS = (
    "_clip_grad_norm",
    "_get_grad_norm",
    "_run_epoch",
    "_save_rng_state",
    "_load_best_model",
    "_load_from_checkpoint",
    "_checkpoint_push_skip_names",
)


def _reach(owner: Any, name: str, needs: str) -> Any:
    if (found := getattr(owner, name, None)) is None:
        package = needs.partition(">")[0]
        raise ImportError(
            f"sbert-plugins needs {needs}, but {package} {version(package)} has no {name}. "
            f'Run pip install "{needs}", or look for a newer sbert-plugins.'
        )
    return found


def is_of_pooler(name: str) -> bool:
    """Return whether a weight belongs to a transformer's own pooler, which few models read.

    Checkpoints often lack it, and transformers then starts it from random weights.
    """
    return _POOLER.search(name) is not None


# --- Trainer of sentence-transformers ---------------------------------------------------------------------


def require_trainer() -> None:
    """Raise ``ImportError`` if the trainer lacks a method that :func:`connect_trainer` overrides.

    transformers 5.3 has all of them.
    """
    import sentence_transformers
    import transformers

    trainer = sentence_transformers.SentenceTransformerTrainer
    if missing := [name for name in TRAINER_METHODS if not hasattr(trainer, name)]:
        raise ImportError(
            "SentenceTransformerTrainer needs transformers>=5.3 and sentence-transformers>=6.2,<7. "
            f"The trainer of {transformers.__version__} and {sentence_transformers.__version__} has no "
            f'{", ".join(missing)}: run pip install "transformers>=5.3".'
        )


def connect_trainer(trainer: type[_Trainer]) -> type[_Trainer]:
    """Let the host's trainer ask a subclass at five places that it has for itself alone; to decorate the subclass.

    The subclass defines

    - ``clipped(model)``: the module whose gradients are clipped, and whose norm is logged, in the place of the model;
    - ``see_norm(norm)``: told the norm of each update;
    - ``finish_checkpoint(folder)``: called when the host has written a checkpoint;
    - ``is_over()``: whether a training that is resumed has nothing left to do;
    - ``files_kept_here()``: names of files that are not pushed to the Hub.

    The host looks at ``max_steps``, and whether early stopping has stopped it, after an update alone: one more would be made.
    """

    def _clip_grad_norm(self: Any, model: nn.Module) -> Tensor:
        return super(trainer, self)._clip_grad_norm(self.clipped(model))

    def _get_grad_norm(self: Any, model: nn.Module, grad_norm: Tensor | float | None = None) -> Tensor | float:
        norm = super(trainer, self)._get_grad_norm(self.clipped(model), grad_norm)
        self.see_norm(norm)
        return norm

    def _run_epoch(self: Any, *args: Any, **kwargs: Any) -> None:
        if self.is_over():
            self.control.should_training_stop = True
        else:
            super(trainer, self)._run_epoch(*args, **kwargs)

    def _save_rng_state(self: Any, output_dir: str) -> None:  # what the host writes last
        super(trainer, self)._save_rng_state(output_dir)
        self.finish_checkpoint(output_dir)

    def _checkpoint_push_skip_names(self: Any, checkpoint_folder: str) -> set[str]:
        return super(trainer, self)._checkpoint_push_skip_names(checkpoint_folder) | self.files_kept_here()

    for method in (_clip_grad_norm, _get_grad_norm, _run_epoch, _save_rng_state, _checkpoint_push_skip_names):
        setattr(trainer, method.__name__, method)
    return trainer


def tell_of_a_lost_best(trainer: type[_Trainer]) -> type[_Trainer]:
    """Let the host's trainer say that it could not load the best checkpoint, which it logs alone; to decorate a subclass.

    The subclass defines ``refuse_the_last_for_the_best(error)``.
    """

    def _load_best_model(self: Any) -> None:
        self.why_not_loaded = None
        super(trainer, self)._load_best_model()
        if self.why_not_loaded is not None:
            self.refuse_the_last_for_the_best(self.why_not_loaded)

    def _load_from_checkpoint(self: Any, checkpoint_path: str) -> None:
        try:
            super(trainer, self)._load_from_checkpoint(checkpoint_path)
        except Exception as error:
            self.why_not_loaded = error
            raise

    for method in (_load_best_model, _load_from_checkpoint):
        setattr(trainer, method.__name__, method)
    return trainer


def undo_preparation(model: Any) -> None:
    """Remove what accelerate leaves on a model that it has prepared. accelerate 1.1.

    accelerate prepares a model once. A model prepared for an evaluation would later be trained without
    DistributedDataParallel, and a model trained in bfloat16 would keep computing in bfloat16.
    """
    vars(model).pop("_is_accelerate_prepared", None)
    original = vars(model).pop("_original_forward", None)
    if original is None:
        return
    vars(model).pop("forward", None)
    if model.forward != original:  # the forward was an attribute of the model before
        model.forward = original


def leave_unprepared(trainer: Any) -> None:
    """Keep an evaluation outside of a training from preparing the model for good. transformers 5.3."""
    if not trainer.accelerator._models:
        trainer.accelerator._models.append(trainer.model)  # a training clears this list


# --- Models and tokenizers of sentence-transformers -------------------------------------------------------


def resolve_prompt(model: SentenceTransformer, prompt: str | None, prompt_name: str | None) -> str:
    """Return the prompt that ``encode`` puts before a text. sentence-transformers 6.2."""
    return _reach(model, "_resolve_prompt", "sentence-transformers>=6.2")(prompt, prompt_name) or ""


def forget_prompt_lengths(transformer: nn.Module) -> None:
    """Clear the token counts of prompts, after a change of the tokenizer. sentence-transformers 6.2."""
    _reach(transformer, "_prompt_length_mapping", "sentence-transformers>=6.2").clear()


def revision_of(model: Any) -> str | None:
    """Return the Hub revision that a model's encoder was loaded from. None for a folder.

    transformers 5.3 notes the commit in the configuration, later versions nowhere. sentence-transformers 6.2
    notes the requested revision, or the commit if none was requested, next to the name.
    """
    config, card = model.transformers_model.config, getattr(model, "model_card_data", None)
    noted = card.base_model_revision if card is not None and card.base_model == config.name_or_path else None
    return getattr(config, "_commit_hash", None) or noted


def model_cache() -> str | None:
    """Return the folder of downloaded models, None for huggingface_hub's. sentence-transformers 6.2."""
    return os.environ.get("SENTENCE_TRANSFORMERS_HOME")


# --- transformers and PEFT --------------------------------------------------------------------------------


def checkpointed_layers(modules: Sequence[nn.Module]) -> list[nn.Module]:
    """Return the modules that gradient checkpointing runs again in the backward pass. transformers 5.3."""
    from transformers import modeling_layers

    kind = _reach(modeling_layers, "GradientCheckpointingLayer", "transformers>=5.3")
    return [
        each for each in modules if each.training and isinstance(each, kind) and each.gradient_checkpointing
    ]


@contextmanager
def checkpointing_by(layers: Sequence[nn.Module], around: Callable[..., Any]) -> Iterator[None]:
    """Call ``around(layer, run, *inputs)`` instead of ``run(*inputs)`` for each checkpointed layer.

    A layer that is run inside the block runs again in its backward pass, wherever that is, and ``around`` is
    called again. It can therefore give both runs the same mode. transformers 5.3.
    """
    before = [(layer, _reach(layer, "_gradient_checkpointing_func", "transformers>=5.3")) for layer in layers]

    def checkpointing(layer: nn.Module, checkpoint: Callable[..., Any]) -> Any:
        return lambda run, *inputs: checkpoint(partial(around, layer, run), *inputs)

    try:
        for layer, checkpoint in before:
            layer._gradient_checkpointing_func = checkpointing(layer, checkpoint)
        yield
    finally:
        for layer, checkpoint in before:
            layer._gradient_checkpointing_func = checkpoint


def half_for_flash(encoder: nn.Module | None) -> AbstractContextManager[Any]:
    """Return an autocast to bfloat16 for an encoder with flash attention, which rejects float32.

    Other encoders, and an autocast that is already on, stay as they are. transformers 5.3.
    """
    import torch

    config = getattr(encoder, "config", None)
    if encoder is not None and "flash" in (getattr(config, "_attn_implementation", None) or ""):
        device = next(encoder.parameters()).device.type
        if not torch.is_autocast_enabled(device):
            return torch.autocast(device, dtype=torch.bfloat16)
    return nullcontext()


def has_new_adapter(model: nn.Module) -> bool:
    """Return whether a model trains LoRA adapters only, which do not change its outputs yet. peft 0.18."""
    trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    # Of the two factors of an adapter, one starts at 0.
    zeros = [weight for name, weight in trained.items() if re.search(r"lora_B|lora_embedding_A", name)]
    return bool(zeros) and all("lora_" in name for name in trained) and not any(each.any() for each in zeros)


@contextmanager
def adapter_off(model: nn.Module) -> Iterator[None]:
    """Switch the adapters of a model off inside the block. peft 0.18.

    PEFT's own method also changes which weights are trained.
    """
    layers: list[Any] = [each for each in model.modules() if hasattr(each, "_disable_adapters")]
    before = [layer._disable_adapters for layer in layers]
    try:
        for layer in layers:
            layer._disable_adapters = True
        yield
    finally:
        for layer, value in zip(layers, before, strict=True):
            layer._disable_adapters = value


# --- torch ------------------------------------------------------------------------------------------------


def inside_compiled(module: nn.Module) -> nn.Module | None:
    """Return the module that ``torch.compile`` has wrapped, or None. torch 2.6."""
    return getattr(module, "_orig_mod", None)


def generator_state(device: torch.device) -> Tensor | None:
    """Return the state of a device's random generator.

    It is None for the CPU, and for devices without a generator (XLA's is in its graph). In torch 2.6 the
    functions for Apple's GPU take no device.
    """
    import torch

    read = getattr(getattr(torch, device.type, None), "get_rng_state", None)
    if device.type == "cpu" or read is None:
        return None
    return read() if device.type == "mps" else read(device)


def random_state(device: torch.device) -> tuple[Any, ...]:
    """Return the states of the generators of Python, numpy, torch and a device."""
    import numpy as np
    import torch

    # Other libraries draw from numpy's old global generator.
    return random.getstate(), np.random.get_state(), torch.get_rng_state(), generator_state(device)  # noqa: NPY002


def set_random_state(device: torch.device, state: tuple[Any, ...]) -> None:
    """Set the generators to a state from :func:`random_state`."""
    import numpy as np
    import torch

    random.setstate(state[0])
    np.random.set_state(state[1])  # noqa: NPY002
    torch.set_rng_state(state[2])
    if state[3] is not None:
        getattr(torch, device.type).set_rng_state(state[3], *([] if device.type == "mps" else [device]))


@contextmanager
def kept_random_state(device: torch.device) -> Iterator[None]:
    """Set the generators back at the end of the block."""
    state = random_state(device)
    try:
        yield
    finally:
        set_random_state(device, state)


def count_changes(tensor: Tensor) -> int:
    """Return how often a tensor was changed in place. torch 2.6."""
    return _reach(tensor, "_version", "torch>=2.6")


def add_all(tensors: list[Tensor], others: list[Tensor], factor: Tensor) -> None:
    """Add ``factor * other`` to each tensor in place, in two calls for all of them. torch 2.6."""
    import torch

    scaled = _reach(torch, "_foreach_mul", "torch>=2.6")(others, factor)
    _reach(torch, "_foreach_add_", "torch>=2.6")(tensors, scaled)


def copy_all(tensors: list[Tensor], others: list[Tensor]) -> None:
    """Overwrite each tensor, in one call for all of them. torch 2.6."""
    import torch

    _reach(torch, "_foreach_copy_", "torch>=2.6")(tensors, others)


# --- datasets and NLTK ------------------------------------------------------------------------------------


def fingerprint(dataset: Dataset) -> str:
    """Return the fingerprint by which datasets identifies a dataset. It reads no rows. datasets 4.0."""
    return _reach(dataset, "_fingerprint", "datasets>=4.0")


def wordnet_reader(place: Any) -> Any:
    """Open an English WordNet in half of the usual time. nltk 3.9.1.

    It leaves out the map to other versions of WordNet, which only data of other languages need, and which
    needs the file ``index.sense``. Forked processes share the index.
    """
    from nltk.corpus.reader.wordnet import WordNetCorpusReader

    for name in ("map_wn", "_data_file"):
        _reach(WordNetCorpusReader, name, "nltk>=3.9.1")

    class English(WordNetCorpusReader):
        opener = os.getpid()
        _data_file_map: dict[str, Any]

        def map_wn(self, version: str = "wordnet") -> None:
            return None

        def _data_file(self, pos: str) -> Any:
            # Processes that share an open file also share its position. Each must open its own.
            if self.opener != os.getpid():
                self.opener, self._data_file_map = os.getpid(), {}
            return super()._data_file(pos)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NLTK warns that there are no other languages
        return English(place, None)


def __getattr__(name: str) -> Any:
    """Return what only rooms use that are about to be replaced. Temporary, as is contract.py."""
    from sbert_plugins import contract

    return getattr(contract, name)
