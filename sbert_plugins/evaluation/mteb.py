"""MTEB: scores of any model without stale results, and the steps to the leaderboard."""

from __future__ import annotations

import hashlib
import json
import math
import re
import runpy
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from sentence_transformers import SentenceTransformer

from sbert_plugins.data.read import read_fields, stem_of

from .retrieval import own_retrieval
from .sts import read_scored_pairs

if TYPE_CHECKING:
    import mteb

# Tasks of MTEB(eng, v1), scored on the splits and languages of that benchmark. DenoSent reports the
# classification tasks.
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
}
_LOCAL = "weights-"  # begins the revision of a model that is not public
# Fields of ModelMeta that only the author knows. Six of them make up MTEB's openness score.
_AUTHOR_FIELDS = (
    "license", "languages", "release_date", "training_datasets", "public_training_code",
    "public_training_data", "adapted_from", "citation",
)  # fmt: skip


class Submission(NamedTuple):
    """The result of ``submit_mteb``.

    ``answer`` is the answer of mteb. ``files`` are for the pull request to mteb: the ``ModelMeta`` and the
    results of the mock run. ``to_fill_in`` names the fields of the ``ModelMeta`` that are still unknown. Both
    are empty for a model that mteb already has.
    """

    answer: dict[str, Any]
    files: list[Path]
    to_fill_in: list[str]


def evaluate_mteb(
    model: SentenceTransformer,
    tasks: str | mteb.AbsTask | Sequence[str | mteb.AbsTask] = "paper-sts",
    *,
    name: str = "local/model",
    revision: str | None = None,
    cache: str | Path | None = None,
    batch_size: int = 32,
    show_progress_bar: bool = True,
    **meta: Any,
) -> mteb.results.ModelResult:
    """Score a model on tasks of `MTEB <https://arxiv.org/abs/2210.07316>`_.

    mteb stores results by the model's name and revision. All unnamed models share one place, so that a second
    model would get the scores of the first one. Here the default revision is a hash of the model. A result on
    an older version of a task's data is computed again, and so is each result on a task that mteb does not
    have. mteb sets the seeds of all random generators to 42.

    Args:
        model: The model. Its prompts are used in mteb's way.
        tasks: Names of sets (``TASK_SETS``), of benchmarks such as ``"MTEB(eng, v2)"``, or of tasks, whose
            data come from the Hub; task objects; or tasks of your own, which need no network:

            - a ``.py`` file with subclasses of mteb's task classes;
            - a file of graded pairs, as for ``own_pairs``, or of labels and texts, as for ``own_topics``;
            - a folder of queries, documents and judgements, as for ``own_retrieval``.
        name: ``organization/model``.
        revision: The commit of a public model (40 hexadecimal digits), which is needed for a submission.
        cache: Folder of mteb's results. Default: the environment variable ``MTEB_CACHE``, otherwise
            ``~/.cache/mteb``.
        batch_size: Texts per batch.
        show_progress_bar: Whether mteb and ``encode`` show progress bars.
        **meta: Fields of mteb's ``ModelMeta``. ``training_datasets`` holds the names of MTEB tasks, of any
            split, whose texts the model was trained on. An empty set means none, and None means unknown. Also
            ``adapted_from``, ``license``, ``languages``, ``release_date``, ``public_training_code``,
            ``public_training_data`` and ``citation``.

    Returns:
        mteb's ``ModelResult``. ``{task.task_name: task.get_score() for task in result}`` are the scores from
        0 to 1.

    Raises:
        ModuleNotFoundError: Without mteb (``pip install "sbert-plugins[mteb]"``).
        ValueError: For an unknown task (also in ``training_datasets``), a malformed name or revision, or an
            unknown field.

    Example:
        >>> from sbert_plugins import evaluation
        >>> result = evaluation.evaluate_mteb(
        ...     model, ["paper-sts", "quora"], name="me/my-model", training_datasets={"STSBenchmark"}
        ... )  # doctest: +SKIP
    """
    import mteb

    if revision is not None and not re.fullmatch(r"[0-9a-f]{40}", revision):
        raise ValueError(
            f"revision must be a commit of 40 hexadecimal digits, got {revision!r}. "
            "Leave it out for a local model."
        )
    chosen = find_tasks(tasks)
    encoder = mteb.SentenceTransformerEncoderWrapper(model)
    encoder.mteb_model_meta = described = model_meta(model, name, revision, **meta)
    results: list[mteb.results.TaskResult] = []
    results_cache = mteb.ResultCache(cache)
    for task in chosen:
        is_stored = _is_official(task) and _has_current_data(results_cache, task, described)
        found = mteb.evaluate(
            encoder,
            task,
            cache=results_cache,
            overwrite_strategy="only-missing" if is_stored else "always",
            encode_kwargs={"batch_size": batch_size, "show_progress_bar": show_progress_bar},
            show_progress_bar=show_progress_bar,
            co2_tracker=False,
        ).task_results
        # A stored result can have more splits and languages than the task; mteb would average over them.
        results += (
            found if task.is_aggregate else [result.validate_and_filter_scores(task) for result in found]
        )
    return mteb.results.ModelResult(model_name=name, model_revision=described.revision, task_results=results)


