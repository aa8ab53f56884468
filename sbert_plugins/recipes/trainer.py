"""The host's trainer with a recipe's settings, and what it says of itself when it has trained."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sbert_plugins.recipes.card import examples_kept_private
from sbert_plugins.recipes.checked import Run
from sbert_plugins.recipes.settings import processes

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

    from sbert_plugins.evaluation import ScoredPairs
    from sbert_plugins.training import SentenceTransformerTrainer, TrainingArguments

logger = logging.getLogger(__name__)

DEV_SCORE = "stsb-dev_spearman_cosine"
_SINKS = 1.0  # points of STS-B dev, several standard errors of a seed


class Training(NamedTuple):
    """A training that is about to begin."""

    run: Run
    model: SentenceTransformer
    loss: Any
    rows: Dataset
    chosen: dict[str, Any]  # how the rows were made
    found: dict[str, Any]  # keywords of the loss that the recipe found
    lengths: dict[str, int | None]  # tokens a sentence in training and in the model, template and all
    tables: dict[str, ScoredPairs]
    before: dict[str, float]


def dev_evaluator(pairs: ScoredPairs, own_length: int | None) -> EmbeddingSimilarityEvaluator:
    """Build the evaluator that chooses the checkpoint: by what the saved model will give, not by shorter sentences."""
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

    class AtOwnLength(EmbeddingSimilarityEvaluator):
        def embed_inputs(self, model: SentenceTransformer, *arguments: Any, **keywords: Any) -> Any:
            length, model.max_seq_length = model.max_seq_length, own_length
            try:
                if processes() > 1:  # with a device the host shares no texts out: others cut theirs at the training's length
                    keywords["device"] = str(model.device)
                return super().embed_inputs(model, *arguments, **keywords)
            finally:
                model.max_seq_length = length

    return AtOwnLength(*pairs, name="stsb-dev", batch_size=128, main_similarity="cosine")


def build_trainer(
    training: Training,
    evaluator: EmbeddingSimilarityEvaluator | None,
    *,
    share: bool,
    report: Callable[[str], None],
    trackers: Sequence[str],
) -> SentenceTransformerTrainer:
    """Build the trainer of a method's rows, which shows one line of progress and keeps the rows out of the model card."""
    from transformers import EarlyStoppingCallback, PrinterCallback

    from sbert_plugins.recipes.progress import ProgressLine
    from sbert_plugins.training import SentenceTransformerTrainer

    with examples_kept_private(training.model, share=share):
        trainer = SentenceTransformerTrainer(
            model=training.model,
            args=_arguments(training, selects=evaluator is not None, trackers=trackers),
            train_dataset=training.rows,
            loss=training.loss,
            evaluator=evaluator,
        )
    if (patience := training.run.settings.patience) is not None:
        trainer.add_callback(EarlyStoppingCallback(patience))
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(ProgressLine(report, score=(f"eval_{DEV_SCORE}", "STS-B dev")))
    return trainer


