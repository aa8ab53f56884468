"""``sbert-plugins mteb``."""

from __future__ import annotations

import argparse
import logging
import re
from pathlib import Path

from sbert_plugins.cli.printing import print_table, set_up_host
from sbert_plugins.host import model_cache


def add_mteb(commands: argparse._SubParsersAction) -> None:
    """Add the command."""
    mteb = commands.add_parser("mteb", help="run MTEB on a local or public model, submit to its leaderboard")
    steps = mteb.add_subparsers(required=True, metavar="STEP")
    tasks = (
        "sets (paper-sts, denosent-classification, reranking, quora), "
        "benchmarks ('MTEB(eng, v1)', 'MTEB(eng, v2)') or tasks of mteb"
    )
    run = steps.add_parser(
        "run",
        help="score a model",
        description="Score a model with mteb. The tasks come from the Hub.",
    )
    run.add_argument("model", metavar="MODEL", help="path or Hub name")
    run.add_argument("--tasks", nargs="+", required=True, metavar="TASK", help=tasks)
    run.add_argument("--name", help="organization/model (default: the Hub name; for a path local/ and its last folders)")
    run.add_argument(
        "--revision",
        help="commit of a public model, of which a path is a copy (default: the Hub's; for a path a hash of the weights)",
    )
    run.add_argument("--batch-size", type=int, default=32)
    run.add_argument("--offline", action="store_true", help="use no network")
    run.set_defaults(run=_mteb_run)
    submit = steps.add_parser(
        "submit",
        help="check the results of a public model and hand them to mteb's submission",
        description="Check that the results are complete, of official tasks and of a public model; write the ModelMeta that "
        "mteb asks for; call mteb's own submission.",
    )
    submit.add_argument("name", metavar="MODEL", help="organization/model, as the results were made")
    submit.add_argument("--tasks", nargs="+", required=True, metavar="TASK", help="as for run")
    submit.add_argument("--revision", help="where there are results of several")
    submit.add_argument("--implementation", metavar="FILE", help="where the ModelMeta goes (default: MODEL.py)")
    submit.add_argument("--create-pr", action="store_true", help="push and open the pull request (needs mteb[github])")
    submit.set_defaults(run=_mteb_submit)
    for step in (run, submit):
        step.add_argument("--cache", metavar="DIR", help="of results (default: MTEB_CACHE or ~/.cache/mteb)")


def _mteb_run(options: argparse.Namespace) -> None:
    if options.batch_size < 1:
        raise ValueError(f"--batch-size must be at least 1, got {options.batch_size}.")
    set_up_host()
    from sentence_transformers import SentenceTransformer

    from sbert_plugins import evaluation, recipes
    from sbert_plugins.data.read import is_path
    from sbert_plugins.evaluation.mteb import check_name

    path = Path(options.model)
    if path.exists() or is_path(options.model):
        recipes.has_pooling(options.model)  # refuses a directory without a model, and one that is not there
    if options.name is None and not path.exists() and "/" not in options.model:
        raise ValueError(
            f"{options.model} is no directory here, and a model on the Hub is organization/name: name it so, or say with "
            "--name how its results are filed."
        )
    name = options.name or (_name_of(path) if path.exists() else options.model)
    check_name(name)  # before anything is loaded
    model = SentenceTransformer(options.model, revision=options.revision)
    result = evaluation.evaluate_mteb(
        model,
        options.tasks,
        name=name,
        revision=options.revision if path.exists() else _commit(options.model, options.revision),
        cache=options.cache,
        batch_size=options.batch_size,
    )
    print(f"{result.model_name}, revision {result.model_revision}")
    scores = ((task.task_name, f"{100 * task.get_score():.2f}") for task in result.task_results)
    print_table([("task", "main score x 100"), *scores])


def _name_of(path: Path) -> str:
    """Name a model on disk after its last two folders, in the letters that mteb's names have."""
    return "local/" + re.sub(r"[^\w.-]+", "-", "-".join(path.resolve().parts[-2:])).strip("-")


def _commit(name: str, revision: str | None) -> str | None:
    """Return the commit of a Hub model that has just been loaded: its files lie in a folder of that name."""
    from huggingface_hub import try_to_load_from_cache

    for file in ("modules.json", "config.json"):
        found = try_to_load_from_cache(name, file, cache_dir=model_cache(), revision=revision or "main")
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
    if submission.files:
        print(f"{' and '.join(map(str, submission.files))} are for a pull request to mteb (mteb/models/model_implementations).")
        if submission.to_fill_in:
            print(f"Fill in what you know of: {', '.join(submission.to_fill_in)}.")
