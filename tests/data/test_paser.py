from collections import Counter

import datasets
import pytest
from datasets import Dataset
from encoders import project_text

from sbert_plugins import data

MASK = "[MASK]"
SENTENCE = "A dog runs to the sea."


def columns(sentences, **keywords):
    return data.paser_columns(sentences, **{"mask_token": MASK, "synonyms": None, **keywords})


class TestRows:
    @pytest.mark.parametrize("top_k", [1, 3, 10])
    def test_one_row_for_each_of_the_best_phrases(self, top_k):
        sentences = project_text()[:100]
        rows = columns(sentences, top_k=top_k)
        assert rows.column_names == ["anchor", "masked", "phrase"]
        assert [tuple(row.values()) for row in rows] == [
            (sentence, data.hide_phrase(sentence, phrase, mask_token=MASK), space + phrase.text)
            for sentence in sentences
            for phrase in data.locate_phrases(sentence)[:top_k]
            for space in [" " if sentence[: phrase.spans[0][0]].endswith(" ") else ""]
        ]

    def test_further_columns_are_kept(self):
        triplets = {"anchor": [SENTENCE, "It is so."], "positive": ["p", "q"], "negative": ["n", "m"]}
        rows = columns(Dataset.from_dict(triplets), top_k=1, keep_without_phrase=True)
        assert rows.column_names == ["anchor", "positive", "negative", "masked", "phrase"]
        assert [tuple(row.values()) for row in rows] == [
            (SENTENCE, "p", "n", "A [MASK] [MASK] to the sea.", " dog runs"),
            ("It is so.", "q", "m", "It is so.", ""),
        ]

    @pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
    def test_a_phrase_has_the_tokens_that_it_has_in_the_sentence(self, tokenizers, kind):
        # A byte-level BPE has other tokens for a word without a space before it.
        rows = columns(project_text()[:200])
        tokenize = tokenizers[kind]
        for anchor, phrase in zip(rows["anchor"], rows["phrase"], strict=True):
            whole, part = (
                f" {tokenize(text, add_special_tokens=False)['input_ids']}"[2:-1] for text in (anchor, phrase)
            )
            assert f", {part}," in f", {whole},"

    def test_in_a_sentence_with_the_mask_token_nothing_is_hidden(self, caplog):
        masked = f"The {MASK} sails to the old harbour."
        rows = columns([masked, SENTENCE], keep_without_phrase=True)
        assert rows[0] == {"anchor": masked, "masked": masked, "phrase": ""}
        assert masked not in columns([masked, SENTENCE])["anchor"]
        assert "1 of 2" in caplog.text

    @pytest.mark.parametrize("name", ["anchor", "text", "sentence"])
    @pytest.mark.parametrize("kind", [None, "numpy", "arrow", "pandas"])
    def test_columns_and_formats(self, name, kind):
        assert (
            columns(Dataset.from_dict({name: [SENTENCE]}).with_format(kind)).to_dict()
            == columns([SENTENCE]).to_dict()
        )

    def test_a_transform_is_applied_once(self):
        table = Dataset.from_dict({"anchor": [SENTENCE]})
        rows = columns(
            table.with_transform(lambda batch: {"anchor": [f"query: {text}" for text in batch["anchor"]]})
        )
        assert set(rows["anchor"]) == {f"query: {SENTENCE}"}

    @pytest.mark.parametrize(
        ("sentences", "keywords"),
        [([SENTENCE], {"mask_token": None}), (["It is so."], {}), (Dataset.from_dict({"a": [SENTENCE]}), {})],
    )
    def test_nothing_to_make(self, sentences, keywords):
        with pytest.raises(ValueError, match="mask_token|phrase|anchor"):
            columns(sentences, **keywords)


class TestChanges:
    def test_synonyms_in_both_copies_but_not_in_the_phrase(self, wordnet):
        plain, rows = columns(project_text()[:60]), data.paser_columns(project_text()[:60], mask_token=MASK)
        assert rows["phrase"][:] == plain["phrase"][:]
        for column in ("anchor", "masked"):
            assert sum(a != b for a, b in zip(plain[column], rows[column], strict=True)) > 0.9 * len(rows)
        assert all(
            a.count(MASK) == b.count(MASK) for a, b in zip(plain["masked"], rows["masked"], strict=True)
        )
        assert not any(row["anchor"] == row["masked"].replace(MASK, "") for row in rows)

    @pytest.mark.parametrize("noise", [{"deletion": 0.3}, {"swap": 0.3}, {"deletion": 0.2, "swap": 0.2}])
    def test_deletion_and_swap(self, noise):
        rows, plain = columns(project_text()[:40], **noise), columns(project_text()[:40])
        assert rows["phrase"][:] == plain["phrase"][:]
        assert rows["anchor"][:] != plain["anchor"][:]
        assert all(
            a.count(MASK) == b.count(MASK) for a, b in zip(rows["masked"], plain["masked"], strict=True)
        )

    def test_versions_differ_in_their_changes_only(self):
        sentences = project_text()[:20]
        once, rows = (columns(sentences, deletion=0.3, top_k=2, versions=count) for count in (1, 3))
        assert len(rows) == 3 * len(once)
        first = [(row["anchor"], row["masked"]) for row in rows]
        assert {(row["anchor"], row["masked"]) for row in once} <= {*first}
        assert len({*first}) > 0.9 * len(rows)
        assert Counter(rows["phrase"]) == Counter(3 * once["phrase"][:])

    def test_functions(self):
        rows = columns(
            ["Ann met Robert."],
            extractor=lambda sentence: [(0, 3, 1.0)],
            synonyms=lambda sentence, rng, *, keep: f"{sentence} {keep} {rng.random() < 2}",
        )
        assert tuple(rows[0].values()) == (
            "Ann met Robert. [MASK] True",
            "[MASK] met Robert. [MASK] True",
            "Ann",
        )

    def test_without_wordnet(self, monkeypatch, caplog):
        monkeypatch.setattr("nltk.data.path", [])
        assert data.paser_columns([SENTENCE], mask_token=MASK)["anchor"][0] == SENTENCE
        assert "WITHOUT synonyms" in caplog.text
        with pytest.raises(FileNotFoundError, match="WordNet"):
            columns([SENTENCE], synonyms=0.5)


class TestReproducible:
    @pytest.mark.slow
    def test_by_seed_whatever_the_number_of_processes(self, wordnet, tmp_path, monkeypatch):
        results = []
        for number, (seed, num_proc) in enumerate([(0, None), (0, 2), (1, None)]):
            monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / str(number))
            given = {"synonyms": 0.5, "deletion": 0.1, "swap": 0.1, "seed": seed, "num_proc": num_proc}
            results.append(columns(project_text()[:50], **given).to_dict())
        assert results[0] == results[1]
        assert results[0]["anchor"] != results[2]["anchor"]

    @pytest.mark.parametrize("num_proc", [None, 2])
    def test_made_once(self, cache, num_proc):
        same, again, other = (
            columns(project_text()[:20], extractor=data.Rake(max_words=most), num_proc=num_proc)
            for most in (9, 9, 1)
        )
        assert same.cache_files == again.cache_files != other.cache_files
        assert len(list(cache.glob("paser-*"))) == 2 * (num_proc or 1)
        assert all(len(phrase.split()) == 1 for phrase in other["phrase"])
