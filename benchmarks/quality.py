"""Methods, mixes and rivals on the same encoder, text, steps and seeds: one process and one json a cell.

    python benchmarks/quality.py --methods simcse arccse pt-bert --seeds 5

A cell that has its json is not run again, so a grid that was killed continues. A method takes keywords of its loss after a
colon: ``pt-bert:attend_to=pooled,momentum=0.99``. STS-B dev selects the checkpoint. The test tasks are looked at once,
after training; ``--dev-only``, for screening, leaves them out. With ``--text quora`` or ``cranfield``, domain adaptation, a
model trains on the texts of a collection for a fixed number of updates, and the search in that collection is scored.
Encoders and texts are described in ``benchmarks/README.md``.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import packed
import torch
from datasets import Dataset
from provenance import provenance
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer import losses as host
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
from sentence_transformers.sentence_transformer.modules import Dense
from tqdm import tqdm
from transformers import set_seed

from sbert_plugins import data, evaluation, losses, recipes, training
from sbert_plugins.recipes.cells import slug, write_record
from sbert_plugins.recipes.keywords import read_value

RESULTS = Path(__file__).parent / "results" / "quality"
SWEEPS = {
    "arccse-margin": [f"arccse:margin_degrees={degrees}" for degrees in (0, 5, 10, 15, 20)],
    "arccse-temperature": [f"arccse:temperature={value}" for value in (0.03, 0.04, 0.05, 0.06, 0.07)],
    "arccse-triplet": ["arccse", "arccse:triplet_weight=0", "arccse:triplet_margin=0.1", "arccse:triplet_margin=0.2"],
    "arccse-sam": ["arccse", "arccse:sam_rho=0.05"],
    "temperature": [
        f"{name}:temperature={value}"
        for name in ("simcse", "consert", "arccse", "pt-bert")
        for value in (0.03, 0.05, 0.1, 0.2)
    ],
    "denosent-noise": [f"denosent:noise_dropout={value}" for value in (0.7, 0.75, 0.8, 0.825, 0.85, 0.9)],
    "denosent-terms": ["denosent", "denosent:denoising_weight=0", "denosent:contrastive_weight=0"],
    "denosent-decoder-rate": [f"denosent:loss_learning_rate={rate}" for rate in (3e-4, 1e-3, 3e-3)],
    "paser-pooling": [f"paser:pooling={pooling}" for pooling in ("mean", "cls")],
    "paser-decoder": [f"paser:decoder_layers={layers}" for layers in (1, 2, 4, 6, 8)],
    "paser-signed": ["paser:signed=false", "paser:signed=true"],
    "paser-top-k": [f"paser:top_k={count}" for count in (1, 2, 3)],
    "pt-bert-attend": ["pt-bert", "pt-bert:attend_to=pooled", "pt-bert:num_pseudo_tokens=0"],
    "pt-bert-momentum": [f"pt-bert:momentum={momentum}" for momentum in (0.885, 0.99, 0.995, 0.999)],
    "pt-bert-tokens": [f"pt-bert:num_pseudo_tokens={count}" for count in (64, 128, 256)],
    "slt-fai-rare": [f"slt-fai:low_frequency_by={by}" for by in ("mass", "types")],
    "slt-fai-terms": ["slt-fai", "slt-fai:adversarial_weight=0", "slt-fai:filtering_weight=0"],
    "slt-fai-share": [f"slt-fai:low_frequency_share={share}" for share in (0.3, 0.4, 0.5, 0.6, 0.7)],
}


class Method(NamedTuple):
    """How a loss is built, and from which columns; ``settings`` are the few that leave the grid's."""

    loss: Callable[..., Any] | None
    columns: Callable[..., Dataset]
    settings: dict[str, Any] = {}  # noqa: RUF012 (a NamedTuple: never changed)


def anchors(sentences: Dataset, model: SentenceTransformer, seed: int) -> Dataset:
    return sentences.select_columns("anchor")


