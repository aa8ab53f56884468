"""MTEB for models that mteb's own command cannot load, without a stale score, and the way to its leaderboard."""

from __future__ import annotations

import hashlib
import json
import keyword
import logging
import math
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling

from sbert_plugins.host import is_of_pooler, kept_random_state, reads_pooler, tokenizer_state

from .tables import DATA_VARIABLE, data_directory

if TYPE_CHECKING:
    from mteb import ResultCache
    from mteb.abstasks import AbsTask
    from mteb.models import ModelMeta
    from mteb.results import ModelResult, TaskResult

logger = logging.getLogger(__name__)

# Tasks of MTEB(eng, v1), with the splits and languages that are scored there. mteb's SICK-R is all 9,927 pairs; the
# classification tasks, the four rerankers and Quora are those that DenoSent's paper reports.
TASK_SETS = {
    "paper-sts": ("STS12", "STS13", "STS14", "STS15", "STS16", "STSBenchmark", "SICK-R"),
    "denosent-classification": (
        "AmazonCounterfactualClassification",
        "AmazonReviewsClassification",
        "Banking77Classification",
        "EmotionClassification",
        "MassiveIntentClassification",
        "MassiveScenarioClassification",
        "MTOPDomainClassification",
        "MTOPIntentClassification",
        "ToxicConversationsClassification",
        "TweetSentimentExtractionClassification",
    ),
    "reranking": ("AskUbuntuDupQuestions", "MindSmallReranking", "SciDocsRR", "StackOverflowDupQuestions"),
    "quora": ("QuoraRetrieval",),
    "local-sts": tuple(f"Local{task}" for task in ("STS12", "STS13", "STS14", "STS15", "STS16", "STSBenchmark", "SICK-R")),
    "local-retrieval": ("LocalCranfield", "LocalQuoraRetrieval"),
    "local-classification": ("LocalSST2Classification", "LocalSST5Classification", "LocalTRECClassification"),
}
_WEIGHTS = "weights-"
_MARK_FILE = "model.txt"  # beside mteb's own json: what the model was that was scored
# Fields of ModelMeta that no program can know.
_AUTHORS_FIELDS = (
    "license", "languages", "release_date", "training_datasets", "public_training_code", "public_training_data",
    "adapted_from", "citation",
)  # fmt: skip


class Submission(NamedTuple):
    """What :func:`submit_mteb` did: mteb's answer, the ``ModelMeta`` file if one is needed, and its fields left to fill in."""

    answer: dict[str, Any]
    implementation: Path | None
    to_fill_in: list[str]


@contextmanager
def _kept_generators() -> Iterator[None]:
    """Leave the generators as they were: mteb seeds each, where a task is made already."""
    with kept_random_state(torch.device("cpu")), torch.random.fork_rng(range(torch.cuda.device_count())):
        yield


