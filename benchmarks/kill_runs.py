"""Kill a training at random moments, also while it writes a checkpoint, and resume it each time.

    python benchmarks/kill_runs.py --kills 20

A tiny random encoder trains with ``save_steps=1`` and ``save_total_limit=2``, so that most of the time goes into writing
checkpoints. Each round starts the process, sends SIGKILL after a random time, and looks at the directory: the newest complete
checkpoint has to load, and no torn one may be taken for whole. The last round runs to its end; encoder and loss state have to
equal an uninterrupted run's. Writes ``benchmarks/results/kill_runs.json``.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from provenance import ROOT, provenance, refuse_changes

sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "training")]

import training_runs
from encoders import build_tokenizers
from safetensors import safe_open
from transformers import AutoConfig, AutoModel

from sbert_plugins import recipes, training
from sbert_plugins.recipes.output import write_json
from sbert_plugins.training.loss_state import incomplete_reason


def tiny_encoder(folder: Path) -> str:
    """A random BERT whose checkpoints take some ten milliseconds to write."""
    tokenizer = build_tokenizers()["wordpiece"]
    config = AutoConfig.for_model(
        "bert", vocab_size=len(tokenizer), hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024
    )
    AutoModel.from_config(config).save_pretrained(folder / "transformer")
    tokenizer.save_pretrained(folder / "transformer")
    recipes.build_encoder(str(folder / "transformer"), device="cpu").save_pretrained(str(folder / "encoder"))
    return str(folder / "encoder")


def loads(checkpoint: Path) -> bool:
    """Whether every file that a resumed training reads can be read."""
    import torch

    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        torch.load(checkpoint / name, weights_only=name != "rng_state.pth")
    for name in ("model.safetensors", "loss_state.safetensors"):
        with safe_open(checkpoint / name, framework="pt") as file:
            for key in file.keys():  # noqa: SIM118
                file.get_tensor(key)
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    refuse_changes()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        arguments = {
            "encoder": tiny_encoder(folder),
            "steps": 400,
            "save_steps": 1,
            "save_total_limit": 2,
            "lr_scheduler_type": "constant",
        }
        output = folder / "killed"
        rounds = []
        while len(rounds) < options.kills:
            command = [sys.executable, training_runs.__file__, str(output), json.dumps(arguments | {"resume": bool(rounds)})]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            before = newest_step(output)
            while newest_step(output) <= before and process.poll() is None:  # its import takes seconds; then it writes
                time.sleep(0.01)
            time.sleep(rng.uniform(0.0, 1.0))
            process.send_signal(signal.SIGKILL)
            process.wait()
            checkpoints = sorted(output.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
            torn = {path.name: reason for path in checkpoints if (reason := incomplete_reason(path))}
            newest = training.newest_complete_checkpoint(output)
            assert newest is not None, f"no complete checkpoint after kill {len(rounds) + 1}: {torn}"
            assert all(loads(path) for path in checkpoints if path.name not in torn)
            rounds.append({"newest_complete": newest.name, "checkpoints": [path.name for path in checkpoints], "torn": torn})
            print(f"kill {len(rounds)}: resumes from {newest.name}; torn: {torn or 'none'}", flush=True)
        last = int(rounds[-1]["newest_complete"].split("-")[1])
        arguments["steps"] = last + 3
        subprocess.run(
            [sys.executable, training_runs.__file__, str(output), json.dumps(arguments | {"resume": True})], check=True
        )
        subprocess.run([sys.executable, training_runs.__file__, str(folder / "whole"), json.dumps(arguments)], check=True)
        killed, whole = np.load(output / "state.npz"), np.load(folder / "whole" / "state.npz")
        difference = max(np.abs(killed[name].astype(float) - whole[name]).max(initial=0.0) for name in whole.files)
    record = {
        "kills": options.kills,
        "seed": options.seed,
        "kills_that_left_a_torn_checkpoint": sum(bool(entry["torn"]) for entry in rounds),
        "steps_of_the_run": last + 3,
        "difference_to_an_uninterrupted_run": float(difference),
        "rounds": rounds,
        **provenance(),
    }
    path = ROOT / "benchmarks" / "results" / "kill_runs.json"
    path.parent.mkdir(exist_ok=True)
    write_json(path, record)
    print(f"difference to an uninterrupted run: {difference}; {path}")


def newest_step(output: Path) -> int:
    return max((int(path.name.split("-")[1]) for path in output.glob("checkpoint-*")), default=0)


if __name__ == "__main__":
    main()
