"""One training: a plain sentence-transformers model and a record of it in one folder."""

import logging
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path
from typing import Any

from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.evaluation import BaseEvaluator
from transformers import EarlyStoppingCallback, PrinterCallback

from sbert_plugins import evaluation, host
from sbert_plugins.encoder import set_dropout, transformer_of
from sbert_plugins.evaluation.score import Scores
from sbert_plugins.recipes.card import name_data, private_examples, write_card
from sbert_plugins.recipes.encoders import average_with_start, raise_if_blind
from sbert_plugins.recipes.methods import find_recipe
from sbert_plugins.recipes.plan import Plan, make_plan
from sbert_plugins.recipes.progress import Progress
from sbert_plugins.recipes.protocol import protocol_names, read_protocol
from sbert_plugins.recipes.recipe import Recipe
from sbert_plugins.recipes.run import (
    LENGTH,
    RESULTS_FILE,
    RUN_FILE,
    check_is_free,
    check_same_run,
    describe_value,
    digest_of_weights,
    hold,
    is_first_process,
    name_of_text,
    read_json,
    write_json,
)
from sbert_plugins.recipes.trained_loss import LOSS_FOLDER
from sbert_plugins.training import SentenceTransformerTrainer
from sbert_plugins.training.loss_state import differences, own_state, save_loss_state

logger = logging.getLogger(__name__)


