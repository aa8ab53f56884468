"""One training: a plain sentence-transformers model, the loss's state and the results in one directory."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, fields
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sbert_plugins import __version__
from sbert_plugins.recipes.card import describe_training, encoder_name, examples_kept_private, name_origin
from sbert_plugins.recipes.encoders import pooling_of, truncated_to
from sbert_plugins.recipes.keywords import check_keywords
from sbert_plugins.recipes.methods import RECIPES
from sbert_plugins.recipes.settings import Recipe, Settings
from sbert_plugins.recipes.slt_fai import slt_fai_settings

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

    from sbert_plugins.evaluation import ScoredPairs
    from sbert_plugins.training import SentenceTransformerTrainer

logger = logging.getLogger(__name__)
RUN_FILE = "run.json"


def build_loss(method: str, model: SentenceTransformer, **keywords: Any) -> Any:
    """Build a method's loss with the paper's defaults, ``keywords`` replacing some of them.

    Raises:
        ValueError: For keywords that the loss has not, or values that it refuses.
    """
    from sbert_plugins import losses

    recipe = RECIPES[method]
    check_keywords(method, keywords)
    return (recipe.build or getattr(losses, recipe.loss))(model, **keywords)


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
    results = read_results(output / "results.json")
    loss = build_loss(results["method"], model, **(results["loss_keywords"] | RECIPES[results["method"]].reload))
    load_loss_state(loss, model, output / "loss")
    return loss


def read_results(path: str | Path) -> dict[str, Any]:
    """Read the ``results.json`` or ``run.json`` of a training.

    Raises:
        ValueError: If the file is not what :func:`train` has written.
    """
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:  # neither JSON nor UTF-8
        raise ValueError(f"{path} must be the json that a training wrote, and cannot be read as json ({error}).") from error
    kinds = {"method": str, "settings": dict, "loss_keywords": dict, "seed": int, "sentences": int}
    if Path(path).name != RUN_FILE:
        kinds |= {"before": dict, "after": dict, "steps": int, "log": list}
    wrong = [key for key, kind in kinds.items() if not isinstance(values, dict) or not isinstance(values.get(key), kind)]
    if not wrong and values["method"] not in RECIPES:
        wrong = ["method"]
    if not wrong and set(values["settings"]) != {field.name for field in fields(Settings)}:
        wrong = ["settings"]
    if wrong:
        raise ValueError(f"{path} must be the json that a training wrote, got something else under {', '.join(wrong)}.")
    return values


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
    text: str | None = None,
    share_examples: bool = False,
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
            It is truncated to the settings' ``max_seq_length`` while it trains; its own limit is what it is scored, saved
            and returned with.
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
        text: What the sentences were read from, a file or a dataset on the Hub; the model card names it.
        share_examples: Whether the model card may show some of the sentences, as the host's does.
        report: Called with each message for the person who waits.

    Returns:
        What ``results.json`` holds: scores before and after (Spearman x 100), settings, seed, versions, seconds. A number that
        is not finite is None.

    Raises:
        ValueError: For an unknown method or keyword of its loss, columns that it does not read, fewer than two sentences, one
            that is None, another training than the one that is resumed, and a training that has diverged (no model is saved
            then).
        FileExistsError: If ``output`` holds anything. Nothing is written before all of this is checked.
        FileNotFoundError: With ``resume``, if there is no checkpoint.
    """
    import torch
    from transformers import set_seed

    from sbert_plugins.training import json_text

    if method not in RECIPES:
        raise ValueError(f"method must be one of {', '.join(RECIPES)}, got {method!r}.")
    settings, given = settings or settings_of(method, loss_keywords), loss_keywords or {}
    if not 0 <= seed < 2**32:
        raise ValueError(f"seed must be in [0, {2**32 - 1}], got {seed}.")
    if len(sentences) < 2:
        raise ValueError(f"training needs at least 2 sentences, got {len(sentences)}: a sentence has no negative but others.")
    _check_columns(RECIPES[method], sentences.column_names)
    output = check_output(output, resume=resume)
    bf16 = model.device.type == "cuda" and torch.cuda.is_bf16_supported() if bf16 is None else bf16
    run = {"method": method, "settings": asdict(settings), "seed": seed, "sentences": len(sentences), "loss_keywords": given}
    run |= {"columns": columns or {}, "text": _text_mark(sentences, text), "encoder": _encoder_mark(model), "bf16": bf16}
    if resume:
        _check_same_run(output, run)
    rows, chosen = _prepare(RECIPES[method], settings, sentences, model, seed)
    found = RECIPES[method].keywords(rows, model, settings, given) if RECIPES[method].keywords else {}
    name_origin(model, text)
    own_length = model.max_seq_length  # which a template has lengthened
    with truncated_to(model, settings.max_seq_length):
        set_seed(seed)
        loss = build_loss(method, model, **(found | given))
    tables = {**(probes or {}), **({} if dev is None else {"STS-B dev": dev})}
    before = {name: score(model, pairs) for name, pairs in tables.items()}
    with truncated_to(model, settings.max_seq_length) as length:
        trainer = _trainer(
            model,
            loss,
            rows,
            settings,
            output,
            seed=seed,
            bf16=bf16,
            evaluator=None if dev is None else _dev_evaluator(dev, own_length),
            share=share_examples,
            report=report,
        )
        is_main = trainer.is_world_process_zero()
        if is_main:
            output.mkdir(parents=True, exist_ok=True)
            _write_json(output / RUN_FILE, run)
            report(f"Training {RECIPES[method].name} on {len(sentences):,} sentences, seed {seed}.")
            report(
                f"Encoder {run['encoder']['name']}, {pooling_of(model)} pooling, up to {length} tokens a sentence in training "
                f"and {own_length} in the saved model; {len(rows):,} rows, {_updates(settings, len(rows)):,} updates."
            )
        start = time.perf_counter()
        trainer.train(resume_from_checkpoint=resume)
        seconds = time.perf_counter() - start
    after = {name: score(model, pairs) for name, pairs in tables.items()}
    results = {
        "method": method,
        "before": before,
        "after": after,
        "sentences": len(sentences),
        "text": run["text"],
        "rows": len(rows),
        "columns": run["columns"] | chosen,
        "encoder": run["encoder"],
        "pooling": pooling_of(model),
        "max_seq_length": {"training": length, "model": own_length},
        "settings": asdict(settings),
        "loss": loss.get_config_dict(),
        "loss_keywords": given,
        "seed": seed,
        "bf16": bf16,
        "steps": trainer.state.global_step,
        "seconds": round(seconds, 1),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "device": str(model.device),
        "python": platform.python_version(),
        "versions": {
            "sbert-plugins": __version__,
            **{name: version(name) for name in ("sentence-transformers", "transformers", "torch", "datasets")},
        },
        "log": trainer.state.log_history,
    }
    if is_main:
        _save(output, model, loss, results, {name: (tables[name], before[name], after[name]) for name in tables})
    return json.loads(json_text(results))


