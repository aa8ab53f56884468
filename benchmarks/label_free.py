"""Does any score that needs no labels follow STS-B dev, over methods and over the course of one training?

    python benchmarks/label_free.py

trains each method once for each of two sets, other encoders, seeds and orders of the sentences, looks at every checkpoint
(:data:`STEPS`) with STS-B dev and with the candidates of ``label_free_scores.py``, all from one pass of encoding, and writes
``benchmarks/results/label_free.json``. Combinations of candidates are chosen on the first set and validated on the second. A
training is a process; its vectors are kept in ``--vectors``, so that a study that was killed goes on; ``--finished`` writes
the record of the trainings that are there.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import label_free_scores
import label_free_study
import mixes
import numpy as np
import rivals
import testbeds
import torch
from datasets import Dataset
from provenance import provenance, refuse_changes
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments
from transformers import TrainerCallback, set_seed

from sbert_plugins import evaluation, recipes, training
from sbert_plugins.recipes.cells import read_methods, slug
from sbert_plugins.recipes.output import write_json

RESULT = Path(__file__).parent / "results" / "label_free.json"
STEPS = (10, 30, 60, 100)
SENTENCES, HELD_OUT = 12_000, 600
RATE, BATCH = 1e-4, 32


class Run(NamedTuple):
    """A training: a method of a comparison with keywords of its loss, its rate, and whether it is there to do harm.

    ``is_packed`` is not for losses with a decoder that is a BERT of transformers.
    """

    method: str
    learning_rate: float = RATE
    is_harmful: bool = False
    is_packed: bool = True


RUNS = {
    "simcse": Run("simcse"),
    "simcse, temperature 0.1": Run("simcse:temperature=0.1"),
    "consert": Run("consert"),
    "arccse": Run("arccse"),
    "recommended": Run("consert + arccse"),  # which it was when the study began
    "denosent": Run("denosent"),
    "paser": Run("paser"),
    "pt-bert": Run("pt-bert"),
    "bag-of-words": Run("bag-of-words"),
    "slt-fai": Run("slt-fai"),
    "tsdae": Run("tsdae", is_harmful=True, is_packed=False),
    "slt-fai unbounded by mass": Run("slt-fai:balance=None,low_frequency_by=mass", is_harmful=True),
    "simcse, ten times the rate": Run("simcse", learning_rate=10 * RATE, is_harmful=True),
}


class Set(NamedTuple):
    """What the trainings of a set share, and which they are."""

    encoder: str
    seed: int
    runs: tuple[str, ...]


_FEW = ("simcse", "consert", "recommended", "denosent", "pt-bert", "bag-of-words", "tsdae", "simcse, ten times the rate")
SETS = {"chosen on": Set("minilm-4-layers", 0, tuple(RUNS)), "validated on": Set("minilm-mlm", 1, _FEW)}
UNTOUCHED = "untouched"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=Path, default=Path(tempfile.gettempdir()) / "label_free", help="where to keep them")
    parser.add_argument("--finished", action="store_true", help="train nothing more")
    parser.add_argument("--cell", nargs=2, metavar=("SET", "RUN"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.vectors.mkdir(parents=True, exist_ok=True)
    mixes.register()
    if options.cell:
        cell(*options.cell, options.vectors)
        return
    refuse_changes()
    for set_name, shared in SETS.items():
        for name in (UNTOUCHED, *shared.runs):
            if not options.finished and not vectors_path(set_name, name, options.vectors).exists():
                command = [sys.executable, __file__, "--vectors", str(options.vectors), "--cell", set_name, name]
                subprocess.run(command, check=True)
    write_json(RESULT, record(options.vectors))


def record(folder: Path) -> dict[str, Any]:
    """Return the record of the trainings that are there."""
    there = {
        set_name: shared._replace(runs=tuple(name for name in shared.runs if vectors_path(set_name, name, folder).exists()))
        for set_name, shared in SETS.items()
    }
    sets = {set_name: checkpoints(set_name, shared.runs, folder) for set_name, shared in there.items()}
    return {
        "command": "python benchmarks/label_free.py",
        "settings": {
            "text": "short",
            "sentences": SENTENCES,
            "held_out": HELD_OUT,
            "steps": STEPS,
            "batch_size": BATCH,
            "max_seq_length": 32,
            "runs": {name: run._asdict() for name, run in RUNS.items()},
            "sets": {set_name: shared._asdict() for set_name, shared in there.items()},
            "not_finished": {set_name: sorted(set(SETS[set_name].runs) - set(there[set_name].runs)) for set_name in SETS},
        },
        "seconds": {set_name: seconds(set_name, shared.runs, folder) for set_name, shared in there.items()},
        "checkpoints": {set_name: [point._asdict() for point in points] for set_name, points in sets.items()},
        **label_free_study.study(sets),
        **provenance(),
    }


def seconds(set_name: str, runs: tuple[str, ...], folder: Path) -> float:
    """Return those of all trainings of a set, with the encoding of their checkpoints."""
    paths = (vectors_path(set_name, name, folder) for name in (UNTOUCHED, *runs))
    return round(sum(float(np.load(path)["seconds"]) for path in paths), 1)


def checkpoints(set_name: str, runs: tuple[str, ...], folder: Path) -> list[label_free_study.Checkpoint]:
    """Score all checkpoints of a set."""
    texts, dev = evaluation_texts(folder), evaluation.load_sts("STS-B dev")
    row = {text: place for place, text in enumerate(encoded(dev, texts))}
    words = label_free_scores.WordOverlap.of(texts.own)
    rival = rivals.sif(encoder_of(set_name), texts.own).encode(texts.own, batch_size=128)
    held = {
        (name, step): label_free_scores.Vectors(row, kept[f"step_{step}"], kept[f"views_{step}"])
        for name in (UNTOUCHED, *runs)
        for kept in (np.load(vectors_path(set_name, name, folder)),)
        for step in (STEPS if name in RUNS else (0,))
    }
    ends = {name: vectors.raw(texts.own) for (name, step), vectors in held.items() if step in (0, max(STEPS))}
    found = []
    for (name, step), vectors in held.items():
        gold = label_free_scores.rank_correlation(vectors.cosines(dev.sentences1, dev.sentences2), np.array(dev.scores))
        scores = label_free_scores.all_scores(vectors, texts, words, rival)
        others = [end for run, end in ends.items() if run != name]
        scores |= label_free_scores.sufficiency(vectors.raw(texts.own), others)
        harmful = name in RUNS and RUNS[name].is_harmful
        found.append(label_free_study.Checkpoint(name, step, harmful, 100 * gold, scores))
    return found


def vectors_path(set_name: str, name: str, folder: Path) -> Path:
    return folder / f"{slug(set_name)}_{slug(name)}.npz"


def cell(set_name: str, name: str, folder: Path) -> None:
    """Train once, and keep the vectors of every checkpoint and the seconds; the file appears whole or not at all."""
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    texts = evaluation_texts(folder)
    is_packed = name == UNTOUCHED or RUNS[name].is_packed
    with tempfile.TemporaryDirectory() as scratch_folder:
        model = encoder_of(set_name, is_packed=is_packed)
        if not is_packed:  # a decoder is read from where the encoder lies
            model.save_pretrained(scratch_folder)
            model = SentenceTransformer(scratch_folder, device="cpu")
        watcher = Watcher(model, texts)
        start = time.perf_counter()
        if name == UNTOUCHED:
            watcher.look(0)
        else:
            train(RUNS[name], model, SETS[set_name].seed, watcher)
    path = vectors_path(set_name, name, folder)
    scratch = path.with_suffix(".tmp")
    with scratch.open("wb") as file:
        np.savez(file, seconds=time.perf_counter() - start, looking=watcher.seconds, **watcher.vectors)
    scratch.replace(path)
    print(f"{set_name}, {name}: {time.perf_counter() - start:.0f} s, {watcher.seconds:.0f} of them looking", flush=True)


def encoder_of(set_name: str, *, is_packed: bool = True) -> SentenceTransformer:
    return testbeds.encoder(SETS[set_name].encoder, without_padding=is_packed)


def own_sentences() -> tuple[list[str], list[str]]:
    """Return sentences to train on and held-out ones, the same for every training."""
    sentences = testbeds.short_sentences(SENTENCES + HELD_OUT)
    random.Random(0).shuffle(sentences)
    return sentences[HELD_OUT:], sentences[:HELD_OUT]


def evaluation_texts(folder: Path) -> label_free_scores.Texts:
    """Return what is encoded of every checkpoint; it is made once, for WordNet takes its time."""
    path = folder / "texts.json"
    if not path.exists():
        train_on, held_out = own_sentences()
        scratch = path.with_suffix(".tmp")
        scratch.write_text(json.dumps(label_free_scores.make_texts(held_out, train_on)), encoding="utf-8")
        scratch.replace(path)
    return label_free_scores.Texts(*json.loads(path.read_text(encoding="utf-8")))


def encoded(dev: evaluation.ScoredPairs, texts: label_free_scores.Texts) -> list[str]:
    """Return the distinct sentences in the order of their vectors."""
    return list(dict.fromkeys([*dev.sentences1, *dev.sentences2, *texts.all()]))


class Watcher(TrainerCallback):
    """Encodes the texts at each of :data:`STEPS`, and draws nothing from the training's random numbers."""

    def __init__(self, model: SentenceTransformer, texts: label_free_scores.Texts) -> None:
        self.model, self.texts = model, texts
        self.dev = evaluation.load_sts("STS-B dev")
        self.vectors: dict[str, np.ndarray] = {}
        self.seconds = 0.0

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Look at the model after some updates."""
        if state.global_step in STEPS:
            self.look(state.global_step)

    def look(self, step: int) -> None:
        start = time.perf_counter()
        mode = self.model.training
        with torch.random.fork_rng(), torch.no_grad():
            self.vectors[f"step_{step}"] = self.model.encode(
                encoded(self.dev, self.texts), batch_size=128, show_progress_bar=False
            )
            torch.manual_seed(0)
            self.vectors[f"views_{step}"] = self.views()
        self.model.train(mode)
        self.seconds += time.perf_counter() - start

    def views(self) -> np.ndarray:
        """Return (2, N, D), two dropout views of the held-out sentences."""
        self.model.train()
        views = []
        for _ in range(2):
            batches = [self.texts.own[i : i + 100] for i in range(0, label_free_scores.VIEWS, 100)]
            features = [self.model.preprocess(batch) for batch in batches]
            views.append(np.concatenate([self.model(batch)["sentence_embedding"].numpy() for batch in features]))
        return np.stack(views)


def train(run: Run, model: SentenceTransformer, seed: int, watcher: Watcher) -> None:
    sentences, _ = own_sentences()
    train_watched(run.method, model, sentences, seed, watcher, rate=run.learning_rate, batch=BATCH, updates=max(STEPS))


def train_watched(
    name: str,
    model: SentenceTransformer,
    sentences: list[str],
    seed: int,
    watcher: TrainerCallback,
    *,
    rate: float,
    batch: int,
    updates: int,
    bf16: bool = False,
) -> None:
    """Train as a comparison would, the sentences in an order of the seed's, with somebody who looks on."""
    (method,) = read_methods([name])
    recipe = recipes.recipe_of(method.name)
    sentences = list(sentences)
    random.Random(seed).shuffle(sentences)
    set_seed(seed)
    rows = Dataset.from_dict({"anchor": sentences})
    rows = recipe.prepare(rows, model, seed)[0] if recipe.prepare else rows
    found = recipe.keywords(rows, model, recipes.settings_of(method.name), method.loss_keywords) if recipe.keywords else {}
    with tempfile.TemporaryDirectory() as folder:
        arguments = SentenceTransformerTrainingArguments(
            output_dir=folder,
            learning_rate=rate,
            per_device_train_batch_size=batch,
            max_steps=updates,
            use_cpu=True,
            bf16=bf16,
            seed=seed,
            logging_steps=10,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        loss = recipes.build_loss(method.name, model, **(found | method.loss_keywords))
        trainer = training.SentenceTransformerTrainer(
            model=model, args=arguments, train_dataset=rows, loss=loss, callbacks=[watcher]
        )
        trainer.train()


if __name__ == "__main__":
    main()