def train(
    method: str | Recipe,
    texts: Dataset | Iterable[str],
    model: SentenceTransformer,
    *,
    output: str | Path,
    columns: str | Sequence[str] | None = None,
    protocol: str | None = None,
    loss_keywords: dict[str, Any] | None = None,
    column_keywords: dict[str, Any] | None = None,
    max_seq_length: int | None = None,
    dev: BaseEvaluator | None = None,
    evaluators: Sequence[BaseEvaluator] = (),
    start_weight: float = 0.0,
    patience: int | None = None,
    resume: bool = False,
    seed: int = 42,
    text: str | None = None,
    share_examples: bool = False,
    keep_checkpoints: bool = False,
    before: Scores | None = None,
    **arguments: Any,
) -> dict[str, Any]:
    """Train ``model`` in place with a method, and save it as a plain sentence-transformers model.

    ``output`` then holds ``model/``, which loads without this package, ``loss/`` with what the loss has
    learned (:func:`load_loss`), ``run.json`` (written at the start) and ``results.json``. While it trains,
    and after an interruption, it also holds ``checkpoints/``.

    Args:
        method: A name in :data:`RECIPES`, or ``package.module:Class`` for a loss class of your own.
        texts: A list of texts, or a dataset. A dataset has the text in the column ``anchor``, ``text`` or
            ``sentence``, or in its only column of strings. A column ``positive`` or ``paraphrase`` is read
            where the method takes one. The first line that is logged names the columns that are read, and
            those that are not.
        model: The encoder. ``max_seq_length`` truncates sentences in training only.
        output: A new or empty folder; with ``resume`` also that of a training to continue.
        columns: Names of the columns to read, in the order in which the method takes them.
        protocol: Train as a protocol of the method describes: its arguments, keywords and columns. Text,
            encoder, ``dev`` and ``evaluators`` are still yours to give.
        loss_keywords: Keywords of the loss.
        column_keywords: Keywords of the function that makes the method's columns, such as
            :func:`data.paser_columns`.
        max_seq_length: Tokens per sentence in training, without those of a template or prompt; by default
            the recipe's.
        dev: Evaluator whose primary metric selects the checkpoint; without it the last update is saved.
        evaluators: Evaluators that score the model before and after. They select nothing.
        start_weight: Share of the start in the saved weights (:func:`average_with_start`).
        patience: Stop after this many evaluations by ``dev`` without a better one.
        resume: Continue from the newest checkpoint in ``output``, or start if there is none. A finished
            training is continued if it is to have more updates. If not, its results are returned, and
            ``model`` is not changed.
        seed: Seed of the weights of the loss, the order of the sentences and everything drawn in training.
        text: Name of the text, for the record and the model card.
        share_examples: Whether the model card may show sentences of the text.
        keep_checkpoints: Whether to keep the checkpoints of a training that has ended. A longer training can
            continue from them.
        before: Scores of the start, if they are known (:func:`evaluation.measure`).
        **arguments: Fields of :class:`training.TrainingArguments`, in place of the recipe's.

    Returns:
        What ``results.json`` holds: the run, scores ``before`` and ``after``, the ``verdict``, the number of
        ``updates``, the ``log``.

    Raises:
        ValueError: For an invalid or unknown argument or keyword, a column that does not exist, fewer than
            two texts, a model with weights in half precision, a decoder that pools its first token, or
            another training in ``output``.
        FileExistsError: If ``output`` is not empty, or another process trains there.
        RuntimeError: If the saved model gives other vectors than the trained one. Model and results are
            saved before this is checked, and before they are scored or uploaded.

    Example:
        >>> results = train("arccse", dataset, model, output="runs/arccse", max_steps=60)  # doctest: +SKIP
        >>> results["verdict"]  # doctest: +SKIP
    """
    # 1. Read.
    recipe = method if isinstance(method, Recipe) else find_recipe(method)
    rows = recipe.read(texts, columns, text or "")
    _check_inputs(rows, model, start_weight)

    # 2. Plan.
    token = arguments.pop("hub_token", None)  # as a training argument it would be in each checkpoint
    earlier = read_json(Path(output) / RUN_FILE).get("arguments", {})
    if resume and not recipe.fit and "bf16" in earlier:  # this machine might choose another
        arguments.setdefault("bf16", earlier["bf16"])
    if patience is not None and dev is None:
        raise ValueError("patience needs dev, the evaluator whose scores it waits for.")
    plan = make_plan(
        recipe,
        rows,
        model,
        output=output,
        protocol=protocol,
        loss_keywords=loss_keywords,
        column_keywords=column_keywords,
        arguments=arguments,
        dev=dev,
        seed=seed,
        text=text,
        max_seq_length=max_seq_length,
        patience=patience,
        start_weight=start_weight or None,
    )
    logger.info(plan.value("read"))
    logger.info("First text: %.80s", rows[0][rows.column_names[0]])
    scored = [*evaluators, *([dev] if dev is not None else [])]
    for evaluator in scored if before is None else ():
        logger.info(evaluation.describe_labels(evaluator))
    run = plan.record()
    with hold(plan.output):
        if finished := _find_finished(plan.output, run, resume=resume):
            return finished
        if plan.value("dropout") is not None:
            set_dropout(model, plan.value("dropout"))
        before = evaluation.measure(model, scored, bf16=plan.value("bf16")) if before is None else before
        if is_first_process():
            write_json(plan.output / RUN_FILE, run)

        # 3. Train.
        began = time.monotonic()
        results = run | (_fit(plan) if recipe.fit else _train_loss(plan, resume, share_examples, run))
        results |= {
            "seconds": round(time.monotonic() - began, 1),
            "max_seq_length": {"training": plan.tokens(), "model": model.max_seq_length},
        }

        # 4. Save. Whatever fails from here on, model and results are kept.
        if is_first_process():
            model.save_pretrained(str(plan.output / "model"))
            write_json(plan.output / RESULTS_FILE, results)

        # 5. Judge.
        after = evaluation.measure(model, scored, bf16=plan.value("bf16"))
        changes = evaluation.judge_all(before, after)
        results |= {
            "before": {name: score.to_dict() for name, score in before.items()},
            "after": {name: score.to_dict(items=True) for name, score in after.items()},
            "changes": [asdict(change) for change in changes],
            "verdict": [
                change.sentence
                + (" It chose the checkpoint, so a gain proves little." if place >= len(evaluators) else "")
                for place, change in enumerate(changes)
            ],
            "worse": [change.name for change in changes if change.result == "worse"],
        }
        if is_first_process():
            write_json(plan.output / RESULTS_FILE, results)
            write_card(plan.output / "model", recipe, results)
            _check_saved_model(model, plan.output / "model")
            _upload(plan, token)
            write_json(plan.output / RESULTS_FILE, results | {"finished": True})
            if not keep_checkpoints:
                shutil.rmtree(plan.output / "checkpoints", ignore_errors=True)
    return results


