"""What tokens are (special, content, the start of a word), looked up on the device; masks drawn over them."""

from __future__ import annotations

from itertools import chain

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

# WordPiece drops white space; these signs nearly always stand inside a word ("state-of-the-art", "Jaber's").
_WORDPIECE_JOINERS = frozenset("'’-‐‑–")


class TokenRoles(nn.Module):
    """Tables over a vocabulary: which ids are special, which start a word, which hold a letter or digit.

    The tables are non-persistent buffers: they move with the loss and are not part of its state. Works for WordPiece
    (``##`` continues a word), byte-level BPE (``Ġ`` starts one) and SentencePiece (``▁`` starts one); with none of these
    markers every token starts a word.

    Args:
        tokenizer: The encoder's tokenizer.

    Raises:
        ValueError: If the model has no transformers tokenizer (static embeddings, for instance).
    """

    special: Tensor
    wordy: Tensor
    joins: Tensor
    starts_word: Tensor

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        super().__init__()
        require_tokenizer(tokenizer)
        self._tokenizer, self._length = tokenizer, len(tokenizer)
        # A vocabulary may leave ids out. No text has them, and a masked language model may not draw them: they are special.
        size = max(len(tokenizer), 1 + max(tokenizer.get_vocab().values()))
        found = tokenizer.convert_ids_to_tokens(list(range(size)))
        special = torch.tensor([token is None for token in found])
        special[tokenizer.all_special_ids] = True
        tokens = [token or "" for token in found]
        marker = max(("##", "Ġ", "▁"), key=lambda mark: sum(token.startswith(mark) for token in tokens))
        marked = torch.tensor([token.startswith(marker) for token in tokens])
        wordpiece = marker == "##" or not marked.any()
        surfaces = [tokenizer.convert_tokens_to_string([token]).strip() for token in tokens]
        wordy = torch.tensor([any(character.isalnum() for character in surface) for surface in surfaces])
        joins = torch.tensor([wordpiece and surface in _WORDPIECE_JOINERS for surface in surfaces])
        left, right = added_around(tokenizer)
        self.behind = len(right)
        # What a mask template adds are ordinary words: known by their place, not by their ids.
        self.template = (len(left), len(right)) if not special[left + right].all() else (0, 0)
        self.register_buffer("special", special, persistent=False)
        self.register_buffer("wordy", wordy & ~special, persistent=False)
        self.register_buffer("joins", joins, persistent=False)
        self.register_buffer("starts_word", (~marked if wordpiece else marked) & ~joins | special, persistent=False)

    def id_of(self, *names: str, needed_by: str) -> int:
        """Return the id of a special token, of several names the first that the tokenizer has.

        Raises:
            ValueError: If it has none of them.
        """
        for name in names:
            if getattr(self._tokenizer, f"{name}_token_id", None) is not None:
                return getattr(self._tokenizer, f"{name}_token_id")
        raise ValueError(
            f"{needed_by} needs a tokenizer with {' or '.join(f'{name}_token' for name in names)}, which this model's has "
            "not: use an encoder pretrained with masks."
        )

    def mask_id(self, masked: str, option: str, *, apart: bool = False) -> int:
        """Return the id of the mask token.

        Args:
            masked: What is masked, for the error.
            option: What leaves it out.
            apart: Whether the vectors of masked sentences are read, which a mask template makes of its mask: of all masks.

        Raises:
            ValueError: If the tokenizer has none, or ``apart`` and it puts one round each sentence.
        """
        if self._tokenizer.mask_token_id is None:
            raise ValueError(
                f"{masked}, but this model's tokenizer has no mask token (mask_token is None). "
                f"Use an encoder pretrained with masks, or pass {option}."
            )
        if apart and self._tokenizer.mask_token_id in chain(*added_around(self._tokenizer)):
            raise ValueError(
                f"{masked}, and the vector of this model, which has a mask template, would be the mean of all masks: pool "
                f"by another way, or pass {option}."
            )
        return self._tokenizer.mask_token_id

    def require_masks_in_text(self, needed_by: str) -> None:
        """Raise ``ValueError`` where a mask token in a sentence is read as text, as under a mask template."""
        mask = self._tokenizer.mask_token
        if self._tokenizer.mask_token_id not in self._tokenizer(mask, add_special_tokens=False)["input_ids"]:
            raise ValueError(
                f"{needed_by} reads sentences in which {mask!r} hides words, got a tokenizer to which that is text like any "
                "other, as a mask template makes it: use the encoder without one, pooled by another way."
            )

    def check(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Raise ``ValueError`` unless a model still has the tokenizer of these tables: another would be misread silently."""
        if tokenizer is not self._tokenizer:
            raise ValueError(
                "the model must have the tokenizer that it had when the loss was built, got another one: set it, or apply "
                "a mask template, before the loss is built."
            )
        if len(tokenizer) != self._length:
            raise ValueError(
                f"the tokenizer must have the {self._length:,} tokens that it had when the loss was built, got "
                f"{len(tokenizer):,}: add tokens to it, and resize the encoder's embeddings, before the loss is built."
            )

    def content(self, features: dict[str, Tensor]) -> Tensor:
        """Return (B, L) bool: the sentence's own tokens, not special, padding, prompt or template tokens.

        Raises:
            ValueError: If the batch is flattened for attention without padding.
        """
        if "attention_mask" not in features:
            raise ValueError(
                "this loss needs padded batches with an attention_mask, got flattened ones: set model[0].unpad_inputs = False."
            )
        attended = features["attention_mask"].bool()
        content = attended & ~self.special[features["input_ids"]]
        prompt_length = features.get("prompt_length")
        if prompt_length is not None:
            # An int, or a tensor of shape (1,) or (B,) that a data loader made of it; counted from the first attended token.
            prompt_length = torch.as_tensor(prompt_length, device=content.device).reshape(-1, 1)
            # The host counts what follows the prompt, but for one token: with a template that is more than one.
            content &= attended.cumsum(dim=1) > prompt_length - max(self.behind - 1, 0)
        if any(self.template):
            before, after = self.template
            place = attended.cumsum(dim=1)
            content &= (place > before) & (place <= place[:, -1:] - after)
        return content

    def count_words(self, input_ids: Tensor, content: Tensor) -> Tensor:
        """Count words as a reader does: stretches between white space with a letter or digit in them.

        WordPiece drops white space, so there it is an estimate: "U.S." counts 2.

        Args:
            input_ids: (B, L)
            content: (B, L) bool, from :meth:`content`.

        Returns:
            (B,) int64, counted after truncation to the model's maximum length.
        """
        starts = self.starts_word[input_ids]
        starts[:, 1:] &= ~self.joins[input_ids[:, :-1]]
        word = starts.cumsum(dim=1) + 1  # (B, L), number of the word that a token belongs to
        # Column 0 collects what is no word.
        seen = torch.zeros(len(word), word.shape[1] + 2, dtype=torch.bool, device=word.device)
        seen.scatter_(1, word * (self.wordy[input_ids] & content), True)
        return seen[:, 1:].sum(dim=1)


def added_around(tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    """Return the ids that a tokenizer puts before and after a text; two empty lists for a tokenizer without a Rust backend."""
    if not tokenizer.is_fast:
        return [], []
    encoding = tokenizer("a")
    own = [place for place, sequence in enumerate(encoding.sequence_ids()) if sequence is not None]
    return encoding["input_ids"][: own[0]], encoding["input_ids"][own[-1] + 1 :]


def nested_span_masks(content: Tensor, *, near_ratio: float, far_ratio: float, num_segments: int) -> tuple[Tensor, Tensor]:
    """Draw contiguous spans covering a share of the content tokens, and wider spans that extend them (ArcCSE section 3.2).

    The content of a row is cut into ``num_segments`` stretches; each gets one span of the wide mask at a random place and,
    at a random place inside it, one span of the narrow mask. The paper speaks of "contiguous segments" without a number.
    Drawn with torch's generator of the tensor's device, so that a resumed run draws the same.

    Args:
        content: (B, L) bool, the tokens that may be masked.
        near_ratio: Share of the content tokens in the first mask.
        far_ratio: Share in the second, at least ``near_ratio``.
        num_segments: Spans a row.

    Returns:
        Two (B, L) bool tensors, the first a subset of the second. Of a row of n content tokens the second has
        ``round(far_ratio * n)`` true entries, and the first ``round(near_ratio * n)``, or fewer where the row is short or
        the ratios are close: a narrow span that rounding made longer than its wide one is cut to that.
    """
    rank = content.cumsum(dim=1) - 1  # (B, L), number of a content token in its row
    length = content.sum(dim=1, keepdim=True)
    edges = length * torch.arange(num_segments + 1, device=content.device) // num_segments  # (B, S + 1)
    far_size, near_size = ((edges * ratio).round().long().diff(dim=1) for ratio in (far_ratio, near_ratio))  # (B, S)
    near_size = torch.minimum(near_size, far_size)
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
    """Corrupt a share of the content tokens as BERT does: 80 % to the mask, 10 % to another token, 10 % left as they are.

    Drawn with torch's generator of the tensor's device, so that a resumed run draws the same.

    Args:
        input_ids: (B, L)
        content: (B, L) bool, the tokens that may be chosen.
        mask_token_id: Id of the mask token.
        ordinary_ids: (K,) ids that a token may turn into.
        probability: Share of the content tokens that are chosen.

    Returns:
        The corrupted ids and a (B, L) bool that is true at the chosen tokens, those to be predicted.
    """
    draws = torch.rand(input_ids.shape, device=input_ids.device)
    chosen = content & (draws < probability)
    # Given that a token is chosen, draws / probability is uniform again and decides what becomes of it.
    share = draws / probability
    others = ordinary_ids[_random_below(torch.full_like(input_ids, len(ordinary_ids)))]
    corrupted = input_ids.masked_fill(chosen & (share < 0.8), mask_token_id)
    return torch.where(chosen & (share >= 0.9), others, corrupted), chosen


def random_subset(candidates: Tensor, ratio: float, *, at_least: int = 0) -> Tensor:
    """Draw a share of the true entries of each row: ``round(ratio * n)`` of n, and ``at_least`` that many where there are.

    Drawn with torch's generator of the tensor's device, so that a resumed run draws the same.

    Args:
        candidates: (B, L) bool.
        ratio: Share of them, in [0, 1].
        at_least: Fewest a row; a row with fewer candidates gives all of them.

    Returns:
        (B, L) bool, a subset of ``candidates``.
    """
    wanted = (candidates.sum(dim=1, keepdim=True) * ratio).round().clamp(min=at_least)
    draws = torch.rand(candidates.shape, device=candidates.device).masked_fill(~candidates, 2.0)
    return candidates & (draws.argsort(dim=1).argsort(dim=1) < wanted)


def _random_below(limits: Tensor) -> Tensor:
    """Draw one integer in [0, limit) for each entry."""
    return (torch.rand(limits.shape, device=limits.device) * limits).long().minimum(limits - 1)


def require_tokenizer(tokenizer: object) -> None:
    """Raise ``ValueError`` for what is no tokenizer of transformers: that of static embeddings, for instance."""
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise ValueError(
            f"the model's tokenizer must be a transformers tokenizer, got {type(tokenizer).__name__}: "
            "use a model that begins with a Transformer module."
        )
