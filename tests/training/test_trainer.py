import copy
import json
import math
import random
import shutil
import warnings

import numpy as np
import pytest
import sentence_transformers
import torch
import training_runs
import transformers
from datasets import Dataset, DatasetDict
from encoders import SENTENCES
from methods import METHODS
from sentence_transformers import SentenceTransformerTrainingArguments
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.sentence_transformer.losses import GISTEmbedLoss, MultipleNegativesRankingLoss
from torch import nn
from torch.utils.data import BatchSampler, SequentialSampler
from transformers import EarlyStoppingCallback

from sbert_plugins import losses, training
from sbert_plugins.evaluation import EmbeddingEvaluator, JointEvaluator
from sbert_plugins.training.checkpoints import COMPLETE_FILE, STATE_FILE, mark_complete, why_incomplete


@pytest.fixture
def model(tiny_encoder):
    return tiny_encoder()


def arguments(folder, **changes):
    defaults = {
        "max_steps": 4,
        "per_device_train_batch_size": 4,
        "logging_steps": 1,
        "learning_rate": 1e-3,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
    }
    return SentenceTransformerTrainingArguments(str(folder), **(defaults | changes))


def trainer_of(model, loss, folder, dataset=None, trainer_class=training.SentenceTransformerTrainer, **changes):
    options = {key: changes.pop(key) for key in ("sam_rho", "eval_dataset", "evaluator", "callbacks") if key in changes}
    return trainer_class(
        model=model,
        args=arguments(folder, **changes),
        train_dataset=dataset or Dataset.from_dict({"anchor": SENTENCES * 2}),
        loss=loss,
        **options,
    )


class Probe(nn.Module):
    """A loss with a part of its own that remembers gradients, modes and diagnostics."""

    def __init__(self, model, scale=1.0):
        super().__init__()
        self.model = model
        self.head = nn.Sequential(nn.Linear(32, 32), nn.Dropout(0.1)).eval()
        self.scale = scale
        self.calls = 0
        self.modes = []
        self.diagnostics = {}

    def forward(self, features, labels=None):
        self.calls += 1
        self.modes.append((self.model.training, self.training, self.head[1].training))
        self.diagnostics = {"calls": torch.tensor(float(self.calls))} if self.calls % 2 else {}
        embeddings = self.model(dict(features[0]))["sentence_embedding"]
        return {"probe": self.scale * self.head(embeddings).pow(2).mean()}


@pytest.mark.parametrize("updates", [2, 3])
def test_resuming_after_the_last_update_makes_no_other(tiny_encoder, tmp_path, updates):
    """A kill between the last checkpoint and the end, inside an epoch and at the end of one."""
    vectors = []
    for resume in (False, True):
        model = tiny_encoder()
        changes = {"max_steps": updates, "save_strategy": "steps", "save_steps": updates}
        trainer = trainer_of(model, Probe(model), tmp_path, Dataset.from_dict({"anchor": (SENTENCES * 3)[:12]}), **changes)
        trainer.train(resume_from_checkpoint=resume)
        assert trainer.state.global_step == updates
        vectors.append(model.encode(SENTENCES))
    assert (vectors[0] == vectors[1]).all()


@pytest.mark.parametrize("name", ["arccse", "paser"])
def test_the_first_batch_of_a_resumed_training_is_no_first_batch(tiny_encoder, tmp_path, name):
    """A rest of an epoch that teaches nothing is passed over, whether there was a kill before it or not."""
    method, dataset = METHODS[name]
    rows = dataset(9).to_dict()
    if name == "paser":
        rows["masked"][8] = rows["anchor"][8]
    for resume in (False, True):
        model = tiny_encoder()
        loss = method(model)
        changes = {"num_train_epochs": 1, "per_device_train_batch_size": 4, "save_strategy": "steps", "save_steps": 2}
        trainer = trainer_of(model, loss, tmp_path, Dataset.from_dict(rows), max_steps=-1, **changes)
        trainer.get_batch_sampler = lambda rows, **_: BatchSampler(SequentialSampler(rows), batch_size=4, drop_last=False)
        trainer.train(str(tmp_path / "checkpoint-2") if resume else None)
        assert trainer.state.global_step == 3


def test_a_new_training_takes_the_place_of_an_old_one(tiny_encoder, tmp_path, caplog):
    """Before its first checkpoint it says so; later what the old one has left is never the newest."""
    rows = Dataset.from_dict({"anchor": (SENTENCES * 3)[:12]})
    for updates in (4, 2):
        model = tiny_encoder()
        changes = {"max_steps": updates, "save_strategy": "steps", "save_steps": updates}
        trainer_of(model, Probe(model), tmp_path, rows, **changes).train()
        assert training.newest_complete_checkpoint(tmp_path) == tmp_path / f"checkpoint-{updates}"
    assert caplog.text.count("checkpoint-4 is of an earlier training") == 1


class TestCheckpointsWithoutAnOptimizer:
    """``save_only_model=True``: no training goes on from them."""

    ROWS = Dataset.from_dict({"anchor": (SENTENCES * 3)[:12]})

    def trained(self, model, folder, resume=None, **changes):
        changes = {"save_strategy": "steps", "save_steps": 2} | changes
        trainer = trainer_of(model, Probe(model), folder, self.ROWS, **changes)
        trainer.train(resume)
        return trainer

    def test_an_earlier_trainings_are_not_taken_for_it(self, tiny_encoder, tmp_path):
        """Neither the later ones nor the earlier."""
        self.trained(tiny_encoder(), tmp_path, max_steps=4)
        self.trained(tiny_encoder(), tmp_path, max_steps=3, save_steps=3, save_only_model=True)
        assert (tmp_path / "checkpoint-2").exists()
        assert training.newest_complete_checkpoint(tmp_path) is None

    def test_one_that_goes_on_keeps_what_it_went_on_from(self, tiny_encoder, tmp_path):
        self.trained(tiny_encoder(), tmp_path, max_steps=4)
        self.trained(tiny_encoder(), tmp_path, str(tmp_path / "checkpoint-2"), max_steps=3, save_steps=3, save_only_model=True)
        assert training.newest_complete_checkpoint(tmp_path) == tmp_path / "checkpoint-2"

    @pytest.mark.parametrize("resume", [True, "checkpoint-4"])
    def test_they_are_refused_by_name(self, tiny_encoder, tmp_path, resume):
        self.trained(tiny_encoder(), tmp_path, save_only_model=True)
        resume = resume if resume is True else str(tmp_path / resume)
        with pytest.raises(ValueError, match="with save_only_model=True a checkpoint has no optimizer, and no training"):
            self.trained(tiny_encoder(), tmp_path, resume, max_steps=6, save_only_model=True)

    def test_the_callback_calls_none_complete(self, model, tmp_path):
        loss = Probe(model)
        changes = {"save_strategy": "steps", "save_steps": 2, "save_only_model": True}
        host = sentence_transformers.SentenceTransformerTrainer
        callbacks = [training.LossStateCallback(loss)]
        trainer_of(model, loss, tmp_path, self.ROWS, trainer_class=host, callbacks=callbacks, **changes).train()
        assert (tmp_path / "checkpoint-4" / "loss_state.json").exists()
        assert training.newest_complete_checkpoint(tmp_path) is None


def test_workers_that_are_kept_resume_otherwise_and_it_is_said(model, tmp_path, caplog):
    changes = {"save_strategy": "steps", "save_steps": 2, "dataloader_num_workers": 1}
    for steps, kept in ((2, False), (4, True)):
        trainer = trainer_of(model, Probe(model), tmp_path, max_steps=steps, dataloader_persistent_workers=kept, **changes)
        trainer.train(resume_from_checkpoint=kept)
    assert "dataloader_persistent_workers=True: resumed at the end of an epoch" in caplog.text