@_kept_generators()
def evaluate_mteb(
    model: SentenceTransformer,
    tasks: str | Sequence[str] = "paper-sts",
    *,
    name: str = "local/model",
    revision: str | None = None,
    cache: str | Path | None = None,
    data_dir: str | Path | None = None,
    batch_size: int = 32,
    show_progress_bar: bool = True,
) -> ModelResult:
    """Run tasks of `MTEB <https://arxiv.org/abs/2210.07316>`_ on a model, wherever it came from.

    mteb keys its result cache by name and revision, and every unnamed model has the same: the second one gets the first
    one's scores. Here the revision is a hash of the model, so that a changed model has a place of its own; a result of
    another version of the data is computed anew. mteb seeds all generators with 42; here they are left as they were.

    Args:
        model: Any sentence-transformers model. Its prompts are used as mteb does.
        tasks: Names, one or several: of a set (:data:`TASK_SETS`), of a benchmark of mteb such as ``"MTEB(eng, v2)"``, or
            of a task. Official tasks are downloaded from the Hub. Names with ``Local`` are this library's tasks over the
            files of ``data_dir``, kept in a cache of their own: for looking, never for the leaderboard.
        name: ``organization/model``, the directory of the results.
        revision: The commit of a public model. By default a hash of weights, tokenizer and settings, under which results
            cannot be submitted. Another model under a revision that has results is refused.
        cache: mteb's results directory, by default ``MTEB_CACHE`` or ``~/.cache/mteb``.
        data_dir: Where local tasks are read, by default the directory in ``SBERT_PLUGINS_DATA``.
        batch_size: Sentences an encoder call.
        show_progress_bar: Whether mteb and ``encode`` show their bars.

    Returns:
        mteb's own result: ``result[i].task_name``, ``result[i].get_score()`` (0 to 1), ``result.to_dataframe()``.

    Raises:
        ModuleNotFoundError: Without mteb, which is an extra of this package.
        ValueError: On a name that is no set, benchmark or task, a model name without an organization, a revision under
            which another model has results, or embeddings that are not finite.
        FileNotFoundError: When a local task's file is missing.

    Example:
        >>> from sbert_plugins import evaluation
        >>> result = evaluation.evaluate_mteb(model, ["paper-sts", "quora"], name="me/my-model")  # doctest: +SKIP
        >>> {task.task_name: task.get_score() for task in result}  # doctest: +SKIP
    """
    mteb = _mteb()
    from mteb.results import ModelResult

    from .mteb_tasks import CheckedEncoder

    check_name(name)
    official, local = _split(tasks, data_dir)
    wrapper = CheckedEncoder(model)
    wrapper.mteb_model_meta = meta = _model_meta(model, name, revision)
    results: list[TaskResult] = []
    for group, results_cache in ((official, _result_cache(cache)), (local, _result_cache(cache, local=True))):
        noted = results_cache.cache_path / "results" / name.replace("/", "__") / str(revision) / _MARK_FILE
        if group and revision:
            _refuse_another(noted, mark := _mark_of(model))
            _note(noted, mark)  # before the first result, which a run may be stopped behind
        for task in group:
            found = mteb.evaluate(
                wrapper,
                task,
                cache=results_cache,
                overwrite_strategy="only-missing" if _is_current(results_cache, task, meta) else "always",
                encode_kwargs={"batch_size": batch_size, "show_progress_bar": show_progress_bar},
                show_progress_bar=show_progress_bar,
                co2_tracker=False,
            ).task_results
            # A cached file may hold more splits and languages, whose scores mteb would average with those that are asked for.
            results += found if task.is_aggregate else [result.validate_and_filter_scores(task) for result in found]
    return ModelResult(model_name=name, model_revision=meta.revision, task_results=results)


@_kept_generators()
def submit_mteb(
    name: str,
    tasks: str | Sequence[str],
    *,
    revision: str | None = None,
    cache: str | Path | None = None,
    implementation: str | Path | None = None,
    create_pr: bool = False,
) -> Submission:
    """Check a model's results, write the ``ModelMeta`` that mteb asks for, and call mteb's own submission.

    The leaderboard takes results of official tasks, of a public model that mteb itself can load. mteb's command does not
    look at what it is given; this does: local tasks, a model without a public revision, missing tasks, splits and
    languages, scores that are not finite, and results of another version of a data set are refused.

    Args:
        name: The name under which :func:`evaluate_mteb` ran the model.
        tasks: The sets, benchmarks or tasks to submit, all of which must be there.
        revision: Needed when there are results of several.
        cache: mteb's results directory, as for :func:`evaluate_mteb`.
        implementation: Where to write the ``ModelMeta``, by default ``<model>.py`` in the working directory. An existing
            file is left as it is. It is for a pull request to mteb.
        create_pr: Let mteb push and open the pull request to its results repository (needs ``mteb[github]`` and a login)
            rather than commit to a local clone and print the steps.

    Returns:
        mteb's answer; the file of the ``ModelMeta``, or None where mteb has the model; and those of its fields that only
        the author can fill in.

    Raises:
        ModuleNotFoundError: Without mteb.
        ConnectionError: When mteb cannot clone its results repository or commit to it.
        FileNotFoundError: When nothing is in the cache under this name and revision.
        ValueError: When the results cannot be submitted, with every reason.
    """
    _mteb()
    from mteb.models import ModelMeta
    from mteb.models.model_implementations import MODEL_REGISTRY

    check_name(name)
    local = [task for task in _names(tasks) if task.startswith("Local")]
    if local:
        raise ValueError(f"local results cannot be submitted: {', '.join(local)} are not tasks of the leaderboard.")
    chosen, _ = _split(tasks, None)
    chosen = [part for task in chosen for part in (task, *getattr(task.metadata, "tasks", ()))]
    results_cache = _result_cache(cache)
    folder = _results_folder(results_cache, name, revision)
    meta = ModelMeta.model_validate_json_resolved((folder / "model_meta.json").read_text(encoding="utf-8"))
    faults = _faults(folder, chosen)
    if faults:
        raise ValueError(f"the results in {folder} cannot be submitted:\n  " + "\n  ".join(faults))
    path, blanks = None, []
    if name not in MODEL_REGISTRY:
        path = Path(implementation or f"{_identifier(name)}.py")
        blanks = [field for field in _AUTHORS_FIELDS if getattr(meta, field) is None]
        if not path.exists():
            path.write_text(_implementation(name, meta), encoding="utf-8")
    try:
        answer = results_cache.submit_results([meta], tasks=[task.metadata.name for task in chosen], create_pr=create_pr)
    except ImportError as error:
        raise ModuleNotFoundError(f"a pull request needs what mteb[github] brings: {error}") from error
    except (subprocess.CalledProcessError, RuntimeError) as error:
        raise ConnectionError(
            f"mteb could not put the results into a clone of its repository in {results_cache.remote_repo_path}: {error}"
        ) from error
    return Submission(dict(answer), path, blanks)


