"""Search in the descriptions of this package's own functions, before and after ``train search``.

    python benchmarks/descriptions.py --seeds 42 43 44 45 46

A task with known answers, fixed before it was measured. The query is the first line of a docstring. The right
answer is the rest of that docstring, among the rest of all docstrings of the package. The start is
all-MiniLM-L6-v2 with the settings of the command. Each seed appends a line to ``results/descriptions.jsonl``.
"""

import ast

import numpy as np
import records
from sentence_transformers import SentenceTransformer

from sbert_plugins import evaluation, recipes

MIN_WORDS = 20  # of a description without its first line


def main() -> None:
    """Adapt the model with each seed that is not recorded yet."""
    options = records.parser(__doc__, seeds=[42]).parse_args()
    records.require_clean_tree()
    queries, documents = read_descriptions()
    before = rank_answers(recipes.offline_encoder(num_layers=6), queries, documents)
    for seed in options.seeds:
        if records.holds("descriptions", {"seed": seed}):
            continue
        model = recipes.offline_encoder(num_layers=6)
        fit = recipes.adapt_to_search(model, documents, seed=seed)
        after = rank_answers(model, queries, documents)
        line = {"seed": seed, "power": fit.power, "has_map": fit.has_map}
        records.append("descriptions", line | {"before": before.tolist(), "after": after.tolist()})
        print(
            f"seed {seed}: MRR {(1 / before).mean():.3f} before, {(1 / after).mean():.3f} after", flush=True
        )


def read_descriptions() -> tuple[list[str], list[str]]:
    """Return the first line and the rest of each docstring of the package whose rest is long enough."""
    queries, documents = [], []
    for path in sorted((records.ROOT / "sbert_plugins").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                first, _, rest = (ast.get_docstring(node) or "").partition("\n")
                if len(rest.split()) >= MIN_WORDS:
                    queries.append(first)
                    documents.append(" ".join(rest.split()))
    return queries, documents


def rank_answers(model: SentenceTransformer, queries: list[str], documents: list[str]) -> np.ndarray:
    """Return the rank of the right document of each query."""
    vectors = model.encode_query(queries), model.encode_document(documents)
    return evaluation.answer_ranks(*vectors, range(len(queries)))


if __name__ == "__main__":
    main()