class TestOneTrainerTwice:
    def test_what_is_unfrozen_between_two_trainings_is_trained(self, model, tmp_path, caplog):
        """The host keeps the optimizer of the first training, which holds what was trained then."""
        model.requires_grad_(False)
        trainer = trainer_of(model, Probe(model), tmp_path)
        trainer.train()
        model.requires_grad_(True)
        before = {name: parameter.clone() for name, parameter in model.named_parameters()}
        with caplog.at_level("INFO"):
            trainer.train()
        assert "More weights are trained than in the training before: the optimizer begins anew." in caplog.text
        changed = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
        assert len(changed) > len(before) / 2

    def test_with_the_same_weights_the_optimizer_goes_on(self, model, tmp_path):
        trainer = trainer_of(model, Probe(model), tmp_path)
        trainer.train()
        first = trainer.optimizer.optimizer
        trainer.train()
        assert trainer.optimizer.optimizer is first

    def test_one_that_was_given_is_the_users(self, model, tmp_path):
        """It may leave parts of the encoder out."""
        loss = Probe(model)
        trainer = trainer_of(model, loss, tmp_path)
        trainer.optimizer = given = torch.optim.SGD([*loss.head.parameters(), *model[0].model.encoder.parameters()], lr=0.1)
        for _ in range(2):
            trainer.train()
        assert trainer.optimizer.optimizer is given

    def test_parts_that_are_named_are_the_users(self, model, tmp_path):
        """The host takes the parameters out of the user's keywords, and would take all the second time."""
        layers = list(model[0].model.encoder.parameters())
        trainer = training.SentenceTransformerTrainer(
            model=model,
            args=arguments(tmp_path),
            train_dataset=Dataset.from_dict({"anchor": SENTENCES * 2}),
            loss=Says(model, lambda number: number),
            optimizer_cls_and_kwargs=(torch.optim.AdamW, {"params": layers, "lr": 1e-3}),
        )
        before = model[0].model.embeddings.word_embeddings.weight.clone()
        for _ in range(2):
            trainer.train()
        assert torch.equal(model[0].model.embeddings.word_embeddings.weight, before)


class Unfreeze(transformers.TrainerCallback):
    """Unfreezes the encoder after its first update."""

    def __init__(self, model):
        self.model = model

    def on_step_end(self, args, state, control, **_):
        self.model.requires_grad_(True)


class TestUnfreezingInATraining:
    """The optimizer was made without these weights: they learned nothing, and took part in the norm that is clipped."""

    def trainer(self, model, folder, **keywords):
        model[0].model.embeddings.requires_grad_(False)
        rows = Dataset.from_dict({"anchor": SENTENCES * 2})
        return training.SentenceTransformerTrainer(
            model=model,
            args=arguments(folder, max_steps=3),
            train_dataset=rows,
            loss=Probe(model),
            callbacks=[Unfreeze(model)],
            **keywords,
        )

    def test_is_refused(self, model, tmp_path):
        with pytest.raises(ValueError, match="weights were unfrozen during the training, .* Train in two stages"):
            self.trainer(model, tmp_path).train()

    def test_is_the_users_with_an_optimizer_that_holds_them(self, model, tmp_path):
        loss = Probe(model)
        optimizer = torch.optim.SGD(loss.parameters(), lr=0.1)
        trainer = self.trainer(model, tmp_path, optimizers=(optimizer, None))
        trainer.loss = loss
        before = model[0].model.embeddings.word_embeddings.weight.detach().clone()
        trainer.train()
        assert not torch.equal(model[0].model.embeddings.word_embeddings.weight, before)


@pytest.mark.parametrize("kind", [training.SentenceTransformerTrainer, sentence_transformers.SentenceTransformerTrainer])
def test_processes_that_would_each_train_for_themselves_are_refused(model, tmp_path, monkeypatch, kind):
    """torchrun on CPUs without use_cpu: a group of two, of which the arguments know nothing."""
    loss = Probe(model)
    trainer = trainer_of(model, loss, tmp_path, trainer_class=kind, callbacks=[training.LossStateCallback(loss)])
    monkeypatch.setattr(training.loss_state, "get_world_size", lambda: 2)
    with pytest.raises(ValueError, match="must be of all 2 processes, got 1 .* use_cpu=True"):
        trainer.train()


class LookAside(transformers.TrainerCallback):
    """Computes the loss by hand after each update, in eval mode, as people do to look at other data."""

    def __init__(self, loss):
        self.loss = loss

    def on_step_end(self, args, state, control, **_):
        self.loss.eval()
        with torch.no_grad():
            self.loss([self.loss.model.preprocess(SENTENCES)])


def test_a_look_aside_leaves_no_module_in_eval_mode(model, tmp_path):
    loss = Probe(model)
    trainer_of(model, loss, tmp_path, callbacks=[LookAside(loss)], max_steps=3).train()
    assert loss.modes[::2] == [(True, True, True)] * 3  # those of the updates
    assert loss.modes[1::2] == [(False, False, False)] * 3


class GradientsBeforeStep(transformers.TrainerCallback):
    def __init__(self, loss):
        self.loss = loss
        self.norms = []

    def on_pre_optimizer_step(self, args, state, control, **_):
        gradients = [p.grad.norm() for p in self.loss.parameters() if p.grad is not None]
        self.norms.append(torch.stack(gradients).norm().item())


class TestClipping:
    @pytest.mark.parametrize(
        "trainer_class", [training.SentenceTransformerTrainer, sentence_transformers.SentenceTransformerTrainer]
    )
    def test_joint_norm(self, model, tmp_path, trainer_class):
        """Ours clips encoder and loss together to 1.0; the host leaves the loss out."""
        loss = Probe(model, scale=100.0)
        watch = GradientsBeforeStep(loss)
        trainer_of(model, loss, tmp_path, trainer_class=trainer_class, callbacks=[watch], max_grad_norm=1.0).train()
        joint = all(norm == pytest.approx(1.0, rel=1e-4) for norm in watch.norms)
        assert joint == (trainer_class is training.SentenceTransformerTrainer)

    @pytest.mark.parametrize("max_grad_norm", [0.0, 1e9])
    def test_logged_norm_is_the_joint_one(self, model, tmp_path, max_grad_norm):
        loss = Probe(model)
        watch = GradientsBeforeStep(loss)
        trainer = trainer_of(model, loss, tmp_path, callbacks=[watch], max_grad_norm=max_grad_norm)
        trainer.train()
        logged = [entry["grad_norm"] for entry in trainer.state.log_history if "grad_norm" in entry]
        assert logged == pytest.approx(watch.norms, rel=1e-5)


def test_modes_follow_the_model(model, tmp_path):
    """The head arrives in eval mode, as a decoder from_pretrained does."""
    loss = Probe(model)
    dataset = Dataset.from_dict({"anchor": SENTENCES})
    trainer = trainer_of(model, loss, tmp_path, eval_dataset=dataset, eval_strategy="steps", eval_steps=2)
    trainer.train()
    assert set(loss.modes) == {(True, True, True), (False, False, False)}


def test_a_momentum_copy_is_not_the_model(model, tmp_path):
    """What is no part of the model follows it too, whatever it is called."""
    loss = Probe(model)
    loss.momentum_encoder = nn.Sequential(nn.Dropout(0.5)).eval()
    trainer_of(model, loss, tmp_path, max_steps=1).train()
    assert loss.momentum_encoder[0].training


