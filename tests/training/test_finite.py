import json
import math
from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset, DatasetDict
from encoders import LONG, SENTENCES, project_text
from sentence_transformers import SentenceTransformerTrainingArguments
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import nn

from sbert_plugins import cli, training
from sbert_plugins.training import finite
from sbert_plugins.training.checkpoints import why_incomplete
from sbert_plugins.training.finite import DivergedError, FiniteCheck, json_text, not_finite


class Breaks(nn.Module):
    """A loss of two terms, one of which becomes what is asked for in one batch."""

    def __init__(self, model, at=4, value=math.nan, where="term"):
        super().__init__()
        self.model = model
        self.head = nn.Linear(32, 32)
        self.at, self.value, self.where = at, value, where
        self.batches = 0

    def forward(self, features, labels=None):
        self.batches += self.model.training
        vectors = self.head(self.model(dict(features[0]))["sentence_embedding"])
        terms = {"good": vectors.pow(2).mean(), "bad": vectors.mean()}
        if self.batches == self.at and self.model.training:
            if self.where == "term":
                terms["bad"] = self.value * terms["bad"]
            else:  # a finite loss whose gradient is not: the root at 0
                terms["bad"] = (0 * vectors).abs().sum().sqrt()
        return terms


@pytest.fixture
def model(tiny_encoder):
    return tiny_encoder()


def trainer_of(model, loss, folder, dataset=None, **changes):
    defaults = {
        "max_steps": 6,
        "per_device_train_batch_size": 4,
        "logging_steps": 1,
        "learning_rate": 1e-3,
        "save_steps": 1,
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
    }
    options = {key: changes.pop(key) for key in ("evaluator", "sam_rho") if key in changes}
    return training.SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(str(folder), **(defaults | changes)),
        train_dataset=dataset or Dataset.from_dict({"anchor": [LONG, *SENTENCES]}),
        loss=loss,
        **options,
    )


def all_finite(folder):
    from safetensors.torch import load_file

    tensors = [tensor for file in folder.rglob("*.safetensors") for tensor in load_file(file).values()]
    return bool(tensors) and all(tensor.isfinite().all() for tensor in tensors)


