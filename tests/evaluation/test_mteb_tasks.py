import gzip

import pytest
import torch
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

from sbert_plugins.evaluation import cranfield_retrieval, evaluate_mteb
from sbert_plugins.evaluation.mteb_tasks import local_task

CORPUS = {
    "1": ("wings", "A wing in a stream of air."),
    "2": ("plates", "Heat flows through a flat plate."),
    "3": ("wings", "A wing in a stream of air."),  # the first one again
    "4": ("", "A nozzle of a rocket cools down."),
    "5": ("", "Flutter of a thin panel at speed."),
}
# q3 and q4 are one text with two answers: one of them is not found first, whatever the encoder.
QUERIES = {"q1": "how does air flow around a wing", "q2": "heat in plates", "q3": "panel flutter", "q4": "panel flutter"}
JUDGEMENTS = [("q1", "3", 2), ("q1", "2", 1), ("q2", "2", 3), ("q3", "5", 1), ("q4", "4", 1)]


def gzipped(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write("".join(f"{line}\n" for line in lines))


def write_cranfield(root, judgements=JUDGEMENTS):
    folder = root / "rerank" / "cranfield"
    gzipped(folder / "corpus.tsv.gz", ["\t".join((i, *fields)) for i, fields in CORPUS.items()])
    (folder / "queries.tsv").write_text("".join(f"{i}\t{text}\n" for i, text in QUERIES.items()), encoding="utf-8")
    (folder / "qrels.tsv").write_text("".join(f"{q}\t{d}\t{gain}\n" for q, d, gain in judgements), encoding="utf-8")


def scores(result):
    (task,) = result
    return task.scores["test"][0]


class TestRetrieval:
    def test_equals_sentence_transformers_once_texts_are_distinct(self, tiny_encoder, tmp_path):
        """Documents 1 and 3 are one text: the host is given the corpus without the second, mteb the files as they are."""
        write_cranfield(tmp_path)
        model = tiny_encoder()
        ours = scores(evaluate_mteb(model, "LocalCranfield", cache=tmp_path, data_dir=tmp_path, show_progress_bar=False))
        host = InformationRetrievalEvaluator(
            QUERIES,
            {i: f"{title} {text}".strip() for i, (title, text) in CORPUS.items() if i != "3"},
            {"q1": {"1", "2"}, "q2": {"2"}, "q3": {"5"}, "q4": {"4"}},
            write_csv=False,
        )(model)
        evaluator = cranfield_retrieval(tmp_path, write_csv=False)(model)
        assert 0 < ours["map_at_100"] < 1
        for metric in ("map@100", "mrr@10", "ndcg@10"):
            assert ours[metric.replace("@", "_at_")] == pytest.approx(host[f"cosine_{metric}"], abs=1e-5)  # mteb rounds
            assert evaluator[f"cranfield_cosine_{metric}"] == pytest.approx(host[f"cosine_{metric}"], abs=1e-9)

    def test_a_query_does_not_find_itself(self, tiny_encoder, tmp_path):
        folder = tmp_path / "rerank" / "quora_dup"
        gzipped(folder / "test_corpus.tsv.gz", ["1\thow tall is he", "2\twhere is it"])
        (folder / "test_queries.tsv").write_text("1\thow tall is he\n", encoding="utf-8")
        (folder / "test_qrels.tsv").write_text("1\t2\t1\n", encoding="utf-8")
        result = evaluate_mteb(
            tiny_encoder(), "LocalQuoraRetrieval", cache=tmp_path, data_dir=tmp_path, show_progress_bar=False
        )
        assert scores(result)["mrr_at_10"] == 1  # the question itself would be first, and its duplicate second

    def test_judgements_of_unknown_documents(self, tmp_path):
        write_cranfield(tmp_path, [*JUDGEMENTS, ("q1", "6", 1)])
        with pytest.raises(ValueError, match="qrels.tsv, line 6: no query 'q1' or no document '6'"):
            local_task("LocalCranfield", tmp_path).load_data()


class TestClassification:
    def test_labels_that_a_sentence_tells(self, tiny_encoder, tmp_path):
        for split, copies in (("train", 9), ("test", 3)):
            rows = [f"{label}\t{text}" for label, text in enumerate(["a very red rose", "one blue sea"])] * copies
            gzipped(tmp_path / "transfer" / f"sst2_{split}.tsv.gz", rows)
        result = evaluate_mteb(
            tiny_encoder(), "LocalSST2Classification", cache=tmp_path, data_dir=tmp_path, show_progress_bar=False
        )
        assert scores(result)["accuracy"] == 1

    def test_labels_are_numbers(self, tmp_path):
        for split in ("train", "test"):
            gzipped(tmp_path / "transfer" / f"trec_{split}.tsv.gz", ["0\twhere", "who\tis it"])
        with pytest.raises(ValueError, match="trec_train.tsv.gz, line 2: label must be a whole number from 0, got 'who'"):
            local_task("LocalTRECClassification", tmp_path).load_data()


def test_a_model_that_has_diverged(tiny_encoder, tmp_path):
    write_cranfield(tmp_path)
    model = tiny_encoder()
    with torch.no_grad():
        model[0].model.embeddings.word_embeddings.weight.fill_(float("nan"))
    with pytest.raises(ValueError, match="embeddings must be finite, got NaN or infinity for 4 of 4 sentences"):
        evaluate_mteb(model, "LocalCranfield", cache=tmp_path, data_dir=tmp_path, show_progress_bar=False)
    assert not list(tmp_path.rglob("LocalCranfield.json"))


class TestFiles:
    def test_revision_follows_the_files(self, tmp_path):
        write_cranfield(tmp_path)
        before = local_task("LocalCranfield", tmp_path).metadata.revision
        assert local_task("LocalCranfield", tmp_path).metadata.revision == before
        write_cranfield(tmp_path, JUDGEMENTS[1:])
        assert local_task("LocalCranfield", tmp_path).metadata.revision != before

    def test_missing(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="corpus.tsv.gz does not exist: LocalCranfield reads it"):
            local_task("LocalCranfield", tmp_path)

    def test_unknown(self, tmp_path):
        with pytest.raises(ValueError, match="a local task must be one of LocalSTS12, .* got 'LocalNothing'"):
            local_task("LocalNothing", tmp_path)

    def test_rows(self, tmp_path):
        write_cranfield(tmp_path)
        (tmp_path / "rerank" / "cranfield" / "queries.tsv").write_text("q1\tone\nq2\n", encoding="utf-8")
        with pytest.raises(ValueError, match=r"queries.tsv, line 2: expected 2 tab-separated fields .* got 1"):
            local_task("LocalCranfield", tmp_path).load_data()

    def test_sick_is_graded_from_one(self, tmp_path):
        folder = tmp_path / "sts"
        folder.mkdir()
        (folder / "sick_test.tsv").write_text("x\t0.5\ta\tb\n", encoding="utf-8")
        with pytest.raises(ValueError, match=r"sick_test.tsv, line 1: score must be a number in \[1, 5\]"):
            local_task("LocalSICK-R", tmp_path).load_data()

    def test_tasks_of_the_data_directory(self, data_dir):
        sizes = {name: local_task(name, data_dir) for name in ("LocalSTS16", "LocalSICK-R", "LocalSICK-R.all")}
        for task in sizes.values():
            task.load_data()
        assert [len(task.dataset["default"]["test"]) for task in sizes.values()] == [1186, 4927, 9927]
        cranfield = local_task("LocalCranfield", data_dir)
        cranfield.load_data()
        split = cranfield.dataset["default"]["test"]
        assert (len(split["corpus"]), len(split["queries"])) == (1399, 225)  # two documents without a text are one