def test_a_guide_keeps_its_own_mode(model, tiny_encoder, tmp_path):
    """A frozen teacher inside the loss is not made to drop out."""
    guide = tiny_encoder()
    loss = GISTEmbedLoss(model, guide.eval())
    pairs = Dataset.from_dict({"anchor": SENTENCES, "positive": SENTENCES})
    trainer_of(model, loss, tmp_path, dataset=pairs, max_steps=1).train()
    assert loss.guide is guide
    assert not any(module.training for module in guide.modules())
    assert model.training


def test_diagnostics_stand_beside_the_terms(model, tmp_path):
    """Averaged over the steps that had them, not summed into the loss."""
    trainer = trainer_of(model, Probe(model), tmp_path, max_steps=6, logging_steps=3)
    trainer.train()
    first, second = (entry for entry in trainer.state.log_history if "loss" in entry)
    assert (first["calls"], second["calls"]) == (2.0, 5.0)  # calls 1, 3 and call 5
    assert first["loss"] == pytest.approx(first["probe"], abs=1e-4)


class Judges(nn.Module):
    """Has a number to say of every other batch, of the others none, and of nothing else any."""

    def __init__(self, model):
        super().__init__()
        self.model, self.calls, self.diagnostics = model, 0, {}

    def forward(self, features, labels=None):
        self.calls += 1
        found = float(self.calls) if self.calls % 2 else math.nan
        self.diagnostics = {"found": torch.tensor(found), "never": torch.tensor(math.nan), "always": torch.tensor(math.inf)}
        return {"term": self.model(dict(features[0]))["sentence_embedding"].sum() * 0 + 1.0}


@pytest.mark.parametrize("several", [False, True])
def test_a_batch_with_nothing_to_judge_counts_for_nothing(model, tmp_path, several):
    """A share of nothing is not a number; what no batch has a value of is not logged."""
    loss, rows = Judges(model), Dataset.from_dict({"anchor": SENTENCES})
    loss, rows, name = ({"x": loss}, DatasetDict(x=rows), "x/") if several else (loss, rows, "")
    trainer = trainer_of(model, loss, tmp_path, rows, max_steps=6, logging_steps=3)
    trainer.train()
    first, second = (entry for entry in trainer.state.log_history if "loss" in entry)
    assert (first[f"{name}found"], second[f"{name}found"]) == (2.0, 5.0)  # calls 1, 3 and call 5
    assert f"{name}never" not in {*first, *second}
    assert first[f"{name}always"] is None  # json has no infinity


class Says(nn.Module):
    """A loss whose value and diagnostics are what a function makes of a number with a gradient."""

    def __init__(self, model, value, diagnostics=None):
        super().__init__()
        self.model, self.value, self.diagnostics = model, value, diagnostics or {}

    def forward(self, features, labels=None):
        return self.value(self.model(dict(features[0]))["sentence_embedding"].pow(2).mean())


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda number: None, r"Says.forward must return a scalar tensor, .* got None\."),
        (lambda number: number.item(), r"Says.forward must return a scalar tensor, .* got \d"),
        (lambda number: number.expand(3), r"got a tensor of shape \(3,\)\."),
        (lambda number: {"a": number, "b": 1.0}, r"got 1.0 under 'b'\."),
        (lambda number: number.detach(), r"Says.forward must return a number with a gradient"),
        (lambda number: {"a": number.detach()}, r"Says.forward must return a number with a gradient"),
    ],
)
@pytest.mark.parametrize("as_dict", [False, True])
def test_a_loss_that_cannot_be_trained_by_is_named(model, tmp_path, value, message, as_dict):
    loss, rows = Says(model, value), Dataset.from_dict({"anchor": SENTENCES * 2})
    with pytest.raises(ValueError, match=message):
        trainer_of(model, {"x": loss} if as_dict else loss, tmp_path, DatasetDict(x=rows) if as_dict else rows).train()


@pytest.mark.parametrize(
    ("diagnostics", "message"),
    [
        ({"loss": torch.tensor(1.0)}, r"got 'loss', which the log has for another number"),
        ({"grad_norm": torch.tensor(1.0)}, r"got 'grad_norm', which the log has for another number"),
        ({"a": torch.tensor(1.0)}, r"got 'a', which both have"),
        ({"b": torch.ones(3)}, r"diagnostics of Says must be numbers, got a tensor of shape \(3,\), torch.float32 under 'b'"),
        ({"b": None}, r"diagnostics of Says must be numbers, got None under 'b'"),
        ({"b": "high"}, r"diagnostics of Says must be numbers, got 'high' under 'b'"),
        ({"steps": 1.0}, r"got 'steps', which the log has for another number"),
    ],
)
def test_diagnostics_that_cannot_be_logged_are_named(model, tmp_path, diagnostics, message):
    with pytest.raises(ValueError, match=message):
        trainer_of(model, Says(model, lambda number: {"a": number}, diagnostics), tmp_path).train()


def test_a_term_is_not_called_as_the_loss_is(model, tmp_path):
    with pytest.raises(ValueError, match=r"of Says must have names of their own, got 'loss', which the log has"):
        trainer_of(model, Says(model, lambda number: {"loss": number}), tmp_path).train()
    rows = DatasetDict(x=Dataset.from_dict({"anchor": SENTENCES * 2}))
    trainer = trainer_of(model, {"x": Says(model, lambda number: {"loss": number})}, tmp_path, rows)
    trainer.train()
    assert trainer.state.log_history[0]["x/loss"] == pytest.approx(trainer.state.log_history[0]["loss"], abs=1e-3)
    with pytest.raises(ValueError, match=r"got 'a', which both have"):  # of one dataset of several, too
        trainer_of(model, {"x": Says(model, lambda number: {"a": number}, {"a": 1.0})}, tmp_path, rows).train()


def test_a_frozen_encoder_is_told_from_a_loss_without_gradient(model, tmp_path):
    model.requires_grad_(False)
    with pytest.raises(ValueError, match=r"got one without: the encoder is frozen, set requires_grad"):
        trainer_of(model, Says(model, lambda number: number), tmp_path).train()


def test_a_diagnostic_may_be_a_plain_number(model, tmp_path):
    trainer = trainer_of(model, Says(model, lambda number: number, {"b": 0.5}), tmp_path)
    trainer.train()
    assert [entry["b"] for entry in trainer.state.log_history if "loss" in entry] == [0.5] * 4


def test_diagnostics_of_evaluation(model, tmp_path):
    dataset = Dataset.from_dict({"anchor": SENTENCES})
    trainer = trainer_of(model, Probe(model), tmp_path, eval_dataset=dataset, eval_strategy="steps", eval_steps=4)
    trainer.train()
    assert any("eval_calls" in entry for entry in trainer.state.log_history)


