"""Count the memory of a training step of each method, for an encoder of bert-base's size.

    python benchmarks/memory.py

Counted are the bytes of weights, gradients and AdamW's moments, and those that the forward pass keeps for the
backward pass. They do not depend on the machine. What lives only within the backward pass is not counted.
Writes ``results/memory.jsonl``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from multiprocessing import get_context
from tempfile import TemporaryDirectory
from typing import Any

import records
import speed
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from sbert_plugins import recipes

# Rows, tokens, bfloat16, activation checkpointing.
WAYS = {
    "64 x 32": (64, 32, False, False),
    "64 x 32, bf16": (64, 32, True, False),
    "64 x 32, bf16, checkpointing": (64, 32, True, True),
    "16 x 128, bf16": (16, 128, True, False),
}


def base_encoder(length: int, *, checkpointing: bool) -> SentenceTransformer:
    """Return a random encoder of bert-base's size with the vocabulary of bert-base-uncased."""
    with TemporaryDirectory() as folder:
        BertModel(BertConfig(), add_pooling_layer=False).save_pretrained(folder)
        recipes.offline_encoder(num_layers=1, device="cpu").tokenizer.save_pretrained(folder)
        transformer = Transformer(folder, max_seq_length=length)
    if checkpointing:
        transformer.model.gradient_checkpointing_enable({"use_reentrant": False})
    return SentenceTransformer(modules=[transformer, Pooling(768, "mean")], device="cpu").train()


def count(method: str, way: str) -> dict[str, int]:
    """Return the bytes of trained and frozen weights, and what one forward pass keeps."""
    rows, length, half, checkpointing = WAYS[way]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = base_encoder(length, checkpointing=checkpointing)
    columns = speed.make_columns(model, method, rows, length)
    loss = speed.METHODS[method](model).train()
    loss.state_is_kept = True
    weights = [*loss.parameters(), *loss.buffers()]
    trained = sum(weight.nbytes for weight in weights if weight.requires_grad)

    def forward() -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
            return sum(loss(columns).values())

    kept = kept_bytes(forward, loss)
    return {"trained": trained, "frozen": sum(weight.nbytes for weight in weights) - trained, "kept": kept}


def kept_bytes(forward: Callable[[], Tensor], loss: nn.Module) -> int:
    """Return the bytes of all storages that a forward pass keeps for its backward pass, except weights."""
    own = {weight.untyped_storage().data_ptr() for weight in (*loss.parameters(), *loss.buffers())}
    kept: dict[int, Any] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept.setdefault(storage.data_ptr(), storage)  # a reference, so that its address is not used again
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        forward()
    return sum(storage.nbytes() for address, storage in kept.items() if address not in own)


def main() -> None:
    """Count the methods that are asked for, each in a process of its own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", choices=list(speed.METHODS), default=list(speed.METHODS), metavar="METHOD"
    )
    records.require_clean_tree()
    for method in parser.parse_args().only:
        line: dict[str, Any] = {"method": method}
        for way in WAYS:
            with get_context("spawn").Pool(1) as pool:
                line[way] = pool.apply(count, (method, way))
            print(f"{method:36} {way:30} {line[way]['kept'] / 2**30:.2f} GiB kept", flush=True)
        records.replace("memory", line, key="method")


if __name__ == "__main__":
    main()
