import pytest
from torch import nn

from sbert_plugins.modules import warn_unless_kept


def test_says_how_to_mend_it_and_says_it_once(recwarn):
    loss = nn.Linear(2, 2)
    loss.state_is_kept = False
    with pytest.warns(UserWarning, match=r"callbacks=\[sbert_plugins.training.LossStateCallback\(loss\)\]"):
        warn_unless_kept(loss)
    warn_unless_kept(loss)
    assert len(recwarn) == 0
