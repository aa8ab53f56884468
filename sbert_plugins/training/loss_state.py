"""What a loss owns (heads, decoders, queues, momentum copies), in files beside a checkpoint's encoder.

Works for any loss, also for those of sentence-transformers. Tensors are stored as safetensors, names as json, nothing as
pickle.
"""

from __future__ import annotations

import inspect
import json
import logging
import math
import re
from collections.abc import Iterator, Mapping, Set
from enum import Enum
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from sentence_transformers.util import get_world_size
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME

from sbert_plugins import host
from sbert_plugins.contract import keeps_its_mode

from .checkpoints import mark_complete, unmark_later
from .finite import DivergedError, not_finite

logger = logging.getLogger(__name__)

WEIGHTS_FILE = "loss_state.safetensors"
INDEX_FILE = "loss_state.json"

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_EXTRA_STATE = "_extra_state"  # torch's key of what get_extra_state returns

Losses = nn.Module | Mapping[str, nn.Module]


def named_losses(loss: Losses) -> dict[str, nn.Module]:
    """Return the losses by the name of their dataset; a single loss has the name ``""``."""
    return dict(loss) if isinstance(loss, Mapping) else {"": loss}


def own_state(loss: nn.Module, model: nn.Module) -> dict[str, Tensor]:
    """Return the parameters and persistent buffers that ``loss`` holds and ``model`` does not.

    Tensors are told apart by identity, so that weights tied to the encoder (an output layer that shares its embeddings) are
    left out, and weights tied within the loss appear once, under their first name. The tensors are the loss's own.
    """
    seen = {id(tensor) for tensor in (*model.parameters(), *model.buffers())}
    state = {}
    for name, tensor in loss.state_dict(keep_vars=True).items():
        if not isinstance(tensor, Tensor):
            raise TypeError(
                f"{type(loss).__name__} keeps {name} of type {type(tensor).__name__} in its state, which cannot be stored "
                "without pickle: hold it in a buffer."
            )
        if id(tensor) not in seen:
            seen.add(id(tensor))
            state[name] = tensor
    return state


def own_modules(loss: nn.Module, model: nn.Module) -> list[nn.Module]:
    """Return ``loss`` and its submodules, without those of ``model``, of other encoders and of frozen parts in eval mode."""
    of_model = {id(parameter) for parameter in model.parameters()}
    parts = (module for module in loss.modules() if module is not loss)
    others = [model, *(part for part in parts if keeps_its_mode(part, of_model=of_model))]
    theirs = {id(module) for other in others for module in other.modules()}
    return [module for module in loss.modules() if id(module) not in theirs]


def save_loss_state(loss: Losses, model: nn.Module, folder: str | Path) -> None:
    """Write the state of a loss, or of a dict of losses, into ``folder``, with its settings and the number of processes."""
    index: dict[str, Any] = {"format": 2, "processes": get_world_size(), "losses": {}}
    tensors: dict[str, Tensor] = {}
    for name, member in named_losses(loss).items():
        state = own_state(member, model)
        index["losses"][name] = {
            "class": type(member).__name__,
            "settings": plain_settings_of(member),
            "tensors": _describe(state),
        }
        # Copies: safetensors takes no views into shared storage.
        tensors |= {_stored(name, key): tensor.detach().cpu().contiguous().clone() for key, tensor in state.items()}
    save_file(tensors, Path(folder) / WEIGHTS_FILE)
    (Path(folder) / INDEX_FILE).write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")


def check_loss_state(loss: Losses, model: nn.Module, folder: str | Path) -> None:
    """Raise ``ValueError`` with the file and the mismatch unless ``folder`` holds the state of exactly this loss."""
    _read_loss_state(loss, model, folder)


@torch.no_grad()
def load_loss_state(loss: Losses, model: nn.Module, folder: str | Path) -> None:
    """Copy the state in ``folder`` into the loss.

    Raises:
        ValueError: With the file and the mismatch, unless ``folder`` holds the state of exactly this loss; nothing has been
            changed then.
    """
    saved = _read_loss_state(loss, model, folder)
    for name, member in named_losses(loss).items():
        for key, tensor in own_state(member, model).items():
            owner, _, last = key.rpartition(".")
            if last == _EXTRA_STATE:  # what get_extra_state made for this call
                member.get_submodule(owner).set_extra_state(saved[_stored(name, key)].to(tensor.device))
            else:
                tensor.copy_(saved[_stored(name, key)])


