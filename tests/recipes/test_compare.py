"""A comparison in small: it goes through, goes on, refuses, and shows one number everywhere."""

import json
import re
import shutil
import sys

import pytest
import torch
from datasets import Dataset
from encoders import project_text
from filelock import FileLock
from recipe_inputs import anchors, quick

from sbert_plugins import evaluation, recipes, training
from sbert_plugins.encoder import apply_mask_template
from sbert_plugins.recipes.compare_page import _nearest, _plots, _setting, _settings, _table, _what
from sbert_plugins.recipes.summary import shown, summarise

MODULE = sys.modules["sbert_plugins.recipes.compare"]


def pairs(step=12):
    return evaluation.ScoredPairs(*(values[::step] for values in recipes.graded_pairs()))


def evaluators():
    text = project_text()[100:140]
    topics = [sentence.split()[0] in ("The", "A") for sentence in text]
    queries, corpus = {"a": text[0], "b": text[1]}, {str(i): sentence for i, sentence in enumerate(text[2:])}
    return [
        evaluation.PairsEvaluator(pairs(), name="mine", write_csv=False),
        evaluation.TopicsEvaluator(text, topics, name="kinds", n_init=2, write_csv=False),
        evaluation.RetrievalEvaluator(queries, corpus, {"a": {"0"}, "b": {"3"}}, name="search", write_csv=False),
    ]


def compare(folder, encoder, methods=("simcse", "consert"), text=None, **changes):
    """Compare SimCSE with ConSERT, or what else is asked for."""
    given = {"seeds": 1, "settings": quick(max_steps=2, eval_steps=1), "output": folder / "out", "model": encoder}
    text = anchors(24) if text is None else text
    return recipes.compare(methods, text, **({"evaluators": evaluators()} | given | changes))


@pytest.fixture
def run(tiny_encoder, tmp_path):
    return lambda **changes: compare(tmp_path, tiny_encoder, **changes)


@pytest.fixture
def without_page(monkeypatch):
    """The page takes longer than a training of two updates."""
    monkeypatch.setattr(MODULE, "write_page", lambda output, *_, **__: output / "index.html")


def records(folder):
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*_seed*.json"))}


@pytest.fixture
def trainings(monkeypatch):
    """The methods that are really trained."""
    names, train = [], MODULE.train
    monkeypatch.setattr(MODULE, "train", lambda method, *a, **k: names.append((method, k["resume"])) or train(method, *a, **k))
    return names


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("compared")


@pytest.fixture(scope="module")
def result(tiny_encoder, folder):
    return compare(folder, tiny_encoder, seeds=2, dev=pairs(15))


