"""A page about models: tables and plots of what the evaluators measured, in one HTML file."""

from __future__ import annotations

import html
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer

from .embeddings import Embeddings
from .geometry import AlignmentUniformityEvaluator, CosineDensityEvaluator
from .pages import PACKAGES, drawing, figure_section, filled, page, png, table_rows
from .sts import STSSuiteEvaluator

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .plots import Map


class ModelReport(NamedTuple):
    """What the report shows of one model.

    ``sts`` holds Spearman x 100 by task with the average; ``cosines`` those of STS-B's pairs by level of gold similarity,
    lowest first; ``maps`` embeddings in the plane, sentences and words by frequency; ``protocol`` how alignment and
    uniformity were measured; ``log`` a training's history, if there is one; ``origin`` what a reader asks of a model
    (pooling, text, updates); ``split`` the pairs that ``cosines`` are of, whose sentences ``maps`` shows; ``caution`` what a
    reader has to know of the scores in ``sts`` before they are compared with others.
    """

    name: str
    sts: Mapping[str, float]
    alignment: float
    uniformity: float
    cosines: Mapping[str, np.ndarray]
    maps: Mapping[str, Map]
    protocol: str = ""
    log: Sequence[Mapping[str, Any]] = ()
    origin: Mapping[str, str] = {}
    split: str = "STS-B test"
    caution: str = ""

    @property
    def has_collapsed(self) -> bool:
        """Whether any two sentences have a cosine near 1: then alignment is the best there is, and says nothing."""
        return self.uniformity > _COLLAPSED


# log of the mean of exp(-2 d^2): d^2 of 0.2 for two sentences taken at random, a cosine of 0.9.
_COLLAPSED = -0.4


def report_on(
    model: SentenceTransformer,
    name: str,
    *,
    suite: STSSuiteEvaluator,
    geometry: AlignmentUniformityEvaluator,
    density: CosineDensityEvaluator,
    log: Sequence[Mapping[str, Any]] = (),
    origin: Mapping[str, str] | None = None,
    batch_size: int = 128,
    show_progress_bar: bool = False,
) -> ModelReport:
    """Measure a model from one pass over the distinct sentences of three evaluators.

    Args:
        model: The model.
        name: What the report calls it.
        suite: All tasks of the table; STS-B must be one of them.
        geometry: Alignment and uniformity.
        density: Cosines by level; its sentences are those of the map.
        log: A training's history, the ``log`` of its ``results.json``.
        origin: What else the page says of the model, in words: its pooling, the text it was trained on, how many updates.
        batch_size: Sentences an encoder call.
        show_progress_bar: Whether ``encode`` shows its bar.

    Raises:
        ModuleNotFoundError: Without matplotlib, before anything is encoded.
        ValueError: If an embedding is not finite.
    """
    drawing()
    embeddings = Embeddings(
        model,
        [*suite.sentences, *geometry.sentences, *density.sentences],
        batch_size=batch_size,
        show_progress_bar=show_progress_bar,
    )
    sentences = list(dict.fromkeys(density.sentences))
    of_geometry, settings = geometry.compute(embeddings), geometry.get_config_dict()
    return ModelReport(
        name=name,
        sts=suite.compute(embeddings),
        alignment=of_geometry["alignment"],
        uniformity=of_geometry["uniformity"],
        cosines=density.cosines(embeddings),
        maps=frequency_maps(model, sentences, embeddings(sentences).cpu().numpy()),
        protocol=f"{settings['split']}, positive pairs {settings['positive']}, duplicates {settings['duplicates']}",
        log=log,
        origin=origin or {},
        split=density.get_config_dict()["split"],
        caution=suite.caution,
    )


def check_destination(names: Sequence[str], directory: str | Path) -> None:
    """Refuse models and a directory that :func:`write_report` would refuse, before anything is scored.

    Args:
        names: What the report calls the models.
        directory: Where it is to be written.

    Raises:
        ModuleNotFoundError: Without matplotlib.
        ValueError: Without models, on two of one name, where a file is in the way of the directory, or for one that holds a
            page, a ``report.json`` or a picture of something else, a comparison for one.
    """
    drawing()
    if not names or len(set(names)) < len(names):
        raise ValueError(f"a report needs at least one model and each under a name of its own, got {list(names)}.")
    folder = Path(directory)
    lowest = next(place for place in (folder, *folder.parents) if place.exists())
    if not lowest.is_dir():
        raise ValueError(f"the directory of a report must be a folder or not exist yet, got {folder}: {lowest} is a file.")
    names_written = ("index.html", "report.json", _COMPARISON, *(f"{stem}.png" for stem in _STEMS))
    found = [name for name in names_written if (folder / name).exists()] + [path.name for path in folder.glob(_LEARNING)]
    if found and not _is_report(folder):
        raise ValueError(
            f"the directory of a report must hold no page or picture but those of an earlier report, which are replaced, got "
            f"{folder} with {', '.join(found)} of something else: name another."
        )


# recipes.compare keeps its start in this file, beside a page of its own.
_COMPARISON = "start.json"
# The plots, and those of one model each.
_STEMS = ("sts", "density", "alignment_uniformity", "frequency")
_LEARNING = "learning_[0-9]*.png"


