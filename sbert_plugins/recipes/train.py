"""One training: a plain sentence-transformers model and a record of it in one folder."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sbert_plugins import host
from sbert_plugins.recipes.budgets import small_budget
from sbert_plugins.recipes.card import name_data, private_examples, write_card
from sbert_plugins.recipes.encoders import (
    average_with_start,
    embeds_already,
    name_of_encoder,
    pooling_of,
    raise_if_blind,
)
from sbert_plugins.recipes.methods import RECIPES, check_keywords, find_recipe, known_keywords
from sbert_plugins.recipes.protocol import read_protocol
from sbert_plugins.recipes.recipe import LENGTH_GROUPED, Recipe, did_you_mean, override
from sbert_plugins.recipes.run import (
    LENGTH,
    RESULTS_FILE,
    RUN_FILE,
    check_is_free,
    check_same_run,
    differences,
    digest_of_sentences,
    digest_of_weights,
    hold,
    is_first_process,
    name_of_text,
    read_json,
    versions,
    write_json,
)

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.evaluation import BaseEvaluator
    from torch import nn

    from sbert_plugins.evaluation import Scores
    from sbert_plugins.training import SentenceTransformerTrainer, TrainingArguments

logger = logging.getLogger(__name__)
# Training arguments that the model card compares with the paper's.
_COMPARED = (
    "learning_rate",
    "per_device_train_batch_size",
    "lr_scheduler_type",
    "max_grad_norm",
    "weight_decay",
)
_LABELS = ("label", "labels", "score", "scores")  # sentence-transformers does not read them as text


@dataclass
class Settings:
    """The settings of a training, from its recipe, a protocol and what is given."""

    recipe: Recipe
    arguments: dict[str, Any]
    loss_keywords: dict[str, Any]
    column_keywords: dict[str, Any]
    max_seq_length: int | None
    dropout: float | None = None
    patience: int | None = None
    reason: str = ""  # for the defaults that depend on the start
    most_updates: int | None = None  # the paper's, unless the length was chosen


def train(
    method: str,
    sentences: Dataset | Sequence[str],
    model: SentenceTransformer,
    *,
    output: str | Path,
    protocol: str | None = None,
    loss_keywords: dict[str, Any] | None = None,
    column_keywords: dict[str, Any] | None = None,
    max_seq_length: int | None = None,
    dev: BaseEvaluator | None = None,
    evaluators: Sequence[BaseEvaluator] = (),
    start_weight: float = 0.0,
    patience: int | None = None,
    resume: bool = False,
    seed: int = 42,
    text: str | None = None,
    share_examples: bool = False,
    before: Scores | None = None,
    **arguments: Any,
) -> dict[str, Any]:
    """Train ``model`` in place with a method, and save it as a plain sentence-transformers model.

    ``output`` then holds ``model/``, which loads without this package, ``checkpoints/``, ``run.json``
    (written at the start) and ``results.json``.

    Args:
        method: A name in :data:`RECIPES`, or ``package.module:Class`` for a loss class of your own.
        sentences: A list of sentences; or a dataset with the column ``anchor``, and a second column where the
            method takes one; or all columns of the method.
        model: The encoder. ``max_seq_length`` truncates sentences in training only.
        output: A new or empty folder; with ``resume`` also that of a training to continue.
        protocol: Train as a protocol of the method describes: its arguments, keywords and columns. Text,
            encoder, ``dev`` and ``evaluators`` are still yours to give.
        loss_keywords: Keywords of the loss.
        column_keywords: Keywords of the function that makes the method's columns, such as
            :func:`data.paser_columns`.
        max_seq_length: Tokens per sentence in training, without a template or prompt; by default the
            recipe's.
        dev: Evaluator whose primary metric selects the checkpoint; without it the last update is saved.
        evaluators: Evaluators that score the model before and after. They select nothing.
        start_weight: Share of the start in the saved weights (:func:`average_with_start`).
        patience: Stop after this many evaluations by ``dev`` without a better one.
        resume: Continue from the newest checkpoint in ``output``, or start if there is none. A finished
            training is continued if it is to have more updates. If not, its results are returned, and
            ``model`` is not changed.
        seed: Seed of the weights of the loss, the order of the sentences and everything drawn in training.
        text: Name of the text, for the record and the model card.
        share_examples: Whether the model card may show sentences of the text.
        before: Scores of the start, if they are known (:func:`evaluation.measure`).
        **arguments: Fields of :class:`training.TrainingArguments`, in place of the recipe's.

    Returns:
        What ``results.json`` holds: the run, scores ``before`` and ``after``, the ``verdict``, the number of
        ``updates``, the ``log``.

    Raises:
        ValueError: For an invalid argument or an unknown keyword, fewer than two sentences, a model with
            weights in half precision, a decoder that pools its first token, or another training in
            ``output``.
        FileExistsError: If ``output`` is not empty, or another process trains there.
        RuntimeError: If the saved model gives other vectors than the trained one.

    Example:
        >>> results = train("arccse", dataset, model, output="runs/arccse", max_steps=60)  # doctest: +SKIP
        >>> results["verdict"]  # doctest: +SKIP
    """
    from transformers import EarlyStoppingCallback, set_seed

    from sbert_plugins import evaluation
    from sbert_plugins.encoder import set_dropout

    sentences = make_dataset(sentences, drop_labels=method in RECIPES)  # a loss of one's own may read them
    _check_inputs(sentences, model, start_weight)
    settings = _settle(method, protocol, arguments, embeds=embeds_already(model))
    recipe, keywords, output = settings.recipe, settings.loss_keywords | (loss_keywords or {}), Path(output)
    check_keywords(recipe, keywords)
    patience = settings.patience if patience is None else patience
    if "keep" in (loss_keywords or {}):
        settings.reason = ""  # it was chosen
    columns = settings.column_keywords | (column_keywords or {})
    wanted = settings.max_seq_length if max_seq_length is None else max_seq_length
    if patience is not None and dev is None:
        raise ValueError(f"patience={patience} needs dev, whose evaluations it counts.")
    run: dict[str, Any] = {
        "method": method,
        "protocol": protocol,
        "arguments": {name: value for name, value in settings.arguments.items() if name != "hub_token"},
        "loss_keywords": keywords,
        "column_keywords": columns,
        "max_seq_length": wanted,
        "start_weight": start_weight,
        "seed": seed,
        "dev": getattr(dev, "name", None),
        "text": name_of_text(text),
        "sentences": len(sentences),
        "sentences_digest": digest_of_sentences(sentences),
        "encoder": name_of_encoder(model),
        "weights_digest": digest_of_weights(model),
        "pooling": pooling_of(model),
        "versions": versions(),
    }
    with hold(output):
        if finished := _find_finished(output, run, resume=resume):
            return finished
        rows = recipe.make_rows(sentences, model, seed=seed, **columns)
        if settings.dropout is not None:
            set_dropout(model, settings.dropout)
        scored = [*evaluators, *([dev] if dev is not None else [])]
        before = evaluation.measure(model, scored) if before is None else before
        training_arguments = _training_arguments(settings, seed, rows, model, output, dev)
        updates = count_updates(training_arguments, len(rows))
        epochs = updates * _rows_per_update(training_arguments) / len(rows)
        found = recipe.find_keywords(rows, model, epochs, keywords) if recipe.find_keywords else {}
        set_seed(seed)
        loss = recipe.build_loss(model, **(found | keywords))
        start = deepcopy(model) if start_weight else None
        trainer = _build_trainer(training_arguments, rows, model, loss, dev, run["text"], share_examples)
        model.model_card_data.citations |= recipe.citations
        length = _tokens_in_training(model, wanted)
        trainer.data_collator.max_length = length
        if patience is not None:
            trainer.add_callback(EarlyStoppingCallback(patience))
        if is_first_process():
            write_json(output / RUN_FILE, run)
            _announce(settings, run, training_arguments, rows, updates, length)
        began = time.monotonic()
        trainer.train(resume_from_checkpoint=resume)
        seconds = time.monotonic() - began
        if start is not None:
            average_with_start(model, start, start_weight)
        after = evaluation.measure(model, scored)
        changes = evaluation.judge_all(before, after)
        used: dict[str, Any] = getattr(loss, "get_config_dict", dict)()
        used |= {name: training_arguments.to_dict()[name] for name in _COMPARED}
        used |= {"pooling": run["pooling"], "max_seq_length": wanted, "updates": updates}
        best = trainer.state.best_model_checkpoint if training_arguments.load_best_model_at_end else None
        results = run | {
            "rows": len(rows),
            "updates": trainer.state.global_step,
            "saved_update": int(best.rpartition("-")[2]) if best else trainer.state.global_step,
            "max_seq_length": {"training": length, "model": model.max_seq_length},
            "deviations": deviations_from_paper(recipe, used),
            "before": {name: score.to_dict() for name, score in before.items()},
            "after": {name: score.to_dict(items=True) for name, score in after.items()},
            "changes": [asdict(change) for change in changes],
            "verdict": [change.sentence for change in changes],
            "worse": [change.name for change in changes if change.result == "worse"],
            "seconds": round(seconds, 1),
            "log": trainer.state.log_history,
        }
        if is_first_process():
            _save(trainer, recipe, results, output)
    return results


def _check_inputs(sentences: Dataset, model: SentenceTransformer, start_weight: float) -> None:
    """Raise for what would fail later, or not be noticed."""
    from sentence_transformers import SentenceTransformer

    if not isinstance(model, SentenceTransformer):
        raise ValueError(
            f"model must be a SentenceTransformer, got {type(model).__name__}: use recipes.build_encoder."
        )
    trained = {str(weight.dtype) for weight in model.parameters() if weight.requires_grad}
    if half := trained & {"torch.float16", "torch.bfloat16"}:  # in which small updates are lost
        raise ValueError(
            f"The weights of the model are {half.pop()}, and training needs float32. Load the model with "
            'model_kwargs={"dtype": "float32"}. For speed, train with bf16=True.'
        )
    raise_if_blind(model)
    if len(sentences) < 2:
        raise ValueError(f"A training needs at least two sentences, got {len(sentences)}.")
    if not 0 <= start_weight <= 1:
        raise ValueError(f"start_weight must be from 0 to 1, got {start_weight}.")


def make_dataset(sentences: Dataset | Sequence[str], *, drop_labels: bool = False) -> Dataset:
    """Return a list of sentences as the column ``anchor`` of a dataset, and a dataset as it is.

    Args:
        sentences: A list or a dataset.
        drop_labels: Whether to remove the columns of labels.

    Raises:
        ValueError: For a string, a table or a ``DatasetDict``.
    """
    from datasets import Dataset

    from sbert_plugins.data.read import as_dataset

    if not isinstance(sentences, Dataset):
        return as_dataset(sentences, "anchor")
    labels = [name for name in sentences.column_names if name in _LABELS] if drop_labels else []
    return sentences.remove_columns(labels)


def _find_finished(output: Path, run: dict[str, Any], *, resume: bool) -> dict[str, Any] | None:
    """Check that a training may be written to a folder; return its results if it is finished there."""
    earlier = read_json(output / RUN_FILE)
    if resume and earlier:
        check_same_run(earlier, run, output)
        finished = read_json(output / RESULTS_FILE)  # of a shorter training, if the longer one was killed
        if finished and not differences(finished, run).keys() & {*LENGTH}:
            logger.info(
                "%s holds the finished training; these are its scores. More updates: --resume --max_steps N. "
                "Other labels: sbert-plugins evaluate %s.",
                *(output, output / "model"),
            )
            return finished
    elif is_first_process():
        check_is_free(output)
    return None


def _settle(method: str, protocol: str | None, arguments: dict[str, Any], *, embeds: bool) -> Settings:
    """Merge training arguments, and find the defaults of the rest in the protocol or else in the recipe."""
    from sbert_plugins.training import TrainingArguments

    recipe = find_recipe(method)
    names = {field.name for field in fields(TrainingArguments)}
    if unknown := next((name for name in arguments if name not in names), None):
        hint = did_you_mean(unknown, names)
        if unknown in (known_keywords(recipe) or ()):
            hint = f" It is a keyword of the loss: loss_keywords={{{unknown!r}: ...}}."
        raise ValueError(f"There is no training argument {unknown!r}.{hint}")
    if protocol is not None:
        plan = read_protocol(method, protocol)
        start, loss, columns = (plan.section(name) for name in ("start", "loss", "columns"))
        settings = Settings(recipe, plan.section("arguments"), loss, columns, start["max_seq_length"])
        settings.dropout, settings.patience = start.get("dropout"), start.get("patience")
    else:
        settings = Settings(recipe, recipe.arguments, {}, {}, recipe.max_seq_length)
        if recipe.adapt_to is not None:
            adaptation = recipe.adapt_to(embeds=embeds)
            settings.loss_keywords, settings.reason = adaptation.loss_keywords, adaptation.reason
        if not arguments.keys() & {"max_steps", "num_train_epochs"}:
            settings.most_updates = recipe.paper_updates
    settings.arguments = override(settings.arguments, arguments)
    return settings


def _training_arguments(
    settings: Settings,
    seed: int,
    rows: Dataset,
    model: SentenceTransformer,
    output: Path,
    dev: BaseEvaluator | None,
) -> TrainingArguments:
    """Complete the arguments by what follows from the model, the text and the folder."""
    import torch

    from sbert_plugins.training import LengthGroupedBatchSampler, TrainingArguments

    given, on_cpu = settings.arguments, model.device.type == "cpu"
    batch = given["per_device_train_batch_size"]
    prompt = host.resolve_prompt(
        model, None, None
    )  # encode puts it before each sentence, and so does the training
    defaults = {
        "output_dir": str(output / "checkpoints"),
        "use_cpu": on_cpu,
        "bf16": not on_cpu and torch.cuda.is_available() and torch.cuda.is_bf16_supported(),
        "dataloader_drop_last": len(rows) > batch and len(rows) % batch == 1,  # a single row has no negatives
        "prompts": {name: prompt for name in rows.column_names if name != "phrase"} if prompt else None,
        "seed": seed,
        "logging_steps": max(1, int(given["eval_steps"]) // 5),
        "logging_first_step": True,
        "eval_strategy": "no" if dev is None else "steps",
        "save_steps": given["eval_steps"],
        "save_total_limit": 2,  # the newest and the best
        "load_best_model_at_end": dev is not None,
        "metric_for_best_model": dev and dev.primary_metric,
        "greater_is_better": dev and dev.greater_is_better,
        "restore_callback_states_from_checkpoint": True,  # how long early stopping has waited
        "report_to": "none",
        "run_name": output.name,
        "disable_tqdm": True,  # the progress is ours
        "hub_strategy": "end",
        "hub_private_repo": True,
    }
    sampler = (
        {"batch_sampler": LengthGroupedBatchSampler} if given.get("batch_sampler") == LENGTH_GROUPED else {}
    )
    arguments = TrainingArguments(**(defaults | given | sampler))
    if settings.most_updates is not None and count_updates(arguments, len(rows)) > settings.most_updates:
        arguments.max_steps = settings.most_updates
    return arguments


def _rows_per_update(arguments: TrainingArguments) -> int:
    return arguments.train_batch_size * arguments.gradient_accumulation_steps * arguments.world_size


def count_updates(arguments: TrainingArguments, rows: int) -> int:
    """Return how many updates a training makes."""
    if arguments.max_steps > 0:
        return arguments.max_steps
    batches = rows / (arguments.train_batch_size * arguments.world_size)
    batches = math.floor(batches) if arguments.dataloader_drop_last else math.ceil(batches)
    return math.ceil(
        arguments.num_train_epochs * max(1, math.ceil(batches / arguments.gradient_accumulation_steps))
    )


def _build_trainer(
    arguments: TrainingArguments,
    rows: Dataset,
    model: SentenceTransformer,
    loss: nn.Module,
    dev: BaseEvaluator | None,
    text: str | None,
    share_examples: bool,
) -> SentenceTransformerTrainer:
    """Build a trainer that shows our progress, and keeps the sentences out of the model card."""
    from transformers import PrinterCallback

    from sbert_plugins.recipes.progress import Progress
    from sbert_plugins.training import SentenceTransformerTrainer

    name_data(model, text)
    with private_examples(model, share=share_examples):
        trainer = SentenceTransformerTrainer(
            model=model, args=arguments, train_dataset=rows, loss=loss, evaluator=dev
        )
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(Progress("" if dev is None else f"eval_{dev.primary_metric}"))
    return trainer


def _tokens_in_training(model: SentenceTransformer, wanted: int | None) -> int | None:
    """Return the tokens per sentence in training: those wanted, and those of a template and a prompt."""
    own, tokenizer = model.max_seq_length, model.tokenizer
    if wanted is None:
        return own
    ends = {tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id}
    around = tokenizer(host.resolve_prompt(model, None, None))["input_ids"]
    length = wanted + sum(token not in ends for token in around)
    return length if own is None else min(length, own)


def _announce(
    settings: Settings,
    run: dict[str, Any],
    arguments: TrainingArguments,
    rows: Dataset,
    updates: int,
    length: int | None,
) -> None:
    """Log what is trained, and what may not be wanted."""
    recipe, batch, count = settings.recipe, _rows_per_update(arguments), run["sentences"]
    logger.info(
        "Training %s on %s sentences (%s rows): %s updates of %d rows, learning rate %g, seed %d.",
        *(
            recipe.title,
            f"{count:,}",
            f"{len(rows):,}",
            f"{updates:,}",
            batch,
            arguments.learning_rate,
            run["seed"],
        ),
    )
    logger.info(
        "Start: %s, %s pooling, at most %s tokens per sentence.", run["encoder"], run["pooling"], length
    )
    if settings.reason:
        logger.info(settings.reason)
    if recipe.paper_updates is not None and updates < recipe.paper_updates:
        logger.info(
            "%s was published with %s updates, this training has %s. %s For short trainings take "
            "recommended.",
            *(recipe.title, f"{recipe.paper_updates:,}", f"{updates:,}", small_budget(recipe.name)),
        )
    if len(rows) < 10 * batch:
        logger.warning(
            "An epoch of this text has fewer than ten updates. Give more text, or a smaller batch."
        )
    repeated = count - len(set(rows[rows.column_names[0]])) if len(rows) == count else 0
    if recipe.second_column and repeated > count / 100:
        logger.warning(
            "%s sentences repeat another one. In a batch they are each other's negatives.", f"{repeated:,}"
        )


def deviations_from_paper(recipe: Recipe, ours: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the settings that differ from the paper's protocol: the paper's value and ours.

    Args:
        recipe: The method.
        ours: Settings of this training by the names of the protocol.
    """
    try:
        plan = read_protocol(recipe.name, "paper")
    except ValueError:
        return {}
    paper = plan.section("loss")
    paper.pop("warmup_steps", None)  # follows from the length of the training
    paper |= plan.section("start") | plan.section("arguments") | {"updates": recipe.paper_updates}
    return {
        name: (value, ours[name]) for name, value in paper.items() if name in ours and ours[name] != value
    }


