"""ConSERT at the settings of this library's tables.

The official script has a learning rate of 5e-7, which its authors later called far too low; the protocols of
SLT-FAI keep it.
"""

from sbert_plugins.recipes.recipe import Recipe

CONSERT = Recipe(
    name="consert",
    loss="ConSERTLoss",
    optional=("positive",),
    arguments={"learning_rate": 5e-5, "per_device_train_batch_size": 64, "max_steps": 60, "eval_steps": 20},
)
