"""Every reach into the insides of another library: one function each, no other file names anything private of theirs.

Each says what it reaches for and since when it is there, and fails with the version that is needed where it is gone. What is
not there where nothing was done either, marks that others leave at a model, cannot fail so: tests look whether they are still
left. Libraries are imported when a function is called, so that this file costs nothing to import.
"""

from __future__ import annotations

import json
import os
import random
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    import torch
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
    from torch import Tensor, nn

# For the type checker the class that follows in the order of bases, of which nothing may be imported here.
if TYPE_CHECKING:
    _TrainerBase = SentenceTransformerTrainer
else:
    _TrainerBase = object

_POOLER = re.compile(r"(^|\.)pooler\.(dense\.)?(weight|bias)$")  # of ALBERT and BigBird without dense
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
            f"sbert-plugins needs {needs}, got {package} {version(package)}, where {name} is gone: "
            f'run pip install "{needs}", or look for a newer sbert-plugins.'
        )
    return found


def is_of_pooler(name: str) -> bool:
    """Whether a weight is of the transformer's own pooler, which may be drawn at random: see :func:`reads_pooler`."""
    return _POOLER.search(name) is not None


def reads_pooler(model: nn.Module) -> bool:
    """Whether a model's vectors come from a transformer's own pooler, as few are set to do. sentence-transformers 6.2."""
    routes = [
        route
        for module in model.modules()
        for route in (getattr(module, "modality_config", None) or {}).values()
        if isinstance(route, dict)
    ]
    return any("pooler_output" in str(route.get("method_output_name")) for route in routes)


def require_trainer() -> None:
    """Refuse a host whose trainer would never call what :class:`ConnectedTrainer` connects.

    transformers has had ``_clip_grad_norm``, ``_get_grad_norm`` and ``_run_epoch`` since 5.3; the others are
    sentence-transformers' and transformers' own of every version in range.
    """
    import sentence_transformers
    import transformers

    if missing := [
        name
        for name in TRAINER_METHODS
        if not hasattr(sentence_transformers.SentenceTransformerTrainer, name)
    ]:
        raise ImportError(
            f"SentenceTransformerTrainer needs transformers>=5.3 and sentence-transformers>=6.2,<7, got "
            f"{transformers.__version__} and {sentence_transformers.__version__}, whose trainer has no {', '.join(missing)}: "
            'the loss\'s weights would not be clipped, or not saved. Run pip install "transformers>=5.3".'
        )


class ConnectedTrainer(_TrainerBase):
    """A base class, before sentence-transformers' trainer, that connects six of its private methods to public ones.

    The subclass defines

    - ``with_losses(model)``: returns the module whose gradients are clipped, and whose norm is logged, instead of the model's;
    - ``check_norm(norm)``: called with the gradient norm of each update;
    - ``is_over()``: returns whether no update is left. The Trainer itself checks that only after an update;
    - ``finish_checkpoint(folder)``: called in each process when all files of a checkpoint are written, and before older
      checkpoints are deleted;
    - ``raise_write_error(folder, error)``: called if a file of a checkpoint cannot be written;
    - ``load_loss(folder)``: called before the encoder is loaded from a checkpoint;
    - ``files_kept_local()``: returns names of files that are not pushed to the Hub.
    """

    with_losses: Callable[[nn.Module], nn.Module]
    check_norm: Callable[[Tensor | float], None]
    is_over: Callable[[], bool]
    finish_checkpoint: Callable[[Path], None]
    raise_write_error: Callable[[Path, Exception], NoReturn]
    load_loss: Callable[[str], None]
    files_kept_local: Callable[[], set[str]]

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
        from safetensors import SafetensorError

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
        return super()._checkpoint_push_skip_names(checkpoint_folder) | self.files_kept_local()


def resolve_prompt(model: SentenceTransformer, prompt: str | None, prompt_name: str | None) -> str:
    """Return the prompt that ``encode`` would put before a sentence. sentence-transformers 6.2."""
    return _reach(model, "_resolve_prompt", "sentence-transformers>=6.2")(prompt, prompt_name) or ""


