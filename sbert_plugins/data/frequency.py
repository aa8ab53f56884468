"""How often each token of a vocabulary occurs in a corpus, and which tokens are rare (SLT-FAI section 3.5)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from importlib.resources import as_file, files
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from .noise import goes_by_keys

_BATCH = 1000  # sentences tokenised at a time


class TokenFrequencies:
    """Counts of the tokens of one vocabulary.

    The vocabulary is known by a hash of its tokens in the order of their ids: counts of one are refused for another.

    Args:
        counts: (V,), occurrences of each id.
        vocabulary: Its hash, the attribute ``vocabulary`` of other counts of it.
        special_ids: Ids that are no text ([CLS], padding, ...). They are neither counted nor ever called rare.
        source: Where the counts are from, in words.

    Raises:
        ValueError: On counts that are not integers of at least 0, one for each id, or that are all 0, and on special ids that
            are none.

    Example:
        >>> frequencies = TokenFrequencies.bookcorpus()
        >>> int(frequencies.counts.sum())
        1098720816
        >>> [len(frequencies.low_frequency_ids(0.5, by)) for by in ("mass", "types")]
        [30474, 16753]
    """

    def __init__(self, counts: Any, *, vocabulary: str, special_ids: Iterable[int] = (), source: str = "") -> None:
        self.counts = np.array(counts)
        self.vocabulary = vocabulary
        self.special_ids = tuple(sorted(special_ids))
        self.source = source
        if self.counts.ndim != 1 or self.counts.dtype.kind not in "iu" or (self.counts < 0).any():
            raise ValueError(
                f"counts must be one integer of at least 0 for each id, got {self.counts.dtype} of shape {self.counts.shape}."
            )
        if wrong := [each for each in self.special_ids if not 0 <= each < len(self.counts)]:
            raise ValueError(f"special_ids must be ids from 0 to {len(self.counts) - 1}, got {wrong[0]}.")
        self.counts = self.counts.astype(np.int64)
        self.counts[list(self.special_ids)] = 0
        if not self.counts.any():
            raise ValueError("counts must hold a token that occurs, got zeros only.")

    @property
    def mark(self) -> str:
        """A name made of the counts themselves."""
        return f"counts {hashlib.sha256(self.counts.tobytes()).hexdigest()[:12]}"

    @classmethod
    def bookcorpus(cls) -> TokenFrequencies:
        """Read the counts that ship with the package: BookCorpus, 1.1 billion tokens of ``bert-base-uncased``'s vocabulary.

        They are the paper's, counts only, as its authors published them. MiniLM and many other encoders have this vocabulary.
        """
        with as_file(files("sbert_plugins.data.resources") / "bookcorpus_counts.npz") as path:
            return cls.load(path)

    @classmethod
    def of_no_corpus(cls, tokenizer: Any) -> TokenFrequencies:
        """Make counts that say nothing, for a loss whose labels are loaded afterwards with its state."""
        counts = np.arange(1, _vocabulary_size(tokenizer) + 1)
        return cls(counts, vocabulary=vocabulary_hash(tokenizer), special_ids=tokenizer.all_special_ids, source="no corpus")

    @classmethod
    def from_corpus(cls, sentences: Iterable[str], tokenizer: Any, *, source: str = "") -> TokenFrequencies:
        """Count a corpus, sentence by sentence, with any tokenizer of transformers.

        Memory does not grow with the corpus: a generator, an open file or a column of a dataset (``dataset["text"]``) will
        do. A fast tokenizer uses all cores, unless the environment variable TOKENIZERS_PARALLELISM says no.

        Args:
            sentences: Texts. Nothing is truncated, and no special tokens are added.
            tokenizer: The encoder's (``model.tokenizer``).
            source: Where the sentences are from, in words.

        Raises:
            TypeError: If a sentence is not text.
            ValueError: If there is no token in them.
        """
        counts = np.zeros(_vocabulary_size(tokenizer), dtype=np.int64)
        for batch in _batches(sentences):
            ids = tokenizer(
                batch, add_special_tokens=False, return_attention_mask=False, return_token_type_ids=False, verbose=False
            )["input_ids"]
            counts += np.bincount(np.fromiter((i for row in ids for i in row), dtype=np.int64), minlength=len(counts))
        return cls(counts, vocabulary=vocabulary_hash(tokenizer), special_ids=tokenizer.all_special_ids, source=source)

    def save(self, path: str | Path) -> None:
        """Write the counts to a compressed ``.npz`` file."""
        narrow = np.uint32 if self.counts.max() < 2**32 else np.int64
        with open(path, "wb") as file:  # numpy would append a suffix to a path
            np.savez_compressed(
                file,
                counts=self.counts.astype(narrow),
                special_ids=np.array(self.special_ids, dtype=np.int64),
                vocabulary=np.array(self.vocabulary),
                source=np.array(self.source),
            )

    @classmethod
    def load(cls, path: str | Path) -> TokenFrequencies:
        """Read what :meth:`save` has written.

        Raises:
            FileNotFoundError: If there is no file.
            ValueError: If it is not such a file.
        """
        try:
            with np.load(path, allow_pickle=False) as file:
                return cls(
                    file["counts"],
                    vocabulary=str(file["vocabulary"]),
                    special_ids=file["special_ids"].tolist(),
                    source=str(file["source"]),
                )
        except (OSError, MemoryError):
            raise
        except Exception as error:  # numpy's reader has a different one for each kind of damage
            raise ValueError(f"{path} must be a file that TokenFrequencies.save has written: {error}.") from None

    def check_tokenizer(self, tokenizer: Any) -> None:
        """Raise ``ValueError`` unless the counts are those of this tokenizer's vocabulary."""
        if not self.fits(tokenizer):
            raise ValueError(
                f"frequencies must be of the encoder's vocabulary ({len(tokenizer):,} tokens), got counts of another one "
                f"({len(self.counts):,} tokens): count a corpus with its tokenizer, "
                "data.TokenFrequencies.from_corpus(texts, model.tokenizer), of strings."
            )

    def fits(self, tokenizer: Any) -> bool:
        """Return whether the counts are those of this tokenizer's vocabulary."""
        return _vocabulary_size(tokenizer) == len(self.counts) and vocabulary_hash(tokenizer) == self.vocabulary

    def probabilities(self) -> np.ndarray:
        """Return (V,) float64, the share of running text that each token is; special tokens have 0."""
        return self.counts / self.counts.sum()

    def low_frequency_ids(self, share: float = 0.5, low_frequency_by: str = "types") -> np.ndarray:
        r"""Return the ids of the rare tokens, those that make up the low :math:`\lambda` of a vocabulary or of running text.

        Tokens that occur equally often are all rare or none: the cut is the one whose share is nearest. A token that never
        occurs is rare. Special tokens are not.

        Args:
            share: :math:`\lambda`, in (0, 1).
            low_frequency_by: ``"types"``: the share is one of the different tokens that occur; half of BERT's are 1.2 % of the
                text of BookCorpus, 12 % of Wikipedia's. ``"mass"``: of running text, so that this share of a sentence's
                tokens is rare.

        Returns:
            Ids in ascending order.

        Raises:
            ValueError: On a value out of range, and if all tokens occur equally often.
        """
        if not 0 < share < 1:
            raise ValueError(f"share must be in (0, 1), got {share}. The paper's is 0.5.")
        if low_frequency_by not in ("mass", "types"):
            raise ValueError(f"low_frequency_by must be 'mass' or 'types', got {low_frequency_by!r}.")
        levels, types = np.unique(self.counts[self.counts > 0], return_counts=True)  # ascending
        if len(levels) < 2:
            raise ValueError(
                f"rare and frequent tokens differ in their counts, got {levels[0]} for each: count a larger corpus."
            )
        weights = types * levels if low_frequency_by == "mass" else types
        below = np.cumsum(weights)[:-1] / weights.sum()  # share up to each level; the last level is never rare
        threshold = levels[np.abs(below - share).argmin()]
        low = self.counts <= threshold
        low[list(self.special_ids)] = False
        return low.nonzero()[0]


