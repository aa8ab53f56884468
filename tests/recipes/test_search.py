import json
import sys

import numpy as np
import pytest
import torch
from datasets import Dataset
from encoders import project_text
from recipe_inputs import QUICK, pairs
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import WordWeights

from sbert_plugins import cli, evaluation, recipes
from sbert_plugins.modules import count_idf
from sbert_plugins.recipes.search import choose_power, learn_map

TEXT = project_text()
DOCUMENTS = [" ".join(TEXT[start : start + 4]) for start in range(0, 120, 4)]


@pytest.fixture
def model(tiny_encoder):
    return tiny_encoder(pooling="mean")


def table():
    return Dataset.from_dict({"title": TEXT[200:230], "text": DOCUMENTS})


def test_the_map_starts_as_the_identity():
    numbers = np.random.default_rng(0)
    vectors, scores = numbers.normal(size=(6, 4)).astype("f"), numbers.normal(size=(3, 6)).astype("f")
    settings = {"list_size": 2, "batch_size": 2, "temperature": 0.1, "sharpness": 4.0, "keep": 0.1, "seed": 0}
    first = learn_map(vectors[:3], vectors, scores, max_steps=0, learning_rate=1e-2, **settings)
    assert torch.equal(first, torch.eye(4))


def test_the_map_learns_the_order_of_the_teacher():
    numbers = np.random.default_rng(0)
    queries, documents = (numbers.normal(size=(size, 8)).astype("f") for size in (12, 30))
    scores = queries @ np.diag([3, 1, 1, 1, 0, 0, 0, 0]).astype("f") @ documents.T
    settings = {
        "list_size": 8,
        "batch_size": 12,
        "temperature": 0.1,
        "sharpness": 1.0,
        "keep": 0.0,
        "seed": 0,
    }
    matrix = learn_map(queries, documents, scores, max_steps=100, learning_rate=1e-2, **settings)

    def agreement(matrix):
        mapped = [torch.nn.functional.normalize(torch.tensor(side) @ matrix) for side in (queries, documents)]
        return np.corrcoef((mapped[0] @ mapped[1].T).flatten(), scores.flatten())[0, 1]

    assert agreement(matrix) > agreement(torch.eye(8)) + 0.1


def test_the_first_power_stays_unless_another_is_clearly_better(model, monkeypatch):
    items = evaluation.KnownItemEvaluator(DOCUMENTS)
    idf = count_idf(model, DOCUMENTS)
    power, vectors, log = choose_power(model, items, torch.ones_like(idf))
    assert power == 0
    assert len({row["mrr@10"] for row in log}) == 1
    cosines = torch.nn.functional.cosine_similarity(vectors[1], torch.tensor(model.encode(items.documents)))
    assert cosines.min() > 0.999
    values = [np.full(30, 0.2), np.full(30, 0.5) + np.arange(30) / 100, np.full(30, 0.4) + np.arange(30) / 90]
    calls = iter(values)
    monkeypatch.setattr(evaluation, "reciprocal_ranks", lambda ranks: next(calls))
    assert choose_power(model, items, idf, (0.0, 0.5, 1.0))[0] == 0.5
    noisy = iter([np.tile([0.1, 0.9], 15), np.tile([0.9, 0.15], 15)])
    monkeypatch.setattr(evaluation, "reciprocal_ranks", lambda ranks: next(noisy))
    assert choose_power(model, items, idf, (0.0, 0.5))[0] == 0


