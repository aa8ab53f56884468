from recipe_inputs import anchors, quick

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