def forget_prompt_lengths(transformer: nn.Module) -> None:
    """Have a Transformer count its prompts' tokens anew, by another tokenizer. sentence-transformers 6.2."""
    _reach(transformer, "_prompt_length_mapping", "sentence-transformers>=6.2").clear()


def asked_of_encode(
    method: str, model: SentenceTransformer, note: Callable[..., None], sentences: Sequence[str]
) -> None:
    """Call ``encode_query`` or ``encode_document`` of the host on a stand-in: ``note`` gets what ``encode`` would.

    They read nothing of the model but its prompts. sentence-transformers 6.2.
    """
    from sentence_transformers import SentenceTransformer

    stand_in = SimpleNamespace(prompts=model.prompts, encode=note)
    _reach(SentenceTransformer, method, "sentence-transformers>=6.2")(stand_in, sentences)


@contextmanager
def training_time_named(
    model: SentenceTransformer, seconds: float | None, evaluating: float | None
) -> Iterator[None]:
    """Have a model card that is written inside the block name these seconds, of which some evaluated; None for no duration.

    The host counts from the beginning of the training to the moment when the card is written. sentence-transformers 6.2.
    """
    from sentence_transformers.base.model_card import format_duration

    card = model.model_card_data
    parts: dict[str, str | None] = {"training_time": None, "evaluation_time": None, "total_time": None}
    if seconds is not None:
        if evaluating:
            parts |= {"evaluation_time": format_duration(evaluating), "total_time": format_duration(seconds)}
        parts["training_time"] = format_duration(seconds - (evaluating or 0))
    vars(card)["get_training_duration_data"] = lambda: parts
    try:
        yield
    finally:
        del vars(card)["get_training_duration_data"]


def tokenizer_state(tokenizer: Any) -> Any:
    """Return what a tokenizer is, without the padding and truncation of its last call."""
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if hasattr(backend, "to_str"):
        return {
            key: value
            for key, value in json.loads(backend.to_str()).items()
            if key not in ("truncation", "padding")
        }
    vocabulary = backend.get_vocab() if hasattr(backend, "get_vocab") else repr(backend)
    words = sorted(vocabulary.items()) if isinstance(vocabulary, dict) else vocabulary
    # Those of word vectors: a word that is left out, or lowered, is none of the vocabulary's.
    settings = {name: vars(backend)[name] for name in _OF_WORDS if name in getattr(backend, "__dict__", ())}
    if not settings:
        return words
    return {"words": words, **{name: sorted(x) if isinstance(x, set) else x for name, x in settings.items()}}


_OF_WORDS = ("stop_words", "do_lower_case", "ngram_separator", "max_ngram_length")


def revision_of(model: Any) -> str | None:
    """Return the revision on the Hub that the encoder of a SentenceTransformer was loaded from; None for a folder.

    transformers 5.3 notes the commit at the configuration, later ones nowhere; sentence-transformers 6.2 notes what it was
    asked for, and the commit where it was asked for nothing, beside the name.
    """
    config, card = model.transformers_model.config, getattr(model, "model_card_data", None)
    noted = card.base_model_revision if card is not None and card.base_model == config.name_or_path else None
    return getattr(config, "_commit_hash", None) or noted


def model_cache() -> str | None:
    """Return where SentenceTransformer keeps models of the Hub; None for where the Hub's own library does. 6.2."""
    return os.environ.get("SENTENCE_TRANSFORMERS_HOME")


def has_masked_language_model(config: Any) -> bool:
    """Whether transformers knows a masked-language-model head for a configuration. transformers 5.3."""
    from transformers import AutoModelForMaskedLM

    return type(config) in _reach(AutoModelForMaskedLM, "_model_mapping", "transformers>=5.3")


def inside_compiled(module: nn.Module) -> nn.Module | None:
    """Return the module that ``torch.compile`` has wrapped, None if it has not. torch 2.6."""
    return getattr(module, "_orig_mod", None)