def crops(sentences: Dataset, model: SentenceTransformer, seed: int) -> Dataset:
    """Each sentence with its neighbour, where the text has paragraphs."""
    if "positive" not in sentences.column_names:
        raise SystemExit("Crops come from documents: take --text paragraphs.")
    return sentences


def pairs(sentences: Dataset, model: SentenceTransformer, seed: int) -> Dataset:
    """Each sentence twice: two dropout views."""
    return Dataset.from_dict({"anchor": sentences["anchor"][:], "positive": sentences["anchor"][:]})


def noisy(sentences: Dataset, model: SentenceTransformer, seed: int) -> Dataset:
    """TSDAE's columns: 60 % of the words deleted, and the sentence."""
    rng = random.Random(seed)
    texts = sentences["anchor"][:]
    return Dataset.from_dict({"noisy": [data.delete_words(text, 0.6, rng) for text in texts], "text": texts})


def phrases(sentences: Dataset, model: SentenceTransformer, seed: int, top_k: int = 3) -> Dataset:
    return data.paser_columns(sentences, mask_token=model.tokenizer.mask_token, top_k=top_k, seed=seed)


def paraphrases(sentences: Dataset, model: SentenceTransformer, seed: int) -> Dataset:
    """As many pairs that people marked as the same question: supervision, not noise. None is of an STS test set."""
    unwanted = {sentence.lower() for sentence in test_sentences()}
    rows = table(Path(os.environ["SBERT_PLUGINS_DATA"]) / "paraphrase" / "quora_dup_train.tsv.gz")
    rows = [row for row in rows if unwanted.isdisjoint(text.lower() for text in row)]
    rows = random.Random(seed).sample(rows, min(len(sentences), len(rows)))
    return Dataset.from_dict({"anchor": [row[0] for row in rows], "paraphrase": [row[1] for row in rows]})


def scored(sentences: Dataset, model: SentenceTransformer, seed: int) -> Dataset:
    """STS-B train with its scores, the supervised ceiling; without the many pairs that STS12 to STS16 test on."""
    train = evaluation.read_scored_pairs(Path(os.environ["SBERT_PLUGINS_DATA"]) / "sts" / "stsb_train.tsv")
    unwanted = {sentence.lower() for sentence in test_sentences()}
    rows = [row for row in zip(*train, strict=True) if unwanted.isdisjoint(text.lower() for text in row[:2])]
    return Dataset.from_dict(
        {"sentence1": [row[0] for row in rows], "sentence2": [row[1] for row in rows], "score": [row[2] / 5 for row in rows]}
    )


def simcse(model: SentenceTransformer, *, temperature: float = 0.05) -> Any:
    return host.MultipleNegativesRankingLoss(model, scale=1 / temperature)


def slt_fai(model: SentenceTransformer, *, backbone: str = "simcse", **keywords: Any) -> Any:
    return recipes.slt_fai_loss(model, backbone=backbone, **keywords)


def denosent_with_arccon(model: SentenceTransformer) -> Any:
    """ArcCSE's angular margin in the place of DenoSent's contrastive term, on the same two passes."""
    denoising = losses.DenoSentLoss(model, contrastive_weight=0)
    return losses.WeightedSumLoss(model, {"arccse": (losses.ArcCSELoss(model), 1.0), "denosent": (denoising, 1.0)})


def with_words(build: Callable[..., Any]) -> Callable[..., Any]:
    """Return what builds the sum of a leading loss and the words of the sentence, the second bounded by the first."""

    def built(model: SentenceTransformer, *, balance: float = 1.0, **keywords: Any) -> Any:
        parts = {"contrast": (build(model, **keywords), 1.0), "words": (losses.BagOfWordsLoss(model), 1.0)}
        return losses.WeightedSumLoss(model, parts, balance=balance)

    return built


def simcse_on_one_column(model: SentenceTransformer, *, temperature: float = 0.1) -> Any:
    """SimCSE on the first column of any rows."""
    return losses.WeightedSumLoss(model, {"simcse": (simcse(model, temperature=temperature), 1.0, [0, 0])})