def _arguments(training: Training, *, selects: bool, trackers: Sequence[str]) -> TrainingArguments:
    """Return the trainer's arguments; ``selects`` is whether the best checkpoint by STS-B dev is kept."""
    from sbert_plugins.training import LengthGroupedBatchSampler, TrainingArguments

    settings = training.run.settings
    updates = settings.updates(len(training.rows), processes=processes())
    warmup = settings.warmup_updates(updates)
    if warmup >= updates:
        logger.warning("The warm-up, %s updates, is not over when the training is, after %s.", f"{warmup:,}", f"{updates:,}")
    return TrainingArguments(
        sam_rho=settings.sam_rho or 0.0,
        output_dir=str(training.run.output / "checkpoints"),
        learning_rate=settings.learning_rate,
        per_device_train_batch_size=settings.batch_size,
        dataloader_drop_last=settings.leaves_one(len(training.rows)),
        gradient_accumulation_steps=settings.gradient_accumulation_steps,
        num_train_epochs=settings.epochs,
        max_steps=settings.max_steps,
        lr_scheduler_type={"linear": "linear", "constant": "constant_with_warmup"}[settings.learning_rate_schedule],
        warmup_steps=warmup,
        weight_decay=settings.weight_decay,
        learning_rate_mapping=_own_rate(training),
        prompts=_prompts(training),
        batch_sampler=LengthGroupedBatchSampler if settings.group_by_length else "batch_sampler",
        use_cpu=training.model.device.type == "cpu",
        bf16=training.run.json["bf16"],
        seed=training.run.json["seed"],
        # Ten lines of a short training, five between two evaluations of a long one.
        logging_steps=max(1, min(settings.eval_steps // 5, updates // 10)),
        logging_first_step=True,
        eval_strategy="steps" if selects else "no",
        eval_steps=settings.eval_steps,
        save_strategy="steps",
        save_steps=settings.eval_steps,
        save_total_limit=2 if selects else 1,  # the best and the last, which the host deletes at the end where there is one
        load_best_model_at_end=selects,
        metric_for_best_model=f"eval_{DEV_SCORE}" if selects else None,
        restore_callback_states_from_checkpoint=settings.patience is not None,  # how much of it is used up
        report_to=[*trackers] or "none",
        run_name=training.run.output.name,
        disable_tqdm=True,  # its bar and its dicts of strings; ProgressLine is in their place
    )


def _prompts(training: Training) -> dict[str, str]:
    """Return the encoder's default prompt for each column of sentences, all but a phrase: the host reads them without one."""
    prompt, written = training.run.json["encoder_settings"]["prompt"], {"phrase"} & {*training.run.recipe.columns}
    return {name: prompt for name in training.rows.column_names if name not in written} if prompt else {}


def _own_rate(training: Training) -> dict[str, float]:
    """Return the rate of what the loss owns by a pattern of exact names: a class of one's own may hold the model anywhere."""
    if (rate := training.run.settings.loss_learning_rate) is None:
        return {}
    theirs = {id(parameter) for parameter in training.model.parameters()}
    names = [re.escape(name) for name, parameter in training.loss.named_parameters() if id(parameter) not in theirs]
    if not names:
        logger.warning("The loss owns no weights: it has no use for loss_learning_rate, %s.", rate)
        return {}  # the host takes no pattern that nothing matches
    return {f"^({'|'.join(names)})$": rate}


def evaluation_seconds(trainer: SentenceTransformerTrainer) -> float:
    """Return the seconds that the evaluations of a training took."""
    return sum(entry["eval_runtime"] or 0.0 for entry in trainer.state.log_history if "eval_runtime" in entry)


def saved_update(trainer: SentenceTransformerTrainer) -> int:
    """Return the update whose weights the model has at the end: that of the best checkpoint, if there is one to load."""
    best = trainer.state.best_model_checkpoint
    chosen = int(best.rpartition("-")[2]) if trainer.args.load_best_model_at_end and best else None
    return trainer.state.global_step if chosen is None else chosen


def which_is_saved(trainer: SentenceTransformerTrainer) -> str:
    """Say which update is saved, and what the later ones did, where it is not the last."""
    key, saved = f"eval_{DEV_SCORE}", saved_update(trainer)
    # One that is not finite is logged as None.
    scores = {entry["step"]: entry[key] for entry in trainer.state.log_history if entry.get(key) is not None}
    if saved == trainer.state.global_step or saved not in scores:
        return ""
    best, last = 100 * scores[saved], 100 * scores[max(scores)]
    line = f"Saved is update {saved:,} of {trainer.state.global_step:,}, the best by STS-B dev: {best:.2f}"
    line += f", and {last:.2f} at update {max(scores):,}." if max(scores) != saved else "."
    return f"{line} The training sank: try fewer updates or a lower rate." if best - last >= _SINKS else line
