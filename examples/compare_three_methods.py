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
# Which method is best for your text, your encoder and your labels is a question that you can answer: `recipes.compare` trains
# each of them from the same start with the same settings, scores all in one way, and says how far apart they are.
#
# ```bash
# pip install "sbert-plugins[offline,plot]"
# ```
#
# As it stands this notebook needs no network and under two minutes: few sentences, two seeds. That shows how it works, and
# decides nothing.

# %%
import json
import time
from pathlib import Path

import matplotlib.pyplot as plt
from transformers.utils import logging

from sbert_plugins import evaluation, recipes

logging.disable_progress_bar()  # of reading and writing weights

# %% [markdown]
# ## What to change
#
# Put **your file** in the place of `TEXT`, and your labels in the place of `SCORES`: graded pairs, texts with topics
# (`evaluation.own_topics`), or queries with the texts that answer them (`evaluation.own_retrieval`). With a network, `MODEL`
# may be any encoder of the Hub.

# %%
METHODS = ["simcse", "consert", "arccse"]  # the others are compared with the first
TEXT = recipes.offline_sentences_path()  # yours: "sentences.txt", a sentence a line
SCORES = evaluation.PairsEvaluator(
    recipes.graded_pairs(), name="graded pairs", write_csv=False
)  # yours: own_pairs("graded.tsv")
MODEL = None  # on the Hub: "bert-base-uncased"
SENTENCES = 160  # of the text; None for all
BATCH_SIZE = 32  # with more sentences 64 or more: the others of a batch are what a sentence is told from
SEEDS = 2  # three or more, for numbers that are believed
OUTPUT = Path("runs") / time.strftime("compared-%Y%m%d-%H%M%S")  # named again, a comparison goes on where it was killed

# %%
comparison = recipes.compare(
    METHODS,
    TEXT,
    output=OUTPUT,
    evaluators=[SCORES],
    model=MODEL or (lambda: recipes.offline_encoder(max_seq_length=256)),
    seeds=SEEDS,
    settings=recipes.with_changes(recipes.settings_of("recommended", offline=not MODEL), batch_size=BATCH_SIZE),
    limit=SENTENCES,
    report=print,
)

# %% [markdown]
# ## The table
#
# Mean over the seeds ± standard deviation. `start` is the encoder before any training.

# %%
for line in comparison.table:
    print("  ".join(cell.ljust(20) for cell in line).rstrip())

# %% [markdown]
# ## The difference
#
# Seeds move all methods alike: a seed orders the text, and draws the dropout. So each method is compared with the first seed
# by seed, and the deviation of these differences is what counts. A difference that is not well above it is none.

# %%
for row in comparison.rows[1:]:
    for title, difference in row.differences.items():
        print(f"{row.method} minus {METHODS[0]}, {title}: {difference.mean:+.2f} ± {difference.deviation or 0:.2f}")

# %% [markdown]
# ## A curve
#
# What a training logged lies in its record. The losses of two methods are different things, and cannot be compared; that a
# loss falls says that something is learned, not that it is of use.

# %%
record = json.loads((OUTPUT / f"{METHODS[1]}_seed0.json").read_text(encoding="utf-8"))
logged = [entry for entry in record["log"] if "loss" in entry]
plt.plot([entry["step"] for entry in logged], [entry["loss"] for entry in logged], marker="o")
plt.xlabel("update")
plt.ylabel(f"loss of {METHODS[1]}")
plt.show()

# %% [markdown]
# All scores, curves, settings and the neighbours of ten sentences are on the page that was written beside the records. From
# the command line it is `sbert-plugins compare sentences.txt --methods simcse consert arccse --pairs graded.tsv --output
# runs/compared`.

# %%
print(comparison.page)