class TestNumbers:
    def test_one_number_everywhere(self, result, folder):
        page = (folder / "out" / "index.html").read_text(encoding="utf-8")
        cells = records(folder / "out")
        assert list(cells) == ["consert_seed0", "consert_seed1", "simcse_seed0", "simcse_seed1"]
        start = json.loads((folder / "out" / "start.json").read_text(encoding="utf-8"))["scores"]
        titles = ["mine: Spearman", "kinds: v-measure", "search: MAP"]
        assert list(start)[:3] == titles
        assert len(start) == 7
        for cell in (*cells.values(), {"scores": start}):
            for title, score in cell["scores"].items():
                assert f"<td>{shown(score)}</td>" in page, title
        for cell in cells.values():
            assert [point["step"] for point in cell["curve"]] == [1, 2]
            best = max(cell["curve"], key=lambda point: point["STS-B dev"])["step"]
            assert cell["saved_update"] == best
            assert f"<td>{cell['seconds']:.1f}</td><td>{'2' if best == 2 else '2 (saved: 1)'}</td><td>24</td>" in page
            for point in cell["curve"]:
                assert f"<td>{shown(point['STS-B dev'])}</td>" in page
        for row in result.rows:
            of_method = [cell["scores"] for cell in cells.values() if cell["name"] == row.method]
            for title in start:
                assert row.scores[title].mean == pytest.approx(sum(scores[title] for scores in of_method) / 2)
                assert re.search(f">{re.escape(shown(row.scores[title]))}</td>", page)
        printed = {line[0]: line for line in result.table}
        assert printed["consert"][2] == shown(result.rows[1].scores[titles[0]])
        assert printed["consert"][3] == shown(result.rows[1].differences[titles[0]], sign=True)
        assert f"<td>{printed['consert'][3]}</td>" in page

    def test_the_page_needs_no_other_file(self, result):
        page = result.page.read_text(encoding="utf-8")
        assert result.page.name == "index.html"
        assert not re.search(r"url\(|@import|https?://", re.sub(r'src="data:[^"]*"', "", page))
        for word in ("2 methods, 2 seeds each", "cls pooling", "<h2>Learning curves of simcse</h2>", "learning_rate"):
            assert word in page, word
        assert page.count("<ol>") == 30  # ten sentences, start and two methods

    def test_the_machines_of_all_seeds_are_named(self, result, folder):
        start = json.loads((folder / "out" / "start.json").read_text(encoding="utf-8"))
        here, there = list(records(folder / "out").values())[:2]
        cells = {"consert": [here, there | {"hardware": "another machine"}]}
        assert f"<td>{here['hardware']}, another machine</td>" in _settings(start, cells)

    def test_a_comparison_that_went_on_with_another_version_says_so(self, result, folder):
        """Its cells are finished and not made again, and the versions at the foot of the page are those of today."""
        start = json.loads((folder / "out" / "start.json").read_text(encoding="utf-8"))
        here, there = list(records(folder / "out").values())[:2]
        was = here["versions"]["transformers"]
        cells = {"consert": [here, there | {"versions": there["versions"] | {"transformers": "0.0"}}]}
        assert f"<tr><th>transformers</th><td>{was}, 0.0</td></tr>" in _settings(start, cells)
        note = f" Made with several versions, whose differences are in the numbers, too: transformers {was}, 0.0."
        assert _what(start, cells, "sentences").endswith(note)
        assert "several versions" not in _what(start, {"consert": [here, there]}, "sentences")

    def test_a_score_is_that_of_the_saved_model(self, result, folder):
        model = recipes.build_encoder(str(folder / "out" / "simcse_seed1" / "model"), device="cpu")
        assert recipes.score(model, pairs()) == records(folder / "out")["simcse_seed1"]["scores"]["mine: Spearman"]

    def test_the_record_says_where_it_comes_from(self, result, folder):
        for record in records(folder / "out").values():
            assert {"settings", "seed", "versions", "commit", "hardware", "scores", "seconds", "text", "encoder"} <= set(
                record
            )
            assert "NaN" not in json.dumps(record)
        assert not [*(folder / "out").glob("*/checkpoints")]


@pytest.mark.usefixtures("without_page")
@pytest.mark.parametrize("hub", [False, True])
def test_the_sentences_of_the_tasks_are_from_where_the_tasks_are(run, monkeypatch, hub):
    asked = []
    monkeypatch.setattr(MODULE, "read_text", lambda text, **how: asked.append((text, how["hub"])) or anchors(24))
    run(text="sts-sentences", methods=["simcse"], **({"hub": True} if hub else {}))
    assert asked == [("sts-sentences", hub)]


