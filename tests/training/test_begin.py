"""What is looked at, and told to the loss, when a training begins."""

import copy

import pytest
import sentence_transformers
import torch
from datasets import Dataset, DatasetDict
from encoders import SENTENCES
from test_trainer import Probe, trainer_of

from sbert_plugins import losses, training
from sbert_plugins.data import TokenFrequencies


@pytest.fixture
def model(tiny_encoder):
    return tiny_encoder()


def slt_fai(model, **keywords):
    options = {"frequencies": TokenFrequencies.from_corpus(SENTENCES, model.tokenizer), "balance": None}
    return losses.SLTFAILoss(model, losses.ConSERTLoss(model), **(options | keywords))


def one_after_the_other(names, loss, model, folder, **changes):
    """A trainer whose batches are of the datasets of these names, in this order."""
    trainer = trainer_of(
        model, loss, folder, DatasetDict({name: Dataset.from_dict({"anchor": SENTENCES * 4}) for name in loss}), **changes
    )
    trainer.get_multi_dataset_batch_sampler = lambda **given: InOrder(names, given["dataset"], given["batch_samplers"])
    return trainer


class InOrder:
    def __init__(self, names, dataset, samplers):
        self.places = [self.place_of(name, dataset) for name in names]
        self.starts = [sum(map(len, dataset.datasets[:place])) for place in range(len(dataset.datasets))]
        self.samplers = samplers

    @staticmethod
    def place_of(name, dataset):
        return next(i for i, one in enumerate(dataset.datasets) if one[:1]["dataset_name"] == [name])

    def __iter__(self):
        batches = [iter(sampler) for sampler in self.samplers]
        for place in self.places:
            yield [self.starts[place] + row for row in next(batches[place])]

    def __len__(self):
        return len(self.places)

    def set_epoch(self, epoch):
        pass


class TestAnotherModel:
    """The host puts its model into the loss at the first batch, and the optimizer has the weights of the other one."""

    @pytest.mark.parametrize("several", [False, True])
    def test_is_refused_before_anything_is_made(self, model, tmp_path, several):
        other = copy.deepcopy(model)
        loss = {"a": losses.ArcCSELoss(model), "b": losses.ArcCSELoss(other)} if several else losses.ArcCSELoss(other)
        data = DatasetDict({name: Dataset.from_dict({"anchor": SENTENCES}) for name in loss}) if several else None
        of = " of 'b'" if several else ""
        with pytest.raises(ValueError, match=f"ArcCSELoss{of} must be built round the model that is trained"):
            trainer_of(model, loss, tmp_path / "out", data).train()

    def test_with_the_callback(self, model, tmp_path):
        loss = losses.ArcCSELoss(copy.deepcopy(model))
        trainer = trainer_of(
            model,
            loss,
            tmp_path,
            trainer_class=sentence_transformers.SentenceTransformerTrainer,
            callbacks=[training.LossStateCallback(loss)],
        )
        with pytest.raises(ValueError, match="must be built round the model that is trained"):
            trainer.train()

    def test_a_frozen_one_is_no_other(self, model, tmp_path):
        loss = losses.ArcCSELoss(model, triplet_weight=0)
        model.requires_grad_(False)
        loss.head.requires_grad_(True)
        with pytest.warns(UserWarning, match="the encoder is frozen"):
            trainer_of(model, loss, tmp_path, max_steps=1).train()


@pytest.mark.parametrize("kind", ["train", "eval"])
def test_one_dataset_under_two_names_has_both_losses(model, tmp_path, kind):
    texts = Dataset.from_dict({"anchor": SENTENCES})
    loss = {"a": Probe(model), "b": Probe(model)}
    evaluated = {"eval_dataset": {"a": texts, "b": texts}, "eval_strategy": "steps", "eval_steps": 4} if kind == "eval" else {}
    twice = DatasetDict({"a": texts, "b": texts})
    trainer = trainer_of(model, loss, tmp_path, twice, **evaluated, multi_dataset_batch_sampler="round_robin")
    trainer.train()
    assert [len([mode for mode in loss[name].modes if mode[0]]) for name in "ab"] == [2, 2]
    assert texts[0] == {"anchor": SENTENCES[0]}  # theirs is as it was
    if kind == "eval":
        assert loss["a"].modes.count((False,) * 3) == loss["b"].modes.count((False,) * 3) > 0


