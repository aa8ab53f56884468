"""Train each method on the simulated device, and write a report as one JSON file.

It has for each method the losses and the waits of an update by precision, and which tensors are elsewhere.
The simulated device belongs to a whole process, so this is a script.
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


def train(path, method):
    """Make an update, and then one in each precision."""
    build, dataset = EVERY[method]
    model = SentenceTransformer(path, device="cpu")
    layers = model.transformers_model.encoder
    layers.layer = layers.layer[:1]  # each operation is slow here
    loss, rows, found = build(model.to("sim")).train(), dataset(8), {}
    owned = dict(loss.named_parameters()) | dict(loss.named_buffers())
    optimizer = torch.optim.SGD(loss.parameters(), lr=1e-4)
    for name in ("start", "float32", "bfloat16"):
        columns = [on_device(model.preprocess(rows[column][:])) for column in rows.column_names]
        simulated_device.waits.clear()
        with torch.autocast("sim", torch.bfloat16, enabled=name == "bfloat16"):
            total = sum(loss(columns).values())
        total.backward()
        waits = list(simulated_device.waits)
        found[name] = total.item(), waits
        optimizer.step()
        optimizer.zero_grad()
    return found | {"elsewhere": [name for name, tensor in owned.items() if tensor.device.type != "sim"]}


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
    try:
        report[method] = train(path, method)
    except Exception:
        report[method] = {"error": traceback.format_exc()}
Path(output).write_text(json.dumps(report), encoding="utf-8")
