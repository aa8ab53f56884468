"""The memory that a training step takes, method by method, for an encoder of bert-base's size.

    python benchmarks/memory.py

Counted are weights, gradients and AdamW's two moments, and what the forward keeps for the backward pass, byte by byte: numbers
that no machine changes. What comes and goes within a layer's backward pass is not counted; one whole step in a process of its
own shows how much that is. The encoder is random, sentences are full, a third of them long. Writes
``benchmarks/results/memory.json``.
"""

from __future__ import annotations

import argparse
import resource
from collections.abc import Callable
from multiprocessing import get_context
from tempfile import TemporaryDirectory
from typing import Any

import torch
from provenance import ROOT, provenance, refuse_changes
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from speed import AS_PRINTED, STEPS, batch, kept_bytes, places_of
from torch import Tensor, nn
from tqdm import tqdm
from transformers import BertConfig, BertModel

from sbert_plugins import recipes
from sbert_plugins.recipes.output import write_json

METHODS = {
    "SimCSE": "SimCSE floor",
    **{name: name for name in ("ConSERT", "recommended", "bag of words", "ArcCSE", "PaSeR", f"PaSeR{AS_PRINTED}")},
    **{name: name for name in ("DenoSent", f"DenoSent{AS_PRINTED}", "PT-BERT", "SLT-FAI")},
}
# name: rows, tokens, bfloat16, layers run again in the backward pass
WAYS = {
    "64 x 32": (64, 32, False, False),
    "64 x 32, bf16": (64, 32, True, False),
    "64 x 32, bf16, checkpointing": (64, 32, True, True),
    "16 x 128, bf16": (16, 128, True, False),
}
WHOLE = "SimCSE", "64 x 32"  # the step that is run


def base_encoder(length: int, *, checkpointing: bool) -> SentenceTransformer:
    """A random encoder of bert-base's size with the vocabulary that most of them have."""
    tokenizer = recipes.offline_encoder(num_layers=1, device="cpu").tokenizer
    with TemporaryDirectory() as folder:
        BertModel(BertConfig(), add_pooling_layer=False).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        transformer = Transformer(folder, max_seq_length=length)
    if checkpointing:
        transformer.model.gradient_checkpointing_enable({"use_reentrant": False})
    pooling = Pooling(transformer.get_embedding_dimension(), "mean")
    return SentenceTransformer(modules=[transformer, pooling], device="cpu").train()


def measured(method: str, way: str) -> dict[str, int]:
    """Return the bytes of the weights (trained, and others) and what one forward keeps."""
    rows, length, half, checkpointing = WAYS[way]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = base_encoder(length, checkpointing=checkpointing)
    trained, loss = STEPS[METHODS[method]](model, batch(model, rows, length))
    cells = [cell.cell_contents for cell in loss.__closure__ or ()]
    modules = [model, *(cell for cell in cells if isinstance(cell, nn.Module))]
    tensors = {id(tensor): tensor for module in modules for tensor in (*module.parameters(), *module.buffers())}
    frozen = sum(tensor.nbytes for key, tensor in tensors.items() if key not in set(map(id, trained)))

    def forward() -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
            return loss()

    own = set().union(*map(places_of, modules))
    return {"trained": sum(tensor.nbytes for tensor in trained), "frozen": frozen, "kept": kept_bytes(forward, own)}


def whole_step(method: str, way: str) -> int:
    """Run a step with AdamW; return by how many bytes the process grew at most, from before there was an encoder."""
    rows, length, *_ = WAYS[way]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model = base_encoder(length, checkpointing=False)
    trained, loss = STEPS[METHODS[method]](model, batch(model, rows, length))
    optimizer = torch.optim.AdamW(trained, lr=1e-5, fused=True)
    for _ in range(2):  # the moments are there from the second on
        loss().backward()
        optimizer.step()
        optimizer.zero_grad()
    return 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)


def in_own_process(work: Callable[..., Any], *arguments: Any) -> Any:
    """Return what ``work`` returns; what it holds goes with its process."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=list(METHODS), choices=list(METHODS), help="the record stays as it is")
    options = parser.parse_args()
    is_whole = options.only == list(METHODS)
    if is_whole:
        refuse_changes()
    steps: dict[str, dict[str, Any]] = {}
    for method, way in tqdm([(method, way) for method in options.only for way in WAYS], desc="steps"):
        steps.setdefault(method, {})[way] = in_own_process(measured, method, way)
    for method, ways in steps.items():
        print(f"{method:24}", *(f"{way}: {found['kept'] / 2**30:.2f} GiB kept" for way, found in ways.items()), sep="  ")
    if is_whole:
        run = {"of": list(WHOLE), "bytes": in_own_process(whole_step, *WHOLE)}
        write_json(ROOT / "benchmarks" / "results" / "memory.json", {"steps": steps, "whole_step": run, **provenance()})


if __name__ == "__main__":
    main()
