"""Attack the package with what goes wrong in practice, and count how each attack ends.

    python benchmarks/hostile.py            # all cases; writes benchmarks/results/hostile.json
    python benchmarks/hostile.py --quick    # those that take a moment; writes nothing

A case gives wrong settings, damaged files, another training's checkpoint, text that is none, or an encoder that changes under
its loss, and says how it has to end: "right", the result is what was asked for, which the case checks; or "refused", by an
error whose message names the argument or file and the way out, as the case spells out. All else is a defect: "obscure",
another error, or "silent", a wrong result without a word. Encoders are tiny and random; each case has a folder of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import gzip
import io
import json
import logging
import math
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest import mock

os.environ["HF_HUB_OFFLINE"] = "1"

import datasets
import numpy as np
import torch
import transformers
from datasets import Dataset
from provenance import ROOT, provenance, refuse_changes

sys.path[:0] = [str(ROOT / "tests")]

from encoders import ARCHITECTURES, SENTENCES, build_tokenizers, project_counts, project_text
from methods import METHODS
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer import losses as host
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

from sbert_plugins import cli, data, evaluation, losses, recipes, training
from sbert_plugins.encoder import apply_mask_template
from sbert_plugins.recipes.plots import Map
from sbert_plugins.evaluation.report import ModelReport
from sbert_plugins.recipes.output import write_json
from sbert_plugins.training.checkpoints import COMPLETE_FILE
from sbert_plugins.training.loss_state import INDEX_FILE, WEIGHTS_FILE

ENDS = ("right", "refused", "obscure", "silent")
RESULT = ROOT / "benchmarks" / "results" / "hostile.json"


class SilentError(Exception):
    """A result that is not what was asked for, without a word."""


class CommandError(ValueError):
    """What the command line printed before it ended with a status other than 0."""


@dataclass(frozen=True)
class Case:
    """One attack: ``run`` gets an empty folder. ``says`` are the words of the refusal; none where the end has to be right."""

    area: str
    name: str
    run: Callable[[Path], object]
    says: tuple[str, ...] = ()
    quick: bool = True


CASES: list[Case] = []


def case(area: str, name: str, *says: str, quick: bool = True) -> Callable[[Callable], Callable]:
    def add(run: Callable[[Path], object]) -> Callable[[Path], object]:
        CASES.append(Case(area, name, run, says, quick))
        return run

    return add


def expect(is_right: object, what: str) -> None:
    """Raise :class:`SilentError` where a result is wrong."""
    if not is_right:
        raise SilentError(what)


def judge(attack: Case, folder: Path) -> tuple[str, str]:
    """Run a case; return how it ended, and the words that say so."""
    transformers.set_seed(0)
    try:
        with quiet():
            attack.run(folder)
    except SilentError as error:
        return "silent", str(error)
    except (ValueError, TypeError, OSError, ImportError) as error:
        text = str(error)
        is_ours = attack.says and all(words in text for words in attack.says)
        return ("refused" if is_ours else "obscure"), f"{type(error).__name__}: {text}"
    except (Exception, SystemExit) as error:
        return "obscure", f"{type(error).__name__}: {error}"
    return ("silent", "it was accepted") if attack.says else ("right", "")


def run_all(*, quick: bool = False) -> list[dict[str, str]]:
    """Run the cases one after the other; return area, name, end and detail of each."""
    found = []
    for attack in CASES:
        if quick and not attack.quick:
            continue
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            end, detail = judge(attack, Path(folder))
        # Folders differ from run to run.
        found.append({"area": attack.area, "case": attack.name, "end": end, "detail": detail.replace(folder, "FOLDER")[:300]})
        mark = "" if end in ENDS[:2] else f"  {detail}"
        print(f"{end:8} {time.perf_counter() - began:5.1f} s  {attack.area}: {attack.name}{mark}", flush=True)
    return found


def by_area(found: list[dict[str, str]]) -> dict[str, dict[str, int]]:
    """Count the ends in each area."""
    counts: dict[str, Counter] = {}
    for entry in found:
        counts.setdefault(entry["area"], Counter())[entry["end"]] += 1
    return {area: {"cases": sum(ends.values()), **{end: ends[end] for end in ENDS}} for area, ends in counts.items()}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep what the host's libraries print to themselves."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def logged() -> Iterator[list[str]]:
    """Collect what the package logs."""
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    logger = logging.getLogger("sbert_plugins")
    logger.addHandler(handler)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)


# --- What is attacked ------------------------------------------------------------------------------------------------------


@cache
def tokenizers() -> dict[str, Any]:
    return build_tokenizers()


@cache
def _encoder(pooling: str) -> SentenceTransformer:
    kind, size = ARCHITECTURES["bert"]
    tokenizer = tokenizers()[kind]
    config = transformers.AutoConfig.for_model(
        "bert", vocab_size=len(tokenizer), max_position_embeddings=160, pad_token_id=1, initializer_range=0.2, **size
    )
    with torch.random.fork_rng(), tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(0)
        transformers.AutoModel.from_config(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        transformer = Transformer(folder)
    return SentenceTransformer(modules=[transformer, Pooling(32, pooling)], device="cpu")


def encoder(pooling: str = "cls") -> SentenceTransformer:
    return copy.deepcopy(_encoder(pooling))


def saved_encoder(folder: Path) -> str:
    encoder().save_pretrained(str(folder / "encoder"))
    return str(folder / "encoder")


def anchors(count: int = 18) -> Dataset:
    return Dataset.from_dict({"anchor": (SENTENCES + project_text())[:count]})


def settings(**changes: Any) -> recipes.Settings:
    return recipes.with_changes(recipes.ARCCSE.offline, **({"max_steps": 4, "batch_size": 8, "eval_steps": 2} | changes))


def step(loss: Any, rows: Dataset | None = None, *, task: str | None = None) -> dict[str, torch.Tensor]:
    """One training step's terms and gradients."""
    model, rows = loss.model, rows or anchors(8)
    model.train()
    terms = loss([model.preprocess(rows[name][:], task=task) for name in rows.column_names], None)
    total = sum(terms.values()) if isinstance(terms, dict) else terms
    total.backward()
    expect(math.isfinite(total), f"the loss is {float(total)}")
    return terms


def trainer(
    loss: Any, folder: Path, rows: Dataset | None = None, *, kind: Any = training.SentenceTransformerTrainer, **changes: Any
) -> Any:
    arguments = {
        "output_dir": str(folder / "out"),
        "max_steps": 4,
        "per_device_train_batch_size": 6,
        "learning_rate": 1e-3,
        "save_steps": 2,
        "logging_steps": 1,
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
    }
    more = {name: changes.pop(name) for name in ("callbacks", "sam_rho") if name in changes}
    arguments = SentenceTransformerTrainingArguments(**(arguments | changes))
    return kind(model=loss.model, args=arguments, train_dataset=rows or anchors(), loss=loss, **more)


