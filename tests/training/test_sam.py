"""Sharpness-Aware Minimization as a step of the trainer."""

import copy

import pytest
import torch
import trainings
from torch import nn
from trainings import logged

from sbert_plugins import losses
from sbert_plugins.training import TrainingArguments


def trainer_of(model, loss, folder, *, sam_rho, **changes):
    plain = {
        "learning_rate": 0.1,
        "lr_scheduler_type": "constant",
        "optim": "sgd",
        "max_grad_norm": 0.0,
        "max_steps": 1,
    }
    return trainings.trainer_of(model, loss, folder, sam_rho=sam_rho or 0.0, **(plain | changes))


class Squares(nn.Module):
    """Mean square of a linear map of the sentence vectors, which records its batches and random states."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.head = nn.Linear(32, 8)
        self.diagnostics = {}
        self.batches = []

    def forward(self, features, labels=None):
        self.batches.append((features[0]["input_ids"], torch.get_rng_state()))
        self.diagnostics = {"forwards": len(self.batches)}
        return {"squares": self.head(self.model(dict(features[0]))["sentence_embedding"]).pow(2).mean()}


@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_step_is_foret_eq_2_and_3(tiny_encoder, tmp_path, accumulation):
    # Against two plain gradients of the same micro-batches, with weights that are moved by hand.
    model = tiny_encoder(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    loss = Squares(model)
    by_hand = copy.deepcopy(loss)
    trainer_of(model, loss, tmp_path, sam_rho=0.05, gradient_accumulation_steps=accumulation).train()
    batches, repeated = (
        [ids for ids, _ in part] for part in (loss.batches[:accumulation], loss.batches[accumulation:])
    )
    assert all(torch.equal(first, second) for first, second in zip(batches, repeated, strict=True))

    def gradients():
        by_hand.zero_grad()
        for ids in batches:
            features = {"input_ids": ids, "attention_mask": (ids != model.tokenizer.pad_token_id).long()}
            (by_hand([features])["squares"] / accumulation).backward()
        return [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in by_hand.parameters()]

    start = [parameter.detach().clone() for parameter in by_hand.parameters()]
    first = gradients()
    norm = torch.cat([gradient.flatten() for gradient in first]).norm()
    with torch.no_grad():
        for parameter, gradient in zip(by_hand.parameters(), first, strict=True):
            parameter += 0.05 * gradient / norm
    for trained, weights, gradient in zip(loss.parameters(), start, gradients(), strict=True):
        torch.testing.assert_close(trained.detach(), weights - 0.1 * gradient, rtol=1e-5, atol=1e-6)


def test_a_vanishing_radius_is_plain_training_and_another_is_not(tiny_encoder, tmp_path):
    # With dropout: the second pass repeats the first one's masks.
    weights = []
    for sam_rho in (0.0, 1e-12, 0.05):
        model = tiny_encoder()
        torch.manual_seed(3)
        loss = losses.ArcCSELoss(model, triplet_margin=0.5)
        trainer_of(model, loss, tmp_path, sam_rho=sam_rho, gradient_accumulation_steps=2, max_steps=2).train()
        weights.append(torch.cat([parameter.detach().flatten() for parameter in loss.parameters()]))
    torch.testing.assert_close(weights[1], weights[0], rtol=1e-5, atol=1e-6)
    assert not torch.allclose(weights[2], weights[0], rtol=1e-3, atol=1e-4)


def test_terms_and_diagnostics_are_those_of_the_first_pass(tiny_encoder, tmp_path):
    model = tiny_encoder()
    trainer = trainer_of(model, Squares(model), tmp_path, sam_rho=0.05, gradient_accumulation_steps=2)
    trainer.train()
    assert logged(trainer, "forwards") == [1.5]  # of forwards 1 and 2; 3 and 4 repeat them
    assert logged(trainer, "squares") == pytest.approx(logged(trainer, "loss"), rel=1e-3)


def test_the_weights_come_back_if_the_second_pass_fails(tiny_encoder, tmp_path):
    # And the next training begins with an update of its own.
    class FailsOnce(Squares):
        def forward(self, features, labels=None):
            if len(self.batches) == 1:
                self.batches.append("failed")
                raise RuntimeError("out of memory")
            return super().forward(features)

    model = tiny_encoder()
    loss = FailsOnce(model)
    before = [parameter.detach().clone() for parameter in loss.parameters()]
    trainer = trainer_of(model, loss, tmp_path, sam_rho=0.05)
    with pytest.raises(RuntimeError, match="out of memory"):
        trainer.train()
    assert all(torch.equal(x, y) for x, y in zip(loss.parameters(), before, strict=True))
    trainer.train()
    assert len(loss.batches) == 4


@pytest.mark.parametrize("in_place", [True, False])
def test_a_loss_whose_forward_changes_its_state(tiny_encoder, tmp_path, in_place):
    class Queue(Squares):
        def forward(self, features, labels=None):
            self.queue = self.queue.add_(1) if in_place else self.queue + 1
            return super().forward(features)

    model = tiny_encoder()
    loss = Queue(model)
    loss.register_buffer("queue", torch.zeros(3))
    with pytest.raises(ValueError, match=r"sam_rho must be 0.*queue"):
        trainer_of(model, loss, tmp_path, sam_rho=0.05).train()


@pytest.mark.parametrize("wrong", [{"sam_rho": -0.05}, {"sam_rho": 0.05, "fp16": True}])
def test_a_radius_that_cannot_be(tmp_path, wrong):
    with pytest.raises(ValueError, match="sam_rho"):
        TrainingArguments(str(tmp_path), **wrong)