@pytest.mark.usefixtures("without_page")
class TestGoesOn:
    def test_after_a_kill_in_the_second_cell(self, run, tmp_path, monkeypatch, trainings):
        """Between two checkpoints; the end is that of a comparison that nobody killed."""
        step = training.SentenceTransformerTrainer.training_step

        def killed(trainer, *arguments):
            if trainer.state.global_step == 1 and "consert" in str(trainer.args.output_dir):
                raise KeyboardInterrupt
            return step(trainer, *arguments)

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(training.SentenceTransformerTrainer, "training_step", killed)
            run()
        assert list(records(tmp_path / "out")) == ["simcse_seed0"]
        run()
        assert trainings == [("simcse", False), ("consert", False), ("consert", True)]
        whole = tmp_path / "whole"
        run(output=whole)
        for name, record in records(whole).items():
            assert records(tmp_path / "out")[name]["scores"] == record["scores"], name
        assert records(tmp_path / "out")["consert_seed0"]["seconds"] is None  # those before the kill are lost

    def test_after_a_kill_before_the_first_checkpoint(self, run, tmp_path, monkeypatch, trainings):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(
                training.SentenceTransformerTrainer, "training_step", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
            )
            run(methods=["simcse"])
        assert (tmp_path / "out" / "simcse_seed0" / "run.json").exists()
        run(methods=["simcse"])
        assert trainings == [("simcse", False), ("simcse", False)]

    def test_after_a_kill_while_a_folder_was_removed(self, run, tmp_path, monkeypatch, trainings, without_page):
        """Of what is half removed nothing is in the way, whatever went first."""
        again = {"methods": ["simcse"], "force": True, "keep_models": True, "settings": quick(max_steps=3, eval_steps=1)}
        run(methods=["simcse"], keep_models=True)
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr("shutil.rmtree", _only_once(shutil.rmtree))
            run(**again)
        assert (tmp_path / "out" / "simcse_seed0.tmp" / "run.json").exists()
        run(**again)
        assert len(trainings) == 2
        assert not list((tmp_path / "out").glob("*.tmp"))

    def test_what_a_later_call_leaves_out_is_said(self, run, without_page):
        said = []
        run(methods=["simcse"], seeds=2)
        run(methods=["simcse"], seeds=1, report=said.append)
        assert [line for line in said if "not on this page, for this call does not name them: simcse_seed1." in line]

    def test_after_a_kill_while_it_was_scored(self, run, tmp_path, monkeypatch, trainings):
        expected = run(methods=["simcse"], output=tmp_path / "whole").rows[0].scores
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(MODULE, "neighbours_of", _only_once(MODULE.neighbours_of))
            run(methods=["simcse"])
        assert run(methods=["simcse"]).rows[0].scores == expected
        assert len(trainings) == 2  # one for each directory: the killed one was not trained again

    def test_a_second_time_and_with_more_methods(self, run, trainings):
        first = run()
        again = run(methods=["simcse", "consert", "simcse:temperature=0.1"], seeds=[0])
        assert trainings == [("simcse", False), ("consert", False), ("simcse", False)]
        assert again.rows[:2] == first.rows

    def test_records_of_an_earlier_version(self, run, tmp_path, trainings):
        """They lack settings that came later, and were trained with what these are by default."""
        first = run(methods=["simcse"])
        path = tmp_path / "out" / "simcse_seed0.json"
        record = json.loads(path.read_text())
        for key in ("learning_rate_schedule", "learning_rate_warmup", "weight_decay", "patience"):
            del record["settings"][key]
        path.write_text(json.dumps(record))
        assert run(methods=["simcse"]).rows == first.rows
        assert len(trainings) == 1


def _only_once(function):
    called = []

    def once(*arguments, **keywords):
        if called:
            raise KeyboardInterrupt
        called.append(1)
        return function(*arguments, **keywords)

    return once


