"""Where a training's numbers go while it runs: the trackers that transformers knows."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

# Name -> what to install, and the modules of which one is enough. Looked up before anything is loaded: the host finds out
# that a package is missing when text and encoder are there. A name that is not here is the host's to judge.
PACKAGES = {
    "azure_ml": ("azureml-sdk", "azureml.core"),
    "clearml": ("clearml", "clearml"),
    "codecarbon": ("codecarbon", "codecarbon"),
    "comet_ml": ("comet-ml", "comet_ml"),
    "dagshub": ("dagshub", "dagshub"),
    "dvclive": ("dvclive", "dvclive"),
    "flyte": ("flytekit", "flytekit"),
    "mlflow": ("mlflow", "mlflow"),
    "neptune": ("neptune", "neptune"),
    "swanlab": ("swanlab", "swanlab"),
    "tensorboard": ("tensorboard", "tensorboard", "tensorboardX"),
    "trackio": ("trackio", "trackio"),
    "wandb": ("wandb", "wandb"),
}


def check_report_to(report_to: str | Sequence[str]) -> list[str]:
    """Refuse trackers that transformers does not know, or whose package is not installed.

    Args:
        report_to: ``none``, or one or several of the names that transformers' ``report_to`` takes: ``tensorboard``, ``wandb``,
            ``mlflow``, ``trackio``, ...

    Returns:
        The names, each once; none of them for ``none``.

    Raises:
        ValueError: For a name that transformers does not know, or ``none`` beside others.
        ModuleNotFoundError: With what to install.

    Example:
        >>> from sbert_plugins import recipes
        >>> recipes.check_report_to("none")
        []
    """
    names = list(dict.fromkeys([report_to] if isinstance(report_to, str) else report_to))
    if names == ["none"]:
        return []
    if "none" in names:
        raise ValueError(f"report_to must be none, or names of trackers, got both: {', '.join(names)}.")
    for name in names:
        if name not in PACKAGES:
            _ask_host(name)
            continue
        package, *modules = PACKAGES[name]
        if not any(_is_there(module) for module in modules):
            raise ModuleNotFoundError(
                f"report_to {name} needs the package {package}, which is not installed: pip install {package}."
            )
    return names


def _ask_host(name: str) -> None:
    from transformers.integrations import get_reporting_integration_callbacks

    try:
        get_reporting_integration_callbacks([name])
    except ValueError as error:
        raise ValueError(f"report_to must be none, or names of trackers that transformers knows: {error}") from error


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of its parent
        return False
