import json
import re
import shutil
import warnings
from functools import partial

import numpy as np
import pytest
import torch
import training_runs
from encoders import SENTENCES
from methods import METHODS
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformerTrainer
from sentence_transformers.sentence_transformer.losses import (
    ContrastiveTensionLossInBatchNegatives,
    DenoisingAutoEncoderLoss,
    MatryoshkaLoss,
    MultipleNegativesRankingLoss,
    SiameseDistanceMetric,
    SoftmaxLoss,
)
from sentence_transformers.util import dot_score
from torch import nn
from transformers import TrainerCallback

from sbert_plugins import data, losses, training
from sbert_plugins.training.finite import DivergedError
from sbert_plugins.training.loss_state import INDEX_FILE, WEIGHTS_FILE, check_settings, own_state, plain_settings_of


class Counter(nn.Module):
    def get_extra_state(self):
        return {"count": 3}


class Steps(nn.Module):
    """Counts in a number, and says by what function, as a repr has it: with its address."""

    def __init__(self):
        super().__init__()
        self.steps = 0

    def get_extra_state(self):
        return torch.tensor(self.steps)

    def set_extra_state(self, state):
        self.steps = state.item()

    def get_config_dict(self):
        return {"distance": str(lambda: self.steps)}


@pytest.fixture
def model(tiny_encoder):
    return tiny_encoder()


@pytest.fixture
def saved(model, tmp_path):
    torch.manual_seed(1)
    loss = losses.ArcCSELoss(model)
    training.save_loss_state(loss, model, tmp_path)
    return loss, tmp_path


class TestOwnState:
    def test_nothing_of_the_encoder(self, model):
        assert set(own_state(losses.ArcCSELoss(model), model)) == {"head.linear.weight", "head.linear.bias"}
        assert own_state(MultipleNegativesRankingLoss(model), model) == {}
        assert set(own_state(SoftmaxLoss(model, 32, 3), model)) == {"classifier.weight", "classifier.bias"}

    def test_tied_to_the_encoder(self, model):
        """An output layer that shares the encoder's embeddings is the encoder's."""
        loss = losses.ArcCSELoss(model)
        loss.output = nn.Linear(32, len(model.tokenizer))
        loss.output.weight = model[0].model.embeddings.word_embeddings.weight
        assert set(own_state(loss, model)) == {"head.linear.weight", "head.linear.bias", "output.bias"}

    def test_tied_within_the_loss(self, model, tmp_path):
        loss = losses.ArcCSELoss(model)
        loss.twin = nn.Linear(32, 32)
        loss.twin.weight = loss.head.linear.weight
        assert "twin.weight" not in own_state(loss, model)
        before = loss.twin.weight.detach().clone()
        training.save_loss_state(loss, model, tmp_path)
        with torch.no_grad():
            loss.twin.weight.zero_()
        training.load_loss_state(loss, model, tmp_path)
        assert torch.equal(loss.head.linear.weight, before)
        assert loss.twin.weight is loss.head.linear.weight

    def test_persistent_buffers_only(self, model):
        loss = losses.ArcCSELoss(model)
        loss.register_buffer("queue", torch.zeros(3))
        loss.register_buffer("table", torch.zeros(3), persistent=False)
        assert "queue" in own_state(loss, model)
        assert "table" not in own_state(loss, model)

    def test_through_a_wrapper_round_the_model(self, model):
        """The trainer swaps a wrapped model into the loss; names and contents stay."""

        class Wrapper(nn.Module):
            def __init__(self, module):
                super().__init__()
                self.module = module

        loss = losses.ArcCSELoss(model)
        loss.model = Wrapper(model)
        assert set(own_state(loss, model)) == {"head.linear.weight", "head.linear.bias"}

    def test_what_is_no_tensor_is_refused(self, model):
        loss = losses.ArcCSELoss(model)
        loss.counter = Counter()
        with pytest.raises(TypeError, match=r"ArcCSELoss keeps counter._extra_state of type dict .* hold it in a buffer"):
            own_state(loss, model)


