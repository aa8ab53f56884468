import pytest
import torch
from encoders import project_counts
from recipe_inputs import anchors, quick

from sbert_plugins import data, losses, recipes


def counts(model):
    return project_counts(model.tokenizer)


class TestSettings:
    def test_are_the_backbone_s_with_smaller_batches(self):
        simcse, consert = recipes.slt_fai_settings(), recipes.slt_fai_settings("consert")
        assert simcse.batch_size == consert.batch_size == 32
        assert simcse.pooling == consert.pooling == "mean"
        assert (simcse.learning_rate, simcse.epochs, simcse.max_seq_length) == (3e-5, 1, 32)
        assert (consert.learning_rate, consert.max_steps, consert.max_seq_length) == (5e-5, 60, 32)

    def test_of_another_backbone_are_its_own(self):
        assert recipes.settings_of("slt-fai", {"backbone": "arccse"}) == recipes.ARCCSE.settings
        assert recipes.settings_of("slt-fai") == recipes.slt_fai_settings("simcse")
        assert recipes.settings_of("arccse") == recipes.ARCCSE.settings
        assert recipes.settings_of("slt-fai", {"backbone": "arccse"}, offline=True) == recipes.ARCCSE.offline
        assert recipes.settings_of("slt-fai", {"backbone": "consert"}, offline=True) == recipes.SLT_FAI.offline

    @pytest.mark.parametrize("backbone", ["bert", "slt-fai", "paser", "paser-supervised"])
    def test_unknown_backbone(self, backbone):
        with pytest.raises(ValueError, match=f"backbone must be one of simcse, consert, arccse.*, got '{backbone}'"):
            recipes.slt_fai_settings(backbone)


class TestLoss:
    @pytest.mark.parametrize(
        ("backbone", "base"), [("simcse", "WeightedSumLoss"), ("consert", "ConSERTLoss"), ("arccse", "ArcCSELoss")]
    )
    def test_backbones(self, tiny_encoder, backbone, base):
        model = tiny_encoder()
        loss = recipes.slt_fai_loss(model, backbone=backbone, frequencies=counts(model))
        assert type(loss.loss).__name__ == base

    @pytest.mark.parametrize(
        ("keywords", "changes", "share"),
        [
            ({}, {"epochs": 1}, 0.1),  # 0.1 epochs round SimCSE, 0.5 round ConSERT
            ({"backbone": "consert"}, {"epochs": 10}, 0.05),
            ({"backbone": "consert"}, {"epochs": 2}, 0.25),
            ({"backbone": "consert"}, {"epochs": 0.5}, 0.5),  # never more than half of the training
            ({"backbone": "consert"}, {"epochs": 1, "max_steps": 10, "batch_size": 16}, 0.125),  # 4 epochs
        ],
    )
    def test_warmup_is_the_papers_number_of_epochs(self, minilm, keywords, changes, share):
        settings = recipes.with_changes(recipes.slt_fai_settings(), **changes)
        assert recipes.SLT_FAI.keywords(anchors(40), minilm, settings, keywords) == {"warmup_steps": pytest.approx(share)}

    def test_keywords_reach_their_loss(self, tiny_encoder, tmp_path):
        model = tiny_encoder()
        counts(model).save(tmp_path / "counts.npz")
        loss = recipes.slt_fai_loss(
            model, temperature=0.1, frequencies=str(tmp_path / "counts.npz"), masking_ratio=0.5, warmup_steps=7
        )
        assert loss.loss.losses["simcse"].scale == pytest.approx(10)
        assert (loss.masking_ratio, loss.warmup_steps) == (0.5, 7)
        assert (
            recipes.slt_fai_loss(model, backbone="consert", temperature=0.2, frequencies=counts(model)).loss.temperature == 0.2
        )

    def test_a_keyword_that_the_backbone_has_not(self, tiny_encoder):
        model = tiny_encoder()
        with pytest.raises(ValueError, match="mlm_head is no keyword of consert's loss, got fresh: leave it out"):
            recipes.slt_fai_loss(model, backbone="consert", frequencies=counts(model), mlm_head="fresh")

    def test_minilm_has_the_counts_of_bookcorpus(self, minilm):
        assert "frequencies" not in recipes.SLT_FAI.keywords(anchors(5), minilm, recipes.slt_fai_settings(), {})
        assert recipes.slt_fai_loss(minilm).get_config_dict()["frequencies"].startswith("BookCorpus")


def test_another_vocabulary_is_counted_from_the_sentences(tiny_encoder, tmp_path, caplog):
    model = tiny_encoder()
    sentences = anchors(40)
    results = recipes.train(
        "slt-fai", sentences, model, output=tmp_path / "run", settings=quick(), loss_keywords={"backbone": "consert"}
    )
    assert "the text of the training is counted" in caplog.text
    assert results["loss"]["warmup_steps"] == 0.5  # half an epoch, of less than one
    assert results["loss"]["frequencies"].startswith("the sentences of the training [counts ")
    assert results["loss"]["loss"]["class"] == "ConSERTLoss"
    loss = recipes.load_loss(tmp_path / "run", model)
    assert isinstance(loss.loss, losses.ConSERTLoss)
    expected = data.TokenFrequencies.from_corpus(sentences["anchor"][:], model.tokenizer).low_frequency_ids()
    assert torch.equal(loss.low_frequency.nonzero().squeeze(1), torch.as_tensor(expected))


def test_resuming_round_another_backbone_is_refused(tiny_encoder, tmp_path, monkeypatch):
    monkeypatch.setattr("sbert_plugins.training.SentenceTransformerTrainer.save_model", _interrupt_second(monkeypatch))
    with pytest.raises(KeyboardInterrupt):
        recipes.train("slt-fai", anchors(40), tiny_encoder(), output=tmp_path / "run", settings=quick())
    with pytest.raises(ValueError, match="was begun with loss_keywords {} .now {'backbone': 'consert'}."):
        recipes.train(
            "slt-fai",
            anchors(40),
            tiny_encoder(),
            output=tmp_path / "run",
            settings=quick(),
            loss_keywords={"backbone": "consert"},
            resume=True,
        )


def _interrupt_second(monkeypatch):
    from sbert_plugins import training

    save, calls = training.SentenceTransformerTrainer.save_model, []

    def save_model(trainer, *arguments, **keywords):
        calls.append(None)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return save(trainer, *arguments, **keywords)

    return save_model
