"""Write the tables of README.md and of docs/ from the json in ``benchmarks/results``: none of their numbers is typed by hand.

    python benchmarks/report.py

and draws ``results/quality.png`` (with the extra ``plot``). A table stands between ``<!-- name -->`` and ``<!-- /name -->``;
``tests/test_readme.py`` fails where it is not what the json says.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path

import label_free_study
import numpy as np
import quality_tables
from scipy import stats
from tables import RESULTS, TASKS, commit_text, load_record, table, threads_text

from sbert_plugins import recipes

ROOT = Path(__file__).parent.parent
FOLDERS = ("", "guides", "methods")  # of docs/: others are written when the site is built
PAGES = (ROOT / "README.md", *(page for folder in FOLDERS for page in sorted((ROOT / "docs" / folder).glob("*.md"))))


def main() -> None:
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
    quality_tables.draw_quality(RESULTS / "quality.png")


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
    record = load_record("demo.json")
    rows = [[name, f"{score:.2f}", f"{record['after'][name]:.2f}"] for name, score in record["before"].items()]
    before, after = (record["elsewhere"][when] for when in ("before", "after"))
    elsewhere = ", ".join(f"{name} {score:.1f} to {after[name]:.1f}" for name, score in before.items())
    return (
        table(["Spearman x 100", "before", "after"], rows)
        + f"\n`{record['command']}`: {record['steps']} updates in {record['seconds']:.0f} s on {record['hardware']}, "
        f"{threads_text(record)}. What the command does not look at, at 32 tokens a text: {elsewhere}.\n"
    )


def decoders() -> str:
    """What decoders learn to read of vectors that do not change."""
    record = load_record("decoders.json")
    steps, read = [point["step"] for point in next(iter(record["curves"].values()))], ("token_accuracy", "information")
    rows = [
        [name, *(f"{point['nats_a_token']:.2f}" for point in curve), *(f"{curve[-1][key]:.2f}" for key in read)]
        for name, curve in record["curves"].items()
    ]
    heading = ["nats a token", *(f"update {step}" for step in steps), "token accuracy", "information"]
    settings = record["settings"]
    return table(heading, rows) + (
        f"\nminilm-mlm, {settings['pooling']} pooling, Wikipedia sentences, learning rate {settings['learning_rate']:g}, seed "
        f"{settings['seed']}, {record['hardware']}, {threads_text(record)}, commit {commit_text(record)}. The last two "
        f"columns: the last {steps[0]} updates.\n"
    )


def reconstructions() -> str:
    """What PaSeR's decoders write for the phrases that are hidden from sentences they were not trained on."""
    written = load_record("decoders.json")["written"]
    hidden = [row["phrase"] for row in next(iter(written.values()))]
    rows = [[phrase, *(rows[place]["written"] for rows in written.values())] for place, phrase in enumerate(hidden)]
    return table(["hidden", *written], rows)


def pt_bert_start() -> str:
    """How near what PT-BERT trains starts to what is saved."""
    start = load_record("decoders.json")["pt_bert"]
    attended = list(next(iter(start.values())))
    rows = [[pooling, *(f"{values[name]:.0f}" for name in attended)] for pooling, values in start.items()]
    return table(["pooling", *(f"attend_to={name}" for name in attended)], rows)


def simcse_check() -> str:
    record = load_record("simcse_check.json")
    return (
        f"SimCSE in this harness is the loop that anyone would write: {record['steps']} updates move the weights by "
        f"{record['moved']:.2f}, and end {record['apart']:.0e} apart (`simcse_check.py`, no padding computed, float32).\n"
    )


def families() -> str:
    """Every loss on every family of encoders: trained and loaded again the same, or refused, and why."""
    record = load_record("families.json")
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
        f"commit {commit_text(record)}.\n\n"
        + table(["", *names], rows)
        + "".join(f"\n[{number}] {reason}\n" for reason, number in notes.items())
    )


