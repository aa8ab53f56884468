"""Write the tables of README.md and of the site in docs/ from the json in ``benchmarks/results``: no number is typed by hand.

    python benchmarks/report.py

and draws ``results/quality.png`` (with the extra ``plot``). A table stands between ``<!-- name -->`` and ``<!-- /name -->``;
``tests/test_readme.py`` fails where it is not what the json says.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import defaultdict
from pathlib import Path

import label_free_study
import numpy as np
from records import read_grids
from scipy import stats

from sbert_plugins import recipes

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
TASKS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R", "avg7")
TEXTS = {
    "short": "short sentences (inference, questions, captions)",
    "wiki": "Wikipedia sentences",
    "paragraphs": "a sentence of each Wikipedia paragraph; crops: with its neighbour as the positive",
    "sts": "the unlabelled sentences of the seven tasks (transductive)",
}
OWN_TEXTS = {
    "quora": "Quora's questions",
    "cranfield": "Cranfield's sentences",
    "cranfield-crops": "two neighbouring sentences of each of Cranfield's documents",
    "agnews": "AG News",
    "biomedical": "biomedical titles",
}
RECOVERED = " The encoder descends from a supervised embedder: part of each gain is recovered knowledge."
# The README's rows.
BEST = {
    "raw": "before training",
    "simcse": "SimCSE",
    "simcse:temperature=0.1": "SimCSE, temperature 0.1",
    "consert": "ConSERT",
    "recommended": "`recommended`: ConSERT and words",
}
# What a method is measured against, and the averages of seven tasks that its paper prints for bert-base with it and without.
AIMS = [
    ("arccse", "simcse", 78.11, 76.25),
    ("pt-bert", "simcse", 77.74, 76.25),
    ("paser", "simcse", 76.16, 76.25),
    ("denosent", "simcse:temperature=0.1", None, None),
    ("denosent:mlm_head=pretrained", "simcse:temperature=0.1", None, None),
    ("denosent:balance=1,mlm_head=pretrained", "simcse:temperature=0.1", None, None),
    ("slt-fai", "simcse", 76.18, 74.60),
    ("slt-fai:filtering_weight=0", "simcse", None, None),
    ("slt-fai:adversarial_weight=0", "simcse", None, None),
    ("slt-fai:backbone=consert", "consert", 73.29, 71.98),
    ("bag-of-words", "simcse", None, None),
    ("bag-of-words:mlm_head=pretrained", "simcse", None, None),
    ("denosent as in its paper", "simcse", 79.33, 76.25),
    ("paser as in its paper", "simcse", 76.16, 76.25),
    ("slt-fai as in its paper", "simcse", 76.18, 74.60),
    ("consert", "simcse:temperature=0.1", None, None),
    ("arccse:temperature=0.1", "simcse:temperature=0.1", None, None),
    ("pt-bert:temperature=0.1", "simcse:temperature=0.1", None, None),
    ("simcse guided by the start", "simcse:temperature=0.1", None, None),
    ("recommended", "simcse", None, None),
    ("recommended", "simcse:temperature=0.1", None, None),
    ("recommended", "consert", None, None),
    ("recommended", "denosent", None, None),
    ("recommended", "recommended:words=0", None, None),
    ("recommended", "recommended with a pass for its words", None, None),
    ("recommended:words=0", "simcse", None, None),
    ("recommended:words=0", "simcse:temperature=0.1", None, None),
    ("recommended:words=0", "consert", None, None),
    ("recommended:words=0", "consert + arccse", None, None),
    ("recommended with a pass for its words:learning_rate=1e-4", "simcse:learning_rate=1e-4", None, None),
    ("denosent", "denosent:mlm_head=pretrained", None, None),
    ("bag-of-words", "bag-of-words:mlm_head=pretrained", None, None),
    ("consert + arccse", "consert", None, None),
    ("consert + arccse", "arccse:temperature=0.1", None, None),
    ("consert + arccse + words", "consert + arccse", None, None),
    ("consert + arccse + words:balance=0.3", "consert + arccse", None, None),
    ("simcse + paser", "simcse on paser's rows", None, None),
    ("consert + arccse + paser", "consert + arccse on paser's rows", None, None),
]
# The step of speed.json that a method's updates take.
STEPS = {
    "simcse": "SimCSE floor",
    "simcse:temperature=0.1": "SimCSE floor",
    "consert": "ConSERT",
    "recommended": "recommended",
    "arccse": "ArcCSE",
    "paser": "PaSeR",
    "denosent": "DenoSent",
    "pt-bert": "PT-BERT",
    "slt-fai": "SLT-FAI",
    "bag-of-words": "bag of words",
}
# From then on the words of what is recommended are read in a pass of its contrast.
WORDS_SHARE_SINCE, BEFORE_THAT = "2026-11-24T08:05", " with a pass for its words"
# Each kind of task, and what makes its score one in hundreds.
KINDS = [
    ("avg7", "seven tasks", 1),
    ("dev", "STS-B dev", 1),
    ("quora_dev_cosine_map@100", "Quora: MAP", 100),
    ("cranfield_cosine_map@100", "Cranfield: MAP", 100),
    ("agnews_purity@10", "news: purity", 1),
    ("agnews_v_measure", "news: v-measure", 1),
    ("biomedical_purity@10", "titles: purity", 1),
    ("biomedical_v_measure", "titles: v-measure", 1),
]
# Those of them that the tables of methods have where all of a table was scored on them.
BESIDE_STS = [kind for kind in KINDS if kind[0].endswith(("dev_cosine_map@100", "purity@10"))]


def main() -> None:
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
    draw_quality(RESULTS / "quality.png")


def filled(text: str) -> str:
    """Return the page with every table between its marks made anew.

    Raises:
        FileNotFoundError: For a record that is not there: no table is left blank.
    """
    for name, render in TABLES.items():
        if f"<!-- {name} -->" not in text:
            continue
        pattern = re.compile(f"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        table = render()
        text = pattern.sub(lambda match, table=table: match[1] + table + match[2], text)
    return text


def logs() -> str:
    return table(["key", "what it is"], [[f"`{key}`", meaning] for key, meaning in recipes.LOGGED.items()])


def demo() -> str:
    record = _load("demo.json")
    rows = [[name, f"{score:.2f}", f"{record['after'][name]:.2f}"] for name, score in record["before"].items()]
    before, after = (record["elsewhere"][when] for when in ("before", "after"))
    elsewhere = ", ".join(f"{name} {score:.1f} to {after[name]:.1f}" for name, score in before.items())
    return (
        table(["Spearman x 100", "before", "after"], rows)
        + f"\n`{record['command']}`: {record['steps']} updates in {record['seconds']:.0f} s on {record['hardware']}, "
        f"{_threads(record)}. What the command does not look at, at 32 tokens a text: {elsewhere}.\n"
    )


def decoders() -> str:
    """What decoders learn to read of vectors that do not change."""
    record = _load("decoders.json")
    steps, read = [point["step"] for point in next(iter(record["curves"].values()))], ("token_accuracy", "information")
    rows = [
        [name, *(f"{point['nats_a_token']:.2f}" for point in curve), *(f"{curve[-1][key]:.2f}" for key in read)]
        for name, curve in record["curves"].items()
    ]
    heading = ["nats a token", *(f"update {step}" for step in steps), "token accuracy", "information"]
    settings = record["settings"]
    return table(heading, rows) + (
        f"\nminilm-mlm, {settings['pooling']} pooling, Wikipedia sentences, learning rate {settings['learning_rate']:g}, seed "
        f"{settings['seed']}, {record['hardware']}, {_threads(record)}, commit {_commit(record)}. The last two columns: "
        f"the last {steps[0]} updates.\n"
    )


def reconstructions() -> str:
    """What PaSeR's decoders write for the phrases that are hidden from sentences they were not trained on."""
    written = _load("decoders.json")["written"]
    hidden = [row["phrase"] for row in next(iter(written.values()))]
    rows = [[phrase, *(rows[place]["written"] for rows in written.values())] for place, phrase in enumerate(hidden)]
    return table(["hidden", *written], rows)


