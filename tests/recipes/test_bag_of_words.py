from sbert_plugins import losses, recipes


def test_is_the_loss_with_its_defaults(minilm_mlm):
    loss = recipes.build_loss("bag-of-words", minilm_mlm)
    assert isinstance(loss, losses.BagOfWordsLoss)
    assert loss.get_config_dict() == losses.BagOfWordsLoss(minilm_mlm).get_config_dict()
    settings = recipes.settings_of("bag-of-words")
    assert (settings.pooling, settings.max_steps) == ("mean", 60)
