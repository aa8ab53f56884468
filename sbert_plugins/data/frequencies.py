"""Frequencies of tokens in a corpus, and the rare ones among the tokens (SLT-FAI section 3.5)."""

import hashlib
from collections.abc import Iterable
from importlib.resources import as_file, files
from itertools import islice
from pathlib import Path
from typing import Any, Self

import numpy as np

from .columns import check_texts


class TokenFrequencies:
    """Counts of the tokens of one vocabulary.

    The vocabulary is identified by a hash of its tokens in the order of their ids.

    Args:
        counts: (V,) occurrences of each token id.
        vocabulary: Hash of the vocabulary: the attribute ``vocabulary`` of other counts of it.
        special_ids: Ids of tokens that are not text ([CLS], padding, ...). Their counts are set to 0, and
            they are never rare.
        source: Name of the corpus.

    Raises:
        ValueError: If all counts are 0.

    Example:
        >>> frequencies = TokenFrequencies.bookcorpus()
        >>> int(frequencies.counts.sum())
        1098720816
        >>> [len(frequencies.low_frequency_ids(0.5, by)) for by in ("mass", "types")]
        [30474, 16753]
    """

    def __init__(
        self, counts: Any, *, vocabulary: str, special_ids: Iterable[int] = (), source: str = ""
    ) -> None:
        self.counts = np.array(counts, dtype=np.int64)
        self.vocabulary = vocabulary
        self.special_ids = tuple(sorted(special_ids))
        self.source = source
        self.counts[list(self.special_ids)] = 0
        if not self.counts.any():
            raise ValueError("All counts are 0: the corpus contains no token of the vocabulary.")

    @property
    def mark(self) -> str:
        """Short hash of the counts, for names and records."""
        return f"counts {hashlib.sha256(self.counts.tobytes()).hexdigest()[:12]}"

    @classmethod
    def bookcorpus(cls) -> Self:
        """Return the counts that ship with the package: 1.1 billion tokens of BookCorpus.

        They are those of the paper, published by its authors, for the vocabulary of ``bert-base-uncased``.
        MiniLM and many other encoders have this vocabulary.
        """
        with as_file(files("sbert_plugins.data.resources") / "bookcorpus_counts.npz") as path:
            return cls.load(path)

    @classmethod
    def from_corpus(cls, sentences: Iterable[str], tokenizer: Any, *, source: str = "") -> Self:
        """Count the tokens of a corpus.

        Memory does not grow with the corpus: a generator, an open file or a column of a dataset
        (``dataset["text"]``) is read in batches. A fast tokenizer uses all cores, unless
        TOKENIZERS_PARALLELISM is "false" in the environment.

        Args:
            sentences: Texts. They are not truncated, and no special tokens are added.
            tokenizer: The encoder's tokenizer (``model.tokenizer``), from transformers.
            source: Name of the corpus.

        Raises:
            ValueError: If the texts contain no token.
        """
        check_texts(sentences)
        counts = np.zeros(_vocabulary_size(tokenizer), dtype=np.int64)
        rest = iter(sentences)
        while batch := list(islice(rest, 1000)):
            ids = tokenizer(
                batch,
                add_special_tokens=False,
                return_attention_mask=False,
                return_token_type_ids=False,
                verbose=False,
            )["input_ids"]
            counts += np.bincount(
                np.fromiter((i for row in ids for i in row), dtype=np.int64), minlength=len(counts)
            )
        return cls(
            counts,
            vocabulary=vocabulary_hash(tokenizer),
            special_ids=tokenizer.all_special_ids,
            source=source,
        )

    def save(self, path: str | Path) -> None:
        """Write the counts to a compressed ``.npz`` file."""
        narrow = np.uint32 if self.counts.max() < 2**32 else np.int64
        with open(path, "wb") as file:  # to a path numpy would add a suffix
            np.savez_compressed(
                file,
                counts=self.counts.astype(narrow),
                special_ids=np.array(self.special_ids, dtype=np.int64),
                vocabulary=np.array(self.vocabulary),
                source=np.array(self.source),
            )

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file that :meth:`save` has written."""
        with np.load(path, allow_pickle=False) as file:
            return cls(
                file["counts"],
                vocabulary=str(file["vocabulary"]),
                special_ids=file["special_ids"].tolist(),
                source=str(file["source"]),
            )

    def check_tokenizer(self, tokenizer: Any) -> None:
        """Raise ``ValueError`` unless the counts belong to this tokenizer's vocabulary."""
        if not self.fits(tokenizer):
            raise ValueError(
                f"The frequencies belong to another vocabulary ({len(self.counts):,} tokens) than the "
                f"encoder's ({len(tokenizer):,} tokens). Count a corpus with its tokenizer: "
                "data.TokenFrequencies.from_corpus(texts, model.tokenizer)."
            )

    def fits(self, tokenizer: Any) -> bool:
        """Return whether the counts belong to this tokenizer's vocabulary."""
        return (
            _vocabulary_size(tokenizer) == len(self.counts) and vocabulary_hash(tokenizer) == self.vocabulary
        )

    def probabilities(self) -> np.ndarray:
        """Return (V,) float64, the share of each token in running text. Special tokens have 0."""
        return self.counts / self.counts.sum()

    def low_frequency_ids(self, share: float = 0.5, low_frequency_by: str = "types") -> np.ndarray:
        r"""Return the ids of the rare tokens: a share :math:`\lambda` of those that occur, or of the text.

        Tokens that occur equally often are all rare, or none is. Of the possible shares the one nearest to
        :math:`\lambda` is taken. Tokens that do not occur are rare, special tokens are not.

        Args:
            share: :math:`\lambda`, in (0, 1).
            low_frequency_by: ``"types"``: a share of the different tokens that occur. Half of BERT's tokens
                are 1.2 % of the text of BookCorpus, and 12 % of Wikipedia's. ``"mass"``: a share of running
                text, so that about this share of the tokens of a sentence is rare.

        Returns:
            Ids in ascending order.

        Raises:
            ValueError: If an argument is out of range.
        """
        if not 0 < share < 1:
            raise ValueError(f"share must be in (0, 1), not {share}. The paper's is 0.5.")
        if low_frequency_by not in ("mass", "types"):
            raise ValueError(f"low_frequency_by must be 'mass' or 'types', not {low_frequency_by!r}.")
        levels, types = np.unique(self.counts[self.counts > 0], return_counts=True)  # ascending
        weights = types * levels if low_frequency_by == "mass" else types
        # The share up to each level. The highest level is never rare.
        below = np.cumsum(weights)[:-1] / weights.sum()
        low = self.counts <= levels[np.abs(below - share).argmin()]
        low[list(self.special_ids)] = False
        return low.nonzero()[0]


def vocabulary_hash(tokenizer: Any) -> str:
    """Return the SHA-256 of a tokenizer's tokens in the order of their ids, one per line."""
    tokens = [
        token or "" for token in tokenizer.convert_ids_to_tokens(list(range(_vocabulary_size(tokenizer))))
    ]
    return hashlib.sha256("\n".join(tokens).encode("utf-8", "surrogatepass")).hexdigest()


def _vocabulary_size(tokenizer: Any) -> int:
    """Return the highest token id plus one. Some vocabularies leave ids out."""
    return max(len(tokenizer), 1 + max(tokenizer.get_vocab().values()))