class Rows(nn.Module):
    """A term and a diagnostic that are the number of a batch's rows."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.diagnostics = {}

    def forward(self, features, labels=None):
        vectors = self.model(dict(features[0]))["sentence_embedding"]
        self.diagnostics = {"rows": float(len(vectors))}
        return {"term": vectors.sum() * 0 + len(vectors)}


@pytest.mark.parametrize("as_dict", [False, True])
def test_terms_of_an_evaluation_are_means_over_rows_as_its_loss_is(model, tmp_path, as_dict):
    """Of five rows in batches of four: (4 x 4 + 1 x 1) / 5."""
    loss, rows, few = Rows(model), Dataset.from_dict({"anchor": SENTENCES * 2}), Dataset.from_dict({"anchor": SENTENCES[:5]})
    name = "x_" if as_dict else ""
    loss, rows, few = ({"x": loss}, DatasetDict(x=rows), DatasetDict(x=few)) if as_dict else (loss, rows, few)
    trainer = trainer_of(model, loss, tmp_path, rows, eval_dataset=few, per_device_eval_batch_size=4)
    metrics = trainer.evaluate()
    logged = {key: value for entry in trainer.state.log_history for key, value in entry.items()}
    assert metrics[f"eval_{name}loss"] == pytest.approx(17 / 5)
    keys = ("eval_x/term", "eval_x/rows") if as_dict else ("eval_term", "eval_rows")
    assert [logged[key] for key in keys] == pytest.approx([17 / 5] * 2)


class Sometimes(nn.Module):
    """A term in half precision that is not finite in the second batch."""

    def __init__(self, model, bad):
        super().__init__()
        self.model, self.bad, self.calls = model, bad, 0

    def forward(self, features, labels=None):
        self.calls += 1
        vectors = self.model(dict(features[0]))["sentence_embedding"]
        return {"term": (vectors.sum() * 0 + (self.bad if self.calls == 2 else 30000.0)).half()}


@pytest.mark.parametrize("bad", [30000.0, float("nan")])
def test_a_term_of_an_evaluation_in_half_precision_and_one_that_is_no_number(model, tmp_path, bad):
    """Four times 30,000 is beyond float16; what is no number is the mean of the others, as in the host's log."""
    few = Dataset.from_dict({"anchor": SENTENCES[:3] * 4})
    trainer = trainer_of(model, Sometimes(model, bad), tmp_path, eval_dataset=few, per_device_eval_batch_size=4)
    trainer.evaluate()
    logged = {key: value for entry in trainer.state.log_history for key, value in entry.items()}
    assert logged["eval_term"] == pytest.approx(30000, rel=1e-3)


class OutOfMemoryOnce(Probe):
    """Fails once, in the second micro-batch, as a batch that is too large does."""

    failed = False

    def forward(self, features, labels=None):
        if self.calls == 1 and not self.failed:
            self.failed = True
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")
        return super().forward(features, labels)


def test_what_ran_out_of_memory_is_not_in_the_log(model, tmp_path):
    changes = {"auto_find_batch_size": True, "gradient_accumulation_steps": 2, "max_steps": 1}
    trainer = trainer_of(model, OutOfMemoryOnce(model), tmp_path, **changes)
    trainer.train()
    entry = trainer.state.log_history[0]
    assert entry["probe"] == pytest.approx(entry["loss"], abs=1e-3)


def test_noise_on_word_embeddings_is_refused_in_words(model, tmp_path):
    with pytest.raises(ValueError, match=r"neftune_noise_alpha must be None, got 5.0: the host looks for the word"):
        trainer_of(model, Probe(model), tmp_path, neftune_noise_alpha=5.0).train()


class Drawing(BaseEvaluator):
    """An evaluator that draws from every generator, as one that takes a sample does."""

    def __call__(self, model, output_path=None, epoch=-1, steps=-1):
        return {"drawn": random.random() + np.random.rand() + torch.rand(1).item()}  # noqa: NPY002  as others draw


@pytest.mark.parametrize("dataset", [None, Dataset.from_dict({"anchor": SENTENCES})], ids=["evaluator", "evaluator and loss"])
def test_an_evaluation_changes_no_update(tiny_encoder, tmp_path, dataset):
    """Of any frequency: dropout, masks and the order of the rows are those of a training without one."""

    def losses_logged(**changes):
        transformers.set_seed(0)
        model = tiny_encoder()
        columns = Dataset.from_dict({"anchor": SENTENCES})
        trainer = trainer_of(model, losses.ArcCSELoss(model), tmp_path, columns, num_train_epochs=2, max_steps=-1, **changes)
        trainer.train()
        return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]

    never = losses_logged()
    assert len(set(never)) > 3
    for steps in (1, 3):
        evaluated = {"evaluator": Drawing(), "eval_dataset": dataset, "eval_strategy": "steps", "eval_steps": steps}
        assert losses_logged(**evaluated) == never


def test_a_prediction_changes_no_update(tiny_encoder, tmp_path):
    """Of a callback that looks at other data in the middle of a training."""

    class Looking(transformers.TrainerCallback):
        def on_step_end(self, *args, **kwargs):
            self.trainer.predict(Dataset.from_dict({"anchor": SENTENCES}))

    def losses_logged(*callbacks):
        transformers.set_seed(0)
        model = tiny_encoder()
        columns = Dataset.from_dict({"anchor": SENTENCES})
        trainer = trainer_of(model, losses.ArcCSELoss(model), tmp_path, columns, callbacks=[*callbacks])
        for callback in callbacks:
            callback.trainer = trainer
        trainer.train()
        return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]

    never = losses_logged()
    assert len(set(never)) > 3
    assert losses_logged(Looking()) == never


def test_an_evaluation_draws_the_same_views_each_time(tiny_encoder, tmp_path):
    """Weights that do not change have one loss, by which no checkpoint is better than another."""
    model = tiny_encoder("bert", "mean")
    columns = Dataset.from_dict({"anchor": SENTENCES})
    evaluated = {"eval_dataset": columns, "eval_strategy": "steps", "eval_steps": 1, "learning_rate": 0.0}
    trainer = trainer_of(model, losses.ConSERTLoss(model), tmp_path, columns, **evaluated)
    trainer.train()
    values = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
    assert len(values) > 3
    assert len({*values, trainer.evaluate()["eval_loss"]}) == 1
    trainer.args.seed += 1
    assert trainer.evaluate()["eval_loss"] != values[0]


@pytest.mark.parametrize("method", ["paser", "bag of words"])
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_an_evaluation_in_half_precision_rounds_no_weight(tiny_encoder, tmp_path, dtype, method):
    """Neither of the encoder nor of a head that follows its dtype."""
    model = tiny_encoder("bert", "mean")
    build, rows_of = METHODS[method][:2]
    loss, rows = build(model), rows_of(8)
    trainer = trainer_of(model, loss, tmp_path, rows, eval_dataset=rows)
    before, exact = copy.deepcopy(loss.state_dict()), trainer.evaluate()["eval_loss"]
    setattr(trainer.args, f"{dtype}_full_eval", True)
    half = trainer.evaluate()["eval_loss"]
    assert half != exact
    assert half == pytest.approx(exact, rel=0.2)
    for name, tensor in loss.state_dict().items():
        torch.testing.assert_close(tensor, before[name], rtol=0, atol=0)


def test_a_dict_of_losses(model, tmp_path):
    both = DatasetDict({name: Dataset.from_dict({"anchor": SENTENCES}) for name in ("a", "b")})
    loss = {"a": losses.ArcCSELoss(model, triplet_margin=0.5), "b": Probe(model)}
    trainer = trainer_of(model, loss, tmp_path, dataset=both, save_strategy="steps", save_steps=4)
    trainer.train()
    logged = set().union(*trainer.state.log_history)
    assert {"a/arccon", "b/probe", "a/triplet_gap", "b/calls"} <= logged
    assert not {"arccon", "probe"} & logged
    saved = json.loads((tmp_path / "checkpoint-4" / "loss_state.json").read_text())["losses"]
    assert {name: entry["class"] for name, entry in saved.items()} == {"a": "ArcCSELoss", "b": "Probe"}
    before = {name: member.head.state_dict() for name, member in loss.items()}
    with torch.no_grad():
        for member in loss.values():
            for parameter in member.head.parameters():
                parameter.zero_()
    training.load_loss_state(loss, model, tmp_path / "checkpoint-4")
    assert all(torch.equal(v, before[name][k]) for name, member in loss.items() for k, v in member.head.state_dict().items())