def command(*arguments: str) -> str:
    """Run the command line in this process; return what it prints."""
    out, problem = io.StringIO(), io.StringIO()
    environment = {key: value for key, value in os.environ.items() if key != "SBERT_PLUGINS_DATA"}
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(problem),
        mock.patch.dict(os.environ, environment, clear=True),
    ):
        try:
            status = cli.main(arguments)
        except SystemExit as stopped:  # argparse, which has printed why
            status = stopped.code
    if status:
        raise CommandError(problem.getvalue())
    return out.getvalue()


def train_command(folder: Path, method: str, *more: str) -> dict[str, Any]:
    text = folder / "text.txt"
    text.write_text("\n".join(project_text()[:20]), encoding="utf-8")
    quick = ("--max-steps", "1", "--batch-size", "8")
    # The last of two flags counts.
    command("train", method, str(text), "--model", saved_encoder(folder), "--output", str(folder / "run"), *quick, *more)
    return json.loads((folder / "run" / "results.json").read_text(encoding="utf-8"))


def tensors_of(module: torch.nn.Module) -> list[torch.Tensor]:
    return [tensor.detach().clone() for tensor in module.parameters()]


def is_same(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    return all(map(torch.equal, first, second))


# --- Keywords of a loss ----------------------------------------------------------------------------------------------------

KEYWORDS = "keywords of a loss"
for word, value in {"False": False, "false": False, "no": False, "0": False, "True": True, "yes": True, "1": True}.items():

    @case(KEYWORDS, f"signed={word} is {value}")
    def _(folder, word=word, value=value):
        read = recipes.read_keywords("paser", [f"signed={word}"])["signed"]
        expect(read is value, f"signed={word} was read as {read!r}")
        loss = recipes.build_loss("paser", encoder(), signed=read, token_weights=None, mlm_head="fresh")
        expect(loss.signed is value, f"the loss has signed={loss.signed!r}")


for method, pair, *says in [
    ("paser", "signed=maybe", "signed takes true or false", "'maybe'"),
    ("arccse", "projection_head=maybe", "projection_head takes true or false"),
    ("arccse", "margin_degrees=ten", "margin_degrees takes a finite number", "'ten'"),
    ("arccse", "temperature=nan", "temperature takes a finite number"),
    ("arccse", "temperature=inf", "temperature takes a finite number"),
    ("pt-bert", "num_pseudo_tokens=1.5", "num_pseudo_tokens takes a whole number"),
    ("pt-bert", "attend_to=words", "attend_to must be", "'words'"),
    ("arccse", "model=1", "keywords of arccse's loss must be among", "got model"),
    ("arccse", "margin=1", "keywords of arccse's loss must be among", "got margin"),
    ("arccse", "margin_degrees", "--loss takes KEY=VALUE"),
    ("arccse", "=3", "--loss takes KEY=VALUE"),
    ("arccse", "margin_degrees=270", "margin_degrees must be"),
]:
    case(KEYWORDS, f"--loss {pair}", *says)(
        partial(lambda folder, method, pair: train_command(folder, method, "--loss", pair), method=method, pair=pair)
    )

case(KEYWORDS, "--loss twice the same", "--loss must name a keyword once")(
    lambda folder: train_command(folder, "arccse", "--loss", "min_words=3", "min_words=4")
)
for keywords, *says in [
    ({"temperature": "0.1"}, "temperature takes a finite number", "'0.1'"),
    ({"min_words": True}, "min_words takes a whole number"),
    ({"projection_head": "no"}, "projection_head takes true or false"),
    ({"temperature": math.nan}, "temperature takes a finite number"),
    ({"nothing": 1}, "keywords of arccse's loss must be among"),
]:
    case(KEYWORDS, f"loss_keywords={keywords}", *says)(
        partial(
            lambda folder, keywords: recipes.train(
                "arccse", anchors(), encoder(), output=folder / "run", settings=settings(), loss_keywords=keywords
            ),
            keywords=keywords,
        )
    )


@case(KEYWORDS, "signed=False on the command line, in the record", quick=False)
def _(folder):
    loss = train_command(folder, "paser", "--loss", "signed=False", "token_weights=none", "mlm_head=fresh")["loss"]
    expect(loss["signed"] is False, f"the record has {loss['signed']!r}")


# --- Settings --------------------------------------------------------------------------------------------------------------

SETTINGS = "settings"
for flag, value in [
    ("learning-rate", "nan"),
    ("learning-rate", "inf"),
    ("learning-rate", "-1"),
    ("loss-learning-rate", "nan"),
    ("batch-size", "1"),
    ("gradient-accumulation-steps", "0"),
    ("epochs", "0"),
    ("epochs", "nan"),
    ("max-steps", "0"),
    ("max-steps", "-2"),
    ("eval-steps", "0"),
    ("max-seq-length", "0"),
    ("sam-rho", "nan"),
    ("seed", "-1"),
    ("limit", "0"),
]:
    case(SETTINGS, f"--{flag} {value}", f"{flag.replace('-', '_')} must be", value)(
        partial(lambda folder, flag, value: train_command(folder, "arccse", f"--{flag}={value}"), flag=flag, value=value)
    )

for flags, *says in [
    (("--backbone", "simcse"), "--backbone is for slt-fai"),
    (("--paraphrases", "x.txt"), "--paraphrases is for denosent"),
    (("--crops-by", "spans"), "add --positives crops"),
    (("--pooling", "mean"), "--pooling mean is for a plain transformer", "leave --pooling out"),
    (("--epochs", "many"), "argument --epochs", "'many'"),
    (("--resume",), "there is nothing to resume"),
]:
    case(SETTINGS, " ".join(flags), *says)(partial(lambda folder, flags: train_command(folder, "arccse", *flags), flags=flags))


@case(SETTINGS, "an output that exists", "output must be a new or an empty directory", "name another one")
def _(folder):
    (folder / "run").mkdir()
    (folder / "run" / "mine").write_text("mine")
    train_command(folder, "arccse")


NUMBERS = "numbers that are none"
words = {"token_weights": None, "mlm_head": "fresh"}


def slt_fai(model: SentenceTransformer, base: Any = None, **keywords: Any) -> losses.SLTFAILoss:
    frequencies = project_counts(model.tokenizer)
    return losses.SLTFAILoss(model, base or losses.ConSERTLoss(model), frequencies=frequencies, **keywords)


def weighted(model: SentenceTransformer, weight: float, **keywords: Any) -> losses.WeightedSumLoss:
    return losses.WeightedSumLoss(model, {"consert": (losses.ConSERTLoss(model), weight)}, **keywords)


for build, names in [
    (losses.ArcCSELoss, ("margin_degrees", "temperature", "triplet_weight", "triplet_margin", "near_mask_ratio")),
    (partial(losses.DenoSentLoss, **words), ("temperature", "contrastive_weight", "denoising_weight", "balance")),
    (losses.PTBERTLoss, ("temperature", "momentum")),
    (losses.ConSERTLoss, ("temperature", "feature_cutoff_rate", "token_cutoff_rate")),
    (partial(losses.PaSeRLoss, **words), ("difference_scale", "product_scale", "mlm_weight", "mlm_probability")),
    (partial(losses.BagOfWordsLoss, mlm_head="fresh"), ("token_weights",)),
    (slt_fai, ("adversarial_weight", "filtering_weight", "reversal_strength", "masking_ratio", "warmup_steps", "balance")),
    (weighted, ("weight", "balance")),
]:
    for name in names:
        for value in (math.nan, math.inf):
            if (name, value) == ("token_weights", math.inf):
                continue
            kind = getattr(build, "func", build).__name__
            keywords = {"weight": 1.0} if build is weighted and name == "balance" else {}
            case(NUMBERS, f"{kind}({name}={value})", name, str(value))(
                partial(
                    lambda folder, build, keywords: build(encoder(), **keywords),
                    build=build,
                    keywords=keywords | {name: value},
                )
            )


# --- Divergence ------------------------------------------------------------------------------------------------------------

DIVERGENCE = "divergence"


@case(DIVERGENCE, "a learning rate of 1e30, in the trainer", "is nan", "learning_rate")
def _(folder):
    trainer(losses.ArcCSELoss(encoder()), folder, learning_rate=1e30, max_grad_norm=0.0, max_steps=12).train()


@case(DIVERGENCE, "a learning rate of 1e30, on the command line", "learning_rate", quick=False)
def _(folder):
    try:
        train_command(folder, "arccse", "--learning-rate", "1e30", "--max-steps", "12")
    finally:
        expect(not (folder / "run" / "model").exists(), "a model was saved")


@case(DIVERGENCE, "an encoder that holds NaN", "must begin with finite weights", "load the model anew")
def _(folder):
    model = encoder()
    with torch.no_grad():
        model.transformers_model.get_input_embeddings().weight[5:] = math.nan
    trainer(losses.ArcCSELoss(model), folder).train()


@case(DIVERGENCE, "NaN in what the loss owns, with the host's trainer", "not finite", "Do not use")
def _(folder):
    loss = losses.ArcCSELoss(encoder())
    torch.nn.init.constant_(loss.head.linear.bias, math.nan)
    trainer(loss, folder, kind=SentenceTransformerTrainer, callbacks=[training.LossStateCallback(loss)]).train()


@case(DIVERGENCE, "NaN and inf in a record are no bare words")
def _(folder):
    text = training.json_text({"a": [math.nan], "b": math.inf})
    expect("NaN" not in text and "Infinity" not in text, text)
    expect(json.loads(text)["a"] == [None], text)


# --- Resume: another training for the same one -----------------------------------------------------------------------------

RESUME = "resume"


class PowerFailure(KeyboardInterrupt):
    """The power fails."""


def interrupted(folder: Path, **changes: Any) -> Callable[..., dict[str, Any]]:
    """Begin a recipe's training, interrupt it at update 3; return what goes on with it."""
    plain = training.SentenceTransformerTrainer.training_step

    def training_step(self, *arguments):
        if self.state.global_step == 3:
            raise PowerFailure
        return plain(self, *arguments)

    given = {"method": "arccse", "sentences": anchors(40), "settings": settings()} | changes

    def go(model: SentenceTransformer | None = None, *, output: str = "run", resume: bool = True, **others: Any):
        return recipes.train(**(given | others), model=model or encoder(), output=folder / output, resume=resume)

    step_of_trainer = mock.patch.object(training.SentenceTransformerTrainer, "training_step", training_step)
    with step_of_trainer, contextlib.suppress(PowerFailure):
        go(resume=False)
    return go


@case(RESUME, "the same training", quick=False)
def _(folder):
    go = interrupted(folder)
    whole, resumed = encoder(), encoder()
    go(whole, output="whole", resume=False)
    go(resumed)
    expect(is_same(tensors_of(whole), tensors_of(resumed)), "it ended elsewhere")


def other_encoder() -> SentenceTransformer:
    model = encoder()
    with torch.no_grad():
        model.transformers_model.get_input_embeddings().weight += 1e-3
    return model


for number, (name, others, says) in enumerate(
    [
        ("other text of as many rows", {"sentences": Dataset.from_dict({"anchor": project_text()[60:100]})}, "text"),
        ("more text", {"sentences": anchors(41)}, "sentences 40 (now 41)"),
        ("another encoder", {}, "encoder"),
        ("another precision", {"bf16": True}, "bf16 False (now True)"),
        ("another seed", {"seed": 7}, "seed 42 (now 7)"),
        ("another temperature", {"loss_keywords": {"temperature": 0.1}}, "loss_keywords"),
        ("another learning rate", {"settings": settings(learning_rate=7e-4)}, "learning_rate"),
        ("another method", {"method": "pt-bert"}, "method arccse (now pt-bert)"),
        ("other positives", {"columns": {"positives": "crops"}}, "columns"),
    ]
):

    @case(RESUME, name, says, "resume with the same, or begin in another directory", quick=number in (0, 2))
    def _(folder, name=name, others=others):
        interrupted(folder)(other_encoder() if name == "another encoder" else None, **others)


def resumed(folder: Path, first: Callable, second: Callable, **keywords: Any) -> None:
    """Train with one loss, go on with another from the last checkpoint."""
    trainer(first(encoder()), folder).train()
    trainer(second(encoder()), folder, max_steps=5).train(resume_from_checkpoint=True, **keywords)


simcse = partial(losses.ConSERTLoss, first_view=("dropout",), second_view=("dropout",))
for name, first, second, says in [
    ("temperature", losses.ArcCSELoss, partial(losses.ArcCSELoss, temperature=0.1), "temperature 0.05 (now 0.1)"),
    ("momentum", losses.PTBERTLoss, partial(losses.PTBERTLoss, momentum=0.9), "momentum 0.885 (now 0.9)"),
    ("weights of a sum", partial(weighted, weight=1.0), partial(weighted, weight=0.5), "weight 1.0 (now 0.5)"),
    ("backbone", slt_fai, lambda model: slt_fai(model, simcse(model)), "first_view"),
    ("loss", losses.ArcCSELoss, losses.PTBERTLoss, "holds the state of ArcCSELoss, got PTBERTLoss"),
    ("shape", partial(losses.PTBERTLoss, queue_size=8), partial(losses.PTBERTLoss, queue_size=9), "queue_size 8 (now 9)"),
]:
    case(RESUME, f"in the trainer, another {name}", says, quick=name in ("temperature", "loss"))(
        partial(lambda folder, first, second: resumed(folder, first, second), first=first, second=second)
    )


@case(RESUME, "in the trainer, another temperature that is meant", quick=False)
def _(folder):
    with logged() as messages:
        resumed(folder, losses.ArcCSELoss, partial(losses.ArcCSELoss, temperature=0.1), allow_changed_settings=True)
    expect(any("temperature 0.05 (now 0.1)" in message for message in messages), "nothing was said")


@case(RESUME, "another number of processes", "processes 2 (now 1)")
def _(folder):
    checkpoint = written(folder)
    change_json(checkpoint / INDEX_FILE, lambda index: index.update(processes=2))
    training.trainer.check_settings(losses.PTBERTLoss(encoder(), queue_size=8), checkpoint)


@case(RESUME, "nothing to resume", "resume_from_checkpoint=True needs a complete checkpoint", "or train without it")
def _(folder):
    trainer(losses.ArcCSELoss(encoder()), folder).train(resume_from_checkpoint=True)


@case(RESUME, "a folder checkpoint-best beside the checkpoints")
def _(folder):
    for kind in (SentenceTransformerTrainer, training.SentenceTransformerTrainer):
        (folder / "out" / "checkpoint-best").mkdir(parents=True, exist_ok=True)
        loss = losses.ArcCSELoss(encoder())
        callbacks = [training.LossStateCallback(loss)] if kind is SentenceTransformerTrainer else []
        trainer(loss, folder, kind=kind, callbacks=callbacks, max_steps=3, save_steps=1).train()
        newest = training.newest_complete_checkpoint(folder / "out")
        expect(newest is not None and newest.name == "checkpoint-3", f"{newest} is taken for the newest")
        expect((folder / "out" / "checkpoint-best").is_dir(), "the folder is gone")


# --- Checkpoints -----------------------------------------------------------------------------------------------------------

CHECKPOINTS = "damaged checkpoints"


@cache
def _kept() -> tempfile.TemporaryDirectory:
    """Make a folder that is gone when the process ends."""
    return tempfile.TemporaryDirectory()


@cache
def _trained() -> Path:
    folder = Path(_kept().name)
    transformers.set_seed(0)
    trainer(losses.PTBERTLoss(encoder(), num_pseudo_tokens=4, queue_size=8), folder, save_total_limit=2).train()
    return folder / "out"


def written(folder: Path) -> Path:
    """Copy a training's two checkpoints into the folder; return the newer."""
    shutil.copytree(_trained(), folder / "out")
    return folder / "out" / "checkpoint-4"


def change_json(file: Path, change: Callable[[Any], object]) -> None:
    values = json.loads(file.read_text(encoding="utf-8"))
    change(values)
    file.write_text(json.dumps(values), encoding="utf-8")


def change_bytes(file: Path, change: Callable[[bytearray], object]) -> None:
    content = bytearray(file.read_bytes())
    change(content)
    file.write_bytes(content)


def flip(place: float) -> Callable[[bytearray], None]:
    def change(content: bytearray) -> None:
        content[int(place * (len(content) - 1))] ^= 255

    return change


def zero(content: bytearray) -> None:
    content[:] = bytes(len(content))


def cut(content: bytearray) -> None:
    del content[len(content) // 2 :]


DAMAGES = {
    "a body of zeros": lambda path: change_bytes(path / "model.safetensors", zero),
    "a flipped byte in the model": lambda path: change_bytes(path / "model.safetensors", flip(0.9)),
    "a flipped byte in the loss's weights": lambda path: change_bytes(path / WEIGHTS_FILE, flip(0.9)),
    "a flipped header of the loss's weights": lambda path: change_bytes(path / WEIGHTS_FILE, flip(0)),
    "a cut optimizer": lambda path: change_bytes(path / "optimizer.pt", cut),
    "no loss's weights": lambda path: (path / WEIGHTS_FILE).unlink(),
    "no list of files": lambda path: (path / COMPLETE_FILE).unlink(),
    "a list of files that is none": lambda path: (path / COMPLETE_FILE).write_text("[]"),
    "a list of files that is cut": lambda path: change_bytes(path / COMPLETE_FILE, cut),
    "a list with other types": lambda path: change_json(path / COMPLETE_FILE, lambda values: values.update(files=[1])),
    "a cut trainer state": lambda path: change_bytes(path / "trainer_state.json", cut),
    "a trainer state of another step": lambda path: change_json(
        path / "trainer_state.json", lambda v: v.update(global_step=3)
    ),
}
for name, damage in DAMAGES.items():

    @case(CHECKPOINTS, f"{name}: the older one is taken")
    def _(folder, damage=damage):
        damage(written(folder))
        newest = training.newest_complete_checkpoint(folder / "out")
        expect(newest is not None and newest.name == "checkpoint-2", f"{newest} is taken")

    if name != "no list of files":

        @case(CHECKPOINTS, f"{name}: resumed by path", "is not a complete checkpoint", "Resume from another one")
        def _(folder, damage=damage):
            checkpoint = written(folder)
            damage(checkpoint)
            loss = losses.PTBERTLoss(encoder(), num_pseudo_tokens=4, queue_size=8)
            trainer(loss, folder, max_steps=5).train(resume_from_checkpoint=str(checkpoint))


@case(CHECKPOINTS, "a damaged newest one, resumed to the end", quick=False)
def _(folder):
    DAMAGES["a body of zeros"](written(folder))
    loss = losses.PTBERTLoss(encoder(), num_pseudo_tokens=4, queue_size=8)
    trainer(loss, folder).train(resume_from_checkpoint=True)
    saved = load_file(_trained() / "checkpoint-4" / "model.safetensors")
    expect(
        all(
            torch.equal(saved[key], value) for key, value in loss.model.transformers_model.state_dict().items() if key in saved
        ),
        "it ended elsewhere than the whole training",
    )


def load_damaged(folder: Path, damage: Callable[[Path], object]) -> None:
    checkpoint = written(folder)
    damage(checkpoint)
    model = encoder()
    training.load_loss_state(losses.PTBERTLoss(model, num_pseudo_tokens=4, queue_size=8), model, checkpoint)


def change_tensors(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def damage(checkpoint: Path) -> None:
        tensors = load_file(checkpoint / WEIGHTS_FILE)
        change(tensors)
        save_file(tensors, checkpoint / WEIGHTS_FILE)

    return damage


QUEUE = "queue.rows"
for name, damage, *says in [
    ("index: no json", lambda path: (path / INDEX_FILE).write_text("{"), INDEX_FILE, "resume from another checkpoint"),
    ("index: a list", lambda path: (path / INDEX_FILE).write_text("[1]"), INDEX_FILE, "resume from another checkpoint"),
    ("index: losses are a number", lambda path: (path / INDEX_FILE).write_text('{"losses": 1}'), INDEX_FILE, "is damaged"),
    ("index: no tensors", lambda path: change_json(path / INDEX_FILE, lambda v: v["losses"][""].pop("tensors")), "is damaged"),
    ("index: not UTF-8", lambda path: (path / INDEX_FILE).write_bytes(b"\xff\xfe{"), INDEX_FILE, "is damaged"),
    ("no index", lambda path: (path / INDEX_FILE).unlink(), "does not exist, but PTBERTLoss owns weights"),
    (
        "a queue of one row",
        change_tensors(lambda t: t.update({QUEUE: t[QUEUE][:1].clone()})),
        WEIGHTS_FILE,
        "its settings differ",
    ),
    ("a queue of bytes", change_tensors(lambda t: t.update({QUEUE: t[QUEUE].to(torch.int8)})), WEIGHTS_FILE, "int8"),
    ("a tensor too few", change_tensors(lambda t: t.pop(QUEUE)), WEIGHTS_FILE, f"lacks {QUEUE}"),
    ("a tensor too many", change_tensors(lambda t: t.update(other=torch.zeros(1))), WEIGHTS_FILE, "also holds other"),
    ("weights: a flipped header", DAMAGES["a flipped header of the loss's weights"], WEIGHTS_FILE, "damaged or cut off"),
    ("weights: cut", lambda path: change_bytes(path / WEIGHTS_FILE, cut), WEIGHTS_FILE, "damaged or cut off"),
]:
    case(CHECKPOINTS, f"loss state: {name}", *says)(partial(load_damaged, damage=damage))

for content in ("", "[]", "{}", "null", '{"method": "none"}', "\x00"):

    @case(CHECKPOINTS, f"a results.json that holds {content!r}", "results.json must be the json that a training wrote")
    def _(folder, content=content):
        (folder / "results.json").write_text(content)
        recipes.read_results(folder / "results.json")


@case(CHECKPOINTS, "a run.json that is cut", "run.json must be the json that a training wrote", quick=False)
def _(folder):
    go = interrupted(folder)
    change_bytes(folder / "run" / "run.json", cut)
    go()


# --- Text ------------------------------------------------------------------------------------------------------------------

TEXT = "text"


def read(content: bytes | str, name: str = "text.txt", **keywords: Any) -> Callable[[Path], list[str]]:
    def run(folder: Path) -> list[str]:
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return data.read_sentences(folder / name, **keywords)["anchor"][:]

    return run


for name, reading, expected in [
    ("a path with brackets", read("text\nMine.\n", "s[ab].csv"), ["Mine."]),
    ("a table in .tsv", read("id\ttext\n1\tIt rains.\n", "t.tsv"), ["It rains."]),
    ("a quotation mark in .tsv", read('id\ttext\n1\t"It rains.\n2\tWhy?\n', "t.tsv"), ['"It rains.', "Why?"]),
    ("a table in .CSV", read("id,text\n1,It rains.\n", "t.CSV"), ["It rains."]),
    ("cells NA, null, None", read("text\nNA\nnull\nNone\nn/a\n", "t.csv"), ["NA", "null", "None", "n/a"]),
    ("a byte order mark", read("\ufeffIt rains.\n"), ["It rains."]),
    ("lines of Windows", read("It rains.\r\nWhy?\r\n"), ["It rains.", "Why?"]),
    ("no last line end", read("It rains.\nWhy?"), ["It rains.", "Why?"]),
    ("gzip in capitals", read(gzip.compress(b"It rains.\n"), "t.txt.GZ"), ["It rains."]),
    ("a column by its name", read("a,b\nx,It rains.\n", "t.csv", column="b"), ["It rains."]),
    (
        "a comma at the end of each row",
        read("text,id\nIt rains.,1,\nWhy?,2,\n", "t.csv", column="text"),
        ["It rains.", "Why?"],
    ),
    (
        "a number behind 10,000 rows",
        read("text\n" + "It rains.\n" * 10_000 + "007\n", "t.csv"),
        ["It rains."] * 10_000 + ["007"],
    ),
    ("a line separator inside a sentence", read("It rains.\u2028Why?\nNo.\n"), ["It rains.\u2028Why?", "No."]),
]:

    @case(TEXT, name)
    def _(folder, reading=reading, expected=expected):
        (folder / "sa.csv").write_text("text\nAnother.\n")
        found = reading(folder)
        expect(found == expected, f"{found} was read")


for name, reading, *says in [
    ("UTF-16 without a mark", read("It rains.\nWhy?\n".encode("utf-16-le")), "text.txt", "Convert it first"),
    ("UTF-16 with a mark", read("It rains.\n".encode("utf-16")), "text must be UTF-8, got UTF-16", "iconv -f utf-16"),
    ("Latin-1", read("Caf\u00e9.\n".encode("latin-1")), "text.txt, line 1", "must be UTF-8", "iconv"),
    ("only NUL", read("\0\0\n\0\n"), "must not hold NUL characters", "Convert it"),
    ("only [PAD]", read("[PAD] [PAD]\n[PAD]\n"), "must hold sentences", "[PAD]"),
    ("only signs", read("...\n---\n"), "must hold sentences"),
    ("blank lines", read("\n \n\t\n"), "must hold at least one sentence"),
    ("an empty file", read(""), "must hold at least one sentence"),
    ("an empty table", read("", "t.csv"), "must hold at least one sentence"),
    ("a column of a text file", read("It rains.\n", column="text"), "column must be left out"),
    ("a column that is not there", read("a,b\nx,y\n", "t.csv", column="c"), "column must name a column of strings", "a, b"),
    ("two columns and no name", read("a,b\nx,y\n", "t.csv"), "column must name a column of strings", "a, b"),
    (
        "a comma in the first row",
        read("text,id\nRain, again.,1\nWhy?,2\n", "t.csv"),
        "t.csv, line 2: expected 2 cells",
        "quotation",
    ),
    ("a comma in another row", read("text\nWhy?\nRain, again.\n", "t.csv"), "t.csv, line 3: expected 1 cell", "named .txt"),
    (
        "a quotation that does not end",
        read('text\n"Why?\nIt rains.\n', "t.csv"),
        "t.csv, line 3: cells must be parted by commas",
    ),
    ("no gzip", read("It rains.\n", "t.txt.gz"), "t.txt.gz ends in .gz but is not a whole gzip file"),
    ("half a gzip", read(gzip.compress(b"It rains.\n" * 99)[:-9], "t.txt.gz"), "is not a whole gzip file"),
    ("no parquet", read("It rains.\n", "t.parquet"), "t.parquet must be a parquet table"),
    ("no json", read("It rains.\n", "t.jsonl"), "t.jsonl must be a json table"),
    ("limit 0", read("It rains.\n", limit=0), "limit must be at least 1"),
    ("a directory", lambda folder: data.read_sentences(folder), "is a directory: name a file in it"),
    ("no file", lambda folder: data.read_sentences(folder / "none.txt"), "none.txt does not exist"),
    ("an empty name", lambda folder: data.read_sentences(""), "a text must be a file or a dataset on the Hub"),
]:
    case(TEXT, name, *says)(reading)

case(TEXT, "train arccse ''", "a text must be a file or a dataset on the Hub")(
    lambda folder: command("train", "arccse", "", "--output", str(folder / "run"), "--model", saved_encoder(folder))
)


@case(
    TEXT, "more sentences than paraphrases", "must have one text a row each and as many rows", "the paraphrase of a sentence"
)
def _(folder):
    for name, content in (("a.txt", "One.\nTwo.\n"), ("b.txt", "One.\n")):
        (folder / name).write_text(content)
    data.read_pairs(folder / "a.txt", folder / "b.txt")


@case(TEXT, "paraphrases in a column of another name", "must hold paraphrases of", "is named paraphrase")
def _(folder):
    (folder / "t.csv").write_text("text,rewrite\nIt rains.,Rain falls.\n")
    data.read_pairs(folder / "t.csv", folder / "t.csv")


@case(TEXT, "a triplet of two", "t.tsv, line 2: expected tab-separated anchor, positive and negative")
def _(folder):
    (folder / "t.tsv").write_text("a\tb\tc\na\tb\n")
    data.read_triplets(folder / "t.tsv")


for name, rows, *says in [
    ("a row that is None", {"anchor": ["It rains.", None, "Why?"]}, "sentences must hold no None, got one in row 1"),
    ("one sentence", {"anchor": ["It rains."]}, "training needs at least 2 sentences"),
    ("columns that nothing reads", {name: ["a.", "b."] for name in "abc"}, "arccse reads", "dataset.select_columns"),
]:
    case(TEXT, f"trained on {name}", *says)(
        partial(
            lambda folder, rows: recipes.train(
                "arccse", Dataset.from_dict(rows), encoder(), output=folder / "run", settings=settings()
            ),
            rows=rows,
        )
    )


# --- Phrases ---------------------------------------------------------------------------------------------------------------

PHRASES = "phrases"


@case(PHRASES, "a sentence of a megabyte", quick=False)
def _(folder):
    sentence = " ".join(project_text())
    sentence = sentence * (1_000_000 // len(sentence) + 1)
    began = time.perf_counter()
    rows = data.paser_columns([sentence, "The old man left the village."], mask_token="[MASK]", synonyms=None)
    expect(len(rows) > 1, "the other sentence is gone")
    expect(time.perf_counter() - began < 20, f"it took {time.perf_counter() - began:.0f} s")


@case(PHRASES, "no WordNet: synonyms are left out, with a warning")
def _(folder):
    with mock.patch("nltk.data.path", [str(folder)]), logged() as messages:
        rows = data.paser_columns(["The old man left the village."], mask_token="[MASK]")
    expect(len(rows) and any("WITHOUT synonyms" in message for message in messages), f"{messages}")


@case(PHRASES, "no WordNet where synonyms are asked for", "synonyms need WordNet", "nltk.download")
def _(folder):
    with mock.patch("nltk.data.path", [str(folder)]):
        data.paser_columns(["The old man left the village."], mask_token="[MASK]", synonyms=0.5)


for name, sentences, *says in [
    ("sentences without any", ["and of the", "it is so"], "sentences must hold phrases", "extractor="),
    (
        "a column of another name",
        Dataset.from_dict({"x": ["It rains."]}),
        "sentences must have a column anchor",
        "rename_column",
    ),
]:
    case(PHRASES, name, *says)(
        partial(
            lambda folder, sentences: data.paser_columns(sentences, mask_token="[MASK]", synonyms=None), sentences=sentences
        )
    )

# --- An encoder that changes under its loss --------------------------------------------------------------------------------

CHANGES = "an encoder that changes under its loss"
LOSSES = {
    name: METHODS[name]
    for name in ("arccse", "denosent", "denosent words", "bag of words", "pt-bert", "paser", "slt-fai consert")
}
LOSSES["consert"] = (losses.ConSERTLoss, METHODS["arccse"][1])


def later(name: str, change: Callable[[SentenceTransformer], object], *, text: str = "") -> Callable[[Path], object]:
    build, rows = LOSSES[name]

    def run(folder: Path) -> object:
        loss = build(encoder())
        change(loss.model)
        texts = rows(8)[:]
        return step(loss, Dataset.from_dict({column: [value + text for value in values] for column, values in texts.items()}))

    return run


def half(name: str) -> Callable[[Path], object]:
    """Compare the loss of an encoder in half precision with that of the same one before."""
    build, rows = LOSSES[name]

    def value(change: Callable[[SentenceTransformer], object]) -> float:
        transformers.set_seed(0)
        loss = build(encoder())
        change(loss.model)
        terms = step(loss, rows(8))
        expect(has_learned(loss.model), "no gradient reached the encoder")
        return float(sum(terms.values()) if isinstance(terms, dict) else terms)

    def run(folder: Path) -> None:
        whole, halved = value(lambda model: model), value(lambda model: model.bfloat16())
        expect(math.isclose(whole, halved, rel_tol=0.1), f"the loss is {halved:.4f}, and {whole:.4f} in float32")

    return run


def through_one_encoder(name: str) -> Callable[[Path], object]:
    """Compare the loss of a model with two routes through one encoder with that of the encoder alone."""
    build, rows = LOSSES[name]

    def value(model: SentenceTransformer, **how: Any) -> float:
        transformers.set_seed(0)
        terms = step(build(model), rows(8), **how)
        expect(has_learned(model), "no gradient reached the encoder")
        return float(sum(terms.values()) if isinstance(terms, dict) else terms)

    def run(folder: Path) -> None:
        alone = value(SentenceTransformer(modules=[encoder()[0], Pooling(32, "mean")], device="cpu"))
        routes = value(routed(shared=True), task="document")
        expect(math.isclose(alone, routes, rel_tol=1e-4), f"the loss is {routes:.4f}, and {alone:.4f} without routes")

    return run


def has_learned(model: SentenceTransformer) -> bool:
    return any(parameter.grad is not None and bool(parameter.grad.any()) for parameter in model.parameters())


def add_token(model: SentenceTransformer) -> None:
    model.tokenizer.add_tokens(["organ"])
    model.transformers_model.resize_token_embeddings(len(model.tokenizer))


for name in LOSSES:
    says = (
        ("new tokens", "build the loss after them") if name == "pt-bert" else ("that it had when the loss was built", "before")
    )
    case(CHANGES, f"{name}: a token is added", *says)(later(name, add_token, text=" organ"))
    if name != "pt-bert":  # reads no token's role
        case(CHANGES, f"{name}: a mask template is applied", "must have the tokenizer", "before the loss is built")(
            later(name, apply_mask_template)
        )
    case(CHANGES, f"{name}: half precision")(half(name))

for name in ("consert", "slt-fai consert"):
    case(CHANGES, f"{name}: all is frozen", "trains the encoder", "set requires_grad")(
        later(name, lambda model: model.requires_grad_(False))
    )
for name in ("denosent", "paser", "bag of words"):
    case(
        CHANGES, f"{name}: embeddings are resized", "word embeddings", "call resize_token_embeddings before the loss is built"
    )(later(name, lambda model: model.transformers_model.resize_token_embeddings(1560)))


@case(CHANGES, "arccse: all is frozen but its head, which a warning says")
def _(folder):
    loss = losses.ArcCSELoss(encoder())
    loss.model.requires_grad_(False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        step(loss)
    expect(any("the encoder is frozen" in str(warning.message) for warning in caught), "nothing was said")


def freeze_embeddings(loss: Any) -> Any:
    loss.model.transformers_model.embeddings.requires_grad_(False)
    return loss


for name, change in (("layers are frozen", freeze_embeddings), ("the loss is copied", copy.deepcopy)):

    @case(CHANGES, f"pt-bert: {name}, its momentum copy moves")
    def _(folder, change=change):
        loss = change(losses.PTBERTLoss(encoder()))
        before = tensors_of(loss.momentum_encoder)
        trainer(loss, folder, save_strategy="no", max_steps=2).train()
        expect(not is_same(before, tensors_of(loss.momentum_encoder)), "no part of the copy moved")

    @case(CHANGES, f"slt-fai: {name}, its warm-up ends")
    def _(folder, change=change):
        loss = change(slt_fai(encoder(), warmup_steps=1))
        run = trainer(loss, folder, save_strategy="no", max_steps=3)
        run.train()
        expect(run.state.log_history[2]["filtering"] > 0, "both terms were 0 to the end")


def routed(*, shared: bool) -> SentenceTransformer:
    first, second = encoder(), encoder()
    routes = Router.for_query_document(list(first), [first[0], Pooling(32, "mean")] if shared else list(second))
    return SentenceTransformer(modules=[routes], device="cpu")


for name, (build, _) in LOSSES.items():
    if name != "pt-bert":
        case(CHANGES, f"{name}: two routes", "looks into one encoder", "sub_modules")(
            partial(lambda folder, build: build(routed(shared=False)), build=build)
        )
    case(CHANGES, f"{name}: two routes through one encoder", quick=name == "consert")(through_one_encoder(name))


@case(CHANGES, "pt-bert: two routes, that of the batch is trained")
def _(folder):
    loss = losses.PTBERTLoss(routed(shared=False))
    step(loss, task="document")
    query, document = (
        loss.model[0].sub_modules[name][0].model.get_input_embeddings().weight for name in ("query", "document")
    )
    expect(query.grad is None and document.grad.any(), "the other route's encoder was trained")


# --- Losses in losses ------------------------------------------------------------------------------------------------------

ROUND = "losses in losses"
pair = Dataset.from_dict({"anchor": SENTENCES, "other": SENTENCES[::-1], "label": [1.0, 0.0] * 4})
noisy = Dataset.from_dict({"noisy": [" ".join(text.split()[::2]) for text in SENTENCES], "text": SENTENCES})


@case(ROUND, "MatryoshkaLoss round ConSERT cuts what it compares")
def _(folder):
    consert = losses.ConSERTLoss(encoder().eval())
    column = consert.model.preprocess(SENTENCES)

    def value(*dimensions: int) -> float:
        torch.manual_seed(0)
        return float(host.MatryoshkaLoss(consert.model, consert, list(dimensions))([column], None)["nt_xent"])

    torch.manual_seed(0)
    whole = float(consert([column])["nt_xent"])
    expect(math.isclose(value(32), whole, rel_tol=1e-5), "all dimensions are another loss")
    expect(not math.isclose(value(16), whole, rel_tol=1e-3), "no dimension is cut off")


for name, build, *says in [
    (
        "AdaptiveLayerLoss round ConSERT",
        lambda m: host.AdaptiveLayerLoss(m, losses.ConSERTLoss(m)),
        "ConSERTLoss",
        "AdaptiveLayerLoss",
        "train without",
    ),
    (
        "Matryoshka2dLoss round ArcCSE",
        lambda m: host.Matryoshka2dLoss(m, losses.ArcCSELoss(m, projection_head=False), [32, 16]),
        "ArcCSELoss",
        "train without",
    ),
    (
        "MatryoshkaLoss round PT-BERT",
        lambda m: host.MatryoshkaLoss(m, losses.PTBERTLoss(m), [32, 16]),
        "width",
        "MatryoshkaLoss",
    ),
    (
        "MatryoshkaLoss round bag of words",
        lambda m: host.MatryoshkaLoss(m, LOSSES["bag of words"][0](m), [32, 16]),
        "of width",
        "MatryoshkaLoss",
        "train without it",
    ),
]:
    case(ROUND, name, *says)(partial(lambda folder, build: step(build(encoder())), build=build))


@case(ROUND, "MatryoshkaLoss round ConSERT, trained")
def _(folder):
    model = encoder()
    before = tensors_of(model)
    run = trainer(host.MatryoshkaLoss(model, losses.ConSERTLoss(model), [32, 16]), folder, max_steps=2)
    run.train()
    expect(not is_same(before, tensors_of(model)), "the encoder was not trained")
    expect(all(entry["nt_xent"] > 0 for entry in run.state.log_history[:2]), f"{run.state.log_history[:2]}")


for name, kind, rows in [
    ("contrastive tension", host.ContrastiveTensionLoss, pair),
    ("contrastive tension in batches", host.ContrastiveTensionLossInBatchNegatives, anchors()),
    ("TSDAE", host.DenoisingAutoEncoderLoss, noisy),
    (
        "triplets by label",
        host.BatchAllTripletLoss,
        Dataset.from_dict({"anchor": SENTENCES, "label": [0, 0, 1, 1, 2, 2, 3, 3]}),
    ),
]:

    @case(ROUND, f"a sum with {name}", quick=name == "contrastive tension")
    def _(folder, kind=kind, rows=rows):
        with tempfile.TemporaryDirectory() as where:
            model = SentenceTransformer(saved_encoder(Path(where)), device="cpu")
            loss = losses.WeightedSumLoss(model, {"one": (kind(model), 1.0), "consert": (losses.ConSERTLoss(model), 1.0, [0])})
        before = tensors_of(model)
        run = trainer(loss, folder, rows, max_steps=2)
        run.train()
        expect(not is_same(before, tensors_of(model)), "the encoder is as it was")
        expect(run.state.log_history[0]["one"] != 0, "the loss is 0")


def sum_of(**members: Any) -> Callable[[Path], object]:
    def run(folder: Path) -> object:
        model = encoder()
        made = {name: (build(model), *rest) for name, (build, *rest) in members.items()}
        return step(losses.WeightedSumLoss(model, made))

    return run


for name, run, *says in [
    ("a sum of none", sum_of(), "losses must hold at least one loss"),
    ("a weight of 0", sum_of(a=(losses.ConSERTLoss, 0.0)), "losses['a']", "leave a loss out at 0"),
    ("a weight below 0", sum_of(a=(losses.ConSERTLoss, -1.0)), "losses['a']", "number above 0"),
    ("a weight that is a word", sum_of(a=(losses.ConSERTLoss, "1")), "losses['a']", "number above 0"),
    ("a name with a dot", sum_of(**{"a.b": (losses.ConSERTLoss, 1.0)}), "the name of a loss must be a word"),
    ("a column that is not there", sum_of(a=(losses.ConSERTLoss, 1.0, [3])), "losses['a'] reads the columns [3]"),
    ("a column below 0", sum_of(a=(losses.ConSERTLoss, 1.0, [-1])), "the columns of losses['a'] must be indices from 0"),
    (
        "a loss round another model",
        sum_of(a=(lambda m: losses.ConSERTLoss(encoder()), 1.0)),
        "losses['a'] must be a loss around the same model",
    ),
    ("a class in the place of a loss", sum_of(a=(lambda m: losses.ConSERTLoss, 1.0)), "losses['a'] must be a loss around"),
    (
        "SLT-FAI round another model's loss",
        lambda folder: slt_fai(encoder(), losses.ConSERTLoss(encoder())),
        "loss must be a loss around the same model",
    ),
    (
        "SLT-FAI round a cached loss",
        lambda folder: (lambda m: slt_fai(m, host.CachedMultipleNegativesRankingLoss(m)))(encoder()),
        "with gradients",
        "use MultipleNegativesRankingLoss",
    ),
    (
        "SLT-FAI round contrastive tension",
        lambda folder: trainer((lambda m: slt_fai(m, host.ContrastiveTensionLoss(m)))(encoder()), folder, pair).train(),
        "must embed the first column",
        "a copy of the model",
    ),
    (
        "counts of another vocabulary",
        lambda folder: losses.SLTFAILoss(
            *(lambda m: (m, losses.ConSERTLoss(m)))(encoder()), frequencies=data.TokenFrequencies.bookcorpus()
        ),
        "frequencies must be of the encoder's vocabulary",
        "from_corpus",
    ),
]:
    case(ROUND, name, *says)(run)


# --- The trainer -----------------------------------------------------------------------------------------------------------

TRAINER = "the trainer"


@case(TRAINER, "what the loss owns is clipped with the encoder")
def _(folder):
    loss = losses.ArcCSELoss(encoder())
    run = trainer(loss, folder, save_strategy="no", max_steps=1, max_grad_norm=1e-3)
    norms = []
    plain = training.SentenceTransformerTrainer._get_grad_norm

    def after(self, model, grad_norm=None):
        found = plain(self, model, grad_norm)
        norms.append(torch.stack([p.grad.norm() for p in loss.parameters() if p.grad is not None]).norm())
        return found

    with mock.patch.object(training.SentenceTransformerTrainer, "_get_grad_norm", after):
        run.train()
    expect(norms and norms[0] <= 1.01e-3, f"norms of {norms} after clipping to 0.001")


@case(TRAINER, "a host without the methods that clip and save", "needs transformers>=5.3", "pip install")
def _(folder):
    with mock.patch("sbert_plugins.host.TRAINER_METHODS", ("_clip_everything",)):
        trainer(losses.ArcCSELoss(encoder()), folder)


for name, build, rows, *says in [
    ("one row a batch", losses.ArcCSELoss, anchors(1), "negatives", "per_device_train_batch_size"),
    (
        "three columns",
        losses.ArcCSELoss,
        Dataset.from_dict({name: SENTENCES for name in "abc"}),
        "ArcCSELoss reads one text column",
        "dataset.select_columns",
    ),
    (
        "one column for PaSeR",
        partial(losses.PaSeRLoss, **words),
        anchors(),
        "PaSeRLoss reads three text columns",
        "data.paser_columns",
    ),
    (
        "nothing hidden for PaSeR",
        partial(losses.PaSeRLoss, **words),
        Dataset.from_dict({"anchor": SENTENCES, "masked": SENTENCES, "phrase": SENTENCES}),
        "the second column must be the sentence with a phrase hidden",
        "data.paser_columns",
    ),
]:
    case(TRAINER, name, *says)(
        partial(lambda folder, build, rows: trainer(build(encoder()), folder, rows).train(), build=build, rows=rows)
    )


@case(TRAINER, "an encoder without dropout", "makes its positive pairs by dropout", "hidden_dropout_prob")
def _(folder):
    model = encoder()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    trainer(losses.PTBERTLoss(model), folder).train()


# --- The report ------------------------------------------------------------------------------------------------------------

REPORT = "the report"


def model_report(name: str, **changes: Any) -> Any:
    draws = np.random.default_rng(len(name))
    values = {
        "name": name,
        "sts": {task: 60.0 + i for i, task in enumerate((*evaluation.TASKS, "avg7"))},
        "alignment": 0.2,
        "uniformity": -2.0,
        "cosines": {level: draws.normal(0.2, 0.1, 40) for level in ("0 to 1", "1 to 2", "2 to 3", "3 to 4", "4 to 5")},
        "maps": {kind: Map(draws.normal(size=(30, 2)), draws.integers(1, 50, 30)) for kind in ("words", "sentences")},
    }
    return ModelReport(**(values | changes))


for name, *models in [
    ("names that are formulas", model_report("a$x^{$"), model_report("$$")),
    ("a log whose keys are formulas", model_report("a", log=[{"loss": 1.0, "a$x^{$": 1.0, "step": i} for i in (1, 2)])),
    ("a log without steps", model_report("a", log=[{"loss": 1.0}, {"loss": 2.0, "step": 1}, {"loss": 1.0, "step": 2}])),
    ("a log with None", model_report("a", log=[{"loss": 1.0, "x": None, "step": i} for i in (1, 2, 3)])),
    ("a name that is HTML", model_report("<script>alert(1)</script>")),
    ("cosines near 1", model_report("a", cosines={"0 to 1": np.ones(40), "4 to 5": np.ones(40)})),
]:

    @case(REPORT, name, quick=name == "names that are formulas")
    def _(folder, models=models):
        page = evaluation.write_report(models, folder / "page").read_text(encoding="utf-8")
        expect("<script>alert" not in page, "a name is run as a script")
        expect(page.count("data:image/png") >= 3, "pictures are missing")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="only the cases that take a moment; nothing is written")
    parser.add_argument("--only", default="", help="only cases whose area or name holds this; nothing is written")
    options = parser.parse_args()
    is_whole = not (options.quick or options.only)
    if is_whole:
        refuse_changes()
    host_is_quiet()
    CASES[:] = [attack for attack in CASES if options.only in f"{attack.area}: {attack.name}"]
    began = time.perf_counter()
    found = run_all(quick=options.quick)
    for area, counts in by_area(found).items():
        print(f"{area}: " + ", ".join(f"{number} {end}" for end, number in counts.items() if number))
    if is_whole:
        record = {"seconds": round(time.perf_counter() - began), "areas": by_area(found), "cases": found, **provenance()}
        write_json(RESULT, record)
    sys.exit(any(entry["end"] in ENDS[2:] for entry in found))


def host_is_quiet() -> None:
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    datasets.disable_progress_bars()
    torch.set_num_threads(1)


if __name__ == "__main__":
    main()