class TestFiles:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
    def test_round_trip(self, model, tmp_path, dtype):
        torch.manual_seed(1)
        first, second = losses.ArcCSELoss(model), losses.ArcCSELoss(model)
        for loss in (first, second):
            loss.register_buffer("queue", (torch.randn(5, 4) * 100).to(dtype).t())  # not contiguous
        training.save_loss_state(first, model, tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == [INDEX_FILE, WEIGHTS_FILE]
        assert not torch.equal(first.queue, second.queue)
        training.load_loss_state(second, model, tmp_path)
        for name, tensor in own_state(first, model).items():
            assert torch.equal(tensor, own_state(second, model)[name])

    def test_a_dict_of_losses(self, model, tmp_path):
        torch.manual_seed(1)
        first = {"a": losses.ArcCSELoss(model), "b/c": SoftmaxLoss(model, 32, 3), "d": MultipleNegativesRankingLoss(model)}
        training.save_loss_state(first, model, tmp_path)
        second = {"a": losses.ArcCSELoss(model), "b/c": SoftmaxLoss(model, 32, 3), "d": MultipleNegativesRankingLoss(model)}
        training.load_loss_state(second, model, tmp_path)
        assert torch.equal(first["a"].head.linear.weight, second["a"].head.linear.weight)
        assert torch.equal(first["b/c"].classifier.weight, second["b/c"].classifier.weight)
        with pytest.raises(ValueError, match="loss_state.json holds the losses 'a', 'b/c', 'd', got 'a'"):
            training.load_loss_state({"a": second["a"]}, model, tmp_path)

    def test_a_loss_without_state(self, model, tmp_path):
        loss = MultipleNegativesRankingLoss(model)
        training.load_loss_state(loss, model, tmp_path)  # a checkpoint of the host's trainer will do
        training.save_loss_state(loss, model, tmp_path)
        training.load_loss_state(loss, model, tmp_path)

    def test_extra_state(self, model, tmp_path):
        """Torch's way to keep what is no buffer: a tensor is stored, and given back by the method that torch has for it."""
        trained, fresh = MatryoshkaLoss(model, Steps(), [32, 16]), MatryoshkaLoss(model, Steps(), [32, 16])
        trained.loss.steps = 5
        training.save_loss_state(trained, model, tmp_path)
        training.load_loss_state(fresh, model, tmp_path)
        assert fresh.loss.steps == 5


class TestMismatch:
    """Each error names the file and the mismatch, and leaves the loss as it was."""

    def expect(self, loss, model, folder, message):
        before = {name: tensor.clone() for name, tensor in loss.state_dict().items()}
        with pytest.raises(ValueError, match=message):
            training.load_loss_state(loss, model, folder)
        assert all(torch.equal(tensor, before[name]) for name, tensor in loss.state_dict().items())

    def test_no_loss_state(self, model, tmp_path):
        self.expect(losses.ArcCSELoss(model), model, tmp_path, "loss_state.json does not exist, but ArcCSELoss owns weights")

    def test_another_loss(self, model, saved):
        loss = SoftmaxLoss(model, 32, 3)
        self.expect(loss, model, saved[1], "loss_state.json holds the state of ArcCSELoss, got SoftmaxLoss")

    def test_other_parts(self, model, saved):
        loss = losses.ArcCSELoss(model)
        loss.register_buffer("queue", torch.zeros(3))
        self.expect(loss, model, saved[1], "loss_state.json lacks queue")
        self.expect(losses.ArcCSELoss(model, projection_head=False), model, saved[1], "also holds head.linear.bias, head")

    def test_another_size(self, saved, tiny_encoder):
        other = tiny_encoder("distilbert", dim=64, hidden_dim=64)
        message = r"holds head.linear.\w+ as float32 \(32.*\), the loss has float32 \(64"
        self.expect(losses.ArcCSELoss(other), other, saved[1], message)

    @pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
    def test_cut_off(self, saved, model, share):
        _, folder = saved
        content = (folder / WEIGHTS_FILE).read_bytes()
        (folder / WEIGHTS_FILE).write_bytes(content[: int(share * len(content))])
        self.expect(losses.ArcCSELoss(model), model, folder, "loss_state.safetensors is damaged or cut off")

    def test_gone(self, saved, model):
        (saved[1] / WEIGHTS_FILE).unlink()
        self.expect(losses.ArcCSELoss(model), model, saved[1], "loss_state.safetensors is damaged or cut off")

    @pytest.mark.parametrize("content", ["", '{"losses": {"', "[]", "{}"])
    def test_damaged_index(self, saved, model, content):
        (saved[1] / INDEX_FILE).write_text(content)
        self.expect(losses.ArcCSELoss(model), model, saved[1], "loss_state.json is damaged")

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda queue: queue[:1], r"safetensors holds queue as float32 \(1, 32\), the loss has float32 \(4, 32\)"),
            (lambda queue: queue.to(torch.int8), r"safetensors holds queue as int8 \(4, 32\), the loss has float32"),
            (lambda queue: queue.flatten(), r"safetensors holds queue as float32 \(128,\)"),
        ],
    )
    def test_tensors_are_not_what_the_index_says(self, model, tmp_path, change, message):
        """Copying would broadcast, or cast."""
        loss = losses.ArcCSELoss(model)
        loss.register_buffer("queue", torch.randn(4, 32))
        training.save_loss_state(loss, model, tmp_path)
        tensors = load_file(tmp_path / WEIGHTS_FILE)
        save_file(tensors | {"queue": change(tensors["queue"])}, tmp_path / WEIGHTS_FILE)
        self.expect(loss, model, tmp_path, message)
        save_file(tensors | {"extra": torch.zeros(1)}, tmp_path / WEIGHTS_FILE)
        self.expect(loss, model, tmp_path, "safetensors also holds extra")

    def test_a_flipped_header(self, saved, model):
        content = bytearray((saved[1] / WEIGHTS_FILE).read_bytes())
        content[8] ^= 1
        (saved[1] / WEIGHTS_FILE).write_bytes(content)
        self.expect(losses.ArcCSELoss(model), model, saved[1], "loss_state.safetensors is damaged or cut off")