class Constant(nn.Module):
    """One term, of a value that is known."""

    def __init__(self, model, value):
        super().__init__()
        self.model, self.value = model, value

    def forward(self, features, labels=None):
        (vectors,) = (self.model(one)["sentence_embedding"] for one in features)
        return {"term": vectors.sum() * 0 + self.value}


@pytest.mark.parametrize("kind", ["train", "eval"])
def test_terms_of_a_dict_of_losses_are_means_over_their_own_batches(model, tmp_path, kind):
    """Of one name and of datasets of other lengths: neither mixed, nor divided by the batches of all."""
    sizes = {"a": len(SENTENCES), "b": len(SENTENCES) // 2}
    both = DatasetDict({name: Dataset.from_dict({"anchor": SENTENCES[:size]}) for name, size in sizes.items()})
    loss = {"a": Constant(model, 1.0), "b": Constant(model, 3.0)}
    evaluating = {"eval_dataset": both, "eval_strategy": "epoch"} if kind == "eval" else {}
    trainer = trainer_of(model, loss, tmp_path, both, max_steps=-1, num_train_epochs=1, logging_strategy="epoch", **evaluating)
    trainer.train()
    prefix = "eval_" if kind == "eval" else ""
    logged = {key: value for entry in trainer.state.log_history for key, value in entry.items()}
    assert (logged[f"{prefix}a/term"], logged[f"{prefix}b/term"]) == (1.0, 3.0)
    assert not [key for key in logged if key.endswith("term") and "/" not in key]


def test_the_best_checkpoint_brings_its_loss_state(model, tmp_path):
    class Scripted(BaseEvaluator):
        """Prefers the second of four evaluations."""

        def __init__(self):
            super().__init__()
            self.primary_metric = "score"
            self.scores = iter([0.2, 0.9, 0.5, 0.1])

        def __call__(self, model, output_path=None, epoch=-1, steps=-1):
            return {"score": next(self.scores)}

    loss = losses.ArcCSELoss(model)
    trainer = trainer_of(
        model,
        loss,
        tmp_path,
        evaluator=Scripted(),
        max_steps=8,
        eval_strategy="steps",
        eval_steps=2,
        save_strategy="steps",
        save_steps=2,
        load_best_model_at_end=True,
        metric_for_best_model="eval_score",
    )
    trainer.train()
    assert trainer.state.best_model_checkpoint == str(tmp_path / "checkpoint-4")
    current = loss.head.linear.weight.detach().clone()
    training.load_loss_state(loss, model, tmp_path / "checkpoint-4")
    assert torch.equal(current, loss.head.linear.weight)
    training.load_loss_state(loss, model, tmp_path / "checkpoint-8")
    assert not torch.equal(current, loss.head.linear.weight)


@pytest.mark.parametrize("restores", [False, True])
def test_patience_that_counts_from_zero_is_told(restores, encoder_path, tmp_path, caplog):
    class Same(BaseEvaluator):
        primary_metric = "score"

        def __call__(self, model, output_path=None, epoch=-1, steps=-1):
            return {"score": 0.5}

    def train(steps, resume=None):
        model = sentence_transformers.SentenceTransformer(encoder_path, device="cpu")
        trainer = trainer_of(
            model,
            losses.ArcCSELoss(model),
            tmp_path,
            evaluator=Same(),
            callbacks=[EarlyStoppingCallback(2)],
            max_steps=steps,
            eval_strategy="steps",
            eval_steps=1,
            save_strategy="steps",
            save_steps=1,
            metric_for_best_model="eval_score",
            restore_callback_states_from_checkpoint=restores,
        )
        trainer.train(resume)
        return trainer.state.global_step

    train(2)
    assert "counts from zero" not in caplog.text
    assert train(9, str(tmp_path / "checkpoint-2")) == (3 if restores else 4)  # the first evaluation is the best
    assert ("EarlyStoppingCallback counts from zero" in caplog.text) is not restores


def test_a_lost_best_loss_state_does_not_lose_the_training(model, tmp_path, caplog):
    class Lose(transformers.TrainerCallback):
        def on_save(self, args, state, control, **_):
            (tmp_path / f"checkpoint-{state.global_step}" / "loss_state.json").unlink()

    dataset = Dataset.from_dict({"anchor": SENTENCES})
    trainer = trainer_of(
        model,
        losses.ArcCSELoss(model),
        tmp_path,
        eval_dataset=dataset,
        eval_strategy="steps",
        eval_steps=2,
        save_strategy="steps",
        save_steps=2,
        load_best_model_at_end=True,
        callbacks=[Lose()],
    )
    with caplog.at_level("ERROR"):
        trainer.train()
    assert "the loss's own weights are the last ones" in caplog.text


def test_a_best_checkpoint_that_cannot_be_loaded_ends_in_an_error(model, tmp_path, monkeypatch):
    """The host logs it and goes on with the last weights: what was chosen would stand beside what is kept."""

    def never(*_):
        raise RuntimeError("out of memory")

    trainer = trainer_of(
        model,
        losses.ArcCSELoss(model),
        tmp_path,
        eval_dataset=Dataset.from_dict({"anchor": SENTENCES}),
        eval_strategy="steps",
        eval_steps=2,
        save_strategy="steps",
        save_steps=2,
        load_best_model_at_end=True,
    )
    with monkeypatch.context() as patched:
        patched.setattr(sentence_transformers.SentenceTransformerTrainer, "_load_from_checkpoint", never)
        with pytest.raises(OSError, match=r"best checkpoint, .*checkpoint-\d, could not be loaded .RuntimeError: out of m"):
            trainer.train()
    output = trainer.train(resume_from_checkpoint=True)  # as the message says
    assert output.global_step == trainer.args.max_steps


def test_what_is_pushed_is_no_checkpoint(model, tmp_path):
    """push_to_hub saves as a checkpoint does, without a folder."""
    trainer = trainer_of(model, losses.ArcCSELoss(model), tmp_path, max_steps=1)
    trainer.train()
    trainer.save_model(_internal_call=True)
    assert (tmp_path / "modules.json").is_file()
    assert not {file.name for file in tmp_path.iterdir()} & trainer.files_kept_here()


class TestChoiceByTestSet:
    class Scored(BaseEvaluator):
        def __init__(self, metric, test_sets):
            super().__init__()
            self.primary_metric = metric
            self.test_sets = test_sets

        def __call__(self, model, output_path=None, epoch=-1, steps=-1):
            metrics = {self.primary_metric: 0.5}
            self.store_metrics_in_model_card_data(model, metrics, epoch, steps)
            return metrics

    def evaluate(self, model, folder, metric, nested=False):
        evaluators = [self.Scored("dev", ()), self.Scored("avg7", ("STS12", "STS-B"))]
        trainer = trainer_of(
            model,
            losses.ArcCSELoss(model),
            folder,
            evaluator=JointEvaluator(evaluators, np.mean) if nested else evaluators,
            metric_for_best_model=metric,
        )
        return trainer.evaluate()

    @pytest.mark.parametrize("nested", [False, True])
    @pytest.mark.parametrize("metric", ["avg7", "eval_avg7", "eval_sequential_score"])
    def test_warns(self, model, tmp_path, metric, nested):
        with pytest.warns(UserWarning, match=r"is measured on test sets \(STS12, STS-B\): they choose the checkpoint"):
            assert self.evaluate(model, tmp_path, metric, nested)["eval_avg7"] == 0.5

    @pytest.mark.parametrize("metric", ["eval_dev", "eval_loss", None])
    def test_a_development_set_does_not(self, model, tmp_path, metric):
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="metric_for_best_model")
            self.evaluate(model, tmp_path, metric)

    def test_the_first_of_several_chooses(self, model, tmp_path):
        """The sequential score is the first's, whatever else is measured."""
        both = JointEvaluator([self.Scored("dev", ()), self.Scored("avg7", ("STS12",))])
        arguments = {"evaluator": both, "metric_for_best_model": "eval_sequential_score"}
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="metric_for_best_model")
            trainer_of(model, losses.ArcCSELoss(model), tmp_path, **arguments).evaluate()

    def test_the_lowest_of_the_one_that_makes_the_sequential_score(self, model, tmp_path):
        arguments = {"evaluator": JointEvaluator([Distances()]), "metric_for_best_model": "eval_sequential_score"}
        with pytest.raises(ValueError, match="is better the lower, and greater_is_better is True"):
            trainer_of(model, losses.ArcCSELoss(model), tmp_path, max_steps=1, **arguments).train()

    @pytest.mark.parametrize("metric", ["eval_x_low", "x_low"])
    def test_the_lowest_of_what_is_better_the_lower(self, model, tmp_path, metric):
        evaluator = Distances()
        loss = losses.ArcCSELoss(model)
        arguments = {"evaluator": evaluator, "metric_for_best_model": metric, "max_steps": 1}
        trainer = trainer_of(model, loss, tmp_path, **arguments)
        with pytest.raises(ValueError, match="is better the lower, and greater_is_better is True"):
            trainer.train()
        trainer_of(model, loss, tmp_path, **arguments, greater_is_better=False).train()


