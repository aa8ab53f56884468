"""One training: a plain sentence-transformers model, the loss's state and the results in one directory."""

from __future__ import annotations

import json
import logging
import platform
import time
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sbert_plugins import __version__
from sbert_plugins.recipes.methods import RECIPES
from sbert_plugins.recipes.settings import Recipe, Settings
from sbert_plugins.recipes.slt_fai import slt_fai_settings

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

    from sbert_plugins.evaluation import ScoredPairs

logger = logging.getLogger(__name__)
RUN_FILE = "run.json"


def build_loss(method: str, model: SentenceTransformer, **keywords: Any) -> Any:
    """Build a method's loss with the paper's defaults, ``keywords`` replacing some of them.

    Raises:
        ValueError: For keywords that the loss has not, or values that it refuses.
    """
    from sbert_plugins import losses

    recipe = RECIPES[method]
    try:
        return (recipe.build or getattr(losses, recipe.loss))(model, **keywords)
    except TypeError as error:
        raise ValueError(f"keywords must be those of {recipe.loss}, got {', '.join(keywords) or 'none'}: {error}.") from error


def settings_of(method: str, loss_keywords: dict[str, Any] | None = None, *, offline: bool = False) -> Settings:
    """Return a method's settings, the paper's or those of the demo; those of SLT-FAI are its backbone's."""
    if method == "slt-fai":
        return slt_fai_settings((loss_keywords or {}).get("backbone", "simcse"), offline=offline)
    return RECIPES[method].offline if offline else RECIPES[method].settings


def load_loss(output: str | Path, model: SentenceTransformer) -> Any:
    """Rebuild the loss of a finished training around its model: ``load_loss(output, SentenceTransformer(output / "model"))``.

    Raises:
        ValueError: If ``output`` is not a directory that :func:`train` has written, or the model is another one.
    """
    from sbert_plugins.training import load_loss_state

    output = Path(output)
    if not (output / "results.json").is_file() or not (output / "loss").is_dir():
        raise ValueError(f"{output} must be the output of a training, with results.json and loss/ beside model/.")
    results = json.loads((output / "results.json").read_text(encoding="utf-8"))
    loss = build_loss(results["method"], model, **(results["loss_keywords"] | RECIPES[results["method"]].reload))
    load_loss_state(loss, model, output / "loss")
    return loss


def reconstructions(
    output: str | Path, model: SentenceTransformer, sentences: Dataset, *, limit: int = 10
) -> list[dict[str, str]]:
    """Let the decoder of a finished PaSeR training write the best phrase of each sentence, as in the paper's Table 7.

    Args:
        output: What :func:`train` has written.
        model: ``output / "model"``, loaded.
        sentences: A dataset with the column ``anchor``.
        limit: Rows, at most.

    Returns:
        Rows with ``masked``, ``phrase`` (what is hidden) and ``written`` (what the decoder puts in its place).

    Raises:
        ValueError: If ``output`` is no such directory, or its method writes no phrases.
    """
    from sbert_plugins import data

    loss = load_loss(output, model)
    loss = loss.losses["paser"] if hasattr(loss, "losses") else loss
    if not hasattr(loss, "reconstruct"):
        raise ValueError(f"{output} must be a training of paser or paser-supervised, got {type(loss).__name__}.")
    anchors = sentences.select_columns(["anchor"])
    rows = data.paser_columns(anchors, mask_token=model.tokenizer.mask_token, top_k=1, synonyms=None)[:limit]
    written = loss.reconstruct(rows["anchor"], rows["masked"])
    columns = zip(rows["masked"], rows["phrase"], written, strict=True)
    return [dict(zip(("masked", "phrase", "written"), row, strict=True)) for row in columns]


def check_output(output: str | Path, *, resume: bool = False) -> Path:
    """Refuse an output directory that holds anything, or with ``resume`` one that holds no interrupted training.

    Raises:
        FileExistsError: If there is something at ``output`` already, or with ``resume`` a finished training.
        FileNotFoundError: If there is no training to resume.
    """
    output = Path(output)
    if resume:
        if (output / "results.json").exists():
            raise FileExistsError(f"{output} holds a finished training, with results.json: there is nothing to resume.")
        if not any(output.glob("checkpoints/checkpoint-*/checkpoint_complete.json")):
            raise FileNotFoundError(
                f"{output} holds no checkpoint to resume (the first is written after eval_steps updates): "
                "delete the directory and train again without resume."
            )
    elif output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise FileExistsError(f"output must be a new or an empty directory, got {output}, which exists: name another one.")
    return output


