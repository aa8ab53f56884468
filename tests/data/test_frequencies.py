import gzip
import tracemalloc

import numpy as np
import pandas
import pytest
from datasets import Dataset, DatasetDict
from encoders import SENTENCES, project_text

from sbert_plugins.data import TokenFrequencies
from sbert_plugins.data.frequency import vocabulary_hash


@pytest.fixture(params=["wordpiece", "bpe", "unigram"])
def tokenizer(request, tokenizers):
    return tokenizers[request.param]


def table(*counts, special_ids=()):
    return TokenFrequencies(counts, vocabulary="hash", special_ids=special_ids)


class TestFromCorpus:
    def test_counts_every_token_and_no_special_one(self, tokenizer):
        frequencies = TokenFrequencies.from_corpus(SENTENCES, tokenizer)
        expected = np.zeros(len(tokenizer), dtype=int)
        for sentence in SENTENCES:
            for i in tokenizer(sentence, add_special_tokens=False)["input_ids"]:
                expected[i] += i not in tokenizer.all_special_ids
        assert (frequencies.counts == expected).all()
        assert frequencies.fits(tokenizer)

    def test_long_sentences_are_counted_whole(self, tokenizer):
        tokenizer.model_max_length = 128
        frequencies = TokenFrequencies.from_corpus([" ".join(SENTENCES * 20)], tokenizer)
        assert frequencies.counts.sum() > 20 * 60

    def test_memory_does_not_grow_with_the_corpus(self, tokenizers):
        def peak(count):
            tracemalloc.start()
            TokenFrequencies.from_corpus((text[i % 100] for i in range(count)), tokenizers["wordpiece"])
            (_, highest), _ = tracemalloc.get_traced_memory(), tracemalloc.stop()
            return highest

        text = project_text()
        peak(1000)  # what is loaded once
        assert peak(8000) < 1.2 * peak(2000)

    def test_bad_input(self, tokenizers):
        with pytest.raises(TypeError, match="must be an iterable of texts, got one text"):
            TokenFrequencies.from_corpus("A sentence.", tokenizers["bpe"])
        rows = {"text": ["A sentence."]}
        for names in (pandas.DataFrame(rows), DatasetDict(train=Dataset.from_dict(rows))):
            with pytest.raises(TypeError, match=f"must be texts, got {type(names).__name__}: name a split or a column"):
                TokenFrequencies.from_corpus(names, tokenizers["bpe"])
        with pytest.raises(TypeError, match="must be texts, got NoneType"):
            TokenFrequencies.from_corpus(["A sentence.", None], tokenizers["bpe"])
        with pytest.raises(ValueError, match="must hold a token that occurs, got zeros only"):
            TokenFrequencies.from_corpus([], tokenizers["bpe"])


class TestFiles:
    def test_round_trip(self, tokenizer, tmp_path):
        first = TokenFrequencies.from_corpus(SENTENCES, tokenizer, source="eight sentences")
        first.save(tmp_path / "counts")
        second = TokenFrequencies.load(tmp_path / "counts")
        assert (first.counts == second.counts).all()
        assert vars(first) | {"counts": 0} == vars(second) | {"counts": 0}

    def test_a_damaged_file(self, tmp_path):
        table(2, 1).save(tmp_path / "counts.npz")
        whole = (tmp_path / "counts.npz").read_bytes()
        noticed = 0
        for place in range(0, len(whole), 7):
            (tmp_path / "counts.npz").write_bytes(whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :])
            try:
                TokenFrequencies.load(tmp_path / "counts.npz")
            except ValueError as error:
                assert "must be a file that TokenFrequencies.save has written" in str(error)
                noticed += 1
        assert noticed > 10

    def test_special_ids_out_of_range(self):
        for wrong in (-1, 2):
            with pytest.raises(ValueError, match=f"special_ids must be ids from 0 to 1, got {wrong}"):
                TokenFrequencies([2, 1], vocabulary="", special_ids=[wrong])

    def test_counts_beyond_32_bits(self, tmp_path):
        table(2**40, 1).save(tmp_path / "counts.npz")
        assert TokenFrequencies.load(tmp_path / "counts.npz").counts.tolist() == [2**40, 1]

    @pytest.mark.parametrize("content", [b"", b"token\tcount\n", b"PK\x03\x04"])
    def test_another_file(self, tmp_path, content):
        (tmp_path / "counts.npz").write_bytes(content)
        with pytest.raises(ValueError, match=r"counts.npz must be a file that TokenFrequencies.save has written"):
            TokenFrequencies.load(tmp_path / "counts.npz")
        with pytest.raises(FileNotFoundError):
            TokenFrequencies.load(tmp_path / "nothing.npz")


