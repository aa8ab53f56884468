"""Do mteb, sentence-transformers and this library give one number? STS-B, SICK-R in both readings, and retrieval.

    python benchmarks/mteb_check.py

Writes ``benchmarks/results/mteb_check.json`` for all-MiniLM-L6-v2 and fails where two differ: by more than 1e-6 on STS, and
by more than 1e-5 on retrieval, whose scores mteb rounds to five digits. The corpus of the retrieval, Cranfield's abstracts,
has each text once: with one text under two ids the rank of the two is a matter of taste.
"""

from __future__ import annotations

import json
import os
import tempfile
from importlib.metadata import version
from pathlib import Path

from provenance import provenance
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator, InformationRetrievalEvaluator

from sbert_plugins import evaluation, recipes

STS = {"LocalSTSBenchmark": "STS-B", "LocalSICK-R": "SICK-R", "LocalSICK-R.all": "SICK-R all"}
TOLERANCE = {"STS": 1e-6, "retrieval": 1e-5}
RETRIEVAL = {"map_at_100": "cosine_map@100", "mrr_at_10": "cosine_mrr@10"}


def main() -> None:
    model = recipes.offline_encoder(num_layers=6, max_seq_length=256, device="cpu")
    with tempfile.TemporaryDirectory() as cache:
        result = evaluation.evaluate_mteb(model, [*STS, "LocalCranfield"], cache=cache)
    of_mteb = {task.task_name: task.scores["test"][0] for task in result}
    scores = {}
    for task, ours in STS.items():
        host = EmbeddingSimilarityEvaluator(*evaluation.load_sts(ours), batch_size=32, write_csv=False)(model)
        suite = evaluation.STSSuiteEvaluator(tasks=[ours.split()[0]], sick="all" if "all" in ours else "test")(model)
        scores[ours] = {
            "mteb": of_mteb[task]["cosine_spearman"],
            "sentence-transformers": float(host["spearman_cosine"]),
            "sbert-plugins": suite[ours.split()[0]] / 100,
        }
    cranfield = _cranfield(model)
    for metric, host_metric in RETRIEVAL.items():
        scores[f"Cranfield {metric}"] = {
            "mteb": of_mteb["LocalCranfield"][metric],
            "sentence-transformers": float(cranfield[host_metric]),
        }
    differences = {name: max(row.values()) - min(row.values()) for name, row in scores.items()}
    record = {
        "model": "all-MiniLM-L6-v2", "scores": scores, "largest_difference": differences, "mteb": version("mteb"),
        "tolerance": TOLERANCE,
    }  # fmt: skip
    path = Path(__file__).parent / "results" / "mteb_check.json"
    path.write_text(json.dumps(record | provenance(), indent=1) + "\n", encoding="utf-8")
    for name, row in scores.items():
        print(f"{name:22}", "  ".join(f"{program} {score:.8f}" for program, score in row.items()), f"{differences[name]:.1e}")
    far = {name for name, value in differences.items() if value > TOLERANCE["STS" if name in STS.values() else "retrieval"]}
    if far:
        raise SystemExit(f"these differ: {sorted(far)}")


def _cranfield(model) -> dict[str, float]:
    """sentence-transformers on the very documents, queries and judgements that mteb was given."""
    from sbert_plugins.evaluation.mteb_tasks import local_task

    task = local_task("LocalCranfield", os.environ["SBERT_PLUGINS_DATA"])
    task.load_data()
    split = task.dataset["default"]["test"]
    corpus = {row["id"]: f"{row['title']} {row['text']}".strip() for row in split["corpus"]}
    queries = {row["id"]: row["text"] for row in split["queries"]}
    relevant = {query: set(gains) for query, gains in split["relevant_docs"].items()}
    return InformationRetrievalEvaluator(queries, corpus, relevant, batch_size=32, write_csv=False)(model)


if __name__ == "__main__":
    main()
