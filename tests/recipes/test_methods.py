from sbert_plugins import losses, recipes


def test_each_method_has_a_loss_and_a_paper():
    for name, recipe in recipes.RECIPES.items():
        assert recipe.method == name
        assert hasattr(losses, recipe.loss)
        assert recipe.url.startswith("https://")
