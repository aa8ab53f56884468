import logging

import pytest
from datasets import Dataset
from encoders import SENTENCES
from sentence_transformers import SentenceTransformerTrainingArguments
from torch import nn

from sbert_plugins import data, losses
from sbert_plugins.training import SentenceTransformerTrainer
from sbert_plugins.training.idle import hints_of, idle_parts

ARCCSE = {"": losses.ArcCSELoss.idle_hints}
LAYERED = {"information": "Take fewer layers."}


def history(**series):
    return [dict(zip(series, values, strict=True)) for values in zip(*series.values(), strict=True)]


def test_a_term_that_was_always_zero():
    log = [*history(arccon=[2.0, 1.0], triplet=[0.0, 0.0]), {"eval_triplet": 0.0}]
    (note,) = idle_parts(log, ["arccon", "triplet"])
    assert note == "The term triplet was 0 in all of the training."
    (note,) = idle_parts(log, ["arccon", "triplet"], hints=ARCCSE)
    assert note.startswith("The term triplet was 0 in all of the training: no sentence was long enough (long_share;")


def test_what_was_no_number_is_not_counted():
    """The trainer logs None in its place."""
    assert idle_parts(history(loss=[1.0, 1.0], triplet=[None, None], information=[None, None]), ["triplet"]) == []
    (note,) = idle_parts(history(information=[None, 0.01]), [])
    assert "information ended at 0.010 nats" in note


def test_a_term_that_ended_at_zero_did_something():
    assert idle_parts(history(triplet=[0.1, 0.0]), ["triplet"]) == []


@pytest.mark.parametrize("prefix", ["", "base/"])
def test_a_term_that_the_log_rounds_to_zero_did_something(prefix):
    term = f"{prefix}triplet"
    assert idle_parts(history(**{term: [0.0, 0.0], f"{term}_active": [0.0156, 0.0]}), [term]) == []
    (note,) = idle_parts(history(**{term: [0.0, 0.0], f"{term}_active": [0.0, 0.0]}), [term], hints=ARCCSE)
    assert "all were in order already" in note


@pytest.mark.parametrize("key", ["information", "words/information"])
def test_a_decoder_that_read_nothing_in_the_end(key):
    assert idle_parts(history(**{key: [0.0, 0.0, 0.2]}), []) == []
    (note,) = idle_parts(history(**{key: [0.3, 0.1, 0.01]}), [])
    assert f"{key} ended at 0.010 nats a token" in note


def test_what_is_likely_depends_on_the_decoder():
    log = history(information=[-0.0002])
    (layered,), (without,) = idle_parts(log, [], hints={"": LAYERED}), idle_parts(log, [])
    assert "information ended at 0.000 nats" in without
    assert layered.endswith("What it taught is noise. Take fewer layers.")
    assert without.endswith(
        "the encoder's head knows no words (random, or not in its checkpoint), or the training was too short."
    )


@pytest.mark.parametrize("layers", [0, 1])
def test_decoders_with_layers_say_so(tiny_encoder, layers):
    """Also inside a sum, of each dataset's loss."""
    model = tiny_encoder()
    weights = {"token_weights": None, "mlm_head": "fresh"}
    words = losses.BagOfWordsLoss(model, **weights)
    deno = losses.DenoSentLoss(model, decoder_layers=layers, decoder_heads=2, **weights)
    both = losses.WeightedSumLoss(model, {"a": (words, 1.0), "b": (deno, 1.0)})
    said = {"information": "Longer trainings may read; decoder_layers=0 reads from the start."} if layers else {}
    assert hints_of(both) == {"": said}
    assert hints_of({"x": words, "y": both}) == {"x": {}, "y": said}


@pytest.mark.parametrize(("build", "terms"), [(losses.ArcCSELoss, {"triplet"}), (losses.ConSERTLoss, set())])
def test_what_a_loss_round_another_says_of_both(tiny_encoder, build, terms):
    model = tiny_encoder()
    counts = data.TokenFrequencies.from_corpus(SENTENCES, model.tokenizer)
    hints = hints_of(losses.SLTFAILoss(model, build(model), frequencies=counts))
    assert hints.keys() == {""}
    assert hints[""].keys() == {"adversarial", "filtering", *terms}


