"""``sbert-plugins train``."""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path
from typing import Any

from sbert_plugins import recipes
from sbert_plugins.cli.destinations import add_destinations, check_destinations, prepare_push, push
from sbert_plugins.cli.flags import (
    add_data,
    add_hub,
    add_settings,
    add_start,
    changed,
    encoder_to_train,
    say_of_embedders,
    text_width,
)
from sbert_plugins.cli.outcome import print_results, print_seeds
from sbert_plugins.cli.plan import check_names, loss_keywords, own_settings, planned
from sbert_plugins.cli.printing import print_table, set_up_host
from sbert_plugins.cli.reading import dev_of, graded, has_dev, read, seven_tasks
from sbert_plugins.recipes.checked import check_patience, check_seed


def add_train(commands: argparse._SubParsersAction) -> None:
    """Add the command."""
    train = commands.add_parser(
        "train",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        help="train an encoder on sentences with a method's recipe",
        description=textwrap.fill(
            "Train an encoder on unlabelled sentences. OUTPUT then holds model/ (loads in plain sentence-transformers), loss/ "
            "(what the loss owns), checkpoints/, run.json and results.json. Where --data-dir is set, or with --hub or "
            "--protocol, STS-B dev selects the checkpoint. By default no method reads more rows than its paper's or its "
            "authors' training did; --epochs or --max-steps say otherwise.",
            text_width(),
        ),
        epilog=_glossary(),
    )
    _add_text(train)
    add_start(train)
    train.add_argument(
        "--backbone", help="what slt-fai goes round: simcse (default), consert, arccse, denosent, pt-bert or bag-of-words"
    )
    train.add_argument(
        "--protocol",
        metavar="NAME",
        help="train as the paper says (paper), or as its authors' code does where that differs (official): text, encoder "
        f"(with --offline, too), settings, keywords of the loss, selection; other flags win. {_protocols()}",
    )
    train.add_argument(
        "--dry-run", action="store_true", help="print what would be trained and where each value is from; start nothing"
    )
    train.add_argument("--output", help="a new or empty directory; with --seeds also one to go on with")
    train.add_argument(
        "--pairs",
        metavar="FILE",
        help="graded pairs to score before and after, tab-separated grade, sentence, sentence, in the place of the package's "
        "360 English ones; they choose nothing",
    )
    train.add_argument("--resume", action="store_true", help="continue an interrupted training in OUTPUT, same options")
    add_destinations(train)
    add_data(train)
    add_hub(train)
    _add_settings(train)
    train.set_defaults(run=_train)


def _add_settings(train: argparse.ArgumentParser) -> None:
    """Add how it is trained, and how often."""
    settings = add_settings(train, "the protocol's, or the method's")
    settings.add_argument(
        "--loss",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="keywords of the loss: signed=true margin_degrees=5; a wrong one lists those that there are",
    )
    settings.add_argument("--seed", type=int, default=42, help="(default: 42)")
    settings.add_argument(
        "--seeds",
        type=int,
        metavar="N",
        help="train N times, from --seed on, into OUTPUT/seed_N each, and print mean and deviation; killed, the same command "
        "goes on. The crops of --positives crops are those of --seed in all of them",
    )


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
        f"(default: {recipes.DEFAULT_TEXT}, with --offline the package's own 1,281 sentences). {recipes.STS_SENTENCES}: the "
        "unlabelled sentences of the seven STS tasks, which some papers trained on (transductive). paser-supervised reads "
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


def _protocols() -> str:
    """Return which method has which protocols."""
    names: dict[str, list[str]] = {}
    for method, name in recipes.PROTOCOLS:
        names.setdefault(method, []).append(name)
    return "; ".join(f"{method}: {', '.join(of_method)}" for method, of_method in names.items())


def _glossary() -> str:
    """Return the meaning of each logged key, wrapped to the terminal."""
    first = max(map(len, recipes.LOGGED)) + 4
    width = max(text_width(), first + 20)
    lines = ["logged (in a sum as NAME/key, in an evaluation as eval_key):"]
    for key, meaning in recipes.LOGGED.items():
        lines += textwrap.wrap(meaning, width, initial_indent=f"  {key}".ljust(first), subsequent_indent=" " * first)
    return "\n".join(lines)


