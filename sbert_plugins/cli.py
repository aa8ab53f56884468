"""The command line: ``sbert-plugins train | compare | evaluate | mteb | methods``; what is heavy is imported when needed."""

from __future__ import annotations

import argparse
import logging
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from sbert_plugins import __version__, recipes
from sbert_plugins.recipes.keywords import read_value

if TYPE_CHECKING:
    from datasets import Dataset

_TYPES = {"int": int, "int | None": int, "float": float, "float | None": float, "str": str}  # of a setting, by its annotation
_DATA_VARIABLE = "SBERT_PLUGINS_DATA"


class _Flags(Protocol):
    """A parser, or a group of its flags."""

    def add_argument(self, *names: Any, **keywords: Any) -> argparse.Action: ...


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return 0, or 2 after one line about what is wrong."""
    options = build_parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger("sbert_plugins").setLevel(logging.INFO)
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # where a loss of one's own may lie; last, so that it hides nothing
    try:
        options.run(options)
    except (ValueError, OSError, ModuleNotFoundError) as error:
        if options.debug:
            raise
        print(f"sbert-plugins: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("sbert-plugins: interrupted.", file=sys.stderr)
        return 130
    return 0


def build_parser() -> argparse.ArgumentParser:
    """Build the parser without importing torch."""
    parser = argparse.ArgumentParser(
        prog="sbert-plugins",
        description="Self-supervised sentence embeddings: train with a recipe, compare methods, evaluate, list the methods.",
    )
    parser.add_argument("--version", action="version", version=f"sbert-plugins {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_train(commands)
    _add_compare(commands)
    _add_evaluate(commands)
    _add_mteb(commands)
    methods = commands.add_parser("methods", help="list the methods, their papers and the columns they read")
    methods.set_defaults(run=_methods)
    return parser


def _add_train(commands: argparse._SubParsersAction) -> None:
    train = commands.add_parser(
        "train",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        help="train an encoder on sentences with a method's recipe",
        description=textwrap.fill(
            "Train an encoder on unlabelled sentences. OUTPUT then holds model/ (loads in plain sentence-transformers), loss/ "
            "(what the loss owns), checkpoints/ and results.json. Where --data-dir is set, STS-B dev selects the checkpoint.",
            _width(),
        ),
        epilog=_glossary(),
    )
    _add_text(train)
    _add_start(train)
    train.add_argument("--backbone", help="what slt-fai goes round: simcse (default), consert or another method on sentences")
    train.add_argument("--output", required=True, help="a new or empty directory")
    train.add_argument("--resume", action="store_true", help="continue an interrupted training in OUTPUT, same options")
    train.add_argument(
        "--share-examples", action="store_true", help="let the model card show sentences of TEXT; without it, it shows none"
    )
    _add_data(train)
    settings = _add_settings(train, "the paper's")
    settings.add_argument(
        "--loss",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="keywords of the loss: signed=true margin_degrees=5; a wrong one lists those that there are",
    )
    settings.add_argument("--seed", type=int, default=42)
    train.set_defaults(run=_train)


def _add_text(train: argparse.ArgumentParser) -> None:
    """Add what is trained, on which text."""
    train.add_argument(
        "method",
        metavar="METHOD",
        help=f"{', '.join(recipes.RECIPES)}; or package.module:Class, a loss class of your own, built as Class(model)",
    )
    train.add_argument(
        "text",
        nargs="?",
        metavar="TEXT",
        help="a text file with a sentence a line (with --positives crops: documents parted by blank lines); parquet, csv or "
        "jsonl; .gz too; or a dataset on the Hub "
        f"(default: {recipes.DEFAULT_TEXT}, with --offline the package's own 1,281 sentences). paser-supervised reads "
        "triplets: tab-separated anchor, positive and negative, or columns of these names",
    )
    train.add_argument(
        "--paraphrases",
        metavar="FILE",
        help="for denosent: a paraphrase of each sentence of TEXT, row by row, in any of the same formats "
        "(data.back_translate makes them)",
    )
    train.add_argument(
        "--positives",
        choices=["dropout", "crops"],
        help="what is paired with a sentence: itself in another view (default), or, where TEXT holds documents, another piece "
        "of its own",
    )
    train.add_argument(
        "--crops-by", choices=["sentences", "spans"], help="neighbouring sentences (default), or two spans of words"
    )


def _add_start(parser: argparse.ArgumentParser) -> None:
    """Add the flags about the text and the encoder of a training."""
    parser.add_argument("--column", help="column of a table or Hub dataset (default: text, or its only column of strings)")
    parser.add_argument("--limit", type=int, help="use the first LIMIT sentences, or documents")
    parser.add_argument(
        "--model", help=f"path or Hub name (default: {recipes.DEFAULT_MODEL}, with --offline four layers of MiniLM)"
    )
    parser.add_argument("--offline", action="store_true", help="use no network: encoder and text from installed packages")


def _add_settings(parser: argparse.ArgumentParser, default: str, values: recipes.Settings | None = None) -> _Flags:
    """Add a flag for each field of Settings; where there is one set of defaults, ``values``, the help shows it."""
    settings = parser.add_argument_group(f"settings (default: {default})")
    for field in fields(recipes.Settings):
        kind = {"action": argparse.BooleanOptionalAction} if field.type == "bool" else {"type": _TYPES[str(field.type)]}
        shown = "" if values is None else f"(default: {getattr(values, field.name)})"
        text = " ".join(filter(None, [field.metadata.get("help"), shown])) or None
        given = {"default": None, **kind, **field.metadata, "help": text}
        settings.add_argument("--" + field.name.replace("_", "-"), **given)
    settings.add_argument(
        "--bf16", action=argparse.BooleanOptionalAction, help="mixed precision (default: where a GPU has it)"
    )
    return settings


def _add_compare(commands: argparse._SubParsersAction) -> None:
    compare = commands.add_parser(
        "compare",
        help="train several methods on your text and compare them on your labels",
        description="Train each method with each seed on TEXT, from one encoder and with one set of settings, and score the "
        "start and every result by what you have: --pairs, --topics, --retrieval, the STS tasks. It ends in a table and "
        "OUTPUT/index.html. Killed, the same command goes on.",
    )
    compare.add_argument("text", nargs="?", metavar="TEXT", help="sentences, as in train")
    compare.add_argument(
        "--methods",
        nargs="+",
        default=["recommended", "simcse", "arccse"],
        metavar="METHOD",
        help="names as in train, name:key=value,key=value with keywords of the loss or settings of its own, or "
        "package.module:Class; the others are compared with the first (default: recommended simcse arccse)",
    )
    compare.add_argument("--seeds", type=int, default=3, metavar="N", help="trainings of each method (default: 3)")
    compare.add_argument("--output", required=True, help="a new or empty directory, or that of the comparison to go on with")
    compare.add_argument("--force", action="store_true", help="make anew what is there and was made with something else")
    _add_start(compare)
    scores = compare.add_argument_group("scores (at least one)")
    scores.add_argument("--pairs", metavar="FILE", help="graded pairs: tab-separated grade, sentence, sentence")
    scores.add_argument("--topics", metavar="FILE", help="texts with their topics: tab-separated topic, text")
    scores.add_argument(
        "--retrieval",
        metavar="DIR",
        help="queries.tsv (id, text), corpus.tsv (id, text), qrels.tsv (query id, text id, 1), tab-separated; .gz too",
    )
    _add_sts(scores)
    scores.add_argument("--dev-only", action="store_true", help="of the STS tasks STS-B dev alone: look at no test set")
    _add_data(scores)
    _add_settings(compare, "those of recommended, for all methods", recipes.RECOMMENDED.settings)
    compare.set_defaults(run=_compare)


def _add_sts(parser: _Flags) -> None:
    parser.add_argument("--hub", action="store_true", help="take the STS tasks from the Hub even if a data directory is set")
    parser.add_argument("--sick", choices=["test", "all"], help="4,927 test pairs (the papers), or all 9,927 (mteb)")


def _width() -> int:
    return shutil.get_terminal_size().columns - 2  # argparse's own


def _glossary() -> str:
    """Return the meaning of each logged key, wrapped to the terminal."""
    first = max(map(len, recipes.LOGGED)) + 4
    width = max(_width(), first + 20)
    lines = ["logged (in a sum as NAME/key, in an evaluation as eval_key):"]
    for key, meaning in recipes.LOGGED.items():
        lines += textwrap.wrap(meaning, width, initial_indent=f"  {key}".ljust(first), subsequent_indent=" " * first)
    return "\n".join(lines)


def _add_evaluate(commands: argparse._SubParsersAction) -> None:
    evaluate = commands.add_parser(
        "evaluate",
        help="score models on the seven STS tasks",
        description="Print Spearman x 100 on STS12-16, STS-B and SICK-R (SentEval 'all'), from --data-dir or from the Hub. "
        "With --offline and no data directory: on the package's own graded pairs. --report adds alignment, uniformity and a "
        "page with plots.",
    )
    evaluate.add_argument("models", nargs="+", metavar="MODEL", help="path or Hub name")
    _add_sts(evaluate)
    evaluate.add_argument(
        "--pooling",
        choices=["cls", "mean", "mask"],
        help="for a plain transformer (default: that of the trainings it is compared with, or mean)",
    )
    evaluate.add_argument("--batch-size", type=int, default=128)
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
    evaluate.add_argument("--limit", type=int, default=10, help="sentences that --reconstruct shows (default: 10)")
    evaluate.add_argument("--offline", action="store_true", help="use no network")
    _add_data(evaluate)
    evaluate.set_defaults(run=_evaluate)


def _add_mteb(commands: argparse._SubParsersAction) -> None:
    mteb = commands.add_parser("mteb", help="run MTEB on a local or public model, submit to its leaderboard")
    steps = mteb.add_subparsers(required=True, metavar="STEP")
    tasks = (
        "sets (paper-sts, denosent-classification, reranking, quora, local-sts, local-retrieval, local-classification), "
        "benchmarks ('MTEB(eng, v1)', 'MTEB(eng, v2)') or tasks of mteb"
    )
    run = steps.add_parser(
        "run",
        help="score a model",
        description="Score a model with mteb. Tasks whose name begins with Local are read from --data-dir and kept in a cache "
        "of their own, all others come from the Hub.",
    )
    run.add_argument("model", metavar="MODEL", help="path or Hub name")
    run.add_argument("--tasks", nargs="+", required=True, metavar="TASK", help=tasks)
    run.add_argument("--name", help="organization/model (default: the Hub name; for a path local/ and its last folders)")
    run.add_argument("--revision", help="commit of a public model (default: the Hub's; for a path a hash of the weights)")
    run.add_argument("--batch-size", type=int, default=32)
    run.add_argument("--offline", action="store_true", help="use no network")
    _add_data(run)
    run.set_defaults(run=_mteb_run)
    submit = steps.add_parser(
        "submit",
        help="check the results of a public model and hand them to mteb's submission",
        description="Check that the results are complete, of official tasks and of a public model; write the ModelMeta that "
        "mteb asks for; call mteb's own submission.",
    )
    submit.add_argument("name", metavar="MODEL", help="organization/model, as the results were made")
    submit.add_argument("--tasks", nargs="+", required=True, metavar="TASK", help="as for run, without local ones")
    submit.add_argument("--revision", help="where there are results of several")
    submit.add_argument("--implementation", metavar="FILE", help="where the ModelMeta goes (default: MODEL.py)")
    submit.add_argument("--create-pr", action="store_true", help="push and open the pull request (needs mteb[github])")
    submit.set_defaults(run=_mteb_submit)
    for step in (run, submit):
        step.add_argument("--cache", metavar="DIR", help="of results (default: MTEB_CACHE or ~/.cache/mteb)")


def _add_data(parser: _Flags) -> None:
    parser.add_argument(
        "--data-dir",
        default=os.environ.get(_DATA_VARIABLE),
        help=f"directory with the folder sts (default: the environment variable {_DATA_VARIABLE})",
    )


def _methods(options: argparse.Namespace) -> None:
    rows = [("method", "paper", "loss", "columns", "what it does")]
    rows += [(r.method, f"{r.name}, {r.paper}", r.loss, r.columns_text, r.equation) for r in recipes.RECIPES.values()]
    _print_table(rows)
    print()
    for recipe in recipes.RECIPES.values():
        print(f"{recipe.name}: {recipe.url}")


def _train(options: argparse.Namespace) -> None:
    recipe = recipes.recipe_of(options.method)
    _check_positives(options, recipe)
    if options.backbone and "backbone" not in recipes.known_keywords(options.method):
        raise ValueError(f"--backbone is for slt-fai, which goes round another method, got {recipe.method}.")
    recipes.check_output(options.output, resume=options.resume)
    _set_up_host(options)
    from sbert_plugins import evaluation

    is_demo = options.offline and options.model is None
    keywords = recipes.read_keywords(options.method, options.loss)
    keywords |= {"backbone": options.backbone} if options.backbone else {}
    settings = _changed(recipes.settings_of(options.method, keywords, offline=is_demo), options)
    text, sentences, columns = _read(options, recipe)
    results = recipes.train(
        options.method,
        sentences,
        _encoder_to_train(options, settings, is_demo=is_demo),
        output=options.output,
        settings=settings,
        loss_keywords=keywords,
        columns=columns,
        seed=options.seed,
        bf16=options.bf16,
        dev=evaluation.load_sts("STS-B dev", options.data_dir) if options.data_dir else None,
        probes={"graded pairs": recipes.graded_pairs()},
        resume=options.resume,
        text=str(text),
        share_examples=options.share_examples,
        report=print,
    )
    print()
    rows = [(f"Spearman x 100, {results['pooling']} pooling", "before", "after")]
    rows += [(name, _score_text(score), _score_text(results["after"][name])) for name, score in results["before"].items()]
    _print_table(rows)
    path = Path(options.output) / "model"
    print(
        f'\n{results["steps"]} updates in {results["seconds"]:.0f} s. Model: {path} (SentenceTransformer("{path}") loads it)'
    )


def _changed(settings: recipes.Settings, options: argparse.Namespace) -> recipes.Settings:
    """Return settings with those that flags give."""
    return recipes.with_changes(settings, **{field.name: getattr(options, field.name) for field in fields(recipes.Settings)})


def _encoder_to_train(options: argparse.Namespace, settings: recipes.Settings, *, is_demo: bool) -> Any:
    if is_demo:
        return recipes.offline_encoder(max_seq_length=256)  # the whole model's own limit
    model = recipes.build_encoder(options.model or recipes.DEFAULT_MODEL, pooling=settings.pooling)
    own = recipes.pooling_of(model)
    if options.pooling not in (None, own, "mask"):  # a template is put on any model
        raise ValueError(
            f"--pooling {options.pooling} is for a plain transformer, and {options.model} is a sentence-transformers model "
            f"with {own} pooling of its own: leave --pooling out."
        )
    return model


def _score_text(score: float | None) -> str:
    return "none" if score is None else f"{score:.2f}"


def _check_positives(options: argparse.Namespace, recipe: recipes.Recipe) -> None:
    """Refuse flags about positives that the method has no use for."""
    if options.paraphrases and recipe.second_column != "paraphrase":
        raise ValueError(f"--paraphrases is for denosent, got it with {recipe.method}, which reads {recipe.columns_text}.")
    if options.positives and not recipe.second_column:
        with_pairs = ", ".join(recipe.method for recipe in recipes.RECIPES.values() if recipe.second_column)
        raise ValueError(f"--positives is for {with_pairs}, got it with {recipe.method}, which reads {recipe.columns_text}.")
    if options.positives and options.paraphrases:
        raise ValueError("--paraphrases are the positives: leave out --positives.")
    if options.crops_by and options.positives != "crops":
        raise ValueError("--crops-by says how documents are cropped: add --positives crops.")
    if options.positives == "crops" and options.text is None:
        raise ValueError("--positives crops reads documents, and the default text holds sentences: name documents as TEXT.")


def _read(options: argparse.Namespace, recipe: recipes.Recipe) -> tuple[str | Path, Dataset, dict[str, Any]]:
    """Return what is trained on, its rows, and how they were made."""
    from sbert_plugins import data

    text = _text_or_default(options, recipe)
    if recipe.reads == "triplets":
        return text, data.read_triplets(text, limit=options.limit), {}
    given = {"column": options.column, "limit": options.limit}
    if options.paraphrases:
        return text, data.read_pairs(text, options.paraphrases, **given), {"positives": "paraphrases"}
    if options.positives == "crops":
        made = {"by": options.crops_by or "sentences", "seed": options.seed}
        return text, data.crop_pairs(data.read_documents(text, **given), **made), {"positives": "crops", **made}
    return text, data.read_sentences(text, **given), {"positives": "dropout"} if recipe.second_column else {}


def _text_or_default(options: argparse.Namespace, recipe: recipes.Recipe) -> str | Path:
    if options.text is not None:  # an empty name is a mistake, not a wish for the default
        return options.text
    if options.offline and recipe.reads == "triplets":
        raise ValueError(f"{recipe.method} reads triplets, and none ship with the package: name a file of them as TEXT.")
    return recipes.offline_sentences_path() if options.offline else recipe.text


@contextmanager
def _less_said_by(name: str) -> Iterator[None]:
    """Only warnings of a room, inside the block."""
    room = logging.getLogger(name)
    level = room.level
    room.setLevel(logging.WARNING)
    try:
        yield
    finally:
        room.setLevel(level)


def _compare(options: argparse.Namespace) -> None:
    _set_up_host(options)
    from sbert_plugins import evaluation

    is_demo = options.offline and options.model is None
    settings = _changed(recipes.settings_of("recommended", offline=is_demo), options)
    has_sts = options.hub or bool(options.data_dir)
    from_hub = options.hub or not options.data_dir
    with _less_said_by("sbert_plugins.evaluation"):  # what is scored is said here
        result = recipes.compare(
            options.methods,
            _text_or_default(options, recipes.RECOMMENDED),
            output=options.output,
            evaluators=_evaluators(options),
            model=lambda: _encoder_to_train(options, settings, is_demo=is_demo),
            seeds=options.seeds,
            settings=settings,
            dev=evaluation.load_sts("STS-B dev", options.data_dir, hub=from_hub) if has_sts else None,
            column=options.column,
            limit=options.limit,
            bf16=options.bf16,
            force=options.force,
            report=print,
        )
    print()
    _print_table(result.table)
    for name, reason in result.failed.items():
        print(f"{name} failed: {reason}")
    print(f"\nAll scores, differences, curves and neighbours: {result.page}")
    print(f"Models: {Path(options.output) / 'METHOD_seedN' / 'model'} (SentenceTransformer loads them)")
    if result.failed:
        raise ValueError(f"{len(result.failed)} of the trainings failed; the same command tries again.")


def _evaluators(options: argparse.Namespace) -> list[Any]:
    """Return what scores a comparison: all that the flags name.

    Raises:
        ValueError: If they name nothing.
    """
    from sbert_plugins import evaluation

    found: list[Any] = []
    for given, build in (
        (options.pairs, evaluation.own_pairs),
        (options.topics, evaluation.own_topics),
        (options.retrieval, evaluation.own_retrieval),
    ):
        if given is not None:
            found.append(build(given))
    if options.hub or options.data_dir:
        source = {"hub": True} if options.hub else {"data_dir": options.data_dir}
        found.append(evaluation.PairsEvaluator(evaluation.load_sts("STS-B dev", **source), name="STS-B dev", write_csv=False))
        if not options.dev_only:
            # The Hub has all pairs of SICK only.
            sick: Any = options.sick or ("all" if options.hub else "test")
            found.append(evaluation.STSSuiteEvaluator(**source, sick=sick, write_csv=False))
    if not found and options.offline:
        print("Scores are of the package's own 360 graded pairs; name yours with --pairs, --topics or --retrieval.")
        found.append(evaluation.PairsEvaluator(recipes.graded_pairs(), name="graded pairs", write_csv=False))
    if not found:
        raise ValueError(
            "a comparison needs something to score by: graded pairs (--pairs), texts with topics (--topics), queries with the "
            "texts that answer them (--retrieval), the STS tasks (--data-dir, or --hub from the Hub), or --offline for the "
            "package's own 360 graded pairs."
        )
    return found


def _evaluate(options: argparse.Namespace) -> None:
    for name in ("batch_size", "limit"):
        if getattr(options, name) < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be at least 1, got {getattr(options, name)}.")
    _set_up_host(options)
    from sbert_plugins import data

    if options.reconstruct is not None:
        sentences = data.read_sentences(options.reconstruct, limit=10 * options.limit)  # some hold no phrase
        rows: list[Sequence[str]] = [("masked", "hidden", "written")]
        for name in options.models:
            table = recipes.reconstructions(Path(name).parent, recipes.build_encoder(name), sentences, limit=options.limit)
            rows += [tuple(row.values()) for row in table]
    elif options.offline and not options.data_dir:
        if options.report:
            raise ValueError("--report reads the STS tasks: name their directory with --data-dir, or leave out --offline.")
        pairs = recipes.graded_pairs()
        rows = [("model", "pooling", "graded pairs")]
        for name, model in _models(options, _trainings(options.models)):
            rows.append((name, recipes.pooling_of(model), _score_text(recipes.score(model, pairs))))
    else:
        rows = _score(options)
    _print_table(rows)


def _models(options: argparse.Namespace, trainings: dict[str, dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield each model with its name, a plain transformer pooled like the trainings that it is compared with."""
    poolings = {training["pooling"] for training in trainings.values() if "pooling" in training}
    for name in options.models:
        if options.pooling is None and len(poolings) > 1 and not recipes.has_pooling(name):
            raise ValueError(
                f"{name} is a plain transformer, and the trainings that it is compared with pool differently "
                f"({', '.join(sorted(poolings))}): say with --pooling how it is pooled."
            )
        yield name, recipes.build_encoder(name, pooling=options.pooling or next(iter(poolings), "mean"))