def adapters() -> str:
    """Every loss on an encoder with adapters, as counts: what moved, resumed and loaded alike."""
    record = load_record("adapters.json")
    cells = record["cells"]
    alike = sum(cell["resumed alike"] and cell["difference when loaded"] == 0 for cell in cells)
    moved = sum(cell["others moved"] for cell in cells)
    return (
        f"{len(cells)} losses, {record['updates']} updates each, LoRA of rank {record['lora']['r']} on "
        f"{' and '.join(record['lora']['target_modules'])}: {alike} resumed from a checkpoint to the bit, and were loaded by "
        f"plain sentence-transformers with no difference; of the encoder itself {moved} weights moved. peft {record['peft']}, "
        f"commit {commit_text(record)} (`adapters.py`).\n"
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


def texts() -> str:
    """What the tables trained on, and how much of the test sets a length of 32 cuts."""
    record = load_record("texts.json")
    forms = list(record["texts"][0]["of_test_sets"])
    rows = [
        [
            quality_tables.TEXTS[text["text"]],
            *(f"{text[key]:,}" for key in ("updates", "sentences", "distinct")),
            f"{text['words']:.1f}",
            f"{100 * text['cut']:.1f}",
            *(str(text["of_test_sets"][form]) for form in forms),
        ]
        for text in record["texts"]
    ]
    tasks = [[task, f"{found['pairs']:,}", f"{100 * found['cut']:.1f}"] for task, found in record["tasks"].items()]
    cut = f"cut at {record['length']} tokens, %"
    heading = ["trained on", "updates", "sentences", "distinct", "words, mean", cut]
    heading += [f"of a test set {form}" for form in forms]
    return (
        table(heading, rows)
        + "\n"
        + table(["task", "pairs", f"{cut} of the pairs"], tasks)
        + f"\ncommit {commit_text(record)}.\n"
    )


def fidelity() -> str:
    """The authors' code and the losses that compute what it computes, side by side."""
    rows, notes = [], []
    for method, found in load_record("fidelity.json").items():
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
    record = load_record("label_free.json")
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
        f"{threads_text(records[0])}; commit {', '.join(sorted({commit_text(record) for record in records}))}.\n"
    )
    return line + "\n" + table(heading, rows)


def _label_free_verdict(record: dict) -> str:
    """Say what reaches the bounds."""
    found, bounds = record["reach the bounds in every set"], record["bounds"]
    text = f"In every set, {bounds['overall']} over all and {bounds['within']} within are reached by {len(found)} scores"
    return text + (f" ({'; '.join(found)}).\n" if found else ".\n")


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
        f"{record['seconds'][name] / 60:.0f} minutes on {record['hardware']}, {threads_text(record)}, commit "
        f"{commit_text(record)}.\n"
    )


def sts_check() -> str:
    record = load_record("evaluation_check.json")
    names = [*TASKS, "all_SICK-R"]
    rows = [
        ["here", *(f"{record['scores'][task]:.2f}" for task in names)],
        ["expected", *(f"{record['expected'][task]:.2f}" for task in names)],
    ]
    return table(["all-MiniLM-L6-v2", *TASKS[:-1], "average", "SICK-R, all 9,927 pairs"], rows)


def one_pass() -> str:
    record = load_record("evaluation_speed.json")
    once, apart = record["one_pass"], record["one_by_one"]
    how = f"{'bf16, ' * record['bf16']}{record['hardware']}, {threads_text(record)}"
    return (
        f"The offline suite encodes {once['sentences_encoded']:,} sentences in one pass, its evaluators one by one "
        f"{apart['sentences_encoded']:,}: {once['cpu_seconds']:.0f} s of CPU time instead of {apart['cpu_seconds']:.0f}, one "
        f"run of each (all-MiniLM-L6-v2, {how}).\n"
    )


def mteb_check() -> str:
    record = load_record("mteb_check.json")
    programs = ["mteb", "sentence-transformers", "sbert-plugins"]
    rows = [
        [name, *(f"{row[program]:.7f}" for program in programs), f"{record['largest_difference'][name]:.0e}"]
        for name, row in record["scores"].items()
    ]
    return table(["all-MiniLM-L6-v2", *programs, "largest difference"], rows) + (
        f"\nSpearman for STS; mteb {record['mteb']} rounds MAP and nDCG to five digits.\n"
    )


def speed() -> str:
    record = load_record("speed.json")
    of_own = record["multiple_of_own_floor"]
    rows = [
        [name, f"{multiple:.2f}", *(f"{found[name]:.2f}" if name in found else "" for found in (record["target"], of_own))]
        for name, multiple in record["multiple_of_simcse_floor"].items()
        if "floor" not in name
    ]
    return (
        table(["training step", "multiple of SimCSE's", "aim", "multiple of a plain step"], rows)
        + f"\nMedians over {record['rounds']} rounds in turns; batch 64, length 32, 6 x 384, a third of the sentences long; "
        f"{record['hardware']}, {threads_text(record)}.\n" + _denosent_decoder(record)
    )


