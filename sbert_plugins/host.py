"""Access to private parts of other libraries, one function each. No other file of the package names one.

Each docstring ends with the oldest version in which the private part was checked. If the part is missing, the
function raises ``ImportError`` with the version to install. Attributes that another library leaves on a model
may be missing for good reasons, so ``tests/test_host.py`` checks them instead.
"""

import os
import random
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from datasets import Dataset
from safetensors import SafetensorError
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from torch import Tensor, nn
from transformers import modeling_layers

TRAINER_METHODS = (
    "_clip_grad_norm",
    "_get_grad_norm",
    "_run_epoch",
    "_save_checkpoint",
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


# --- Trainer of sentence-transformers ---------------------------------------------------------------------


def require_trainer() -> None:
    """Raise ``ImportError`` if the trainer lacks a method that :class:`ConnectedTrainer` overrides.

    transformers 5.3 has all of them.
    """
    for name in TRAINER_METHODS:
        _reach(SentenceTransformerTrainer, name, "transformers>=5.3")


class ConnectedTrainer(SentenceTransformerTrainer):
    """A base class that connects private methods of sentence-transformers' trainer to public ones.

    The subclass defines

    - ``with_losses(model)``: returns the module whose gradients are clipped, and whose norm is logged,
      instead of the model's;
    - ``check_norm(norm)``: called with the gradient norm of each update;
    - ``is_over()``: returns whether no update is left. The trainer itself checks that only after an update;
    - ``finish_checkpoint(folder)``: called in each process when all files of a checkpoint are written, and
      before older checkpoints are deleted;
    - ``raise_write_error(folder, error)``: called if a file of a checkpoint cannot be written;
    - ``load_loss(folder)``: called before the encoder is loaded from a checkpoint;
    - ``files_kept_local``: the names of files that are not pushed to the Hub.
    """

    with_losses: Callable[[nn.Module], nn.Module]
    check_norm: Callable[[Tensor | float], None]
    is_over: Callable[[], bool]
    finish_checkpoint: Callable[[Path], None]
    raise_write_error: Callable[[Path, Exception], NoReturn]
    load_loss: Callable[[str], None]
    files_kept_local: frozenset[str]

    def _clip_grad_norm(self, model: nn.Module) -> Tensor:
        return super()._clip_grad_norm(self.with_losses(model))

    def _get_grad_norm(self, model: nn.Module, grad_norm: Tensor | float | None = None) -> Tensor | float:
        norm = super()._get_grad_norm(self.with_losses(model), grad_norm)
        self.check_norm(norm)
        return norm

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        if self.is_over():
            self.control.should_training_stop = True
        else:
            super()._run_epoch(*args, **kwargs)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        folder = Path(str(self.args.output_dir), f"checkpoint-{self.state.global_step}")
        state: Any = self.state
        write_state, is_written = state.save_to_json, False

        def write_state_and_finish(path: str) -> None:  # the trainer's state is the last file
            nonlocal is_written
            write_state(path)
            self.finish_checkpoint(folder)
            is_written = True

        state.save_to_json = write_state_and_finish
        try:
            super()._save_checkpoint(model, trial)
        except (OSError, RuntimeError, SafetensorError) as error:
            if not is_written:
                self.raise_write_error(folder, error)
            raise  # of a push to the Hub
        finally:
            del state.save_to_json
        if not self.args.should_save:
            self.finish_checkpoint(folder)

    def _load_from_checkpoint(self, checkpoint_path: str) -> None:  # type: ignore[override]
        self.load_loss(checkpoint_path)
        super()._load_from_checkpoint(checkpoint_path)

    def _checkpoint_push_skip_names(self, checkpoint_folder: str) -> set[str]:
        return super()._checkpoint_push_skip_names(checkpoint_folder) | self.files_kept_local


def undo_preparation(model: Any) -> None:
    """Remove what accelerate leaves on a model that it has prepared. accelerate 1.1.

    accelerate prepares a model once. A model prepared for an evaluation would later be trained without
    DistributedDataParallel, and a model trained in bfloat16 would keep computing in bfloat16.
    """
    vars(model).pop("_is_accelerate_prepared", None)
    # For mixed precision accelerate replaces forward by a wrapper, and keeps the old one here.
    if (original := vars(model).pop("_original_forward", None)) is not None:
        vars(model).pop("forward", None)
        if model.forward != original:  # the forward was an attribute of the model before
            model.forward = original


def leave_unprepared(trainer: Any) -> None:
    """Keep an evaluation outside of a training from preparing the model for good. transformers 5.3.

    transformers prepares the model for an evaluation if accelerate's list of models is empty, and a training
    clears that list.
    """
    if not trainer.accelerator._models:
        trainer.accelerator._models.append(trainer.model)


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
    before: list[tuple[Any, Callable[..., Any]]] = [
        (layer, _reach(layer, "_gradient_checkpointing_func", "transformers>=5.3")) for layer in layers
    ]

    def checkpoint_around(
        layer: Any, checkpoint: Callable[..., Any], run: Callable[..., Any], *inputs: Any
    ) -> Any:
        return checkpoint(partial(around, layer, run), *inputs)

    try:
        for layer, checkpoint in before:
            layer._gradient_checkpointing_func = partial(checkpoint_around, layer, checkpoint)
        yield
    finally:
        for layer, checkpoint in before:
            layer._gradient_checkpointing_func = checkpoint


def half_for_flash(encoder: nn.Module | None) -> AbstractContextManager[Any]:
    """Return an autocast to bfloat16 for an encoder with flash attention, which rejects float32.

    Other encoders, and an autocast that is already on, stay as they are. transformers 5.3.
    """
    config = getattr(encoder, "config", None)
    if encoder is not None and "flash" in (getattr(config, "_attn_implementation", None) or ""):
        device = next(encoder.parameters()).device.type
        if not torch.is_autocast_enabled(device):
            return torch.autocast(device, dtype=torch.bfloat16)
    return nullcontext()


def has_fast_bf16(device: torch.device) -> bool:
    """Return whether bfloat16 mixed precision is faster than float32 on a device.

    On a processor these are the instruction sets AMX and AVX512-BF16, about which torch has no public
    question.
    """
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported()
    names = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    return device.type == "cpu" and any(getattr(torch.cpu, name, bool)() for name in names)


def autocast_bf16(device: torch.device, enabled: bool | None = None) -> Any:
    """Compute in bfloat16 mixed precision inside the context; by default where it is faster."""
    enabled = has_fast_bf16(device) if enabled is None else enabled
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled)