def fingerprint(model: SentenceTransformer) -> str:
    """Return a hash of all that decides an embedding: weights, tokenizer, modules and their settings, prompts."""
    settings = {
        "modules": [(type(part).__name__, _settings(part)) for part in _parts(model)],
        "prompts": [model.prompts, model.default_prompt_name],
        "length": [model.max_seq_length, model.truncate_dim],
        "sides": [getattr(model.tokenizer, f"{name}_side", None) for name in ("truncation", "padding")],
        "similarity": model.similarity_fn_name,
        "tokenizer": tokenizer_state(model.tokenizer),
    }
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    _add_weights(digest, model)
    return f"{_WEIGHTS}{digest.hexdigest()[:16]}"


def _mark_of(model: SentenceTransformer) -> dict[str, Any]:
    """Return a hash of weights and tokenizer, and the settings round them: what no version of a library changes."""
    digest = hashlib.sha256(json.dumps(tokenizer_state(model.tokenizer), sort_keys=True, default=str).encode())
    _add_weights(digest, model)
    modes = [part.pooling_mode for part in _parts(model) if isinstance(part, Pooling)]
    return {
        "weights": digest.hexdigest()[:16],
        "pooling": ["+".join([mode] if isinstance(mode, str) else mode) for mode in modes],
        "max_seq_length": model.max_seq_length,
        "truncate_dim": model.truncate_dim,
        "prompts": {name: prompt for name, prompt in model.prompts.items() if prompt},
        "default_prompt_name": model.default_prompt_name,
        "similarity": model.similarity_fn_name,
    }


def _parts(model: SentenceTransformer) -> Iterator[torch.nn.Module]:
    """Yield a model's modules, and those inside of them that have settings of their own: the routes of a Router."""
    for module in model:
        yield module
        yield from (part for part in module.modules() if part is not module and hasattr(part, "get_config_dict"))


def _add_weights(digest: Any, model: SentenceTransformer) -> None:
    has_idle_pooler = not reads_pooler(model)
    for key, tensor in sorted(model.state_dict().items()):
        if not (has_idle_pooler and is_of_pooler(key)):
            digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())


def _mteb() -> ModuleType:
    try:
        import mteb
    except ModuleNotFoundError as error:
        if error.name != "mteb":
            raise
        raise ModuleNotFoundError('mteb is not installed: pip install "sbert-plugins[mteb]" (or pip install mteb).') from None
    return mteb


def _names(tasks: str | Sequence[str]) -> list[str]:
    """Return the names with those of this library's sets replaced by their tasks."""
    names = [tasks] if isinstance(tasks, str) else list(tasks)
    if not names:
        raise ValueError(f"tasks must name at least one task or set, got none. Sets: {', '.join(TASK_SETS)}.")
    return list(dict.fromkeys(task for name in names for task in TASK_SETS.get(name, (name,))))


