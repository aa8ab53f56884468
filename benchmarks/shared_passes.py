"""Mixes of losses with and without shared encoder passes: CPU seconds a step, in turns, in one process.

    python benchmarks/shared_passes.py

64 rows of 32 tokens, 6 x 384, float32, one CPU thread; forward, backward and fused AdamW. Writes
``benchmarks/results/shared_passes.json``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch
from provenance import ROOT, provenance, refuse_changes
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from speed import LENGTH, batch, paser_columns, stepper
from tqdm import trange

from sbert_plugins import losses, recipes
from sbert_plugins.recipes.output import write_json


def simcse_and_arccse(model: SentenceTransformer) -> tuple[dict, list]:
    members = {
        "simcse": (MultipleNegativesRankingLoss(model), 1.0, [0, 0]),
        "arccse": (losses.ArcCSELoss(model, triplet_weight=0), 1.0),
    }
    return members, [batch(model)]


def supervised_paser(model: SentenceTransformer) -> tuple[dict, list]:
    anchor, masked, phrase = paser_columns(model, batch(model))
    paser = losses.PaSeRLoss(model, mlm_weight=0, mlm_head="fresh")
    members = {"contrastive": (MultipleNegativesRankingLoss(model), 1.0, [0, 1, 2]), "paser": (paser, 0.1, [0, 3, 4])}
    return members, [anchor, *({**anchor, "input_ids": anchor["input_ids"].flip(0)} for _ in range(2)), masked, phrase]


MIXES = {"SimCSE + ArcCSE": simcse_and_arccse, "supervised PaSeR": supervised_paser}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    refuse_changes()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    steps: dict[tuple[str, bool], Callable[[], None]] = {}
    rows: dict[str, list[float]] = {name: [] for name in MIXES}
    for name, build in MIXES.items():
        for share in (False, True):
            model = recipes.offline_encoder(num_layers=6, max_seq_length=LENGTH, device="cpu").train()
            members, columns = build(model)
            loss = losses.WeightedSumLoss(model, members, share_passes=share).train()
            for part in loss.modules():
                part.state_is_kept = True
            seen: list[int] = []
            hook = model[0].register_forward_hook(
                lambda module, arguments, output, seen=seen: seen.append(len(output["input_ids"]))
            )
            value = lambda loss=loss, columns=columns: sum(loss([dict(column) for column in columns]).values())  # noqa: E731
            steps[name, share] = stepper(list(loss.parameters()), value)
            steps[name, share]()  # warm-up
            hook.remove()
            rows[name].append(sum(seen) / len(columns[0]["input_ids"]))
    times: dict[tuple[str, bool], list[float]] = {key: [] for key in steps}
    for _ in trange(options.rounds, desc="rounds"):
        for key, step in steps.items():
            start = time.process_time()
            step()
            times[key].append(time.process_time() - start)
    mixes = {
        name: {
            "rows_encoded_per_row_apart_and_shared": rows[name],
            "median_cpu_seconds_apart_and_shared": [statistics.median(times[name, share]) for share in (False, True)],
            "shared_over_apart": statistics.median(
                shared / apart for apart, shared in zip(times[name, False], times[name, True], strict=True)
            ),
        }
        for name in MIXES
    }
    path = ROOT / "benchmarks" / "results" / "shared_passes.json"
    write_json(path, {"rounds": options.rounds, "mixes": mixes, **provenance()})
    print(json.dumps(mixes, indent=1), path, sep="\n")


if __name__ == "__main__":
    main()
