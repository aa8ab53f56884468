"""Evaluations in a training, and the choice of the best checkpoint."""

import random

import numpy as np
import pytest
import sentence_transformers
import torch
import transformers
from encoders import SENTENCES
from sentence_transformers.base.evaluation import BaseEvaluator
from torch import nn
from trainings import EVERY_SECOND, ROWS, Probe, logged, trainer_of

from sbert_plugins import losses, training

FEW = ROWS.select(range(8))


class Scripted(BaseEvaluator):
    """An evaluator with given scores, which draws from all generators."""

    primary_metric = "score"

    def __init__(self, *scores):
        super().__init__()
        self.scores = iter(scores)

    def __call__(self, model, output_path=None, epoch=-1, steps=-1):
        random.random(), np.random.rand(), torch.rand(1)  # noqa: NPY002  the global generator, as others use it
        metrics = {"score": next(self.scores)}
        self.store_metrics_in_model_card_data(model, metrics, epoch, steps)
        return metrics


@pytest.mark.parametrize("what", ["evaluator", "evaluator and loss"])
def test_an_evaluation_changes_no_update(tiny_encoder, tmp_path, what):
    # Neither dropout nor masks nor the order of rows, over two epochs.
    def values(**changes):
        transformers.set_seed(0)
        model = tiny_encoder()
        trainer = trainer_of(
            model, losses.ArcCSELoss(model), tmp_path, FEW, num_train_epochs=2, max_steps=-1, **changes
        )
        trainer.train()
        return logged(trainer, "loss")

    never = values()
    assert len(set(never)) == 4
    data = FEW if what == "evaluator and loss" else None
    for steps in (1, 3):
        evaluated = {"evaluator": Scripted(*range(9)), "eval_strategy": "steps", "eval_steps": steps}
        assert values(eval_dataset=data, **evaluated) == never


def test_each_evaluation_draws_the_same_views(tiny_encoder, tmp_path):
    # Weights that do not change have one loss, so that no checkpoint is better than another by luck.
    model = tiny_encoder("bert", "mean")
    evaluated = {"eval_dataset": FEW, "eval_strategy": "steps", "eval_steps": 1, "learning_rate": 1e-30}
    trainer = trainer_of(model, losses.ConSERTLoss(model), tmp_path, FEW, **evaluated)
    trainer.train()
    assert len({*logged(trainer, "eval_loss"), trainer.evaluate()["eval_loss"]}) == 1
    trainer.args.seed += 1
    assert trainer.evaluate()["eval_loss"] != logged(trainer, "eval_loss")[0]


class Rows(nn.Module):
    """A loss whose term and diagnostic are the number of rows in the batch."""

    def __init__(self, model):
        super().__init__()
        self.model, self.diagnostics = model, {}

    def forward(self, features, labels=None):
        vectors = self.model(dict(features[0]))["sentence_embedding"]
        self.diagnostics = {"rows": len(vectors)}
        number = vectors.pow(2).mean()
        return {"term": number - number.detach() + len(vectors)}


class TestMetrics:
    def test_terms_and_diagnostics_are_means_over_rows_as_the_loss_is(self, model, tmp_path):
        # Of five rows in batches of four: (4 x 4 + 1 x 1) / 5.
        five = {"eval_dataset": ROWS.select(range(5)), "per_device_eval_batch_size": 4}
        trainer = trainer_of(model, Rows(model), tmp_path, **five)
        metrics = trainer.evaluate()
        names = ("eval_loss", "eval_term", "eval_rows")
        assert [metrics[name] for name in names] == pytest.approx([17 / 5] * 3)
        assert [logged(trainer, name)[0] for name in names] == pytest.approx([17 / 5] * 3)

    def test_each_dataset_has_its_own(self, model, tmp_path):
        options = {
            "eval_dataset": {"a": ROWS.select(range(4)), "b": ROWS.select(range(4, 12))},
            "eval_strategy": "steps",
        }
        trainer = trainer_of(model, losses.ArcCSELoss(model), tmp_path, eval_steps=2, **options)
        trainer.train()
        for name in ("eval_a", "eval_b"):
            terms = zip(logged(trainer, f"{name}_arccon"), logged(trainer, f"{name}_triplet"), strict=True)
            assert [sum(pair) for pair in terms] == pytest.approx(logged(trainer, f"{name}_loss"), abs=2e-4)
        assert logged(trainer, "eval_a_loss") != logged(trainer, "eval_b_loss")


