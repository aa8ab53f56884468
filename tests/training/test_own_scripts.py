"""What a script of one's own may put together: teachers, optimizers, several evaluations, templates, one trainer twice."""

import copy
import json

import pytest
import sentence_transformers
import torch
from datasets import Dataset
from encoders import SENTENCES, project_counts
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss, MultipleNegativesRankingLoss
from test_trainer import Probe, arguments, trainer_of
from torch import nn

from sbert_plugins import losses, recipes, training
from sbert_plugins.encoder import apply_mask_template

BOTH = [sentence_transformers.SentenceTransformerTrainer, training.SentenceTransformerTrainer]


@pytest.fixture
def model(tiny_encoder):
    return tiny_encoder()


def rows(start=0, end=None):
    return Dataset.from_dict({"anchor": (SENTENCES * 4)[start:end]})


class Distillation(nn.Module):
    """Towards the vectors of a teacher, which is asked twice: without dropout it says the same."""

    def __init__(self, model, teacher):
        super().__init__()
        self.model, self.teacher, self.noise = model, teacher, []

    def forward(self, features, labels=None):
        given = {key: features[0][key] for key in ("input_ids", "attention_mask")}
        with torch.no_grad():
            first, second = (self.teacher(**given).last_hidden_state[:, 0] for _ in range(2))
        self.noise.append((first - second).abs().max().item())
        return (self.model(dict(features[0]))["sentence_embedding"] - first).pow(2).mean()


@pytest.mark.parametrize("trainer_class", BOTH)
def test_a_frozen_teacher_stays_as_it_is(model, tmp_path, trainer_class):
    teacher = copy.deepcopy(model[0].model).eval().requires_grad_(False)
    loss = Distillation(model, teacher)
    trainer_of(model, loss, tmp_path, trainer_class=trainer_class, eval_dataset=rows(0, 8), eval_strategy="epoch").train()
    assert set(loss.noise) == {0.0}
    assert not any(module.training for module in teacher.modules())


class TestWhatStandsRoundATeacher:
    """The loss, what it stands in, and a frozen part that nobody has put into eval mode follow the encoder."""

    class WithDropout(Distillation):
        def __init__(self, model, teacher):
            super().__init__(model, teacher)
            self.dropout, self.modes = nn.Dropout(0.5), []

        def forward(self, features, labels=None):
            self.modes.append((self.model.training, self.training, self.dropout.training, self.teacher.training))
            return super().forward(features) + 0 * self.dropout(torch.ones(1)).sum()

    @pytest.mark.parametrize("where", ["alone", "sum", "matryoshka"])
    def test_follows(self, model, tmp_path, where):
        loss = self.WithDropout(model, copy.deepcopy(model[0].model).eval().requires_grad_(False))
        whole = {
            "alone": lambda: loss,
            "sum": lambda: losses.WeightedSumLoss(model, {"a": (loss, 1.0)}),
            "matryoshka": lambda: MatryoshkaLoss(model, loss, [32]),
        }[where]()
        options = {"eval_dataset": rows(0, 8), "eval_strategy": "steps", "eval_steps": 2}
        trainer_of(model, whole, tmp_path, **options).train()
        training = (True, True, True, False)
        assert loss.modes == [training] * 2 + [(False,) * 4] + [training] * 2 + [(False,) * 4]

    def test_a_frozen_head_follows_in_a_second_training_too(self, model, tmp_path):
        loss = Probe(model)
        loss.head.train().requires_grad_(False)
        trainer = trainer_of(model, loss, tmp_path, eval_dataset=rows(0, 4), eval_strategy="steps", eval_steps=2, max_steps=2)
        for _ in range(2):
            trainer.train()
        assert loss.modes == [(True, True, True), (True, True, True), (False, False, False)] * 2

    def test_a_teacher_in_a_subclass(self, model):
        loss = losses.BagOfWordsLoss(model.train(), frequencies=project_counts(model.tokenizer))
        loss.teacher = copy.deepcopy(model[0].model).eval().requires_grad_(False)
        loss([model.preprocess(SENTENCES)])
        assert loss.decoder.training
        assert not loss.teacher.training

    def test_a_teacher_that_is_no_transformer_and_a_frozen_part_of_ours(self, model):
        loss = losses.BagOfWordsLoss(model.train(), frequencies=project_counts(model.tokenizer))
        loss.teacher = nn.Sequential(nn.Linear(2, 2), nn.Dropout()).eval().requires_grad_(False)
        loss.decoder.train().requires_grad_(False)
        modes = []
        for mode in (True, False, True):
            model.train(mode)
            loss([model.preprocess(SENTENCES)])
            modes.append((loss.decoder.training, loss.teacher.training))
        assert modes == [(True, False), (False, False), (True, False)]


