"""``sbert-plugins compare``."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sbert_plugins import recipes
from sbert_plugins.cli.flags import (
    add_data,
    add_labels,
    add_settings,
    add_start,
    add_sts,
    changed,
    encoder_to_train,
    say_of_embedders,
    text_or_default,
    text_width,
)
from sbert_plugins.cli.printing import less_said_by, print_table, set_up_host
from sbert_plugins.cli.reading import dev_of, from_hub, has_dev, own_labels, refuse_name_of_scores, sick_of
from sbert_plugins.recipes.cells import read_methods
from sbert_plugins.recipes.held_out import hold_out
from sbert_plugins.recipes.summary import BEYOND_CHANCE

_NOTHING_TO_SCORE_BY = (
    "a comparison needs something to score by: graded pairs (--pairs), texts with topics (--topics), queries with the "
    "texts that answer them (--retrieval), the STS tasks (--data-dir, or --hub from the Hub), or --offline for the "
    "package's own 360 graded pairs."
)


def add_compare(commands: argparse._SubParsersAction) -> None:
    """Add the command."""
    compare = commands.add_parser(
        "compare",
        help="train several methods on your text and compare them on your labels",
        description="Train each method with each seed on TEXT, from one encoder and with one set of settings, and score the "
        "start and every result by what you have: --pairs, --topics, --retrieval, the STS tasks; with none of them by "
        "sentences of TEXT that are held out (English, with NLTK's WordNet), or with --offline by the package's graded pairs. "
        "It ends in a table and OUTPUT/index.html. Killed, the same command goes on.",
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
    add_start(compare)
    scores = compare.add_argument_group("scores (by default the text's own sentences, without labels)")
    add_labels(scores)
    add_sts(scores)
    scores.add_argument("--dev-only", action="store_true", help="of the STS tasks STS-B dev alone: look at no test set")
    add_data(scores)
    add_settings(compare, "those of recommended, for all methods", recipes.RECOMMENDED.settings)
    compare.set_defaults(run=_compare)


def _compare(options: argparse.Namespace) -> None:
    _check_methods(options.methods)
    _check_scores(options)
    set_up_host()
    is_demo = options.offline and options.model is None
    settings = changed(recipes.settings_of("recommended", offline=is_demo), options)
    text: Any = text_or_default(options, recipes.RECOMMENDED)
    name = str(text)
    dev = dev_of(options, None)
    found = evaluators(options, dev)
    if not found:
        text, label_free = held_out(options, text)
        found, options.column = [label_free], None  # of the file, which is read
    say_of_embedders(options, *(method.settings(settings).learning_rate for method in read_methods(options.methods)))
    with less_said_by("sbert_plugins.evaluation"):  # what is scored is said here
        result = recipes.compare(
            options.methods,
            text,
            output=options.output,
            evaluators=found,
            model=lambda: encoder_to_train(options, settings, is_demo=is_demo),
            seeds=options.seeds,
            settings=settings,
            dev=dev,
            column=options.column,
            limit=options.limit,
            data_dir=options.data_dir,
            hub=options.hub,
            name=name,
            bf16=options.bf16,
            force=options.force,
            report=print,
        )
    print()
    print_table(result.table)
    if len(options.methods) > 1:
        print(textwrap.fill(BEYOND_CHANCE, text_width()))
    for name, reason in result.failed.items():
        print(f"{name} failed: {reason}")
    print(f"\nAll scores, differences, curves and neighbours: {result.page}")
    print(f"Models: {Path(options.output) / 'METHOD_seedN' / 'model'} (SentenceTransformer loads them)")
    if result.failed:
        raise ValueError(f"{len(result.failed)} of the trainings failed; the same command tries again.")


def _check_methods(names: Sequence[str]) -> None:
    """Refuse, before a text is read, what is no method; a file among them was meant as TEXT."""
    for name in names:
        if name not in recipes.RECIPES and Path(name).is_file():
            raise ValueError(f"--methods takes all names up to the next flag, got the file {name}: put TEXT before --methods.")
    read_methods(names)


def _check_scores(options: argparse.Namespace) -> None:
    """Refuse flags of the STS tasks that do not go together, before any is read."""
    if (options.dev_only or options.sick) and not has_dev(options, None):
        raise ValueError("--dev-only and --sick are of the STS tasks: name them with --data-dir or --hub.")
    if options.dev_only and options.sick:
        raise ValueError("--sick is of the seven tasks, which --dev-only leaves out: give one of the two.")


def held_out(options: argparse.Namespace, text: str | Path) -> tuple[Any, Any]:
    """Return what is trained on, and a score without labels of the sentences that are held out.

    Raises:
        ValueError: If there are too few sentences, or none of them can be used; with the labels that would do.
        FileNotFoundError: If NLTK finds no WordNet, likewise.
    """
    given = {"column": options.column, "limit": options.limit, "data_dir": options.data_dir, "hub": options.hub}
    sentences = recipes.read_text(text, **given)
    try:
        rows, score = hold_out(sentences, name="own sentences")
    except (ValueError, FileNotFoundError) as error:
        raise type(error)(f"{_NOTHING_TO_SCORE_BY} The text's own sentences do not do: {error}") from error
    print(
        f"Nothing is named to score by: scores are made from {len(score.texts.sentences)} of the text's sentences, which are "
        "not trained on. They say nothing of topics or search, nor of a training that goes on for too long, and labels say "
        "more: --pairs, --topics, --retrieval."
    )
    return rows, score


def evaluators(options: argparse.Namespace, dev: Any) -> list[Any]:
    """Return what scores a comparison: all that the flags name, without a network the package's graded pairs at least."""
    from sbert_plugins import evaluation

    found = own_labels(options)
    if dev is not None:
        for evaluator in found:
            if isinstance(evaluator, evaluation.PairsEvaluator):
                refuse_name_of_scores(evaluator.name)
        found.append(evaluation.PairsEvaluator(dev, name="STS-B dev", write_csv=False))
        if not options.dev_only:
            source = {"hub": from_hub(options), "sick": sick_of(options)}
            found.append(evaluation.STSSuiteEvaluator(options.data_dir, **source, write_csv=False))
    if not found and options.offline:
        print("Scores are of the package's own 360 graded pairs; name yours with --pairs, --topics or --retrieval.")
        found.append(evaluation.PairsEvaluator(recipes.graded_pairs(), name="graded pairs", write_csv=False))
    return found
