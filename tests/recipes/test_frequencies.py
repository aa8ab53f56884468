import logging

from recipe_inputs import anchors

from sbert_plugins.recipes.frequencies import frequencies_of

SETTINGS = None  # nothing of them is read


def test_counts_the_text_for_another_vocabulary(tiny_encoder, caplog):
    model, sentences = tiny_encoder(), anchors(20)
    with caplog.at_level(logging.WARNING, logger="sbert_plugins"):
        found = frequencies_of(sentences, model, SETTINGS, {})["frequencies"]
    assert found.fits(model.tokenizer)
    assert found.source == "the sentences of the training"
    assert "the text of the training is counted" in caplog.text


def test_the_first_column_counts_not_its_name(tiny_encoder):
    model = tiny_encoder()
    found = frequencies_of(anchors(20).rename_column("anchor", "sentence"), model, SETTINGS, {})["frequencies"]
    assert (found.counts == frequencies_of(anchors(20), model, SETTINGS, {})["frequencies"].counts).all()


def test_asks_for_nothing_where_nothing_is_missing(tiny_encoder, minilm_mlm):
    assert frequencies_of(anchors(20), minilm_mlm, SETTINGS, {}) == {}
    assert frequencies_of(anchors(20), tiny_encoder(), SETTINGS, {"token_weights": None}) == {}
    assert frequencies_of(anchors(20), tiny_encoder(), SETTINGS, {"frequencies": "counts.npz"}) == {}