def _train(options: argparse.Namespace) -> None:
    recipe = recipes.recipe_of(options.method)
    plan = None if options.protocol is None else recipes.protocol_of(options.method, options.protocol)
    is_demo = options.offline and options.model is None and plan is None
    _check_backbone(options)
    _check_positives(options, recipe)
    _check_protocol(options, plan)
    _check_numbers(options, plan)
    check_destinations(options)
    if options.output is not None or not options.dry_run:
        _check_output(options)
    if options.dry_run:
        check_names(options)
        print_table(planned(options, recipe, plan, is_demo=is_demo))
        return
    set_up_host()
    keywords = loss_keywords(options)
    settings = changed(own_settings(options, plan, keywords, is_demo=is_demo), options)
    # What is missing is missed before a text is translated.
    dev, probes = dev_of(options, plan), graded(options) | seven_tasks(options, plan)
    check_names(options)
    text, sentences, columns = read(options, recipe, plan)
    if plan is None and options.epochs is None:
        settings = recipes.shortened(recipe, settings, len(sentences))
    prepare_push(options)
    say_of_embedders(options, settings.learning_rate)
    how: dict[str, Any] = {
        "output": options.output,
        "settings": settings,
        "loss_keywords": keywords,
        "columns": columns,
        "protocol": options.protocol,
        "bf16": options.bf16,
        "dev": dev,
        "probes": probes,
        "text": str(text),
        "share_examples": options.share_examples,
        "report_to": options.report_to,
        "report": print,
    }

    def start() -> Any:
        return encoder_to_train(options, settings, is_demo=is_demo, plan=plan)

    if options.seeds is not None:
        seeds = range(options.seed, options.seed + options.seeds)
        print_seeds(recipes.train_seeds(options.method, sentences, start, seeds=seeds, **how), options, plan)
    else:
        results = recipes.train(options.method, sentences, start(), seed=options.seed, resume=options.resume, **how)
        _conclude(results, options, plan)


def _conclude(results: dict[str, Any], options: argparse.Namespace, plan: recipes.Protocol | None) -> None:
    """Print and push, from one process of several."""
    from sentence_transformers.util import get_rank

    if not get_rank():
        print_results(results, options, plan)
        push(options)


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


def _check_backbone(options: argparse.Namespace) -> None:
    # Of our own methods no loss is asked, which would load torch.
    has_one = options.method == recipes.SLT_FAI.method or (
        options.method not in recipes.RECIPES and options.backbone and "backbone" in recipes.known_keywords(options.method)
    )
    if options.backbone and not has_one:
        raise ValueError(f"--backbone is for slt-fai, which goes round another method, got {options.method}.")


def _check_protocol(options: argparse.Namespace, plan: recipes.Protocol | None) -> None:
    """Refuse flags that do not go together."""
    if plan is not None and options.backbone not in (None, plan["loss.backbone"]):
        raise ValueError(
            f"the protocol {plan.name} of {plan.method} goes round {plan['loss.backbone']}, got --backbone "
            f"{options.backbone}: leave --backbone out, or take another protocol."
        )
    if plan is not None and plan["encoder"] is None and options.model is None and not options.dry_run:
        raise ValueError(f"the protocol {plan.name} of {plan.method} needs --model: {plan.source('encoder')}.")
    if options.seeds is not None and options.resume:
        raise ValueError("--seeds goes on by itself: leave out --resume.")


def _check_numbers(options: argparse.Namespace, plan: recipes.Protocol | None) -> None:
    """Refuse numbers that no training has; settings look at their own."""
    for name in ("limit", "seeds"):
        if (value := getattr(options, name)) is not None and value < 1:
            raise ValueError(f"--{name} must be at least 1, got {value}.")
    check_seed(options.seed)
    check_patience(options.patience, has_dev=has_dev(options, plan))


def _check_output(options: argparse.Namespace) -> None:
    if options.output is None:
        raise ValueError("--output must name a new or empty directory; --dry-run needs none.")
    if options.seeds is None:
        recipes.check_output(options.output, resume=options.resume)
    else:
        from sbert_plugins.recipes.seeds import check_directory  # it loads torch

        check_directory(Path(options.output))
