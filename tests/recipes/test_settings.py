from sbert_plugins import recipes


def test_changes_that_are_none_change_nothing():
    settings = recipes.ARCCSE.settings
    assert recipes.with_changes(settings, epochs=None, batch_size=None) == settings


def test_zero_is_a_change():
    assert recipes.with_changes(recipes.ARCCSE.settings, sam_rho=0).sam_rho == 0
