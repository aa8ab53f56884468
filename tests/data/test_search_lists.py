import math

import numpy as np
import pytest

from sbert_plugins import data

DOCUMENTS = ["red cars and red boats", "The blue car", "boats, boats!", ""]


def test_bm25_by_hand():
    # Without stop words: red cars red boats | blue car | boats boats. Their mean length is 8 / 4.
    def score(count, length, containing):
        idf = math.log(1 + (4 - containing + 0.5) / (containing + 0.5))
        return idf * count / (count + 1.2 * (0.25 + 0.75 * length / 2))

    found = data.bm25_scores(DOCUMENTS, ["Red boats?", "the", "yellow", ""])
    assert found.shape == (4, 4)
    expected = [score(2, 4, 1) + score(1, 4, 2), 0, score(2, 2, 2), 0]
    assert found[0].tolist() == pytest.approx(expected, rel=1e-5)
    assert not found[1:].any()


def test_bm25_with_other_words():
    letters = data.bm25_scores(["天気がいい", "雨が降る"], ["雨"], words=list)
    assert letters.argmax() == 1 and letters[0, 0] == 0
    assert data.bm25_scores(["der Hund", "die Katze"], ["der"], stop_words=[])[0, 0] > 0
    assert not data.bm25_scores(["der Hund", "die Katze"], ["der"], stop_words="german").any()
    with pytest.raises(ValueError, match="no words"):
        data.bm25_scores(["the", "!"], ["red"])


def test_mix_by_hand():
    # z-scores (-1.2247, 0, 1.2247) of the cosines and (1.4142, -0.7071, -0.7071) of BM25.
    cosines, bm25 = np.array([[1.0, 2.0, 3.0]]), np.array([[9.0, 0.0, 0.0]])
    expected = [0.7 * -1.22474 + 0.3 * 1.41421, 0.3 * -0.70711, 0.7 * 1.22474 - 0.3 * 0.70711]
    assert data.mix_scores(cosines, bm25)[0].tolist() == pytest.approx(expected, abs=1e-4)
    # Without the second document: (-1, 1) and (1, -1).
    assert data.mix_scores(cosines, bm25, [1], mix=0.25)[0] == pytest.approx([-0.5, -np.inf, 0.5])
    assert not data.mix_scores(cosines, np.zeros((1, 3)), mix=1.0).any()  # no word of the query is known


def test_queries_are_sentences():
    texts = [
        "One two three four five. Short. One two three four five.",
        "A b c d e! F g h i j? K l m n o.",
        "No.",
    ]
    queries, own = data.pseudo_queries(texts, per_document=2)
    by_document = [{query for query, place in zip(queries, own, strict=True) if place == i} for i in range(3)]
    assert by_document[0] == {"One two three four five."} and not by_document[2]
    assert by_document[1] < {"A b c d e!", "F g h i j?", "K l m n o."} and len(queries) == 3
    assert data.pseudo_queries(texts, seed=1) == data.pseudo_queries(texts, seed=1)
    assert data.pseudo_queries(texts, limit=2) == (queries[:2], own[:2])
    with pytest.raises(ValueError, match="None of the 2"):
        data.pseudo_queries(["Short.", ""])


def test_the_own_document_is_in_no_list():
    texts = [
        f"{word} are in the water of the sea. Nobody saw {word}." for word in ("cats", "dogs", "cows", "rats")
    ]
    queries, own = data.pseudo_queries(texts, min_words=3)
    bm25 = data.bm25_scores(texts, queries)
    assert (bm25.argmax(axis=1) == own).all()
    scores = data.mix_scores(np.random.default_rng(0).random(bm25.shape), bm25, own)
    rows = data.search_rows(queries, texts, scores, size=3)
    assert rows.column_names == ["query", "document_1", "document_2", "document_3", "label"]
    for row in rows:
        line, *places = row["label"]
        assert row["query"] == queries[line] and own[line] not in places and len(set(places)) == 3
        assert [row[f"document_{i}"] for i in (1, 2, 3)] == [texts[place] for place in places]
        assert (np.diff(scores[line, places]) <= 0).all()
    with pytest.raises(ValueError, match="got 4"):
        data.search_rows(queries, texts, scores, size=4)
    with pytest.raises(ValueError, match="got 4"):
        data.search_rows(queries, texts, np.zeros((len(queries), 4)), size=5)
