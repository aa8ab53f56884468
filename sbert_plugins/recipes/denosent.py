"""DenoSent as in its paper. Sources of the values: protocols/denosent.paper.toml."""

from sbert_plugins.recipes.recipe import Recipe

DENOSENT = Recipe(
    name="denosent",
    title="DenoSent",
    paper="Wang et al., AAAI 2024",
    url="https://arxiv.org/abs/2401.13621",
    summary="contrastive loss, and a 16-layer decoder that restores a noisy sentence (eq. 3 to 6)",
    loss="DenoSentLoss",
    optional=("paraphrase",),
    pooling="mask",
    arguments={
        "learning_rate": 5e-5,
        "per_device_train_batch_size": 64,
        "num_train_epochs": 1,
        "eval_steps": 50,
    },
    offline_arguments={"max_steps": 60, "eval_steps": 20},
    paper_updates=5_000,
)
