"""The commands: each takes its options, and prints its results."""

import argparse
import logging
import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from datasets import Dataset
from huggingface_hub import try_to_load_from_cache
from sentence_transformers import SentenceTransformer

from sbert_plugins import data, evaluation, host, recipes
from sbert_plugins.cli.printing import print_table
from sbert_plugins.data.read import is_path
from sbert_plugins.evaluation import format_score
from sbert_plugins.evaluation.sts import data_directory
from sbert_plugins.recipes.denosent import translate_what_is_read
from sbert_plugins.recipes.plan import make_plan
from sbert_plugins.recipes.recipe import override
from sbert_plugins.recipes.run import RESULTS_FILE, is_first_process, read_json


def fill_in(options: argparse.Namespace) -> None:
    """Fill in the model and the text of a training: as given, of the protocol, or the defaults.

    ``main`` calls this, and then the function of the command.
    """
    name = getattr(options, "protocol", None)
    options.followed = recipes.read_protocol(options.method, name) if name else None
    options.start = options.followed.section("start") if options.followed else {}
    method = getattr(options, "method", "recommended")
    options.model = options.model or options.start.get("encoder")
    options.text = options.text or options.start.get("text")
    if options.model is None:
        if method not in ("recommended", "search") and not options.offline:
            raise ValueError(
                f"--model is missing. {method} is usually trained from a plain language model, such as "
                "--model bert-base-uncased."
            )
        options.model = recipes.OFFLINE_BASE
    if options.text is None:
        if not options.offline:
            raise ValueError("TEXT is missing: a file or a dataset on the Hub. For a demo: --offline.")
        options.text = str(recipes.offline_sentences_path())


def names_on_hub(options: argparse.Namespace) -> list[str]:
    """Return the names of models and texts that are not on this machine."""
    if options.offline:
        return []
    names = options.models if options.command == "evaluate" else [options.model, options.text]
    return [
        name
        for name in names
        if not Path(name).exists()
        and not is_path(name)
        and not recipes.is_installed(name)
        and not (name == "sts-sentences" and data_directory(options.data_dir))
    ]


def train(options: argparse.Namespace) -> None:
    """Train a model, and print scores and verdict. With --dry_run, print the plan."""
    recipe = recipes.find_recipe(options.method)
    keywords = recipes.read_keywords(options.loss)
    if options.keep is not None:
        keywords["keep"] = options.keep
    selects = options.dev or options.patience or options.protocol
    dev = _stsb_dev(options) if selects and not options.dry_run else None
    given: dict[str, Any] = {
        "output": Path(options.output or f"{options.method.replace(':', '-')}-model"),
        "protocol": options.protocol,
        "loss_keywords": keywords,
        "column_keywords": recipes.read_keywords(options.columns),
        "max_seq_length": options.max_seq_length,
        "patience": options.patience,
        "start_weight": options.start_weight,
        "seed": options.arguments.pop("seed", 42),
        "text": options.text,
        "dev": dev,
    }
    # Raises for a wrong name or keyword, before text and model are read.
    make_plan(recipe, None, None, arguments=options.arguments, **given)
    load = partial(
        _load,
        options,
        options.model,
        options.pooling,
        default_pooling=options.start.get("pooling", recipe.pooling),
        template=options.start.get("template", recipes.DEFAULT_TEMPLATE),
    )
    if options.dry_run:
        _print_plan(options, recipe, load, given)
        return
    options.sts = options.sts or options.protocol is not None
    rows = _read(options, recipe)
    evaluators = _evaluators(options, recipes.join_titles(rows) if recipe.fit else None)
    if (
        data_directory(options.data_dir)
        and dev is None
        and [one.name for one in evaluators] == ["graded pairs"]
    ):
        evaluators.append(_stsb_dev(options))
    results = recipes.train(
        recipe,
        rows,
        load(),
        evaluators=evaluators,
        resume=options.resume,
        share_examples=options.share_examples,
        keep_checkpoints=options.keep_checkpoints,
        **given,
        **options.arguments,
    )
    if is_first_process():
        _print_results(results, given["output"] / "model", options.followed)


