"""One training: a plain sentence-transformers model and a record of it in one folder."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sbert_plugins.recipes.budgets import small_budget
from sbert_plugins.recipes.card import name_data, private_examples, write_card
from sbert_plugins.recipes.encoders import (
    average_with_start,
    embeds_already,
    name_of_encoder,
    pooling_of,
    raise_if_blind,
)
from sbert_plugins.recipes.methods import check_keywords, find_recipe
from sbert_plugins.recipes.protocol import read_protocol
from sbert_plugins.recipes.recipe import LENGTH_GROUPED, Recipe, did_you_mean
from sbert_plugins.recipes.run import (
    LENGTH,
    LOCK_FILE,
    RESULTS_FILE,
    RUN_FILE,
    check_same_run,
    digest_of_sentences,
    digest_of_weights,
    hold,
    is_first_process,
    read_json,
    versions,
    write_json,
)
from sbert_plugins.recipes.scores import Measured, compare_scores, measure

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.evaluation import BaseEvaluator
    from torch import nn

    from sbert_plugins.training import SentenceTransformerTrainer, TrainingArguments

logger = logging.getLogger(__name__)


@dataclass
class Settings:
    """Everything that a training is made with, from its recipe, a protocol and what is given."""

    recipe: Recipe
    arguments: dict[str, Any]
    loss_keywords: dict[str, Any]
    column_keywords: dict[str, Any]
    max_seq_length: int | None
    dropout: float | None
    patience: int | None
    reason: str  # for the defaults that depend on the start
    is_length_chosen: bool  # by a protocol or the user


def train(
    method: str,
    sentences: Dataset,
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
    before: Measured | None = None,
    **arguments: Any,
) -> dict[str, Any]:
    """Train ``model`` in place with the recipe of a method, and save it as a plain sentence-transformers model.

    ``output`` then holds ``model/``, which loads without this package, ``checkpoints/``, ``run.json`` (written at the start) and
    ``results.json``.

    Args:
        method: A name in :data:`RECIPES`, or ``package.module:Class`` for a loss class of your own.
        sentences: The column ``anchor``, and a second column where the method takes one; or all columns of the method.
        model: The encoder. It is truncated to ``max_seq_length`` in training only.
        output: A new or empty folder; with ``resume`` also that of a training to continue.
        protocol: Train as a protocol of the method describes: its arguments, keywords and columns. Text, encoder, ``dev`` and
            ``evaluators`` are still yours to give.
        loss_keywords: Keywords of the loss.
        column_keywords: Keywords of the function that makes the method's columns, such as :func:`data.paser_columns`.
        max_seq_length: Tokens per sentence in training, without a template or prompt; by default the recipe's.
        dev: Evaluator whose primary metric selects the checkpoint; without it the last update is saved.
        evaluators: Evaluators that score the model before and after. They select nothing.
        start_weight: Share of the start in the saved weights (:func:`average_with_start`).
        patience: Stop after this many evaluations by ``dev`` without a better one.
        resume: Continue from the newest checkpoint in ``output``, or start if there is none. A finished training is
            continued if it is to have more updates.
        seed: Seed of the weights of the loss, the order of the sentences and everything drawn in training.
        text: Name of the text, for the record and the model card.
        share_examples: Whether the model card may show sentences of the text.
        before: Scores of the start, if they are known (:func:`measure`).
        **arguments: Fields of :class:`training.TrainingArguments`, in place of the recipe's.

    Returns:
        What ``results.json`` holds: the run, metrics ``before`` and ``after``, the ``verdict``, the number of ``updates``, the
        ``log``.

    Raises:
        ValueError: For an unknown method, protocol, argument or keyword, fewer than two sentences, a decoder that pools its
            first token, or another training in ``output``.
        FileExistsError: If ``output`` is not empty, or another process trains there.
        RuntimeError: If the saved model gives other vectors than the trained one.

    Example:
        >>> results = train("arccse", dataset, model, output="runs/arccse", max_steps=60)  # doctest: +SKIP
        >>> results["verdict"]  # doctest: +SKIP
    """
    settings = _settle(
        method, model, protocol, loss_keywords, column_keywords, max_seq_length, patience, arguments
    )
    recipe, output = settings.recipe, Path(output)
    if len(sentences) < 2:
        raise ValueError(f"A training needs at least two sentences, got {len(sentences)}.")
    raise_if_blind(model)
    run = {
        "method": method,
        "protocol": protocol,
        "arguments": {name: value for name, value in settings.arguments.items() if name != "hub_token"},
        "loss_keywords": settings.loss_keywords,
        "column_keywords": settings.column_keywords,
        "max_seq_length": settings.max_seq_length,
        "start_weight": start_weight,
        "seed": seed,
        "dev": getattr(dev, "name", None),
        "text": Path(text).name if text and Path(text).exists() else text,  # no folders of this machine
        "sentences": len(sentences),
        "sentences_digest": digest_of_sentences(sentences),
        "encoder": name_of_encoder(model),
        "weights_digest": digest_of_weights(model),
        "pooling": pooling_of(model),
        "versions": versions(),
    }
    with hold(output):
        earlier = read_json(output / RUN_FILE)
        if resume and earlier:
            changed = check_same_run(earlier, run, output)
            finished = read_json(output / RESULTS_FILE)
            if finished and not changed.keys() & {*LENGTH}:
                logger.info("%s holds the finished training. More updates: --resume --max_steps N.", output)
                return finished
        elif is_first_process():
            _check_is_free(output)
        return _train(
            settings, run, sentences, model, output, dev, evaluators, resume, share_examples, before
        )


def _settle(
    method: str,
    model: SentenceTransformer,
    protocol: str | None,
    loss_keywords: dict[str, Any] | None,
    column_keywords: dict[str, Any] | None,
    max_seq_length: int | None,
    patience: int | None,
    arguments: dict[str, Any],
) -> Settings:
    """Merge the settings: what is given comes before the protocol, and the protocol before the recipe."""
    from sbert_plugins.training import TrainingArguments

    recipe = find_recipe(method)
    given_loss, given_columns = loss_keywords or {}, column_keywords or {}
    check_keywords(recipe, given_loss)
    names = {field.name for field in fields(TrainingArguments)}
    if unknown := next((name for name in arguments if name not in names), None):
        raise ValueError(f"There is no training argument {unknown!r}.{did_you_mean(unknown, names)}")
    reason, dropout = "", None
    if protocol is not None:
        plan = read_protocol(method, protocol)
        of_arguments, of_loss, of_columns = (plan.section(name) for name in ("arguments", "loss", "columns"))
        start = plan.section("start")
        length, dropout = start["max_seq_length"], start.get("dropout")
        patience = start.get("patience") if patience is None else patience
    else:
        of_arguments, of_loss, of_columns, length = recipe.arguments, {}, {}, recipe.max_seq_length
        if recipe.adapt_to is not None:
            adaptation = recipe.adapt_to(embeds=embeds_already(model))
            of_arguments, of_loss = of_arguments | adaptation.arguments, adaptation.loss_keywords
            reason = "" if given_loss.keys() & {"keep"} else adaptation.reason
    merged = of_arguments | arguments
    if "num_train_epochs" in arguments and "max_steps" not in arguments:
        merged.pop("max_steps", None)
    return Settings(
        recipe=recipe,
        arguments=merged,
        loss_keywords=of_loss | given_loss,
        column_keywords=of_columns | given_columns,
        max_seq_length=length if max_seq_length is None else max_seq_length,
        dropout=dropout,
        patience=patience,
        reason=reason,
        is_length_chosen=protocol is not None or bool(arguments.keys() & {"max_steps", "num_train_epochs"}),
    )


def _check_is_free(output: Path) -> None:
    """Raise for a folder that holds more than a training that has not saved anything yet."""
    files = [path for path in output.rglob("*") if path.is_file() and path.name not in (RUN_FILE, LOCK_FILE)]
    if files:
        hint = (
            " continue the training there with --resume (resume=True), or"
            if (output / RUN_FILE).exists()
            else ""
        )
        raise FileExistsError(f"{output} is not empty:{hint} take another output.")


def _train(
    settings: Settings,
    run: dict[str, Any],
    sentences: Dataset,
    model: SentenceTransformer,
    output: Path,
    dev: BaseEvaluator | None,
    evaluators: Sequence[BaseEvaluator],
    resume: bool,
    share_examples: bool,
    before: Measured | None,
) -> dict[str, Any]:
    """Make the columns, build the loss, train, score, save."""
    from transformers import set_seed

    from sbert_plugins.encoder import set_dropout

    recipe, keywords = settings.recipe, settings.loss_keywords
    rows = sentences
    if recipe.make_columns is not None and tuple(sentences.column_names) != recipe.columns:
        rows = recipe.make_columns(sentences, model, seed=run["seed"], **settings.column_keywords)
    if settings.dropout is not None:
        set_dropout(model, settings.dropout)
    scored = [*evaluators, *([dev] if dev is not None else [])]
    before = measure(model, scored) if before is None else before
    arguments = _training_arguments(settings, run["seed"], rows, model, output, dev)
    updates = count_updates(arguments, len(rows))
    found = {}
    if recipe.find_keywords is not None:
        rows_read = (
            updates
            * arguments.train_batch_size
            * arguments.gradient_accumulation_steps
            * arguments.world_size
        )
        found = recipe.find_keywords(rows, model, rows_read / len(rows), keywords)
    set_seed(run["seed"])
    loss = recipe.build_loss(model, **(found | keywords))
    start = deepcopy(model) if run["start_weight"] else None
    trainer, length = _build_trainer(settings, run, arguments, rows, model, loss, dev, share_examples)
    if is_first_process():
        write_json(output / RUN_FILE, run)
        _announce(settings, run, arguments, rows, updates, length)
    began = time.monotonic()
    trainer.train(resume_from_checkpoint=resume)
    seconds = time.monotonic() - began
    if start is not None:
        average_with_start(model, start, run["start_weight"])
    after = measure(model, scored)
    changes = compare_scores(scored, before, after)
    saved = _saved_update(trainer)
    results = run | {
        "rows": len(rows),
        "updates": trainer.state.global_step,
        "saved_update": saved,
        "max_seq_length": {"training": length, "model": model.max_seq_length},
        "deviations": deviations_from_paper(recipe, loss),
        "before": before.metrics,
        "after": after.metrics,
        "changes": [change._asdict() for change in changes],
        "verdict": [change.sentence for change in changes],
        "is_worse": any(change.result == "worse" for change in changes),
        "seconds": round(seconds, 1),
        "log": trainer.state.log_history,
    }
    if is_first_process():
        _save(trainer, recipe, results, output)
    return results


def count_updates(arguments: TrainingArguments, rows: int) -> int:
    """Return how many updates a training makes."""
    if arguments.max_steps > 0:
        return arguments.max_steps
    batches = rows / (arguments.train_batch_size * arguments.world_size)
    batches = math.floor(batches) if arguments.dataloader_drop_last else math.ceil(batches)
    return math.ceil(
        arguments.num_train_epochs * max(1, math.ceil(batches / arguments.gradient_accumulation_steps))
    )


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

    from sbert_plugins import host
    from sbert_plugins.training import LengthGroupedBatchSampler, TrainingArguments

    given = dict(settings.arguments)
    if given.get("batch_sampler") == LENGTH_GROUPED:
        given["batch_sampler"] = LengthGroupedBatchSampler
    batch, on_cpu = given["per_device_train_batch_size"], model.device.type == "cpu"
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
        "save_total_limit": 2,  # the newest, and the best
        "load_best_model_at_end": dev is not None,
        "metric_for_best_model": dev and dev.primary_metric,
        "greater_is_better": dev and dev.greater_is_better,
        "restore_callback_states_from_checkpoint": settings.patience is not None,
        "report_to": "none",
        "run_name": output.name,
        "disable_tqdm": True,  # the progress is ours
        "hub_strategy": "end",
        "hub_private_repo": True,
    }
    arguments = TrainingArguments(**(defaults | given))
    limit = settings.recipe.paper_updates
    if limit is not None and not settings.is_length_chosen and count_updates(arguments, len(rows)) > limit:
        arguments.max_steps = limit
    return arguments


def _build_trainer(
    settings: Settings,
    run: dict[str, Any],
    arguments: TrainingArguments,
    rows: Dataset,
    model: SentenceTransformer,
    loss: nn.Module,
    dev: BaseEvaluator | None,
    share_examples: bool,
) -> tuple[SentenceTransformerTrainer, int | None]:
    """Return the trainer, and how many tokens it reads per sentence."""
    from transformers import EarlyStoppingCallback, PrinterCallback

    from sbert_plugins import host
    from sbert_plugins.recipes.progress import Progress
    from sbert_plugins.training import SentenceTransformerTrainer

    name_data(model, run["text"])
    with private_examples(model, share=share_examples):
        trainer = SentenceTransformerTrainer(
            model=model, args=arguments, train_dataset=rows, loss=loss, evaluator=dev
        )
    model.model_card_data.citations |= settings.recipe.citations
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(Progress(None if dev is None else (f"eval_{dev.primary_metric}", str(dev.name))))
    if settings.patience is not None:
        trainer.add_callback(EarlyStoppingCallback(settings.patience))
    length = own = model.max_seq_length
    if settings.max_seq_length is not None:
        tokenizer = model.tokenizer
        ends = {
            tokenizer.cls_token_id,
            tokenizer.sep_token_id,
            tokenizer.bos_token_id,
            tokenizer.eos_token_id,
        }
        around = tokenizer(host.resolve_prompt(model, None, None))["input_ids"]  # a template, and the prompt
        length = settings.max_seq_length + sum(token not in ends for token in around)
        length = length if own is None else min(length, own)
        trainer.data_collator.max_length = length
    return trainer, length


def _announce(
    settings: Settings,
    run: dict[str, Any],
    arguments: TrainingArguments,
    rows: Dataset,
    updates: int,
    length: int | None,
) -> None:
    """Log what is trained, and what may not be wanted."""
    recipe = settings.recipe
    batch = arguments.train_batch_size * arguments.gradient_accumulation_steps * arguments.world_size
    logger.info(
        "Training %s on %s sentences (%s rows): %s updates of %d rows, learning rate %g, seed %d.",
        *(
            recipe.title,
            f"{run['sentences']:,}",
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
            "%s was published with %s updates, this training has %s. %s For short trainings take recommended.",
            *(recipe.title, f"{recipe.paper_updates:,}", f"{updates:,}", small_budget(recipe.name)),
        )
    if len(rows) < 10 * batch:
        logger.warning(
            "An epoch of this text has fewer than ten updates. Give more text, or a smaller batch."
        )
    first = rows.column_names[0]
    repeated = run["sentences"] - len(set(rows[first])) if len(rows) == run["sentences"] else 0
    if recipe.second_column and repeated > run["sentences"] / 100:
        logger.warning(
            "%s sentences repeat another one. In a batch the two are each other's negatives.", f"{repeated:,}"
        )


def deviations_from_paper(recipe: Recipe, loss: nn.Module) -> dict[str, tuple[Any, Any]]:
    """Return the settings of a loss that differ from its paper's protocol, with the paper's value and the loss's."""
    try:
        paper = read_protocol(recipe.name, "paper").section("loss")
    except ValueError:
        return {}
    ours = getattr(loss, "get_config_dict", dict)()
    return {
        name: (value, ours[name])
        for name, value in paper.items()
        if name in ours and ours[name] != value and not (name == "warmup_steps" and ours[name])
    }


