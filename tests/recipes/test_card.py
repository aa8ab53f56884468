import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from datasets import Dataset
from recipe_inputs import anchors, quick
from transformers import AutoModelForMaskedLM

from sbert_plugins import data, evaluation, recipes
from sbert_plugins.recipes import card
from sbert_plugins.recipes.texts import text_name


def test_a_directory_is_named_by_its_last_part(tiny_encoder, tmp_path):
    model = tiny_encoder()
    model.transformers_model.config.name_or_path = str(tmp_path)
    assert card.encoder_name(model) == tmp_path.name
    assert card.folder_name("runs/demo/model") == "demo"  # a training of ours, trained further
    assert card.folder_name("model") == "model"
    assert card.folder_name(".") == Path.cwd().name
    model.transformers_model.config.name_or_path = "someone/bert"
    assert card.encoder_name(model) == "someone/bert"


@pytest.mark.parametrize("layers, name", [(4, "all-MiniLM-L6-v2 (its first 4 layers)"), (6, "all-MiniLM-L6-v2")])
def test_a_cut_encoder_is_not_called_by_the_whole_ones_name(layers, name):
    model = recipes.offline_encoder(num_layers=layers)
    assert card.encoder_name(model) == f"sentence-transformers/{name}"
    assert model.model_card_data.base_model == "sentence-transformers/all-MiniLM-L6-v2"  # what the Hub links to


class TestOrigin:
    @pytest.fixture
    def model(self, tiny_encoder):
        model = tiny_encoder()
        model.transformers_model.config.name_or_path = "someone/bert"
        return model

    def test_a_name_on_the_hub(self, model, monkeypatch):
        monkeypatch.setattr(card, "_metadata", lambda name, revision: {"license": "mit"} if name == "someone/bert" else {})
        card.name_origin(model, "someone/text")
        data = model.model_card_data
        assert (data.base_model, data.license) == ("someone/bert", "mit")
        assert data.train_datasets == [{"name": "someone/text", "id": "someone/text"}]

    @pytest.mark.parametrize("name", ["customer mails", "notes", "sts-sentences", "a/b/c"])
    def test_a_name_of_one_s_own_is_no_dataset_on_the_hub(self, model, monkeypatch, name):
        monkeypatch.setattr(card, "_metadata", lambda name, revision: {})
        card.name_origin(model, name)
        assert model.model_card_data.train_datasets == [{"name": text_name(name)}]

    def test_a_directory_whose_path_is_also_a_name_on_the_hub(self, model, tmp_path, monkeypatch):
        (tmp_path / "someone" / "bert").mkdir(parents=True)
        monkeypatch.chdir(tmp_path)
        data = model.model_card_data
        data.base_model, data.base_model_revision = "someone/bert", "v1"  # the host found it there
        card.name_origin(model, None)
        assert (data.base_model, data.base_model_revision) == (None, None)

    def test_the_licence_is_of_the_revision(self, model, monkeypatch, tmp_path):
        asked = []
        (tmp_path / "README.md").write_text("---\nlicense: gpl-3.0\n---\n", encoding="utf-8")
        monkeypatch.setattr(
            "huggingface_hub.hf_hub_download",
            lambda name, file, *, revision: asked.append((name, file, revision)) or str(tmp_path / file),
        )
        data = model.model_card_data
        data.base_model, data.base_model_revision = "someone/bert", "v2"
        card.name_origin(model, None)
        assert asked == [("someone/bert", "README.md", "v2")]
        assert data.license == "gpl-3.0"

    def test_a_directory_is_not_taken_for_a_name_on_the_hub(self, model, tmp_path):
        (tmp_path / "text.txt").write_text("x")
        model.transformers_model.config.name_or_path = str(tmp_path)
        card.name_origin(model, str(tmp_path / "text.txt"))
        data = model.model_card_data
        assert data.base_model is None
        assert data.local_files_only
        assert data.train_datasets == [{"name": "text.txt"}]

    def test_a_card_without_metadata(self, tmp_path, monkeypatch):
        said = []
        logger = logging.getLogger("huggingface_hub.repocard")
        monkeypatch.setattr(logger, "handle", said.append)
        (tmp_path / "README.md").write_text("# A model\n")
        assert card._metadata(tmp_path / "README.md") == {}
        assert said == []
        assert not logger.disabled

    def test_a_card_that_cannot_be_read(self, tmp_path):
        (tmp_path / "README.md").write_text("---\n: [\n---\n")
        assert card._metadata(tmp_path / "README.md") == {}
        assert card._metadata(tmp_path / "none.md") == {}


