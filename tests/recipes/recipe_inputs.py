"""Sentences, short trainings, and an interruption."""

from contextlib import contextmanager

import pytest
from datasets import Dataset
from encoders import project_text

from sbert_plugins import evaluation, recipes, training

QUICK = {
    "max_steps": 4,
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "eval_steps": 2,
    "sam_rho": 0.0,
    "learning_rate": 1e-3,
}
# The decoders of the papers are too large for tiny encoders.
SMALL = {
    "paser": {"decoder_layers": 1, "decoder_heads": 4},
    "paser-supervised": {"decoder_layers": 1, "decoder_heads": 4},
    "denosent": {"decoder_layers": 2, "decoder_feedforward": 48},
    "pt-bert": {"num_pseudo_tokens": 8},
}


def anchors(count):
    return Dataset.from_dict({"anchor": project_text()[:count]})


def rows(method, count):
    """Sentences, or triplets for the method that reads them."""
    text = project_text()
    columns = recipes.RECIPES[method].reads
    return Dataset.from_dict({name: text[place : count + place] for place, name in enumerate(columns)})


def pairs(name="pairs", step=12):
    some = evaluation.ScoredPairs(*(values[::step] for values in recipes.graded_pairs()))
    return evaluation.PairsEvaluator(some, name=name, write_csv=False)


def prepare(method, table, model, *, epochs=1.0, columns=None, **given):
    """Return what the recipe of a method prepares."""
    facts = {"column_keywords": columns or {}, "seed": 1, "epochs": epochs}
    return recipes.RECIPES[method].prepare(table, model, given, **facts)


def train(method, model, output, *, count=40, **changes):
    """Train a method briefly."""
    keywords = SMALL.get(method, {}) | changes.pop("loss_keywords", {})
    columns = {"synonyms": None} if recipes.RECIPES[method].made_columns else {}
    sentences = changes.pop("sentences", None) or rows(method, count)
    return recipes.train(
        method,
        sentences,
        model,
        output=output,
        loss_keywords=keywords,
        column_keywords=columns,
        **(QUICK | changes),
    )


@contextmanager
def interrupted(after):
    """Interrupt every training of the block after so many updates."""
    step = training.SentenceTransformerTrainer.training_step

    def interrupting(trainer, *arguments):
        if trainer.state.global_step == after:
            raise KeyboardInterrupt
        return step(trainer, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training.SentenceTransformerTrainer, "training_step", interrupting)
        yield