def _read_loss_state(loss: Losses, model: nn.Module, folder: str | Path) -> dict[str, Tensor]:
    """Return the tensors in ``folder`` by their stored names, checked against the index and the loss."""
    losses = named_losses(loss)
    states = {name: own_state(member, model) for name, member in losses.items()}
    index_file, weights_file = Path(folder) / INDEX_FILE, Path(folder) / WEIGHTS_FILE
    if not index_file.is_file():
        if any(states.values()):
            owners = ", ".join(type(losses[name]).__name__ for name, state in states.items() if state)
            raise ValueError(
                f"{index_file} does not exist, but {owners} owns weights: this checkpoint was written without them. "
                "Resuming would continue with fresh ones. Train anew, or resume with sentence-transformers' own trainer."
            )
        return {}
    saved = _read_index(index_file)["losses"]
    if set(saved) != set(losses):
        raise ValueError(f"{index_file} holds the losses {_names(saved)}, got {_names(losses)}.")
    for name, member in losses.items():
        if saved[name]["class"] != type(member).__name__:
            raise ValueError(f"{index_file} holds the state of {saved[name]['class']}, got {type(member).__name__}.")
        _check_tensors(saved[name]["tensors"], _describe(states[name]), index_file)
    tensors = _read_tensors(weights_file)
    # The file itself as well: copying would broadcast a tensor of another shape, and cast one of another dtype.
    expected = {_stored(name, key): tensor for name, state in states.items() for key, tensor in state.items()}
    _check_tensors(_describe(tensors), _describe(expected), weights_file)
    return tensors


def _read_index(file: Path) -> dict[str, Any]:
    try:
        index = json.loads(file.read_text(encoding="utf-8"))
        for entry in index["losses"].values():
            if not isinstance(entry["class"], str) or not isinstance(entry["tensors"], dict):
                raise TypeError("a loss has a class and tensors")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{file} is damaged ({error!r}): resume from another checkpoint.") from None
    return index


def _read_tensors(file: Path) -> dict[str, Tensor]:
    try:
        with safe_open(file, framework="pt") as opened:
            return {key: opened.get_tensor(key) for key in opened.keys()}  # noqa: SIM118  not a dict
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{file} is damaged or cut off ({error}): resume from another checkpoint.") from None


def plain_settings_of(loss: nn.Module) -> dict[str, Any]:
    """Return what a loss's ``get_config_dict`` says, in what json holds and two processes write alike."""
    settings = dict(getattr(loss, "get_config_dict", dict)())
    if isinstance(settings.get("loss"), str) and isinstance(getattr(loss, "loss", None), nn.Module):
        settings["loss"] = loss.loss  # the host's losses round a loss give its class alone
    return _plain(settings)


def check_settings(loss: Losses, folder: str | Path, *, allow_changed: bool = False) -> None:
    """Refuse to resume with settings of the loss, or a number of processes, that the checkpoint in ``folder`` has not.

    Args:
        loss: The loss, or dict of losses, that goes on.
        folder: The checkpoint. One without settings (an earlier version's) is taken with a note.
        allow_changed: Whether what differs is a warning.

    Raises:
        ValueError: With each setting that differs, its value in the checkpoint and the one given.
    """
    index_file = Path(folder) / INDEX_FILE
    if not index_file.is_file():  # check_loss_state says whether it may be missing
        return
    index = _read_index(index_file)
    if "processes" not in index:
        logger.warning("%s was written before settings were stored: they are not compared with those given.", index_file)
        return
    changed = _changes("processes", index["processes"], get_world_size())
    for name, member in named_losses(loss).items():
        saved = index["losses"].get(name, {})
        if saved.get("class") == type(member).__name__:  # else check_loss_state refuses it
            settings = plain_settings_of(member)
            before = _with_later(_plain(saved.get("settings", {})), settings, _defaults(member))
            if _changes(name, before, settings):
                settings = _settings_with(member, name, Path(folder) / WEIGHTS_FILE)
            changed += _changes(name, before, settings)
    if not changed:
        return
    found = f"{index_file} is of a training with {', '.join(changed)}"
    if not allow_changed:
        old = "start as many processes again" if index["processes"] != get_world_size() else "give the loss its old settings"
        raise ValueError(
            f"{found}. Resuming would go on with another one: {old}, or resume in a script with allow_changed_settings=True."
        )
    logger.warning("%s. It goes on with the new settings.", found)


