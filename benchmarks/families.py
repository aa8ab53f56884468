"""Every loss on every family of encoders: builds it, trains two updates, saves the model, and loads it as anyone would.

    python benchmarks/families.py

Tiny random encoders that transformers builds from their configurations, with the tests' tokenizer of the family's kind; as an
encoder alone with mean pooling, and with masked-language-model weights (where the family has them) and [CLS] pooling. Each
cell of the matrix is "trained", with the largest difference between the embeddings of the trained model and of the one that
plain sentence-transformers loads; "refused", by an error of this package when the loss is built; or "obscure": any other end.
Writes ``benchmarks/results/families.json``; ``--families`` and ``--losses`` only print.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import torch
import transformers
from provenance import ROOT, provenance, refuse_changes

sys.path[:0] = [str(ROOT / "tests")]

from encoders import build_tokenizers
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

import sbert_plugins
from sbert_plugins import data, losses, recipes
from sbert_plugins.recipes.output import write_json

SENTENCES = recipes.offline_sentences_path().read_text(encoding="utf-8").splitlines()
ROWS = 4
UPDATES = 2

_SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
_DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
_XLM = {"emb_dim": 32, "n_layers": 2, "n_heads": 4}
# transformers' name of a family -> (its tokenizer, "no mask" where it was pretrained without; configuration, with dropout
# where the family has any)
FAMILIES = {
    "bert": ("wordpiece", _SIZE),
    "roberta": ("bpe", _SIZE),
    "xlm-roberta": ("unigram", _SIZE),
    "distilbert": ("wordpiece", {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}),
    "albert": ("unigram", {**_SIZE, **_DROPOUT, "embedding_size": 16}),
    "electra": ("wordpiece", {**_SIZE, "embedding_size": 16}),
    "mpnet": ("wordpiece", _SIZE),
    "deberta": ("bpe", {**_SIZE, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}),
    "deberta-v2": ("unigram", {**_SIZE, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}),
    "modernbert": ("bpe", {**_SIZE, "embedding_dropout": 0.1, "attention_dropout": 0.1, "mlp_dropout": 0.1}),
    "eurobert": ("bpe", {**_SIZE, "attention_dropout": 0.1}),
    "nomic_bert": ("wordpiece", {**_SIZE, **_DROPOUT}),
    "rembert": ("unigram", {**_SIZE, **_DROPOUT, "input_embedding_size": 16, "output_embedding_size": 48}),
    "longformer": ("bpe", {**_SIZE, "attention_window": 64}),
    "big_bird": ("unigram", {**_SIZE, "block_size": 8}),
    "xlnet": ("unigram", {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64}),
    "camembert": ("unigram", _SIZE),
    "fnet": ("unigram", _SIZE),
    "funnel": (
        "wordpiece",
        {"architectures": ["FunnelModel"], "block_sizes": [1, 1], "d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 64},
    ),
    "mobilebert": ("wordpiece", {**_SIZE, "embedding_size": 16, "intra_bottleneck_size": 16}),
    "squeezebert": ("wordpiece", {**_SIZE, "embedding_size": 32}),
    "convbert": ("wordpiece", {**_SIZE, "embedding_size": 32}),
    "ernie": ("wordpiece", _SIZE),
    "megatron-bert": ("wordpiece", _SIZE),
    "roformer": ("wordpiece", {**_SIZE, "embedding_size": 32}),
    "nystromformer": ("unigram", _SIZE),
    "xmod": ("unigram", {**_SIZE, "default_language": "en_XX"}),
    "xlm": ("bpe", _XLM),
    "flaubert": ("bpe", _XLM),
    "t5": ("unigram, no mask", {"d_model": 32, "num_layers": 2, "num_heads": 4, "d_kv": 8, "d_ff": 64}),
    "gpt2": ("bpe, no mask", {"n_embd": 32, "n_layer": 2, "n_head": 4}),
    "qwen3": ("bpe, no mask", {**_SIZE, "num_key_value_heads": 2, "head_dim": 8, "attention_dropout": 0.1}),
}


def _frequencies(model: SentenceTransformer) -> data.TokenFrequencies:
    return data.TokenFrequencies.from_corpus(SENTENCES, model.tokenizer)


def _paper(method: recipes.Recipe, **smaller: int) -> dict:
    return {**method.paper_keywords, "decoder_layers": 2, **smaller}


def _slt_fai(model: SentenceTransformer) -> losses.SLTFAILoss:
    return losses.SLTFAILoss(model, losses.ConSERTLoss(model), frequencies=_frequencies(model), warmup_steps=0)


def _sum(model: SentenceTransformer) -> losses.WeightedSumLoss:
    ranking = MultipleNegativesRankingLoss(model)
    return losses.WeightedSumLoss(
        model, {"simcse": (ranking, 1.0, [0, 0]), "consert": (losses.ConSERTLoss(model), 1.0, [0])}, balance=1.0
    )


# name -> loss of a model; "by layers" are the papers' decoders
LOSSES: dict[str, Callable[[SentenceTransformer], torch.nn.Module]] = {
    "ArcCSE": lambda model: losses.ArcCSELoss(model, min_words=5),
    "DenoSent": lambda model: losses.DenoSentLoss(model, frequencies=_frequencies(model)),
    "DenoSent by layers": lambda model: losses.DenoSentLoss(model, **_paper(recipes.DENOSENT, decoder_feedforward=48)),
    "PaSeR": lambda model: losses.PaSeRLoss(model, frequencies=_frequencies(model)),
    "PaSeR by layers": lambda model: losses.PaSeRLoss(model, **_paper(recipes.PASER, decoder_heads=4)),
    "PT-BERT": lambda model: losses.PTBERTLoss(model, num_pseudo_tokens=8, queue_size=8),
    "SLT-FAI": _slt_fai,
    "ConSERT": losses.ConSERTLoss,
    "BagOfWords": lambda model: losses.BagOfWordsLoss(model, frequencies=_frequencies(model)),
    "WeightedSum": _sum,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="+", choices=list(FAMILIES), default=list(FAMILIES), metavar="NAME")
    parser.add_argument("--losses", nargs="+", choices=list(LOSSES), default=list(LOSSES), metavar="NAME")
    options = parser.parse_args()
    is_whole = options.families == list(FAMILIES) and options.losses == list(LOSSES)
    if is_whole:
        refuse_changes()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    logging.getLogger("sbert_plugins").setLevel(logging.ERROR)  # that heads are random
    cells = []
    for family in options.families:
        for pooling in ("mean", "cls"):
            for cell in row(family, pooling, options.losses):
                cells.append(cell)
                print(*cell.values(), sep="  ", flush=True)
    counts = Counter(cell["outcome"] for cell in cells)
    print(dict(counts))
    if is_whole:
        path = ROOT / "benchmarks" / "results" / "families.json"
        record = {"rows": ROWS, "updates": UPDATES, "counts": counts, "cells": cells, **provenance()}
        write_json(path, record)
        print(path)


def row(family: str, pooling: str, names: Iterable[str]) -> Iterator[dict]:
    """Yield the cells of a family; with [CLS] pooling of a checkpoint with a masked-language-model head, if there is one."""
    with_head = pooling == "cls" and family in MODEL_FOR_MASKED_LM_MAPPING_NAMES
    with tempfile.TemporaryDirectory() as folder:
        build_encoder(family, Path(folder), with_head=with_head)
        encoder = type(load(Path(folder), pooling).transformers_model).__name__
        for name in names:
            cell = {"family": family, "encoder": encoder, "pooling": pooling, "head": with_head, "loss": name}
            yield cell | outcome(Path(folder), pooling, LOSSES[name])


def build_encoder(family: str, folder: Path, *, with_head: bool) -> None:
    """Save a tiny random encoder of a family and a tokenizer of its kind."""
    kind, size = FAMILIES[family]
    cut, _, without = kind.partition(", ")
    tokenizer = build_tokenizers(has_mask=not without)[cut]
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id", None) for name in ("pad", "bos", "eos")}
    known = AutoConfig.for_model(family).to_dict()
    places = {name: 160 for name in ("max_position_embeddings", "n_positions") if name in known}
    config = AutoConfig.for_model(family, vocab_size=len(tokenizer), **ids, **places, **size)
    torch.manual_seed(0)
    model = (AutoModelForMaskedLM if with_head else AutoModel).from_config(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def outcome(encoder: Path, pooling: str, build: Callable[[SentenceTransformer], torch.nn.Module]) -> dict:
    """Train a loss on an encoder and say what came of it."""
    torch.manual_seed(1)
    try:
        model = load(encoder, pooling)
        loss = build(model)
    except Exception as error:
        is_ours = isinstance(error, ValueError) and _raised_in(sbert_plugins.__path__[0], error)
        return {"outcome": "refused" if is_ours else "obscure", "message": _told(error, is_ours)}
    try:
        difference = train_and_reload(model, loss)
    except Exception as error:
        return {"outcome": "obscure", "message": _told(error)}
    return {"outcome": "trained", "reload_difference": difference}


def load(encoder: Path, pooling: str) -> SentenceTransformer:
    transformer = Transformer(str(encoder))
    return SentenceTransformer(modules=[transformer, Pooling(transformer.get_embedding_dimension(), pooling)], device="cpu")


def train_and_reload(model: SentenceTransformer, loss: torch.nn.Module) -> float:
    """Return the largest difference between the embeddings of a trained model and of what was saved of it.

    Raises:
        AssertionError: If a term is not finite, or training leaves the embeddings as they were.
    """
    rows = columns_of(loss, model)
    before = model.encode(SENTENCES[:ROWS])
    optimizer = torch.optim.AdamW([weight for weight in loss.parameters() if weight.requires_grad], lr=1e-3)
    loss.train()
    for part in loss.modules():
        part.state_is_kept = True  # no resume here
    for start in range(0, UPDATES * ROWS, ROWS):
        terms = loss([model.preprocess(texts[start : start + ROWS]) for texts in rows])
        assert all(term.isfinite() for term in terms.values()), f"a term is not finite: {terms}"
        optimizer.zero_grad()
        sum(terms.values()).backward()
        optimizer.step()
    model.eval()
    trained = model.encode(SENTENCES[:ROWS])
    assert np.isfinite(trained).all() and not np.array_equal(before, trained), "training left the embeddings as they were"
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        types = [module["type"] for module in json.loads((Path(folder) / "modules.json").read_text(encoding="utf-8"))]
        assert all(name.startswith("sentence_transformers.") for name in types), f"the saved model needs {types}"
        again = SentenceTransformer(folder, device="cpu").encode(SENTENCES[:ROWS])
    return float(np.abs(again - trained).max())


def columns_of(loss: torch.nn.Module, model: SentenceTransformer) -> list[list[str]]:
    count = UPDATES * ROWS
    if not isinstance(loss, losses.PaSeRLoss):
        return [SENTENCES[:count]]
    rows = data.paser_columns(SENTENCES[:count], mask_token=model.tokenizer.mask_token, synonyms=None)
    return [list(rows[name])[:count] for name in ("anchor", "masked", "phrase")]


def _raised_in(folder: str, error: Exception) -> bool:
    return traceback.extract_tb(error.__traceback__)[-1].filename.startswith(folder)


def _told(error: Exception, is_ours: bool = False) -> str:
    if is_ours:
        return str(error)
    place = traceback.extract_tb(error.__traceback__)[-1]
    first_line = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__} in {Path(place.filename).name}, {place.name}: {first_line}"


if __name__ == "__main__":
    main()
