"""The folder of a training: the record of what the training is, its lock, and how two records differ."""

import hashlib
import json
import logging
import os
from collections.abc import Container, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from datasets.fingerprint import Hasher
from filelock import FileLock, Timeout
from sentence_transformers import SentenceTransformer

from sbert_plugins import __version__
from sbert_plugins.training.loss_state import differences, newest_complete_checkpoint

logger = logging.getLogger(__name__)
RUN_FILE, RESULTS_FILE, LOCK_FILE = "run.json", "results.json", ".lock"
PACKAGES = ("sbert-plugins", "sentence-transformers", "transformers", "torch", "datasets")
LENGTH = ("arguments.max_steps", "arguments.num_train_epochs")
# What may differ when a training is continued: its length, what is saved and reported, and names.
MAY_DIFFER = {
    *LENGTH,
    *(
        f"arguments.{name}"
        for name in ("eval_steps", "save_steps", "save_total_limit", "logging_steps", "report_to", "run_name")
    ),
    *(
        f"arguments.{name}"
        for name in ("push_to_hub", "hub_model_id", "hub_private_repo", "hub_revision", "disable_tqdm")
    ),
    "arguments.dataloader_num_workers",
    "text",
    "read",
    "encoder",
    *(f"versions.{package}" for package in PACKAGES),
}


def is_first_process() -> bool:
    """Return whether this is the process of several that prints and writes.

    A rank without a number of processes is left from another program.
    """
    return os.environ.get("WORLD_SIZE", "1") == "1" or os.environ.get("RANK", "0") == "0"


def name_of_text(text: str | None) -> str | None:
    """Return the name of a text for a record: of a path its last part, without folders of this machine."""
    return (
        Path(text).name
        if text and (Path(text).exists() or str(text)[0] in "/~." or str(text).count("/") > 1)
        else text and str(text)
    )


def digest_of_texts(rows: Dataset) -> str:
    """Return a short digest of all texts of a dataset."""
    digest = hashlib.sha256()
    for batch in rows.iter(batch_size=1000):
        digest.update(json.dumps(batch).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:12]


def describe_value(value: Any) -> Any:
    """Return a value as JSON holds it. Objects become their names and a digest of what they hold.

    So a training with an object as keyword can be resumed with an equal object, and with no other.

    Raises:
        TypeError: For an object that cannot be pickled.

    Example:
        >>> describe_value({"sizes": (1, 2), "kind": "words"})
        {'sizes': [1, 2], 'kind': 'words'}
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(name): describe_value(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [describe_value(each) for each in value]
    return f"{getattr(value, '__qualname__', type(value).__qualname__)} {Hasher.hash(value)}"


def digest_of_weights(model: SentenceTransformer) -> str:
    """Return a short digest of the weights of a model, without the transformer's pooler."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        if "pooler." not in name:  # checkpoints often lack it, and transformers then draws it anew
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:12]


def versions() -> dict[str, str]:
    """Return the versions that a record names."""
    return {"sbert-plugins": __version__} | {package: version(package) for package in PACKAGES[1:]}


def check_same_run(
    before: Mapping[str, Any], now: Mapping[str, Any], folder: Path, may_differ: Container[str] = MAY_DIFFER
) -> None:
    """Compare the record in a folder with the run that is to be continued there, and log what differs.

    Raises:
        ValueError: If something differs that makes it another training, with the old and the new values.
    """
    changed = differences(before, now)
    others = {key: values for key, values in changed.items() if key not in may_differ}
    if others:
        listed = "; ".join(f"{key} was {old}, is {new}" for key, (old, new) in others.items())
        hint = " New weights, such as those of an adapter, are random: call set_seed before you add them."
        raise ValueError(
            f"{folder} holds another training: {listed}. Use the same settings, or another output."
            f"{hint if 'weights_digest' in others else ''}"
        )
    for key, (old, new) in changed.items():
        logger.info("Continuing with %s %s instead of %s.", key.rpartition(".")[2], new, old)


@contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Keep other processes out of an output folder, which is made if it is missing.

    An interruption gets a message with the checkpoint to continue from.

    Raises:
        FileExistsError: If another process trains there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with ExitStack() as stack:
            if is_first_process():
                stack.enter_context(FileLock(folder / LOCK_FILE, timeout=0))
                stack.callback((folder / LOCK_FILE).unlink, missing_ok=True)
            yield
    except Timeout:
        raise FileExistsError(
            f"Another process is training in {folder}: wait for it, or take another output."
        ) from None
    except KeyboardInterrupt as stop:
        if newest := newest_complete_checkpoint(folder / "checkpoints"):
            stop.args = (f"To continue from {newest.name}, repeat the command. For train, add --resume.",)
        raise


def check_is_free(output: Path) -> None:
    """Raise for a folder that holds more than a training that has not saved anything yet.

    Raises:
        FileExistsError: If it does.
    """
    files = [path for path in output.rglob("*") if path.is_file() and path.name not in (RUN_FILE, LOCK_FILE)]
    if files:
        way = "Continue the training there with --resume, or take" if (output / RUN_FILE).exists() else "Take"
        raise FileExistsError(f"{output} is not empty. {way} another output.")


def read_json(path: Path) -> dict[str, Any]:
    """Read a record; an empty dict if there is none, or if the file is another program's."""
    found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found if isinstance(found, dict) else {}


def write_json(path: Path, record: Mapping[str, Any]) -> None:
    """Write a record. After a kill the old file is there, or the new one."""
    scratch = path.with_name(f"{path.name}.tmp")
    scratch.write_text(json.dumps(record, indent=1, default=str) + "\n", encoding="utf-8")
    scratch.replace(path)