class TestTraining:
    @pytest.mark.parametrize(
        ("keywords", "message"),
        [
            ({}, "update 4: bad is nan"),
            ({"value": -math.inf}, "update 4: bad is -?inf"),
            ({"where": "gradient"}, "update 4: the gradient norm is nan"),
        ],
    )
    def test_stops_with_update_term_texts_and_checkpoint(self, model, tmp_path, keywords, message):
        with pytest.raises(DivergedError, match=message) as caught:
            trainer_of(model, Breaks(model, **keywords), tmp_path).train()
        assert f"its last good checkpoint is {tmp_path / 'checkpoint-3'}." in str(caught.value)
        assert "in the batch that begins with '" in str(caught.value)
        assert "a lower learning_rate (now 0.001)" in str(caught.value)
        assert isinstance(caught.value, ValueError)  # one line of the command line
        assert "\n" not in str(caught.value)
        # On a CPU the bad update was not made, and nothing was written after the good ones.
        assert not not_finite(Breaks(model))
        assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-1", "checkpoint-2", "checkpoint-3"]
        assert why_incomplete(tmp_path / "checkpoint-3") is None
        assert all_finite(tmp_path)

    @pytest.mark.parametrize("where", ["encoder", "loss"])
    def test_does_not_begin_with_weights_that_are_not(self, model, tmp_path, where):
        loss = Breaks(model, at=100)
        of = {"encoder": model.transformers_model.get_input_embeddings().weight, "loss": loss.head.weight}
        with torch.no_grad():
            of[where][3] = math.nan
        with pytest.raises(
            ValueError, match=r"must begin with finite weights, got NaN or infinity in .*weight.*load the model anew"
        ):
            trainer_of(model, loss, tmp_path).train()
        assert not list(tmp_path.iterdir())

    def test_goes_on_from_a_checkpoint_over_weights_that_are_not(self, model, tmp_path):
        """As in a notebook, after a divergence that names the checkpoint as the way out."""
        loss = Breaks(model, at=100)
        trainer_of(model, loss, tmp_path).train()
        with torch.no_grad():
            loss.head.weight[0], model.transformers_model.get_input_embeddings().weight[3] = math.nan, math.nan
        trainer = trainer_of(model, loss, tmp_path)
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
        assert not not_finite(loss)

    def test_the_texts_are_those_of_the_batch(self, model, tmp_path):
        dataset = Dataset.from_dict({"anchor": [SENTENCES[0]] * 4})
        with pytest.raises(DivergedError) as caught:
            trainer_of(model, Breaks(model, at=1), tmp_path, dataset).train()
        begins = SENTENCES[0][:20].lower()
        assert str(caught.value).lower().count(begins) == 3
        assert "it has no complete checkpoint" in str(caught.value)

    def test_one_batch_of_several_in_an_update(self, model, tmp_path):
        dataset = Dataset.from_dict({"anchor": SENTENCES * 2})
        with pytest.raises(DivergedError, match="update 2: bad is nan"):
            trainer_of(model, Breaks(model, at=4), tmp_path, dataset, gradient_accumulation_steps=2).train()

    def test_a_loss_that_is_one_tensor(self, model, tmp_path):
        loss = MultipleNegativesRankingLoss(model, scale=math.inf)
        pairs = Dataset.from_dict({"anchor": SENTENCES, "positive": SENTENCES[::-1]})
        with pytest.raises(DivergedError, match="update 1: MultipleNegativesRankingLoss is nan"):
            trainer_of(model, loss, tmp_path, pairs).train()

    def test_a_dict_of_losses(self, model, tmp_path):
        both = DatasetDict({name: Dataset.from_dict({"anchor": SENTENCES}) for name in ("a", "b")})
        with pytest.raises(DivergedError, match="bad is nan"):
            trainer_of(model, {"a": Breaks(model, at=99), "b": Breaks(model, at=2)}, tmp_path, both).train()

    def test_in_the_second_pass_of_an_update(self, model, tmp_path):
        """Sharpness-Aware Minimization runs each batch twice, the second time away from the weights: they come back."""
        with pytest.raises(DivergedError, match="update 2: bad is nan"):
            trainer_of(model, Breaks(model, at=4), tmp_path, sam_rho=0.05).train()
        assert not not_finite(Breaks(model))

    def test_a_learning_rate_that_is_far_too_high(self, model, tmp_path):
        with pytest.raises(DivergedError):
            trainer_of(model, Breaks(model, at=99), tmp_path, learning_rate=1e30, max_steps=20).train()
        assert not tmp_path.exists() or not list(tmp_path.rglob("*.safetensors")) or all_finite(tmp_path)

    @pytest.mark.parametrize("save_strategy", ["no", "steps"])
    def test_a_last_update_that_breaks_the_weights(self, model, tmp_path, save_strategy):
        """Loss and gradient are finite to the end, and nobody would look again."""
        changes = {"learning_rate": 1e39, "max_steps": 1, "save_strategy": save_strategy}
        with pytest.raises(DivergedError, match=r"after update 1 \d+ weights are not finite \(.*\): they are not saved"):
            trainer_of(model, Breaks(model, at=99), tmp_path, **changes).train()
        assert not list(tmp_path.rglob("*.safetensors"))

    def test_an_evaluation_that_is_not_finite_does_not_stop(self, model, tmp_path):
        """Its number is null in what becomes json."""

        class Scored(BaseEvaluator):
            primary_metric = "score"

            def __call__(self, model, output_path=None, epoch=-1, steps=-1):
                return {"score": math.nan}

        trainer = trainer_of(
            model,
            Breaks(model, at=99),
            tmp_path,
            max_steps=2,
            evaluator=Scored(),
            eval_strategy="steps",
            eval_steps=1,
            metric_for_best_model="eval_score",
        )
        trainer.train()
        text = (tmp_path / "checkpoint-2" / "trainer_state.json").read_text()
        history = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no json"))["log_history"]
        assert [entry["eval_score"] for entry in history if "eval_score" in entry] == [None, None]


def test_the_command_line_says_it_in_one_line(encoder_path, tmp_path, capsys):
    text, output = tmp_path / "text.txt", tmp_path / "run"
    text.write_text("\n".join(project_text()[:40]))
    arguments = ["train", "arccse", str(text), "--model", encoder_path, "--output", str(output), "--sam-rho", "0"]
    assert cli.main([*arguments, "--batch-size", "4", "--max-steps", "6", "--learning-rate", "1e30"]) == 2
    error = [line for line in capsys.readouterr().err.splitlines() if line.startswith("sbert-plugins: error")]
    assert len(error) == 1
    assert "is nan, in the batch that begins with" in error[0]
    assert "a lower learning_rate (now 1e+30)" in error[0]
    assert not (output / "results.json").exists()
    assert not list(output.rglob("*.safetensors"))


