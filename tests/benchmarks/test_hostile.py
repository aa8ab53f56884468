"""The quick half of the attacks, and whether an attack that succeeds is seen."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import hostile


@pytest.fixture(autouse=True)
def quiet_host():
    hostile.host_is_quiet()


@pytest.mark.slow
def test_no_quick_attack_ends_in_an_obscure_error_or_silently():
    found = hostile.run_all(quick=True)
    assert [entry for entry in found if entry["end"] not in ("right", "refused")] == []
    counts = hostile.by_area(found)
    assert len(counts) == len({attack.area for attack in hostile.CASES})
    assert sum(count["cases"] for count in counts.values()) == len(found) >= len(hostile.CASES) / 2


def test_names_are_told_apart():
    names = [(attack.area, attack.name) for attack in hostile.CASES]
    assert len(set(names)) == len(names)


def ends(error):
    def run(folder):
        if error is not None:
            raise error

    return run


@pytest.mark.parametrize(
    ("error", "says", "end"),
    [
        (None, (), "right"),
        (ValueError("temperature must be above 0, got 0."), ("temperature", "above 0"), "refused"),
        (ValueError("temperature is wrong."), ("temperature", "above 0"), "obscure"),
        (RuntimeError("temperature must be above 0"), ("temperature", "above 0"), "obscure"),
        (ValueError("temperature must be above 0"), (), "obscure"),
        (SystemExit(2), ("temperature",), "obscure"),
        (IndexError("index out of range"), (), "obscure"),
        (hostile.SilentError("it was read as 'False'"), (), "silent"),
        (hostile.SilentError("temperature above 0"), ("temperature",), "silent"),
        (None, ("temperature",), "silent"),
    ],
)
def test_how_a_case_ends(error, says, end, tmp_path):
    assert hostile.judge(hostile.Case("area", "name", ends(error), says), tmp_path)[0] == end


def test_a_defect_fails_the_quick_half(monkeypatch):
    monkeypatch.setattr(hostile, "CASES", [hostile.Case("area", "name", ends(KeyError("x")))])
    assert [entry["end"] for entry in hostile.run_all(quick=True)] == ["obscure"]
    assert hostile.by_area(hostile.run_all())["area"] == {"cases": 1, "right": 0, "refused": 0, "obscure": 1, "silent": 0}