def simcse_with_paser(model: SentenceTransformer, *, temperature: float = 0.1, balance: float = 1.0, **keywords: Any) -> Any:
    parts = {
        "simcse": (simcse(model, temperature=temperature), 1.0, [0, 0]),
        "paser": (losses.PaSeRLoss(model, **keywords), 1.0),
    }
    return losses.WeightedSumLoss(model, parts, balance=balance)


def in_equal_parts(**members: Callable[..., Any]) -> Callable[..., Any]:
    """Return what builds the sum; a keyword goes to each member."""

    def built(model: SentenceTransformer, **keywords: Any) -> Any:
        parts = {name: (build(model, **keywords), 1 / len(members)) for name, build in members.items()}
        return losses.WeightedSumLoss(model, parts)

    return built


def consert_with_dropout(model: SentenceTransformer, **keywords: Any) -> Any:
    views = {"first_view": ("feature_cutoff", "dropout"), "second_view": ("token_shuffling", "dropout")}
    return losses.ConSERTLoss(model, **views, **keywords)


METHODS = {
    "raw": Method(None, anchors),
    "whitening": Method(None, anchors),
    "simcse": Method(simcse, pairs),
    "tsdae": Method(host.DenoisingAutoEncoderLoss, noisy),
    "ct": Method(host.ContrastiveTensionLossInBatchNegatives, anchors),
    "consert": Method(losses.ConSERTLoss, anchors),
    "arccse": Method(losses.ArcCSELoss, anchors),
    "denosent": Method(losses.DenoSentLoss, anchors),
    "words": Method(losses.BagOfWordsLoss, anchors),
    "paser": Method(losses.PaSeRLoss, phrases),
    "simcse on paser's rows": Method(simcse_on_one_column, phrases),
    "simcse + paser": Method(simcse_with_paser, phrases),
    "pt-bert": Method(losses.PTBERTLoss, anchors),
    "slt-fai": Method(slt_fai, anchors),
    "arccon + denoising": Method(denosent_with_arccon, anchors),
    "arccse + pt-bert": Method(in_equal_parts(arccse=losses.ArcCSELoss, pt_bert=losses.PTBERTLoss), anchors),
    "consert + arccse": Method(in_equal_parts(consert=losses.ConSERTLoss, arccse=losses.ArcCSELoss), anchors),
    "consert + arccse + words": Method(
        with_words(in_equal_parts(consert=losses.ConSERTLoss, arccse=losses.ArcCSELoss)), anchors
    ),
    "consert + words": Method(with_words(losses.ConSERTLoss), anchors),
    "consert + pt-bert": Method(in_equal_parts(consert=losses.ConSERTLoss, pt_bert=losses.PTBERTLoss), anchors),
    "consert with dropout": Method(consert_with_dropout, anchors),
    "simcse on crops": Method(simcse, crops),
    "arccse on crops": Method(losses.ArcCSELoss, crops),
    "consert on crops": Method(losses.ConSERTLoss, crops),
    # The brackets say what supervises; the report gives these a table of their own.
    "simcse (paraphrases)": Method(simcse, paraphrases),
    "denosent (paraphrases)": Method(losses.DenoSentLoss, paraphrases),
    "pt-bert (paraphrases)": Method(losses.PTBERTLoss, paraphrases),
    "cosent (supervised)": Method(host.CoSENTLoss, scored),
}
COLUMN_KEYWORDS = ("top_k",)
SETTING_KEYWORDS = ("loss_learning_rate", "sam_rho", "pooling")
COLLECTIONS = {"quora": evaluation.quora_retrieval, "cranfield": evaluation.cranfield_retrieval}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=[], metavar="METHOD", help=", ".join(METHODS))
    parser.add_argument("--sweep", choices=list(SWEEPS), help="add a paper's ablation to the methods")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--encoder", default="minilm-mlm", help="minilm-mlm, minilm-4-layers, all-minilm, or a path or Hub name"
    )
    parser.add_argument(
        "--text",
        default="short",
        help="short, wiki, paragraphs, sts (transductive), quora, cranfield, or a file or Hub dataset",
    )
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--sentences", type=int, default=20_000)
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--max-seq-length", type=int, default=32)
    parser.add_argument("--pooling", default="mean", choices=["cls", "mean"])
    parser.add_argument("--eval-steps", type=int, default=20)
    parser.add_argument(
        "--preset", choices=["paper"], help="bert-base-uncased and a million Wikipedia sentences, from the Hub"
    )
    parser.add_argument("--dev-only", action="store_true", help="look at no test set")
    parser.add_argument("--no-bf16", dest="bf16", action="store_false")
    parser.add_argument("--packed", action="store_true", help="compute no padding (a CPU without bfloat16: half the time)")
    parser.add_argument("--no-search", dest="search", action="store_false", help="leave Quora's questions out")
    parser.add_argument("--cell", nargs=2, metavar=("METHOD", "SEED"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.preset == "paper":
        options.encoder, options.text, options.pooling = "bert-base-uncased", recipes.DEFAULT_TEXT, "cls"
        options.sentences, options.steps, options.eval_steps, options.learning_rate = 1_000_000, 15_625, 125, 3e-5
    if options.cell:
        cell(options.cell[0], int(options.cell[1]), options)
        return
    methods = list(dict.fromkeys(options.methods + SWEEPS.get(options.sweep, [])))
    for method in methods:
        parse(method)
    grid = [(method, seed) for seed in range(options.seeds) for method in methods]
    missing = [place for place in grid if not result_path(*place, options).exists()]
    print(f"{len(grid)} cells, {len(grid) - len(missing)} there already")
    failed = []
    arguments = sys.argv[1:]
    for method, seed in tqdm(missing, desc="cells"):
        log = result_path(method, seed, options).with_suffix(".log")
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w") as file:
            command = [sys.executable, __file__, *arguments, "--cell", method, str(seed)]
            code = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, check=False).returncode
        if code:
            failed.append((method, seed))
            tqdm.write(f"{method}, seed {seed}: exit status {code}, see {log}")
        else:
            log.unlink()
            record = json.loads(result_path(method, seed, options).read_text())
            tests = f", seven tasks {record['scores']['avg7']:.2f}" if "avg7" in record["scores"] else ""
            tqdm.write(f"{method}, seed {seed}: dev {record['dev']:.2f}{tests}, {record['seconds']:.0f} s")
    sys.exit(bool(failed))


def parse(method: str) -> tuple[Method, dict[str, Any], dict[str, Any]]:
    """Split ``name:key=value,...`` into the method with its settings, keywords of its columns and of its loss."""
    name, _, rest = method.partition(":")
    if name not in METHODS:
        raise SystemExit(f"--methods must be among {', '.join(METHODS)}, got {name!r}.")
    keywords = {key: read_value(value) for key, _, value in (pair.partition("=") for pair in rest.split(",") if pair)}
    columns = {key: keywords.pop(key) for key in COLUMN_KEYWORDS if key in keywords}
    settings = {key: keywords.pop(key) for key in SETTING_KEYWORDS if key in keywords}
    return METHODS[name]._replace(settings=METHODS[name].settings | settings), columns, keywords


def result_path(method: str, seed: int, options: argparse.Namespace) -> Path:
    """Name the json of a cell by its method, seed and what else changes the training; ``eval_steps`` stands in the json."""
    keys = ("encoder", "text", "steps", "sentences", "learning_rate", "batch_size", "max_seq_length", "pooling", "bf16")
    settings = {key: getattr(options, key) for key in keys} | ({"packed": True} if options.packed else {})
    mark = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]
    folder = f"{Path(options.encoder).name}_{Path(options.text).stem}_{options.steps}_{mark}" + "_dev" * options.dev_only
    return RESULTS / folder / f"{slug(method)}_seed{seed}.json"


