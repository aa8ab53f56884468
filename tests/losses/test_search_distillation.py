import copy
import math

import numpy as np
import pytest
import reference
import torch
from encoders import SENTENCES
from sentence_transformers import SentenceTransformerTrainer
from tools import batch

from sbert_plugins import data, losses, training

# Four queries; document 3 is in the lists of two of them, and query 1 is from document 2.
QUERIES, DOCUMENTS = SENTENCES[:4], SENTENCES[4:]
SCORES = np.array(
    [[0.0, 2.0, 1.0, 3.0], [1.0, 0.5, -math.inf, 2.0], [1.0, 4.0, 2.0, 3.0], [2.0, 0.0, 1.0, 0.5]]
)


@pytest.fixture
def model(tiny_encoder):
    return tiny_encoder("bert", "mean").eval()


def read(model, loss, rows):
    columns = batch(model, *(rows[name][:] for name in rows.column_names[:-1]))
    return loss(columns, torch.tensor(rows["label"][:]))


def test_the_value_is_that_of_the_reference(model):
    rows = data.search_rows(QUERIES, DOCUMENTS, SCORES, size=2).select([0, 1])
    assert rows["label"][:] == [[0, 3, 1], [1, 3, 0]]
    start = torch.randn(4, 6)
    loss = losses.SearchDistillationLoss(model, SCORES, start, keep=0.5, temperature=0.2, sharpness=1.5)
    terms = read(model, loss, rows)
    listed = [3, 1, 0]  # document 3 counts once
    vectors = model.encode([*QUERIES[:2], *(DOCUMENTS[place] for place in listed)]).astype(np.float64)
    cosines = [[reference.cosine(query, document) for document in vectors[2:]] for query in vectors[:2]]
    target = 1.5 * SCORES[:2, listed]
    expected = reference.listwise_distillation(cosines, target, temperature=0.2)
    assert terms["search"].item() == pytest.approx(expected, rel=1e-4)
    keywords = {"temperature": 0.1, "teacher_temperature": 0.05}
    kept = reference.similarity_distillation(vectors[2:], start[listed].double().numpy(), **keywords)
    assert terms["keep"].item() == pytest.approx(0.5 * kept, rel=1e-4)
    entropy = reference.listwise_distillation(target, target, temperature=1.0)
    assert loss.diagnostics["divergence"].item() == pytest.approx(expected - entropy, abs=1e-4)
    assert not loss.state_dict(prefix="x").keys() - {f"xmodel.{name}" for name in model.state_dict()}


def test_the_own_document_of_a_query_has_no_gradient(model):
    # Document 2 is only in the list of query 2.
    rows = data.search_rows(QUERIES, DOCUMENTS, SCORES, size=1).select([1])
    loss = losses.SearchDistillationLoss(model, SCORES)
    columns = batch(model, QUERIES[1:2], DOCUMENTS[3:], DOCUMENTS[2:3])
    assert rows["label"][0] == [1, 3]
    terms = loss(columns, torch.tensor([[1, 3, 2]]))
    assert terms["search"].item() == pytest.approx(0, abs=1e-6) and set(terms) == {"search"}


@pytest.mark.parametrize("kind", [SentenceTransformerTrainer, training.SentenceTransformerTrainer])
def test_both_trainers_train_it(model, tmp_path, kind):
    rows, start = data.search_rows(QUERIES, DOCUMENTS, SCORES, size=3), copy.deepcopy(model)
    loss = losses.SearchDistillationLoss(model, SCORES, model.encode(DOCUMENTS))
    before = read(model, loss, rows)["search"].item()
    arguments = training.TrainingArguments(
        str(tmp_path), max_steps=6, learning_rate=1e-3, report_to="none", use_cpu=True, save_strategy="no"
    )
    kind(model=model, args=arguments, train_dataset=rows, loss=loss).train()
    assert read(model.eval(), loss, rows)["search"].item() < before - 0.05
    assert not np.array_equal(model.encode(QUERIES), start.encode(QUERIES))


def test_labels_and_a_document_are_needed(model):
    loss = losses.SearchDistillationLoss(model, SCORES)
    columns = batch(model, QUERIES, DOCUMENTS)
    for labels in (None, torch.zeros(4), torch.zeros(4, 3, dtype=torch.long)):
        with pytest.raises(ValueError, match="label"):
            loss(columns, labels)
    with pytest.raises(ValueError, match="got 1"):
        loss(columns[:1], torch.zeros(4, 1, dtype=torch.long))
