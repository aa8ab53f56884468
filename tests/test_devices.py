"""Every method on another device than the CPU: no devices are mixed, and a step seldom waits."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from methods import EVERY

# How often at most the losses of a step wait for the device, because the CPU must know a number of rows.
WAITS = dict.fromkeys(EVERY, 2) | {"arccse": 1, "consert": 0, "self-distillation": 0, "pt-bert": 0}
WAITS |= {"official pt-bert": 0, "slt-fai consert": 0, "slt-fai": 1, "official slt-fai": 1}
# The encoder's own forwards wait, too: transformers checks in each whether there is padding.
_FORWARDS = ("encode.py: output = model(features)", "self_distillation.py: return teacher(")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not hasattr(torch.utils.backend_registration, "_setup_privateuseone_for_python_backend"),
        reason="this torch has no devices that are written in Python",
    ),
]


@pytest.fixture(scope="module")
def report(encoder_path, once):
    """The report of ``steps_on_device.py``, in a process of its own."""

    def make(folder):
        script = Path(__file__).with_name("steps_on_device.py")
        command = [sys.executable, str(script), encoder_path, str(folder / "report.json")]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr

    return json.loads((once("devices", make) / "report.json").read_text(encoding="utf-8"))


def test_the_device_keeps_the_rules(report):
    for word, error in zip(("two devices", "numpy", "float64"), report["errors"], strict=True):
        assert word in error
    on_cpu, on_device = report["measured"]
    assert on_device == pytest.approx(on_cpu)


@pytest.mark.parametrize("method", EVERY)
def test_a_step(method, report):
    found = report[method]
    assert "error" not in found, found["error"]
    assert found["elsewhere"] == []
    for value, waits in (found["float32"], found["bfloat16"]):
        own = [line for line in waits if not line.startswith(_FORWARDS)]
        assert math.isfinite(value) and len(own) <= WAITS[method], own
