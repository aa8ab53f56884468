"""Write the tables of the documentation and the READMEs from the records, and draw the plots in ``results``.

    python benchmarks/tables.py

A table is written between ``<!-- NAME -->`` and ``<!-- /NAME -->``. A test fails if a page differs from its
records.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import records
from couples import draw_couples, kinds_of_pairs
from records import ROOT
from scipy.stats import spearmanr

from sbert_plugins import recipes
from sbert_plugins.evaluation import new_figure

Cell = dict[str, Any]
PAGES = [
    ROOT / "README.md",
    ROOT / "benchmarks" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs").glob("[gm]*/*.md")),
]
# What the cells of the main tables share. STS-B dev selects the checkpoint.
START = {"encoder": "minilm-mlm", "pooling": "mean", "max_seq_length": 32}
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
    "SimCSE 0.05",
    "SimCSE 0.1",
    "ConSERT",
    "ConSERT with head",
    RECOMMENDED,
    "SimCSE 0.1 + bag of words",
    "bag of words",
    *PAPERS,
    "PaSeR, eq. 2 as printed",
    "PaSeR, words only",
    "SLT-FAI, bounded",
    "TSDAE",
    "Contrastive Tension 0.05",
)
# Kinds of task after 60 updates on short sentences.
TASKS = {
    "SICK-R": "SICK-R",
    "misleading lengths": "hard_length",
    "Quora, MAP": "quora_map",
}
# Score in the adaptation record, and the text that the model was trained on (None: all texts).
KNOWN_SCORES = {
    "graded sentence pairs: seven STS tasks": ("sts", None),
    "duplicate questions on Quora: MAP": ("quora_map", "quora"),
    "search in abstracts of Cranfield: nDCG@10": ("cranfield_ndcg", "cranfield"),
    "biomedical titles: nearest texts of the same topic": ("biomedical_purity", "biomedical"),
    "AG News: nearest texts of the same topic": ("agnews_purity", "agnews"),
}
DEMO_SCORES = {
    "graded_pairs": "graded sentence pairs of the package",
    "stsb_dev": "graded sentence pairs of STS-B",
    "agnews_purity": "AG News: nearest texts of the same topic",
    "biomedical_purity": "biomedical titles: nearest texts of the same topic",
}
AMOUNTS, UPDATES = (500, 2_000, 10_000), (20, 60, 200)  # of the picture of text and length
TOPICS = ("biomedical", "agnews")  # texts with labels of topics
TEXTS = {
    "biomedical": "biomedical titles",
    "agnews": "AG News",
    "quora": "Quora",
    "cranfield": "Cranfield",
}


def main() -> None:
    """Write all tables and the plot."""
    for page in PAGES:
        page.write_text(fill(page.read_text("utf-8")), encoding="utf-8")
    draw_curves()
    draw_amounts()
    (records.RESULTS / "couples.svg").write_text(draw_couples(records.read("couples")[0]), encoding="utf-8")
    draw_known_items()


def fill(text: str) -> str:
    """Return a page with its tables made anew."""
    for name, make in TABLES.items():
        start, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        if start in text:
            before, _, rest = text.partition(start)
            text = before + start + make() + end + rest.partition(end)[2]
    return text


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [heading, ["---"] * len(heading), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


@cache
def quality() -> list[Cell]:
    """Return the lines in which all weights were trained. Without a label, the method names a row."""
    lines = [{"label": line["method"], **line} for line in records.read("quality")]
    return [line for line in lines if "trained" not in line]


def find(label: str, text: str, updates: int, key: str = "avg7", **settings: Any) -> list[Cell]:
    """Return the cells of a row that have a score: those made on a processor, otherwise those on a GPU.

    There is one cell per seed, the later of two. Encoders without training have one cell, whatever the text.
    ``settings`` replace those of ``START`` and ``TRAINING``.
    """
    trained = {} if label in UNTRAINED else {"text": text, "updates": updates, **TRAINING}
    wanted = {"label": label, **START, **trained, **settings}
    cells = [cell for cell in quality() if wanted.items() <= cell.items() and key in cell["scores"]]
    cells = [cell for cell in cells if "NVIDIA" not in cell["hardware"]] or cells
    return list({cell.get("seed"): cell for cell in cells}.values())


def mean_text(values: Sequence[float], digits: int = 2, usual: int = 5) -> str:
    """Return mean and standard error, and the number of seeds unless it is the usual one."""
    if not values:
        return ""
    seeds = f" ({len(values)})" if len(values) != usual else ""
    return error_text(values, digits=digits) + seeds


def score_text(cells: list[Cell], key: str = "avg7", digits: int = 2) -> str:
    """Return the mean of a score, with † for cells made on a GPU."""
    usual = 1 if cells and "updates" not in cells[0] else 5
    mark = " †" if cells and all("NVIDIA" in cell["hardware"] for cell in cells) else ""
    return mean_text([cell["scores"][key] for cell in cells], digits, usual) + mark


def methods() -> str:
    """The papers' losses and ours at equal updates: averages of the seven STS tasks, and scores on tasks.

    The rows are sorted by the first budget. A row without any cell is left out.
    """
    budgets = [name for name in BUDGETS if name != "2,000 updates"]
    rows = []
    for label in (*UNTRAINED, *METHODS):
        cells = {name: find(label, *BUDGETS[name]) for name in budgets}
        if label in UNTRAINED:  # trained at no budget: shown once
            cells = {name: cells[name] if name == budgets[0] else [] for name in budgets}
        below = [max(dev for _, dev in one["curve"]) - one["curve"][-1][1] for one in cells["400 updates"]]
        title = f"recommended: {label}" if label == RECOMMENDED else label
        row = [title, *map(score_text, cells.values()), f"{np.mean(below):.1f}" if below else ""]
        for key in TASKS.values():
            values = [cell["scores"][key] for cell in find(label, "short", 60, key)]
            row.append(f"{np.mean(values):.1f}" if values else "")
        if any(row[1:]):
            rows.append(row)
    rows.sort(key=lambda row: float((row[1] or row[2] or "0").split()[0]), reverse=True)
    rates = [find(RECOMMENDED, text, 60, learning_rate=2e-4) for text in ("short", "wiki")]
    short, wiki = map(score_text, rates)
    note = f"recommended at a learning rate of 2e-4, 60 updates: {short}; Wikipedia {wiki}.\n"
    return table(["", *budgets, "end below best, 400", *TASKS], rows) + "\n" + note


def known_changes() -> list[tuple[str, float, list[float]]]:
    """Return the scores of all-MiniLM-L6-v2: title, start, and the score of each seed of ``recommended``.

    A model is scored on the collection that it was trained on. STS is averaged over all texts.
    """
    cells = adaptation_lines()
    changes = []
    for title, (key, text) in KNOWN_SCORES.items() if cells else ():
        start = next(cell["scores"][key] for cell in cells if cell["row"] == "start")
        seeds = defaultdict(list)
        for cell in cells:
            if cell["row"] == "recommended" and text in (None, cell["text"]):
                seeds[cell["seed"]].append(cell["scores"][key])
        if seeds:
            changes.append((title, start, [float(np.mean(values)) for values in seeds.values()]))
    return changes


def own_changes() -> list[tuple[str, float, list[float], str]]:
    """Return what `search` and `recommended` do on their own tasks: title, start, seeds and method."""
    found = []
    for collection in ("Cranfield", "CISI"):
        start, after = search_values("start", collection), search_values("search", collection)
        if after:
            found.append((f"search in {collection}'s abstracts: nDCG@10", start[0], after, "search"))
    found += [(*one, "recommended") for one in known_changes() if "Cranfield" not in one[0]]
    return found


def headline() -> str:
    """The first numbers of the README: clear gains on the own task, and the largest loss on others."""
    gains, others = defaultdict(list), defaultdict(list)
    for _, before, scores, method in own_changes():
        changes = np.array(scores) - before
        error = float(np.std(changes, ddof=1)) / len(changes) ** 0.5 if len(changes) > 1 else 0.0
        (gains if changes.mean() > 2 * error else others)[method].append(float(changes.mean()))
    for method, (name, (collection, *_)) in product(gains, SEARCH.items()):
        if (method != "search" or collection is None) and search_values(method, name):
            before, after = (np.mean(search_values(row, name)) for row in ("start", method))
            others[method].append(after - before)
    parts = [
        f"{' and '.join(f'{one:.1f}' for one in gains[method])} points in {len(gains[method])} {task} "
        f"(`train {method}`; other scores lost at most {-min(0.0, *others[method]):.1f})"
        for method, task in {"search": "search tasks", "recommended": "sets of topics"}.items()
        if gains[method]
    ]
    return f"**all-MiniLM-L6-v2 gained {', and '.join(parts)}.**\n"


def known_model() -> str:
    """The first table of the README: what `search` and `recommended` do on their own task."""
    seeds, searched = len(known_changes()[0][2]), len(search_values("search", "CISI"))
    lost = [
        f"{error_text(np.array(values) - search_values('start', name)[0], '+')}"
        for name in ("Cranfield", "CISI")
        if (values := search_values("recommended", name))
    ]
    long = [
        error_text(np.array(values) - search_values("start", name, tokens=256)[0], "+")
        for name in [*SEARCH][:4]
        if (values := search_values("search", name, tokens=256))
    ]
    about = (
        "Each row: adapted to its own text, no labels. Sentence pairs: mean of four adaptations, to "
        f"{', '.join(TEXTS.values())}. `search` was tuned on its two collections. Search reads 128 tokens of "
        f"a text; with the default of 256, `search` gained {' and '.join(long[:2])}, in a mix "
        f"with BM25 {' and '.join(long[2:])}. `recommended` changed search by {' and '.join(lost)}. ± is the "
        f"standard error over {seeds} trainings ({searched} in search).\n\n"
        "nDCG and MAP measure how high the right texts are ranked. Sentence pairs: Spearman "
        "correlation of similarities and human grades. Topics: percentage of the ten nearest texts with the "
        "same topic."
    )
    rows = [
        [title, f"{before:.1f}", error_text(np.array(scores) - before, "+"), f"`{method}`"]
        for title, before, scores, method in own_changes()
    ]
    return table(["score", "before", "change", "`train`"], rows) + f"\n{about}\n"


def error_text(values: Sequence[float], sign: str = "", digits: int = 1) -> str:
    """Return the mean, with its standard error if there are several values."""
    error = f" ± {np.std(values, ddof=1) / len(values) ** 0.5:.{digits}f}" if len(values) > 1 else ""
    mean = round(float(np.mean(values)), digits) + 0.0  # without "-0.0"
    return f"{mean:{sign}.{digits}f}{error}"


def read_adaptation(
    name: str = "adaptation",
    *,
    encoder: str | None = None,
    sentences: int | None = None,
    bf16: bool | None = None,
) -> list[dict[str, Any]]:
    """Return the lines with a start, a number of sentences and a precision; None is the usual one."""
    wanted = {"encoder": encoder, "sentences": sentences, "bf16": bf16}
    lines = records.read(name)
    return [line for line in lines if all(line.get(key) == value for key, value in wanted.items())]


def adaptation_lines() -> list[dict[str, Any]]:
    """Return the cells with the settings and texts of the table: 60 updates, a learning rate of 5e-5."""
    settings = {"updates": 60, "learning_rate": 5e-5}
    return [
        line
        for line in read_adaptation()
        if line["row"] == "start" or (settings.items() <= line.items() and line["text"] in TEXTS)
    ]


def documents() -> str:
    """Changes after a training on documents: with pairs of neighbouring sentences, with single sentences."""
    lines, rows = read_adaptation(), []
    start = next(line["scores"] for line in lines if line["row"] == "start")
    titles = {"cranfield-crops": "pairs of neighbouring sentences", "cranfield": "single sentences"}
    for text, title in titles.items():
        found = [line["scores"] for line in lines if (line["row"], line["text"]) == ("recommended", text)]
        changes = (
            error_text([scores[key] - start[key] for scores in found], "+")
            for key in ("cranfield_ndcg", "sts")
        )
        rows.append([title, str(len(found)), *changes])
    return table(["trained on", "seeds", "search in Cranfield, nDCG@10", "seven STS tasks"], rows)


def adaptation_changes(scores: dict[str, float], text: str) -> dict[str, float]:
    """Return the columns of the table of adaptation. Only two texts have topics of their own."""
    own = {"own topics, purity": f"{text}_purity", "own topics, v": f"{text}_v"} if text in TOPICS else {}
    columns = {"STS": "sts", "Quora, MAP": "quora_map", "Cranfield, nDCG": "cranfield_ndcg"} | own
    found = {name: scores[key] for name, key in columns.items()}
    other = [scores[f"{topic}_purity"] for topic in TOPICS if topic != text]
    return found | {"other topics, purity": float(np.mean(other))}


def adaptation() -> str:
    """Adaptation of all-MiniLM-L6-v2 to a text: changes against the start.

    The first part is over all texts, the second by text, for rows with five seeds.
    """
    lines = adaptation_lines()
    start = next(line["scores"] for line in lines if line["row"] == "start")
    columns = list(adaptation_changes(start, "agnews"))
    changes: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        if line["row"] != "start":
            difference = {key: line["scores"][key] - start[key] for key in start}
            for name, value in adaptation_changes(difference, line["text"]).items():
                changes[line["row"], line["text"]][name].append(value)
    means = {key: {name: np.mean(values) for name, values in one.items()} for key, one in changes.items()}
    overall = []
    for row in dict.fromkeys(row for row, _ in means):
        texts = [one for (name, _), one in means.items() if name == row]
        cells = [value for one in texts for value in one.values()]
        averages = [np.mean([one[name] for one in texts if name in one] or [np.nan]) for name in columns]
        overall.append([row, len(texts), np.mean(cells), min(cells), *averages])
    overall.sort(key=lambda line: line[2], reverse=True)
    rows = [
        [row, str(count), *(error_text([x], "+") if x == x else "" for x in rest)]
        for row, count, *rest in overall
    ]
    parts = [table(["", "texts", "average", "lowest", *columns], rows)]
    rows = []
    for text, (row, *_) in product(TEXTS, overall):
        found = changes[row, text]
        if len(found["STS"]) >= 5:
            cells = [error_text(found[name], "+") if name in found else "" for name in columns]
            rows.append([TEXTS[text], row, str(len(found["STS"])), *cells])
    parts.append(table(["trained on", "", "seeds", *columns], rows))
    topics = (f"{TEXTS[one]} {start[f'{one}_purity']:.1f} and {start[f'{one}_v']:.1f}" for one in TOPICS)
    note = (
        f"The start: STS {start['sts']:.1f}, Quora {start['quora_map']:.1f}, Cranfield "
        f"{start['cranfield_ndcg']:.1f}; purity and v-measure: {', '.join(topics)}.\n"
    )
    return "\n".join([*parts, note])


def precisions() -> str:
    """How far scores in float32 are from those in bfloat16, training included."""
    found: dict[str, list[float]] = {}
    fast, exact = (read_adaptation(bf16=bf16) for bf16 in (None, False))
    for line in exact:
        same = {key: line[key] for key in ("row", "text", "seed", "updates", "learning_rate") if key in line}
        (other,) = [one["scores"] for one in fast if same.items() <= one.items()]
        for key, value in line["scores"].items():
            found.setdefault(f"{line['row']}: {key}", []).append(value - other[key])
    return table(
        ["", "float32 - bfloat16"], [[key, error_text(values, "+", 2)] for key, values in found.items()]
    )


def draw_amounts() -> None:
    """Draw what more text and more updates change: topics of the text, and STS-B dev."""
    start = next(line for line in read_adaptation("adaptation_development") if line["row"] == "start")
    scores = {"biomedical_purity": "purity of its topics", "sts": "STS-B dev"}
    figure, panels = new_figure(3.2, tuple(scores.values()))
    for axes, key in zip(panels, scores, strict=True):
        for sentences in AMOUNTS:
            lines = read_adaptation("adaptation_development", sentences=sentences)
            points = sorted((line["updates"], line["scores"][key] - start["scores"][key]) for line in lines)
            axes.plot(*zip(*points, strict=True), "o-", ms=4, label=f"{sentences:,} sentences")
        axes.axhline(0, color="grey", lw=0.8)
        axes.set(xlabel="updates", xscale="log", xticks=UPDATES, xticklabels=UPDATES, ylim=(-0.6, 3.1))
        axes.minorticks_off()
    panels[0].set(ylabel="change")
    panels[0].legend(fontsize=7, frameon=False)
    figure.savefig(records.RESULTS / "amounts.png", dpi=130, metadata={"Software": None})


def cost() -> str:
    """Operations, time and memory of a training step, as multiples of SimCSE's and of its floor's."""
    lines = records.read("speed")
    (base,) = [line for line in lines if line["method"] == "SimCSE"]
    rows = []
    for line in sorted(lines, key=lambda line: line is not base):  # SimCSE first
        ratios = line["flops_ratio"], line["seconds_ratio"], line["peak_bytes"] / base["peak_bytes"]
        floor = [f"{line[key]:.2f}" for key in ("floor_flops_ratio", "floor_seconds_ratio") if key in line]
        rows.append([line["method"], *(f"{ratio:.2f}" for ratio in ratios), ", ".join(floor)])
    return table(["", "operations", "time", "memory", "times its floor"], rows) + (
        f"\nA step of SimCSE takes {base['seconds']:.1f} seconds ({base['rounds']} rounds, "
        f"{base['hardware']}, one thread, float32).\n"
    )


def fidelity() -> str:
    """How far ``losses.official`` is from the authors' code."""
    lines = []
    for line in records.read("fidelity"):
        terms = line["terms"].values()
        difference = max(term["difference"] for term in terms)
        cosine = min(term[f"cosine_{place}"] for term in terms for place in ("words", "last"))
        reasons = [f"{what}: {why}" for what, why in line["cannot_agree"].items() if what != "dropout"]
        title, reason = recipes.RECIPES[line["method"]].about.title, "; ".join(reasons)
        lines.append(
            f"- {title}: terms within {difference:.0e}, cosines of gradients at least {cosine:.6f}. "
            f"Different on purpose: {reason}.\n"
        )
    return "".join(lines)


