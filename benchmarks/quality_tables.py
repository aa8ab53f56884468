"""The tables of quality, and their figure: ``report.py`` puts them into the pages."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from pathlib import Path

import numpy as np
from grids import (
    BEFORE_THAT,
    all_grids,
    are_near,
    but_for_precision,
    by_method,
    grid_before,
    grids_apart,
    grids_as_long,
    is_packed,
    is_supervised,
    made_before,
    made_in_both,
    made_in_float32_too,
    main_grid,
    merged,
    paired_differences,
    pairs_of,
    place_of,
    score_of,
    trained_of,
)
from scipy import stats
from tables import TASKS, commit_text, load_record, mean_text, table, threads_text

from sbert_plugins import recipes

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
# What has no seed: its distance is to the mean of SimCSE's.
UNTRAINED = ("raw", "raw-cls", "whitening", "whitening-cls", "sif", "sif-of-words", "tfidf", "tfidf-of-characters")
# What was trained at several learning rates, and by adapters.
BY_RATES = ("simcse", "simcse:temperature=0.1", "recommended", "recommended" + BEFORE_THAT)
# What a method is measured against, and the averages of seven tasks that its paper prints for bert-base with it and without.
AIMS = [
    ("arccse", "simcse", 78.11, 76.25),
    ("arccse", "arccse:margin_degrees=0,triplet_weight=0", None, None),
    ("arccse:margin_degrees=0,triplet_weight=0", "simcse", None, None),
    ("arccse:margin_degrees=0,triplet_weight=0,temperature=0.1", "simcse:temperature=0.1", None, None),
    ("pt-bert", "simcse", 77.74, 76.25),
    ("pt-bert:momentum=0.5", "simcse", None, None),
    ("pt-bert:momentum=0.5", "pt-bert", None, None),
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
    ("denosent as in its paper", "simcse", 77.99, 76.25),
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
    ("recommended:learning_rate=2e-4", "recommended", None, None),
    ("recommended:learning_rate=2e-4", "simcse", None, None),
    ("recommended:learning_rate=2e-4", "simcse:learning_rate=2e-4", None, None),
    ("recommended:learning_rate=2e-4", "simcse:temperature=0.1,learning_rate=2e-4", None, None),
    ("recommended:words=0", "simcse", None, None),
    ("recommended:words=0", "simcse:temperature=0.1", None, None),
    ("recommended:words=0", "consert", None, None),
    ("recommended:words=0", "consert + arccse", None, None),
    ("recommended with a pass for its words:learning_rate=1e-4", "simcse:learning_rate=1e-4", None, None),
    ("recommended with a pass for its words:learning_rate=1e-4", "simcse:temperature=0.1,learning_rate=1e-4", None, None),
    ("recommended:words=0,learning_rate=1e-4", "simcse:temperature=0.1,learning_rate=1e-4", None, None),
    ("ct:temperature=0.1", "simcse:temperature=0.1", None, None),
    ("denosent", "denosent:mlm_head=pretrained", None, None),
    ("bag-of-words", "bag-of-words:mlm_head=pretrained", None, None),
    ("consert + arccse", "consert", None, None),
    ("consert + arccse", "arccse:temperature=0.1", None, None),
    ("consert + arccse + words", "consert + arccse", None, None),
    ("consert + arccse + words:balance=0.3", "consert + arccse", None, None),
    ("simcse + paser", "simcse on paser's rows", None, None),
    ("consert + arccse + paser", "consert + arccse on paser's rows", None, None),
]
# The step of speed.json that a method's updates take on short sentences, of which hardly one is long enough for a triplet.
STEPS = {
    "simcse": "SimCSE floor",
    "simcse:temperature=0.1": "SimCSE floor",
    "consert": "ConSERT",
    "recommended": "recommended",
    "arccse": "ArcCSE without a long sentence",
    "paser": "PaSeR",
    "denosent": "DenoSent",
    "pt-bert": "PT-BERT",
    "slt-fai": "SLT-FAI",
    "bag-of-words": "bag of words",
}
# The methods of the table by task, whose gains differ from task to task.
BY_TASK = (
    "simcse:temperature=0.1", "consert", "recommended", "bag-of-words", "denosent", "arccse", "paser", "pt-bert", "slt-fai",
)  # fmt: skip
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


def quality() -> str:
    """All methods on the main encoder, and short sentences."""
    return _quality_table(_of_today(main_grid("short", 60)))


def best() -> str:
    """Where a training starts, what all are measured against, and what stands above it, with five seeds."""
    records = main_grid("short", 60)
    rows = []
    for name, words in BEST.items():
        cells = by_method(records)[name]
        scores = [
            mean_text([cell["dev"] for cell in cells]),
            mean_text([cell["scores"]["avg7"] for cell in cells]),
            mean_text([100 * cell["scores"]["quora_dev_cosine_map@100"] for cell in cells]),
        ]
        rows.append([words, str(len(cells)), *scores])
    return table(["", "seeds", "STS-B dev", "average of seven STS tasks", "Quora retrieval, MAP"], rows)


def quality_longer() -> str:
    """The same, trained longer."""
    return _quality_table(_of_today(main_grid("short", 400))) + _made_in_both()


def quality_long() -> str:
    """STS-B dev along trainings of 2,000 updates, and the scores of what they saved."""
    records = _of_today(main_grid("short", 2000))
    trained = [record for record in records if record["method"] != "raw"]
    return "\n".join([_setting_line(records), _curves(trained), _scores(records)])


def _made_in_both() -> str:
    """How far trainings of 400 updates that were made with bfloat16 and without are apart, and of which methods there are."""
    both = made_in_both([grid for grid in grids_apart("short", 400) if is_packed(grid[0])])
    dev = [abs(a["dev"] - b["dev"]) for pair in both for a, b in zip(*(cell["curve"] for cell in pair), strict=True)]
    seven = [abs(one["scores"]["avg7"] - other["scores"]["avg7"]) for one, other in both]
    methods = " and ".join(sorted({cell["method"] for cell, _ in both}))
    return (
        f"\nHere and below, trainings with bf16 and without stand in one table: {len(both)} of 400 updates that one machine "
        f"made both ways, of {methods}, are up to {max(dev):.2f} apart along STS-B dev (median {np.median(dev):.2f}), and up "
        f"to {max(seven):.2f} on the seven tasks.\n"
    )


def _curves(records: list[dict]) -> str:
    steps = (100, 300, 600, 1000, 1500, 2000)
    rows = []
    for name, cells in sorted(by_method(records).items(), key=lambda item: -_average(item[1])):
        curves = [{point["step"]: point["dev"] for point in cell["curve"]} for cell in cells]
        row = [name, str(len(cells)), *(mean_text([curve[step] for curve in curves]) for step in steps)]
        row += [", ".join(f"{max(curve.values()):.2f} ({max(curve, key=curve.__getitem__)})" for curve in curves)]
        rows.append(row)
    return table(["STS-B dev", "seeds", *(f"update {step:,}" for step in steps), "best (update)"], rows)


def lengths() -> str:
    """Where trainings of each length end, and how far that is below their best: what nobody sees who has no labels."""
    budgets = (("short", 60), ("short", 400), ("short", 2000), ("wiki", 60), ("wiki", 400))
    grids = [by_method(_of_today(main_grid(text, steps))) for text, steps in budgets]
    rows = [[name, *(_ends_of(grid.get(name, [])) for grid in grids)] for name in STEPS]
    words = {"short": "short sentences", "wiki": "Wikipedia"}
    return table(["", *(f"{words[text]}, {steps:,}" for text, steps in budgets)], rows)


def _ends_of(cells: list[dict]) -> str:
    if not cells:
        return ""
    end, below = np.mean([(cell["curve"][-1]["dev"], _end(cell)) for cell in cells], axis=0)
    sunk = f", {below:.1f} below" if below >= 0.05 else ""
    return f"{end:.1f}{sunk}" + (f" ({len(cells)})" if len(cells) != 5 else "")


def quality_wiki() -> str:
    """Those that were also trained on the papers' text."""
    return "\n".join(_quality_table(_of_today(main_grid("wiki", steps))) for steps in (60, 400))


