import json
import logging
import re
from contextlib import nullcontext, suppress
from dataclasses import replace

import pytest
import torch
from datasets import Dataset, DatasetDict
from encoders import project_text
from filelock import FileLock
from recipe_inputs import QUICK, anchors, interrupted, pairs, rows, train
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator

from sbert_plugins import evaluation, host, losses, recipes, training
from sbert_plugins.recipes.plan import count_updates
from sbert_plugins.recipes.train import deviations_from_paper


def vectors(model):
    return torch.from_numpy(model.encode(project_text()[:4]))


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module", params=[name for name, one in recipes.RECIPES.items() if one.fit is None])
def trained(request, tiny_encoder, tmp_path_factory):
    """A short training of each method that selects among its checkpoints."""
    model, output = tiny_encoder(pooling="mean"), tmp_path_factory.mktemp("trained") / "run"
    keywords = {"dev": pairs("dev"), "evaluators": [pairs("probe")], "keep_checkpoints": True}
    results = train(request.param, model, output, **keywords)
    return request.param, model, output, results


@pytest.mark.slow
class TestEveryMethod:
    def test_leaves_a_plain_model_a_record_and_a_card(self, trained):
        method, model, output, results = trained
        files = {path.name for path in output.iterdir()} - {"loss"}  # of a loss with weights of its own
        assert files == {"checkpoints", "model", "results.json", "run.json"}
        assert read(output / "results.json")["method"] == method
        assert results["updates"] == 4
        assert torch.equal(vectors(SentenceTransformer(str(output / "model"), device="cpu")), vectors(model))
        assert {*results["before"]} == {*results["after"]} == {"probe", "dev"}
        assert results["before"] != results["after"]
        assert ["It chose the checkpoint" in one for one in results["verdict"]] == [False, True]  # dev
        card = (output / "model" / "README.md").read_text(encoding="utf-8")
        assert recipes.RECIPES[method].about.title in card
        assert all(sentence in card for sentence in results["verdict"])
        assert not any(sentence in card for sentence in rows(method, 40)["anchor"])

    def test_saves_the_best_checkpoint(self, trained):
        _, model, output, results = trained
        scores = {
            entry["step"]: entry["eval_dev_spearman"]
            for entry in results["log"]
            if "eval_dev_spearman" in entry
        }
        assert results["saved_update"] == max(scores, key=scores.get)
        best = SentenceTransformer(
            str(output / "checkpoints" / f"checkpoint-{results['saved_update']}"), device="cpu"
        )
        assert torch.equal(vectors(best), vectors(model))
        with host.eager_attention(model, results["arguments"]["bf16"]):  # as in the training
            again = evaluation.measure(model, [pairs("dev")])["dev"]
        assert again.value == pytest.approx(max(scores.values()), abs=0.2)


def test_a_seed_decides_everything_that_is_drawn(tiny_encoder, tmp_path):
    models = [tiny_encoder() for _ in range(3)]
    for place, (model, seed) in enumerate(zip(models, (1, 1, 2), strict=True)):
        train("arccse", model, tmp_path / str(place), seed=seed, max_steps=2)
    first, second, third = map(vectors, models)
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


def test_arguments_reach_the_trainer(tiny_encoder, tmp_path, monkeypatch):
    seen = []

    def stop(self, **_):
        seen.append(self.args)
        raise KeyboardInterrupt

    monkeypatch.setattr(training.SentenceTransformerTrainer, "train", stop)
    given = {"weight_decay": 0.1, "save_total_limit": 1, "lr_scheduler_type": "cosine", "warmup_steps": 0.5}
    with pytest.raises(KeyboardInterrupt):
        recipes.train(
            "arccse", anchors(65), tiny_encoder(), output=tmp_path / "a", max_steps=3, seed=7, **given
        )
    (arguments,) = seen
    assert {name: getattr(arguments, name) for name in given} == given
    assert arguments.sam_rho == 0.05
    assert arguments.batch_sampler is training.LengthGroupedBatchSampler
    assert arguments.seed == 7
    assert arguments.dataloader_drop_last  # the last batch would be one sentence without negatives


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lerning_rate": 1e-3}, "Did you mean learning_rate"),
        ({"temperature": 0.1}, "loss_keywords={'temperature': ...}"),
        ({"start_weight": 50}, "start_weight must be from 0 to 1"),
        ({"max_seq_length": 2}, "fill all 2 tokens, so none is left"),  # the special ones
        ({"model": "path/to/model"}, "must be a SentenceTransformer, got str"),
    ],
)
def test_mistakes_are_found_before_the_training(changes, message, tiny_encoder, tmp_path):
    given = {"model": tiny_encoder(), "output": tmp_path / "run"}
    with pytest.raises(ValueError, match=re.escape(message)):
        recipes.train("arccse", anchors(8), **(given | changes))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "changes", [{"max_steps": 1, "warmup_steps": 1}, {"learning_rate_mapping": {"^model": 0.0}}]
)
def test_a_training_that_leaves_the_model_as_it_is(changes, tiny_encoder, tmp_path):
    with pytest.raises(ValueError, match="changed no weight of the model"):
        train("arccse", tiny_encoder(), tmp_path, **changes)


