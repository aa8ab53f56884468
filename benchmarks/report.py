"""Write the tables of README.md from the json in ``benchmarks/results``: no number is typed by hand.

    python benchmarks/report.py

A table stands between ``<!-- name -->`` and ``<!-- /name -->``; ``tests/test_readme.py`` fails where it is not what the
json says.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"
TASKS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R", "avg7")


def main() -> None:
    readme = ROOT / "README.md"
    readme.write_text(filled(readme.read_text(encoding="utf-8")), encoding="utf-8")


def filled(text: str) -> str:
    """Return the page with every table between its marks made anew."""
    for name, render in {"demo": demo, "real runs": real_runs, "sts check": sts_check, "speed": speed, "kills": kills}.items():
        pattern = re.compile(f"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        table = render()
        text = pattern.sub(lambda match, table=table: match[1] + table + match[2], text)
    return text


def demo() -> str:
    record = _load("demo.json")
    rows = [[name, f"{score:.2f}", f"{record['after'][name]:.2f}"] for name, score in record["before"].items()]
    return (
        _table(["Spearman x 100", "before", "after"], rows)
        + f"\n{record['steps']} updates in {record['seconds']:.0f} s on {record['hardware']}, {record['threads']} threads.\n"
    )


def real_runs() -> str:
    text = (
        "MiniLM continued with masked language modelling, mean pooling or what the command says, trained on the first "
        "20,000 sentences of a Wikipedia sample, or on what the command says; STS-B dev selects the checkpoint. One seed. The "
        "encoder descends from a supervised embedder: part of each gain is recovered knowledge.\n\n"
    )
    records = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("real_run_*.json"))]
    before = {record["settings"]["pooling"]: record["sts_before"] for record in reversed(records)}
    rows = [
        [f"before training, {pooling}", *(f"{scores[task]:.2f}" for task in TASKS), "", ""]
        for pooling, scores in before.items()
    ]
    notes = []
    for number, record in enumerate(sorted(records, key=lambda record: record["sts_after"]["avg7"]), start=1):
        name = record["command"].split()[2]
        optimizer = "AdamW with SAM" if record["settings"].get("sam_rho") else "AdamW"
        scores = [f"{record['sts_after'][task]:.2f}" for task in TASKS]
        rows.append([f"{name}, {optimizer} [{number}]", *scores, str(record["steps"]), f"{record['seconds'] / 60:.0f}"])
        notes.append(
            f"[{number}] `{record['command']}`, {record['hardware']}, {record['threads']} thread, commit {record['commit']}, "
            f"torch {record['versions']['torch']}, sentence-transformers {record['versions']['sentence-transformers']}\n"
        )
    return text + _table(["", *TASKS[:-1], "average", "updates", "minutes"], rows) + "\n" + "\n".join(notes)


def sts_check() -> str:
    record = _load("sts_check.json")
    names = [*TASKS, "SICK-R all"]
    rows = [
        ["here", *(f"{record['scores'][task]:.2f}" for task in names)],
        ["expected", *(f"{record['expected'][task]:.2f}" for task in names)],
    ]
    heading = ["all-MiniLM-L6-v2", *TASKS[:-1], "average", "SICK-R, all 9,927 pairs"]
    seconds = (
        f"\nThe seven tasks took {record['seven_tasks_seconds']:.0f} s on {record['hardware']}, {record['threads']} threads.\n"
    )
    return _table(heading, rows) + seconds


def speed() -> str:
    record = _load("speed.json")
    rows = [
        [name, f"{multiple:.2f}", f"{record['target'][name]:.2f}" if name in record["target"] else ""]
        for name, multiple in record["multiple_of_simcse_floor"].items()
        if "floor" not in name
    ]
    return (
        _table(["training step", "multiple of SimCSE's", "aim"], rows)
        + f"\nMedians over {record['rounds']} rounds in turns; batch 64, length 32, 6 x 384, a third of the sentences long; "
        f"{record['hardware']}, {record['threads']} thread.\n" + _denosent_decoder(record)
    )


def _denosent_decoder(record: dict) -> str:
    here, torchs = (record["denosent_decoder"][name] for name in ("here", "torch.nn.TransformerDecoder"))
    share = here["median_seconds"] / torchs["median_seconds"]
    return (
        f"\nDenoSent's sixteen decoder layers, forward and backward: {share:.2f} of the time of "
        f"`torch.nn.TransformerDecoder`, {here['activations_mib']:.0f} MiB kept for the backward pass in place of "
        f"{torchs['activations_mib']:.0f}, {here['parameters'] / 1e6:.1f} million weights in place of "
        f"{torchs['parameters'] / 1e6:.1f}.\n"
    )


def kills() -> str:
    record = _load("kill_runs.json")
    torn = record["kills_that_left_a_torn_checkpoint"]
    return (
        f"A training that was killed at {record['kills']} random moments, {torn} of them "
        "inside the write of a checkpoint, always resumed from a whole one and ended "
        f"{record['difference_to_an_uninterrupted_run']} away from an uninterrupted one.\n"
    )


def _load(name: str) -> dict:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def _table(heading: list[str], rows: list[list[str]]) -> str:
    lines = [heading, ["---"] * len(heading), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


if __name__ == "__main__":
    main()
