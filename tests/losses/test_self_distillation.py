import copy
from importlib.util import find_spec

import pytest
import reference
import torch
from encoders import SENTENCES
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from tools import Recorder, batch, gradients, is_same, state, trained

from sbert_plugins import host, losses
from sbert_plugins.losses.base import owned_state
from sbert_plugins.training import load_loss_state, save_loss_state

EQUAL = {"temperature": 0.1, "teacher_temperature": 0.1}


@pytest.fixture
def model(tiny_encoder):
    return tiny_encoder("bert", "mean").train()


@pytest.fixture
def moved(tiny_encoder):
    """The same encoder with other weights."""
    other = tiny_encoder("bert", "mean")
    shift(other)
    return other


@torch.no_grad()
def shift(model):
    torch.manual_seed(7)
    for parameter in model.parameters():
        parameter += 0.1 * torch.randn_like(parameter)


def vectors(model, column):
    with torch.no_grad():
        return copy.deepcopy(model).eval()(dict(column))["sentence_embedding"]


def test_the_value_is_that_of_the_reference(model, moved):
    """The teacher reads without dropout, the student in the encoder's mode."""
    loss = losses.SelfDistillationLoss(model, teacher=moved, temperature=0.2, teacher_temperature=0.07)
    recorder, column = Recorder(model), batch(model, SENTENCES)[0]
    value = loss([column])["distillation"].item()
    student = recorder.outputs[0]["sentence_embedding"].detach().double().numpy()
    teacher = vectors(moved, column).double().numpy()
    keywords = {"temperature": 0.2, "teacher_temperature": 0.07}
    expected = reference.similarity_distillation(student, teacher, **keywords)
    assert value == pytest.approx(expected, rel=1e-5)
    entropy = reference.similarity_distillation(teacher, teacher, temperature=0.07, teacher_temperature=0.07)
    assert loss.diagnostics["divergence"].item() == pytest.approx(expected - entropy, abs=1e-5)


class TestTeacher:
    def test_is_a_copy_of_the_start(self, model):
        """Changing the model does not change it."""
        loss, columns = losses.SelfDistillationLoss(model, **EQUAL), batch(model, SENTENCES)
        start = vectors(model, columns[0])
        model.eval()
        loss(columns)["distillation"].backward()
        assert loss.diagnostics["divergence"].abs() < 1e-6
        assert all(gradient.abs().max() < 1e-6 for gradient in gradients(model).values())
        shift(model)
        loss(columns)
        assert loss.diagnostics["divergence"] > 0.01
        assert torch.equal(vectors(loss.teacher, columns[0]), start)
        assert loss.teacher is not model

    def test_nothing_of_it_is_trained_or_saved(self, model):
        loss = losses.SelfDistillationLoss(model)
        theirs = {id(tensor) for tensor in (*loss.teacher.parameters(), *loss.teacher.buffers())}
        held = (*loss.parameters(), *loss.buffers(), *loss.state_dict(keep_vars=True).values())
        assert not any(id(tensor) in theirs for tensor in held)
        assert [*owned_state(loss)] == ["teacher_mark"]
        assert not any(parameter.requires_grad for parameter in loss.teacher.parameters())
        optimizer = torch.optim.SGD(trained(loss), lr=0.1)
        before = state(loss.teacher)
        loss(batch(model, SENTENCES))["distillation"].backward()
        optimizer.step()
        assert is_same(before, state(loss.teacher))

    def test_that_is_given_is_left_as_it_is(self, model, moved):
        moved.train()
        loss = losses.SelfDistillationLoss(model, teacher=moved)
        loss(batch(model, SENTENCES))["distillation"].backward()
        assert moved.training and moved[0].model.training
        assert all(parameter.requires_grad and parameter.grad is None for parameter in moved.parameters())
        assert loss.get_config_dict()["teacher"] == "another model"
        assert losses.SelfDistillationLoss(model).get_config_dict()["teacher"] == "the start"

    def test_may_be_given_by_its_vectors(self, model, moved):
        """As labels (B, T), of any width; the teacher itself is then not run."""
        column = batch(model.eval(), SENTENCES)[0]
        expected = losses.SelfDistillationLoss(model, teacher=moved)([column])["distillation"]
        loss = losses.SelfDistillationLoss(model)
        recorder = Recorder(loss.teacher)
        found = loss([column], vectors(moved, column))["distillation"]
        torch.testing.assert_close(found, expected)
        assert not recorder.outputs
        assert loss([column], torch.randn(len(SENTENCES), 7))["distillation"].isfinite()
        assert loss([column], torch.zeros(len(SENTENCES)))["distillation"] != found  # labels of other losses

    def test_has_the_autocast_of_the_student(self, model):
        """The trainer's autocast covers the model's own forward only."""
        columns, loss = batch(model.eval(), SENTENCES), losses.SelfDistillationLoss(model, **EQUAL)
        forward = model.forward
        model.forward = torch.autocast("cpu", dtype=torch.bfloat16)(forward)
        loss(columns)
        assert loss.diagnostics["divergence"].abs() < 1e-6
        model.forward = forward
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss(columns)
        assert loss.diagnostics["divergence"].abs() < 1e-6