def _of_today(records: list[dict]) -> list[dict]:
    """Leave out what was trained in an earlier way, where the same was trained in today's."""
    names = {record["method"] for record in records}
    earlier = {name for name in names if BEFORE_THAT in name and name.replace(BEFORE_THAT, "") in names}
    return [record for record in records if record["method"] not in earlier]


def of_method(name: str) -> str:
    """What a method does on the main encoder, whatever its keywords, beside SimCSE and no training: its page on the site."""
    tables, shown = [], set()
    for budget in (("short", 60), ("short", 400), ("wiki", 60), ("wiki", 400)):
        for records in (_of_today(main_grid(*budget)), *([grid_before(*budget)] if budget[0] == "short" else [])):
            own = [one for one in records if re.split(" as in |:", one["method"])[0] == name]
            if {(one["method"], budget) for one in own} - shown:  # of an earlier harness what today's has not
                beside = [one for one in records if one["method"] in ("raw", "simcse", "simcse:temperature=0.1")]
                tables.append(_quality_table([*beside, *own]))
            shown |= {(one["method"], budget) for one in own}
    return "\n".join(tables)


def supervised() -> str:
    """What pairs of paraphrases or scores gain, beside SimCSE: supervision, not noise."""
    grids = all_grids(dev_only=False, supervised=True).values()
    (records,) = [records for records in grids if any(is_supervised(record["method"]) for record in records)]
    shown = [record for record in records if record["method"] == "simcse" or is_supervised(record["method"])]
    return "What is supervised was trained on its own pairs, SimCSE as here:\n\n" + _quality_table(shown)