@contextmanager
def eager_attention(model: SentenceTransformer, enabled: bool) -> Iterator[None]:
    """Replace torch's fused attention by plain operations inside the block, if enabled.

    In bfloat16 on a processor, the backward pass of the fused attention is slow. Without it, a training step
    takes a third less time on 32 tokens, and a tenth less on 128. In float32 it is the faster one
    (torch 2.13).
    """
    encoder: Any = model.transformers_model
    config = getattr(encoder, "config", None)
    if not enabled or getattr(config, "_attn_implementation", None) != "sdpa":
        yield
        return
    encoder.set_attn_implementation("eager")
    try:
        yield
    finally:
        encoder.set_attn_implementation("sdpa")


def has_new_adapter(model: nn.Module) -> bool:
    """Return whether a model trains LoRA adapters only, which do not change its outputs yet. peft 0.21."""
    trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    # Of the two factors of an adapter, one starts at 0.
    zeros = [weight for name, weight in trained.items() if re.search(r"lora_B|lora_embedding_A", name)]
    return bool(zeros) and all("lora_" in name for name in trained) and not any(each.any() for each in zeros)


@contextmanager
def adapter_off(model: nn.Module) -> Iterator[None]:
    """Switch the adapters of a model off inside the block. peft 0.21.

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
    read = getattr(getattr(torch, device.type, None), "get_rng_state", None)
    if device.type == "cpu" or read is None:
        return None
    return read() if device.type == "mps" else read(device)


def random_state(device: torch.device) -> tuple[Any, ...]:
    """Return the states of the generators of Python, numpy, torch and a device."""
    # Other libraries draw from numpy's old global generator.
    return random.getstate(), np.random.get_state(), torch.get_rng_state(), generator_state(device)  # noqa: NPY002


def set_random_state(device: torch.device, state: tuple[Any, ...]) -> None:
    """Set the generators to a state from :func:`random_state`."""
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


# --- datasets, rake-nltk and NLTK --------------------------------------------------------------------------


def fingerprint(dataset: Dataset) -> str:
    """Return the fingerprint by which datasets identifies a dataset. It reads no rows. datasets 4.0."""
    return _reach(dataset, "_fingerprint", "datasets>=4.0")


@cache
def _rake_scorer_class() -> type:
    import rake_nltk

    for name in ("_generate_phrases", "_build_word_co_occurance_graph"):
        _reach(rake_nltk.Rake, name, "rake-nltk>=1.0.6")

    class Scorer(rake_nltk.Rake):
        def _generate_phrases(self, sentences: list[list[str]]) -> list[list[str]]:
            return sentences

        def _build_word_co_occurance_graph(self, phrase_list: list[list[str]]) -> None:
            # The row sums of the graph. The graph itself would grow with the square of a phrase's length.
            self.degree: dict[str, int] = {}
            for phrase in phrase_list:
                for word in phrase:
                    self.degree[word] = self.degree.get(word, 0) + len(phrase)

    return Scorer


def rake_scorer() -> Any:
    """Build rake-nltk's scorer of phrases that are already separated, as lists of words. rake-nltk 1.0.6."""
    # With given stop words and tokenizers, rake-nltk needs no data of NLTK.
    return _rake_scorer_class()(
        stopwords={""}, punctuations={""}, sentence_tokenizer=list, word_tokenizer=list
    )


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
