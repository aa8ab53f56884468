"""Means, deviations and paired differences against numbers computed by hand."""

import pytest

from sbert_plugins.recipes.summary import Number, printed, shown, summarise


def cell(seed, **scores):
    return {"seed": seed, "scores": scores, "seconds": 10.0 * (seed + 1)}


RECORDS = {
    "first": [cell(0, x=1.0), cell(1, x=2.0), cell(2, x=6.0)],
    "second": [cell(0, x=2.0), cell(1, x=5.0), {"seed": 2, "failed": "update 3: loss is nan"}],
}


def test_numbers():
    first, second = summarise(RECORDS, ["x"])
    assert first.scores["x"] == Number(3.0, pytest.approx(7**0.5), 3)  # deviations -2, -1, 3: 14 / 2
    assert second.scores["x"] == Number(3.5, pytest.approx(4.5**0.5), 2)
    assert second.differences["x"] == Number(2.0, pytest.approx(2**0.5), 2)  # 1 and 3: seeds that both have
    assert first.differences["x"] is None
    assert (first.seconds, second.seconds) == (Number(20.0, 10.0, 3), Number(15.0, pytest.approx(50**0.5), 2))
    assert (first.seeds, second.seeds) == ([0, 1, 2], [0, 1])
    assert second.failed == {2: "update 3: loss is nan"}


def test_one_seed_has_no_deviation():
    first, second = summarise({"a": [cell(0, x=1.0)], "b": [cell(0, x=3.5)]}, ["x"])
    assert first.scores["x"] == Number(1.0, None, 1)
    assert second.differences["x"] == Number(2.5, None, 1)


def test_nothing_but_failures():
    failed = {"seed": 0, "failed": "no"}
    first, second = summarise({"a": [failed], "b": [cell(0, x=3.5)]}, ["x"])
    assert (first.scores["x"], first.seconds, second.differences["x"]) == (None, None, None)
    assert printed([first, second], {"scores": {"x": 1.0}, "main": ["x"]})[2] == ["a", "0", "none", "", "none"]


@pytest.mark.parametrize(
    ("number", "sign", "text"),
    [
        (Number(1.005, None, 1), False, "1.00"),
        (Number(81.456, 0.123, 3), False, "81.46 ± 0.12"),
        (Number(0.5, 0.25, 3), True, "+0.50 ± 0.25"),
        (Number(0.75, 0.25, 3), True, "+0.75 ± 0.25 *"),
        (Number(0.75, 0.25, 3), False, "0.75 ± 0.25"),
        (Number(1e-14, 0.0, 2), True, "+0.00 ± 0.00"),  # noise of float
        (Number(-0.001, 0.001, 2), True, "+0.00 ± 0.00"),
        (Number(-0.001, None, 1), False, "0.00"),
        (Number(-0.5, None, 1), True, "-0.50"),
        (None, True, "none"),
        (3.14159, False, "3.14"),
    ],
)
def test_shown(number, sign, text):
    assert shown(number, sign=sign) == text


def test_the_printed_table():
    table = printed(summarise(RECORDS, ["x"]), {"scores": {"x": 0.5}, "main": ["x"]})
    assert table == [
        ["", "seeds", "x", "minus first", "seconds"],
        ["start", "", "0.50", "", ""],
        ["first", "3", "3.00 ± 2.65", "", "20.0 ± 10.0"],
        ["second", "2", "3.50 ± 2.12", "+2.00 ± 1.41", "15.0 ± 7.1"],
    ]
    assert len({len(line) for line in table}) == 1


def test_shares_and_distances_have_four_digits():
    """Two would hide what they differ by: 0.0042."""
    records = {"a": [cell(0, loss=0.11), cell(1, loss=0.12)], "b": [cell(0, loss=0.1142), cell(1, loss=0.1242)]}
    start = {"scores": {"loss": 0.2}, "main": ["loss"], "lower": ["loss"]}
    table = printed(summarise(records, ["loss"]), start)
    assert table[0][2:4] == ["loss (lower is better)", "minus a"]
    assert table[1][2] == "0.2000"
    assert table[3][2:4] == ["0.1192 ± 0.0071", "+0.0042 ± 0.0000 *"]
    assert printed(summarise(records, ["loss"]), start | {"scores": {"loss": 2.2}})[1][2] == "2.2000"
    far = {"a": [cell(0, x=0.25)], "b": [cell(0, x=61.5)]}
    assert printed(summarise(far, ["x"]), {"scores": {"x": 0.5}, "main": ["x"]})[2][2] == "0.25"


def test_a_share_of_1_and_none_at_all():
    """1 is a share with four digits; what only the start shows to be a percentage has two, and so has what is 0 all along."""
    records = {"a": [cell(0, x=0.5)]}
    assert printed(summarise(records, ["x"]), {"scores": {"x": 1.0}, "main": ["x"]})[1][2] == "1.0000"
    assert printed(summarise(records, ["x"]), {"scores": {"x": 61.5}, "main": ["x"]})[2][2] == "0.50"
    records = {"a": [cell(0, x=0.0)]}
    assert printed(summarise(records, ["x"]), {"scores": {"x": 0.0}, "main": ["x"]})[1][2] == "0.00"