class TestBookCorpus:
    def test_is_for_minilm_and_its_kin(self, minilm):
        frequencies = TokenFrequencies.bookcorpus()
        assert frequencies.fits(minilm.tokenizer)
        assert set(minilm.tokenizer.all_special_ids) == set(frequencies.special_ids)
        assert frequencies.counts[minilm.tokenizer.convert_tokens_to_ids("the")] == 38_322_571

    def test_is_the_source(self, data_dir):
        with gzip.open(data_dir / "freq" / "bookcorpus_bert_base_uncased_counts.tsv.gz", "rt", encoding="utf-8") as lines:
            counts = np.array([int(line.rsplit("\t", 1)[1]) for line in lines])
        frequencies = TokenFrequencies.bookcorpus()
        counts[list(frequencies.special_ids)] = 0  # [UNK] alone had occurred, 24 times
        assert (frequencies.counts == counts).all()

    def test_half_of_the_text_and_half_of_the_types(self):
        frequencies = TokenFrequencies.bookcorpus()
        shares = {}
        for by in ("mass", "types"):
            low = frequencies.low_frequency_ids(0.5, by)
            shares[by] = frequencies.counts[low].sum() / frequencies.counts.sum()
            assert not set(frequencies.special_ids) & set(low.tolist())
        assert shares["mass"] == pytest.approx(0.5, abs=0.02)
        assert shares["types"] == pytest.approx(0.0119, abs=0.0001)

    def test_another_vocabulary_is_refused(self, tokenizer):
        with pytest.raises(ValueError, match=r"must be of the encoder's vocabulary .*TokenFrequencies.from_corpus"):
            TokenFrequencies.bookcorpus().check_tokenizer(tokenizer)

    def test_an_added_token_is_another_vocabulary(self, tokenizers):
        tokenizer = tokenizers["bpe"].__class__(tokenizer_object=tokenizers["bpe"].backend_tokenizer)
        before = vocabulary_hash(tokenizer)
        tokenizer.add_tokens(["neologism"])
        assert vocabulary_hash(tokenizer) != before


class TestLowFrequency:
    def test_by_hand(self):
        frequencies = table(10, 4, 3, 2, 1, 0)  # shares of running text from below: .05, .15, .30, .50
        assert frequencies.low_frequency_ids(0.5, "mass").tolist() == [1, 2, 3, 4, 5]
        assert frequencies.low_frequency_ids(0.3, "mass").tolist() == [2, 3, 4, 5]
        assert frequencies.low_frequency_ids(0.4, "types").tolist() == [3, 4, 5]
        assert frequencies.low_frequency_ids(0.6, "types").tolist() == [2, 3, 4, 5]

    def test_equal_counts_share_a_label(self):
        frequencies = table(5, 1, 1, 1, 5, 1)
        assert frequencies.low_frequency_ids(0.3, "types").tolist() == [1, 2, 3, 5]

    def test_there_is_always_one_of_each(self):
        frequencies = table(1000, 1, 0)
        for share in (0.01, 0.99):
            assert frequencies.low_frequency_ids(share, "mass").tolist() == [1, 2]

    def test_special_tokens_are_neither_counted_nor_rare(self):
        frequencies = table(90, 10, 4, 6, 0, special_ids=[0, 4])
        assert frequencies.low_frequency_ids(0.5, "mass").tolist() == [2, 3]

    @pytest.mark.parametrize("share", [0, 1, -0.5, 1.5])
    def test_share(self, share):
        with pytest.raises(ValueError, match=rf"share must be in \(0, 1\), got {share}"):
            table(1, 2).low_frequency_ids(share)

    def test_kind(self):
        with pytest.raises(ValueError, match="low_frequency_by must be 'mass' or 'types', got 'rank'"):
            table(1, 2).low_frequency_ids(low_frequency_by="rank")

    def test_all_equal(self):
        with pytest.raises(ValueError, match="differ in their counts, got 3 for each: count a larger corpus"):
            table(3, 3, 0).low_frequency_ids()

    @pytest.mark.parametrize("counts", [[0.5, 1.0], [-1, 2], [[1, 2]]])
    def test_counts(self, counts):
        with pytest.raises(ValueError, match="counts must be one integer of at least 0 for each id"):
            TokenFrequencies(counts, vocabulary="hash")


def test_counts_that_say_nothing_split_any_vocabulary(tokenizer):
    frequencies = TokenFrequencies.of_no_corpus(tokenizer)
    assert frequencies.fits(tokenizer)
    assert 0 < len(frequencies.low_frequency_ids()) < len(tokenizer)


@pytest.mark.parametrize(
    ("share", "by", "low"),
    [
        (0.39, "mass", [2, 3, 4, 5]),  # .30 is nearer than .50
        (0.41, "mass", [1, 2, 3, 4, 5]),
        (0.29, "types", [4, 5]),  # .2 is nearer than .4
        (0.31, "types", [3, 4, 5]),
    ],
)
def test_the_nearest_cut(share, by, low):
    assert table(10, 4, 3, 2, 1, 0).low_frequency_ids(share, by).tolist() == low


def test_a_share_of_the_text_counts_every_token_of_a_count():
    """Of 20 tokens 2 occur once and 8 twice: shares .1 and .5, to which .25 is nearer than to .5."""
    assert table(10, 2, 2, 2, 2, 1, 1).low_frequency_ids(0.25, "mass").tolist() == [5, 6]
