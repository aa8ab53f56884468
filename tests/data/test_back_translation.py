import json
import shutil
import ssl
from pathlib import Path

import pytest
import torch
from datasets import Dataset, config
from encoders import SENTENCES, project_text
from transformers import AutoTokenizer, MarianConfig, MarianMTModel

from sbert_plugins import data


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return tmp_path / "cache" / "sbert_plugins"


@pytest.fixture(scope="module")
def marian(tokenizers, tmp_path_factory):
    """Two tiny random translation models."""

    def build(seed):
        folder = tmp_path_factory.mktemp("marian")
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
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return str(folder)

    return build(0), build(1)


class Reversed:
    """Words from right to left; counts its calls and can fail at one of them."""

    def __init__(self, fail_at=None):
        self.calls, self.fail_at = [], fail_at

    def __call__(self, texts):
        if len(self.calls) == self.fail_at:
            raise KeyboardInterrupt
        self.calls.append(texts)
        return [" ".join(reversed(text.split())) for text in texts]

    def __reduce__(self):  # one translator, whatever it has counted
        return Reversed, ()


def upper(texts):
    return [text.upper() for text in texts]


class TestCallable:
    def test_there_and_back_in_the_order_of_the_sentences(self):
        pairs = data.back_translate(SENTENCES, forward=Reversed(), backward=upper, batch_size=3)
        assert pairs.column_names == ["anchor", "paraphrase"]
        assert pairs["anchor"][:] == SENTENCES
        assert pairs["paraphrase"][:] == [" ".join(reversed(sentence.split())).upper() for sentence in SENTENCES]

    def test_long_sentences_first_in_batches(self):
        forward = Reversed()
        data.back_translate(Dataset.from_dict({"anchor": SENTENCES}), forward=forward, backward=upper, batch_size=3)
        lengths = [len(text) for texts in forward.calls for text in texts]
        assert lengths == sorted(map(len, SENTENCES), reverse=True)
        assert [len(texts) for texts in forward.calls] == [3, 3, 2]

    def test_nothing_comes_back(self, caplog):
        pairs = data.back_translate(SENTENCES, forward=upper, backward=lambda texts: ["", " ", *texts[2:]])
        assert all(pairs["paraphrase"])
        assert sum(a == b for a, b in zip(pairs["anchor"], pairs["paraphrase"], strict=True)) == 2
        assert "2 of 8 sentences came back unchanged or empty" in caplog.text


class TestInterrupted:
    def test_continues_after_the_last_shard(self, cache):
        sentences = project_text()[:20]
        arguments = {"backward": upper, "batch_size": 4, "shard_size": 8}
        stopped = Reversed(fail_at=3)  # in the second of three shards
        with pytest.raises(KeyboardInterrupt):
            data.back_translate(sentences, forward=stopped, **arguments)
        assert len(list(cache.glob("back-translation-*.arrow"))) == 1
        again = Reversed()
        pairs = data.back_translate(sentences, forward=again, **arguments)
        assert sum(len(texts) for texts in again.calls) == 12
        assert pairs["paraphrase"][:] == [" ".join(reversed(sentence.split())).upper() for sentence in sentences]
        finished = Reversed()
        assert data.back_translate(sentences, forward=finished, **arguments).to_dict() == pairs.to_dict()
        assert finished.calls == []

    def test_a_translator_that_changes_while_it_works_is_the_same(self, cache):
        sentences, calls = SENTENCES * 4, []

        class Counting:
            def __init__(self):
                self.count = 0

            def __call__(self, texts):
                self.count += 1
                calls.append(len(texts))
                return [text.upper() for text in texts]

        for expected in (True, False):
            calls.clear()
            data.back_translate(sentences, forward=Counting(), backward=upper, batch_size=2, shard_size=4)
            assert bool(calls) == expected
        assert len(list(cache.glob("back-translation-*.arrow"))) == len(sentences) // 4

    def test_a_translator_that_cannot_be_pickled(self):
        client = ssl.create_default_context()

        def translate(texts):
            return texts if client else []

        with pytest.raises(ValueError, match="a translator must be a callable that can be pickled"):
            data.back_translate(SENTENCES, forward=translate, backward=upper)

    def test_other_work_is_done_anew(self):
        one = data.back_translate(SENTENCES, forward=Reversed(), backward=upper)
        other = data.back_translate(SENTENCES, forward=Reversed(), backward=Reversed())
        assert one["paraphrase"][:] != other["paraphrase"][:] == SENTENCES


