"""One training: a plain sentence-transformers model, the loss's state and the results in one directory."""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
import platform
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from sbert_plugins import __version__
from sbert_plugins.host import training_time_named
from sbert_plugins.recipes.building import build_loss, settings_of
from sbert_plugins.recipes.card import describe_training, examples_kept_private, name_model, name_origin
from sbert_plugins.recipes.encoders import check_encoder, pooling_of, truncated_to
from sbert_plugins.recipes.keywords import default_keywords
from sbert_plugins.recipes.methods import recipe_of
from sbert_plugins.recipes.output import (
    RUN_FILE,
    check_output,
    check_same_run,
    encoder_mark,
    encoder_settings,
    pairs_mark,
    read_results,
    text_mark,
    updates_text,
    write_json,
)
from sbert_plugins.recipes.protocol import Protocol
from sbert_plugins.recipes.protocols import STS_SENTENCES, protocol_of
from sbert_plugins.recipes.reporting import check_report_to
from sbert_plugins.recipes.settings import Recipe, Settings, processes, shortened
from sbert_plugins.recipes.texts import text_name

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

    from sbert_plugins.evaluation import ScoredPairs
    from sbert_plugins.training import SentenceTransformerTrainer

logger = logging.getLogger(__name__)


def train(
    method: str,
    sentences: Dataset,
    model: SentenceTransformer,
    *,
    output: str | Path,
    settings: Settings | None = None,
    seed: int = 42,
    bf16: bool | None = None,
    dev: ScoredPairs | None = None,
    probes: dict[str, ScoredPairs] | None = None,
    loss_keywords: dict[str, Any] | None = None,
    columns: dict[str, Any] | None = None,
    protocol: str | None = None,
    resume: bool = False,
    text: str | None = None,
    share_examples: bool = False,
    report_to: str | Sequence[str] = "none",
    report: Callable[[str], None] = logger.info,
) -> dict[str, Any]:
    """Train ``model`` in place with a method's recipe and save it as a plain sentence-transformers model.

    ``output`` then holds ``model/`` (loads in ``SentenceTransformer`` without this package), ``loss/`` (what the loss owns,
    for :func:`load_loss`), ``checkpoints/``, ``run.json`` and ``results.json``.

    Args:
        method: A key of :data:`RECIPES`, or ``package.module:Class`` for a loss class of one's own.
        sentences: A dataset with the column ``anchor``, for a recipe of ``pairs`` with a positive of each as the second, or
            with the method's own columns; at least two rows. The order of the columns counts, not their names.
        model: The encoder to train. With the settings' pooling ``mask`` it is given the mask template, unless it has it.
            It is truncated to the settings' ``max_seq_length`` while it trains, and reads its own default prompt before each
            sentence, as ``encode`` does; its own limit is what it is scored, saved
            and returned with.
        output: A new or empty directory.
        settings: By default the protocol's, or else the method's, with fewer epochs where these would be more than its paper
            trained (:func:`shortened`).
        seed: Of Python, numpy and torch, set before the loss is built; the order of the sentences follows from it.
        bf16: Mixed precision; by default the protocol's, or else on a GPU that has bfloat16. Losses are computed in float32
            either way.
        dev: STS-B dev: evaluated every ``eval_steps``, and the best checkpoint by its Spearman is the one that is saved.
        probes: Named pairs scored before and after, never for a choice.
        loss_keywords: Replace defaults of the loss; what json can hold.
        columns: How the columns of ``sentences`` were made, for the record; what json can hold. A training whose columns were
            made otherwise is not resumed.
        protocol: Name of one of the method's :data:`PROTOCOLS`: its settings, its keywords of the loss, its columns, template
            and dropout, where none of these is given. Text, encoder and ``dev`` are the caller's in any case.
        resume: Continue an interrupted training in ``output`` from its newest complete checkpoint; everything else as
            it was given the first time.
        text: What the sentences were read from, a file or a dataset on the Hub; the model card names it.
        share_examples: Whether the model card may show some of the sentences, as the host's does.
        report_to: Trackers that the log goes to as well, as in transformers: ``tensorboard``, ``wandb``, ``mlflow``, ... The
            training is the same with them.
        report: Called with each message for the person who waits.

    Returns:
        What ``results.json`` holds: scores before and after (Spearman x 100), settings, seed, versions, the update that is
        saved, seconds of the training and, among them, of its evaluations, both None where it was resumed. A number that is
        not finite is None.

    Raises:
        ValueError: For an unknown method, protocol, tracker or keyword of its loss, static embeddings, columns that it does
            not read, fewer than two sentences, one that is None, ``patience`` without ``dev``, another training than the one
            that is resumed, and a training that has diverged (no model is saved then).
        FileExistsError: If ``output`` holds anything. Nothing is written before all of this is checked.
        FileNotFoundError: With ``resume``, if there is no checkpoint.
        ModuleNotFoundError: For a tracker whose package is not installed.
    """
    trackers = check_report_to(report_to)
    run = checked_run(
        method,
        sentences,
        model,
        output,
        settings=settings,
        seed=seed,
        bf16=bf16,
        loss_keywords=loss_keywords,
        columns=columns,
        protocol=protocol,
        text=text,
        dev=dev,
        resume=resume,
    )
    check_patience(run.settings, dev)
    check_output(run.output, resume=resume)
    if resume:
        check_same_run(run.output, run.json)
    training = _prepared(run, sentences, model, {**(probes or {}), **({} if dev is None else {"STS-B dev": dev})}, text)
    trainer, seconds = _trained(training, dev, share_examples, report, trackers, resume=resume)
    return _recorded(training, trainer, None if resume else seconds)  # those before the kill are not known