@pytest.mark.parametrize("share", [False, True])
def test_examples(tiny_encoder, share):
    model = tiny_encoder()
    data = model.model_card_data
    rows = Dataset.from_dict({"anchor": [f"A dog runs {i} times." for i in range(9)]})
    with card.examples_kept_private(model, share=share):
        if not data.widget:  # as the host does
            data.set_widget_examples(rows)
        data.train_datasets = [{"name": "x", "examples": rows[:3], "examples_table": "A dog runs"}]
    assert bool(data.widget) is bool(data.usage_examples) is share
    assert ("examples" in data.train_datasets[0]) is ("examples_table" in data.train_datasets[0]) is share


@pytest.mark.parametrize("widget", [[], [{"text": "mine"}]])
def test_a_failure_leaves_the_widget_as_it_was(tiny_encoder, widget):
    data = tiny_encoder().model_card_data
    data.widget = widget
    with pytest.raises(KeyError), card.examples_kept_private(SimpleNamespace(model_card_data=data), share=False):
        raise KeyError
    assert data.widget == widget


def test_scores_of_other_weights_go(tiny_encoder):
    model = tiny_encoder()
    data = model.model_card_data
    data.eval_results_dict = {"an evaluator during the training": {"spearman": 1.0}}
    pairs = evaluation.ScoredPairs(["a", "b", "c"], ["d", "e", "f"], [1.0, 2.0, 3.0])
    card.describe_training(model, {"pooling": "cls"}, {"a": (pairs, 59.5678, 58.2249), "b": (pairs, 1.0, float("nan"))})
    ((evaluator, metrics),) = data.eval_results_dict.items()
    assert evaluator.name == "a"
    assert metrics == {"a_spearman": 58.22, "a_before_training": 59.57}
    assert data.non_default_hyperparameters["pooling"] == "cls"


@pytest.mark.parametrize("given", [None, "SentenceTransformer", "Mine"])
def test_the_heading_of_a_trained_model(tiny_encoder, tmp_path, given):
    """The host names a model when it is first saved: at the first checkpoint."""
    model = tiny_encoder()
    model.model_card_data.model_name = given
    pairs = evaluation.ScoredPairs(*(values[::40] for values in recipes.graded_pairs()))
    results = recipes.train("simcse", anchors(24), model, output=tmp_path / "run", settings=quick(), probes={"own": pairs})
    title = "Mine" if given == "Mine" else f"{results['encoder']['name']} trained with SimCSE"
    readme = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    assert f"\n# {title}\n" in readme
    assert yaml.safe_load(readme.split("---\n")[1])["model-index"][0]["name"] == title


def test_the_heading_of_a_model_that_is_trained_twice(tiny_encoder):
    model = tiny_encoder()
    card.name_model(model, "bert", "PaSeR (mlm_weight=0.5)")
    card.name_model(model, "bert", "ArcCSE")
    assert model.model_card_data.model_name == "bert trained with PaSeR (mlm_weight=0.5), then with ArcCSE"


def test_a_training_that_was_refused_is_not_in_the_heading(tiny_encoder, tmp_path):
    model = tiny_encoder()
    before = model.model_card_data.model_name
    with pytest.raises(ValueError, match="temperature"):
        recipes.train("simcse", anchors(24), model, output=tmp_path / "run", loss_keywords={"temperature": -1.0})
    assert model.model_card_data.model_name == before


