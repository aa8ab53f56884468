import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from encoders import project_text
from evaluation_inputs import write_rows, write_sts
from markupsafe import Markup

from sbert_plugins import evaluation, recipes
from sbert_plugins.evaluation import Score, Section, render_page, write_report


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
        if tag not in ("meta", "img", "br", "wbr"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in ("meta", "img", "br", "wbr"):
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        self.texts.append(text)


def pairs(value, name="mine", **changes):
    """A score of 40 pairs with the same differences between pairs for all models."""
    items = value + np.random.default_rng(0).permutation(40) - 19.5
    return {
        name: Score(
            **({"name": name, "values": {"Spearman": value}, "noun": "pairs", "items": items} | changes)
        )
    }


def geometry(alignment=0.2, uniformity=-2.5):
    values = {"alignment": alignment, "uniformity": uniformity}
    return {"geometry": Score("geometry", values, higher_is_better=False)}


def written(folder, models, **options):
    return write_report(models, folder, **options).read_text(encoding="utf-8")


def plain(text):
    return re.sub(r"\s+", " ", " ".join(Page(text.replace("<wbr>", "")).texts))


class TestRenderPage:
    def test_parts_of_a_section(self):
        figure, (axes,) = evaluation.new_figure(2)
        axes.plot([1, 2], label="a")
        sections = [
            Section("Words", ["first <b>", Markup("second <i>x</i>")], ["a point"]),
            Section(
                "Numbers",
                columns=["", "a & b"],
                rows=[["row", "1.0"], ["other", "2.0"], ["a_<long>_name", "3.0"]],
                best={(1, 1)},
                caption="why",
            ),
            Section("Drawing", figure=figure),
        ]
        text = render_page("My <page>", "+16.2 points", sections, footer="Made by me.")
        page = Page(text)
        for part in (
            "My &lt;page&gt;",
            "first &lt;b&gt;",
            "second <i>x</i>",
            "<th>a &amp; b</th>",
            "<tr><th>row</th><td>1.0</td></tr>",
            '<tr><th>other</th><td class="best">2.0</td></tr>',
            "<tr><th>a_<wbr>&lt;long&gt;_<wbr>name</th>",  # breaks instead of reaching into the cells
            "Made by me.",
        ):
            assert part in text
        assert page.tags.count("svg") == page.tags.count("table") == page.tags.count("ul") == 1

    def test_needs_no_other_file_and_has_a_dark_mode(self):
        figure, (axes,) = evaluation.new_figure(2)
        axes.plot([1, 2])
        text = render_page("t", "h", [Section("Drawing", figure=figure)])
        page = Page(text)
        assert not {"script", "link", "iframe"} & set(page.tags)
        assert all(link.startswith(("#", "data:")) for link in page.links)
        assert "prefers-color-scheme: dark" in text
        assert "currentColor" in text  # the axes have the text colour


class TestPage:
    def test_labels_of_all_kinds(self, tiny_encoder, tmp_path):
        # Own pairs, topics and retrieval, the package's pairs, STS and geometry.
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
        ]
        models = {
            pooling: evaluation.measure(tiny_encoder(pooling=pooling), evaluators)
            for pooling in ("cls", "mean")
        }
        text = plain(written(tmp_path / "page", models, facts={"mean": {"pooling": "mean"}}))
        for name, score in models["cls"].items():
            assert f"{name}: {score.metric}" in text
        for change in evaluation.judge_all(models["cls"], models["mean"], against="cls"):
            assert change.sentence in text
        numbers = json.loads((tmp_path / "page" / "report.json").read_text(encoding="utf-8"))
        assert numbers["cls"]["scores"]["mine"] == models["cls"]["mine"].to_dict()
        assert numbers["mean"]["facts"] == {"pooling": "mean"}
        assert numbers["mean"]["changes"][3]["result"] == "too few labels to say"  # one query

    def test_the_headline_is_the_verdict(self, tmp_path):
        models = {
            "start": pairs(62.1) | pairs(40.0, "news"),
            "mine": pairs(78.3) | pairs(40.0, "news"),
            "worse": pairs(50.0) | pairs(39.99, "news"),
        }
        text = plain(written(tmp_path, models))
        assert "mine: better than start on mine (Spearman +16.20); level with start on news (" in text
        assert "worse: worse than start on mine (Spearman -12.10), news" in text
        assert "start: " not in text
        assert "mine: Spearman 62.10." in plain(written(tmp_path, {"start": pairs(62.1)}))

    def test_a_collapsed_model(self, tmp_path):
        models = {"start": geometry(), "flat": geometry(0.001, -0.01)}
        assert "flat has collapsed" in plain(written(tmp_path, models))
        assert "collapsed" not in plain(written(tmp_path, {"start": geometry()}))

    def test_best_is_bold_only_where_higher_is_better(self, tmp_path):
        text = written(tmp_path, {"a": pairs(60.0) | geometry(0.1), "b": pairs(70.0) | geometry(0.3)})
        assert re.search(r'<td>60\.00 ± 1\.8\d</td><td class="best">70\.00 ±', text)
        assert "<tr><th>geometry:<wbr> alignment</th><td>0.1000</td><td>0.3000</td></tr>" in text
        assert 'class="best"' not in written(tmp_path, {"a": pairs(60.0)})

    def test_figures_notes_and_facts(self, tmp_path):
        log = [{"loss": 3.0 / step, "a$b": 1.0, "epoch": 1, "step": step} for step in (1, 2, 3)]
        log += [{"eval_x": 60.0 + step, "eval_runtime": 1, "step": step} for step in (2, 3)]
        noted = pairs(60.0, note="SICK-R is all 9,927 pairs.")
        trained = "trained & <kept>"
        page = written(
            tmp_path,
            {"_start$": noted, trained: noted},
            facts={"_start$": {"pooling": "mean"}, trained: {"text": "mine.txt", "updates": "9"}},
            logs={trained: log},
        )
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
        (axes,) = evaluation.plot_learning_curves(log).axes
        assert axes.get_title("left") == "loss"
        np.testing.assert_array_equal(axes.lines[0].get_xydata(), [[1, 3], [2, 2]])
        assert evaluation.plot_learning_curves(log[:1]) is None

    def test_error_bars(self):
        figure = evaluation.plot_scores(
            {"a": {"x": (1.0, 0.5), "y": (3.0, 0.0)}, "b": {"x": (2.0, 1.0), "y": (1.0, 0.0)}}
        )
        bars = [collection.get_segments() for collection in figure.axes[0].collections]
        assert [[segment[:, 0].tolist() for segment in bar] for bar in bars] == [
            [[0.5, 1.5], [3, 3]],
            [[1, 3], [1, 1]],
        ]
        low, high = sorted(figure.axes[0].get_ylim())
        heights = [segment[0, 1] for bar in bars for segment in bar]
        assert low + 0.1 < min(heights) < max(heights) < high - 0.1  # no dot is cut

    def test_without_matplotlib(self, tmp_path, monkeypatch):
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        text = written(tmp_path, {"a": pairs(60.0)})
        assert "sbert-plugins[plot]" in text
        assert "<svg" not in text

    def test_an_earlier_report_is_replaced_and_another_page_is_not(self, tmp_path):
        for name in ("first", "second"):
            assert f"<th>{name}</th>" in written(tmp_path / "page", {name: pairs(60.0)})
        (tmp_path / "index.html").write_text("mine", encoding="utf-8")
        with pytest.raises(FileExistsError):
            written(tmp_path, {"a": pairs(60.0)})
        assert (tmp_path / "index.html").read_text(encoding="utf-8") == "mine"
