"""A training step of each method at two commits, one process each, in turns.

    python benchmarks/speed_between.py 9c97ebd

Each process imports the package of its commit, builds the same losses round the same encoder with the same keywords (those
that both know), and waits; each round asks each for a step, the earlier commit first and then last. The encoder has three
layers of MiniLM, 64 sentences of length 32, float32, one CPU thread. Numbers are medians over rounds, ratios medians of the
rounds' ratios; beside them the ratio of the two fastest steps, which other load touches least, the time to import
``sbert_plugins.losses`` and the peak memory of the processes. Writes ``benchmarks/results/speed_between.json``.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
METHODS = ("ArcCSE", "PaSeR", "DenoSent", "PT-BERT", "SLT-FAI", "SLT-FAI round ConSERT", "ConSERT", "supervised PaSeR")
STEPS = 1


def known(build: Callable[..., Any], **keywords: Any) -> dict[str, Any]:
    """Those keywords that a commit's loss has."""
    return {name: value for name, value in keywords.items() if name in inspect.signature(build).parameters}


def steps() -> dict[str, Callable[[], None]]:
    """The methods' steps, with the package that this process sees."""
    import copy

    import torch
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    from sbert_plugins import data, losses, recipes

    torch.set_num_threads(1)
    encoder = recipes.offline_encoder(num_layers=3, max_seq_length=32, device="cpu").train()
    sentences = recipes.offline_sentences_path().read_text(encoding="utf-8").splitlines()
    sentences = [f"{first} {second}" for first, second in zip(sentences[:64], sentences[64:128], strict=True)]

    def paser(model: Any, **keywords: Any) -> Any:
        papers = {"decoder_layers": 6, "mlm_weight": 1.0, "token_weights": None, "signed": False, "normalize_memory": False}
        papers |= {"mlm_head": "fresh", **keywords}
        return losses.PaSeRLoss(model, **known(losses.PaSeRLoss, **papers))

    def denosent(model: Any) -> Any:
        papers = {"decoder_layers": 4, "temperature": 0.03, "token_weights": None, "balance": None, "mlm_head": "fresh"}
        return losses.DenoSentLoss(model, **known(losses.DenoSentLoss, **papers))

    def slt_fai(model: Any, base: Any) -> Any:
        papers = {"frequencies": data.TokenFrequencies.bookcorpus(), "balance": None, "warmup_steps": 0}
        papers |= {"low_frequency_by": "mass"}
        return losses.SLTFAILoss(model, base, **known(losses.SLTFAILoss, **papers))

    def ranking(model: Any) -> Any:
        return losses.WeightedSumLoss(model, {"simcse": (MultipleNegativesRankingLoss(model), 1.0, [0, 0])})

    def supervised(model: Any) -> Any:
        members = {"ranking": (MultipleNegativesRankingLoss(model), 1.0, [0, 1]), "paser": (paser(model, mlm_weight=0), 0.1)}
        return losses.WeightedSumLoss(model, members)

    build = {
        "ArcCSE": losses.ArcCSELoss,
        "PaSeR": paser,
        "DenoSent": denosent,
        "PT-BERT": losses.PTBERTLoss,
        "SLT-FAI": lambda model: slt_fai(model, ranking(model)),
        "SLT-FAI round ConSERT": lambda model: slt_fai(model, losses.ConSERTLoss(model)),
        "ConSERT": losses.ConSERTLoss,
        "supervised PaSeR": supervised,
    }
    features = encoder.preprocess(sentences)
    masked = {**features, "input_ids": features["input_ids"].clone()}
    masked["input_ids"][:, 1:4] = encoder.tokenizer.mask_token_id
    phrase = encoder.preprocess([" ".join(sentence.split()[:3]) for sentence in sentences])

    def stepper(name: str) -> Callable[[], None]:
        model = copy.deepcopy(encoder)
        loss = build[name](model)
        loss.state_is_kept = True
        columns = [features, masked, phrase] if "PaSeR" in name else [features]
        optimizer = torch.optim.AdamW([p for p in loss.parameters() if p.requires_grad], lr=1e-6, fused=True)

        def step() -> None:
            terms = loss([dict(column) for column in columns], None)
            sum(terms.values()).backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    return {name: stepper(name) for name in METHODS}