def pt_bert_start() -> str:
    """How near what PT-BERT trains starts to what is saved."""
    start = _load("decoders.json")["pt_bert"]
    attended = list(next(iter(start.values())))
    rows = [[pooling, *(f"{values[name]:.0f}" for name in attended)] for pooling, values in start.items()]
    return table(["pooling", *(f"attend_to={name}" for name in attended)], rows)


def quality() -> str:
    """All methods on the main encoder, and short sentences."""
    return _quality_table(_of_today(_grid("short", 60)))


def best() -> str:
    """Where a training starts, what all are measured against, and what stands above it, with five seeds."""
    records = _grid("short", 60)
    rows = []
    for name, words in BEST.items():
        cells = _by_method(records)[name]
        scores = [
            _mean([cell["dev"] for cell in cells]),
            _mean([cell["scores"]["avg7"] for cell in cells]),
            _mean([100 * cell["scores"]["quora_dev_cosine_map@100"] for cell in cells]),
        ]
        rows.append([words, str(len(cells)), *scores])
    return table(["", "seeds", "STS-B dev", "average of seven STS tasks", "Quora retrieval, MAP"], rows)


def quality_longer() -> str:
    """The same, trained longer."""
    return _quality_table(_of_today(_grid("short", 400)))


def quality_long() -> str:
    """STS-B dev along a training of 2,000 updates, and what is left of it in the seven tasks."""
    lines = map(_setting_line, _trained_as_long("short", 2000))
    return "\n".join([*lines, _curves(_far_longer()), _made_in_both()])


def _far_longer() -> list[dict]:
    """Return all trainings of 2,000 updates, with bfloat16 and without: :func:`_made_in_both` says what that changes."""
    cells = {}
    for record in itertools.chain(*_trained_as_long("short", 2000)):
        if record["method"] != "raw" and cells.setdefault((record["method"], record["seed"]), record) is not record:
            raise ValueError(f"{record['method']}, seed {record['seed']}, has two trainings of 2,000 updates: keep one.")
    return list(cells.values())


def _made_in_both() -> str:
    """How far trainings of 400 updates that were made with bfloat16 and without, on two machines, are apart."""
    packed = [grid for grid in _trained_as_long("short", 400) if _is_packed(grid[0])]
    here, there = [
        {(cell["method"], cell["seed"]): cell for cell in grid if cell["method"] != "raw"}
        for grid in sorted(packed, key=lambda grid: grid[0]["settings"]["bf16"])
    ]
    both = [(cell, there[key]) for key, cell in here.items() if key in there]
    dev = [abs(a["dev"] - b["dev"]) for pair in both for a, b in zip(*(cell["curve"] for cell in pair), strict=True)]
    seven = [abs(one["scores"]["avg7"] - other["scores"]["avg7"]) for one, other in both]
    return (
        f"\nTrainings with bf16 and without stand in one table: {len(both)} of 400 updates that were made both ways, on two "
        f"machines, are up to {max(dev):.2f} apart along STS-B dev (median {np.median(dev):.2f}), and up to {max(seven):.2f} "
        "on the seven tasks.\n"
    )


def _curves(records: list[dict]) -> str:
    steps = (100, 300, 600, 1000, 1500, 2000)
    rows = []
    for name, cells in sorted(_by_method(records).items(), key=lambda item: -_average(item[1])):
        curves = [{point["step"]: point["dev"] for point in cell["curve"]} for cell in cells]
        row = [name, str(len(cells)), *(_mean([curve[step] for curve in curves]) for step in steps)]
        row += [", ".join(f"{max(curve.values()):.2f} ({max(curve, key=curve.__getitem__)})" for curve in curves)]
        row += [_mean([_end(cell) for cell in cells]), _mean([cell["scores"]["avg7"] for cell in cells])]
        row += [_mean([cell["scores"]["hard_length_avg5"] for cell in cells], digits=1)]
        rows.append(row)
    heading = ["STS-B dev", "seeds", *(f"update {step:,}" for step in steps), "best (update)", "end below it"]
    return table([*heading, "average of seven, at the best", "length misleads"], rows)


def quality_wiki() -> str:
    """Those that were also trained on the papers' text."""
    return "\n".join(_quality_table(_of_today(_grid("wiki", steps))) for steps in (60, 400))


def _of_today(records: list[dict]) -> list[dict]:
    """Leave out what was trained in an earlier way, where the same was trained in today's."""
    names = {record["method"] for record in records}
    earlier = {name for name in names if BEFORE_THAT in name and name.replace(BEFORE_THAT, "") in names}
    return [record for record in records if record["method"] not in earlier]


