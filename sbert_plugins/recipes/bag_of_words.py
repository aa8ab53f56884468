"""Settings for the words of a sentence alone: no paper's, chosen by STS-B dev."""

from sbert_plugins.recipes.frequencies import frequencies_of
from sbert_plugins.recipes.settings import Recipe, Settings

BAG_OF_WORDS = Recipe(
    method="bag-of-words",
    name="Bag of words",
    paper="this library, after DenoSent",
    url="https://arxiv.org/abs/2401.13621",
    loss="BagOfWordsLoss",
    columns=("anchor",),
    equation="tells a sentence's rare words from its vector, without negatives (DenoSent eq. 4, no layers)",
    settings=Settings(
        learning_rate=5e-5,
        batch_size=64,
        gradient_accumulation_steps=1,
        epochs=1,
        max_steps=60,  # of 400 the best was the 50th, and the end 2.4 points below it (docs/benchmarks.md)
        pooling="mean",  # a mean of tokens lies where the embeddings of its words are, and where a pretrained head reads words
        max_seq_length=32,
        eval_steps=20,
    ),
    # The first four layers of MiniLM and 1,281 short sentences.
    offline=Settings(
        learning_rate=5e-5,
        batch_size=64,
        gradient_accumulation_steps=1,
        epochs=1,
        pooling="mean",
        max_seq_length=32,
        eval_steps=10,
    ),
    keywords=frequencies_of,
    reload={"mlm_head": "fresh", "token_weights": None},  # the head's weights are part of the state
)