class TestAdapt:
    def test_weights_without_a_map(self, model, tiny_encoder):
        fit = recipes.adapt_to_search(model, DOCUMENTS, power=1, linear_map=False)
        assert (fit.power, fit.has_map) == (1.0, False)
        assert isinstance(model[1], WordWeights)
        start = tiny_encoder(pooling="mean")
        idf = count_idf(start, DOCUMENTS)
        features = start.preprocess(TEXT[:1])
        tokens = start[0](dict(features))["token_embeddings"][0]
        shares = idf[features["input_ids"][0]]
        expected = (shares[:, None] * tokens).sum(dim=0) / shares.sum()
        torch.testing.assert_close(torch.tensor(model.encode(TEXT[0])), expected.detach())

    @pytest.mark.parametrize("similar", [True, False])
    def test_a_map_that_harms_or_changes_nothing_is_not_used(self, model, monkeypatch, similar):
        worse = torch.zeros(model.get_embedding_dimension(), model.get_embedding_dimension())
        worse[0, 0] = 1.0  # all vectors become alike
        worse = worse if similar else torch.eye(len(worse))
        monkeypatch.setattr(sys.modules["sbert_plugins.recipes.search"], "learn_map", lambda *_, **__: worse)
        before = model.encode(TEXT[:3])
        fit = recipes.adapt_to_search(model, DOCUMENTS, power=0)
        assert not fit.has_map
        assert fit.updates == 0
        assert np.array_equal(model.encode(TEXT[:3]), before)

    def test_a_truncated_model_and_its_start(self, model, tiny_encoder):
        short = tiny_encoder(pooling="mean")
        short.truncate_dim = 8
        for each in (model, short):
            recipes.adapt_to_search(each, DOCUMENTS, max_steps=5)
        np.testing.assert_allclose(short.encode(DOCUMENTS), model.encode(DOCUMENTS)[:, :8], atol=1e-6)
        with pytest.raises(ValueError, match="different modules"):
            recipes.average_with_start(model, tiny_encoder(pooling="mean"), 0.5)

    def test_a_pooling_by_the_first_token_is_refused(self, tiny_encoder):
        with pytest.raises(ValueError, match="mean pooling"):
            recipes.adapt_to_search(tiny_encoder(pooling="cls"), DOCUMENTS)


class TestTrain:
    def test_leaves_a_plain_model_and_a_record(self, model, tmp_path):
        model.save_pretrained(str(tmp_path / "start"))
        (tmp_path / "start" / "README.md").write_text("We score 77.7.", encoding="utf-8")
        model = SentenceTransformer(str(tmp_path / "start"), device="cpu")
        items = evaluation.KnownItemEvaluator(DOCUMENTS, name="known items")
        results = recipes.train(
            "search", table(), model, output=tmp_path / "run", evaluators=[items], max_steps=20
        )
        assert [one["name"] for one in results["changes"]] == ["known items"]
        assert '"text" (document), "title" (title), 30 documents' in results["read"]
        assert results["updates"] == 20
        assert {"power", "mrr@10"} <= {*results["log"][0]}
        kinds = json.loads((tmp_path / "run" / "model" / "modules.json").read_text(encoding="utf-8"))
        assert all(kind["type"].startswith("sentence_transformers.") for kind in kinds)
        card = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
        assert "77.7" not in card and "Evaluation" not in card  # the card and the scores of the start
        loaded = SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu")
        np.testing.assert_allclose(loaded.encode(TEXT[:3]), model.encode(TEXT[:3]), atol=1e-6)

    def test_the_card_says_what_was_made_without_a_map(self, model, tmp_path):
        given = {"power": 0.5, "linear_map": False}
        recipes.train("search", DOCUMENTS, model, output=tmp_path, loss_keywords=given, text="my documents")
        card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
        assert "no updates: the model has token weights (idf ** 0.5) and no linear map" in card
        assert "**Text:** my documents" in card

    def test_a_training_that_was_stopped_ends_as_another(self, tiny_encoder, tmp_path, monkeypatch):
        whole, stopped, resumed = (tiny_encoder(pooling="mean") for _ in range(3))
        given = {"loss_keywords": {"power": 0.5}, "max_steps": 20}
        recipes.train("search", DOCUMENTS, whole, output=tmp_path / "a", **given)

        def stop(*_):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(sys.modules["sbert_plugins.recipes.search"], "_append_map", stop)
            recipes.train("search", DOCUMENTS, stopped, output=tmp_path / "b", **given)
        recipes.train("search", DOCUMENTS, resumed, output=tmp_path / "b", resume=True, **given)
        assert np.array_equal(whole.encode(TEXT[:5]), resumed.encode(TEXT[:5]))

    @pytest.mark.parametrize(
        ("given", "named"),
        [
            ({"warmup_steps": 5}, "warmup_steps"),
            ({"dev": pairs()}, "dev"),
            ({"start_weight": 0.5}, "start_weight"),
            ({"loss_keywords": {"tau": 1}}, "temperature"),
        ],
    )
    def test_what_it_does_not_read_is_refused(self, given, named, model, tmp_path):
        with pytest.raises(ValueError, match=named):
            recipes.train("search", DOCUMENTS, model, output=tmp_path / "run", **given)
        assert not (tmp_path / "run").exists()

    def test_it_can_be_compared(self, tiny_encoder, tmp_path):
        quick = {name: QUICK[name] for name in ("per_device_train_batch_size", "eval_steps")}
        comparison = recipes.compare(
            ["search:power=0.5,max_steps=20", "simcse"],
            table(),
            dev=pairs("dev"),
            model=lambda: tiny_encoder(pooling="mean"),
            output=tmp_path,
            evaluators=[evaluation.KnownItemEvaluator(DOCUMENTS, name="known items")],
            seeds=1,
            max_steps=2,
            **quick,
        )
        assert [len(changes) for changes in comparison.changes.values()] == [2, 2]
        assert comparison.failed == {}


