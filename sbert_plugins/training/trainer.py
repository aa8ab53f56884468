"""The trainer of sentence-transformers, for losses that own weights or state."""

from __future__ import annotations

import copy
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import sentence_transformers
import torch
import torch.distributed as dist
from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict, Value
from sentence_transformers.util import get_world_size
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from transformers import (
    EarlyStoppingCallback,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
    set_seed,
)
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_pt_utils import find_batch_size
from transformers.trainer_utils import EvalLoopOutput, TrainOutput

from sbert_plugins import host
from sbert_plugins.contract import freeze_mask_template, keeps_its_mode, talks_to_others

from .loss_state import (
    COMPLETE_FILE,
    SETTINGS_FILE,
    WEIGHTS_FILE,
    LossStateCallback,
    check_settings,
    checkpoints_in,
    incomplete_reason,
    inform_losses,
    load_loss_state,
    logger,
    mark_complete,
    named_losses,
    newest_complete_checkpoint,
    own_state,
    require_processes_together,
    require_same_model,
    save_loss_state,
)
from .sam import SharpnessAwareStep

GRADIENT_NORM = "the gradient norm"
# The gradient scaler of fp16 starts at 2**16 and is halved after each infinite norm.
SKIPPED_UPDATES = 32

_LOGGED_BY_TRANSFORMERS = {"loss", "grad_norm", "learning_rate", "epoch", "step"}


class DivergedError(ValueError):
    """A loss, a gradient or a weight of a training is not finite."""


