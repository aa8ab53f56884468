"""Do mteb, sentence-transformers and this library give one number? STS-B, SICK-R in both readings, and retrieval.

    python benchmarks/mteb_check.py

Writes ``benchmarks/results/mteb_check.json`` for all-MiniLM-L6-v2 and fails where two differ: by more than 1e-6 on STS, and
by more than 1e-5 on retrieval, whose MAP and nDCG mteb rounds to five digits. The retrieval is Cranfield's abstracts, cut to
64 tokens, each text once: with one text under two ids the rank of the two is a matter of float noise.
"""

from __future__ import annotations

import tempfile
from importlib.metadata import version
from pathlib import Path

from provenance import provenance, refuse_changes
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator, InformationRetrievalEvaluator

from sbert_plugins import evaluation, recipes
from sbert_plugins.recipes.output import write_json

STS = {"LocalSTSBenchmark": "STS-B", "LocalSICK-R": "SICK-R", "LocalSICK-R.all": "SICK-R all"}
TOLERANCE = {"STS": 1e-6, "retrieval": 1e-5}
RETRIEVAL = ("map@100", "mrr@10", "ndcg@10")


def main() -> None:
    refuse_changes()
    model = recipes.offline_encoder(num_layers=6, max_seq_length=256, device="cpu")
    of_mteb = _mteb(model, list(STS))
    scores = {}
    for task, ours in STS.items():
        host = EmbeddingSimilarityEvaluator(*evaluation.load_sts(ours), batch_size=32, write_csv=False)(model)
        suite = evaluation.STSSuiteEvaluator(tasks=[ours.split()[0]], sick="all" if "all" in ours else "test")(model)
        scores[ours] = {
            "mteb": of_mteb[task]["cosine_spearman"],
            "sentence-transformers": float(host["spearman_cosine"]),
            "sbert-plugins": suite[ours.split()[0]] / 100,
        }
    model.max_seq_length = 64  # the programs are compared, not the model: a fifth of the time
    of_mteb |= _mteb(model, ["LocalCranfield"])
    evaluator = evaluation.cranfield_retrieval(batch_size=32, write_csv=False)
    ours = evaluator(model)
    texts = [dict(zip(ids, texts, strict=True)) for ids, texts in (
        (evaluator.queries_ids, evaluator.queries), (evaluator.corpus_ids, evaluator.corpus)
    )]  # fmt: skip
    host = InformationRetrievalEvaluator(*texts, evaluator.relevant_docs, batch_size=32, write_csv=False)(model)
    for metric in RETRIEVAL:
        scores[f"Cranfield {metric}"] = {
            "mteb": of_mteb["LocalCranfield"][metric.replace("@", "_at_")],
            "sentence-transformers": float(host[f"cosine_{metric}"]),
            "sbert-plugins": float(ours[f"cranfield_cosine_{metric}"]),
        }
    differences = {name: max(row.values()) - min(row.values()) for name, row in scores.items()}
    record = {
        "model": "all-MiniLM-L6-v2", "scores": scores, "largest_difference": differences, "mteb": version("mteb"),
        "tolerance": TOLERANCE,
    }  # fmt: skip
    path = Path(__file__).parent / "results" / "mteb_check.json"
    write_json(path, record | provenance())
    for name, row in scores.items():
        print(f"{name:22}", "  ".join(f"{program} {score:.8f}" for program, score in row.items()), f"{differences[name]:.1e}")
    far = {name for name, value in differences.items() if value > TOLERANCE["STS" if name in STS.values() else "retrieval"]}
    if far:
        raise SystemExit(f"these differ: {sorted(far)}")


def _mteb(model: SentenceTransformer, tasks: list[str]) -> dict[str, dict[str, float]]:
    with tempfile.TemporaryDirectory() as cache:
        result = evaluation.evaluate_mteb(model, tasks, cache=cache)
    return {task.task_name: task.scores["test"][0] for task in result}


if __name__ == "__main__":
    main()