@pytest.mark.parametrize(
    ("changes", "count", "updates"),
    [
        ({"max_steps": 7}, 64, 7),
        ({"num_train_epochs": 2}, 64, 16),
        ({"num_train_epochs": 1}, 65, 9),
        ({"num_train_epochs": 1, "dataloader_drop_last": True}, 65, 8),
        ({"num_train_epochs": 1, "gradient_accumulation_steps": 4}, 65, 3),
        ({"num_train_epochs": 0.1}, 64, 1),
    ],
)
def test_updates_are_counted_as_the_trainer_counts(changes, count, updates, tiny_encoder, tmp_path):
    given = {
        "output_dir": str(tmp_path),
        "per_device_train_batch_size": 8,
        "use_cpu": True,
        "report_to": "none",
    }
    assert count_updates(training.TrainingArguments(**(given | changes)), count) == updates


def test_epochs_replace_the_number_of_updates_of_a_recipe(tiny_encoder, tmp_path):
    results = train("consert", tiny_encoder(), tmp_path / "run", max_steps=-1, num_train_epochs=1)
    assert results["updates"] == 5
    quick = {name: value for name, value in QUICK.items() if name != "max_steps"}
    results = recipes.train(
        "consert", anchors(16), tiny_encoder(), output=tmp_path / "other", num_train_epochs=1, **quick
    )
    assert results["updates"] == 2


def test_no_training_is_longer_than_its_papers_unless_asked(tiny_encoder, tmp_path, monkeypatch):
    monkeypatch.setitem(recipes.RECIPES, "simcse", replace(recipes.RECIPES["simcse"], paper_updates=3))
    quick = {name: value for name, value in QUICK.items() if name != "max_steps"}
    assert (
        recipes.train("simcse", anchors(64), tiny_encoder(), output=tmp_path / "a", **quick)["updates"] == 3
    )
    asked = recipes.train(
        "simcse", anchors(64), tiny_encoder(), output=tmp_path / "b", num_train_epochs=1, **quick
    )
    assert asked["updates"] == 8


class TestWhatIsSaid:
    @pytest.fixture(autouse=True)
    def info(self, caplog):
        caplog.set_level(logging.INFO, "sbert_plugins")

    def test_a_short_training_of_a_paper(self, tiny_encoder, tmp_path, caplog):
        train("arccse", tiny_encoder(), tmp_path / "run")
        (line,) = [record.message for record in caplog.records if "long trainings" in record.message]
        assert recipes.small_budget("arccse") in line
        assert "recommended" in line

    def test_which_defaults_recommended_has_and_why(self, tiny_encoder, tmp_path, caplog):
        sentences = anchors(16)
        recipes.train(
            "recommended",
            sentences,
            tiny_encoder(),
            output=tmp_path / "a",
            **QUICK,
            loss_keywords={"words": 0},
        )
        assert "plain language model" in caplog.text
        caplog.clear()
        keywords = {"words": 0, "keep": 0.0}
        recipes.train(
            "recommended", sentences, tiny_encoder(), output=tmp_path / "b", **QUICK, loss_keywords=keywords
        )
        assert "plain language model" not in caplog.text

    def test_little_text(self, tiny_encoder, tmp_path, caplog):
        train("arccse", tiny_encoder(), tmp_path / "a", count=40)
        assert "fewer than ten updates" in caplog.text
        caplog.clear()
        train("arccse", tiny_encoder(), tmp_path / "b", count=80)
        assert "fewer than ten updates" not in caplog.text
        with pytest.raises(ValueError, match="two sentences"):
            train("arccse", tiny_encoder(), tmp_path / "c", count=1)

    def test_repeated_sentences(self, tiny_encoder, tmp_path, caplog):
        sentences = Dataset.from_dict({"anchor": project_text()[:30] + project_text()[:10]})
        train("arccse", tiny_encoder(), tmp_path / "a", sentences=sentences)
        assert "10 duplicates" in caplog.text