def of_method(name: str) -> str:
    """What a method does on the main encoder, whatever its keywords, beside SimCSE and no training: its page on the site."""
    tables, shown = [], set()
    for budget in (("short", 60), ("short", 400), ("wiki", 60), ("wiki", 400)):
        for records in (_of_today(_grid(*budget)), *([_before_today(*budget)] if budget[0] == "short" else [])):
            own = [one for one in records if re.split(" as in |:", one["method"])[0] == name]
            if {(one["method"], budget) for one in own} - shown:  # of an earlier harness what today's has not
                beside = [one for one in records if one["method"] in ("raw", "simcse", "simcse:temperature=0.1")]
                tables.append(_quality_table([*beside, *own]))
            shown |= {(one["method"], budget) for one in own}
    return "\n".join(tables)


def supervised() -> str:
    """What pairs of paraphrases or scores gain, beside SimCSE: supervision, not noise."""
    grids = _grids(dev_only=False, supervised=True).values()
    (records,) = [records for records in grids if any(_is_supervised(record["method"]) for record in records)]
    return _quality_table([record for record in records if record["method"] == "simcse" or _is_supervised(record["method"])])


def settings_of_tables() -> recipes.Settings:
    """Return what the trainings of the main table share, which are steps of one batch in one process."""
    shared = _grid("short", 60)[0]["settings"]
    named = {name: shared[name] for name in ("learning_rate", "batch_size", "pooling", "max_seq_length", "eval_steps")}
    return recipes.Settings(**named, gradient_accumulation_steps=1, epochs=1, max_steps=shared["steps"])


def aims() -> str:
    """What each paper gained, and what the main grids gain, over the same: means of the same seeds, and standard errors."""
    budgets = {"60": ("short", 60), "400": ("short", 400), "Wikipedia, 60": ("wiki", 60)}
    grids = {
        name: [_by_method(records) for records in sorted(_trained_as_long(*budget), key=_place, reverse=True)]
        for name, budget in budgets.items()
    }
    grids["2,000"] = [_by_method(_far_longer())]
    shown = [(name, key) for name in ("60", "400") for key in ("avg7", "dev", "biomedical_purity@10")]
    shown += [("2,000", "avg7"), ("Wikipedia, 60", "avg7")]
    words = {"avg7": "seven", "dev": "STS-B dev", "biomedical_purity@10": "titles"}
    rows = []
    for name, base, with_it, without in AIMS:
        gains = [_most_differences(grids[grid], name, base, key) for grid, key in shown]
        paper = "" if with_it is None else f"{with_it - without:+.2f}"
        rows.append([name, base, paper, *map(_judged, gains)])
    return table(["", "minus", "paper", *(f"{grid}: {words[key]}" for grid, key in shown)], rows)


def _most_differences(grids: list[dict[str, list[dict]]], name: str, base: str, key: str) -> list[float]:
    """Return a method's differences to another in the first grid that has both with three seeds, else with most."""

    def scored(methods: dict[str, list[dict]], method: str) -> list[dict]:
        return [cell for cell in methods.get(method, []) if key == "dev" or key in cell["scores"]]

    found = [_differences(scored(methods, name), scored(methods, base), key) for methods in grids]
    return next((gains for gains in found if len(gains) > 2), max(found, key=len))


def _judged(gains: list[float]) -> str:
    """Return a mean with its standard error, in bold where it is more than two of them from 0, and how many if not five."""
    if len(gains) < 3:
        return f"{np.mean(gains):+.2f} ({len(gains)} seed{'s' * (len(gains) > 1)})" if gains else ""
    mean, error = np.mean(gains), stats.sem(gains)
    judged = f"**{mean:+.2f}** ± {error:.2f}" if abs(mean) > 2 * error else f"{mean:+.2f} ± {error:.2f}"
    return judged + (f" ({len(gains)})" if len(gains) < 5 else "")


def time_to_quality() -> str:
    """Updates, and time as a share of SimCSE's whole training, until STS-B dev has what SimCSE ends with."""
    record, methods = _load("speed.json"), _by_method(_grid("short", 60))
    ends = {cell["seed"]: cell["curve"][-1]["dev"] for cell in methods["simcse"]}
    rows = []
    for name, step in STEPS.items():
        if name == "simcse":
            continue
        multiple = record["multiple_of_simcse_floor"][step]
        updates = [_reached(cell, ends[cell["seed"]]) for cell in methods[name]]
        median = float(np.median(updates))
        is_never = np.isinf(median)
        share = "" if is_never else f"{multiple * median / methods[name][0]['settings']['steps']:.2f}"
        rows.append([name, "never" if is_never else f"{median:.0f}", f"{multiple:.2f}", share])
    heading = [
        "",
        "updates, median of seeds",
        "time of one, in SimCSE's",
        "time until then, in SimCSE's 60 updates",
    ]
    return table(heading, rows)


def equal_time() -> str:
    """The best STS-B dev of a training in the time of so many of SimCSE's updates, means over seeds."""
    multiples = _load("speed.json")["multiple_of_simcse_floor"]
    budgets = ((60, 60), (150, 400), (400, 400))
    methods = {steps: _by_method(_grid("short", steps)) for steps in (60, 400)}
    rows = []
    for name, step in STEPS.items():
        row = [name, f"{multiples[step]:.2f}", " and ".join(str(len(methods[steps][name])) for steps in methods)]
        for time, steps in budgets:
            row.append(_mean([_best_within(cell, time / multiples[step]) for cell in methods[steps][name]]))
        rows.append(row)
    heading = ["", "time of one, in SimCSE's", "seeds of 60 and 400", *(f"{time} updates of SimCSE" for time, _ in budgets)]
    return table(heading, sorted(rows, key=lambda row: float(row[-1].split()[0]), reverse=True))


def _best_within(cell: dict, updates: float) -> float:
    return max(point["dev"] for point in cell["curve"] if point["step"] <= updates)


def _reached(cell: dict, score: float) -> float:
    """Return the update at which STS-B dev was first as high; infinity if it never was."""
    return next((point["step"] for point in cell["curve"] if point["dev"] >= score), np.inf)


