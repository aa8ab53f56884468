"""A method's loss and settings, by the method's name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sbert_plugins.recipes.keywords import check_keywords
from sbert_plugins.recipes.methods import recipe_of
from sbert_plugins.recipes.settings import Recipe, Settings

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def build_loss(method: str, model: SentenceTransformer, **keywords: Any) -> Any:
    """Build a method's loss with its defaults, ``keywords`` replacing some of them.

    Where the authors' code computes something else, ``official=True`` builds the class of that name in ``losses.official``.

    Raises:
        ValueError: For keywords that the loss has not, or values that it refuses.
    """
    from sbert_plugins import losses

    recipe = recipe_of(method)
    check_keywords(method, keywords)
    if recipe.reads == "any":
        return _own_loss(recipe, model, keywords)
    if recipe.build is not None:
        return recipe.build(model, **keywords)
    room = losses.official if keywords.pop("official", False) else losses
    return getattr(room, recipe.loss)(model, **keywords)


def _own_loss(recipe: Recipe, model: SentenceTransformer, keywords: dict[str, Any]) -> Any:
    """Build a class that is not ours, whose errors may be of any kind and say anything."""
    given = ", ".join(["model", *(f"{key}={value!r}" for key, value in keywords.items())])
    try:
        loss = recipe.build(model, **keywords) if recipe.build else None
    except Exception as error:
        raise ValueError(f"{recipe.name}({given}) of {recipe.method} fails with {type(error).__name__}: {error}") from error
    if loss is None or all(part is not model for part in loss.modules()):
        raise ValueError(
            f"{recipe.name}({given}) of {recipe.method} must keep the model that it is given as an attribute, self.model: it "
            "keeps none, and nothing would be trained."
        )
    return loss


def settings_of(method: str, loss_keywords: dict[str, Any] | None = None, *, offline: bool = False) -> Settings:
    """Return a method's settings, the paper's or those of the demo; those of SLT-FAI are its backbone's."""
    return recipe_of(method).settings_for(loss_keywords or {}, offline=offline)