def families() -> str:
    """The families of encoders that every loss trains, and for the others the losses that do not."""
    lines = records.read("families")
    errors = {
        line["family"]: [loss for loss, outcome in line["losses"].items() if outcome != "trained"]
        for line in lines
    }
    whole = [family for family, losses in errors.items() if not losses]
    rows = [[family, ", ".join(losses)] for family, losses in errors.items() if losses]
    others = "\n" + table(["family", "losses that raise an error"], rows) if rows else ""
    return f"Every loss trains {', '.join(whole)}.\n{others}"


def demo() -> str:
    """The README's first command."""
    line = demo_lines()[-1]
    rows = [
        [title, f"{line['before'][key]:.1f}", f"{line['after'][key]:.1f}"]
        for key, title in DEMO_SCORES.items()
    ]
    return table(["score", "before", "after"], rows) + (
        f"\n{line['updates']} updates in {line['seconds']:.0f} seconds, the whole command in "
        f"{line['command_seconds']:.0f} ({line['hardware']}). It prints the first score. The others are of "
        "texts that it did not train on, other samples than above.\n"
    )


def demo_lines(**settings: Any) -> list[dict[str, Any]]:
    """Return the lines of the README's first command; by default those as torch and the command choose."""
    wanted = {"bf16": True, "threads": 2} | settings
    return [line for line in records.read("demo") if wanted.items() <= line.items()]