class TestSettings:
    def test_what_json_has_not(self, model):
        """It is written alike by two processes, and read as it was written."""

        class Odd(nn.Module):
            def get_config_dict(self):
                return {
                    "loss": losses.ArcCSELoss(model),
                    "function": SiameseDistanceMetric.EUCLIDEAN,
                    "names": {"b", "a"},
                    "pair": (np.float32(0.5), torch.tensor(2)),
                    "infinite": float("inf"),
                    "object": object(),
                    3: None,
                }

        settings = plain_settings_of(Odd())
        assert json.loads(json.dumps(settings, allow_nan=False)) == settings
        assert settings["loss"]["settings"]["temperature"] == 0.05
        assert settings["function"].endswith("SiameseDistanceMetric.<lambda>")
        assert settings["names"] == ["a", "b"]
        assert settings["pair"] == [0.5, 2]
        assert (settings["infinite"], settings["object"], settings["3"]) == ("inf", "builtins.object", None)

    def test_of_a_loss_round_a_loss(self, model):
        loss = MatryoshkaLoss(model, losses.ConSERTLoss(model, temperature=0.3), [32, 16])
        assert plain_settings_of(loss)["loss"]["settings"]["temperature"] == 0.3
        assert plain_settings_of(loss)["matryoshka_dims"] == [32, 16]
        assert plain_settings_of(nn.Linear(2, 2)) == {}

    def test_other_counts_from_the_same_place(self, model, tmp_path):
        count = partial(data.TokenFrequencies.from_corpus, tokenizer=model.tokenizer, source="my notes")
        first, second = count(SENTENCES), count(SENTENCES[:3])
        build = partial(losses.BagOfWordsLoss, model)
        training.save_loss_state(build(frequencies=first), model, tmp_path)
        check_settings(build(frequencies=first), tmp_path)
        with pytest.raises(ValueError, match=r"frequencies my notes \[counts \w+\] \(now my notes \[counts \w+\]\)"):
            check_settings(build(frequencies=second), tmp_path)
        index = tmp_path / INDEX_FILE
        index.write_text(re.sub(r"my notes \[counts \w+\]", "my notes", index.read_text()))  # as earlier versions wrote it
        check_settings(build(frequencies=second), tmp_path)

    def test_what_a_loss_says_of_a_learned_weight(self, model, tmp_path):
        """The scale of the host's contrastive tension: fresh it is what was given, in a checkpoint what it learned."""
        build = partial(ContrastiveTensionLossInBatchNegatives, model)
        trained = build()
        with torch.no_grad():
            trained.logit_scale += 0.01
        training.save_loss_state(trained, model, tmp_path)
        fresh = build()
        check_settings(fresh, tmp_path)
        assert fresh.get_config_dict()["scale"] == pytest.approx(20, rel=1e-6)  # it is only read
        training.load_loss_state(fresh, model, tmp_path)
        assert fresh.get_config_dict() == trained.get_config_dict()
        with pytest.raises(ValueError, match="similarity_fct .*cos_sim .now .*dot_score"):
            check_settings(build(similarity_fct=dot_score), tmp_path)

    def test_a_repr_with_an_address(self, model, tmp_path):
        """No second process has the object there."""
        training.save_loss_state(Steps(), model, tmp_path)
        index = tmp_path / INDEX_FILE
        assert " at 0x" not in index.read_text()
        check_settings(Steps(), tmp_path)
        index.write_text(index.read_text().replace("<lambda>", "<lambda> at 0x7f31"))  # as earlier versions wrote it
        check_settings(Steps(), tmp_path)

    def test_a_learned_setting_beside_damaged_weights(self, model, tmp_path):
        trained = ContrastiveTensionLossInBatchNegatives(model)
        with torch.no_grad():
            trained.logit_scale += 0.01
        training.save_loss_state(trained, model, tmp_path)
        (tmp_path / WEIGHTS_FILE).write_bytes(b"cut")
        with pytest.raises(ValueError, match="damaged or cut off"):
            check_settings(ContrastiveTensionLossInBatchNegatives(model), tmp_path)

    def test_a_loss_that_calls_a_number_as_ours_call_a_part(self, model, tmp_path):
        loss = losses.ArcCSELoss(model)
        loss.warm_up = 100
        training.save_loss_state(loss, model, tmp_path)
        training.load_loss_state(loss, model, tmp_path)
        assert loss.warm_up == 100

    def test_losses_of_a_sum_in_another_order(self, model, tmp_path):
        """The first may lead, or make the pass that the next one reads."""
        members = {"a": (losses.ArcCSELoss(model), 1.0), "b": (losses.ConSERTLoss(model), 1.0)}
        training.save_loss_state(losses.WeightedSumLoss(model, members), model, tmp_path)
        check_settings(losses.WeightedSumLoss(model, members), tmp_path)
        with pytest.raises(ValueError, match=r"the order of the losses a, b \(now b, a\)"):
            check_settings(losses.WeightedSumLoss(model, dict(reversed(members.items()))), tmp_path)