class TestResuming:
    def test_with_another_teacher_is_an_error(self, model, moved, tmp_path):
        save_loss_state(losses.SelfDistillationLoss(model), model, tmp_path)
        for start, is_other in ((model, False), (moved, True)):
            loss = losses.SelfDistillationLoss(start)
            load_loss_state(loss, start, tmp_path)
            if is_other:
                with pytest.raises(ValueError, match="teacher"):
                    loss.begin_training(steps=3, resumed=True)
            else:
                loss.begin_training(steps=3, resumed=True)

    def test_a_rounding_difference_is_no_other_teacher(self, model):
        """Another device or batch size rounds in another way."""
        loss = losses.SelfDistillationLoss(model)
        loss.teacher_mark += 1e-5 * loss.teacher_mark[0]
        loss.begin_training(steps=3, resumed=True)
        loss.teacher_mark += 1e-2 * loss.teacher_mark[0]
        loss.begin_training(steps=3, resumed=False)
        with pytest.raises(ValueError, match="teacher"):
            loss.begin_training(steps=3, resumed=True)


class TestInASum:
    @pytest.mark.parametrize("training", [True, False])
    def test_reads_the_first_pass_of_the_loss_before_it(self, model, training):
        """In training it makes no pass of the student. An evaluation reads the text without a view."""
        members = {
            "consert": (losses.ConSERTLoss(model), 1.0),
            "keep": (losses.SelfDistillationLoss(model), 0.5),
        }
        loss = losses.WeightedSumLoss(model, members)
        recorder, teacher = Recorder(model), Recorder(members["keep"][0].teacher)
        model.train(training)
        terms = loss(batch(model, SENTENCES))
        assert recorder.rows() == ([16] if training else [16, 8])
        assert teacher.rows() == [8]
        assert set(terms) == {"consert/nt_xent", "keep/distillation"}

    def test_with_a_loss_of_sentence_transformers(self, model):
        keep = losses.SelfDistillationLoss(model)
        members = {"simcse": (MultipleNegativesRankingLoss(model), 1.0, [0, 0]), "keep": (keep, 1.0, [0])}
        recorder = Recorder(model)
        losses.WeightedSumLoss(model, members, balance=0.5)(batch(model, SENTENCES))
        assert recorder.rows() == [8, 8]


@pytest.mark.parametrize("name", ["temperature", "teacher_temperature"])
def test_temperatures(model, name):
    with pytest.raises(ValueError, match="temperature"):
        losses.SelfDistillationLoss(model, **{name: 0})


@pytest.mark.skipif(find_spec("peft") is None, reason="peft is not installed")
class TestAdapter:
    @pytest.fixture
    def adapted(self, model):
        """Injected directly, because transformers' own way asks for a certain version of PEFT."""
        from peft import LoraConfig, inject_adapter_in_model

        inject_adapter_in_model(LoraConfig(r=4, target_modules=["query", "value"]), model.transformers_model)
        return model

    def train(self, model):
        """Make the adapter change something."""
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if ".lora_B." in name:
                    parameter += 0.5

    def test_the_model_without_it_is_the_teacher(self, adapted, tiny_encoder):
        """No copy is made, and the model trains as before."""
        loss, columns = losses.SelfDistillationLoss(adapted, **EQUAL), batch(adapted, SENTENCES)
        assert loss.teacher is None
        adapted.eval()
        loss(columns)
        assert loss.diagnostics["divergence"].abs() < 1e-6
        self.train(adapted)
        names = {name for name, parameter in adapted.named_parameters() if parameter.requires_grad}
        value = loss(columns)["distillation"]
        with_copy = losses.SelfDistillationLoss(adapted, teacher=tiny_encoder("bert", "mean"), **EQUAL)
        torch.testing.assert_close(value, with_copy(columns)["distillation"])
        assert loss.diagnostics["divergence"] > 0.01
        value.backward()
        assert names == {name for name, parameter in adapted.named_parameters() if parameter.requires_grad}
        assert names == set(gradients(adapted))

    def test_that_is_trained_already_is_part_of_the_start(self, adapted):
        self.train(adapted)
        assert losses.SelfDistillationLoss(adapted).teacher is not None

    def test_with_other_weights_that_are_trained(self, adapted):
        """The model without its adapter would change."""
        assert host.has_new_adapter(adapted)
        adapted.transformers_model.embeddings.requires_grad_(True)
        assert not host.has_new_adapter(adapted)

    def test_off_and_on(self, adapted):
        column = batch(adapted.eval(), SENTENCES)[0]
        start = vectors(adapted, column)
        self.train(adapted)
        changed = vectors(adapted, column)
        with pytest.raises(KeyError), host.adapter_off(adapted):
            torch.testing.assert_close(adapted(dict(column))["sentence_embedding"], start)
            raise KeyError
        assert torch.equal(vectors(adapted, column), changed)
        assert not torch.allclose(changed, start, atol=1e-2)


def test_a_model_without_an_adapter(model):
    assert not host.has_new_adapter(model)


@pytest.mark.slow
def test_a_compiled_model(model):
    columns = batch(model.eval(), SENTENCES)
    plain = losses.SelfDistillationLoss(model)
    compiled = losses.SelfDistillationLoss(torch.compile(model, backend="aot_eager"))
    shift(model)
    torch.testing.assert_close(compiled(columns)["distillation"], plain(columns)["distillation"])