class Distances(EmbeddingEvaluator):
    """A metric that is better the lower, of sentences that a training changes."""

    def __init__(self):
        super().__init__("low", name="x", write_csv=False)
        self.greater_is_better = False

    def compute(self, encode):
        first = encode(SENTENCES)[0]
        return {"low": first.norm(), "first": first[0]}


@pytest.mark.parametrize("save_steps", [2, 4, None])
def test_the_card_has_the_scores_of_what_is_saved(model, tmp_path, save_steps):
    """The host leaves those of the last evaluation, whatever checkpoint is loaded at the end; the best may have none."""
    evaluator = Distances()
    evaluator(model)  # of the start, which is not saved
    saved = {"save_strategy": "steps", "save_steps": save_steps, "load_best_model_at_end": True} if save_steps else {}
    chosen = {"metric_for_best_model": "eval_x_first", "greater_is_better": True} if save_steps else {}
    arguments = {"max_steps": 6, "eval_strategy": "steps", "eval_steps": 2, "learning_rate": 1e-3}
    trainer = trainer_of(model, losses.ArcCSELoss(model), tmp_path, evaluator=evaluator, **arguments, **saved, **chosen)
    trainer.train()
    found = dict(model.model_card_data.eval_results_dict)
    assert found[evaluator] == pytest.approx(Distances()(model), abs=1e-5)


@pytest.mark.slow
class TestResume:
    def test_a_checkpoint_that_is_written_again_is_torn_meanwhile(self, encoder_path, tmp_path, monkeypatch):
        """Its files have the sizes of the old list, but not its step."""
        training_runs.run(str(tmp_path), encoder=encoder_path)
        checkpoint = tmp_path / "checkpoint-2"
        assert why_incomplete(checkpoint) is None

        def die(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(training.SentenceTransformerTrainer, "_save_optimizer_and_scheduler", die)
        with pytest.raises(KeyboardInterrupt):
            training_runs.run(str(tmp_path), encoder=encoder_path)
        assert f"{COMPLETE_FILE} is missing" in why_incomplete(checkpoint)

    @pytest.fixture(scope="class")
    @classmethod
    def whole(cls, encoder_path, tmp_path_factory):
        folder = tmp_path_factory.mktemp("whole")
        training_runs.run(str(folder), encoder=encoder_path)
        return folder

    @pytest.fixture
    def run(self, whole, encoder_path, tmp_path):
        shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
        return tmp_path, {"encoder": encoder_path}

    def test_takes_the_newest_complete_one(self, run, caplog):
        folder, arguments = run
        (folder / "checkpoint-6" / COMPLETE_FILE).unlink()
        (folder / "checkpoint-4" / "optimizer.pt").write_bytes(b"cut")
        with caplog.at_level("WARNING"):
            trainer = training_runs.run(str(folder), resume=True, **arguments)
        assert "checkpoint-6 is passed over" in caplog.text
        assert "checkpoint-4 is passed over: optimizer.pt has 3 bytes" in caplog.text
        assert [entry["step"] for entry in trainer.state.log_history if "loss" in entry] == [1, 2, 3, 4, 5, 6]
        assert why_incomplete(folder / "checkpoint-6") is None  # written again

    def test_none_is_complete(self, run):
        folder, arguments = run
        for step in (2, 4, 6):
            (folder / f"checkpoint-{step}" / COMPLETE_FILE).unlink()
        with pytest.raises(ValueError, match="needs a complete checkpoint .* got none"):
            training_runs.run(str(folder), resume=True, **arguments)

    @pytest.mark.parametrize("name", [COMPLETE_FILE, STATE_FILE, "optimizer.pt", "loss_state.safetensors"])
    def test_a_torn_one_by_path(self, run, name):
        folder, arguments = run
        checkpoint = folder / "checkpoint-4"
        (checkpoint / name).write_bytes((checkpoint / name).read_bytes()[:-7])
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        with pytest.raises(ValueError, match=f"checkpoint-4 is not a complete checkpoint: {name}"):
            training_runs.run(str(folder), resume=str(checkpoint), **arguments)
        assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    @pytest.mark.parametrize("name", ["model.safetensors", "loss_state.safetensors", "optimizer.pt"])
    @pytest.mark.parametrize("place", [12, -5])
    def test_a_flipped_bit(self, run, caplog, name, place):
        """In the header or in the body, of the same size as ever."""
        folder, arguments = run
        file = folder / "checkpoint-6" / name
        content = bytearray(file.read_bytes())
        content[place] ^= 1
        file.write_bytes(content)
        with pytest.raises(ValueError, match=f"checkpoint-6 is not a complete checkpoint: {name} does not hold the bytes"):
            training_runs.run(str(folder), resume=str(folder / "checkpoint-6"), **arguments)
        with caplog.at_level("WARNING"):
            training_runs.run(str(folder), resume=True, steps=5, **arguments)
        passed_over = [record for record in caplog.records if "is passed over" in record.message]
        assert [record.message for record in passed_over] == [
            f"{folder / 'checkpoint-6'} is passed over: {name} does not hold the bytes that were written."
        ]

    def test_one_of_the_hosts_trainer(self, encoder_path, tmp_path):
        training_runs.run(str(tmp_path), encoder=encoder_path, trainer_class=sentence_transformers.SentenceTransformerTrainer)
        with pytest.raises(ValueError, match=r"loss_state.json does not exist, but ArcCSELoss owns weights"):
            training_runs.run(str(tmp_path), encoder=encoder_path, resume=str(tmp_path / "checkpoint-4"))

    def test_the_error_comes_before_anything_is_loaded(self, run, model):
        """The encoder in memory is still the one that was given."""
        folder, _ = run
        shutil.copy(folder / "checkpoint-4" / "loss_state.json", folder / "checkpoint-4" / "backup.json")
        loss = losses.ArcCSELoss(model, projection_head=False)
        before = {name: parameter.clone() for name, parameter in model.named_parameters()}
        for keywords, message in (
            ({}, r"projection_head True \(now False\)"),
            ({"allow_changed_settings": True}, "also holds head.linear"),
        ):
            with pytest.raises(ValueError, match=message):
                trainer_of(model, loss, folder).train(str(folder / "checkpoint-4"), **keywords)
        assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())

    def test_a_folder_named_by_hand(self, run):
        folder, arguments = run
        shutil.move(folder / "checkpoint-6", folder / "checkpoint-best")
        trainer = training_runs.run(str(folder), resume=True, **arguments)
        assert trainer.state.global_step == 6

    def test_older_checkpoints_go_after_the_new_one_is_whole(self, encoder_path, tmp_path, monkeypatch):
        """With save_total_limit=1 a kill at any moment leaves a whole checkpoint."""
        states = []
        rotate = transformers.trainer.rotate_checkpoints

        def watch(output_dir, **keywords):
            states.append({path.name: why_incomplete(path) for path in tmp_path.glob("checkpoint-*")})
            return rotate(output_dir=output_dir, **keywords)

        monkeypatch.setattr(transformers.trainer, "rotate_checkpoints", watch)
        training_runs.run(str(tmp_path), encoder=encoder_path, save_total_limit=1)
        assert [set(state) for state in states] == [
            {"checkpoint-2"}, {"checkpoint-2", "checkpoint-4"}, {"checkpoint-4", "checkpoint-6"},
        ]  # fmt: skip
        assert all(reason is None for state in states for reason in state.values())

    def test_model_init(self, run, tiny_encoder):
        """The host puts the second model into the first one's loss."""
        folder, _ = run
        with pytest.raises(
            ValueError, match=r"model_init must be None, got .*: the host puts .* over the trials and pass model"
        ):
            training.SentenceTransformerTrainer(
                model_init=lambda: tiny_encoder(),
                args=arguments(folder),
                train_dataset=Dataset.from_dict({"anchor": SENTENCES}),
                loss=losses.ArcCSELoss,
            )


