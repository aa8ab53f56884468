"""The trained loss, which is saved next to the model: it is loaded and read."""

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from datasets import Dataset
from sentence_transformers import SentenceTransformer
from torch import nn

from sbert_plugins import data, losses
from sbert_plugins.recipes.methods import find_recipe
from sbert_plugins.recipes.run import RESULTS_FILE, read_json
from sbert_plugins.training import loss_state

LOSS_FOLDER = "loss"


def load_loss(output: str | Path, *, trust_remote_code: bool = False, **loss_keywords: Any) -> nn.Module:
    """Load the loss of a finished training, with its decoder, heads or queue. ``loss.model`` is the model.

    Args:
        output: The folder of the training.
        trust_remote_code: Whether to run code of the model's repository.
        **loss_keywords: Keywords of the loss that the record does not hold, such as ``frequencies``.

    Raises:
        FileNotFoundError: If ``output`` holds no training with a loss that owns weights.
        ValueError: If the loss is built with other parts than it was trained with. A trained model is saved
            without its masked-language-model head: ``mlm_head="bert-base-uncased"`` names one.

    Example:
        >>> loss = load_loss("runs/paser")  # doctest: +SKIP
        >>> loss.reconstruct(["The old man sleeps."], ["The [MASK] [MASK] sleeps."])  # doctest: +SKIP
    """
    output = Path(output)
    if not (output / LOSS_FOLDER).is_dir():
        raise FileNotFoundError(
            f"{output} holds no trained loss. Give the folder of a training, which has {LOSS_FOLDER}/ in it."
        )
    results = read_json(output / RESULTS_FILE)
    recipe = find_recipe(results["method"])
    kept = {name: value for name, value in results["loss_keywords"].items() if name != "frequencies"}
    model = SentenceTransformer(
        str(output / "model"), model_kwargs={"dtype": "float32"}, trust_remote_code=trust_remote_code
    )
    logging.disable(logging.WARNING)  # a head that starts from random weights is loaded at once
    try:
        loss = recipe.build_loss(model, **(kept | loss_keywords))
    finally:
        logging.disable(logging.NOTSET)
    loss_state.load_loss_state(loss, model, output / LOSS_FOLDER)
    return loss


def reconstruct_phrases(
    output: str | Path,
    sentences: Dataset | Iterable[str],
    *,
    top_k: int = 1,
    trust_remote_code: bool = False,
) -> Dataset:
    """Let the decoder of a finished PaSeR training write the phrases of sentences (the paper's Table 7).

    Args:
        output: The folder of the training.
        sentences: Sentences, or a dataset with the column ``anchor``.
        top_k: Phrases per sentence.
        trust_remote_code: Whether to run code of the model's repository.

    Returns:
        The columns ``anchor``, ``masked``, ``phrase``, and ``written``: what the decoder writes in place of
        the phrase.

    Raises:
        ValueError: If the training was not one of PaSeR.
    """
    loss = load_loss(output, trust_remote_code=trust_remote_code)
    paser = next((part for part in loss.modules() if isinstance(part, losses.PaSeRLoss)), None)
    if paser is None:
        raise ValueError(
            f"Only PaSeR writes phrases, and {output} holds a training of {type(loss).__name__}."
        )
    rows = data.paser_columns(
        sentences, mask_token=paser.model.tokenizer.mask_token, top_k=top_k, synonyms=None
    )
    return rows.add_column("written", paser.reconstruct(rows["anchor"][:], rows["masked"][:]))