class TestAnOptimizerOfOnesOwn:
    @staticmethod
    def trainer(model, tmp_path, parameters_of):
        loss = losses.ArcCSELoss(model, triplet_weight=0)
        optimizer = torch.optim.AdamW(parameters_of(loss), lr=1e-3)
        return loss, training.SentenceTransformerTrainer(
            model=model, args=arguments(tmp_path), train_dataset=rows(), loss=loss, optimizers=(optimizer, None)
        )

    def test_without_what_the_loss_owns_is_refused(self, model, tmp_path):
        _, trainer = self.trainer(model, tmp_path, lambda loss: loss.model.parameters())
        with pytest.raises(ValueError, match=r"holds none of 2 weights of the loss's own \(head\..*loss.parameters\(\)"):
            trainer.train()

    def test_over_all_trains_all(self, model, tmp_path):
        loss, trainer = self.trainer(model, tmp_path, lambda loss: loss.parameters())
        before = [parameter.detach().clone() for parameter in loss.head.parameters()]
        trainer.train()
        assert not any(torch.equal(old, new) for old, new in zip(before, loss.head.parameters(), strict=True))

    def test_what_is_frozen_may_be_left_out(self, model, tmp_path):
        loss, trainer = self.trainer(model, tmp_path, lambda loss: loss.model.parameters())
        loss.head.requires_grad_(False)
        trainer.train()


class TestEvaluations:
    """Each has the terms and diagnostics of its own data, which sum to its loss."""

    @pytest.fixture
    def trainer(self, model, tmp_path):
        loss = losses.DenoSentLoss(model, frequencies=project_counts(model.tokenizer))
        options = {"eval_dataset": {"a": rows(0, 4), "b": rows(4, 12)}, "eval_strategy": "steps", "eval_steps": 2}
        return trainer_of(model, loss, tmp_path, **options)

    @staticmethod
    def check(entry, prefix):
        terms = entry[f"{prefix}_contrastive"] + entry[f"{prefix}_denoising"]
        assert terms == pytest.approx(entry[f"{prefix}_loss"], abs=2e-4)
        assert 0 <= entry[f"{prefix}_token_accuracy"] <= 1
        keys = [key for key in entry if key.startswith(("eval", "test"))]
        assert all(key.startswith(f"{prefix}_") for key in keys)

    def test_of_several_datasets(self, trainer):
        trainer.train()
        for name in "ab":
            entries = [entry for entry in trainer.state.log_history if f"eval_{name}_loss" in entry]
            assert len(entries) == 2
            for entry in entries:
                self.check(entry, f"eval_{name}")

    def test_do_not_leave_anything_to_the_next(self, trainer):
        trainer.train()
        found = []
        for dataset, prefix in ((rows(0, 4), "eval"), (rows(4, 12), "test"), (rows(0, 4), "eval")):
            trainer.predict(rows(4, 12))  # logs nothing
            trainer.evaluate(dataset, metric_key_prefix=prefix)
            entry = trainer.state.log_history[-1]
            self.check(entry, prefix)
            found.append({key: value for key, value in entry.items() if "per_second" not in key and "runtime" not in key})
        assert found[0] == found[2]

    def test_of_a_loss_each(self, model, tmp_path):
        names = ("org/a", "b")
        loss = dict(zip(names, (losses.ArcCSELoss(model), Probe(model)), strict=True))
        trainer = trainer_of(
            model, loss, tmp_path, {name: rows() for name in names}, eval_dataset={name: rows(0, 4) for name in names}
        )
        trainer.evaluate()
        first, second = trainer.state.log_history
        assert first["eval_org/a/arccon"] + first["eval_org/a/triplet"] == pytest.approx(first["eval_org/a_loss"], abs=1e-4)
        assert second["eval_b/probe"] == pytest.approx(second["eval_b_loss"], abs=1e-4)


@pytest.mark.parametrize("build", [recipes.simcse_loss, MultipleNegativesRankingLoss], ids=["sum", "the host's"])
def test_a_saved_template_stays_a_template(model, tmp_path, build):
    apply_mask_template(model).save_pretrained(str(tmp_path / "model"))
    model = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    before = model[1].emb_layer.weight.detach().clone()
    trainer_of(model, build(model), tmp_path, Dataset.from_dict({"anchor": SENTENCES, "positive": SENTENCES[::-1]})).train()
    assert torch.equal(model[1].emb_layer.weight, before)


