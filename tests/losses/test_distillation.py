import copy
import math
from contextlib import nullcontext

import numpy as np
import pytest
import reference
import torch
from encoders import SENTENCES
from sentence_transformers import SentenceTransformerTrainer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from tools import Recorder, batch, gradients, is_same, state, trained

from sbert_plugins import data, losses, training
from sbert_plugins.training.loss_state import own_state

EQUAL = {"temperature": 0.1, "teacher_temperature": 0.1}


@pytest.fixture
def model(tiny_encoder):
    return tiny_encoder("bert", "mean").train()


@pytest.fixture
def moved(tiny_encoder):
    """The same encoder with other weights."""
    return shift(tiny_encoder("bert", "mean"))


@torch.no_grad()
def shift(model):
    torch.manual_seed(7)
    for parameter in model.parameters():
        parameter += 0.1 * torch.randn_like(parameter)
    return model


def vectors(model, column):
    with torch.no_grad():
        return copy.deepcopy(model).eval()(dict(column))["sentence_embedding"]


def test_self_distillation_is_that_of_the_reference(model, moved):
    # The teacher reads without dropout, the student in the encoder's mode.
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
        # Changing the model does not change it.
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
        assert [*own_state(loss, model)] == ["teacher_mark"]
        optimizer, before = torch.optim.SGD(trained(loss), lr=0.1), state(loss.teacher)
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
        # As labels (B, T), of any width. The teacher itself is then not run.
        column = batch(model.eval(), SENTENCES)[0]
        expected = losses.SelfDistillationLoss(model, teacher=moved)([column])["distillation"]
        loss = losses.SelfDistillationLoss(model, teacher="labels")
        assert (loss.teacher, loss.get_config_dict()["teacher"]) == (None, "labels")
        torch.testing.assert_close(loss([column], vectors(moved, column))["distillation"], expected)
        assert loss([column], torch.randn(len(SENTENCES), 7))["distillation"].isfinite()
        for labels in (None, torch.zeros(len(SENTENCES))):
            with pytest.raises(ValueError, match="label"):
                loss([column], labels)

    def test_is_not_taken_from_labels_that_are_vectors(self, model, moved):
        # Topics of several labels each, which another loss of a sum may read.
        column, topics = batch(model.eval(), SENTENCES)[0], torch.randint(0, 2, (len(SENTENCES), 5)).float()
        loss = losses.SelfDistillationLoss(model, teacher=moved)
        assert loss([column], topics) == loss([column])

    @pytest.mark.parametrize("inside", [True, False])
    def test_has_the_autocast_of_the_student(self, model, inside):
        # The trainer's autocast covers the model's own forward only.
        columns, loss = batch(model.eval(), SENTENCES), losses.SelfDistillationLoss(model, **EQUAL)
        autocast = torch.autocast("cpu", dtype=torch.bfloat16)
        if inside:
            model.forward = autocast(model.forward)
        with nullcontext() if inside else autocast:
            loss(columns)
        assert loss.diagnostics["divergence"].abs() < 1e-6


def test_resuming_with_another_teacher_is_an_error(model, moved):
    # Another device or batch size may round in another way.
    mark = losses.SelfDistillationLoss(model).teacher_mark
    for start, error, is_other in (
        (model, 0.0, False),
        (model, 1e-5, False),
        (model, 1e-2, True),
        (moved, 0.0, True),
    ):
        loss = losses.SelfDistillationLoss(start)
        loss.load_state_dict({"teacher_mark": mark + error * mark[0]}, strict=False)
        loss.begin_training(steps=3, resumed=False)
        with pytest.raises(ValueError, match="teacher") if is_other else nullcontext():
            loss.begin_training(steps=3, resumed=True)


@pytest.mark.parametrize(
    ("name", "training", "rows"),
    [("consert", True, [16]), ("consert", False, [16, 8]), ("simcse", True, [16])],
)
def test_in_a_sum_it_reads_the_first_pass_of_the_loss_before_it(model, name, training, rows):
    # In training it makes no pass of the student. An evaluation reads the text without a view.
    main = losses.ConSERTLoss(model) if name == "consert" else MultipleNegativesRankingLoss(model)
    keep = losses.SelfDistillationLoss(model)
    members = {name: (main, 1.0, [0] if name == "consert" else [0, 0]), "keep": (keep, 0.5, [0])}
    recorder, teacher = Recorder(model.train(training)), Recorder(keep.teacher)
    losses.WeightedSumLoss(model, members, balance=0.5)(batch(model, SENTENCES))
    assert recorder.rows() == rows
    assert teacher.rows() == [8]


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
        # No copy is made, and the same weights are trained as before.
        loss, columns = losses.SelfDistillationLoss(adapted.eval(), **EQUAL), batch(adapted, SENTENCES)
        assert loss.teacher is None
        loss(columns)
        assert loss.diagnostics["divergence"].abs() < 1e-6
        self.train(adapted)
        names = {name for name, parameter in adapted.named_parameters() if parameter.requires_grad}
        value = loss(columns)["distillation"]
        with_copy = losses.SelfDistillationLoss(adapted, teacher=tiny_encoder("bert", "mean"), **EQUAL)
        torch.testing.assert_close(value, with_copy(columns)["distillation"])
        value.backward()
        assert names == set(gradients(adapted))
        assert losses.SelfDistillationLoss(adapted).teacher is not None  # it is trained already