def crops() -> str:
    """What a neighbouring sentence as the positive gains over a second view of the same: same seeds, standard errors."""
    rows = []
    for steps in (60, 400):
        pairs, views = (_by_method(_grid(text, steps)) for text in ("crops", "paragraphs"))
        for name, cells in pairs.items():
            if name == "raw":
                continue
            search = [100 * gain for gain in _differences(cells, views[name], "quora_dev_cosine_map@100")]
            gains = [_judged(_differences(cells, views[name], key)) for key in ("dev", "avg7")] + [_judged(search)]
            ends = [_mean([_end(cell) for cell in each]) for each in (views[name], cells)]
            rows.append([f"{name}, {steps} updates", str(len(cells)), *gains, *ends])
    heading = ["crops minus dropout views", "seeds", "STS-B dev", "seven", "Quora MAP"]
    heading += ["end below best: views", "end below best: crops"]
    return "\n".join([*(_setting_line(_grid("crops", steps)) for steps in (60, 400)), table(heading, rows)])


def _end(cell: dict) -> float:
    """Return how far the last STS-B dev of a training is below its best."""
    curve = [point["dev"] for point in cell["curve"]]
    return max(curve) - curve[-1]


def own_texts() -> str:
    """Encoders trained on a collection's own texts and scored on each kind of task: the start, and what is gained on it."""
    tables = []
    of_each = itertools.groupby(_own_grids(of_each_kind=True), key=lambda records: records[0]["settings"]["encoder"])
    for encoder, grids in of_each:
        rows, everything = [], []
        for records in grids:
            methods = _by_method(records)
            (start,) = methods.pop("raw")
            settings = start["settings"]
            everything += records
            before = ["nothing: the start", "", "", "", *(f"{factor * _score(start, key):.2f}" for key, _, factor in KINDS)]
            if before not in rows:
                rows.append(before)
            for name, cells in methods.items():
                row = [OWN_TEXTS[settings["text"]], name, f"{settings['learning_rate']:g}", str(len(cells))]
                rows.append(row + [_gained(start, cells, key, factor) for key, _, factor in KINDS])
        made = sorted({f"{cell['hardware']}, {_threads(cell)}" for cell in everything})
        commits = ", ".join(sorted({_commit(cell) for cell in everything}))
        tables.append(
            f"{encoder}: {settings['steps']} updates of {settings['batch_size']} sentences, up to "
            f"{settings['max_seq_length']} tokens, bf16; {' and '.join(made)}; commit {commits}.\n\n"
            + table(["trained on", "method", "rate", "seeds", *(words for _, words, _ in KINDS)], rows)
        )
    return "\n\n".join(tables)


def _gained(start: dict, cells: list[dict], key: str, factor: int) -> str:
    """Return the mean of what cells have over their start, and of three or more its standard error."""
    gains = [factor * (_score(cell, key) - _score(start, key)) for cell in cells]
    return f"{np.mean(gains):+.2f}" + (f" ± {stats.sem(gains):.2f}" if len(gains) > 2 else "")


def _own_grids(*, of_each_kind: bool) -> list[list[dict]]:
    """Return the grids that trained on a collection's own texts, scored on each kind of task or on search in it alone."""

    def place(records: list[dict]) -> tuple:
        return tuple(records[0]["settings"][key] for key in ("encoder", "text", "learning_rate"))

    found = [records for records in _grids(dev_only=False).values() if records[0]["settings"]["text"] in OWN_TEXTS]
    return sorted((grid for grid in found if ("avg7" in grid[0]["scores"]) == of_each_kind), key=place)


def own_texts_alone() -> str:
    """The same where only what the collection is for was scored: before and after."""
    rows = []
    for records in _own_grids(of_each_kind=False):
        settings = records[0]["settings"]
        methods = _by_method(records)
        (start,) = methods.pop("raw")
        collection = settings["text"].partition("-")[0]
        for name, cells in methods.items():
            row = [settings["encoder"], OWN_TEXTS[settings["text"]], name]
            row += [f"{settings['learning_rate']:g}", str(settings["steps"]), str(len(cells))]
            for part in ("map@100", "purity@10", "v_measure", "dev"):
                row.append(_before_after(start, cells, collection, part))
            rows.append(row)
    rows.sort()
    heading = ["encoder", "text", "method", "rate", "updates", "seeds", "MAP", "purity", "v-measure", "STS-B dev"]
    return table(heading, rows)


def _before_after(start: dict, cells: list[dict], collection: str, part: str) -> str:
    """Return a score of the collection before and after, nothing where it has no such score."""
    keys = [key for key in start["scores"] if key.startswith(collection) and key.endswith(part)]
    if part != "dev" and not keys:
        return ""
    factor = 100 if part == "map@100" else 1
    before, *after = (factor * _score(cell, "dev" if part == "dev" else keys[0]) for cell in [start, *cells])
    return f"{before:.2f} → {_mean(after)}"


def simcse_check() -> str:
    record = _load("simcse_check.json")
    return (
        f"SimCSE in this harness is the loop that anyone would write: {record['steps']} updates move the weights by "
        f"{record['moved']:.2f}, and end {record['apart']:.0e} apart (`simcse_check.py`, float32).\n"
    )


def quality_grids() -> str:
    """Every other grid with test scores."""
    shown = (
        ("short", 60),
        ("short", 400),
        ("short", 2000),
        ("wiki", 60),
        ("wiki", 400),
        ("crops", 60),
        ("crops", 400),
        ("paragraphs", 60),
        ("paragraphs", 400),
    )
    main_grids = [_grid(*which)[0]["settings"] for which in shown]
    tables = []
    for records in _grids(dev_only=False).values():
        settings = records[0]["settings"]
        if settings not in main_grids and settings["text"] not in OWN_TEXTS:
            tables.append(_quality_table(records))
    return "\n".join(tables + [_earlier(_grid(*which)) for which in shown])


def _earlier(records: list[dict]) -> str:
    """Show what the main tables leave out of their grids, beside that which took its place; nothing where all is shown."""
    there = {record["method"] for record in _of_today(records)}
    out = {record["method"] for record in records} - there
    names = out | {name.replace(BEFORE_THAT, "") for name in out} | {"simcse", "raw"}
    return _quality_table([record for record in records if record["method"] in names]) if out else ""


def elsewhere() -> str:
    """How far the same trainings are apart in today's harness and in the one before it, on other machines."""
    lines = []
    for steps in (60, 400):
        today, before = (_by_method(grid) for grid in (_grid("short", steps), _before_today("short", steps)))
        shared = [name for name in today if name in before and name != "raw"]
        apart = [_differences(today[name], before[name], "avg7") for name in shared]
        means = [abs(float(np.mean(gaps))) for gaps in apart if len(gaps) > 2]
        lines.append(
            f"{steps} updates: {len(means)} methods were trained in both with three seeds or more; their means on the seven "
            f"tasks are up to {max(means):.2f} apart (median {np.median(means):.2f}).\n"
        )
    return "\n".join(lines)