class TestTheCallback:
    def train(self, build, folder, seed, resume=None):
        model = build()
        torch.manual_seed(seed)
        loss = losses.ArcCSELoss(model)
        trainer = trainer_of(
            model,
            loss,
            folder,
            trainer_class=sentence_transformers.SentenceTransformerTrainer,
            callbacks=[training.LossStateCallback(loss)],
            save_strategy="steps",
            save_steps=2,
            seed=seed,
        )
        trainer.train(resume_from_checkpoint=resume)

    def test_refuses_another_training_s_state(self, tiny_encoder, tmp_path):
        self.train(tiny_encoder, tmp_path / "a", 1)
        self.train(tiny_encoder, tmp_path / "b", 2)
        with pytest.raises(ValueError, match=r"b/checkpoint-2 is not the checkpoint that the trainer resumes from"):
            self.train(tiny_encoder, tmp_path / "b", 1, resume=str(tmp_path / "a" / "checkpoint-2"))

    def test_is_not_needed_with_the_trainer(self, tiny_encoder, tmp_path):
        for folder, resume in (("a", None), ("b", str(tmp_path / "a" / "checkpoint-2"))):
            model = tiny_encoder()
            loss = losses.ArcCSELoss(model)
            callbacks, saving = (
                [training.LossStateCallback(loss) for _ in range(2)],
                {"save_strategy": "steps", "save_steps": 2},
            )
            trainer = trainer_of(model, loss, tmp_path / folder, callbacks=callbacks, **saving)
            trainer.train(resume_from_checkpoint=resume)
        assert json.loads((tmp_path / "b" / "checkpoint-4" / "loss_state.json").read_text())["losses"]


class TestIdleTerms:
    def test_a_term_too_small_for_the_log_did_something(self, model, tmp_path, caplog):
        trainer_of(model, Probe(model, scale=1e-9), tmp_path).train()
        assert "was 0 in all of the training" not in caplog.text

    def test_a_term_of_zero_did_not(self, model, tmp_path, caplog):
        trainer_of(model, Probe(model, scale=0.0), tmp_path).train()
        assert "The term probe was 0 in all of the training" in caplog.text

    def test_in_a_second_training_too(self, model, tmp_path, caplog):
        loss = Probe(model)
        trainer = trainer_of(model, loss, tmp_path)
        trainer.train()
        loss.scale = 0.0
        trainer.train()
        assert "The term probe was 0 in all of the training" in caplog.text


def test_a_triplet_that_is_switched_off_has_no_diagnostics(model):
    loss = losses.ArcCSELoss(model.train(), min_words=1)
    batch = model.preprocess(SENTENCES)
    loss([dict(batch)])
    assert "long_share" in loss.diagnostics
    loss.triplet_weight = 0
    loss([dict(batch)])
    assert loss.diagnostics == {}


class TestSettingABuiltLoss:
    """What a loss no longer reads would be shown, and change nothing."""

    @pytest.mark.parametrize(
        ("build", "name", "value"),
        [
            (losses.PTBERTLoss, "queue_size", 64),
            (losses.PTBERTLoss, "projection_head", False),
            (
                lambda model: losses.DenoSentLoss(model, frequencies=project_counts(model.tokenizer)),
                "reconstruct",
                "paraphrase",
            ),
            (lambda model: losses.DenoSentLoss(model, frequencies=project_counts(model.tokenizer)), "decoder_layers", 2),
            (lambda model: losses.ArcCSELoss(model, triplet_weight=0), "triplet_weight", 0.1),
        ],
    )
    def test_is_refused_where_it_would_not_be_read(self, model, build, name, value):
        loss = build(model)
        before = copy.deepcopy(loss.get_config_dict())
        with pytest.raises(
            AttributeError, match=rf"{name} decides how \w+ is built, which was with .*: build \w+\(model, {name}="
        ):
            setattr(loss, name, value)
        assert loss.get_config_dict() == before

    @pytest.mark.parametrize(("name", "value"), [("triplet_weight", 0), ("temperature", 0.1), ("margin_degrees", 5)])
    def test_is_shown_where_it_is_read(self, model, name, value):
        loss = copy.deepcopy(losses.ArcCSELoss(model))
        setattr(loss, name, value)
        assert loss.get_config_dict()[name] == value

    def test_what_it_is_anyway_may_be_set(self, model):
        class Mine(losses.PTBERTLoss):
            def __init__(self, model, queue_size=64):
                super().__init__(model, queue_size=queue_size)
                self.queue_size = queue_size

        assert Mine(model).get_config_dict()["queue_size"] == 64

    def test_a_weight_without_parts_may_rise(self, model):
        loss = losses.DenoSentLoss(model, frequencies=project_counts(model.tokenizer), contrastive_weight=0)
        loss.contrastive_weight = 0.5
        assert loss.get_config_dict()["contrastive_weight"] == 0.5

    def test_a_property_may_be_set(self, model):
        loss = losses.PTBERTLoss(model)
        loss.momentum = 0.5
        assert loss.get_config_dict()["momentum"] == loss.momentum_encoder.momentum == 0.5
