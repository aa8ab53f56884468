"""``sbert-plugins evaluate``."""

from __future__ import annotations

import argparse
import logging
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sbert_plugins import recipes
from sbert_plugins.cli.flags import add_data, add_labels, add_sts
from sbert_plugins.cli.printing import less_said_by, print_table, score_text, set_up_host
from sbert_plugins.cli.reading import from_hub, own_labels, sick_of
from sbert_plugins.recipes.card import folder_name
from sbert_plugins.recipes.output import encoder_mark, method_text, updates_text
from sbert_plugins.recipes.scoring import Scorer


def add_evaluate(commands: argparse._SubParsersAction) -> None:
    """Add the command."""
    evaluate = commands.add_parser(
        "evaluate",
        help="score models on the seven STS tasks, or by labels of your own",
        description="Print Spearman x 100 on STS12-16, STS-B and SICK-R (SentEval 'all'), from --data-dir or from the Hub. "
        "With --pairs, --topics or --retrieval: the scores by these, x 100, instead. "
        "With --offline and no data directory: on the package's own graded pairs. --report adds alignment, uniformity and a "
        "page with plots.",
    )
    evaluate.add_argument("models", nargs="+", metavar="MODEL", help="path or Hub name")
    add_labels(evaluate.add_argument_group("labels of your own, in the place of the STS tasks"))
    add_sts(evaluate)
    evaluate.add_argument(
        "--pooling",
        choices=["cls", "mean", "mask"],
        help="for a plain transformer (default: that of the trainings it is compared with, or mean)",
    )
    evaluate.add_argument("--batch-size", type=int, help="sentences an encoder call (default: 128)")
    evaluate.add_argument(
        "--report",
        metavar="DIR",
        help="write DIR/index.html with plots: the first MODEL is the baseline, OUTPUT/model shows its training too",
    )
    evaluate.add_argument(
        "--reconstruct",
        metavar="TEXT",
        help="instead of scores: what PaSeR's decoder writes for hidden phrases of TEXT; MODEL is OUTPUT/model of a training",
    )
    evaluate.add_argument("--limit", type=int, help="sentences that --reconstruct shows (default: 10)")
    evaluate.add_argument("--offline", action="store_true", help="use no network")
    add_data(evaluate)
    evaluate.set_defaults(run=_evaluate)


def _evaluate(options: argparse.Namespace) -> None:
    _check_flags(options)
    options.batch_size, options.limit = options.batch_size or 128, options.limit or 10
    set_up_host()
    from sbert_plugins import data

    if options.reconstruct is not None:
        sentences = data.read_sentences(options.reconstruct, limit=10 * options.limit)  # some hold no phrase
        rows: list[Sequence[str]] = [("model", "masked", "hidden", "written")]
        for short, name in zip(short_names(options.models), options.models, strict=True):
            encoder = recipes.build_encoder(name)
            table = recipes.reconstructions(Path(name).resolve().parent, encoder, sentences, limit=options.limit)
            rows += [(short, *row.values()) for row in table]
        print_table(rows)
    elif labels := own_labels(options):
        _score_by(labels, options)
    elif options.offline and not options.data_dir:
        pairs = recipes.graded_pairs()
        models = _models(options, _trainings(options.models))
        _print_each(("model", "pooling", "graded pairs"), models, lambda _, model: [score_text(recipes.score(model, pairs))])
    else:
        _score(options)


def _score_by(labels: Sequence[Any], options: argparse.Namespace) -> None:
    """Score the models by one's own labels, and print the table."""
    scorer, heading = Scorer(labels, batch_size=options.batch_size), ["model", "pooling"]

    def measure(_: str, model: Any) -> list[str]:
        scores = scorer(model)
        heading[2:] = scores
        return [*map(score_text, scores.values())]

    with less_said_by("sbert_plugins.evaluation"):
        _print_each(heading, _models(options, _trainings(options.models)), measure)


def _print_each(
    heading: Sequence[str], models: Iterable[tuple[str, Any]], measure: Callable[[str, Any], Sequence[str]]
) -> None:
    """Print a line for each model; whatever ends it, what was measured before is not lost, and an error names its model."""
    rows: list[Sequence[str]] = [heading]
    try:
        for name, model in models:
            try:
                rows.append((name, recipes.pooling_of(model), *measure(name, model)))
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
    finally:
        if len(rows) > 1:
            print_table(rows)


def _check_flags(options: argparse.Namespace) -> None:
    """Refuse values out of range, and flags that what is asked for does not read."""
    for name in ("batch_size", "limit"):
        if (value := getattr(options, name)) is not None and value < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be at least 1, got {value}.")
    if options.reconstruct is not None:
        of_scores = ("report", "sick", "hub", "pooling", "batch_size", *_LABELS)
        _refuse(options, *of_scores, why="--reconstruct shows what a decoder writes")
        return
    _refuse(options, "limit", why="sentences are counted for --reconstruct")
    if any(getattr(options, name) is not None for name in _LABELS):
        _refuse(options, "report", "sick", "hub", why="labels of your own are scored, not the STS tasks")
    elif options.offline and not options.data_dir:
        graded = "--offline without a data directory scores the package's own pairs, not the STS tasks"
        _refuse(options, "report", "sick", "hub", "batch_size", why=f"{graded}: name --data-dir, or leave --offline out")


_LABELS = ("pairs", "topics", "retrieval")