def settings_of_tables() -> recipes.Settings:
    """Return what the trainings of the main table share, which are steps of one batch in one process."""
    shared = main_grid("short", 60)[0]["settings"]
    named = {name: shared[name] for name in ("learning_rate", "batch_size", "pooling", "max_seq_length", "eval_steps")}
    return recipes.Settings(**named, gradient_accumulation_steps=1, epochs=1, max_steps=shared["steps"])


def aims() -> str:
    """What each paper gained, and what the main grids gain, over the same: means of the same seeds, and standard errors."""
    budgets = {"60": ("short", 60), "400": ("short", 400), "2,000": ("short", 2000)}
    budgets |= {f"Wikipedia, {steps}": ("wiki", steps) for steps in (60, 400)}
    grids = {
        name: [
            by_method(records + made_before(records) + made_in_float32_too(records))
            for records in sorted(grids_as_long(*budget), key=place_of, reverse=True)
        ]
        for name, budget in budgets.items()
    }
    shown = [(name, key) for name in ("60", "400") for key in ("avg7", "dev", "biomedical_purity@10")]
    shown += [(name, "avg7") for name in ("2,000", "Wikipedia, 60", "Wikipedia, 400")]
    words = {"avg7": "seven", "dev": "STS-B dev", "biomedical_purity@10": "titles"}
    rows = []
    for name, base, with_it, without in AIMS:
        pairs = [(_most_pairs(grids[grid], name, base, key), key) for grid, key in shown]
        paper = "" if with_it is None else f"{with_it - without:+.2f}"
        rows.append([name, base, paper, *(_judged(_differences(each, key)) + _machines_mark(each) for each, key in pairs)])
    return table(["", "minus", "paper", *(f"{grid}: {words[key]}" for grid, key in shown)], rows)


def by_task() -> str:
    """What each method gains over SimCSE on each of the seven tasks: an average hides what it costs."""
    rows = []
    for words, budget in (("60", ("short", 60)), ("400", ("short", 400)), ("Wikipedia, 400", ("wiki", 400))):
        methods = by_method(_of_today(main_grid(*budget)))
        for name in BY_TASK:
            pairs = pairs_of(methods.get(name, []), methods["simcse"])
            if pairs:
                row = [words, name + _machines_mark(pairs)]
                rows.append(row + [_judged(_differences(pairs, task)) for task in TASKS[:7]])
    return table(["updates", "minus simcse", *TASKS[:7]], rows)


def _most_pairs(grids: list[dict[str, list[dict]]], name: str, base: str, key: str) -> list[tuple[dict, dict]]:
    """Return a method's cells beside another's in the first grid that has both with three seeds, else with most."""

    def scored(methods: dict[str, list[dict]], method: str) -> list[dict]:
        return [cell for cell in methods.get(method, []) if key == "dev" or key in cell["scores"]]

    found = [pairs_of(scored(methods, name), scored(methods, base)) for methods in grids]
    return next((pairs for pairs in found if len(pairs) > 2), max(found, key=len))


def _differences(pairs: list[tuple[dict, dict]], key: str) -> list[float]:
    return [score_of(cell, key) - score_of(base, key) for cell, base in pairs]