@pytest.mark.usefixtures("without_page")
class TestRefuses:
    @pytest.mark.parametrize(
        ("change", "named"),
        [
            ({"settings": quick(max_steps=2, eval_steps=1, learning_rate=0.5)}, r"learning_rate 0.0001 \(now 0.5\)"),
            ({"text": anchors(23)}, r"sentences 24 \(now 23\), text None \[\w{16}\] \(now None \[\w{16}\]\)"),
            ({"evaluators": evaluators()[:1]}, r"scored_on mine, kinds, search \[\w+\] \(now mine \[\w+\]\)"),
            ({"dev": pairs()}, r"dev None \(now STS-B dev \[\w+\]\)"),
        ],
        ids=["settings", "text", "labels", "choice"],
    )
    def test_cells_that_were_made_otherwise(self, run, tmp_path, trainings, change, named):
        run(methods=["simcse"])
        before = records(tmp_path / "out")
        with pytest.raises(ValueError, match=rf"simcse_seed0 was made with {named}.*--force"):
            run(methods=["simcse"], **change)
        assert len(trainings) == 1
        assert records(tmp_path / "out") == before

    def test_another_text_beside_cells_that_are_not_asked_for(self, run, tiny_encoder, tmp_path, trainings):
        run(methods=["simcse"])
        start = (tmp_path / "out" / "start.json").read_bytes()
        with pytest.raises(ValueError, match=r"out holds simcse_seed0, made with text None .*--force"):
            run(methods=["arccse"], text=anchors(23))
        with pytest.raises(ValueError, match=r"out holds simcse_seed0, made with pooling cls \(now mean\)|encoder's pooling"):
            run(methods=["arccse"], model=lambda: tiny_encoder(pooling="mean"))
        assert (tmp_path / "out" / "start.json").read_bytes() == start
        run(methods=["arccse"], text=anchors(23), force=True)
        assert [name for name, _ in trainings] == ["simcse", "arccse"]

    def test_a_cell_that_was_made_where_wordnet_is_not(self, run, tmp_path, wordnet, monkeypatch):
        with monkeypatch.context() as patch:
            patch.setattr("nltk.data.path", [])
            run(methods=["paser"])
        assert records(tmp_path / "out")["paser_seed0"]["prepared"]["synonyms"] is None
        with pytest.raises(ValueError, match=r"paser_seed0 was made with columns with synonyms None \(now 0.5\)"):
            run(methods=["paser"])

    def test_unless_it_is_forced(self, run, tmp_path, trainings):
        run()
        changed = quick(max_steps=1, eval_steps=1)
        run(settings=changed, force=True)
        assert len(trainings) == 4
        assert {record["steps"] for record in records(tmp_path / "out").values()} == {1}
        run(settings=changed, force=True)  # what is as it is asked for stays
        assert len(trainings) == 4

    def test_other_labels_need_no_other_training(self, run, tmp_path, trainings):
        run(methods=["simcse"])
        before = records(tmp_path / "out")["simcse_seed0"]["scores"]
        run(methods=["simcse"], evaluators=evaluators()[:2], force=True)
        assert len(trainings) == 1
        after = records(tmp_path / "out")["simcse_seed0"]["scores"]
        assert after == {title: before[title] for title in after}
        assert len(after) < len(before)

    def test_another_start(self, run, tiny_encoder):
        run(methods=["simcse"])
        with pytest.raises(ValueError, match=r"encoder's pooling cls \(now mean\)"):
            run(methods=["simcse"], model=lambda: tiny_encoder(pooling="mean"))
        with pytest.raises(ValueError, match=r"encoder .* \(now"):
            run(methods=["simcse"], model=lambda: tiny_encoder(num_hidden_layers=1))

    def test_a_start_that_is_random(self, run, tiny_encoder, without_page):
        encoders = iter([tiny_encoder(), tiny_encoder(num_hidden_layers=1)])
        assert "model must build one encoder each time" in str(run(methods=["simcse"], model=lambda: next(encoders)).failed)

    def test_a_start_that_is_cut(self, run, tiny_encoder):
        def cut():
            model = tiny_encoder()
            model.truncate_dim = 4
            return model

        run(methods=["simcse"])
        with pytest.raises(ValueError, match=r"truncate_dim"):
            run(methods=["simcse"], model=cut)

    def test_a_start_that_asks_otherwise(self, run, tiny_encoder, without_page):
        """A search asks with a prompt of its own."""

        def asking():
            model = tiny_encoder()
            model.prompts = {"query": "find: ", "document": ""}
            return model

        run(methods=["simcse"])
        with pytest.raises(ValueError, match=r"encoder's prompts \{\} \(now \{'query': 'find: '\}\)"):
            run(methods=["simcse"], model=asking)

    def test_the_start_is_scored_anew_with_another_template(self, run, tiny_encoder, tmp_path):
        """Weights, pooling and length are the same."""
        scores = []
        for template in ("[X] is [MASK].", "[X] is [MASK]?"):
            run(methods=["simcse"], model=lambda text=template: apply_mask_template(tiny_encoder(), text), force=True)
            scores.append(json.loads((tmp_path / "out" / "start.json").read_text())["scores"])
        assert scores[0] != scores[1]

    def test_one_evaluator_is_no_list(self, run):
        with pytest.raises(ValueError, match=r"evaluators must be a list, got one PairsEvaluator: \[evaluator\]"):
            run(evaluators=evaluators()[0])

    def test_the_first_rows_of_a_dataset(self, run, tmp_path, without_page):
        run(methods=["simcse"], limit=9)
        assert json.loads((tmp_path / "out" / "simcse_seed0.json").read_text())["sentences"] == 9

    @pytest.mark.parametrize(
        ("change", "error", "message"),
        [
            ({"seeds": 0}, ValueError, "seeds must be at least 1, or a list of them, got 0"),
            ({"seeds": -1}, ValueError, "seeds must be at least 1"),
            ({"seeds": [1, 1]}, ValueError, r"seeds must differ, got \[1, 1\]"),
            ({"seeds": [2**32]}, ValueError, r"seed must be a whole number in \[0, 4294967295\], got 4294967296"),
            ({"methods": []}, ValueError, "methods must be at least one of"),
            ({"methods": "simcse"}, ValueError, r"methods must be a list, got 'simcse': \['simcse'\]"),
            ({"model": torch.nn.Linear(1, 1)}, ValueError, "model must be a name, or a function that builds an encoder each"),
            ({"text": ["a", "b"]}, ValueError, "text must be a name, a path or a datasets.Dataset, got list"),
            ({"column": "text"}, ValueError, "column would be of a text by name, and text is a dataset: leave it out"),
            ({"evaluators": []}, ValueError, "evaluators must be at least one, got none: graded pairs"),
            ({"text": anchors(1)}, ValueError, "training needs at least 2 sentences, got 1"),
            (
                {"text": Dataset.from_dict({"a": ["x"], "b": ["y"]})},
                ValueError,
                "must have the column anchor, and may have positive behind it, got a, b",
            ),
            (
                {"methods": ["simcse", "consert:temperature=-1"]},
                ValueError,
                "method consert:temperature=-1: temperature must be a finite number above 0, got -1",
            ),
            ({"text": "no/such/text"}, FileNotFoundError, "no/such/text does not exist"),
            (
                {"settings": quick(patience=2)},
                ValueError,
                "patience counts evaluations by STS-B dev, and there is none, got 2",
            ),
        ],
        ids=str,
    )
    def test_mistakes_before_anything_is_trained(self, run, trainings, change, error, message):
        with pytest.raises(error, match=message):
            run(**change)
        assert trainings == []

    @pytest.mark.parametrize(
        "method", ["bag-of-words:mlm_head=fresh", "slt-fai:balance=0.5", "recommended:words=0", "denosent:decoder_layers=1"]
    )
    def test_a_method_that_reads_the_text_is_built_with_some_of_it(self, run, without_page, trainings, method):
        """Its counts, for one: those of BookCorpus are of another vocabulary."""
        assert run(methods=[method]).failed == {}
        assert len(trainings) == 1

    def test_what_is_finished_is_not_built_again(self, run, without_page, monkeypatch):
        run(methods=["simcse:temperature=0.1"])
        monkeypatch.setattr(MODULE, "build_loss", None)
        assert run(methods=["simcse:temperature=0.1"]).failed == {}

    def test_what_cannot_be_read_is_of_its_cell(self, run, without_page):
        result = run(methods=["simcse", "slt-fai:frequencies=no/such/counts.npz"])
        assert list(result.failed) == ["slt-fai:frequencies=no/such/counts.npz, seed 0"]

    def test_a_cell_that_another_process_trains(self, run, tmp_path, trainings, without_page):
        """It would be taken for one that was killed. The others of this output are trained here; what is left is free."""
        run(methods=["simcse"])
        with FileLock(tmp_path / "out" / "consert_seed0.lock"):
            with pytest.raises(FileExistsError, match="where another process trains: wait until it has ended, or name"):
                run(methods=["simcse", "consert"])
            run(methods=["simcse", "arccse"])
        assert [name for name, _ in trainings] == ["simcse", "arccse"]
        run(methods=["simcse", "consert"])
        assert len(trainings) == 3
        assert not list((tmp_path / "out").glob("*.lock"))

    def test_nothing_is_removed_before_all_is_known_to_be_right(self, run, tmp_path, without_page):
        run(methods=["simcse"])
        with pytest.raises(ValueError, match="method consert:temperature=-1: temperature must be a finite number above 0"):
            run(methods=["simcse", "consert:temperature=-1"], force=True, settings=quick(max_steps=3, eval_steps=1))
        assert list(records(tmp_path / "out")) == ["simcse_seed0"]
        assert (tmp_path / "out" / "simcse_seed0" / "model").is_dir()

    def test_a_cell_that_another_process_trains_is_not_forced(self, run, tmp_path, trainings, without_page):
        run(methods=["simcse"])
        again = {"methods": ["simcse"], "force": True, "settings": quick(max_steps=3, eval_steps=1)}
        with FileLock(tmp_path / "out" / "simcse_seed0.lock"), pytest.raises(FileExistsError, match="another process trains"):
            run(**again)
        assert (tmp_path / "out" / "simcse_seed0" / "model").is_dir()

    def test_several_processes(self, run, trainings, monkeypatch):
        monkeypatch.setenv("WORLD_SIZE", "2")
        with pytest.raises(ValueError, match="a comparison trains one cell after the other in one process"):
            run()
        assert trainings == []

    def test_a_directory_of_somebody_else(self, run, tmp_path):
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "mine.txt").write_text("mine", encoding="utf-8")
        with pytest.raises(FileExistsError, match="holds something else"):
            run()
        with pytest.raises(FileExistsError, match="must be a directory, got the file"):
            run(output=tmp_path / "out" / "mine.txt")
        with pytest.raises(FileExistsError, match="must be a directory, got .*inside, and .*mine.txt is a file"):
            run(output=tmp_path / "out" / "mine.txt" / "inside")

    @pytest.mark.parametrize("content", ["", "[]", "{}"])
    def test_a_broken_record(self, run, tmp_path, content):
        run(methods=["simcse"])
        (tmp_path / "out" / "simcse_seed0.json").write_text(content, encoding="utf-8")
        with pytest.raises(ValueError, match=r"simcse_seed0.json must be the json that a comparison wrote"):
            run(methods=["simcse"])


