from itertools import pairwise

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from scipy.stats import gaussian_kde

from sbert_plugins.evaluation import plots

TASKS = ("STS12", "STS-B", "average")


def figure_is_drawn(figure):
    """Whether the pixels of each panel hold more than one colour."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())
    height = pixels.shape[0]
    for axes in figure.axes:
        x0, y0, x1, y1 = (int(value) for value in axes.get_window_extent().extents)
        inside = pixels[height - y1 + 3 : height - y0 - 3, x0 + 3 : x1 - 3].reshape(-1, 4)
        assert len(np.unique(inside, axis=0)) > 1, axes.get_title("left")
    return True


class TestBars:
    def test_heights_and_distances(self):
        scores = {
            "raw": dict(zip(TASKS, (40, 50, 45), strict=True)),
            "trained": dict(zip(TASKS, (60, 49.5, 54.75), strict=True)),
        }
        figure = plots.sts_bars(scores)
        (axes,) = figure.axes
        assert [bar.get_height() for bar in axes.patches] == [40, 50, 45, 60, 49.5, 54.75]
        assert [text.get_text() for text in axes.texts] == ["+20.0", "-0.5", "+9.8"]
        (lines,) = axes.collections
        assert [segment[0][1] for segment in lines.get_segments()] == [40, 50, 45]
        assert [text.get_text() for text in axes.get_legend().get_texts()] == ["raw", "trained"]
        assert figure_is_drawn(figure)

    def test_many_models_can_be_told_apart_and_read(self):
        """Distances stand upright, none over another; no two bars have one look, and the legend covers none."""
        scores = {f"model {i}": dict.fromkeys(TASKS, 99.0 - i) for i in range(20)}
        figure = plots.sts_bars(scores)
        assert figure_is_drawn(figure)
        (axes,) = figure.axes
        boxes = sorted((text.get_window_extent() for text in axes.texts), key=lambda box: box.x0)
        assert all(left.x1 <= right.x0 + 1 for left, right in pairwise(boxes))
        assert max(box.y1 for box in boxes) <= axes.get_window_extent().y1
        assert axes.get_legend().get_window_extent().y0 >= axes.get_window_extent().y1
        first = axes.patches[:: len(TASKS)]
        assert len({(to_hex(bar.get_facecolor()), bar.get_hatch()) for bar in first}) == 20

    def test_one_model_has_no_baseline(self):
        (axes,) = plots.sts_bars({"one": dict.fromkeys(TASKS, 50)}).axes
        assert len(axes.patches) == 3
        assert not axes.texts
        assert not axes.collections
        assert to_hex(axes.patches[0].get_facecolor()) == plots.COLOURS[0]

    def test_scores_below_zero_are_seen(self):
        (axes,) = plots.sts_bars({"raw": dict.fromkeys(TASKS, -12.0)}).axes
        assert axes.get_ylim()[0] < -12

    def test_scores_above_100_are_seen(self):
        """The score without labels begins above 100; its bars, distances and the start's line were cut off."""
        scores = {"start": dict.fromkeys(TASKS, 103.5), "trained": {"STS12": 60.0, "STS-B": 110.3, "average": 120.0}}
        figure = plots.sts_bars(scores, measure="score")
        assert figure_is_drawn(figure)
        (axes,) = figure.axes
        assert axes.get_ylim()[1] > 120
        for text in axes.texts:
            assert text.get_window_extent().y1 <= axes.get_window_extent().y1

    @pytest.mark.parametrize("score", [12.0, 99.9, 100.0])
    def test_scores_up_to_100_have_one_scale(self, score):
        (axes,) = plots.sts_bars({"raw": dict.fromkeys(TASKS, score)}).axes
        assert axes.get_ylim() == (0, 100)


class TestDensity:
    def test_each_level_peaks_where_its_cosines_are(self):
        rng = np.random.default_rng(0)
        rows = [rng.normal(mean, 0.05, 200) for mean in (0.2, 0.5, 0.8)]
        figure = plots.density_by_level({"model": rows}, ["low", "middle", "high"])
        (axes,) = figure.axes
        outlines = [line for line in axes.lines if len(line.get_xdata()) > 2][::-1]
        for place, (line, mean) in enumerate(zip(outlines, (0.2, 0.5, 0.8), strict=True)):
            assert line.get_xdata()[line.get_ydata().argmax()] == pytest.approx(mean, abs=0.05)
            assert line.get_ydata().min() == pytest.approx(place, abs=1e-6)
        texts = [text.get_text() for text in axes.texts]
        for row in rows:
            assert f"{row.mean():.2f} / {row.var():.3f}" in texts
        assert figure_is_drawn(figure)

    @pytest.mark.parametrize("row", [np.array([]), np.array([0.7]), np.full(9, 0.7)], ids=["none", "one", "alike"])
    def test_levels_without_a_density(self, row):
        figure = plots.density_by_level({"model": [row, np.linspace(0, 1, 20)]}, ["low", "high"])
        assert figure_is_drawn(figure)

    @pytest.mark.filterwarnings("error")
    def test_cosines_near_one_are_seen(self):
        """A collapsed encoder, alone and beside one that is not."""
        rng = np.random.default_rng(0)
        near = [1 - 1e-5 * rng.random(50) for _ in range(3)]
        wide = [rng.normal(0.3 * i, 0.1, 50) for i in range(3)]
        for cosines in ({"near": near}, {"near": near, "wide": wide}):
            figure = plots.density_by_level(cosines, ["a", "b", "c"])
            outlines = [line.get_ydata() for line in figure.axes[0].lines if len(line.get_xdata()) > 2]
            assert all(np.isfinite(heights).all() and np.ptp(heights) > 0.5 for heights in outlines)
            assert figure_is_drawn(figure)

    def test_density_is_scotts(self):
        values, grid = np.random.default_rng(0).normal(0.3, 0.1, 60), np.linspace(-0.5, 1.1, 300)
        np.testing.assert_allclose(plots._density(values, grid), gaussian_kde(values)(grid), rtol=1e-6, atol=1e-12)


