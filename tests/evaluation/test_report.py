import base64
import io
import json
import re
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
from encoders import project_text
from matplotlib.figure import Figure
from PIL import Image
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from test_one_pass import CountingEncoder

from sbert_plugins.evaluation import TASKS, AlignmentUniformityEvaluator, CosineDensityEvaluator, STSSuiteEvaluator, report
from sbert_plugins.evaluation.plots import Map
from sbert_plugins.evaluation.sts import ALL_OF_SICK

LEVELS = ("0 to 1", "1 to 2", "2 to 3", "3 to 4", "4 to 5")


def model_report(name, average=60.0, **changes):
    rng = np.random.default_rng(len(name))
    values = {
        "name": name,
        "sts": {task: average + i for i, task in enumerate((*TASKS, "avg7"))},
        "alignment": 0.2 + average / 1000,
        "uniformity": -average / 20,
        "cosines": {level: rng.normal(0.15 * i, 0.1, 40) for i, level in enumerate(LEVELS)},
        "maps": {kind: Map(rng.normal(size=(30, 2)), rng.integers(1, 50, 30)) for kind in ("words", "sentences")},
    }
    return report.ModelReport(**(values | changes))


class Page(HTMLParser):
    """What a page loads from elsewhere, and its images."""

    def __init__(self, text):
        super().__init__()
        self.sources, self.tags = [], []
        self.feed(text)
        assert not re.search(r"url\(|@import|https?://", re.sub(r'src="data:[^"]*"', "", text))

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.sources += [value for key, value in attributes if key in ("src", "href")]


class TestReportOn:
    @pytest.fixture
    def evaluators(self, tmp_path):
        (tmp_path / "sts").mkdir()
        text = project_text()
        for place, stem in enumerate(("stsb_test", "sts12", "stsb_dev")):
            rows = [f"x\t{i % 6}\t{text[i]}\t{text[30 + 20 * place + i]}\n" for i in range(18)]
            (tmp_path / "sts" / f"{stem}.tsv").write_text("".join(rows), encoding="utf-8")
        return {
            "suite": STSSuiteEvaluator(tmp_path, tasks=["STS12", "STS-B"]),
            "geometry": AlignmentUniformityEvaluator(tmp_path, split="test"),
            "density": CosineDensityEvaluator(tmp_path, split="test"),
        }

    def test_is_what_the_evaluators_say(self, tiny_encoder, evaluators):
        model = tiny_encoder()
        measured = report.report_on(model, "tiny", **evaluators)
        assert measured.sts == pytest.approx(evaluators["suite"](model))
        geometry = evaluators["geometry"](model)
        assert measured.alignment == pytest.approx(geometry["stsb_test_alignment"])
        assert measured.protocol == "STS-B test, positive pairs gold >4, duplicates drop"
        assert measured.uniformity == pytest.approx(geometry["stsb_test_uniformity"])
        density = evaluators["density"](model)
        for level, row in measured.cosines.items():
            assert row.mean() == pytest.approx(density[f"stsb_test_cosine_mean_{level}"], abs=1e-6)

    def test_encodes_each_sentence_once(self, tiny_encoder, evaluators):
        encoder = CountingEncoder(tiny_encoder())
        measured = report.report_on(encoder.model, "tiny", **evaluators)
        (sentences,) = encoder.calls
        assert len(sentences) == len(set(sentences))
        distinct = len(set(evaluators["density"].sentences))
        assert len(measured.maps["sentences"].points) == distinct < len(sentences)

    def test_static_embeddings(self, tiny_encoder, evaluators, tmp_path):
        """Their tokenizer is no callable, and they have no transformer whose input embeddings were words."""
        static = StaticEmbedding(tiny_encoder().tokenizer, embedding_dim=8)
        model = SentenceTransformer(modules=[static], device="cpu")
        measured = report.report_on(model, "static", **evaluators)
        assert list(measured.maps) == ["sentences"]
        assert report.write_report([measured], tmp_path / "page").is_file()

    def test_captions_name_the_split(self, tiny_encoder, evaluators, tmp_path):
        """Alignment's split stands in its protocol; the Spearman in brackets is the suite's, of the test set always."""
        density = CosineDensityEvaluator(tmp_path, split="dev")
        measured = report.report_on(tiny_encoder(), "tiny", **evaluators | {"density": density})
        assert measured.split == "STS-B dev"
        captions = {stem: caption for stem, _, caption, _ in report._figures([measured])}
        assert captions["density"].startswith("STS-B dev.")
        assert "in the sentences of STS-B dev," in captions["frequency"]
        assert "(STS-B test, positive pairs" in captions["alignment_uniformity"]
        numbers = report._numbers([measured])
        assert numbers["models"]["tiny"]["split"] == "STS-B dev"

    def test_which_pairs_of_sick_it_is_of(self):
        all_of_it = model_report("a", caution=ALL_OF_SICK)
        sts = {stem: caption for stem, _, caption, _ in report._figures([all_of_it])}["sts"]
        assert sts == f"{report._STS} {ALL_OF_SICK}"
        assert report._numbers([all_of_it])["models"]["a"]["caution"] == ALL_OF_SICK


