"""What the tests of the recipes train on, and how briefly."""

from contextlib import contextmanager

import pytest
from datasets import Dataset
from encoders import project_text

from sbert_plugins import recipes, training

QUICK = {"max_steps": 4, "batch_size": 8, "eval_steps": 2}


def anchors(count):
    return Dataset.from_dict({"anchor": project_text()[:count]})


def texts(method, count):
    """What a person hands over: sentences, or triplets."""
    if recipes.RECIPES[method].reads == "sentences":
        return anchors(count)
    text = project_text()
    return Dataset.from_dict({"anchor": text[:count], "positive": text[1 : count + 1], "negative": text[2 : count + 2]})


def quick(**changes):
    return recipes.with_changes(recipes.ARCCSE.offline, **(QUICK | changes))


@contextmanager
def interrupted(after):
    """Interrupt every training of the block, as a person would, after so many updates."""
    step = training.SentenceTransformerTrainer.training_step

    def interrupting(trainer, *arguments):
        if trainer.state.global_step == after:
            raise KeyboardInterrupt
        return step(trainer, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training.SentenceTransformerTrainer, "training_step", interrupting)
        yield