def modules_of(module: nn.Module) -> list[nn.Module]:
    """Return what ``module.modules()`` gives, in its order, without their names: this runs in each step. torch 2.6."""
    found: dict[nn.Module, None] = {}
    waiting: list[nn.Module | None] = [module]
    while waiting:
        one = waiting.pop()
        if one is not None and one not in found:
            found[one] = None
            waiting += [*one._modules.values()][::-1]
    return list(found)


def parameters_of(module: nn.Module) -> list[nn.Parameter]:
    """Return what ``module.parameters()`` gives, in its order; see :func:`modules_of`. torch 2.6."""
    held = [
        parameter
        for one in modules_of(module)
        for parameter in one._parameters.values()
        if parameter is not None
    ]
    return list({id(parameter): parameter for parameter in held}.values())


def checkpointed_layers(modules: Sequence[nn.Module]) -> list[nn.Module]:
    """Return those that gradient checkpointing runs again in backward, in the mode that they have. transformers 5.3."""
    from transformers import modeling_layers

    kind = _reach(modeling_layers, "GradientCheckpointingLayer", "transformers>=5.3")
    return [one for one in modules if one.training and isinstance(one, kind) and one.gradient_checkpointing]


@contextmanager
def checkpointing_by(layers: Sequence[nn.Module], around: Callable[..., Any]) -> Iterator[None]:
    """Have a pass inside the block call ``around(layer, run, *inputs)`` for ``run(*inputs)`` of each checkpointed layer.

    It does so again in backward, wherever that is: ``around`` is what gives both runs the same mode. transformers 5.3.
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


def has_new_adapter(model: Any) -> bool:
    """Return whether a model computes what it computed without its LoRA adapter, and trains nothing else.

    A new adapter has matrices B of zeros. False if other weights are trained as well, because the model
    without the adapter then changes.
    """
    added = [parameter for name, parameter in model.named_parameters() if ".lora_B." in name]
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    is_new = bool(added) and not any(parameter.any() for parameter in added)
    return is_new and all(".lora_" in name for name in trained)


@contextmanager
def adapter_off(model: nn.Module) -> Iterator[None]:
    """Switch the adapters of a model off inside the block. peft 0.18.

    The layers are switched one by one, because transformers' ``disable_adapters`` checks for a version of
    PEFT, and its ``enable_adapters`` leaves some layers off. Both change which weights are trained.
    """
    from peft.tuners.tuners_utils import BaseTunerLayer

    layers = [module for module in modules_of(model) if isinstance(module, BaseTunerLayer)]
    trained = [(parameter, parameter.requires_grad) for parameter in parameters_of(model)]
    for layer in layers:
        layer.enable_adapters(enabled=False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(enabled=True)
        for parameter, requires_grad in trained:
            parameter.requires_grad_(requires_grad)


def generator_state(device: torch.device) -> Tensor | None:
    """Return the state of a device's generator; None for the CPU's, and where a device has none (XLA's is in its graph).

    In torch 2.6 the functions for Apple's GPU take no device.
    """
    import torch

    read = getattr(getattr(torch, device.type, None), "get_rng_state", None)
    if device.type == "cpu" or read is None:
        return None
    return read() if device.type == "mps" else read(device)


def set_generator_state(device: torch.device, state: Tensor | None) -> None:
    """Set it back to what :func:`generator_state` returned."""
    import torch

    if state is not None:
        getattr(torch, device.type).set_rng_state(*([state] if device.type == "mps" else [state, device]))


def random_state(device: torch.device) -> tuple[Any, ...]:
    """Return the states of Python's, numpy's and torch's generators, and of a device's."""
    import numpy as np
    import torch

    # numpy's old global generator, from which other libraries draw
    return random.getstate(), np.random.get_state(), torch.get_rng_state(), generator_state(device)  # noqa: NPY002


def set_random_state(device: torch.device, state: tuple[Any, ...]) -> None:
    """Set the generators back to what :func:`random_state` returned."""
    import numpy as np
    import torch

    of_python, of_numpy, of_torch, of_device = state
    random.setstate(of_python)
    np.random.set_state(of_numpy)  # noqa: NPY002
    torch.set_rng_state(of_torch)
    set_generator_state(device, of_device)


@contextmanager
def kept_random_state(device: torch.device) -> Iterator[None]:
    """Leave the generators as they were before the block, whatever is drawn inside."""
    state = random_state(device)
    try:
        yield
    finally:
        set_random_state(device, state)


def undo_preparation(model: Any) -> None:
    """Take off a model what accelerate leaves at one that it has prepared, the forward in mixed precision with it.

    accelerate prepares no model twice: one that was evaluated, with all processes alone, is not wrapped for a training in
    DistributedDataParallel, and one that was trained in bfloat16 goes on computing in it. accelerate 1.1.
    """
    vars(model).pop("_is_accelerate_prepared", None)
    original = vars(model).pop("_original_forward", None)
    if original is None:
        return
    vars(model).pop("forward", None)
    if model.forward != original:  # somebody had put another one there
        model.forward = original


def leave_unprepared(trainer: Any) -> None:
    """Have an evaluation outside of a training take the model as it is. transformers 5.3 prepares it, for good, if none is."""
    models = trainer.accelerator._models
    if not models:
        models.append(trainer.model)  # a training forgets it


def is_prepared(model: Any) -> bool:
    """Whether accelerate takes a model, not what it was wrapped in, for prepared. accelerate 1.1."""
    return getattr(model, "_is_accelerate_prepared", False)


def half_for_flash(encoder: nn.Module | None) -> AbstractContextManager[Any]:
    """Compute in bfloat16 where an encoder asks for flash attention, which takes no float32. transformers 5.3."""
    import torch

    asked = getattr(getattr(encoder, "config", None), "_attn_implementation", None) or ""
    if encoder is None or "flash" not in asked:
        return nullcontext()
    device = next(encoder.parameters()).device.type
    if torch.is_autocast_enabled(device):
        return nullcontext()
    return torch.autocast(device, dtype=torch.bfloat16)


def count_changes(tensor: Tensor) -> int:
    """Return how often a tensor was changed in place, so that none is missed. torch 2.6."""
    return _reach(tensor, "_version", "torch>=2.6")


def add_all(tensors: list[Tensor], others: list[Tensor], factor: Tensor) -> None:
    """Add the others, times a factor, to the tensors in place, all in two calls. torch 2.6."""
    import torch

    scaled = _reach(torch, "_foreach_mul", "torch>=2.6")(others, factor)
    _reach(torch, "_foreach_add_", "torch>=2.6")(tensors, scaled)


def copy_all(tensors: list[Tensor], others: list[Tensor]) -> None:
    """Overwrite the tensors with the others, all in one call. torch 2.6."""
    import torch

    _reach(torch, "_foreach_copy_", "torch>=2.6")(tensors, others)


def fingerprint(dataset: Dataset) -> str:
    """Return what datasets knows a dataset by, without reading its rows. datasets 4.0."""
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
            # The row sums of the graph, without the graph, whose size is the square of a phrase's length.
            self.degree: dict[str, int] = {}
            for phrase in phrase_list:
                for word in phrase:
                    self.degree[word] = self.degree.get(word, 0) + len(phrase)

    return Scorer


def rake_scorer() -> Any:
    """Build rake-nltk's scorer for phrases that are cut already, as lists of words. rake-nltk 1.0.6."""
    # With stop words and tokenizers given, rake-nltk needs no data of NLTK.
    return _rake_scorer_class()(
        stopwords={""}, punctuations={""}, sentence_tokenizer=list, word_tokenizer=list
    )


def wordnet_reader(place: Any) -> Any:
    """Open an English WordNet without the map from its other versions, which takes half of the time. nltk 3.9.1.

    Only the data of other languages are read by that map; its file, index.sense, need not be there. Processes that are forked
    from this one share the index.
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
            # In an open file that a forked process shares, each would move the place where the other reads.
            if self.opener != os.getpid():
                self.opener, self._data_file_map = os.getpid(), {}
            return super()._data_file(pos)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there are no other languages
        return English(place, None)
