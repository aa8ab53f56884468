"""A method's loss and settings, by the method's name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sbert_plugins.recipes.keywords import check_keywords
from sbert_plugins.recipes.methods import RECIPES
from sbert_plugins.recipes.settings import Settings

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def build_loss(method: str, model: SentenceTransformer, **keywords: Any) -> Any:
    """Build a method's loss with the paper's defaults, ``keywords`` replacing some of them.

    Raises:
        ValueError: For keywords that the loss has not, or values that it refuses.
    """
    from sbert_plugins import losses

    recipe = RECIPES[method]
    check_keywords(method, keywords)
    return (recipe.build or getattr(losses, recipe.loss))(model, **keywords)


def settings_of(method: str, loss_keywords: dict[str, Any] | None = None, *, offline: bool = False) -> Settings:
    """Return a method's settings, the paper's or those of the demo; those of SLT-FAI are its backbone's."""
    return RECIPES[method].settings_for(loss_keywords or {}, offline=offline)
