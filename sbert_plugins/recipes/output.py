"""The directory of a training: what may be begun or resumed in it, what identifies the training, and what is read from it."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import shutil
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sbert_plugins.host import is_of_pooler, reads_pooler, tokenizer_state
from sbert_plugins.recipes.building import build_loss
from sbert_plugins.recipes.card import encoder_name
from sbert_plugins.recipes.encoders import pooling_of
from sbert_plugins.recipes.methods import RECIPES, name_of, recipe_of
from sbert_plugins.recipes.protocols import protocol_of
from sbert_plugins.recipes.recommended import RECOMMENDED
from sbert_plugins.recipes.settings import Settings, is_first_process
from sbert_plugins.recipes.texts import file_name, text_name

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from torch import nn

    from sbert_plugins.evaluation import ScoredPairs

logger = logging.getLogger(__name__)
RUN_FILE = "run.json"
_LONG = 200  # characters of a setting


def check_output(output: str | Path, *, resume: bool = False) -> Path:
    """Refuse an output directory that holds anything, or with ``resume`` one that holds no interrupted training.

    Raises:
        FileExistsError: If there is something at ``output`` already, or with ``resume`` a finished training.
        FileNotFoundError: If there is no training to resume.
    """
    output = Path(output)
    if resume:
        if not output.exists():
            raise FileNotFoundError(f"{output} does not exist: there is nothing to resume.")
        if (output / "results.json").exists():
            raise FileExistsError(f"{output} holds a finished training, with results.json: there is nothing to resume.")
        if not has_checkpoint(output):
            raise FileNotFoundError(
                f"{output} holds no checkpoint to resume (the first is written after eval_steps updates): "
                "delete the directory and train again without resume."
            )
        return output
    refuse_file(output)
    if output.exists() and any(map(_is_kept, output.rglob("*"))):
        way_out = "exists:"
        if (output / RUN_FILE).exists() and not (output / "results.json").exists():
            way_out = "holds a training without a checkpoint yet: if it no longer runs, delete the directory, or"
            if has_checkpoint(output):
                way_out = "holds an interrupted training: go on with --resume (resume=True), or"
        raise FileExistsError(f"output must be a new or an empty directory, got {output}, which {way_out} name another one.")
    return output


def refuse_file(output: Path) -> None:
    """Refuse an output that is a file, or would lie below one.

    Raises:
        FileExistsError: If it is.
    """
    if output.exists() and not output.is_dir():
        raise FileExistsError(f"output must be a directory, got the file {output}: name another one.")
    if above := [path for path in output.parents if path.is_file()]:
        raise FileExistsError(f"output must be a directory, got {output}, and {above[0]} is a file: name another one.")


def _is_kept(path: Path) -> bool:
    """Whether this is more than what a kill leaves that comes before run.json: part of it, and folders without a file."""
    return not path.is_dir() and path.name != f"{RUN_FILE}.tmp"


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keep a second training from a folder, which would take one that runs for one that was killed, or write among its files.

    Others beside it may be trained. The lock is a file beside the folder, and of no use on file systems without locks. Who
    holds it may hold it again; of the processes of one training the first does, for all.

    Raises:
        FileExistsError: If another process holds it.
    """
    from filelock import FileLock, Timeout

    if not is_first_process():
        yield
        return
    place = folder.resolve()  # "." has no name
    missing = [path for path in place.parents if not path.exists()]
    place.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(place.with_name(f"{place.name}.lock"), timeout=0, is_singleton=True)
    try:
        try:
            lock.acquire()
        except Timeout:
            raise FileExistsError(
                f"output must be that of one training at a time, got {folder}, where another process trains: wait until it "
                "has ended, or name another output."
            ) from None
        except (OSError, NotImplementedError) as error:
            logger.warning("No process can be kept from %s while it is trained: %s.", folder, error)
        yield
    finally:
        if lock.lock_counter == 1:
            with suppress(OSError):  # some systems keep what is open
                Path(lock.lock_file).unlink()
        lock.release()
        for path in missing:
            with suppress(OSError):  # these are empty where it was refused
                path.rmdir()


def has_checkpoint(output: Path) -> bool:
    """Return whether a training that was interrupted can go on from a checkpoint: by the trainer's rule."""
    from sbert_plugins.training import newest_complete_checkpoint

    return newest_complete_checkpoint(output / "checkpoints") is not None