def _check_inputs(rows: Dataset, model: SentenceTransformer, start_weight: float) -> None:
    """Raise for what would fail later, or not be noticed."""
    if not isinstance(model, SentenceTransformer):
        raise ValueError(
            f"model must be a SentenceTransformer, got {type(model).__name__}: use recipes.build_encoder."
        )
    trained = {str(weight.dtype) for weight in model.parameters() if weight.requires_grad}
    if half := trained & {"torch.float16", "torch.bfloat16"}:  # in which small updates are lost
        raise ValueError(
            f"The weights of the model are {half.pop()}, and training needs float32. Load the model with "
            'model_kwargs={"dtype": "float32"}. For speed, train with bf16=True.'
        )
    transformer_of(model)  # raises for a model without one, such as static vectors
    raise_if_blind(model)
    if len(rows) < 2:
        raise ValueError(f"A training needs at least two sentences, got {len(rows)}.")
    if not 0 <= start_weight <= 1:
        raise ValueError(f"start_weight must be from 0 to 1, got {start_weight}.")


def _find_finished(output: Path, run: dict[str, Any], *, resume: bool) -> dict[str, Any] | None:
    """Check that a training may be written to a folder; return its results if it is finished there."""
    earlier = read_json(output / RUN_FILE)
    if resume and earlier:
        check_same_run(earlier, run, output)
        finished = read_json(output / RESULTS_FILE)  # of a shorter training, if the longer one was killed
        if 0 < run["arguments"].get("max_steps", 0) < finished.get("updates", 0):
            raise ValueError(
                f"{output} holds a training of {finished['updates']:,} updates, and max_steps asks for "
                f"{run['arguments']['max_steps']:,}. Take another output for a shorter training."
            )
        if finished.get("finished") and not differences(finished, run).keys() & {*LENGTH}:
            logger.info(
                "%s holds the finished training; these are its scores. More updates: --resume --max_steps N. "
                "Other labels: sbert-plugins evaluate %s.",
                *(output, output / "model"),
            )
            return finished
    elif is_first_process():
        check_is_free(output)
    return None


def _fit(plan: Plan) -> dict[str, Any]:
    """Adapt a model by a recipe that trains no loss."""
    recipe, model = plan.recipe, plan.model
    assert recipe.fit is not None
    name_data(model, None)  # of a text, the card of sentence-transformers needs what a trainer notes
    keywords = {name: plan.value(name) for name in recipe.arguments} | plan.section("loss")
    own, model.max_seq_length = model.max_seq_length, plan.tokens()
    done = recipe.fit(model, plan.rows, seed=plan.seed, **keywords)
    model.max_seq_length = own
    return {
        "rows": len(plan.rows),
        "updates": done.updates,
        "saved_update": done.updates,
        "deviations": {},
        "log": done.log,
    }


