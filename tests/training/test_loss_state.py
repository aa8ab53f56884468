"""The state of a loss in files, and the callback for sentence-transformers' own trainer."""

import re
import shutil

import pytest
import torch
import training_runs
from encoders import SENTENCES
from sentence_transformers import SentenceTransformerTrainer
from sentence_transformers.sentence_transformer.losses import (
    ContrastiveTensionLossInBatchNegatives,
    MatryoshkaLoss,
    MultipleNegativesRankingLoss,
    SoftmaxLoss,
)
from sentence_transformers.util import dot_score
from torch import nn
from trainings import EVERY_SECOND, Number, Probe, trainer_of

from sbert_plugins import data, losses, training
from sbert_plugins.training.loss_state import SETTINGS_FILE, WEIGHTS_FILE, changed_settings, own_state


def test_own_state_is_what_the_encoder_does_not_have(model):
    # Shared weights belong to the encoder, or appear once; buffers must be persistent.
    loss = losses.ArcCSELoss(model)
    loss.output = nn.Linear(32, len(model.tokenizer))
    loss.output.weight = model[0].model.embeddings.word_embeddings.weight
    loss.twin = nn.Linear(32, 32)
    loss.twin.weight = loss.head.linear.weight
    loss.register_buffer("queue", torch.zeros(3))
    loss.register_buffer("table", torch.zeros(3), persistent=False)
    loss.model = nn.Sequential(model)  # as in a wrapper
    names = {"head.linear.weight", "head.linear.bias", "output.bias", "twin.bias", "queue"}
    assert {*own_state(loss, model)} == names
    assert own_state(MultipleNegativesRankingLoss(model), model) == {}