def _machines_mark(pairs: list[tuple[dict, dict]]) -> str:
    """Mark a mean of which some differences are between two machines or precisions, which differ by themselves."""
    return "" if all(map(are_near, pairs)) else " †"


def _judged(gains: list[float]) -> str:
    """Return a mean with its standard error, in bold where its interval leaves 0 out, and how many if not five."""
    if len(gains) < 3:
        return f"{np.mean(gains):+.2f} ({len(gains)} seed{'s' * (len(gains) > 1)})" if gains else ""
    low, high = _interval(gains)
    mark = "" if low <= 0 <= high else "**"
    judged = f"{mark}{np.mean(gains):+.2f}{mark} ± {stats.sem(gains):.2f}"
    return judged + (f" ({len(gains)})" if len(gains) < 5 else "")


def _interval(gains: list[float]) -> tuple[float, float]:
    """Return the 95 % interval of a mean by Student's t: of five values a bootstrap's covers less, some 84 %."""
    half = stats.t.ppf(0.975, len(gains) - 1) * stats.sem(gains)
    return float(np.mean(gains) - half), float(np.mean(gains) + half)


def time_to_quality() -> str:
    """Updates, and time as a share of SimCSE's whole training, until STS-B dev has what SimCSE ends with."""
    record, methods = load_record("speed.json"), by_method(main_grid("short", 60))
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
    multiples = load_record("speed.json")["multiple_of_simcse_floor"]
    budgets = ((60, 60), (150, 400), (400, 400))
    methods = {steps: by_method(main_grid("short", steps)) for steps in (60, 400)}
    rows = []
    for name, step in STEPS.items():
        row = [name, f"{multiples[step]:.2f}", " and ".join(str(len(methods[steps][name])) for steps in methods)]
        for time, steps in budgets:
            row.append(mean_text([_best_within(cell, time / multiples[step]) for cell in methods[steps][name]]))
        rows.append(row)
    heading = ["", "time of one, in SimCSE's", "seeds of 60 and 400", *(f"{time} updates of SimCSE" for time, _ in budgets)]
    return table(heading, sorted(rows, key=lambda row: float(row[-1].split()[0]), reverse=True))


def _best_within(cell: dict, updates: float) -> float:
    """Return the best STS-B dev up to the evaluation that is nearest to so many updates."""
    last = min((point["step"] for point in cell["curve"]), key=lambda step: abs(step - updates))
    return max(point["dev"] for point in cell["curve"] if point["step"] <= last)


def _reached(cell: dict, score: float) -> float:
    """Return the update at which STS-B dev was first as high; infinity if it never was."""
    return next((point["step"] for point in cell["curve"] if point["dev"] >= score), np.inf)


def crops() -> str:
    """What a neighbouring sentence as the positive gains over a second view of the same: same seeds, standard errors."""
    rows = []
    for steps in (60, 400):
        pairs, views = (by_method(main_grid(text, steps)) for text in ("crops", "paragraphs"))
        for name, cells in pairs.items():
            if name == "raw":
                continue
            search = [100 * gain for gain in paired_differences(cells, views[name], "quora_dev_cosine_map@100")]
            gains = [_judged(paired_differences(cells, views[name], key)) for key in ("dev", "avg7")] + [_judged(search)]
            ends = [mean_text([_end(cell) for cell in each]) for each in (views[name], cells)]
            rows.append([f"{name}, {steps} updates", str(len(cells)), *gains, *ends])
    heading = ["crops minus dropout views", "seeds", "STS-B dev", "seven", "Quora MAP"]
    heading += ["end below best: views", "end below best: crops"]
    errors = "\nGains ± a standard error; ends ± the deviation of the seeds.\n"
    return "\n".join([*(_setting_line(main_grid("crops", steps)) for steps in (60, 400)), table(heading, rows)]) + errors


def _end(cell: dict) -> float:
    """Return how far the last STS-B dev of a training is below its best."""
    curve = [point["dev"] for point in cell["curve"]]
    return max(curve) - curve[-1]


