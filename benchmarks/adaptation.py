"""Adapt all-MiniLM-L6-v2 to four texts, and score similarity, search and topics before and after.

    python benchmarks/adaptation.py --rows start SimCSE recommended --texts biomedical agnews --seeds 0 1
    python benchmarks/adaptation.py --development --rows SimCSE TSDAE --learning_rate 1e-5

Each cell appends a line to ``results/adaptation.jsonl``, unless it is there already. The settings were chosen
on development data (``--development``): STS-B dev, Quora's development questions, and the first half of each
collection of topics. The table holds the rest: the seven STS tasks, Quora's test questions, Cranfield, and
the second halves. Large sets are sampled, with seed 0. Embeddings are computed in bfloat16, or in float32
with ``--no-bf16``, which also trains in float32. ``--encoder`` takes the path of another start, whose scores
are those of topics only. ``--sentences`` trains on so many sentences of the text, drawn at random.
``--averaged`` also scores the average with the start.
"""

import argparse
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import quality
import records
import testbeds
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense
from sklearn.decomposition import PCA as PrincipalComponents
from torch import nn

from sbert_plugins import evaluation, recipes

TEXTS = ("biomedical", "agnews", "quora", "cranfield")
CROPS = "cranfield-crops"  # pairs as of --positives crops, for the guide on documents; not in the table
UPDATES, LEARNING_RATE = 60, 5e-5
PAIRS_PER_TASK, TEXTS_PER_TOPICS, QUERIES, DOCUMENTS = 500, 4_000, 1_000, 8_000
# Name in the table: the method of recipes.train, and keywords of its loss.
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "SimCSE": ("simcse", {"projection_head": False}),
    "ConSERT": ("consert", {}),
    "TSDAE": ("quality:tsdae", {}),
    "bag of words": ("bag-of-words", {}),
    "recommended, keep=0": ("recommended", {"keep": 0.0}),
    "recommended": ("recommended", {}),
    "recommended, lower half frozen": ("recommended", {}),
    "ArcCSE": ("arccse", {}),
    "PT-BERT": ("pt-bert", {}),
    "PaSeR": ("paser", {}),
    "DenoSent": ("denosent", {}),
    "SLT-FAI": ("slt-fai", {}),
}
PCA = "PCA to 128 dimensions"
AVERAGED = ", averaged with the start"


def main() -> None:
    """Run the cells that are asked for and not recorded yet."""
    choices = {"rows": ["start", PCA, *ROWS], "texts": [*TEXTS, CROPS]}
    defaults = {"rows": [], "texts": list(TEXTS), "seeds": [0], "sentences": 0, "encoder": "all-minilm"}
    defaults |= {"updates": UPDATES, "learning_rate": LEARNING_RATE, "bf16": True}
    defaults |= {"averaged": False, "development": False}
    options = records.parser(__doc__, choices, **defaults).parse_args()
    records.require_clean_tree()
    name = "adaptation_development" if options.development else "adaptation"
    evaluators = build_evaluators(is_development=options.development)
    if options.encoder != "all-minilm":
        evaluators = [one for one in evaluators if isinstance(one, evaluation.TopicsEvaluator)]
    for cell in list_cells(options):
        is_averaged = options.averaged and cell["row"] in ROWS
        rows = [cell["row"] + suffix for suffix in ("", *([AVERAGED] if is_averaged else []))]
        missing = [row for row in rows if not records.holds(name, cell | {"row": row})]
        if not missing:
            continue
        began, model = time.monotonic(), testbeds.encoder(options.encoder)
        if cell["row"] == PCA:
            reduce_dimensions(model, testbeds.text(cell["text"])["anchor"], 128)
        elif cell["row"] != "start":
            cell |= train(model, cell)
        for row in missing:
            if row.endswith(AVERAGED):
                recipes.average_with_start(model, testbeds.encoder("all-minilm"), 0.5)
            minutes = round((time.monotonic() - began) / 60, 1)
            scored = testbeds.in_bfloat16(model) if options.bf16 else model
            done = {"row": row, "scores": score(scored, evaluators), "minutes": minutes}
            records.append(name, cell | done)
            print(done, cell["text"], cell["seed"], flush=True)


