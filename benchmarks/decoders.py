"""What decoders with layers read of sentence vectors, and how near PT-BERT's two attentions start to what is saved.

    python benchmarks/decoders.py

trains PaSeR's six layers and two of DenoSent's alone, ``encoders/minilm-mlm`` of the data directory (``SBERT_PLUGINS_DATA``)
frozen, on Wikipedia sentences, each seen once: what they get right they have read, not remembered. In every batch each
text is also given another one's vector, and the rise of the loss is the information that the decoder reads.
``benchmarks/results/decoders.json`` holds the means over a sixth of the updates each. For PT-BERT, before any training:
Spearman x 100 between the cosines of its vectors and of those that are saved, over all pairs of some sentences. And what
PaSeR's decoders write for the phrases of sentences that none was trained on.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from datasets import Dataset
from provenance import provenance, refuse_changes
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformerTrainingArguments
from transformers import set_seed

from sbert_plugins import data, losses, recipes, training
from sbert_plugins.encoder import Encoder
from sbert_plugins.recipes.output import write_json

RESULT = Path(__file__).parent / "results" / "decoders.json"
TEXT = "corpus/wiki_sentences_1m.parquet"
BATCH = 64
PASER = {"decoder_layers": 6, "token_weights": None}
DENOSENT = {"decoder_layers": 2, "token_weights": None, "contrastive_weight": 0, "mlm_head": "pretrained"}
DECODERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "PaSeR, eq. 2": (losses.PaSeRLoss, PASER | {"signed": False, "normalize_memory": False}),
    "PaSeR, eq. 2 with the sign": (losses.PaSeRLoss, PASER | {"signed": True, "normalize_memory": False}),
    "PaSeR, eq. 2, normalised": (losses.PaSeRLoss, PASER | {"signed": False, "normalize_memory": True}),
    "PaSeR, with the sign, normalised": (losses.PaSeRLoss, PASER | {"signed": True, "normalize_memory": True}),
    "DenoSent, two layers, its paper's noise": (losses.DenoSentLoss, DENOSENT),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--pooling", choices=("cls", "mean"), default="cls")
    parser.add_argument("--pairs-of", type=int, default=1000, help="sentences whose cosines are compared, for PT-BERT")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    refuse_changes()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    folder = Path(os.environ["SBERT_PLUGINS_DATA"])
    encoder = str(folder / "encoders" / "minilm-mlm")
    limit = 2 * BATCH * options.steps
    sentences = data.read_sentences(folder / TEXT, limit=limit + 20)
    curves, written = {}, {}
    for name in DECODERS:
        loss, curves[name] = trained(name, sentences.select(range(limit)), encoder, options)
        if isinstance(loss, losses.PaSeRLoss):
            written[name] = reconstructed(loss, sentences.select(range(limit, limit + 20)))
    record = {
        "settings": vars(options),
        "text": TEXT,
        "pt_bert": start_of_pt_bert(sentences[: options.pairs_of]["anchor"], encoder),
        "curves": curves,
        "written": written,
        **provenance(),
    }
    write_json(RESULT, record)


def trained(name: str, sentences: Dataset, encoder: str, options: argparse.Namespace) -> tuple[Any, list[dict[str, float]]]:
    """Train a decoder alone; every batch is measured before it is learnt from."""
    set_seed(options.seed)
    model = recipes.build_encoder(encoder, pooling=options.pooling, max_seq_length=32, device="cpu").requires_grad_(False)
    kind, keywords = DECODERS[name]
    term, rows = "denoising", sentences
    if kind is losses.PaSeRLoss:
        term = "generative"
        rows = data.paser_columns(sentences, mask_token=model.tokenizer.mask_token, top_k=1, synonyms=None, seed=options.seed)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch, mock.patch("sbert_plugins.modules.decoding.EVERY", 1):
        arguments = SentenceTransformerTrainingArguments(
            output_dir=scratch,
            max_steps=options.steps,
            per_device_train_batch_size=BATCH,
            learning_rate=options.learning_rate,
            warmup_steps=50,
            bf16=True,
            use_cpu=True,
            seed=options.seed,
            logging_steps=max(1, options.steps // 6),
            save_strategy="no",
            report_to="none",
        )
        loss = kind(model, **keywords)
        trainer = training.SentenceTransformerTrainer(model=model, args=arguments, train_dataset=rows, loss=loss)
        trainer.train()
    print(name, f"{time.perf_counter() - start:.0f} s", flush=True)
    keys = {"step": "step", "nats_a_token": term, "token_accuracy": "token_accuracy", "information": "information"}
    curve = [{key: entry[source] for key, source in keys.items()} for entry in trainer.state.log_history if term in entry]
    return loss, curve[1:] if curve[0]["step"] == 1 else curve


def reconstructed(loss: losses.PaSeRLoss, sentences: Dataset) -> list[dict[str, str]]:
    """Let a decoder write ten phrases. The phrases only: other people's sentences do not enter the record."""
    rows = data.paser_columns(sentences, mask_token=loss.model.tokenizer.mask_token, top_k=1, synonyms=None)[:10]
    written = loss.reconstruct(rows["anchor"], rows["masked"])
    return [{"phrase": phrase, "written": text} for phrase, text in zip(rows["phrase"], written, strict=True)]


@torch.no_grad()
def start_of_pt_bert(sentences: list[str], encoder: str) -> dict[str, dict[str, float]]:
    """Compare the cosines of what is trained with those of what is saved, by pooling and by what pseudo tokens attend to."""
    agreement: dict[str, dict[str, float]] = {}
    for pooling in ("mean", "cls"):
        model = recipes.build_encoder(encoder, pooling=pooling, max_seq_length=32, device="cpu").eval()
        features = model.preprocess(sentences)
        saved = cosines(model(dict(features))["sentence_embedding"])
        agreement[pooling] = {}
        for attend_to in ("tokens", "pooled"):
            set_seed(0)
            loss = losses.PTBERTLoss(model, attend_to=attend_to).eval()
            (seen,) = Encoder(model)([dict(features)], tokens=True)
            agreement[pooling][attend_to] = 100 * spearmanr(saved, cosines(loss.mapping(seen))).statistic
    return agreement


def cosines(vectors: torch.Tensor) -> torch.Tensor:
    vectors = torch.nn.functional.normalize(vectors.float(), dim=1)
    rows, columns = torch.triu_indices(len(vectors), len(vectors), offset=1)
    return (vectors @ vectors.T)[rows, columns]


if __name__ == "__main__":
    main()
