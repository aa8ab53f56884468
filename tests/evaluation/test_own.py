import gzip

import pytest
from encoders import project_text

from sbert_plugins import evaluation


@pytest.fixture
def write(tmp_path):
    def written(name, *rows):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        text = "".join("\t".join(map(str, row)) + "\n" for row in rows)
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path

    return written


class TestPairs:
    @pytest.mark.parametrize("before", [[], ["news"]])
    def test_three_fields_or_four(self, write, tiny_encoder, before):
        path = write("mine.tsv", *([*before, grade, f"a {grade}", "b"] for grade in (0.5, 2, 11)))
        evaluator = evaluation.own_pairs(path)
        assert evaluator.pairs.scores == [0.5, 2, 11]
        assert evaluator.pairs.sentences1 == ["a 0.5", "a 2", "a 11"]
        assert list(evaluator(tiny_encoder())) == ["mine_spearman"]

    @pytest.mark.parametrize(
        ("rows", "message"),
        [
            ([("grade", "a", "b")], "line 1: a grade must be a finite number, got 'grade'; the file has no header"),
            ([(1, "a", "b"), ("inf", "a", "b")], "line 2: a grade must be a finite number, got 'inf'"),
            ([(1, "a", "b"), (2, "a")], "line 2: expected 3 tab-separated fields"),
            ([(1, "a", "b"), (2, "a", " ")], "line 2: other must be a text, got ' '"),
            ([(1, "a", "b")] * 3, "at least 3, with two different grades, got 3 of 1"),
            ([(1, "a", "b"), (2, "a", "b")], "at least 3, with two different grades, got 2 of 2"),
            ([], "got 0 of 0"),
        ],
    )
    def test_mistakes(self, write, rows, message):
        with pytest.raises(ValueError, match=message):
            evaluation.own_pairs(write("mine.tsv", *rows))

    def test_no_file(self, tmp_path):
        for build in (evaluation.own_pairs, evaluation.own_topics):
            with pytest.raises(FileNotFoundError, match="mine.tsv does not exist, or is no file"):
                build(tmp_path / "mine.tsv")


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("topics.tsv", ("Topic", "text")),
        ("search/queries.tsv", ("id", "text")),
        ("search/corpus.tsv", ("ID", "Title", "Text")),
    ],
)
def test_the_names_of_the_columns_are_no_row(write, name, header):
    rows = [("a", *["x"] * (len(header) - 1)), ("b", *["y"] * (len(header) - 1)), ("a", *["z"] * (len(header) - 1))]
    path = write(name, header, *(rows if name == "topics.tsv" else rows[:2]))
    if name != "topics.tsv":
        for other in {"queries", "corpus"} - {path.stem}:
            write(f"search/{other}.tsv", ("a", "x"))
        write("search/qrels.tsv", ("a", "a", 1))
    build = evaluation.own_topics if name == "topics.tsv" else lambda path: evaluation.own_retrieval(path.parent)
    with pytest.raises(ValueError, match=r"line 1: the first line must be a row, got the columns' names"):
        build(path)


class TestTopics:
    def test_what_may_be_a_header_is_said(self, write, caplog):
        rows = [("a", "first text"), ("b", "second text"), ("a", "third"), ("b", "fourth")]
        evaluation.own_topics(write("mine.tsv", *rows))
        assert "may be a header" not in caplog.text
        evaluation.own_topics(write("mine.tsv", ("z", "It is raining on the whole coast."), *rows))
        assert "may be a header" not in caplog.text
        for header in (("category", "sentence"), ("Topic name", "Text of the article"), ("#topic", "news-text")):
            evaluation.own_topics(write("mine.tsv", header, *rows))
            said = f"its first line is read as a topic and a text, and may be a header: {header[0]!r}, {header[1]!r}"
            assert said in caplog.text

    def test_texts_by_topic(self, write):
        rows = [(["sport", "trade"][i % 2], text) for i, text in enumerate(project_text()[:30])]
        evaluator = evaluation.own_topics(write("mine.tsv.gz", *rows))
        assert (evaluator.name, evaluator.neighbours) == ("mine", 10)
        assert evaluator.labels[:2] == ["sport", "trade"]

    def test_a_small_file_has_fewer_neighbours(self, write):
        evaluator = evaluation.own_topics(write("mine.tsv", ("a", "x"), ("b", "y"), ("a", "z")))
        assert evaluator.neighbours == 2

    @pytest.mark.parametrize("rows", [[], [("a", "x"), ("a", "y")], [("a", "x", "y")]])
    def test_mistakes(self, write, rows):
        with pytest.raises(ValueError, match=r"mine\.tsv"):
            evaluation.own_topics(write("mine.tsv", *rows))

    def test_a_blank_makes_no_topic(self, write):
        rows = [(("sport", "sport ", "trade")[i % 3], sentence) for i, sentence in enumerate(project_text()[:30])]
        assert set(evaluation.own_topics(write("t.tsv", *rows)).labels) == {"sport", "trade"}
        with pytest.raises(ValueError, match="t.tsv, line 2: topic must be a text, got ' '"):
            evaluation.own_topics(write("t.tsv", rows[0], (" ", "x"), *rows))

    def test_what_small_topics_can_reach(self, write, caplog):
        """Ten neighbours, of which two have the topic."""
        rows = [(i % 4, sentence) for i, sentence in enumerate(project_text()[:12])]
        evaluation.own_topics(write("small.tsv", *rows))
        assert "small.tsv: its topics are so small that purity@10 is 20.0 at most" in caplog.text
        caplog.clear()
        evaluation.own_topics(write("small.tsv", *rows), neighbours=2)
        assert not caplog.text
        twice = [("a", "x"), ("a", "y"), ("b", "z"), ("b", "w")] * 2  # of ten, six are others: two copies, four strangers
        evaluator = evaluation.own_topics(write("twice.tsv", *twice))
        assert evaluator.neighbours == 6
        assert "purity@6 is 33.3 at most" in caplog.text