class TestLength:
    @pytest.fixture
    def batches(self, monkeypatch):
        """The batches that the trainer collates."""
        made, collate = [], SentenceTransformerDataCollator.__call__
        collating = lambda *given: made.append(collate(*given)) or made[-1]  # noqa: E731
        monkeypatch.setattr(SentenceTransformerDataCollator, "__call__", collating)
        return made

    def test_sentences_are_cut_in_training_only(self, tiny_encoder, tmp_path, batches):
        model = tiny_encoder()
        results = train("arccse", model, tmp_path / "run", max_seq_length=7)
        assert {batch["anchor_input_ids"].shape[1] for batch in batches} == {7}
        assert model.max_seq_length == 128
        assert results["max_seq_length"] == {"training": 7, "model": 128}

    def test_a_prompt_and_a_template_come_on_top(self, tiny_encoder, tmp_path, batches):
        model = tiny_encoder(pooling="cls")
        model.prompts, model.default_prompt_name = {"q": "search for this: "}, "q"
        results = train("arccse", model, tmp_path / "run", max_seq_length=9)
        prompt = model.tokenizer("search for this: ", add_special_tokens=False)["input_ids"]
        assert results["max_seq_length"]["training"] == 9 + len(prompt)
        ids = batches[0]["anchor_input_ids"]
        assert all(row[1 : len(prompt) + 1] == prompt for row in ids.tolist())
        assert "anchor_prompt_length" in batches[0]

    @pytest.mark.parametrize("nested", [False, True])
    def test_tokens_of_a_given_prompt_are_counted_outside_the_length(
        self, nested, tiny_encoder, tmp_path, batches
    ):
        model = tiny_encoder()
        prompt = "represent this sentence for a search by its topic and its style: "
        prompts = {"anchor": prompt} if nested else prompt
        results = train("arccse", model, tmp_path / "run", max_seq_length=9, prompts=prompts)
        tokens = len(model.tokenizer(prompt, add_special_tokens=False)["input_ids"])
        assert tokens > 9
        assert results["max_seq_length"]["training"] == 9 + tokens
        ids = batches[0]["anchor_input_ids"]
        assert len(torch.unique(ids, dim=0)) == len(ids)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_not_trained(dtype, tiny_encoder, tmp_path):
    model = tiny_encoder().to(dtype)
    with pytest.raises(ValueError, match="float32"):
        train("arccse", model, tmp_path / "run")


def test_sentences_may_be_a_list(tiny_encoder, tmp_path):
    listed, table = tiny_encoder(), tiny_encoder()
    train("arccse", listed, tmp_path / "a", sentences=project_text()[:40])
    train("arccse", table, tmp_path / "b")
    assert torch.equal(vectors(listed), vectors(table))
    splits = DatasetDict({"train": anchors(40)})
    for sentences in (splits, "text.txt"):
        with pytest.raises(ValueError, match="list of strings"):
            train("arccse", listed, tmp_path / "c", sentences=sentences)