def _is_report(folder: Path) -> bool:
    """Whether :func:`write_report` wrote what a folder holds."""
    try:
        numbers = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    versions = numbers.get("versions") if isinstance(numbers, dict) else None
    is_ours = isinstance(versions, dict) and "sbert-plugins" in versions and "models" in numbers
    return is_ours and not (folder / _COMPARISON).exists()


def write_report(reports: Sequence[ModelReport], directory: str | Path) -> Path:
    """Write ``index.html``, which needs no other file, the plots as PNG and the numbers as ``report.json``.

    Args:
        reports: A model each; the first is the baseline of the bars.
        directory: Made if it is not there; files of an earlier report are replaced, a page of something else is refused.

    Returns:
        The path of the page.

    Raises:
        ModuleNotFoundError: Without matplotlib, which is an extra of this package.
        ValueError: For a directory that holds something else, two reports of one name, a score that is not finite, other
            tasks, or two protocols or splits.
    """
    check_destination([report.name for report in reports], directory)
    _check(reports)
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    figures = [(*parts, png(parts[-1])) for parts in _figures(reports)]
    # The numbers first, by which a folder is known for a report's if what follows breaks off.
    (folder / "report.json").write_text(json.dumps(_numbers(reports), indent=1) + "\n", encoding="utf-8")
    for earlier in folder.glob(_LEARNING):  # of models that this report may not have
        earlier.unlink()
    sections = []
    for stem, title, caption, figure, image in figures:
        (folder / f"{stem}.png").write_bytes(image)
        sections.append(figure_section(stem, title, caption, figure, image))
    body = filled(
        __package__,
        "report.html",
        table=_table(reports),
        collapsed=_collapsed(reports),
        origins=_origins(reports),
        sections="\n".join(sections),
    )
    path = folder / "index.html"
    path.write_text(page("Sentence embeddings: evaluation", body), encoding="utf-8")
    return path


def embedding_map(vectors: np.ndarray, counts: np.ndarray) -> Map:
    """Project vectors on their two leading singular directions, without centring them.

    The origin stays where it is: vectors in a narrow cone lie far from it on one side, isotropic ones all around it.

    Args:
        vectors: (N, D).
        counts: (N,), what colours each point.
    """
    vectors = np.asarray(vectors, dtype=np.float64)
    _, axes = np.linalg.eigh(vectors.T @ vectors)  # ascending: the last two lead
    points = vectors @ axes[:, :-3:-1]
    return drawing().Map(points * np.where(points.sum(axis=0) < 0, -1, 1), np.asarray(counts, dtype=np.float64))


def frequency_maps(model: SentenceTransformer, sentences: Sequence[str], embeddings: np.ndarray) -> dict[str, Map]:
    """Map a model's words and sentences, coloured by how often tokens occur in these sentences: SLT-FAI's Figures 5 and 6.

    Words are the rows of the input embeddings of the tokens that occur; a sentence has the geometric mean of its tokens'
    counts. A model without a transformer, or whose transformer has no input embeddings, has no map of words.

    Args:
        model: Its tokenizer counts.
        sentences: The sentences to count, N of them.
        embeddings: (N, D), theirs. They are normalised here, as the cosine does.
    """
    rows = _token_ids(model.tokenizer, sentences)
    counts = Counter(token for row in rows for token in row)
    per_sentence = np.array([np.exp(np.mean(np.log([counts[token] for token in row] or [1]))) for row in rows])
    lengths = np.linalg.norm(embeddings, axis=1, keepdims=True)
    maps = {"sentences": embedding_map(embeddings / np.maximum(lengths, 1e-12), per_sentence)}
    words = getattr(model.transformers_model, "get_input_embeddings", lambda: None)()
    if words is not None:
        table = words.weight.detach().float().cpu().numpy()
        maps = {"words": embedding_map(table[list(counts)], np.array(list(counts.values())))} | maps
    return maps


def _token_ids(tokenizer: Any, sentences: Sequence[str]) -> list[list[int]]:
    """Return the ids of each sentence's tokens, without special ones."""
    if isinstance(tokenizer, Tokenizer):  # that of static embeddings, which is not of transformers and no callable
        return [encoding.ids for encoding in tokenizer.encode_batch(list(sentences), add_special_tokens=False)]
    if not callable(tokenizer):  # that of word vectors (GloVe), and of bags of words
        return [tokenizer.tokenize(sentence) for sentence in sentences]
    return [tokenizer(sentence, add_special_tokens=False, verbose=False)["input_ids"] for sentence in sentences]


_STS = "Spearman correlation x 100 of cosine and gold score, over the pairs of all subsets of a task."