def test_of_two_datasets_each_decoder_is_told_of_itself_and_once():
    log = history(**{"x/information": [0.0], "y/information": [0.0], "eval_x/information": [0.0]})
    of_x, of_y = idle_parts(log, [], hints={"x": {}, "y": LAYERED})
    assert of_x.startswith("The decoder did not read the sentence vectors: x/information")
    assert "knows no words" in of_x
    assert "fewer layers" in of_y


class Halfway(nn.Module):
    """A contrast, and the norm of its vectors, which somebody detached."""

    def __init__(self, model, *, detached):
        super().__init__()
        self.model, self.detached = model, detached

    def forward(self, sentence_features, labels=None):
        vectors = self.model(next(iter(sentence_features)))["sentence_embedding"]
        norm = vectors.norm()
        return {"spread": vectors.var(), "norm": norm.detach() if self.detached else norm}


@pytest.mark.parametrize("place", ["alone", "in a sum", "of a dataset"])
@pytest.mark.parametrize("detached", [True, False])
def test_a_term_without_a_gradient_is_named(tiny_encoder, tmp_path, caplog, place, detached):
    model = tiny_encoder()
    loss, texts = Halfway(model, detached=detached), Dataset.from_dict({"anchor": SENTENCES})
    if place == "in a sum":
        loss = losses.WeightedSumLoss(model, {"mine": (loss, 1.0), "words": (losses.ConSERTLoss(model), 1.0)})
    several = place == "of a dataset"
    trainer = SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(
            output_dir=str(tmp_path), max_steps=2, logging_steps=1, save_strategy="no", report_to="none", use_cpu=True
        ),
        train_dataset={"mine": texts} if several else texts,
        loss={"mine": loss} if several else loss,
    )
    with caplog.at_level(logging.WARNING, logger="sbert_plugins"):
        trainer.train()
    name = "norm" if place == "alone" else "mine/norm"
    assert (f"The term {name} had no gradient in any batch" in caplog.text) is detached


def test_a_resumed_training_says_nothing_of_gradients_that_it_has_not_seen(tiny_encoder, tmp_path, caplog):
    def trainer(steps, *, detached):
        model = tiny_encoder()
        return SentenceTransformerTrainer(
            model=model,
            args=SentenceTransformerTrainingArguments(
                output_dir=str(tmp_path), max_steps=steps, logging_steps=1, save_steps=1, report_to="none", use_cpu=True
            ),
            train_dataset=Dataset.from_dict({"anchor": SENTENCES}),
            loss=Halfway(model, detached=detached),
        )

    trainer(1, detached=False).train()
    with caplog.at_level(logging.WARNING, logger="sbert_plugins"):
        trainer(2, detached=True).train(resume_from_checkpoint=True)
    assert "had no gradient" not in caplog.text


def test_the_trainer_says_it(tiny_encoder, tmp_path, caplog):
    model = tiny_encoder()
    short = [text for text in SENTENCES if len(text.split()) < 20]
    trainer = SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(
            output_dir=str(tmp_path), max_steps=2, logging_steps=1, save_strategy="no", report_to="none", use_cpu=True
        ),
        train_dataset=Dataset.from_dict({"anchor": short}),
        loss=losses.ArcCSELoss(model),
    )
    with caplog.at_level(logging.WARNING, logger="sbert_plugins"):
        trainer.train()
    assert "The term triplet was 0 in all of the training" in caplog.text


@pytest.mark.parametrize(
    ("values", "is_told"),
    [
        ([0.3, 0.3, 0.3, 0.3, 0.01, 0.01], True),  # by the last third
        ([0.3, 0.3, 0.3, 0.3, 0.2, 0.01], False),  # whose mean counts
        ([0.0, 0.0, 0.0, 0.0, 0.04, 0.05], True),
        ([0.0, 0.0, 0.0, 0.0, 0.04, 0.07], False),
    ],
)
@pytest.mark.parametrize("key", ["information", "eval_x/information"])  # few batches are probed: perhaps none in training
def test_a_decoder_is_judged_by_the_end_of_the_training(key, values, is_told):
    assert len(idle_parts([{key: value} for value in values], [])) == is_told


def test_a_decoder_inside_the_loss_of_a_dataset():
    (note,) = idle_parts([{"x/words/information": 0.0}], [], hints={"x": LAYERED})
    assert "fewer layers" in note
