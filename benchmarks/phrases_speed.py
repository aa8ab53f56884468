"""Phrases and PaSeR's columns: sentences a second against rake-nltk as it comes, and memory on many sentences.

    NLTK_DATA=... python benchmarks/phrases_speed.py

Reads Wikipedia sentences from the data directory (``SBERT_PLUGINS_DATA``); NLTK needs its stop words and ``punkt_tab`` (what
rake-nltk's defaults read) and WordNet. Everything is timed in this one run; the median of ``--repeats`` is reported.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import datasets
import rake_nltk
from provenance import provenance, refuse_changes

from sbert_plugins import data
from sbert_plugins.data.synonyms import _look_up, open_wordnet
from sbert_plugins.recipes.output import write_json

TEXT = "corpus/wiki_sentences_1m.parquet"
RESULT = Path(__file__).parent / "results" / "phrases_speed.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=20_000)
    parser.add_argument("--columns", type=int, default=100_000, help="sentences of the columns")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--memory", type=int, nargs="*", default=[20_000, 200_000, 1_000_000])
    parser.add_argument("--measure-memory", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    path = Path(os.environ["SBERT_PLUGINS_DATA"]) / TEXT
    if options.measure_memory:
        print(peak_memory(path, options.measure_memory))
        return
    refuse_changes()
    many = data.read_sentences(path, limit=max(options.columns, options.sentences))["anchor"][:]
    sentences, many = many[: options.sentences], many[: options.columns]
    stock = rake_nltk.Rake()
    replacers = {}
    rates: dict[str, list[float]] = {}
    for _ in range(options.repeats):
        for name, work in {
            "rake-nltk, default settings": lambda: [stock.extract_keywords_from_text(sentence) for sentence in sentences],
            "rank_phrases": lambda: [data.rank_phrases(sentence) for sentence in sentences],
            "synonyms, WordNet not read before": lambda: replacers.update(latest=first_synonyms(sentences)),
            "synonyms, all words seen before": lambda: synonyms(replacers["latest"], sentences),
            "paser_columns, no synonyms, 1 process": lambda: columns(many, synonyms=None),
            "paser_columns, no synonyms, 2 processes": lambda: columns(many, synonyms=None, num_proc=2),
            "paser_columns, 1 process": lambda: columns(many),
            "paser_columns, 2 processes": lambda: columns(many, num_proc=2),
        }.items():
            start = time.perf_counter()
            work()
            count = len(many) if name.startswith("paser_columns") else len(sentences)
            rates.setdefault(name, []).append(count / (time.perf_counter() - start))
            print(f"{name:40} {rates[name][-1]:10,.0f} sentences/s", flush=True)
    record = {
        "command": "python benchmarks/phrases_speed.py",
        "text": TEXT,
        "sentences": options.sentences,
        "columns": options.columns,
        "sentences_per_second": {name: round(statistics.median(values)) for name, values in rates.items()},
        "runs": {name: [round(value) for value in values] for name, values in rates.items()},
        "peak_memory_mib_by_sentences": {count: _in_own_process(count) for count in options.memory},
        **provenance(),
    }
    RESULT.parent.mkdir(exist_ok=True)
    write_json(RESULT, record)
    print(RESULT)


def first_synonyms(sentences: list[str]) -> data.SynonymReplacer:
    """As in a process that begins: the index is read, and every word is looked up. Those that follow here find it read."""
    open_wordnet.cache_clear()
    _look_up.cache_clear()
    return synonyms(data.SynonymReplacer(), sentences)


def synonyms(replacer: data.SynonymReplacer, sentences: list[str]) -> data.SynonymReplacer:
    rng = random.Random(0)
    for sentence in sentences:
        replacer(sentence, rng)
    return replacer


def columns(sentences: list[str], **keywords: object) -> None:
    """Make the columns in a cache of their own: nothing is found ready."""
    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory() as cache:
        datasets.config.HF_DATASETS_CACHE = Path(cache)
        data.paser_columns(sentences, mask_token="[MASK]", **keywords)


def peak_memory(path: Path, count: int) -> int:
    """Peak resident memory in MiB, less that of the interpreter with its imports, from a file to the finished columns."""
    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory() as cache:
        datasets.config.HF_DATASETS_CACHE = Path(cache)
        rows = datasets.load_dataset("parquet", data_files=str(path), split="train", cache_dir=cache).rename_column(
            "text", "anchor"
        )
        samples, done = [_private_mib()], threading.Event()

        def watch() -> None:
            while not done.wait(0.05):
                samples.append(_private_mib())

        watcher = threading.Thread(target=watch)
        watcher.start()
        data.paser_columns(rows.select(range(count)), mask_token="[MASK]", synonyms=None)
        done.set()
        watcher.join()
        return max(samples) - samples[0]


def _private_mib() -> int:
    """Anonymous memory: pages of the memory-mapped files, which the system takes back at will, are not counted."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("RssAnon:"))) // 1024


def _in_own_process(count: int) -> int:
    command = [sys.executable, __file__, "--measure-memory", str(count)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    print(f"{count:,} sentences: {result.stdout.strip()} MiB", flush=True)
    return int(result.stdout)


if __name__ == "__main__":
    main()