class TestPage:
    @pytest.fixture(scope="class")
    @classmethod
    def folder(cls, tmp_path_factory):
        folder = tmp_path_factory.mktemp("report") / "page"
        log = [{"loss": 3.0 / step, "step": step} for step in (1, 2, 3)]
        report.write_report([model_report("raw"), model_report("trained & <kept>", 70.0, log=log)], folder)
        return folder

    def test_files(self, folder):
        stems = ["sts", "density", "alignment_uniformity", "frequency", "learning_1"]
        assert sorted(path.name for path in folder.iterdir()) == sorted(
            ["index.html", "report.json", *(f"{stem}.png" for stem in stems)]
        )

    def test_is_self_contained(self, folder):
        page = Page((folder / "index.html").read_text(encoding="utf-8"))
        assert len(page.sources) == page.tags.count("img") == 5
        assert not {"script", "link", "iframe"} & set(page.tags)

    def test_each_plot_holds_data(self, folder):
        page = Page((folder / "index.html").read_text(encoding="utf-8"))
        for source in page.sources:
            image = Image.open(io.BytesIO(base64.b64decode(source.removeprefix("data:image/png;base64,"))))
            pixels = np.asarray(image.convert("RGB")).reshape(-1, 3)
            assert image.width > 400
            assert (pixels != 255).any(axis=1).mean() > 0.01  # ink, not an empty frame
            assert len(np.unique(pixels @ np.array([1 << 16, 1 << 8, 1]))) > 20  # colours

    def test_table(self, folder):
        text = (folder / "index.html").read_text(encoding="utf-8")
        assert "<th>trained &amp; &lt;kept&gt;</th>" in text
        assert '<tr><th>STS12</th><td>60.00</td><td class="best">70.00</td></tr>' in text
        assert '<tr><th>alignment</th><td class="best">0.260</td><td>0.270</td></tr>' in text

    def test_numbers(self, folder):
        numbers = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        raw = numbers["models"]["raw"]
        assert raw["sts"]["STS12"] == 60.0
        assert raw["uniformity"] == -3.0
        assert raw["levels"]["4 to 5"]["pairs"] == 40
        assert raw["levels"]["4 to 5"]["mean"] == pytest.approx(0.6, abs=0.06)

    def test_no_bold_alignment_for_a_collapsed_model(self, tmp_path):
        reports = [model_report("raw"), model_report("flat", alignment=0.001, uniformity=-0.01)]
        text = report.write_report(reports, tmp_path).read_text(encoding="utf-8")
        assert '<tr><th>alignment</th><td class="best">0.260</td><td>0.001</td></tr>' in text
        assert "Collapsed: flat." in text
        text = report.write_report([model_report("a"), model_report("b")], tmp_path).read_text(encoding="utf-8")
        assert "Collapsed:" not in text

    def test_says_what_is_compared_and_what_the_numbers_mean(self, tmp_path):
        origin = {"pooling": "cls", "text": "mine <1>.txt, 30 sentences", "updates": "9", "date": "2026-01-02"}
        reports = [model_report("raw", origin={"pooling": "mean"}), model_report("mine", origin=origin)]
        text = report.write_report(reports, tmp_path).read_text(encoding="utf-8")
        assert "<tr><th>pooling</th><td>mean</td><td>cls</td></tr>" in text
        assert "<tr><th>text</th><td></td><td>mine &lt;1&gt;.txt, 30 sentences</td></tr>" in text
        for word in ("alignment", "uniformity", "pooling", "update", "average"):
            assert f"<dt>{word}</dt>" in text
        numbers = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
        assert numbers["models"]["mine"]["origin"] == origin

    def test_a_name_that_looks_like_a_formula(self, tmp_path):
        log = [{"a$x^{$": 1.0, "step": 1}, {"a$x^{$": 2.0, "step": 2}, {"loss": 1.0}]
        text = report.write_report([model_report("a$x^{$", log=log)], tmp_path).read_text(encoding="utf-8")
        assert "Learning curves of a$x^{$" in text

    def test_an_earlier_report_is_replaced(self, tmp_path):
        (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
        for name in ("first", "second"):
            page = report.write_report([model_report(name)], tmp_path)
        assert "<th>second</th>" in page.read_text(encoding="utf-8")
        assert (tmp_path / "notes.txt").read_text(encoding="utf-8") == "mine"

    def test_one_model(self, tmp_path):
        page = report.write_report([model_report("one")], tmp_path)
        assert page == tmp_path / "index.html"
        assert "dashed" not in page.read_text(encoding="utf-8")


class TestBadInput:
    def test_names(self, tmp_path):
        for reports in ([], [model_report("a"), model_report("a")]):
            with pytest.raises(ValueError, match="at least one model and each under a name of its own"):
                report.write_report(reports, tmp_path)

    @pytest.mark.parametrize("place", ["taken", "taken/page/below"])
    def test_a_file_in_the_way(self, tmp_path, place):
        (tmp_path / "taken").write_text("mine", encoding="utf-8")
        with pytest.raises(ValueError, match=r"must be a folder or not exist yet, got .*: .*taken is a file"):
            report.write_report([model_report("a")], tmp_path / place)

    @pytest.mark.parametrize(
        "files",
        [
            {"index.html": "mine"},
            {"report.json": "mine"},
            {"report.json": "[1]"},
            {"index.html": "mine", "report.json": '{"models": {}, "versions": {"numpy": "2"}}'},
            {"index.html": "of a comparison", "start.json": "{}"},
            {"start.json": "{}", "report.json": '{"models": {}, "versions": {"sbert-plugins": "1"}}'},
        ],
    )
    def test_a_page_of_something_else_is_kept(self, tmp_path, files):
        for name, text in files.items():
            (tmp_path / name).write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=f"must hold no page or picture but .* got .* with {min(files)}.*name another"):
            report.write_report([model_report("a")], tmp_path)
        assert {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()} == files

    def test_scores(self, tmp_path):
        with pytest.raises(ValueError, match="scores of a must be finite, got NaN or infinity for uniformity"):
            report.write_report([model_report("a", uniformity=float("nan"))], tmp_path)

    @pytest.mark.parametrize("tasks", [{"STS-B": 80.0}, {"SICK-R": 80.0, "average": 80.0}])
    def test_other_tasks(self, tmp_path, tasks):
        with pytest.raises(ValueError, match="sts must have STS-B, and the same tasks in all reports, got .* of b"):
            report.write_report([model_report("a"), model_report("b", sts=tasks)], tmp_path)
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize("key", ["protocol", "split", "caution"])
    def test_measured_in_two_ways(self, tmp_path, key):
        reports = [model_report("a"), model_report("b", **{key: "STS-B dev"})]
        with pytest.raises(ValueError, match=f"the {key} of all reports must be the same, got .* of a and 'STS-B dev' of b"):
            report.write_report(reports, tmp_path / "page")
        assert not (tmp_path / "page").exists()

    def test_an_empty_plot(self):
        figure = Figure()
        figure.subplots().set_title("nothing", loc="left")
        with pytest.raises(ValueError, match=r"a plot has nothing to show: \['nothing'\]"):
            report.png(figure)

    def test_without_matplotlib(self, tmp_path, monkeypatch):
        for name in [name for name in sys.modules if name.startswith(("matplotlib", "sbert_plugins.evaluation.plots"))]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.delattr("sbert_plugins.evaluation.plots", raising=False)
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        with pytest.raises(ModuleNotFoundError, match=r'matplotlib is not installed: pip install "sbert-plugins\[plot\]"'):
            report.write_report([model_report("a")], tmp_path)
        with pytest.raises(ModuleNotFoundError, match="matplotlib is not installed"):
            report.report_on(None, "before anything is encoded", suite=None, geometry=None, density=None)


