"""Analysis of the vectors: cosines by level of similarity, token frequency, and passes with dropout."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import batch_to_device
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE

from sbert_plugins.data import TokenFrequencies

from .encoding import EmbeddingEvaluator, Encode, unit_rows
from .report import Section, new_figure
from .sts import ScoredPairs

_SENTENCES = 1_000  # per picture
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

    Attributes:
        cosines: The cosines of the pairs of each level in the last call, the lowest level first.

    Returns:
        From a call, ``separation``, the mean of the highest level minus that of the lowest, and ``mean_0-1``,
        ``variance_0-1`` and so on, with the name in front. They are not multiplied by 100.

    Raises:
        ValueError: From a call, if fewer than two levels have pairs, or if an embedding is not finite.

    Example:
        >>> from sbert_plugins import evaluation, recipes
        >>> evaluator = evaluation.CosineDensityEvaluator(recipes.graded_pairs())
        >>> [name for name in evaluator(model) if "mean" in name]
        ['mean_0-1', 'mean_1-2', 'mean_2-3', 'mean_3-4', 'mean_4-5']
    """

    def __init__(self, pairs: ScoredPairs, *, levels: int = 5, **options: Any) -> None:
        super().__init__("separation", **options)
        edges = np.linspace(min(pairs.scores), max(pairs.scores), levels + 1)
        level = np.digitize(pairs.scores, edges[1:-1])
        self.pairs = pairs
        self.rows = {
            f"{edges[place]:g}-{edges[place + 1]:g}": np.flatnonzero(level == place)
            for place in np.unique(level)
        }
        self.config = {"pairs": {name: len(rows) for name, rows in self.rows.items()}}

    def compute(self, encode: Encode) -> dict[str, float]:
        """Return the separation, and mean and variance of each level."""
        first, second = unit_rows(encode([*self.pairs.sentences1, *self.pairs.sentences2])).chunk(2)
        cosines = (first * second).sum(dim=1).double().cpu().numpy()
        self.cosines = {name: cosines[rows] for name, rows in self.rows.items()}
        means = {f"mean_{name}": float(each.mean()) for name, each in self.cosines.items()}
        lowest, *_, highest = means.values()
        variances = {f"variance_{name}": float(each.var()) for name, each in self.cosines.items()}
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
        sentences: Texts, such as those that were trained on. At most 1,000 of them are drawn.
        pairs: Graded pairs.
        frequencies: Counts of the tokens, such as ``TokenFrequencies.bookcorpus()`` for a model with BERT's
            vocabulary. Default: those of ``sentences``.
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
    sections = [] if pairs is None else [_density_section(models, CosineDensityEvaluator(pairs))]
    texts = np.random.default_rng(seed).permutation(np.array(sentences, dtype=object))[:_SENTENCES].tolist()
    vectors = {name: _vectors_by_frequency(model, texts, frequencies) for name, model in models.items()}
    for place, noun in enumerate(("Token", "Sentence")):
        sections.append(_frequency_section(noun, {name: each[place] for name, each in vectors.items()}))
    return [*sections, _related_section(models, related, seed)]


def _density_section(models: Mapping[str, SentenceTransformer], evaluator: CosineDensityEvaluator) -> Section:
    rows, (figure, panels) = [[level] for level in evaluator.rows], new_figure(2.8, list(models))
    for axes, model in zip(panels, models.values(), strict=True):
        evaluator(model)
        for row, values in zip(rows, evaluator.cosines.values(), strict=True):
            row.append(f"{values.mean():.3f} / {values.var():.4f}")
        axes.violinplot(list(evaluator.cosines.values()), showmeans=True)
        axes.set_xticks(range(1, len(rows) + 1), [row[0] for row in rows])
    caption = (
        "Mean / variance of the cosine of the pairs of each level, and its distribution. Means that differ "
        "and small variances are good."
    )
    return Section(
        "Cosine by level of similarity", columns=["grade", *models], rows=rows, figure=figure, caption=caption
    )


def _vectors_by_frequency(
    model: SentenceTransformer, sentences: Sequence[str], frequencies: TokenFrequencies | None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the vectors of tokens and of sentences, each with the logarithm of the frequency."""
    counts = frequencies or TokenFrequencies.from_corpus(sentences, model.tokenizer)
    counts.check_tokenizer(model.tokenizer)
    logarithms, special = np.log10(counts.counts + 1), torch.tensor(counts.special_ids)
    tokens, of_tokens, whole = [], [], []
    outputs: Any = model.encode(sentences, output_value=None)
    for output in outputs:
        ids = output["input_ids"].cpu()
        kept = output["attention_mask"].cpu().bool() & ~torch.isin(ids, special)
        tokens.append(output["token_embeddings"].float().cpu().numpy()[kept])
        of_tokens.append(logarithms[ids[kept]])
        whole.append(output["sentence_embedding"].float().cpu().numpy())
    of_whole = np.array([each.mean() if len(each) else 0.0 for each in of_tokens])
    return [(np.concatenate(tokens), np.concatenate(of_tokens)), (np.stack(whole), of_whole)]


def _frequency_section(noun: str, vectors: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Section:
    rows, (figure, panels) = [], new_figure(2.8, list(vectors))
    for axes, (name, (each, logarithms)) in zip(panels, vectors.items(), strict=True):
        first, second = PCA(2).fit_transform(each).T
        axes.scatter(first, second, c=logarithms, cmap="cividis", s=3, linewidths=0, rasterized=True)
        unit, is_rare = unit_rows(each).numpy(), logarithms < np.median(logarithms)
        # The mean cosine of all pairs of rows is the squared length of their mean.
        means = [np.square(group.mean(axis=0)).sum() for group in (unit, unit[is_rare], unit[~is_rare])]
        rows.append([name, *(f"{mean:.3f}" for mean in means)])
    caption = (
        f"{noun} vectors in the plane of their two main directions (PCA), blue for rare and yellow for "
        "frequent tokens. If frequency decides where a vector lies, the colours separate, and the mean "
        "cosines are high."
    )
    columns = ["mean cosine", "all", "rarer half", "more frequent half"]
    title = f"{noun} vectors by token frequency"
    return Section(title, columns=columns, rows=rows, figure=figure, caption=caption)


def _related_section(
    models: Mapping[str, SentenceTransformer], sentences: Sequence[str], seed: int
) -> Section:
    figure, panels = new_figure(2.8, list(models))
    for axes, model in zip(panels, models.values(), strict=True):
        features = batch_to_device(model.preprocess([*sentences] * _PASSES), model.device)
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(seed)
            vectors = model.train()(features)["sentence_embedding"]
        model.eval()  # as after encode
        unit = unit_rows(vectors).cpu().numpy()
        points = TSNE(perplexity=min(30, len(unit) / 4), random_state=seed).fit_transform(unit)
        for place in range(len(sentences)):
            first, second = points[place :: len(sentences)].T
            axes.scatter(first, second, s=8, label=f"sentence {place + 1}")
        axes.legend(labelcolor="linecolor", framealpha=0, fontsize=8)
    caption = (
        f"Each sentence passes the encoder {_PASSES} times with dropout. t-SNE shows which vectors are "
        "neighbours; its distances have no meaning."
    )
    names = [f"Sentence {place}: {sentence}" for place, sentence in enumerate(sentences, start=1)]
    return Section("Sentences of similar meaning", points=names, figure=figure, caption=caption)