def read_results(path: str | Path) -> dict[str, Any]:
    """Read the ``results.json`` or ``run.json`` of a training.

    Raises:
        ValueError: If the file is not what :func:`train` has written.
    """
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:  # neither JSON nor UTF-8
        raise ValueError(f"{path} must be the json that a training wrote, and cannot be read as json ({error}).") from error
    kinds = {"method": str, "settings": dict, "loss_keywords": dict, "seed": int, "sentences": int}
    if Path(path).name != RUN_FILE:
        kinds |= {"before": dict, "after": dict, "steps": int, "log": list}
    wrong = [key for key, kind in kinds.items() if not isinstance(values, dict) or not isinstance(values.get(key), kind)]
    if not wrong and values["method"] not in RECIPES and ":" not in values["method"]:
        wrong = ["method"]
    if not wrong and set(_complete(values)["settings"]) != {field.name for field in fields(Settings)}:
        wrong = ["settings"]
    if wrong:
        raise ValueError(f"{path} must be the json that a training wrote, got something else under {', '.join(wrong)}.")
    return _complete(values)


# What came later than the first records: of another value before nobody knows.
_LATER_KEYS = ("loss_class", "loss_defaults", "loss_files", "dev", "wordnet")
# Settings that came later, at what was done before: their defaults, which were the host's.
_LATER = ("learning_rate_schedule", "learning_rate_warmup", "weight_decay", "patience")


def _complete(values: dict[str, Any]) -> dict[str, Any]:
    """Add to the record of an earlier version the settings that it did not know yet."""
    later = {field.name: field.default for field in fields(Settings) if field.name in _LATER}
    if values.get("method") == "recommended" and "ArcCSELoss" in json.dumps(values.get("loss")):
        values = values | {"loss_class": "WeightedSumLoss"}  # the mean of ConSERT and ArcCSE, which it was before
    return values | {"settings": later | values["settings"]} if "settings" in values else values


def method_text(training: Mapping[str, Any]) -> str:
    """Return what people call the method of a training, with the loss keywords that somebody chose: words are no fine print.

    A protocol's own keywords, and those that a heading has no room for, are left out. Of a path it is the last part: folders
    are nobody's business where a card is published.
    """
    name, loss, chosen = training["method"], training.get("loss"), dict(training["loss_keywords"])
    if name == RECOMMENDED.method and loss:  # it was two other losses in earlier versions
        if "ArcCSELoss" in json.dumps(loss):
            return "the mean of ConSERT and ArcCSE"
        chosen |= {} if "words" in loss or "words" in chosen else {"words": 0}
    plan = protocol_of(name, training["protocol"]) if training.get("protocol") else None
    of_plan = plan.loss_keywords if plan else {}
    told = [
        f"{key}={(Path(value).name or value) if isinstance(value, str) else value}"
        for key, value in sorted(chosen.items())
        if not isinstance(value, (list, dict)) and (key not in of_plan or of_plan[key] != value)
    ]
    return name_of(name) + (f" ({', '.join(told)})" if told else "")


def updates_text(results: Mapping[str, Any]) -> str:
    """Return the number of updates of a training, and the saved one where it is another: ``400 (saved: 150)``."""
    updates = results["steps"]
    saved = results.get("saved_update") or updates  # records of earlier versions do not say
    return f"{updates:,}" if saved == updates else f"{updates:,} (saved: {saved:,})"


def time_text(results: Mapping[str, Any]) -> str:
    """Return the seconds of a training, and those of its evaluations: ``76 s, 66 of them evaluating``; empty if unknown."""
    if results["seconds"] is None:
        return ""
    evaluating = results.get("evaluation_seconds") or 0  # records of earlier versions do not say
    return f"{results['seconds']:.0f} s" + (f", {evaluating:.0f} of them evaluating" if round(evaluating) else "")


def load_loss(output: str | Path, model: SentenceTransformer) -> Any:
    """Rebuild the loss of a finished training around its model: ``load_loss(output, SentenceTransformer(output / "model"))``.

    Raises:
        ValueError: If ``output`` is not a directory that :func:`train` has written, or the model is another one.
    """
    from sbert_plugins.recipes.keywords import known_keywords
    from sbert_plugins.training import load_loss_state

    output = Path(output)
    if not (output / "results.json").is_file() or not (output / "loss").is_dir():
        raise ValueError(f"{output} must be the output of a training, with results.json and loss/ beside model/.")
    results = read_results(output / "results.json")
    recipe = recipe_of(results["method"])
    if (found := results.get("loss_found")) is None:  # of an earlier version
        found = {key: results["loss"][key] for key in recipe.chosen if key in results.get("loss", {})}
    keywords, errors = _defaults_then(output, recipe.method) | found | results["loss_keywords"], []
    # A pretrained head may have other parts than a fresh one, and that of another checkpoint other widths: the file decides.
    heads = (recipe.reload.get("mlm_head"), "saved", "embeddings", keywords.get("mlm_head"))
    for head in dict.fromkeys(heads) if "mlm_head" in known_keywords(recipe.method) else [None]:
        reload = recipe.reload | ({} if head is None else {"mlm_head": head})
        try:
            loss = build_loss(results["method"], model, **(keywords | reload))
            load_loss_state(loss, model, output / "loss")
            return loss
        except (ValueError, OSError) as error:
            errors.append(str(error))
    raise ValueError("; or with another head: ".join(dict.fromkeys(errors)))


