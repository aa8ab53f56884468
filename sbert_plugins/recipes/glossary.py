"""What the logged keys of a training mean: one table, from which the command line's help and the page on logs are made."""

from __future__ import annotations

LOGGED = {
    "loss": "sum of the terms below it, mean over the updates since the log before",
    "base": "slt-fai: the loss it goes round, by its terms (base/simcse, base/nt_xent)",
    "contrastive": "pt-bert, denosent, paser-supervised: cross-entropy of a sentence against the batch's, and the queue",
    "simcse": "simcse: cross-entropy of a sentence and itself in another dropout view against those of the batch",
    "nt_xent": "consert, recommended: cross-entropy of two views of a sentence against those of the batch",
    "arccon": "arccse: cross-entropy with an angular margin between a sentence and its positive",
    "triplet": "arccse: how far long sentences and their masked copies are from the right order",
    "denoising": "denosent: nats a token to restore the sentence from its vector",
    "words": "bag-of-words, recommended: nats a token to find the sentence's words from its vector",
    "generative": "paser: nats a token to restore the hidden phrase",
    "mlm": "paser: nats a token of masked language modelling",
    "adversarial": "slt-fai: the encoder against the first discriminator, frequent or rare",
    "filtering": "slt-fai: the encoder with the second discriminator, whole or masked",
    "long_share": "arccse: share of sentences with min_words or more; the triplet has only these",
    "triplet_active": "arccse: share of triplets out of order; at 0 the term teaches nothing",
    "triplet_gap": "arccse: mean cosine to the less masked copy minus that to the more masked one",
    "queue_filled": "pt-bert: share of the queue of negatives in use",
    "positive_cosine": "pt-bert: mean cosine of a sentence and its positive",
    "token_accuracy": "share of tokens that a decoder finds",
    "information": "nats a token that a decoder's loss rises with another sentence's vector; near 0 it does not read it",
    "scored_share": "paser: share of rows with a phrase to score",
    "frequency_accuracy": "slt-fai: share of tokens that the first discriminator has right; fooled, it is the larger class's",
    "low_share": "slt-fai: share of rare tokens",
    "completeness_accuracy": "slt-fai: share of sentences that the second discriminator has right; 0.5 is chance",
    "masked_share": "slt-fai: share of sentences with a masked rare token that the encoder is shown",
    "balance_factor": "what an auxiliary gradient is multiplied by, 1 at most (slt-fai: adversarial_, filtering_ in front)",
    "balance_share": "the auxiliary gradient's share of the norms after the cut",
    "balance_cosine": "cosine of the two gradients over outputs that either reads (the other's is 0); below 0 they pull apart",
    "grad_norm": "norm of the gradient before clipping",
    "learning_rate": "of the encoder, at this update",
    "epoch": "passes over the text so far",
}
"""Logged key to meaning, terms first. In a sum a key stands as ``NAME/key``, in an evaluation as ``eval_key``; a balanced
term of several has its name before ``_balance_``."""


def meaning(key: str) -> str | None:
    """Return what a logged key means, or None for one that is not this package's.

    Example:
        >>> meaning("words/information").split(";")[0]
        "nats a token that a decoder's loss rises with another sentence's vector"
    """
    name = key.removeprefix("eval_").rpartition("/")[2]
    if "_balance_" in name:
        name = "balance_" + name.rpartition("_balance_")[2]
    return LOGGED.get(name)