def compare(options: argparse.Namespace) -> None:
    """Compare methods, and print scores and verdict."""
    searches = any(method.partition(":")[0] == "search" for method in options.methods)
    rows = _read(options, recipes.RECIPES["search"] if searches else None)
    comparison = recipes.compare(
        options.methods,
        rows,
        columns=None if searches else options.column,
        model=partial(_load, options, options.model, options.pooling),
        output=options.output,
        evaluators=_evaluators(options, recipes.join_titles(rows) if searches else None),
        seeds=options.seeds,
        dev=_stsb_dev(options) if options.dev else None,
        max_seq_length=options.max_seq_length or 32,
        text=options.text,
        **options.arguments,
    )
    print(f"\n{comparison.headline}\n")
    print_table(comparison.table)
    print("", f"Page: {comparison.page}", "", *comparison.verdict, sep="\n")
    if comparison.failed:
        raise ValueError(
            "Some trainings failed. "
            + "; ".join(f"{name}: {reason}" for name, reason in comparison.failed.items())
            + ". The same command tries them again."
        )


def evaluate(options: argparse.Namespace) -> None:
    """Score models, and print the scores."""
    if options.reconstruct:
        _reconstruct(options)
        return
    has_labels = any(
        getattr(options, name) for name in ("pairs", "topics", "retrieval", "documents", "rerank", "transfer")
    )
    is_alone = options.offline and not data_directory(options.data_dir)
    options.sts = options.sts or not (has_labels or is_alone)
    evaluators = _evaluators(options)
    for one in evaluators:
        print(evaluation.describe_labels(one))
    names = options.names or [recipes.name_of_model(path) for path in options.models]
    if len(set(names)) < len(options.models) or len(names) != len(options.models):
        raise ValueError(f"--names must be {len(options.models)} different names, got {', '.join(names)}.")
    load = _load_alike(options)
    scored: dict[str, Any] = {}
    facts: dict[str, dict[str, str]] = {}
    logs: dict[str, list[dict[str, Any]]] = {}
    for place, (name, path) in enumerate(zip(names, options.models, strict=True), start=1):
        print(f"{place} of {len(names)}: scoring {name} ...", flush=True)
        model = load(path)
        scored[name] = evaluation.measure(model, evaluators)
        training = read_json(Path(path).parent / RESULTS_FILE) if Path(path).name == "model" else {}
        facts[name] = {"pooling": recipes.pooling_of(model)} | {
            fact: str(training[fact]) for fact in ("method", "text", "updates", "seed") if fact in training
        }
        logs[name] = training.get("log", [])
    first, *others = scored
    titles = [f"{key}: {title}" for key, score in scored[first].items() for title in score.values]
    rows = [["model", "pooling", *titles]]
    for name, scores in scored.items():
        values = [value for score in scores.values() for value in score.values.values()]
        rows.append([name, facts[name]["pooling"], *map(format_score, values)])
    print()
    print_table(rows)
    for note in filter(None, (evaluation.name_similarity(*each) for each in scored.items())):
        print(note)
    for name in others:
        print("", f"{name}:", sep="\n")
        for change in evaluation.judge_all(scored[first], scored[name], against=first):
            print(change.sentence)
    if options.report:
        print(f"Report: {evaluation.write_report(scored, options.report, facts=facts, logs=logs)}")
        _write_analysis(options, dict(zip(names, options.models, strict=True)), load)


def _write_analysis(
    options: argparse.Namespace, paths: dict[str, str], load: Callable[[str], SentenceTransformer]
) -> None:
    """Write a page with pictures of the vectors of models for the sentences of --text."""
    if not options.text:
        return
    models = {name: load(path) for name, path in paths.items()}
    pairs = evaluation.own_pairs(options.pairs).pairs if options.pairs else recipes.graded_pairs()
    sentences = data.read_sentences(options.text)["anchor"][:]
    sections = evaluation.analysis_sections(models, sentences, pairs=pairs)
    page = Path(options.report) / "analysis.html"
    headline = f"Vectors of {len(sentences):,} sentences by {', '.join(models)}."
    page.write_text(evaluation.render_page("Analysis of sentence embeddings", headline, sections), "utf-8")
    print(f"Analysis: {page}")


def _reconstruct(options: argparse.Namespace) -> None:
    """Print the phrases that decoders write for sentences."""
    if not options.text:
        raise ValueError("--reconstruct needs --text FILE.")
    for path in map(Path, options.models):
        output = path.parent if path.name == "model" else path
        rows = recipes.reconstruct_phrases(
            output, data.read_sentences(options.text), trust_remote_code=options.trust_remote_code
        )
        columns = (rows[name][:] for name in ("anchor", "phrase", "written"))
        print_table([("sentence", "hidden phrase", "written"), *zip(*columns, strict=True)])


