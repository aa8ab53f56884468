"""Files that checkpoints hold in addition to those of sentence-transformers.

- ``loss_state.safetensors``: weights and buffers that the loss owns (heads, decoders, queues, momentum
  copies)
- ``loss_state.json``: the settings of the loss and the number of processes
- ``checkpoint_complete.json``: names and sizes of the files that resuming needs, written last

They work for any loss, including those of sentence-transformers.
"""

import json
import logging
import os
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from sentence_transformers.util import get_rank, get_world_size
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME

from sbert_plugins.losses.base import Loss
from sbert_plugins.modules import MLMHead, WordEmbeddings

WEIGHTS_FILE = "loss_state.safetensors"
SETTINGS_FILE = "loss_state.json"
COMPLETE_FILE = "checkpoint_complete.json"

Losses = nn.Module | Mapping[str, nn.Module]

logger = logging.getLogger(__package__)
# With torchrun, log once and not once per process.
logger.addFilter(lambda record: get_rank() == 0)


# --- State of a loss ----------------------------------------------------------------------------------------


def named_losses(loss: Losses) -> dict[str, nn.Module]:
    """Return the losses by the name of their dataset. A single loss has the name ``""``."""
    return dict(loss) if isinstance(loss, Mapping) else {"": loss}


def own_state(loss: Losses, model: nn.Module) -> dict[str, Tensor]:
    """Return the parameters and persistent buffers that a loss holds and ``model`` does not.

    Tensors are compared by identity. An output layer that shares the encoder's embeddings belongs to the
    encoder, and weights that are tied within the loss appear once.

    Args:
        loss: A loss, or a dict of losses, whose names then become prefixes.
        model: The encoder.

    Returns:
        The tensors themselves, by name.
    """
    seen = {id(tensor) for tensor in (*model.parameters(), *model.buffers())}
    state = {}
    for name, member in named_losses(loss).items():
        for key, tensor in member.state_dict(keep_vars=True).items():
            if id(tensor) not in seen:
                seen.add(id(tensor))
                state[f"{name}/{key}" if name else key] = tensor
    return state


def save_loss_state(loss: Losses, model: nn.Module, folder: str | Path) -> None:
    """Write the state and the settings of a loss, or of a dict of losses, into ``folder``.

    Example:
        >>> from sbert_plugins import losses, training
        >>> loss = losses.PTBERTLoss(model)
        >>> model.save_pretrained("output")
        >>> training.save_loss_state(loss, model, "output")
        >>> training.load_loss_state(loss, model, "output")
    """
    # Copies, because safetensors does not store views of shared memory.
    state = {
        name: tensor.detach().cpu().contiguous().clone() for name, tensor in own_state(loss, model).items()
    }
    save_file(state, Path(folder, WEIGHTS_FILE))
    Path(folder, SETTINGS_FILE).write_text(_settings_as_json(loss), encoding="utf-8")


@torch.no_grad()
def load_loss_state(loss: Losses, model: nn.Module, folder: str | Path) -> None:
    """Copy the state in ``folder`` into a loss with the same parts.

    Raises:
        ValueError: If ``folder`` holds no state, or that of a loss with other parts. The loss is then
            unchanged.
    """
    own, file = own_state(loss, model), Path(folder, WEIGHTS_FILE)
    saved = load_file(file) if file.is_file() else {}
    old, new = ({name: list(tensor.shape) for name, tensor in state.items()} for state in (saved, own))
    if changes := _changes(old, new):
        changes = "; ".join(filter(None, [changed_settings(loss, folder), changes]))
        raise ValueError(f"{folder} does not hold the state of this loss: {changes}.")
    for name, tensor in own.items():
        tensor.copy_(saved[name])


def check_settings(loss: Losses, folder: str | Path, *, allow_changed: bool) -> None:
    """Compare the settings of a loss with those in ``folder``, after its state has been loaded from there.

    Some losses have a learned weight among their settings, which is equal only then.

    Raises:
        ValueError: If the settings differ, unless ``allow_changed``, with which they are logged.
    """
    if changes := changed_settings(loss, folder):
        message = f"The settings differ from those of {folder}: {changes}."
        if not allow_changed:
            raise ValueError(f"{message} Use the old settings, or continue with allow_changed_settings=True.")
        logger.warning("%s The training continues with the new ones.", message)


def changed_settings(loss: Losses, folder: str | Path) -> str:
    """Return the settings of a loss that differ from those in ``folder``: key, old value and new value."""
    file = Path(folder, SETTINGS_FILE)
    if not file.is_file():
        return ""
    return _changes(json.loads(file.read_text(encoding="utf-8")), json.loads(_settings_as_json(loss)))