class TestMaps:
    def test_a_cone_lies_on_one_side(self):
        rng = np.random.default_rng(0)
        cone = rng.normal(size=(200, 16)) + 5 * np.eye(16)[3]
        points, counts = report.embedding_map(cone, np.arange(200))
        assert (points[:, 0] > 0).all()
        np.testing.assert_array_equal(counts, np.arange(200))
        values = np.linalg.svd(cone, compute_uv=False)
        np.testing.assert_allclose(np.linalg.norm(points, axis=0), values[:2])

    def test_counts_of_words_and_sentences(self, tiny_encoder):
        model = tiny_encoder()
        sentences = ["a a b", "a b", "c"]
        ids = [model.tokenizer(letter, add_special_tokens=False)["input_ids"] for letter in "abc"]
        assert all(len(row) == 1 for row in ids)
        maps = report.frequency_maps(model, sentences, np.eye(3, 8))
        np.testing.assert_array_equal(maps["words"].counts, [3, 2, 1])
        np.testing.assert_allclose(maps["sentences"].counts, [18 ** (1 / 3), 6**0.5, 1])
        assert maps["words"].points.shape == (3, 2)

    def test_a_model_without_input_embeddings(self, tiny_encoder):
        model = tiny_encoder()
        model[0].model.get_input_embeddings = lambda: None
        assert list(report.frequency_maps(model, ["a", "b"], np.eye(2, 8))) == ["sentences"]