def _settings_with(loss: nn.Module, name: str, weights_file: Path) -> dict[str, Any]:
    """Return the settings that a loss has while it holds a checkpoint's weights, for some losses say what they learned.

    The scale of the host's contrastive tension is such a one: in a checkpoint it is no longer what the loss was given.
    """
    saved = _read_tensors(weights_file)
    state = loss.state_dict(keep_vars=True)
    given = {key: state[key] for key in state if _fits(saved.get(_stored(name, key)), state[key])}
    values = {key: tensor.data for key, tensor in given.items()}
    try:
        for key, tensor in given.items():
            tensor.data = saved[_stored(name, key)].to(tensor.device)
        return plain_settings_of(loss)
    finally:
        for key, tensor in given.items():
            tensor.data = values[key]


def _fits(saved: Tensor | None, tensor: Any) -> bool:
    return saved is not None and isinstance(tensor, Tensor) and _describe({"": saved}) == _describe({"": tensor})


def mark_state_kept(loss: Losses) -> None:
    """Tell a loss, and the losses inside it, that somebody saves their state, so that they need not warn."""
    for module in _asking(loss, "state_is_kept"):
        module.state_is_kept = True


def begin_training(loss: Losses, steps: int, *, resumed: bool) -> None:
    """Tell a loss, and the losses inside it, that a training begins or goes on, where they ask.

    ``training_steps`` is set to the updates that all of it has, ``begin_training(resumed=...)`` is called: of a dict of losses
    one may be computed late, and counts from the first update on.
    """
    for module in _asking(loss, "begin_training"):
        if callable(module.begin_training):
            module.begin_training(steps=steps, resumed=resumed)


def follow_encoder(loss: Losses, model: nn.Module) -> None:
    """Put what scores words into the encoder's dtype, as its next forward would: ``model.bfloat16()`` may have come since."""
    _call(loss, "follow", model)


def require_same_model(loss: Losses, model: nn.Module) -> None:
    """Refuse a loss that was built round another model than the one that is trained.

    Raises:
        ValueError: If it holds nothing of ``model`` that learns. The optimizer has the weights that the loss holds when the
            training begins, and the host puts ``model`` into it at the first batch: what is saved would not have moved.
    """
    trained = {id(parameter) for parameter in model.parameters() if parameter.requires_grad}
    for name, member in named_losses(loss).items():
        held = {id(parameter) for parameter in member.parameters()}
        if trained and held and trained.isdisjoint(held):
            of = f" of {name!r}" if name else ""
            raise ValueError(
                f"{type(member).__name__}{of} must be built round the model that is trained, got one round another: what is "
                "saved would not have learned anything. Build the loss anew, round the model that the trainer gets."
            )


def require_processes_together(args: TrainingArguments) -> None:
    """Refuse processes of one group that would each train all rows for themselves: the host on CPUs, if nobody says so.

    Raises:
        ValueError: If the arguments know of fewer processes than the group has.
    """
    if get_world_size() > 1 and args.world_size != get_world_size():
        raise ValueError(
            f"the arguments must be of all {get_world_size()} processes, got {args.world_size} of which each would train for "
            "itself: without GPUs set use_cpu=True, or ACCELERATE_USE_CPU=true before torchrun."
        )


def take_out_of_ddp(loss: nn.Module, model: nn.Module) -> None:
    """Put ``model`` back where a training left it wrapped: the host puts the next wrapper in the place of a model alone.

    The old one averages the gradients of what was trained when it was made.
    """
    for part in list(loss.modules()):
        wrapper = getattr(part, "model", None)
        inside = set(wrapper.modules()) if isinstance(wrapper, nn.Module) else set()
        if wrapper is not model and model in inside and any(isinstance(each, DistributedDataParallel) for each in inside):
            part.model = model


