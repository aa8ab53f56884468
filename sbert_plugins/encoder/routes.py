"""Models with several encoders: the host's Router sends queries through one and documents through another."""

from __future__ import annotations

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import InputModule, Router


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
        routes = " and ".join(map(repr, router.sub_modules)) if router else "modules"
        raise ValueError(
            f"{needed_by} looks into one encoder, got a model with one for each of {routes}: {why}. Build the loss round one "
            "route, which shares its weights with the whole model: "
            "SentenceTransformer(modules=[*model[0].sub_modules['document'], *list(model)[1:]])."
        )
