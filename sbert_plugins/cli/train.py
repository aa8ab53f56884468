"""``sbert-plugins train``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sbert_plugins import recipes
from sbert_plugins.cli.common import (
    ARGUMENTS,
    add,
    add_scores,
    add_start,
    build_evaluators,
    build_start,
    given_arguments,
    keep_given_arguments,
    read_text,
    stsb_dev,
)
from sbert_plugins.cli.printing import print_table, shown

DEFAULT_MODEL = "bert-base-uncased"


def add_train(commands: Any, with_arguments: dict[str, Any]) -> None:
    """Add the command."""
    train = commands.add_parser(
        "train",
        help="train a model on sentences without labels",
        description="Train a model on sentences without labels. OUTPUT then holds model/ (a plain sentence-transformers model), "
        "checkpoints/, run.json and results.json.",
        epilog=ARGUMENTS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        **with_arguments,
    )
    train.add_argument(
        "method", metavar="METHOD", help=f"{', '.join(recipes.RECIPES)}, or package.module:Class"
    )
    train.add_argument(
        "text",
        nargs="?",
        metavar="TEXT",
        help="a text file with a sentence per line, csv, jsonl, parquet (.gz too), a dataset on the Hub, or sts-sentences",
    )
    add(train, "output", help="a new or empty folder (default: METHOD-model)")
    add_start(train)
    add(
        train,
        "positives",
        choices=["crops", "spans"],
        help="TEXT holds documents: pair a passage with another of its document",
    )
    add(train, "paraphrases", metavar="FILE", help="a paraphrase of each sentence of TEXT")
    add(
        train,
        "loss",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="keywords of the loss",
    )
    add(
        train,
        "keep",
        type=float,
        metavar="WEIGHT",
        help="recommended: weight of the self-distillation from the start",
    )
    add(train, "no_keep", action="store_true", help="recommended: no self-distillation")
    add(
        train,
        "protocol",
        metavar="NAME",
        help="train as a paper (paper) or its authors' code (official) describes",
    )
    add(train, "dev", action="store_true", help="select the checkpoint by STS-B dev (a protocol does)")
    add(
        train,
        "patience",
        type=int,
        metavar="N",
        help="stop after N evaluations by STS-B dev without a better one",
    )
    add(
        train,
        "start_weight",
        type=float,
        default=0.0,
        metavar="W",
        help="average the weights: W * start + (1 - W) * trained",
    )
    add(train, "resume", action="store_true", help="continue the training in OUTPUT, or start it")
    add(train, "dry_run", action="store_true", help="print the settings and their sources, and stop")
    add(train, "share_examples", action="store_true", help="let the model card show sentences of TEXT")
    add_scores(train)
    keep_given_arguments(train, with_arguments)
    train.set_defaults(run=_train, names_on_hub=_names)


def _names(options: argparse.Namespace) -> list[str]:
    """Return the names of model and text, which may be on the Hub."""
    plan = _plan(options)
    text = None if options.offline or options.dry_run else _text(options, plan)
    model = (
        None
        if options.dry_run or (options.offline and options.model is None)
        else options.model or DEFAULT_MODEL
    )
    return [name for name in (model, text) if name not in (None, "sts-sentences")]


def _plan(options: argparse.Namespace) -> recipes.Protocol | None:
    return recipes.read_protocol(options.method, options.protocol) if options.protocol else None


def _text(options: argparse.Namespace, plan: recipes.Protocol | None) -> str:
    """Return the name of the text: as given, or the default of the protocol or the recipe."""
    if options.text is not None:
        return options.text
    if plan is not None:
        return plan.section("start")["text"]
    return (
        str(recipes.offline_sentences_path()) if options.offline else recipes.find_recipe(options.method).text
    )


def _train(options: argparse.Namespace) -> None:
    recipe, plan = recipes.find_recipe(options.method), _plan(options)
    keywords = recipes.read_keywords(recipe, options.loss)
    if options.no_keep or options.keep is not None:
        keywords |= {"keep": None if options.no_keep else options.keep}
    arguments = given_arguments(options)
    if options.offline and options.model is None and plan is None:
        arguments = recipe.offline_arguments | arguments
    text = _text(options, plan)
    if options.dry_run:
        print_table(_planned(options, recipe, plan, text, arguments, keywords))
        return
    start = plan.section("start") if plan else {}
    dev = stsb_dev(options) if options.dev or options.patience or plan else None
    options.sts = options.sts or plan is not None
    evaluators = [one for one in build_evaluators(options, more=True) if dev is None or one.name != dev.name]
    sentences = _read(options, recipe, text, start.get("positives"))
    default = start.get("encoder") or DEFAULT_MODEL
    model = build_start(options, default, start.get("pooling", recipe.pooling), start.get("template"))
    seed = arguments.pop("seed", 42)
    results = recipes.train(
        options.method,
        sentences,
        model,
        output=options.output or f"{options.method.replace(':', '-')}-model",
        protocol=options.protocol,
        loss_keywords=keywords,
        max_seq_length=options.max_seq_length,
        dev=dev,
        evaluators=evaluators,
        start_weight=options.start_weight,
        patience=options.patience,
        resume=options.resume,
        seed=seed,
        text=text,
        share_examples=options.share_examples,
        **arguments,
    )
    _print_results(results, options, plan)


def _read(options: argparse.Namespace, recipe: recipes.Recipe, text: str, positives: str | None) -> Any:
    """Read what is trained on."""
    from sbert_plugins import data

    if len(recipe.text_columns) > 1:
        return data.read_triplets(text, limit=options.limit)
    if options.paraphrases:
        return data.read_pairs(text, options.paraphrases, column=options.column, limit=options.limit)
    if options.positives:
        documents = data.read_documents(text, column=options.column, limit=options.limit)
        return data.crop_pairs(documents, by="sentences" if options.positives == "crops" else "spans")
    sentences = read_text(options, text)
    return data.back_translate(sentences) if positives == "back-translation" else sentences


def _planned(
    options: argparse.Namespace,
    recipe: recipes.Recipe,
    plan: recipes.Protocol | None,
    text: str,
    arguments: dict[str, Any],
    keywords: dict[str, Any],
) -> list[tuple[str, str, str]]:
    """Return the rows of the dry run: setting, value, source."""
    rows: dict[str, tuple[Any, str]] = {}
    if plan is not None:
        prefix = {"loss": "loss.", "columns": "columns."}
        rows |= {f"{prefix.get(one.section, '')}{one.name}": (one.value, one.source) for one in plan.settings}
    else:
        ours = {
            "encoder": DEFAULT_MODEL,
            "text": text,
            "pooling": recipe.pooling,
            "max_seq_length": recipe.max_seq_length or "the limit of the model",
        }
        if options.offline:
            ours |= {"encoder": "all-MiniLM-L6-v2 (built in)", "pooling": "its own"}
        rows |= {
            name: (value, f"recipe of {recipe.name}") for name, value in (ours | recipe.arguments).items()
        }
        if recipe.adapt_to is not None:
            embeds = options.offline if options.model is None else recipes.has_pooling(options.model)
            adaptation = recipe.adapt_to(embeds=embeds)
            chosen = adaptation.arguments | {
                f"loss.{name}": value for name, value in adaptation.loss_keywords.items()
            }
            rows |= {
                name: (value, "embedding model" if embeds else "language model")
                for name, value in chosen.items()
            }
    given = {
        name: getattr(options, name) for name in ("text", "pooling", "max_seq_length", "limit", "patience")
    }
    given |= (
        {"encoder": options.model} | arguments | {f"loss.{name}": value for name, value in keywords.items()}
    )
    if "num_train_epochs" in given:
        rows.pop("max_steps", None)
    rows |= {name: (value, "command line") for name, value in given.items() if value is not None}
    return [
        ("setting", "value", "source"),
        *((name, shown(value), source) for name, (value, source) in rows.items()),
    ]


def _print_results(
    results: dict[str, Any], options: argparse.Namespace, plan: recipes.Protocol | None
) -> None:
    """Print scores, where the model is, and the verdict; from one process of several."""
    from sbert_plugins.recipes.run import is_first_process

    if not is_first_process():
        return
    changes = [
        (f"{one['name']}: {one['metric']}", f"{one['before']:.2f}", f"{one['after']:.2f}")
        for one in results["changes"]
    ]
    print()
    print_table([("score", "start", "trained"), *changes])
    if plan is not None:
        reported = next(one for one in plan.settings if one.name == "reported")
        print(f"Reported: {reported.value} on average over the seven STS tasks ({reported.source}).")
    path = Path(options.output or f"{options.method.replace(':', '-')}-model") / "model"
    print(f'\n{results["updates"]:,} updates. The model is in {path}: SentenceTransformer("{path}")\n')
    print("\n".join(results["verdict"]))
    if results["is_worse"]:
        print(
            "The trained model is worse than the start. Keep the start, or train with fewer updates, a lower learning rate or "
            "recommended with --keep."
        )