class TestModels:
    def test_what_each_model_generates(self, marian, tmp_path):
        """Batched equals one by one, through both models."""
        forward, backward = marian
        pairs = data.back_translate(SENTENCES, forward=forward, backward=backward, batch_size=4, generation={"num_beams": 2})
        assert pairs["anchor"][:] == SENTENCES
        assert len(set(pairs["paraphrase"])) > 1
        assert not set(pairs["paraphrase"]) & set(SENTENCES)
        for sentence, paraphrase in zip(SENTENCES, pairs["paraphrase"], strict=True):
            alone = data.back_translate([sentence], forward=forward, backward=backward, generation={"num_beams": 2})
            assert alone["paraphrase"][:] == [paraphrase]

    def test_a_text_beyond_the_length_of_the_model_is_told_of_once(self, marian, tmp_path, caplog):
        there = tmp_path / "short"
        shutil.copytree(marian[0], there)
        settings = there / "tokenizer_config.json"
        settings.write_text(json.dumps(json.loads(settings.read_text()) | {"model_max_length": 16}))
        data.back_translate([*project_text()[:3], "word " * 30], forward=str(there), backward=marian[1], batch_size=2)
        assert caplog.text.count("reads 16 tokens: of longer texts the rest is left out") == 1

    @pytest.mark.parametrize("codes", [[">>cmn_Hans<<", ">>yue<<"], []])
    def test_a_model_of_several_languages_is_told_of(self, marian, monkeypatch, caplog, codes):
        load = AutoTokenizer.from_pretrained

        def from_pretrained(name):
            tokenizer = load(name)
            tokenizer.supported_language_codes = codes if name == marian[0] else []
            return tokenizer

        monkeypatch.setattr(AutoTokenizer, "from_pretrained", from_pretrained)
        data.back_translate(SENTENCES[:2], forward=marian[0], backward=marian[1])
        assert caplog.text.count("(>>cmn_Hans<<, >>yue<<): none is given") == bool(codes)

    def test_a_changed_model_is_another(self, marian, cache):
        """A path is known by its files, not by its name alone."""
        forward, backward = marian
        data.back_translate(SENTENCES[:2], forward=forward, backward=backward)
        settings = Path(forward) / "generation_config.json"
        settings.write_text(json.dumps(json.loads(settings.read_text()) | {"max_length": 13}))
        data.back_translate(SENTENCES[:2], forward=forward, backward=backward)
        assert len(list(cache.glob("back-translation-*.arrow"))) == 2

    def test_a_finished_one_loads_no_model(self, marian, monkeypatch):
        forward, backward = marian
        pairs = data.back_translate(SENTENCES[:2], forward=forward, backward=backward)
        monkeypatch.setattr("sbert_plugins.data.back_translation._Model._load", lambda self: pytest.fail("was loaded"))
        assert data.back_translate(SENTENCES[:2], forward=forward, backward=backward).to_dict() == pairs.to_dict()

    def test_out_of_reach(self):
        with pytest.raises(OSError, match="nobody/nothing is neither a path here nor a translation model within reach"):
            data.back_translate(SENTENCES[:2], forward="nobody/nothing")


@pytest.mark.parametrize(
    ("sentences", "arguments", "message"),
    [
        (["a"], {"batch_size": 0}, "batch_size must be at least 1, got 0"),
        (["a"], {"shard_size": 0}, "shard_size must be at least 1, got 0"),
        ([], {}, "at least one sentence, got none"),
        (Dataset.from_dict({"text": ["a"]}), {}, "must have a column anchor, got text"),
        (["a"], {"forward": lambda texts: "a"}, "must return a list of as many strings as it is given, 1, got str"),
        (["a"], {"forward": lambda texts: ["a", "b"]}, "must return a list of as many strings .*, 1, got 2 items"),
        (["a"], {"forward": upper, "backward": lambda texts: [None]}, "a list of as many strings"),
    ],
)
def test_bad_input(sentences, arguments, message):
    with pytest.raises(ValueError, match=message):
        data.back_translate(sentences, **arguments)