def _defaults_then(output: Path, method: str) -> dict[str, Any]:
    """Return what the loss of a training was built with unless told otherwise, where that is not today's default."""
    from sbert_plugins.recipes.keywords import default_keywords

    run = output / RUN_FILE
    then = read_results(run).get("loss_defaults", {}) if run.is_file() else {}
    return {key: then[key] for key, now in default_keywords(method).items() if key in then and then[key] != now}


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
    loss = dict(getattr(loss, "losses", {})).get("paser", loss)
    if not hasattr(loss, "reconstruct"):
        method = read_results(Path(output) / "results.json")["method"]
        raise ValueError(f"{output} must be a training of paser or paser-supervised, got one of {method}.")
    anchors = sentences.select_columns(["anchor"])
    rows = data.paser_columns(anchors, mask_token=model.tokenizer.mask_token, top_k=1, synonyms=None)[:limit]
    written = loss.reconstruct(rows["anchor"], rows["masked"])
    columns = zip(rows["masked"], map(str.strip, rows["phrase"]), written, strict=True)
    return [dict(zip(("masked", "phrase", "written"), row, strict=True)) for row in columns]


def text_mark(sentences: Dataset, name: str | None) -> dict[str, Any]:
    """Return the name of a text, a hash of its sentences, by which a training that is resumed knows it, and repetitions."""
    digest = hashlib.sha256()
    place = 0
    seen: set[int] = set()
    for batch in sentences.iter(batch_size=1000):
        for row, texts in enumerate(zip(*batch.values(), strict=True), start=place):
            if None in texts:
                raise ValueError(f"sentences must hold no None, got one in row {row}: leave such rows out.")
            digest.update("\0".join(map(str, texts)).encode("utf-8", "surrogatepass") + b"\n")
            seen.add(hash(unicodedata.normalize("NFC", str(texts[0]))))
        place += len(next(iter(batch.values())))
    shown = name and (file_name(Path(name)) if Path(name).exists() else text_name(name))
    return {"name": shown, "sha256": digest.hexdigest()[:16], "repeated": len(sentences) - len(seen)}


def pairs_mark(name: str, pairs: ScoredPairs) -> dict[str, Any]:
    """Return the name of graded pairs and a hash of them, by which a training that is resumed knows what chose.

    Of the scores their order counts, which decides Spearman: sources scale them differently.
    """
    from scipy.stats import rankdata

    digest = hashlib.sha256()
    for row in zip(pairs.sentences1, pairs.sentences2, rankdata(pairs.scores), strict=True):
        digest.update("\0".join(map(str, row)).encode("utf-8", "surrogatepass") + b"\n")
    return {"name": name, "sha256": digest.hexdigest()[:16]}