class Run(NamedTuple):
    """A training that has been checked: nothing is written yet."""

    recipe: Recipe
    settings: Settings
    output: Path
    json: dict[str, Any]  # what run.json will hold
    plan: Protocol | None


class _Training(NamedTuple):
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


def checked_run(
    method: str,
    sentences: Dataset,
    model: SentenceTransformer,
    output: str | Path,
    *,
    settings: Settings | None,
    seed: int,
    bf16: bool | None,
    loss_keywords: dict[str, Any] | None,
    columns: dict[str, Any] | None,
    protocol: str | None,
    text: str | None,
    dev: ScoredPairs | None,
    resume: bool = False,
) -> Run:
    """Refuse what cannot be trained; the arguments are those of :func:`train`."""
    recipe = recipe_of(method)
    check_encoder(model)
    plan = None if protocol is None else protocol_of(method, protocol)
    keywords = (plan.loss_keywords if plan else {}) | (loss_keywords or {})
    if settings is None:
        made = replace(recipe, rows_a_sentence=1) if _are_columns(recipe, sentences) else recipe
        settings = plan.settings if plan else shortened(made, settings_of(method, keywords), len(sentences))
    if plan is not None:
        if keywords.get("backbone") != plan["loss.backbone"]:
            raise ValueError(
                f"the protocol {plan.name} of {plan.method} goes round {plan['loss.backbone']}, got {keywords['backbone']}: "
                "leave the backbone to the protocol, or train without one."
            )
        bf16 = plan["bf16"] if bf16 is None else bf16
        _check_protocol(plan, settings, sentences, model, columns or {})
    if not 0 <= seed < 2**32:
        raise ValueError(f"seed must be in [0, {2**32 - 1}], got {seed}.")
    if len(sentences) < 2:
        raise ValueError(f"training needs at least 2 sentences, got {len(sentences)}: a sentence has no negative but others.")
    check_columns(recipe, sentences.column_names)
    begun = Path(output) / RUN_FILE
    before = read_results(begun).get("prepared") if resume and begun.exists() else None
    prepared = how_prepared(recipe, sentences, (before or {}) | (plan.columns if plan else {}))
    values = run_values(method, sentences, model, settings, seed, bf16, keywords, columns or {}, prepared, text, dev)
    return Run(recipe, settings, Path(output), values | {"protocol": protocol}, plan)


