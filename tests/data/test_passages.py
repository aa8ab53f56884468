import pytest
from datasets import Dataset

from sbert_plugins.data import split_passages, split_sentences

SENTENCES = ["It rains.", "Nobody in the village sails today.", "The boats stay in the harbour.", "Why?"]


@pytest.fixture
def tokenizer(tiny_encoder):
    return tiny_encoder().tokenizer


def lengths(tokenizer, texts):
    return [len(tokenizer(text)["input_ids"]) for text in texts]


@pytest.mark.parametrize("architecture", ["bert", "roberta", "xlm-roberta"])
def test_passages_take_as_many_sentences_as_fit(tiny_encoder, architecture):
    tokenizer = tiny_encoder(architecture).tokenizer
    (first, second, third, _), document = lengths(tokenizer, SENTENCES), "\n".join(SENTENCES)
    special = tokenizer.num_special_tokens_to_add()
    assert split_passages([document], tokenizer, first + second - special)["document"][:] == [
        " ".join(SENTENCES[:2]),
        " ".join(SENTENCES[2:]),
    ]
    assert split_passages([document], tokenizer, max(second, third))["document"][:2] == SENTENCES[:2]
    assert split_passages([document], tokenizer, 1000)["document"][:] == [" ".join(SENTENCES)]


def test_a_long_sentence_is_cut_and_nothing_is_lost(tokenizer):
    text = "It rains. A " + " ".join(f"word{i}" for i in range(100)) + ". Why?"
    passages = split_passages([text], tokenizer, 16)["document"][:]
    assert "".join("".join(passages).split()) == "".join(text.split())
    assert max(lengths(tokenizer, passages)) <= 17  # the first token of a piece may be split anew
    assert passages[0] == "It rains."


def test_columns_titles_and_the_number(tokenizer, caplog):
    caplog.set_level("INFO")
    rows = {"document": [" ".join(SENTENCES), "Why?"], "title": ["A long title about rain", ""], "id": [7, 8]}
    passages = split_passages(Dataset.from_dict(rows), tokenizer, 20)
    assert passages["id"][:] == [7] * (len(passages) - 1) + [8]
    assert passages["title"][0] == rows["title"][0]
    with_title = [f"{row['title']} {row['document']}" for row in passages]
    assert max(lengths(tokenizer, with_title)) <= 20
    assert len(split_passages(rows["document"], tokenizer, 20)) < len(passages)
    assert f"2 documents into {len(passages)} passages" in caplog.text


def test_another_splitter(tokenizer):
    text = "one; two; three"
    (length,) = lengths(tokenizer, ["one two"])
    passages = split_passages([text], tokenizer, length, split=lambda text: text.split("; "))
    assert passages["document"][:] == ["one two", "three"]
    assert split_sentences(text) == [text]
