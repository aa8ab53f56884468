"""The plan of a training: every decision with its source."""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.evaluation import BaseEvaluator
from torch import nn
from transformers import set_seed

from sbert_plugins import host
from sbert_plugins.catalogue import did_you_mean, small_budget
from sbert_plugins.data.columns import LABELS, describe_texts
from sbert_plugins.recipes.encoders import name_of_encoder, pooling_of
from sbert_plugins.recipes.protocol import Protocol, read_protocol
from sbert_plugins.recipes.recipe import LENGTH_GROUPED, Recipe, override
from sbert_plugins.recipes.run import (
    describe_value,
    digest_of_texts,
    digest_of_weights,
    name_of_text,
    versions,
)
from sbert_plugins.training import LengthGroupedBatchSampler, TrainingArguments

logger = logging.getLogger(__name__)
_ARGUMENTS = {each.name for each in fields(TrainingArguments)}
# Training arguments that this package sets or does not use, and what to give instead.
_REFUSED = {
    **dict.fromkeys(
        (
            "bf16_full_eval",
            "do_predict",
            "do_train",
            "eval_accumulation_steps",
            "eval_do_concat_batches",
            "eval_use_gather_object",
            "fp16_full_eval",
            "multi_dataset_batch_sampler",
            "per_device_eval_batch_size",
            "prediction_loss_only",
            "remove_unused_columns",
            "router_mapping",
        ),
        "It has no effect.",
    ),
    "auto_find_batch_size": "Use per_device_train_batch_size, which the record of the training names.",
    "do_eval": "Give dev or evaluators.",
    "hub_always_push": "The model is uploaded once, after it was scored.",
    "hub_strategy": "The model is uploaded once, after it was scored.",
    "output_dir": "Use output.",
    "resume_from_checkpoint": "Use resume.",
}