def _split(tasks: str | Sequence[str], data_dir: str | Path | None) -> tuple[list[AbsTask], list[AbsTask]]:
    """Return the official and the local tasks of these names."""
    mteb = _mteb()
    english = {task.metadata.name: task for task in mteb.get_benchmark("MTEB(eng, v1)").tasks}
    in_sets = {task for names in TASK_SETS.values() for task in names}
    official: dict[str, AbsTask] = {}
    local = []
    for name in _names(tasks):
        if name.startswith("Local"):
            local.append(_local_task(name, data_dir))
        elif name in in_sets:
            official[name] = english[name]
        else:
            official |= {task.metadata.name: task for task in _official(name)}
    return list(official.values()), local


def _official(name: str) -> list[AbsTask]:
    mteb = _mteb()
    for find in (lambda: list(mteb.get_benchmark(name).tasks), lambda: [mteb.get_task(name)]):
        try:
            return find()
        except KeyError:
            continue
    raise ValueError(
        f"{name!r} is not one of the sets {', '.join(TASK_SETS)}, nor a benchmark of mteb such as 'MTEB(eng, v1)' or "
        "'MTEB(eng, v2)', nor one of its tasks (`mteb available-tasks` lists them)."
    )


def _local_task(name: str, data_dir: str | Path | None) -> AbsTask:
    from .mteb_tasks import local_task

    directory = data_directory(data_dir)
    if directory is None:
        raise FileNotFoundError(f"{name} reads files: set {DATA_VARIABLE} (or data_dir) to the directory that holds them.")
    return local_task(name, directory)


def _result_cache(cache: str | Path | None, *, local: bool = False) -> ResultCache:
    results_cache = _mteb().ResultCache(cache)
    # A cache inside the cache: what mteb lists, loads or submits from the outer one never meets a local result.
    return _mteb().ResultCache(results_cache.cache_path / "sbert-plugins-local") if local else results_cache


def _is_current(cache: ResultCache, task: AbsTask, meta: ModelMeta) -> bool:
    """Whether a cached result is of today's data: mteb itself keeps one of an older data set."""
    path = cache.get_task_result_path(task.metadata.name, meta)
    if not path.is_file():
        return True
    try:
        is_todays = json.loads(path.read_text(encoding="utf-8"))["dataset_revision"] == task.metadata.revision
    except (ValueError, KeyError, TypeError):
        return False  # cut off while it was written: it is made anew
    # The revision of an average says nothing of its parts.
    parts = getattr(task, "tasks", ()) if task.is_aggregate else ()
    return is_todays and all(_is_current(cache, part, meta) for part in parts)


def _refuse_another(noted: Path, mark: Mapping[str, Any]) -> None:
    """Refuse a model under a revision that has results of another one."""
    if not any(noted.parent.glob("*.json")):
        return  # noted by a run that has no result
    if before := _noted_in(noted):
        if other := [f"{key} {before[key]}, now {mark[key]}" for key in mark if key in before and before[key] != mark[key]]:
            raise ValueError(
                f"{noted.parent} has results of another model ({'; '.join(other)}): a revision names one state of a model. "
                "Leave revision out for a model on disk, or remove the folder."
            )
    else:
        logger.warning("%s has results whose model nobody noted: they are taken for this one's.", noted.parent)


def _noted_in(noted: Path) -> dict[str, Any]:
    """Return which model the results of a folder are of; nothing where nobody wrote it, or not to the end."""
    text = noted.read_text(encoding="utf-8").strip() if noted.is_file() else ""
    if not text.startswith("{"):
        return {"weights": text} if text else {}  # earlier ones are the hash alone
    try:
        return dict(json.loads(text))
    except json.JSONDecodeError:
        return {}


def _note(noted: Path, mark: Mapping[str, Any]) -> None:
    """Write which model the results of a folder are of, whole or not at all."""
    noted.parent.mkdir(parents=True, exist_ok=True)
    part = noted.with_suffix(".part")
    part.write_text(json.dumps(mark), encoding="utf-8")
    part.replace(noted)