def _saved_update(trainer: SentenceTransformerTrainer) -> int:
    best = trainer.state.best_model_checkpoint
    is_best = trainer.args.load_best_model_at_end and best
    return int(best.rpartition("-")[2]) if is_best else trainer.state.global_step


def _save(trainer: SentenceTransformerTrainer, recipe: Recipe, results: dict[str, Any], output: Path) -> None:
    """Write model, card and results, upload the model if asked, and load it once to check it."""
    model: Any = trainer.model
    folder = output / "model"
    model.save_pretrained(str(folder))
    write_card(folder, recipe, results)
    write_json(output / RESULTS_FILE, results)
    if trainer.args.push_to_hub:
        from huggingface_hub import HfApi

        HfApi().upload_folder(
            repo_id=trainer.hub_model_id, folder_path=folder, commit_message="Trained with sbert-plugins"
        )
        logger.info("Uploaded to https://huggingface.co/%s.", trainer.hub_model_id)
    _check_reloaded(model, folder)


def _check_reloaded(model: SentenceTransformer, folder: Path) -> None:
    """Raise if the saved model gives other vectors than the trained one: some adapters are not restored in full."""
    from sentence_transformers import SentenceTransformer

    texts = ["A dog runs across the wet field.", "Prices fell for the third month in a row."]
    reloaded = SentenceTransformer(str(folder), device=str(model.device), model_kwargs={"dtype": "float32"})
    trained, saved = (
        one.encode(texts, convert_to_tensor=True, normalize_embeddings=True) for one in (model, reloaded)
    )
    apart = float((trained - saved).abs().max())
    if apart > 1e-3:
        raise RuntimeError(
            f"The model in {folder} was saved, but loaded again it gives other vectors (up to {apart:.3f} apart). Merge its "
            "adapters before you save it, or use adapters that sentence-transformers restores (plain LoRA)."
        )
