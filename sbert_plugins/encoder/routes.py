"""What kind of model a loss reads: of sentences, and with one encoder, where the host's Router has two ways through it."""

from __future__ import annotations

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import InputModule, Router

from .distributed import unwrap


def require_sentence_encoder(model: object) -> None:
    """Raise ``ValueError`` for what gives no sentence vectors: a cross-encoder, a sparse one, or a transformer alone."""
    inside = None if model is None else unwrap(model)
    if not isinstance(inside, SentenceTransformer):
        raise ValueError(f"model must be a SentenceTransformer, which gives sentence vectors, got {type(inside).__name__}.")


def require_one_encoder(
    model: SentenceTransformer,
    needed_by: str,
    why: str = "tokens and embeddings of the first would be taken for those of the others",
) -> None:
    """Raise ``ValueError`` for a model with several encoders, of which a loss would look into the first whichever is trained.

    Token ids, embeddings and layers are looked up in one encoder. Routes that share theirs are one.
    """
    # What a route begins with; not the wrapper, for two may hold one transformer.
    begins = [module for module in model.modules() if isinstance(module, InputModule) and not isinstance(module, Router)]
    if len({id(getattr(module, "model", module)) for module in begins}) > 1:
        router = next((module for module in model.modules() if isinstance(module, Router)), None)
        raise ValueError(_refusal(router, f"{needed_by} looks into one encoder", "one for each of", why))


def require_equal_routes(model: SentenceTransformer, needed_by: str, why: str) -> None:
    """Raise ``ValueError`` for a model whose routes train weights of their own."""
    require_one_encoder(model, needed_by, why)
    for router in (module for module in model.modules() if isinstance(module, Router)):
        routes = router.sub_modules.values()
        trained = {frozenset(id(one) for one in route.parameters() if one.requires_grad) for route in routes}
        if len(trained) > 1:
            raise ValueError(_refusal(router, f"{needed_by} trains one route", "weights to train of each of", why))


def _refusal(router: Router | None, rule: str, got: str, why: str) -> str:
    routes = " and ".join(map(repr, router.sub_modules)) if router else "modules"
    return (
        f"{rule}, got a model with {got} {routes}: {why}. Build the loss round one route, which shares its weights with the "
        "whole model: SentenceTransformer(modules=[*model[0].sub_modules['document'], *list(model)[1:]])."
    )
