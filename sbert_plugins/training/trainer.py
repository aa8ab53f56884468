"""sentence-transformers' trainer, for losses that own something."""

from __future__ import annotations

import copy
import logging
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from numbers import Real
from pathlib import Path
from typing import Any

import sentence_transformers
import torch
import torch.distributed as dist
from datasets import Dataset
from sentence_transformers.util import get_world_size
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import EarlyStoppingCallback, TrainerCallback, TrainerControl, TrainerState, TrainingArguments, set_seed
from transformers.trainer_pt_utils import find_batch_size
from transformers.trainer_utils import EvalLoopOutput, TrainOutput

from sbert_plugins import host
from sbert_plugins.contract import check_value, freeze_mask_template, talks_to_others

from .checkpoints import (
    COMPLETE_FILE,
    mark_complete,
    marked_checkpoints,
    newest_complete_checkpoint,
    step_of,
    unmark_later,
    why_incomplete,
)
from .collator import AugmentingCollator, EpochCallback
from .finite import FiniteCheck
from .idle import hints_of, idle_parts
from .loss_state import (
    INDEX_FILE,
    WEIGHTS_FILE,
    LossStateCallback,
    begin_training,
    check_loss_state,
    check_settings,
    follow_encoder,
    load_loss_state,
    mark_state_kept,
    named_losses,
    own_modules,
    own_state,
    require_processes_together,
    require_same_model,
    save_loss_state,
    take_out_of_ddp,
)
from .precision import tell_of_half_weights, tell_of_slow_bf16
from .sam import SharpnessAwareStep

logger = logging.getLogger(__name__)

_WAY_TO_GRADIENT = "compute it from what self.model(...) gives, with no detach, item or no_grad between"
_SAVED_ALONE = " (with save_only_model=True a checkpoint has no optimizer, and no training goes on from it)"
# What the host writes beside terms, in an evaluation behind eval_.
_OF_THE_LOG = {
    "loss",
    "grad_norm",
    "learning_rate",
    "epoch",
    "step",
    "steps",
    "runtime",
    "samples_per_second",
    "steps_per_second",
}