HOSTILE = "a$x^{$"  # to matplotlib the beginning of a formula


def test_names_are_no_formulas():
    log = [{HOSTILE: value, "step": value} for value in (1, 2)]
    maps = {HOSTILE: {"words": plots.Map(np.eye(2), np.array([1, 9]))}}
    for figure in (
        plots.sts_bars({HOSTILE: dict.fromkeys(TASKS, 50)}),
        plots.density_by_level({HOSTILE: [np.linspace(0, 1, 20)]}, ["low"]),
        plots.alignment_uniformity({HOSTILE: (-1.5, 0.2, 52.2)}),
        plots.embedding_maps(maps),
        plots.learning_curves(log),
    ):
        FigureCanvasAgg(figure).draw()


def test_alignment_and_uniformity():
    figure = plots.alignment_uniformity({"raw": (-1.5, 0.2, 52.2), "trained": (-2.9, 0.23, 70.0)})
    axes, bar = figure.axes
    (dots,) = axes.collections
    np.testing.assert_allclose(dots.get_offsets(), [[-1.5, 0.2], [-2.9, 0.23]])
    np.testing.assert_allclose(dots.get_array(), [52.2, 70.0])
    assert [text.get_text() for text in axes.texts] == ["raw (52.2)", "trained (70.0)"]
    assert "Spearman" in bar.get_ylabel()
    assert figure_is_drawn(figure)


class TestMaps:
    @pytest.fixture
    def maps(self):
        rng = np.random.default_rng(0)
        return {
            name: {kind: plots.Map(rng.normal(size=(50, 2)), rng.integers(1, 900, 50)) for kind in ("words", "sentences")}
            for name in ("raw", "trained")
        }

    def test_points_and_colours(self, maps):
        figure = plots.embedding_maps(maps)
        axes = next(axes for axes in figure.axes if axes.get_title("left") == "trained: sentences")
        points, counts = maps["trained"]["sentences"]
        (dots,) = axes.collections
        drawn = {tuple(point): colour for point, colour in zip(dots.get_offsets().tolist(), dots.get_array(), strict=True)}
        assert drawn == {tuple(point): np.log10(count) for point, count in zip(points.tolist(), counts, strict=True)}
        limits = {axes.collections[0].get_clim() for axes in figure.axes if axes.get_title("left").endswith("words")}
        assert len(limits) == 1  # one colour means one frequency in all models
        assert figure_is_drawn(figure)

    def test_a_model_without_words(self, maps):
        del maps["trained"]["words"]
        figure = plots.embedding_maps(maps)
        axes = next(axes for axes in figure.axes if axes.get_title("left") == "trained: words")
        assert [text.get_text() for text in axes.texts] == ["no words of its own"]


class TestCurves:
    LOG = (
        {"loss": 4.0, "arccon": 3.0, "grad_norm": 9.0, "learning_rate": 1e-5, "epoch": 0.1, "step": 1},
        {"loss": 0.02, "arccon": 1.0, "grad_norm": 2.0, "learning_rate": 1e-6, "epoch": 0.5, "step": 5},
        {"eval_dev_spearman_cosine": 0.5, "eval_runtime": 3.0, "eval_samples_per_second": 0.0, "epoch": 0.5, "step": 5},
        {"loss": float("nan"), "epoch": 0.7, "step": 7},
        {"eval_dev_spearman_cosine": 0.7, "eval_runtime": 3.0, "epoch": 1.0, "step": 10},
        {"loss": 5.0, "epoch": 1.0},  # of no update
        {"train_runtime": 9.0, "train_loss": 1.0, "total_flos": 0.0, "epoch": 1.0, "step": 10},
    )

    def test_a_panel_for_each_quantity(self):
        figure = plots.learning_curves(self.LOG)
        curves = {axes.get_title("left"): axes.lines[0].get_xydata().tolist() for axes in figure.axes}
        assert curves == {
            "dev_spearman_cosine": [[5, 0.5], [10, 0.7]],
            "loss": [[1, 4.0], [5, 0.02]],
            "arccon": [[1, 3.0], [5, 1.0]],
        }
        assert [axes.get_yscale() for axes in figure.axes] == ["linear", "log", "linear"]
        assert figure_is_drawn(figure)

    @pytest.mark.parametrize("log", [(), LOG[:1], LOG[-1:]])
    def test_nothing_to_draw(self, log):
        assert plots.learning_curves(log) is None