class TestReading:
    """What a GPU and fp16 would do, with a trainer of their kind."""

    def check(self, device="cuda", scaler=None):
        trainer = SimpleNamespace(
            state=SimpleNamespace(global_step=0),
            args=SimpleNamespace(device=torch.device(device), learning_rate=1.0, max_grad_norm=1.0),
            accelerator=SimpleNamespace(scaler=scaler),
            model=nn.Linear(2, 2),
            loss=nn.Linear(2, 2),
        )
        return trainer, FiniteCheck(trainer)

    def test_a_gpu_is_asked_when_somebody_waits_for_it(self):
        trainer, check = self.check()
        for step, value in enumerate((1.0, math.nan, math.nan)):
            trainer.state.global_step = step
            check.see_loss({"term": torch.tensor(value)}, {})
        with pytest.raises(DivergedError, match="update 2: term is nan"):
            check.read()
        check.read()  # said once

    def test_what_nobody_reads_does_not_grow(self):
        _, check = self.check()
        with pytest.raises(DivergedError, match="term is nan"):
            for _ in range(finite.MOST_UNREAD):
                check.see_loss({"term": torch.tensor(math.nan)}, {})

    def test_a_gradient_scaler_may_leave_updates_out(self):
        _, check = self.check("cpu", scaler=object())
        for _ in range(3):
            for _ in range(finite.SKIPPED_UPDATES - 1):
                check.see_norm(torch.tensor(math.inf))
            check.see_norm(torch.tensor(1.0))
        with pytest.raises(DivergedError, match="the gradient norm is inf"):
            for _ in range(finite.SKIPPED_UPDATES):
                check.see_norm(math.inf)

    def test_a_gradient_scaler_does_not_excuse_the_loss(self):
        _, check = self.check("cpu", scaler=object())
        with pytest.raises(DivergedError, match="term is inf"):
            check.see_loss({"term": torch.tensor(math.inf), "other": torch.tensor(1.0)}, {})

    def test_an_earlier_training_is_forgotten(self):
        _, check = self.check()
        check.see_loss({"term": torch.tensor(math.nan)}, {})
        check.begin(None)
        check.read()


def test_frozen_and_whole_numbers_are_left_alone():
    module = nn.Linear(2, 2)
    module.weight.data[0, 0] = math.nan
    assert not_finite(module) == ["weight"]
    module.weight.requires_grad_(False)
    assert not_finite(module) == []
    assert not_finite(module.requires_grad_(False)) == []


def test_json_has_no_nan():
    values = {"steps": 3, "after": {"dev": math.nan, "test": 1.5}, "log": [{"loss": -math.inf}, {"text": "NaN"}]}
    read = json.loads(json_text(values))
    assert read["after"] == {"dev": None, "test": 1.5}
    assert read["log"] == [{"loss": None}, {"text": "NaN"}]
    assert read["not_finite"] == {"after.dev": "nan", "log.0.loss": "-inf"}
    assert "not_finite" not in json.loads(json_text({"steps": 3}))


def test_a_finite_loss_does_not_excuse_a_norm_that_never_is():
    check = TestReading().check("cpu", scaler=object())[1]
    with pytest.raises(DivergedError, match="the gradient norm is inf"):
        for _ in range(finite.SKIPPED_UPDATES):
            check.see_loss({"term": torch.tensor(1.0)}, {})
            check.see_norm(torch.tensor(math.inf))


def test_updates_that_an_earlier_training_left_out_are_forgotten():
    check = TestReading().check("cpu", scaler=object())[1]
    for _ in range(2):
        check.begin(None)
        for _ in range(finite.SKIPPED_UPDATES - 1):
            check.see_norm(torch.tensor(math.inf))


def test_a_checkpoint_that_is_gone_is_no_way_out(tmp_path):
    check = TestReading().check("cpu")[1]
    for folder in (tmp_path, tmp_path / "gone"):
        check.checkpoint = str(folder)
        with pytest.raises(DivergedError, match="its last good checkpoint is" if folder.exists() else "it has no complete"):
            check.see_norm(math.nan)
