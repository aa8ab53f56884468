import json
from pathlib import Path
from statistics import fmean, stdev

import pytest
import torch
from filelock import FileLock
from recipe_inputs import anchors, interrupted, quick

from sbert_plugins import evaluation, recipes, training
from sbert_plugins.recipes import seeds


@pytest.fixture(scope="module")
def probe():
    return evaluation.ScoredPairs(*(values[::12] for values in recipes.graded_pairs()))


@pytest.fixture
def how(probe):
    return {"settings": quick(max_steps=2, learning_rate=1e-2, eval_steps=1), "probes": {"probe": probe}}


def values_of(results, name):
    return [json.loads((results / f"seed_{seed}" / "results.json").read_text())["after"][name] for seed in (3, 4)]


@pytest.mark.slow
class TestSeeds:
    def test_each_is_a_training_and_the_numbers_are_theirs(self, tiny_encoder, tmp_path, how):
        results = recipes.train_seeds("arccse", anchors(40), tiny_encoder, output=tmp_path / "run", seeds=[3, 4], **how)
        alone = recipes.train("arccse", anchors(40), tiny_encoder(), output=tmp_path / "alone", seed=4, **how)
        values = values_of(tmp_path / "run", "probe")
        assert values[1] == alone["after"]["probe"] != values[0]
        expected = {"mean": pytest.approx(fmean(values)), "deviation": pytest.approx(stdev(values)), "values": values}
        assert results["after"] == {"probe": expected}
        assert results["updates"] == ["2", "2"]
        assert results["before"] == alone["before"]
        assert results["seeds"] == [3, 4]
        assert json.loads((tmp_path / "run" / "results.json").read_text()) == results

    def test_killed_it_goes_on(self, tiny_encoder, tmp_path, how, monkeypatch):
        """The first seed is finished and not trained again, the second resumed, the third not begun."""

        def run(output, report=lambda line: None):
            keywords = {"output": output, "seeds": [3, 4, 5], "report": report, **how}
            return recipes.train_seeds("arccse", anchors(40), tiny_encoder, **keywords)

        expected = run(tmp_path / "whole")
        step, steps = training.SentenceTransformerTrainer.training_step, []

        def interrupted(trainer, *arguments):
            steps.append(None)
            if len(steps) == 4:  # the second update of the second seed
                raise KeyboardInterrupt
            return step(trainer, *arguments)

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(training.SentenceTransformerTrainer, "training_step", interrupted)
            run(tmp_path / "run")
        assert not (tmp_path / "run" / "results.json").exists()
        lines, counted = [], []
        with monkeypatch.context() as patch:
            patch.setattr(training.SentenceTransformerTrainer, "training_step", lambda *a: counted.append(None) or step(*a))
            results = run(tmp_path / "run", lines.append)
        assert results["after"] == expected["after"]
        assert lines[:3] == ["1/3 seed 3", "  finished before", "2/3 seed 4"]
        assert len(counted) == 1 + 2
        assert run(tmp_path / "run") == results
        assert results["versions"]["torch"] == torch.__version__
        first = tmp_path / "run" / "seed_3" / "results.json"
        first.write_text(first.read_text().replace(f'"torch": "{torch.__version__}"', '"torch": "1.0"'))
        assert run(tmp_path / "run", lines.append)["versions"]["torch"] == f"1.0, {torch.__version__}"
        assert lines[-1].endswith(f"too: torch 1.0, {torch.__version__}.")

    def test_killed_before_the_first_checkpoint(self, tiny_encoder, tmp_path, how, monkeypatch):
        def killed(trainer, *arguments):
            raise KeyboardInterrupt

        arguments = {"output": tmp_path / "run", "seeds": [3], **how}
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(training.SentenceTransformerTrainer, "training_step", killed)
            recipes.train_seeds("arccse", anchors(40), tiny_encoder, **arguments)
        results = recipes.train_seeds("arccse", anchors(40), tiny_encoder, **arguments)
        assert results["after"]["probe"]["deviation"] is None

    @pytest.mark.parametrize("name", ["run.json", "results.json"])
    def test_killed_while_a_record_was_written(self, tiny_encoder, tmp_path, how, monkeypatch, name):
        write = Path.write_text

        def killed(path, text, **keywords):
            write(path, text[: len(text) // 2 if path.name.startswith(name) else None], **keywords)
            if path.name.startswith(name):
                raise KeyboardInterrupt

        arguments = {"output": tmp_path, "seeds": [3], **how}
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Path, "write_text", killed)
            recipes.train_seeds("arccse", anchors(40), tiny_encoder, **arguments)
        assert recipes.train_seeds("arccse", anchors(40), tiny_encoder, **arguments)["after"].keys() == {"probe"}

    @pytest.mark.parametrize("torn", ["trainer_state.json", "checkpoint_complete.json"])
    def test_killed_while_the_first_checkpoint_was_written(self, tiny_encoder, tmp_path, how, torn):
        arguments = {"output": tmp_path, "seeds": [3], **how}
        with interrupted(1), pytest.raises(KeyboardInterrupt):
            recipes.train_seeds("arccse", anchors(40), tiny_encoder, **arguments)
        (tmp_path / "seed_3" / "checkpoints" / "checkpoint-1" / torn).unlink()
        assert recipes.train_seeds("arccse", anchors(40), tiny_encoder, **arguments)["updates"] == ["2"]

    @pytest.mark.parametrize("finished", [True, False])
    def test_what_was_made_otherwise_is_refused_and_kept(self, tiny_encoder, tmp_path, how, finished):
        recipes.train_seeds("arccse", anchors(40), tiny_encoder, output=tmp_path, seeds=[3], **how)
        if not finished:
            (tmp_path / "seed_3" / "results.json").unlink()
        other = how | {"settings": quick(max_steps=2, weight_decay=0.1)}
        with pytest.raises(ValueError, match=r"seed_3 was begun with learning_rate 0.01 .*weight_decay 0.0 \(now 0.1\)"):
            recipes.train_seeds("arccse", anchors(40), tiny_encoder, output=tmp_path, seeds=[4, 3], **other)
        assert (tmp_path / "seed_3" / "model").is_dir()
        assert not (tmp_path / "seed_4").exists()

    def test_another_text_beside_earlier_seeds_is_refused(self, tiny_encoder, tmp_path, how):
        recipes.train_seeds("arccse", anchors(40), tiny_encoder, output=tmp_path, seeds=[3], **how)
        with pytest.raises(ValueError, match=r"seed_3 was begun with sentences 40 \(now 38\)"):
            recipes.train_seeds("arccse", anchors(38), tiny_encoder, output=tmp_path, seeds=[4], **how)
        with pytest.raises(ValueError, match=r"got nothing, and .*seed_3 was scored on probe"):
            recipes.train_seeds("arccse", anchors(40), tiny_encoder, output=tmp_path, seeds=[4], **how | {"probes": None})
        assert not (tmp_path / "seed_4").exists()

    def test_a_folder_whose_removal_was_interrupted_is_none_of_a_seed(self, tiny_encoder, tmp_path, how):
        for name in ("seed_3.tmp", "seed_x", "seed_03"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "run.json").write_text("{}")
        results = recipes.train_seeds("arccse", anchors(40), tiny_encoder, output=tmp_path, seeds=[3], **how)
        assert results["seeds"] == [3]

    @pytest.mark.parametrize(
        ("change", "named"),
        [({"probes": None}, "nothing"), ({"probes": {"a": (), "b": ()}}, "a, b"), ({"dev": ()}, "STS-B dev, probe")],
    )
    def test_other_probes_are_refused_before_anything_is_trained(self, tiny_encoder, tmp_path, how, change, named):
        recipes.train_seeds("arccse", anchors(40), tiny_encoder, output=tmp_path, seeds=[3], **how)
        with pytest.raises(
            ValueError, match=f"probes and dev must be .*, got {named}, and .*seed_3 was scored on probe: give"
        ):
            recipes.train_seeds("arccse", anchors(40), tiny_encoder, output=tmp_path, seeds=[4, 3], **(how | change))
        assert not (tmp_path / "seed_4").exists()

    def test_other_rows_under_the_name_of_a_probe_are_refused(self, tiny_encoder, tmp_path, how):
        recipes.train_seeds("arccse", anchors(40), tiny_encoder, output=tmp_path, seeds=[3], **how)
        (pairs,) = how["probes"].values()
        reversed_pairs = pairs._replace(scores=[-score for score in pairs.scores])
        with pytest.raises(ValueError, match="seed_3 was scored on other rows of probe: give"):
            recipes.train_seeds(
                "arccse",
                anchors(40),
                tiny_encoder,
                output=tmp_path,
                seeds=[4, 3],
                **(how | {"probes": {"probe": reversed_pairs}}),
            )
        assert not (tmp_path / "seed_4").exists()

    def test_seeds_start_from_one_encoder(self, tiny_encoder, tmp_path, how):
        encoders = iter([tiny_encoder(), tiny_encoder(num_hidden_layers=1)])
        with pytest.raises(ValueError, match="build must build one encoder each time, got weights that differ"):
            recipes.train_seeds("arccse", anchors(40), lambda: next(encoders), output=tmp_path, seeds=[3, 4], **how)


class TestBadInput:
    @pytest.mark.parametrize("seeds", [[], [1, 1]])
    def test_seeds(self, tiny_encoder, tmp_path, seeds):
        with pytest.raises(ValueError, match="seeds must be at least 1, or a list of them, got|seeds must differ, got"):
            recipes.train_seeds("arccse", anchors(4), tiny_encoder, output=tmp_path, seeds=seeds)

    def test_out_of_range(self, tiny_encoder, tmp_path):
        with pytest.raises(ValueError, match=r"seed must be a whole number in \[0, 4294967295\], got 4294967296"):
            recipes.train_seeds("arccse", anchors(4), tiny_encoder, output=tmp_path, seeds=range(2**32 - 1, 2**32 + 1))

    def test_an_encoder_is_no_function_that_builds_one(self, tiny_encoder, tmp_path):
        with pytest.raises(ValueError, match="build must be a function that builds the encoder each time, got a SentenceTr"):
            recipes.train_seeds("arccse", anchors(4), tiny_encoder(), output=tmp_path, seeds=2)

    def test_a_directory_of_somebody_elses(self, tiny_encoder, tmp_path):
        (tmp_path / "mine.txt").write_text("mine")
        with pytest.raises(FileExistsError, match="output must be new, empty or .* with mine.txt"):
            recipes.train_seeds("arccse", anchors(4), tiny_encoder, output=tmp_path, seeds=[1])
        with pytest.raises(FileExistsError, match="output must be a directory, got the file"):
            recipes.train_seeds("arccse", anchors(4), tiny_encoder, output=tmp_path / "mine.txt", seeds=[1])
        with pytest.raises(FileExistsError, match="output must be a directory, got .* and .*mine.txt is a file"):
            recipes.train_seeds("arccse", anchors(4), tiny_encoder, output=tmp_path / "mine.txt" / "below", seeds=[1])

    def test_a_seed_that_another_process_trains(self, tiny_encoder, tmp_path, how):
        """Others may be trained beside it."""
        given = {"output": tmp_path, **how}
        with FileLock(tmp_path / "seed_0.lock"):
            with pytest.raises(FileExistsError, match="seed_0, where another process trains"):
                recipes.train_seeds("arccse", anchors(40), tiny_encoder, seeds=2, **given)
            recipes.train_seeds("arccse", anchors(40), tiny_encoder, seeds=[1], **given)
        assert recipes.train_seeds("arccse", anchors(40), tiny_encoder, seeds=2, **given)["seeds"] == [0, 1]
        assert sorted(path.name for path in tmp_path.iterdir()) == ["results.json", "seed_0", "seed_1"]

    @pytest.mark.parametrize("error", [OSError(37, "No locks available"), NotImplementedError("no flock")], ids=type)
    def test_without_locks_it_is_said_and_trained(self, tiny_encoder, tmp_path, how, monkeypatch, caplog, error):
        def acquire(lock):
            raise error

        monkeypatch.setattr(FileLock, "acquire", acquire)
        recipes.train_seeds("arccse", anchors(40), tiny_encoder, output=tmp_path, seeds=1, **how)
        assert f"No process can be kept from {tmp_path / 'seed_0'} while it is trained: {error}." in caplog.text

    def test_what_is_refused_leaves_nothing(self, tiny_encoder, tmp_path, how):
        with pytest.raises(ValueError, match="margin_degrees"):
            recipes.train_seeds(
                "arccse",
                anchors(40),
                tiny_encoder,
                output=tmp_path / "a" / "new",
                seeds=1,
                loss_keywords={"margin_degrees": -1},
                **how,
            )
        assert not (tmp_path / "a").exists()

    def test_several_processes(self, tiny_encoder, tmp_path, monkeypatch):
        monkeypatch.setenv("WORLD_SIZE", "2")
        with pytest.raises(ValueError, match="seeds are trained one after the other in one process"):
            recipes.train_seeds("arccse", anchors(4), tiny_encoder, output=tmp_path / "run", seeds=[1])


def test_a_seed_without_a_score_is_left_out_of_the_mean():
    results = [{"after": {"x": value}} for value in (60.0, None, 62.0)]
    assert seeds._summary("x", results) == {"mean": 61.0, "deviation": pytest.approx(2**0.5), "values": [60.0, None, 62.0]}
    assert seeds._summary("x", results[1:2]) == {"mean": None, "deviation": None, "values": [None]}


def test_finished_seeds_of_the_seven_tasks_are_gone_on_with(tmp_path, probe, monkeypatch):
    """Their average is no probe that is missing."""
    tables = {name: probe for name in ("STS12", "STS-B")}
    (tmp_path / "seed_3").mkdir()
    (tmp_path / "seed_3" / "results.json").write_text("{}")
    monkeypatch.setattr(seeds, "read_results", lambda path: {"after": dict.fromkeys([*tables, seeds.AVERAGE], 1.0)})
    seeds._check_scores(tmp_path, [3], tables)
