"""How well do encoders, and vectors without training, tell topics apart? Clusters and neighbours of news and of titles.

    python benchmarks/topics.py --models minilm-mlm all-minilm --rivals tfidf sif:minilm-mlm:0.001

A model is ``minilm-mlm``, ``all-minilm``, or a path or Hub name; a trained one is scored like a raw one. The rivals need no
training: ``tfidf``, and ``sif:ENCODER:A`` for the weighted mean of an encoder's tokens. Each scores each collection in
float32 and gets one json in ``results/topics/<collection>``; one that is there is not made again. k-means runs with several
seeds: the scores are means, with the standard deviation beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
import rivals
import testbeds
import torch
from provenance import provenance, refuse_changes
from sentence_transformers import SentenceTransformer

from sbert_plugins import evaluation
from sbert_plugins.recipes.output import write_json

RESULTS = Path(__file__).parent / "results" / "topics"
COLLECTIONS = {"agnews": evaluation.agnews_topics, "biomedical": evaluation.biomedical_topics}
KINDS = ("tfidf", "sif:")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=[], metavar="MODEL")
    parser.add_argument("--rivals", nargs="+", default=[], metavar="RIVAL", help="tfidf, sif:ENCODER:A")
    parser.add_argument("--collections", nargs="+", choices=list(COLLECTIONS), default=list(COLLECTIONS))
    parser.add_argument("--seeds", type=int, default=3, help="of k-means")
    parser.add_argument("--pooling", default="mean", choices=["cls", "mean"], help="of a plain transformer")
    parser.add_argument("--max-seq-length", type=int, default=32)
    options = parser.parse_args()
    refuse_changes()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    for method in [*options.models, *options.rivals]:
        for collection in options.collections:
            path = RESULTS / collection / f"{name_of(method, options)}.json"
            if not path.exists():
                record = score(method, collection, options)
                path.parent.mkdir(parents=True, exist_ok=True)
                write_json(path, record)
            scores = json.loads(path.read_text(encoding="utf-8"))["scores"]
            print(
                f"{collection:10}  {method:30}", "  ".join(f"{key} {value:.1f}" for key, value in scores.items()), flush=True
            )


def name_of(method: str, options: argparse.Namespace) -> str:
    """Name a file by the method and what else changes its vectors."""
    kind, *rest = method.split(":")
    if kind == "tfidf":
        return kind
    encoder = rest[0] if kind == "sif" else method
    pooled = [] if kind == "sif" else [options.pooling]
    return "_".join([*([f"sif-{rest[1]}"] if kind == "sif" else []), Path(encoder).name, *pooled, str(options.max_seq_length)])


def score(method: str, collection: str, options: argparse.Namespace) -> dict[str, object]:
    texts = COLLECTIONS[collection]()
    start = time.perf_counter()
    vectors = embed(method, texts.sentences, options)
    seconds = time.perf_counter() - start
    runs = [evaluation.topic_scores(vectors, texts.labels, texts.sentences, seed=seed) for seed in range(options.seeds)]
    values = {key: [run[key] for run in runs] for key in runs[0]}
    command = f"python benchmarks/topics.py --{'rivals' if method.startswith(KINDS) else 'models'} {method}"
    given = {"pooling": options.pooling, "max-seq-length": options.max_seq_length, "seeds": options.seeds}
    return {
        "command": " ".join([command, "--collections", collection, *(f"--{key} {given[key]}" for key in given)]),
        "method": method,
        "collection": collection,
        "texts": len(texts.labels),
        "topics": len(set(texts.labels)),
        "clustering": texts.get_config_dict()["clustering"],
        "pooling": options.pooling,
        "max_seq_length": options.max_seq_length,
        "seeds": options.seeds,
        "scores": {key: float(np.mean(value)) for key, value in values.items()},
        "deviations": {key: float(np.std(value, ddof=1)) for key, value in values.items()} if options.seeds > 1 else {},
        "seconds": round(seconds, 1),
        **provenance(),
    }


def embed(method: str, texts: list[str], options: argparse.Namespace) -> np.ndarray:
    kind, *rest = method.split(":")
    if kind == "tfidf":
        model = rivals.tfidf_svd(texts)
    elif kind == "sif":
        model = rivals.sif(encoder(rest[0], options), texts, a=float(rest[1]))
    else:
        model = encoder(method, options)
    return model.encode(texts, batch_size=128)


def encoder(name: str, options: argparse.Namespace) -> SentenceTransformer:
    return testbeds.encoder(name, pooling=options.pooling, max_seq_length=options.max_seq_length)


if __name__ == "__main__":
    main()