def train(
    method: str,
    sentences: Dataset,
    model: SentenceTransformer,
    *,
    output: str | Path,
    settings: Settings | None = None,
    seed: int = 42,
    bf16: bool | None = None,
    dev: ScoredPairs | None = None,
    probes: dict[str, ScoredPairs] | None = None,
    loss_keywords: dict[str, Any] | None = None,
    columns: dict[str, Any] | None = None,
    resume: bool = False,
    report: Callable[[str], None] = logger.info,
) -> dict[str, Any]:
    """Train ``model`` in place with a method's recipe and save it as a plain sentence-transformers model.

    ``output`` then holds ``model/`` (loads in ``SentenceTransformer`` without this package), ``loss/`` (what the loss owns,
    for :func:`load_loss`), ``checkpoints/``, ``run.json`` and ``results.json``.

    Args:
        method: A key of :data:`RECIPES`.
        sentences: A dataset with the column ``anchor``, for a recipe of ``pairs`` with a positive of each as the second, or
            with the method's own columns; at least two rows. The order of the columns counts, not their names.
        model: The encoder to train. With the settings' pooling ``mask`` it is given the mask template, unless it has it.
        output: A new or empty directory.
        settings: By default the paper's.
        seed: Of Python, numpy and torch, set before the loss is built; the order of the sentences follows from it.
        bf16: Mixed precision; by default on a GPU that has bfloat16. Losses are computed in float32 either way.
        dev: STS-B dev: evaluated every ``eval_steps``, and the best checkpoint by its Spearman is the one that is saved.
        probes: Named pairs scored before and after, never for a choice.
        loss_keywords: Replace defaults of the loss; what json can hold.
        columns: How the columns of ``sentences`` were made, for the record; what json can hold. A training whose columns were
            made otherwise is not resumed.
        resume: Continue an interrupted training in ``output`` from its newest complete checkpoint; everything else as
            it was given the first time.
        report: Called with each message for the person who waits.

    Returns:
        What ``results.json`` holds: scores before and after (Spearman x 100), settings, seed, versions, seconds.

    Raises:
        ValueError: For an unknown method or keyword of its loss, columns that it does not read, fewer than two sentences, or a
            batch size below two.
        FileExistsError: If ``output`` holds anything. Nothing is written before all of this is checked.
    """
    import torch
    from sentence_transformers import SentenceTransformerTrainingArguments
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
    from transformers import set_seed

    from sbert_plugins.training import LengthGroupedBatchSampler, SentenceTransformerTrainer, json_text, save_loss_state

    if method not in RECIPES:
        raise ValueError(f"method must be one of {', '.join(RECIPES)}, got {method!r}.")
    settings = settings or settings_of(method, loss_keywords)
    if settings.batch_size < 2:
        raise ValueError(
            f"batch_size must be at least 2, got {settings.batch_size}: the other sentences of a batch are the negatives."
        )
    if len(sentences) < 2:
        raise ValueError(f"training needs at least 2 sentences, got {len(sentences)}: a sentence has no negative but others.")
    _check_columns(RECIPES[method], sentences.column_names)
    output = check_output(output, resume=resume)
    run = {"method": method, "settings": asdict(settings), "seed": seed, "sentences": len(sentences)}
    run["loss_keywords"] = loss_keywords or {}
    run["columns"] = columns or {}
    if resume:
        _check_same_run(output, run)
    rows, chosen = _prepare(RECIPES[method], settings, sentences, model, seed)
    given = loss_keywords or {}
    found = RECIPES[method].keywords(rows, model, settings, given) if RECIPES[method].keywords else {}
    set_seed(seed)
    loss = build_loss(method, model, **(found | given))

    def evaluator(name: str, pairs: ScoredPairs) -> EmbeddingSimilarityEvaluator:
        return EmbeddingSimilarityEvaluator(*pairs, name=name, batch_size=128, main_similarity="cosine")

    tables = dict(probes or {})
    if dev is not None:
        tables["STS-B dev"] = dev
    before = {name: score(model, pairs) for name, pairs in tables.items()}
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(output / "checkpoints"),
        learning_rate=settings.learning_rate,
        per_device_train_batch_size=settings.batch_size,
        gradient_accumulation_steps=settings.gradient_accumulation_steps,
        num_train_epochs=settings.epochs,
        max_steps=settings.max_steps,
        learning_rate_mapping={} if settings.loss_learning_rate is None else {r"^(?!model\.)": settings.loss_learning_rate},
        batch_sampler=LengthGroupedBatchSampler if settings.group_by_length else "batch_sampler",
        use_cpu=model.device.type == "cpu",
        bf16=model.device.type == "cuda" and torch.cuda.is_bf16_supported() if bf16 is None else bf16,
        seed=seed,
        logging_steps=max(1, settings.eval_steps // 5),
        logging_first_step=True,
        eval_strategy="no" if dev is None else "steps",
        eval_steps=settings.eval_steps,
        save_strategy="steps",
        save_steps=settings.eval_steps,
        save_total_limit=1,
        load_best_model_at_end=dev is not None,
        metric_for_best_model=None if dev is None else "eval_stsb-dev_spearman_cosine",
        report_to="none",
    )
    trainer = SentenceTransformerTrainer(
        model=model,
        args=arguments,
        train_dataset=rows,
        loss=loss,
        evaluator=None if dev is None else evaluator("stsb-dev", dev),
        sam_rho=settings.sam_rho or None,
    )
    is_main = trainer.is_world_process_zero()
    if is_main:
        output.mkdir(parents=True, exist_ok=True)
        (output / RUN_FILE).write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")
        report(f"Training {RECIPES[method].name} on {len(sentences):,} sentences, seed {seed}.")
    start = time.perf_counter()
    trainer.train(resume_from_checkpoint=resume)
    seconds = time.perf_counter() - start
    if is_main:
        model.save_pretrained(str(output / "model"))
        (output / "loss").mkdir(exist_ok=True)
        save_loss_state(loss, model, output / "loss")
    results = {
        "method": method,
        "before": before,
        "after": {name: score(model, pairs) for name, pairs in tables.items()},
        "sentences": len(sentences),
        "rows": len(rows),
        "columns": run["columns"] | chosen,
        "settings": asdict(settings),
        "loss": loss.get_config_dict(),
        "loss_keywords": loss_keywords or {},
        "seed": seed,
        "bf16": arguments.bf16,
        "steps": trainer.state.global_step,
        "seconds": round(seconds, 1),
        "device": str(model.device),
        "python": platform.python_version(),
        "versions": {
            "sbert-plugins": __version__,
            **{name: version(name) for name in ("sentence-transformers", "transformers", "torch", "datasets")},
        },
        "log": trainer.state.log_history,
    }
    if is_main:
        (output / "results.json").write_text(json_text(results), encoding="utf-8")
    return results