def _trainer(
    model: SentenceTransformer,
    loss: Any,
    rows: Dataset,
    settings: Settings,
    output: Path,
    *,
    seed: int,
    bf16: bool,
    evaluator: EmbeddingSimilarityEvaluator | None,
    share: bool,
    report: Callable[[str], None],
) -> SentenceTransformerTrainer:
    """Build the trainer of a method's rows, which shows one line of progress and keeps the rows out of the model card."""
    from sentence_transformers import SentenceTransformerTrainingArguments
    from transformers import PrinterCallback

    from sbert_plugins.recipes.progress import ProgressLine
    from sbert_plugins.training import LengthGroupedBatchSampler, SentenceTransformerTrainer

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
        bf16=bf16,
        seed=seed,
        # Ten lines of a short training, five between two evaluations of a long one.
        logging_steps=max(1, min(settings.eval_steps // 5, _updates(settings, len(rows)) // 10)),
        logging_first_step=True,
        eval_strategy="no" if evaluator is None else "steps",
        eval_steps=settings.eval_steps,
        save_strategy="steps",
        save_steps=settings.eval_steps,
        save_total_limit=1,
        load_best_model_at_end=evaluator is not None,
        metric_for_best_model=None if evaluator is None else f"eval_{_DEV_SCORE}",
        report_to="none",
        disable_tqdm=True,  # its bar and its dicts of strings; ProgressLine is in their place
    )
    with examples_kept_private(model, share=share):
        trainer = SentenceTransformerTrainer(
            model=model,
            args=arguments,
            train_dataset=rows,
            loss=loss,
            evaluator=evaluator,
            sam_rho=settings.sam_rho or None,
        )
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(ProgressLine(report, score=(f"eval_{_DEV_SCORE}", "STS-B dev")))
    return trainer


_DEV_SCORE = "stsb-dev_spearman_cosine"


def _dev_evaluator(pairs: ScoredPairs, own_length: int | None) -> EmbeddingSimilarityEvaluator:
    """Build the evaluator that chooses the checkpoint: by what the saved model will give, not by shorter sentences."""
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

    class AtOwnLength(EmbeddingSimilarityEvaluator):
        def embed_inputs(self, model: SentenceTransformer, *arguments: Any, **keywords: Any) -> Any:
            length, model.max_seq_length = model.max_seq_length, own_length
            try:
                return super().embed_inputs(model, *arguments, **keywords)
            finally:
                model.max_seq_length = length

    return AtOwnLength(*pairs, name="stsb-dev", batch_size=128, main_similarity="cosine")


def _updates(settings: Settings, rows: int) -> int:
    """Count a training's updates, as the host will."""
    if settings.max_steps > 0:
        return settings.max_steps
    batches = math.ceil(rows / settings.batch_size)
    return max(1, math.ceil(settings.epochs * math.ceil(batches / settings.gradient_accumulation_steps)))


def _save(
    output: Path,
    model: SentenceTransformer,
    loss: Any,
    results: dict[str, Any],
    scores: dict[str, tuple[ScoredPairs, float, float]],
) -> None:
    """Write model, card, what the loss owns and results."""
    from sbert_plugins.training import save_loss_state

    recipe, length = RECIPES[results["method"]], results["max_seq_length"]
    settings = {
        "method": f"{recipe.name} ({recipe.paper})",
        "encoder": results["encoder"]["name"],
        **{key: results["settings"][key] for key in ("group_by_length", "sam_rho", "loss_learning_rate")},
        "pooling": results["pooling"],
        "max_seq_length": f"{length['training']} in training, {length['model']} in this model",
        "updates": results["steps"],
    }
    describe_training(model, f"{results['encoder']['name']} trained with {recipe.name}", settings, scores)
    model.save_pretrained(str(output / "model"))
    (output / "loss").mkdir(exist_ok=True)
    save_loss_state(loss, model, output / "loss")
    _write_json(output / "results.json", results)


def _write_json(path: Path, values: dict[str, Any]) -> None:
    from sbert_plugins.training import json_text

    path.write_text(json_text(values), encoding="utf-8")


def _text_mark(sentences: Dataset, name: str | None) -> dict[str, Any]:
    """Return the name of a text and a hash of its sentences, by which a training that is resumed knows it."""
    digest = hashlib.sha256()
    place = 0
    for batch in sentences.iter(batch_size=1000):
        for row, texts in enumerate(zip(*batch.values(), strict=True), start=place):
            if None in texts:
                raise ValueError(f"sentences must hold no None, got one in row {row}: leave such rows out.")
            digest.update("\0".join(map(str, texts)).encode("utf-8", "surrogatepass") + b"\n")
        place += len(next(iter(batch.values())))
    return {"name": name and (Path(name).name if Path(name).exists() else name), "sha256": digest.hexdigest()[:16]}


def _encoder_mark(model: SentenceTransformer) -> dict[str, Any]:
    """Return the name of an encoder and a hash of its weights, by which a training that is resumed knows it."""
    import torch

    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        if "pooler." not in name:  # sentence vectors do not use it, and where a checkpoint has none it is drawn at random
            digest.update(parameter.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return {"name": encoder_name(model), "sha256": digest.hexdigest()[:16]}


def _check_columns(recipe: Recipe, names: list[str]) -> None:
    """Refuse columns that the loss would not read, or would read as something else."""
    widths = (3,) if recipe.reads == "triplets" else (1, 2) if recipe.pairs else (1,)
    if len(names) not in widths and names != recipe.columns.split(", "):
        raise ValueError(
            f"{recipe.method} reads {'' if recipe.prepare is None else recipe.reads + ' or '}{recipe.columns}, got "
            f"{', '.join(names)}: drop what is too much with dataset.select_columns."
        )


def _check_same_run(output: Path, run: dict[str, Any]) -> None:
    """Refuse to resume with other settings, sentences or weights than the interrupted training had."""
    run = json.loads(json.dumps(run))  # as it will be read
    before = {"columns": {}} | read_results(output / RUN_FILE)
    flat, flat_before = ({**values, **values["settings"]} for values in (run, before))
    # Of text and encoder the hash decides: either may have been moved, or renamed.
    changed = [key for key, value in flat.items() if key != "settings" and _mark(flat_before.get(key)) != _mark(value)]
    if changed:
        listed = ", ".join(f"{key} {_shown(flat_before.get(key))} (now {_shown(flat[key])})" for key in changed)
        raise ValueError(f"{output} was begun with {listed}: resume with the same, or begin in another directory.")


def _mark(value: Any) -> Any:
    return value.get("sha256", value) if isinstance(value, dict) else value


def _shown(value: Any) -> str:
    has_mark = isinstance(value, dict) and "sha256" in value
    return f"{value['name']} [{value['sha256']}]" if has_mark else str(value)


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
    """Return the Spearman correlation, times 100, of cosine similarity and gold score; the model card hears nothing of it."""
    from sbert_plugins.evaluation import Embeddings, PairsEvaluator

    evaluator = PairsEvaluator(pairs)
    return evaluator.compute(Embeddings(model, evaluator.sentences))["spearman"]