class TestFailures:
    def test_a_training_that_diverges_loses_no_other(self, run, tmp_path, trainings):
        diverging = "simcse:learning_rate=1e38"
        result = run(methods=["consert", diverging])
        assert list(result.failed) == [f"{diverging}, seed 0"]
        assert "weights are not finite" in result.failed[f"{diverging}, seed 0"]
        assert [row.seeds for row in result.rows] == [[0], []]
        assert result.table[-1] == [diverging, "0", *["none"] * 7]
        page = result.page.read_text(encoding="utf-8")
        assert "<h2>Failed</h2>" in page
        assert "weights are not finite" in page
        run(methods=["consert", diverging])  # tries it again, and only it
        assert [name for name, _ in trainings] == ["consert", "simcse", "simcse"]

    def test_a_training_whose_scores_failed_is_not_thrown_away(self, run, without_page):
        class BreaksOnce(evaluation.PairsEvaluator):
            calls = 0

            def compute(self, embeddings):
                type(self).calls += 1
                if self.calls == 2:  # the first is the start's
                    raise RuntimeError("no scores today")
                return super().compute(embeddings)

        def again(updates):
            evaluator = BreaksOnce(pairs(), name="mine", write_csv=False)
            return run(methods=["simcse"], evaluators=[evaluator], settings=quick(max_steps=updates))

        assert "no scores today" in again(2).failed["simcse, seed 0"]
        with pytest.raises(ValueError, match=r"simcse_seed0 was made with max_steps 2 \(now 1\)"):
            again(1)
        assert again(2).failed == {}

    def test_all_of_them(self, run):
        result = run(methods=["simcse:learning_rate=1e38"])
        assert len(result.failed) == 1
        assert result.table[-1][2] == "none"

    def test_a_text_without_phrases(self, run):
        text = Dataset.from_dict({"anchor": [f"{word} {word}." for word in ("It", "We", "Who", "They", "She", "He")] * 4})
        result = run(methods=["simcse", "paser:mlm_head=fresh"], text=text)
        assert list(result.failed) == ["paser:mlm_head=fresh, seed 0"]

    @pytest.mark.filterwarnings("ignore:An input array is constant")
    def test_scores_that_are_no_numbers(self, run):
        class Undefined(evaluation.PairsEvaluator):
            def compute(self, embeddings):
                return {"spearman": float("nan")}  # as of a model that gives each text one vector

        with pytest.raises(ValueError, match="scores must be finite, got NaN or infinity for mine: Spearman"):
            run(evaluators=[Undefined(pairs(), name="mine", write_csv=False)])


