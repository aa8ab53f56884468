import gzip

import numpy as np
import pytest
from encoders import SENTENCES

from sbert_plugins.data import TokenFrequencies


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
        assert frequencies.probabilities().sum() == pytest.approx(1)


class TestVocabulary:
    def test_one_tokenizer_only(self, tokenizer, minilm):
        frequencies, books = TokenFrequencies.from_corpus(SENTENCES, tokenizer), TokenFrequencies.bookcorpus()
        frequencies.check_tokenizer(tokenizer)
        books.check_tokenizer(minilm.tokenizer)
        for counts, other in ((frequencies, minilm.tokenizer), (books, tokenizer)):
            with pytest.raises(ValueError, match="from_corpus"):
                counts.check_tokenizer(other)

    def test_an_added_token_is_another_vocabulary(self, tokenizers):
        tokenizer = tokenizers["bpe"].__class__(tokenizer_object=tokenizers["bpe"].backend_tokenizer)
        frequencies = TokenFrequencies.from_corpus(SENTENCES, tokenizer)
        tokenizer.add_tokens(["neologism"])
        assert not frequencies.fits(tokenizer)


class TestFiles:
    def test_saved_and_loaded(self, tokenizer, tmp_path):
        first = TokenFrequencies.from_corpus(SENTENCES, tokenizer, source="eight sentences")
        first.save(tmp_path / "counts")
        second = TokenFrequencies.load(tmp_path / "counts")
        assert (first.counts == second.counts).all()
        assert vars(first) | {"counts": 0} == vars(second) | {"counts": 0}
        assert first.mark == second.mark != table(1, 2).mark

    def test_counts_beyond_32_bits(self, tmp_path):
        table(2**40, 1).save(tmp_path / "counts.npz")
        assert TokenFrequencies.load(tmp_path / "counts.npz").counts.tolist() == [2**40, 1]

    def test_bookcorpus_is_its_source(self, data_dir, minilm):
        with gzip.open(
            data_dir / "freq" / "bookcorpus_bert_base_uncased_counts.tsv.gz", "rt", encoding="utf-8"
        ) as lines:
            counts = np.array([int(line.rsplit("\t", 1)[1]) for line in lines])
        frequencies = TokenFrequencies.bookcorpus()
        assert set(minilm.tokenizer.all_special_ids) == set(frequencies.special_ids)
        counts[list(frequencies.special_ids)] = 0  # only [UNK] had occurred, 24 times
        assert (frequencies.counts == counts).all()


class TestLowFrequency:
    @pytest.mark.parametrize(
        ("counts", "share", "by", "low"),
        [
            # shares of running text from below: 0.05, 0.15, 0.30, 0.50
            ((10, 4, 3, 2, 1, 0), 0.5, "mass", [1, 2, 3, 4, 5]),
            ((10, 4, 3, 2, 1, 0), 0.3, "mass", [2, 3, 4, 5]),
            ((10, 4, 3, 2, 1, 0), 0.39, "mass", [2, 3, 4, 5]),  # 0.30 is nearer than 0.50
            ((10, 4, 3, 2, 1, 0), 0.41, "mass", [1, 2, 3, 4, 5]),
            ((10, 4, 3, 2, 1, 0), 0.4, "types", [3, 4, 5]),
            ((10, 4, 3, 2, 1, 0), 0.6, "types", [2, 3, 4, 5]),
            ((10, 4, 3, 2, 1, 0), 0.29, "types", [4, 5]),  # 0.2 is nearer than 0.4
            ((10, 4, 3, 2, 1, 0), 0.31, "types", [3, 4, 5]),
            ((5, 1, 1, 1, 5, 1), 0.3, "types", [1, 2, 3, 5]),  # equal counts share a label
            ((10, 2, 2, 2, 2, 1, 1), 0.25, "mass", [5, 6]),  # shares 0.1 and 0.5
            ((1000, 1, 0), 0.01, "mass", [1, 2]),
            ((1000, 1, 0), 0.99, "mass", [1, 2]),
        ],
    )
    def test_by_hand(self, counts, share, by, low):
        assert table(*counts).low_frequency_ids(share, by).tolist() == low

    def test_special_tokens_are_neither_counted_nor_rare(self):
        assert table(90, 10, 4, 6, 0, special_ids=[0, 4]).low_frequency_ids(0.5, "mass").tolist() == [2, 3]

    @pytest.mark.parametrize(("by", "share"), [("mass", 0.5), ("types", 0.0119)])
    def test_half_of_bookcorpus(self, by, share):
        frequencies = TokenFrequencies.bookcorpus()
        low = frequencies.low_frequency_ids(0.5, by)
        assert frequencies.probabilities()[low].sum() == pytest.approx(share, rel=0.05)
        assert not set(frequencies.special_ids) & set(low.tolist())

    @pytest.mark.parametrize(
        ("counts", "arguments"), [((1, 2), (0,)), ((1, 2), (1.5,)), ((1, 2), (0.5, "rank"))]
    )
    def test_bad_values(self, counts, arguments):
        with pytest.raises(ValueError, match="share|low_frequency_by"):
            table(*counts).low_frequency_ids(*arguments)