@host.connect_trainer
@host.tell_of_a_lost_best
class SentenceTransformerTrainer(sentence_transformers.SentenceTransformerTrainer):
    """A drop-in ``SentenceTransformerTrainer`` under which what the loss owns is trained like the encoder.

    For any loss, or dict of losses, also those of sentence-transformers:

    - **Checkpoints** hold the loss's own weights and buffers (``loss_state.safetensors``, ``loss_state.json``), and a list of
      their files with checksums, written last (``checkpoint_complete.json``). A resumed training equals an uninterrupted
      one, and other settings of the loss are refused by name; ``resume_from_checkpoint=True`` takes the newest complete
      checkpoint, and ``load_best_model_at_end`` restores the loss with the encoder.
    - **An optimizer of one's own** that leaves out what the loss owns is refused.
    - **Several processes**: the loss's weights start as rank 0's, and their gradients are averaged over ranks; so are the
      encoder's also after an evaluation, which leaves it unwrapped in the host's trainer.
    - **Clipping**: ``max_grad_norm`` holds for encoder and loss jointly, and so does the logged ``grad_norm``.
    - **Modes**: the loss's modules follow the model's train and eval mode, but for other encoders in it (a frozen guide, a
      momentum copy) and frozen parts in eval mode (a teacher): whether those use dropout is for the loss to say.
    - **Divergence**: a loss, gradient norm or weight that is not finite stops the training; its checkpoint is not written.
    - **Logs**: ``loss.diagnostics``, averaged over the logging steps, stand beside the loss's terms; of a dict of losses both
      as ``dataset/key``, means over that dataset's batches. An evaluation's are of its own data (``eval_key``, with several
      datasets ``eval_dataset_key``). A term that was 0 all along or had no gradient, and a decoder
      that read nothing of the sentence vectors, are named at the end.
    - **Precision**: mixed precision is the training's, and of evaluations in it. Before and after it the encoder computes as
      what is saved of it does elsewhere, where the host leaves it in autocast.
    - **Evaluation** changes nothing: how often a training is evaluated, and whether, leaves its updates as they are.
    - **Choice**: a ``metric_for_best_model`` that an evaluator measures on a test set (its ``test_sets``) warns, and one that
      is better the lower is refused without ``greater_is_better=False``.
    - **Card**: scores in the model card are those of the weights that the training ends with, or none.

    Args:
        *args: As in sentence-transformers.
        sam_rho: Radius of Sharpness-Aware Minimization (Foret et al., 2021), whose default is 0.05; None leaves it out. Each
            update then costs two forward and backward passes of all its micro-batches.
        **kwargs: As in sentence-transformers.

    Raises:
        ValueError: For a ``model_init``, which would hand one loss from trial to trial. From ``train``, before anything is
            loaded or written: a loss round another model, a checkpoint that is incomplete or holds the state of another loss
            (with file and mismatch), several GPUs in one process (start it with torchrun), FSDP, DeepSpeed, and what cannot
            be right with ``sam_rho``.
        ImportError: With a version of transformers below 5.3, under which the loss's weights would not be clipped.
        OSError: From ``train``, if the best checkpoint cannot be loaded at its end.
        DivergedError: From ``train``, a ValueError too: with the update, the term and the first texts of the batch whose
            loss is not finite, and the last good checkpoint.

    Example:
        >>> from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments
        >>> from sbert_plugins import losses, training
        >>> model = SentenceTransformer("bert-base-uncased")
        >>> trainer = training.SentenceTransformerTrainer(
        ...     model=model, args=arguments, train_dataset=dataset, loss=losses.ArcCSELoss(model)
        ... )
        >>> trainer.train()  # where it was killed, later: trainer.train(resume_from_checkpoint=True)
    """

    def __init__(self, *args: Any, sam_rho: float | None = None, **kwargs: Any) -> None:
        host.require_trainer()
        super().__init__(*args, **kwargs)
        self._refuse_model_init()
        sam_rho = sam_rho or getattr(self.args, "sam_rho", 0.0) or None
        self._sharpness = None if sam_rho is None else SharpnessAwareStep(self, sam_rho)
        self._own_parameters: list[nn.Parameter] = []
        self._made_optimizer: Any = None
        self._trained_by_it: set[int] = set()  # what was to be trained when it was made
        self._frozen: list[nn.Parameter] = []  # what was not, when the training began
        self._finite = FiniteCheck(self)
        self._computing: Any = None  # the loss of the batch that is being computed
        self._terms: dict[str, Tensor] = {}  # its terms
        self._weight = 1  # what these count
        self._evaluating_as = "eval"  # what the keys of the evaluation begin with
        self._synced_mode: bool | None = None
        self._term_names: dict[str, None] = {}  # of all terms so far, in order
        self._with_gradient: set[str] = set()  # those of them that had one
        self._largest: dict[str, Tensor] = {}  # absolute value of each: the log has four digits
        # kind -> name -> (sum, number of values) since the last log
        self._diagnostics: dict[str, dict[str, tuple[Tensor, int | Tensor]]] = {"train": {}, "eval": {}}
        self._resumed: str | None = None  # the checkpoint, in a training that goes on from one
        self._evaluated: dict[int, dict[Any, dict[str, Any]]] = {}  # update -> what the card would have of it
        self.add_callback(_BeginCallback(self))
        freeze_mask_template(self.model)  # before there is an optimizer
        self._tell_collator()
        if isinstance(self.data_collator, AugmentingCollator):
            self.add_callback(EpochCallback(self.data_collator))

    def _tell_collator(self) -> None:
        if isinstance(self.data_collator, AugmentingCollator):
            self.data_collator.take_arguments(prompts=self.args.prompts, router_mapping=self.args.router_mapping)

    def train(
        self,
        resume_from_checkpoint: str | bool | None = None,
        *args: Any,
        allow_changed_settings: bool = False,
        **kwargs: Any,
    ) -> TrainOutput:
        """Train, or continue from a path, or with ``True`` from the newest complete checkpoint in ``output_dir``.

        Settings of the loss, or a number of processes, that differ from the checkpoint's are refused, or with
        ``allow_changed_settings`` a warning.
        """
        self._refuse_what_is_untested()
        while self.pop_callback(LossStateCallback):  # it does what is done here
            pass
        self._tell_collator()
        require_same_model(self.loss, self.model)
        freeze_mask_template(self.model)  # before DistributedDataParallel waits for its gradient
        self._check_direction()
        if resume_from_checkpoint is True and newest_complete_checkpoint(self.args.output_dir) is None:
            resume_from_checkpoint = None
        checkpoint = self._checkpoint_to_resume(resume_from_checkpoint)
        if checkpoint is not None:
            check_settings(self.loss, checkpoint, allow_changed=allow_changed_settings)
            follow_encoder(self.loss, self.model)
            check_loss_state(self.loss, self.model, checkpoint)
        tell_of_slow_bf16(self.args)
        tell_of_half_weights(self.model)
        mark_state_kept(self.loss)
        if checkpoint is not None:
            load_loss_state(self.loss, self.model, checkpoint)
        self._own_parameters = self._broadcast_own_state()
        self._frozen = [one for one in self._parameters() if not one.requires_grad]
        self._prepare_anew()
        self._synced_mode = None  # another trainer may have set the loss's modes
        self._finite.begin(checkpoint)
        self._forget_outgrown_optimizer()
        if checkpoint is not None:
            self._tell_what_resuming_loses()
        self._evaluated, self._resumed = {}, checkpoint
        self.model.model_card_data.eval_results_dict = {}  # what was measured before is of other weights
        try:
            output = super().train(checkpoint, *args, **kwargs)
        finally:
            host.undo_preparation(self.model)  # what is measured next is what is saved
        self._finite.read()
        self._keep_scores_of_what_is_kept()
        if self.args.load_best_model_at_end and self.state.best_model_checkpoint:
            try:
                load_loss_state(self.loss, self.model, self.state.best_model_checkpoint)
            except ValueError as error:  # the host does not lose a finished training over this either
                logger.error("The encoder is the best checkpoint's, the loss's own weights are the last ones: %s", error)
        self._finite.check_weights()
        self._tell_of_idle_parts(is_resumed=checkpoint is not None)
        return output

    def _prepare_anew(self) -> None:
        """Have the host prepare the model for this training, whatever was done with it before, and in which trainer."""
        host.undo_preparation(self.model)
        self.model_wrapped = self.model
        for member in named_losses(self.loss).values():
            take_out_of_ddp(member, self.model)

    def forget_terms(self) -> None:
        """Begin to log anew: a training that was interrupted in this process leaves some, and so does one out of memory."""
        self._diagnostics = {"train": {}, "eval": {}}
        self.accum_loss_components = {"train": {}, "eval": {}}
        self._term_names, self._with_gradient, self._largest = {}, set(), {}

    def create_optimizer(self, *args: Any, **kwargs: Any) -> torch.optim.Optimizer:
        """Make the optimizer as the host does, where none was given, and know it again."""
        is_given = self.optimizer is not None
        made = super().create_optimizer(*args, **kwargs)
        if not is_given:
            self._made_optimizer = made
            self._trained_by_it = set(self._to_train())
        return made

    def _parameters(self) -> Iterator[nn.Parameter]:
        return (one for part in (self.model, *named_losses(self.loss).values()) for one in part.parameters())

    def _to_train(self) -> Iterator[int]:
        return (id(one) for one in self._parameters() if one.requires_grad)

    def _forget_outgrown_optimizer(self) -> None:
        """Have an optimizer made anew that an earlier training made, if more is to be trained now: the host keeps it."""
        optimizer = getattr(self.optimizer, "optimizer", self.optimizer)  # accelerate wraps it
        is_the_users = optimizer is not self._made_optimizer or self.optimizer_cls_and_kwargs is not None
        if optimizer is None or is_the_users or self._trained_by_it.issuperset(self._to_train()):
            return
        logger.info("More weights are trained than in the training before: the optimizer begins anew.")
        self.optimizer = None

    def _tell_what_resuming_loses(self) -> None:
        if self.args.dataloader_num_workers and self.args.dataloader_persistent_workers:
            logger.warning(
                "dataloader_persistent_workers=True: resumed at the end of an epoch a training is not the uninterrupted one "
                "to the bit, for new workers draw a seed where kept ones draw none. Without it, it is."
            )
        if not hasattr(self.train_dataset, "__len__"):
            logger.warning(
                "train_dataset is streamed, of unknown length: resumed in its first epoch a training equals an uninterrupted "
                "one, in a later one it reads the epoch's first batches again. Give a dataset with a length to be sure."
            )
        if self._early_stopping() and not self.args.restore_callback_states_from_checkpoint:
            logger.warning(
                "EarlyStoppingCallback counts from zero in a training that is resumed, and may stop it later than without the "
                "interruption: set restore_callback_states_from_checkpoint=True in the arguments."
            )

    def _tell_of_idle_parts(self, *, is_resumed: bool) -> None:
        # Of the updates before a resume the log knows the terms and not their gradients.
        dead = () if is_resumed else self._term_names.keys() - self._with_gradient
        for note in idle_parts(
            self.state.log_history,
            self._term_names,
            without_gradient=dead,
            small={name for name, value in self._largest.items() if value.item()},
            hints=hints_of(self.loss),
        ):
            logger.warning(note)

    def _check_direction(self) -> None:
        """Refuse to take the highest of a metric that is better the lower, for the host asks no evaluator."""
        chosen_by = (self.args.metric_for_best_model or "").removeprefix("eval_")
        alone: list[Any] = getattr(self.evaluator, "chosen_by", [])  # whose score is the sequential one
        for evaluator in _flat(self.evaluator):
            lower = evaluator.titles(evaluator.lower_is_better) if hasattr(evaluator, "titles") else []
            is_lower = chosen_by in lower
            if chosen_by == "sequential_score" and len(alone) == 1 and evaluator is alone[0]:
                is_lower = not evaluator.greater_is_better
            if is_lower and self.args.greater_is_better:
                raise ValueError(
                    f"metric_for_best_model={chosen_by!r} is better the lower, and greater_is_better is True: the worst "
                    "checkpoint would be kept. Set greater_is_better=False."
                )

    def _keep_scores_of_what_is_kept(self) -> None:
        """Leave in the model card the scores of the weights that the training ends with; of others there shall be none."""
        # An evaluation that was the best may have no checkpoint, where fewer are saved: then the last weights are kept.
        loaded = self.state.best_model_checkpoint if self.args.load_best_model_at_end else None
        step = int(loaded.rpartition("-")[2]) if loaded else self.state.global_step
        self.model.model_card_data.eval_results_dict = self._evaluated.get(step, {})

    def _refuse_model_init(self) -> None:
        if self.model_init is not None:
            raise ValueError(
                f"model_init must be None, got {self.model_init!r}: the host puts each new model into the loss of the first, "
                "whose heads and queues would pass from one trial to the next. Build model, loss and trainer anew in a loop "
                "over the trials and pass model."
            )

    def _refuse_what_is_untested(self) -> None:
        if self.args.n_gpu > 1:
            raise ValueError(
                f"one process sees {self.args.n_gpu} GPUs and would use DataParallel, which replicates the encoder but not "
                f"the loss: start {self.args.n_gpu} processes with torchrun --nproc_per_node {self.args.n_gpu}, or set "
                "CUDA_VISIBLE_DEVICES to one GPU."
            )
        if self.is_fsdp_enabled or self.is_deepspeed_enabled:
            raise ValueError(
                f"{'FSDP' if self.is_fsdp_enabled else 'DeepSpeed'} shards the encoder's parameters and knows nothing of the "
                "loss's; saving, clipping and averaging them is not tested under it. Use torchrun (DDP)."
            )
        if self.args.neftune_noise_alpha is not None:
            raise ValueError(
                f"neftune_noise_alpha must be None, got {self.args.neftune_noise_alpha}: the host looks for the word "
                "embeddings of a language model, and finds none in a SentenceTransformer."
            )
        require_processes_together(self.args)
        members = named_losses(self.loss)
        talking = [name for name, member in members.items() if talks_to_others(member)]
        # Accelerate deals batches out: in one step each process may have one of another dataset.
        if get_world_size() > 1 and len(set(members.values())) > 1 and talking:
            raise ValueError(
                f"the loss of {talking[0]!r} talks to the other processes in its forward, where another of the losses may be "
                "computed: both would wait. Give all datasets one loss, set balance=None and gather_across_devices=False "
                "(PTBERTLoss cannot), or train in one process."
            )
        if self._sharpness is not None:
            self._sharpness.check()

    def add_dataset_name_column(self, dataset: Any, dataset_name: str | None = None) -> Any:
        """Have each batch say which dataset it is of; in a copy, for one under two names would be the last one's twice."""
        return super().add_dataset_name_column(copy.copy(dataset) if isinstance(dataset, Dataset) else dataset, dataset_name)

    # --- Checkpoints -------------------------------------------------------------------------------------------------------

    def _checkpoint_to_resume(self, requested: str | bool | None) -> str | None:
        """Resolve and check ``resume_from_checkpoint`` before the host loads anything from it."""
        if not requested:
            if marked := marked_checkpoints(str(self.args.output_dir)):
                logger.warning(
                    "%s is of an earlier training: until this one has saved a checkpoint, resume_from_checkpoint=True would "
                    "resume that. Train in another output_dir to keep both.",
                    marked[max(marked)],
                )
            return None
        if requested is True:
            checkpoint = newest_complete_checkpoint(str(self.args.output_dir))
            if checkpoint is None:
                alone = _SAVED_ALONE if self.args.save_only_model else ""
                raise ValueError(
                    f"resume_from_checkpoint=True needs a complete checkpoint (one with {COMPLETE_FILE}) in "
                    f"{self.args.output_dir}, got none{alone}: pass a path, or train without it."
                )
        else:
            checkpoint = Path(requested)
            # A checkpoint of the host's own trainer has neither file, and will do for a loss that owns nothing.
            is_ours = (checkpoint / INDEX_FILE).exists() or (checkpoint / COMPLETE_FILE).exists()
            if is_ours and (reason := why_incomplete(checkpoint)):
                alone = "" if (checkpoint / "optimizer.pt").exists() else _SAVED_ALONE
                raise ValueError(f"{checkpoint} is not a complete checkpoint: {reason}{alone}. Resume from another one.")
        return str(checkpoint)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save the model; into a checkpoint also the state of the loss."""
        if _internal_call:
            self._finite.read()
            self._finite.check_weights()
            if not math.isfinite(self.state.best_metric or 0):
                self.state.best_metric = None  # every one so far was NaN: the host's -inf is no json
        # push_to_hub calls it without a folder: no checkpoint.
        checkpoint = Path(output_dir) if _internal_call and output_dir is not None and self.args.should_save else None
        if checkpoint is not None:
            (checkpoint / COMPLETE_FILE).unlink(missing_ok=True)  # a folder that is written again is torn from now on
        super().save_model(output_dir, _internal_call)
        if checkpoint is not None:
            save_loss_state(self.loss, self.model, checkpoint)
            if self.args.save_only_model:  # it will not be finished, and those of an earlier training are not this one's
                begun = 0 if self._resumed is None else step_of(Path(self._resumed))
                unmark_later(checkpoint.parent, self.state.global_step if begun is None else begun)

    def finish_checkpoint(self, folder: str) -> None:
        """Add the list of files to a checkpoint, when weights and optimizer are written."""
        self.accelerator.wait_for_everyone()  # each rank has written its random state
        if self.args.should_save:
            mark_complete(folder, self.state.global_step)
            unmark_later(Path(folder).parent, self.state.global_step)
        self._finite.checkpoint = folder

    def refuse_the_last_for_the_best(self, error: Exception) -> None:
        """Say that the best checkpoint could not be loaded, with the last weights in its place."""
        raise OSError(
            f"the best checkpoint, {self.state.best_model_checkpoint}, could not be loaded ({type(error).__name__}: {error}). "
            "All updates are done, and checkpoints kept: train(resume_from_checkpoint=True), on the command line --resume, "
            "loads it again."
        ) from error

    def is_over(self) -> bool:
        """Whether all updates are made, or early stopping had stopped before the checkpoint that is resumed."""
        early = None if self._resumed is None else self._early_stopping()
        used_up = early is not None and early.early_stopping_patience_counter >= early.early_stopping_patience
        return used_up or self.state.global_step >= self.state.max_steps

    def _early_stopping(self) -> EarlyStoppingCallback | None:
        callbacks = self.callback_handler.callbacks
        return next((callback for callback in callbacks if isinstance(callback, EarlyStoppingCallback)), None)

    def find_best_again(self) -> None:
        """Look for the best checkpoint beside the one that is resumed: the host keeps its path, and the folder was moved."""
        if self._resumed is None or self.state.best_model_checkpoint is not None or not self.state.best_global_step:
            return
        moved = Path(self._resumed).parent / f"checkpoint-{self.state.best_global_step}"
        if not why_incomplete(moved):
            self.state.best_model_checkpoint = str(moved)
            logger.info("The best checkpoint is %s, of a folder that was moved.", moved)

    def files_kept_here(self) -> set[str]:
        """Name what is of no use to those who load the model from the Hub."""
        return {WEIGHTS_FILE, INDEX_FILE, COMPLETE_FILE}

    # --- Several processes -------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def _broadcast_own_state(self) -> list[nn.Parameter]:
        """Give every rank rank 0's loss-owned tensors; return those that are trained."""
        own = [tensor for member in named_losses(self.loss).values() for tensor in own_state(member, self.model).values()]
        if get_world_size() > 1:
            for tensor in own:
                dist.broadcast(tensor.data, src=0)
        return [tensor for tensor in own if isinstance(tensor, nn.Parameter) and tensor.requires_grad]

    @torch.no_grad()
    def average_own_gradients(self) -> None:
        """Average the gradients of loss-owned weights over ranks, as DDP does the encoder's.

        A weight without a gradient on some ranks counts as zero there; one without a gradient on every rank keeps none.
        """
        parameters = self._own_parameters
        if get_world_size() == 1 or not parameters:
            return
        device = parameters[0].device
        present = torch.tensor([parameter.grad is not None for parameter in parameters], dtype=torch.int32, device=device)
        dist.all_reduce(present, op=dist.ReduceOp.MAX)
        used = [parameter for parameter, anywhere in zip(parameters, present.tolist(), strict=True) if anywhere]
        if not used:
            return
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in used]
        # One message for all of them: heads and decoders have many small tensors.
        flat = torch.cat([gradient.flatten().float() for gradient in gradients])
        dist.all_reduce(flat)
        means = (flat / get_world_size()).split([p.numel() for p in used])
        for parameter, gradient, mean in zip(used, gradients, means, strict=True):
            parameter.grad = gradient.copy_(mean.view_as(parameter))

    def require_all_in_optimizer(self) -> None:
        """Refuse an optimizer without what the loss owns, which would count in the norm and learn nothing."""
        of_encoder = {id(parameter) for parameter in self.model.parameters()}
        groups: list[dict[str, Any]] = getattr(self.optimizer, "param_groups", [])
        held = {id(parameter) for group in groups for parameter in group["params"]}
        names = {id(tensor): name for loss in named_losses(self.loss).values() for name, tensor in loss.named_parameters()}
        left = [names[id(tensor)] for tensor in self._own_parameters if id(tensor) not in held]
        if left and held & of_encoder:  # one by layers has neither in its groups
            raise ValueError(
                f"the optimizer holds none of {len(left)} weights of the loss's own ({left[0]}, ...), which would not be "
                "trained: pass optimizers=(one over loss.parameters(), None), without optimizer_cls_and_kwargs; where an "
                "earlier training made it, set trainer.optimizer = None; or set requires_grad=False on them."
            )

    # --- Steps -------------------------------------------------------------------------------------------------------------

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """Run one micro-batch; after the last one of an update finish the gradients of the loss's own weights."""
        step = super().training_step
        if self._sharpness is not None:
            loss = self._sharpness.training_step(step, model, inputs, num_items_in_batch)
        else:
            loss = step(model, inputs, num_items_in_batch)
        if self.args.logging_nan_inf_filter:
            self._finite.read()  # the host waits for the loss right after this
        if self.accelerator.sync_gradients:
            self._refuse_unfrozen()
            if self._sharpness is None:
                self.average_own_gradients()
        return loss

    def _refuse_unfrozen(self) -> None:
        """Refuse weights that are unfrozen in a training and do not learn, or apart from the other processes' ones."""
        unfrozen = {id(one) for one in self._frozen if one.requires_grad}
        if not unfrozen:
            return
        groups: list[dict[str, Any]] = getattr(self.optimizer, "param_groups", [])
        if get_world_size() > 1 or not unfrozen <= {id(parameter) for group in groups for parameter in group["params"]}:
            raise ValueError(
                f"{len(unfrozen)} weights were unfrozen during the training, which began without them: the optimizer holds "
                "them not, or several processes do not average their gradients. Train in two stages: trainer.train() again, "
                "after requires_grad_(True)."
            )

    def compute_loss(self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Compute the loss in the model's mode and keep its diagnostics."""
        dataset = inputs.get("dataset_name", "")  # the host takes it out
        member = self.loss.get(dataset) if isinstance(self.loss, dict) else self.loss
        self._sync_mode()
        # The host says BaseModel, and passes what DistributedDataParallel wraps it in.
        self._computing = member
        # The host's eval_loss is a mean over rows, and so are terms and diagnostics there.
        self._weight = 1 if self.model.training else find_batch_size(inputs) or 1
        result = super().compute_loss(model, inputs, *args, **kwargs)  # type: ignore[arg-type]
        terms, self._terms = self._terms, {}
        value = result[0] if isinstance(result, tuple) else result
        check_value(member, value)
        of = f"{dataset}/" if isinstance(self.loss, dict) else ""
        if self.model.training:
            self._require_gradient(member, value)
            self._with_gradient |= {of + name for name, term in terms.items() if term.requires_grad}
            for name, term in terms.items():
                size = term.detach().abs()
                self._largest[of + name] = torch.maximum(size, self._largest.get(of + name, size))
            self._finite.see_loss(terms or {type(member).__name__: value}, inputs)
        if not self._is_replaying():
            self._keep_diagnostics(member, terms, of=of)
        return result

    def _require_gradient(self, member: Any, value: Tensor) -> None:
        if torch.is_grad_enabled() and not value.requires_grad:
            is_frozen = not any(parameter.requires_grad for parameter in self.model.parameters())
            way_out = "the encoder is frozen, set requires_grad on what shall learn" if is_frozen else _WAY_TO_GRADIENT
            raise ValueError(
                f"{type(member).__name__}.forward must return a number with a gradient, got one without: {way_out}."
            )

    def _keep_diagnostics(self, member: Any, terms: Mapping[str, Tensor], *, of: str) -> None:
        """Add a batch's diagnostics to those since the last log, and its terms where it is ``of`` one dataset of several."""
        sums, rows = self._diagnostics["train" if self.model.training else "eval"], self._weight
        found = dict(getattr(member, "diagnostics", {}))
        of_the_log = set() if of else _OF_THE_LOG
        if taken := [name for name in {**terms, **found} if name in of_the_log or (name in terms and name in found)]:
            raise ValueError(
                f"terms and diagnostics of {type(member).__name__} must have names of their own, got {taken[0]!r}, which "
                f"{'the log has for another number' if taken[0] in of_the_log else 'both have'}: rename it."
            )
        if of:  # of one loss the host logs the terms
            found = dict(terms) | found
            self._term_names |= {of + name: None for name in terms}
        for name, number in found.items():
            value = number if isinstance(number, Tensor) else torch.as_tensor(number) if isinstance(number, Real) else None
            if value is None or value.numel() != 1 or value.is_complex():
                got = repr(number) if value is None else f"a tensor of shape {tuple(value.shape)}, {value.dtype}"
                raise ValueError(
                    f"diagnostics of {type(member).__name__} must be numbers, got {got} under {name!r}: leave it out, or take "
                    "its mean."
                )
            weight: int | Tensor = rows
            value = value.detach().float()
            if name not in terms:  # a share of nothing, in a batch without a row to judge
                weight = rows * ~value.isnan()
                value = value.nan_to_num(nan=0.0, posinf=math.inf, neginf=-math.inf)
            total, count = sums.get(of + name, (0, 0))
            sums[of + name] = (total + weight * value, count + weight)

    def _is_replaying(self) -> bool:
        return self._sharpness is not None and self._sharpness.is_replaying

    def _sync_mode(self) -> None:
        # Somebody may have set them since: loss.eval() for a look at other data.
        if self._synced_mode != self.model.training or any(
            member.training != self.model.training for member in named_losses(self.loss).values()
        ):
            for member in named_losses(self.loss).values():
                for module in own_modules(member, self.model):
                    module.training = self.model.training
            self._synced_mode = self.model.training

    def track_loss_components(self, loss: dict[str, Tensor]) -> None:
        """Track the terms of a dict loss, once a micro-batch also where Sharpness-Aware Minimization runs it twice."""
        check_value(self._computing, loss)  # before the host sums them
        self._terms = loss
        # Of a dict of losses the host would divide each one's terms by the batches of all.
        is_one_of_several = isinstance(self.loss, dict)
        if not (self._is_replaying() or is_one_of_several):
            self._term_names |= dict.fromkeys(loss)
            if self.model.training:
                super().track_loss_components(loss)
            else:
                super().track_loss_components(self._weighted(loss))
                self.accum_loss_components["eval"]["steps"] += self._weight - 1

    def _weighted(self, terms: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return terms times the rows of their batch; one that is not finite is the mean so far, as the host has it."""
        sums = self.accum_loss_components["eval"]
        weighted = {name: self._weight * term.detach().float() for name, term in terms.items()}
        for name, value in weighted.items():
            if self.args.logging_nan_inf_filter and not torch.isfinite(value):
                weighted[name] = self._weight * sums[name] / sums["steps"] if name in sums else torch.zeros_like(value)
        return weighted

    # --- Evaluation --------------------------------------------------------------------------------------------------------

    def evaluation_loop(
        self,
        dataloader: DataLoader,
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput:
        """Evaluate or predict as the host does; terms and diagnostics that no log has taken are of other data.

        Views and masks are drawn with the training's seed, the same ones each time: what chooses a checkpoint are the
        weights, and not a draw. The training's own draws go on as if nobody had looked: any ``eval_steps`` and none give the
        same updates.
        """
        host.leave_unprepared(self)
        self._evaluating_as = metric_key_prefix
        self._diagnostics["eval"], self.accum_loss_components["eval"] = {}, {}
        self._tell_collator()
        modes = {
            module: module.training
            for member in named_losses(self.loss).values()
            for module in own_modules(member, self.model)
        }
        self._synced_mode = None
        try:
            with host.kept_random_state(self.args.device), self._kept_weights():
                set_seed(self.args.seed)
                return super().evaluation_loop(dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix)
        finally:
            for module, mode in modes.items():
                module.training = mode
            self._synced_mode = None

    @contextmanager
    def _kept_weights(self) -> Iterator[None]:
        """Undo the cast of ``bf16_full_eval`` and ``fp16_full_eval``: outside a training the host's stays, and rounds them."""
        is_cast = not self.is_in_train and (self.args.bf16_full_eval or self.args.fp16_full_eval)
        both = self.clipped(self.model)  # encoder and loss, whose heads follow the encoder's dtype
        before = [(tensor, tensor.data) for tensor in (*both.parameters(), *both.buffers())] if is_cast else []
        try:
            yield
        finally:
            for tensor, data in before:
                tensor.data = data

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Evaluate as the host does, and warn where a test set chooses the checkpoint."""
        metrics = super().evaluate(*args, **kwargs)
        chosen_by = (self.args.metric_for_best_model or "").removeprefix("eval_")
        measured = self.model.model_card_data.eval_results_dict or {}
        self._evaluated[self.state.global_step] = dict(measured)
        choosing: list[Any] = list(_flat(self.evaluator))
        if chosen_by == "sequential_score":
            choosing = [each for one in getattr(self.evaluator, "chosen_by", choosing) for each in _flat(one)]
        else:
            choosing = [evaluator for evaluator in choosing if chosen_by in measured.get(evaluator, ())]
        test_sets = dict.fromkeys(name for evaluator in choosing for name in getattr(evaluator, "test_sets", ()))
        if test_sets:
            warnings.warn(
                f"metric_for_best_model={chosen_by!r} is measured on test sets ({', '.join(test_sets)}): they choose the "
                "checkpoint, and their scores no longer say how it does on unseen data. Choose by a development set, such "
                'as EmbeddingSimilarityEvaluator(*sbert_plugins.evaluation.load_sts("STS-B dev")).',
                stacklevel=2,
            )
        return metrics

    # --- Gradients and logs ------------------------------------------------------------------------------------------------

    def clipped(self, model: nn.Module) -> nn.ModuleList:
        """Return encoder and loss, whose gradients are clipped jointly."""
        return nn.ModuleList([model, *named_losses(self.loss).values()])

    def see_norm(self, norm: Tensor | float) -> None:
        """Have a look at the norm of an update's gradient."""
        self._finite.see_norm(norm)

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Log, with the mean of each diagnostic since the last time (of this process, where there are several)."""
        self._finite.read()
        kind = "train" if "loss" in logs else "eval" if f"{self._evaluating_as}_loss" in logs else None
        if kind is not None:
            means = {name: (total / count).item() for name, (total, count) in self._diagnostics[kind].items() if count > 0}
            if kind == "eval":
                # The host names the terms where the keys begin with eval, not with eval_ and the name of a dataset.
                means = {self._evaluated_key(name): mean for name, mean in (self._mean_terms() | means).items()}
            self._diagnostics[kind] = {}
            logs = {**logs, **{name: round(mean, 4) for name, mean in means.items()}}
        super().log(logs, *args, **kwargs)
        # It becomes json, which has no NaN: of a metric, or of the gradient norm of an update that fp16 leaves out.
        entry: dict[str, Any] = self.state.log_history[-1]
        entry |= {key: None for key, value in entry.items() if isinstance(value, float) and not math.isfinite(value)}

    @torch.no_grad()
    def _mean_terms(self) -> dict[str, float]:
        """Take the means of an evaluation's terms, over all processes."""
        sums, self.accum_loss_components["eval"] = self.accum_loss_components["eval"], {}
        if not sums:
            return {}
        totals = torch.stack([total.float() for total in sums.values()])
        if get_world_size() > 1:
            dist.all_reduce(totals)
        means = dict(zip(sums, totals.tolist(), strict=True))
        steps = means.pop("steps")
        return {name: total / steps for name, total in means.items()}

    def _evaluated_key(self, name: str) -> str:
        """Return the key of a term or diagnostic in an evaluation; one of several losses has its dataset's name already."""
        for dataset in self.loss if isinstance(self.loss, dict) else ():
            if name.startswith(f"{dataset}/") and self._evaluating_as.endswith(f"_{dataset}"):
                return self._evaluating_as + name.removeprefix(dataset)
        return f"{self._evaluating_as}_{name}"


class _BeginCallback(TrainerCallback):
    """Tells the loss that a training begins, and its length, which the host works out then, as it builds the optimizer."""

    def __init__(self, trainer: SentenceTransformerTrainer) -> None:
        self.trainer = trainer

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.trainer.require_all_in_optimizer()
        self.trainer.find_best_again()
        self.trainer.forget_terms()
        begin_training(self.trainer.loss, state.max_steps, resumed=state.global_step > 0)


def _flat(evaluator: Any) -> Iterator[Any]:
    """Yield the evaluators inside an evaluator that runs several, or itself."""
    members = getattr(evaluator, "evaluators", None)
    if members is None:
        yield evaluator
    else:
        for member in members:
            yield from _flat(member)
