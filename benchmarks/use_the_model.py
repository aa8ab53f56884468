"""Score a model in the forms of the guide *Use the model*: float32, int8 and static vectors.

    python benchmarks/use_the_model.py start recommended --seeds 0 1 2
    python benchmarks/use_the_model.py start search

``recommended`` is trained on AG News as in ``adaptation.py`` and scored on its topics. ``search`` is trained
on Cranfield and scored on its queries. The code of the forms is that of the guide. Each form appends a line
to ``results/use_the_model.jsonl``, unless it is there already. Speed is texts per second of processor time,
with one thread.
"""

import os
import re
import tempfile
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import adaptation
import numpy as np
import records
import search
import testbeds
import torch
from sentence_transformers import SentenceTransformer

from sbert_plugins import evaluation, recipes

GUIDE = records.ROOT / "docs" / "guides" / "use_the_model.md"
LENGTH, TIMED = 128, 500
TASKS = {"start": ("topics", "search"), "recommended": ("topics",), "search": ("search",)}


def main() -> None:
    """Measure the rows that are asked for and not recorded yet."""
    parser = records.parser(__doc__, seeds=[0])
    parser.add_argument("rows", nargs="+", choices=TASKS)
    options = parser.parse_args()
    records.require_clean_tree()
    for row, seed in product(options.rows, options.seeds):
        for task in TASKS[row]:
            cell = {"row": row, "task": task, "seed": seed}
            if not records.holds("use_the_model", cell) and (row == "recommended" or not seed):
                measure(cell)


def measure(cell: dict[str, Any]) -> None:
    """Train and record all forms of a model."""
    model = testbeds.encoder("all-minilm", max_seq_length=LENGTH)
    if cell["task"] == "topics":
        evaluator: Any = search.sample_topics(testbeds.agnews())
        texts = evaluator.sentences
    else:
        evaluator = evaluation.own_retrieval(testbeds.folder() / "rerank" / "cranfield")
        texts = [str(text) for text in evaluator.corpus]
    if cell["row"] == "recommended":
        adaptation.train(model, cell | {"text": "agnews", "updates": 60, "learning_rate": 5e-5})
        model.max_seq_length = LENGTH
    elif cell["row"] == "search":
        recipes.adapt_to_search(model, texts, seed=cell["seed"])
    expected = model.encode(texts[:TIMED], normalize_embeddings=True)
    forms = ("int8", "static") if cell["task"] == "topics" else ("int8",)  # static vectors are not for search
    for form, (each, size) in build_forms(model, texts[:8], forms).items():
        began = time.process_time()
        vectors = each.encode(texts[:TIMED], normalize_embeddings=True)
        seconds = time.process_time() - began
        found = {"score": evaluation.measure(each, [evaluator], bf16=False)[evaluator.name].value}
        if form != "static":
            found["lowest cosine"] = float((vectors * expected).sum(axis=1).min())
        found |= {"texts per second": TIMED / seconds, "megabytes": size / 1e6}
        records.append("use_the_model", cell | {"form": form} | found)
        print(cell, form, found, flush=True)


def build_forms(
    model: SentenceTransformer, texts: list[str], forms: Sequence[str]
) -> dict[str, tuple[SentenceTransformer, int]]:
    """Return the model and its forms, each with its size in bytes. The code of the guide makes them."""
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    names: dict[str, Any] = {"model": model, "texts": texts, "SentenceTransformer": SentenceTransformer}
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        model.save_pretrained("runs/mine/model")
        for block in blocks:
            if any(f"runs/mine/{form}" in block for form in forms):
                exec(block, names)
        size = Path("runs/mine/int8.bin").stat().st_size
        single = {"INFERENCE_NUM_THREADS": 1}
        compiled = names["openvino"].compile_model("runs/mine/int8.xml", "CPU", single)
        os.chdir(before)
    int8 = SentenceTransformer(modules=[*model], device="cpu")
    int8.max_seq_length = model.max_seq_length

    def forward(features: dict[str, Any], **_: Any) -> dict[str, Any]:
        given = {name: features[name] for name in ("input_ids", "attention_mask")}
        return features | {"sentence_embedding": torch.from_numpy(np.array(compiled(given)[0]))}

    int8.forward = forward  # type: ignore[method-assign]
    built = {"float32": (model, count_bytes(model)), "int8": (int8, size)}
    if "static" in names:
        built["static"] = (names["static"], count_bytes(names["static"]))
    return built


def count_bytes(model: SentenceTransformer) -> int:
    """Return the size of the weights in float32."""
    return sum(4 * weight.numel() for weight in model.parameters())


if __name__ == "__main__":
    main()
