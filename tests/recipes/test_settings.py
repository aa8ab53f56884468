import math

import pytest

from sbert_plugins import recipes


def test_changes_that_are_none_change_nothing():
    settings = recipes.ARCCSE.settings
    assert recipes.with_changes(settings, epochs=None, batch_size=None) == settings


def test_zero_is_a_change():
    assert recipes.with_changes(recipes.ARCCSE.settings, sam_rho=0).sam_rho == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 1}, "batch_size must be at least 2, got 1"),
        ({"learning_rate": math.nan}, "learning_rate must be a finite number, 0 or above, got nan"),
        ({"learning_rate": -1e-5}, "learning_rate must be a finite number, 0 or above, got -1e-05"),
        ({"loss_learning_rate": math.inf}, "loss_learning_rate must be a finite number"),
        ({"sam_rho": math.nan}, "sam_rho must be a finite number"),
        ({"epochs": 0}, "epochs must be a finite number above 0, got 0"),
        ({"epochs": math.nan}, "epochs must be a finite number above 0, got nan"),
        ({"max_steps": -2}, "max_steps must be at least 1, or -1 to go by epochs, got -2"),
        ({"gradient_accumulation_steps": 0}, "gradient_accumulation_steps must be at least 1, got 0"),
        ({"max_seq_length": 0}, "max_seq_length must be at least 1, got 0"),
    ],
)
def test_what_no_training_can_have(changes, message):
    with pytest.raises(ValueError, match=message):
        recipes.with_changes(recipes.ARCCSE.settings, **changes)
