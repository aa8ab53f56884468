"""ArcCSE as in its paper. Sources of the values: protocols/arccse.paper.toml."""

from sbert_plugins.recipes.recipe import LENGTH_GROUPED, Recipe

ARCCSE = Recipe(
    name="arccse",
    loss="ArcCSELoss",
    optional=("positive",),
    pooling="cls",
    max_seq_length=None,
    arguments={
        "learning_rate": 3e-5,
        "per_device_train_batch_size": 32,
        "gradient_accumulation_steps": 2,
        "num_train_epochs": 1,
        "eval_steps": 125,
        "batch_sampler": LENGTH_GROUPED,
        "sam_rho": 0.05,
    },
    paper_updates=15_625,  # computed: one epoch of a million sentences, 64 per update
)