def check_name(name: str) -> None:
    """Raise ``ValueError`` unless a name is ``organization/model``."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        raise ValueError(f"name must be organization/model, such as 'me/my-model', got {name!r}.")


def _model_meta(model: SentenceTransformer, name: str, revision: str | None) -> ModelMeta:
    from mteb.models import ModelMeta

    parameters = list(model.parameters())
    meta = ModelMeta.from_sentence_transformer_model(model, fill_missing=None)  # type: ignore[arg-type]  # False warns
    return meta.model_copy(
        update={
            "name": name,
            # The host notes a Hub model as its own base, and mteb would follow it round and round.
            "adapted_from": None if meta.adapted_from == name else meta.adapted_from,
            "revision": revision or fingerprint(model),
            "open_weights": True if revision else None,  # a revision is a public model's
            "reference": f"https://huggingface.co/{name}" if revision else None,
            "n_parameters": sum(parameter.numel() for parameter in parameters),
            "memory_usage_mb": round(sum(parameter.nbytes for parameter in parameters) / 2**20),
            "use_instructions": any(model.prompts.values()),
        }
    )


def _results_folder(cache: ResultCache, name: str, revision: str | None) -> Path:
    folder = cache.cache_path / "results" / name.replace("/", "__")
    revisions = sorted(path.parent.name for path in folder.glob("*/model_meta.json"))
    if revision not in ([None, *revisions] if revisions else []):
        found = f"there are results of {', '.join(revisions)}" if revisions else "there are none of any revision"
        raise FileNotFoundError(f"{folder / (revision or '')} has no results: {found}. `sbert-plugins mteb run` makes them.")
    if revision is None and len(revisions) > 1:
        raise ValueError(f"revision must be given, for {name} has results of {', '.join(revisions)}.")
    return folder / (revision or revisions[0])


def _faults(folder: Path, tasks: list[AbsTask]) -> list[str]:
    """Every reason why these results are not for the leaderboard."""
    from mteb.results import TaskResult

    faults = []
    if folder.name.startswith(_WEIGHTS):
        faults.append(
            f"the revision {folder.name} is a hash of local weights: publish the model on the Hub, then run it by its Hub "
            "name (or with its commit as revision)."
        )
    for task in tasks:
        name = task.metadata.name
        path = folder / f"{name}.json"
        if not path.is_file():
            faults.append(f"{name} was not run.")
            continue
        result = TaskResult.from_disk(path)
        for split, subsets in result.get_missing_evaluations(task).items():
            faults.append(f"{name} lacks {', '.join(subsets)} of split {split}.")
        if result.dataset_revision != task.metadata.revision:
            faults.append(f"{name} was run on data {result.dataset_revision}, and mteb has {task.metadata.revision} now.")
        scores = [score["main_score"] for split in result.scores.values() for score in split]
        if not all(math.isfinite(score) for score in scores):
            faults.append(f"{name} has a score that is not finite.")
    return faults


def _implementation(name: str, meta: ModelMeta) -> str:
    """Return a module for ``mteb/models/model_implementations``."""
    imports = {"mteb.models.model_meta": ["ModelMeta", "ScoringFunction"]}
    if (loader := meta.loader) is not None:
        imports.setdefault(loader.__module__, []).append(loader.__name__)
    lines = [f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(imports.items())]
    return "\n".join(lines) + f"\n\n{_identifier(name)} = {meta.to_python()}\n"


def _identifier(name: str) -> str:
    """``me/my-model-v1.5`` -> ``my_model_v1_5``, as mteb names its models."""
    identifier = re.sub(r"\W+", "_", name.split("/")[1]).strip("_").lower()
    return identifier if identifier.isidentifier() and not keyword.iskeyword(identifier) else f"model_{identifier}"


def _settings(module: torch.nn.Module) -> Any:
    settings = getattr(module, "get_config_dict", module.__repr__)()
    config: Any = getattr(getattr(module, "model", None), "config", None)
    if not hasattr(config, "to_dict"):
        return settings
    # Heads, activation, windows: the same weights compute another embedding with them. Not where the files were.
    unwanted = {"_name_or_path", "transformers_version"}
    return settings, {key: value for key, value in config.to_dict().items() if key not in unwanted}
