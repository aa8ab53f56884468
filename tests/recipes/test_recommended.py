import json
import re

import pytest
from datasets import Dataset
from recipe_inputs import anchors, quick, texts
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer

from sbert_plugins import data, losses, recipes


@pytest.fixture
def keywords(tiny_encoder):
    return {"frequencies": data.TokenFrequencies.from_corpus(anchors(20)["anchor"], tiny_encoder().tokenizer)}


def test_without_words_it_is_consert(tiny_encoder):
    """``consert:projection_head=true``."""
    loss = recipes.build_loss("recommended", tiny_encoder(), words=0)
    assert type(loss) is losses.ConSERTLoss
    assert loss.get_config_dict() == recipes.build_loss("consert", tiny_encoder(), projection_head=True).get_config_dict()
    assert loss.temperature == 0.1
    settings = recipes.settings_of("recommended")
    assert settings == recipes.settings_of("consert")
    assert (settings.max_steps, settings.batch_size, settings.learning_rate, settings.pooling) == (60, 64, 5e-5, "mean")


def test_consert_s_keywords_are_its_own(tiny_encoder):
    def build(**changes):
        return recipes.build_loss("recommended", tiny_encoder(), words=0, **changes)

    assert build(first_view=("token_cutoff",)).first_view == ("token_cutoff",)
    assert list(build(projection_head=False).head.parameters()) == []
    with pytest.raises(ValueError, match="temperature must be"):
        build(temperature=0.0)


class TestWords:
    def test_stand_beside_the_contrast_and_are_bounded(self, tiny_encoder, keywords):
        loss = recipes.build_loss("recommended", tiny_encoder(), **keywords)
        assert loss.weights == {"contrast": 1.0, "words": 1.0}
        assert loss.balance == 0.3
        assert isinstance(loss.losses["contrast"], losses.ConSERTLoss)
        assert isinstance(loss.losses["words"], losses.BagOfWordsLoss)

    @pytest.mark.parametrize("columns", [("anchor",), ("anchor", "positive")])
    def test_train_on_sentences_and_on_pairs(self, columns, tiny_encoder, tmp_path):
        rows = Dataset.from_dict({key: texts("paser-supervised", 20)[key] for key in columns})
        recipes.train("recommended", rows, tiny_encoder(), output=tmp_path, settings=quick(max_steps=2))
        results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
        names = {name for entry in results["log"] for name in entry}
        assert {"contrast/nt_xent", "words/words"} <= names
        rebuilt = recipes.load_loss(tmp_path, SentenceTransformer(str(tmp_path / "model"), device="cpu"))
        state = load_file(tmp_path / "loss" / "loss_state.safetensors")
        assert any("words" in name for name in state)
        loaded = rebuilt.state_dict()
        assert [name for name, value in state.items() if not loaded[name].equal(value)] == []

    def test_cost_no_pass(self, tiny_encoder, keywords):
        model, seen = tiny_encoder(), []
        loss = recipes.build_loss("recommended", model, **keywords)
        model[0].register_forward_hook(lambda module, arguments, output: seen.append(len(output["token_embeddings"])))
        loss([model.preprocess(["It is raining.", "He plays the organ."])])
        assert sum(seen) == 4  # both views of both sentences

    def test_of_an_output_from_before_there_were_any(self, tiny_encoder, tmp_path):
        """What was built by default then is built again, and not by what is the default since."""
        recipes.train(
            "recommended", anchors(20), tiny_encoder(), output=tmp_path, settings=quick(), loss_keywords={"words": 0}
        )
        for name in ("run.json", "results.json"):
            record = json.loads((tmp_path / name).read_text(encoding="utf-8"))
            assert record["loss_keywords"].pop("words") == 0
            if name == "run.json":
                record["loss_defaults"]["words"] = 0
            (tmp_path / name).write_text(json.dumps(record), encoding="utf-8")
        loss = recipes.load_loss(tmp_path, SentenceTransformer(str(tmp_path / "model"), device="cpu"))
        assert isinstance(loss, losses.ConSERTLoss)

    @pytest.mark.parametrize("unread", [{"token_weights": None}, {"mlm_head": "pretrained"}])
    def test_nothing_is_read_of_words_that_are_left_out(self, unread, tiny_encoder, tmp_path):
        given = {"words": 0} | unread
        with pytest.raises(ValueError, match=f"{next(iter(unread))} would be of words, which words=0 leaves out"):
            recipes.train("recommended", anchors(20), tiny_encoder(), output=tmp_path / "new", loss_keywords=given)
        assert not (tmp_path / "new").exists()

    @pytest.mark.parametrize("words", [-0.1, float("nan"), float("inf"), "3", None, True])
    def test_must_be_a_bound(self, words, tiny_encoder):
        with pytest.raises(ValueError, match=r"words must be a finite number, 0 or above, got .*: 0 leaves the words out\."):
            recipes.recommended_loss(tiny_encoder(), words=words)

    def test_of_another_vocabulary_are_counted_in_the_text_if_they_are_used(self, monkeypatch):
        counted = []
        monkeypatch.setattr(
            "sbert_plugins.recipes.recommended.frequencies_of", lambda *found: counted.append(found) or {"a": 1}
        )
        find = recipes.RECOMMENDED.keywords
        assert find(None, None, None, {"words": 0.0}) == {}
        assert find("sentences", "model", "settings", {}) == find("sentences", "model", "settings", {"words": 1}) == {"a": 1}
        assert counted == [("sentences", "model", "settings", given) for given in ({}, {"words": 1})]