def test_an_evaluator_of_the_host(run):
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

    evaluator = [EmbeddingSimilarityEvaluator(*pairs(), name="host", main_similarity="cosine", write_csv=False)]
    first = run(methods=["simcse"], evaluators=evaluator)
    assert first.table[0][2] == "host_spearman_cosine"
    evaluator = [EmbeddingSimilarityEvaluator(*pairs(), name="host", main_similarity="cosine", write_csv=False)]
    assert run(methods=["simcse"], evaluators=evaluator).table == first.table


class TestPage:
    def test_without_matplotlib(self, run, monkeypatch):
        monkeypatch.delitem(sys.modules, "sbert_plugins.recipes.plots", raising=False)
        monkeypatch.delattr("sbert_plugins.recipes.plots", raising=False)
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        page = run(methods=["simcse"]).page.read_text(encoding="utf-8")
        assert "Without plots: matplotlib is not installed" in page
        assert "<img" not in page

    @pytest.mark.parametrize(("first", "second", "shown"), [(2, 0, 0), (0, 2, 2), (2, 3, 3)])
    def test_another_number_of_neighbours(self, run, tmp_path, monkeypatch, first, second, shown):
        """They are of the start and of the one method that has as many."""
        monkeypatch.setattr("sbert_plugins.recipes.compare_page._plots", lambda *_: "")
        run(methods=["simcse"], neighbours=first)
        result = run(methods=["simcse", "consert"], neighbours=second)
        assert [row.seeds for row in result.rows] == [[0], [0]]
        assert result.page.read_text(encoding="utf-8").count("<ol>") == 2 * shown
        if not second:  # for records that may be published
            start = json.loads((tmp_path / "out" / "start.json").read_text(encoding="utf-8"))
            assert not any(record["neighbours"] for record in [start, *records(tmp_path / "out").values()])

    def test_each_method_shows_its_first_seed_that_has_scores(self, run, tmp_path, monkeypatch):
        monkeypatch.setattr("sbert_plugins.recipes.compare_page._plots", lambda *_: "")
        run(seeds=2, neighbours=2)
        path = tmp_path / "out" / "simcse_seed0.json"
        record = json.loads(path.read_text(encoding="utf-8"))
        failed = {key: value for key, value in record.items() if key not in ("scores", "neighbours")} | {"failed": "it did"}
        for folder in (tmp_path / "out").glob("simcse_seed0"):
            shutil.rmtree(folder)
        monkeypatch.setattr(MODULE, "train", lambda *_, **__: (_ for _ in ()).throw(ValueError("it did")))
        path.write_text(json.dumps(failed), encoding="utf-8")
        page = run(seeds=2, neighbours=2).page.read_text(encoding="utf-8")
        assert "<th>simcse, seed 1</th><th>consert, seed 0</th>" in page

    def test_where_lower_is_better(self, run, tmp_path, monkeypatch):
        monkeypatch.setattr("sbert_plugins.recipes.compare_page._plots", lambda *_: "")
        (tmp_path / "sts").mkdir()
        (tmp_path / "sts" / "stsb_dev.tsv").write_text("news\t5.0\tA dog.\tOne dog.\nnews\t0.0\tIt rains.\tHe sings.\n")
        geometry = evaluation.AlignmentUniformityEvaluator(tmp_path, name="own", write_csv=False)
        result = run(evaluators=[evaluators()[0], geometry])
        page = result.page.read_text(encoding="utf-8")
        start = json.loads((tmp_path / "out" / "start.json").read_text(encoding="utf-8"))["scores"]
        best = min([start["own_alignment"], *(row.scores["own_alignment"].mean for row in result.rows)])
        assert re.search(rf'own_alignment \(lower is better\).*?<td class="best">{shown(best, digits=4)}</td>', page)

    def test_text_is_text(self, run):
        text = Dataset.from_dict({"anchor": [f"<b>{sentence}</b> & $x" for sentence in project_text()[:24]]})
        page = run(methods=["simcse"], text=text).page.read_text(encoding="utf-8")
        assert "&lt;b&gt;" in page
        assert "<b>" not in page

    def test_test_sets_are_named(self, run):
        evaluator = evaluation.RetrievalEvaluator({"q": "a cat"}, {"1": "one cat", "2": "two dogs"}, {"q": {"1"}}, name="pets",
                                                  test_sets=("Pets",), write_csv=False)  # fmt: skip
        page = run(methods=["simcse"], evaluators=[evaluator]).page.read_text(encoding="utf-8")
        assert "Pets are test sets: a method that is chosen by them has been chosen by the test" in page