def seconds() -> str:
    """How long the README's first command trains, by precision and number of threads, and its score."""
    rows = [
        [name, str(threads), f"{line['seconds']:.0f}", f"{line['after']['graded_pairs']:.2f}"]
        for (name, bf16), threads in product((("bfloat16", True), ("float32", False)), (1, 2))
        for line in demo_lines(bf16=bf16, threads=threads)[-1:]
    ]
    return table(["precision", "threads", "seconds", "graded pairs"], rows)


RIVALS = ("SimCSE", "TSDAE")  # trained at its own best rate
# Name of a start in the records: its title. None is the default.
STARTS = {None: "all-MiniLM-L6-v2", "all-mpnet-base-v2": "all-mpnet-base-v2"}
# Column of the table of search: evaluator and score in the record.
SEARCH = {
    "Cranfield": ("cranfield", "search", "nDCG@10"),
    "CISI": ("cisi", "search", "nDCG@10"),
    "Cranfield, with BM25": ("cranfield", "mix", "nDCG@10"),
    "CISI, with BM25": ("cisi", "mix", "nDCG@10"),
    "STS-B dev": (None, "sts STS-B dev", "Spearman"),
    "SICK-R": (None, "sts SICK-R", "Spearman"),
    "AG News": (None, "agnews", "purity@10"),
    "biomedical": (None, "biomedical", "purity@10"),
}