def _score(options: argparse.Namespace) -> list[Sequence[str]]:
    """Score the models on the seven tasks, and write the report if one is wanted; return the rows of the table."""
    from sbert_plugins import evaluation

    from_hub = options.hub or not options.data_dir
    suite = evaluation.STSSuiteEvaluator(
        options.data_dir,
        hub=from_hub,
        sick=options.sick or ("all" if from_hub else "test"),
        batch_size=options.batch_size,
        show_progress_bar=sys.stderr.isatty(),
    )
    if suite.sick == "all":
        print("SICK-R: all 9,927 pairs (mteb's protocol; the papers score the 4,927 test pairs).")
    trainings = _trainings(options.models)
    rows: list[Sequence[str]] = [("model", "pooling", *evaluation.TASKS, "average")]
    if not options.report:
        for name, model in _models(options, trainings):
            rows.append((name, recipes.pooling_of(model), *map(_score_text, suite(model).values())))
        return rows
    geometry = evaluation.AlignmentUniformityEvaluator(options.data_dir, split="test", hub=from_hub)
    density = evaluation.CosineDensityEvaluator(options.data_dir, split="test", hub=from_hub)
    shown = dict(zip(options.models, _short_names(options.models), strict=True))
    reports = [
        evaluation.report_on(
            model,
            shown[name],
            suite=suite,
            geometry=geometry,
            density=density,
            log=trainings.get(name, {}).get("log", []),
            origin={"pooling": recipes.pooling_of(model), "tokens": str(model.max_seq_length), **_origin(trainings.get(name))},
            batch_size=options.batch_size,
            show_progress_bar=sys.stderr.isatty(),
        )
        for name, model in _models(options, trainings)
    ]
    print(f"Report: {evaluation.write_report(reports, options.report)}")
    rows = [(*rows[0], "alignment", "uniformity")]
    for name, report in zip(options.models, reports, strict=True):
        measured = (f"{report.alignment:.3f}", f"{report.uniformity:.3f}")
        rows.append((name, report.origin["pooling"], *map(_score_text, report.sts.values()), *measured))
    return rows