def screens() -> str:
    """What STS-B dev says of switches, weights and mixes, and of the cells of the same grid that have test scores, too."""
    tables = []
    full = _grids(dev_only=False)
    for name, screened in _grids(dev_only=True).items():
        records = full.get(name, [])
        there = {(record["method"], record["seed"]) for record in records}
        records = records + [record for record in screened if (record["method"], record["seed"]) not in there]
        methods = _by_method(records)
        rows = []
        for name in sorted(methods, key=lambda name: -_gain(methods[name], records, "dev")):
            cells = methods[name]
            base = name.rpartition("," if "," in name else ":")[0]
            switched = _differences(cells, methods.get(base, []), "dev")
            row = [name, str(len(cells)), _mean([cell["dev"] for cell in cells]), _against(cells, records, "dev")]
            rows.append([*row, f"{np.mean(switched):+.2f}" if switched else ""])
        heading = ["", "seeds", "STS-B dev", "minus SimCSE, same seeds", "what the last keyword does, same seeds"]
        tables.append(_setting_line(records) + "\n" + table(heading, rows))
    return "\n".join(tables)


def draw_quality(path: Path) -> None:
    """Draw the averages of the main grid of short sentences, a dot a seed."""
    records = _of_today(_grid("short", 60))
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    by_method = _by_method(records)
    lowest = _average(by_method["simcse"]) - 10
    methods = sorted(by_method.items(), key=lambda item: _average(item[1]))
    out = [name for name, cells in methods if _average(cells) < lowest]
    methods = methods[len(out) :]
    figure, axes = pyplot.subplots(figsize=(9, 0.32 * len(methods) + 1.2), layout="constrained")
    for place, (name, cells) in enumerate(methods):
        averages = [cell["scores"]["avg7"] for cell in cells]
        axes.plot(averages, [place] * len(averages), "o", color="tab:blue", alpha=0.6)
        axes.plot(np.mean(averages), place, "k|", markersize=14)
        if name == "simcse":
            axes.axvline(np.mean(averages), color="tab:orange", linestyle="--", zorder=0)
    axes.set_yticks(range(len(methods)), [name for name, _ in methods])
    axes.grid(axis="y", alpha=0.3)
    note = f"\nmore than ten points below it, left out: {', '.join(out)}" if out else ""
    axes.set_xlabel(f"average of the seven STS tasks\na dot is a seed, the dashed line is SimCSE{note}")
    figure.savefig(path, dpi=120, metadata={"Software": None})
    pyplot.close(figure)


def _grids(*, dev_only: bool, supervised: bool = False) -> dict[str, list[dict]]:
    """Return the quality cells by the name of what they share, encoder, text and settings; with labels only if asked."""
    grids = {}
    for name, records in read_grids(RESULTS).items():
        for record in records:
            record["method"] = _as_it_was(record)
        kept = [record for record in records if supervised or not _is_supervised(record["method"])]
        if kept and kept[0]["settings"]["dev_only"] == dev_only:
            grids[name.removesuffix("_dev")] = kept
    return grids


def _as_it_was(record: dict) -> str:
    """Name a method by what it was: seven losses had other defaults when their first cells were made."""
    return _by_its_words(record, _by_its_loss(record))


def _by_its_loss(record: dict) -> str:
    name, colon, keywords = record["method"].partition(":")
    if name.startswith("recommended") and "ArcCSELoss" in json.dumps(record["loss"]):
        return record["method"].replace("recommended", "consert + arccse", 1)
    if "packed" in record["settings"]:  # the harness knows it since
        return _by_its_bound(record) if name == "denosent" else record["method"]
    if name == "slt-fai":
        by_types = "low_frequency_by=types"
        rest = ",".join(keyword for keyword in keywords.split(",") if keyword != by_types)
        return f"slt-fai unbounded by {'types' if by_types in keywords else 'mass'}{colon if rest else ''}{rest}"
    first, space, rest = name.partition(" ")
    own = f"{first} as in its paper" if first in ("denosent", "paser") else first
    return own + space + rest + colon + keywords


def _by_its_bound(record: dict) -> str:
    """Name a cell of DenoSent: its bound was 1 by default, and is 0.3."""
    _, _, keywords = record["method"].partition(":")
    named = [keyword for keyword in keywords.split(",") if keyword and not keyword.startswith("balance=")]
    bound = record["loss"]["balance"]
    named += [] if bound == 0.3 else [f"balance={bound:g}"]
    return "denosent" + ":" * bool(named) + ",".join(named)


def _by_its_words(record: dict, named: str) -> str:
    """Name what scored the words, where it is not today's default, and that `recommended` had none or a pass for them."""
    name, _, rest = named.partition(":")
    loss, default = record.get("loss") or {}, "pretrained" if name == "paser" else "embeddings"
    of_words = loss
    keywords = [keyword for keyword in rest.split(",") if keyword and not keyword.startswith("mlm_head=")]
    if name == "recommended":
        keywords = [keyword for keyword in keywords if not keyword.startswith("words=")]
        of_words = loss.get("words", {}).get("settings", {})
        bound = loss["balance"] if of_words else 0
        keywords = ([] if bound == 0.3 else [f"words={bound:g}"]) + keywords
        name += BEFORE_THAT * bool(bound and record["date"] < WORDS_SHARE_SINCE)
    elif name not in ("bag-of-words", "denosent", "paser") or loss.get("decoder_layers"):
        return named
    if of_words:
        # None was the encoder's own head, and a new one was left out where no layers stand before it.
        scored_by = {None: "pretrained", "fresh": "embeddings"}.get(of_words["mlm_head"], of_words["mlm_head"])
        keywords += [] if scored_by == default else [f"mlm_head={scored_by}"]
    return name + ":" * bool(keywords) + ",".join(keywords)


def _grid(text: str, steps: int) -> list[dict]:
    """Return the cells of the main encoder on a text, of as many updates: the grid of today's harness that has most."""
    return max(_trained_as_long(text, steps), key=_place)


def _before_today(text: str, steps: int) -> list[dict]:
    """Return the largest grid that computed padding."""
    return max((grid for grid in _trained_as_long(text, steps) if not _is_packed(grid[0])), key=len)


