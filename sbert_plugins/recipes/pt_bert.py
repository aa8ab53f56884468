"""PT-BERT's training settings, each beside the paper's sentence."""

from sbert_plugins.recipes.settings import Recipe, Settings

PT_BERT = Recipe(
    method="pt-bert",
    name="PT-BERT",
    paper="Tan et al., Findings of ACL 2022",
    url="https://aclanthology.org/2022.findings-acl.22",
    loss="PTBERTLoss",
    columns=("anchor",),
    second_column="positive",
    equation="pseudo tokens + queue of a momentum encoder (eq. 1-5)",
    settings=Settings(
        learning_rate=3e-5,  # the official script's; the paper gives none
        batch_size=64,  # "With batches of 64 sentences and an additional dynamically maintained queue of 256 sentences"
        gradient_accumulation_steps=1,
        epochs=1,  # "Following the settings of SimCSE (Gao et al., 2021), it takes 50 minutes to run an epoch"
        # the official script's, whose pseudo tokens attend to [CLS]; the paper: "the sentence embedding encoded by BERT"
        pooling="cls",
        max_seq_length=64,  # the official script's: the paper shows that SimCSE's 32 hides how much it leans on length
        eval_steps=125,  # "evaluate the model every 125 steps to find the best checkpoints"
    ),
    # The first four layers of MiniLM, where [CLS] carries little, and 1,281 short sentences.
    offline=Settings(
        learning_rate=1e-4,
        batch_size=64,
        gradient_accumulation_steps=1,
        epochs=1,
        pooling="mean",
        max_seq_length=64,
        eval_steps=10,
    ),
)
