"""Train each method for two updates on the simulated device, in a process of its own: that device is the whole process's.

Writes one JSON file: for each method and precision its loss, where it waited in the second update, and what lay elsewhere.
"""

from __future__ import annotations

import json
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

import simulated_device
import torch
from methods import EVERY
from sentence_transformers import SentenceTransformer

from sbert_plugins import data, functional
from sbert_plugins.evaluation import LabelFreeEvaluator

warnings.filterwarnings("ignore", message=".* owns weights that checkpoints")


def steps(path: str, method: str, dtype: torch.dtype | None) -> dict[str, Any]:
    """Train two updates; return what the report has of them."""
    build, dataset = EVERY[method]
    torch.manual_seed(0)
    model = SentenceTransformer(path, device="cpu").to("sim")
    loss = build(model).train()
    rows = dataset(8)
    owned = dict(loss.named_parameters()) | dict(loss.named_buffers())
    optimizer = torch.optim.AdamW(loss.parameters(), lr=1e-4)
    for _ in range(2):
        columns = [model.preprocess(rows[column]) for column in rows.column_names]
        columns = [{key: x.to("sim") if isinstance(x, torch.Tensor) else x for key, x in column.items()} for column in columns]
        simulated_device.waits.clear()
        with torch.autocast("sim", dtype, enabled=dtype is not None):
            total = sum(loss(columns).values())
        total.backward()
        waits = list(simulated_device.waits)
        optimizer.step()
        optimizer.zero_grad()
    return {
        "loss": total.item(),
        "waits": waits,
        "elsewhere": [name for name, x in owned.items() if x.device.type != "sim"],
    }


def refused() -> list[str]:
    """Return what the device says of what no device does."""
    ours, said = torch.ones(3, device="sim"), []
    attempts = (lambda: ours + torch.ones(3), lambda: torch.stack([ours, torch.ones(3)]), ours.numpy, ours.double)
    for attempt in attempts:
        try:
            attempt()
        except (RuntimeError, TypeError) as error:  # NotImplementedError is one
            said.append(str(error))
    return said


def measured(device: str) -> dict[str, float]:
    """Return what is measured of vectors that lie on a device."""
    vectors = torch.randn(8, 4, generator=torch.Generator().manual_seed(0)).to(device)
    texts = list("abcdefgh")
    substitutions = [data.Substitution("a", "c", "d"), data.Substitution("b", "e", "f")]
    given = data.LabelFreeTexts(["a", "b"], substitutions, [("a", "g"), ("b", "h")])
    scores = LabelFreeEvaluator(given).compute(lambda chosen: vectors[[texts.index(text) for text in chosen]])
    pairs = functional.alignment(vectors[:4], vectors[4:]), functional.uniformity(vectors)
    return scores | {"alignment": pairs[0].item(), "uniformity": pairs[1].item()}


def main() -> None:
    path, output = sys.argv[1:]
    report: dict[str, Any] = {"refused": refused(), "measured": [measured(device) for device in ("cpu", "sim")]}
    for method in EVERY:
        for name, dtype in {"float32": None, "bfloat16": torch.bfloat16}.items():
            try:
                report[f"{method} {name}"] = steps(path, method, dtype)
            except Exception:
                report[f"{method} {name}"] = {"error": traceback.format_exc()}
    Path(output).write_text(json.dumps(report), encoding="utf-8")


if __name__ == "__main__":
    main()
