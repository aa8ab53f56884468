"""One real run of a method: train on real sentences, the seven STS tasks before and after, one json.

    python benchmarks/real_run.py arccse --pooling mean --bf16

trains ``encoders/minilm-mlm`` of the data directory (``SBERT_PLUGINS_DATA``) on the first 20,000 Wikipedia sentences with
the method's recipe. STS-B dev selects the checkpoint, the seven tasks are looked at once before and once after.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

from provenance import provenance
from sentence_transformers import SentenceTransformer

from sbert_plugins import data, evaluation, recipes

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("method", choices=list(recipes.RECIPES))
    parser.add_argument("--encoder", default="encoders/minilm-mlm", help="below the data directory, or a Hub name")
    parser.add_argument("--text", default="corpus/wiki_sentences_1m.parquet", help="below the data directory")
    parser.add_argument("--sentences", type=int, default=20_000)
    parser.add_argument("--pooling", default="cls")
    parser.add_argument("--max-seq-length", type=int, default=128)
    parser.add_argument("--epochs", type=float, help="by default the recipe's")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bf16", action="store_true")
    options = parser.parse_args()

    folder = Path(os.environ["SBERT_PLUGINS_DATA"])
    encoder = str(folder / options.encoder) if (folder / options.encoder).exists() else options.encoder
    model = recipes.build_encoder(encoder, pooling=options.pooling, max_seq_length=options.max_seq_length)
    suite = evaluation.STSSuiteEvaluator(show_progress_bar=True)
    settings = recipes.with_changes(
        recipes.RECIPES[options.method].settings,
        pooling=options.pooling,
        max_seq_length=options.max_seq_length,
        epochs=options.epochs,
    )
    before = suite(model)
    print("before", {task: round(score, 2) for task, score in before.items()}, flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        results = recipes.train(
            options.method,
            data.read_sentences(folder / options.text, limit=options.sentences),
            model,
            output=Path(scratch) / "run",
            settings=settings,
            seed=options.seed,
            bf16=options.bf16,
            dev=evaluation.load_sts("STS-B dev"),
            report=print,
        )
        reconstructions = _reconstructions(Path(scratch) / "run", model, folder / options.text, options.sentences)
    after = suite(model)
    print("after", {task: round(score, 2) for task, score in after.items()}, flush=True)
    given = {"pooling": options.pooling, "seed": options.seed, "max-seq-length": options.max_seq_length}
    given |= {"epochs": options.epochs} if options.epochs else {}
    command = " ".join(["python benchmarks/real_run.py", options.method, *(f"--{key} {given[key]}" for key in given)])
    record = {
        "command": command + " --bf16" * options.bf16,
        "encoder": options.encoder,
        "text": f"{options.text}, first {options.sentences:,}",
        "sts_before": before,
        "sts_after": after,
        **{key: value for key, value in results.items() if key not in ("python", "versions", "log")},
        **({"reconstructions": reconstructions} if reconstructions else {}),
        "log": results["log"],
        **provenance(),
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"real_run_{options.method}_{options.pooling}_seed{options.seed}.json"
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(path)


def _reconstructions(output: Path, model: SentenceTransformer, text: Path, trained_on: int) -> list[dict[str, str]]:
    """Ten phrases of sentences that were not trained on, as the decoder writes them; none for a method that writes nothing."""
    loss = recipes.load_loss(output, model)
    if not hasattr(loss, "reconstruct"):
        return []
    unseen = data.read_sentences(text, limit=trained_on + 20).select(range(trained_on, trained_on + 20))
    rows = data.paser_columns(unseen, mask_token=model.tokenizer.mask_token, top_k=1, synonyms=None)[:10]
    written = loss.reconstruct(rows["anchor"], rows["masked"])
    table = [
        dict(zip(("masked", "phrase", "written"), row, strict=True))
        for row in zip(rows["masked"], rows["phrase"], written, strict=True)
    ]
    for row in table:
        print(row, flush=True)
    return table


if __name__ == "__main__":
    main()