def own_texts() -> str:
    """Encoders trained on a collection's own texts and scored on each kind of task: the start, and what is gained on it."""
    tables, own = [], _own_grids(of_each_kind=True)
    for encoder, grids in itertools.groupby(own, key=lambda grids: grids[0][0]["settings"]["encoder"]):
        rows, everything = [], []
        for same in grids:
            records = merged(same)
            starts, methods = _starts(same), by_method(records)
            (start,) = methods.pop("raw")
            settings = start["settings"]
            everything += records
            before = ["nothing: the start", "", "", "", *(f"{factor * score_of(start, key):.2f}" for key, _, factor in KINDS)]
            if before not in rows:
                rows.append(before)
            for name, cells in methods.items():
                row = [OWN_TEXTS[settings["text"]], name, f"{settings['learning_rate']:g}", str(len(cells))]
                rows.append(row + [_gained(starts, cells, key, factor) for key, _, factor in KINDS])
        made = sorted({f"{cell['hardware']}, {threads_text(cell)}" for cell in everything})
        commits = ", ".join(sorted({commit_text(cell) for cell in everything}))
        tables.append(
            f"{encoder}: {settings['steps']} updates of {settings['batch_size']} sentences, up to "
            f"{settings['max_seq_length']} tokens{_precision(everything)}; {' and '.join(made)}; commit {commits}.\n\n"
            + table(["trained on", "method", "rate", "seeds", *(words for _, words, _ in KINDS)], rows)
        )
    return "\n\n".join([*tables, *_own_in_both(own)])


def _own_in_both(own: list[list[list[dict]]]) -> list[str]:
    """Say how far the gains of trainings on own texts are apart that were made with bfloat16 and without."""
    apart = {words: [] for _, words, _ in KINDS}
    for grids in own:
        starts = _starts(grids)
        for here, there in made_in_both(grids):
            for key, words, factor in KINDS:
                apart[words].append(factor * abs(_over_start(starts, here, key) - _over_start(starts, there, key)))
    if not any(len(grids) > 1 for grids in own):
        return []
    told = "Trainings with bf16 and without stand in one row, each beside the start in its own precision."
    if several := [f"{words} {max(gaps):.2f}" for words, gaps in apart.items() if gaps]:
        count = max(map(len, apart.values()))
        told += f" {count} made both ways on one machine, with gains apart by up to: {', '.join(several)}."
    return [told + "\n"]


def _starts(grids: list[list[dict]]) -> dict[bool, dict]:
    """Return the encoder before training of grids that differ in their precision alone, by it."""
    return {cell["settings"]["bf16"]: cell for records in grids for cell in records if cell["method"] == "raw"}


def _over_start(starts: dict[bool, dict], cell: dict, key: str) -> float:
    return score_of(cell, key) - score_of(starts[cell["settings"]["bf16"]], key)


def _gained(starts: dict[bool, dict], cells: list[dict], key: str, factor: int) -> str:
    """Return the mean of what cells have over their start, and of three or more its standard error."""
    gains = [factor * _over_start(starts, cell, key) for cell in cells]
    return f"{np.mean(gains):+.2f}" + (f" ± {stats.sem(gains):.2f}" if len(gains) > 2 else "")


def _own_grids(*, of_each_kind: bool) -> list[list[list[dict]]]:
    """Return the grids that trained on a collection's own texts, those together that differ in their precision alone.

    They are scored on each kind of task, or on search in the collection alone.
    """
    found = defaultdict(list)
    for records in all_grids(dev_only=False).values():
        if records[0]["settings"]["text"] in OWN_TEXTS and ("avg7" in records[0]["scores"]) == of_each_kind:
            found[but_for_precision(records)].append(records)

    def place(grids: list[list[dict]]) -> tuple:
        return tuple(grids[0][0]["settings"][key] for key in ("encoder", "text", "learning_rate"))

    return sorted(found.values(), key=place)


def own_rates() -> str:
    """What the rate of a further training decides for an encoder that was trained with labels, on each collection's texts."""
    kinds = [kind for kind in KINDS if kind[0] == "avg7" or kind[0].endswith(("map@100", "purity@10"))]
    rows = []
    for grids in _own_grids(of_each_kind=True):
        settings, cells = grids[0][0]["settings"], by_method(merged(grids)).get("recommended")
        if cells and settings["encoder"] == "all-minilm":
            row = [OWN_TEXTS[settings["text"]], f"{settings['learning_rate']:g}", str(len(cells))]
            rows.append(row + [_gained(_starts(grids), cells, key, factor) for key, _, factor in kinds])
    return table(["trained on", "rate", "seeds", *(words for _, words, _ in kinds)], rows)


