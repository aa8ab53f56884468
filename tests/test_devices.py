"""Every method on a device that is not the CPU: tensors of two devices never meet, and a step seldom waits for it."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from methods import EVERY

# How often a step waits for its device, for a number of rows that the CPU has to know before it can go on. The encoder's own
# forwards, which look each time whether anything is padding, are the host's.
WAITS = dict.fromkeys(EVERY, 2) | {"arccse": 1, "pt-bert": 0, "official pt-bert": 0, "slt-fai consert": 0}
WAITS |= {"consert": 0, "self-distillation": 1}  # the teacher's own forward
WAITS |= dict.fromkeys(["slt-fai", "official slt-fai"], 1)  # in the warm-up alone

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not hasattr(torch.utils.backend_registration, "_setup_privateuseone_for_python_backend"),
        reason="this torch has no devices that are written in Python",
    ),
]


@pytest.fixture(scope="module")
def report(encoder_path, once):
    """What the methods do on ``simulated_device``, in a process of its own."""

    def make(folder):
        script = Path(__file__).with_name("steps_on_device.py")
        command = [sys.executable, str(script), encoder_path, str(folder / "report.json")]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr

    return json.loads((once("devices", make) / "report.json").read_text(encoding="utf-8"))


def test_the_device_keeps_the_rules(report):
    *mixed, numpy, double = report["refused"]
    assert len(mixed) == 2 and all("tensors of two devices" in said for said in mixed)
    assert "numpy" in numpy
    assert "float64" in double


def test_measures_are_those_of_the_cpu(report):
    """Apple's GPUs have neither float64 nor pdist."""
    on_cpu, on_device = report["measured"]
    assert on_device == pytest.approx(on_cpu)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("method", EVERY)
def test_a_step(method, dtype, report):
    found = report[f"{method} {dtype}"]
    assert "error" not in found, found["error"]
    assert math.isfinite(found["loss"])
    assert found["elsewhere"] == []
    waits = [line for line in found["waits"] if not line.startswith("encode.py: output = model(features)")]
    assert len(waits) == WAITS[method], waits