class TestFiles:
    def test_round_trip(self, model, tmp_path):
        first, second = (
            {
                "a": losses.ArcCSELoss(model),
                "b/c": SoftmaxLoss(model, 32, 3),
                "d": MultipleNegativesRankingLoss(model),
            }
            for _ in range(2)
        )
        for loss in (first, second):
            for dtype in (torch.float32, torch.bfloat16, torch.int64):  # not contiguous
                loss["a"].register_buffer(f"queue {str(dtype)[6:]}", (torch.randn(5, 4) * 100).to(dtype).t())
        training.save_loss_state(first, model, tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == [SETTINGS_FILE, WEIGHTS_FILE]
        assert not torch.equal(*(own_state(loss, model)["a/queue int64"] for loss in (first, second)))
        training.load_loss_state(second, model, tmp_path)
        state = own_state(second, model)
        assert {"a/queue bfloat16", "b/c/classifier.weight"} <= {*state}
        assert all(torch.equal(tensor, state[name]) for name, tensor in own_state(first, model).items())

    @pytest.mark.parametrize(
        ("build", "message"),
        [
            (lambda model: SoftmaxLoss(model, 32, 3), "class: ArcCSELoss, now SoftmaxLoss"),
            (
                lambda model: losses.ArcCSELoss(model, projection_head=False),
                "head.linear.bias: .*, now None",
            ),
            (lambda model: {"a": losses.ArcCSELoss(model)}, "a/head.linear.bias"),
        ],
    )
    def test_another_loss_is_refused_and_unchanged(self, model, tmp_path, build, message):
        training.save_loss_state(losses.ArcCSELoss(model), model, tmp_path)
        other = build(model)
        before = {name: tensor.clone() for name, tensor in own_state(other, model).items()}
        with pytest.raises(ValueError, match=message):
            training.load_loss_state(other, model, tmp_path)
        assert all(torch.equal(tensor, before[name]) for name, tensor in own_state(other, model).items())


class TestSettings:
    @pytest.fixture
    def changes(self, model, tmp_path):
        """Return what differs between the settings of two losses."""

        def compare(first, second):
            training.save_loss_state(first, model, tmp_path)
            return changed_settings(second, tmp_path)

        return compare

    def test_of_any_kind_are_the_same_in_the_next_process(self, model, changes):
        class Odd(Probe):
            def get_config_dict(self):
                function = str(lambda: None)  # with an address
                return {
                    "loss": losses.ArcCSELoss(model),
                    "names": {"b", "a"},
                    "function": function,
                    "of": nn.functional.relu,
                }

        assert changes(Odd(model), Odd(model)) == ""

    def test_of_a_loss_inside_a_wrapper(self, model, changes):
        first, second = (
            MatryoshkaLoss(model, losses.ConSERTLoss(model, temperature=t), [32, 16]) for t in (0.1, 0.3)
        )
        assert changes(first, second) == "loss.temperature: 0.1, now 0.3"

    def test_counts_from_the_same_place(self, model, changes):
        counts = [
            data.TokenFrequencies.from_corpus(texts, model.tokenizer, source="my notes")
            for texts in (SENTENCES, SENTENCES[:3])
        ]
        first, second = (losses.BagOfWordsLoss(model, frequencies=one) for one in counts)
        assert re.fullmatch(r"frequencies: my notes .*, now my notes .*", changes(first, second))
        assert changes(first, first) == ""

    def test_a_learned_weight_is_compared_when_it_is_loaded(self, model, changes, tmp_path):
        trained, fresh, other = (
            ContrastiveTensionLossInBatchNegatives(model, **keywords)
            for keywords in ({}, {}, {"similarity_fct": dot_score})
        )
        with torch.no_grad():
            trained.logit_scale += 0.01
        assert "scale" in changes(trained, fresh)
        for loss, different in ((fresh, ""), (other, "similarity_fct: cos_sim, now dot_score")):
            training.load_loss_state(loss, model, tmp_path)
            assert changed_settings(loss, tmp_path) == different


@pytest.mark.slow
class TestCallback:
    """sentence-transformers' own trainer with the callback."""

    @pytest.mark.parametrize("method", ["arccse", "pt-bert", "slt-fai", "paser"])
    def test_resumes_exactly(self, method, encoder_path, tmp_path):
        def train(**changes):
            return training_runs.run(
                str(tmp_path),
                encoder=encoder_path,
                method=method,
                rows=10,
                steps=2,
                save_steps=1,
                trainer_class=SentenceTransformerTrainer,
                callbacks=lambda loss: [training.LossStateCallback(loss)],
                **changes,
            )

        state = training_runs.state_of(train())
        shutil.rmtree(tmp_path / "checkpoint-2")
        resumed = training_runs.state_of(train(resume=True))
        assert all((state[name] == resumed[name]).all() for name in state)

    @pytest.fixture
    def train(self, tiny_encoder, tmp_path):
        def run(folder, resume=None, scale=1.0, keywords=None, **changes):
            model = tiny_encoder()
            loss = Number(model, scale)
            loss.get_config_dict = lambda: {"scale": scale}
            options = {"trainer_class": SentenceTransformerTrainer} | EVERY_SECOND | changes
            callbacks = [training.LossStateCallback(loss, **(keywords or {}))]
            trainer_of(model, loss, tmp_path / folder, callbacks=callbacks, **options).train(resume)

        return run

    def test_resumes_from_another_folder_by_its_path(self, train, tmp_path):
        train("a")
        checkpoint = str(tmp_path / "a" / "checkpoint-2")
        with pytest.raises(ValueError, match="b/checkpoint-2 does not hold the state"):
            train("b", checkpoint)
        train("b", checkpoint, keywords={"resume_from_checkpoint": checkpoint})
        train("b", seed=1)
        with pytest.raises(ValueError, match="b/checkpoint-2 does not belong to the training"):
            train("b", checkpoint)

    def test_the_trainer_does_its_work(self, train, tmp_path):
        # A resumed training would look for its files in the wrong folder.
        train("a", trainer_class=training.SentenceTransformerTrainer)
        train("b", str(tmp_path / "a" / "checkpoint-2"), trainer_class=training.SentenceTransformerTrainer)
        assert (tmp_path / "b" / "checkpoint-4" / WEIGHTS_FILE).exists()
