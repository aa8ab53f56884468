"""Train methods with several seeds on one encoder and text, and score them on similarity, search and topics.

    python benchmarks/quality.py --methods "SimCSE 0.1" "ConSERT" --seeds 5
    python benchmarks/quality.py --methods start

Each training appends a line to ``results/quality.jsonl``; a training that is there is not repeated. STS-B dev
selects the checkpoint, except on a collection's own text, where the last update counts. The test sets select
nothing. ``start`` is the encoder before training. ``--encoder`` is ``minilm-mlm``, ``all-minilm``, a path or
a name on the Hub, and ``--text`` is a name of ``testbeds.text``.
"""

import random
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

import records
import testbeds
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses as st_losses
from torch import nn

from sbert_plugins import data, evaluation, losses, recipes


def simcse_with_words(model: SentenceTransformer, *, balance: float = 0.3) -> nn.Module:
    """Return SimCSE at 0.1 plus a bag-of-words loss."""
    simcse = st_losses.MultipleNegativesRankingLoss(model, scale=10)
    members = {"simcse": (simcse, 1.0, [0, 0]), "words": (losses.BagOfWordsLoss(model), 1.0, [0])}
    return losses.WeightedSumLoss(model, members, balance=balance)


def contrastive_tension(model: SentenceTransformer) -> nn.Module:
    """Return Contrastive Tension with in-batch negatives at temperature 0.05."""
    return st_losses.ContrastiveTensionLossInBatchNegatives(model, scale=20)


def tsdae(model: SentenceTransformer) -> nn.Module:
    """Return TSDAE, which reads the columns of :func:`delete_words`. Its decoder starts as the encoder."""
    config = model.transformers_model.config
    name = config.name_or_path
    if Path(name).exists():
        return st_losses.DenoisingAutoEncoderLoss(model)
    with tempfile.TemporaryDirectory() as folder:  # it loads the decoder by the name of the encoder
        model.transformers_model.save_pretrained(folder)
        model.tokenizer.save_pretrained(folder)
        config.name_or_path = folder
        loss = st_losses.DenoisingAutoEncoderLoss(model)
    config.name_or_path = name
    return loss


# Label in the records and tables: the method of recipes.train, and keywords of its loss.
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "SimCSE 0.05": ("simcse", {"projection_head": False}),
    "SimCSE 0.1": ("simcse", {"temperature": 0.1, "projection_head": False}),
    "SimCSE 0.05 with head": ("simcse", {}),
    "SimCSE 0.1 + bag of words": ("quality:simcse_with_words", {}),
    "ConSERT": ("consert", {}),
    "ConSERT with head": ("consert", {"projection_head": True}),
    "ConSERT with head + bag of words": ("recommended", {"keep": 0.0}),
    "bag of words": ("bag-of-words", {}),
    "ArcCSE": ("arccse", {}),
    "PT-BERT": ("pt-bert", {}),
    "PaSeR": ("paser", {}),
    "PaSeR, words only": ("paser", {"decoder_layers": 0, "token_weights": 1e-6, "mlm_weight": 0.0}),
    "PaSeR, eq. 2 as printed": ("paser", {"signed": False, "normalize_memory": False}),
    "DenoSent": ("denosent", {}),
    "SLT-FAI": ("slt-fai", {}),
    "SLT-FAI, bounded": ("slt-fai", {"balance": 0.1}),
    "Contrastive Tension 0.05": ("quality:contrastive_tension", {}),
    "TSDAE": ("quality:tsdae", {}),
}
# Training arguments in which recipes differ, and comparisons must not.
EQUAL = {"gradient_accumulation_steps": 1, "sam_rho": 0.0, "batch_sampler": "batch_sampler"}
# Metric of an evaluator: name in the record, and factor to points.
SCORES = {
    **{("Sts", task): (task, 1) for task in (*evaluation.TASKS, "avg7")},
    ("stsb_dev", "spearman"): ("stsb_dev", 1),
    ("geometry", "alignment"): ("alignment", 1),
    ("geometry", "uniformity"): ("uniformity", 1),
    ("hard_length", "avg5"): ("hard_length", 1),
    ("quora_dev", "cosine_map@100"): ("quora_map", 100),
    ("cranfield", "cosine_map@100"): ("cranfield_map", 100),
    ("cranfield", "cosine_ndcg@10"): ("cranfield_ndcg", 100),
    ("agnews", "purity@10"): ("agnews_purity", 1),
    ("agnews", "v_measure"): ("agnews_v_measure", 1),
    ("biomedical", "purity@10"): ("biomedical_purity", 1),
    ("biomedical", "v_measure"): ("biomedical_v_measure", 1),
}