def cell(name: str, seed: int, options: argparse.Namespace) -> None:
    """Train and score one method with one seed; the json appears whole or not at all."""
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    method, column_keywords, loss_keywords = parse(name)
    own_settings = dict(method.settings)
    model = encoder(options, own_settings.pop("pooling", options.pooling))
    sentences = text(options, seed)
    dev = evaluation.load_sts("STS-B dev")
    selects = None if options.text in COLLECTIONS else dev  # who adapts to a domain has nothing to select by
    set_seed(seed)
    start = time.perf_counter()
    curve: list[dict[str, float]] = []
    if method.loss is None:
        if name.partition(":")[0] == "whitening":
            whiten(model, sentences["anchor"][:])
    else:
        rows = method.columns(sentences, model, seed, **column_keywords)
        curve = train(model, method.loss(model, **loss_keywords), rows, selects, seed, options, **own_settings)
    seconds = time.perf_counter() - start
    evaluators = [
        EmbeddingSimilarityEvaluator(*dev, name="dev", main_similarity="cosine", write_csv=False),
        evaluation.AlignmentUniformityEvaluator(name="geometry", write_csv=False),
    ]
    if options.text in COLLECTIONS:
        evaluators += [COLLECTIONS[options.text](write_csv=False)]
    elif not options.dev_only:
        # PT-BERT's paper gives no gold thresholds for its subset; these are those of the real runs.
        evaluators += [evaluation.HardLengthEvaluator(positive=">=4", negative="<=1", write_csv=False)]
        evaluators += [evaluation.STSSuiteEvaluator(write_csv=False)]
        evaluators += [evaluation.quora_retrieval(write_csv=False)] if options.search else []
    with torch.autocast(model.device.type, torch.bfloat16, enabled=options.bf16):
        scores = evaluation.OnePassEvaluator(evaluators)(model)
    record = {
        "method": name,
        "seed": seed,
        "settings": {key: value for key, value in vars(options).items() if key not in ("cell", "methods", "sweep", "seeds")},
        "own_settings": method.settings,
        "dev": 100 * scores.pop("dev_spearman_cosine"),
        "scores": {key: value for key, value in scores.items() if not key.startswith(("dev_", "sequential"))},
        "seconds": round(seconds, 1),
        "curve": curve,
        **provenance(),
    }
    path = result_path(name, seed, options)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_record(path, record)


