"""Temporary: what rooms that are about to be replaced still import, here or as attributes of host.py."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.model import BaseModel
from torch import Tensor, nn

from sbert_plugins.encoder import freeze_mask_template  # noqa: F401
from sbert_plugins.host import _reach


def talks_to_others(loss: nn.Module) -> bool:
    return any(
        getattr(part, "gather_across_devices", False)
        or getattr(part, "balance", None) is not None
        or hasattr(part, "queue")
        for part in loss.modules()
    )


def keeps_its_mode(module: nn.Module, *, of_model: Collection[int] = ()) -> bool:
    own = [parameter for parameter in module.parameters() if id(parameter) not in of_model]
    is_frozen = bool(own) and not any(parameter.requires_grad for parameter in own)
    return isinstance(module, BaseModel) or (is_frozen and not module.training)


def check_value(loss: object, value: object) -> None:
    rule = f"{type(loss).__name__}.forward must return a scalar tensor, or a dict of them by name"
    terms: Any = value if isinstance(value, Mapping) else {"": value}
    if not terms or not all(isinstance(term, Tensor) and term.ndim == 0 for term in terms.values()):
        raise ValueError(f"{rule}, got {value!r}.")


def reads_pooler(model: nn.Module) -> bool:
    """Whether a model's vectors come from a transformer's own pooler, as few are set to do. sentence-transformers 6.2."""
    routes = [
        route
        for module in model.modules()
        for route in (getattr(module, "modality_config", None) or {}).values()
        if isinstance(route, dict)
    ]
    return any("pooler_output" in str(route.get("method_output_name")) for route in routes)


def asked_of_encode(
    method: str, model: SentenceTransformer, note: Callable[..., None], sentences: Sequence[str]
) -> None:
    """Call ``encode_query`` or ``encode_document`` of the host on a stand-in: ``note`` gets what ``encode`` would.

    They read nothing of the model but its prompts. sentence-transformers 6.2.
    """
    from sentence_transformers import SentenceTransformer

    stand_in = SimpleNamespace(prompts=model.prompts, encode=note)
    _reach(SentenceTransformer, method, "sentence-transformers>=6.2")(stand_in, sentences)


@contextmanager
def training_time_named(
    model: SentenceTransformer, seconds: float | None, evaluating: float | None
) -> Iterator[None]:
    """Have a model card that is written inside the block name these seconds, of which some evaluated; None for no duration.

    The host counts from the beginning of the training to the moment when the card is written. sentence-transformers 6.2.
    """
    from sentence_transformers.base.model_card import format_duration

    card = model.model_card_data
    parts: dict[str, str | None] = {"training_time": None, "evaluation_time": None, "total_time": None}
    if seconds is not None:
        if evaluating:
            parts |= {"evaluation_time": format_duration(evaluating), "total_time": format_duration(seconds)}
        parts["training_time"] = format_duration(seconds - (evaluating or 0))
    vars(card)["get_training_duration_data"] = lambda: parts
    try:
        yield
    finally:
        del vars(card)["get_training_duration_data"]


def tokenizer_state(tokenizer: Any) -> Any:
    """Return what a tokenizer is, without the padding and truncation of its last call."""
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if hasattr(backend, "to_str"):
        return {
            key: value
            for key, value in json.loads(backend.to_str()).items()
            if key not in ("truncation", "padding")
        }
    vocabulary = backend.get_vocab() if hasattr(backend, "get_vocab") else repr(backend)
    words = sorted(vocabulary.items()) if isinstance(vocabulary, dict) else vocabulary
    # Those of word vectors: a word that is left out, or lowered, is none of the vocabulary's.
    settings = {name: vars(backend)[name] for name in _OF_WORDS if name in getattr(backend, "__dict__", ())}
    if not settings:
        return words
    return {"words": words, **{name: sorted(x) if isinstance(x, set) else x for name, x in settings.items()}}


_OF_WORDS = ("stop_words", "do_lower_case", "ngram_separator", "max_ngram_length")


def is_prepared(model: Any) -> bool:
    """Whether accelerate takes a model, not what it was wrapped in, for prepared. accelerate 1.1."""
    return getattr(model, "_is_accelerate_prepared", False)


def rake_scorer() -> Any:
    """Build rake-nltk's scorer over phrases that are cut already, lists of words each. rake-nltk 1.0.6."""
    import rake_nltk

    for name in ("_generate_phrases", "_build_word_co_occurance_graph"):
        _reach(rake_nltk.Rake, name, "rake-nltk>=1.0.6")

    class Scorer(rake_nltk.Rake):
        def _generate_phrases(self, sentences: list[list[str]]) -> list[list[str]]:
            return sentences

        def _build_word_co_occurance_graph(self, phrase_list: list[list[str]]) -> None:
            # The sums over the graph without the graph, whose size is the square of a phrase's length.
            self.degree: dict[str, int] = {}
            for phrase in phrase_list:
                for word in phrase:
                    self.degree[word] = self.degree.get(word, 0) + len(phrase)

    # With stop words and tokenizers passed in rake-nltk asks NLTK for no data.
    return Scorer(stopwords={""}, punctuations={""}, sentence_tokenizer=list, word_tokenizer=list)
