"""Records name what they were made with, and tables are made from records: their numbers by hand."""

import json
import re

import couples
import pytest
import records
import tables

from sbert_plugins import evaluation

MEASURED = {"encoder": "minilm-mlm", "pooling": "mean", "max_seq_length": 32, "hardware": "a processor"}
TRAINED = MEASURED | {"text": "short", "learning_rate": 5e-5, "batch_size": 64}
START = {
    "sts": 70.0,
    "quora_map": 90.0,
    "cranfield_ndcg": 40.0,
    "biomedical_purity": 50.0,
    "biomedical_v": 45.0,
    "agnews_purity": 80.0,
    "agnews_v": 55.0,
}


def rows_of(text):
    """Return the cells of a table's rows by their first cell."""
    lines = [line[2:-2].split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {cells[0]: [cell.strip() for cell in cells[1:]] for cells in lines if cells[0] != "---"}


def cell(label, seed, score, updates=60, **changes):
    scores = {"avg7": score, "SICK-R": score - 5, "quora_map": 90.0}
    curve = [[updates // 2, 80.0], [updates, 79.0]]
    found = {"label": label, "method": "", "seed": seed, "updates": updates, "scores": scores, "curve": curve}
    return found | TRAINED | changes


@pytest.mark.parametrize("page", tables.PAGES, ids=lambda page: page.name)
def test_pages_show_their_records(page):
    # Otherwise run ``python benchmarks/tables.py``.
    text = page.read_text(encoding="utf-8")
    assert tables.fill(text) == text
    assert {name.strip("/ ") for name in re.findall("<!-- (.+?) -->", text)} <= {*tables.TABLES}


def test_the_page_of_benchmarks_is_short():
    page = (tables.ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert len(page.encode()) <= 15_000
    assert {"adaptation", "methods", "cost"} <= set(re.findall(r"<!-- (\w[\w ]*) -->", page))


def test_a_table_replaces_what_is_between_its_marks(monkeypatch):
    monkeypatch.setattr(tables, "TABLES", {"one": lambda: "new\n"})
    assert tables.fill("a\n<!-- one -->\nold\n<!-- /one -->\nb") == "a\n<!-- one -->\nnew\n<!-- /one -->\nb"
    assert tables.fill("no table") == "no table"


def test_means_errors_and_seeds():
    texts = [tables.mean_text([1.0, 3.0], usual=2), *map(tables.mean_text, ([1.0, 3.0], [1.0], []))]
    assert texts == ["2.00 ± 1.00", "2.00 ± 1.00 (2)", "1.00 (1)", ""]
    texts = [tables.error_text([1.0, 3.0], "+"), tables.error_text([-0.25])]
    assert texts == ["+2.0 ± 1.0", "-0.2"]


def test_methods_at_equal_updates(write):
    write(
        "quality",
        {"label": "start", "method": "raw", "scores": {"avg7": 56.5}, **MEASURED},
        cell("SimCSE 0.1", 0, 72.0),
        cell("SimCSE 0.1", 1, 74.0),
        cell("SimCSE 0.1", 0, 99.0, hardware="NVIDIA H100"),  # there are cells of a processor
        cell("SimCSE 0.1", 0, 99.0, batch_size=32),
        cell("SimCSE 0.1", 0, 99.0, pooling="cls"),
        cell("SimCSE 0.1", 0, 70.0, updates=400),
        cell("PaSeR", 0, 60.0, hardware="NVIDIA H100"),
        cell("ArcCSE", 0, 65.0),
        cell("ArcCSE", 0, 66.0),  # measured again
        {"method": "PaSeR, words only"}
        | {k: v for k, v in cell("", 0, 64.0).items() if k not in ("label", "method")},
    )
    rows = rows_of(tables.methods())
    assert list(rows)[1:] == ["SimCSE 0.1", "ArcCSE", "PaSeR, words only", "PaSeR", "start"]
    assert rows["SimCSE 0.1"] == ["73.00 ± 1.00 (2)", "70.00 (1)", "", "", "1.0", "68.0", "", "90.0"]
    assert rows["ArcCSE"][0] == "66.00 (1)"
    assert rows["PaSeR"][0] == "60.00 (1) †"
    assert rows["start"][:2] == ["56.50", ""]
    assert len(tables.find("SimCSE 0.1", "short", 60, pooling="cls")) == 1


def adapted(row, text, seed, **changes):
    scores = {key: value + changes.get(key, 0.0) for key, value in START.items()}
    return {"row": row, "text": text, "seed": seed, "updates": 60, "learning_rate": 5e-5, "scores": scores}


def test_adaptation(write):
    # Changes against the start: over all texts, and by text with standard errors over five seeds.
    write(
        "adaptation",
        {"row": "start", "text": None, "seed": 0, "scores": START},
        *(
            adapted("mine", "agnews", seed, sts=sts, agnews_purity=4.0, biomedical_purity=-2.0)
            for seed, sts in enumerate([1.0, 3.0, 2.0, 1.0, 3.0])
        ),
        adapted("mine", "quora", 0, sts=1.0, biomedical_purity=-4.0),
        adapted("worse", "quora", 0, sts=-9.0),
        adapted("worse", "quora", 0) | {"updates": 200},  # other settings are not in the table
        adapted("worse", "quora", 0) | {"learning_rate": 1e-5},
    )
    overall, by_text = (rows_of(part) for part in re.split(r"\n\n", tables.adaptation())[:2])
    assert list(overall)[1:] == ["mine", "worse"]
    # On AG News +2, 0, 0, +4, 0, -2; on Quora, which has no topics, +1, 0, 0 and the mean of 0 and -4.
    assert overall["mine"] == ["2", "+0.3", "-2.0", "+1.5", "+0.0", "+0.0", "+4.0", "+0.0", "-2.0"]
    assert by_text["AG News"] == [
        "mine",
        "5",
        "+2.0 ± 0.4",
        *["+0.0 ± 0.0"] * 2,
        "+4.0 ± 0.0",
        "+0.0 ± 0.0",
        "-2.0 ± 0.0",
    ]
    assert list(by_text)[1:] == ["AG News"]  # there is one seed on Quora
    assert "AG News 80.0 and 55.0" in tables.adaptation()


def test_documents(write):
    lines = [adapted("recommended", "cranfield", seed, cranfield_ndcg=-1.0, sts=0.5) for seed in (0, 1)]
    crops = adapted("recommended", "cranfield-crops", 0, cranfield_ndcg=1.0, sts=-0.5)
    write("adaptation", {"row": "start", "text": None, "seed": 0, "scores": START}, *lines, crops)
    rows = rows_of(tables.documents())
    assert rows["pairs of neighbouring sentences"] == ["1", "+1.0", "-0.5"]
    assert rows["single sentences"] == ["2", "-1.0 ± 0.0", "+0.5 ± 0.0"]
    assert "cranfield-crops" not in tables.adaptation()


def test_known_model(write):
    # Each score is of the trainings on its own text; the mean over seeds of means over texts for STS.
    lines = [{"row": "start", "text": None, "seed": 0, "scores": START}]
    for row, text in (("SimCSE", "agnews"), ("recommended", "quora")):
        lines += [adapted(row, text, seed, sts=1.0 + seed, quora_map=2.0 * seed) for seed in (0, 1)]
    write("adaptation", *lines)
    rows = rows_of(tables.known_model())
    titles = {key: name for name, (key, _) in tables.KNOWN_SCORES.items()}
    assert rows[titles["sts"]] == ["70.0", "+1.5 ± 0.5", "`recommended`"]
    assert rows[titles["quora_map"]] == ["90.0", "+1.0 ± 1.0", "`recommended`"]
    assert len(rows) == 3  # with the heading: recommended was trained on no other text


def test_headline(write):
    # A gain is larger than two standard errors over the seeds.
    gains = {"biomedical": [2.0, 3.0], "agnews": [1.0, 1.2], "quora": [-0.9, 0.5]}
    lines = [{"row": "start", "text": None, "seed": 0, "scores": START}]
    for text, values in gains.items():
        key = "quora_map" if text == "quora" else f"{text}_purity"
        lines += [adapted("recommended", text, seed, **{key: value}) for seed, value in enumerate(values)]
    write("adaptation", *lines)
    rest = "2.5 and 1.1 points in 2 sets of topics (`train recommended`; other scores lost at most 0.2)"
    assert rest in tables.headline()


def test_descriptions(write):
    line = {"before": [1, 2, 4]}
    write("descriptions", line | {"after": [2, 1, 1]}, line | {"after": [1, 1, 4]})
    text = tables.descriptions()
    assert "on 3 descriptions" in text
    assert "for 1 queries before, and for 2 after (mean; 2 to 2). On average 2 became right and 0" in text
    assert "changed by +20.8 ± 23.2" in text  # the means of the queries are -25, 50 and 37.5


def test_couples(write, monkeypatch):
    # Wrong before are both with similarity 0.5, and after the one with 0.6.
    pairs = evaluation.ScoredPairs(["a < b"] * 5, ["c"] * 5, [5.0, 4.0, 3.0, 0.0, 2.0])
    monkeypatch.setattr(couples.recipes, "graded_pairs", lambda: pairs)
    line = {"before": [0.9, 0.4, 0.99, 0.5, 0.5], "after": [0.9, 0.55, 0.99, 0.3, 0.6]}
    write("couples", line)
    assert "Of all 4, 2 were wrong before, 1 after: 1 became right and 0" in tables.couples()
    assert couples.best_couples(line) == [(1, 3)]
    picture = couples.draw_couples(line)
    assert picture.count("a &lt; b") == 2
    assert len(picture.encode()) < 60_000


def test_forms(write):
    line = {
        "row": "start",
        "task": "topics",
        "form": "int8",
        "score": 80.0,
        "lowest cosine": 0.9989,
        "texts per second": 1_200.0,
        "megabytes": 19.5,
    }
    other = line | {"task": "search", "score": 40.0, "lowest cosine": 0.99, "texts per second": 10.0}
    write("use_the_model", line, other, line | {"row": "recommended", "score": 82.0})
    (cells,) = [cells for form, cells in rows_of(tables.forms()).items() if form == "int8"]
    assert [cells[place] for place in (0, 1, 2, 4, 5, 6)] == ["80.0", "82.0", "40.0", "0.9900", "1,200", "20"]


def test_cost(write):
    speed = {
        "rounds": 7,
        "hardware": "a processor",
        "flops_ratio": 1.0,
        "seconds_ratio": 1.0,
        "seconds": 2.9,
        "peak_bytes": 8,
    }
    changed = {"method": "PaSeR", "seconds_ratio": 2.5, "peak_bytes": 12}
    changed |= {"floor_flops_ratio": 1.01, "floor_seconds_ratio": 1.2}
    write("speed", {"method": "SimCSE", **speed}, speed | changed)
    rows = rows_of(tables.cost())
    assert (rows["SimCSE"][-1], rows["PaSeR"]) == ("", ["1.00", "2.50", "1.50", "1.01, 1.20"])


FILES = sorted(path.stem for path in records.RESULTS.glob("*.jsonl"))
# Keywords that follow from the length of a training, from its text, or that the class has no more because
# only one of two values is the paper's.
ALLOWED = {"class", "loss", "warmup_steps", "enqueue_first"}


def test_a_measurement_is_a_line_with_its_origin(write):
    write("speed", {"method": "other"}, {"method": "mine", "seconds": 1})
    records.replace("speed", {"method": "mine", "seconds": 2}, key="method")
    records.append("speed", {"method": "third"})
    other, mine, third = records.read("speed")
    assert (other, third["method"]) == ({"method": "other"}, "third")
    assert mine["seconds"] == 2
    assert mine.keys() == {"method", "seconds", "date", "commit", "versions", "hardware"}
    assert records.read("nothing") == []


def test_changed_files_stop_a_measurement(monkeypatch):
    monkeypatch.setattr(records, "_git", lambda *_: " M sbert_plugins/functional.py")
    with pytest.raises(SystemExit, match="uncommitted"):
        records.require_clean_tree()


@pytest.mark.parametrize("name", FILES)
def test_lines_name_commit_versions_hardware_and_seed(name):
    lines = records.read(name)
    assert lines
    for line in lines:
        assert len(line["commit"]) >= 7
        assert {"torch", "transformers", "sentence-transformers"} <= line["versions"].keys()
        assert line["hardware"]
        assert "seed" in line or "curve" not in line
        assert '"/' not in json.dumps(line), "a path of one machine"


def test_each_row_of_quality_has_a_label_and_the_method_that_was_trained():
    lines = records.read("quality")
    assert all({"label", "method", "scores"} <= line.keys() for line in lines)
    assert all(
        {"loss", "updates", "learning_rate", "batch_size"} <= line.keys() for line in lines if "curve" in line
    )


def test_rows_named_after_a_paper_are_the_papers_form():
    lines = [line for line in records.read("quality") if line["label"] in tables.PAPERS]
    assert lines
    assert [line for line in lines if line["loss"].keys() - ALLOWED] == []
    old_names = {(line["label"], line["method"]) for line in lines if "class" in line["loss"]}
    # The default of DenoSent was a bag of words, and so was PaSeR's. SLT-FAI's gradients were bounded.
    assert not old_names & {("DenoSent", "denosent"), ("PaSeR", "paser"), ("SLT-FAI", "slt-fai")}
