import json

import pytest
import torch
from datasets import Dataset
from encoders import project_text
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer

from sbert_plugins import data, evaluation, losses, recipes, training

QUICK = {"max_steps": 4, "batch_size": 8, "eval_steps": 2}


def anchors(count):
    return Dataset.from_dict({"anchor": project_text()[:count]})


def texts(method, count):
    """What a person hands over: sentences, or triplets."""
    if recipes.RECIPES[method].reads == "sentences":
        return anchors(count)
    text = project_text()
    return Dataset.from_dict({"anchor": text[:count], "positive": text[1 : count + 1], "negative": text[2 : count + 2]})


def quick(**changes):
    return recipes.with_changes(recipes.ARCCSE.offline, **(QUICK | changes))


@pytest.fixture
def dev():
    pairs = recipes.graded_pairs()
    return evaluation.ScoredPairs(*(values[::12] for values in pairs))


@pytest.mark.parametrize("method", recipes.RECIPES)
class TestTrain:
    def test_leaves_a_model_its_checkpoint_and_results(self, method, tiny_encoder, tmp_path, dev):
        model = tiny_encoder()
        before = model.encode("A dog runs.")
        results = recipes.train(
            method, texts(method, 40), model, output=tmp_path / "run", settings=quick(), dev=dev, probes={"probe": dev}
        )
        names = ["checkpoints", "loss", "model", "results.json", "run.json"]
        assert sorted(path.name for path in (tmp_path / "run").iterdir()) == names
        assert json.loads((tmp_path / "run" / "results.json").read_text(encoding="utf-8")) == json.loads(json.dumps(results))
        assert set(results["before"]) == set(results["after"]) == {"probe", "STS-B dev"}
        assert results["before"]["probe"] == results["before"]["STS-B dev"]
        assert results["steps"] == 4
        saved = SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu")
        assert (saved.encode("A dog runs.") == model.encode("A dog runs.")).all()
        assert not (before == model.encode("A dog runs.")).all()

    def test_the_loss_is_kept_beside_the_model(self, method, tiny_encoder, tmp_path):
        trained = []
        build = recipes.build_loss
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(recipes, "build_loss", lambda *a, **k: trained.append(build(*a, **k)) or trained[-1])
            recipes.train(method, texts(method, 20), tiny_encoder(), output=tmp_path / "run", settings=quick(max_steps=1))
        loss = recipes.load_loss(tmp_path / "run", SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu"))
        expected = trained[0].state_dict()
        assert all(torch.equal(tensor, expected[name]) for name, tensor in loss.state_dict().items())

    def test_every_term_is_logged(self, method, tiny_encoder, tmp_path):
        results = recipes.train(method, texts(method, 40), tiny_encoder(), output=tmp_path / "run", settings=quick())
        logged = set().union(*results["log"])
        terms = {
            "arccse": {"arccon", "triplet"},
            "paser": {"generative", "mlm"},
            "paser-supervised": {"contrastive", "paser/generative"},
        }[method]
        assert terms <= logged

    def test_the_same_seed_gives_the_same_model(self, method, tiny_encoder, tmp_path):
        vectors = []
        for run, seed in enumerate((1, 1, 2)):
            model = tiny_encoder()
            recipes.train(method, texts(method, 40), model, output=tmp_path / str(run), settings=quick(), seed=seed)
            vectors.append(model.encode("A dog runs."))
        assert (vectors[0] == vectors[1]).all()
        assert not (vectors[0] == vectors[2]).all()

    def test_dev_selects_the_checkpoint(self, method, tiny_encoder, tmp_path, dev):
        """The model that is saved is the best of the evaluated ones, not the last."""
        results = recipes.train(
            method,
            texts(method, 80),
            tiny_encoder(),
            output=tmp_path / "run",
            settings=quick(max_steps=8, learning_rate=1e-2),
            dev=dev,
        )
        scores = [
            entry["eval_stsb-dev_spearman_cosine"] for entry in results["log"] if "eval_stsb-dev_spearman_cosine" in entry
        ]
        assert len(scores) == 4
        assert results["after"]["STS-B dev"] == pytest.approx(100 * max(scores), abs=1e-6)


class TestResume:
    def test_an_interrupted_training_ends_as_if_it_had_not_been(self, tiny_encoder, tmp_path, dev, monkeypatch):
        def run(model, output, **changes):
            return recipes.train("arccse", anchors(40), model, output=output, settings=quick(), dev=dev, **changes)

        whole, resumed = tiny_encoder(), tiny_encoder()
        expected = run(whole, tmp_path / "whole")
        plain_step = training.SentenceTransformerTrainer.training_step

        def interrupted_step(trainer, *arguments):
            if trainer.state.global_step == 3:
                raise KeyboardInterrupt
            return plain_step(trainer, *arguments)

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(training.SentenceTransformerTrainer, "training_step", interrupted_step)
            run(tiny_encoder(), tmp_path / "run")
        with pytest.raises(ValueError, match=r"was begun with seed 42 \(now 7\): resume with the same"):
            run(tiny_encoder(), tmp_path / "run", resume=True, seed=7)
        results = run(resumed, tmp_path / "run", resume=True)
        assert results["steps"] == 4
        assert results["after"] == expected["after"]
        assert (resumed.encode("A dog runs.") == whole.encode("A dog runs.")).all()

    def test_nothing_to_resume(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="holds no checkpoint to resume .*: delete the directory"):
            recipes.check_output(tmp_path, resume=True)
        (tmp_path / "results.json").write_text("{}")
        with pytest.raises(FileExistsError, match="holds a finished training"):
            recipes.check_output(tmp_path, resume=True)


class TestBadInput:
    @pytest.mark.parametrize(
        ("changes", "count", "message"),
        [
            ({"batch_size": 1}, 40, "batch_size must be at least 2, got 1"),
            ({}, 1, "training needs at least 2 sentences, got 1"),
        ],
    )
    def test_nothing_is_written(self, tiny_encoder, tmp_path, changes, count, message):
        with pytest.raises(ValueError, match=message):
            recipes.train("arccse", anchors(count), tiny_encoder(), output=tmp_path / "run", settings=quick(**changes))
        assert not (tmp_path / "run").exists()

    def test_unknown_method(self, tiny_encoder, tmp_path):
        with pytest.raises(ValueError, match="method must be one of arccse.*, got 'simcse'"):
            recipes.train("simcse", anchors(4), tiny_encoder(), output=tmp_path / "run")

    @pytest.mark.parametrize("kind", ["file", "full directory"])
    def test_output_exists(self, tiny_encoder, tmp_path, kind):
        output = tmp_path / "run"
        if kind == "file":
            output.write_text("mine")
        else:
            output.mkdir()
            (output / "mine.txt").write_text("mine")
        with pytest.raises(FileExistsError, match="output must be a new or an empty directory, got .*run, which exists"):
            recipes.train("arccse", anchors(4), tiny_encoder(), output=output)
        assert (output if kind == "file" else output / "mine.txt").read_text() == "mine"

    def test_an_empty_output_directory_is_fine(self, tmp_path):
        assert recipes.check_output(tmp_path) == tmp_path

    def test_layers_of_the_offline_encoder(self):
        for layers in (0, 7):
            with pytest.raises(ValueError, match=f"num_layers must be 1 to 6, the layers of MiniLM, got {layers}"):
                recipes.offline_encoder(num_layers=layers)

    def test_the_offline_package_is_missing(self, monkeypatch):
        monkeypatch.setattr(recipes.importlib.util, "find_spec", lambda name: None)
        with pytest.raises(ModuleNotFoundError, match=r'pip install "sbert-plugins\[offline\]"'):
            recipes.offline_encoder()


class TestEncoders:
    def test_the_offline_encoder_is_cut_and_remembers_it(self, tmp_path):
        model = recipes.offline_encoder(num_layers=2, device="cpu")
        assert len(model[0].model.encoder.layer) == 2
        model.save_pretrained(str(tmp_path))
        again = SentenceTransformer(str(tmp_path), device="cpu")
        assert (again.encode("A dog runs.") == model.encode("A dog runs.")).all()
        assert "site-packages" not in (tmp_path / "README.md").read_text(encoding="utf-8")

    @pytest.mark.parametrize("pooling", ["cls", "mean"])
    def test_a_plain_transformer_gets_the_pooling(self, tiny_encoder, tmp_path, pooling):
        tiny_encoder()[0].model.save_pretrained(tmp_path)
        tiny_encoder().tokenizer.save_pretrained(tmp_path)
        model = recipes.build_encoder(str(tmp_path), pooling=pooling, max_seq_length=16, device="cpu")
        assert model[1].pooling_mode == pooling
        assert model.max_seq_length == 16

    def test_a_sentence_transformer_keeps_its_own(self, tiny_encoder, tmp_path):
        tiny_encoder("bert", "mean").save_pretrained(str(tmp_path))
        assert recipes.build_encoder(str(tmp_path), pooling="cls", device="cpu")[1].pooling_mode == "mean"


class TestProjectsText:
    def test_graded_pairs(self):
        pairs = recipes.graded_pairs()
        assert [pairs.scores.count(score) for score in range(6)] == [60] * 6
        sentences = [*pairs.sentences1, *pairs.sentences2]
        assert len(set(sentences)) == len(sentences) == 720
        assert not set(sentences) & set(project_text())

    def test_word_overlap_does_not_give_the_score_away(self):
        pairs = recipes.graded_pairs()
        overlap = []
        for first, second in zip(pairs.sentences1, pairs.sentences2, strict=True):
            a, b = set(first.lower().split()), set(second.lower().split())
            overlap.append(len(a & b) / len(a | b))
        assert abs(spearmanr(overlap, pairs.scores).statistic) < 0.2

    def test_an_embedder_agrees_with_the_grades(self, minilm):
        """The whole of MiniLM 68.5, its first four layers 61.4."""
        assert recipes.score(minilm, recipes.graded_pairs()) == pytest.approx(68.5, abs=0.1)

    def test_sentences(self):
        sentences = project_text()
        assert len(set(sentences)) == len(sentences) == 1281
        assert sum(len(sentence.split()) >= 25 for sentence in sentences) >= 150


def test_arccse_settings_are_the_papers():
    settings = recipes.ARCCSE.settings
    assert (settings.learning_rate, settings.epochs, settings.pooling, settings.eval_steps) == (3e-5, 1, "cls", 125)
    assert settings.batch_size * settings.gradient_accumulation_steps == 64
    assert settings.sam_rho == 0.05


def test_bf16_on_a_cpu(tiny_encoder, tmp_path):
    results = recipes.train("arccse", anchors(40), tiny_encoder(), output=tmp_path / "run", settings=quick(), bf16=True)
    assert results["bf16"] is True


def test_what_the_loss_owns_has_its_own_learning_rate(tiny_encoder, tmp_path, monkeypatch):
    rates = {}

    def train(trainer, **_):
        trainer.create_optimizer()
        names = {id(parameter): name for name, parameter in trainer.loss.named_parameters()}
        groups = trainer.optimizer.param_groups
        rates.update({names[id(p)]: group["lr"] for group in groups for p in group["params"] if p.requires_grad})
        raise KeyboardInterrupt

    monkeypatch.setattr(training.SentenceTransformerTrainer, "train", train)
    settings = quick(learning_rate=1e-5, loss_learning_rate=1e-3)
    with pytest.raises(KeyboardInterrupt):
        recipes.train("paser", anchors(20), tiny_encoder(), output=tmp_path / "run", settings=settings)
    assert {rate for name, rate in rates.items() if name.startswith("model.")} == {1e-5}
    assert {rate for name, rate in rates.items() if not name.startswith("model.")} == {1e-3}


class TestPaSeR:
    def test_settings_are_the_papers(self):
        settings = recipes.PASER.settings
        assert (settings.learning_rate, settings.batch_size, settings.epochs) == (3e-5, 64, 5)
        assert (settings.max_seq_length, settings.pooling, settings.eval_steps) == (32, "cls", 125)

    def test_rows_with_synonyms(self, wordnet, tiny_encoder):
        rows, chosen = recipes.paser_rows(anchors(30), tiny_encoder(), seed=1)
        assert chosen == {"extractor": "rake", "top_k": 3, "synonyms": 0.5}
        assert rows.column_names == ["anchor", "masked", "phrase"]
        assert not set(rows["anchor"]) <= set(anchors(30)["anchor"])

    def test_rows_without_wordnet_say_what_that_costs(self, monkeypatch, tiny_encoder, caplog):
        monkeypatch.setattr("nltk.data.path", [])
        rows, chosen = recipes.paser_rows(anchors(30), tiny_encoder(), seed=1)
        assert chosen["synonyms"] is None
        assert "Training WITHOUT synonyms" in caplog.text
        assert "nltk.download('wordnet')" in caplog.text
        assert set(rows["anchor"]) <= set(anchors(30)["anchor"])

    def test_its_own_columns_are_taken_as_they_are(self, tiny_encoder, tmp_path):
        model = tiny_encoder()
        rows = data.paser_columns(anchors(30)["anchor"][:], mask_token="<mask>", top_k=1, synonyms=None)
        results = recipes.train("paser", rows, model, output=tmp_path / "run", settings=quick())
        assert (results["rows"], results["columns"]) == (len(rows), {})

    def test_supervised_rows_keep_every_triplet(self, tiny_encoder):
        triplets = texts("paser-supervised", 30)
        rows, _ = recipes.paser_supervised_rows(triplets, tiny_encoder(), seed=1)
        assert rows.column_names == ["anchor", "positive", "negative", "masked", "phrase"]
        assert rows.select_columns(triplets.column_names).to_dict() == triplets.to_dict()

    def test_supervised_loss_is_eq_5(self, tiny_encoder):
        loss = recipes.paser_supervised_loss(tiny_encoder(), alpha=0.3, mlm_head="fresh")
        assert isinstance(loss, losses.WeightedSumLoss)
        assert loss.weights == {"contrastive": 1.0, "paser": 0.3}
        assert loss.columns == {"contrastive": [0, 1, 2], "paser": [0, 3, 4]}
        assert loss.losses["contrastive"].scale == 20
        assert loss.losses["paser"].mlm_weight == 0

    @pytest.mark.parametrize("method", ["paser", "paser-supervised"])
    def test_reconstructions(self, method, tiny_encoder, tmp_path):
        recipes.train(method, texts(method, 20), tiny_encoder(), output=tmp_path / "run", settings=quick(max_steps=1))
        model = SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu")
        table = recipes.reconstructions(tmp_path / "run", model, anchors(20), limit=5)
        assert len(table) == 5
        assert all(set(row) == {"masked", "phrase", "written"} and "<mask>" in row["masked"] for row in table)

    def test_reconstructions_of_another_method(self, tiny_encoder, tmp_path):
        recipes.train("arccse", anchors(20), tiny_encoder(), output=tmp_path / "run", settings=quick(max_steps=1))
        model = SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu")
        with pytest.raises(ValueError, match="must be a training of paser or paser-supervised, got ArcCSELoss"):
            recipes.reconstructions(tmp_path / "run", model, anchors(5))
        with pytest.raises(ValueError, match="must be the output of a training"):
            recipes.reconstructions(tmp_path, model, anchors(5))