def _trainings(models: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return what the training that wrote a model has noted, for those that a training of ours wrote."""
    trainings = {}
    for model in models:
        results = Path(model).parent / "results.json"
        if Path(model).is_dir() and results.is_file():
            try:
                trainings[model] = recipes.read_results(results)
            except ValueError as error:
                logging.getLogger(__name__).warning("%s is shown without its training: %s", model, error)
    return trainings


def _origin(training: dict[str, Any] | None) -> dict[str, str]:
    """Return what a reader of the report asks about a training, in words."""
    if training is None:
        return {}
    name = {key: (training.get(key) or {}).get("name") or "unknown" for key in ("text", "encoder")}
    scores = ", ".join(
        f"{key} {_score_text(score)} to {_score_text(training['after'][key])}" for key, score in training["before"].items()
    )
    return {
        "trained with": recipes.name_of(training["method"]),
        "from": name["encoder"],
        "text": f"{name['text']}, {training['sentences']:,} sentences",
        "updates": f"{training['steps']:,} of {training['settings']['batch_size']} x "
        f"{training['settings']['gradient_accumulation_steps']} rows",
        "seed": str(training["seed"]),
        "date": training.get("date", "unknown")[:10],
        "before and after": scores or "not scored",
    }


def _short_names(models: Sequence[str]) -> list[str]:
    """Return the last part of each path, for OUTPUT/model that of OUTPUT; the whole ones where these are not distinct."""
    paths = [Path(model) for model in models]
    names = [path.parent.name if path.name == "model" and path.parent.name else path.name for path in paths]
    return names if len(set(names)) == len(names) else list(models)


def _mteb_run(options: argparse.Namespace) -> None:
    _set_up_host(options)
    from sentence_transformers import SentenceTransformer

    from sbert_plugins import evaluation

    model = SentenceTransformer(options.model, revision=options.revision)
    path = Path(options.model)
    result = evaluation.evaluate_mteb(
        model,
        options.tasks,
        name=options.name or (f"local/{'-'.join(path.resolve().parts[-2:])}" if path.exists() else options.model),
        revision=options.revision if path.exists() else _commit(options.model, options.revision),
        cache=options.cache,
        data_dir=options.data_dir,
        batch_size=options.batch_size,
    )
    print(f"{result.model_name}, revision {result.model_revision}")
    scores = ((task.task_name, f"{100 * task.get_score():.2f}") for task in result.task_results)
    _print_table([("task", "main score x 100"), *scores])


def _commit(name: str, revision: str | None) -> str | None:
    """Return the commit of a Hub model that has just been loaded: its files lie in a folder of that name."""
    from huggingface_hub import try_to_load_from_cache

    for file in ("modules.json", "config.json"):
        cache = os.environ.get("SENTENCE_TRANSFORMERS_HOME")
        found = try_to_load_from_cache(name, file, cache_dir=cache, revision=revision or "main")
        if isinstance(found, str):
            return Path(found).parent.name
    return revision


def _mteb_submit(options: argparse.Namespace) -> None:
    from sbert_plugins import evaluation

    logging.getLogger("mteb").setLevel(logging.INFO)  # its steps to a pull request
    submission = evaluation.submit_mteb(
        options.name,
        options.tasks,
        revision=options.revision,
        cache=options.cache,
        implementation=options.implementation,
        create_pr=options.create_pr,
    )
    print(f"mteb: {submission.answer['status']}, {submission.answer['result_count']} results.")
    if submission.implementation:
        print(f"{submission.implementation} is for a pull request to mteb (mteb/models/model_implementations).")
        if submission.to_fill_in:
            print(f"Fill in what you know of: {', '.join(submission.to_fill_in)}.")


def keyword(pair: str) -> tuple[str, Any]:
    """Return the key and value of ``KEY=VALUE`` where no signature says its type: see :func:`recipes.keywords.read_value`."""
    key, equals, value = pair.partition("=")
    if not key.isidentifier() or not equals:
        raise ValueError(f"--loss takes KEY=VALUE, got {pair!r}.")
    return key, read_value(value)


def _set_up_host(options: argparse.Namespace) -> None:
    """Keep the host's libraries off the network where that is wanted, and from printing what is not the reader's."""
    if options.offline:
        # Read by huggingface_hub when it is imported, which has not happened yet.
        os.environ["HF_HUB_OFFLINE"] = "1"
    import datasets
    from transformers.utils import logging as host

    host.disable_progress_bar()  # of reading and writing weights
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    for handler in logging.getLogger("transformers").handlers:
        if not any(isinstance(present, _LoadReports) for present in handler.filters):
            handler.addFilter(_LoadReports())


class _LoadReports(logging.Filter):
    """Shortens transformers' table of a checkpoint's weights to the line that matters: those that are random now."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is printed."""
        text = record.getMessage()
        if "LOAD REPORT" not in text:
            return True
        # The pooler of a checkpoint without one is not used by any pooling of sentence-transformers.
        missing = [name for name in re.findall(r"^(\S+)\s*\|.*MISSING", text, re.MULTILINE) if "pooler." not in name]
        record.msg, record.args = "The checkpoint lacks weights, which are random now: %s.", (", ".join(missing),)
        return bool(missing)


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns: text to the left, numbers to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    is_number = [all(row[i].replace(".", "", 1).replace("-", "", 1).isdigit() for row in rows[1:]) for i in range(len(widths))]
    for row in rows:
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, is_number, strict=True)
        ]
        print("  ".join(cells).rstrip())


if __name__ == "__main__":
    sys.exit(main())
