import importlib
import json
import os
import re
import shutil
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from datasets import Dataset
from filelock import FileLock
from recipe_inputs import anchors, interrupted, quick, texts
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import normalizers
from transformers import AutoConfig, AutoModelForMaskedLM, TrainerState

import sbert_plugins
from sbert_plugins import evaluation, recipes, training
from sbert_plugins.encoder import apply_mask_template
from sbert_plugins.recipes import checked, provenance
from sbert_plugins.recipes import output as output_module
from sbert_plugins.recipes import run as module
from sbert_plugins.recipes import trainer as trainer_module
from sbert_plugins.recipes.output import changes, encoder_settings, method_text, text_mark, time_text, updates_text, write_json


@pytest.fixture(scope="module")
def dev():
    pairs = recipes.graded_pairs()
    return evaluation.ScoredPairs(*(values[::12] for values in pairs))


class Trained(NamedTuple):
    """A training of a recipe that chose among four checkpoints, and what it left."""

    method: str
    output: Path
    results: dict
    model: SentenceTransformer
    before: np.ndarray
    loss: dict[str, torch.Tensor]


@pytest.fixture(scope="module", params=recipes.RECIPES)
def trained(request, tiny_encoder, tmp_path_factory, dev):
    method, output, model = request.param, tmp_path_factory.mktemp("trained") / "run", tiny_encoder()
    before = model.encode("A dog runs.")
    built, build = [], recipes.build_loss
    settings = quick(max_steps=8, learning_rate=1e-2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sbert_plugins.recipes.run.build_loss", lambda *a, **k: built.append(build(*a, **k)) or built[-1])
        rows, evaluated = texts(method, 80), {"dev": dev, "probes": {"probe": dev}}
        results = recipes.train(method, rows, model, output=output, settings=settings, **evaluated)
    return Trained(method, output, results, model, before, built[0].state_dict())


@pytest.mark.slow
class TestTrain:
    def test_leaves_a_model_its_checkpoint_and_results(self, trained):
        names = ["checkpoints", "loss", "model", "results.json", "run.json"]
        assert sorted(path.name for path in trained.output.iterdir()) == names
        written = json.loads((trained.output / "results.json").read_text(encoding="utf-8"))
        assert written == json.loads(json.dumps(trained.results))
        assert set(trained.results["before"]) == set(trained.results["after"]) == {"probe", "STS-B dev"}
        assert trained.results["before"]["probe"] == trained.results["before"]["STS-B dev"]
        assert trained.results["steps"] == 8
        saved = SentenceTransformer(str(trained.output / "model"), device="cpu")
        assert (saved.encode("A dog runs.") == trained.model.encode("A dog runs.")).all()
        assert not (trained.before == trained.model.encode("A dog runs.")).all()

    def test_the_loss_is_kept_beside_the_model(self, trained):
        loss = recipes.load_loss(trained.output, SentenceTransformer(str(trained.output / "model"), device="cpu"))
        assert all(torch.equal(tensor, trained.loss[name]) for name, tensor in loss.state_dict().items())

    def test_every_term_is_logged(self, trained):
        logged = set().union(*trained.results["log"])
        terms = {
            "arccse": {"arccon", "triplet"},
            "denosent": {"contrastive", "denoising"},
            "paser": {"generative"},
            "bag-of-words": {"words"},
            "pt-bert": {"contrastive"},
            "paser-supervised": {"contrastive", "paser/generative"},
            "slt-fai": {"base/simcse", "adversarial", "filtering"},
            "recommended": {"contrast/nt_xent", "words/words"},
            "consert": {"nt_xent"},
            "simcse": {"simcse"},
        }[trained.method]
        assert terms <= logged

    def test_dev_selects_the_checkpoint(self, trained):
        """The model that is saved is the best of the evaluated ones, not the last."""
        scores = {
            entry["step"]: entry["eval_stsb-dev_spearman_cosine"]
            for entry in trained.results["log"]
            if "eval_stsb-dev_spearman_cosine" in entry
        }
        assert len(scores) == 4
        assert trained.results["saved_update"] == max(scores, key=scores.get)
        best = trained.output / "checkpoints" / f"checkpoint-{max(scores, key=scores.get)}" / "model.safetensors"
        saved, best = load_file(trained.output / "model" / "model.safetensors"), load_file(best)
        assert all(torch.equal(saved[name], best[name]) for name in best)
        # A swap of two pairs whose cosines are equal but for rounding is .15 of these pairs.
        assert trained.results["after"]["STS-B dev"] == pytest.approx(100 * max(scores.values()), abs=0.2)

    @pytest.mark.parametrize("method", recipes.RECIPES)
    def test_the_same_seed_gives_the_same_model(self, method, tiny_encoder, tmp_path):
        vectors = []
        for run, seed in enumerate((1, 1, 2)):
            model = tiny_encoder()
            settings = quick(max_steps=2)
            recipes.train(method, texts(method, 40), model, output=tmp_path / str(run), settings=settings, seed=seed)
            vectors.append(model.encode("A dog runs."))
        assert (vectors[0] == vectors[1]).all()
        assert not (vectors[0] == vectors[2]).all()


PAIRED = [name for name, recipe in recipes.RECIPES.items() if recipe.second_column]


@pytest.mark.parametrize("method", PAIRED)
def test_a_second_column_holds_the_positives(method, tiny_encoder, tmp_path, monkeypatch):
    """It reaches the encoder, whatever its name is."""
    rows = texts("paser-supervised", 20).select_columns(["anchor", "negative"])
    model, read = tiny_encoder(), []
    word = model.preprocess([rows[0]["negative"]])["input_ids"]
    forward = model.forward
    monkeypatch.setattr(
        model, "forward", lambda features, **k: read.append(features["input_ids"].clone()) or forward(features, **k)
    )
    made = {"positives": "mine"}
    settings = quick(max_steps=1, batch_size=20)
    results = recipes.train(method, rows, model, output=tmp_path / "run", settings=settings, columns=made)
    assert results["columns"] == made
    texts_read = {tuple(ids[ids != model.tokenizer.pad_token_id].tolist()) for batch in read for ids in batch}
    assert tuple(word[0].tolist()) in texts_read


class TestPrompt:
    """Training reads a sentence as the scores and the saved model do."""

    @pytest.mark.parametrize("method", recipes.RECIPES)
    def test_every_method_reads_the_default_prompt(self, method, tiny_encoder, tmp_path, monkeypatch):
        model, read = tiny_encoder(), []
        model.prompts, model.default_prompt_name = {"q": "search for this: "}, "q"
        collate = SentenceTransformerDataCollator.__call__
        monkeypatch.setattr(
            SentenceTransformerDataCollator, "__call__", lambda self, rows: read.append(collate(self, rows)) or read[-1]
        )
        said, settings = [], quick(max_steps=1)
        results = recipes.train(
            method, texts(method, 20), model, output=tmp_path / "run", settings=settings, report=said.append
        )
        columns = {key.removesuffix("_input_ids") for batch in read for key in batch if key.endswith("_input_ids")}
        prompt = model.tokenizer("search for this:", add_special_tokens=False)["input_ids"]
        for name in columns:
            has_prompt = all(row[1 : len(prompt) + 1] == prompt for row in read[0][f"{name}_input_ids"].tolist())
            assert has_prompt == (f"{name}_prompt_length" in read[0]) == (name != "phrase"), name
        assert "the prompt 'search for this: ' before each sentence" in " ".join(said)
        assert results["max_seq_length"]["training"] == settings.max_seq_length + len(prompt)
        assert "'search for this: '" in (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")

    def test_none_is_read_where_none_is_the_default(self, tiny_encoder, tmp_path):
        vectors = []
        for run, prompts in enumerate(({}, {"q": "search for this: "})):
            model = tiny_encoder()
            model.prompts = prompts
            said = []
            recipes.train("arccse", anchors(20), model, output=tmp_path / str(run), settings=quick(), report=said.append)
            vectors.append(model.encode("A dog runs."))
            assert "prompt" not in " ".join(said)
        assert (vectors[0] == vectors[1]).all()


@pytest.mark.parametrize(
    ("seconds", "evaluating", "text"),
    [(75.8, 66.4, "76 s, 66 of them evaluating"), (3.0, 0.2, "3 s"), (3.0, None, "3 s"), (None, None, "")],
)
def test_the_time_of_a_training_is_said_with_that_of_its_evaluations(seconds, evaluating, text):
    assert time_text({"seconds": seconds, "evaluation_seconds": evaluating}) == text
    if not evaluating:  # records of earlier versions
        assert time_text({"seconds": seconds}) == text


def test_the_seconds_of_evaluations_are_counted(tiny_encoder, tmp_path, dev, monkeypatch):
    evaluator = trainer_module.dev_evaluator(dev, None).__class__.__mro__[1]
    evaluate = evaluator.__call__
    monkeypatch.setattr(evaluator, "__call__", lambda *args, **keywords: time.sleep(0.2) or evaluate(*args, **keywords))
    results = recipes.train("simcse", anchors(40), tiny_encoder(), output=tmp_path / "run", settings=quick(), dev=dev)
    assert results["seconds"] >= results["evaluation_seconds"] >= 0.4  # two of them
    readme = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    shown = {name: float(value) for name, value in re.findall(r"- \*\*(\w+)\*\*: ([0-9.]+) seconds", readme)}
    own = results["evaluation_seconds"]
    expected = {"Training": results["seconds"] - own, "Evaluation": own, "Total": results["seconds"]}
    assert shown == pytest.approx(expected, abs=1e-6)


@pytest.mark.slow
class TestResume:
    def test_an_interrupted_training_ends_as_if_it_had_not_been(self, tiny_encoder, tmp_path, dev):
        def run(model, output, **changes):
            return recipes.train("arccse", anchors(40), model, output=output, settings=quick(), dev=dev, **changes)

        whole, resumed = tiny_encoder(), tiny_encoder()
        expected = run(whole, tmp_path / "whole")
        with interrupted(3), pytest.raises(KeyboardInterrupt):
            run(tiny_encoder(), tmp_path / "run")
        with pytest.raises(ValueError, match=r"was begun with seed 42 \(now 7\): resume with the same"):
            run(tiny_encoder(), tmp_path / "run", resume=True, seed=7)
        with pytest.raises(ValueError, match=r"was begun with encoder's pooling cls \(now mean\): resume with the same"):
            run(tiny_encoder(pooling="mean"), tmp_path / "run", resume=True)
        results = run(resumed, tmp_path / "run", resume=True)
        assert results["steps"] == 4
        assert results["after"] == expected["after"]
        assert expected["seconds"] >= expected["evaluation_seconds"] >= 0
        assert results["seconds"] is results["evaluation_seconds"] is None  # those before the interruption are not known
        cards = [(tmp_path / run / "model" / "README.md").read_text(encoding="utf-8") for run in ("whole", "run")]
        assert ["**Training**: " in card for card in cards] == [True, False]
        assert (resumed.encode("A dog runs.") == whole.encode("A dog runs.")).all()
        tables = [re.findall(r"^\|.*Training Loss.*\n(?:\|.*\n)+", card, re.MULTILINE) for card in cards]
        assert tables[0] == tables[1]  # what was logged before the interruption, too
        assert len(tables[0]) == 1

    def test_each_version_that_had_a_part_is_on_record(self, tiny_encoder, tmp_path, dev, monkeypatch):
        def run(**changes):
            return recipes.train(
                "arccse", anchors(40), tiny_encoder(), output=tmp_path / "run", settings=quick(), dev=dev, **changes
            )

        monkeypatch.setattr("sbert_plugins.recipes.provenance.__version__", "0.0.1")
        with interrupted(3), pytest.raises(KeyboardInterrupt):
            run()
        monkeypatch.undo()
        results = run(resume=True)
        assert results["versions"]["sbert-plugins"] == f"0.0.1, {sbert_plugins.__version__}"
        assert results["versions"]["torch"] == str(torch.__version__)
        assert results["threads"] == torch.get_num_threads()
        assert "Made with several versions" in provenance.mixed_versions([results])

    @pytest.mark.parametrize("changed", ["tokenizer", "config"])
    def test_another_tokenizer_or_config_with_the_same_weights(self, changed, tiny_encoder, tmp_path, dev):
        def run(model, **changes):
            return recipes.train("arccse", anchors(40), model, output=tmp_path / "run", settings=quick(), dev=dev, **changes)

        with interrupted(3), pytest.raises(KeyboardInterrupt):
            run(tiny_encoder())
        other = tiny_encoder()
        if changed == "tokenizer":
            other.tokenizer.backend_tokenizer.normalizer = normalizers.NFD()
        else:
            other[0].model.config.layer_norm_eps = 0.1
        with pytest.raises(ValueError, match=rf"was begun with encoder's {changed} \w+ \(now \w+\): resume with the same"):
            run(other, resume=True)
        assert run(tiny_encoder(), resume=True)["steps"] == 4

    def test_what_another_version_builds_is_another_training(self, tiny_encoder, tmp_path, dev):
        def run(**changes):
            return recipes.train(
                "arccse",
                anchors(40),
                tiny_encoder(),
                output=tmp_path,
                settings=quick(),
                loss_keywords={"temperature": 0.1},
                **({"dev": dev} | changes),
            )

        with interrupted(3), pytest.raises(KeyboardInterrupt):
            run()
        record = json.loads((tmp_path / "run.json").read_text())
        assert record["loss_defaults"]["margin_degrees"] == 10
        assert "temperature" not in record["loss_defaults"]
        with pytest.raises(ValueError, match=r"was begun with dev STS-B dev \[\w+\] \(now None\): resume"):
            run(resume=True, dev=None)
        with pytest.raises(ValueError, match=r"was begun with dev STS-B dev \[\w+\] \(now STS-B dev \[\w+\]\): resume"):
            run(resume=True, dev=evaluation.ScoredPairs(*(values[:20] for values in dev)))
        # Of what it had not heard of, its keywords were what they are.
        (tmp_path / "run.json").write_text(json.dumps(record | {"loss_defaults": {"margin_degrees": 20.0}}))
        with pytest.raises(
            ValueError, match=r"was begun with default of margin_degrees 20.0 \(now 10.0\): .* with that version"
        ):
            run(resume=True)
        (tmp_path / "run.json").write_text(json.dumps(record | {"loss_class": "WeightedSumLoss"}))
        with pytest.raises(ValueError, match=r"was begun with loss_class WeightedSumLoss \(now ArcCSELoss\): resume"):
            run(resume=True)

    def test_while_another_process_trains_there(self, tiny_encoder, tmp_path, dev, monkeypatch):
        """It would write checkpoints among the other one's. Of a training's own processes the first holds the folder."""
        given = {"output": tmp_path / "run", "settings": quick(), "dev": dev}
        with FileLock(tmp_path / "run.lock"):
            with pytest.raises(FileExistsError, match="run, where another process trains: wait until it has ended"):
                recipes.train("arccse", anchors(40), tiny_encoder(), **given)
            assert not (tmp_path / "run").exists()
        with interrupted(3), pytest.raises(KeyboardInterrupt):
            recipes.train("arccse", anchors(40), tiny_encoder(), **given)
        assert [path.name for path in tmp_path.iterdir()] == ["run"]
        with FileLock(tmp_path / "run.lock"):
            with pytest.raises(FileExistsError, match="run, where another process trains"):
                recipes.train("arccse", anchors(40), tiny_encoder(), resume=True, **given)
            monkeypatch.setenv("RANK", "1")
            with output_module.held(tmp_path / "run"):
                assert (tmp_path / "run.lock").exists()

    def test_in_the_working_directory(self, tiny_encoder, tmp_path, monkeypatch):
        (tmp_path / "here").mkdir()
        monkeypatch.chdir(tmp_path / "here")
        assert recipes.train("arccse", anchors(40), tiny_encoder(), output=".", settings=quick())["steps"] == 4
        assert [path.name for path in tmp_path.iterdir()] == ["here"]

    def test_nothing_to_resume(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="holds no checkpoint to resume .*: delete the directory"):
            recipes.check_output(tmp_path, resume=True)
        (tmp_path / "results.json").write_text("{}")
        with pytest.raises(FileExistsError, match="holds a finished training"):
            recipes.check_output(tmp_path, resume=True)


class TestNotFinite:
    def test_results_are_json_that_every_reader_takes(self, tmp_path):
        write_json(tmp_path / "x.json", {"a": [float("nan"), {"b": float("inf")}], "c": (1.5, "x"), "d": True})
        text = (tmp_path / "x.json").read_text()
        assert json.loads(text, parse_constant=pytest.fail) == {
            "a": [None, {"b": None}],
            "c": [1.5, "x"],
            "d": True,
            "not_finite": {"a.0": "nan", "a.1.b": "inf"},
        }


def test_the_length_is_the_trainings_while_it_trains(tiny_encoder, tmp_path, dev, monkeypatch):
    """Sentences are scored, also where they choose a checkpoint, as the saved model reads them."""
    lengths = {"train": set(), "encode": set()}
    step, encode = training.SentenceTransformerTrainer.training_step, SentenceTransformer.encode

    def training_step(trainer, model, inputs, *arguments):
        lengths["train"].add(max(value.shape[1] for key, value in inputs.items() if key.endswith("input_ids")))
        return step(trainer, model, inputs, *arguments)

    def encoding(model, *arguments, **keywords):
        if len(arguments[0]) > 3:  # not the three lines in the card of a checkpoint
            lengths["encode"].add(model.max_seq_length)
        return encode(model, *arguments, **keywords)

    monkeypatch.setattr(training.SentenceTransformerTrainer, "training_step", training_step)
    monkeypatch.setattr(SentenceTransformer, "encode", encoding)
    model = tiny_encoder()
    settings = quick(max_seq_length=7)
    results = recipes.train("arccse", anchors(40), model, output=tmp_path / "run", settings=settings, dev=dev)
    assert lengths == {"train": {7}, "encode": {128}}
    assert model.max_seq_length == 128
    assert results["max_seq_length"] == {"training": 7, "model": 128}


def test_what_a_record_names_is_hashed(tmp_path, monkeypatch):
    """A class of one's own, and counts in a file, may be others under the same name tomorrow."""
    (tmp_path / "mine_of_today.py").write_text(
        "from torch import nn\n\n\nclass Mine(nn.Module):\n    pass\n", encoding="utf-8"
    )
    counts = tmp_path / "counts.npz"
    counts.write_bytes(b"one")
    monkeypatch.syspath_prepend(str(tmp_path))
    keywords = {"frequencies": str(counts), "mlm_head": "fresh", "token_weights": 0.1}
    before = checked._files("mine_of_today:Mine", keywords)
    assert set(before) == {"mine_of_today:Mine", "frequencies"}
    counts.write_bytes(b"two")
    assert {key for key, mark in checked._files("mine_of_today:Mine", keywords).items() if mark != before[key]} == {
        "frequencies"
    }
    with (tmp_path / "mine_of_today.py").open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    with pytest.raises(
        ValueError, match=r"mine_of_today\.py has changed since mine_of_today:Mine was imported, and the old cl"
    ):
        checked._files("mine_of_today:Mine", {})
    importlib.reload(importlib.import_module("mine_of_today"))
    assert checked._files("mine_of_today:Mine", {})["mine_of_today:Mine"] != before["mine_of_today:Mine"]
    assert checked._files("arccse", {}) == {}


def test_a_class_in_no_file(monkeypatch):
    """A notebook's, or one of an interpreter that reads what is typed."""
    scope = {"__name__": "__main__"}
    exec(compile("from torch import nn\nclass Typed(nn.Module):\n    pass\n", "<stdin>", "exec"), scope)
    monkeypatch.setattr(sys.modules["__main__"], "Typed", scope["Typed"], raising=False)
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    with pytest.raises(
        ValueError, match="a loss of your own must be in a file, by which a later run knows it; Typed is in <__m"
    ):
        recipes.recipe_of("__main__:Typed")


class TestBadInput:
    def test_another_backbone_than_the_protocols(self, tiny_encoder, tmp_path):
        with pytest.raises(ValueError, match="the protocol paper of slt-fai goes round simcse, got consert: leave"):
            recipes.train(
                "slt-fai",
                anchors(8),
                tiny_encoder(),
                output=tmp_path / "run",
                protocol="paper",
                loss_keywords={"backbone": "consert"},
            )

    def test_none_is_no_sentence(self, tiny_encoder, tmp_path):
        rows = Dataset.from_dict({"anchor": ["A dog.", None, "A cat."]})
        with pytest.raises(ValueError, match="sentences must hold no None, got one in row 1: leave such rows out"):
            recipes.train("arccse", rows, tiny_encoder(), output=tmp_path / "run", settings=quick())
        assert not (tmp_path / "run").exists()

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"sentences": ["A dog.", "A cat."]}, r"sentences must be a datasets.Dataset, got list: data.read_sentences"),
            ({"model": "bert-base-uncased"}, r"model must be a SentenceTransformer, got str: recipes.build_encoder"),
            ({"settings": {"max_steps": 4}}, r"settings must be recipes.Settings, got dict: recipes.with_changes"),
            ({"method": "simcse", "loss_keywords": {"pairs": True}}, r"pairs follows from the columns, got True"),
        ],
    )
    def test_kinds(self, tiny_encoder, tmp_path, changes, message):
        given = {"method": "arccse", "sentences": anchors(8), "model": tiny_encoder(), "settings": quick(), **changes}
        with pytest.raises(ValueError, match=message):
            recipes.train(**given, output=tmp_path / "run")
        assert not (tmp_path / "run").exists()

    @pytest.mark.parametrize("seed", [-1, 2**32])
    def test_seed(self, tiny_encoder, tmp_path, seed):
        with pytest.raises(ValueError, match=rf"seed must be a whole number in \[0, 4294967295\], got {seed}"):
            recipes.train("arccse", anchors(4), tiny_encoder(), output=tmp_path / "run", seed=seed)

    @pytest.mark.parametrize(
        ("method", "names", "message"),
        [
            ("consert", ["anchor", "label"], "columns must be texts, got label, which the host reads as labels"),
            ("arccse", ["a", "b", "c"], r"arccse reads anchor \[, positive\], got a, b, c: drop what is too much"),
            ("paser", ["anchor", "positive"], "paser reads sentences or anchor, masked, phrase, got anchor, positive"),
            ("paser-supervised", ["anchor", "positive"], "reads triplets or anchor, positive, negative, masked, phrase, got"),
        ],
    )
    def test_columns(self, tiny_encoder, tmp_path, method, names, message):
        rows = Dataset.from_dict({name: ["It rains.", "It is dry."] for name in names})
        with pytest.raises(ValueError, match=message):
            recipes.train(method, rows, tiny_encoder(), output=tmp_path / "run", settings=quick())
        assert not (tmp_path / "run").exists()

    @pytest.mark.parametrize(
        ("changes", "count", "message"),
        [
            ({"batch_size": 1}, 40, "batch_size must be at least 2, got 1"),
            ({}, 1, "training needs at least 2 sentences, got 1"),
        ],
    )
    def test_nothing_is_written(self, tiny_encoder, tmp_path, changes, count, message):
        with pytest.raises(ValueError, match=message):
            recipes.train("arccse", anchors(count), tiny_encoder(), output=tmp_path / "run", settings=quick(**changes))
        assert not (tmp_path / "run").exists()

    @pytest.mark.parametrize("method", ["recommended", "simcse", "slt-fai"])
    def test_static_embeddings(self, tokenizers, tmp_path, method):
        static = SentenceTransformer(modules=[StaticEmbedding(tokenizers["bpe"].backend_tokenizer, embedding_dim=8)])
        scores = [evaluation.PairsEvaluator(recipes.graded_pairs())]
        message = "the model's tokenizer must be a transformers tokenizer, got Tokenizer: use a model that begins with"
        with pytest.raises(ValueError, match=message):
            recipes.train(method, anchors(4), static, output=tmp_path / "run")
        with pytest.raises(ValueError, match=message):
            recipes.compare([method], anchors(4), model=lambda: static, evaluators=scores, output=tmp_path / "run")
        assert not (tmp_path / "run").exists()

    def test_unknown_method(self, tiny_encoder, tmp_path):
        with pytest.raises(ValueError, match="method must be one of .*arccse.*, got 'sbert'"):
            recipes.train("sbert", anchors(4), tiny_encoder(), output=tmp_path / "run")

    @pytest.mark.parametrize("kind", ["file", "full directory"])
    def test_output_exists(self, tiny_encoder, tmp_path, kind):
        output = tmp_path / "run"
        if kind == "file":
            output.write_text("mine")
        else:
            output.mkdir()
            (output / "mine.txt").write_text("mine")
        with pytest.raises(FileExistsError, match="output must be a .*directory, got .*run"):
            recipes.train("arccse", anchors(4), tiny_encoder(), output=output)
        assert (output if kind == "file" else output / "mine.txt").read_text() == "mine"

    def test_a_training_that_wrote_no_checkpoint(self, tmp_path):
        (tmp_path / "run.json").write_text("{}")
        with pytest.raises(FileExistsError, match="without a checkpoint yet: if it no longer runs, delete the directory, or"):
            recipes.check_output(tmp_path)

    def test_an_interrupted_training_says_how_it_goes_on(self, tiny_encoder, tmp_path):
        with interrupted(after=3), pytest.raises(KeyboardInterrupt):
            recipes.train("arccse", anchors(40), tiny_encoder(), output=tmp_path / "run", settings=quick())
        with pytest.raises(FileExistsError, match=r"holds an interrupted training: go on with --resume"):
            recipes.check_output(tmp_path / "run")

    @pytest.mark.parametrize("method", ["simcse", "arccse", "slt-fai"])
    def test_what_the_first_batch_refuses_leaves_nothing(self, tiny_encoder, tmp_path, method):
        """SimCSE's two views of a sentence are one without dropout: its loss is the host's, and does not look."""
        model = tiny_encoder(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        with pytest.raises(ValueError, match=r"positive pairs by dropout"):
            recipes.train(method, anchors(40), model, output=tmp_path / "run", settings=quick())
        assert not (tmp_path / "run").exists()
        (tmp_path / "mine").mkdir()  # somebody's own stays
        with pytest.raises(ValueError, match=r"positive pairs by dropout"):
            recipes.train(method, anchors(40), model, output=tmp_path / "mine", settings=quick())
        assert not list((tmp_path / "mine").iterdir())

    def test_what_the_first_batch_refuses_is_no_training_of_the_model(self, tiny_encoder, tmp_path, monkeypatch):
        model = tiny_encoder(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        build = module.build_trainer

        def tracked(*given, **keywords):
            (tmp_path / "run" / "checkpoints" / "runs").mkdir(parents=True)  # as a tracker does before the first update
            return build(*given, **keywords)

        with monkeypatch.context() as patch:
            patch.setattr(module, "build_trainer", tracked)
            with pytest.raises(ValueError, match=r"positive pairs by dropout"):
                recipes.train("arccse", anchors(40), model, output=tmp_path / "run", settings=quick())
        assert not (tmp_path / "run").exists()
        recipes.train("consert", anchors(40), model, output=tmp_path / "run", settings=quick())
        assert "ArcCSE" not in model.model_card_data.model_name
        assert "ConSERT" in model.model_card_data.model_name

    def test_an_empty_output_directory_is_fine(self, tmp_path):
        assert recipes.check_output(tmp_path) == tmp_path


def test_bf16_on_a_cpu(tiny_encoder, tmp_path):
    """What it scores is what is saved, and not what autocast makes of it."""
    run = {"output": tmp_path / "run", "settings": quick(), "probes": {"graded pairs": recipes.graded_pairs()}}
    results = recipes.train("arccse", anchors(40), tiny_encoder(), **run, bf16=True)
    assert results["bf16"] is True
    saved = SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu")
    assert module.score(saved, recipes.graded_pairs()) == results["after"]["graded pairs"]


def test_what_the_loss_owns_has_its_own_learning_rate(tiny_encoder, tmp_path, monkeypatch):
    rates = {}

    def train(trainer, **_):
        trainer.create_optimizer()
        names = {id(parameter): name for name, parameter in trainer.loss.named_parameters()}
        groups = trainer.optimizer.param_groups
        rates.update({names[id(p)]: group["lr"] for group in groups for p in group["params"] if p.requires_grad})
        raise KeyboardInterrupt

    monkeypatch.setattr(training.SentenceTransformerTrainer, "train", train)
    settings = quick(learning_rate=1e-5, loss_learning_rate=1e-3)
    with pytest.raises(KeyboardInterrupt):
        recipes.train("paser", anchors(20), tiny_encoder(), output=tmp_path / "run", settings=settings)
    assert {rate for name, rate in rates.items() if name.startswith("model.")} == {1e-5}
    assert {rate for name, rate in rates.items() if not name.startswith("model.")} == {1e-3}


@pytest.mark.parametrize(
    ("method", "columns", "keywords"),
    [
        ("simcse", ["anchor", "positive"], {"pairs": True}),
        ("slt-fai", ["anchor", "positive"], {"pairs": True, "warmup_steps": 0.2}),
        ("pt-bert", ["anchor"], {"attend_to": "pooled"}),
    ],
)
def test_a_loss_comes_back_with_the_keywords_that_were_found(method, columns, keywords, tiny_encoder, tmp_path):
    rows, settings = texts("paser-supervised", 20).select_columns(columns), quick(max_steps=-1, epochs=0.5)
    results = recipes.train(method, rows, tiny_encoder(), output=tmp_path / "run", settings=settings)
    loss = recipes.load_loss(tmp_path / "run", SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu"))
    as_saved = {key: value for key, value in results["loss"].items() if key != "frequencies"}
    assert json.loads(json.dumps(loss.get_config_dict(), default=str)).items() >= as_saved.items()
    assert results["loss_found"] == keywords


HEAD = {"mlm_head": "pretrained"}


@pytest.mark.parametrize(
    ("architecture", "head", "method", "keywords"),
    [
        *[("electra", "electra", method, HEAD) for method in ("bag-of-words", "denosent", "paser", "paser-supervised")],
        ("bert", "electra", "bag-of-words", {"mlm_head": "HEAD"}),  # of another checkpoint, in other widths
        *[("albert", "albert", method, HEAD) for method in ("bag-of-words", "paser", "recommended")],
        *[("bert", "bert", "denosent", HEAD | {"decoder_layers": layers}) for layers in (0, 1)],
        ("electra", "electra", "slt-fai", HEAD | {"backbone": "bag-of-words"}),
    ],
)
def test_a_pretrained_head_comes_back(architecture, head, method, keywords, tokenizers, tmp_path):
    """ELECTRA's and ALBERT's words are narrower than their tokens, BERT's output weights are not its word embeddings here."""
    tokenizer, small = tokenizers["wordpiece"], {"embedding_size": 16, "tie_word_embeddings": architecture != "bert"}
    size = {"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": len(tokenizer)}
    for name, folder in ((architecture, "encoder"), (head, "head")):
        width = {"hidden_size": 16 if (name, folder) == ("bert", "encoder") else 32}
        config = AutoConfig.for_model(name, **size, **small, **width, pad_token_id=tokenizer.pad_token_id)
        AutoModelForMaskedLM.from_config(config).save_pretrained(tmp_path / folder)
        tokenizer.save_pretrained(tmp_path / folder)
    keywords = {key: str(tmp_path / "head") if value == "HEAD" else value for key, value in keywords.items()}
    model = recipes.build_encoder(str(tmp_path / "encoder"), pooling="mean", device="cpu")
    given = {"settings": quick(max_steps=1), "loss_keywords": keywords}
    recipes.train(method, texts(method, 20), model, output=tmp_path / "run", **given)
    loss = recipes.load_loss(tmp_path / "run", SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu"))
    saved, loaded = load_file(tmp_path / "run" / "loss" / "loss_state.safetensors"), loss.state_dict()
    assert [name for name in saved if not torch.equal(saved[name], loaded[name])] == []


class TestSchedule:
    """What the settings say arrives in the training."""

    @pytest.mark.parametrize(
        ("schedule", "warmup", "shares"),
        [
            ("linear", 0, [1, 0.75, 0.5, 0.25]),
            ("linear", 2, [0, 0.5, 1, 0.5]),
            ("linear", 0.5, [0, 0.5, 1, 0.5]),
            ("constant", 0, [1, 1, 1, 1]),
            ("constant", 2, [0, 0.5, 1, 1]),
        ],
    )
    def test_of_the_learning_rate(self, tiny_encoder, tmp_path, schedule, warmup, shares):
        changes = {"learning_rate_schedule": schedule, "learning_rate_warmup": warmup, "learning_rate": 0.01}
        results = recipes.train("simcse", anchors(40), tiny_encoder(), output=tmp_path / "run", settings=quick(**changes))
        rates = [entry["learning_rate"] for entry in results["log"] if "learning_rate" in entry]
        assert rates == pytest.approx([0.01 * share for share in shares])
        assert {key: results["settings"][key] for key in changes} == changes

    def test_weight_decay_of_encoder_and_loss(self, tiny_encoder, tmp_path, monkeypatch):
        decay = {}

        def train(trainer, **_):
            trainer.create_optimizer()
            names = {id(parameter): name for name, parameter in trainer.loss.named_parameters()}
            for group in trainer.optimizer.param_groups:
                decay.update({names[id(p)]: group["weight_decay"] for p in group["params"]})
            raise KeyboardInterrupt

        monkeypatch.setattr(training.SentenceTransformerTrainer, "train", train)
        with pytest.raises(KeyboardInterrupt):
            settings = quick(weight_decay=0.07)
            recipes.train("arccse", anchors(20), tiny_encoder(), output=tmp_path / "run", settings=settings)
        assert decay["head.linear.weight"] == 0.07
        assert decay["model.0.model.encoder.layer.0.attention.self.query.weight"] == 0.07
        assert {value for name, value in decay.items() if name.endswith("bias")} == {0}


@pytest.mark.slow
class TestPatience:
    """Nothing gets better at a learning rate of 0: the first evaluation is the best."""

    def train(self, model, output, dev, **changes):
        settings = quick(learning_rate=1e-30, eval_steps=1, max_steps=9, patience=3)
        return recipes.train("simcse", anchors(80), model, output=output, settings=settings, dev=dev, **changes)

    def test_stops(self, tiny_encoder, tmp_path, dev):
        assert self.train(tiny_encoder(), tmp_path / "run", dev)["steps"] == 4

    def test_it_is_said_which_update_is_saved(self, tiny_encoder, tmp_path, dev):
        said = []
        results = self.train(tiny_encoder(), tmp_path / "run", dev, report=said.append)
        assert (results["saved_update"], results["steps"]) == (1, 4)
        assert recipes.read_results(tmp_path / "run" / "results.json")["saved_update"] == 1
        score = f"{results['after']['STS-B dev']:.2f}"
        assert said[-1] == f"Saved is update 1 of 4, the best by STS-B dev: {score}, and {score} at update 4."
        assert re.search(r"\bupdates`?: 4 \(saved: 1\)$", (tmp_path / "run" / "model" / "README.md").read_text(), re.MULTILINE)

    def test_goes_on_with_what_is_left_of_it(self, tiny_encoder, tmp_path, dev):
        with interrupted(3), pytest.raises(KeyboardInterrupt):
            self.train(tiny_encoder(), tmp_path / "run", dev)
        assert self.train(tiny_encoder(), tmp_path / "run", dev, resume=True)["steps"] == 4

    def test_a_training_that_it_has_ended_makes_no_further_update(self, tiny_encoder, tmp_path, dev):
        """Killed while its model was scored and written, and moved since: what is best is found there."""
        whole = self.train(tiny_encoder(), tmp_path / "run", dev)
        (tmp_path / "run" / "results.json").unlink()
        shutil.rmtree(tmp_path / "run" / "model")
        shutil.move(tmp_path / "run", tmp_path / "moved")
        resumed = self.train(tiny_encoder(), tmp_path / "moved", dev, resume=True)
        assert [resumed[key] for key in ("steps", "saved_update", "after")] == [4, 1, whole["after"]]
        assert resumed["log"][:-1] == whole["log"][:-1]  # the last line is its time

    def test_needs_something_to_wait_for(self, tiny_encoder, tmp_path):
        with pytest.raises(ValueError, match="patience counts evaluations by STS-B dev, and there is none, got 3: give dev"):
            self.train(tiny_encoder(), tmp_path / "run", None)
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("has_dev", [False, True])
def test_a_long_training_without_a_choice_is_told_so(has_dev, tiny_encoder, tmp_path, dev, monkeypatch):
    """At the start: nobody will see it sink."""
    monkeypatch.setattr(module, "_LONG", 2)
    for updates in (2, 3):
        said = []
        recipes.train(
            "simcse",
            anchors(80),
            tiny_encoder(),
            output=tmp_path / str(updates),
            settings=quick(max_steps=updates),
            dev=dev if has_dev else None,
            report=said.append,
        )
        warned = [line for line in said[:4] if line.startswith(f"Nothing chooses among {updates} updates: the last is saved.")]
        assert len(warned) == (updates > 2 and not has_dev)


@pytest.mark.parametrize(
    ("method", "rows", "loss_keywords", "line"),
    [
        ("simcse", anchors(8), {}, "Training SimCSE on 8 sentences, seed 42."),
        (
            "recommended",
            anchors(8),
            {"words": 0},
            "Training ConSERT with a projection head, and words (words=0) on 8 sentences, seed 42.",
        ),
        (
            "simcse",
            Dataset.from_dict({"anchor": anchors(8)["anchor"][:], "positive": anchors(16)["anchor"][8:]}),
            {},
            "Training SimCSE on 8 pairs, seed 42.",
        ),
    ],
)
def test_what_is_trained_on_what(method, rows, loss_keywords, line, tiny_encoder, tmp_path):
    said = []
    settings = quick(max_steps=1)
    recipes.train(
        method, rows, tiny_encoder(), output=tmp_path, settings=settings, loss_keywords=loss_keywords, report=said.append
    )
    assert line in said


@pytest.mark.parametrize(("method", "copies"), [("arccse", 0), ("arccse", 3), ("bag-of-words", 3)])
def test_repeated_sentences_are_told(method, copies, tiny_encoder, tmp_path):
    """A sentence and its copy in one batch are negatives of each other, where there are any."""
    said = []
    rows = Dataset.from_dict({"anchor": [*anchors(40)["anchor"][:], *["A dog."] * (1 + copies)]})
    recipes.train(method, rows, tiny_encoder(), output=tmp_path / "run", settings=quick(max_steps=1), report=said.append)
    lines = [line for line in said if "repeat another one" in line]
    assert [line.split()[0] for line in lines] == ([str(copies)] if copies and method == "arccse" else [])
    assert json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))["text"]["repeated"] == copies


def test_copies_in_two_spellings_are_repetitions(tiny_encoder, tmp_path):
    """A letter with its accent, and a letter and an accent."""
    rows = Dataset.from_dict({"anchor": [*anchors(20)["anchor"][:], "Ein Café.", "Ein Cafe\u0301."]})
    assert text_mark(rows, None)["repeated"] == 1


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_text_that_the_encoder_cannot_read(share, tiny_encoder, tmp_path):
    said, texts = [], anchors(20)["anchor"][:]
    unread = ["ሰላም ነው ደህና ነው ቤት ውሃ"] * round(20 * share)
    rows, output = Dataset.from_dict({"anchor": unread + texts[: 20 - len(unread)]}), tmp_path / "run"
    how = {"output": output, "settings": quick(max_steps=1), "report": said.append}
    if share == 1:
        with pytest.raises(ValueError, match="sentences must be text that the encoder reads, got .* for each of their tokens"):
            recipes.train("simcse", rows, tiny_encoder(), **how)
        assert not output.exists()
    else:
        recipes.train("simcse", rows, tiny_encoder(), **how)
        assert any("to this encoder, which tells none of them from another" in line for line in said) is (share > 0)


def test_a_file_name_that_is_no_utf8(tiny_encoder, tmp_path):
    path = tmp_path / os.fsdecode(b"S\xe4tze.txt")
    path.write_text("\n".join(anchors(20)["anchor"]), encoding="utf-8")
    results = recipes.train(
        "simcse", anchors(20), tiny_encoder(), output=tmp_path / "run", settings=quick(max_steps=1), text=str(path)
    )
    assert results["text"]["name"] == "S\ufffdtze.txt"
    assert "S\ufffdtze.txt" in (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")


class TestWhichUpdateIsSaved:
    @pytest.fixture
    def trainer(self):
        scores = {10: 0.7, 15: None, 20: 0.75, 30: 0.7201}  # None: not finite
        log = [{"step": step, "eval_stsb-dev_spearman_cosine": score} for step, score in scores.items()]
        state = TrainerState(
            global_step=30,
            best_model_checkpoint="runs/checkpoints/checkpoint-20",
            log_history=[{"step": 5, "loss": 1.0}, *log],
        )
        return SimpleNamespace(state=state, args=SimpleNamespace(load_best_model_at_end=True))

    def test_a_training_that_sank(self, trainer):
        assert trainer_module.saved_update(trainer) == 20
        assert trainer_module.which_is_saved(trainer) == (
            "Saved is update 20 of 30, the best by STS-B dev: 75.00, and 72.01 at update 30. "
            "The training sank: try fewer updates or a lower rate."
        )

    def test_what_came_behind_the_last_score_is_not_known(self, trainer):
        trainer.state.global_step = 35
        del trainer.state.log_history[-1]
        assert trainer_module.which_is_saved(trainer) == "Saved is update 20 of 35, the best by STS-B dev: 75.00."

    @pytest.mark.parametrize(
        ("loads_best", "checkpoint"), [(True, None), (True, "runs/checkpoint-30"), (False, "runs/checkpoint-20")]
    )
    def test_nothing_where_it_is_the_last(self, trainer, loads_best, checkpoint):
        trainer.args.load_best_model_at_end = loads_best
        trainer.state.best_model_checkpoint = checkpoint
        assert trainer_module.saved_update(trainer) == 30
        assert trainer_module.which_is_saved(trainer) == ""

    @pytest.mark.parametrize(
        ("results", "text"),
        [
            ({"steps": 1400}, "1,400"),
            ({"steps": 60, "saved_update": 60}, "60"),
            ({"steps": 60, "saved_update": None}, "60"),
            ({"steps": 60, "saved_update": 20}, "60 (saved: 20)"),
        ],
    )
    def test_one_text_for_all_who_show_it(self, results, text):
        assert updates_text(results) == text

    def test_pairs_of_one_grade_choose_nothing(self, tiny_encoder, tmp_path, dev):
        constant = dev._replace(scores=[1.0] * len(dev.scores))
        with pytest.raises(ValueError, match="a correlation needs an order"):
            recipes.train("simcse", anchors(40), tiny_encoder(), output=tmp_path / "run", settings=quick(), dev=constant)
        assert not (tmp_path / "run").exists()

    def test_a_score_that_is_not_finite_loses_nothing(self, tiny_encoder, tmp_path, dev, monkeypatch):
        """As of a model that gives each text one vector."""

        class Undefined(NamedTuple):
            statistic: float = float("nan")
            pvalue: float = float("nan")

        for place in ("sbert_plugins.evaluation.sts", EmbeddingSimilarityEvaluator.__module__):
            monkeypatch.setattr(f"{place}.spearmanr", lambda *_: Undefined())
        results = recipes.train("simcse", anchors(40), tiny_encoder(), output=tmp_path / "run", settings=quick(), dev=dev)
        assert results["after"]["STS-B dev"] is None
        assert results["saved_update"] == results["steps"]


def test_what_was_recommended_before_is_another_loss():
    mean = {"consert": {"loss": "ConSERTLoss"}, "arccse": {"loss": "ArcCSELoss"}}
    record = {"method": "recommended", "settings": {}, "loss": mean}
    now = {"method": "recommended", "settings": {}, "loss_class": "ConSERTLoss"}
    assert changes(record, now) == "loss_class WeightedSumLoss (now ConSERTLoss)"
    assert changes(record | {"loss": {"contrast": {"settings": mean}}}, now) == "loss_class WeightedSumLoss (now ConSERTLoss)"
    assert changes(record | {"loss": {"projection_head": True}}, now) == ""


@pytest.mark.parametrize(
    ("keywords", "loss", "text"),
    [
        ({}, {"balance": 0.3, "contrast": {}, "words": {}}, "ConSERT with a projection head, and words"),
        ({"words": 0}, {"projection_head": True}, "ConSERT with a projection head, and words (words=0)"),
        ({}, {"projection_head": True}, "ConSERT with a projection head, and words (words=0)"),  # before it had words
        ({"words": 1, "mlm_head": "fresh"}, {}, "ConSERT with a projection head, and words (mlm_head=fresh, words=1)"),
        ({}, {"arccse": {"loss": "ArcCSELoss"}}, "the mean of ConSERT and ArcCSE"),  # and before that
    ],
)
def test_a_method_is_called_by_what_it_was(keywords, loss, text):
    assert method_text({"method": "recommended", "loss_keywords": keywords, "loss": loss}) == text


def test_the_keywords_of_a_protocol_are_not_told():
    plan = recipes.protocol_of("denosent", "paper")
    training = {"method": "denosent", "protocol": "paper", "loss_keywords": plan.loss_keywords | {"temperature": 0.5}}
    assert method_text(training) == "DenoSent (temperature=0.5)"


def _without_prompt(model):
    model[1].include_prompt = False
    return model


@pytest.mark.parametrize(
    ("key", "build", "named"),
    [
        ("dropout", lambda build: build(hidden_dropout_prob=0.5), "[[0.1, 7]] (now [[0.5, 1], [0.1, 1], "),
        (
            "tokens_around",
            lambda build: apply_mask_template(build(), "[X] is [MASK]."),
            "[['<s>'], ['is', '<mask>', '?', '</s>']] (now [['<s>'], ['is', '<mask>', '.', '</s>']])",
        ),
        ("module_settings", lambda build: _without_prompt(build()), "[{'embedding_dimension': 32, 'include_prompt': True}] "),
    ],
)
def test_an_encoder_is_another_with_another(key, build, named, tiny_encoder):
    plain = apply_mask_template(tiny_encoder(), "[X] is [MASK]?") if key == "tokens_around" else tiny_encoder()
    before, now = ({"encoder_settings": encoder_settings(model)} for model in (plain, build(tiny_encoder)))
    assert changes(before, now).startswith(f"encoder's {key} {named}")
    assert changes(now, now) == ""
    del before["encoder_settings"][key]  # of an earlier version
    assert changes(before, now) == ""


def test_settings_of_modules_are_what_json_can_hold(tiny_encoder):
    """A module of somebody's own may save itself in its own way, and one may hold a vocabulary."""
    words = [f"word{i}" for i in range(1000)]
    module, other, broken = torch.nn.Identity(), torch.nn.Identity(), torch.nn.Identity()
    module.get_config_dict = lambda: {"vocab": words, "dtype": torch.float32, "size": 3}
    other.get_config_dict = lambda: {"vocab": words[::-1], "dtype": torch.float32, "size": 3}
    broken.get_config_dict = lambda: {"size": broken.missing}
    found, another = (encoder_settings(SentenceTransformer(modules=[*tiny_encoder(), each])) for each in (module, other))
    named = found["module_settings"][-1]
    assert (named["dtype"], named["size"], len(named["vocab"])) == ("dtype", 3, 16)
    assert another["module_settings"][-1]["vocab"] != named["vocab"]
    assert encoder_settings(SentenceTransformer(modules=[*tiny_encoder(), broken]))["module_settings"][-1] == {}
    assert json.loads(json.dumps(found)) == found


LATER = ("learning_rate_schedule", "learning_rate_warmup", "weight_decay", "patience")


@pytest.mark.slow
class TestRecordsOfEarlierVersions:
    """They lack the settings that came later, which were the host's defaults then, and the protocol."""

    @pytest.fixture
    def begun(self, tiny_encoder, tmp_path):
        with interrupted(3), pytest.raises(KeyboardInterrupt):
            recipes.train("arccse", anchors(40), tiny_encoder(), output=tmp_path / "run", settings=quick())
        self.age(tmp_path / "run" / "run.json")
        return tmp_path / "run"

    @staticmethod
    def age(path):
        record = json.loads(path.read_text())
        del record["protocol"], record["encoder_settings"], record["loss_class"], record["loss_defaults"], record["dev"]
        for key in LATER:
            del record["settings"][key]
        path.write_text(json.dumps(record))

    def test_are_resumed_and_read(self, tiny_encoder, begun):
        results = recipes.train("arccse", anchors(40), tiny_encoder(), output=begun, settings=quick(), resume=True)
        assert results["steps"] == 4
        self.age(begun / "results.json")
        assert recipes.read_results(begun / "results.json")["settings"] == results["settings"]
        recipes.load_loss(begun, SentenceTransformer(str(begun / "model"), device="cpu"))

    def test_are_not_resumed_otherwise(self, tiny_encoder, begun):
        with pytest.raises(ValueError, match=r"was begun with weight_decay 0.0 \(now 0.1\): resume"):
            settings = quick(weight_decay=0.1)
            recipes.train("arccse", anchors(40), tiny_encoder(), output=begun, settings=settings, resume=True)

    def test_a_setting_that_was_always_there_must_be_there(self, begun):
        record = json.loads((begun / "run.json").read_text())
        del record["settings"]["sam_rho"]
        (begun / "run.json").write_text(json.dumps(record))
        with pytest.raises(ValueError, match="got something else under settings"):
            recipes.read_results(begun / "run.json")


def test_the_trainer_has_the_settings(tiny_encoder, tmp_path, monkeypatch):
    seen = []

    def train(trainer, **_):
        seen.append(trainer)
        raise KeyboardInterrupt

    monkeypatch.setattr(training.SentenceTransformerTrainer, "train", train)
    settings = quick(gradient_accumulation_steps=3, sam_rho=0.02, group_by_length=True, batch_size=5)
    for grouped in (True, False):
        with pytest.raises(KeyboardInterrupt):
            own = recipes.with_changes(settings, group_by_length=grouped)
            recipes.train("simcse", anchors(20), tiny_encoder(), output=tmp_path / str(grouped), settings=own, seed=7)
        args = seen[-1].args
        assert (args.gradient_accumulation_steps, args.per_device_train_batch_size, args.seed) == (3, 5, 7)
        assert (args.batch_sampler is training.LengthGroupedBatchSampler) is grouped
        assert args.sam_rho == 0.02


def test_an_average_is_of_all_seven_tasks(tiny_encoder, dev):
    names = module.SEVEN[:7]
    scores = module.scores_of(tiny_encoder(), dict.fromkeys(names[:6], dev))
    assert module.AVERAGE not in scores
    scores = module.scores_of(tiny_encoder(), dict.fromkeys(names, dev))
    assert scores[module.AVERAGE] == pytest.approx(scores["STS12"])
    twice = [*names[:5], "SICK-R", "SICK-R all"]
    assert module.AVERAGE not in module.scores_of(tiny_encoder(), dict.fromkeys(twice, dev))


@pytest.mark.parametrize("has_dev", [False, True])
def test_the_card_says_how_often_and_cites(has_dev, tiny_encoder, tmp_path, dev):
    """How often it was evaluated is said where something chose by it."""
    given = {"settings": quick(max_steps=2), "dev": dev if has_dev else None}
    recipes.train("simcse", anchors(24), tiny_encoder(), output=tmp_path / "run", **given)
    readme = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    assert ("- `eval_steps`: 2\n" in readme) is has_dev
    assert all(entry.strip().splitlines()[0] in readme for entry in recipes.RECIPES["simcse"].citations.values())


def test_a_training_that_fails_later_keeps_its_record(tiny_encoder, tmp_path, monkeypatch):
    step = training.SentenceTransformerTrainer.training_step

    def failing(trainer, *arguments):
        if trainer.state.global_step == 1:
            raise RuntimeError("no memory")
        return step(trainer, *arguments)

    monkeypatch.setattr(training.SentenceTransformerTrainer, "training_step", failing)
    with pytest.raises(RuntimeError, match="no memory"):
        recipes.train("simcse", anchors(40), tiny_encoder(), output=tmp_path / "run", settings=quick())
    assert (tmp_path / "run" / "run.json").is_file()


def test_one_in_a_hundred_is_told():
    recipe = recipes.RECIPES["arccse"]
    assert module.repetitions({"repeated": 1}, 100, recipe).startswith("1 of the sentences repeat another one")
    assert module.repetitions({"repeated": 1}, 101, recipe) == ""


def test_a_loss_is_loaded_with_the_defaults_of_its_time(tmp_path, monkeypatch):
    then = {"loss_defaults": {"margin_degrees": 20.0, "temperature": 0.05}}
    monkeypatch.setattr(output_module, "read_results", lambda path: then)
    (tmp_path / "run.json").write_text("{}")
    assert output_module._defaults_then(tmp_path, "arccse") == {"margin_degrees": 20.0}
