"""One real run of a method: train on real sentences, the seven STS tasks and the hard-length pairs before and after, one json.

    python benchmarks/real_run.py arccse --pooling mean --bf16

trains ``encoders/minilm-mlm`` of the data directory (``SBERT_PLUGINS_DATA``) on the first 20,000 Wikipedia sentences with
the method's recipe. STS-B dev selects the checkpoint, the seven tasks are looked at once before and once after.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import os
import tempfile
from pathlib import Path

from datasets import Dataset
from provenance import provenance

from sbert_plugins import data, evaluation, recipes

RESULTS = Path(__file__).parent / "results"
HARD = {"positive": ">=4", "negative": "<=1"}  # gold scores; the paper of this subset gives none


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("method", choices=list(recipes.RECIPES))
    parser.add_argument("--encoder", default="encoders/minilm-mlm", help="below the data directory, or a Hub name")
    parser.add_argument("--text", default="corpus/wiki_sentences_1m.parquet", help="below the data directory")
    parser.add_argument(
        "--pairs", help="instead of text: tab-separated, a sentence and its paraphrase; below the data directory"
    )
    parser.add_argument("--sentences", type=int, default=20_000)
    parser.add_argument("--pooling", default="cls")
    parser.add_argument("--max-seq-length", type=int, default=128)
    parser.add_argument("--epochs", type=float, help="by default the recipe's")
    parser.add_argument(
        "--loss-keywords", type=json.loads, default={}, help="of the loss, as JSON; slt-fai takes its backbone"
    )
    parser.add_argument("--learning-rate", type=float, help="by default the recipe's")
    parser.add_argument("--eval-steps", type=int, help="by default the recipe's")
    parser.add_argument("--loss-learning-rate", type=float, help="of what the loss owns, by default the recipe's")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bf16", action="store_true")
    options = parser.parse_args()

    folder = Path(os.environ["SBERT_PLUGINS_DATA"])
    encoder = str(folder / options.encoder) if (folder / options.encoder).exists() else options.encoder
    model = recipes.build_encoder(encoder, pooling=options.pooling, max_seq_length=options.max_seq_length)
    suite = evaluation.STSSuiteEvaluator(write_csv=False)
    hard = evaluation.HardLengthEvaluator(**HARD, write_csv=False)
    evaluator = evaluation.OnePassEvaluator([suite, hard], show_progress_bar=True)
    settings = recipes.with_changes(
        recipes.settings_of(options.method, options.loss_keywords),
        pooling=options.pooling,
        max_seq_length=options.max_seq_length,
        epochs=options.epochs,
        learning_rate=options.learning_rate,
        eval_steps=options.eval_steps,
        loss_learning_rate=options.loss_learning_rate,
    )
    known = known_before(options)
    before, hard_before = split(evaluator(model)) if known is None else (known, split(hard(model))[1])
    print("before", {task: round(score, 2) for task, score in before.items()}, flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        results = recipes.train(
            options.method,
            read_text(folder, options),
            model,
            output=Path(scratch) / "run",
            settings=settings,
            seed=options.seed,
            loss_keywords=options.loss_keywords,
            bf16=options.bf16,
            dev=evaluation.load_sts("STS-B dev"),
            report=print,
        )
        written = {}
        if hasattr(recipes.load_loss(Path(scratch) / "run", model), "reconstruct"):
            unseen = data.read_sentences(folder / options.text, limit=options.sentences + 20)
            unseen = unseen.select(range(options.sentences, options.sentences + 20))
            table = recipes.reconstructions(Path(scratch) / "run", model, unseen)
            print(*table, sep="\n", flush=True)
            # The phrases only: other people's sentences do not enter the record.
            written = {"reconstructions": [{key: row[key] for key in ("phrase", "written")} for row in table]}
    after, hard_after = split(evaluator(model))
    print("after", {task: round(score, 2) for task, score in after.items()}, flush=True)
    given = {"pooling": options.pooling, "seed": options.seed, "max-seq-length": options.max_seq_length}
    given |= {"pairs": options.pairs, "sentences": None if options.sentences == 20_000 else options.sentences}
    given |= {"epochs": options.epochs, "loss-learning-rate": options.loss_learning_rate}
    given |= {"learning-rate": options.learning_rate, "eval-steps": options.eval_steps}
    given |= {"loss-keywords": f"'{json.dumps(options.loss_keywords)}'" if options.loss_keywords else None}
    command = " ".join(
        [
            "python benchmarks/real_run.py",
            options.method,
            *(f"--{key} {given[key]}" for key in given if given[key] is not None),
        ]
    )
    record = {
        "command": command + " --bf16" * options.bf16,
        "encoder": options.encoder,
        "text": f"{options.pairs or options.text}, first {results['sentences']:,}",
        "sts_before": before,
        "sts_after": after,
        "hard_length": {**HARD, "pairs": hard.num_pairs, "before": hard_before, "after": hard_after},
        **{key: value for key, value in results.items() if key not in ("python", "versions", "log", "encoder", "text")},
        **written,
        "log": results["log"],
        **provenance(),
    }
    RESULTS.mkdir(exist_ok=True)
    marks = [options.method, options.pooling, *([Path(options.pairs).name.split(".")[0]] if options.pairs else [])]
    marks += [f"{key}-{value}" for key, value in sorted(options.loss_keywords.items())]
    marks += [f"loss_learning_rate-{options.loss_learning_rate}"] if options.loss_learning_rate else []
    path = RESULTS / f"real_run_{'_'.join(marks)}_seed{options.seed}.json"
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(path)


def split(scores: dict[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """Return the scores of the seven tasks, and of the pairs whose length misleads."""
    hard = {name.removeprefix("hard_length_"): scores[name] for name in scores if name.startswith("hard_length_")}
    return {name: scores[name] for name in (*evaluation.TASKS, "avg7") if name in scores}, hard


def known_before(options: argparse.Namespace) -> dict[str, float] | None:
    """Return what an earlier run has measured of the same encoder before training, if there is one."""
    for path in sorted(RESULTS.glob("real_run_*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        same = record["encoder"] == options.encoder and record["settings"]["pooling"] == options.pooling
        if same and record["settings"]["max_seq_length"] == options.max_seq_length:
            return record["sts_before"]
    return None


def read_text(folder: Path, options: argparse.Namespace) -> Dataset:
    if not options.pairs:
        return data.read_sentences(folder / options.text, limit=options.sentences)
    with gzip.open(folder / options.pairs, "rt", encoding="utf-8") as lines:
        rows = [line.rstrip("\n").split("\t") for line in itertools.islice(lines, options.sentences)]
    return Dataset.from_dict({"anchor": [a for a, _ in rows], "paraphrase": [b for _, b in rows]})


if __name__ == "__main__":
    main()
