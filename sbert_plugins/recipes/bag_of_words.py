"""The bag-of-words loss alone. Settings by STS-B dev; there is no paper with this loss alone."""

from datasets import Dataset
from sentence_transformers import SentenceTransformer

from sbert_plugins.recipes.recipe import Prepared, Recipe, Request, count_tokens


def prepare(rows: Dataset, model: SentenceTransformer, request: Request) -> Prepared:
    """Count the tokens of the text, unless tokens are not weighted or counts are given."""
    given = request.loss_keywords
    is_weighted = given.get("token_weights", 0.0) is not None
    return Prepared(rows, count_tokens(rows, model, given) if is_weighted else {})


BAG_OF_WORDS = Recipe(
    name="bag-of-words",
    loss="BagOfWordsLoss",
    arguments={"learning_rate": 5e-5, "per_device_train_batch_size": 64, "max_steps": 60, "eval_steps": 20},
    prepare=prepare,
)