@pytest.fixture
def search(tmp_path):
    """A folder of documents, and one of queries and judgements."""
    (tmp_path / "documents").mkdir()
    for place, document in enumerate(DOCUMENTS):
        (tmp_path / "documents" / f"{place:02}.txt").write_text(document, encoding="utf-8")
    labels = tmp_path / "labels"
    labels.mkdir()
    files = {
        "queries.tsv": [f"q{i}\t{TEXT[4 * i + 1]}" for i in range(12)],
        "corpus.tsv": [f"d{i}\t{document}" for i, document in enumerate(DOCUMENTS)],
        "qrels.tsv": [f"q{i}\td{i}\t1" for i in range(12)],
    }
    for name, lines in files.items():
        (labels / name).write_text("\n".join(lines), encoding="utf-8")
    return tmp_path


def test_the_command(search, model, capsys):
    model.save_pretrained(str(search / "encoder"))
    options = f"--retrieval {search / 'labels'} --output {search / 'run'} --max_steps 20"
    command = f"train search {search / 'documents'} --model {search / 'encoder'} {options}"
    assert cli.main(command.split()) == 0
    printed = capsys.readouterr().out
    for line in (
        "labels:",
        "labels with BM25:",
        "known items:",
        "needed). BM25 alone has",
        "Encode your documents",
    ):
        assert line in printed
    results = json.loads((search / "run" / "results.json").read_text(encoding="utf-8"))
    assert results["read"].startswith('text: column "document", 30 documents')
    again = SentenceTransformer(str(search / "run" / "model"), device="cpu")
    assert again.encode("a").shape == (model.get_embedding_dimension(),)


def test_a_mix_by_hand(model):
    corpus = {"a": "red car", "b": "blue car", "c": "blue cat"}
    retrieval = evaluation.RetrievalEvaluator({"q": "a cat"}, corpus, {"q": {"c"}}, name="s")
    scores = evaluation.MixedRetrievalEvaluator(retrieval, mix=1.0, write_csv=False)(model)
    assert scores == {"s with BM25_ndcg@10": 100.0, "s with BM25_bm25_ndcg@10": 100.0}
    vectors = evaluation.MixedRetrievalEvaluator(retrieval, mix=0.0, write_csv=False)
    expected = 100 * retrieval(model)["s_cosine_ndcg@10"]
    assert vectors(model)["s with BM25_ndcg@10"] == pytest.approx(expected)
