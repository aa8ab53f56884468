"""Sharpness-Aware Minimization as a step of the trainer."""

import copy

import pytest
import torch
from datasets import Dataset
from encoders import SENTENCES
from sentence_transformers import SentenceTransformerTrainingArguments
from torch import nn

from sbert_plugins import losses, training


def trainer_of(model, loss, folder, *, sam_rho, accumulation=1, max_steps=1, **changes):
    arguments = SentenceTransformerTrainingArguments(
        str(folder),
        max_steps=max_steps,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=accumulation,
        learning_rate=0.1,
        lr_scheduler_type="constant",
        optim="sgd",
        max_grad_norm=0.0,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        **changes,
    )
    dataset = Dataset.from_dict({"anchor": SENTENCES})
    return training.SentenceTransformerTrainer(model=model, args=arguments, train_dataset=dataset, loss=loss, sam_rho=sam_rho)


class Squares(nn.Module):
    """Mean square of a linear map of the sentence vectors, with a count of its forwards."""

    def __init__(self, model, weight):
        super().__init__()
        self.model = model
        self.head = nn.Linear(32, 8)
        self.head.weight.data = weight.clone()
        self.diagnostics = {}
        self.batches = []

    def forward(self, features, labels=None):
        self.batches.append((features[0]["input_ids"], torch.get_rng_state()))
        self.diagnostics = {"forwards": torch.tensor(float(len(self.batches)))}
        return {"squares": self.head(self.model(dict(features[0]))["sentence_embedding"]).pow(2).mean()}