def train(
    model: SentenceTransformer,
    loss: Any,
    rows: Dataset,
    dev: evaluation.ScoredPairs | None,
    seed: int,
    options: argparse.Namespace,
    *,
    sam_rho: float | None = None,
    loss_learning_rate: float | None = None,
) -> list[dict[str, float]]:
    """Train with the settings that all methods share; with ``dev``, the best checkpoint by it is what ``model`` then is."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = SentenceTransformerTrainingArguments(
            output_dir=folder,
            learning_rate=options.learning_rate,
            learning_rate_mapping={} if loss_learning_rate is None else {r"^(?!model\.)": loss_learning_rate},
            per_device_train_batch_size=options.batch_size,
            max_steps=options.steps,
            use_cpu=model.device.type == "cpu",
            bf16=options.bf16,
            seed=seed,
            logging_steps=options.eval_steps,
            eval_strategy="no" if dev is None else "steps",
            eval_steps=options.eval_steps,
            save_strategy="no" if dev is None else "steps",
            save_steps=options.eval_steps,
            save_total_limit=1,
            load_best_model_at_end=dev is not None,
            metric_for_best_model=None if dev is None else "eval_stsb-dev_spearman_cosine",
            report_to="none",
        )
        evaluator = None
        if dev is not None:
            evaluator = EmbeddingSimilarityEvaluator(*dev, name="stsb-dev", batch_size=128, main_similarity="cosine")
        trainer = training.SentenceTransformerTrainer(
            model=model, args=arguments, train_dataset=rows, loss=loss, evaluator=evaluator, sam_rho=sam_rho
        )
        trainer.train()
    return [
        {"step": entry["step"], "dev": 100 * entry["eval_stsb-dev_spearman_cosine"]}
        for entry in trainer.state.log_history
        if "eval_stsb-dev_spearman_cosine" in entry
    ]


def encoder(options: argparse.Namespace, pooling: str) -> SentenceTransformer:
    if options.encoder in ("minilm-4-layers", "all-minilm"):
        if pooling != "mean":
            raise SystemExit(f"{options.encoder} has mean pooling, got pooling {pooling!r}: take minilm-mlm.")
        layers = 4 if options.encoder == "minilm-4-layers" else 6
        return recipes.offline_encoder(num_layers=layers, max_seq_length=options.max_seq_length)
    name = options.encoder
    if name == "minilm-mlm":
        name = str(Path(os.environ["SBERT_PLUGINS_DATA"]) / "encoders" / name)
    model = recipes.build_encoder(name, pooling=pooling, max_seq_length=options.max_seq_length)
    if getattr(options, "packed", False):
        packed.install()
        packed.use(model.transformers_model)
    return model


def text(options: argparse.Namespace, seed: int) -> Dataset:
    """Sentences in an order that follows from the seed; the same for every method."""
    folder = Path(os.environ["SBERT_PLUGINS_DATA"])
    if options.text == "wiki":
        sentences = data.read_sentences(folder / "corpus" / "wiki_sentences_1m.parquet", limit=options.sentences)["anchor"][:]
    elif options.text == "short":
        sentences = short_sentences(folder, options.sentences)
    elif options.text == "paragraphs":
        return neighbours(folder, options.sentences).shuffle(seed=seed)
    elif options.text == "sts":
        sentences = sorted(test_sentences())
    elif options.text in COLLECTIONS:
        texts = sorted(COLLECTIONS[options.text]().corpus)
        sentences = [part for text in texts for part in re.split(r"(?<=[.?!]) +", text) if len(part.split()) >= 4]
    else:
        sentences = data.read_sentences(options.text, limit=options.sentences)["anchor"][:]
    random.Random(seed).shuffle(sentences)
    return Dataset.from_dict({"anchor": sentences})


def neighbours(folder: Path, limit: int) -> Dataset:
    """A sentence and its neighbour from each of as many Wikipedia paragraphs; methods of one column train on the first."""
    documents = data.read_documents(folder / "corpus" / "wiki_paragraphs.parquet", column="text")["document"][:]
    return data.crop_pairs(random.Random(0).sample(documents, 2 * limit), seed=0).take(limit)


def test_sentences() -> set[str]:
    tasks = [evaluation.load_sts(task) for task in evaluation.TASKS[:7]]
    return {sentence for task in tasks for sentence in (*task.sentences1, *task.sentences2)}


def short_sentences(folder: Path, limit: int) -> list[str]:
    """Inference sentences, questions and captions in equal parts, 4 to 25 words, none of them in an STS test set."""
    unwanted = {sentence.lower() for sentence in test_sentences()}
    parts = []
    for name, columns in (
        ("nli/nli_triplets.tsv.gz", slice(1, 4)),
        ("paraphrase/quora_dup_train.tsv.gz", slice(0, 2)),
        ("paraphrase/multi30k_captions_train.tsv.gz", slice(0, 5)),
    ):
        found = {cell for row in table(folder / name) for cell in row[columns]}
        kept = sorted(text for text in found if 4 <= len(text.split()) <= 25 and text.lower() not in unwanted)
        parts.append(random.Random(0).sample(kept, min(limit // 3, len(kept))))
    return [sentence for part in parts for sentence in part]


def table(path: Path) -> list[list[str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        return list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def whiten(model: SentenceTransformer, sentences: list[str]) -> None:
    """Append the whitening of the training sentences (Su et al., 2021) as a stock dense layer."""
    vectors = model.encode(sentences, batch_size=128, show_progress_bar=False)
    mean = vectors.mean(axis=0)
    values, directions = np.linalg.eigh(np.cov(vectors - mean, rowvar=False))
    kernel = directions / np.sqrt(np.maximum(values, 1e-9 * values[-1]))  # fewer sentences than dimensions leave zeros
    dense = Dense(len(mean), len(mean), activation_function=torch.nn.Identity())
    with torch.no_grad():
        dense.linear.weight.copy_(torch.from_numpy(kernel.T))
        dense.linear.bias.copy_(torch.from_numpy(-mean @ kernel))
    model.append(dense)


if __name__ == "__main__":
    main()