def rates_text(lines: Iterable[dict[str, Any]]) -> str:
    """Return the learning rates of some lines, such as 5e-6."""
    rates = dict.fromkeys(line["learning_rate"] for line in lines if "learning_rate" in line)
    return ", ".join(f"{rate:g}".replace("e-0", "e-") for rate in rates)


def search_lines(encoder: str | None = None, tokens: int | None = None) -> list[dict[str, Any]]:
    """Return the lines of the record with one start and limit; None is all-MiniLM-L6-v2, and 128 tokens."""
    return [
        line
        for line in records.read("search")
        if line.get("encoder") == encoder and line.get("tokens") == tokens
    ]


def search_values(
    row: str,
    name: str,
    encoder: str | None = None,
    learning_rate: float | None = None,
    tokens: int | None = None,
) -> list[float]:
    """Return the values of a column, one per seed, or per collection and seed if it is of no collection."""
    collection, evaluator, score = SEARCH[name]
    lines = [
        line
        for line in search_lines(encoder, tokens)
        if line["row"] == row and learning_rate in (None, line.get("learning_rate"))
    ]
    return [line["scores"][evaluator][score] for line in lines if collection in (None, line["collection"])]


def search(tokens: int | None = None) -> str:
    """Search after an adaptation to the documents: the start's scores, and changes against them."""
    columns, own = [*SEARCH][: 4 if tokens else None], search_lines(tokens=tokens)
    first = {name: float(np.mean(search_values("start", name, tokens=tokens))) for name in columns}
    lines = [["all-MiniLM-L6-v2", "", *(f"{value:.1f}" for value in first.values())]]
    bm25 = [line["scores"]["mix"]["bm25_ndcg@10"] for line in own if line["row"] == "start"]
    lines.append(["BM25 alone", "", *(f"{value:.1f}" for value in bm25), *[""] * (len(columns) - 2)])
    for row in dict.fromkeys(line["row"] for line in own if line["row"] != "start"):
        found = {
            name: [value - first[name] for value in search_values(row, name, tokens=tokens)]
            for name in columns
        }
        seeds = max(len(found["Cranfield"]), len(found["CISI"]))
        cells = (error_text(values, "+") if values else "" for values in found.values())
        name = [row, rates_text(line for line in own if line["row"] == row)]
        lines.append([", ".join(filter(None, name)), str(seeds), *cells])
    return table(["", "seeds", *columns], lines)