def _save(trainer: SentenceTransformerTrainer, recipe: Recipe, results: dict[str, Any], output: Path) -> None:
    """Write model and card, check that the model loads as it is, write the results, and upload if asked.

    Raises:
        RuntimeError: If the saved model gives other vectors. Some adapters are not restored in full.
    """
    from sentence_transformers import SentenceTransformer

    model: Any = trainer.model
    folder = output / "model"
    model.save_pretrained(str(folder))
    write_card(folder, recipe, results)
    texts = ["A dog runs across the wet field.", "Prices fell for the third month in a row."]
    reloaded = SentenceTransformer(str(folder), device=str(model.device), model_kwargs={"dtype": "float32"})
    trained, saved = (
        one.encode(texts, convert_to_tensor=True, normalize_embeddings=True) for one in (model, reloaded)
    )
    apart = float((trained - saved).abs().max())
    if apart > 1e-3:
        raise RuntimeError(
            f"The model in {folder} gives other vectors when it is loaded again (up to {apart:.3f} apart). "
            "Merge its adapters before you save it, or use adapters that load in full, such as LoRA without "
            "DoRA."
        )
    write_json(output / RESULTS_FILE, results)
    if trainer.args.push_to_hub:
        from huggingface_hub import HfApi

        HfApi(token=trainer.args.hub_token).upload_folder(
            repo_id=str(trainer.hub_model_id), folder_path=folder
        )
        logger.info("Uploaded to https://huggingface.co/%s.", trainer.hub_model_id)