def test_epochs_take_the_place_of_the_small_budget():
    longer = recipes.with_changes(recipes.RECOMMENDED.settings, epochs=2)
    assert (longer.epochs, longer.max_steps) == (2, -1)
    both = recipes.with_changes(recipes.RECOMMENDED.settings, epochs=2, max_steps=7)
    assert (both.epochs, both.max_steps) == (2, 7)


def test_it_says_what_it_is_when_it_starts(tiny_encoder, tmp_path):
    said = []
    recipes.train("recommended", anchors(20), tiny_encoder(), output=tmp_path, settings=quick(max_steps=1), report=said.append)
    assert said[0].startswith("recommended is, by default, ConSERT with a projection head in training")
    assert "bag-of-words" in said[0]


@pytest.mark.parametrize(
    ("method", "cited"),
    [
        ("recommended", {"WeightedSumLoss": "yan-etal-2021-consert", "SimCSE": "gao-etal-2021-simcse"}),
        ("consert", {"ConSERTLoss": "yan-etal-2021-consert"}),
        ("simcse", {"SimCSE": "gao-etal-2021-simcse"}),
    ],
)
def test_the_card_cites_the_papers_by_name(method, cited, tiny_encoder, tmp_path):
    recipes.train(method, anchors(20), tiny_encoder(), output=tmp_path, settings=quick(max_steps=1))
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    for name, key in cited.items():
        assert re.search(rf"^#### {name}\n```bibtex\n@\w+{{{key},$", card, re.MULTILINE)


class TestSimCSE:
    def test_is_the_hosts_loss_on_a_sentence_and_itself(self, tiny_encoder):
        loss = recipes.build_loss("simcse", tiny_encoder(), temperature=0.1)
        assert loss.columns == {"simcse": [0, 0]}
        assert loss.losses["simcse"].scale == pytest.approx(10)
        with pytest.raises(ValueError, match="temperature"):
            recipes.build_loss("simcse", tiny_encoder(), temperature=0.0)

    def test_takes_positives(self, tiny_encoder, tmp_path, monkeypatch):
        built = []
        plain = recipes.build_loss
        monkeypatch.setattr("sbert_plugins.recipes.run.build_loss", lambda *a, **k: built.append(plain(*a, **k)) or built[-1])
        rows = Dataset.from_dict({key: texts("paser-supervised", 20)[key] for key in ("anchor", "positive")})
        recipes.train("simcse", rows, tiny_encoder(), output=tmp_path, settings=quick(max_steps=1))
        assert built[0].columns == {"simcse": [0, 1]}