@pytest.mark.slow
class TestCallback:
    """The host's own trainer with the callback."""

    @pytest.mark.parametrize("method", METHODS)
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

    def test_from_another_folder(self, encoder_path, tmp_path):
        arguments = {"encoder": encoder_path, "trainer_class": SentenceTransformerTrainer}
        training_runs.run(str(tmp_path / "a"), callbacks=lambda loss: [training.LossStateCallback(loss)], **arguments)
        checkpoint = str(tmp_path / "a" / "checkpoint-4")
        with pytest.raises(ValueError, match="checkpoint-4/loss_state.json does not exist"):
            training_runs.run(
                str(tmp_path / "b"), resume=checkpoint, callbacks=lambda loss: [training.LossStateCallback(loss)], **arguments
            )
        trainer = training_runs.run(
            str(tmp_path / "b"),
            resume=checkpoint,
            callbacks=lambda loss: [training.LossStateCallback(loss, resume_from_checkpoint=checkpoint)],
            **arguments,
        )
        assert trainer.state.global_step == 6

    def test_its_checkpoints_are_whole_for_our_trainer(self, encoder_path, tmp_path):
        training_runs.run(
            str(tmp_path),
            encoder=encoder_path,
            trainer_class=SentenceTransformerTrainer,
            callbacks=lambda loss: [training.LossStateCallback(loss)],
        )
        assert training.newest_complete_checkpoint(tmp_path) == tmp_path / "checkpoint-6"
        assert json.loads((tmp_path / "checkpoint-6" / INDEX_FILE).read_text())["losses"][""]["class"] == "ArcCSELoss"

    def test_a_folder_named_by_hand_is_left_alone(self, encoder_path, tmp_path):
        keep = {"callbacks": lambda loss: [training.LossStateCallback(loss)]}
        (tmp_path / "checkpoint-best").mkdir()
        (tmp_path / "checkpoint-best" / "checkpoint_complete.json").write_text("{}")
        training_runs.run(str(tmp_path), encoder=encoder_path, trainer_class=SentenceTransformerTrainer, **keep)
        assert (tmp_path / "checkpoint-best" / "checkpoint_complete.json").exists()

    def test_other_settings(self, encoder_path, tmp_path):
        def train(temperature=0.05, **keywords):
            def callbacks(loss):
                loss.temperature = temperature
                return [training.LossStateCallback(loss, **keywords)]

            changes = {} if temperature == 0.05 else {"resume": str(tmp_path / "checkpoint-4")}
            training_runs.run(
                str(tmp_path), encoder=encoder_path, trainer_class=SentenceTransformerTrainer, callbacks=callbacks, **changes
            )

        train()
        with pytest.raises(ValueError, match=r"temperature 0.05 \(now 0.1\)"):
            train(0.1)
        train(0.1, allow_changed_settings=True)

    def test_weights_that_are_not_finite_are_no_whole_checkpoint(self, encoder_path, tmp_path):
        class Break(TrainerCallback):
            def on_step_end(self, args, state, control, model, **_):
                if state.global_step == 4:
                    next(model.parameters()).data[0, 0] = float("nan")

        def callbacks(loss):
            return [training.LossStateCallback(loss), Break()]

        with pytest.raises(DivergedError, match=r"after update 4 1 weights are not finite .* Do not use .*checkpoint-4"):
            training_runs.run(
                str(tmp_path), encoder=encoder_path, trainer_class=SentenceTransformerTrainer, callbacks=callbacks
            )
        assert training.newest_complete_checkpoint(tmp_path) == tmp_path / "checkpoint-2"

    def test_stale_checkpoints_do_not_count_as_whole(self, encoder_path, tmp_path):
        def run(**changes):
            keep = {"callbacks": lambda loss: [training.LossStateCallback(loss)]}
            training_runs.run(str(tmp_path), encoder=encoder_path, trainer_class=SentenceTransformerTrainer, **keep, **changes)

        run()
        run(steps=2)  # writes the first again; those of steps 4 and 6 are of the earlier run
        assert training.newest_complete_checkpoint(tmp_path) == tmp_path / "checkpoint-2"


