from dataclasses import fields

import pytest
from datasets import Dataset
from encoders import SENTENCES, project_counts, project_text
from recipe_inputs import SMALL, anchors, pairs, prepare, rows
from sentence_transformers import SentenceTransformer
from tools import batch
from torch import nn

from sbert_plugins import losses, recipes, training
from sbert_plugins.catalogue import METHODS
from sbert_plugins.recipes import denosent, paser, recommended, slt_fai
from sbert_plugins.recipes.methods import read_value

ARGUMENTS = {field.name for field in fields(training.TrainingArguments)}


WITH_LOSS = {name: recipe for name, recipe in recipes.RECIPES.items() if recipe.fit is None}


@pytest.mark.parametrize("recipe", WITH_LOSS.values(), ids=WITH_LOSS)
class TestEveryRecipe:
    def test_has_arguments_of_the_trainer(self, recipe):
        assert {*recipe.arguments} <= ARGUMENTS
        assert {"per_device_train_batch_size", "eval_steps"} <= {*recipe.arguments}
        assert {"max_steps", "num_train_epochs"} & {*recipe.arguments}

    def test_builds_a_loss_that_reads_its_columns(self, recipe, tiny_encoder):
        model = tiny_encoder(pooling="mean").train()
        table = rows(recipe.name, 8)
        given = SMALL.get(recipe.name, {})
        columns = {"synonyms": None} if recipe.made_columns else {}
        found = {}
        if recipe.prepare:
            table, found = prepare(recipe.name, table, model, columns=columns, **given)
        assert tuple(table.column_names) == (recipe.made_columns or recipe.reads)
        loss = recipe.build_loss(model, **(found | given))
        value = loss([model.preprocess(table[name][:]) for name in table.column_names])
        assert sum(value.values()).isfinite()


PAPERS = ["arccse", "paser", "paser-supervised", "denosent", "pt-bert", "slt-fai"]


@pytest.mark.parametrize("method", PAPERS)
def test_a_recipe_agrees_with_the_protocol_of_its_paper(method):
    recipe, plan = recipes.RECIPES[method], recipes.read_protocol(method, "paper")
    stated = plan.section("arguments")
    for name in (
        "learning_rate",
        "per_device_train_batch_size",
        "gradient_accumulation_steps",
        "sam_rho",
    ):
        assert recipe.arguments.get(name) == stated.get(name) or name not in recipe.arguments
    # With [CLS] pooling, PT-BERT's pseudo tokens do nothing.
    assert recipe.pooling == ("mean" if method == "pt-bert" else plan.section("start")["pooling"])
    assert recipe.max_seq_length == plan.section("start")["max_seq_length"]
    assert recipe.paper_updates is not None


def test_the_command_line_has_the_names_of_all_methods():
    assert list(recipes.RECIPES) == list(METHODS)


def test_keywords_that_cannot_be_read():
    with pytest.raises(ValueError, match="KEY=VALUE"):
        recipes.read_keywords(["temperature"])
    with pytest.raises(ValueError, match="signed is true or false, got 'no'"):
        recipes.RECIPES["paser"].check_keywords({"signed": "no"})


@pytest.mark.parametrize(
    ("method", "keyword"),
    [
        ("recommended", "first_view"),
        ("recommended", "keep"),
        ("slt-fai", "masking_ratio"),
        ("paser-supervised", "signed"),
        ("paser", "official"),
        ("simcse", "temperature"),
    ],
)
def test_keywords_that_are_passed_on_are_known(method, keyword):
    recipes.RECIPES[method].check_keywords({keyword: None})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.05", 0.05),
        (".05", 0.05),
        ("5e-2", 0.05),
        ("3", 3),
        ("True", True),
        ("none", None),
        ("tokens", "tokens"),
        ("a,b", ["a", "b"]),
    ],
)
def test_values_of_the_command_line(text, value):
    assert read_value(text) == value
    assert type(read_value(text)) is type(value)