def proof() -> str:
    """Scores of what a person decides between, each on its own task, and changes against the start."""
    tasks = {f"{TEXTS[one]}, purity": one for one in TOPICS} | {"Cranfield": None, "CISI": None}
    rows = []
    for encoder, title in STARTS.items():
        whole = read_adaptation(encoder=encoder)
        starts = [line["scores"] for line in whole if line["row"] == "start"]
        first = {
            name: [one[f"{text}_purity"] for one in starts] if text else search_values("start", name, encoder)
            for name, text in tasks.items()
        }
        rows.append([title, "", *(f"{values[0]:.1f}" if values else "" for values in first.values())])
        for row in ("PCA to 128 dimensions", "SimCSE", "TSDAE", "recommended", "search"):
            setting = {} if row.startswith("PCA") else best_setting(row)
            cells = []
            for name, text in tasks.items():
                if text is None:
                    found = search_values(
                        row, name, encoder, setting["learning_rate"] if row in RIVALS else None
                    )
                else:
                    wanted = {"row": row, "text": text} | setting
                    own = (line["scores"] for line in whole if wanted.items() <= line.items())
                    found = [scores[f"{text}_purity"] for scores in own]
                changes = [value - first[name][0] for value in found]
                cells.append(error_text(changes, "+") if changes else "")
            if any(cells):
                rows.append([f"{title}, {row}", rates_text([setting] if row in RIVALS else []), *cells])
        if encoder is None:
            bm25 = [
                line["scores"]["mix"]["bm25_ndcg@10"] for line in search_lines() if line["row"] == "start"
            ]
            rows.append(["BM25", "", *[""] * len(TOPICS), *(f"{value:.1f}" for value in bm25)])
            mixed = (search_values("start", f"{name}, with BM25") for name in ("Cranfield", "CISI"))
            rows.append(
                ["mix of the start and BM25", "", *[""] * len(TOPICS), *(f"{one[0]:.1f}" for one in mixed)]
            )
    return table(["", "rate", *tasks], rows)


