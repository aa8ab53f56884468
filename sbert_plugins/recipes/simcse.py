"""SimCSE, the baseline that the other methods are compared with."""

from sbert_plugins.recipes.recipe import Recipe

SIMCSE = Recipe(
    name="simcse",
    loss="SimCSELoss",
    optional=("positive",),
    pooling="cls",
    arguments={
        "learning_rate": 3e-5,
        "per_device_train_batch_size": 64,
        "num_train_epochs": 1,
        "eval_steps": 125,
    },
    paper_updates=15_625,  # computed: one epoch of a million sentences, 64 per update
)
