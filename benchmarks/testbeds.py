"""The encoders and texts of the benchmarks, by name; ``SBERT_PLUGINS_DATA`` is where they lie."""

from __future__ import annotations

import csv
import gzip
import os
import random
import re
from pathlib import Path

import packed
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer

from sbert_plugins import data, evaluation, recipes

# Texts of a collection, on which a model trains before the collection is searched or clustered: no labels are seen.
COLLECTIONS = {
    "quora": evaluation.quora_retrieval,
    "cranfield": evaluation.cranfield_retrieval,
    "cranfield-crops": evaluation.cranfield_retrieval,
    "agnews": evaluation.agnews_topics,
    "biomedical": evaluation.biomedical_topics,
}

# Which weights of an encoder move: all of them, or adapters of its queries and values in their place.
TRAINED = ("all", "lora")
LORA = {"r": 16, "lora_alpha": 32, "target_modules": ["query", "value"]}


def encoder(
    name: str,
    *,
    pooling: str = "mean",
    max_seq_length: int = 32,
    without_padding: bool = False,
    scores_in_bf16: bool = False,
    trained: str = "all",
) -> SentenceTransformer:
    """Build ``minilm-mlm``, ``minilm-4-layers``, ``all-minilm``, or what a path or Hub name names.

    ``without_padding`` and ``scores_in_bf16`` are of ``packed.py``, the second only with the first. ``trained`` is of
    ``TRAINED``; adapters begin the same each time, and change nothing until they are trained.
    """
    if name in ("minilm-4-layers", "all-minilm"):
        if pooling != "mean":
            raise SystemExit(f"{name} has mean pooling, got pooling {pooling!r}: take minilm-mlm.")
        model = recipes.offline_encoder(num_layers=4 if name == "minilm-4-layers" else 6, max_seq_length=max_seq_length)
    else:
        path = str(folder() / "encoders" / name) if name == "minilm-mlm" else name
        model = recipes.build_encoder(path, pooling=pooling, max_seq_length=max_seq_length)
    if without_padding:
        packed.install()
        packed.use(model.transformers_model, scores_in_bf16=scores_in_bf16)
    if trained == "lora":
        from peft import LoraConfig, TaskType

        torch.manual_seed(0)
        model.add_adapter(LoraConfig(task_type=TaskType.FEATURE_EXTRACTION, **LORA))
    return model


def text(name: str, limit: int) -> Dataset:
    """Read ``short``, ``wiki``, ``paragraphs``, ``crops``, ``sts`` (transductive), a collection's, or a file or Hub dataset.

    The column is ``anchor``; ``crops`` has ``positive`` besides, and ``paragraphs`` the same anchors without.
    """
    if name == "wiki":
        return data.read_sentences(folder() / "corpus" / "wiki_sentences_1m.parquet", limit=limit)
    if name == "short":
        return Dataset.from_dict({"anchor": short_sentences(limit)})
    if name in ("paragraphs", "crops"):
        rows = neighbours(limit)
        return rows if name == "crops" else rows.select_columns("anchor")
    if name == "sts":
        return Dataset.from_dict({"anchor": sorted(test_sentences())})
    if name in COLLECTIONS:
        evaluator = COLLECTIONS[name]()
        texts = sorted(set(getattr(evaluator, "corpus", None) or evaluator.sentences))
        if name.endswith("-crops"):
            return data.crop_pairs(texts, split=_sentences, seed=0)
        # Documents are taken apart into sentences; titles are what they are.
        sentences = [part for text in texts for part in _sentences(text) if len(part.split()) >= 4]
        return Dataset.from_dict({"anchor": sentences})
    return data.read_sentences(name, limit=limit)


def _sentences(text: str) -> list[str]:
    """Split where a sign ends something: some collections are in lower case."""
    return re.split(r"(?<=[.?!]) +", text)


def neighbours(limit: int) -> Dataset:
    """A sentence and its neighbour from each of as many Wikipedia paragraphs."""
    documents = data.read_documents(folder() / "corpus" / "wiki_paragraphs.parquet", column="text")["document"][:]
    return data.crop_pairs(random.Random(0).sample(documents, 2 * limit), seed=0).take(limit)


def test_sentences() -> set[str]:
    tasks = [evaluation.load_sts(task) for task in evaluation.TASKS[:7]]
    return {sentence for task in tasks for sentence in (*task.sentences1, *task.sentences2)}


def short_sentences(limit: int) -> list[str]:
    """Inference sentences, questions and captions in equal parts, 4 to 25 words, none of them in an STS test set."""
    unwanted = {sentence.lower() for sentence in test_sentences()}
    parts = []
    for name, columns in (
        ("nli/nli_triplets.tsv.gz", slice(1, 4)),
        ("paraphrase/quora_dup_train.tsv.gz", slice(0, 2)),
        ("paraphrase/multi30k_captions_train.tsv.gz", slice(0, 5)),
    ):
        found = {cell for row in table(name) for cell in row[columns]}
        kept = sorted(text for text in found if 4 <= len(text.split()) <= 25 and text.lower() not in unwanted)
        parts.append(random.Random(0).sample(kept, min(limit // 3, len(kept))))
    return [sentence for part in parts for sentence in part]


def table(name: str) -> list[list[str]]:
    """Read a tab-separated file below the data directory."""
    with gzip.open(folder() / name, "rt", encoding="utf-8", newline="") as file:
        return list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def folder() -> Path:
    if "SBERT_PLUGINS_DATA" not in os.environ:
        raise SystemExit("SBERT_PLUGINS_DATA must name the directory with encoders/, corpus/, sts/: see benchmarks/README.md.")
    return Path(os.environ["SBERT_PLUGINS_DATA"])