def _figures(reports: Sequence[ModelReport]) -> list[tuple[str, str, str, Figure]]:
    """Return file name, title, caption and figure of each plot."""
    draw = drawing()
    baseline = f"The dashed line is {reports[0].name}, the numbers are the distance to it." if len(reports) > 1 else ""
    figures = [
        (
            "sts",
            "Semantic textual similarity",
            " ".join(filter(None, [_STS, reports[0].caution, baseline])),
            draw.sts_bars({report.name: {_title(key): score for key, score in report.sts.items()} for report in reports}),
        ),
        (
            "density",
            "Cosine by level of gold similarity",
            f"{reports[0].split}. The further apart the means and the narrower the hills, the better the cosine tells levels "
            "apart.",
            draw.density_by_level(
                {report.name: list(report.cosines.values()) for report in reports}, list(reports[0].cosines)
            ),
        ),
        (
            "alignment_uniformity",
            "Alignment and uniformity",
            "How far similar pairs are apart, and how evenly sentences fill the sphere; lower is better on both "
            f"({reports[0].protocol}). Colour and brackets: Spearman x 100 on STS-B test.",
            draw.alignment_uniformity(
                {report.name: (report.uniformity, report.alignment, report.sts["STS-B"]) for report in reports}
            ),
        ),
        (
            "frequency",
            "Words and sentences in the plane, by frequency",
            "Projection of input embeddings and of normalised sentence embeddings on their two leading singular directions; "
            f"the cross is the origin. Colour: occurrences of the token in the sentences of {reports[0].split}, for a "
            "sentence those of its tokens on average. Frequent and rare in places of their own, or all on one side of the "
            "cross: the anisotropy that encoders bring from pretraining.",
            draw.embedding_maps({report.name: report.maps for report in reports}),
        ),
    ]
    for place, report in enumerate(reports):
        curves = draw.learning_curves(report.log)
        if curves is not None:
            title = f"Learning curves of {report.name}"
            caption = "What the training logged by update, evaluations in orange."
            figures.append((f"learning_{place}", title, caption, curves))
    return figures


def _check(reports: Sequence[ModelReport]) -> None:
    for report in reports:
        scores = {**report.sts, "alignment": report.alignment, "uniformity": report.uniformity}
        bad = [key for key, score in scores.items() if not np.isfinite(score)]
        if bad:
            raise ValueError(f"scores of {report.name} must be finite, got NaN or infinity for {', '.join(bad)}.")
        if "STS-B" not in report.sts or set(report.sts) != set(reports[0].sts):
            raise ValueError(
                f"sts must have STS-B, and the same tasks in all reports, got {', '.join(report.sts)} of {report.name} and "
                f"{', '.join(reports[0].sts)} of {reports[0].name}: measure both with the same suite."
            )
        for key in ("protocol", "split", "caution"):
            first, other = getattr(reports[0], key), getattr(report, key)
            if first != other:
                raise ValueError(
                    f"the {key} of all reports must be the same, got {first!r} of {reports[0].name} and {other!r} of "
                    f"{report.name}: measure both with the same evaluators, or write a page each."
                )


def _numbers(reports: Sequence[ModelReport]) -> dict[str, Any]:
    return {
        "models": {
            report.name: {
                "sts": dict(report.sts),
                "alignment": report.alignment,
                "uniformity": report.uniformity,
                "protocol": report.protocol,
                "split": report.split,
                "caution": report.caution,
                "origin": dict(report.origin),
                "levels": {
                    level: {"pairs": len(row), "mean": float(row.mean()), "variance": float(row.var())}
                    for level, row in report.cosines.items()
                    if len(row)
                },
            }
            for report in reports
        },
        "versions": {name: version(name) for name in PACKAGES},
    }


def _table(reports: Sequence[ModelReport]) -> str:
    """Return the numbers as rows of HTML, the best of each row marked; no alignment of a model that has collapsed."""
    columns = [{**report.sts, "alignment": report.alignment, "uniformity": report.uniformity} for report in reports]
    rows, classes = [["", *(report.name for report in reports)]], []
    for key in columns[0]:
        digits, best_of = (3, min) if key in ("alignment", "uniformity") else (2, max)
        values = [column[key] for column in columns]
        able = [value for value, report in zip(values, reports, strict=True) if key != "alignment" or not report.has_collapsed]
        best = best_of(able) if able and len(values) > 1 else None
        classes.append(
            [
                "best" if value == best and (key != "alignment" or not report.has_collapsed) else ""
                for value, report in zip(values, reports, strict=True)
            ]
        )
        rows.append([_title(key), *(f"{value:.{digits}f}" for value in values)])
    return table_rows(rows, marks=classes)


def _origins(reports: Sequence[ModelReport]) -> str:
    """Return where each model comes from as rows of HTML."""
    keys = list(dict.fromkeys(key for report in reports for key in report.origin))
    rows = [["", *(report.name for report in reports)]]
    rows += [[key, *(report.origin.get(key, "") for report in reports)] for key in keys]
    return table_rows(rows) if keys else ""


def _collapsed(reports: Sequence[ModelReport]) -> str:
    names = ", ".join(html.escape(report.name) for report in reports if report.has_collapsed)
    if not names:
        return ""
    return f"<p>Collapsed: {names}. Any two sentences have a cosine near 1 there: the alignment is small and says nothing.</p>"


def _title(key: str) -> str:
    return "average" if key.startswith("avg") else key