def _settings_as_json(loss: Losses) -> str:
    """Return the settings of a loss in JSON that is the same in each process."""
    settings = {name: _settings(member) for name, member in named_losses(loss).items()}
    settings = settings.get("", settings) | {"processes": get_world_size()}
    # A repr may hold an address.
    return re.sub(" at 0x[0-9a-f]+", "", json.dumps(settings, indent=1, default=_for_json))


def _settings(loss: nn.Module) -> dict[str, Any]:
    settings = {"class": type(loss).__name__, **getattr(loss, "get_config_dict", dict)()}
    # Wrappers of sentence-transformers give the name of their loss's class.
    if isinstance(settings.get("loss"), str):
        settings["loss"] = getattr(loss, "loss", settings["loss"])
    return settings


def _for_json(value: Any) -> Any:
    """Convert a setting that JSON does not have."""
    if isinstance(value, nn.Module):
        return _settings(value)
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    return getattr(value, "__qualname__", str(value))


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the keys in which two records differ, with both values; nested keys are joined by a dot.

    Example:
        >>> from sbert_plugins.training.loss_state import differences
        >>> differences({"arguments": {"max_steps": 60}}, {"arguments": {"max_steps": 90}})
        {'arguments.max_steps': (60, 90)}
    """
    old, new = _flat(before), _flat(now)
    return {key: (old.get(key), new.get(key)) for key in {**old, **new} if old.get(key) != new.get(key)}


def _flat(record: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in record.items():
        inner = _flat(value) if isinstance(value, Mapping) else None
        flat |= {key: value} if inner is None else {f"{key}.{name}": part for name, part in inner.items()}
    return flat


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return the differences of two records in words."""
    return textwrap.shorten(
        "; ".join(f"{key}: {old}, now {new}" for key, (old, new) in differences(before, now).items()),
        1000,
        placeholder=" ...",
    )


# --- What a loss gets from the trainer ----------------------------------------------------------------------


def inform_losses(
    loss: Losses,
    model: nn.Module,
    *,
    steps: int | None = None,
    resumed: bool = False,
    max_length: int | None = None,
) -> None:
    """Inform a loss, and the losses and modules inside it, of the training.

    - ``state_is_kept`` is set to True, because checkpoints hold the state of the loss, and ``max_length``;
    - ``follow(model)`` is called, because the encoder may have got another dtype since the loss was built;
    - ``begin_training(steps=..., resumed=...)`` is called, if ``steps`` are given.

    Args:
        loss: A loss, or a dict of losses.
        model: The encoder.
        steps: The number of updates of the whole training, once it begins.
        resumed: Whether the training continues from a checkpoint.
        max_length: Tokens that the data loader truncates each text to; None for the model's limit.
    """
    for member in named_losses(loss).values():
        for part in list(member.modules()):
            if isinstance(part, Loss):
                part.state_is_kept, part.max_length = True, max_length
            if isinstance(part, MLMHead | WordEmbeddings):
                part.follow(model)
            if isinstance(part, Loss) and steps is not None:
                part.begin_training(steps=steps, resumed=resumed)


def require_same_model(loss: Losses, model: nn.Module) -> None:
    """Raise ``ValueError`` if a loss was built on another model: the optimizer would update that one."""
    encoder = {id(parameter) for parameter in model.parameters()}
    for member in named_losses(loss).values():
        held = {id(parameter) for parameter in member.parameters()}
        if held and held.isdisjoint(encoder):
            raise ValueError(
                f"{type(member).__name__} was built on another model. Build it on the model of the trainer."
            )


def require_processes_together(args: TrainingArguments) -> None:
    """Raise ``ValueError`` if each process of a group would train a model of its own."""
    if args.world_size != get_world_size() > 1:
        raise ValueError(
            f"The training arguments see {args.world_size} of {get_world_size()} processes, and each would "
            "train a model of its own. On CPUs set use_cpu=True."
        )
    rank = os.environ.get("RANK", "0")
    if rank != str(args.process_index):
        raise ValueError(
            f"The environment has RANK={rank}, but this process has rank {args.process_index}. "
            "Unset RANK, or start all processes with torchrun."
        )


# --- Complete checkpoints -----------------------------------------------------------------------------------


def checkpoints_in(folder: str | Path) -> dict[int, Path]:
    """Return the checkpoints in ``folder`` by step, in rising order."""
    found = {
        path: re.fullmatch(r"checkpoint-([0-9]+)", path.name) for path in Path(folder).glob("checkpoint-*")
    }
    return dict(sorted((int(match[1]), path) for path, match in found.items() if match))


