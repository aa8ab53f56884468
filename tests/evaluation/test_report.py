import io
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from encoders import project_text
from evaluation_inputs import write_rows, write_sts
from markupsafe import Markup
from PIL import Image
from scipy.stats import spearmanr

from sbert_plugins import data, evaluation, recipes
from sbert_plugins.evaluation import Section, render_page, score_model, write_report
from sbert_plugins.evaluation.report import EvaluatorScores, ModelScores, bootstrap_spearman


class Page(HTMLParser):
    """The tags, texts and links of a page. Raises for tags that are not closed."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.links, self.texts, self.open = [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.links += [value for name, value in attributes if name in ("src", "href", "xlink:href")]
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in ("meta", "img", "br"):
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        self.texts.append(text)


def scores(values, samples=(), *, kind="Semantic Textual Similarity", note="", **kinds):
    return EvaluatorScores(
        kind, values, dict(samples), **{"in_points": True, "is_averaged": True, **kinds}, note=note
    )


def pairs(value, spread=1.0):
    """Scores of graded pairs whose bootstrap samples differ by the same random numbers for all models."""
    return scores(
        {"Spearman": value}, {"Spearman": value + spread * np.random.default_rng(0).normal(size=300)}
    )


def geometry(alignment=0.2, uniformity=-2.5):
    return scores(
        {"alignment": alignment, "uniformity": uniformity},
        kind="Geometry",
        in_points=False,
        is_averaged=False,
    )


def topics(value):
    return scores({"v-measure": value, "purity@10": value}, kind="Topics")


def model(name, log=(), origin=None, **groups):
    return ModelScores(name, groups, log, origin or {})


def written(folder, *models):
    return write_report(models, folder).read_text(encoding="utf-8")


def plain(text):
    return re.sub(r"\s+", " ", " ".join(Page(text).texts))


class TestRenderPage:
    def test_parts_of_a_section(self):
        figure, (axes,) = evaluation.new_figure(2)
        axes.plot([1, 2], label="a")
        picture = io.BytesIO()
        Image.new("RGB", (4, 4)).save(picture, "png")
        sections = [
            Section("Words", ["first <b>", Markup("second <i>x</i>")], ["a point"]),
            Section(
                "Numbers",
                columns=["", "a & b"],
                rows=[["row", "1.0"], ["other", "2.0"]],
                best={(1, 1)},
                caption="why",
            ),
            Section("Drawing", figure=figure),
            Section("Picture", figure=picture.getvalue()),
        ]
        text = render_page("My <page>", "+16.2 points", sections, footer="Made by me.")
        page = Page(text)
        assert "first &lt;b&gt;" in text
        assert "second <i>x</i>" in text
        assert "<th>a &amp; b</th>" in text
        assert "<tr><th>row</th><td>1.0</td></tr>" in text
        assert '<tr><th>other</th><td class="best">2.0</td></tr>' in text
        assert (
            page.tags.count("svg")
            == page.tags.count("img")
            == page.tags.count("table")
            == page.tags.count("ul")
            == 1
        )
        assert "My &lt;page&gt;" in text
        assert "Made by me." in text

    def test_needs_no_other_file_and_has_a_dark_mode(self):
        figure, (axes,) = evaluation.new_figure(2)
        axes.plot([1, 2])
        text = render_page("t", "h", [Section("Drawing", figure=figure)])
        page = Page(text)
        assert not {"script", "link", "iframe"} & set(page.tags)
        assert all(link.startswith(("#", "data:")) for link in page.links)
        assert "prefers-color-scheme: dark" in text
        assert "currentColor" in text  # the axes have the text colour


class TestScoreModel:
    def test_labels_of_all_kinds(self, tiny_encoder, wordnet, tmp_path):
        """Own pairs, topics and retrieval, the package's pairs, STS, geometry and the label-free score."""
        text = project_text()
        write_sts(tmp_path / "data")
        write_rows(tmp_path / "mine.tsv", *((i % 5, text[i], text[i + 20]) for i in range(20)))
        write_rows(tmp_path / "topics.tsv", *((i % 2, text[i]) for i in range(30)))
        write_rows(tmp_path / "search" / "queries.tsv", ("q", text[0]))
        write_rows(tmp_path / "search" / "corpus.tsv", *((i, text[i]) for i in range(1, 20)))
        write_rows(tmp_path / "search" / "qrels.tsv", ("q", 3, 1))
        evaluators = [
            evaluation.STSSuiteEvaluator(tmp_path / "data", name="STS"),
            evaluation.own_pairs(tmp_path / "mine.tsv"),
            evaluation.own_topics(tmp_path / "topics.tsv"),
            evaluation.own_retrieval(tmp_path / "search"),
            evaluation.PairsEvaluator(recipes.graded_pairs(), name="graded pairs"),
            evaluation.AlignmentUniformityEvaluator(tmp_path / "data"),
            evaluation.LabelFreeEvaluator(
                data.label_free_texts(text[:150], text=text[150:]), name="own sentences"
            ),
        ]
        models = [
            score_model(tiny_encoder(pooling=pooling), evaluators, name=pooling, origin={"pooling": pooling})
            for pooling in ("cls", "mean")
        ]
        first = models[0].scores
        expected = evaluation.evaluate(tiny_encoder(pooling="cls"), evaluators)
        assert list(first) == [evaluator.name for evaluator in evaluators]
        assert first["STS"].values["average"] == pytest.approx(expected["STS"]["avg7"])
        assert list(first["STS"].values) == ["average", *evaluation.TASKS]
        assert set(first["STS"].samples) == {"average", *evaluation.TASKS}
        assert first["search"].values["nDCG@10"] == pytest.approx(100 * expected["search"]["cosine_ndcg@10"])
        averaged = [name for name, group in first.items() if group.is_averaged]
        assert averaged == ["STS", "mine", "topics", "search", "graded pairs"]
        text = plain(written(tmp_path / "page", *models))
        assert "over 5 scores compared with cls" in text
        for name in first:
            assert f"{name}: {first[name].main}" in text
        numbers = json.loads((tmp_path / "page" / "report.json").read_text(encoding="utf-8"))
        assert numbers["cls"]["scores"]["mine"]["Spearman"] == first["mine"].values["Spearman"]
        assert numbers["mean"]["origin"] == {"pooling": "mean"}

    def test_an_evaluator_from_elsewhere_is_shown_but_not_averaged(self, tiny_encoder):
        from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

        text = project_text()
        other = EmbeddingSimilarityEvaluator(
            text[:5], text[5:10], [0, 0.2, 0.4, 0.6, 1], name="other", write_csv=False
        )
        found = score_model(tiny_encoder(), [other], name="tiny").scores["other"]
        assert list(found.values) == ["spearman_cosine"]
        assert not found.in_points


