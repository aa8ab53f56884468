"""Write the tables of README.md and the documentation from the records, and draw ``results/quality.png``.

    python benchmarks/tables.py

A table stands between ``<!-- NAME -->`` and ``<!-- /NAME -->``. A test fails if a page differs from its
records.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import records
from records import ROOT

Cell = dict[str, Any]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs").glob("[gm]*/*.md")),
]
# What all cells of the main tables share. STS-B dev selects the checkpoint.
SETTINGS = {"encoder": "minilm-mlm", "pooling": "mean", "max_seq_length": 32}
TRAINING = {"learning_rate": 5e-5, "batch_size": 64}
BUDGETS = {
    "60 updates": ("short", 60),
    "400 updates": ("short", 400),
    "2,000 updates": ("short", 2000),
    "Wikipedia, 60": ("wiki", 60),
    "Wikipedia, 400": ("wiki", 400),
}
RECOMMENDED = "ConSERT with head + bag of words"
PAPERS = ("ArcCSE", "PT-BERT", "PaSeR", "DenoSent", "SLT-FAI")
UNTRAINED = ("start", "start, [CLS], whitened", "SIF of word embeddings", "TF-IDF of characters")
METHODS = (
    *(
        "SimCSE 0.05",
        "SimCSE 0.1",
        "ConSERT",
        "ConSERT with head",
        RECOMMENDED,
        "SimCSE 0.1 + bag of words",
        "bag of words",
    ),
    *(
        *PAPERS,
        "PaSeR, eq. 2 as printed",
        "PaSeR, words only",
        "SLT-FAI, bounded",
        "Contrastive Tension 0.05",
        "TSDAE",
    ),
)
# The rows on the page of a method.
ROWS = {
    "recommended": [RECOMMENDED, "ConSERT with head", "ConSERT with head + bag of words, own pass"],
    "consert": ["ConSERT", "ConSERT with head"],
    "bag-of-words": ["bag of words", "bag of words, pretrained head"],
    "arccse": ["ArcCSE", "ArcCSE, temperature 0.1", "SimCSE 0.05 with head", "SimCSE 0.1 with head"],
    "paser": ["PaSeR", "PaSeR, eq. 2 as printed", "PaSeR, words only", "SimCSE 0.1 + PaSeR, words only"],
    "denosent": ["DenoSent", "SimCSE 0.1 + bag of words", "SimCSE 0.1 + bag of words, pretrained head"],
    "pt-bert": ["PT-BERT", "PT-BERT, momentum 0.5", "PT-BERT, temperature 0.1"],
    "slt-fai": ["SLT-FAI", "SLT-FAI, bounded", "SLT-FAI around ConSERT, bounded"],
}
TASKS = {
    "STS-B dev": "stsb_dev",
    "SICK-R": "SICK-R",
    "misleading lengths": "hard_length",
    "Quora, MAP": "quora_map",
    "news, purity": "agnews_purity",
    "titles, purity": "biomedical_purity",
    "alignment": "alignment",
    "uniformity": "uniformity",
}
# Score in the adaptation record, and the text that the model was trained on (None: all texts).
KNOWN_SCORES = {
    "graded sentence pairs: seven STS tasks": ("sts", None),
    "duplicate questions on Quora: MAP": ("quora_map", "quora"),
    "search in abstracts of Cranfield: nDCG@10": ("cranfield_ndcg", "cranfield"),
    "paper titles: nearest texts of the same topic": ("biomedical_purity", "biomedical"),
    "news: nearest texts of the same topic": ("agnews_purity", "agnews"),
}
DEMO_SCORES = {
    "graded_pairs": "graded sentence pairs of the package",
    "stsb_dev": "graded sentence pairs of STS-B",
    "agnews_purity": "news: nearest texts of the same topic",
    "biomedical_purity": "paper titles: nearest texts of the same topic",
}
UNITS = (
    "Higher is better. Sentence pairs: rank correlation (Spearman) of similarities and human grades, times "
    "100. Topics: percentage of the ten nearest texts that have the same topic."
)
TEXTS = {"agnews": "AG News", "biomedical": "biomedical titles", "cranfield": "Cranfield", "quora": "Quora"}
TEXTS |= {
    "cranfield-crops": "Cranfield, neighbouring sentences",
    "short": "short sentences",
    "wiki": "Wikipedia",
}


def main() -> None:
    """Write all tables and the plot."""
    for page in PAGES:
        page.write_text(fill(page.read_text("utf-8")), encoding="utf-8")
    draw_curves()


def fill(text: str) -> str:
    """Return a page with its tables made anew."""
    for name, make in TABLES.items():
        if f"<!-- {name} -->" in text:
            pattern = re.compile(f"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
            made = make()
            text = pattern.sub(lambda match, made=made: match[1] + made + match[2], text)
    return text


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [heading, ["---"] * len(heading), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


@cache
def quality() -> list[Cell]:
    """Return the cells of the main encoder and settings."""
    return [
        cell for cell in records.read("quality") if SETTINGS.items() <= cell.items() and "trained" not in cell
    ]


def find(method: str, text: str, updates: int, key: str = "avg7", **training: Any) -> list[Cell]:
    """Return the cells of a method that have a score, one per seed: of CPUs if there are any, else of GPUs.

    Encoders without training have one cell, whatever the text.
    """
    wanted = {"method": method, "text": text, "updates": updates, **TRAINING, **training}
    if method in UNTRAINED:
        wanted = {"method": method}
    cells = [cell for cell in quality() if wanted.items() <= cell.items() and key in cell["scores"]]
    return [cell for cell in cells if "NVIDIA" not in cell["hardware"]] or cells


def mean_text(values: Sequence[float], digits: int = 2, usual: int = 5) -> str:
    """Return mean and standard deviation, and the number of seeds unless it is the usual one."""
    if not values:
        return ""
    deviation = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    seeds = f" ({len(values)})" if len(values) not in (1, usual) or (len(values) == 1 and usual > 1) else ""
    return f"{np.mean(values):.{digits}f}{deviation}{seeds}"


def score_text(cells: list[Cell], key: str = "avg7", digits: int = 2) -> str:
    """Return the mean of a score, with † for cells made on a GPU."""
    usual = 1 if cells and "updates" not in cells[0] else 5
    mark = " †" if cells and all("NVIDIA" in cell["hardware"] for cell in cells) else ""
    return mean_text([cell["scores"][key] for cell in cells], digits, usual) + mark


def method_rows(methods: Sequence[str]) -> str:
    """Return the averages of the seven STS tasks of some methods, at all budgets."""
    rows = []
    for method in methods:
        budgets = list(BUDGETS.values())[: 1 if method in UNTRAINED else None]
        cells = [find(method, *budget) for budget in budgets] + [[]] * (len(BUDGETS) - len(budgets))
        below = [max(dev for _, dev in cell["curve"]) - cell["curve"][-1][1] for cell in cells[1]]
        rows.append([method, *map(score_text, cells), f"{np.mean(below):.1f}" if below else ""])
    rows.sort(key=lambda row: float((row[1] or row[2] or "0").split()[0]), reverse=True)
    return table(["", *BUDGETS, "end below best, 400"], [row for row in rows if any(row[1:])])


def methods() -> str:
    """The methods at equal updates."""
    faster = (
        find(RECOMMENDED, "short", 60, learning_rate=2e-4),
        find(RECOMMENDED, "wiki", 60, learning_rate=2e-4),
    )
    scores = f"{score_text(faster[0])}; Wikipedia {score_text(faster[1])}"
    note = f"\n{RECOMMENDED} at a learning rate of 2e-4, 60 updates: {scores}.\n"
    return method_rows([*UNTRAINED, *METHODS]) + note


def of_method(name: str) -> str:
    """The rows on the page of a method, by the name of its recipe."""
    return method_rows(["start", *dict.fromkeys(["SimCSE 0.05", "SimCSE 0.1", *ROWS[name]])])


def tasks() -> str:
    """Scores by kind of task after 60 updates."""
    rows = []
    for method in (*UNTRAINED, *METHODS):
        if find(method, "short", 60, "stsb_dev"):
            row = [method]
            for key in TASKS.values():
                values = [cell["scores"][key] for cell in find(method, "short", 60, key)]
                digits = 2 if key in ("alignment", "uniformity") else 1
                row.append(f"{np.mean(values):.{digits}f}" if values else "")
            rows.append(row)
    return table(["", *TASKS], sorted(rows, key=lambda row: float(row[1]), reverse=True))


def known_changes() -> list[tuple[str, float, dict[str, tuple[float, float]]]]:
    """Return the scores of all-MiniLM-L6-v2: title, start, and mean and standard error by method.

    A model is scored on the collection that it was trained on. STS is averaged over all texts.
    """
    cells = records.read("adaptation")
    if not cells:
        return []
    (start,) = [cell["scores"] for cell in cells if cell["row"] == "start"]
    changes = []
    for title, (key, text) in KNOWN_SCORES.items():
        scores: dict[str, dict[int, list[float]]] = {"SimCSE": {}, "recommended": {}}
        for cell in cells:
            if cell["row"] in scores and text in (None, cell["text"]):
                scores[cell["row"]].setdefault(cell["seed"], []).append(cell["scores"][key])
        seeds = {row: [np.mean(values) for values in by_seed.values()] for row, by_seed in scores.items()}
        means = {
            row: (float(np.mean(each)), float(np.std(each, ddof=1) / len(each) ** 0.5))
            for row, each in seeds.items()
        }
        changes.append((title, start[key], means))
    return changes


def known_model() -> str:
    """The first table of the README."""
    changes = known_changes()
    if not changes:
        return ""
    rows = [
        [title, f"{before:.1f}", *(f"{mean:.1f} ± {error:.1f}" for mean, error in means.values())]
        for title, before, means in changes
    ]
    heading = ["score", "all-MiniLM-L6-v2", *(f"after `{row.lower()}`" for row in changes[0][2])]
    return table(heading, rows) + (
        "\nall-MiniLM-L6-v2 was adapted to the text of each collection, without labels, in a few minutes. "
        f"{UNITS} MAP and nDCG measure how high the right texts are ranked. ± is the standard error over the "
        "seeds. SimCSE is the usual baseline.\n"
    )


def lengths() -> str:
    """STS-B dev at the end of a training, and how far that is below its best."""
    rows = []
    for method in (
        "SimCSE 0.05",
        "SimCSE 0.1",
        "ConSERT",
        RECOMMENDED,
        "bag of words",
        *PAPERS,
        "PaSeR, words only",
    ):
        row = []
        for budget in BUDGETS.values():
            curves = [[dev for _, dev in cell["curve"]] for cell in find(method, *budget)]
            below = np.mean([max(curve) - curve[-1] for curve in curves]) if curves else 0
            sunk = f", {below:.1f} below" if below >= 0.05 else ""
            row.append(f"{np.mean([curve[-1] for curve in curves]):.1f}{sunk}" if curves else "")
        rows.append([method, *row])
    return table(["", *BUDGETS], [row for row in rows if any(row[1:])])


def mean_rows(name: str, by: Sequence[str]) -> str:
    """Return the mean scores of a record, with a row for each combination of the fields ``by``."""
    groups: dict[tuple[str, ...], list[Cell]] = {}
    for line in records.read(name):
        groups.setdefault(tuple(str(line.get(field, "")) for field in by), []).append(line)
    if not groups:
        return "No records yet.\n"
    keys = list(next(iter(groups.values()))[0]["scores"])
    rows = [
        [
            *group,
            str(len(cells)),
            *(mean_text([cell["scores"][key] for cell in cells], 1, len(cells)) for key in keys),
        ]
        for group, cells in groups.items()
    ]
    return table([*by, "seeds", *keys], rows)


def cost() -> str:
    """Operations, time and memory of a training step."""
    memory = {line["method"]: line for line in records.read("memory")}
    ways = [way for way in memory["SimCSE"] if " x " in way]
    rows, lines = [], records.read("speed")
    for line in lines:
        held = memory[line["method"]]
        weights = (4 * held[ways[0]]["trained"] + held[ways[0]]["frozen"]) / 2**30
        kept = [f"{held[way]['kept'] / 2**30:.1f}" for way in ways]
        rows.append(
            [
                line["method"],
                f"{line['flops_ratio']:.2f}",
                f"{line['seconds_ratio']:.2f}",
                f"{weights:.1f}",
                *kept,
            ]
        )
    heading = ["", "operations", "time", "GiB: weights, gradients, AdamW", *(f"kept: {way}" for way in ways)]
    return (
        table(heading, rows) + f"\nTime: {lines[0]['rounds']} rounds, {lines[0]['hardware']}, one thread.\n"
    )


def fidelity() -> str:
    """Values and gradients of ``losses.official`` and of the authors' code."""
    rows, notes = [], []
    for line in records.read("fidelity"):
        for name, term in line["terms"].items():
            cosines = (f"{1 - term[f'cosine_{place}']:.0e}" for place in ("words", "last"))
            rows.append(
                [line["method"], name, f"{term['official'][0]:.2f}", f"{term['difference']:.0e}", *cosines]
            )
        reasons = "; ".join(
            f"{what}: {why}" for what, why in line["cannot_agree"].items() if what != "dropout"
        )
        notes.append(
            f"- {line['method']}, commit {line['official_commit'][:12]}. {reasons[0].upper()}{reasons[1:]}.\n"
        )
    heading = ["", "term", "value", "difference", "1 - cosine, word embeddings", "1 - cosine, last layer"]
    return table(heading, rows) + "\nWhat differs on purpose:\n\n" + "".join(notes)