def own_texts_alone() -> str:
    """The same where only what the collection is for was scored: before and after."""
    rows = []
    for grids in _own_grids(of_each_kind=False):
        records = merged(grids)
        settings = records[0]["settings"]
        methods = by_method(records)
        (start,) = methods.pop("raw")
        collection = settings["text"].partition("-")[0]
        for name, cells in methods.items():
            row = [settings["encoder"], OWN_TEXTS[settings["text"]], name, f"{settings['learning_rate']:g}"]
            row += [str(settings["max_seq_length"]), str(settings["steps"]), str(len(cells))]
            for part in ("map@100", "purity@10", "v_measure", "dev"):
                row.append(_before_after(start, cells, collection, part))
            rows.append(row)
    rows.sort()
    heading = ["encoder", "text", "method", "rate", "length", "updates", "seeds", "MAP", "purity", "v-measure", "STS-B dev"]
    return table(heading, rows)


def _before_after(start: dict, cells: list[dict], collection: str, part: str) -> str:
    """Return a score of the collection before and after, nothing where it has no such score."""
    keys = [key for key in start["scores"] if key.startswith(collection) and key.endswith(part)]
    if part != "dev" and not keys:
        return ""
    factor = 100 if part == "map@100" else 1
    before, *after = (factor * score_of(cell, "dev" if part == "dev" else keys[0]) for cell in [start, *cells])
    return f"{before:.2f} → {mean_text(after)}"


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
    main_grids = [record["settings"] for which in shown for record in main_grid(*which)]
    tables = []
    for records in all_grids(dev_only=False).values():
        settings = records[0]["settings"]
        if settings not in main_grids and settings["text"] not in OWN_TEXTS and trained_of(records) == "all":
            tables.append(_quality_table(records))
    return "\n".join(tables + [_earlier(main_grid(*which)) for which in shown])


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
        today, before = (by_method(grid) for grid in (main_grid("short", steps), grid_before("short", steps)))
        shared = [name for name in today if name in before and name != "raw"]
        apart = [paired_differences(today[name], before[name], "avg7") for name in shared]
        means = [abs(float(np.mean(gaps))) for gaps in apart if len(gaps) > 2]
        lines.append(
            f"{steps} updates: {len(means)} methods were trained in both with three seeds or more; their means on the seven "
            f"tasks are up to {max(means):.2f} apart (median {np.median(means):.2f}).\n"
        )
    return "\n".join(lines)


def rates() -> str:
    """What all weights and adapters end with, by the learning rate: the best by STS-B dev first."""
    main = main_grid("short", 60)
    shared = main[0]["settings"]
    (adapters,) = (records for records in all_grids(dev_only=False).values() if trained_of(records) == "lora")
    rows = []
    for records in (main, adapters):
        for name, cells in by_method(records).items():
            method, rate = _without_rate(name, shared["learning_rate"])
            if method in BY_RATES:
                gains = paired_differences(cells, _simcse(main), "avg7") if (name, records) != ("simcse", main) else []
                dev = [cell["dev"] for cell in cells]
                row = [trained_of(records), method, f"{rate:.0e}".replace("e-0", "e-"), str(len(cells)), mean_text(dev)]
                row += [mean_text([_end(cell) for cell in cells]), mean_text([cell["scores"]["avg7"] for cell in cells])]
                rows.append((np.mean(dev), [*row, _judged(gains) + _machines_mark(pairs_of(cells, _simcse(main)))]))
    rows = [row for _, row in sorted(rows, key=lambda item: -item[0])]
    heading = ["trained", "", "rate", "seeds", "STS-B dev", "end below it", "average of seven", "minus SimCSE, all at 5e-5"]
    commits = ", ".join(sorted({commit_text(cell) for cell in adapters}))
    lora, peft = (adapters[0]["settings"][key] for key in ("lora", "peft"))
    return (
        f"{shared['encoder']}, {TEXTS[shared['text']]}, {shared['steps']} updates, bf16. *lora*: of rank {lora['r']}, alpha "
        f"{lora['lora_alpha']}, on {' and '.join(lora['target_modules'])}, peft {peft}; commit {commits}. *all*: "
        "as above.\n\n"
    ) + table(heading, rows)


