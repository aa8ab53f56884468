"""ConSERT's training settings: those of the tables; ``recommended`` is it with a projection head.

The official script has 5e-7 for ten epochs, and its authors later called rates of this size far too low; SLT-FAI's protocols
keep it.
"""

from sbert_plugins.recipes.recommended import RECOMMENDED
from sbert_plugins.recipes.settings import Recipe

CONSERT = Recipe(
    method="consert",
    name="ConSERT",
    paper="Yan et al., ACL 2021",
    url="https://aclanthology.org/2021.acl-long.393",
    loss="ConSERTLoss",
    columns=("anchor",),
    second_column="positive",
    equation="contrast of two views: features cut off, tokens shuffled (eq. 1)",
    settings=RECOMMENDED.settings,
    offline=RECOMMENDED.offline,
)
