"""The trainer of sentence-transformers, extended for losses that own weights or state."""

import copy
import math
import shutil
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from datasets import Dataset, IterableDataset, Value
from sentence_transformers.base.model import BaseModel
from sentence_transformers.util import get_world_size
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from transformers import EarlyStoppingCallback, TrainerCallback, set_seed
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_pt_utils import find_batch_size
from transformers.trainer_utils import EvalLoopOutput, TrainOutput

from sbert_plugins import host
from sbert_plugins.encoder import freeze_token_weights

from .arguments import raise_if_ignored
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
# The gradient scaler of fp16 starts at 2**16, is halved after each infinite norm, and skips that update.
SKIPPED_UPDATES = 32


class DivergedError(ValueError):
    """A loss, a gradient or a weight of a training is not finite."""


class SentenceTransformerTrainer(host.ConnectedTrainer):
    """A drop-in ``SentenceTransformerTrainer`` that treats the weights of a loss as it treats the encoder's.

    It works with any loss, or dict of losses, including those of sentence-transformers. The base class builds
    the optimizer from ``args``. This class adds:

    - **Checkpoints** hold the state of the loss. A resumed training equals an uninterrupted one bit for bit,
      and ``load_best_model_at_end`` restores the loss with the encoder. ``resume_from_checkpoint=True`` takes
      the newest complete checkpoint, or starts a new training if there is none.
    - **Several processes**: the loss's weights start equal, and their gradients are averaged.
    - **Clipping**: ``max_grad_norm`` and the logged ``grad_norm`` cover encoder and loss together.
    - **Modes**: the loss's modules follow the encoder's train and eval mode. Other encoders in the loss, and
      frozen parts in eval mode, keep theirs.
    - **Logs**: the loss's terms and its ``diagnostics``, averaged since the last log and over all processes.
      Those of a dict of losses are named ``dataset/term``. An evaluation returns and logs them as
      ``eval_term``.
    - **Sharpness-Aware Minimization**, with ``sam_rho`` of :class:`TrainingArguments`.
    - **Divergence**: a loss, gradient norm or weight that is not finite stops the training and is not saved.
    - **Nothing to learn**: rows that repeat, gradients of 0, a rate or length of 0 and arguments without
      effect stop a training by its first update. Terms that were 0 throughout are logged at its end.
    - **Evaluation** does not change the training, which draws the same random numbers with and without it.
      Each evaluation draws the same views and masks.

    If the arguments have no prompts, the model's default prompt is used for training too, as in ``encode``.

    Args:
        *args: As in sentence-transformers.
        **kwargs: As in sentence-transformers.

    Raises:
        ValueError: For a ``model_init``, and for columns that are not text. From ``train``, before the first
            update: for a loss built on another model, a checkpoint that is incomplete or holds another loss,
            an optimizer without the loss's weights, DoRA, DataParallel, FSDP and DeepSpeed, a training
            argument without effect, and a training that would teach nothing.
        TypeError: For rows that are not a dataset.
        OSError: From ``train``, if a checkpoint cannot be written, or the best one cannot be loaded.
        DivergedError: From ``train``, with the update and the term that is not finite.

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> from sbert_plugins import losses, training
        >>> model = SentenceTransformer("bert-base-uncased")
        >>> trainer = training.SentenceTransformerTrainer(
        ...     model=model, args=arguments, train_dataset=dataset, loss=losses.ArcCSELoss(model)
        ... )
        >>> trainer.train(resume_from_checkpoint=True)  # starts, and continues after an interruption
    """

    files_kept_local = frozenset({WEIGHTS_FILE, SETTINGS_FILE, COMPLETE_FILE})

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        host.require_trainer()
        if kwargs.get("model_init") is not None:
            raise ValueError(
                "model_init must be None: the loss's weights would pass from one trial to the next."
            )
        super().__init__(*args, **kwargs)
        self._sam: SharpnessAwareStep | None = None
        self._followers: list[nn.Module] | None = None  # modules in the encoder's mode
        self.terms: dict[str, Tensor] = {}  # of the loss in the last batch
        self._sums: dict[str, tuple[Tensor, Tensor]] = {}  # sums and counts for the next log
        self._unchecked: list[tuple[int, dict[str, Tensor]]] = []  # numbers of an update that must be finite
        self._skipped_updates: int = 0  # in a row
        self._scores: dict[int, dict] = {}  # by update, for the model card
        self._checkpoint: str | None = None  # the last one that was loaded or written
        begin: Any = TrainerCallback()  # when the optimizer is built and a checkpoint is loaded
        begin.on_train_begin = lambda *_, **__: self.begin_updates()
        self.add_callback(begin)
        prompt = self.model.prompts.get(self.model.default_prompt_name or "")
        if prompt and not self.args.prompts and not getattr(self.data_collator, "prompts", True):
            self.data_collator.prompts = prompt
            logger.warning(
                "Training with the default prompt %r, as in encode(). Set prompts to change it.", prompt
            )

    def preprocess_dataset(self, dataset: Any = None, dataset_name: str | None = None) -> Any:
        """Check the columns, then preprocess as sentence-transformers does."""
        if not isinstance(dataset, Dataset | IterableDataset | dict | None):
            raise TypeError(
                f"{dataset_name}_dataset must be a datasets.Dataset, got a {type(dataset).__name__}. Convert "
                'a list of sentences with Dataset.from_dict({"anchor": sentences}).'
            )
        if type(self.data_collator) is self.data_collator_class:  # one of the user's may read other cells
            for part in dataset.values() if isinstance(dataset, dict) else [dataset]:
                _check_cells(part, f"{dataset_name}_dataset", self.data_collator.valid_label_columns)
        return super().preprocess_dataset(dataset, dataset_name)  # type: ignore[arg-type]

    def add_dataset_name_column(self, dataset: Any, dataset_name: str | None = None) -> Any:
        """Add the name of a dataset to its rows, in a copy: a dataset may have two names, for two losses."""
        return super().add_dataset_name_column(
            copy.copy(dataset) if isinstance(dataset, Dataset) else dataset, dataset_name
        )

    # --- Training -------------------------------------------------------------------------------------------

    def train(
        self,
        resume_from_checkpoint: str | bool | None = None,
        *args: Any,
        allow_changed_settings: bool = False,
        **kwargs: Any,
    ) -> TrainOutput:
        """Train the encoder and what the loss owns.

        Args:
            resume_from_checkpoint: A checkpoint to continue from, or True for the newest complete one in
                ``output_dir``. True starts a new training if there is none.
            *args: As in sentence-transformers.
            allow_changed_settings: Whether a resumed training may have other settings of the loss, or another
                number of processes, than its checkpoint.
            **kwargs: As in sentence-transformers.
        """
        self._check_setup()
        while self.pop_callback(LossStateCallback):  # the trainer does its work
            pass
        self._checkpoint = checkpoint = self._find_checkpoint(resume_from_checkpoint)
        self._allow_changed_settings = allow_changed_settings
        self._unchecked, self._skipped_updates, self._scores = [], 0, {}
        self._loaded: list[str] = []  # checkpoints in this training
        self._is_first_update = True
        rho = getattr(self.args, "sam_rho", 0.0)
        self._sam = SharpnessAwareStep(self, rho, self._average_own_gradients) if rho else None
        self._taught: dict[str, Tensor] = {}  # terms, and whether each has had another value than 0
        self.model.model_card_data.eval_results_dict = {}  # scores of other weights
        freeze_token_weights(self.model)
        inform_losses(self.loss, self.model, max_length=getattr(self.data_collator, "max_length", None))
        self._unwrap_model()
        self._broadcast_own_state()
        try:
            output = super().train(checkpoint, *args, **kwargs)
        finally:
            self._unwrap_model()
        if not self.state.global_step:
            self._raise_nothing("No batch was complete")
        self._check_weights()
        if idle := [name for name, taught in self._taught.items() if not taught]:
            logger.warning(
                "Terms of the loss that were 0 in every update and taught nothing: %s. Their settings do not "
                "fit this text, such as min_words to short sentences, or each batch has only one row.",
                ", ".join(idle),
            )
        best = self.state.best_model_checkpoint if self.args.load_best_model_at_end else None
        if best and self._loaded[-1:] != [best]:
            raise OSError(
                f"The best checkpoint, {best}, could not be loaded: see the log. The model is the last one."
            )
        # An evaluation writes its scores into the card: those of the best checkpoint are not always the last.
        self.model.model_card_data.eval_results_dict = self._scores.get(
            int(best.rpartition("-")[2]) if best else self.state.global_step, {}
        )
        return output

    def _check_setup(self) -> None:
        """Raise ``ValueError`` for what would train wrongly."""
        if self.args.n_gpu > 1:
            raise ValueError(
                f"One process sees {self.args.n_gpu} GPUs, and DataParallel does not replicate the loss. Use "
                f"torchrun --nproc_per_node {self.args.n_gpu}, or set CUDA_VISIBLE_DEVICES to one GPU."
            )
        raise_if_ignored(self.args)
        if self.is_fsdp_enabled or self.is_deepspeed_enabled:  # by accelerate's own settings
            raise ValueError(
                "FSDP and DeepSpeed are not supported: they ignore the loss's weights. Use torchrun."
            )
        if any("lora_magnitude_vector" in name for name, _ in self.model.named_parameters()):
            raise ValueError(
                "DoRA is not restored when a checkpoint or the model is loaded, so the vectors would change. "
                "Use LoRA without use_dora."
            )
        require_processes_together(self.args)
        require_same_model(self.loss, self.model)
        losses = set(named_losses(self.loss).values())
        waits = any(
            # sentence-transformers' losses have the second attribute.
            getattr(part, "waits_for_other_ranks", getattr(part, "gather_across_devices", False))
            for loss in losses
            for part in loss.modules()
        )
        if get_world_size() > 1 and len(losses) > 1 and waits:
            raise ValueError(
                "The processes may compute different losses at a time, and one of these losses waits for the "
                "other processes. Give all datasets one loss, use one process, or set balance=None, "
                "gather_across_devices=False and, in a class of your own, waits_for_other_ranks = False."
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
            if earlier := [
                path for path in checkpoints_in(output).values() if (path / COMPLETE_FILE).exists()
            ]:
                logger.warning(
                    "%s is of an earlier training, which resume_from_checkpoint=True would continue until "
                    "this one has saved a checkpoint.",
                    earlier[-1],
                )
            return None
        checkpoint = Path(requested)
        reason = incomplete_reason(checkpoint) if (checkpoint / SETTINGS_FILE).exists() else None
        if not (checkpoint / TRAINER_STATE_NAME).is_file():
            reason = f"it has no {TRAINER_STATE_NAME}" if checkpoint.exists() else "it does not exist"
        if reason:
            raise ValueError(
                f"{checkpoint} is not a complete checkpoint: {reason}. Pass True for the newest complete one "
                "or one of: "
                f"{', '.join(map(str, (checkpoints_in(checkpoint) or checkpoints_in(output)).values()))}."
            )
        return str(checkpoint)

    def _unwrap_model(self) -> None:
        """Remove the wrappers that accelerate has put around the model and into the losses.

        Otherwise the next training would not average gradients over processes, and ``encode`` would compute
        in mixed precision.
        """
        host.undo_preparation(self.model)
        self.model_wrapped = self.model
        for part in list(self.with_losses(self.model).modules()):
            wrapper = getattr(part, "model", None)
            inside = list(wrapper.modules()) if isinstance(wrapper, nn.Module) else []
            if self.model in inside and any(isinstance(each, DistributedDataParallel) for each in inside):
                part.model = self.model

    def begin_updates(self) -> None:
        """Prepare for the first update, once the optimizer is built and a checkpoint is loaded."""
        groups = self.optimizer.param_groups  # type: ignore[union-attr]
        held = {id(parameter) for group in groups for parameter in group["params"]}
        missing = sum(id(parameter) not in held for parameter in self._own_parameters)
        # An optimizer per layer has no weights in its groups, neither of the loss nor of the encoder.
        if missing and not held.isdisjoint(map(id, self.model.parameters())):
            raise ValueError(
                f"The optimizer lacks {missing} weights of the loss. Build it over loss.parameters()."
            )
        if self.state.max_steps < 1 or not any(group.get("initial_lr", group["lr"]) for group in groups):
            raise ValueError(
                f"A training of {self.state.max_steps} updates with learning_rate={self.args.learning_rate} "
                "would teach nothing. Set both above 0."
            )
        if not any(parameter.requires_grad for parameter in self.model.parameters()):
            logger.warning(
                "All weights of the model are frozen: it stays as it is, and the loss alone learns."
            )
        if self.state.global_step:
            logger.info("Continuing from update %d of %d.", self.state.global_step, self.state.max_steps)
        self._sums = {}
        inform_losses(
            self.loss,
            self.model,
            steps=self.state.max_steps,
            resumed=self.state.global_step > 0,
            max_length=getattr(self.data_collator, "max_length", None),
        )

    def is_over(self) -> bool:
        """Return whether no update is left, also if early stopping had ended a training that is resumed."""
        has_stopped = any(
            isinstance(callback, EarlyStoppingCallback)
            and callback.early_stopping_patience_counter >= callback.early_stopping_patience
            for callback in self.callback_handler.callbacks
        )
        return self.state.global_step >= self.state.max_steps or (
            has_stopped and self._checkpoint is not None
        )

    # --- Updates --------------------------------------------------------------------------------------------

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None
    ) -> Tensor:
        """Run one micro-batch, and complete the gradients after the last one of an update."""
        if self._is_first_update:
            self._check_rows(inputs)
        step, batch = super().training_step, (model, inputs, num_items_in_batch)
        loss = step(*batch) if self._sam is None else self._sam.training_step(step, *batch)
        if self.accelerator.sync_gradients:
            self._average_own_gradients()
            if self._is_first_update:
                parameters = self.with_losses(self.model).parameters()
                gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
                # An optimizer per layer has none any more.
                if gradients and not any(bool(gradient.any()) for gradient in gradients):
                    self._raise_nothing("All gradients of the first update are 0")
                self._is_first_update = False
        self._check_finite()
        return loss

    def compute_loss(self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Compute the loss in the encoder's mode, and keep its terms and diagnostics."""
        dataset = inputs.get("dataset_name", "")  # which sentence-transformers removes
        is_dict, training = isinstance(self.loss, dict), self.model.training
        loss = self.loss[dataset] if isinstance(self.loss, dict) else self.loss
        rows = 1 if training else find_batch_size(inputs) or 1  # eval_loss is a mean over rows
        self._follow_mode()
        self.terms = {}
        # The model is annotated as a BaseModel and may be wrapped in DistributedDataParallel.
        result: Any = super().compute_loss(model, inputs, *args, **kwargs)  # type: ignore[arg-type]
        if training:
            if not result.requires_grad:
                self._raise_nothing("The loss has no gradient")
            terms = self.terms or {type(loss).__name__: result}
            self._unchecked.append((self.state.global_step + 1, terms))
            for name, term in terms.items():
                self._taught[name] = self._taught.get(name, False) | (term.detach() != 0)
        if self._sam is None or not self._sam.is_repeating:
            numbers = {**self.terms, **getattr(loss, "diagnostics", {})}
            of_dataset = {f"{dataset}/{name}": number for name, number in numbers.items()}
            self._add_to_log(of_dataset if is_dict and training else numbers, rows)
        return result

    def track_loss_components(self, loss: dict[str, Tensor]) -> None:
        """Keep the terms of the loss, which would otherwise be divided by the batches of all datasets."""
        self.terms = loss

    def _follow_mode(self) -> None:
        """Put the modules of the losses into the encoder's mode."""
        if self._followers is None:
            of_model = {id(parameter) for parameter in self.model.parameters()}
            parts = [part for loss in named_losses(self.loss).values() for part in loss.modules()]
            theirs = set(self.model.modules())
            for part in parts:
                own = [parameter for parameter in part.parameters() if id(parameter) not in of_model]
                is_frozen = bool(own) and not any(parameter.requires_grad for parameter in own)
                if isinstance(part, BaseModel) or (is_frozen and not part.training):  # such as a teacher
                    theirs.update(part.modules())
            self._followers = [part for part in parts if part not in theirs]
        for module in self._followers:
            if module.training != self.model.training:
                module.training = self.model.training

    @torch.no_grad()
    def _broadcast_own_state(self) -> None:
        """Copy the loss-owned tensors of the first process to all others."""
        own = own_state(self.loss, self.model).values()
        self._own_parameters = [one for one in own if isinstance(one, nn.Parameter) and one.requires_grad]
        if get_world_size() > 1:
            for tensor in own:
                dist.broadcast(tensor.data, src=0)

    @torch.no_grad()
    def _average_own_gradients(self) -> None:
        """Average the gradients of loss-owned weights over processes.

        DistributedDataParallel averages those of the encoder only.

        A weight without a gradient in some processes counts as 0 there. Without one in all, it keeps none.
        """
        parameters = self._own_parameters
        if get_world_size() == 1 or not parameters:
            return
        present = torch.tensor(
            [one.grad is not None for one in parameters], device=parameters[0].device
        ).int()
        dist.all_reduce(present, op=dist.ReduceOp.MAX)
        used = [one for one, anywhere in zip(parameters, present.tolist(), strict=True) if anywhere]
        if not used:
            return
        gradients = [torch.zeros_like(one) if one.grad is None else one.grad for one in used]
        flat = torch.cat(
            [gradient.flatten().float() for gradient in gradients]
        )  # one message for many tensors
        dist.all_reduce(flat)
        means = (flat / get_world_size()).split([one.numel() for one in used])
        for parameter, gradient, mean in zip(used, gradients, means, strict=True):
            parameter.grad = gradient.copy_(mean.view_as(parameter))

    def with_losses(self, model: nn.Module) -> nn.ModuleList:
        """Return encoder and losses, whose gradients are clipped together."""
        return nn.ModuleList([model, *named_losses(self.loss).values()])

    # --- Trainings that teach nothing -----------------------------------------------------------------------

    def _check_rows(self, inputs: dict[str, Any]) -> None:
        """Check the first batch: a prompt without a column, or few distinct rows, raise ``ValueError``."""
        texts = {
            name.removesuffix("_input_ids"): ids for name, ids in inputs.items() if name.endswith("input_ids")
        }
        if (
            isinstance(prompts := self.args.prompts, dict)
            and "dataset_name" not in inputs
            and prompts.keys() - texts
        ):
            raise ValueError(
                f"prompts has {', '.join(prompts)}, and the training reads the columns {', '.join(texts)}. "
                "Give prompts for these."
            )
        columns = [ids.tolist() for ids in texts.values() if isinstance(ids, Tensor) and ids.ndim == 2]
        rows = list(map(str, zip(*columns, strict=True)))
        if len(rows) > 1 and len(set(rows)) <= max(1, len(rows) // 4):
            limit = getattr(self.data_collator, "max_length", None) or self.model.max_seq_length
            raise ValueError(
                f"Only {len(set(rows))} of the {len(rows)} rows of the first batch are distinct, at most "
                f"{limit} tokens of each text. Remove repeated rows; or, if a prompt takes these tokens, "
                "raise the limit or shorten the prompt."
            )

    def _raise_nothing(self, what: str) -> NoReturn:
        batch = self.args.per_device_train_batch_size
        raise ValueError(
            f"{what}, so the training would teach nothing; its batches have {batch} rows. A loss that "
            "compares rows needs several in each batch, a term needs a weight above 0, and not all weights "
            "of encoder and loss may be frozen."
        )

    # --- Divergence -----------------------------------------------------------------------------------------

    def check_norm(self, norm: Tensor | float) -> None:
        """Check the gradient norm of an update, on a CPU before the update is made.

        Reading a number from a GPU waits for all its work. There the norm is read with the next batch.
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
                if self._skipped_updates < SKIPPED_UPDATES:
                    continue
            if bad:
                self._raise_diverged(f"In update {update}, {', '.join(bad)}.")

    def _check_weights(self) -> None:
        """Raise :class:`DivergedError` if the last updates, or a trained weight, are not finite."""
        self._check_finite()
        bad = [
            name
            for loss in named_losses(self.loss).values()
            for name, weight in loss.named_parameters()
            if weight.requires_grad and not weight.isfinite().all()
        ]
        if bad:
            self._raise_diverged(
                f"After update {self.state.global_step}, {bad[0]} is not finite, and is not saved."
            )

    def _raise_diverged(self, what: str) -> NoReturn:
        raise DivergedError(
            f"{what} The training stopped; its last complete checkpoint is {self._checkpoint or 'none'}. "
            f"Train with a lower learning_rate (now {self.args.learning_rate:g}) or max_grad_norm "
            f"(now {self.args.max_grad_norm:g})."
        )

    # --- Logs and evaluation --------------------------------------------------------------------------------

    def _add_to_log(self, numbers: dict[str, Any], rows: int) -> None:
        for name, number in numbers.items():
            value = torch.as_tensor(number).detach().float()
            is_known = ~value.isnan()  # a diagnostic is NaN if the batch had nothing to measure
            total, count = self._sums.get(name, (0, 0))
            self._sums[name] = (total + rows * value.where(is_known, 0), count + rows * is_known)

    def _take_means(self) -> dict[str, float]:
        """Return the means since the last call over all processes, which may compute different losses."""
        by_process: list[Any] = [self._sums]
        if get_world_size() > 1:
            by_process = [None] * get_world_size()
            dist.all_gather_object(
                by_process, {name: (x.cpu(), n.cpu()) for name, (x, n) in self._sums.items()}
            )
        self._sums, means = {}, {}
        for name in dict.fromkeys(name for sums in by_process for name in sums):
            pairs = [sums[name] for sums in by_process if name in sums]
            total, count = (sum(numbers) for numbers in zip(*pairs, strict=True))
            if count > 0:
                means[name] = round((total / count).item(), 4)
        return means

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Log, with the means of the loss's terms and diagnostics. Infinity and NaN become None."""
        super().log(self._take_means() | logs if "loss" in logs else logs, *args, **kwargs)
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
        """Evaluate or predict, with the means of the loss's terms and diagnostics among the metrics.

        Views and masks are drawn with the training's seed, so that evaluations can be compared. The
        training's own random numbers continue as if there had been no evaluation.
        """
        host.leave_unprepared(self)
        of_training, self._sums = self._sums, {}
        with host.kept_random_state(self.args.device):
            set_seed(self.args.seed)
            output = super().evaluation_loop(
                dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix
            )
        prefix = metric_key_prefix + ("/" if isinstance(self.loss, dict) else "_")
        means = {prefix + name: mean for name, mean in self._take_means().items()}
        self._sums = of_training
        output.metrics.update(means | output.metrics)  # type: ignore[union-attr, operator]
        self._scores[self.state.global_step] = dict(self.model.model_card_data.eval_results_dict or {})
        return output

    # --- Checkpoints ----------------------------------------------------------------------------------------

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save the model, and in a checkpoint also the state of the loss."""
        checkpoint = output_dir if _internal_call else None  # also None when the model is pushed to the Hub
        if checkpoint is not None:
            self._check_weights()
            Path(checkpoint, COMPLETE_FILE).unlink(missing_ok=True)  # one that is overwritten is incomplete
        super().save_model(output_dir, _internal_call)
        if checkpoint is not None and self.args.should_save:
            save_loss_state(self.loss, self.model, checkpoint)

    def finish_checkpoint(self, folder: Path) -> None:
        """Mark a checkpoint as complete, unless it was saved without the optimizer, which resuming needs."""
        self.accelerator.wait_for_everyone()  # each process writes its random state
        if not self.args.save_only_model:
            self._checkpoint = str(folder)
            if self.args.should_save:
                mark_complete(folder)

    def raise_write_error(self, folder: Path, error: Exception) -> NoReturn:
        """Raise an ``OSError`` with the checkpoint, the cause and the free space of the disk."""
        disk = shutil.disk_usage(next(parent for parent in folder.absolute().parents if parent.exists()))
        raise OSError(
            f"Checkpoint {folder} could not be written: {' '.join(str(error).split())[:200]}. Its disk has "
            f"{disk.free / 2**30:.1f} GB left. The last complete checkpoint is {self._checkpoint or 'none'}."
        ) from error

    def load_loss(self, folder: str) -> None:
        """Load the state of the loss, to resume from a checkpoint or to restore the best one."""
        load_loss_state(self.loss, self.model, folder)
        if self._checkpoint and not self._loaded:  # the one that is resumed, not the best one at the end
            check_settings(self.loss, folder, allow_changed=self._allow_changed_settings)
        self._loaded.append(folder)


def _check_cells(dataset: Any, name: str, label_columns: list[str]) -> None:
    """Raise ``ValueError`` with column and row if a cell outside the label columns is not text."""
    if not isinstance(dataset, Dataset) or dataset.format["type"] == "custom":  # its cells are made later
        return
    for column, feature in dataset.features.items():
        if (
            column in label_columns
            or not isinstance(feature, Value)
            or (feature.dtype in ("string", "large_string") and not dataset.data.column(column).null_count)
        ):
            continue
        row = next((i for i, cell in enumerate(dataset[column]) if not isinstance(cell, str)), None)
        if row is not None:
            raise ValueError(
                f"{name} must hold text, got {dataset[row][column]!r} in column {column!r}, row {row}. "
                "Remove such rows with dataset.filter, or the column with dataset.remove_columns."
            )