def _without_rate(name: str, default: float) -> tuple[str, float]:
    """Return a method's name without the learning rate that it was given, and this, or the default."""
    method, _, keywords = name.partition(":")
    kept = [keyword for keyword in keywords.split(",") if keyword and not keyword.startswith("learning_rate=")]
    rate = re.search(r"\blearning_rate=([\d.e-]+)", name)
    return method + ":" * bool(kept) + ",".join(kept), float(rate[1]) if rate else default


def machines() -> str:
    """How far the same trainings are apart on two machines."""
    records = main_grid("short", 60)
    methods = by_method(made_before(records))
    pairs = {name: pairs_of(cells, by_method(records)[name]) for name, cells in methods.items()}
    machines = " and ".join(sorted({cell["hardware"] for each in pairs.values() for pair in each for cell in pair}))
    told = []
    for key, words in (("dev", "STS-B dev"), ("avg7", "the seven tasks")):
        gaps = {name: _differences(each, key) for name, each in pairs.items()}
        single = [abs(gap) for each in gaps.values() for gap in each]
        means = max(abs(float(np.mean(each))) for each in gaps.values())
        told.append(f"{max(single):.2f} of {words} (median {np.median(single):.2f}), the means of a method up to {means:.2f}")
    return (
        f"60 updates, on two machines ({machines}): {sum(map(len, pairs.values()))} trainings, each made on both, of "
        f"{', '.join(pairs)}. One training is up to {told[0]} apart; up to {told[1]}.\n"
    )


def screens() -> str:
    """What STS-B dev says of switches, weights and mixes, and of the cells of the same grid that have test scores, too."""
    tables = []
    full = all_grids(dev_only=False)
    for name, screened in all_grids(dev_only=True).items():
        records = full.get(name, [])
        there = {(record["method"], record["seed"]) for record in records}
        records = records + [record for record in screened if (record["method"], record["seed"]) not in there]
        methods = by_method(records)
        rows = []
        for name in sorted(methods, key=lambda name: -_gain(methods[name], records, "dev")):
            cells = methods[name]
            base = name.rpartition("," if "," in name else ":")[0]
            switched = paired_differences(cells, methods.get(base, []), "dev")
            row = [name, str(len(cells)), mean_text([cell["dev"] for cell in cells]), _against(cells, records, "dev")]
            rows.append([*row, f"{np.mean(switched):+.2f}{_of_fewer(switched, cells)}" if switched else ""])
        heading = ["", "seeds", "STS-B dev", "minus SimCSE, same seeds", "what the last keyword does, same seeds"]
        tables.append(_setting_line(records) + "\n" + table(heading, rows))
    return "\n".join(tables)


def draw_quality(path: Path) -> None:
    """Draw the averages of the main grid of short sentences, a dot a seed."""
    records = _of_today(main_grid("short", 60))
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    cells_of = by_method(records)
    lowest = _average(cells_of["simcse"]) - 10
    methods = sorted(cells_of.items(), key=lambda item: _average(item[1]))
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


def _quality_table(records: list[dict]) -> str:
    return _setting_line(records) + "\n" + _scores(records)


def _scores(records: list[dict]) -> str:
    """Return the scores of each method at the checkpoint that STS-B dev chose, a row a method."""
    beside = [kind for kind in BESIDE_STS if all(kind[0] in record["scores"] for record in records)]
    has_simcse = any(record["method"] == "simcse" for record in records)
    rows = []
    for name, cells in sorted(by_method(records).items(), key=lambda item: _order(item[1], records), reverse=True):
        columns = [[cell["scores"][key] for cell in cells] for key in ("geometry_alignment", "geometry_uniformity")]
        rows.append(
            [
                name,
                str(len(cells)),
                mean_text([cell["dev"] for cell in cells]),
                mean_text([_end(cell) for cell in cells]) if all(cell.get("curve") for cell in cells) else "",
                mean_text([cell["scores"]["avg7"] for cell in cells]),
                *[_against(cells, records, "avg7")] * has_simcse,
                mean_text([cell["scores"]["hard_length_avg5"] for cell in cells], 1),
                *(mean_text([factor * cell["scores"][key] for cell in cells], 1) for key, _, factor in beside),
                *(f"{np.mean(values):.2f}" for values in columns),
            ]
        )
    heading = [
        "", "seeds", "STS-B dev", "end below it", "average of seven", *["minus SimCSE, same seeds"] * has_simcse,
        "length misleads", *(words for _, words, _ in beside), "alignment", "uniformity",
    ]  # fmt: skip
    return table(heading, rows)