def test_a_loss_of_ones_own(tiny_encoder, tmp_path, monkeypatch):
    (tmp_path / "my_losses.py").write_text(
        "from torch import nn\n\n\nclass Mine(nn.Module):\n    def __init__(self, model, scale):\n"
        "        super().__init__()\n        self.model, self.scale = model, scale\n\n"
        "    def forward(self, features, labels):\n"
        "        return (self.model(features[0])['sentence_embedding'].mean(dim=1) * labels).sum()\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    recipe = recipes.find_recipe("my_losses:Mine")
    loss = recipe.build_loss(tiny_encoder(), scale=3)
    assert isinstance(loss, nn.Module)
    assert loss.scale == 3
    with pytest.raises(ValueError, match="Did you mean scale"):
        recipe.check_keywords({"scal": 3})
    with pytest.raises(AttributeError, match="Min"):
        recipes.find_recipe("my_losses:Min")
    assert not recipes.compare(  # its loss needs the labels
        ["my_losses:Mine:scale=3"],
        Dataset.from_dict({"text": project_text()[:8], "label": [1.0] * 8}),
        model=tiny_encoder,
        output=tmp_path / "run",
        evaluators=[pairs()],
        seeds=1,
        max_steps=1,
    ).failed


class TestPTBERT:
    @pytest.mark.parametrize(("pooling", "attend_to"), [("mean", "tokens"), ("cls", "pooled")])
    def test_the_attention_goes_with_the_pooling(self, pooling, attend_to, tiny_encoder):
        _, found = prepare("pt-bert", anchors(600), tiny_encoder(pooling=pooling))
        assert found == {"attend_to": attend_to}

    def test_the_queue_is_no_longer_than_half_of_the_text(self, tiny_encoder, caplog):
        assert prepare("pt-bert", anchors(60), tiny_encoder())[1]["queue_size"] == 30
        assert "queue is shortened" in caplog.text
        caplog.clear()
        prepare("pt-bert", anchors(60), tiny_encoder(), queue_size=40)
        assert "their own negatives" in caplog.text and "shortened" not in caplog.text


class TestSLTFAI:
    @pytest.mark.parametrize(
        ("backbone", "epochs", "share"), [("simcse", 1.0, 0.1), ("simcse", 0.1, 0.5), ("consert", 10.0, 0.05)]
    )
    def test_the_warm_up_is_counted_in_epochs(self, backbone, epochs, share, tiny_encoder):
        _, found = prepare("slt-fai", anchors(40), tiny_encoder(), epochs=epochs, backbone=backbone)
        assert found["warmup_steps"] == pytest.approx(share)

    def test_the_base_loss(self, tiny_encoder):
        model = tiny_encoder()
        found = prepare("slt-fai", anchors(40), model)[1]
        assert isinstance(slt_fai.slt_fai_loss(model, backbone="consert", **found).loss, losses.ConSERTLoss)
        with pytest.raises(ValueError, match="backbone"):
            slt_fai.slt_fai_loss(model, backbone="bert", **found)


@pytest.mark.parametrize("method", ["simcse", "slt-fai"])
def test_a_third_column_is_not_left_unread(method, tiny_encoder):
    model = tiny_encoder().train()
    keywords = {"frequencies": project_counts(model.tokenizer)} if method == "slt-fai" else {}
    loss = recipes.RECIPES[method].build_loss(model, **keywords)
    for count in (1, 2):
        assert all(term.isfinite() for term in loss(batch(model, *[SENTENCES] * count)).values())
    with pytest.raises(ValueError, match="anchor, positive, .* got 3"):
        loss(batch(model, *[SENTENCES] * 3))


@pytest.mark.parametrize(("steps", "count"), [(2, 12), (100, 20), (-1, 20)])
def test_no_more_sentences_are_translated_than_are_read(steps, count, no_hub):
    seen = []

    def translate(texts):
        seen.extend(texts)
        return [text.upper() for text in texts]

    arguments = {"max_steps": steps, "per_device_train_batch_size": 3}
    pairs = denosent.translate_what_is_read(
        anchors(20), arguments, processes=2, forward=translate, backward=list
    )
    assert sorted(seen) == sorted(pairs["anchor"]) == sorted(anchors(20)["anchor"][:count])


def test_supervised_paser_reads_five_columns(tiny_encoder):
    loss = paser.paser_supervised_loss(tiny_encoder(), **SMALL["paser-supervised"])
    assert loss.columns_of == {"contrastive": [0, 1, 2], "paser": [0, 3, 4]}


def test_counts_are_made_for_another_vocabulary_only(tiny_encoder, minilm_mlm):
    found = prepare("bag-of-words", anchors(40), tiny_encoder())[1]["frequencies"]
    assert found.counts.sum() > 0
    assert prepare("bag-of-words", anchors(40), minilm_mlm)[1] == {}
    assert prepare("bag-of-words", anchors(40), tiny_encoder(), token_weights=None)[1] == {}


@pytest.mark.parametrize("name", ["arccse", "pt-bert", "paser", "denosent", "slt-fai"])
def test_docstrings_name_the_scores_of_short_trainings(name):
    text = getattr(losses, recipes.RECIPES[name].loss_class or recipes.RECIPES[name].loss).__doc__
    assert all(str(score) in text for score in (*METHODS[name].scores, *METHODS["recommended"].scores))


class TestRecommended:
    def loss(self, model, **keywords):
        found = prepare("recommended", anchors(40), model, **keywords)[1]
        return recommended.recommended_loss(model, **(found | keywords))

    def test_without_words_it_is_consert(self, tiny_encoder):
        loss = recommended.recommended_loss(tiny_encoder(), words=0, temperature=0.2)
        assert isinstance(loss, losses.ConSERTLoss)
        assert loss.temperature == 0.2

    def test_words_are_bounded(self, tiny_encoder):
        loss = self.loss(tiny_encoder(), words=0.5)
        assert list(loss.losses) == ["contrast", "words"]
        assert loss.balance == 0.5

    def test_keep_adds_self_distillation(self, tiny_encoder):
        model = tiny_encoder().train()
        loss = self.loss(model, keep=0.1)
        assert loss.weights["keep"] == 0.1
        assert loss.losses["learn"].second_view == ("feature_cutoff",)
        terms = loss([model.preprocess(project_text()[:4])])
        assert {name.split("/")[0] for name in terms} == {"learn", "keep"}

    def test_keep_and_words(self, tiny_encoder):
        loss = self.loss(tiny_encoder(), keep=0.1, words=0.3, second_view=("dropout",))
        assert list(loss.losses["learn"].losses) == ["contrast", "words"]
        assert loss.losses["learn"].losses["contrast"].second_view == ("dropout",)

    def test_words_are_counted_only_if_they_are_used(self, tiny_encoder):
        for given, found in (
            ({"keep": 0.1}, {"keep", "words"}),
            ({"words": 0.0}, {"keep", "words"}),
            ({"keep": 0.1, "words": 0.3}, {"keep", "words", "frequencies"}),
        ):
            assert {*prepare("recommended", anchors(40), tiny_encoder(), **given)[1]} == found

    def test_defaults_follow_the_start(self, tiny_encoder, tmp_path):
        model = tiny_encoder()
        assert not recipes.embeds_already(model)
        model.save_pretrained(str(tmp_path))
        assert recipes.embeds_already(SentenceTransformer(str(tmp_path), device="cpu"))
        embedder = SentenceTransformer(str(tmp_path), device="cpu")
        for start, keep in ((embedder, 0.1), (model, 0.0)):
            assert prepare("recommended", anchors(40), start)[1]["keep"] == keep
        assert recommended.recommended_loss(embedder).weights == {"learn": 1.0, "keep": 0.1}
        assert isinstance(recommended.recommended_loss(model, words=0), losses.ConSERTLoss)
