"""ArcCSE's training settings, each beside the paper's sentence."""

from sbert_plugins.recipes.settings import Recipe, Settings

ARCCSE = Recipe(
    method="arccse",
    name="ArcCSE",
    paper="Zhang et al., ACL 2022",
    url="https://aclanthology.org/2022.acl-long.336",
    loss="ArcCSELoss",
    columns=("anchor",),
    second_column="positive",
    equation="angular margin + order of masked copies (eq. 3-5)",
    settings=Settings(
        learning_rate=3e-5,  # "the learning rate is set to 3e-5 for base models and 1e-5 for large models"
        # "We search the batch size within {8, 16, 32} and always update the parameters every 64 steps":
        # read as 64 sentences an update, for 64 updates' worth of the largest batch would leave 488 updates in an epoch.
        batch_size=32,
        gradient_accumulation_steps=2,
        epochs=1,  # "We train our model for one epoch"
        pooling="cls",  # "the MLP layer on top of the [CLS] ... during training, and use the [CLS] output ... for evaluation"
        # "set to 32 for the ArcCon loss in large models, and to the maximum length within a batch for all other cases"
        max_seq_length=None,
        eval_steps=125,  # "We evaluate our model every 125 training steps on the development set of STS-B"
        group_by_length=True,  # "the sentences are sampled by length"
        # "AdamW with Sharpness-Aware Minimization (Foret et al., 2021) and default configurations": Foret's default radius
        sam_rho=0.05,
    ),
    rows_read=1_000_000,  # "one million random sampled sentences from English Wikipedia"
    # The first four layers of MiniLM, where [CLS] carries little, and 1,281 short sentences.
    offline=Settings(
        learning_rate=1e-4,
        batch_size=64,
        gradient_accumulation_steps=1,
        epochs=1,
        pooling="mean",
        max_seq_length=64,
        eval_steps=10,
        group_by_length=True,  # and no SAM: it would double the time that a newcomer waits
    ),
)