def _check_protocol(
    plan: Protocol, settings: Settings, sentences: Dataset, model: SentenceTransformer, columns: dict[str, Any]
) -> None:
    """Refuse text or encoder with which the protocol would be another training, unless that is said."""
    own = pooling_of(model)
    if settings.pooling not in (own, "mask"):  # a template is put on any model
        raise ValueError(
            f"the protocol {plan.name} of {plan.method} pools by {settings.pooling}, and the model by {own}: build it with "
            f"recipes.build_encoder(name, pooling={settings.pooling!r}) from a plain transformer, or give settings with the "
            f"model's own (--pooling {own})."
        )
    if plan["positives"] and len(sentences.column_names) == 1 and "positives" not in columns:
        raise ValueError(
            f"the protocol {plan.name} of {plan.method} has positives by {plan['positives']}, got sentences alone: "
            "data.back_translate(sentences) makes them; columns={'positives': 'dropout'} says that you want none."
        )


def check_patience(settings: Settings, dev: ScoredPairs | None) -> None:
    """Refuse a patience that nothing is evaluated for."""
    if settings.patience is not None and dev is None:
        raise ValueError(
            f"patience counts evaluations by STS-B dev, and there is none, got {settings.patience}: give dev (on the command "
            "line --data-dir or --hub), or leave patience out."
        )


