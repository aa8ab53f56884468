"""Adapt all-MiniLM-L6-v2 to the documents of two search collections, and score search and what it may harm.

    python benchmarks/search.py --rows start "token weights" search --collections cranfield cisi --seeds 0 1 2

Each cell appends a line to ``results/search.jsonl``, unless it is there already. Texts are cut at 128 tokens,
and embeddings are computed in bfloat16. Cranfield and CISI chose the settings of ``search``. SICK-R and the
topics are the samples of ``adaptation.py``. ``--encoder`` takes the path of another start, of which only
search is scored, as with another limit than 128 ``--tokens``.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import adaptation
import numpy as np
import quality
import records
import tables
import testbeds
from datasets import Dataset
from sentence_transformers import SentenceTransformer

from sbert_plugins import data, evaluation, recipes
from sbert_plugins.data.crops import split_sentences
from sbert_plugins.evaluation.retrieval import ndcg_of_scores
from sbert_plugins.evaluation.sts import data_directory

LENGTH, SAMPLE = 128, 1_500
# Name in the table: the method of recipes.train, keywords of its loss, and what it reads.
ROWS: dict[str, tuple[str, dict[str, Any], str]] = {
    "token weights": ("search", {"linear_map": False}, "documents"),
    "teacher": ("search", {"power": 0}, "documents"),
    "search": ("search", {}, "documents"),
    "recommended": ("recommended", {}, "sentences"),
    "recommended --positives crops": ("recommended", {}, "crops"),
    "SimCSE": ("simcse", {"projection_head": False}, "sentences"),
    "TSDAE": ("quality:tsdae", {}, "sentences"),
}


def main() -> None:
    """Run the cells that are asked for and not recorded yet."""
    options = records.parser(
        __doc__,
        {"rows": ["start", *ROWS]},
        rows=[],
        collections=["cranfield", "cisi"],
        seeds=[0],
        encoder="all-minilm",
        tokens=LENGTH,
    ).parse_args()
    records.require_clean_tree()
    encoder = None if options.encoder == "all-minilm" else Path(options.encoder).name
    tokens = None if options.tokens == LENGTH else options.tokens
    cells = [
        {"row": row, "collection": collection, "seed": seed, "encoder": encoder, "tokens": tokens}
        for seed in options.seeds
        for row in options.rows
        for collection in options.collections
        if row not in ("start", "token weights") or seed == options.seeds[0]  # nothing is drawn
    ]
    built: dict[str, Any] = {}
    for cell in cells:
        if records.holds("search", cell):
            continue
        collection = cell["collection"]
        if collection not in built:
            built[collection] = build(collection, options.encoder, options.tokens)
        search, documents, evaluators, old = built[collection]
        model = testbeds.encoder(options.encoder, max_seq_length=options.tokens)
        if cell["row"] != "start":
            cell |= train(model, cell, documents)
        scores = evaluation.measure(model, evaluators[:2] if encoder or tokens else evaluators, bf16=True)
        cell["scores"] = {name: dict(score.values) for name, score in scores.items()}
        cell["errors"] = {name: score.error for name, score in scores.items()}
        if cell["row"] == "search":
            cell["old index"] = score_old_index(model, search, old)
        records.append("search", cell)
        print(cell, flush=True)


def build(collection: str, encoder: str, tokens: int) -> tuple[Any, list[str], list[Any], np.ndarray]:
    """Return the search, its documents, the evaluators, and the vectors of the documents by the start."""
    folder = data_directory(None)
    assert folder is not None
    search = evaluation.own_retrieval(folder / "rerank" / collection, name="search")
    documents = [str(text) for text in search.corpus]
    topics = (testbeds.agnews(), testbeds.biomedical())
    evaluators = [
        search,
        evaluation.MixedRetrievalEvaluator(search, name="mix", write_csv=False),
        evaluation.KnownItemEvaluator(documents, name="known items", write_csv=False),
        *(adaptation.build_pairs(task, SAMPLE) for task in ("STS-B dev", "SICK-R")),
        *(sample_topics(one) for one in topics),
    ]
    start = testbeds.encoder(encoder, max_seq_length=tokens)
    old = start.encode_document(documents, batch_size=64, normalize_embeddings=True)
    return search, documents, evaluators, old


def sample_topics(whole: evaluation.TopicsEvaluator) -> evaluation.TopicsEvaluator:
    """Return the first texts of the sample of ``adaptation.py``, for purity; clusters are not read here."""
    half = adaptation.sample_topics(whole, half=1)
    sides = (column[:SAMPLE] for column in (half.sentences, half.labels))
    return evaluation.TopicsEvaluator(*sides, name=whole.name, clusterings=1, write_csv=False)


def train(model: SentenceTransformer, cell: dict[str, Any], documents: list[str]) -> dict[str, Any]:
    """Train ``model`` in place and return the seconds and the log."""
    method, keywords, reads = ROWS[cell["row"]]
    texts: Any = documents
    if reads == "sentences":
        texts = list(dict.fromkeys(one for each in documents for one in split_sentences(each)))
    elif reads == "crops":
        texts = data.crop_pairs(documents, seed=cell["seed"])
    if cell["row"] == "TSDAE":
        texts = quality.delete_words(Dataset.from_dict({"anchor": texts}), cell["seed"])
    settings: dict[str, Any] = {}
    if method != "search":
        best = tables.best_setting(cell["row"])  # of SimCSE; the others have 60 updates and 5e-5
        settings = {"max_seq_length": 32, "max_steps": best["updates"], "save_strategy": "no"}
        settings["learning_rate"] = best["learning_rate"]
        settings |= {"per_device_train_batch_size": 64, "bf16": True, **quality.EQUAL}
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        results = recipes.train(
            method, texts, model, output=folder, loss_keywords=keywords, seed=cell["seed"], **settings
        )
    model.max_seq_length = cell["tokens"] or LENGTH
    seconds = round(time.monotonic() - began, 1)
    return {"seconds": seconds, "log": results["log"]} if method == "search" else {"seconds": seconds} | best


def score_old_index(model: SentenceTransformer, search: Any, old: np.ndarray) -> dict[str, float]:
    """Return nDCG@10 of new queries on the start's vectors of the documents, without and with a map."""
    options: dict[str, Any] = {"batch_size": 64, "normalize_embeddings": True}
    documents = model.encode_document([str(text) for text in search.corpus], **options)
    queries = model.encode_query([str(text) for text in search.queries], **options)
    back = np.linalg.lstsq(documents, old, rcond=None)[0]
    found = {}
    for name, vectors in (("as they are", queries), ("with a map", queries @ back)):
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        found[name] = float(ndcg_of_scores(search, unit @ old.T).mean())
    return found


if __name__ == "__main__":
    main()