def _place(records: list[dict]) -> tuple[bool, int]:
    """Put a grid of today's harness, which computes no padding and trains in bfloat16, before others, then the larger one."""
    settings = records[0]["settings"]
    return _is_packed(records[0]) and settings["bf16"] and settings["pooling"] == "mean", len(records)


def _is_packed(record: dict) -> bool:
    return record["settings"].get("packed", False)


def _trained_as_long(text: str, steps: int) -> list[list[dict]]:
    return [
        records
        for records in _grids(dev_only=False).values()
        if [records[0]["settings"][key] for key in ("encoder", "text", "steps")] == ["minilm-mlm", text, steps]
    ]


def _is_supervised(method: str) -> bool:
    """Whether a method's name says in brackets what supervises it."""
    return "(" in method.partition(":")[0]


def _quality_table(records: list[dict]) -> str:
    beside = [kind for kind in BESIDE_STS if all(kind[0] in record["scores"] for record in records)]
    has_simcse = any(record["method"] == "simcse" for record in records)
    rows = []
    for name, cells in sorted(_by_method(records).items(), key=lambda item: _order(item[1], records), reverse=True):
        columns = [[cell["scores"][key] for cell in cells] for key in ("geometry_alignment", "geometry_uniformity")]
        rows.append(
            [
                name,
                str(len(cells)),
                _mean([cell["dev"] for cell in cells]),
                _mean([_end(cell) for cell in cells]) if all(cell.get("curve") for cell in cells) else "",
                _mean([cell["scores"]["avg7"] for cell in cells]),
                *[_against(cells, records, "avg7")] * has_simcse,
                _mean([cell["scores"]["hard_length_avg5"] for cell in cells], 1),
                *(_mean([factor * cell["scores"][key] for cell in cells], 1) for key, _, factor in beside),
                *(f"{np.mean(values):.2f}" for values in columns),
            ]
        )
    heading = [
        "", "seeds", "STS-B dev", "end below it", "average of seven", *["minus SimCSE, same seeds"] * has_simcse,
        "length misleads", *(words for _, words, _ in beside), "alignment", "uniformity",
    ]  # fmt: skip
    return _setting_line(records) + "\n" + table(heading, rows)


def _setting_line(records: list[dict]) -> str:
    settings = records[0]["settings"]
    commits = sorted({_commit(record) for record in records})
    hardware = sorted({f"{record['hardware']}, {_threads(record)}" for record in records})
    return (
        f"{settings['encoder']}, {settings['pooling']} pooling, {TEXTS.get(settings['text'], settings['text'])}: "
        f"{settings['steps']} updates of {settings['batch_size']} sentences, learning rate {settings['learning_rate']:g}, "
        f"length {settings['max_seq_length']}{', bf16' * settings['bf16']}; {' and '.join(hardware)}; commit "
        f"{', '.join(commits)}.{RECOVERED * (settings['encoder'] in ('minilm-mlm', 'minilm-4-layers'))}\n"
    )


def _commit(record: dict) -> str:
    return record["commit"] + " with uncommitted changes" * record["uncommitted_changes"]


def _by_method(records: list[dict]) -> dict[str, list[dict]]:
    """Return the cells of each method in the order of their seeds."""
    methods = defaultdict(list)
    for record in sorted(records, key=lambda record: record["seed"]):
        methods[record["method"]].append(record)
    return methods


def _average(cells: list[dict]) -> float:
    return float(np.mean([cell["scores"]["avg7"] for cell in cells]))


def _mean(values: list[float], digits: int = 2) -> str:
    """Mean and, over several seeds, standard deviation.

    Raises:
        FileNotFoundError: Without a value: a page is not built with a hole.
    """
    if not values:
        raise FileNotFoundError("a table has a place for which there is no record: run quality.py.")
    deviation = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{deviation}"


def _against(cells: list[dict], records: list[dict], key: str) -> str:
    """Mean difference to SimCSE with the same seed, and its 95 % bootstrap interval over the seeds."""
    differences = _differences(cells, [record for record in records if record["method"] == "simcse"], key)
    if not differences or cells[0]["method"] == "simcse":
        return ""
    if len(differences) < 5:
        return f"{np.mean(differences):+.2f}"
    interval = stats.bootstrap((differences,), np.mean, method="percentile", rng=0).confidence_interval
    return f"{np.mean(differences):+.2f} [{interval.low:+.2f}, {interval.high:+.2f}]"


def _order(cells: list[dict], records: list[dict]) -> tuple[float, float]:
    return _gain(cells, records, "avg7"), _average(cells)


def _gain(cells: list[dict], records: list[dict], key: str) -> float:
    """Mean difference to SimCSE with the same seed, by which a table is sorted: seeds differ."""
    differences = _differences(cells, [record for record in records if record["method"] == "simcse"], key)
    return float(np.mean(differences)) if differences else -np.inf


def _differences(cells: list[dict], baseline: list[dict], key: str) -> list[float]:
    """Return the differences of cells to the baseline's cells of the same seed."""
    scores = {cell["seed"]: _score(cell, key) for cell in baseline}
    return [_score(cell, key) - scores[cell["seed"]] for cell in cells if cell["seed"] in scores]


def _score(cell: dict, key: str) -> float:
    return cell["dev"] if key == "dev" else cell["scores"][key]


def encoders() -> str:
    """Every loss on every family of encoders: trained and loaded again the same, or refused, and why."""
    record = _load("encoders.json")
    notes: dict[str, int] = {}
    signs: dict[tuple[str, str], list[str]] = defaultdict(list)
    for cell in record["cells"]:
        sign = {"trained": "✓", "obscure": "✗"}.get(cell["outcome"])
        if sign is None:
            reason = cell["message"].replace(cell["encoder"], "this encoder")
            sign = f"[{notes.setdefault(reason, len(notes) + 1)}]"
        elif cell.get("reload_difference"):
            sign = f"{cell['reload_difference']:.0e}"
        signs[cell["family"], cell["loss"]].append(sign)
    names = list(dict.fromkeys(loss for _, loss in signs))
    rows = [
        [family, *(" ".join(dict.fromkeys(signs[family, name])) for name in names)]
        for family in dict.fromkeys(family for family, _ in signs)
    ]
    counts = ", ".join(f"{number} {outcome}" for outcome, number in record["counts"].items())
    return (
        f"{len(record['cells'])} cells, {counts}; transformers {record['versions']['transformers']}, "
        f"commit {_commit(record)}.\n\n"
        + table(["", *names], rows)
        + "".join(f"\n[{number}] {reason}\n" for reason, number in notes.items())
    )


