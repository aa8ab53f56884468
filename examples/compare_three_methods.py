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
# # Three methods on one text
#
# Which method is best for your text, your model and your labels? `recipes.compare` trains each method from the same start with
# the same settings, scores them in the same way, and shows how different they are.
#
# ```bash
# pip install "sbert-plugins[offline]"
# ```
#
# As it stands this notebook needs no network and about two minutes, with few sentences and two seeds. It shows how the
# comparison works, and decides nothing.

# %%
import logging
import time
from pathlib import Path

from transformers.utils import logging as transformers_logging

from sbert_plugins import data, evaluation, recipes

transformers_logging.disable_progress_bar()  # for reading and writing weights
logging.basicConfig(format="%(message)s")
logging.getLogger("sbert_plugins").setLevel(logging.INFO)  # shows the progress

# %% [markdown]
# ## What to change
#
# Put **your file** in `TEXT`, and your labels in `SCORES`: graded pairs, texts with topics (`evaluation.own_topics`), or queries
# with the texts that answer them (`evaluation.own_retrieval`). With a network, `MODEL` may be any model on the Hub.

# %%
METHODS = ["simcse", "consert", "arccse"]
TEXT = recipes.offline_sentences_path()  # yours: "sentences.txt", one sentence per line
# Yours: evaluation.own_pairs("graded.tsv")
SCORES = evaluation.PairsEvaluator(recipes.graded_pairs(), name="graded pairs", write_csv=False)
MODEL = None  # on the Hub: "bert-base-uncased"
SENTENCES = 160  # of the text; None for all
BATCH_SIZE = 32  # with more sentences 64 or more
SEEDS = 2  # use three or more for numbers to rely on
OUTPUT = Path("runs") / time.strftime("compared-%Y%m%d-%H%M%S")  # the same folder again continues a comparison

# %%
comparison = recipes.compare(
    METHODS,
    data.read_sentences(TEXT, limit=SENTENCES),
    model=MODEL or (lambda: recipes.offline_encoder(num_layers=4)),
    output=OUTPUT,
    evaluators=[SCORES],
    seeds=SEEDS,
    text=str(TEXT),
    num_train_epochs=1,
    per_device_train_batch_size=BATCH_SIZE,
    learning_rate=1e-4,
)

# %% [markdown]
# ## The scores
#
# Each score is the mean over the seeds ± its standard error. `start` is the model before training.

# %%
print(comparison.headline, end="\n\n")
for line in comparison.table:
    print("  ".join(cell.ljust(24) for cell in line).rstrip())

# %% [markdown]
# ## The verdict
#
# A method is level with the start if their difference is within two standard errors.

# %%
for sentence in comparison.verdict:
    print(sentence)

# %% [markdown]
# The page that was written shows all of this with error bars. From the command line: `sbert-plugins compare simcse consert
# arccse --text sentences.txt --pairs graded.tsv --output runs/compared`.

# %%
print(comparison.page)