def best_setting(row: str) -> dict[str, Any]:
    """Return a rival's setting with the highest purity on its own text (development data); ours is fixed."""
    found = defaultdict(list)
    for line in read_adaptation("adaptation_development"):
        if row in RIVALS and line["row"] == row and line["text"] in TOPICS:
            found[line["updates"], line["learning_rate"]].append(line["scores"][f"{line['text']}_purity"])
    complete = {key: float(np.mean(values)) for key, values in found.items() if len(values) >= len(TOPICS)}
    updates, learning_rate = max(complete, key=lambda key: complete[key], default=(60, 5e-5))
    return {"updates": updates, "learning_rate": learning_rate}


def old_index() -> str:
    """The rows of a search with new queries, in the start's vectors of the documents and in new ones."""
    rows = []
    for name in ("Cranfield", "CISI"):
        lines = [
            line["old index"]
            for line in search_lines()
            if line["row"] == "search" and line["collection"] == SEARCH[name][0]
        ]
        found = [[line[key] for line in lines] for key in ("as they are", "with a map")]
        start, new = (float(np.mean(search_values(row, name))) for row in ("start", "search"))
        shares = (100 * score / start for score in (*(float(np.mean(one)) for one in found), new))
        rows.append([name, *(f"{share:.0f} %" for share in shares)])
    return table(["", "old index", "old index, queries mapped back", "new index"], rows)