def _train_loss(plan: Plan, resume: bool, share_examples: bool, run: Mapping[str, Any]) -> dict[str, Any]:
    """Train a model with the loss of its recipe."""
    model = plan.model
    start = deepcopy(model) if plan.value("start_weight") else None
    loss = plan.build_loss()
    arguments = plan.training_arguments()
    name_data(model, name_of_text(plan.text))
    with private_examples(model, share=share_examples):
        trainer = SentenceTransformerTrainer(
            model=model, args=arguments, train_dataset=plan.rows, loss=loss, evaluator=plan.dev
        )
    trainer.data_collator.max_length = plan.tokens()
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(Progress(trainer))
    if plan.value("patience") is not None and plan.dev is not None:
        trainer.add_callback(EarlyStoppingCallback(plan.value("patience")))
    if is_first_process():
        plan.announce(arguments)
    with host.eager_attention(model, arguments.bf16 and arguments.device.type == "cpu"):
        trainer.train(resume_from_checkpoint=resume)
    if start is not None:
        average_with_start(model, start, plan.value("start_weight"))
    if digest_of_weights(model) == run["weights_digest"]:
        raise ValueError(
            "The training has changed no weight of the model. Weights may be frozen, learning_rate or "
            "learning_rate_mapping too small, or warmup_steps or start_weight too large."
        )
    if is_first_process() and own_state(loss, model):
        (plan.output / LOSS_FOLDER).mkdir(exist_ok=True)
        save_loss_state(loss, model, plan.output / LOSS_FOLDER)
    best = trainer.state.best_model_checkpoint if arguments.load_best_model_at_end else None
    used: dict[str, Any] = getattr(loss, "get_config_dict", dict)()
    used |= {
        name: arguments.to_dict()[name]
        for name in (
            "learning_rate",
            "per_device_train_batch_size",
            "lr_scheduler_type",
            "max_grad_norm",
            "weight_decay",
        )
    }
    used |= {"pooling": plan.value("pooling"), "max_seq_length": plan.value("max_seq_length")}
    return {
        "rows": len(plan.rows),
        "loss_keywords": describe_value(plan.section("loss")),
        "updates": trainer.state.global_step,
        "saved_update": int(best.rpartition("-")[2]) if best else trainer.state.global_step,
        "deviations": deviations_from_paper(
            plan.recipe, used, plan.protocol.name if plan.protocol else "paper"
        ),
        "log": trainer.state.log_history,
    }


def deviations_from_paper(
    recipe: Recipe, ours: dict[str, Any], followed: str = "paper"
) -> dict[str, tuple[Any, Any]]:
    """Return the settings that differ from the paper's protocol: the paper's value and ours.

    Args:
        recipe: The method.
        ours: Settings of this training by the names of the protocol.
        followed: The protocol that the training follows. A method may have several of its paper.
    """
    if "paper" not in protocol_names().get(recipe.name, ()):
        return {}
    protocol = read_protocol(recipe.name, followed if followed.startswith("paper") else "paper")
    paper = protocol.section("loss") | protocol.section("start") | protocol.section("arguments")
    paper.pop("warmup_steps", None)  # follows from the length of the training
    return {
        name: (value, ours[name]) for name, value in paper.items() if name in ours and ours[name] != value
    }


def _check_saved_model(model: SentenceTransformer, folder: Path) -> None:
    """Raise ``RuntimeError`` if the saved model gives other vectors, as some adapters do."""
    reloaded = SentenceTransformer(
        str(folder),
        device=str(model.device),
        model_kwargs={"dtype": "float32"},
        trust_remote_code=model.trust_remote_code,
    )
    texts = ["A dog runs across the wet field.", "Prices fell for the third month in a row."]
    trained, saved = (
        one.encode(texts, convert_to_tensor=True, normalize_embeddings=True) for one in (model, reloaded)
    )
    apart = float((trained - saved).abs().max())
    if apart > 1e-3:
        raise RuntimeError(
            f"The model in {folder} gives other vectors when it is loaded again (up to {apart:.3f} apart). "
            "Merge its adapters before you save it, or use adapters that load in full, such as LoRA without "
            "DoRA."
        )


def _upload(plan: Plan, token: str | None) -> None:
    """Upload the model, if it is asked for."""
    if plan.value("push_to_hub"):
        name = plan.value("hub_model_id")
        plan.model.push_to_hub(
            name,
            token=token,
            private=plan.value("hub_private_repo") is not False,
            revision=plan.value("hub_revision"),
            local_model_path=str(plan.output / "model"),
            exist_ok=True,
        )
        logger.info("Uploaded to https://huggingface.co/%s.", name)