def mteb_run(options: argparse.Namespace) -> None:
    """Score a model with mteb, and print the scores."""
    path, revision, name = Path(options.model), options.revision, options.name or options.model
    if options.name is None and path.exists():
        name = "local/" + re.sub(r"[^\w.-]+", "-", "-".join(path.resolve().parts[-2:])).strip("-")
    model = SentenceTransformer(options.model, revision=revision, trust_remote_code=options.trust_remote_code)
    if not path.exists():  # the cache folder of a model on the Hub has the name of its commit
        found = try_to_load_from_cache(
            options.model, "config.json", cache_dir=host.model_cache(), revision=revision or "main"
        )
        revision = Path(found).parent.name if isinstance(found, str) else revision
    result = evaluation.evaluate_mteb(
        model,
        options.tasks,
        name=name,
        revision=revision,
        cache=options.cache,
        batch_size=options.batch_size,
        training_datasets=None if options.training_datasets is None else set(options.training_datasets),
    )
    print(f"{result.model_name}, revision {result.model_revision}")
    print_table(
        [
            ("task", "main score x 100"),
            *((task.task_name, f"{100 * task.get_score():.2f}") for task in result.task_results),
        ]
    )


def mteb_submit(options: argparse.Namespace) -> None:
    """Check the results of a public model, and hand them to mteb."""
    logging.getLogger("mteb").setLevel(logging.INFO)  # shows its steps to a pull request
    submission = evaluation.submit_mteb(
        options.name,
        options.tasks,
        revision=options.revision,
        cache=options.cache,
        implementation=options.implementation,
        create_pr=options.create_pr,
    )
    print(f"mteb: {submission.answer['status']}, {submission.answer['result_count']} results.")
    if submission.files:
        print(f"For a pull request to mteb: {', '.join(map(str, submission.files))}.")
    if submission.to_fill_in:
        print(f"Fill in what you know of: {', '.join(submission.to_fill_in)}.")


def _read(options: argparse.Namespace, recipe: recipes.Recipe | None) -> Any:
    """Read what is trained on: what a recipe reads, or all columns without a recipe."""
    text, columns, limit, reads = options.text, options.column, options.limit, recipe.reads if recipe else ()
    paraphrases, cut = getattr(options, "paraphrases", None), getattr(options, "positives", None)
    if "document" in reads and (paraphrases or cut):
        raise ValueError("search reads whole documents: leave out --positives and --paraphrases.")
    if paraphrases:
        return data.read_pairs(text, paraphrases, column=columns, limit=limit)
    if cut:
        documents = data.read_documents(text, column=columns, limit=limit)
        return data.crop_pairs(documents, by="sentences" if cut == "crops" else "spans")
    if "document" in reads:
        return data.read_documents(text, column=columns, limit=limit)
    if "negative" in reads and columns is None:
        return data.read_triplets(text, limit=limit)
    if text == "sts-sentences":
        rows = Dataset.from_dict({"anchor": evaluation.sts_sentences(options.data_dir)})
    else:
        rows = data.load_table(text)
    rows = recipe.read(rows, columns, text) if recipe else rows
    rows = rows.select(range(len(rows) if limit is None else min(limit, len(rows))))
    if options.start.get("positives") != "back-translation" or options.dry_run:
        return rows
    arguments = override(options.followed.section("arguments"), options.arguments)
    return translate_what_is_read(rows, arguments, processes=int(os.environ.get("WORLD_SIZE", "1")))


def _load(options: argparse.Namespace, name: str, pooling: str | None, **more: Any) -> SentenceTransformer:
    return recipes.build_encoder(
        name,
        pooling=pooling,
        trust_remote_code=options.trust_remote_code,
        revision=options.revision,
        **more,
    )


def _load_alike(options: argparse.Namespace) -> Callable[[str], Any]:
    """Return a function that loads a model. Plain transformers get the pooling of the first other model."""
    plain = [path for path in options.models if not recipes.has_pooling(path)]
    pooling = options.pooling
    if plain and pooling is None:
        pooled = next((path for path in options.models if path not in plain), None)
        pooling = "mean" if pooled is None else recipes.pooling_of(_load(options, pooled, None))
        reason = "the default" if pooled is None else f"as {pooled}"
        print(f"{', '.join(plain)}: {pooling} pooling, {reason}.")
    return lambda path: _load(options, path, pooling if path in plain else None)