def work() -> None:
    """Answer each method's name with the seconds of some steps; at the end with the peak memory."""
    made = steps()
    print(json.dumps(sorted(made)), flush=True)
    for line in sys.stdin:
        step = made[line.strip()]
        began = time.perf_counter()
        for _ in range(STEPS):
            step()
        print(time.perf_counter() - began, flush=True)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, flush=True)


def environment(tree: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "TRANSFORMERS_VERBOSITY": "error"}


def import_seconds(tree: Path) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import sbert_plugins.losses"], env=environment(tree), check=True, cwd=tree)
    return time.perf_counter() - began


class Worker:
    """A process with the package of one tree."""

    def __init__(self, tree: Path) -> None:
        command = [sys.executable, str(Path(__file__).resolve()), "--work"]
        self.process = subprocess.Popen(
            command, env=environment(tree), cwd=tree, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.answer()

    def answer(self) -> Any:
        while line := self.process.stdout.readline():
            try:
                return json.loads(line)
            except json.JSONDecodeError:
                continue  # what a library prints
        raise RuntimeError("the process ended: see its error above.")

    def seconds(self, method: str) -> float:
        self.process.stdin.write(f"{method}\n")
        self.process.stdin.flush()
        return self.answer()

    def end(self) -> float:
        self.process.stdin.close()
        return self.answer()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", nargs="?", help="the earlier commit")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work()
        return
    if options.commit is None:
        parser.error("commit must be named: the earlier one that this tree is compared with.")
    from provenance import provenance

    with tempfile.TemporaryDirectory() as folder:
        earlier = Path(folder) / "earlier"
        add = ["git", "worktree", "add", "--quiet", "--detach", str(earlier), options.commit]
        subprocess.run(add, cwd=ROOT, check=True)
        try:
            found = compare(earlier, options.rounds)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(earlier)], cwd=ROOT, check=True)
    path = ROOT / "benchmarks" / "results" / "speed_between.json"
    record = {"earlier": options.commit, "rounds": options.rounds, "steps": STEPS, **found, **provenance()}
    path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def compare(earlier: Path, rounds: int) -> dict[str, Any]:
    trees = {"earlier": earlier, "now": ROOT}
    imports: dict[str, list[float]] = {name: [] for name in trees}
    for _ in range(3):
        for name, tree in trees.items():
            imports[name].append(import_seconds(tree))
    workers = {name: Worker(tree) for name, tree in trees.items()}
    times: dict[str, dict[str, list[float]]] = {method: {name: [] for name in trees} for method in METHODS}
    for number in range(rounds + 1):
        for method in METHODS:
            for name in sorted(trees, reverse=bool(number % 2)):
                seconds = workers[name].seconds(method) / STEPS
                print(f"round {number}: {method}, {name}: {seconds:.3f} s", file=sys.stderr, flush=True)
                if number:  # the first warms up
                    times[method][name].append(seconds)
    table = {}
    for method, sides in times.items():
        ratios = [now / before for now, before in zip(sides["now"], sides["earlier"], strict=True)]
        table[method] = {
            **{name: statistics.median(values) for name, values in sides.items()},
            "ratio": statistics.median(ratios),
            "ratio_of_fastest": min(sides["now"]) / min(sides["earlier"]),
        }
        row = table[method]
        ratios = f"x {row['ratio']:.3f}, of the fastest x {row['ratio_of_fastest']:.3f}"
        print(f"{method:24} {row['earlier']:.3f} s  {row['now']:.3f} s  {ratios}", flush=True)
    import_medians = {name: statistics.median(values) for name, values in imports.items()}
    memory = {name: worker.end() for name, worker in workers.items()}
    print(f"import {import_medians}, peak MiB {memory}")
    return {"methods": table, "import_seconds": import_medians, "peak_mib": memory}


if __name__ == "__main__":
    main()