def forms() -> str:
    """The scores, speed and size of a model in float32, in int8 and as static vectors."""
    lines = records.read("use_the_model")
    columns = {
        "AG News, start": ("start", "topics"),
        "AG News, `recommended`": ("recommended", "topics"),
        "Cranfield, start": ("start", "search"),
        "Cranfield, `search`": ("search", "search"),
    }
    rows = []
    for form in dict.fromkeys(line["form"] for line in lines):
        own = [line for line in lines if line["form"] == form]
        scores = [
            [line["score"] for line in own if (line["row"], line["task"]) == column]
            for column in columns.values()
        ]
        lowest = min((line["lowest cosine"] for line in own if "lowest cosine" in line), default=None)
        speed = np.mean([line["texts per second"] for line in own if line["task"] == "topics"])
        size = max(line["megabytes"] for line in own)
        cosine = "" if lowest is None else f"{lowest:.4f}"
        texts = [error_text(values) if values else "" for values in scores]
        rows.append([form, *texts, cosine, f"{float(f'{speed:.2g}'):,.0f}", f"{size:.0f}"])
    return table(["", *columns, "lowest cosine", "texts/s", "MB"], rows)


def known_items() -> str:
    """Return whether the change in known-item search follows the change in search."""
    changes = search_changes()
    correlation = spearmanr(*np.array([*changes.values()]).T).statistic
    return (
        f"Over {len(changes)} trainings, the rank correlation between the changes in known-item search and "
        f"in nDCG@10 is {correlation:.2f}.\n"
    )


def search_changes() -> dict[tuple[str, str, int], tuple[float, float]]:
    """Return the changes in known-item search and in search, by row, collection and seed."""
    lines, found = search_lines(), {}
    starts = {line["collection"]: line["scores"] for line in lines if line["row"] == "start"}
    for line in lines:
        if line["row"] != "start":
            first, now = starts[line["collection"]], line["scores"]
            known, own = (
                now[name][score] - first[name][score]
                for name, score in (("known items", "MRR@10"), ("search", "nDCG@10"))
            )
            found[line["row"], line["collection"], line["seed"]] = (known, own)
    return found