class TestBootstrap:
    def test_covers_the_true_correlation(self):
        """About 19 of 20 intervals contain the Spearman correlation of the distribution."""
        rng = np.random.default_rng(1)
        population = rng.normal(size=(200_000, 2)) @ np.array([[1, 0.6], [0, 0.8]])
        true, hits = 100 * spearmanr(*population.T).statistic, 0
        for _ in range(20):
            x, y = population[rng.integers(len(population), size=200)].T
            low, high = np.percentile(bootstrap_spearman(x, y), [2.5, 97.5])
            hits += low < true < high
        assert hits >= 17

    def test_models_are_compared_on_the_same_samples(self):
        rng = np.random.default_rng(0)
        grades = rng.normal(size=300)
        first = grades + rng.normal(size=300)
        second = first + 0.05 * rng.normal(size=300)
        one, other = bootstrap_spearman(first, grades), bootstrap_spearman(second, grades)
        assert np.std(one - other) < 0.2 * np.std(one)


class TestVerdicts:
    @pytest.mark.parametrize(
        ("before", "after", "word"),
        [
            (pairs(60.0), pairs(62.0), "better, +2.0 Spearman"),
            (pairs(60.0), pairs(57.0), "worse, -3.0 Spearman"),
            (pairs(60.0, spread=1), pairs(60.5, spread=5), "no clear difference, +0.5 Spearman"),
            (topics(60.0), topics(60.4), "about the same, +0.4 v-measure"),
            (topics(60.0), topics(61.0), "higher, +1.0 v-measure"),
            (topics(60.0), topics(59.0), "lower, -1.0 v-measure"),
            (
                geometry(0.2, -2.5),
                geometry(0.1, -2.0),
                "alignment 0.100 instead of 0.200, uniformity -2.000 instead of",
            ),
        ],
    )
    def test_each_kind(self, tmp_path, before, after, word):
        text = plain(written(tmp_path, model("start", mine=before), model("trained", mine=after)))
        assert f"{after.kind} (mine): {word}" in text

    def test_headline(self, tmp_path):
        start = model("start", mine=pairs(62.1), geometry=geometry())
        trained = model("trained", mine=pairs(78.3), geometry=geometry())
        worse = model("worse", mine=pairs(50.0), geometry=geometry())
        text = plain(written(tmp_path, start, trained))
        assert (
            "trained: +16.2 points on mine compared with start (78.3 instead of 62.1; 95% interval +16.2 to "
            in text
        )
        assert "trained, the best of 2 models: +16.2" in plain(written(tmp_path, start, worse, trained))
        assert "start: 62.1 points on mine." in plain(written(tmp_path, start))
        two = [
            model(name, mine=pairs(value), news=topics(2 * value)) for name, value in (("a", 20), ("b", 30))
        ]
        assert "b: +15.0 points on average over 2 scores compared with a (45.0 instead of 30.0)." in plain(
            written(tmp_path, *two)
        )

    def test_a_collapsed_model(self, tmp_path):
        reports = [model("start", g=geometry()), model("flat", g=geometry(0.001, -0.01))]
        assert "flat has collapsed" in plain(written(tmp_path, *reports))
        assert "collapsed" not in plain(written(tmp_path, reports[0]))


