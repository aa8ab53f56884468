"""``sbert-plugins mteb``."""

from __future__ import annotations

import argparse
import logging
import re
from pathlib import Path
from typing import Any

from sbert_plugins.cli.common import add
from sbert_plugins.cli.printing import print_table


def add_mteb(commands: Any) -> None:
    """Add the command with its two steps."""
    mteb = commands.add_parser("mteb", help="run MTEB on a local or public model, submit to its leaderboard")
    steps = mteb.add_subparsers(required=True, metavar="STEP")
    run = steps.add_parser("run", help="score a model", description="Score a model with mteb.")
    run.add_argument("model", metavar="MODEL", help="path or Hub name")
    add(
        run, "name", help="organization/model (default: the Hub name; for a path local/ and its last folders)"
    )
    add(run, "revision", help="commit of a public model, or of the model that a path is a copy of")
    add(run, "batch_size", type=int, default=32, help="sentences per encoder call (default: 32)")
    add(run, "offline", action="store_true", help="use no network")
    add(
        run, "data_dir", help="folder of the tasks whose names begin with Local (default: SBERT_PLUGINS_DATA)"
    )
    run.set_defaults(run=_run)
    submit = steps.add_parser(
        "submit",
        help="check the results of a public model and hand them to mteb",
        description="Check that the results of a public model are complete, write the ModelMeta that mteb asks for, and call "
        "mteb's own submission.",
    )
    submit.add_argument("name", metavar="MODEL", help="organization/model, as the results were made")
    add(submit, "revision", help="where there are results of several")
    add(submit, "implementation", metavar="FILE", help="file of the ModelMeta (default: MODEL.py)")
    add(submit, "create_pr", action="store_true", help="push and open the pull request (needs mteb[github])")
    submit.set_defaults(run=_submit)
    for step in (run, submit):
        tasks = "sets (paper-sts, local-sts, ...), benchmarks ('MTEB(eng, v2)') or tasks of mteb"
        add(step, "tasks", nargs="+", required=True, metavar="TASK", help=tasks)
        add(step, "cache", metavar="DIR", help="folder of results (default: MTEB_CACHE or ~/.cache/mteb)")


def _run(options: argparse.Namespace) -> None:
    from sentence_transformers import SentenceTransformer

    from sbert_plugins import evaluation

    path = Path(options.model)
    name = options.name or options.model
    if options.name is None and path.exists():
        name = "local/" + re.sub(r"[^\w.-]+", "-", "-".join(path.resolve().parts[-2:])).strip("-")
    model = SentenceTransformer(options.model, revision=options.revision)
    result = evaluation.evaluate_mteb(
        model,
        options.tasks,
        name=name,
        revision=options.revision if path.exists() else _commit(options.model, options.revision),
        cache=options.cache,
        data_dir=options.data_dir,
        batch_size=options.batch_size,
    )
    print(f"{result.model_name}, revision {result.model_revision}")
    scores = ((task.task_name, f"{100 * task.get_score():.2f}") for task in result.task_results)
    print_table([("task", "main score x 100"), *scores])


def _commit(name: str, revision: str | None) -> str | None:
    """Return the commit of a Hub model that has just been loaded, whose cache folder has that name."""
    from huggingface_hub import try_to_load_from_cache

    from sbert_plugins import host

    found = try_to_load_from_cache(
        name, "config.json", cache_dir=host.model_cache(), revision=revision or "main"
    )
    return Path(found).parent.name if isinstance(found, str) else revision


def _submit(options: argparse.Namespace) -> None:
    from sbert_plugins import evaluation

    logging.getLogger("mteb").setLevel(logging.INFO)  # shows its steps to a pull request
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
        print(
            f"{submission.implementation} is for a pull request to mteb (mteb/models/model_implementations)."
        )
        if submission.to_fill_in:
            print(f"Fill in what you know of: {', '.join(submission.to_fill_in)}.")
