"""The encoders and texts of the benchmarks, by name. They are in the folder ``SBERT_PLUGINS_DATA``."""

import copy
import csv
import gzip
import os
import random
import re
from pathlib import Path

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from sbert_plugins import data, evaluation, recipes
from sbert_plugins.evaluation.retrieval import read_collection


def quora(split: str = "dev") -> evaluation.RetrievalEvaluator:
    """Return the retrieval of duplicates of a question: 1,000 queries (dev) or 5,000 (test) of Quora.

    The pairs were split by clusters of duplicates for this project, so the scores are not those of papers.
    """
    place = folder() / "rerank" / "quora_dup"
    files = (place / f"{split}_{part}" for part in ("queries.tsv", "corpus.tsv.gz", "qrels.tsv"))
    return evaluation.RetrievalEvaluator(*read_collection(*files), name=f"quora_{split}")


def cranfield() -> evaluation.RetrievalEvaluator:
    """Return Cranfield: 225 queries, 1,400 abstracts from aeronautics with their titles."""
    return evaluation.own_retrieval(folder() / "rerank" / "cranfield")


def agnews() -> evaluation.TopicsEvaluator:
    """Return 8,000 news articles in 4 topics: AG News, stop words removed."""
    return evaluation.own_topics(folder() / "clustering" / "agnews_8000.tsv.gz", name="agnews")


def biomedical() -> evaluation.TopicsEvaluator:
    """Return 20,000 titles of biomedical papers in 20 topics."""
    return evaluation.own_topics(folder() / "clustering" / "biomedical_titles.tsv.gz", name="biomedical")


COLLECTIONS = {"quora": quora, "cranfield": cranfield, "agnews": agnews, "biomedical": biomedical}


def encoder(name: str, *, pooling: str = "mean", max_seq_length: int = 32) -> SentenceTransformer:
    """Build ``minilm-mlm`` (a language model) or ``all-minilm`` (all-MiniLM-L6-v2), or load a path."""
    if name == "all-minilm":
        model = recipes.offline_encoder(num_layers=6, max_seq_length=max_seq_length)
        del model[2]  # Normalize: ours read the vectors before it, TSDAE and the map of PCA do not
        return model
    path = str(folder() / "encoders" / name) if name == "minilm-mlm" else name
    return recipes.build_encoder(path, pooling=pooling, max_seq_length=max_seq_length)


class Float32(nn.Module):
    """Casts the embeddings, which the evaluators read in float32."""

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """Cast the sentence embeddings."""
        features["sentence_embedding"] = features["sentence_embedding"].float()
        return features


def in_bfloat16(model: SentenceTransformer) -> SentenceTransformer:
    """Return a copy that embeds in bfloat16, which is several times faster on recent processors."""
    modules = [*copy.deepcopy(model).to(torch.bfloat16), Float32()]
    fast = SentenceTransformer(modules=modules, device=str(model.device))
    fast.max_seq_length = model.max_seq_length
    return fast


def text(name: str, limit: int = 20_000) -> Dataset:
    """Return a text with the column ``anchor``.

    Args:
        name: ``short`` (inference sentences, questions, captions), ``wiki`` (Wikipedia sentences), a key of
            ``COLLECTIONS`` (its texts without labels, documents as sentences), ``cranfield-crops`` (pairs of
            neighbouring sentences of its documents), or a file.
        limit: Most sentences.
    """
    if name == "short":
        return Dataset.from_dict({"anchor": short_sentences(limit)})
    if name == "wiki":
        return data.read_sentences(folder() / "corpus" / "wiki_sentences_1m.parquet", limit=limit)
    if name == "cranfield-crops":
        corpus = cranfield().corpus
        return data.crop_pairs(corpus, split=split_sentences)  # they are in lower case, with " . " between
    if name in COLLECTIONS:
        collection = COLLECTIONS[name]()
        texts = sorted(set(getattr(collection, "corpus", None) or collection.sentences))
        parts = [part for one in texts for part in split_sentences(one)]
        return Dataset.from_dict({"anchor": [part for part in parts if len(part.split()) >= 4]})
    return data.read_sentences(name, limit=limit)


def split_sentences(text: str) -> list[str]:
    """Split a text after each full stop, question mark and exclamation mark."""
    return re.split(r"(?<=[.?!]) +", text)


def short_sentences(limit: int) -> list[str]:
    """Return inference sentences, questions and captions in equal parts, 4 to 25 words each.

    Sentences of the STS test sets are left out.
    """
    tasks = [evaluation.load_sts(task) for task in evaluation.TASKS]
    unwanted = {sentence.lower() for task in tasks for side in task[:2] for sentence in side}
    sentences = []
    for name, columns in (
        ("nli/nli_triplets.tsv.gz", slice(1, 4)),
        ("paraphrase/quora_dup_train.tsv.gz", slice(0, 2)),
        ("paraphrase/multi30k_captions_train.tsv.gz", slice(0, 5)),
    ):
        with gzip.open(folder() / name, "rt", encoding="utf-8", newline="") as file:
            rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            found = {cell for row in rows for cell in row[columns]}
        kept = sorted(one for one in found if 4 <= len(one.split()) <= 25 and one.lower() not in unwanted)
        sentences += random.Random(0).sample(kept, min(limit // 3, len(kept)))
    return sentences


def folder() -> Path:
    """Return the data folder."""
    return Path(os.environ["SBERT_PLUGINS_DATA"])
