"""Methods, mixes and rivals on one encoder, text, number of updates and seeds: ``recipes.compare`` on the project's testbeds.

    python benchmarks/quality.py --methods simcse arccse pt-bert --seeds 5

A cell is a method and a seed; one that has its json is not run again, so a grid that was killed continues, and two commands
with other methods may fill one grid. A method takes keywords after a colon: ``pt-bert:attend_to=pooled,momentum=0.99``.
STS-B dev selects the checkpoint. The test tasks are looked at once, after training; ``--dev-only``, for screening, leaves
them out. With ``--text quora``, ``cranfield``, ``agnews`` or ``biomedical``, domain adaptation, a model trains on the texts
of a collection for a fixed number of updates, and is scored on each kind of task: similarity, search and topics (packed, in
bfloat16); ``cranfield-crops`` has two sentences of each abstract as a pair. Encoders and texts are those of ``testbeds.py``,
methods those of the package and of ``mixes.py``. ``--untrained`` adds encoders that are fitted on the text and not trained,
those of ``rivals.py``; ``--trained lora`` trains adapters (``pip install peft``) in the place of the weights.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path

import mixes
import rivals
import testbeds
import torch
from datasets import Dataset
from provenance import provenance, refuse_changes
from records import settings_file
from sentence_transformers import SentenceTransformer

from sbert_plugins import data, evaluation, recipes
from sbert_plugins.recipes.output import write_json
from sbert_plugins.recipes.scoring import Scorer

RESULTS = Path(__file__).parent / "results" / "quality"
UNTRAINED = {
    "raw-cls": lambda model, texts: rivals.by_cls(model),
    "whitening": rivals.whitening,
    "whitening-cls": lambda model, texts: rivals.whitening(rivals.by_cls(model), texts),
    "sif": rivals.sif,
    "sif-of-words": rivals.sif_of_words,
    "tfidf": lambda model, texts: rivals.tfidf_svd(texts),
    "tfidf-of-characters": lambda model, texts: rivals.tfidf_of_characters(texts),
}
_NOT_SHARED = ("methods", "untrained", "seeds", "only_seeds", "dirty")
_ALSO_HASHED = ("encoder", "text", "sentences", "bf16", "packed", "trained")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mixes.register()
    parser.add_argument("--methods", nargs="+", default=[], metavar="METHOD", help=", ".join(recipes.RECIPES))
    parser.add_argument("--untrained", nargs="+", default=[], choices=list(UNTRAINED), help="encoders without training")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only-seeds", type=int, nargs="+", metavar="SEED", help="these, where several commands share a grid")
    parser.add_argument(
        "--encoder", default="minilm-mlm", help="minilm-mlm, minilm-4-layers, all-minilm, or a path or Hub name"
    )
    parser.add_argument(
        "--text", default="short", help="short, wiki, paragraphs, crops, sts (transductive), a collection, a file or a dataset"
    )
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--sentences", type=int, default=20_000)
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--max-seq-length", type=int, default=32)
    parser.add_argument("--pooling", default="mean", choices=["cls", "mean", "mask"])
    parser.add_argument("--trained", default="all", choices=testbeds.TRAINED, help="which weights of the encoder")
    parser.add_argument("--eval-steps", type=int, default=30)
    parser.add_argument("--dev-only", action="store_true", help="look at no test set")
    parser.add_argument("--bf16", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--packed", action="store_true", help="compute no padding: on a CPU without bfloat16, half the time")
    parser.add_argument("--no-search", dest="search", action="store_false", help="leave Quora's questions out")
    parser.add_argument("--no-topics", dest="topics", action="store_false", help="leave the clusters of news and titles out")
    parser.add_argument("--dirty", action="store_true", help="on a tree with uncommitted changes; not for the tables")
    options = parser.parse_args()
    if not options.dirty:
        refuse_changes(", or say --dirty and keep the cells to yourself")
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    settings = settings_of(options)
    place = folder(options, settings)
    place.parent.mkdir(parents=True, exist_ok=True)
    shared = {key: value for key, value in vars(options).items() if key not in _NOT_SHARED and _is_told(key, value)}
    if options.trained == "lora":
        shared |= {"lora": testbeds.LORA, "peft": version("peft")}
    if not settings_file(place).exists():
        write_json(settings_file(place), shared)  # what the tables call the grid
    refuse_without_wordnet(options.methods)
    in_collection = options.text in testbeds.COLLECTIONS
    sentences, model = testbeds.text(options.text, options.sentences), partial(encoder, options)
    methods, scored_by = list(dict.fromkeys(options.methods)), evaluators(options)
    if options.untrained and not methods:
        score_untrained(options.untrained, place, model, sentences, Scorer(scored_by))
        return
    result = recipes.compare(
        methods,
        sentences,
        output=place,
        evaluators=scored_by,
        model=model,
        seeds=options.only_seeds or options.seeds,
        settings=settings,
        # Who adapts to a domain has nothing to select by.
        dev=None if in_collection else evaluation.load_sts("STS-B dev"),
        bf16=options.bf16,
        keep_models=False,
        neighbours=0,  # a record holds nobody's sentences
        report=partial(print, flush=True),
    )
    for line in result.table:
        print("  ".join(line))
    score_untrained(options.untrained, place, model, sentences, Scorer(scored_by))
    sys.exit(bool(result.failed))


def refuse_without_wordnet(methods: Sequence[str]) -> None:
    """End a program that would train PaSeR without its synonyms, under the name of those that had them."""
    with_synonyms = [name for name in methods if recipes.recipe_of(name.partition(":")[0]).prepare is recipes.PASER.prepare]
    if with_synonyms and data.synonyms_if_installed(warn=False) is None:
        raise SystemExit(f"{with_synonyms[0]} is trained with synonyms, from WordNet: NLTK_DATA names a folder that has it.")


def encoder(options: argparse.Namespace) -> SentenceTransformer:
    return testbeds.encoder(
        options.encoder,
        pooling=options.pooling,
        max_seq_length=options.max_seq_length,
        without_padding=options.packed,
        scores_in_bf16=options.packed and options.bf16 and options.text in testbeds.COLLECTIONS,
        trained=options.trained,
    )


def score_untrained(
    names: Sequence[str], place: Path, build: Callable[[], SentenceTransformer], sentences: Dataset, score: Scorer
) -> None:
    """Fit each of these on the text, score it, and put it on record beside the trainings, which come first."""
    if not names:
        return
    start = place / "start.json"
    if not start.exists():
        raise SystemExit(f"--untrained adds rows to a table of trainings, and {place} has none: name --methods as well.")
    if json.loads(start.read_text(encoding="utf-8"))["scored_on"] != score.mark:
        raise SystemExit(f"{place} was scored on something else than is asked for: give the flags of its trainings.")
    for name in names:
        path = place / f"{name}_seed0.json"
        if path.exists():
            continue
        began = time.perf_counter()
        model = UNTRAINED[name](build(), sentences["anchor"][:])
        seconds = round(time.perf_counter() - began, 1)
        record = {"name": name, "seed": 0, "sentences": len(sentences), "scores": score(model), "seconds": seconds}
        write_json(path, record | provenance())


def settings_of(options: argparse.Namespace) -> recipes.Settings:
    """Return what all trainings of a grid share."""
    return recipes.Settings(
        learning_rate=options.learning_rate,
        batch_size=options.batch_size,
        gradient_accumulation_steps=1,
        epochs=1,
        max_steps=options.steps,
        pooling=options.pooling,
        max_seq_length=options.max_seq_length,
        eval_steps=options.eval_steps,
    )


def folder(options: argparse.Namespace, settings: recipes.Settings) -> Path:
    """Name the place of a grid by what all of its trainings share, with a hash of all that changes them."""
    shared = asdict(settings) | {key: getattr(options, key) for key in _ALSO_HASHED if _is_told(key, getattr(options, key))}
    mark = hashlib.sha256(json.dumps(shared, sort_keys=True).encode()).hexdigest()[:8]
    name = f"{Path(options.encoder).name}_{Path(options.text).stem}_{options.steps}_{mark}"
    path = RESULTS / "dirty" / name if options.dirty else RESULTS / name
    return path.with_name(path.name + "_dev" * options.dev_only)


def _is_told(key: str, value: object) -> bool:
    """Whether a grid's name and record have an option: that all weights are trained goes without saying."""
    return (key, value) != ("trained", "all")