def _call(loss: Losses, method: str, *args: Any, **keywords: Any) -> None:
    for module in _asking(loss, method):
        if callable(getattr(module, method)):  # somebody's own loss may call a setting so
            getattr(module, method)(*args, **keywords)


def _asking(loss: Losses, attribute: str) -> Iterator[Any]:
    for member in named_losses(loss).values():
        yield from (module for module in member.modules() if hasattr(module, attribute))


class LossStateCallback(TrainerCallback):
    """Saves and restores a loss's state with sentence-transformers' own trainer.

    Writes into each checkpoint after the trainer has, and restores when training resumes. Unlike
    :class:`~sbert_plugins.training.SentenceTransformerTrainer` it does not average gradients over ranks, does not clip the
    loss's weights, does not look for a torn checkpoint before it resumes, and leaves the loss's last weights where
    ``load_best_model_at_end`` restores the encoder. ``model.fit`` takes none.

    Args:
        loss: The loss, or dict of losses, that the trainer got.
        resume_from_checkpoint: The path given to ``trainer.train``; by default the checkpoint of the resumed step in the
            trainer's output directory.
        allow_changed_settings: Whether a resumed training may have other settings of the loss, or another number of
            processes, than its checkpoint: a warning instead of an error.

    Example:
        >>> from sentence_transformers import SentenceTransformerTrainer
        >>> from sbert_plugins import losses
        >>> from sbert_plugins.training import LossStateCallback
        >>> loss = losses.PTBERTLoss(model)
        >>> trainer = SentenceTransformerTrainer(
        ...     model=model, args=arguments, train_dataset=dataset, loss=loss, callbacks=[LossStateCallback(loss)]
        ... )
    """

    def __init__(
        self,
        loss: Losses,
        *,
        resume_from_checkpoint: str | Path | None = None,
        allow_changed_settings: bool = False,
    ) -> None:
        self.loss = loss
        self.resume_from_checkpoint = resume_from_checkpoint
        self.allow_changed_settings = allow_changed_settings
        mark_state_kept(loss)

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Tell the loss that the training begins, and its length; restore, where the trainer continues."""
        require_same_model(self.loss, kwargs["model"])
        require_processes_together(args)
        is_alone = host.is_prepared(kwargs["model"]) and not args.fsdp and not args.deepspeed
        if get_world_size() > 1 and is_alone and any(one.requires_grad for one in kwargs["model"].parameters()):
            raise ValueError(
                "the encoder must not be evaluated before it is trained in several processes: the host then leaves "
                "DistributedDataParallel out, and each process trains its own. Train first, or use "
                "sbert_plugins.training.SentenceTransformerTrainer."
            )
        if state.global_step > 0:
            folder = self.resume_from_checkpoint or self._folder(args, state)
            self._require_same_training(Path(folder), state)
            check_settings(self.loss, folder, allow_changed=self.allow_changed_settings)
            follow_encoder(self.loss, kwargs["model"])
            load_loss_state(self.loss, kwargs["model"], folder)
        begin_training(self.loss, state.max_steps, resumed=state.global_step > 0)
        # Checkpoints of an earlier run that this one will write again may not count as whole while it does.
        if args.should_save:
            unmark_later(self._folder(args, state).parent, state.global_step)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Add the loss's files to the checkpoint that was just written, unless it must not be resumed."""
        if bad := [name for member in named_losses(self.loss).values() for name in not_finite(member)]:
            raise DivergedError(
                f"after update {state.global_step} {len(bad)} weights are not finite ({bad[0]}, ...): the training stopped. "
                f"Do not use {self._folder(args, state)}; lower learning_rate, and resume from an earlier checkpoint."
            )
        if args.should_save:
            save_loss_state(self.loss, kwargs["model"], self._folder(args, state))
            if not args.save_only_model:  # without an optimizer no training goes on from it
                mark_complete(self._folder(args, state), state.global_step)

    @staticmethod
    def _require_same_training(folder: Path, state: TrainerState) -> None:
        """Refuse the checkpoint of another training that has made as many updates: its log is another."""
        file = folder / TRAINER_STATE_NAME
        log = json.loads(file.read_text(encoding="utf-8"))["log_history"] if file.is_file() else state.log_history
        if log != state.log_history:
            raise ValueError(
                f"{folder} is not the checkpoint that the trainer resumes from, by its log: pass the path that "
                "trainer.train(resume_from_checkpoint=...) gets, LossStateCallback(loss, resume_from_checkpoint=...)."
            )

    @staticmethod
    def _folder(args: TrainingArguments, state: TrainerState) -> Path:
        assert args.output_dir is not None  # the arguments fill it in
        return Path(args.output_dir, f"checkpoint-{state.global_step}")