def own_parameters(module):
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_step_is_foret_eq_2_and_3(tiny_encoder, tmp_path, accumulation):
    """Against two plain gradients of the same micro-batches, perturbed by hand; dropout off."""
    model = tiny_encoder(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    weight = torch.randn(8, 32, generator=torch.Generator().manual_seed(0))
    by_hand = Squares(copy.deepcopy(model), weight)
    by_hand.head.bias.data.zero_()
    loss = Squares(model, weight)
    loss.head.bias.data.zero_()
    trainer = trainer_of(model, loss, tmp_path, sam_rho=0.05, accumulation=accumulation)
    trainer.train()
    assert len(loss.batches) == 2 * accumulation
    batches = [ids for ids, _ in loss.batches[:accumulation]]
    assert all(torch.equal(first, ids) for first, (ids, _) in zip(batches, loss.batches[accumulation:], strict=True))

    def gradients():
        by_hand.zero_grad()
        for ids in batches:
            features = {"input_ids": ids, "attention_mask": (ids != model.tokenizer.pad_token_id).long()}
            (by_hand([features])["squares"] / accumulation).backward()
        return [p.grad.clone() if p.grad is not None else torch.zeros_like(p) for p in own_parameters(by_hand)]

    start = [p.detach().clone() for p in own_parameters(by_hand)]
    first = gradients()
    norm = torch.cat([gradient.flatten() for gradient in first]).norm()
    with torch.no_grad():
        for parameter, gradient in zip(own_parameters(by_hand), first, strict=True):
            parameter += 0.05 * gradient / norm
    second = gradients()
    for trained, weights, gradient in zip(own_parameters(loss), start, second, strict=True):
        torch.testing.assert_close(trained.detach(), weights - 0.1 * gradient, rtol=1e-5, atol=1e-6)


def test_both_passes_see_the_same_random_state(tiny_encoder, tmp_path):
    model = tiny_encoder()
    loss = Squares(model, torch.randn(8, 32))
    trainer_of(model, loss, tmp_path, sam_rho=0.05, accumulation=2, max_steps=2).train()
    states = [state for _, state in loss.batches]
    for update in (states[:4], states[4:8]):
        assert torch.equal(update[0], update[2])
        assert torch.equal(update[1], update[3])
        assert not torch.equal(update[0], update[1])


def test_a_vanishing_radius_is_plain_training(tiny_encoder, tmp_path):
    """Dropout on: the second pass replays the first one's masks, so that its gradient is the same."""
    results = []
    for sam_rho in (None, 1e-12):
        model = tiny_encoder()
        torch.manual_seed(3)
        loss = losses.ArcCSELoss(model, triplet_margin=0.5)
        trainer_of(model, loss, tmp_path, sam_rho=sam_rho, accumulation=2, max_steps=2).train()
        results.append([parameter.detach().clone() for parameter in loss.parameters()])
    for plain, sharp in zip(*results, strict=True):
        torch.testing.assert_close(sharp, plain, rtol=1e-5, atol=1e-6)


def test_the_radius_changes_the_step(tiny_encoder, tmp_path):
    results = []
    for sam_rho in (None, 0.05):
        model = tiny_encoder()
        torch.manual_seed(3)
        loss = losses.ArcCSELoss(model)
        trainer_of(model, loss, tmp_path, sam_rho=sam_rho).train()
        results.append(loss.head.linear.weight.detach().clone())
    assert not torch.equal(*results)


def test_terms_and_diagnostics_are_logged_once(tiny_encoder, tmp_path):
    model = tiny_encoder()
    loss = Squares(model, torch.randn(8, 32))
    trainer = trainer_of(model, loss, tmp_path, sam_rho=0.05, accumulation=2)
    trainer.train()
    (entry,) = (entry for entry in trainer.state.log_history if "loss" in entry)
    assert entry["forwards"] == 1.5  # forwards 1 and 2; the replayed 3 and 4 are not counted
    assert entry["loss"] == pytest.approx(entry["squares"], rel=1e-3)


def test_weights_are_restored_where_the_second_pass_fails(tiny_encoder, tmp_path):
    model = tiny_encoder()
    loss = Squares(model, torch.randn(8, 32))
    plain_forward = loss.forward

    def forward(features, labels=None):
        if len(loss.batches) == 1:
            raise RuntimeError("out of memory")
        return plain_forward(features, labels)

    loss.forward = forward
    before = [parameter.detach().clone() for parameter in loss.parameters()]
    with pytest.raises(RuntimeError, match="out of memory"):
        trainer_of(model, loss, tmp_path, sam_rho=0.05).train()
    assert all(torch.equal(x, y) for x, y in zip(loss.parameters(), before, strict=True))


class TestRefusals:
    @pytest.mark.parametrize("sam_rho", [0.0, -0.05, float("nan")])
    def test_rho(self, tiny_encoder, tmp_path, sam_rho):
        model = tiny_encoder()
        with pytest.raises(ValueError, match=f"sam_rho must be above 0, got {sam_rho}"):
            trainer_of(model, losses.ArcCSELoss(model), tmp_path, sam_rho=sam_rho)

    def test_gradient_scaler(self, tiny_encoder, tmp_path):
        model = tiny_encoder()
        trainer = trainer_of(model, losses.ArcCSELoss(model), tmp_path, sam_rho=0.05)
        trainer.args.fp16 = True
        with pytest.raises(ValueError, match="cannot be used with fp16.*Use bf16"):
            trainer.train()

    @pytest.mark.parametrize("in_place", [True, False])
    def test_a_queue_that_moves_in_forward(self, tiny_encoder, tmp_path, in_place):
        class Queue(Squares):
            def forward(self, features, labels=None):
                if in_place:
                    self.queue.add_(1)
                else:
                    self.queue = self.queue + 1
                return super().forward(features, labels)

        model = tiny_encoder()
        loss = Queue(model, torch.randn(8, 32))
        loss.register_buffer("queue", torch.zeros(3))
        with pytest.raises(ValueError, match=r"Queue.queue changes in every forward and would change twice"):
            trainer_of(model, loss, tmp_path, sam_rho=0.05).train()


def test_a_batch_that_failed_is_not_replayed(tiny_encoder, tmp_path):
    model = tiny_encoder()
    sharpness = trainer_of(model, losses.ConSERTLoss(model), tmp_path, sam_rho=0.05)._sharpness

    def fail(*_):
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError):
        sharpness.training_step(fail, model, {}, None)
    assert not sharpness._batches
