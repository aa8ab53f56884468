import json
import logging

import pytest
import torch
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
    ("text", "name", "keywords", "arguments", "protocol"),
    [
        ("simcse", "simcse", {}, {}, None),
        ("arccse:protocol=paper,max_steps=5", "arccse", {}, {"max_steps": 5}, "paper"),
        (
            "pt-bert:attend_to=pooled,momentum=0.99",
            "pt-bert",
            {"attend_to": "pooled", "momentum": 0.99},
            {},
            None,
        ),
        (
            "slt-fai:max_steps=3,loss.warmup_steps=0.2",
            "slt-fai",
            {"warmup_steps": 0.2},
            {"max_steps": 3},
            None,
        ),
        (
            "recommended:learning_rate=2e-4,words=0",
            "recommended",
            {"words": 0},
            {"learning_rate": 2e-4},
            None,
        ),
        (
            "consert:first_view=dropout,token_cutoff",
            "consert",
            {"first_view": ["dropout", "token_cutoff"]},
            {},
            None,
        ),
    ],
)
def test_methods_with_keywords(text, name, keywords, arguments, protocol):
    method = read_method(text)
    assert (method.recipe.name, method.protocol) == (name, protocol)
    assert (method.loss_keywords, method.arguments) == (keywords, arguments)


def test_a_seed_is_trained_once(run):
    ((change,),) = run(methods=["simcse"], seeds=[0, 0]).changes.values()
    assert "seeds" not in change.basis


