"""DenoSent's training settings, each beside the paper's sentence."""

from sbert_plugins.recipes.frequencies import frequencies_of
from sbert_plugins.recipes.protocols import protocol_of
from sbert_plugins.recipes.settings import Recipe, Settings

DENOSENT = Recipe(
    method="denosent",
    name="DenoSent",
    paper="Wang et al., AAAI 2024",
    url="https://arxiv.org/abs/2401.13621",
    loss="DenoSentLoss",
    columns=("anchor",),
    second_column="paraphrase",
    equation="restores a noisy sentence with its vector + contrast (eq. 3-6)",
    settings=Settings(
        learning_rate=5e-5,  # "We use a learning rate of 5e-5 and AdamW (Loshchilov and Hutter 2017) as the optimizer"
        batch_size=64,  # not in the paper; the official script's
        gradient_accumulation_steps=1,
        epochs=1,  # not in the paper; the official script stops after 5,000 updates, a third of its million sentences
        # The paper's is that of the mask in a template: after 60 updates five points of STS-B dev below (docs/records.md).
        pooling="mean",
        max_seq_length=32,  # "For the input sequence length, we use a value of 32"
        eval_steps=50,  # not in the paper; the official script's
    ),
    rows_read=320_000,  # not in the paper; the official script's
    official=True,
    # The first four layers of MiniLM, whose [MASK] says nothing before many more updates, and 1,281 short sentences.
    offline=Settings(
        learning_rate=5e-5,
        batch_size=64,
        gradient_accumulation_steps=1,
        epochs=1,
        pooling="mean",
        max_seq_length=32,
        eval_steps=10,
    ),
    paper_keywords=protocol_of("denosent", "paper").loss_keywords,
    keywords=frequencies_of,
    reload={"mlm_head": "fresh", "token_weights": None},  # the head's weights are part of the state
)