def main() -> None:
    """Run the trainings that are asked for and not recorded yet."""
    choices = {"methods": ["start", *METHODS]}
    defaults = {"methods": [], "seeds": list(range(5)), "encoder": "minilm-mlm"}
    defaults |= {"text": "short", "sentences": 20_000, "updates": 60, "learning_rate": 5e-5, "batch_size": 64}
    defaults |= {"pooling": "mean", "max_seq_length": 32, "eval_steps": 10, "bf16": True}
    options = vars(records.parser(__doc__, choices, **defaults).parse_args())
    methods, seeds = (options.pop(name) for name in ("methods", "seeds"))
    records.require_clean_tree()
    for seed, name in product(seeds, methods):
        cell = {"label": name, "seed": seed if name in METHODS else 0}
        if name in METHODS:
            cell |= {key: value for key, value in options.items() if key not in ("sentences", "eval_steps")}
        else:
            cell |= {key: options[key] for key in ("encoder", "text", "pooling", "max_seq_length")}
        if records.holds("quality", cell):
            continue
        sentences = testbeds.text(options["text"], options["sentences"])
        model = testbeds.encoder(
            options["encoder"], pooling=options["pooling"], max_seq_length=options["max_seq_length"]
        )
        if name in METHODS:
            cell |= train(model, sentences, cell, options["eval_steps"])
        cell |= {"sentences": len(sentences), "scores": score(model)}
        records.append("quality", cell)
        print(name, cell["seed"], cell["scores"], flush=True)


def train(
    model: SentenceTransformer, sentences: Dataset, cell: dict[str, Any], eval_steps: int
) -> dict[str, Any]:
    """Train ``model`` in place and return the loss, the curve of STS-B dev, saved update and seconds."""
    method, keywords = METHODS[cell["label"]]
    if method == "paser" and data.synonyms_if_installed() is None:
        raise SystemExit("PaSeR is trained with synonyms: set NLTK_DATA to a folder with WordNet.")
    if method.endswith("tsdae"):
        sentences = delete_words(sentences, cell["seed"])
    dev = evaluation.PairsEvaluator(evaluation.load_sts("STS-B dev"), name="stsb_dev", write_csv=False)
    with tempfile.TemporaryDirectory() as folder:
        results = recipes.train(
            method,
            sentences,
            model,
            output=folder,
            loss_keywords=keywords,
            dev=None if cell["text"] in testbeds.COLLECTIONS else dev,
            seed=cell["seed"],
            max_seq_length=cell["max_seq_length"],
            max_steps=cell["updates"],
            eval_steps=eval_steps,
            learning_rate=cell["learning_rate"],
            per_device_train_batch_size=cell["batch_size"],
            bf16=cell["bf16"],
            **EQUAL,
        )
    return {
        "method": method,
        "loss": keywords,
        "curve": [
            [entry["step"], round(entry["eval_stsb_dev_spearman"], 4)]
            for entry in results["log"]
            if "eval_stsb_dev_spearman" in entry
        ],
        "saved_update": results["saved_update"],
        "seconds": results["seconds"],
    }


def delete_words(sentences: Dataset, seed: int) -> Dataset:
    """Return TSDAE's columns: the sentence without 60 % of its words, and the sentence."""
    rng = random.Random(seed)
    texts = sentences["anchor"][:]
    noisy = [data.delete_words(one, 0.6, rng) for one in texts]
    return Dataset.from_dict({"anchor": noisy, "positive": texts})


def score(model: SentenceTransformer) -> dict[str, float]:
    """Return the scores of a model in points, rounded to four digits."""
    evaluators: list[Any] = [
        evaluation.PairsEvaluator(evaluation.load_sts("STS-B dev"), name="stsb_dev"),
        evaluation.STSSuiteEvaluator(name="Sts"),
        evaluation.AlignmentUniformityEvaluator(name="geometry"),
        evaluation.HardLengthEvaluator(positive=">=4", negative="<=1"),
        *(build() for build in testbeds.COLLECTIONS.values()),
    ]
    found = evaluation.evaluate(model, evaluators)
    return {
        name: round(factor * found[evaluator][metric], 4)
        for (evaluator, metric), (name, factor) in SCORES.items()
        if evaluator in found
    }


if __name__ == "__main__":
    main()