def _check_columns(recipe: Recipe, names: list[str]) -> None:
    """Refuse columns that the loss would not read, or would read as something else."""
    widths = (3,) if recipe.reads == "triplets" else (1, 2) if recipe.pairs else (1,)
    if len(names) not in widths and names != recipe.columns.split(", "):
        raise ValueError(
            f"{recipe.method} reads {'' if recipe.prepare is None else recipe.reads + ' or '}{recipe.columns}, got "
            f"{', '.join(names)}: drop what is too much with dataset.select_columns."
        )


def _check_same_run(output: Path, run: dict[str, Any]) -> None:
    """Refuse to resume with other settings than the interrupted training had."""
    before = {"columns": {}} | json.loads((output / RUN_FILE).read_text(encoding="utf-8"))
    flat, flat_before = ({**values, **values["settings"]} for values in (run, before))
    changed = [f"{key} {flat_before.get(key)} (now {value})" for key, value in flat.items() if flat_before.get(key) != value]
    if changed := [text for text in changed if not text.startswith("settings ")]:
        raise ValueError(f"{output} was begun with {', '.join(changed)}: resume with the same, or begin in another directory.")


def _prepare(
    recipe: Recipe, settings: Settings, sentences: Dataset, model: SentenceTransformer, seed: int
) -> tuple[Dataset, dict[str, Any]]:
    """Give the model the template that the settings ask for; return the loss's rows and how they were made."""
    from sbert_plugins.modules import apply_mask_template, freeze_mask_template

    if settings.pooling == "mask":
        apply_mask_template(model)
    freeze_mask_template(model)  # of a model that has one from an earlier training
    if recipe.prepare is None or sentences.column_names == recipe.columns.split(", "):
        return sentences, {}
    return recipe.prepare(sentences, model, seed)


def score(model: SentenceTransformer, pairs: ScoredPairs) -> float:
    """Return the Spearman correlation, times 100, of cosine similarity and gold score."""
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

    evaluator = EmbeddingSimilarityEvaluator(*pairs, batch_size=128, main_similarity="cosine", write_csv=False)
    return 100 * evaluator(model)["spearman_cosine"]
