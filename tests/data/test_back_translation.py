import json
import shutil

import pytest
import torch
from datasets import Dataset
from encoders import SENTENCES, project_text
from transformers import MarianConfig, MarianMTModel

from sbert_plugins import data
from sbert_plugins.data import back_translation


@pytest.fixture(scope="module")
def marian(tokenizers, tmp_path_factory):
    """Two tiny random translation models."""
    folders = []
    for seed in (0, 1):
        tokenizer = tokenizers["unigram"]
        torch.manual_seed(seed)
        model = MarianMTModel(
            MarianConfig(
                vocab_size=len(tokenizer),
                d_model=16,
                encoder_layers=1,
                decoder_layers=1,
                encoder_attention_heads=2,
                decoder_attention_heads=2,
                encoder_ffn_dim=32,
                decoder_ffn_dim=32,
                max_position_embeddings=128,
                pad_token_id=tokenizer.pad_token_id,
                eos_token_id=tokenizer.eos_token_id,
                decoder_start_token_id=tokenizer.pad_token_id,
                forced_eos_token_id=tokenizer.eos_token_id,
                init_std=0.5,
            )
        )
        model.generation_config.max_length = 12
        folders.append(tmp_path_factory.mktemp("marian"))
        model.save_pretrained(folders[-1])
        tokenizer.save_pretrained(folders[-1])
    return [str(folder) for folder in folders]


CALLS = []  # texts of each call of reverse()
LIMIT = [100]  # number of calls after which it is interrupted


def reverse(texts):
    if len(CALLS) == LIMIT[-1]:
        raise KeyboardInterrupt
    CALLS.append(texts)
    return [" ".join(reversed(text.split())) for text in texts]


def upper(texts):
    return [text.upper() for text in texts]


@pytest.fixture(autouse=True)
def no_calls(monkeypatch):
    CALLS.clear()
    LIMIT[:] = [100]


class TestFunctions:
    @pytest.mark.parametrize(
        "make", [list, lambda texts: Dataset.from_dict({"anchor": texts})], ids=["list", "dataset"]
    )
    def test_there_and_back_in_the_order_of_the_sentences(self, make):
        pairs = data.back_translate(make(SENTENCES), forward=reverse, backward=upper, batch_size=3)
        assert pairs.column_names == ["anchor", "positive"]
        assert pairs["anchor"][:] == SENTENCES
        assert pairs["positive"][:] == upper(reverse(SENTENCES))
        lengths = [len(text) for texts in CALLS[:-1] for text in texts]
        assert lengths == sorted(map(len, SENTENCES), reverse=True)
        assert [len(texts) for texts in CALLS[:-1]] == [3, 3, 2]

    def test_a_sentence_without_translation_is_its_own_positive(self, caplog):
        pairs = data.back_translate(SENTENCES, forward=upper, backward=lambda texts: ["", " ", *texts[2:]])
        assert sum(row["anchor"] == row["positive"] for row in pairs) == 2
        assert "2 of 8" in caplog.text

    def test_continues_after_the_last_shard(self, cache):
        sentences = project_text()[:20]
        arguments = {"forward": reverse, "backward": upper, "batch_size": 4, "shard_size": 8}
        LIMIT[:] = [3]  # in the second of three shards
        with pytest.raises(KeyboardInterrupt):
            data.back_translate(sentences, **arguments)
        assert len(list(cache.glob("back-translation-*.arrow"))) == 1
        LIMIT[:] = [6]  # three more calls, for the second and the third shard
        pairs = data.back_translate(sentences, **arguments)
        assert data.back_translate(sentences, **arguments).to_dict() == pairs.to_dict()
        LIMIT[:] = [100]
        other = data.back_translate(sentences, **arguments | {"backward": reverse})
        assert pairs["positive"][:] == upper(reverse(sentences))
        assert other["positive"][:] == sentences


class TestModels:
    def test_batched_as_one_by_one(self, marian, monkeypatch):
        given = dict(zip(("forward", "backward"), marian, strict=True)) | {"generation": {"num_beams": 2}}
        pairs = data.back_translate(SENTENCES, batch_size=4, **given)
        assert pairs["anchor"][:] == SENTENCES
        assert len(set(pairs["positive"])) > 1
        assert not set(pairs["positive"]) & set(SENTENCES)
        for row in pairs.select(range(3)):
            assert data.back_translate([row["anchor"]], **given)["positive"][:] == [row["positive"]]
        monkeypatch.setattr(back_translation, "_translate", None)  # finished shards need no model
        assert data.back_translate(SENTENCES, batch_size=4, **given).to_dict() == pairs.to_dict()

    def test_a_text_that_is_too_long_is_cut_with_a_warning(self, marian, tmp_path, caplog):
        there = tmp_path / "short"
        shutil.copytree(marian[0], there)
        settings = there / "tokenizer_config.json"
        settings.write_text(json.dumps(json.loads(settings.read_text()) | {"model_max_length": 16}))
        data.back_translate(["A dog.", "word " * 30], forward=str(there), backward=marian[1])
        assert "16 tokens" in caplog.text


def test_a_translator_without_a_result():
    # None for a text leaves the sentence as it is. None for all is an error.
    pairs = data.back_translate(["A dog.", "A cat."], forward=lambda texts: [None, "X"], backward=list)
    assert pairs["positive"][:] == ["A dog.", "X"]
    for wrong in (lambda texts: None, lambda texts: texts[:1]):
        with pytest.raises(ValueError, match="2 texts"):
            data.back_translate(["A dog.", "A cat."], forward=wrong, backward=list)