@dataclass
class Plan:
    """A training before it runs.

    Attributes:
        recipe: The method.
        protocol: The protocol that it follows, if any.
        settings: Values and their sources, by name. Keywords of the loss begin with ``loss.``, keywords of
            the columns with ``columns.``. Training arguments have their own names.
        seed: The seed.
        output: The folder of the training.
        text: Name of the text.
        rows: The dataset that is trained on; None if the text was not read.
        model: The start; None if it was not loaded.
        dev: Evaluator that selects the checkpoint.
        most_updates: The most updates that are made, unless their number was chosen.
    """

    recipe: Recipe
    protocol: Protocol | None
    settings: dict[str, tuple[Any, str]]
    seed: int
    output: Path
    text: str | None
    rows: Any
    model: Any
    dev: BaseEvaluator | None
    most_updates: int | None

    @property
    def arguments(self) -> dict[str, Any]:
        """The training arguments that the recipe, the protocol or the user set."""
        return {name: value for name, (value, _) in self.settings.items() if name in _ARGUMENTS}

    def value(self, name: str) -> Any:
        """Return the value of a setting, or None."""
        return self.settings.get(name, (None, ""))[0]

    def section(self, prefix: str) -> dict[str, Any]:
        """Return the settings whose names begin with a prefix, without it."""
        start = f"{prefix}."
        return {
            name.removeprefix(start): value
            for name, (value, _) in self.settings.items()
            if name.startswith(start)
        }

    def record(self) -> dict[str, Any]:
        """Return what ``run.json`` holds: what makes this training another one than others."""
        return {
            "method": self.recipe.name,
            "protocol": self.protocol and self.protocol.name,
            "arguments": describe_value(self.arguments),
            "loss_keywords": describe_value(self.section("loss")),
            "column_keywords": describe_value(self.section("columns")),
            "max_seq_length": self.value("max_seq_length"),
            "tokens": self.tokens(),
            "prompt": host.resolve_prompt(self.model, None, None),
            "start_weight": self.value("start_weight") or 0.0,
            "seed": self.seed,
            "dev": getattr(self.dev, "name", None),
            "text": name_of_text(self.text),
            "read": self.value("read"),
            "sentences": len(self.rows),
            "sentences_digest": digest_of_texts(self.rows),
            "encoder": name_of_encoder(self.model),
            "weights_digest": digest_of_weights(self.model),
            "pooling": pooling_of(self.model),
            "versions": versions(),
        }

    def build_loss(self) -> nn.Module:
        """Prepare text and settings, and build the loss with the settings that begin with ``loss.``."""
        self.prepare()
        set_seed(self.seed)
        return self.recipe.build_loss(self.model, **self.section("loss"))

    def prepare(self) -> None:
        """Let the recipe make its columns, and choose what depends on the text or the model."""
        if self.recipe.prepare is None or self.rows is None or self.model is None:
            return
        arguments, count = self.training_arguments(), len(self.rows)
        epochs = count_updates(arguments, count) * rows_per_update(arguments) / count
        self.rows, found = self.recipe.prepare(
            self.rows,
            self.model,
            self.section("loss"),
            column_keywords=self.section("columns"),
            seed=self.seed,
            epochs=epochs,
        )
        for name, value in found.items():
            self.settings.setdefault(f"loss.{name}", (value, "chosen for this text and model"))

    def training_arguments(self) -> TrainingArguments:
        """Complete the arguments by what follows from the model, the text and the folder.

        Call this before a trainer is built: new arguments reset the state of its processes.
        """
        given, dev, count = self.arguments, self.dev, len(self.rows or ())
        batch = given["per_device_train_batch_size"]
        # encode puts the default prompt before each sentence, and so does the training.
        prompt = self.model and host.resolve_prompt(self.model, None, None)
        columns, others = [] if self.rows is None else self.rows.column_names, ("phrase", *LABELS)
        defaults: dict[str, Any] = {
            "output_dir": str(self.output / "checkpoints"),
            "use_cpu": self.model is None or self.model.device.type == "cpu",
            "dataloader_drop_last": count > batch and count % batch == 1,  # a single row has no negatives
            "prompts": {name: prompt for name in columns if name not in others} if prompt else None,
            "logging_steps": max(1, int(given["eval_steps"]) // 5),
            "logging_first_step": True,
            "eval_strategy": "no" if dev is None else "steps",
            "save_steps": given["eval_steps"],
            "save_total_limit": 2,  # the newest and the best
            "load_best_model_at_end": dev is not None,
            "metric_for_best_model": dev and dev.primary_metric,
            "greater_is_better": dev and dev.greater_is_better,
            "restore_callback_states_from_checkpoint": True,  # how long early stopping has waited
            "report_to": "none",
            "run_name": self.output.name,
            "disable_tqdm": True,  # the progress is ours
        }
        merged = defaults | given | {"seed": self.seed, "push_to_hub": False}  # the upload follows the scores
        if merged.get("batch_sampler") == LENGTH_GROUPED:
            merged["batch_sampler"] = LengthGroupedBatchSampler
        arguments = TrainingArguments(**merged)
        if self.most_updates and count and count_updates(arguments, count) > self.most_updates:
            arguments.max_steps = self.most_updates
        return arguments

    def tokens(self) -> int | None:
        """Return the tokens per text in training: those wanted, and those of the longest prompt."""
        own, tokenizer, wanted = self.model.max_seq_length, self.model.tokenizer, self.value("max_seq_length")
        if wanted is None:
            return own
        ends = {getattr(tokenizer, f"{name}_token_id") for name in ("cls", "sep", "bos", "eos")}
        texts = ["", host.resolve_prompt(self.model, None, None), *_texts_in(self.value("prompts"))]
        prompts = [tokenizer(text)["input_ids"] for text in texts]
        around = max(sum(token not in ends for token in prompt) for prompt in prompts)
        tokens = wanted + around if own is None else min(wanted + around, own)
        if tokens <= max(map(len, prompts)):
            raise ValueError(
                f"Special tokens and the prompt fill all {tokens} tokens, so none is left for the text. "
                f"Raise max_seq_length (now {wanted}) or that of the model (now {own}), or shorten the "
                "prompt."
            )
        return tokens

    def table(self) -> list[tuple[str, str, str]]:
        """Return the settings with their values and sources as a table, whose first row is the heading."""
        settings = dict(self.settings)
        if self.rows is not None and self.model is not None and not self.recipe.fit:
            arguments, count = self.training_arguments(), len(self.rows)
            decided = {"rows": count, "updates": count_updates(arguments, count), "tokens": self.tokens()}
            for name, value in decided.items():
                settings.setdefault(name, (value, "from model and text"))
        return [
            ("setting", "value", "source"),
            *((name, _show(value), source) for name, (value, source) in settings.items()),
        ]

    def announce(self, arguments: TrainingArguments) -> None:
        """Log what is trained, and what may not be wanted."""
        batch, updates = rows_per_update(arguments), count_updates(arguments, len(self.rows))
        logger.info(
            "Training %s on %s rows: %s updates of %d rows, learning rate %g, seed %d, %s.",
            *(self.recipe.about.title, f"{len(self.rows):,}", f"{updates:,}", batch),
            *(arguments.learning_rate, self.seed, "bfloat16" if arguments.bf16 else "float32"),
        )
        logger.info(
            "Start: %s, %s pooling, at most %s tokens per sentence%s.",
            *(name_of_encoder(self.model), pooling_of(self.model), self.tokens()),
            " with its prompt" if arguments.prompts else "",
        )
        if self.recipe.paper_updates is not None and updates < self.recipe.paper_updates:
            logger.info(
                "%s is made for long trainings, and this one has %s updates. %s For short trainings take "
                "recommended.",
                *(self.recipe.about.title, f"{updates:,}", small_budget(self.recipe.name)),
            )
        if len(self.rows) < 10 * batch:
            logger.warning(
                "An epoch of this text has fewer than ten updates. Give more text, or a smaller batch."
            )


def make_plan(
    recipe: Recipe,
    rows: Dataset | None,
    model: SentenceTransformer | None,
    *,
    output: str | Path,
    protocol: str | None = None,
    loss_keywords: Mapping[str, Any] | None = None,
    column_keywords: Mapping[str, Any] | None = None,
    arguments: Mapping[str, Any] | None = None,
    dev: BaseEvaluator | None = None,
    seed: int = 42,
    text: str | None = None,
    **others: Any,
) -> Plan:
    """Settle a training: what is given comes before the protocol, and the protocol before the recipe.

    Args:
        recipe: The method.
        rows: What the recipe has read of a text (:meth:`Recipe.read`); None in a dry run without the text.
        model: The start; None in a dry run without it.
        output: The folder of the training.
        protocol: Name of a protocol of the method.
        loss_keywords: Keywords of the loss.
        column_keywords: Keywords of the function that makes the columns.
        arguments: Fields of :class:`training.TrainingArguments`.
        dev: Evaluator that selects the checkpoint.
        seed: The seed.
        text: Name of the text.
        **others: Settings without a section: ``encoder``, ``max_seq_length``, ``patience``,
            ``start_weight``, ... None leaves the default.

    Raises:
        ValueError: For an unknown argument or keyword, or one that this package does not obey.
    """
    given = {name: value for name, value in (arguments or {}).items() if name != "hub_token"}  # a secret
    check_arguments(recipe, given)
    if recipe.fit and (dev is not None or others.get("start_weight") or others.get("patience")):
        raise ValueError(f"{recipe.name} has no checkpoints: leave out dev, patience and start_weight.")
    recipe.check_keywords(loss_keywords or {}, column_keywords)
    settings: dict[str, Any] = {} if rows is None else {"read": (describe_texts(rows), "text")}
    if protocol is None:
        followed, base = None, recipe.arguments
        defaults = {"pooling": recipe.pooling, "max_seq_length": recipe.max_seq_length} | base
        settings |= {name: (value, "recipe") for name, value in defaults.items()}
    else:
        followed = read_protocol(recipe.name, protocol)
        base = followed.section("arguments")
        prefixes = {"loss": "loss.", "columns": "columns."}
        settings |= {
            f"{prefixes.get(one.section, '')}{one.name}": (one.value, one.source) for one in followed.settings
        }
    for replaced in base.keys() - override(base, given).keys():  # given epochs replace a number of updates
        del settings[replaced]
    asked = {
        **given,
        **{name: value for name, value in others.items() if value is not None},
        **{f"loss.{name}": value for name, value in (loss_keywords or {}).items()},
        **{f"columns.{name}": value for name, value in (column_keywords or {}).items()},
    }
    settings |= {name: (value, "given") for name, value in asked.items()}
    if model is not None:
        settings |= {"encoder": (name_of_encoder(model), "start"), "pooling": (pooling_of(model), "start")}
        if not recipe.fit and not given.get("fp16"):
            settings.setdefault("bf16", (host.has_fast_bf16(model.device), "where it is fast"))
    has_length = followed is not None or given.keys() & {"max_steps", "num_train_epochs"}
    return Plan(
        recipe,
        followed,
        settings,
        seed,
        Path(output),
        text,
        rows,
        model,
        dev,
        most_updates=None if has_length else recipe.paper_updates,
    )


def check_arguments(recipe: Recipe, given: Mapping[str, Any]) -> None:
    """Raise for a training argument that does not exist or is not obeyed.

    Raises:
        ValueError: With the nearest name, or what to give instead.
    """
    names = (
        {*recipe.arguments, "push_to_hub", "hub_model_id", "hub_private_repo", "hub_revision"}
        if recipe.fit
        else _ARGUMENTS
    )
    refused = _REFUSED | (
        {"num_train_epochs": "max_steps replaces it: give one of them."}
        if given.get("max_steps", 0) > 0
        else {}
    )
    for name in given:
        if name in refused:
            raise ValueError(f"{name} cannot be set here. {refused[name]}")
        if name not in names:
            hint = did_you_mean(name, names)
            if name in (recipe.known_keywords() or ()):
                hint = f" It is a keyword of the loss: loss_keywords={{{name!r}: ...}}."
            raise ValueError(f"{recipe.name} has no training argument {name!r}.{hint}")
    if given.get("push_to_hub") and not given.get("hub_model_id"):
        raise ValueError(
            "push_to_hub needs hub_model_id. Without a name of its own, each training would replace the last."
        )


def rows_per_update(arguments: TrainingArguments) -> int:
    """Return how many rows an update reads."""
    return arguments.train_batch_size * arguments.gradient_accumulation_steps * arguments.world_size


def count_updates(arguments: TrainingArguments, rows: int) -> int:
    """Return how many updates a training makes."""
    if arguments.max_steps > 0:
        return arguments.max_steps
    batches = rows / (arguments.train_batch_size * arguments.world_size)
    batches = math.floor(batches) if arguments.dataloader_drop_last else math.ceil(batches)
    return math.ceil(
        arguments.num_train_epochs * max(1, math.ceil(batches / arguments.gradient_accumulation_steps))
    )


def _texts_in(prompts: Any) -> list[str]:
    """Return the texts in the training argument ``prompts``, which may be a text or nested by column."""
    if isinstance(prompts, Mapping):
        return [text for each in prompts.values() for text in _texts_in(each)]
    return [prompts] if prompts else []


def _show(value: Any) -> str:
    """Return a value as a person writes it."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) else str(describe_value(value))