def mark_complete(checkpoint: str | Path) -> None:
    """Write the marker of a checkpoint, once all its files are on the disk.

    Later checkpoints in the same folder lose their markers. They come from an earlier training, or from
    another continuation of this one.
    """
    checkpoint = Path(checkpoint)
    paths = [path for path in sorted(checkpoint.rglob("*")) if path.name not in (COMPLETE_FILE, "README.md")]
    sizes = {path.relative_to(checkpoint).as_posix(): path.stat().st_size for path in paths if path.is_file()}
    for path in (*paths, checkpoint, checkpoint.parent):
        _sync(path)
    marker = checkpoint / COMPLETE_FILE
    marker.write_text(json.dumps(sizes, indent=1), encoding="utf-8")
    _sync(marker)
    _sync(checkpoint)
    unmark_later(checkpoint.parent, step=int(checkpoint.name.rpartition("-")[2]))


def unmark_later(folder: str | Path, step: int) -> None:
    """Remove the markers of the checkpoints in ``folder`` with a later step."""
    for later, checkpoint in checkpoints_in(folder).items():
        if later > step:
            (checkpoint / COMPLETE_FILE).unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Wait until a file or a folder is on the disk."""
    if os.name == "nt":  # cannot open folders
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def incomplete_reason(checkpoint: str | Path) -> str | None:
    """Return why a checkpoint is incomplete, or None if it is complete."""
    try:
        sizes = json.loads(Path(checkpoint, COMPLETE_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return f"{COMPLETE_FILE}, which is written last, is missing or cut off"
    for name, size in sizes.items():
        if not Path(checkpoint, name).is_file() or Path(checkpoint, name).stat().st_size != size:
            return f"{name} is missing or does not have its {size} bytes"
    return None


def newest_complete_checkpoint(output_dir: str | Path) -> Path | None:
    """Return the complete checkpoint with the highest step in ``output_dir``, or None.

    Incomplete ones, which an interruption leaves, are skipped and logged.
    """
    for checkpoint in reversed(checkpoints_in(output_dir).values()):
        reason = incomplete_reason(checkpoint)
        if reason is None:
            return checkpoint
        logger.warning("Skipping the incomplete checkpoint %s: %s.", checkpoint, reason)
    return None


class LossStateCallback(TrainerCallback):
    """Saves and restores the state of a loss in a training with sentence-transformers' own trainer.

    It adds its files to each checkpoint after the trainer has written it, and restores the loss when a
    training resumes. Unlike :class:`SentenceTransformerTrainer` of this package it neither averages the
    loss's gradients over processes nor clips them, and ``load_best_model_at_end`` restores the encoder alone.

    Args:
        loss: The loss, or the dict of losses, of the trainer.
        resume_from_checkpoint: The path that ``trainer.train`` gets. By default the checkpoint of the resumed
            step in the trainer's output directory.
        allow_changed_settings: Whether a resumed training may have other settings of the loss, or another
            number of processes, than its checkpoint.

    Raises:
        ValueError: When the training begins, if the loss was built on another model, or if the checkpoint
            belongs to another training or to a loss with other settings.

    Example:
        >>> from sentence_transformers import SentenceTransformerTrainer
        >>> from sbert_plugins import losses
        >>> from sbert_plugins.training import LossStateCallback
        >>> loss = losses.PTBERTLoss(model)
        >>> trainer = SentenceTransformerTrainer(
        ...     model, args=arguments, train_dataset=dataset, loss=loss, callbacks=[LossStateCallback(loss)]
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

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Restore the loss if the training resumes, and inform it."""
        model, resumed = kwargs["model"], state.global_step > 0
        require_same_model(self.loss, model)
        require_processes_together(args)
        inform_losses(self.loss, model)
        if resumed:
            folder = Path(self.resume_from_checkpoint or self._folder(args, state))
            file = folder / TRAINER_STATE_NAME
            if (
                file.is_file()
                and json.loads(file.read_text(encoding="utf-8"))["log_history"] != state.log_history
            ):
                raise ValueError(
                    f"{folder} does not belong to the training that is resumed. Pass the path that train() "
                    "gets to LossStateCallback(loss, resume_from_checkpoint=...)."
                )
            load_loss_state(self.loss, model, folder)
            check_settings(self.loss, folder, allow_changed=self.allow_changed_settings)
        inform_losses(self.loss, model, steps=state.max_steps, resumed=resumed)
        if args.should_save:  # the trainer is going to overwrite their files
            unmark_later(self._folder(args, state).parent, state.global_step)

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Add the loss's files to the checkpoint that was just written."""
        if args.should_save:
            save_loss_state(self.loss, kwargs["model"], self._folder(args, state))
            if not args.save_only_model:  # a training cannot resume without the state of its optimizer
                mark_complete(self._folder(args, state))

    @staticmethod
    def _folder(args: TrainingArguments, state: TrainerState) -> Path:
        return Path(str(args.output_dir), f"checkpoint-{state.global_step}")
