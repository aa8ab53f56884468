"""The bag-of-words loss alone. Settings by STS-B dev; there is no paper with this loss alone."""

from sbert_plugins.recipes.recipe import Recipe, count_tokens

BAG_OF_WORDS = Recipe(
    name="bag-of-words",
    loss="BagOfWordsLoss",
    arguments={"learning_rate": 5e-5, "per_device_train_batch_size": 64, "max_steps": 60, "eval_steps": 20},
    prepare=lambda rows, model, given, **_: (rows, count_tokens(rows, model, given)),
)
