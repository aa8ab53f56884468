"""The similarities of the graded pairs before and after the README's demo: what the README's picture shows.

    python benchmarks/couples.py --seeds 42 43 44

Trains as ``sbert-plugins train recommended --offline`` does. Each seed appends a line to
``results/couples.jsonl``, from which ``tables.py`` draws ``results/couples.svg``.
"""

import html
import tempfile
import textwrap
from typing import Any

import numpy as np
import records
from sentence_transformers import SentenceTransformer

from sbert_plugins import data, recipes

STYLE = """\
text { font: 14px system-ui, sans-serif; fill: #22303c }
.page { fill: #fff } .soft { fill: #55636f } .same { fill: #0072b2 } .different { fill: #d55e00 }
path { fill: none; stroke-width: 2.5 } .before { stroke: #d55e00 } .after { stroke: #0072b2 }
.line { stroke: #dde3e8; stroke-width: 1 }
@media (prefers-color-scheme: dark) {
  text { fill: #e4e9ed }
  .page { fill: #14191e } .soft { fill: #a3b0bb } .same { fill: #4aa3da } .different { fill: #f0883e }
  .before { stroke: #f0883e } .after { stroke: #4aa3da } .line { stroke: #36424c }
}
"""


def main() -> None:
    """Train with each seed that is not recorded yet."""
    options = records.parser(__doc__, seeds=[42]).parse_args()
    records.require_clean_tree()
    before = find_similarities(recipes.offline_encoder(num_layers=6))
    sentences = data.read_sentences(recipes.offline_sentences_path())
    for seed in options.seeds:
        if records.holds("couples", {"seed": seed}):
            continue
        model = recipes.offline_encoder(num_layers=6)
        with tempfile.TemporaryDirectory() as folder:
            recipes.train("recommended", sentences, model, output=folder, evaluators=[], seed=seed)
        records.append("couples", {"seed": seed, "before": before, "after": find_similarities(model)})


def find_similarities(model: SentenceTransformer) -> list[float]:
    """Return the similarity of each graded pair."""
    pairs = recipes.graded_pairs()
    sides = [model.encode(side) for side in (pairs.sentences1, pairs.sentences2)]
    return [round(float(one), 4) for one in model.similarity_pairwise(*sides)]


def kinds_of_pairs() -> tuple[np.ndarray, np.ndarray]:
    """Return the places of the graded pairs with one meaning (4 or 5), and with different ones (0 to 2)."""
    grades = np.array(recipes.graded_pairs().scores)
    return np.flatnonzero(grades >= 4), np.flatnonzero(grades <= 2)


def best_couples(line: dict[str, Any], most: int = 3) -> list[tuple[int, int]]:
    """Return the couples that became right and changed most, each pair once: one meaning, different ones."""
    before, after = (np.array(line[when]) for when in ("before", "after"))
    same, different = kinds_of_pairs()
    margins = [np.subtract.outer(each[same], each[different]) for each in (before, after)]
    change = np.where((margins[0] <= 0) & (margins[1] > 0), margins[1] - margins[0], -np.inf)
    found = []
    while len(found) < most and np.isfinite(change).any():
        row, column = np.unravel_index(change.argmax(), change.shape)
        found.append((int(same[row]), int(different[column])))
        change[row], change[:, column] = -np.inf, -np.inf
    return found


def draw_couples(line: dict[str, Any]) -> str:
    """Draw couples of pairs before and after: an SVG for phones, in light and dark."""
    pairs, parts, top = recipes.graded_pairs(), [], 34

    def write(text: str, left: int, y: int, style: str = "") -> None:
        parts.append(f'<text x="{left}" y="{y}" class="{style}">{html.escape(text)}</text>')

    def fill(left: int, y: int, width: int, style: str) -> None:
        parts.append(f'<rect x="{left}" y="{y}" width="{width}" height="12" class="{style}"/>')

    for left, kind, words in ((10, "same", "one meaning"), (150, "different", "different meanings")):
        fill(left, 10, 12, kind)
        write(words, left + 20, 21)
    for place, couple in enumerate(best_couples(line)):
        if place:
            parts.append(f'<path d="M10 {top + 4}H380" class="line"/>')
            top += 14
        rows = dict(zip(("same", "different"), couple, strict=True))
        for kind, row in rows.items():
            fill(10, top + 3, 12, kind)
            for part in [
                *textwrap.wrap(pairs.sentences1[row], 48),
                *textwrap.wrap(pairs.sentences2[row], 48),
            ]:
                top += 18
                write(part, 30, top - 4)
            top += 4
        for left, when, mark in ((30, "before", "m-12-3 8 8m0-8-8 8"), (210, "after", "m-14 1 4 4 7-9")):
            write(when, left, top + 14, "soft")
            parts.append(f'<path d="M{left + 70} {top + 9}{mark}" class="{when}"/>')
            for lower, (kind, row) in zip((20, 36), rows.items(), strict=True):
                width = round(120 * max(line[when][row], 0))
                fill(left, top + lower, width, kind)
                write(f"{line[when][row]:.2f}", left + width + 6, top + lower + 11, "soft")
        top += 56
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="480" viewBox="0 0 390 {top + 8}">\n'
        f'<style>\n{STYLE}</style>\n<rect class="page" width="390" height="{top + 8}" rx="6"/>\n'
        f"{body}\n</svg>\n"
    )


if __name__ == "__main__":
    main()
