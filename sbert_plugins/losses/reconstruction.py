"""What PaSeR's decoder writes: the paper's Table 7."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from sbert_plugins.encoder import dropout_off, sentence_width, unwrap
from sbert_plugins.modules import BagOfWordsDecoder, PhraseDecoder

if TYPE_CHECKING:
    from sbert_plugins.losses.paser import PaSeRLoss


@torch.no_grad()
def reconstruct(
    loss: PaSeRLoss, sentences: Sequence[str], masked: Sequence[str], *, max_tokens: int, batch_size: int
) -> list[str]:
    """Write the phrase that each masked copy hides: :meth:`PaSeRLoss.reconstruct`."""
    if len(sentences) != len(masked):
        raise ValueError(f"sentences and masked must be of one length, got {len(sentences)} and {len(masked)}.")
    if not 1 <= max_tokens <= loss.decoder.max_positions:
        raise ValueError(
            f"max_tokens must be at least 1 and, for a decoder with layers, at most {PhraseDecoder.max_positions}, got "
            f"{max_tokens}. Phrases have few tokens; the default is 16."
        )
    model, phrases = unwrap(loss.model), list[str]()
    whole = sentence_width(model)
    with dropout_off(loss):
        for start in range(0, len(sentences), batch_size):
            columns = [list(texts[start : start + batch_size]) for texts in (sentences, masked)]
            vectors = [
                model.encode(texts, convert_to_tensor=True, show_progress_bar=False, truncate_dim=whole) for texts in columns
            ]
            memory = loss.memory(*vectors)
            if isinstance(loss.decoder, BagOfWordsDecoder):
                counts = [min(text.count(loss.mask_token), max_tokens) for text in columns[1]]
                bags = loss.decoder.likeliest(memory, loss.head, loss.ordinary_ids, counts)
                # Likely tokens stand in no order: none continues the one before it.
                written = [" ".join(model.tokenizer.decode([token]).strip() for token in bag) for bag in bags]
            else:
                ids = loss.decoder.write(memory, loss.head, loss.decoder_inputs, max_tokens=max_tokens, **loss.ends)
                written = model.tokenizer.batch_decode(ids, skip_special_tokens=True)
            phrases += written
    return [phrase.strip() for phrase in phrases]