class TestTheBestCheckpoint:
    def trainer(self, model, tmp_path, *scores, **changes):
        best = {
            "load_best_model_at_end": True,
            "metric_for_best_model": "eval_score",
            "greater_is_better": True,
        }
        options = (
            {"eval_strategy": "steps", "eval_steps": 2, "max_steps": 2 * len(scores)}
            | EVERY_SECOND
            | best
            | changes
        )
        return trainer_of(model, losses.ArcCSELoss(model), tmp_path, evaluator=Scripted(*scores), **options)

    def test_restores_the_loss_with_the_encoder(self, model, tmp_path):
        trainer = self.trainer(model, tmp_path, 0.2, 0.9, 0.5)
        trainer.train()
        state = trainer.loss.state_dict()
        before = {name: tensor.clone() for name, tensor in state.items()}
        for step, same in ((6, False), (4, True)):
            training.load_loss_state(trainer.loss, model, tmp_path / f"checkpoint-{step}")
            assert torch.equal(state["head.linear.weight"], before["head.linear.weight"]) is same
        saved = sentence_transformers.SentenceTransformer(str(tmp_path / "checkpoint-4"), device="cpu")
        assert (saved.encode(SENTENCES) == model.encode(SENTENCES)).all()

    @pytest.mark.parametrize("load_best", [True, False])
    def test_the_card_has_the_scores_of_the_weights_that_remain(self, model, tmp_path, load_best):
        trainer = self.trainer(model, tmp_path, 0.2, 0.9, 0.5, load_best_model_at_end=load_best)
        trainer.train()
        (scores,) = model.model_card_data.eval_results_dict.values()
        assert scores == {"score": 0.9 if load_best else 0.5}
        trainer.args.eval_strategy, trainer.args.load_best_model_at_end = "no", False
        trainer.train()
        assert model.model_card_data.eval_results_dict == {}

    def test_one_that_cannot_be_loaded_is_an_error(self, model, tmp_path, monkeypatch):
        # sentence-transformers logs it and keeps the last weights.
        trainer = self.trainer(model, tmp_path, 0.9, 0.2)
        monkeypatch.setattr(training.trainer, "load_loss_state", lambda *_: 1 / 0)
        with pytest.raises(OSError, match="checkpoint-2, could not be loaded"):
            trainer.train()


def test_a_resumed_training_stops_where_it_had_stopped(encoder_path, tmp_path):
    # Early stopping had ended it, and its state is restored.
    options = {
        "eval_strategy": "steps",
        "eval_steps": 1,
        "save_strategy": "steps",
        "save_steps": 1,
        "max_steps": 9,
        "metric_for_best_model": "eval_score",
        "restore_callback_states_from_checkpoint": True,
    }
    for resume in (None, True):
        model = sentence_transformers.SentenceTransformer(encoder_path, device="cpu")
        callbacks = [transformers.EarlyStoppingCallback(2)]
        trainer = trainer_of(
            model, Probe(model), tmp_path, evaluator=Scripted(*[0.5] * 9), callbacks=callbacks, **options
        )
        trainer.train(resume)
        assert trainer.state.global_step == 3


def test_an_evaluation_outside_of_a_training_leaves_no_trace(model, tmp_path):
    # Neither in the precision of the encoder nor in the mode of the next training.
    loss = Probe(model)
    trainer = trainer_of(model, loss, tmp_path, max_steps=1, eval_dataset=FEW, bf16=True)
    before = model.encode(SENTENCES)
    trainer.evaluate()
    assert (model.encode(SENTENCES) == before).all()
    trainer.train()
    assert loss.modes[-1] == (True, True, True)
