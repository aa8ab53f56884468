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
        ({"learning_rate": math.nan}, "learning_rate must be a finite number above 0, got nan"),
        ({"learning_rate": 0}, "learning_rate must be a finite number above 0, got 0"),
        ({"weight_decay": -1e-5}, "weight_decay must be a finite number, 0 or above, got -1e-05"),
        ({"loss_learning_rate": math.inf}, "loss_learning_rate must be a finite number"),
        ({"sam_rho": math.nan}, "sam_rho must be a finite number"),
        ({"epochs": 0}, "epochs must be a finite number above 0, got 0"),
        ({"epochs": math.nan}, "epochs must be a finite number above 0, got nan"),
        ({"max_steps": -2}, "max_steps must be at least 1, or -1 to go by epochs, got -2"),
        ({"gradient_accumulation_steps": 0}, "gradient_accumulation_steps must be at least 1, got 0"),
        ({"max_seq_length": 0}, "max_seq_length must be at least 1, got 0"),
        ({"patience": 0}, "patience must be at least 1, got 0"),
        ({"weight_decay": math.nan}, "weight_decay must be a finite number, 0 or above, got nan"),
        ({"weight_decay": -0.1}, "weight_decay must be a finite number, 0 or above, got -0.1"),
        ({"learning_rate_warmup": math.inf}, "learning_rate_warmup must be a finite number"),
        ({"learning_rate_warmup": -1}, "learning_rate_warmup must be a finite number, 0 or above, got -1"),
        ({"learning_rate_warmup": 1.5}, "learning_rate_warmup must be a share below 1 or a whole number of updates, got 1.5"),
        ({"batch_size": 2.5}, "batch_size must be a whole number, got 2.5"),
        ({"batch_size": "64"}, "batch_size must be a whole number, got '64'"),
        ({"eval_steps": True}, "eval_steps must be a whole number, got True"),
        ({"group_by_length": "no"}, "group_by_length must be True or False, got 'no'"),
        ({"learning_rate_schedule": "cosine"}, "learning_rate_schedule must be one of linear, constant, got 'cosine'"),
    ],
)
def test_what_no_training_can_have(changes, message):
    with pytest.raises(ValueError, match=message):
        recipes.with_changes(recipes.ARCCSE.settings, **changes)


@pytest.mark.parametrize(
    ("changes", "rows", "updates"),
    [
        ({}, 1000, 16),  # 32 batches of 32, two an update
        ({"epochs": 0.5}, 1000, 8),
        ({"epochs": 1e-9}, 1000, 1),
        ({"max_steps": 7}, 1000, 7),
        ({"gradient_accumulation_steps": 1}, 1000, 32),
        ({"epochs": 0.6}, 1000, 10),  # 9.6 of 16, as the host rounds
        ({"gradient_accumulation_steps": 3}, 1000, 11),  # the last one of two batches
        ({"batch_size": 64, "gradient_accumulation_steps": 1}, 1281, 20),  # the last would be a batch of one
        ({"batch_size": 64, "gradient_accumulation_steps": 1}, 1282, 21),
    ],
)
def test_updates(changes, rows, updates):
    assert recipes.with_changes(recipes.ARCCSE.settings, **changes).updates(rows) == updates


@pytest.mark.parametrize(("rows", "updates"), [(160, 10), (161, 10), (168, 10), (175, 10), (176, 11)])
def test_updates_of_two_processes(rows, updates):
    """Batches of 8 go to them in turn; what is left of a batch and of a round is dropped, as the host drops it."""
    settings = recipes.with_changes(recipes.ARCCSE.settings, batch_size=8, gradient_accumulation_steps=1)
    assert settings.updates(rows, processes=2) == updates
    with pytest.raises(ValueError, match="2 processes need a batch of 8 each, got 15 rows: lower batch_size"):
        settings.updates(15, processes=2)


@pytest.mark.parametrize(("warmup", "updates"), [(0, 0), (0.1, 2), (0.5, 8), (1, 1), (500, 500)])
def test_warmup(warmup, updates):
    assert recipes.with_changes(recipes.ARCCSE.settings, learning_rate_warmup=warmup).warmup_updates(16) == updates