def topics() -> str:
    """How well encoders before any training, and vectors that need none, tell topics apart."""
    names = {"agnews": "news", "biomedical": "biomedical titles"}
    found: dict[str, dict[str, dict]] = defaultdict(dict)
    for path in sorted(RESULTS.glob("topics/*/*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        found[record["method"]][record["collection"]] = record
    keys = ("purity@10", "v_measure", "accuracy")
    heading = ["", *(f"{names[collection]}: {key}" for collection in names for key in keys)]
    rows = [
        [method, *(f"{records[name]['scores'][key]:.1f}" if name in records else "" for name in names for key in keys)]
        for method, records in found.items()
    ]
    rows.sort(key=lambda row: float(row[4] or "-inf"), reverse=True)
    return table(heading, rows)


def fidelity() -> str:
    """The authors' code and the losses that compute what it computes, side by side."""
    rows, notes = [], []
    for method, found in _load("fidelity.json").items():
        for name, term in found["terms"].items():
            cosines = (min(term[key]) for key in ("cosine_words", "cosine_last"))
            largest = max(*term["largest_words"], *term["largest_last"])
            apart = max(map(abs, term["difference"]))
            rows.append([method, name, f"{apart:.0e}", *(f"{cosine:.7f}" for cosine in cosines), f"{largest:.0e}"])
        official, reasons = found["official"], found["cannot_agree"]
        notes.append(
            f"\n{method}: `{official['file']}` of {official['commit'][:12]}, transformers {official['transformers']}. "
            + "Cannot agree: "
            + "; ".join(f"{what}: {why}" for what, why in reasons.items())
            + ".\n"
        )
    heading = [
        "",
        "term",
        "values apart, at most",
        "lowest cosine of gradients, words",
        "last layer",
        "gradients apart, at most",
    ]
    return table(heading, rows) + "".join(notes)


def label_free() -> str:
    """How scores without labels follow STS-B dev: every candidate, and the sums of two that the first set chose."""
    if not (RESULTS / "label_free.json").exists():  # the page says that the study is not finished
        return ""
    record = _load("label_free.json")
    sets = list(record["settings"]["sets"])
    keys = ("overall", "without harm", "at the end", "within", "helped", "lost by it")
    single = record["single"]
    found = {name: {set_name: single[set_name][name] for set_name in sets} for name in single[sets[0]]}
    found |= record["sums"]
    points = {
        set_name: [label_free_study.Checkpoint(**point) for point in record["checkpoints"][set_name]] for set_name in sets
    }
    found["**`LabelFreeEvaluator`**"] = {set_name: label_free_study.shipped(points[set_name]) for set_name in sets}
    rows = [
        [name, *(f"{by_set[set_name][key]:.2f}" for set_name in sets for key in keys)]
        for name, by_set in sorted(found.items(), key=lambda item: -item[1][sets[0]]["overall"])
    ]
    lines = [_label_free_set(record, name) for name in sets] + [_label_free_verdict(record)]
    return "\n".join(lines) + "\n" + table(["", *(f"{name}: {key}" for name in sets for key in keys)], rows)


def label_free_long() -> str:
    """What the score without labels sees of trainings of 400 updates, and which checkpoint it would choose."""
    records = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("label_free_long/*.json"))]
    rows = []
    for record in records:
        curve = record["curve"]
        dev, score = ([point[key] for point in curve] for key in ("dev", "label_free"))
        late = [place for place, point in enumerate(curve) if point["step"] >= 30]
        best, chosen = (int(np.argmax(values)) for values in (dev, score))
        row = [f"{record['method']}, {record['settings']['text']}"]
        row += [f"{dev[place]:.2f} ({curve[place]['step']})" for place in (best, -1, chosen)]
        row += [f"{score[place]:.1f}" for place in (0, best, -1)]
        row += [f"{stats.spearmanr(dev, score)[0]:.2f}"]
        rows.append([*row, f"{stats.spearmanr([dev[place] for place in late], [score[place] for place in late])[0]:.2f}"])
    heading = ["", "STS-B dev: best (update)", "at the end", "where the score is best", "score: start", "at the best of dev"]
    heading += ["at the end", "Spearman, all points", "from update 30 on"]
    settings = records[0]["settings"]
    line = (
        f"minilm-mlm, {settings['updates']} updates of {settings['batch_size']} sentences at {settings['learning_rate']:g}, "
        f"length {settings['max_seq_length']}, bf16, {settings['held_out']} sentences held out; {records[0]['hardware']}, "
        f"{_threads(records[0])}; commit {', '.join(sorted({_commit(record) for record in records}))}.\n"
    )
    return line + "\n" + table(heading, rows)


def _label_free_verdict(record: dict) -> str:
    """Say what reaches the bounds, and whether that can be trusted."""
    found, bounds = record["reach the bounds in every set"], record["bounds"]
    text = f"In every set, {bounds['overall']} over all and {bounds['within']} within are reached by {len(found)} scores"
    text += f" ({'; '.join(found)}).\n" if found else ".\n"
    if record["sets are large enough"]:
        return text
    missing = {name: runs for name, runs in record["settings"]["not_finished"].items() if runs}
    names = "; ".join(f"{name}: {', '.join(runs)}" for name, runs in missing.items())
    return (
        f"{text}\nThat is no verdict yet: a set is to have {bounds['trainings']} trainings at least, and those that do harm "
        f"are the test of such a score. Not finished: {names}. The command goes on with them.\n"
    )


def _label_free_set(record: dict, name: str) -> str:
    """Say what a set is, and what STS-B dev itself does in it."""
    shared, points = record["settings"]["sets"][name], record["checkpoints"][name]
    values = [point["dev"] for point in points]
    any_score = next(iter(record["single"][name].values()))
    return (
        f"{name.capitalize()}: {shared['encoder']}, seed {shared['seed']}, {len(shared['runs'])} trainings, {len(points)} "
        f"checkpoints after 0, {', '.join(map(str, record['settings']['steps']))} updates of "
        f"{record['settings']['batch_size']} sentences; STS-B dev {min(values):.1f} to {max(values):.1f}; below a training's "
        f"best checkpoint: its end by {any_score['lost at the end']:.2f}, the start by {any_score['lost at the start']:.2f}; "
        f"{record['seconds'][name] / 60:.0f} minutes on {record['hardware']}, {_threads(record)}, commit "
        f"{_commit(record)}.\n"
    )