@pytest.mark.slow
class TestOtherSettings:
    """A training that is resumed is the one that was interrupted, or says in what it is another."""

    def first(self, loss, model, folder, dataset=None):
        trainer_of(model, loss, folder, dataset, save_strategy="steps", save_steps=2).train()
        return str(folder / "checkpoint-2")

    @pytest.mark.parametrize(
        ("build", "old", "new", "changes"),
        [
            (losses.ArcCSELoss, {}, {"temperature": 0.1}, [r"temperature 0.05 \(now 0.1\)"]),
            (losses.PTBERTLoss, {}, {"momentum": 0.99, "queue_size": 8}, [r"queue_size 256 \(now 8\)", "momentum 0.885"]),
            (
                lambda model, weight: losses.WeightedSumLoss(model, {"a": (losses.ConSERTLoss(model), weight)}),
                {"weight": 1.0},
                {"weight": 0.5},
                [r"a.weight 1.0 \(now 0.5\)"],
            ),
            (
                lambda model, **keywords: losses.WeightedSumLoss(model, {"a": (losses.ConSERTLoss(model, **keywords), 1)}),
                {},
                {"first_view": ("dropout",)},
                [r"a.settings.first_view \['feature_cutoff'\] \(now \['dropout'\]\)"],
            ),
        ],
    )
    def test_refused_by_name(self, tiny_encoder, tmp_path, caplog, build, old, new, changes):
        model = tiny_encoder()
        checkpoint = self.first(build(model, **old), model, tmp_path)
        trainer_of(model, build(model, **old), tmp_path).train(checkpoint)
        for change in changes:
            with pytest.raises(ValueError, match=f"loss_state.json is of a training with .*{change}.*allow_changed_settings"):
                trainer_of(model, build(model, **new), tmp_path).train(checkpoint)
        if "queue_size" not in new:  # whose tensors have another shape
            trainer_of(model, build(model, **new), tmp_path).train(checkpoint, allow_changed_settings=True)
            assert "It goes on with the new settings" in caplog.text

    def test_of_a_dict_of_losses(self, model, tmp_path):
        both = DatasetDict({name: Dataset.from_dict({"anchor": SENTENCES}) for name in ("a", "b")})

        def build(temperature):
            return {"a": Probe(model), "b": losses.ArcCSELoss(model, temperature=temperature)}

        checkpoint = self.first(build(0.05), model, tmp_path, both)
        with pytest.raises(ValueError, match=r"b.temperature 0.05 \(now 0.2\)"):
            trainer_of(model, build(0.2), tmp_path, both).train(checkpoint)

    def test_number_of_processes(self, model, tmp_path):
        checkpoint = self.first(losses.ArcCSELoss(model), model, tmp_path)
        index = tmp_path / "checkpoint-2" / "loss_state.json"
        index.write_text(index.read_text().replace('"processes": 1', '"processes": 4'))
        mark_complete(checkpoint, 2)
        with pytest.raises(ValueError, match=r"processes 4 \(now 1\)"):
            trainer_of(model, losses.ArcCSELoss(model), tmp_path).train(checkpoint)

    def test_an_index_without_settings(self, model, tmp_path, caplog):
        """As earlier versions wrote it."""
        checkpoint = self.first(losses.ArcCSELoss(model), model, tmp_path)
        index = json.loads((tmp_path / "checkpoint-2" / "loss_state.json").read_text())
        del index["processes"], index["losses"][""]["settings"]
        (tmp_path / "checkpoint-2" / "loss_state.json").write_text(json.dumps(index | {"format": 1}))
        mark_complete(checkpoint, 2)
        trainer_of(model, losses.ArcCSELoss(model, temperature=0.1), tmp_path).train(checkpoint)
        assert "was written before settings were stored: they are not compared" in caplog.text


class TestRefusals:
    @pytest.mark.parametrize("balance", [0.3, None])
    def test_losses_that_would_wait_for_each_other(self, model, tmp_path, monkeypatch, balance):
        """Of several processes one may compute this loss while another computes that."""
        both = {"a": losses.ConSERTLoss(model), "b": losses.DenoSentLoss(model, token_weights=None, balance=balance)}
        rows = Dataset.from_dict({"anchor": SENTENCES})
        trainer = trainer_of(model, both, tmp_path, {"a": rows, "b": rows})
        monkeypatch.setattr(training.trainer, "get_world_size", lambda: 2)
        if balance is None:
            trainer._refuse_what_is_untested()
            return
        with pytest.raises(ValueError, match="the loss of 'b' talks to the other processes in its forward"):
            trainer.train()

    def test_data_parallel(self, model, tmp_path):
        trainer = trainer_of(model, losses.ArcCSELoss(model), tmp_path)
        trainer.args._n_gpu = 2
        with pytest.raises(ValueError, match="one process sees 2 GPUs .* start 2 processes with torchrun --nproc_per_node 2"):
            trainer.train()

    @pytest.mark.parametrize(("flag", "name"), [("is_fsdp_enabled", "FSDP"), ("is_deepspeed_enabled", "DeepSpeed")])
    def test_sharding(self, model, tmp_path, flag, name):
        trainer = trainer_of(model, losses.ArcCSELoss(model), tmp_path)
        setattr(trainer, flag, True)
        with pytest.raises(ValueError, match=f"{name} shards the encoder's parameters .* Use torchrun"):
            trainer.train()