def list_cells(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return what tells each measurement from the others. Rows that are not trained have no rate.

    None stands for all sentences, all-MiniLM-L6-v2 and bfloat16.
    """
    others = {
        "sentences": options.sentences or None,
        "encoder": None if options.encoder == "all-minilm" else Path(options.encoder).name,
        "bf16": None if options.bf16 else False,
    }
    untrained = {"seed": 0, "updates": 0} | others
    trained = {"updates": options.updates, "learning_rate": options.learning_rate} | others
    cells: list[dict[str, Any]] = []
    for row in options.rows:
        if row == "start":
            cells.append({"row": row, "text": None} | untrained)
        elif row == PCA:
            cells += [{"row": row, "text": text} | untrained for text in options.texts]
        else:
            cells += [
                {"row": row, "text": text, "seed": seed} | trained
                for seed in options.seeds
                for text in options.texts
            ]
    return cells


def train(model: SentenceTransformer, cell: dict[str, Any]) -> dict[str, Any]:
    """Train ``model`` in place and return its settings and the seconds of the training."""
    method, keywords = ROWS[cell["row"]]
    sentences = testbeds.text(cell["text"])
    if cell.get("sentences"):
        sentences = sentences.shuffle(seed=0).take(cell["sentences"])
    if cell["row"] == "TSDAE":
        sentences = quality.delete_words(sentences, cell["seed"])
    elif cell["row"].endswith("lower half frozen"):
        bert: Any = model.transformers_model
        frozen = [bert.embeddings, *bert.encoder.layer[: len(bert.encoder.layer) // 2]]
        torch.nn.ModuleList(frozen).requires_grad_(False)
    with tempfile.TemporaryDirectory() as folder:
        results = recipes.train(
            method,
            sentences,
            model,
            output=folder,
            loss_keywords=keywords,
            seed=cell["seed"],
            max_seq_length=32,
            max_steps=cell["updates"],
            learning_rate=cell["learning_rate"],
            per_device_train_batch_size=64,
            save_strategy="no",
            bf16=cell.get("bf16") is None,
            **quality.EQUAL,
        )
    return {"settings": {"method": method, **results["loss_keywords"]}, "seconds": results["seconds"]}


def reduce_dimensions(model: SentenceTransformer, texts: Sequence[str], size: int) -> None:
    """Append the projection on the first principal components of the vectors of ``texts``."""
    vectors = model.encode(list(texts), batch_size=128).astype(np.float64)
    fitted = PrincipalComponents(size, random_state=0).fit(vectors)
    layer = Dense(vectors.shape[1], size, activation_function=nn.Identity())
    with torch.no_grad():
        layer.linear.weight.copy_(torch.from_numpy(fitted.components_))
        layer.linear.bias.copy_(torch.from_numpy(-fitted.components_ @ fitted.mean_))
    model.append(layer)


def build_evaluators(*, is_development: bool) -> list[Any]:
    """Build the evaluators of the test data, or of the development data."""
    tasks = ["STS-B dev"] if is_development else evaluation.TASKS
    quora = testbeds.quora("dev" if is_development else "test")
    topics = (testbeds.agnews(), testbeds.biomedical())
    return [
        *(build_pairs(task, 1_500 if is_development else PAIRS_PER_TASK) for task in tasks),
        sample_retrieval(quora),
        *([] if is_development else [testbeds.cranfield()]),
        *(sample_topics(one, half=0 if is_development else 1) for one in topics),
    ]


def build_pairs(task: str, most: int) -> evaluation.PairsEvaluator:
    """Return the evaluator of at most ``most`` pairs of one STS task."""
    pairs = evaluation.load_sts(task)
    rows = random.Random(0).sample(range(len(pairs.scores)), min(most, len(pairs.scores)))
    sampled = evaluation.ScoredPairs(*([column[row] for row in rows] for column in pairs[:3]))
    return evaluation.PairsEvaluator(sampled, name=f"sts {task}", write_csv=False)


def sample_retrieval(whole: Any) -> evaluation.RetrievalEvaluator:
    """Return the evaluator of ``QUERIES`` queries, their answers, and other documents up to ``DOCUMENTS``."""
    texts = dict(zip(whole.corpus_ids, whole.corpus, strict=True))
    rng = random.Random(0)
    chosen = rng.sample(range(len(whole.queries_ids)), min(QUERIES, len(whole.queries_ids)))
    queries = {whole.queries_ids[row]: whole.queries[row] for row in chosen}
    relevant = {one: whole.relevant_docs[one] for one in queries}
    kept = {document for documents in relevant.values() for document in documents} | (
        queries.keys() & texts.keys()
    )
    others = sorted(texts.keys() - kept)
    kept |= set(rng.sample(others, min(len(others), max(0, DOCUMENTS - len(kept)))))
    documents = {document: texts[document] for document in sorted(kept)}
    return evaluation.RetrievalEvaluator(queries, documents, relevant, name="quora", write_csv=False)


def sample_topics(whole: evaluation.TopicsEvaluator, *, half: int) -> evaluation.TopicsEvaluator:
    """Return the evaluator of at most ``TEXTS_PER_TOPICS`` texts of one half of a collection."""
    order, middle = np.random.RandomState(0).permutation(len(whole.sentences)), len(whole.sentences) // 2
    rows = (order[middle:] if half else order[:middle])[:TEXTS_PER_TOPICS]
    sentences, labels = ([column[row] for row in rows] for column in (whole.sentences, whole.labels))
    return evaluation.TopicsEvaluator(sentences, labels, name=whole.name, write_csv=False)


def score(model: SentenceTransformer, evaluators: list[Any]) -> dict[str, float]:
    """Return the scores of a model in points."""
    model.max_seq_length = 256
    found = evaluation.evaluate(model, evaluators)
    scores = {}
    if sts := [metrics["spearman"] for name, metrics in found.items() if name.startswith("sts ")]:
        scores = {"sts": sum(sts) / len(sts), "quora_map": 100 * found["quora"]["cosine_map@100"]}
    if "cranfield" in found:
        scores["cranfield_ndcg"] = 100 * found["cranfield"]["cosine_ndcg@10"]
    for name in ("biomedical", "agnews"):
        scores |= {f"{name}_purity": found[name]["purity@10"], f"{name}_v": found[name]["v_measure"]}
    return {name: round(value, 3) for name, value in scores.items()}


if __name__ == "__main__":
    main()