def hard_length() -> str:
    """PT-BERT's hard examples on its paper's text, year by year."""
    methods = _by_method(_grid("wiki", 60))
    years = [f"hard_length_{name}" for name in (*TASKS[:5], "avg5", "union")]
    rows = [
        [name, str(len(methods[name])), *(_mean([cell["scores"][year] for cell in methods[name]], digits=1) for year in years)]
        for name in ("raw", "simcse", "simcse:temperature=0.1", "pt-bert", "paser", "recommended")
    ]
    return table(["", "seeds", *(year.removeprefix("hard_length_") for year in years)], rows)


def sts_check() -> str:
    record = _load("evaluation_check.json")
    names = [*TASKS, "all_SICK-R"]
    rows = [
        ["here", *(f"{record['scores'][task]:.2f}" for task in names)],
        ["expected", *(f"{record['expected'][task]:.2f}" for task in names)],
    ]
    return table(["all-MiniLM-L6-v2", *TASKS[:-1], "average", "SICK-R, all 9,927 pairs"], rows)


def one_pass() -> str:
    record = _load("evaluation_speed.json")
    once, apart = record["one_pass"], record["one_by_one"]
    how = f"{'bf16, ' * record['bf16']}{record['hardware']}, {_threads(record)}"
    return (
        f"The offline suite encodes {once['sentences_encoded']:,} sentences in one pass, its evaluators one by one "
        f"{apart['sentences_encoded']:,}: {once['cpu_seconds'] / 60:.0f} minutes of CPU time instead of "
        f"{apart['cpu_seconds'] / 60:.0f} (all-MiniLM-L6-v2, {how}).\n"
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
    return table(["all-MiniLM-L6-v2", *programs, "largest difference"], rows) + (
        f"\nSpearman for STS; mteb {record['mteb']} rounds the retrieval scores to five digits.\n"
    )


def speed() -> str:
    record = _load("speed.json")
    of_own = record["multiple_of_own_floor"]
    rows = [
        [name, f"{multiple:.2f}", *(f"{found[name]:.2f}" if name in found else "" for found in (record["target"], of_own))]
        for name, multiple in record["multiple_of_simcse_floor"].items()
        if "floor" not in name
    ]
    return (
        table(["training step", "multiple of SimCSE's", "aim", "multiple of its own floor"], rows)
        + f"\nMedians over {record['rounds']} rounds in turns; batch 64, length 32, 6 x 384, a third of the sentences long; "
        f"{record['hardware']}, {_threads(record)}.\n" + _denosent_decoder(record)
    )


def _denosent_decoder(record: dict) -> str:
    names = ("here", "torch.nn.TransformerDecoder")
    (here, torchs), ragged = (
        [record[kind][name] for name in names] for kind in ("denosent_decoder", "denosent_decoder_ragged")
    )
    share, of_ragged = (one["median_seconds"] / other["median_seconds"] for one, other in ((here, torchs), ragged))
    return (
        f"\nDenoSent's sixteen decoder layers, forward and backward, beside `torch.nn.TransformerDecoder`: {share:.2f} of its "
        f"time on sentences of 30 tokens, {of_ragged:.2f} on those of 5 to 30; {here['activations_mib']:.0f} MiB kept for the "
        f"backward pass in place of {torchs['activations_mib']:.0f}, and {ragged[0]['activations_mib']:.0f} in place of "
        f"{ragged[1]['activations_mib']:.0f}; {here['parameters'] / 1e6:.1f} million weights in place of "
        f"{torchs['parameters'] / 1e6:.1f}.\n"
    )


def phrases() -> str:
    """Sentences a second of what makes PaSeR's columns, and memory."""
    record = _load("phrases_speed.json")
    rows = [[name, f"{rate:,}"] for name, rate in record["sentences_per_second"].items()]
    memory = record["peak_memory_mib_by_sentences"]
    return table(["", "sentences a second"], rows) + (
        f"\nMedians of {len(next(iter(record['runs'].values())))}, {record['sentences']:,} sentences of Wikipedia, "
        f"{record['columns']:,} for the columns; {record['hardware']}, commit {_commit(record)}. Memory of columns without "
        "synonyms at its peak, beside the interpreter's: "
        f"{', '.join(f'{mib} MiB for {int(count):,} sentences' for count, mib in memory.items())}.\n"
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


def hostile() -> str:
    """How attacks ended, by area."""
    record = _load("hostile.json")
    ends = ("cases", "right", "refused", "obscure", "silent")
    areas = record["areas"]
    rows = [[area, *(str(counts[end]) for end in ends)] for area, counts in areas.items()]
    rows.append(["all", *(str(sum(counts[end] for counts in areas.values())) for end in ends)])
    return table(["area", *ends], rows) + f"\ncommit {_commit(record)}, {record['seconds']} s on {record['hardware']}.\n"


def _threads(record: dict) -> str:
    return f"{record['threads']} thread" + "s" * (record["threads"] != 1)


def _load(name: str) -> dict:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def table(heading: list[str], rows: list[list[str]]) -> str:
    lines = [heading, ["---"] * len(heading), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


# By the name between whose marks each stands.
TABLES = {
    "demo": demo,
    "best": best,
    "decoders": decoders,
    "reconstructions": reconstructions,
    "pt-bert start": pt_bert_start,
    "quality": quality,
    "quality longer": quality_longer,
    "quality long": quality_long,
    "quality wiki": quality_wiki,
    "crops": crops,
    "own texts": own_texts,
    "own texts alone": own_texts_alone,
    "supervised": supervised,
    "simcse check": simcse_check,
    "aims": aims,
    "time to quality": time_to_quality,
    "equal time": equal_time,
    "quality grids": quality_grids,
    "elsewhere": elsewhere,
    "screens": screens,
    "hard length": hard_length,
    "encoders": encoders,
    "topics": topics,
    "fidelity": fidelity,
    "label free": label_free,
    "label free long": label_free_long,
    "sts check": sts_check,
    "mteb check": mteb_check,
    "one pass": one_pass,
    "speed": speed,
    "phrases": phrases,
    "shared": shared,
    "kills": kills,
    "logs": logs,
    "hostile": hostile,
}

if __name__ == "__main__":
    main()