def _evaluators(options: argparse.Namespace, documents: Sequence[str] | None = None) -> list[Any]:
    """Build what scores a model: the user's labels, known items, the STS tasks, or the built-in pairs.

    Args:
        options: The options of the command.
        documents: Documents for known-item search, if --documents names none. Search by vectors is then
            scored with BM25, too.
    """
    if options.documents:
        documents = recipes.join_titles(data.read_documents(options.documents))
    shown: dict[str, Any] = {"write_csv": False, "show_progress_bar": sys.stderr.isatty()}
    own: tuple[tuple[str | None, Any], ...] = (
        (options.pairs, evaluation.own_pairs),
        (options.topics, evaluation.own_topics),
        (options.rerank, evaluation.own_reranking),
        (options.retrieval, evaluation.own_retrieval),
    )
    found: list[Any] = [read(path, **shown) for path, read in own if path]
    if options.retrieval and documents is not None:
        found.append(evaluation.MixedRetrievalEvaluator(found[-1], **shown))
    if documents is not None:
        found.append(evaluation.KnownItemEvaluator(documents, name="known items", **shown))
    if options.transfer:
        found.append(evaluation.TransferEvaluator(options.data_dir, name="transfer", **shown))
    if options.sts:
        found.append(evaluation.STSSuiteEvaluator(options.data_dir, name="STS", **shown))
    if options.sts and getattr(options, "report", None):
        found.append(evaluation.AlignmentUniformityEvaluator(options.data_dir, split="test", write_csv=False))
    if not found:
        found.append(evaluation.PairsEvaluator(recipes.graded_pairs(), name="graded pairs", **shown))
    return found


def _stsb_dev(options: argparse.Namespace) -> Any:
    return evaluation.PairsEvaluator(
        evaluation.load_sts("STS-B dev", options.data_dir), name="STS-B dev", write_csv=False
    )


def _print_plan(
    options: argparse.Namespace, recipe: recipes.Recipe, load: Callable[[], Any], given: dict[str, Any]
) -> None:
    """Print the plan that a training would run. What is not on this machine is not loaded for it."""
    on_hub = names_on_hub(options)
    rows = None if options.text in on_hub else recipe.read(_read(options, recipe))
    model = None if options.model in on_hub else load()
    # The model and the pooling of a protocol keep its source.
    named = {"encoder": options.model, "pooling": options.pooling}
    asked = {name: value for name, value in named.items() if value != options.start.get(name)}
    plan = make_plan(recipe, rows, model, arguments=options.arguments, **given, **asked)
    if options.text != options.start.get("text"):
        plan.settings["text"] = (options.text, "given")
    plan.prepare()
    print_table(plan.table())
    if on_hub:
        print(f"Not on this machine, so not read: {', '.join(on_hub)}.")


def _print_results(results: dict[str, Any], model: Path, protocol: recipes.Protocol | None) -> None:
    rows = [
        (f"{one['name']}: {one['metric']}", format_score(one["before"]), format_score(one["after"]))
        for one in results["changes"]
    ]
    print()
    print_table([("score", "start", "trained"), *rows])
    if protocol is not None:
        reported = next(one for one in protocol.settings if one.name == "reported")
        print(f"Reported: {reported.value} on average over the seven STS tasks ({reported.source}).")
    print(f'\n{results["updates"]:,} updates. The model is in {model}: SentenceTransformer("{model}")\n')
    print(*results["verdict"], sep="\n")
    _print_search(results)
    if results["worse"]:
        print(
            f"The trained model is worse than the start on {', '.join(results['worse'])}. Keep the start, or "
            "train with fewer updates or a lower learning rate."
        )


def _print_search(results: dict[str, Any]) -> None:
    """Print what a mix with BM25 gains, and what the index of a search needs."""
    after = {name: evaluation.Score.from_dict(score) for name, score in results.get("after", {}).items()}
    for name in [name for name in after if name.removesuffix(" with BM25") in after.keys() - {name}]:
        alone, mix = after[name.removesuffix(" with BM25")], after[name]
        print(
            evaluation.judge(alone, mix, against="the trained model alone").sentence,
            f"BM25 alone has {format_score(mix.values['bm25_ndcg@10'])}.",
        )
    if results.get("method") == "search":
        print("Encode your documents again. Until then the old index can serve: see the guide on search.")
        print("Known items chose the settings, so their gain proves nothing. Check with your own queries.")
