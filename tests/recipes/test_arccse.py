from sbert_plugins import recipes


def test_arccse_settings_are_the_papers():
    settings = recipes.ARCCSE.settings
    assert (settings.learning_rate, settings.epochs, settings.pooling, settings.eval_steps) == (3e-5, 1, "cls", 125)
    assert settings.batch_size * settings.gradient_accumulation_steps == 64
    assert settings.sam_rho == 0.05
