"""The bag-of-words loss alone. Settings by STS-B dev; there is no paper with this loss alone."""

from __future__ import annotations

from sbert_plugins.recipes.recipe import Recipe, count_tokens_if_needed

BAG_OF_WORDS = Recipe(
    name="bag-of-words",
    title="Bag of words",
    paper="this library, after DenoSent",
    url="https://arxiv.org/abs/2401.13621",
    summary="predicts the rare words of a sentence from its vector, without negatives",
    loss="BagOfWordsLoss",
    columns=("anchor",),
    arguments={"learning_rate": 5e-5, "per_device_train_batch_size": 64, "max_steps": 60, "eval_steps": 20},
    find_keywords=count_tokens_if_needed,
)