@pytest.mark.parametrize("trainer", ["ours", "the host's"])
def test_a_loss_that_is_computed_late_counts_all_updates(tiny_encoder, tmp_path, trainer):
    """Also where the training was resumed, whichever loss has the first batch then."""
    order = ["b", "a", "a", "a", "a", "b"]

    def trained(loss, model, folder, resumed=None):
        kind = training.SentenceTransformerTrainer
        changes = {"max_steps": 6, "save_strategy": "steps", "save_steps": 2}
        if trainer != "ours":
            kind = sentence_transformers.SentenceTransformerTrainer
            changes["callbacks"] = [training.LossStateCallback(loss)]
        one_after_the_other(order, loss, model, folder, trainer_class=kind, **changes).train(resumed)
        return loss["b"], loss["c"]

    def build(model):
        return {"a": losses.ArcCSELoss(model, triplet_weight=0), "b": slt_fai(model), "c": losses.PTBERTLoss(model)}

    model = tiny_encoder()
    whole = trained(build(model), model, tmp_path)
    model = tiny_encoder()
    resumed = trained(build(model), model, tmp_path, str(tmp_path / "checkpoint-2"))
    for counting, slow in (whole, resumed):
        assert counting.updates == 6
        assert slow.momentum_encoder.copies[0].state_dict().keys() == model.state_dict().keys()
    slow = [one.momentum_encoder.state_dict() for _, one in (whole, resumed)]
    assert all(torch.equal(value, slow[1][key]) for key, value in slow[0].items())
    start = tiny_encoder().state_dict()  # c had no batch, and its copy follows the encoder all the same
    assert any(not torch.equal(value, start[key]) for key, value in whole[1].momentum_encoder.copies[0].state_dict().items())


def test_a_second_training_warms_up_anew(model, tmp_path):
    loss = slt_fai(model, warmup_steps=0.5)
    for _ in range(2):
        trainer = trainer_of(model, loss, tmp_path)
        trainer.train()
        logged = [entry["adversarial"] > 0 for entry in trainer.state.log_history if "adversarial" in entry]
        assert logged == [False, False, True, True]


def test_settings_of_ones_own_may_have_these_names(model, tmp_path):
    for resumed in (None, str(tmp_path / "checkpoint-2")):
        loss = Probe(model)
        loss.follow, loss.begin_training, loss.warm_up = True, 3, 0.1
        trainer_of(model, loss, tmp_path, save_strategy="steps", save_steps=2).train(resumed)


def test_another_trainer_may_have_set_the_modes(model, tmp_path):
    loss = Probe(model)
    texts = Dataset.from_dict({"anchor": SENTENCES})
    first, second = (trainer_of(model, loss, tmp_path, max_steps=1, eval_dataset=texts) for _ in range(2))
    first.train()
    second.evaluate()
    loss.modes.clear()
    first.train()
    assert loss.modes == [(True, True, True)]


@pytest.mark.parametrize("name", ["paser", "denosent"])
def test_an_encoder_in_bfloat16_is_resumed(tiny_encoder, tmp_path, name):
    """The head takes the encoder's dtype in its first forward, which comes after the checkpoint is read."""

    def build(model):
        if name == "paser":
            loss = losses.PaSeRLoss(model, mlm_head="fresh", token_weights=None)
        else:
            loss = losses.DenoSentLoss(model, mlm_head="fresh", token_weights=None, decoder_layers=1, decoder_heads=2)
        model.bfloat16()
        return loss

    mask = tiny_encoder().tokenizer.mask_token
    columns = {"anchor": SENTENCES, "masked": [f"{mask} {text}" for text in SENTENCES], "phrase": ["a word"] * len(SENTENCES)}
    texts = Dataset.from_dict(columns if name == "paser" else {"anchor": SENTENCES})
    for resumed in (None, str(tmp_path / "checkpoint-2")):
        model = tiny_encoder()
        trainer_of(model, build(model), tmp_path, texts, save_strategy="steps", save_steps=2).train(resumed)
        assert model.dtype == torch.bfloat16


def test_other_counts_in_the_same_file_are_refused(tiny_encoder, tmp_path):
    def train(texts, resumed=None):
        model = tiny_encoder()
        TokenFrequencies.from_corpus(texts, model.tokenizer, source="mine").save(tmp_path / "counts.npz")
        loss = losses.BagOfWordsLoss(model, frequencies=str(tmp_path / "counts.npz"), mlm_head="fresh")
        (tmp_path / "counts.npz").unlink()  # what was read counts, and may be gone by now
        trainer_of(model, loss, tmp_path, save_strategy="steps", save_steps=2).train(resumed)

    train(SENTENCES)
    train(SENTENCES, str(tmp_path / "checkpoint-2"))
    with pytest.raises(ValueError, match=r"frequencies mine \[counts \w+\] \(now mine \[counts \w+\]\)"):
        train(SENTENCES[:5], str(tmp_path / "checkpoint-2"))