def test_start_weight_moves_the_saved_weights_to_the_start(tiny_encoder, tmp_path):
    start, whole, half = tiny_encoder(), tiny_encoder(), tiny_encoder()
    train("arccse", whole, tmp_path / "whole")
    results = train("arccse", half, tmp_path / "half", start_weight=0.5)
    for mine, first, last in zip(half.parameters(), start.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(mine, 0.5 * first + 0.5 * last)
    assert results["start_weight"] == 0.5
    assert "Averaged" in (tmp_path / "half" / "model" / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
class TestResume:
    def test_an_interrupted_training_ends_as_if_it_had_not_been(self, tiny_encoder, tmp_path):
        whole, resumed = tiny_encoder(), tiny_encoder()
        expected = train("pt-bert", whole, tmp_path / "whole", dev=pairs("dev"))
        with interrupted(3), pytest.raises(KeyboardInterrupt):
            train("pt-bert", tiny_encoder(), tmp_path / "run", dev=pairs("dev"))
        results = train("pt-bert", resumed, tmp_path / "run", dev=pairs("dev"), resume=True)
        assert torch.equal(vectors(resumed), vectors(whole))
        assert results["after"] == expected["after"]
        assert [entry.get("loss") for entry in results["log"]][:-1] == [
            entry.get("loss") for entry in expected["log"]
        ][:-1]

    def test_resuming_starts_where_there_is_nothing(self, tiny_encoder, tmp_path):
        first, second, third = (tiny_encoder() for _ in range(3))
        train("arccse", first, tmp_path / "a", resume=True)
        with interrupted(1), pytest.raises(KeyboardInterrupt):  # before its first checkpoint
            train("arccse", tiny_encoder(), tmp_path / "b")
        train("arccse", second, tmp_path / "b", resume=True)
        train("arccse", third, tmp_path / "c")
        assert torch.equal(vectors(first), vectors(third))
        assert torch.equal(vectors(second), vectors(third))

    def test_a_resumed_training_keeps_its_precision(self, tiny_encoder, tmp_path, monkeypatch):
        for fast in (True, False):  # another machine
            monkeypatch.setattr("sbert_plugins.host.has_fast_bf16", lambda device, fast=fast: fast)
            train("arccse", tiny_encoder(), tmp_path / "new" / str(fast))
            with interrupted(3) if fast else nullcontext(), suppress(KeyboardInterrupt):
                train("arccse", resumed := tiny_encoder(), tmp_path / "run", resume=not fast)
        kept, other = (
            SentenceTransformer(str(tmp_path / "new" / name / "model")) for name in ("True", "False")
        )
        assert torch.equal(vectors(resumed), vectors(kept))
        assert not torch.equal(vectors(resumed), vectors(other))

    def test_a_finished_training_is_extended(self, tiny_encoder, tmp_path, caplog):
        caplog.set_level(logging.INFO, "sbert_plugins")
        train("arccse", tiny_encoder(), tmp_path / "run", lr_scheduler_type="constant")
        longer, whole = tiny_encoder(), tiny_encoder()
        more = {"lr_scheduler_type": "constant", "max_steps": 8}
        results = train("arccse", longer, tmp_path / "run", resume=True, **more)
        train("arccse", whole, tmp_path / "whole", **more)
        assert results["updates"] == 8
        assert "max_steps 8 instead of 4" in caplog.text
        assert torch.equal(vectors(longer), vectors(whole))
        with pytest.raises(ValueError, match="holds a training of 8 updates, and max_steps asks for 3"):
            train("arccse", tiny_encoder(), tmp_path / "run", resume=True, **(more | {"max_steps": 3}))

    def test_an_extended_training_that_is_interrupted_is_not_finished(self, tiny_encoder, tmp_path):
        train("arccse", tiny_encoder(), tmp_path / "run")
        with interrupted(6), pytest.raises(KeyboardInterrupt):
            train("arccse", tiny_encoder(), tmp_path / "run", max_steps=8, resume=True)
        assert train("arccse", tiny_encoder(), tmp_path / "run", max_steps=8, resume=True)["updates"] == 8

    @pytest.mark.parametrize(
        ("changes", "named"),
        [
            ({"seed": 7}, "seed was 42, is 7"),
            ({"learning_rate": 1e-2}, "learning_rate was 0.001, is 0.01"),
            ({"loss_keywords": {"temperature": 0.1}}, "temperature was None, is 0.1"),
            ({"count": 41}, "sentences was 40, is 41"),
            ({"max_seq_length": 9}, "max_seq_length was None, is 9"),
            ({"start_weight": 0.5}, "start_weight was 0.0, is 0.5"),
        ],
    )
    def test_another_training_is_not_continued(self, changes, named, tiny_encoder, tmp_path):
        with interrupted(3), pytest.raises(KeyboardInterrupt):
            train("arccse", tiny_encoder(), tmp_path)
        with pytest.raises(ValueError, match=re.escape(named)):
            train("arccse", tiny_encoder(), tmp_path, resume=True, **changes)

    def test_another_start_or_text_is_not_continued(self, tiny_encoder, tmp_path):
        with interrupted(3), pytest.raises(KeyboardInterrupt):
            train("arccse", tiny_encoder(), tmp_path)
        other = tiny_encoder()
        with torch.no_grad():
            next(other.parameters()).add_(1)
        other.max_seq_length = 9
        with pytest.raises(ValueError, match="tokens was 128, is 9.*weights_digest"):
            train("arccse", other, tmp_path, resume=True)
        sentences = Dataset.from_dict({"anchor": project_text()[1:41]})
        with pytest.raises(ValueError, match="sentences_digest"):
            train("arccse", tiny_encoder(), tmp_path, sentences=sentences, resume=True)


class TestOutput:
    def test_another_process_trains_there(self, tiny_encoder, tmp_path):
        (tmp_path / "run").mkdir()
        with FileLock(tmp_path / "run" / ".lock"):
            for resume in (False, True):
                with pytest.raises(FileExistsError, match="Another process"):
                    train("arccse", tiny_encoder(), tmp_path / "run", resume=resume)

    def test_is_not_written_over(self, tiny_encoder, tmp_path):
        (tmp_path / "notes.txt").touch()
        with pytest.raises(FileExistsError, match="not empty"):
            train("arccse", tiny_encoder(), tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]

    def test_a_training_without_an_update_leaves_the_folder_free(self, tiny_encoder, tmp_path):
        with interrupted(0), pytest.raises(KeyboardInterrupt):
            train("arccse", tiny_encoder(), tmp_path)
        assert train("arccse", tiny_encoder(), tmp_path, seed=3)["updates"] == 4

    def test_an_interrupted_training_names_the_way_to_go_on(self, tiny_encoder, tmp_path):
        with interrupted(3), pytest.raises(KeyboardInterrupt):
            train("arccse", tiny_encoder(), tmp_path)
        with pytest.raises(FileExistsError, match="--resume"):
            train("arccse", tiny_encoder(), tmp_path)


def test_a_model_that_does_not_come_back_is_an_error(tiny_encoder, tmp_path, monkeypatch):
    # Some adapters lose a part of their weights when they are loaded.
    save = SentenceTransformer.save_pretrained

    def saving(model, folder, **keywords):
        save(model, folder, **keywords)
        if folder.endswith("model"):
            other = tiny_encoder()
            with torch.no_grad():
                next(other.parameters()).add_(1)
            other[0].save(folder)

    monkeypatch.setattr(SentenceTransformer, "save_pretrained", saving)
    with pytest.raises(RuntimeError, match="gives other vectors"):
        train("arccse", tiny_encoder(), tmp_path / "run")
    results = read(tmp_path / "run" / "results.json")  # nothing is lost, and it does not count as finished
    assert results["verdict"] == []
    assert "finished" not in results


def test_settings_that_differ_from_the_papers_are_listed(tiny_encoder):
    recipe = recipes.RECIPES["arccse"]
    assert deviations_from_paper(recipe, losses.ArcCSELoss(tiny_encoder()).get_config_dict()) == {}
    changed = losses.ArcCSELoss(tiny_encoder(), temperature=0.1).get_config_dict()
    assert deviations_from_paper(recipe, changed) == {"temperature": (0.05, 0.1)}


def test_a_protocol_trains_with_its_settings(tiny_encoder, tmp_path):
    quick = {name: value for name, value in QUICK.items() if name != "learning_rate"}
    results = recipes.train(
        "arccse", anchors(40), tiny_encoder(), output=tmp_path / "run", protocol="paper", **quick
    )
    assert results["protocol"] == "paper"
    assert results["arguments"]["learning_rate"] == 3e-5
    assert results["loss_keywords"]["margin_degrees"] == 10.0