class TestWarning:
    def test_once_where_nobody_saves(self, model):
        loss = losses.ArcCSELoss(model.train())
        with pytest.warns(UserWarning, match="ArcCSELoss owns weights .*SentenceTransformerTrainer.*LossStateCallback"):
            loss([model.preprocess(SENTENCES)])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            loss([model.preprocess(SENTENCES)])

    def test_not_where_somebody_does(self, model):
        quiet = [losses.ArcCSELoss(model), losses.ArcCSELoss(model, projection_head=False), losses.ArcCSELoss(model)]
        training.LossStateCallback(quiet[0])
        quiet[2].state_is_kept = True
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for loss in quiet:
                loss([model.train().preprocess(SENTENCES)])
            losses.ArcCSELoss(model)([model.eval().preprocess(SENTENCES)])


@pytest.mark.slow
def test_tsdae_resumes_exactly_and_does_not_with_the_hosts_trainer(tiny_encoder, tmp_path):
    """A loss of the host's with a whole decoder of its own."""
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments

    folder = str(tmp_path / "transformer")
    tiny_encoder()[0].model.save_pretrained(folder)
    tiny_encoder().tokenizer.save_pretrained(folder)
    tiny_encoder().save_pretrained(str(tmp_path / "encoder"))
    dataset = Dataset.from_dict({"damaged": [s.rsplit(" ", 2)[0] for s in SENTENCES], "original": SENTENCES})

    def train(trainer_class, output, seed, resume=False):
        torch.set_num_threads(1)
        torch.manual_seed(seed)
        model = SentenceTransformer(str(tmp_path / "encoder"), device="cpu")
        loss = DenoisingAutoEncoderLoss(model, decoder_name_or_path=folder, tie_encoder_decoder=False)
        assert len(own_state(loss, model)) > 10
        arguments = SentenceTransformerTrainingArguments(
            str(output),
            max_steps=4,
            per_device_train_batch_size=4,
            save_steps=2,
            learning_rate=1e-3,
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = trainer_class(model=model, args=arguments, train_dataset=dataset, loss=loss)
        trainer.train(resume_from_checkpoint=str(output / "checkpoint-2") if resume else None)
        return {name: tensor.detach().clone() for name, tensor in loss.state_dict().items()}

    def difference(trainer_class, output):
        whole, resumed = train(trainer_class, output, seed=0), train(trainer_class, output, seed=1, resume=True)
        return max((whole[name].float() - resumed[name].float()).abs().max().item() for name in whole)

    assert difference(training.SentenceTransformerTrainer, tmp_path / "ours") == 0.0
    assert difference(SentenceTransformerTrainer, tmp_path / "host") > 1e-3


def slt_fai(model, **keywords):
    frequencies = data.TokenFrequencies.from_corpus(SENTENCES, model.tokenizer)
    return losses.SLTFAILoss(model, losses.ConSERTLoss(model, **keywords), frequencies=frequencies)


def a_sum(model, **keywords):
    return losses.WeightedSumLoss(model, {"a": (losses.ConSERTLoss(model, **keywords), 1.0)})


@pytest.mark.parametrize("build", [losses.ConSERTLoss, a_sum, slt_fai])
def test_keywords_that_came_later_are_no_other_settings(model, tmp_path, build):
    """A checkpoint from before has none of them; at its default such a keyword does what was done then."""
    training.save_loss_state(build(model), model, tmp_path)
    index = (tmp_path / INDEX_FILE).read_text()
    older = json.loads(
        index, object_hook=lambda values: {key: value for key, value in values.items() if key != "projection_head"}
    )
    assert json.loads(index) != older
    (tmp_path / INDEX_FILE).write_text(json.dumps(older))
    check_settings(build(model), tmp_path)
    with pytest.raises(ValueError, match=r"projection_head absent \(now True\)"):
        check_settings(build(model, projection_head=True), tmp_path)
    with pytest.raises(ValueError, match=r"temperature 0.1 \(now 0.2\)\. Resuming"):
        check_settings(build(model, temperature=0.2), tmp_path)