def test_positives_of_a_text_are_trained_on(run, tmp_path, without_page, trainings):
    rows = anchors(24)
    pairs = Dataset.from_dict({"anchor": rows["anchor"], "positive": rows["anchor"][::-1]})
    run(text=pairs, methods=["consert", "simcse"], keep_models=False, neighbours=0)
    assert [name for name, _ in trainings] == ["consert", "simcse"]
    for name, record in records(tmp_path / "out").items():
        assert record["neighbours"] == []
        assert not (tmp_path / "out" / name).exists()  # the record is what is left
    assert json.loads((tmp_path / "out" / "start.json").read_text())["neighbours"] == []
    run(text=pairs, methods=["consert", "simcse"], keep_models=False, neighbours=0)
    assert len(trainings) == 2  # finished, also without its model


def test_what_may_be_published_shows_no_text_of_a_training_that_diverged(run, tmp_path):
    result = run(methods=["arccse"], settings=quick(max_steps=2, eval_steps=1, learning_rate=1e6), neighbours=0)
    (reason,) = result.failed.values()
    assert re.search(r"update \d: .*(nan|inf)\. The training was stopped", reason)
    for written in (result.page, *(tmp_path / "out").glob("*.json")):
        assert "batch that begins with" not in written.read_text(encoding="utf-8")