class TestRetrieval:
    def test_with_titles_or_without(self, write, tiny_encoder):
        write("shop/queries.tsv", ("q", "a cat"))
        write("shop/qrels.tsv", ("q", "1", 1), ("q", "2", 0))
        folder = write("shop/corpus.tsv", ("1", "one cat"), ("2", "two dogs")).parent
        plain = evaluation.own_retrieval(folder)
        assert plain.name == "shop"
        assert plain.corpus == ["one cat", "two dogs"]
        (folder / "corpus.tsv").unlink()
        write("shop/corpus.tsv.gz", ("1", "one", "cat"), ("2", "two", "dogs"))
        titled = evaluation.own_retrieval(folder)
        assert titled.corpus == plain.corpus
        assert titled(tiny_encoder())["shop_cosine_mrr@10"] in (0.5, 1.0)

    def test_mistakes(self, write):
        folder = write("shop/queries.tsv", ("q", "a cat")).parent
        with pytest.raises(
            FileNotFoundError, match="corpus.tsv .* does not exist: a directory for retrieval holds queries.tsv"
        ):
            evaluation.own_retrieval(folder)
        write("shop/corpus.tsv", ("1", "one cat"))
        write("shop/qrels.tsv", ("q", "7", 1))
        with pytest.raises(ValueError, match=r"qrels.tsv, line 1: no query 'q' or no document '7'"):
            evaluation.own_retrieval(folder)

    @pytest.mark.parametrize(
        ("queries", "corpus", "place"),
        [
            ([("q", "a cat"), ("q", "a dog")], [("1", "one cat")], r"queries.tsv, line 2: .*'q' again"),
            ([("q", "a cat")], [("1", "one cat"), ("2", "b"), ("1", "a car")], r"corpus.tsv, line 3: .*'1' again"),
            ([("q", "a cat")], [("1", "one", "cat"), ("1", "a", "car")], r"corpus.tsv, line 2: .*'1' again"),
        ],
    )
    def test_an_id_stands_once(self, write, queries, corpus, place):
        """The later text would take the place of the earlier one without a word."""
        write("shop/corpus.tsv", *corpus)
        write("shop/qrels.tsv", ("q", "1", 1))
        with pytest.raises(ValueError, match=place + ": give each text an id of its own"):
            evaluation.own_retrieval(write("shop/queries.tsv", *queries).parent)


def test_a_byte_order_mark_is_no_label(write):
    """Excel's and Notepad's "UTF-8": the first topic was one of its own, the first grade and the first id were errors."""
    mark = "\ufeff"
    topics = evaluation.own_topics(write("topics.tsv", (f"{mark}sport", "x"), ("trade", "y"), ("sport", "z")))
    assert topics.labels == ["sport", "trade", "sport"]
    pairs = evaluation.own_pairs(write("pairs.tsv", (f"{mark}1", "a", "b"), (2, "a", "b"), (3, "a", "b")))
    assert pairs.pairs.scores == [1, 2, 3]
    write("shop/corpus.tsv.gz", (f"{mark}1", "one cat"), ("2", "two dogs"))
    write("shop/qrels.tsv", (f"{mark}q", "1", 1))
    retrieval = evaluation.own_retrieval(write("shop/queries.tsv", (f"{mark}q", "a cat")).parent)
    assert retrieval.corpus == ["one cat", "two dogs"]
    assert retrieval.queries == ["a cat"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("pairs.tsv", "1\ta\tb\n2\ta\tGröße\n".encode("latin1"), "pairs.tsv, line 2: must be UTF-8, got byte 0xf6.*iconv"),
        ("pairs.tsv.gz", b"1\ta\tb\n", "pairs.tsv.gz ends in .gz and is not a whole gzip file"),
    ],
)
def test_a_file_that_is_no_utf8_or_not_gzipped(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        evaluation.own_pairs(tmp_path / name)


def test_a_query_of_nothing(write):
    write("s/queries.tsv", ("a", " "))
    write("s/corpus.tsv", ("a", "x"), ("b", ""))
    path = write("s/qrels.tsv", ("a", "a", 1))
    with pytest.raises(ValueError, match="queries.tsv, id 'a': query must be a text, got ' '"):
        evaluation.own_retrieval(path.parent)


def test_a_gain_of_nothing_is_no_answer(tmp_path):
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "queries.tsv").write_text("q\ta cat\nr\ta dog\n")
    (folder / "corpus.tsv").write_text("1\tone cat\n2\ttwo dogs\n")
    (folder / "qrels.tsv").write_text("q\t1\t2\nq\t2\t0\nr\t1\t0\n")
    evaluator = evaluation.own_retrieval(folder)
    assert evaluator.relevant_docs == {"q": {"1"}}
    assert evaluator.queries_ids == ["q"]