def _stored(name: str, key: str) -> str:
    return f"{name}/{key}" if name else key


def _describe(state: Mapping[str, Tensor]) -> dict[str, list]:
    return {key: [str(tensor.dtype).removeprefix("torch."), list(tensor.shape)] for key, tensor in state.items()}


def _plain(value: Any) -> Any:
    """Return a setting as json would give it back; what json has not by a name that does not change from run to run."""
    if isinstance(value, nn.Module):
        return {"class": type(value).__name__, "settings": plain_settings_of(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, Set):
        return sorted(map(str, value))
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if hasattr(value, "tolist"):  # of numpy and torch
        return _plain(value.tolist())
    if isinstance(value, Enum | Path):
        return str(value)
    if isinstance(value, str):
        return _ADDRESS.sub("", value)  # a repr's
    if value is None or isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, float):
        return str(value)
    named = value if callable(value) and hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"


def _defaults(loss: nn.Module) -> dict[str, list[Any]]:
    """Return the defaults of each keyword that the classes of a loss, and of those inside it, have."""
    found: dict[str, list[Any]] = {}
    for kind in {type(module) for module in loss.modules() if hasattr(module, "get_config_dict")}:
        for name, parameter in inspect.signature(kind.__init__).parameters.items():
            if parameter.default is not parameter.empty:
                found.setdefault(name, []).append(_plain(parameter.default))
    return found


def _with_later(old: Any, new: Any, defaults: Mapping[str, list[Any]]) -> Any:
    """Add the keywords that an earlier version had not, where they are at their defaults: what it did."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return old
    later = {key: value for key, value in new.items() if key not in old and value in defaults.get(key, [])}
    return later | {key: _with_later(value, new.get(key), defaults) for key, value in old.items()}


def _changes(name: str, old: Any, new: Any) -> list[str]:
    """Return where two settings differ, as ``name old (now new)``."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = dict.fromkeys([*old, *new])
        losses = [[key for key, value in settings.items() if isinstance(value, dict)] for settings in (old, new)]
        if set(losses[0]) == set(losses[1]) and losses[0] != losses[1]:  # the first may lead, or make what the next reads
            return [f"the order of {name or 'the losses'} {', '.join(losses[0])} (now {', '.join(losses[1])})"]
        return [
            change
            for key in keys
            for change in _changes(f"{name}.{key}" if name else key, old.get(key, "absent"), new.get(key, "absent"))
        ]
    if isinstance(old, float) and isinstance(new, float) and math.isclose(old, new, rel_tol=1e-6):
        return []  # computed from a weight on another device
    is_named_alone = isinstance(new, str) and new.startswith(f"{old} [counts ")  # an earlier version kept no mark of counts
    return [] if old == new or is_named_alone else [f"{name} {old} (now {new})"]


_OTHER_PARTS = "it was written for a loss with other parts, or by another version of it: load or resume it with what wrote it."


def _check_tensors(saved: Mapping[str, list], expected: Mapping[str, list], file: Path) -> None:
    if missing := sorted(set(expected) - set(saved)):
        raise ValueError(f"{file} lacks {', '.join(missing)}: {_OTHER_PARTS}")
    if extra := sorted(set(saved) - set(expected)):
        raise ValueError(f"{file} also holds {', '.join(extra)}: {_OTHER_PARTS}")
    for key, want in expected.items():
        if saved[key] != want:
            raise ValueError(f"{file} holds {key} as {_shape(saved[key])}, the loss has {_shape(want)}: its settings differ.")


def _shape(description: list) -> str:
    dtype, shape = description
    return f"{dtype} {tuple(shape)}"


def _names(losses: Mapping[str, Any]) -> str:
    return ", ".join(repr(name) for name in losses)