def test_positives_are_refused_by_what_cannot_take_them(run, tmp_path):
    rows = anchors(24)
    pairs = Dataset.from_dict({"anchor": rows["anchor"], "positive": rows["anchor"]})
    with pytest.raises(ValueError, match="bag-of-words reads .*anchor, got anchor, positive"):
        run(text=pairs, methods=["consert", "bag-of-words"])
    assert not (tmp_path / "out").exists()


def test_curve_and_settings_are_each_methods_own(tiny_encoder, tmp_path):
    compare(tmp_path, tiny_encoder, seeds=1, dev=pairs(15))
    start = json.loads((tmp_path / "out" / "start.json").read_text(encoding="utf-8"))
    first, second = records(tmp_path / "out").values()
    for cell in (first, second):
        key = "eval_stsb-dev_spearman_cosine"
        logged = {entry["step"]: entry[key] for entry in cell["log"] if key in entry}
        assert cell["curve"] == [{"step": step, "STS-B dev": 100 * score} for step, score in logged.items()]
    table = _settings(start, {"a": [first], "b": [second | {"loss_keywords": {"temperature": 0.2}}]})
    assert "<td>temperature=0.2</td>" in table


def test_what_has_no_better_end_has_no_best():
    start = {"scores": {"x": 1.0, "y": 1.0}, "undirected": ["y"]}
    (row,) = summarise({"a": [{"seed": 0, "scores": {"x": 2.0, "y": 2.0}, "seconds": 1.0}]}, ["x", "y"])
    table = _table(start, [row])
    assert table.count('class="best"') == 1
    assert "y (neither is better)" in table


def test_neighbours_that_are_new_are_marked():
    near = [{"text": "old", "cosine": 90.0}, {"text": "new", "cosine": 80.0}]
    assert _nearest(near, {"old"}) == '<li>old (90)</li><li class="best">new (80)</li>'


def test_the_length_of_a_training_is_said_once():
    by_steps, by_epochs = {"epochs": 1.0, "max_steps": 9}, {"epochs": 1.0, "max_steps": -1}
    assert [_setting(key, by_steps) for key in by_steps] == ["as many as max_steps takes", "9"]
    assert [_setting(key, by_epochs) for key in by_epochs] == ["1.0", "by epochs"]


def test_a_start_of_another_version_is_told(result, folder):
    start = json.loads((folder / "out" / "start.json").read_text(encoding="utf-8"))
    cells = {"consert": [next(iter(records(folder / "out").values()))]}
    older = start | {"versions": start["versions"] | {"transformers": "0.0"}}
    assert "several versions" not in _what(start, cells, "sentences")
    assert "Made with several versions" in _what(older, cells, "sentences")


def test_learning_curves_are_those_of_the_first_seed_that_has_scores():
    log = [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}]
    cells = [{"seed": 0, "failed": "no"}, {"seed": 1, "scores": {"x": 61.0}, "seconds": 1.0, "log": log}]
    shown = _plots({"scores": {"x": 60.0}}, {"a": cells}, summarise({"a": cells}, ["x"]))
    assert "What the training with seed 1 logged" in shown


def test_the_page_says_first_that_trainings_failed(result, folder):
    start = json.loads((folder / "out" / "start.json").read_text(encoding="utf-8"))
    here = next(iter(records(folder / "out").values()))
    assert "failed" not in _what(start, {"a": [here]}, "sentences")
    both = {"a": [here], "b": [here | {"failed": "no"}]}
    assert "1 of the trainings failed (below)." in _what(start, both, "sentences")
