"""Which checkpoints a training writes, takes for complete, and resumes from."""

import os
import resource
import shutil
from pathlib import Path

import pytest
import sentence_transformers
import torch
import transformers
from trainings import EVERY_SECOND, ROWS, Probe, logged, trainer_of

from sbert_plugins import losses, training
from sbert_plugins.training.loss_state import COMPLETE_FILE, SETTINGS_FILE, WEIGHTS_FILE, incomplete_reason


@pytest.fixture
def train(tiny_encoder, tmp_path):
    """Train a fresh model in ``tmp_path``, and return the trainer."""

    def run(
        resume=None, build=Probe, trainer_class=training.SentenceTransformerTrainer, allow=None, **changes
    ):
        model = tiny_encoder()
        trainer = trainer_of(
            model, build(model), tmp_path, trainer_class=trainer_class, **(EVERY_SECOND | changes)
        )
        trainer.train(resume, **({} if allow is None else {"allow_changed_settings": allow}))
        return trainer

    return run


class TestCompleteness:
    def test_a_checkpoint_with_a_damaged_file_is_skipped(self, train, tmp_path, caplog):
        # With a file that was cut, or is gone.
        train()
        last = tmp_path / "checkpoint-4"
        for name in (COMPLETE_FILE, "trainer_state.json", WEIGHTS_FILE, "model.safetensors", "optimizer.pt"):
            whole = (last / name).read_bytes()
            for damage in (lambda file: file.write_bytes(file.read_bytes()[:-7]), Path.unlink):
                damage(last / name)
                assert name in incomplete_reason(last)
                assert training.newest_complete_checkpoint(tmp_path) == tmp_path / "checkpoint-2"
                assert f"incomplete checkpoint {last}: {name}" in caplog.text
                with pytest.raises(ValueError, match=name):
                    train(str(last))
            (last / name).write_bytes(whole)

    def test_the_readme_may_be_changed(self, train, tmp_path):
        train(max_steps=2)
        readme = tmp_path / "checkpoint-2" / "README.md"
        for change in (lambda: readme.write_text("My model."), readme.unlink):
            change()
            assert incomplete_reason(readme.parent) is None
        assert train(True).state.global_step == 4

    def test_the_highest_step_counts_not_the_name(self, train, tmp_path):
        train(max_steps=2)
        for name in ("checkpoint-10", "checkpoint-9", "checkpoint-best", "checkpoint-200-best"):
            shutil.copytree(tmp_path / "checkpoint-2", tmp_path / name)
        assert training.newest_complete_checkpoint(tmp_path) == tmp_path / "checkpoint-10"
        assert training.newest_complete_checkpoint(tmp_path / "nowhere") is None

    def test_the_marker_is_written_when_all_else_is_on_the_disk(self, train, tmp_path, monkeypatch):
        synced, folder = [], tmp_path / "checkpoint-2"

        def record(descriptor):
            synced.append(
                (Path(os.readlink(f"/proc/self/fd/{descriptor}")), (folder / COMPLETE_FILE).exists())
            )

        monkeypatch.setattr(os, "fsync", record)
        train(max_steps=2)
        before, after = ([path for path, marked in synced if marked is kind] for kind in (False, True))
        needed = {path for path in folder.rglob("*") if path.name not in ("README.md", COMPLETE_FILE)}
        assert {*before} == {*needed, folder, tmp_path}
        assert after == [folder / COMPLETE_FILE, folder]

    def test_older_checkpoints_are_deleted_after_that(self, train, tmp_path, monkeypatch):
        # With save_total_limit=1 there is a complete checkpoint at each moment.
        found, rotate = [], transformers.trainer.rotate_checkpoints

        def watch(**keywords):
            found.append({path.name: incomplete_reason(path) for path in tmp_path.glob("checkpoint-*")})
            rotate(**keywords)

        monkeypatch.setattr(transformers.trainer, "rotate_checkpoints", watch)
        train(save_total_limit=1)
        assert found == [{"checkpoint-2": None}, {"checkpoint-2": None, "checkpoint-4": None}]

    def test_a_checkpoint_that_is_written_again_is_incomplete_meanwhile(self, train, tmp_path, monkeypatch):
        train()
        monkeypatch.setattr(
            training.trainer, "save_loss_state", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        with pytest.raises(KeyboardInterrupt):
            train()
        assert COMPLETE_FILE in incomplete_reason(tmp_path / "checkpoint-2")

    def test_those_of_an_earlier_training_and_those_without_an_optimizer_do_not_count(
        self, train, tmp_path, caplog
    ):
        train()
        train(max_steps=2)
        assert f"{tmp_path / 'checkpoint-4'} is of an earlier training" in caplog.text
        assert training.newest_complete_checkpoint(tmp_path) == tmp_path / "checkpoint-2"
        train(save_only_model=True)
        assert (tmp_path / "checkpoint-4" / WEIGHTS_FILE).exists()
        assert training.newest_complete_checkpoint(tmp_path) is None

    def test_its_own_files_are_not_pushed(self, train, tmp_path):
        trainer = train(max_steps=2)
        trainer.save_model(_internal_call=True)  # as push_to_hub does
        assert trainer.files_kept_local == {WEIGHTS_FILE, SETTINGS_FILE, COMPLETE_FILE}
        assert not trainer.files_kept_local & {path.name for path in tmp_path.iterdir()}


class TestResuming:
    def test_true_takes_the_newest_complete_one(self, train, tmp_path):
        train()
        (tmp_path / "checkpoint-4" / COMPLETE_FILE).unlink()
        assert logged(train(True, max_steps=6), "step")[:6] == [1, 2, 3, 4, 5, 6]
        assert incomplete_reason(tmp_path / "checkpoint-4") is None  # written again

    @pytest.mark.parametrize("interrupted", [False, True])
    def test_true_starts_a_training_if_there_is_none(self, train, tmp_path, caplog, interrupted):
        if interrupted:
            (tmp_path / "checkpoint-2").mkdir()
        assert train(True).state.global_step == 4
        assert caplog.text.count("a new training starts") == 1

    @pytest.mark.parametrize("updates", [2, 3])
    def test_a_finished_training_makes_no_other_update(self, train, updates):
        # If it was interrupted after its last checkpoint, inside an epoch or at the end of one.
        changes = {"max_steps": updates, "save_steps": updates, "per_device_train_batch_size": 6}
        first, again = train(**changes), train(True, **changes)
        assert again.state.global_step == updates
        for before, after in zip(first.loss.parameters(), again.loss.parameters(), strict=True):
            assert torch.equal(before, after)

    @pytest.mark.parametrize(
        ("path", "reason"),
        [("checkpoint-3", "does not exist"), (".", "no trainer_state"), ("eval", "no trainer_state")],
    )
    def test_a_path_that_is_not_a_checkpoint(self, train, tmp_path, path, reason):
        train()
        (tmp_path / "eval").mkdir()
        with pytest.raises(ValueError, match=rf"{reason}.*checkpoint-2, .*checkpoint-4\."):
            train(str(tmp_path / path))

    def test_one_of_the_stock_trainer_has_no_weights_of_the_loss(self, train, tmp_path):
        stock, checkpoint = sentence_transformers.SentenceTransformerTrainer, str(tmp_path / "checkpoint-2")
        train(trainer_class=stock)
        with pytest.raises(ValueError, match=r"does not hold the state.*head.0.bias: None"):
            train(checkpoint)
        unweighted = {"build": lambda model: losses.ArcCSELoss(model, projection_head=False)}
        train(trainer_class=stock, **unweighted)
        train(checkpoint, **unweighted)

    @pytest.mark.parametrize(
        ("build", "old", "new", "changes"),
        [
            (losses.ArcCSELoss, {}, {"temperature": 0.1}, ["temperature: 0.05, now 0.1"]),
            (
                losses.PTBERTLoss,
                {},
                {"queue_size": 8, "momentum": 0.5},
                ["queue_size: 256, now 8", "momentum: 0.885, now 0.5"],
            ),
            (
                lambda model, weight: {
                    "a": losses.WeightedSumLoss(model, {"b": (losses.ConSERTLoss(model), weight)})
                },
                {"weight": 1.0},
                {"weight": 0.5},
                [r"b\.weight: 1.0, now 0.5"],
            ),
        ],
    )
    def test_settings_that_differ_are_listed_and_refused(
        self, train, tmp_path, caplog, build, old, new, changes
    ):
        rows = {"dataset": {"a": ROWS}} if "weight" in old else {}
        checkpoint = str(tmp_path / "checkpoint-2")
        train(build=lambda model: build(model, **old), **rows)
        train(checkpoint, build=lambda model: build(model, **old), **rows)
        for change in changes:
            with pytest.raises(ValueError, match=change):
                train(checkpoint, build=lambda model: build(model, **new), **rows)
        if "queue_size" not in new:  # whose tensors have another shape
            train(checkpoint, build=lambda model: build(model, **new), allow=True, **rows)
            assert "continues with the new" in caplog.text


def test_a_full_disk_is_named(train, tmp_path):
    # A limit on the size of files has the same effect, here between the encoder and the larger optimizer.
    train(max_steps=2)
    size = (tmp_path / "checkpoint-2" / "model.safetensors").stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(1.5 * size), before[1]))
    try:
        with pytest.raises(OSError, match=r"checkpoint-4 could not be written.* GB left.*checkpoint-2\."):
            train(True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert training.newest_complete_checkpoint(tmp_path) == tmp_path / "checkpoint-2"
    assert train(True).state.global_step == 4
