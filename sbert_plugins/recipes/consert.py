"""ConSERT's training settings: those of the official script for unsupervised bert-base."""

from sbert_plugins.recipes.settings import Recipe, Settings

CONSERT = Recipe(
    method="consert",
    name="ConSERT",
    paper="Yan et al., ACL 2021",
    url="https://aclanthology.org/2021.acl-long.393",
    loss="ConSERTLoss",
    columns=("anchor",),
    second_column="positive",
    equation="contrast of two views: features cut off, tokens shuffled (eq. 1)",
    settings=Settings(
        learning_rate=5e-7,  # its published setting, which its authors later called far too low: 2e-5 with temperature .05
        batch_size=96,
        gradient_accumulation_steps=1,
        epochs=10,  # for 89,192 sentences of the STS tasks, not a million
        pooling="mean",  # of the last layer here
        max_seq_length=64,
        eval_steps=200,
    ),
    rows_read=891_920,
    # The first four layers of MiniLM and 1,281 short sentences.
    offline=Settings(
        learning_rate=1e-4,
        batch_size=64,
        gradient_accumulation_steps=1,
        epochs=1,
        pooling="mean",
        max_seq_length=32,
        eval_steps=10,
    ),
)