def _setting_line(records: list[dict]) -> str:
    settings = records[0]["settings"]
    commits = sorted({commit_text(record) for record in records})
    hardware = sorted({f"{record['hardware']}, {threads_text(record)}" for record in records})
    return (
        f"{settings['encoder']}, {settings['pooling']} pooling, {TEXTS.get(settings['text'], settings['text'])}: "
        f"{settings['steps']} updates of {settings['batch_size']} sentences, learning rate {settings['learning_rate']:g}, "
        f"length {settings['max_seq_length']}{_precision(records)}{_evaluated(records)}; {' and '.join(hardware)}; "
        f"commit {', '.join(commits)}.{RECOVERED * (settings['encoder'] in ('minilm-mlm', 'minilm-4-layers'))}\n"
    )


def _precision(records: list[dict]) -> str:
    counts = [record["settings"]["bf16"] for record in records if record["method"].partition(":")[0] not in UNTRAINED]
    return "" if not any(counts) else ", bf16" if all(counts) else f", {sum(counts)} trainings of {len(counts)} in bf16"


def _evaluated(records: list[dict]) -> str:
    """Say how often STS-B dev was looked at, where it chose."""
    steps = records[0]["settings"].get("eval_steps")
    return f", STS-B dev every {steps}" if steps and any(record.get("curve") for record in records) else ""


def _average(cells: list[dict]) -> float:
    return float(np.mean([cell["scores"]["avg7"] for cell in cells]))


def _against(cells: list[dict], records: list[dict], key: str) -> str:
    """Mean difference to SimCSE with the same seed, and its 95 % interval over the seeds."""
    differences = _to_simcse(cells, records, key)
    if not differences or cells[0]["method"] == "simcse":
        return ""
    is_trained = cells[0]["method"].partition(":")[0] not in UNTRAINED
    mark = _machines_mark(pairs_of(cells, _simcse(records))) if is_trained else ""
    if len(differences) < 5:
        return f"{np.mean(differences):+.2f}{_of_fewer(differences, cells)}{mark}"
    low, high = _interval(differences)
    return f"{np.mean(differences):+.2f} [{low:+.2f}, {high:+.2f}]{mark}"


def _to_simcse(cells: list[dict], records: list[dict], key: str) -> list[float]:
    """Return differences to SimCSE's cells of the same seeds; of what is not trained that to their mean."""
    simcse = [record for record in records if record["method"] == "simcse"]
    if simcse and cells[0]["method"].partition(":")[0] in UNTRAINED:
        return [score_of(cells[0], key) - float(np.mean([score_of(cell, key) for cell in simcse]))]
    return paired_differences(cells, _simcse(records), key)


def _simcse(records: list[dict]) -> list[dict]:
    """Return SimCSE's cells of a grid, those of another machine among them."""
    return [record for record in records + made_before(records) if record["method"] == "simcse"]


def _of_fewer(differences: list[float], cells: list[dict]) -> str:
    """Say how many seeds a difference is of, where the row has more."""
    count = len(differences)
    return f" ({count} seed{'s' * (count > 1)})" if count < len(cells) else ""


def _order(cells: list[dict], records: list[dict]) -> tuple[float, float]:
    return _gain(cells, records, "avg7"), _average(cells)


def _gain(cells: list[dict], records: list[dict], key: str) -> float:
    """Mean difference to SimCSE with the same seed, by which a table is sorted: seeds differ."""
    differences = _to_simcse(cells, records, key)
    return float(np.mean(differences)) if differences else -np.inf


def hard_length() -> str:
    """PT-BERT's hard examples on its paper's text, year by year."""
    methods = by_method(main_grid("wiki", 60))
    years = [f"hard_length_{name}" for name in (*TASKS[:5], "avg5", "union")]
    rows = [
        [
            name,
            str(len(methods[name])),
            *(mean_text([cell["scores"][year] for cell in methods[name]], digits=1) for year in years),
        ]
        for name in ("raw", "simcse", "simcse:temperature=0.1", "pt-bert", "paser", "recommended")
    ]
    return table(["", "seeds", *(year.removeprefix("hard_length_") for year in years)], rows)