def memory() -> str:
    """GiB of a training step of bert-base: weights with what trains them, and what a forward keeps, by batch and precision."""
    record = load_record("memory.json")
    ways = next(iter(record["steps"].values()))
    rows = []
    for method, found in record["steps"].items():
        weights = next(iter(found.values()))
        kept = [f"{found[way]['kept'] / 2**30:.1f}" for way in ways]
        rows.append([method, f"{(4 * weights['trained'] + weights['frozen']) / 2**30:.1f}", *kept])
    whole = record["whole_step"]
    method, way = whole["of"]
    counted = record["steps"][method][way]
    counted_bytes = 4 * counted["trained"] + counted["frozen"] + counted["kept"]
    return table(["training step, GiB", "weights, gradients, AdamW", *(f"kept: {way}" for way in ways)], rows) + (
        f"\nAn encoder of bert-base's size, sentences of full length, a third of them of 25 words or more; torch "
        f"{record['versions']['torch']}. A whole step of {method}, {way}, in a process of its own took "
        f"{whole['bytes'] / 2**30:.1f} GiB at most, where the table counts {counted_bytes / 2**30:.1f}; "
        f"commit {record['commit']}.\n"
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
    record = load_record("phrases_speed.json")
    rows = [[name, f"{rate:,}"] for name, rate in record["sentences_per_second"].items()]
    memory = record["peak_memory_mib_by_sentences"]
    return table(["", "sentences a second"], rows) + (
        f"\nMedians of {len(next(iter(record['runs'].values())))}, {record['sentences']:,} sentences of Wikipedia, "
        f"{record['columns']:,} for the columns; {record['hardware']}, commit {commit_text(record)}. Memory of columns "
        "without synonyms at its peak, beside the interpreter's: "
        f"{', '.join(f'{mib} MiB for {int(count):,} sentences' for count, mib in memory.items())}.\n"
    )


def shared() -> str:
    mixes = load_record("shared_passes.json")["mixes"]
    times = " and ".join(f"{mix['shared_over_apart']:.2f} of the time ({name})" for name, mix in mixes.items())
    return f"Losses in a sum that share the passes of the encoder take {times} of losses that each make their own.\n"


def kills() -> str:
    record = load_record("kill_runs.json")
    torn = record["kills_that_left_a_torn_checkpoint"]
    return (
        f"A training that was killed at {record['kills']} random moments, {torn} of them "
        "inside the write of a checkpoint, always resumed from a whole one and ended "
        f"{record['difference_to_an_uninterrupted_run']} away from an uninterrupted one.\n"
    )


def hostile() -> str:
    """How attacks ended, by area."""
    record = load_record("hostile.json")
    ends = ("cases", "right", "refused", "obscure", "silent")
    areas = record["areas"]
    rows = [[area, *(str(counts[end]) for end in ends)] for area, counts in areas.items()]
    rows.append(["all", *(str(sum(counts[end] for counts in areas.values())) for end in ends)])
    return table(["area", *ends], rows) + f"\ncommit {commit_text(record)}, {record['seconds']} s on {record['hardware']}.\n"


# By the name between whose marks each stands.
TABLES = {
    "demo": demo,
    "best": quality_tables.best,
    "decoders": decoders,
    "reconstructions": reconstructions,
    "pt-bert start": pt_bert_start,
    "quality": quality_tables.quality,
    "quality longer": quality_tables.quality_longer,
    "quality long": quality_tables.quality_long,
    "lengths": quality_tables.lengths,
    "quality wiki": quality_tables.quality_wiki,
    "crops": quality_tables.crops,
    "own texts": quality_tables.own_texts,
    "own rates": quality_tables.own_rates,
    "own texts alone": quality_tables.own_texts_alone,
    "supervised": quality_tables.supervised,
    "simcse check": simcse_check,
    "aims": quality_tables.aims,
    "by task": quality_tables.by_task,
    "time to quality": quality_tables.time_to_quality,
    "equal time": quality_tables.equal_time,
    "quality grids": quality_tables.quality_grids,
    "elsewhere": quality_tables.elsewhere,
    "machines": quality_tables.machines,
    "screens": quality_tables.screens,
    "hard length": quality_tables.hard_length,
    "families": families,
    "adapters": adapters,
    "rates": quality_tables.rates,
    "topics": topics,
    "texts": texts,
    "fidelity": fidelity,
    "label free": label_free,
    "label free long": label_free_long,
    "sts check": sts_check,
    "mteb check": mteb_check,
    "one pass": one_pass,
    "speed": speed,
    "memory": memory,
    "phrases": phrases,
    "shared": shared,
    "kills": kills,
    "logs": logs,
    "hostile": hostile,
}


if __name__ == "__main__":
    main()