def test_self_distillation_of_a_compiled_model(model):
    columns = batch(model.eval(), SENTENCES)
    plain = losses.SelfDistillationLoss(model)
    compiled = losses.SelfDistillationLoss(torch.compile(model, backend="eager"))
    shift(model)
    torch.testing.assert_close(compiled(columns)["distillation"], plain(columns)["distillation"])


# Four queries; document 3 is in the lists of two of them, and query 1 is from document 2.
QUERIES, DOCUMENTS = SENTENCES[:4], SENTENCES[4:]
SCORES = np.array(
    [[0.0, 2.0, 1.0, 3.0], [1.0, 0.5, -math.inf, 2.0], [1.0, 4.0, 2.0, 3.0], [2.0, 0.0, 1.0, 0.5]]
)


@pytest.fixture
def searcher(tiny_encoder):
    return tiny_encoder("bert", "mean").eval()


def read(searcher, loss, rows):
    columns = batch(searcher, *(rows[name][:] for name in rows.column_names[:-1]))
    return loss(columns, torch.tensor(rows["label"][:]))


def test_the_lists_are_those_of_the_reference(searcher):
    rows = data.search_rows(QUERIES, DOCUMENTS, SCORES, size=2).select([0, 1])
    assert rows["label"][:] == [[0, 3, 1], [1, 3, 0]]
    start = torch.randn(4, 6)
    loss = losses.SearchDistillationLoss(searcher, SCORES, start, keep=0.5, temperature=0.2, sharpness=1.5)
    terms = read(searcher, loss, rows)
    listed = [3, 1, 0]  # document 3 counts once
    vectors = searcher.encode([*QUERIES[:2], *(DOCUMENTS[place] for place in listed)]).astype(np.float64)
    cosines = [[reference.cosine(query, document) for document in vectors[2:]] for query in vectors[:2]]
    target = 1.5 * SCORES[:2, listed]
    expected = reference.listwise_distillation(cosines, target, temperature=0.2)
    assert terms["search"].item() == pytest.approx(expected, rel=1e-4)
    keywords = {"temperature": 0.1, "teacher_temperature": 0.05}
    kept = reference.similarity_distillation(vectors[2:], start[listed].double().numpy(), **keywords)
    assert terms["keep"].item() == pytest.approx(0.5 * kept, rel=1e-4)
    entropy = reference.listwise_distillation(target, target, temperature=1.0)
    assert loss.diagnostics["divergence"].item() == pytest.approx(expected - entropy, abs=1e-4)
    assert not loss.state_dict(prefix="x").keys() - {f"xmodel.{name}" for name in searcher.state_dict()}


def test_the_own_document_of_a_query_has_no_gradient(searcher):
    # Document 2 is only in the list of query 2.
    rows = data.search_rows(QUERIES, DOCUMENTS, SCORES, size=1).select([1])
    loss = losses.SearchDistillationLoss(searcher, SCORES)
    columns = batch(searcher, QUERIES[1:2], DOCUMENTS[3:], DOCUMENTS[2:3])
    assert rows["label"][0] == [1, 3]
    terms = loss(columns, torch.tensor([[1, 3, 2]]))
    assert terms["search"].item() == pytest.approx(0, abs=1e-6) and set(terms) == {"search"}


@pytest.mark.parametrize("kind", [SentenceTransformerTrainer, training.SentenceTransformerTrainer])
def test_both_trainers_train_the_lists(searcher, tmp_path, kind):
    rows, start = data.search_rows(QUERIES, DOCUMENTS, SCORES, size=3), copy.deepcopy(searcher)
    loss = losses.SearchDistillationLoss(searcher, SCORES, searcher.encode(DOCUMENTS))
    before = read(searcher, loss, rows)["search"].item()
    arguments = training.TrainingArguments(
        str(tmp_path), max_steps=6, learning_rate=1e-3, report_to="none", use_cpu=True, save_strategy="no"
    )
    kind(model=searcher, args=arguments, train_dataset=rows, loss=loss).train()
    assert read(searcher.eval(), loss, rows)["search"].item() < before - 0.05
    assert not np.array_equal(searcher.encode(QUERIES), start.encode(QUERIES))


def test_labels_and_a_document_are_needed(searcher):
    loss = losses.SearchDistillationLoss(searcher, SCORES)
    columns = batch(searcher, QUERIES, DOCUMENTS)
    for labels in (None, torch.zeros(4), torch.zeros(4, 3, dtype=torch.long)):
        with pytest.raises(ValueError, match="label"):
            loss(columns, labels)
    with pytest.raises(ValueError, match="got 1"):
        loss(columns[:1], torch.zeros(4, 1, dtype=torch.long))