def submit_mteb(
    name: str,
    tasks: str | Sequence[str],
    *,
    revision: str | None = None,
    cache: str | Path | None = None,
    implementation: str | Path | None = None,
    create_pr: bool = False,
) -> Submission:
    """Check the results of a public model, prepare the pull request to mteb, and submit the results.

    The leaderboard needs two pull requests. The first goes to mteb and adds the model: a file for
    ``mteb/models/model_implementations`` with its ``ModelMeta``, and ``mteb_mock_run_results.md``, the
    results of mteb's mock tasks. Both files are written here, except for a model that mteb already has. The
    second goes to mteb's repository of results. mteb's own command commits the results to a clone and prints
    the next steps, or creates the pull request.

    Args:
        name: The name under which ``evaluate_mteb`` ran.
        tasks: Sets, benchmarks and tasks to submit. All of them must have been run.
        revision: The commit, if there are results of several.
        cache: Folder of mteb's results, as for ``evaluate_mteb``.
        implementation: The file to write for mteb. Default: ``<model>.py``. An existing file is kept.
        create_pr: Let mteb create the pull request of the results. This needs ``mteb[github]`` and a login.

    Raises:
        ModuleNotFoundError: Without mteb.
        FileNotFoundError: If there are no results of this name and revision.
        ValueError: If the results cannot be submitted, with all reasons.
        OSError: If the model cannot be loaded from the Hub.
        subprocess.CalledProcessError: If git cannot clone mteb's repository of results or commit to it.

    Example:
        >>> from sbert_plugins import evaluation
        >>> submission = evaluation.submit_mteb("me/my-model", "paper-sts")  # doctest: +SKIP
    """
    import mteb

    chosen = [part for task in find_tasks(tasks) for part in (task, *getattr(task.metadata, "tasks", ()))]
    results_cache = mteb.ResultCache(cache)
    folder = results_cache.cache_path / "results" / name.replace("/", "__")
    revisions = sorted(path.parent.name for path in folder.glob("*/model_meta.json"))
    if not (found := [each for each in revisions if revision in (None, each)]):
        raise FileNotFoundError(
            f"{folder} has no results of revision {revision or 'any'}. Run evaluate_mteb first."
        )
    if len(found) > 1:
        raise ValueError(f"revision must be one of {', '.join(found)}.")
    folder = folder / found[0]
    if faults := _faults(folder, chosen):
        raise ValueError(f"The results in {folder} cannot be submitted:\n  " + "\n  ".join(faults))
    meta = mteb.models.ModelMeta.model_validate_json_resolved(
        (folder / "model_meta.json").read_text(encoding="utf-8")
    )
    files, unknown = [], []
    if name not in mteb.models.model_implementations.MODEL_REGISTRY:
        path = Path(implementation or f"{_identifier(name)}.py")
        files = [path, path.with_name("mteb_mock_run_results.md")]
        unknown = [field for field in _AUTHOR_FIELDS if getattr(meta, field) is None]
        encoder = mteb.SentenceTransformerEncoderWrapper(SentenceTransformer(name, revision=folder.name))
        encoder.mteb_model_meta = meta
        files[1].write_text(mteb.mock_run(encoder).to_markdown(), encoding="utf-8")
        if not path.exists():
            path.write_text(_implementation(name, meta), encoding="utf-8")
    names = [task.metadata.name for task in chosen]
    answer = results_cache.submit_results([meta], tasks=names, create_pr=create_pr)
    return Submission(dict(answer), files, unknown)


