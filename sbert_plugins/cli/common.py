"""Options that several commands have, and what is made of them."""

from __future__ import annotations

import argparse
import os
from dataclasses import fields
from typing import Any

from sbert_plugins import recipes

ARGUMENTS = """\
training arguments, all of them fields of sentence-transformers' TrainingArguments, with underscores or dashes:
  --learning_rate RATE               peak learning rate
  --max_steps N                      number of updates
  --num_train_epochs N               passes over the text, instead of a number of updates
  --per_device_train_batch_size N    rows per batch; the other rows of a batch are the negatives
  --gradient_accumulation_steps N    batches per update
  --eval_steps N                     updates between two checkpoints, and two evaluations
  --lr_scheduler_type NAME           linear, constant_with_warmup, cosine, ...
  --warmup_steps N                   updates in which the learning rate rises; below 1 their share
  --weight_decay RATE                weight decay of the optimizer
  --bf16 BOOL                        bfloat16 mixed precision (default: where a GPU has it)
  --sam_rho RADIUS                   radius of Sharpness-Aware Minimization, which takes two passes per update
  --report_to NAME                   tensorboard, wandb, mlflow, ...
  --push_to_hub BOOL --hub_model_id USER/NAME    upload the model when it is trained (private by default)
  --seed N                           (default: 42)
All others: https://sbert.net/docs/package_reference/sentence_transformer/training_args.html
"""


def add(parser: Any, name: str, **keywords: Any) -> None:
    """Add an option that may be written with underscores or with dashes."""
    names = dict.fromkeys([f"--{name}", f"--{name.replace('_', '-')}"])
    parser.add_argument(*names, **keywords)


def add_start(parser: argparse.ArgumentParser) -> None:
    """Add the options about text and encoder."""
    add(parser, "model", help="path or Hub name of the start (default: bert-base-uncased)")
    add(
        parser,
        "offline",
        action="store_true",
        help="use no network; without --model start from the built-in all-MiniLM-L6-v2",
    )
    add(
        parser,
        "pooling",
        choices=["cls", "mean", "lasttoken", "mask"],
        help="for a plain transformer; mask: in a template",
    )
    add(
        parser,
        "max_seq_length",
        type=int,
        help="tokens per sentence in training; the saved model keeps its own limit",
    )
    add(parser, "column", help="column of a table or a dataset on the Hub (default: text, or the only one)")
    add(parser, "limit", type=int, help="read the first LIMIT sentences only")


def add_scores(parser: argparse.ArgumentParser) -> None:
    """Add the options about what scores a model."""
    group = parser.add_argument_group("scores (default: 360 graded pairs that ship with the package)")
    add(group, "pairs", metavar="FILE", help="your graded pairs: tab-separated grade, sentence, sentence")
    add(group, "topics", metavar="FILE", help="your texts with topics: tab-separated topic, text")
    add(
        group,
        "retrieval",
        metavar="DIR",
        help="your search: queries.tsv and corpus.tsv (id, text), qrels.tsv (query, text, gain)",
    )
    add(group, "sts", action="store_true", help="the seven STS tasks, from --data_dir or else from the Hub")
    add(
        group,
        "data_dir",
        default=os.environ.get("SBERT_PLUGINS_DATA"),
        help="folder of the STS tasks (default: SBERT_PLUGINS_DATA)",
    )


def keep_given_arguments(parser: argparse.ArgumentParser, with_arguments: dict[str, Any]) -> None:
    """Let a complete parser return None for the training arguments that are not given."""
    if kind := with_arguments.get("dataclass_types"):
        names = [field.name for field in fields(kind)]
        parser.set_defaults(**dict.fromkeys(names), argument_names=names)


def given_arguments(options: argparse.Namespace) -> dict[str, Any]:
    """Return the training arguments that were given on the command line."""
    values = {name: getattr(options, name) for name in options.argument_names}
    return {name: value for name, value in values.items() if value is not None}


def read_text(options: argparse.Namespace, text: str) -> Any:
    """Read sentences from a file, a dataset on the Hub, or the STS tasks."""
    from datasets import Dataset

    from sbert_plugins import data, evaluation

    if text == "sts-sentences":
        return Dataset.from_dict({"anchor": evaluation.sts_sentences(options.data_dir)[: options.limit]})
    return data.read_sentences(text, column=options.column, limit=options.limit)


def build_start(options: argparse.Namespace, default: str, pooling: str, template: str | None = None) -> Any:
    """Build the encoder to start from."""
    if options.model is None and options.offline:
        return recipes.offline_encoder(num_layers=6)
    extra = {"template": template} if template else {}
    return recipes.build_encoder(
        options.model or default, pooling=options.pooling, default_pooling=pooling, **extra
    )


def build_evaluators(options: argparse.Namespace, *, more: bool = False) -> list[Any]:
    """Build what scores a model.

    Args:
        options: The parsed command line.
        more: Whether to add STS-B dev to the built-in pairs where there is a data folder.
    """
    from sbert_plugins import evaluation

    own = (
        (options.pairs, evaluation.own_pairs),
        (options.topics, evaluation.own_topics),
        (options.retrieval, evaluation.own_retrieval),
    )
    found: list[Any] = [build(path) for path, build in own if path is not None]
    if options.sts:
        found.append(evaluation.STSSuiteEvaluator(options.data_dir, write_csv=False))
    if not found:
        found.append(evaluation.PairsEvaluator(recipes.graded_pairs(), name="graded pairs", write_csv=False))
        if more and options.data_dir:
            found.append(stsb_dev(options))
    return found


def stsb_dev(options: argparse.Namespace) -> Any:
    """Build the evaluator by STS-B dev."""
    from sbert_plugins import evaluation

    return evaluation.PairsEvaluator(
        evaluation.load_sts("STS-B dev", options.data_dir), name="STS-B dev", write_csv=False
    )
