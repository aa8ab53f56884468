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
    tables = {
        "demo": demo,
        "real runs": real_runs,
        "hard length": hard_length,
        "sts check": sts_check,
        "mteb check": mteb_check,
        "one pass": one_pass,
        "speed": speed,
        "shared": shared,
        "kills": kills,
    }
    for name, render in tables.items():
        pattern = re.compile(f"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        try:
            table = render()
        except FileNotFoundError:  # not measured yet
            table = ""
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
        "MiniLM continued with masked language modelling, trained on the first sentences of a Wikipedia sample or on pairs "
        "that the command names. STS-B dev selects the checkpoint. One seed. The encoder descends from a supervised embedder: "
        "part of each gain is recovered knowledge.\n\n"
    )
    records = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("real_run_*.json"))]
    records.sort(key=lambda record: record["sts_after"]["avg7"])
    before = {record["settings"]["pooling"]: record["sts_before"] for record in records}
    rows = [
        [f"before training, {pooling} pooling", *(f"{scores[task]:.2f}" for task in TASKS), "", "", ""]
        for pooling, scores in sorted(before.items())
    ]
    notes = []
    for number, record in enumerate(records, start=1):
        keywords = [f"{key}={value}" for key, value in record.get("loss_keywords", {}).items()]
        name = " ".join([record["command"].split()[2], *keywords])
        pairs = ", pairs" if "--pairs" in record["command"] else ""
        optimizer = "AdamW with SAM" if record["settings"].get("sam_rho") else "AdamW"
        scores = [f"{record['sts_after'][task]:.2f}" for task in TASKS]
        counts = [record["text"].split()[-1], str(record["steps"]), f"{record['seconds'] / 60:.0f}"]
        rows.append([f"{name}{pairs}, {optimizer} [{number}]", *scores, *counts])
        notes.append(
            f"[{number}] `{record['command']}`, {record['hardware']}, {record['threads']} thread, commit {record['commit']}, "
            f"torch {record['versions']['torch']}, sentence-transformers {record['versions']['sentence-transformers']}\n"
        )
    return text + _table(["", *TASKS[:-1], "average", "sentences", "updates", "minutes"], rows) + "\n" + "\n".join(notes)


def hard_length() -> str:
    """PT-BERT's hard examples: runs of this method before and after, SimCSE from the quality cells on the same text."""
    records = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("real_run_pt-bert*.json"))]
    rivals = [
        json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("quality/*wiki*/simcse_seed0.json"))
    ]
    if not records:
        return ""
    hard = records[0]["hard_length"]
    scored = [("before training", hard["before"])]
    names = list(hard["before"])
    scored += [("SimCSE", {name: record["scores"][f"hard_length_{name}"] for name in names}) for record in rivals]
    scored += [(f"PT-BERT, {record['loss']['attend_to']}", record["hard_length"]["after"]) for record in records]
    rows = [[name, *(f"{scores[task]:.2f}" for task in names)] for name, scores in scored]
    return (
        f"{hard['pairs']:,} pairs of STS12 to STS16 whose length misleads: gold score {hard['positive']} and more than 5 "
        f"words apart, or {hard['negative']} and fewer than 2 apart.\n\n" + _table(["", *names], rows)
    )


def sts_check() -> str:
    record = _load("evaluation_check.json")
    names = [*TASKS, "all_SICK-R"]
    rows = [
        ["here", *(f"{record['scores'][task]:.2f}" for task in names)],
        ["expected", *(f"{record['expected'][task]:.2f}" for task in names)],
    ]
    return _table(["all-MiniLM-L6-v2", *TASKS[:-1], "average", "SICK-R, all 9,927 pairs"], rows)


def one_pass() -> str:
    record = _load("evaluation_speed.json")
    once, apart = record["one_pass"], record["one_by_one"]
    return (
        f"The offline suite encodes {once['sentences_encoded']:,} sentences in one pass, its evaluators one by one "
        f"{apart['sentences_encoded']:,}: {once['cpu_seconds'] / 60:.0f} minutes of CPU time instead of "
        f"{apart['cpu_seconds'] / 60:.0f} (all-MiniLM-L6-v2, {record['threads']} threads, {record['hardware']}).\n"
    )


def mteb_check() -> str:
    path = RESULTS / "mteb_check.json"
    if not path.exists():
        return ""
    record = _load(path.name)
    programs = ["mteb", "sentence-transformers", "sbert-plugins"]
    rows = [
        [name, *(f"{row[program]:.7f}" for program in programs), f"{record['largest_difference'][name]:.0e}"]
        for name, row in record["scores"].items()
    ]
    return _table(["all-MiniLM-L6-v2", *programs, "largest difference"], rows) + (
        f"\nSpearman for STS; mteb {record['mteb']} rounds the retrieval scores to five digits.\n"
    )


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


def shared() -> str:
    mixes = _load("shared_passes.json")["mixes"]
    times = " and ".join(f"{mix['shared_over_apart']:.2f} of the time ({name})" for name, mix in mixes.items())
    return f"Losses in a sum that share the passes of the encoder take {times} of losses that each make their own.\n"


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
