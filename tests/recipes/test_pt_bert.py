from sbert_plugins import recipes


def test_settings_are_the_papers():
    settings = recipes.PT_BERT.settings
    assert (settings.batch_size, settings.epochs, settings.eval_steps) == (64, 1, 125)
    assert (settings.learning_rate, settings.max_seq_length, settings.pooling) == (3e-5, 64, "cls")
