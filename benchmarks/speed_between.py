"""A training step of each method at two commits, one process each, in turns.

    python benchmarks/speed_between.py 9c97ebd

Each process imports the package of its commit, builds the same losses round the same encoder with the same keywords (those
that both know), and waits; each round asks each for a step, the earlier commit first and then last. Two encoders: three
layers of MiniLM with 64 sentences of length 32, and a random one so narrow that a step is little but Python and dispatch.
Numbers are medians over rounds, ratios medians of the rounds' ratios; float32, one CPU thread. What no other load on the
machine can change is counted besides, in one step of the first encoder with one seed: floating-point operations, operators
that torch dispatches, and the largest sum of bytes that tensors hold at once. Beside these the seconds of processor time to
import ``sbert_plugins.losses``. Prints its numbers as json.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
METHODS = ("ArcCSE", "PaSeR", "DenoSent", "PT-BERT", "SLT-FAI", "SLT-FAI round ConSERT", "ConSERT", "supervised PaSeR")


def known(build: Callable[..., Any], **keywords: Any) -> dict[str, Any]:
    """Those keywords that a commit's loss has."""
    return {name: value for name, value in keywords.items() if name in inspect.signature(build).parameters}


def steps(*, narrow: bool) -> dict[str, Callable[[], None]]:
    """The methods' steps, with the package that this process sees."""
    import copy

    import torch
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    from sbert_plugins import data, losses, recipes

    torch.set_num_threads(1)
    encoder = recipes.offline_encoder(num_layers=3, max_seq_length=32, device="cpu").train()
    sentences = recipes.offline_sentences_path().read_text(encoding="utf-8").splitlines()
    sentences = [f"{first} {second}" for first, second in zip(sentences[:64], sentences[64:128], strict=True)]
    sentences = sentences[:8] if narrow else sentences

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

    with narrowed(encoder) if narrow else nullcontext(encoder) as encoder:  # heads are read from its folder
        features = encoder.preprocess(sentences)
        return {name: stepper(name) for name in METHODS}


@contextmanager
def narrowed(encoder: Any) -> Iterator[Any]:
    """A random encoder of 32 dimensions and two layers, with the tokenizer of another."""
    import torch
    from transformers import BertConfig, BertForMaskedLM

    from sbert_plugins import recipes

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    with tempfile.TemporaryDirectory() as folder:
        BertForMaskedLM(BertConfig(vocab_size=len(encoder.tokenizer), **sizes)).save_pretrained(folder)
        encoder.tokenizer.save_pretrained(folder)
        yield recipes.build_encoder(folder, pooling="mean", max_seq_length=32).train()


def counted(step: Callable[[], None]) -> dict[str, int]:
    """What a step does, whatever else the machine does: floating-point operations, operators, and the most bytes at once."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves
    from torch.utils.flop_counter import FlopCounterMode

    class Tensors(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.operators = self.held = self.most = 0
            self.known: set[int] = set()

        def release(self, key: int, size: int) -> None:
            self.known.discard(key)
            self.held -= size

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = function(*args, **(kwargs or {}))
            self.operators += 1
            for tensor in tree_leaves(out):
                if isinstance(tensor, torch.Tensor):
                    storage = tensor.untyped_storage()
                    if storage._cdata not in self.known:
                        self.known.add(storage._cdata)
                        self.held += storage.nbytes()
                        self.most = max(self.most, self.held)
                        weakref.finalize(storage, self.release, storage._cdata, storage.nbytes())
            return out

    torch.manual_seed(0)
    with FlopCounterMode(display=False) as flops:
        step()
    torch.manual_seed(0)
    with Tensors() as tensors:
        step()
    return {"flops": flops.get_total_flops(), "operators": tensors.operators, "most_bytes": tensors.most}


def work() -> None:
    """Answer a method's name with the seconds of a step, or with counts."""
    made = {"narrow": steps(narrow=True), "whole": steps(narrow=False)}
    print(json.dumps(sorted(made)), flush=True)
    for line in sys.stdin:
        what, width, method = line.strip().split(" ", 2)
        step = made[width][method]
        if what == "count":
            print(json.dumps(counted(step)), flush=True)
            continue
        began = time.perf_counter()
        step()
        print(time.perf_counter() - began, flush=True)


def environment(tree: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "TRANSFORMERS_VERBOSITY": "error"}


def import_seconds(tree: Path) -> float:
    """Processor time, which a machine with other load stretches less."""
    script = "import resource, sbert_plugins.losses; used = resource.getrusage(0); print(used.ru_utime + used.ru_stime)"
    command = [sys.executable, "-c", script]
    return float(subprocess.run(command, env=environment(tree), check=True, cwd=tree, capture_output=True, text=True).stdout)


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

    def ask(self, what: str, width: str, method: str) -> Any:
        self.process.stdin.write(f"{what} {width} {method}\n")
        self.process.stdin.flush()
        return self.answer()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", nargs="?", help="the earlier commit")
    parser.add_argument("--rounds", type=int, default=7, help="of the whole encoder; the narrow one has thirty times as many")
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
    print(json.dumps({"earlier": options.commit, "rounds": options.rounds, **found, **provenance()}, indent=1))


def compare(earlier: Path, rounds: int) -> dict[str, Any]:
    trees = {"earlier": earlier, "now": ROOT}
    imports: dict[str, list[float]] = {name: [] for name in trees}
    for number in range(6):
        for name, tree in trees.items():
            seconds = import_seconds(tree)
            if number:  # the first compiles
                imports[name].append(seconds)
    workers = {name: Worker(tree) for name, tree in trees.items()}
    found: dict[str, Any] = {"import_seconds": {name: statistics.median(values) for name, values in imports.items()}}
    print(f"import {found['import_seconds']}")
    found["counts"] = {}
    for method in METHODS:
        counts = {name: worker.ask("count", "whole", method) for name, worker in workers.items()}
        ratios = {key: counts["now"][key] / counts["earlier"][key] for key in counts["now"]}
        found["counts"][method] = counts | {"ratio": ratios}
        print(f"{method:24} counted: " + ", ".join(f"{key} x {ratio:.3f}" for key, ratio in ratios.items()), flush=True)
    for width, turns in (("narrow", 30 * rounds), ("whole", rounds)):
        found[width] = timed(workers, width, turns)
    return found


def timed(workers: dict[str, Worker], width: str, rounds: int) -> dict[str, dict[str, float]]:
    """Seconds of a step by turns, a round warming up."""
    times: dict[str, dict[str, list[float]]] = {method: {name: [] for name in workers} for method in METHODS}
    for number in range(rounds + 1):
        for method in METHODS:
            for name in sorted(workers, reverse=bool(number % 2)):
                seconds = workers[name].ask("time", width, method)
                if number:
                    times[method][name].append(seconds)
        if width == "whole":
            print(f"round {number} of {rounds}", file=sys.stderr, flush=True)
    table = {}
    for method, sides in times.items():
        ratios = [now / before for now, before in zip(sides["now"], sides["earlier"], strict=True)]
        row = {name: statistics.median(values) for name, values in sides.items()}
        row |= {"ratio": statistics.median(ratios), "ratio_of_fastest": min(sides["now"]) / min(sides["earlier"])}
        table[method] = row
        shown = f"x {row['ratio']:.3f}, of the fastest x {row['ratio_of_fastest']:.3f}"
        print(f"{method:24} {width}: {row['earlier']:.4f} s  {row['now']:.4f} s  {shown}", flush=True)
    return table


if __name__ == "__main__":
    main()