def find_tasks(names: str | mteb.AbsTask | Sequence[str | mteb.AbsTask]) -> list[mteb.AbsTask]:
    """Return mteb's tasks for the names of sets, benchmarks, tasks and files. Task objects are kept.

    Raises:
        ValueError: For an unknown name, or a file that is not a task.
    """
    import mteb

    english = {task.metadata.name: task for task in mteb.get_benchmark("MTEB(eng, v1)").tasks}
    benchmarks = {benchmark.name: benchmark for benchmark in mteb.get_benchmarks()}
    found: list[mteb.AbsTask] = []
    given: Any = [names] if isinstance(names, str | mteb.AbsTask) else names
    for name in given:
        if not isinstance(name, str):
            found.append(name)
        elif name in TASK_SETS:
            found += [english[task] for task in TASK_SETS[name]]
        elif name in benchmarks:
            found += benchmarks[name].tasks
        elif Path(name).suffix == ".py":
            defined = runpy.run_path(name, run_name="own").values()
            kinds = (each for each in defined if isinstance(each, type) and each.__module__ == "own")
            found += [kind() for kind in kinds if issubclass(kind, mteb.AbsTask)]
        else:
            try:
                found.append(mteb.get_task(name))
            except KeyError as error:
                if not Path(name).exists():
                    raise ValueError(
                        f"{name!r} is not a set ({', '.join(TASK_SETS)}), a benchmark, a task or a file. "
                        f"{error}"
                    ) from None
                found.append(own_task(name))
    tasks: dict[str, mteb.AbsTask] = {}
    for task in found:
        if tasks.setdefault(task.metadata.name, task) is not task and not _is_official(task):
            raise ValueError(f"Two tasks have the name {task.metadata.name}. Rename one of them.")
    return list(tasks.values())


def own_task(path: str | Path) -> mteb.AbsTask:
    """Return a task of mteb on files of your own.

    The name of the task is that of the file or folder, after ``Own``.

    Args:
        path: One of

            - a folder as for ``own_retrieval``, for retrieval;
            - a file of graded pairs as for ``own_pairs``, for STS;
            - a file of labels and texts as for ``own_topics``, for classification. mteb trains a classifier
              on eight texts of each label, ten times. Here they are drawn from half of the texts of a label,
              and the other half is the test set.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If a file cannot be read.

    Example:
        >>> from sbert_plugins.evaluation import evaluate_mteb, own_task
        >>> result = evaluate_mteb(model, own_task("my_pairs.tsv"))  # doctest: +SKIP
    """
    from datasets import Dataset, DatasetDict
    from mteb.abstasks import AbsTaskClassification, AbsTaskRetrieval, AbsTaskSTS
    from mteb.abstasks.task_metadata import TaskMetadata

    path, splits = Path(path), cast(Any, {})
    if path.is_dir():
        kind, search = "Retrieval", own_retrieval(path)
        splits["test"] = {
            "queries": Dataset.from_dict({"id": search.queries_ids, "text": search.queries}),
            "corpus": Dataset.from_dict({"id": search.corpus_ids, "text": search.corpus}),
            "relevant_docs": {
                query: dict.fromkeys(search.relevant_docs[query], 1) for query in search.queries_ids
            },
            "top_ranked": None,
        }
    elif len(next(read_fields(path, 2, 3, 4))[1]) > 2:
        kind = "STS"
        columns = dict(zip(("sentence1", "sentence2", "score"), read_scored_pairs(path), strict=True))
        splits = DatasetDict(test=Dataset.from_dict(columns))
    else:
        kind = "Classification"
        labelled = [{"label": label, "text": text} for _, (label, text) in read_fields(path, 2)]
        rows = Dataset.from_list(labelled).class_encode_column("label")
        splits = rows.train_test_split(0.5, stratify_by_column="label", seed=42)
    base, category, score = {
        "Retrieval": (AbsTaskRetrieval, "t2t", "ndcg_at_10"),
        "STS": (AbsTaskSTS, "t2t", "cosine_spearman"),
        "Classification": (AbsTaskClassification, "t2c", "accuracy"),
    }[kind]
    metadata = TaskMetadata(
        name="Own" + re.sub(r"\W", "_", stem_of(path)),
        description=f"Own data of {path.name}.",
        dataset={"path": f"local/{path.name}", "revision": "local"},
        type=cast(Any, kind),
        category=cast(Any, category),
        eval_langs=["eng-Latn"],
        main_score=score,
    )
    task = type(metadata.name, (base,), {"metadata": metadata})()
    task.dataset, task.data_loaded = {"default": splits}, True
    return task


