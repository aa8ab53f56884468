"""One training: a plain sentence-transformers model, the loss's state and the results in one directory."""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from sbert_plugins.host import training_time_named
from sbert_plugins.recipes.building import build_loss
from sbert_plugins.recipes.card import add_earlier_logs, describe_training, name_model, name_origin
from sbert_plugins.recipes.checked import Run, are_columns, check_patience, checked_run
from sbert_plugins.recipes.encoders import pooling_of, truncated_to
from sbert_plugins.recipes.output import (
    RUN_FILE,
    check_output,
    check_same_run,
    encoder_mark,
    held,
    json_text,
    method_text,
    pairs_mark,
    read_results,
    updates_text,
    write_json,
)
from sbert_plugins.recipes.protocol import Protocol
from sbert_plugins.recipes.protocols import STS_SENTENCES
from sbert_plugins.recipes.provenance import provenance, provenance_of
from sbert_plugins.recipes.reporting import check_report_to
from sbert_plugins.recipes.settings import Recipe, Settings, processes
from sbert_plugins.recipes.texts import text_name
from sbert_plugins.recipes.trainer import (
    DEV_SCORE,
    Training,
    build_trainer,
    dev_evaluator,
    evaluation_seconds,
    saved_update,
    which_is_saved,
)

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

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
        sentences: A dataset with the column ``anchor``, where the method takes a positive of each as the second, or with the
            method's own columns: PaSeR's by their names, triplets as ``anchor``, ``positive`` and ``negative``, other columns
            by their order. At least two rows.
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
        FileExistsError: If ``output`` holds anything, or another process trains in it. Nothing is written before all of this
            is checked, and what the first batch refuses leaves nothing. The model may have its template and a protocol's
            dropout by then.
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
    check_patience(run.settings.patience, has_dev=dev is not None)
    check_output(run.output, resume=resume)
    if resume:
        check_same_run(run.output, run.json)
    tables = {**(probes or {}), **({} if dev is None else {"STS-B dev": dev})}
    with held(run.output):
        training = _prepared(run, sentences, model, tables, text)
        trainer, seconds = _trained(training, dev, share_examples, report, trackers, resume=resume)
        return _recorded(training, trainer, None if resume else seconds)  # those before the kill are not known


def _prepared(
    run: Run, sentences: Dataset, model: SentenceTransformer, tables: dict[str, ScoredPairs], text: str | None
) -> Training:
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
    if recipe.prepare is not None and not are_columns(recipe, sentences):
        rows, chosen = recipe.prepare(sentences, model, run.json["seed"], **run.json["prepared"])
    found = recipe.keywords(rows, model, run.settings, given) if recipe.keywords else {}
    with truncated_to(model, run.settings.max_seq_length) as length:
        set_seed(run.json["seed"])
        loss = build_loss(recipe.method, model, **(found | given))
    name_origin(model, text)
    before = scores_of(model, tables)
    lengths = {"training": length, "model": model.max_seq_length}
    return Training(run, model, loss, rows, chosen, found, lengths, tables, before)


def _given(plan: Protocol | None, name: str) -> dict[str, Any]:
    """Return a value of a protocol as a keyword; none where the protocol leaves it to the encoder."""
    value = plan[name] if plan else None
    return {} if value is None else {name: value}


def _trained(
    training: Training,
    dev: ScoredPairs | None,
    share: bool,
    report: Callable[[str], None],
    trackers: Sequence[str],
    *,
    resume: bool,
) -> tuple[SentenceTransformerTrainer, float]:
    """Train; return the trainer and the seconds that it took."""
    (_, settings, output, run, *_), model, lengths = training.run, training.model, training.lengths
    is_new = not output.exists()  # a trainer makes it
    evaluator = None if dev is None else dev_evaluator(dev, lengths["model"])
    card = model.model_card_data
    named = card.model_name
    with truncated_to(model, settings.max_seq_length):
        trainer = build_trainer(training, evaluator, share=share, report=report, trackers=trackers)
        if trainer.is_world_process_zero():
            output.mkdir(parents=True, exist_ok=True)
            earlier, made = _made_by(output) if resume else [], provenance(model.device)
            write_json(output / RUN_FILE, run | {_MADE_BY: earlier if made in earlier else [*earlier, made]})
            _announce(training, dev, report)
        name_model(model, run["encoder"]["name"], method_text(run))
        start = time.perf_counter()
        try:
            trainer.train(resume_from_checkpoint=resume)
        except Exception:
            if not resume and not trainer.state.global_step:  # refused by its first batch
                card.model_name = named
                if trainer.is_world_process_zero():
                    _take_back(output, is_new=is_new)  # the command that is right may name it again
            raise
        seconds = time.perf_counter() - start
    if trainer.is_world_process_zero() and (line := which_is_saved(trainer)):
        report(line)
    return trainer, seconds


_MANY = 0.01  # of the sentences
_LONG = 100  # updates: by 150 ConSERT had lost two points on Wikipedia


def repetitions(text: dict[str, Any], sentences: int, recipe: Recipe) -> str:
    """Say how many sentences are copies, where a method contrasts a sentence with the others of its batch."""
    if recipe.second_column is None or recipe.reads == "any" or text["repeated"] < _MANY * sentences:
        return ""
    return (
        f"{text['repeated']:,} of the sentences repeat another one, and where the two meet in a batch they are each other's "
        "negatives: leave repetitions out."
    )


