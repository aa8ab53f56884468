"""Train each method for two updates on the simulated device, and write a report as one JSON file.

It has for each method and precision the loss, where the second update waited, and which tensors are
elsewhere. The simulated device belongs to a whole process, so this is a script.
"""

import json
import sys
import traceback
import warnings
from pathlib import Path

import simulated_device
import torch
from methods import EVERY
from sentence_transformers import SentenceTransformer

from sbert_plugins import functional
from sbert_plugins.modules import decoding

warnings.filterwarnings("ignore", message=".* owns weights")
decoding.PROBE_EVERY = 2**32  # a probe, on one batch in 50, also waits for the device


def on_device(features):
    return {
        key: value.to("sim") if isinstance(value, torch.Tensor) else value for key, value in features.items()
    }


def train(path, method, dtype):
    build, dataset = EVERY[method]
    model = SentenceTransformer(path, device="cpu").to("sim")
    loss, rows = build(model).train(), dataset(8)
    owned = dict(loss.named_parameters()) | dict(loss.named_buffers())
    optimizer = torch.optim.AdamW(loss.parameters(), lr=1e-4)
    for _ in range(2):
        columns = [on_device(model.preprocess(rows[column][:])) for column in rows.column_names]
        simulated_device.waits.clear()
        with torch.autocast("sim", dtype, enabled=dtype is not None):
            total = sum(loss(columns).values())
        total.backward()
        waits = list(simulated_device.waits)
        optimizer.step()
    elsewhere = [name for name, tensor in owned.items() if tensor.device.type != "sim"]
    return {"loss": total.item(), "waits": waits, "elsewhere": elsewhere}


def message_of(action):
    try:
        action()
    except (RuntimeError, TypeError) as error:  # NotImplementedError is a RuntimeError
        return str(error)


def measure(vectors):
    return functional.alignment(vectors[:4], vectors[4:]).item(), functional.uniformity(vectors).item()


path, output = sys.argv[1:]
ours, vectors = torch.ones(3, device="sim"), torch.randn(8, 4)
report = {
    "errors": [message_of(action) for action in (lambda: ours + torch.ones(3), ours.numpy, ours.double)],
    "measured": [measure(vectors), measure(vectors.to("sim"))],
}
for method in EVERY:
    for name, dtype in {"float32": None, "bfloat16": torch.bfloat16}.items():
        try:
            report[f"{method} {name}"] = train(path, method, dtype)
        except Exception:
            report[f"{method} {name}"] = {"error": traceback.format_exc()}
Path(output).write_text(json.dumps(report), encoding="utf-8")