@pytest.mark.slow
class TestCompare:
    def test_a_protocol_has_its_own_settings(self, run, tmp_path):
        quick = ",".join(f"{name}={value}" for name, value in ARGUMENTS.items())
        run([f"arccse:protocol=paper,{quick}"], seeds=1)
        _, cell = records(tmp_path / "out")
        assert cell["arguments"]["learning_rate"] == 3e-5
        assert cell["loss_keywords"]["margin_degrees"] == 10.0

    def test_every_cell_is_a_line_and_the_page_has_the_verdict(self, run, tmp_path):
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
            scores = [cell["scores"]["graded"] for cell in cells if cell["method"] == method]
            values = [score["values"]["Spearman"] for score in scores]
            assert change.after == pytest.approx(sum(values) / 2)
            assert change.before == pytest.approx(start["scores"]["graded"]["values"]["Spearman"])
            assert change.basis.startswith(str(len(scores[0]["items"])))
            assert change.error > abs(values[0] - values[1]) / 2  # the seeds, and the labels
        (rival,) = comparison.rivals
        other = next(method for method in METHODS if method != comparison.best)
        assert rival.before == comparison.changes[other][0].after
        assert rival.after == comparison.changes[comparison.best][0].after
        assert other in comparison.headline
        assert comparison.failed == {}
        assert len(comparison.table) == 4
        page = comparison.page.read_text(encoding="utf-8").replace("<wbr>", "")
        assert comparison.headline in page
        assert all(sentence in page.replace("&#43;", "+") for sentence in comparison.verdict)
        assert "notes" in page
        assert 'src="http' not in page

    def test_the_same_call_continues_after_a_kill(self, run, tmp_path, caplog):
        caplog.set_level(logging.INFO, "sbert_plugins")
        with interrupted(3), pytest.raises(KeyboardInterrupt):
            run(["simcse"])
        assert len(records(tmp_path / "out")) == 1
        run(["simcse"], seeds=1)
        first = records(tmp_path / "out")
        comparison = run(["simcse"])
        assert records(tmp_path / "out")[:2] == first
        assert "simcse, seed 0: finished before" in caplog.text
        assert len(records(tmp_path / "out")) == 3
        assert comparison.changes == run(["simcse"], output=tmp_path / "whole").changes

    def test_other_settings_and_labels_are_another_comparison(self, run, tmp_path):
        run(seeds=1, methods=["simcse"])
        with pytest.raises(ValueError, match=r"max_steps was 4, is 5"):
            run(seeds=1, methods=["simcse"], max_steps=5)
        with pytest.raises(ValueError, match=r"scores was"):
            run(seeds=1, methods=["simcse"], evaluators=[pairs("others")])
        with pytest.raises(ValueError, match="labels of graded have changed"):
            run(seeds=1, methods=["simcse"], evaluators=[pairs("graded", 5)])
        run(seeds=1, methods=["simcse"], output=tmp_path / "selected", dev=pairs("dev"))
        with pytest.raises(ValueError, match="labels of dev have changed"):
            run(seeds=1, methods=["simcse"], output=tmp_path / "selected", dev=pairs("dev", 5))

    def test_settings_bind_once_a_training_is_finished(self, run, tmp_path):
        with pytest.raises(RuntimeError, match="learning_rat"):
            run(seeds=1, methods=["simcse"], learning_rat=1e-3)
        with interrupted(1), pytest.raises(KeyboardInterrupt):
            run(seeds=1, methods=["simcse"])
        run(seeds=1, methods=["simcse"], learning_rate=1e-3)
        assert len(records(tmp_path / "out")) == 2

    def test_a_line_that_a_kill_has_cut_is_written_again(self, run, tmp_path):
        whole = run(seeds=1).changes
        path = tmp_path / "out" / "results.jsonl"
        path.write_text(path.read_text("utf-8")[:-20], "utf-8")
        for _ in range(2):
            assert run(seeds=1).changes == whole
            assert len(records(tmp_path / "out")) == 3

    def test_no_other_file_is_written_over(self, run, tmp_path):
        (tmp_path / "index.html").write_text("a report", "utf-8")
        with pytest.raises(FileExistsError, match="not empty"):
            run(output=tmp_path)

    def test_a_start_that_is_drawn_is_the_same_each_time(self, run, tiny_encoder):
        def drawn():
            model = tiny_encoder()
            with torch.no_grad():
                next(model.parameters()).add_(torch.rand(()))
            return model

        first = run(methods=["simcse"], seeds=1, model=drawn).changes["simcse"]
        torch.manual_seed(3)
        assert run(methods=["simcse"], seeds=1, model=drawn).changes["simcse"] == first
        with pytest.raises(ValueError, match="needs a new model"):
            run(model=drawn())

    def test_a_failure_loses_no_other_cell(self, run, tmp_path, caplog):
        comparison = run(methods=["arccse:near_mask_ratio=7", "simcse"], seeds=1)
        assert list(comparison.changes) == ["simcse"]
        assert list(comparison.failed) == ["arccse:near_mask_ratio=7, seed 0"]
        assert "near_<wbr>mask_<wbr>ratio" in comparison.page.read_text(encoding="utf-8")
        assert "complete checkpoint" not in caplog.text
        with pytest.raises(RuntimeError, match="Every training failed"):
            run(methods=["arccse:near_mask_ratio=7"], seeds=1, output=tmp_path / "other")

    def test_one_seed_has_the_error_of_its_training(self, run, tmp_path):
        ((change,),) = run(methods=["simcse"], seeds=[5]).changes.values()
        results = json.loads((tmp_path / "out" / "simcse_seed5" / "results.json").read_text("utf-8"))
        assert change.error == pytest.approx(results["changes"][0]["error"], rel=1e-4)
        assert change.result in results["verdict"][0]
        assert "30 pairs" in change.sentence
        again = run(methods=["simcse", "consert"], seeds=[5]).changes
        assert again["simcse"] == [change]
        assert again["consert"][0].error > 0

    def test_epochs_replace_updates(self, run, tmp_path, monkeypatch):
        monkeypatch.delitem(ARGUMENTS, "max_steps")
        run(methods=["simcse", "simcse:max_steps=3"], seeds=1, num_train_epochs=1)
        run(methods=["simcse:num_train_epochs=1"], seeds=1, max_steps=2, output=tmp_path / "other")
        updates = [cell["updates"] for folder in ("out", "other") for cell in records(tmp_path / folder)[1:]]
        assert updates == [5, 3, 5]

    def test_a_list_of_sentences_and_a_path_as_its_name(self, run, tmp_path):
        comparison = run(methods=["simcse"], seeds=1, text=str(tmp_path / "notes.txt"))  # of another machine
        page = comparison.page.read_text(encoding="utf-8")
        assert "notes.txt" in page
        assert records(tmp_path / "out")[0]["shared"]["text"] == "notes.txt"
        listed = recipes.compare(
            ["simcse"],
            anchors(40)["anchor"][:],
            model=comparison.page.parent / "simcse_seed0" / "model",
            output=tmp_path / "listed",
            evaluators=[pairs("graded")],
            seeds=1,
            **ARGUMENTS,
        )
        assert listed.changes["simcse"][0].before == comparison.changes["simcse"][0].after
