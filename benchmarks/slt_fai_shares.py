"""SLT-FAI over the share of tokens that count as rare: the paper's Figure 4.

    python benchmarks/slt_fai_shares.py --bf16

trains ``encoders/minilm-mlm`` of the data directory (``SBERT_PLUGINS_DATA``) anew for each share, on the same Wikipedia
sentences with the same seed; STS-B dev selects the checkpoint, and both curves of the figure are written down: STS-B test and
the average of the seven tasks. After each share ``benchmarks/results/slt_fai_shares_*.json`` holds what there is; run again,
the command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

from provenance import provenance

from sbert_plugins import data, evaluation, recipes

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.1, 0.3, 0.5, 0.7, 0.9])  # the paper's
    parser.add_argument("--low-frequency-by", default="types", choices=["mass", "types"])
    parser.add_argument("--backbone", default="simcse")
    parser.add_argument("--sentences", type=int, default=20_000)
    parser.add_argument("--epochs", type=float, default=1.0)
    parser.add_argument("--learning-rate", type=float, help="by default the recipe's")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bf16", action="store_true")
    options = parser.parse_args()

    folder = Path(os.environ["SBERT_PLUGINS_DATA"])
    sentences = data.read_sentences(folder / "corpus" / "wiki_sentences_1m.parquet", limit=options.sentences)
    path = RESULTS / f"slt_fai_shares_{options.backbone}_{options.low_frequency_by}_seed{options.seed}.json"
    asked = {key: value for key, value in vars(options).items() if key != "shares"}
    record = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"options": asked, "shares": {}}
    if record["options"] != asked:
        raise SystemExit(f"{path} was begun with {record['options']}: move it away, or give the same options.")
    for share in options.shares:
        if str(share) not in record["shares"]:
            record["shares"][str(share)] = trained(share, sentences, folder, options)
            path.write_text(json.dumps(record | provenance(), indent=1) + "\n", encoding="utf-8")
        result = record["shares"][str(share)]
        print(f"share {share}: STS-B {result['STS-B']:.2f}, average {result['avg7']:.2f}", flush=True)
    print(path)


def trained(share: float, sentences: object, folder: Path, options: argparse.Namespace) -> dict[str, float]:
    keywords = {
        "backbone": options.backbone,
        "low_frequency_by": options.low_frequency_by,
        "low_frequency_share": share,
    }
    settings = recipes.with_changes(
        recipes.settings_of("slt-fai", keywords), epochs=options.epochs, learning_rate=options.learning_rate
    )
    encoder = str(folder / "encoders" / "minilm-mlm")
    model = recipes.build_encoder(encoder, pooling=settings.pooling, max_seq_length=settings.max_seq_length)
    with tempfile.TemporaryDirectory() as scratch:
        results = recipes.train(
            "slt-fai",
            sentences,
            model,
            output=Path(scratch) / "run",
            settings=settings,
            seed=options.seed,
            bf16=options.bf16,
            dev=evaluation.load_sts("STS-B dev"),
            loss_keywords=keywords,
            report=print,
        )
    return {**evaluation.STSSuiteEvaluator()(model), "STS-B dev": results["after"]["STS-B dev"], "seconds": results["seconds"]}


if __name__ == "__main__":
    main()