def how_prepared(recipe: Recipe, sentences: Dataset, given: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return how the method's columns will be made of the sentences; empty where none are, or there is no choice."""
    if recipe.prepare is None or _are_columns(recipe, sentences):
        return {}
    return recipe.prepare_with(**(given or {}))


def _are_columns(recipe: Recipe, sentences: Dataset) -> bool:
    return tuple(sentences.column_names) == recipe.columns


def run_values(
    method: str,
    sentences: Dataset,
    model: SentenceTransformer,
    settings: Settings,
    seed: int,
    bf16: bool | None,
    loss_keywords: dict[str, Any],
    columns: dict[str, Any],
    prepared: dict[str, Any],
    text: str | None,
    dev: ScoredPairs | None,
) -> dict[str, Any]:
    """Return what makes a training this one: two that differ in none of it are the same. It is what run.json holds."""
    import torch

    return {
        "method": method,
        "settings": asdict(settings),
        "seed": seed,
        "sentences": len(sentences),
        "loss_keywords": loss_keywords,
        # Those of another version may be others.
        "loss_class": recipe_of(method).loss,
        "loss_defaults": {key: value for key, value in default_keywords(method).items() if key not in loss_keywords},
        "loss_files": _files(method, loss_keywords),
        "columns": columns,
        "prepared": prepared,
        "text": text_mark(sentences, text),
        "dev": None if dev is None else pairs_mark("STS-B dev", dev),
        "encoder": encoder_mark(model),
        "encoder_settings": encoder_settings(model),
        "bf16": model.device.type == "cuda" and torch.cuda.is_bf16_supported() if bf16 is None else bf16,
    }


def _files(method: str, keywords: dict[str, Any]) -> dict[str, str]:
    """Return hashes of what a record names and does not hold: the module of a class of one's own, files of keywords."""
    build = recipe_of(method).build
    named = {key: value for key, value in keywords.items() if isinstance(value, str) and Path(value).is_file()}
    if ":" in method and build is not None and (file := inspect.getsourcefile(build)):
        named[method] = file
    return {key: hashlib.sha256(Path(value).read_bytes()).hexdigest()[:16] for key, value in named.items()}


def _prepared(
    run: Run, sentences: Dataset, model: SentenceTransformer, tables: dict[str, ScoredPairs], text: str | None
) -> _Training:
    """Give the model the template that the settings ask for, make the rows, build the loss and score what there is."""
    from transformers import set_seed

    from sbert_plugins.encoder import apply_mask_template, freeze_mask_template, set_dropout

    recipe, given, rows = run.recipe, run.json["loss_keywords"], sentences
    chosen: dict[str, Any] = {}
    if run.settings.pooling == "mask":
        apply_mask_template(model, **_given(run.plan, "template"))
    freeze_mask_template(model)  # of a model that has one from an earlier training
    if dropout := _given(run.plan, "dropout"):
        set_dropout(model, **dropout)
    if recipe.prepare is not None and not _are_columns(recipe, sentences):
        rows, chosen = recipe.prepare(sentences, model, run.json["seed"], **run.json["prepared"])
    found = recipe.keywords(rows, model, run.settings, given) if recipe.keywords else {}
    name_model(model, run.json["encoder"]["name"], recipe.name, _chosen(given, run.plan))
    name_origin(model, text)
    with truncated_to(model, run.settings.max_seq_length) as length:
        set_seed(run.json["seed"])
        loss = build_loss(recipe.method, model, **(found | given))
    before = scores_of(model, tables)
    lengths = {"training": length, "model": model.max_seq_length}
    return _Training(run, model, loss, rows, chosen, found, lengths, tables, before)


def _chosen(given: dict[str, Any], plan: Protocol | None) -> dict[str, Any]:
    """Return the loss keywords that are not the protocol's own, as far as a heading has room for them."""
    of_plan = plan.loss_keywords if plan else {}
    return {
        key: value
        for key, value in sorted(given.items())
        if not isinstance(value, (list, dict)) and (key not in of_plan or of_plan[key] != value)
    }


def _given(plan: Protocol | None, name: str) -> dict[str, Any]:
    """Return a value of a protocol as a keyword; none where the protocol leaves it to the encoder."""
    value = plan[name] if plan else None
    return {} if value is None else {name: value}


def _trained(
    training: _Training,
    dev: ScoredPairs | None,
    share: bool,
    report: Callable[[str], None],
    trackers: Sequence[str],
    *,
    resume: bool,
) -> tuple[SentenceTransformerTrainer, float]:
    """Train; return the trainer and the seconds that it took."""
    (recipe, settings, output, run, _), model, rows, lengths = training.run, training.model, training.rows, training.lengths
    evaluator = None if dev is None else _dev_evaluator(dev, lengths["model"])
    with truncated_to(model, settings.max_seq_length):
        trainer = _trainer(training, evaluator, share=share, report=report, trackers=trackers)
        if trainer.is_world_process_zero():
            output.mkdir(parents=True, exist_ok=True)
            write_json(output / RUN_FILE, run)
            if recipe.note:
                report(recipe.note)
            known = f" of {run['text']['name']}" if run["text"]["name"] == text_name(STS_SENTENCES) else ""
            by = f", protocol {run['protocol']}," if run["protocol"] else ""
            report(f"Training {recipe.name}{by} on {run['sentences']:,} sentences{known}, seed {run['seed']}.")
            chosen = ", ".join(f"{key}={value}" for key, value in run["loss_keywords"].items())
            updates = settings.updates(len(rows), processes=processes())
            prompt = f", the prompt {prompt!r} before each sentence" if (prompt := run["encoder_settings"]["prompt"]) else ""
            report(
                f"Encoder {run['encoder']['name']}, {pooling_of(model)} pooling{prompt}, up to {lengths['training']} tokens a "
                f"sentence in training and {lengths['model']} in the saved model; {len(rows):,} rows, "
                f"{updates:,} updates{'; loss with ' if chosen else ''}{chosen}."
            )
            if dev is None and updates > _LONG:
                report(
                    f"Nothing chooses among {updates:,} updates: the last is saved. In this library's tables contrasts ended "
                    "up to 4 points below their best after 400 on Wikipedia, where recommended did not, and 3.5 after 2,000 "
                    "on short sentences, where paser did not "
                    "(https://sbert-plugins.github.io/sbert-plugins/choose.html#when-training-harms): give STS-B dev (on the "
                    "command line --data-dir or --hub), or fewer updates."
                )
        start = time.perf_counter()
        trainer.train(resume_from_checkpoint=resume)
        seconds = time.perf_counter() - start
    if trainer.is_world_process_zero() and (line := _which_is_saved(trainer)):
        report(line)
    return trainer, seconds


_LONG = 100  # updates: by 150 ConSERT had lost two points on Wikipedia
_SINKS = 1.0  # points of STS-B dev, several standard errors of a seed


def _evaluating(trainer: SentenceTransformerTrainer) -> float:
    """Return the seconds that the evaluations of a training took."""
    return sum(entry["eval_runtime"] or 0.0 for entry in trainer.state.log_history if "eval_runtime" in entry)


def _saved_update(trainer: SentenceTransformerTrainer) -> int:
    """Return the update whose weights the model has at the end: that of the best checkpoint, if there is one to load."""
    from sbert_plugins.training.checkpoints import step_of

    best = trainer.state.best_model_checkpoint
    chosen = step_of(Path(best)) if trainer.args.load_best_model_at_end and best else None
    return trainer.state.global_step if chosen is None else chosen


def _which_is_saved(trainer: SentenceTransformerTrainer) -> str:
    """Say which update is saved, and what the later ones did, where it is not the last."""
    key, saved = f"eval_{_DEV_SCORE}", _saved_update(trainer)
    # One that is not finite is logged as None.
    scores = {entry["step"]: entry[key] for entry in trainer.state.log_history if entry.get(key) is not None}
    if saved == trainer.state.global_step or saved not in scores:
        return ""
    best, last = 100 * scores[saved], 100 * scores[max(scores)]
    line = f"Saved is update {saved:,} of {trainer.state.global_step:,}, the best by STS-B dev: {best:.2f}"
    line += f", and {last:.2f} at update {max(scores):,}." if max(scores) != saved else "."
    return f"{line} The training sank: try fewer updates or a lower rate." if best - last >= _SINKS else line


def _recorded(training: _Training, trainer: SentenceTransformerTrainer, seconds: float | None) -> dict[str, Any]:
    """Score the trained model, save it with its loss's state, and return what results.json holds."""
    from sbert_plugins.training import json_text

    run, model, loss = training.run, training.model, training.loss
    versions = {name: version(name) for name in ("sentence-transformers", "transformers", "torch", "datasets")}
    results = run.json | {
        "before": training.before,
        "scored_on": {name: pairs_mark(name, pairs)["sha256"] for name, pairs in training.tables.items()},
        "after": scores_of(model, training.tables),
        "rows": len(training.rows),
        "prepared": training.chosen,
        # What json can hold: the state of a loss makes up for counts.
        "loss_found": {key: value for key, value in training.found.items() if isinstance(value, bool | int | float | str)},
        "pooling": pooling_of(model),
        "max_seq_length": training.lengths,
        # That of a class of one's own may hold what json does not.
        "loss": json.loads(json.dumps(getattr(loss, "get_config_dict", dict)(), default=str)),
        "steps": trainer.state.global_step,
        "saved_update": _saved_update(trainer),
        "seconds": None if seconds is None else round(seconds, 1),
        "evaluation_seconds": None if seconds is None else round(_evaluating(trainer), 1),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": str(model.device),
        "python": platform.python_version(),
        "versions": {"sbert-plugins": __version__, **versions},
        "log": trainer.state.log_history,
    }
    if trainer.is_world_process_zero():
        _save(training, results)
    return json.loads(json_text(results))


def _trainer(
    training: _Training,
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
            sam_rho=training.run.settings.sam_rho or None,
        )
    if (patience := training.run.settings.patience) is not None:
        trainer.add_callback(EarlyStoppingCallback(patience))
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(ProgressLine(report, score=(f"eval_{_DEV_SCORE}", "STS-B dev")))
    return trainer


def _arguments(training: _Training, *, selects: bool, trackers: Sequence[str]) -> SentenceTransformerTrainingArguments:
    """Return the trainer's arguments; ``selects`` is whether the best checkpoint by STS-B dev is kept."""
    from sentence_transformers import SentenceTransformerTrainingArguments

    from sbert_plugins.training import LengthGroupedBatchSampler

    settings = training.run.settings
    updates = settings.updates(len(training.rows), processes=processes())
    warmup = settings.warmup_updates(updates)
    if warmup >= updates:
        logger.warning("The warm-up, %s updates, is not over when the training is, after %s.", f"{warmup:,}", f"{updates:,}")
    return SentenceTransformerTrainingArguments(
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
        save_total_limit=1,
        load_best_model_at_end=selects,
        metric_for_best_model=f"eval_{_DEV_SCORE}" if selects else None,
        restore_callback_states_from_checkpoint=settings.patience is not None,  # how much of it is used up
        report_to=[*trackers] or "none",
        run_name=training.run.output.name,
        disable_tqdm=True,  # its bar and its dicts of strings; ProgressLine is in their place
    )


def _prompts(training: _Training) -> dict[str, str]:
    """Return the encoder's default prompt for each column of sentences, all but a phrase: the host reads them without one."""
    prompt, written = training.run.json["encoder_settings"]["prompt"], {"phrase"} & {*training.run.recipe.columns}
    return {name: prompt for name in training.rows.column_names if name not in written} if prompt else {}


def _own_rate(training: _Training) -> dict[str, float]:
    """Return the rate of what the loss owns by a pattern of exact names: a class of one's own may hold the model anywhere."""
    if (rate := training.run.settings.loss_learning_rate) is None:
        return {}
    theirs = {id(parameter) for parameter in training.model.parameters()}
    names = [re.escape(name) for name, parameter in training.loss.named_parameters() if id(parameter) not in theirs]
    if not names:
        logger.warning("The loss owns no weights: it has no use for loss_learning_rate, %s.", rate)
        return {}  # the host takes no pattern that nothing matches
    return {f"^({'|'.join(names)})$": rate}


_DEV_SCORE = "stsb-dev_spearman_cosine"


def _dev_evaluator(pairs: ScoredPairs, own_length: int | None) -> EmbeddingSimilarityEvaluator:
    """Build the evaluator that chooses the checkpoint: by what the saved model will give, not by shorter sentences."""
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

    class AtOwnLength(EmbeddingSimilarityEvaluator):
        def embed_inputs(self, model: SentenceTransformer, *arguments: Any, **keywords: Any) -> Any:
            length, model.max_seq_length = model.max_seq_length, own_length
            try:
                return super().embed_inputs(model, *arguments, **keywords)
            finally:
                model.max_seq_length = length

    return AtOwnLength(*pairs, name="stsb-dev", batch_size=128, main_similarity="cosine")


def _save(training: _Training, results: dict[str, Any]) -> None:
    """Write model, card, what the loss owns and results."""
    from sbert_plugins.training import save_loss_state

    recipe, output, model, length = training.run.recipe, training.run.output, training.model, results["max_seq_length"]
    scores = {name: (pairs, results["before"][name], results["after"][name]) for name, pairs in training.tables.items()}
    made = results["prepared"]
    settings = {
        "method": f"{recipe.name} ({recipe.paper})",
        **({"protocol": results["protocol"]} if results["protocol"] else {}),
        "encoder": results["encoder"]["name"],
        **{key: results["settings"][key] for key in ("group_by_length", "sam_rho", "loss_learning_rate", "patience")},
        **({"columns": ", ".join(f"{key} {value}" for key, value in made.items())} if made else {}),
        "pooling": results["pooling"],
        **({"prompt": repr(prompt)} if (prompt := results["encoder_settings"]["prompt"]) else {}),
        "max_seq_length": f"{length['training']} in training, {length['model']} in this model",
        "updates": updates_text(results),
    }
    model.model_card_data.citations |= recipe.citations
    describe_training(model, settings, scores)
    with training_time_named(model, results["seconds"], results["evaluation_seconds"]):
        model.save_pretrained(str(output / "model"))
    (output / "loss").mkdir(exist_ok=True)
    save_loss_state(training.loss, model, output / "loss")
    write_json(output / "results.json", results)


def check_columns(recipe: Recipe, names: list[str]) -> None:
    """Refuse columns that the loss would not read, or would read as something else."""
    if recipe.reads == "any":
        return
    widths = (3,) if recipe.reads == "triplets" else (1, 2) if recipe.second_column else (1,)
    if len(names) not in widths and tuple(names) != recipe.columns:
        raise ValueError(
            f"{recipe.method} reads {'' if recipe.prepare is None else recipe.reads + ' or '}{recipe.columns_text}, got "
            f"{', '.join(names)}: drop what is too much with dataset.select_columns."
        )


def scores_of(model: SentenceTransformer, tables: dict[str, ScoredPairs]) -> dict[str, float]:
    """Score named pairs, and average the seven STS tasks if they are among these."""
    scores = {name: score(model, pairs) for name, pairs in tables.items()}
    seven = [value for name, value in scores.items() if name in SEVEN]
    return scores | ({AVERAGE: fmean(seven)} if len(seven) == 7 else {})


# The Hub has all pairs of SICK only.
SEVEN = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R", "SICK-R all")
AVERAGE = "average of the seven STS tasks"


def score(model: SentenceTransformer, pairs: ScoredPairs) -> float:
    """Return the Spearman correlation, times 100, of cosine similarity and gold score; the model card hears nothing of it."""
    from sbert_plugins.evaluation import Embeddings, PairsEvaluator

    evaluator = PairsEvaluator(pairs)
    return evaluator.compute(Embeddings(model, evaluator.sentences))["spearman"]