def evaluators(options: argparse.Namespace) -> list:
    """Return what scores a grid; STS-B dev is the first, also where it selects nothing."""
    dev = evaluation.PairsEvaluator(evaluation.load_sts("STS-B dev"), name="STS-B dev", write_csv=False)
    found = [dev, evaluation.AlignmentUniformityEvaluator(name="geometry", write_csv=False)]
    topics = [evaluation.agnews_topics, evaluation.biomedical_topics]
    if options.text in testbeds.COLLECTIONS:
        # Whatever it trains on, each kind of task: what else is harmed?
        kinds = [evaluation.STSSuiteEvaluator, evaluation.quora_retrieval, evaluation.cranfield_retrieval, *topics]
        return [*found, *(build(write_csv=False) for build in kinds)]
    if not options.dev_only:
        # PT-BERT's paper gives no gold thresholds for its subset.
        found += [evaluation.HardLengthEvaluator(positive=">=4", negative="<=1", write_csv=False)]
        found += [evaluation.STSSuiteEvaluator(write_csv=False)]
        found += [evaluation.quora_retrieval(write_csv=False)] if options.search else []
        # Three starts of k-means, not ten: half the time, and means are over seeds of the training.
        found += [build(write_csv=False, n_init=3) for build in topics] if options.topics else []
    return found


if __name__ == "__main__":
    main()