@host.connect_trainer
class SentenceTransformerTrainer(sentence_transformers.SentenceTransformerTrainer):
    """A drop-in ``SentenceTransformerTrainer`` that trains what a loss owns in the same way as the encoder.

    It works with any loss, or dict of losses, including those of sentence-transformers, and adds:

    - **Checkpoints** hold the state of the loss. A resumed training equals an uninterrupted one bit for bit, and
      ``load_best_model_at_end`` restores the loss with the encoder. ``resume_from_checkpoint=True`` takes the newest
      complete checkpoint, or starts a new training if there is none.
    - **Several processes**: the loss's weights start equal, and their gradients are averaged.
    - **Clipping**: ``max_grad_norm``, and the logged ``grad_norm``, cover encoder and loss together.
    - **Modes**: the loss's modules follow the encoder's train and eval mode. Other encoders in the loss, and frozen parts in
      eval mode, keep theirs.
    - **Logs**: the loss's terms and its ``diagnostics``, averaged since the last log over all processes. Those of a dict of
      losses are named ``dataset/term``. An evaluation returns and logs them as ``eval_term``.
    - **Sharpness-Aware Minimization** with :class:`TrainingArguments`' ``sam_rho``.
    - **Divergence**: a loss, gradient norm or weight that is not finite stops the training and is not saved.
    - **Evaluation** does not change the training: the random numbers are the same with and without it, and each evaluation
      draws the same views and masks.

    A default prompt of the model is used for training too, as ``encode`` uses it, unless the arguments have prompts.

    Args:
        *args: As in sentence-transformers.
        **kwargs: As in sentence-transformers.

    Raises:
        ValueError: For a ``model_init``, and for columns that are not text. From ``train``, before the first update: for a
            loss built on another model, a checkpoint that is incomplete or holds another loss, an optimizer without the
            loss's weights, DataParallel, FSDP and DeepSpeed.
        TypeError: For rows that are not a dataset.
        OSError: From ``train``, if a checkpoint cannot be written, or the best one cannot be loaded.
        DivergedError: From ``train``, with the update and the term that is not finite.

    Example:
        >>> from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments
        >>> from sbert_plugins import losses, training
        >>> model = SentenceTransformer("bert-base-uncased")
        >>> trainer = training.SentenceTransformerTrainer(
        ...     model=model, args=arguments, train_dataset=dataset, loss=losses.ArcCSELoss(model)
        ... )
        >>> trainer.train(resume_from_checkpoint=True)  # starts, and continues after an interruption
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        host.require_trainer()
        if kwargs.get("model_init") is not None:
            raise ValueError("model_init must be None: the weights of the loss would pass from one trial to the next.")
        super().__init__(*args, **kwargs)
        sam_rho = getattr(self.args, "sam_rho", 0.0)
        self._sam: SharpnessAwareStep | None = (
            SharpnessAwareStep(self, sam_rho, self._average_own_gradients) if sam_rho else None
        )
        self._own_parameters: list[nn.Parameter] = []
        self._followers: list[nn.Module] | None = None  # modules in the encoder's mode
        self._terms: Mapping[str, Tensor] = {}  # of the batch that is being computed
        self._sums: dict[
            str, tuple[Tensor, Tensor]
        ] = {}  # of terms and diagnostics since the last log, with counts
        self._unchecked: list[
            tuple[int, dict[str, Tensor]]
        ] = []  # numbers that must be finite, with their updates
        self._skipped_updates: int = 0  # in a row, by the gradient scaler of fp16
        self._scores: dict[int, dict] = {}  # what evaluations wrote into the model card, by step
        self._resumed_from: str | None = None
        self._allow_changed_settings: bool = False
        self._last_checkpoint: str | None = None  # complete
        self._loaded: list[str] = []  # checkpoints, in this training
        self.add_callback(_BeginCallback(self))
        self._apply_default_prompt()

    def _apply_default_prompt(self) -> None:
        """Train with the prompt that ``encode`` puts before each text."""
        prompt = self.model.prompts.get(self.model.default_prompt_name or "")
        if not prompt or self.args.prompts or getattr(self.data_collator, "prompts", True):
            return
        rows: Any = self.train_dataset
        columns: list[str] = []
        for name, dataset in rows.items() if isinstance(rows, dict) else [("", rows)] if rows is not None else []:
            texts = [
                column
                for column in dataset.column_names
                if column not in self.data_collator.valid_label_columns
            ]
            # A loss may read further columns as words to predict, before which a prompt would be wrong.
            loss = self.loss.get(name) if isinstance(self.loss, dict) else self.loss
            columns += texts[: getattr(loss, "sentence_columns", None)]
        self.data_collator.prompts = dict.fromkeys(columns, prompt)
        logger.warning(
            "Training with the model's default prompt %r, as encode() uses it. Set prompts to change it.",
            prompt,
        )

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Have the model card show the radius of Sharpness-Aware Minimization."""
        super().add_model_card_callback(default_args_dict | {"sam_rho": 0.0})

    def preprocess_dataset(self, dataset: Any = None, dataset_name: str | None = None) -> Any:
        """Check the columns, then preprocess as sentence-transformers does."""
        if not isinstance(dataset, Dataset | IterableDataset | dict | None):
            raise TypeError(
                f"{dataset_name}_dataset must be a datasets.Dataset, got {type(dataset).__name__}. A list of sentences "
                'becomes one by Dataset.from_dict({"anchor": sentences}).'
            )
        for part in dataset.values() if isinstance(dataset, dict) else [dataset]:
            if isinstance(part, Dataset):
                _check_cells(part, f"{dataset_name}_dataset", self.data_collator.valid_label_columns)
        return super().preprocess_dataset(dataset, dataset_name)  # type: ignore[arg-type]

    def add_dataset_name_column(self, dataset: Any, dataset_name: str | None = None) -> Any:
        """Add the dataset's name to its rows; in a copy, since a dataset may stand under two names, for two losses."""
        return super().add_dataset_name_column(
            copy.copy(dataset) if isinstance(dataset, Dataset) else dataset, dataset_name
        )

    # --- Training ----------------------------------------------------------------------------------------------------

    def train(
        self,
        resume_from_checkpoint: str | bool | None = None,
        *args: Any,
        allow_changed_settings: bool = False,
        **kwargs: Any,
    ) -> TrainOutput:
        """Train the encoder and what the loss owns.

        Args:
            resume_from_checkpoint: A checkpoint to continue from, or True for the newest complete one in ``output_dir``. If
                there is none, True starts a new training.
            *args: As in sentence-transformers.
            allow_changed_settings: Whether a resumed training may have other settings of the loss, or another number of
                processes, than its checkpoint.
            **kwargs: As in sentence-transformers.
        """
        self._check_setup()
        while self.pop_callback(LossStateCallback):  # the trainer does the same
            pass
        checkpoint = self._find_checkpoint(resume_from_checkpoint)
        self._resumed_from, self._allow_changed_settings = checkpoint, allow_changed_settings
        self._last_checkpoint, self._loaded = checkpoint, []
        self._unchecked, self._skipped_updates, self._scores = [], 0, {}
        self.model.model_card_data.eval_results_dict = {}  # scores of other weights
        freeze_mask_template(self.model)
        inform_losses(self.loss, self.model)
        self._unwrap_model()
        self._broadcast_own_state()
        try:
            output = super().train(checkpoint, *args, **kwargs)
        finally:
            self._unwrap_model()
        self._check_finite()
        self._check_weights()
        best = self.state.best_model_checkpoint if self.args.load_best_model_at_end else None
        if best and self._loaded[-1:] != [best]:
            raise OSError(
                f"The best checkpoint, {best}, could not be loaded: see the log. The model has its last weights."
            )
        step = int(best.rpartition("-")[2]) if best else self.state.global_step
        self.model.model_card_data.eval_results_dict = self._scores.get(step, {})
        return output

    def _check_setup(self) -> None:
        """Raise ``ValueError`` for what would train wrongly."""
        if self.args.n_gpu > 1:
            raise ValueError(
                f"One process sees {self.args.n_gpu} GPUs, and DataParallel does not replicate the loss. Start the script "
                f"with torchrun --nproc_per_node {self.args.n_gpu}, or set CUDA_VISIBLE_DEVICES to one GPU."
            )
        if self.is_fsdp_enabled or self.is_deepspeed_enabled:
            raise ValueError(
                "FSDP and DeepSpeed are not supported, because they ignore the loss's weights. Use torchrun."
            )
        require_processes_together(self.args)
        require_same_model(self.loss, self.model)
        losses = set(named_losses(self.loss).values())
        if get_world_size() > 1 and len(losses) > 1 and any(talks_to_others(loss) for loss in losses):
            raise ValueError(
                "One of the losses waits for the other processes, which may be computing another loss. Give all datasets one "
                "loss, set balance=None and gather_across_devices=False, or train in one process."
            )

    def _find_checkpoint(self, requested: str | bool | None) -> str | None:
        """Return the checkpoint to resume from, or None for a new training."""
        output = Path(str(self.args.output_dir))
        if requested is True:
            newest = newest_complete_checkpoint(output)
            if newest is None:
                logger.warning("%s holds no complete checkpoint: a new training starts.", output)
            return str(newest) if newest else None
        if not requested:
            earlier = [path for path in checkpoints_in(output).values() if (path / COMPLETE_FILE).exists()]
            if earlier:
                logger.warning(
                    "%s is of an earlier training. Until this one has saved a checkpoint, resume_from_checkpoint=True would "
                    "continue the earlier one.",
                    earlier[-1],
                )
            return None
        checkpoint = Path(requested)
        reason = incomplete_reason(checkpoint) if (checkpoint / SETTINGS_FILE).exists() else None
        if not checkpoint.is_dir():
            reason = "it does not exist"
        elif inside := checkpoints_in(checkpoint):
            reason = f"it is a folder of checkpoints. Pass True, or one of {', '.join(path.name for path in inside.values())}"
        elif not (checkpoint / TRAINER_STATE_NAME).is_file():
            reason = f"it is not a checkpoint, or an incomplete one: it has no {TRAINER_STATE_NAME}"
        if reason:
            there = ", ".join(str(path) for path in checkpoints_in(output).values()) or "none"
            raise ValueError(f"Cannot resume from {checkpoint}: {reason}. Checkpoints in {output}: {there}.")
        return str(checkpoint)

    def _unwrap_model(self) -> None:
        """Remove what accelerate put around the model, in the model and in the losses, for a training.

        With it, the next training would not average gradients over processes, and ``encode`` would use mixed precision.
        """
        host.undo_preparation(self.model)
        self.model_wrapped = self.model
        for part in [part for loss in named_losses(self.loss).values() for part in loss.modules()]:
            inner = getattr(part, "model", None)
            wrappers = inner.modules() if isinstance(inner, nn.Module) and inner is not self.model else ()
            if any(
                isinstance(each, DistributedDataParallel) and self.model in each.modules()
                for each in wrappers
            ):
                part.model = self.model

    def begin(self) -> None:
        """Prepare for the first update, once the optimizer is built and a checkpoint is loaded."""
        groups: list[dict[str, Any]] = getattr(self.optimizer, "param_groups", [])
        held = {id(parameter) for group in groups for parameter in group["params"]}
        missing = sum(id(parameter) not in held for parameter in self._own_parameters)
        # An optimizer per layer has no weights in its groups, neither of the loss nor of the encoder.
        if missing and not held.isdisjoint(map(id, self.model.parameters())):
            raise ValueError(
                f"The optimizer lacks {missing} weights of the loss. Build it over loss.parameters()."
            )
        if self._sam is not None:
            self._sam.begin()
        self._sums = {}
        inform_losses(self.loss, self.model, steps=self.state.max_steps, resumed=self.state.global_step > 0)

    def is_over(self) -> bool:
        """Return whether a training has no update left, or is resumed where early stopping had stopped it."""
        stopped = any(
            isinstance(callback, EarlyStoppingCallback)
            and callback.early_stopping_patience_counter >= callback.early_stopping_patience
            for callback in self.callback_handler.callbacks
        )
        return self.state.global_step >= self.state.max_steps or (stopped and self._resumed_from is not None)

    # --- Steps -------------------------------------------------------------------------------------------------------

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None
    ) -> Tensor:
        """Run one micro-batch, and complete the gradients after the last one of an update."""
        step = super().training_step
        if self._sam is None:
            loss = step(model, inputs, num_items_in_batch)
        else:
            loss = self._sam.training_step(step, model, inputs, num_items_in_batch)
        if self.accelerator.sync_gradients:
            self._average_own_gradients()
        self._check_finite()
        return loss

    def compute_loss(self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Compute the loss in the encoder's mode; keep its terms and diagnostics."""
        dataset = inputs.get("dataset_name", "")  # sentence-transformers removes it
        is_dict, training = isinstance(self.loss, dict), self.model.training
        loss = self.loss[dataset] if isinstance(self.loss, dict) else self.loss
        rows = (
            1 if training else find_batch_size(inputs) or 1
        )  # as in eval_loss, each row of an evaluation counts
        self._follow_mode()
        self._terms = {}
        # Annotated as a BaseModel, it may be wrapped in DistributedDataParallel.
        result = super().compute_loss(model, inputs, *args, **kwargs)  # type: ignore[arg-type]
        if training:
            value = result[0] if isinstance(result, tuple) else result
            self._unchecked.append(
                (self.state.global_step + 1, dict(self._terms) or {type(loss).__name__: value})
            )
        if self._sam is None or not self._sam.is_repeating:
            numbers = {**self._terms, **getattr(loss, "diagnostics", {})}
            if not is_dict and (taken := _LOGGED_BY_TRANSFORMERS & numbers.keys()):
                raise ValueError(
                    f"{type(loss).__name__} must rename {', '.join(taken)}: the log has another number there."
                )
            self._add_to_log(
                {f"{dataset}/{name}" if is_dict and training else name: x for name, x in numbers.items()},
                rows,
            )
        return result

    def track_loss_components(self, loss: dict[str, Tensor]) -> None:
        """Keep the terms of the loss, which sentence-transformers would divide by the batches of all datasets."""
        self._terms = loss

    def _follow_mode(self) -> None:
        """Put the modules of the losses into the encoder's mode, which a callback may have changed."""
        if self._followers is None:
            of_model = {id(parameter) for parameter in self.model.parameters()}
            parts = [part for loss in named_losses(self.loss).values() for part in loss.modules()]
            independent = [part for part in parts if keeps_its_mode(part, of_model=of_model)]
            theirs = {module for part in (self.model, *independent) for module in part.modules()}
            self._followers = [part for part in parts if part not in theirs]
        for module in self._followers:
            if module.training != self.model.training:
                module.training = self.model.training

    @torch.no_grad()
    def _broadcast_own_state(self) -> None:
        """Give all processes the loss-owned tensors of the first one."""
        own = own_state(self.loss, self.model).values()
        self._own_parameters = [one for one in own if isinstance(one, nn.Parameter) and one.requires_grad]
        if get_world_size() > 1:
            for tensor in own:
                dist.broadcast(tensor.data, src=0)

    @torch.no_grad()
    def _average_own_gradients(self) -> None:
        """Average the gradients of loss-owned weights over processes, as DistributedDataParallel does the encoder's.

        A weight without a gradient in some processes has gradient 0 there. Without one in all, it keeps none.
        """
        parameters = self._own_parameters
        if get_world_size() == 1 or not parameters:
            return
        present = torch.tensor(
            [one.grad is not None for one in parameters], dtype=torch.int32, device=parameters[0].device
        )
        dist.all_reduce(present, op=dist.ReduceOp.MAX)
        used = [one for one, anywhere in zip(parameters, present.tolist(), strict=True) if anywhere]
        if not used:
            return
        gradients = [torch.zeros_like(one) if one.grad is None else one.grad for one in used]
        flat = torch.cat(
            [gradient.flatten().float() for gradient in gradients]
        )  # one message for many small tensors
        dist.all_reduce(flat)
        means = (flat / get_world_size()).split([one.numel() for one in used])
        for parameter, gradient, mean in zip(used, gradients, means, strict=True):
            parameter.grad = gradient.copy_(mean.view_as(parameter))

    def with_losses(self, model: nn.Module) -> nn.ModuleList:
        """Return encoder and losses, whose gradients are clipped together."""
        return nn.ModuleList([model, *named_losses(self.loss).values()])

    # --- Divergence --------------------------------------------------------------------------------------------------

    def check_norm(self, norm: Tensor | float) -> None:
        """Check the gradient norm of an update; on a CPU before the update is made.

        On a GPU reading a number waits for the device, so that it is read with the next batch.
        """
        self._unchecked.append((self.state.global_step + 1, {GRADIENT_NORM: torch.as_tensor(norm)}))
        if self.args.device.type == "cpu":
            self._check_finite()

    def _check_finite(self) -> None:
        """Raise :class:`DivergedError` if a term of the loss or a gradient norm is not finite."""
        unchecked, self._unchecked = self._unchecked, []
        for update, numbers in unchecked:
            values = torch.stack([number.detach().float() for number in numbers.values()]).tolist()
            bad = [f"{name} is {x}" for name, x in zip(numbers, values, strict=True) if not math.isfinite(x)]
            if GRADIENT_NORM in numbers and self.accelerator.scaler is not None:
                self._skipped_updates = self._skipped_updates + 1 if bad else 0
                if (
                    self._skipped_updates < SKIPPED_UPDATES
                ):  # the scaler skips an update whose scale is too large
                    continue
            if bad:
                self._raise_diverged(f"In update {update} {', '.join(bad)}.")

    def _check_weights(self) -> None:
        """Raise :class:`DivergedError` if a trained weight is not finite."""
        for loss in named_losses(self.loss).values():
            for name, parameter in loss.named_parameters():
                if parameter.requires_grad and not parameter.isfinite().all():
                    self._raise_diverged(
                        f"After update {self.state.global_step} {name} is not finite and is not saved."
                    )

    def _raise_diverged(self, what: str) -> NoReturn:
        raise DivergedError(
            f"{what} The training stopped; its last complete checkpoint is {self._last_checkpoint or 'none'}. Train with a "
            f"lower learning_rate (now {self.args.learning_rate:g}) or max_grad_norm (now {self.args.max_grad_norm:g})."
        )

    # --- Logs and evaluation -----------------------------------------------------------------------------------------

    def _add_to_log(self, numbers: Mapping[str, Any], rows: int) -> None:
        for name, number in numbers.items():
            value = torch.as_tensor(number).detach().float()
            known = ~value.isnan()  # a diagnostic is NaN if a batch had nothing to measure
            total, count = self._sums.get(name, (0, 0))
            value = value.nan_to_num(nan=0.0, posinf=math.inf, neginf=-math.inf)
            self._sums[name] = (total + rows * value, count + rows * known)

    def _take_means(self) -> dict[str, float]:
        """Return the means since the last call over all processes, which may have computed different losses."""
        by_process: list[Any] = [self._sums]
        if get_world_size() > 1:
            by_process = [None] * get_world_size()
            sums = {name: (total.cpu(), count.cpu()) for name, (total, count) in self._sums.items()}
            dist.all_gather_object(by_process, sums)
        self._sums, means = {}, {}
        for name in dict.fromkeys(name for sums in by_process for name in sums):
            total, count = (
                sum(part) for part in zip(*(sums[name] for sums in by_process if name in sums), strict=True)
            )
            if count > 0:
                means[name] = round((total / count).item(), 4)
        return means

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Log, with the means of the loss's terms and diagnostics. A number that is not finite is logged as None."""
        super().log(logs | self._take_means() if "loss" in logs else logs, *args, **kwargs)
        entry: dict[str, Any] = self.state.log_history[-1]
        entry |= {
            key: None for key, value in entry.items() if isinstance(value, float) and not math.isfinite(value)
        }

    def evaluation_loop(
        self,
        dataloader: DataLoader,
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput:
        """Evaluate or predict as sentence-transformers does, with the means of the loss's terms and diagnostics.

        Views and masks are drawn with the training's seed, so that evaluations can be compared, and the training's own random
        numbers continue as if there had been none.
        """
        host.leave_unprepared(self)
        of_training, self._sums = self._sums, {}
        try:
            with host.kept_random_state(self.args.device):
                set_seed(self.args.seed)
                output = super().evaluation_loop(
                    dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix
                )
            means = self._take_means()
        finally:
            self._sums = of_training
        separator = "/" if isinstance(self.loss, dict) else "_"
        assert output.metrics is not None
        output.metrics.update({f"{metric_key_prefix}{separator}{name}": mean for name, mean in means.items()})
        self._scores[self.state.global_step] = dict(self.model.model_card_data.eval_results_dict or {})
        return output

    # --- Checkpoints -------------------------------------------------------------------------------------------------

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save the model; in a checkpoint also the state of the loss."""
        if not _internal_call or output_dir is None:  # push_to_hub makes an internal call without a folder
            super().save_model(output_dir, _internal_call)
            return
        self._check_finite()
        self._check_weights()
        if self.args.should_save:
            Path(output_dir, COMPLETE_FILE).unlink(missing_ok=True)  # from here on, it is incomplete
        super().save_model(output_dir, _internal_call)
        if self.args.should_save:
            save_loss_state(self.loss, self.model, output_dir)

    def finish_checkpoint(self, folder: Path) -> None:
        """Mark a checkpoint as complete, unless it was saved without the optimizer that resuming needs."""
        if not self.args.save_only_model:
            mark_complete(folder)
            self._last_checkpoint = str(folder)

    def raise_write_error(self, folder: Path, error: Exception) -> NoReturn:
        """Raise an ``OSError`` that names the checkpoint, the cause and the free space of the disk."""
        free = shutil.disk_usage(folder.parent).free / 2**30
        cause = str(error).strip().partition("\n")[0]
        raise OSError(
            f"The checkpoint {folder} could not be written, with {free:.1f} GB free on its disk: {cause}. The last complete "
            f"checkpoint is {self._last_checkpoint or 'none'}."
        ) from error

    def load_loss(self, folder: str) -> None:
        """Load the loss with the encoder, to resume or as the best checkpoint."""
        load_loss_state(self.loss, self.model, folder)
        if self.state.global_step == 0 and folder == self._resumed_from:
            check_settings(self.loss, folder, allow_changed=self._allow_changed_settings)
        self._loaded.append(folder)

    def files_kept_local(self) -> set[str]:
        """Return the names of the files that users of the model do not need."""
        return {WEIGHTS_FILE, SETTINGS_FILE, COMPLETE_FILE}


class _BeginCallback(TrainerCallback):
    """Calls ``trainer.begin()`` when the optimizer is built and a checkpoint is loaded."""

    def __init__(self, trainer: SentenceTransformerTrainer) -> None:
        self.trainer = trainer

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self.trainer.begin()


def _check_cells(dataset: Dataset, name: str, label_columns: list[str]) -> None:
    """Raise ``ValueError`` if a text column holds a cell that is not text, with the column and the first such row."""
    if dataset.format["type"] == "custom":  # a transform makes the cells
        return
    for column, feature in dataset.features.items():
        if column in label_columns or not isinstance(feature, Value):
            continue
        if feature.dtype not in ("string", "large_string"):
            found, row = dataset[0][column], 0
        elif dataset.data.column(column).null_count:  # of the table, of which the dataset may be a part
            found, row = None, next((i for i, text in enumerate(dataset[column]) if text is None), -1)
        else:
            continue
        if row >= 0:
            raise ValueError(
                f"{name} must hold text, got {found!r} in column {column!r}, row {row}. Remove the row with dataset.filter, or "
                f"the column with dataset.remove_columns."
            )