def _refuse(options: argparse.Namespace, *names: str, why: str) -> None:
    if given := [f"--{name.replace('_', '-')}" for name in names if getattr(options, name)]:
        raise ValueError(f"{' and '.join(given)} would not be read: {why}.")


def _models(options: argparse.Namespace, trainings: dict[str, dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield each model with its name, a plain transformer pooled like the trainings that it is compared with."""
    have_pooling = {name: recipes.has_pooling(name) for name in options.models}  # what is no model is missed before any score
    if options.pooling and all(have_pooling.values()):
        raise ValueError(
            f"--pooling {options.pooling} is for a plain transformer, and {' and '.join(options.models)} "
            f"{'have' if len(options.models) > 1 else 'has'} pooling already: leave --pooling out."
        )
    poolings = {training["pooling"] for training in trainings.values() if "pooling" in training}
    for name in options.models:
        if options.pooling is None and len(poolings) > 1 and not have_pooling[name]:
            raise ValueError(
                f"{name} is a plain transformer, and the trainings that it is compared with pool differently "
                f"({', '.join(sorted(poolings))}): say with --pooling how it is pooled."
            )
        pooling = options.pooling or next(iter(poolings), "mean")
        yield name, recipes.build_encoder(name, pooling=pooling, **_template(trainings))


def _template(trainings: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the template that the trainings' protocols have, for the encoder that they are compared with."""
    plans = [recipes.protocol_of(each["method"], each["protocol"]) for each in trainings.values() if each.get("protocol")]
    found = {plan["template"] for plan in plans if plan["template"]}
    return {"template": found.pop()} if len(found) == 1 else {}


def _score(options: argparse.Namespace) -> None:
    """Score the models on the seven tasks and print the table, then write the report if one is wanted."""
    from sbert_plugins import evaluation

    hub = from_hub(options)
    how = {"hub": hub, "batch_size": options.batch_size, "show_progress_bar": sys.stderr.isatty()}
    suite = evaluation.STSSuiteEvaluator(options.data_dir, sick=sick_of(options), **how)
    if suite.note:
        print(suite.note)
    trainings = _trainings(options.models)
    heading, models = ("model", "pooling", *evaluation.TASKS, "average"), _models(options, trainings)
    geometry = evaluation.AlignmentUniformityEvaluator(options.data_dir, split="test", **how) if options.report else None
    evaluators = [suite, *([geometry] if geometry else [])]
    shown = short_names(options.models)
    found: list[evaluation.ModelScores] = []

    def measure(name: str, model: Any) -> list[str]:
        training = _training_of(name, model, trainings)
        origin = {"pooling": recipes.pooling_of(model), "tokens": _limit(model), **_origin(training)}
        log = training["log"] if training else []
        found.append(evaluation.score_model(model, evaluators, name=shown[len(found)], log=log, origin=origin))
        values = [list(scores.values.values()) for scores in found[-1].scores.values()]
        return [*map(score_text, [*values[0][1:], values[0][0]]), *(f"{value:.3f}" for value in values[-1] if geometry)]

    with less_said_by("sbert_plugins.evaluation"):  # the table says it
        _print_each((*heading, *(("alignment", "uniformity") if geometry else ())), models, measure)
    if options.report:
        print(f"Report: {evaluation.write_report(found, options.report)}")


def _limit(model: Any) -> str:
    limit = model.max_seq_length  # infinite of static embeddings
    return "no limit" if limit is None or limit == math.inf else str(limit)


def _trainings(models: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return what the training that wrote a model has noted, for those that a training of ours wrote."""
    trainings = {}
    for model in models:
        place = Path(model).resolve()  # "." is a place, too
        results = place.parent / "results.json"
        if place.is_dir() and place.name == "model" and results.is_file():  # a checkpoint beside it is another state
            try:
                trainings[model] = recipes.read_results(results)
            except ValueError as error:
                logging.getLogger(__name__).warning("%s is shown without its training: %s", model, error)
    return trainings


def _training_of(name: str, model: Any, trainings: dict[str, dict[str, Any]]) -> dict[str, Any] | None:
    """Return the training that gave a model its weights; None where others have been saved in their place since."""
    training = trainings.get(name)
    saved = training and training.get("saved_weights")  # older records lack it
    if saved and encoder_mark(model)["sha256"] != saved:
        logging.getLogger(__name__).warning(
            "%s is shown without its training: other weights have been saved there since.", name
        )
        return None
    return training


def _origin(training: dict[str, Any] | None) -> dict[str, str]:
    """Return what a reader of the report asks about a training, in words."""
    if training is None:
        return {}
    name = {key: (training.get(key) or {}).get("name") or "unknown" for key in ("text", "encoder")}
    scores = ", ".join(
        f"{key} {score_text(score)} to {score_text(training['after'][key])}" for key, score in training["before"].items()
    )
    return {
        "trained with": method_text(training),
        "from": name["encoder"],
        "text": f"{name['text']}, {training['sentences']:,} sentences",
        "updates": f"{updates_text(training)}, each of {training['settings']['batch_size']} x "
        f"{training['settings']['gradient_accumulation_steps']} rows",
        "seed": str(training["seed"]),
        "date": training.get("date", "unknown")[:10],
        "before and after": scores or "not scored",
    }


def short_names(models: Sequence[str]) -> list[str]:
    """Return the last part of each path, for OUTPUT/model that of OUTPUT; the whole ones where these are not distinct."""
    names = [folder_name(model) for model in models]
    return names if len(set(names)) == len(names) else list(models)
