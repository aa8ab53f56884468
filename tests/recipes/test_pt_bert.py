import json

import pytest
from recipe_inputs import anchors, quick
from sentence_transformers import SentenceTransformer

from sbert_plugins import data, recipes


def test_settings_are_the_papers():
    settings = recipes.PT_BERT.settings
    assert (settings.batch_size, settings.epochs, settings.eval_steps) == (64, 1, 125)
    assert (settings.learning_rate, settings.max_seq_length, settings.pooling) == (3e-5, 64, "cls")


def test_a_discrete_baseline_of_the_paper(tiny_encoder, tmp_path):
    """MoCo-BERT + deletion: the momentum encoder reads the altered copy."""
    pairs = data.positive_pairs(anchors(30)["anchor"], "deletion", ratio=0.3)
    results = recipes.train(
        "pt-bert",
        pairs,
        tiny_encoder(),
        output=tmp_path / "run",
        settings=quick(max_steps=2),
        loss_keywords={"num_pseudo_tokens": 0},
    )
    assert results["rows"] == 30
    assert results["loss"]["num_pseudo_tokens"] == 0
    assert "contrastive" in set().union(*results["log"])


@pytest.mark.parametrize(
    ("pooling", "keywords", "attention"),
    [
        ("cls", {}, "pooled"),
        ("mean", {}, "tokens"),
        ("lasttoken", {}, "pooled"),
        ("cls", {"attend_to": "tokens"}, "tokens"),
        ("mean", {"attend_to": "pooled"}, "pooled"),
        ("mean", {"official": True}, "pooled"),
    ],
)
def test_attention_goes_with_the_pooling(tiny_encoder, tmp_path, pooling, keywords, attention):
    """Unless it is given: the vector that is compared is then like the one that is saved."""
    model, output = tiny_encoder(pooling=pooling), tmp_path / "run"
    results = recipes.train(
        "pt-bert", anchors(20), model, output=output, settings=quick(max_steps=1, pooling=pooling), loss_keywords=keywords
    )
    assert results["loss"]["attend_to"] == attention
    loss = recipes.load_loss(output, SentenceTransformer(str(output / "model"), device="cpu"))
    assert loss.mapping.attention.attend_to == attention


def test_a_loss_comes_back_with_the_attention_on_record(tiny_encoder, tmp_path):
    """As when its default was all tokens, whatever the pooling, and no record had what was found."""
    settings = quick(max_steps=1, pooling="cls")
    recipes.train("pt-bert", anchors(20), tiny_encoder(), output=tmp_path / "run", settings=settings)
    path = tmp_path / "run" / "results.json"
    record = json.loads(path.read_text())
    record["loss"]["attend_to"] = "tokens"
    del record["loss_found"]
    path.write_text(json.dumps(record))
    loss = recipes.load_loss(tmp_path / "run", SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu"))
    assert loss.mapping.attention.attend_to == "tokens"


@pytest.mark.parametrize(("pooling", "attention"), [("cls", "pooled"), ("mean", "tokens")])
def test_inside_slt_fai_too(tiny_encoder, pooling, attention):
    from encoders import project_counts

    model = tiny_encoder(pooling=pooling)
    loss = recipes.slt_fai_loss(model, backbone="pt-bert", frequencies=project_counts(model.tokenizer))
    assert loss.loss.mapping.attention.attend_to == attention