def test_the_text_of_an_earlier_training_is_not_named(tiny_encoder, tmp_path):
    model = tiny_encoder()
    for name in ("first", "second"):
        (tmp_path / f"{name}.txt").write_text("a line\n", encoding="utf-8")
        recipes.train(
            "simcse",
            anchors(24),
            model,
            output=tmp_path / name,
            settings=quick(),
            text=str(tmp_path / f"{name}.txt"),
            probes={},
        )
    readme = (tmp_path / "second" / "model" / "README.md").read_text(encoding="utf-8")
    assert "second.txt" in readme
    assert "first.txt" not in readme


@pytest.mark.slow
def test_of_a_path_among_the_keywords_the_card_has_the_name_alone(tiny_encoder, tmp_path):
    model, path, head = tiny_encoder(), tmp_path / "a-client" / "counts.npz", tmp_path / "a-client" / "head"
    path.parent.mkdir()
    data.TokenFrequencies.from_corpus(anchors(24)["anchor"], model.tokenizer).save(path)
    AutoModelForMaskedLM.from_config(model[0].model.config).save_pretrained(head)
    settings = replace(quick(), max_steps=1)
    given = {"settings": settings, "loss_keywords": {"frequencies": str(path), "mlm_head": str(head)}}
    recipes.train("bag-of-words", anchors(24), model, output=tmp_path / "run", **given)
    readme = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    assert "frequencies=counts.npz, mlm_head=head" in readme
    assert '"mlm_head": "head"' in readme
    assert "a-client" not in readme


def test_the_heading_names_what_was_chosen(tiny_encoder, tmp_path):
    model = tiny_encoder()
    settings = replace(quick(), max_steps=1)
    recipes.train(
        "simcse", anchors(24), model, output=tmp_path / "run", settings=settings, loss_keywords={"temperature": 0.2}, probes={}
    )
    assert model.model_card_data.model_name.endswith(" trained with SimCSE (temperature=0.2)")
    readme = (tmp_path / "run" / "model" / "README.md").read_text(encoding="utf-8")
    assert "- `method`: SimCSE (temperature=0.2); Gao et al., EMNLP 2021\n" in readme


def test_a_licence_that_somebody_gave_is_kept(tiny_encoder, monkeypatch):
    model = tiny_encoder()
    model.transformers_model.config.name_or_path = "someone/bert"
    model.model_card_data.license = "apache-2.0"
    monkeypatch.setattr(card, "_metadata", lambda name, revision: {"license": "mit"})
    card.name_origin(model, None)
    assert model.model_card_data.license == "apache-2.0"


def test_no_network_stays_no_network(tiny_encoder, monkeypatch):
    model = tiny_encoder()
    model.transformers_model.config.name_or_path = "someone/bert"
    model.model_card_data.local_files_only = True
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(card, "_metadata", lambda name, revision: {})
    card.name_origin(model, None)
    assert model.model_card_data.local_files_only


def test_both_lists_of_arguments_have_the_settings_and_no_names_of_weights(tiny_encoder):
    model = tiny_encoder()
    data = model.model_card_data
    for shown in (data.non_default_hyperparameters, data.all_hyperparameters):
        shown["learning_rate_mapping"] = {"head.linear.weight": 0.1}
    card.describe_training(model, {"pooling": "cls"}, {})
    for shown in (data.non_default_hyperparameters, data.all_hyperparameters):
        assert shown["pooling"] == "cls"
        assert "learning_rate_mapping" not in shown


def test_a_score_that_was_no_number_before_is_not_in_the_card(tiny_encoder):
    model = tiny_encoder()
    pairs = evaluation.ScoredPairs(["a", "b", "c"], ["d", "e", "f"], [1.0, 2.0, 3.0])
    card.describe_training(model, {}, {"a": (pairs, float("nan"), 58.0)})
    assert model.model_card_data.eval_results_dict == {}
