"""Analysis of the vectors: cosines by level of similarity, token frequency, and neighbouring sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import batch_to_device
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from torch import Tensor

from sbert_plugins.data import TokenFrequencies

from .encoding import EmbeddingEvaluator, Encode, encode_once, unit_rows
from .report import Section, new_figure
from .sts import ScoredPairs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BATCH_SIZE = 128
_SENTENCES = 2_000  # per picture
_TOKENS = 5_000
_PASSES = 30
_RELATED = (
    "A man plays the violin on a small stage.",
    "Someone is making music on a stage.",
    "A man sells violins in a small shop.",
)


class CosineDensityEvaluator(EmbeddingEvaluator):
    """Mean and variance of the cosine by level of similarity: PaSeR's Table 10 and Figure 5.

    The range of the grades is divided into levels of the same width, for STS-B [0, 1), ..., [4, 5]. Good
    embeddings have means that differ and small variances. The variance is that of the population.

    Args:
        pairs: Graded pairs. The paper does not name the split of STS-B.
        levels: Number of levels. Levels without pairs are left out.
        **options: ``name``, ``batch_size``, ``show_progress_bar`` and ``write_csv`` of
            ``EmbeddingEvaluator``.

    Returns:
        From a call, ``separation``, the mean of the highest level minus that of the lowest, and ``mean_0-1``,
        ``variance_0-1`` and so on, with the name in front. They are not multiplied by 100.

    Raises:
        ValueError: If fewer than two levels have pairs, or if an embedding is not finite.

    Example:
        >>> from sbert_plugins import evaluation, recipes
        >>> evaluator = evaluation.CosineDensityEvaluator(recipes.graded_pairs())
        >>> [name for name in evaluator(model) if "mean" in name]
        ['mean_0-1', 'mean_1-2', 'mean_2-3', 'mean_3-4', 'mean_4-5']
    """

    description = "Cosine by Level of Similarity"
    csv_file = "density.csv"
    noun = "pairs"

    def __init__(self, pairs: ScoredPairs, *, levels: int = 5, **options: Any) -> None:
        super().__init__("separation", **options)
        edges = np.linspace(min(pairs.scores), max(pairs.scores), levels + 1)
        level = np.digitize(pairs.scores, edges[1:-1])
        self.pairs = pairs
        self.rows = {
            f"{edges[place]:g}-{edges[place + 1]:g}": np.flatnonzero(level == place)
            for place in np.unique(level)
        }
        if len(self.rows) < 2:
            raise ValueError(f"The grades must fall into at least two levels, got {min(pairs.scores)} only.")
        self.config = {"pairs": {name: len(rows) for name, rows in self.rows.items()}}

    def cosines(self, encode: Encode) -> dict[str, np.ndarray]:
        """Return the cosines of the pairs of each level, the lowest level first."""
        first, second = unit_rows(encode([*self.pairs.sentences1, *self.pairs.sentences2])).chunk(2)
        cosines = (first * second).sum(dim=1).double().cpu().numpy()
        return {name: cosines[rows] for name, rows in self.rows.items()}

    def compute(self, encode: Encode) -> dict[str, float]:
        """Return the separation, and mean and variance of each level."""
        levels = self.cosines(encode)
        means = {f"mean_{name}": float(cosines.mean()) for name, cosines in levels.items()}
        lowest, *_, highest = means.values()
        variances = {f"variance_{name}": float(cosines.var()) for name, cosines in levels.items()}
        return {"separation": highest - lowest, **means, **variances}


def analysis_sections(
    models: Mapping[str, SentenceTransformer],
    sentences: Sequence[str],
    *,
    pairs: ScoredPairs | None = None,
    frequencies: TokenFrequencies | None = None,
    related: Sequence[str] = _RELATED,
    seed: int = 0,
) -> list[Section]:
    """Return sections for a page about the vectors of models. Their figures need the extra ``plot``.

    - Mean and variance of the cosine by level of similarity (PaSeR, Table 10 and Figure 5), with ``pairs``.
    - Token and sentence vectors in two dimensions, coloured by the frequency of the tokens (SLT-FAI, Figures
      5 and 6). The paper does not name its projection. Here it is PCA. A table has the mean cosines.
    - Some sentences that pass the encoder several times with dropout, in two dimensions by t-SNE (ArcCSE,
      Figure 1).

    Args:
        models: The models by the name that the page shows.
        sentences: Texts, such as those that were trained on. At most 2,000 of them are drawn.
        pairs: Graded pairs.
        frequencies: Counts of the tokens. Default: those of BookCorpus for a model with BERT's vocabulary,
            otherwise those of ``sentences``.
        related: Sentences of similar meaning.
        seed: Seed of the sampling, dropout and t-SNE.

    Raises:
        ModuleNotFoundError: Without matplotlib (``pip install "sbert-plugins[plot]"``).
        ValueError: If ``frequencies`` belong to another vocabulary.

    Example:
        >>> from sbert_plugins import evaluation, recipes
        >>> sentences = recipes.offline_sentences_path().read_text().splitlines()[:200]
        >>> sections = evaluation.analysis_sections(
        ...     {"mine": model}, sentences, pairs=recipes.graded_pairs()
        ... )
        >>> page = evaluation.render_page("Analysis", "The vectors of my model", sections)
    """
    sections = [] if pairs is None else [_density(models, CosineDensityEvaluator(pairs))]
    vectors = {
        name: _vectors_by_frequency(model, sentences, frequencies, seed) for name, model in models.items()
    }
    for place, noun in enumerate(("Token", "Sentence")):
        sections.append(_frequency_section(noun, {name: each[place] for name, each in vectors.items()}))
    return [*sections, _related_section(models, related, seed)]


def _density(models: Mapping[str, SentenceTransformer], evaluator: CosineDensityEvaluator) -> Section:
    cosines = {}
    for name, model in models.items():
        with encode_once(model):
            cosines[name] = evaluator.cosines(evaluator.encoder(model))
    rows = [
        [level, f"{len(places):,}"]
        + [f"{each[level].mean():.3f} / {each[level].var():.4f}" for each in cosines.values()]
        for level, places in evaluator.rows.items()
    ]
    figure, panels = _panels(list(models))
    lowest = min(values.min() for levels in cosines.values() for values in levels.values()) - 0.02
    for axes, levels in zip(panels, cosines.values(), strict=True):
        axes.violinplot(list(levels.values()), showmeans=True)
        axes.set_xticks(range(1, len(levels) + 1), list(levels))
        axes.set_ylim(lowest, 1.02)
    return Section(
        "Cosine by level of similarity",
        columns=["grade", "pairs", *models],
        rows=rows,
        figure=figure,
        caption="Mean / variance of the cosine of the pairs of each level, and its distribution. Means that "
        "differ and small variances are good.",
    )


def _vectors_by_frequency(
    model: SentenceTransformer,
    sentences: Sequence[str],
    frequencies: TokenFrequencies | None,
    seed: int,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the vectors of tokens and of sentences, each with the logarithm of the frequency."""
    counts = frequencies or TokenFrequencies.bookcorpus()
    if frequencies is None and not counts.fits(model.tokenizer):
        counts = TokenFrequencies.from_corpus(sentences, model.tokenizer)
    counts.check_tokenizer(model.tokenizer)
    logarithms = torch.as_tensor(np.log10(counts.counts + 1.0))
    generator = np.random.default_rng(seed)
    texts = generator.permutation(np.array(sentences, dtype=object))[:_SENTENCES].tolist()
    share = -(-_TOKENS * _BATCH_SIZE // len(texts))  # tokens per batch
    tokens, of_tokens, whole, of_whole = [], [], [], []
    for start in range(0, len(texts), _BATCH_SIZE):
        output = _forward(model, texts[start : start + _BATCH_SIZE])
        ids = output["input_ids"].cpu()
        is_text = ~torch.isin(ids, torch.tensor(counts.special_ids)) & output["attention_mask"].cpu().bool()
        chosen = generator.permutation(np.flatnonzero(is_text))[:share]
        tokens.append(output["token_embeddings"].flatten(0, 1).float().cpu().numpy()[chosen])
        of_tokens.append(logarithms[ids].flatten()[chosen])
        whole.append(output["sentence_embedding"].float().cpu().numpy())
        of_whole.append((logarithms[ids] * is_text).sum(dim=1) / is_text.sum(dim=1).clamp(min=1))
    return [
        (np.concatenate(tokens), np.concatenate(of_tokens)),
        (np.concatenate(whole), np.concatenate(of_whole)),
    ]


def _frequency_section(noun: str, vectors: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Section:
    figure, panels = _panels(list(vectors))
    highest = max(logarithms.max() for _, logarithms in vectors.values())
    rows = []
    for axes, (name, (each, logarithms)) in zip(panels, vectors.items(), strict=True):
        first, second = PCA(2).fit_transform(each).T
        points = axes.scatter(
            first,
            second,
            c=logarithms,
            vmin=0,
            vmax=highest,
            cmap="cividis",
            s=3,
            linewidths=0,
            rasterized=True,
        )
        unit, is_rare = unit_rows(each).numpy(), logarithms < np.median(logarithms)
        groups = (unit[is_rare], unit[~is_rare])
        rows.append([name, *(f"{_mean_cosine(group):.3f}" for group in (unit, *groups))])
    bar, ink = figure.colorbar(points, ax=panels), _ink(panels[0])
    bar.set_label("log10 of the count" + ", mean of the tokens" * (noun == "Sentence"), color=ink)
    bar.ax.tick_params(colors=ink)
    return Section(
        f"{noun} vectors by token frequency",
        columns=["mean cosine of two vectors", "all", "rarer half", "more frequent half"],
        rows=rows,
        figure=figure,
        caption=f"{noun} vectors in the plane of their two main directions (PCA). If frequency decides where "
        "a vector lies, the colours separate, and the mean cosine of two vectors is high.",
    )


def _mean_cosine(unit: np.ndarray) -> float:
    """Return the mean cosine of two different rows."""
    total, count = unit.sum(axis=0, dtype=np.float64), len(unit)
    return float((total @ total - count) / max(count * (count - 1), 1))


def _related_section(
    models: Mapping[str, SentenceTransformer], sentences: Sequence[str], seed: int
) -> Section:
    figure, panels = _panels(list(models))
    for axes, model in zip(panels, models.values(), strict=True):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            passes = [_forward(model, sentences, dropout=True)["sentence_embedding"] for _ in range(_PASSES)]
        unit = unit_rows(torch.cat(passes)).cpu().numpy()
        points = TSNE(perplexity=min(30, len(unit) / 4), random_state=seed).fit_transform(unit)
        for place, sentence in enumerate(sentences, start=1):
            label = f"{place}. {shorten(sentence, 60)}".replace("$", r"\$")
            first, second = points[place - 1 :: len(sentences)].T
            axes.scatter(first, second, s=8, label=label)
    handles, labels = panels[0].get_legend_handles_labels()
    ink = _ink(panels[0])
    figure.legend(handles, labels, loc="outside lower left", frameon=False, fontsize=8, labelcolor=ink)
    return Section(
        "Sentences of similar meaning",
        figure=figure,
        caption=f"Each sentence passes the encoder {_PASSES} times with dropout. t-SNE shows which vectors "
        "are neighbours; its distances have no meaning.",
    )


def _forward(model: SentenceTransformer, texts: Sequence[str], *, dropout: bool = False) -> dict[str, Tensor]:
    """Return the output of a model without gradients. As ``encode``, leave it in evaluation mode."""
    with torch.no_grad():
        output = model.train(dropout)(batch_to_device(model.preprocess(list(texts)), model.device))
    model.eval()
    return output


def _panels(names: Sequence[str]) -> tuple[Figure, list[Axes]]:
    """Return a figure with one panel per model, two in a row."""
    columns = min(len(names), 2)
    rows = -(-len(names) // columns)
    figure, panels = new_figure(0.8 + 2.4 * rows, (rows, columns))
    for axes, name in zip(panels, names, strict=False):
        axes.set_title(name, loc="left", fontsize=9, color=_ink(axes), parse_math=False)
    for axes in panels[len(names) :]:
        axes.remove()
    return figure, panels[: len(names)]


def _ink(axes: Axes) -> Any:
    """Return the colour of text in a figure, which the page replaces by its own."""
    return axes.spines["left"].get_edgecolor()