class TestPage:
    def test_best_is_bold_only_where_higher_is_better(self, tmp_path):
        text = written(
            tmp_path,
            model("a", mine=pairs(60.0), g=geometry(0.1)),
            model("b", mine=pairs(70.0), g=geometry(0.3)),
        )
        assert re.search(r'<td>60\.00 ±[\d.]+</td><td class="best">70\.00 ±', text)
        assert "<tr><th>g: alignment</th><td>0.100</td><td>0.300</td></tr>" in text
        assert 'class="best"' not in written(tmp_path, model("a", mine=pairs(60.0)))

    def test_figures_notes_and_origins(self, tmp_path):
        log = [{"loss": 3.0 / step, "a$b": 1.0, "epoch": 1, "step": step} for step in (1, 2, 3)]
        log += [{"eval_x": 60.0 + step, "eval_runtime": 1, "step": step} for step in (2, 3)]
        noted = scores({"average": 60.0}, note="SICK-R is all 9,927 pairs.")
        start = model("_start$", mine=noted, origin={"pooling": "mean"})
        trained = model("trained & <kept>", mine=noted, log=log, origin={"text": "mine.txt", "updates": "9"})
        page = written(tmp_path, start, trained)
        assert Page(page).tags.count("svg") == 2  # the scores and the training
        assert "SICK-R is all 9,927 pairs." in page
        assert "trained &amp; &lt;kept&gt;" in page
        assert "<tr><th>updates</th><td></td><td>9</td></tr>" in page

    def test_learning_curves(self):
        log = [
            {"loss": 3.0, "step": 1},
            {"loss": 2.0, "step": 2},
            {"eval_x": 1.0, "step": 2},
            {"train_loss": 1, "step": 2},
        ]
        figure = evaluation.plot_learning_curves(log)
        (axes,) = figure.axes
        assert axes.get_title("left") == "loss"
        np.testing.assert_array_equal(axes.lines[0].get_xydata(), [[1, 3], [2, 2]])
        assert evaluation.plot_learning_curves(log[:1]) is None

    def test_error_bars(self):
        figure = evaluation.plot_scores(
            {
                "a": {"x": (1.0, 0.5, 2.0), "y": (3.0, 3.0, 3.0)},
                "b": {"x": (2.0, 1.0, 4.0)} | {"y": (1.0,) * 3},
            }
        )
        bars = [collection.get_segments() for collection in figure.axes[0].collections]
        assert [[segment[:, 0].tolist() for segment in bar] for bar in bars] == [
            [[0.5, 2], [3, 3]],
            [[1, 4], [1, 1]],
        ]

    def test_without_matplotlib(self, tmp_path, monkeypatch):
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        text = written(tmp_path, model("a", mine=pairs(60.0)))
        assert "sbert-plugins[plot]" in text
        assert "<svg" not in text

    def test_an_earlier_report_is_replaced_and_another_page_is_not(self, tmp_path):
        for name in ("first", "second"):
            assert f"<th>{name}</th>" in written(tmp_path / "page", model(name, mine=pairs(60.0)))
        (tmp_path / "index.html").write_text("mine", encoding="utf-8")
        with pytest.raises(FileExistsError):
            written(tmp_path, model("a", mine=pairs(60.0)))
        assert (tmp_path / "index.html").read_text(encoding="utf-8") == "mine"

    def test_names_must_differ(self, tmp_path):
        with pytest.raises(ValueError, match="name"):
            written(tmp_path, model("a", mine=pairs(60.0)), model("a", mine=pairs(60.0)))