def draw_known_items() -> None:
    """Draw the changes in known-item search and in search."""
    figure, (axes,) = new_figure(3.6)
    groups = defaultdict(list)
    for (row, _, _), values in search_changes().items():
        groups[row].append(values)
    for row, values in groups.items():
        axes.plot(*zip(*values, strict=True), "o", ms=4, label=row)
    axes.axhline(0, color="grey", lw=0.8)
    axes.axvline(0, color="grey", lw=0.8)
    axes.set(xlabel="change in known items, MRR@10", ylabel="change in search, nDCG@10")
    figure.legend(loc="outside upper left", fontsize=7, frameon=False, ncols=2)
    figure.savefig(records.RESULTS / "known_items.png", dpi=130, metadata={"Software": None})


def draw_curves() -> None:
    """Draw STS-B dev along trainings of 2,000 updates."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for number, label in enumerate(METHODS):
        if cells := find(label, "short", 2000):
            updates = [update for update, _ in cells[0]["curve"]]
            values = np.mean([[dev for _, dev in cell["curve"]] for cell in cells], axis=0)
            title = "recommended" if label == RECOMMENDED else label
            axes.plot(updates, values, "-" if number < 10 else "--", label=title, color=f"C{number % 10}")
    axes.set(xlabel="updates", ylabel="STS-B dev, Spearman x 100", xscale="log")
    axes.set_title("Short sentences, mean over the seeds")
    axes.legend(fontsize=7, ncols=2)
    figure.savefig(records.RESULTS / "quality.png", dpi=110, metadata={"Software": None})


def descriptions() -> str:
    """How many queries of ``descriptions.py`` found their description before and after."""
    lines = records.read("descriptions")
    before, after = (np.array([line[when] for line in lines]) for when in ("before", "after"))
    was_right, is_right = before == 1, after == 1
    gains = 100 * (1 / after - 1 / before)
    error = gains.mean(axis=0).std(ddof=1) / gains.shape[1] ** 0.5  # of the means over the seeds
    ranked = is_right.sum(axis=1)
    return (
        f"The same command was run on {before.shape[1]} descriptions of functions in this package, with "
        f"{len(lines)} seeds. The queries are their first lines. The right description ranked first for "
        f"{was_right[0].sum()} queries before, and for {ranked.mean():.0f} after (mean; {ranked.min()} to "
        f"{ranked.max()}). On average {(~was_right & is_right).sum(axis=1).mean():.0f} became right and "
        f"{(was_right & ~is_right).sum(axis=1).mean():.0f} wrong. MRR (how high the right one ranks) changed "
        f"by {gains.mean():+.1f} ± {error:.1f}. Here ± is over the queries.\n"
    )


def couples() -> str:
    """How often a pair with one meaning is more similar than a pair with two."""
    lines = records.read("couples")
    same, different = kinds_of_pairs()
    before, after = (
        np.array(
            [
                np.less_equal.outer(*(np.array(line[when])[kind] for kind in (same, different)))
                for line in lines
            ]
        )
        for when in ("before", "after")
    )
    count = [f"{each.sum() / len(lines):,.0f}" for each in (before, after, before & ~after, ~before & after)]
    seeds = f" (means over {len(lines)} seeds)" if len(lines) > 1 else ""
    return (
        "*Similarities by all-MiniLM-L6-v2 before and after the "
        "[demo](https://sbert-plugins.github.io/sbert-plugins/get_started.html). A couple is a similar pair "
        "(grade 4 or 5) and a different pair (grade 0 to 2). It is wrong if the different pair has the "
        f"higher similarity. Shown: three couples that became right. Of all {before[0].size:,}, {count[0]} "
        f"were wrong before, {count[1]} after: "
        f"{count[2]} became right and {count[3]} became wrong{seeds}.*\n"
    )


# Name between the marks: the function that makes the table.
TABLES: dict[str, Callable[[], str]] = {
    "demo": demo,
    "headline": headline,
    "couples": couples,
    "known model": known_model,
    "proof": proof,
    "adaptation": adaptation,
    "methods": methods,
    "cost": cost,
    "seconds": seconds,
    "precisions": precisions,
    "fidelity": fidelity,
    "families": families,
    "documents": documents,
    "search": search,
    "search, 256 tokens": lambda: search(256),
    "descriptions": descriptions,
    "old index": old_index,
    "forms": forms,
    "known items": known_items,
}


if __name__ == "__main__":
    main()