def model_meta(
    model: SentenceTransformer, name: str, revision: str | None = None, **fields: Any
) -> mteb.models.ModelMeta:
    """Return mteb's description of a model.

    Args:
        model: The model.
        name: ``organization/model``.
        revision: The commit of a public model. Default: a hash of the model.
        **fields: Other fields of ``ModelMeta``, as in ``evaluate_mteb``.

    Raises:
        ValueError: For an unknown field, or for training datasets that are not tasks of MTEB.
    """
    from mteb.models import ModelMeta

    find_tasks(sorted(fields.get("training_datasets") or ()))
    parameters = list(model.parameters())
    meta = dict(ModelMeta.from_sentence_transformer_model(model, fill_missing=None))  # type: ignore[arg-type]  # False warns
    meta |= {
        "name": name,
        # sentence-transformers lists a model of the Hub as its own base, and mteb would follow this forever.
        "adapted_from": None if meta["adapted_from"] == name else meta["adapted_from"],
        "revision": revision or fingerprint(model),
        "open_weights": True if revision else None,
        "reference": f"https://huggingface.co/{name}" if revision else None,
        "n_parameters": sum(parameter.numel() for parameter in parameters),
        "memory_usage_mb": round(sum(parameter.nbytes for parameter in parameters) / 2**20),
        "use_instructions": any(model.prompts.values()),
    }
    return ModelMeta(**(meta | fields))


def fingerprint(model: SentenceTransformer) -> str:
    """Return a hash of the weights, the settings of the modules, and the prompts."""
    configs = [getattr(module, "get_config_dict", module.__repr__)() for module in model]
    settings = [
        configs,
        model.prompts,
        model.default_prompt_name,
        model.truncate_dim,
        model.similarity_fn_name,
    ]
    digest = hashlib.sha256(
        json.dumps([*settings, model.max_seq_length], sort_keys=True, default=str).encode()
    )
    for key, tensor in sorted(model.state_dict().items()):
        digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return f"{_LOCAL}{digest.hexdigest()[:16]}"


def _is_official(task: mteb.AbsTask) -> bool:
    """Return whether a task belongs to mteb."""
    return type(task).__module__.startswith("mteb.")


def _has_current_data(cache: mteb.ResultCache, task: mteb.AbsTask, meta: mteb.models.ModelMeta) -> bool:
    """Return whether the stored results of a task and its parts, if any, are of the present data."""
    result = cache.load_task_result(task.metadata.name, meta)
    if result is not None and result.dataset_revision != task.metadata.revision:
        return False
    return all(_has_current_data(cache, part, meta) for part in getattr(task.metadata, "tasks", ()))


def _faults(folder: Path, tasks: Sequence[mteb.AbsTask]) -> list[str]:
    """Return all reasons why results cannot be submitted."""
    from mteb.results import TaskResult

    faults = []
    if folder.name.startswith(_LOCAL):
        faults.append(
            "The revision is a hash of local weights. Publish the model and run it with its commit."
        )
    for task in tasks:
        name, path = task.metadata.name, folder / f"{task.metadata.name}.json"
        if not _is_official(task):
            faults.append(f"{name} is not a task of mteb.")
        elif not path.is_file():
            faults.append(f"{name} was not run.")
        else:
            result, current = TaskResult.from_disk(path), task.metadata.revision
            for split, subsets in result.get_missing_evaluations(task).items():
                faults.append(f"{name} lacks {', '.join(subsets)} of split {split}.")
            if result.dataset_revision != current:
                faults.append(f"{name} was run on data {result.dataset_revision}, now it has {current}.")
            if not all(math.isfinite(one["main_score"]) for split in result.scores.values() for one in split):
                faults.append(f"{name} has a score that is not finite.")
    return faults


def _implementation(name: str, meta: mteb.models.ModelMeta) -> str:
    """Return the text of a module for mteb/models/model_implementations."""
    imports = ["from mteb.models.model_meta import ModelMeta, ScoringFunction"]
    if meta.loader is not None:
        imports.append(f"from {meta.loader.__module__} import {meta.loader.__name__}")
    return "\n".join(sorted(imports)) + f"\n\n{_identifier(name)} = {meta.to_python()}\n"


def _identifier(name: str) -> str:
    """Return the variable for a model in mteb's code: ``my_model_v1_5`` for ``me/my-model-v1.5``."""
    return re.sub(r"^(?=\d)|\W+", "_", name.split("/")[1]).lower()
