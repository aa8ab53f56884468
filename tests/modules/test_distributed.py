"""One process; two ranks are in ``training/test_ranks.py``."""

import torch

from sbert_plugins.modules import rows_of_other_ranks


def test_a_single_process_has_no_others():
    assert rows_of_other_ranks(torch.randn(3, 4)) is None