def encoder_mark(model: SentenceTransformer) -> dict[str, Any]:
    """Return the name of an encoder and a hash of its weights, by which a training that is resumed knows it."""
    import torch

    digest = hashlib.sha256()
    has_idle_pooler = not reads_pooler(model)
    for name, parameter in model.named_parameters():
        if not (has_idle_pooler and is_of_pooler(name)):
            digest.update(parameter.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return {"name": encoder_name(model), "sha256": digest.hexdigest()[:16]}


def encoder_settings(model: SentenceTransformer) -> dict[str, Any]:
    """Return what decides an encoder's vectors beside its weights, by which a training that is resumed knows it, too."""
    from sbert_plugins.encoder import added_around, dropout_rates

    tokenizer: Any = getattr(model, "tokenizer", None)
    around = added_around(tokenizer) if hasattr(tokenizer, "is_fast") else ()  # a mask template is among them
    return {
        "modules": [type(module).__name__ for module in model],
        "pooling": pooling_of(model),
        "module_settings": [_settings_of_module(module) for module in list(model)[1:]],  # behind the transformer
        "max_seq_length": model.max_seq_length,
        "truncate_dim": model.truncate_dim,
        "prompt": model.prompts.get(model.default_prompt_name) if model.default_prompt_name else None,
        "prompts": {name: prompt for name, prompt in model.prompts.items() if prompt},  # a search asks with its own
        "dropout": [[rate, len(list(same))] for rate, same in groupby(dropout_rates(model))],  # most have one
        "tokens_around": [tokenizer.convert_ids_to_tokens(ids) for ids in around],
        "tokenizer": _digest(_without_tokens_around(tokenizer_state(tokenizer))),
        "config": _digest(_config_of(model)),
    }


def _without_tokens_around(state: Any) -> Any:
    return {key: value for key, value in state.items() if key != "post_processor"} if isinstance(state, dict) else state


def _config_of(model: SentenceTransformer) -> dict[str, Any]:
    """Return what a transformer computes by, where it is not its family's default; its dropout is named by itself."""
    config: Any = getattr(getattr(model[0], "model", None), "config", None)
    values = config.to_diff_dict() if hasattr(config, "to_diff_dict") else {}
    of_no_account = ("_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version")
    return {key: value for key, value in values.items() if key not in of_no_account and "dropout" not in key}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _settings_of_module(module: nn.Module) -> dict[str, Any]:
    """Return what a module computes by, a Dense's activation for one; how a Pooling pools is named by itself."""
    described: Any = module
    try:
        settings = described.get_config_dict()
    except AttributeError:  # it has none, or names what it has not
        return {}
    texts = {name: json.dumps(value, default=lambda other: type(other).__name__) for name, value in settings.items()}
    return {
        name: json.loads(text) if len(text) < _LONG else hashlib.sha256(text.encode()).hexdigest()[:16]  # a vocabulary
        for name, text in texts.items()
        if name != "pooling_mode"
    }


def check_same_run(output: Path, run: dict[str, Any]) -> None:
    """Refuse to resume with other settings, sentences or weights than the interrupted training had."""
    if changed := changes({"columns": {}} | read_results(output / RUN_FILE), run):
        why = f" {_WORDNET}" if f"{_PREPARED}synonyms" in changed or "wordnet " in changed else ""
        why += f" {_VERSION}" if _DEFAULT in changed else ""
        raise ValueError(f"{output} was begun with {changed}: resume with the same, or begin in another directory.{why}")


def changes(before: dict[str, Any], now: dict[str, Any]) -> str:
    """Return in words what of ``now`` is not as it was; empty where all is. What else was before does not count."""
    now = json.loads(json.dumps(now))  # as it will be read
    flat, flat_before = (_flat(values) for values in (now, _complete(before)))
    # An earlier version did not keep all, nor did its losses have all keywords: these came with what was done before.
    late = {*_LATER_KEYS, *(key for key in flat if key.startswith((_DEFAULT, _PREPARED, _ENCODER)))}
    keys = [key for key in flat if key not in _NESTED and (key in flat_before or key not in late)]
    # Of text, encoder and dev pairs the hash decides: each may have been moved, or renamed.
    changed = [key for key in keys if _mark(flat_before.get(key)) != _mark(flat[key])]
    return ", ".join(f"{key} {_shown(flat_before.get(key))} (now {_shown(flat[key])})" for key in changed)


_DEFAULT, _PREPARED, _ENCODER = "default of ", "columns with ", "encoder's "
_VERSION = "A default that has changed is that of another version of this library: resume with that version."
_WORDNET = "Synonyms are made where NLTK finds WordNet: NLTK_DATA says where it looks."
_NESTED = {"settings": "", "loss_defaults": _DEFAULT, "prepared": _PREPARED, "encoder_settings": _ENCODER}


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    """Return values with what the nested ones hold beside them."""
    inner = {f"{prefix}{name}": value for key, prefix in _NESTED.items() for name, value in (values.get(key) or {}).items()}
    return values | inner


def _mark(value: Any) -> Any:
    return value.get("sha256", value) if isinstance(value, dict) else value


def _shown(value: Any) -> str:
    has_mark = isinstance(value, dict) and "sha256" in value
    return f"{value['name']} [{value['sha256']}]" if has_mark else str(value)


def remove_folder(folder: Path) -> None:
    """Remove a folder that may be there, whole or not at all: half of one, which an interruption left, would be nobody's."""
    scratch = folder.with_name(f"{folder.name}.tmp")
    shutil.rmtree(scratch, ignore_errors=True)
    if folder.exists():
        folder.rename(scratch)
        shutil.rmtree(scratch)


def write_json(path: Path, values: dict[str, Any]) -> None:
    """Write json that holds no NaN; a kill leaves the old file or the new one."""
    scratch = path.with_name(f"{path.name}.tmp")
    scratch.write_text(json_text(values), encoding="utf-8")
    scratch.replace(path)


def json_text(values: Mapping[str, Any]) -> str:
    """Return JSON, which has no NaN: such numbers are null, and ``not_finite`` lists their keys and values."""
    found: dict[str, str] = {}
    written = {key: _without_nan(value, key, found) for key, value in values.items()}
    return json.dumps(written | ({"not_finite": found} if found else {}), indent=1, allow_nan=False) + "\n"


def _without_nan(value: Any, place: str, found: dict[str, str]) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        found[place] = str(float(value))
        return None
    if isinstance(value, Mapping):
        return {key: _without_nan(part, f"{place}.{key}", found) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(part, f"{place}.{i}", found) for i, part in enumerate(value)]
    return value
