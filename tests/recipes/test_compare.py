import json
import logging
from html.parser import HTMLParser

import pytest
from recipe_inputs import QUICK, anchors, interrupted, pairs

from sbert_plugins import recipes
from sbert_plugins.recipes.compare import read_method

ARGUMENTS = {name: QUICK[name] for name in ("max_steps", "per_device_train_batch_size", "eval_steps")}
METHODS = ["simcse", "arccse:temperature=0.2"]


@pytest.fixture
def run(tiny_encoder, tmp_path):
    """Compare two methods with two seeds."""

    def compare(methods=METHODS, **changes):
        given = {
            "model": tiny_encoder,
            "output": tmp_path / "out",
            "evaluators": [pairs("graded")],
            "seeds": 2,
        }
        return recipes.compare(methods, anchors(40), **(given | ARGUMENTS | {"text": "notes"} | changes))

    return compare


def records(folder):
    return [json.loads(line) for line in (folder / "results.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(
    ("text", "name", "keywords", "arguments"),
    [
        ("simcse", "simcse", {}, {}),
        (
            "pt-bert:attend_to=pooled,momentum=0.99",
            "pt-bert",
            {"attend_to": "pooled", "momentum": 0.99},
            {},
        ),
        ("recommended:learning_rate=2e-4,words=0", "recommended", {"words": 0}, {"learning_rate": 2e-4}),
        (
            "consert:first_view=dropout,token_cutoff",
            "consert",
            {"first_view": ["dropout", "token_cutoff"]},
            {},
        ),
    ],
)
def test_methods_with_keywords(text, name, keywords, arguments):
    method = read_method(text)
    assert (method.name, method.loss_keywords, method.arguments) == (name, keywords, arguments)


@pytest.mark.parametrize(("text", "hint"), [("simsce", "simcse"), ("simcse:temprature=1", "temperature")])
def test_mistyped_methods_and_keywords(text, hint):
    with pytest.raises(ValueError, match=f"Did you mean {hint}"):
        read_method(text)


@pytest.mark.slow
class TestCompare:
    def test_every_cell_is_a_line(self, run, tmp_path):
        comparison = run()
        start, *cells = records(tmp_path / "out")
        assert start["method"] == "start"
        assert {(cell["method"], cell["seed"]) for cell in cells} == {
            (text, seed) for text in METHODS for seed in (0, 1)
        }
        assert all(cell["updates"] == 4 for cell in cells)
        assert cells[1]["loss_keywords"] == {"temperature": 0.2}
        assert not list((tmp_path / "out").rglob("checkpoint-*"))
        for method, (change,) in comparison.changes.items():
            values = [cell["scores"]["graded"]["Spearman"] for cell in cells if cell["method"] == method]
            assert change.after == pytest.approx(sum(values) / 2)
            assert change.error == pytest.approx(abs(values[0] - values[1]) / 2)
            assert change.before == pytest.approx(start["scores"]["graded"]["Spearman"])
        assert comparison.failed == {}
        assert len(comparison.table) == 4

    def test_the_page(self, run, tmp_path):
        comparison = run()
        page = comparison.page.read_text(encoding="utf-8")
        HTMLParser().feed(page)
        assert comparison.headline in page
        assert all(sentence in page.replace("&#43;", "+") for sentence in comparison.verdict)
        assert "notes" in page
        assert 'src="http' not in page

    def test_the_same_call_continues_after_a_kill(self, run, tmp_path, caplog):
        caplog.set_level(logging.INFO, "sbert_plugins")
        with interrupted(3), pytest.raises(KeyboardInterrupt):
            run()
        assert len(records(tmp_path / "out")) == 1
        run(seeds=1)
        first = records(tmp_path / "out")
        comparison = run()
        assert records(tmp_path / "out")[:3] == first
        assert "simcse, seed 0: finished before" in caplog.text
        assert len(records(tmp_path / "out")) == 5
        whole = run(output=tmp_path / "whole")
        assert comparison.changes == whole.changes

    def test_other_settings_are_another_comparison(self, run, tmp_path):
        run(seeds=1, methods=["simcse"])
        with pytest.raises(ValueError, match=r"max_steps was 4, is 5"):
            run(seeds=1, methods=["simcse"], max_steps=5)
        with pytest.raises(ValueError, match=r"scores was"):
            run(seeds=1, methods=["simcse"], evaluators=[pairs("others")])

    def test_a_failure_loses_no_other_cell(self, run, tmp_path):
        comparison = run(methods=["arccse:near_mask_ratio=7", "simcse"], seeds=1)
        assert list(comparison.changes) == ["simcse"]
        assert list(comparison.failed) == ["arccse:near_mask_ratio=7, seed 0"]
        assert "near_mask_ratio" in comparison.page.read_text(encoding="utf-8")
        with pytest.raises(RuntimeError, match="Every training failed"):
            run(methods=["arccse:near_mask_ratio=7"], seeds=1, output=tmp_path / "other")

    def test_one_seed_has_no_error(self, run):
        ((change,),) = run(methods=["simcse"], seeds=[5]).changes.values()
        assert change.error is None
        assert "one seed" in change.sentence