@pytest.mark.parametrize("name", ["_clip_grad_norm", "_get_grad_norm"])
def test_a_host_without_them_is_refused(model, tmp_path, monkeypatch, name):
    """As transformers 5.0 to 5.2: nobody would call the override, and the loss would train unclipped."""
    monkeypatch.delattr(transformers.Trainer, name)
    with pytest.raises(ImportError, match=rf"needs transformers>=5.3 .* whose trainer has no {name}: .* pip install"):
        trainer_of(model, losses.ArcCSELoss(model), tmp_path)


def test_simcse_is_that_of_a_loop_written_by_hand(tiny_encoder, tmp_path):
    """Each sentence twice through ``MultipleNegativesRankingLoss``: nothing is added to what the rivals' rows stand for."""
    model, by_hand = tiny_encoder(), tiny_encoder()
    rows = Dataset.from_dict({"anchor": SENTENCES * 2, "positive": SENTENCES * 2})
    loss = MultipleNegativesRankingLoss(model, scale=20.0)
    trainer = trainer_of(model, loss, tmp_path, rows, seed=3)
    batches = trainer.get_train_dataloader()
    transformers.set_seed(3)
    trainer.train()

    transformers.set_seed(3)
    by_hand.train()
    optimizer = torch.optim.AdamW(by_hand.parameters(), lr=1e-3, weight_decay=0.0, fused=True)
    for step, batch in zip(range(4), batches, strict=False):
        optimizer.param_groups[0]["lr"] = 1e-3 * (4 - step) / 4
        views = [
            {key.removeprefix(name): batch[key] for key in batch if key.startswith(name)} for name in ("anchor_", "positive_")
        ]
        first, second = (nn.functional.normalize(by_hand(view)["sentence_embedding"], dim=1) for view in views)
        nn.functional.cross_entropy(20 * first @ second.T, torch.arange(len(first))).backward()
        nn.utils.clip_grad_norm_(by_hand.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    # Vectors, not weights: where a gradient is zero but for rounding (biases of keys), Adam makes steps of the rounding.
    trained, expected, untrained = (encoder.encode(SENTENCES) for encoder in (model, by_hand, tiny_encoder()))
    assert abs(trained - expected).max() < 1e-5
    assert abs(trained - untrained).max() > 1e-2


def test_an_interrupted_training_leaves_the_next_one_no_numbers(model, tmp_path, monkeypatch):
    """Two of its four updates were made in this process, and no log has taken them."""
    loss = Says(model, lambda number: {"a": number * 0 + 1}, {"b": 0.5})
    trainer = trainer_of(model, loss, tmp_path, logging_steps=4)
    step = trainer.training_step

    def interrupted(*arguments):
        if trainer.state.global_step == 2:
            raise KeyboardInterrupt
        return step(*arguments)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(trainer, "training_step", interrupted)
        trainer.train()
    loss.value, loss.diagnostics = lambda number: {"a": number * 0 + 3}, {"b": 2.0}
    trainer.train()
    assert (trainer.state.log_history[0]["a"], trainer.state.log_history[0]["b"]) == (3.0, 2.0)


def test_a_term_that_learned_in_one_training_may_be_dead_in_the_next(model, tmp_path, caplog):
    loss = Says(model, lambda number: {"a": number, "b": number})
    trainer = trainer_of(model, loss, tmp_path)
    trainer.train()
    assert "The term" not in caplog.text
    loss.value = lambda number: {"a": number, "b": number.detach()}
    trainer.train()
    assert "The term b had no gradient" in caplog.text


def test_a_term_that_was_small_at_first_was_not_0(model, tmp_path, caplog):
    """The log has four digits; the last batch alone says nothing."""
    sizes = iter([1e-6, 0.0, 0.0, 0.0])
    trainer_of(model, Says(model, lambda number: {"a": number, "b": number * 0 + next(sizes)}), tmp_path).train()
    assert "The term b was 0" not in caplog.text


def test_the_card_of_a_second_training_has_no_scores_of_the_first(model, tmp_path):
    evaluator, loss = Distances(), losses.ArcCSELoss(model)
    trainer_of(model, loss, tmp_path, evaluator=evaluator, eval_strategy="steps", eval_steps=4).train()
    trainer = trainer_of(model, loss, tmp_path, evaluator=Distances(), eval_strategy="steps", eval_steps=4)
    trainer.train()
    assert [*model.model_card_data.eval_results_dict] == [trainer.evaluator]
    trainer.args.eval_strategy = "no"
    trainer.train()
    assert model.model_card_data.eval_results_dict == {}


@pytest.mark.parametrize("greater_is_better", [False, True])
def test_the_card_has_the_last_scores_where_the_best_is_not_loaded(model, tmp_path, greater_is_better):
    evaluator = Distances()
    steps = {"max_steps": 6, "eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "save_steps": 2}
    chosen = {"metric_for_best_model": "eval_x_first", "greater_is_better": greater_is_better}
    trainer_of(model, losses.ArcCSELoss(model), tmp_path, evaluator=evaluator, **steps, **chosen).train()
    assert model.model_card_data.eval_results_dict[evaluator] == pytest.approx(Distances()(model), abs=1e-5)


def test_the_newest_of_an_earlier_training_is_named(tiny_encoder, tmp_path, caplog):
    for _ in range(2):
        model = tiny_encoder()
        trainer_of(model, Probe(model), tmp_path, save_strategy="steps", save_steps=2).train()
    assert "checkpoint-4 is of an earlier training" in caplog.text
    assert "checkpoint-2 is of an earlier training" not in caplog.text


def test_a_complex_diagnostic_is_named(model, tmp_path):
    with pytest.raises(ValueError, match=r"of Says must be numbers, got a tensor of shape \(\), torch.complex64 under 'b'"):
        trainer_of(model, Says(model, lambda number: {"a": number}, {"b": torch.tensor(1j)}), tmp_path).train()


def test_what_is_kept_here_is_what_a_checkpoint_has_beside_the_hosts(model, tmp_path):
    trainer = trainer_of(model, losses.ArcCSELoss(model), tmp_path, max_steps=1, save_strategy="steps", save_steps=1)
    trainer.train()
    names = {path.name for path in (tmp_path / "checkpoint-1").iterdir()}
    assert trainer.files_kept_here() == {name for name in names if name.startswith(("loss_state", "checkpoint_"))}
    assert len(trainer.files_kept_here()) == 3


def test_a_score_of_several_evaluators_is_not_that_of_the_first(model, tmp_path):
    """The first is better the lower; a mean of it with another goes where its maker says."""
    both = JointEvaluator([Distances(), TestChoiceByTestSet.Scored("dev", ())], np.mean)
    arguments = {"evaluator": both, "metric_for_best_model": "eval_sequential_score", "greater_is_better": True}
    trainer_of(model, losses.ArcCSELoss(model), tmp_path, max_steps=1, **arguments).train()


def test_one_loss_of_two_datasets_waits_for_nobody(model, tmp_path, monkeypatch):
    loss, rows = losses.DenoSentLoss(model, token_weights=None, balance=0.3), Dataset.from_dict({"anchor": SENTENCES})
    trainer = trainer_of(model, {"a": loss, "b": loss}, tmp_path, {"a": rows, "b": rows})
    monkeypatch.setattr(training.trainer, "get_world_size", lambda: 2)
    trainer._refuse_what_is_untested()
