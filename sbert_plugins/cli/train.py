"""``sbert-plugins train``."""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sbert_plugins import recipes
from sbert_plugins.cli.destinations import add_destinations, check_destinations, prepare_push, push
from sbert_plugins.cli.flags import add_data, add_settings, add_start, changed, encoder_to_train, text_or_default, text_width
from sbert_plugins.cli.printing import print_table, score_text, set_up_host

if TYPE_CHECKING:
    from datasets import Dataset


def add_train(commands: argparse._SubParsersAction) -> None:
    """Add the command."""
    train = commands.add_parser(
        "train",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        help="train an encoder on sentences with a method's recipe",
        description=textwrap.fill(
            "Train an encoder on unlabelled sentences. OUTPUT then holds model/ (loads in plain sentence-transformers), loss/ "
            "(what the loss owns), checkpoints/ and results.json. Where --data-dir is set, STS-B dev selects the checkpoint.",
            text_width(),
        ),
        epilog=_glossary(),
    )
    _add_text(train)
    add_start(train)
    train.add_argument("--backbone", help="what slt-fai goes round: simcse (default), consert or another method on sentences")
    train.add_argument("--output", required=True, help="a new or empty directory")
    train.add_argument("--resume", action="store_true", help="continue an interrupted training in OUTPUT, same options")
    train.add_argument(
        "--share-examples", action="store_true", help="let the model card show sentences of TEXT; without it, it shows none"
    )
    add_destinations(train)
    add_data(train)
    settings = add_settings(train, "the paper's")
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
    _check_positives(options, recipe)
    if options.backbone and "backbone" not in recipes.known_keywords(options.method):
        raise ValueError(f"--backbone is for slt-fai, which goes round another method, got {recipe.method}.")
    recipes.check_output(options.output, resume=options.resume)
    set_up_host(options)
    check_destinations(options)
    from sbert_plugins import evaluation

    is_demo = options.offline and options.model is None
    keywords = recipes.read_keywords(options.method, options.loss)
    keywords |= {"backbone": options.backbone} if options.backbone else {}
    settings = changed(recipes.settings_of(options.method, keywords, offline=is_demo), options)
    text, sentences, columns = _read(options, recipe)
    prepare_push(options)
    results = recipes.train(
        options.method,
        sentences,
        encoder_to_train(options, settings, is_demo=is_demo),
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
        report_to=options.report_to,
        report=print,
    )
    print()
    rows = [(f"Spearman x 100, {results['pooling']} pooling", "before", "after")]
    rows += [(name, score_text(score), score_text(results["after"][name])) for name, score in results["before"].items()]
    print_table(rows)
    path = Path(options.output) / "model"
    print(
        f'\n{results["steps"]} updates in {results["seconds"]:.0f} s. Model: {path} (SentenceTransformer("{path}") loads it)'
    )
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


def _read(options: argparse.Namespace, recipe: recipes.Recipe) -> tuple[str | Path, Dataset, dict[str, Any]]:
    """Return what is trained on, its rows, and how they were made."""
    from sbert_plugins import data

    text = text_or_default(options, recipe)
    if recipe.reads == "triplets":
        return text, data.read_triplets(text, limit=options.limit), {}
    given = {"column": options.column, "limit": options.limit}
    if options.paraphrases:
        return text, data.read_pairs(text, options.paraphrases, **given), {"positives": "paraphrases"}
    if options.positives == "crops":
        made = {"by": options.crops_by or "sentences", "seed": options.seed}
        return text, data.crop_pairs(data.read_documents(text, **given), **made), {"positives": "crops", **made}
    return text, data.read_sentences(text, **given), {"positives": "dropout"} if recipe.second_column else {}