def families() -> str:
    """The families of encoders that every loss trains, and for the others the losses that do not."""
    lines = records.read("families")
    whole = [line["family"] for line in lines if set(line["losses"].values()) == {"trained"}]
    rows = [
        [line["family"], loss, message]
        for line in lines
        for loss, message in line["losses"].items()
        if message != "trained"
    ]
    return f"Every loss trains {', '.join(whole)}.\n\n" + table(["family", "loss", "error"], rows)


def demo_changes() -> list[tuple[str, float, float]]:
    """Return the scores of the README's first command: title, before and after."""
    line = records.read("demo")[-1]
    return [(title, line["before"][key], line["after"][key]) for key, title in DEMO_SCORES.items()]


def demo() -> str:
    """The README's first command."""
    line = records.read("demo")[-1]
    rows = [[title, f"{before:.1f}", f"{after:.1f}"] for title, before, after in demo_changes()]
    return table(["score", "before", "after"], rows) + (
        f"\n{line['updates']} updates in {line['seconds']:.0f} seconds ({line['hardware']}, one thread). "
        f"{UNITS} The command prints the first score. The others check that the model keeps its other "
        "abilities.\n"
    )


def draw_curves() -> None:
    """Draw STS-B dev along trainings of 2,000 updates."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for number, method in enumerate(METHODS):
        if cells := find(method, "short", 2000):
            updates = [update for update, _ in cells[0]["curve"]]
            values = np.mean([[dev for _, dev in cell["curve"]] for cell in cells], axis=0)
            axes.plot(
                updates, values, label=method, color=f"C{number % 10}", linestyle="-" if number < 10 else "--"
            )
    axes.set(xlabel="updates", ylabel="STS-B dev, Spearman x 100", xscale="log")
    axes.set_title("Short sentences, mean over the seeds")
    axes.legend(fontsize=7, ncols=2)
    figure.savefig(records.RESULTS / "quality.png", dpi=110, metadata={"Software": None})


# Name between the marks: the function that makes the table.
TABLES: dict[str, Callable[[], str]] = {
    "demo": demo,
    "known model": known_model,
    "adaptation": lambda: mean_rows("adaptation", by=("text", "method")),
    "methods": methods,
    "tasks": tasks,
    "decoder starts": lambda: mean_rows("decoder_starts", by=("method", "start", "updates")),
    "cost": cost,
    "fidelity": fidelity,
    "families": families,
    "lengths": lengths,
}


if __name__ == "__main__":
    main()
