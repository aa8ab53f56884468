"""The plan: what a training reads, obeys and writes."""

import json
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset
from encoders import project_text
from recipe_inputs import QUICK, interrupted, pairs, train
from sentence_transformers import SentenceTransformer

from sbert_plugins import data, evaluation, recipes
from sbert_plugins.recipes.plan import make_plan
from sbert_plugins.recipes.run import describe_value, is_first_process
from sbert_plugins.training.loss_state import differences

TEXT = project_text()[:40]


def results_of(folder):
    return json.loads((folder / "results.json").read_text(encoding="utf-8"))


class TestRead:
    def test_metadata_and_labels_change_nothing(self, tiny_encoder, tmp_path, caplog):
        caplog.set_level("INFO", "sbert_plugins")
        columns = {"category": [str(row % 3) for row in range(40)], "label": [0, 1] * 20}
        table = Dataset.from_dict(columns | {"text": TEXT})
        models = [tiny_encoder(), tiny_encoder()]
        results = train("recommended", models[0], tmp_path / "a", sentences=table, loss_keywords={"words": 0})
        train("recommended", models[1], tmp_path / "b", loss_keywords={"words": 0})
        first, second = (model.encode(TEXT[:3]) for model in models)
        assert np.array_equal(first, second)
        line = 'text: column "text", 40 sentences, 0 blank, 0 duplicates'
        line += "; other columns not read: category, label"
        assert results["read"] == line
        assert line in caplog.text
        assert line.removeprefix("text: ") in (tmp_path / "a/model/README.md").read_text(encoding="utf-8")

    def test_columns_that_are_asked_for(self, tiny_encoder, tmp_path):
        table = Dataset.from_dict({"question": TEXT, "answer": TEXT[::-1]})
        results = train(
            "arccse", tiny_encoder(), tmp_path / "a", sentences=table, columns=["question", "answer"]
        )
        assert '"answer" (positive), 40 pairs' in results["read"]


class TestObeyed:
    @pytest.mark.parametrize(
        ("name", "value", "hint"),
        [
            ("output_dir", "x", "output"),
            ("resume_from_checkpoint", "x", "resume"),
            ("do_predict", True, "no effect"),
            ("router_mapping", {"anchor": "query"}, "no effect"),
            ("auto_find_batch_size", True, "per_device_train_batch_size"),
            ("num_train_epochs", 1, "max_steps"),
            ("push_to_hub", True, "hub_model_id"),
            ("hub_strategy", "every_save", "once"),
        ],
    )
    def test_or_refused_by_name(self, name, value, hint, tiny_encoder, tmp_path):
        with pytest.raises(ValueError, match=f"{name}.*{hint}"):
            train("arccse", tiny_encoder(), tmp_path / "run", **{name: value})
        assert not (tmp_path / "run").exists()

    def test_compare_pushes_nothing(self, tiny_encoder, tmp_path):
        given = {"model": tiny_encoder, "output": tmp_path / "a", "evaluators": [pairs()]}
        with pytest.raises(ValueError, match="Hub"):
            recipes.compare(["simcse"], TEXT, push_to_hub=True, hub_model_id="me/model", **given)

    def test_a_rank_of_another_program_is_no_rank(self, monkeypatch):
        monkeypatch.setenv("RANK", "1")
        assert is_first_process()
        monkeypatch.setenv("WORLD_SIZE", "2")
        assert not is_first_process()

    def test_the_plan_is_what_is_trained(self, tiny_encoder, tmp_path):
        given = {"max_steps": 3, "per_device_train_batch_size": 8, "eval_steps": 1, "learning_rate": 2e-4}
        secret = given | {"hub_token": "hf_secret"}
        rows, model = recipes.RECIPES["simcse"].read(TEXT), tiny_encoder()
        recipe = recipes.RECIPES["simcse"]
        plan = make_plan(recipe, rows, model, output=tmp_path / "run", arguments=secret, max_seq_length=9)
        plan.prepare()
        table = {name: value for name, value, _ in plan.table()}
        assert "hub_token" not in table
        results = recipes.train(
            "simcse", TEXT, tiny_encoder(), output=tmp_path / "run", max_seq_length=9, **given
        )
        assert int(table["updates"]) == results["updates"] == 3
        assert float(table["learning_rate"]) == results["arguments"]["learning_rate"]
        assert int(table["tokens"]) == results["max_seq_length"]["training"]
        assert table["read"] == results["read"]