def vocabulary_hash(tokenizer: Any) -> str:
    """Return the SHA-256 of a tokenizer's tokens in the order of their ids, one a line."""
    tokens = [token or "" for token in tokenizer.convert_ids_to_tokens(list(range(_vocabulary_size(tokenizer))))]
    return hashlib.sha256("\n".join(tokens).encode("utf-8", "surrogatepass")).hexdigest()


def _vocabulary_size(tokenizer: Any) -> int:
    """Return the highest id and one: a vocabulary may leave ids out."""
    if not hasattr(tokenizer, "convert_ids_to_tokens"):
        raise ValueError(f"tokenizer must be one of transformers, got {type(tokenizer).__name__}: that of static embeddings?")
    return max(len(tokenizer), 1 + max(tokenizer.get_vocab().values()))


def _batches(sentences: Iterable[str]) -> Iterator[list[str]]:
    if isinstance(sentences, str):
        raise TypeError("sentences must be an iterable of texts, got one text.")
    if goes_by_keys(sentences):
        raise TypeError(f"sentences must be texts, got {type(sentences).__name__}: name a split or a column, table['text'].")
    rest = iter(sentences)
    while batch := list(islice(rest, _BATCH)):
        if wrong := [type(text).__name__ for text in batch if not isinstance(text, str)]:
            raise TypeError(f"sentences must be texts, got {wrong[0]}: name a column of a dataset, dataset['text'].")
        yield batch
