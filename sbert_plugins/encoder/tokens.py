"""Roles of tokens (special, content, start of a word), and random masks over them."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase


class TokenRoles(nn.Module):
    """Tables over a vocabulary: which ids are special, which start a word, which hold a letter or digit.

    The tables are non-persistent buffers, so they move with the loss and are not saved. Works for WordPiece
    (``##`` continues a word), byte-level BPE (``Ġ`` starts one) and SentencePiece (``▁`` starts one). Without
    such markers every token starts a word.

    Args:
        tokenizer: The encoder's tokenizer.

    Raises:
        ValueError: If it is not a tokenizer of transformers (static embeddings, for instance).
    """

    # Each is (V,) bool.
    special: Tensor  # ids that no text contains: special tokens, and ids that the vocabulary leaves out
    wordy: Tensor  # tokens with a letter or digit
    joins: Tensor  # characters inside a word, after which no new word starts (WordPiece only)
    starts_word: Tensor  # tokens that start a word

    def __init__(self, tokenizer: Any) -> None:
        super().__init__()
        if not isinstance(tokenizer, PreTrainedTokenizerBase):
            raise ValueError(
                f"This loss needs a model with a transformers tokenizer, got {type(tokenizer).__name__}."
            )
        self.tokenizer = tokenizer
        size = max(len(tokenizer), 1 + max(tokenizer.get_vocab().values()))
        found = tokenizer.convert_ids_to_tokens(list(range(size)))
        special = torch.tensor([token is None for token in found])
        special[tokenizer.all_special_ids] = True
        tokens = [token or "" for token in found]
        marker = max(("##", "Ġ", "▁"), key=lambda mark: sum(token.startswith(mark) for token in tokens))
        marked = torch.tensor([token.startswith(marker) for token in tokens])
        is_wordpiece = marker == "##" or not marked.any()
        surfaces = [tokenizer.convert_tokens_to_string([token]).strip() for token in tokens]
        wordy = torch.tensor([any(character.isalnum() for character in surface) for surface in surfaces])
        # WordPiece drops white space. These characters nearly always stand inside a word ("state-of-the-art",
        # "Jaber's").
        joins = torch.tensor([is_wordpiece and surface in set("'’-‐‑–") for surface in surfaces])
        starts_word = (~marked if is_wordpiece else marked) & ~joins | special
        left, right = added_around(tokenizer)
        self._behind = len(right)
        # The words of a mask template are ordinary tokens, so only their places show that they belong to it.
        self._template = (len(left), len(right)) if not special[left + right].all() else (0, 0)
        self.register_buffer("special", special, persistent=False)
        self.register_buffer("wordy", wordy & ~special, persistent=False)
        self.register_buffer("joins", joins, persistent=False)
        self.register_buffer("starts_word", starts_word, persistent=False)

    def mask_id(self, needed_by: str) -> int:
        """Return the id of the mask token, for a loss that masks tokens of sentences.

        Args:
            needed_by: Name of the loss or option, for the error.

        Raises:
            ValueError: If there is no mask token, or the model has a mask template, which would pool all
                masks of a sentence.
        """
        mask_id = self.tokenizer.mask_token_id
        if mask_id is None:
            raise ValueError(
                f"{needed_by} needs a mask token, which this tokenizer does not have: use an encoder "
                "pretrained with masks."
            )
        left, right = added_around(self.tokenizer)
        if mask_id in left + right:
            raise ValueError(f"{needed_by} masks tokens of sentences, which a mask template does not allow.")
        return mask_id

    def content(self, features: dict[str, Tensor]) -> Tensor:
        """Return (B, L) bool: the sentence's own tokens.

        Special tokens, padding, a prompt and a mask template are left out.
        """
        if "attention_mask" not in features:
            raise ValueError("This loss needs padded batches: set model[0].unpad_inputs = False.")
        attended = features["attention_mask"].bool()
        content = attended & ~self.special[features["input_ids"]]
        place = attended.cumsum(dim=1)  # of an attended token, from 1
        prompt_length = features.get("prompt_length")
        if prompt_length is not None:
            # An int, or a tensor of shape (1,) or (B,) that a data loader made of it.
            prompt_length = torch.as_tensor(prompt_length, device=content.device).reshape(-1, 1)
            # sentence-transformers tokenizes the prompt alone and subtracts one token, for [SEP]. A template
            # adds more than one token after a text.
            content &= place > prompt_length - max(self._behind - 1, 0)
        if any(self._template):
            before, after = self._template
            content &= (place > before) & (place <= place[:, -1:] - after)
        return content

    def count_words(self, input_ids: Tensor, content: Tensor) -> Tensor:
        """Count words: strings between white space that have a letter or digit.

        With WordPiece, which drops white space, the number is an estimate: "U.S." counts as 2.

        Args:
            input_ids: (B, L)
            content: (B, L) bool, from :meth:`content`.

        Returns:
            (B,) int64, counted after truncation to the model's maximum length.
        """
        starts = self.starts_word[input_ids]
        starts[:, 1:] &= ~self.joins[input_ids[:, :-1]]
        word = starts.cumsum(dim=1) + 1  # (B, L), number of the word that a token belongs to
        # Column 0 collects tokens that are not part of a word.
        seen = torch.zeros(len(word), word.shape[1] + 2, dtype=torch.bool, device=word.device)
        seen.scatter_(1, word * (self.wordy[input_ids] & content), True)
        return seen[:, 1:].sum(dim=1)


def added_around(tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    """Return the ids that a fast tokenizer puts before and after a text. Two empty lists for a slow one."""
    if not tokenizer.is_fast:
        return [], []
    encoding = tokenizer("a")
    own = [place for place, sequence in enumerate(encoding.sequence_ids()) if sequence is not None]
    return encoding["input_ids"][: own[0]], encoding["input_ids"][own[-1] + 1 :]


def nested_span_masks(
    content: Tensor, *, near_ratio: float, far_ratio: float, num_segments: int
) -> tuple[Tensor, Tensor]:
    """Draw contiguous spans of content tokens, and wider spans that contain them (ArcCSE section 3.2).

    The content of a row is divided into ``num_segments`` segments. In each segment, a wide span lies at a
    random place, and a narrow span at a random place inside the wide one.

    Args:
        content: (B, L) bool, the tokens that may be masked.
        near_ratio: Share of the content tokens in the narrow spans.
        far_ratio: Share in the wide spans, at least ``near_ratio``.
        num_segments: Spans per row.

    Returns:
        Two (B, L) bool tensors, the narrow spans and the wide spans. In a row of n content tokens the wide
        spans have ``round(far_ratio * n)`` true entries. The narrow ones have ``round(near_ratio * n)``, or
        fewer if rounding would make a narrow span longer than its wide one.
    """
    rank = content.cumsum(dim=1) - 1  # (B, L), index of a content token in its row
    length = content.sum(dim=1, keepdim=True)
    edges = length * torch.arange(num_segments + 1, device=content.device) // num_segments  # (B, S + 1)
    far_size = (edges * far_ratio).round().long().diff(dim=1)  # (B, S)
    near_size = (edges * near_ratio).round().long().diff(dim=1).minimum(far_size)
    far_start = edges[:, :-1] + _random_below(edges.diff(dim=1) - far_size + 1)
    near_start = far_start + _random_below(far_size - near_size + 1)
    segment = (rank.unsqueeze(2) >= edges[:, None, 1:-1]).sum(dim=2)  # (B, L)

    def spans(start: Tensor, size: Tensor) -> Tensor:
        offset = rank - start.gather(1, segment)
        return content & (offset >= 0) & (offset < size.gather(1, segment))

    return spans(near_start, near_size), spans(far_start, far_size)


def mlm_mask(
    input_ids: Tensor, content: Tensor, *, mask_token_id: int, ordinary_ids: Tensor, probability: float = 0.15
) -> tuple[Tensor, Tensor]:
    """Corrupt some content tokens as BERT does: 80 % become the mask, 10 % another token, 10 % stay.

    Args:
        input_ids: (B, L)
        content: (B, L) bool, the tokens that may be chosen.
        mask_token_id: Id of the mask token.
        ordinary_ids: (K,) ids that a token may turn into.
        probability: Share of the content tokens that are chosen.

    Returns:
        The corrupted ids, and (B, L) bool, true at the chosen tokens.
    """
    draws = torch.rand(input_ids.shape, device=input_ids.device)
    chosen = content & (draws < probability)
    # For a chosen token draws / probability is uniform in [0, 1) again. It decides what the token becomes.
    share = draws / probability
    others = ordinary_ids[_random_below(torch.full_like(input_ids, len(ordinary_ids)))]
    corrupted = input_ids.masked_fill(chosen & (share < 0.8), mask_token_id)
    return torch.where(chosen & (share >= 0.9), others, corrupted), chosen


def random_subset(candidates: Tensor, ratio: float, *, at_least: int = 0) -> Tensor:
    """Draw a share of the true entries of each row: ``round(ratio * n)`` of n.

    Args:
        candidates: (B, L) bool.
        ratio: Share of them, in [0, 1].
        at_least: Smallest number per row. A row with fewer candidates gives all of them.

    Returns:
        (B, L) bool, a subset of ``candidates``.
    """
    wanted = (candidates.sum(dim=1, keepdim=True) * ratio).round().clamp(min=at_least)
    draws = torch.rand(candidates.shape, device=candidates.device).masked_fill(~candidates, 2.0)
    return candidates & (draws.argsort(dim=1).argsort(dim=1) < wanted)


def _random_below(limits: Tensor) -> Tensor:
    """Draw one integer in [0, limit) for each entry."""
    return (torch.rand(limits.shape, device=limits.device) * limits).long().minimum(limits - 1)