class TestWritten:
    def test_no_secret_in_any_file(self, tiny_encoder, tmp_path):
        given = {"hub_token": "hf_secret"}
        train("arccse", tiny_encoder(), tmp_path / "train", keep_checkpoints=True, **given)
        quick = {name: QUICK[name] for name in ("max_steps", "per_device_train_batch_size", "eval_steps")}
        more = {"model": tiny_encoder, "output": tmp_path / "compare", "evaluators": [pairs()], "seeds": 1}
        recipes.compare(["simcse"], TEXT, **more, **quick, **given)
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert any(path.name == "training_args.bin" for path in files)
        assert not [path for path in files if b"hf_secret" in path.read_bytes()]

    def test_the_scored_model_is_uploaded_with_the_token(self, tiny_encoder, tmp_path, monkeypatch):
        seen = []

        def push(model, name, *, local_model_path, **given):
            card = Path(local_model_path, "README.md").read_text(encoding="utf-8")
            seen.append({"name": name, "is_scored": "| pairs, Spearman |" in card, **given})

        monkeypatch.setattr(SentenceTransformer, "push_to_hub", push)
        given = {"push_to_hub": True, "hub_model_id": "me/model", "hub_token": "hf_secret"}
        train("arccse", tiny_encoder(), tmp_path / "run", evaluators=[pairs()], hub_revision="dev", **given)
        rest = {"token": "hf_secret", "private": True, "exist_ok": True, "revision": "dev"}
        assert seen == [{"name": "me/model", "is_scored": True, **rest}]

    def test_objects_as_keywords_are_resumed(self, tiny_encoder, tmp_path):
        def go(text, **more):
            model = tiny_encoder()
            counts = data.TokenFrequencies.from_corpus(text, model.tokenizer, source="mine")
            return train("bag-of-words", model, tmp_path, loss_keywords={"frequencies": counts}, **more)

        with interrupted(3), pytest.raises(KeyboardInterrupt):
            go(TEXT)
        with pytest.raises(ValueError, match="frequencies was TokenFrequencies"):
            go(TEXT[:20], resume=True)
        assert go(TEXT, resume=True)["updates"] == 4

    def test_an_object_that_cannot_be_recorded_is_refused(self, tiny_encoder, tmp_path):
        with pytest.raises(TypeError, match="pickle"):
            train("arccse", tiny_encoder(), tmp_path, loss_keywords={"temperature": (i for i in "ab")})
        assert not list(tmp_path.glob("*.json"))

    def test_what_fails_after_a_training_loses_nothing(self, tiny_encoder, tmp_path, monkeypatch):
        before = evaluation.measure(tiny_encoder(), [pairs("graded")])

        def fail(*_, **__):
            raise OSError("disk full")

        with monkeypatch.context() as patch:
            patch.setattr(evaluation, "measure", fail)
            with pytest.raises(OSError, match="disk full"):
                train("arccse", tiny_encoder(), tmp_path, evaluators=[pairs("graded")], before=before)
        assert results_of(tmp_path)["updates"] == 4
        assert SentenceTransformer(str(tmp_path / "model"), device="cpu").encode("a").shape == (32,)
        again = train("arccse", tiny_encoder(), tmp_path, evaluators=[pairs("graded")], resume=True)
        assert len(again["verdict"]) == 1
        assert results_of(tmp_path)["finished"]
        assert not (tmp_path / "checkpoints").exists()

    def test_a_model_with_code_of_its_own_is_loaded_again(self, tiny_encoder, tmp_path, monkeypatch):
        model, seen = tiny_encoder(), []
        model.trust_remote_code = True
        load = SentenceTransformer.__init__

        def loading(self, *given, **keywords):
            seen.append(keywords.get("trust_remote_code"))
            load(self, *given, **(keywords | {"trust_remote_code": False}))

        monkeypatch.setattr(SentenceTransformer, "__init__", loading)
        train("pt-bert", model, tmp_path)
        recipes.load_loss(tmp_path, trust_remote_code=True)
        assert seen == [True, True]


def test_values_are_described_as_json_holds_them():
    described = describe_value({"a": (1, None), "b": int, "c": np.arange(3), "d": len})
    assert json.loads(json.dumps(described)) == described
    assert described["c"] == describe_value(np.arange(3)) != describe_value(np.arange(4))
    assert described["b"] == describe_value(int) != describe_value(float)
    assert differences({"x": {"a": 1}}, {"x": {"a": 1}, "y": 2}) == {"y": (None, 2)}