def _announce(training: Training, dev: ScoredPairs | None, report: Callable[[str], None]) -> None:
    """Say what is trained, and what of it may not be wanted."""
    (recipe, settings, _, run, _, unread), model, rows, lengths = training.run, training.model, training.rows, training.lengths
    if recipe.note:
        report(recipe.note)
    known = f" of {run['text']['name']}" if run["text"]["name"] == text_name(STS_SENTENCES) else ""
    by = f", protocol {run['protocol']}," if run["protocol"] else ""
    report(f"Training {method_text(run)}{by} on {run['sentences']:,} {_units(recipe, rows)}{known}, seed {run['seed']}.")
    for line in (repetitions(run["text"], run["sentences"], recipe), unread):
        if line:
            report(line)
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
            f"Nothing chooses among {updates:,} updates: the last is saved. In this library's tables some methods ended "
            "points of STS-B dev below their best: consert 3 to 4 after 400 on Wikipedia, where recommended did not and paser "
            "1 to 2, and after 2,000 on short sentences consert 3 and recommended 2, where paser did not "
            "(https://sbert-plugins.github.io/sbert-plugins/choose.html#when-training-harms): give STS-B dev (on the "
            "command line --data-dir or --hub), or fewer updates."
        )


def _units(recipe: Recipe, rows: Dataset) -> str:
    """Return what the rows that were given are called."""
    if recipe.reads == "triplets":
        return "triplets"
    return "pairs" if recipe.prepare is None and len(rows.column_names) == 2 else "sentences"


def _take_back(output: Path, *, is_new: bool) -> None:
    """Remove what a training has written that made no update; whatever happens, its error is what is said."""
    with suppress(OSError):
        (output / RUN_FILE).unlink(missing_ok=True)
        # What was there before the training was empty; trackers write before the first update.
        shutil.rmtree(output if is_new else output / "checkpoints", ignore_errors=True)


def _recorded(training: Training, trainer: SentenceTransformerTrainer, seconds: float | None) -> dict[str, Any]:
    """Score the trained model, save it with its loss's state, and return what results.json holds."""
    run, model, loss = training.run, training.model, training.loss
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
        "saved_update": saved_update(trainer),
        "saved_weights": encoder_mark(model)["sha256"],  # of what is in OUTPUT/model; somebody may write over it
        "seconds": None if seconds is None else round(seconds, 1),
        "evaluation_seconds": None if seconds is None else round(evaluation_seconds(trainer), 1),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": str(model.device),
        **provenance_of(_made_by(run.output) or [provenance(model.device)]),
        "log": trainer.state.log_history,
    }
    if trainer.is_world_process_zero():
        add_earlier_logs(model, trainer.state.log_history, DEV_SCORE)
        _save(training, results)
    return json.loads(json_text(results))


_MADE_BY = "made_by"  # in run.json, what provenance says of each process that differs


def _made_by(output: Path) -> list[dict[str, Any]]:
    file = output / RUN_FILE
    return read_results(file).get(_MADE_BY, []) if file.is_file() else []  # the first process may write elsewhere


def _save(training: Training, results: dict[str, Any]) -> None:
    """Write model, card, what the loss owns and results."""
    from sbert_plugins.training import save_loss_state

    recipe, output, model, length = training.run.recipe, training.run.output, training.model, results["max_seq_length"]
    scores = {name: (pairs, results["before"][name], results["after"][name]) for name, pairs in training.tables.items()}
    made = results["columns"] | results["prepared"]
    settings = {
        "method": f"{method_text(results)}; {recipe.paper}",
        **({"protocol": results["protocol"]} if results["protocol"] else {}),
        "encoder": results["encoder"]["name"],
        **{key: results["settings"][key] for key in ("group_by_length", "sam_rho", "loss_learning_rate", "patience")},
        **({"eval_steps": results["settings"]["eval_steps"]} if results["dev"] else {}),
        **({"columns": ", ".join(f"{key} {value}" for key, value in made.items())} if made else {}),
        "pooling": results["pooling"],
        **({"prompt": repr(prompt)} if (prompt := results["encoder_settings"]["prompt"]) else {}),
        "max_seq_length": f"{length['training']} in training, {length['model']} in this model",
        "updates": updates_text(results),
    }
    model.model_card_data.citations |= recipe.citations
    paths = [value for value in results["loss_keywords"].values() if isinstance(value, str) and Path(value).exists()]
    describe_training(model, settings, scores, paths=paths)
    with training_time_named(model, results["seconds"], results["evaluation_seconds"]):
        model.save_pretrained(str(output / "model"))
    (output / "loss").mkdir(exist_ok=True)
    save_loss_state(training.loss, model, output / "loss")
    write_json(output / "results.json", results)


def scores_of(model: SentenceTransformer, tables: dict[str, ScoredPairs]) -> dict[str, float]:
    """Score named pairs in one pass over their sentences, and average the seven STS tasks if they are among these."""
    if not tables:
        return {}
    from sbert_plugins.evaluation import PairsEvaluator, encode_once

    each = {name: PairsEvaluator(pairs) for name, pairs in tables.items()}
    with encode_once(model):
        scores = {name: evaluator.compute(evaluator.encoder(model))["spearman"] for name, evaluator in each.items()}
    seven = {name: value for name, value in scores.items() if name in SEVEN}
    is_whole = len(seven) == 7 and not {"SICK-R", "SICK-R all"} <= set(seven)
    return scores | ({AVERAGE: fmean(seven.values())} if is_whole else {})


# The seven STS tasks, one of them in two forms: the Hub has all pairs of SICK only.
SEVEN = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R", "SICK-R all")


AVERAGE = "average of the seven STS tasks"


def score(model: SentenceTransformer, pairs: ScoredPairs) -> float:
    """Return the Spearman correlation, times 100, of cosine similarity and gold score; the model card hears nothing of it."""
    return scores_of(model, {"pairs": pairs})["pairs"]
