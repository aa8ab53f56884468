"""A finished training's model on the Hugging Face Hub: what can go wrong is found before the training, not after it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

# The line of a card's code that loads the model, by no name yet or by that of an earlier push.
_LOADS = re.compile(r'^model = SentenceTransformer\("[^"]*"', re.MULTILINE)


def check_hub(repo_id: str) -> None:
    """Refuse a push that cannot work, without asking the network.

    Args:
        repo_id: ``organization/name``, or ``user/name``.

    Raises:
        ValueError: For an ID that the Hub would not take.
        OSError: If there is no token, or the network is switched off.
    """
    from huggingface_hub import constants, get_token
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    if not re.fullmatch(r"[^/\s]+/[^/\s]+", repo_id):
        raise ValueError(f"the ID of a model on the Hub must be organization/name or user/name, got {repo_id!r}.")
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise ValueError(f"the ID of a model on the Hub cannot be {repo_id!r}: {error}") from error
    if constants.HF_HUB_OFFLINE:
        raise OSError(
            f"a push to {repo_id} needs the network, which HF_HUB_OFFLINE switches off: unset it, or push the finished model "
            "by hand, hf upload ID OUTPUT/model."
        )
    if get_token() is None:
        raise OSError(f"a push to {repo_id} needs a token of the Hub, and there is none: hf auth login, or set HF_TOKEN.")


def prepare_push(repo_id: str, *, private: bool = True) -> None:
    """Make the repository that a model is to be pushed to, so that a token without the right to do so is found at once.

    Args:
        repo_id: ``organization/name``, or ``user/name``.
        private: Whether only its owners see it.

    Raises:
        ValueError: If :func:`check_hub` refuses the ID, or the repository exists and is public where a private one is asked
            for, or the other way round.
        FileExistsError: If it holds anything.
        OSError: If the Hub cannot be reached, or refuses.
    """
    from huggingface_hub import HfApi

    check_hub(repo_id)
    try:
        api = HfApi()
        api.create_repo(repo_id, private=private, exist_ok=True)
        found = api.model_info(repo_id)
    except Exception as error:  # of the network, the Hub, the token
        raise OSError(f"{repo_id} cannot be made on the Hub: {_told(error)}") from error
    if bool(found.private) != private:
        is_now, wanted = ("private", "public") if found.private else ("public", "private")
        raise ValueError(
            f"{repo_id} exists and is {is_now}, and a push to it would not make it {wanted}: name another ID, or ask for a "
            f"{is_now} one."
        )
    if held := sorted(file.rfilename for file in found.siblings or [] if file.rfilename != ".gitattributes"):
        raise FileExistsError(
            f"{repo_id} must be new or empty, and holds {', '.join(held[:3])}{', ...' if len(held) > 3 else ''}: name another "
            "ID, or replace what is there by hand, hf upload ID OUTPUT/model."
        )


def push_to_hub(output: str | Path, repo_id: str, *, private: bool = True) -> str:
    """Push the model of a finished training, with its card, as plain sentence-transformers model.

    What is pushed are the files of ``output/model``, whose card is given the name; neither checkpoints nor what the loss owns.

    Args:
        output: What :func:`train` has written.
        repo_id: ``organization/name``, or ``user/name``, of a new or empty repository.
        private: Whether only its owners see it.

    Returns:
        The address of the model.

    Raises:
        FileNotFoundError: If ``output`` is not the directory of a finished training.
        OSError: If the model was not pushed, whatever the reason. It says how to do so by hand.
    """
    from huggingface_hub import HfApi, constants

    folder = Path(output) / "model"
    if not (Path(output) / "results.json").is_file() or not (folder / "modules.json").is_file():
        raise FileNotFoundError(f"{output} must be the output of a finished training, with results.json and model/.")
    try:
        prepare_push(repo_id, private=private)
        _name_in_card(folder / "README.md", repo_id)
        HfApi().upload_folder(repo_id=repo_id, folder_path=folder, commit_message="Trained with sbert-plugins")
    except Exception as error:
        by_hand = shlex.join(["hf", "upload", repo_id, str(folder), *(["--private"] if private else [])])
        raise OSError(
            f"the model is saved in {folder}, but it was not pushed: {_told(error)} Push it by hand: {by_hand}"
        ) from error
    return f"{constants.ENDPOINT}/{repo_id}"


def _name_in_card(card: Path, repo_id: str) -> None:
    """Let the card's lines of code load the model by its name."""
    if card.exists():
        named = _LOADS.sub(f'model = SentenceTransformer("{repo_id}"', card.read_text(encoding="utf-8"))
        card.write_text(named, encoding="utf-8")


def _told(error: Exception) -> str:
    """Return an error in one sentence, with its kind where that is a library's."""
    said = " ".join(str(error).split()) or "no reason given"
    kind = "" if type(error) in (OSError, ValueError, FileExistsError) else f"{type(error).__name__}: "
    return kind + said.rstrip(".") + "."
