"""The statistics of the tables, by hand, and what happens without a record."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import grids
import quality
import quality_tables
import report
import tables


def cell(method, seed, dev, **scores):
    return {"method": method, "seed": seed, "dev": dev, "scores": scores, "curve": [], "hardware": "A", "settings": {}}


def test_a_difference_with_its_standard_error():
    assert quality_tables._judged([1.0, 2.0, 3.0]) == "+2.00 ± 0.58 (3)"  # deviation 1, over the root of 3; 4.30 of them
    assert quality_tables._judged([2.0, 3.0, 4.0]) == "**+3.00** ± 0.58 (3)"
    assert quality_tables._judged([-1.0, 2.0, 2.0]) == "+1.00 ± 1.00 (3)"
    assert quality_tables._judged([-1.0, 2.0, 2.0, 1.0, 1.0]) == "+1.00 ± 0.55"  # five need not be told
    assert quality_tables._judged([1.0, 2.0]) == "+1.50 (2 seeds)"  # which say nothing of their scatter
    assert quality_tables._judged([1.0]) == "+1.00 (1 seed)"
    assert quality_tables._judged([]) == ""


def gains(several, key):
    return quality_tables._differences(quality_tables._most_pairs(several, "a", "simcse", key), key)


def test_a_difference_is_taken_where_both_have_enough_seeds():
    def grid(method, seeds, base_seeds, gain):
        cells = [cell(method, seed, 80.0 + gain, avg7=70.0) for seed in seeds]
        return grids.by_method([*cells, *(cell("simcse", seed, 80.0, avg7=70.0) for seed in base_seeds)])

    several = [grid("a", (0, 1, 2), (0,), 5.0), grid("a", (0, 1), (0, 1), 2.0), grid("b", (0,), (0,), 9.0)]
    assert gains(several, "dev") == [2.0, 2.0]
    assert gains(several, "biomedical_purity@10") == []
    three, five = grid("a", (0, 1, 2), (0, 1, 2), 1.0), grid("a", range(5), range(5), 2.0)
    assert gains([*several, three, five], "dev") == [1.0] * 3


def test_of_two_grids_with_as_many_seeds_the_first_counts():
    several = [grids.by_method([cell("a", 0, dev), cell("simcse", 0, 80.0)]) for dev in (81.0, 82.0)]
    assert gains(several, "dev") == [1.0]


def test_todays_harness_comes_before_a_larger_grid(monkeypatch):
    def grid(count, **settings):
        return [cell("a", seed, 80.0) | {"settings": {"pooling": "mean", "packed": False} | settings} for seed in range(count)]

    before, of_cls, float32, small, today = (
        grid(4, bf16=True),
        grid(9, bf16=True, packed=True, pooling="cls"),
        grid(5, bf16=False, packed=True),
        grid(1, bf16=True, packed=True),
        grid(2, bf16=True, packed=True),
    )
    monkeypatch.setattr(grids, "grids_as_long", lambda text, steps: [before, of_cls, float32, small, today])
    assert grids.main_grid("short", 60) is today
    monkeypatch.setattr(grids, "grids_as_long", lambda text, steps: [grid(1, bf16=True), before])
    assert grids.main_grid("short", 60) is before


def test_a_name_without_its_rate():
    assert quality_tables._without_rate("simcse:temperature=0.1,learning_rate=2e-4", 5e-5) == ("simcse:temperature=0.1", 2e-4)
    assert quality_tables._without_rate("simcse:loss_learning_rate=1e-3", 5e-5) == ("simcse:loss_learning_rate=1e-3", 5e-5)
    assert quality_tables._without_rate("simcse:learning_rate=1e-4,max_steps=20", 5e-5) == ("simcse:max_steps=20", 1e-4)
    assert quality_tables._without_rate("simcse", 5e-5) == ("simcse", 5e-5)


def test_adapters_are_in_no_table_of_all_weights(monkeypatch):
    shared = {"encoder": "minilm-mlm", "text": "short", "steps": 60, "pooling": "mean", "packed": True, "bf16": True}
    weights, adapters = (
        [cell("a", seed, 80.0) | {"settings": settings} for seed in range(number)]
        for number, settings in ((1, shared), (3, shared | {"trained": "lora"}))
    )
    monkeypatch.setattr(grids, "all_grids", lambda **_: {"weights": weights, "adapters": adapters})
    assert grids.grids_as_long("short", 60) == [weights]


def test_how_far_two_harnesses_are_apart(monkeypatch):
    def grid(gain, **settings):
        cells = [cell("simcse", seed, 80.0, avg7=70.0) for seed in range(3)]
        cells += [cell("a", seed, 80.0, avg7=70.0 + gain) for seed in (0, 1, 2)] + [cell("b", 0, 80.0, avg7=70.0 + 9 * gain)]
        return [one | {"settings": {"pooling": "mean", "packed": False} | settings} for one in cells]

    monkeypatch.setattr(grids, "grids_as_long", lambda *_: [grid(0.5, bf16=True, packed=True), grid(1.0, bf16=True)])
    first, _, second = quality_tables.elsewhere().splitlines()
    said = "2 methods were trained in both with three seeds or more; their means on the seven tasks are up to 0.50 apart"
    assert (first, second) == (f"60 updates: {said} (median 0.25).", f"400 updates: {said} (median 0.25).")


def test_a_place_without_a_record_blanks_no_table():
    assert tables.mean_text([1.0]) == "1.00"
    with pytest.raises(FileNotFoundError, match="a place for which there is no record"):
        tables.mean_text([])


def test_what_was_trained_in_an_earlier_way_gives_place_to_todays():
    now, then, alone = (cell(name, 0, 80.0) for name in ("a:x=1", f"a{grids.BEFORE_THAT}:x=1", f"a{grids.BEFORE_THAT}:x=2"))
    assert quality_tables._of_today([then, now, alone]) == [now, alone]


def test_differences_are_of_the_same_seed():
    ours = [cell("a", 0, 80.0, avg7=70.0), cell("a", 2, 83.0, avg7=73.0), cell("a", 3, 99.0, avg7=99.0)]
    theirs = [cell("simcse", 2, 81.0, avg7=70.5), cell("simcse", 0, 79.5, avg7=71.0)]
    assert grids.paired_differences(ours, theirs, "dev") == [0.5, 2.0]
    assert grids.paired_differences(ours, theirs, "avg7") == [-1.0, 2.5]


def test_differences_are_of_one_machine_where_there_are_two():
    """What was made again on another machine stands beside what is of the same."""
    ours = [cell("a", 0, 80.0), cell("a", 1, 81.0) | {"hardware": "B"}, cell("a", 2, 82.0) | {"hardware": "B"}]
    today = [cell("simcse", seed, 79.0) | {"hardware": "B"} for seed in range(3)]
    before = [cell("simcse", seed, 79.5) for seed in range(2)]
    assert grids.paired_differences(ours, today + before, "dev") == [0.5, 2.0, 3.0]
    assert grids.paired_differences(ours, today, "dev") == [1.0, 2.0, 3.0]
    assert quality_tables._machines_mark(grids.pairs_of(ours, today)) == " †"
    assert quality_tables._machines_mark(grids.pairs_of(ours, today + before)) == ""
    # A seed that both were made of on both counts once.
    twice = [cell("a", 0, 80.0), cell("a", 0, 85.0) | {"hardware": "B"}]
    assert grids.paired_differences(twice, [cell("simcse", 0, 79.0) | {"hardware": "B"}], "dev") == [6.0]
    assert grids.paired_differences(twice, [*before, *today], "dev") == [0.5]


def test_a_difference_of_fewer_seeds_than_the_row_says_so(monkeypatch):
    monkeypatch.setattr(quality_tables, "made_before", lambda records: [])
    records = [cell("a", 0, 80.0, avg7=70.0), cell("a", 1, 80.0, avg7=72.0), cell("simcse", 0, 79.0, avg7=69.0)]
    assert quality_tables._against(records[:2], records, "avg7") == "+1.00 (1 seed)"
    assert quality_tables._against(records[:1], records, "avg7") == "+1.00"


def test_what_is_not_trained_stands_beside_the_mean_of_simcse(monkeypatch):
    monkeypatch.setattr(quality_tables, "made_before", lambda records: [])
    records = [cell("raw", 0, 60.0, avg7=60.0), cell("simcse", 0, 79.0, avg7=69.0), cell("simcse", 1, 79.0, avg7=72.0)]
    assert quality_tables._against(records[:1], records, "avg7") == "-10.50"
    assert {*quality_tables.UNTRAINED} == {"raw", *quality.UNTRAINED}


def test_an_interval_is_students():
    """The differences are 1 to 5: their standard error is the root of .5, and t of four degrees of freedom 2.776."""
    ours = [cell("a", seed, 81.0 + 2 * seed, avg7=0.0) for seed in range(5)]
    theirs = [cell("simcse", seed, 80.0 + seed, avg7=0.0) for seed in range(5)]
    assert quality_tables._against(ours, ours + theirs, "dev") == "+3.00 [+1.04, +4.96]"
    assert quality_tables._against(ours[:4], ours + theirs, "dev") == "+2.50"


def test_how_far_a_training_ends_below_its_best():
    curve = [{"step": step, "dev": dev} for step, dev in ((10, 79.0), (20, 80.5), (30, 80.0))]
    assert quality_tables._end(cell("a", 0, 80.5) | {"curve": curve}) == 0.5


def test_the_first_update_that_is_good_enough():
    curve = [{"step": step, "dev": dev} for step, dev in ((10, 79.0), (20, 80.5), (30, 80.0))]
    assert quality_tables._reached(cell("a", 0, 80.5) | {"curve": curve}, 80.0) == 20
    assert quality_tables._reached(cell("a", 0, 80.5) | {"curve": curve}, 81.0) == float("inf")


def test_the_best_that_there_was_time_for():
    curve = [{"step": step, "dev": dev} for step, dev in ((10, 79.0), (20, 80.5), (30, 80.0))]
    found = [quality_tables._best_within({"curve": curve}, updates) for updates in (3, 14.9, 19.9, 60)]
    assert found == [79.0, 79.0, 80.5, 80.5]


def test_before_and_after():
    start = cell("raw", 0, 60.0, **{"cranfield_cosine_map@100": 0.08, "quora_dev_cosine_map@100": 0.5})
    after = [cell("a", seed, 70.0, **{"cranfield_cosine_map@100": value}) for seed, value in enumerate((0.1, 0.2))]
    assert quality_tables._before_after(start, after, "cranfield", "map@100") == "8.00 → 15.00 ± 7.07"
    assert quality_tables._before_after(start, after, "cranfield", "purity@10") == ""
    assert quality_tables._before_after(start, after, "cranfield", "dev") == "60.00 → 70.00 ± 0.00"


def test_what_own_text_gains_over_the_start():
    def made(name, seed, dev, MAP, bf16=True):
        return cell(name, seed, dev, MAP=MAP) | {"settings": {"bf16": bf16}}

    starts = {True: made("raw", 0, 80.0, 0.5), False: made("raw", 0, 80.5, 0.5)}
    cells = [made("a", seed, 80.0 + seed, 0.4) for seed in (0, 1, 2)]
    assert quality_tables._gained(starts, cells, "dev", 1) == "+1.00 ± 0.58"
    assert quality_tables._gained(starts, cells[:2], "dev", 1) == "+0.50"  # two say nothing of their scatter
    assert quality_tables._gained(starts, cells[:1], "MAP", 100) == "-10.00"
    in_float32 = made("a", 3, 82.5, 0.4, bf16=False)  # beside the start in its own precision
    assert quality_tables._gained(starts, [cells[0], in_float32], "dev", 1) == "+1.00"


def test_a_missing_record_blanks_no_table(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    with pytest.raises(FileNotFoundError):
        report.filled("<!-- sts check -->\n| a table |\n<!-- /sts check -->\n")


def test_trainings_with_bf16_and_without_stand_in_one_table(monkeypatch):
    def grid(bf16, *cells):
        return [one | {"settings": {"packed": True, "bf16": bf16}} for one in cells]

    def trained(seed, seven, *curve):
        points = [{"step": 50 * (place + 1), "dev": dev} for place, dev in enumerate(curve)]
        return cell("simcse", seed, max(curve), avg7=seven) | {"curve": points}

    monkeypatch.setattr(
        quality_tables,
        "grids_apart",
        lambda text, steps: [
            grid(True, cell("raw", 0, 60.0), trained(0, 70.0, 80.0, 81.0), trained(1, 70.0, 80.0, 81.0)),
            grid(False, cell("raw", 0, 60.0), trained(0, 70.25, 80.5, 81.125), trained(2, 70.0, 80.0, 81.0)),
        ],
    )
    said = quality_tables._made_in_both()  # the second seed was trained one way, the third the other
    assert "1 of 400 updates that one machine made both ways, of simcse," in said
    assert "up to 0.50 apart along STS-B dev (median 0.31), and up to 0.25" in said


def test_trainings_of_either_precision_are_one_grid():
    def trained(method, seed, *, bf16):
        return cell(method, seed, 80.0) | {"settings": {"steps": 2000, "bf16": bf16}}

    float32 = [trained("raw", 0, bf16=False), trained("simcse", 0, bf16=False)]
    bfloat16 = [trained("raw", 0, bf16=True), trained("simcse", 1, bf16=True), trained("a", 0, bf16=True)]
    together = grids.merged([float32, bfloat16])
    assert together == [*bfloat16, float32[1]]
    assert quality_tables._precision(together) == ", 2 trainings of 3 in bf16"
    assert [quality_tables._precision(grid) for grid in (float32, bfloat16)] == ["", ", bf16"]
    by_name = grids.by_method(together)
    assert quality_tables._machines_mark(grids.pairs_of(by_name["a"], by_name["simcse"])) == " †"  # float32 beside bfloat16
    both = [trained("simcse", 0, bf16=True)]
    assert grids.merged([float32, both]) == [*both, float32[0]]  # counts once
    assert grids.made_in_both([float32, both]) == [(float32[1], both[0])]


def test_padding_is_not_merged_and_what_was_made_twice_can_be_paired_in_its_own_precision(monkeypatch):
    def trained(method, seed, **settings):
        shared = {"encoder": "minilm-mlm", "text": "short", "steps": 400, "pooling": "mean"}
        return cell(method, seed, 80.0) | {"settings": shared | settings}

    bfloat16 = [trained("simcse", 0, bf16=True, packed=True, search=True)]
    float32 = [trained(name, 0, bf16=False, packed=True, search=False) for name in ("simcse", "a")]
    padded = [trained("simcse", 0, bf16=True, packed=False, search=True)]
    monkeypatch.setattr(grids, "all_grids", lambda **_: {"one": float32, "two": padded, "three": bfloat16})
    together = [*bfloat16, float32[1]]
    assert grids.grids_as_long("short", 400) == [together, padded]
    assert grids.grids_apart("short", 400) == [float32, padded, bfloat16]
    assert grids.made_in_float32_too(together) == [float32[0]]
    assert grids.made_in_float32_too(padded) == []
    by_name = grids.by_method(together + grids.made_in_float32_too(together))
    assert grids.pairs_of(by_name["a"], by_name["simcse"]) == [(float32[1], float32[0])]