def test_the_log_and_the_origin_are_kept(tiny_encoder, tmp_path):
    (tmp_path / "sts").mkdir()
    text, log = project_text(), [{"loss": 3.0, "step": 1}]
    rows = [f"x\t{i % 6}\t{text[i]}\t{text[30 + i]}\n" for i in range(18)]
    (tmp_path / "sts" / "stsb_test.tsv").write_text("".join(rows), encoding="utf-8")
    evaluators = {
        "suite": STSSuiteEvaluator(tmp_path, tasks=["STS-B"]),
        "geometry": AlignmentUniformityEvaluator(tmp_path, split="test"),
        "density": CosineDensityEvaluator(tmp_path, split="test"),
    }
    measured = report.report_on(tiny_encoder(), "tiny", **evaluators, log=log, origin={"updates": "60"})
    assert (measured.log, measured.origin) == (log, {"updates": "60"})


def test_each_number_stands_on_its_own_axis():
    models = [model_report("raw"), model_report("trained", 70.0)]
    figure = {stem: figure for stem, _, _, figure in report._figures(models)}["alignment_uniformity"]
    axes = figure.axes[0]
    points = [(model.uniformity, model.alignment) for model in models]
    np.testing.assert_allclose(axes.collections[0].get_offsets(), points)
    assert axes.get_xlabel().startswith("uniformity")
    assert [text.get_text() for text in axes.texts] == [f"{model.name} ({model.sts['STS-B']:.1f})" for model in models]


def test_mean_and_variance_of_levels(tmp_path):
    model = model_report("raw")
    report.write_report([model], tmp_path)
    levels = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["models"]["raw"]["levels"]
    for level, row in model.cosines.items():
        assert levels[level] == {"pairs": 40, "mean": pytest.approx(row.mean()), "variance": pytest.approx(row.var())}


@pytest.mark.parametrize(("uniformity", "has_collapsed"), [(-0.05, True), (-0.39, True), (-0.41, False)])
def test_collapsed(uniformity, has_collapsed):
    """Two random sentences at a squared distance of .2, a cosine of .9."""
    assert model_report("a", uniformity=uniformity).has_collapsed is has_collapsed


def test_maps_are_of_directions(tiny_encoder):
    model, vectors = tiny_encoder(), np.random.default_rng(0).normal(size=(3, 8))
    scaled = vectors * [[1], [30], [0.1]]
    first, second = (report.frequency_maps(model, ["a a b", "a b", "c"], of)["sentences"] for of in (vectors, scaled))
    np.testing.assert_allclose(first.points, second.points)
