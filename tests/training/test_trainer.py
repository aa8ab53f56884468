"""The additions of our trainer to that of sentence-transformers, in one process."""

import copy
from contextlib import nullcontext

import pytest
import sentence_transformers
import torch
import transformers
from datasets import Dataset, DatasetDict
from encoders import SENTENCES
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss, MultipleNegativesRankingLoss
from torch import nn
from trainings import EVERY_SECOND, ROWS, Probe, Value, logged, trainer_of

from sbert_plugins import losses, training
from sbert_plugins.encoder import apply_mask_template
from sbert_plugins.losses.base import Loss

BOTH_TRAINERS = [training.SentenceTransformerTrainer, sentence_transformers.SentenceTransformerTrainer]


class Undeclared(Loss):
    """A loss whose author did not say whether it waits for other processes."""


class Alone(Loss):
    waits_for_other_ranks = False


def test_simcse_is_that_of_a_loop_written_by_hand(tiny_encoder, tmp_path):
    # Each sentence twice through ``MultipleNegativesRankingLoss``: the trainer adds nothing.
    model, by_hand = tiny_encoder(), tiny_encoder()
    rows = Dataset.from_dict({"anchor": SENTENCES * 2, "positive": SENTENCES * 2})
    trainer = trainer_of(model, MultipleNegativesRankingLoss(model, scale=20.0), tmp_path, rows, seed=3)
    batches = trainer.get_train_dataloader()
    transformers.set_seed(3)
    trainer.train()

    transformers.set_seed(3)
    by_hand.train()
    optimizer = torch.optim.AdamW(by_hand.parameters(), lr=1e-3, weight_decay=0.0, fused=True)
    for step, batch in zip(range(4), batches, strict=False):
        optimizer.param_groups[0]["lr"] = 1e-3 * (4 - step) / 4
        views = [
            {key.removeprefix(name): batch[key] for key in batch if key.startswith(name)}
            for name in ("anchor_", "positive_")
        ]
        first, second = (
            nn.functional.normalize(by_hand(view)["sentence_embedding"], dim=1) for view in views
        )
        nn.functional.cross_entropy(20 * first @ second.T, torch.arange(len(first))).backward()
        nn.utils.clip_grad_norm_(by_hand.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    # Vectors, not weights: where a gradient is only rounding (biases of keys), Adam makes whole steps of it.
    trained, expected, untrained = (encoder.encode(SENTENCES) for encoder in (model, by_hand, tiny_encoder()))
    assert abs(trained - expected).max() < 1e-5
    assert abs(trained - untrained).max() > 1e-2


class GradientNorms(transformers.TrainerCallback):
    """Records the norm of all gradients before each update."""

    def __init__(self, loss):
        self.loss, self.norms = loss, []

    def on_pre_optimizer_step(self, args, state, control, **_):
        gradients = [
            parameter.grad.norm() for parameter in self.loss.parameters() if parameter.grad is not None
        ]
        self.norms.append(torch.stack(gradients).norm().item())


@pytest.mark.parametrize("max_grad_norm", [0.0, 1.0, 1e9])
@pytest.mark.parametrize("trainer_class", BOTH_TRAINERS)
def test_encoder_and_loss_are_clipped_and_logged_together(model, tmp_path, trainer_class, max_grad_norm):
    # sentence-transformers leaves the loss out.
    loss = Probe(model, scale=100.0)
    watch = GradientNorms(loss)
    changes = {"trainer_class": trainer_class, "callbacks": [watch], "max_grad_norm": max_grad_norm}
    trainer = trainer_of(model, loss, tmp_path, **changes)
    trainer.train()
    expected = [1.0] * 4 if max_grad_norm == 1.0 else logged(trainer, "grad_norm")
    is_ours = trainer_class is training.SentenceTransformerTrainer
    assert (watch.norms == pytest.approx(expected, rel=1e-4)) is is_ours


class TestModes:
    TRAINING, EVALUATION = (True,) * 3, (False,) * 3

    @pytest.mark.parametrize("frozen", [False, True])
    def test_the_loss_follows_the_encoder(self, model, tmp_path, frozen):
        # Its head arrives in eval mode, as a pretrained decoder does. A frozen one follows too.
        loss = Probe(model)
        if frozen:
            loss.head.train().requires_grad_(False)
        options = {
            "eval_dataset": ROWS.select(range(4)),
            "eval_strategy": "steps",
            "eval_steps": 2,
            "max_steps": 2,
        }
        trainer = trainer_of(model, loss, tmp_path, **options)
        for _ in range(2):
            trainer.train()
        assert loss.modes == [self.TRAINING, self.TRAINING, self.EVALUATION] * 2

    def test_a_frozen_teacher_stays_in_eval_mode(self, model, tmp_path):
        loss = Probe(model)
        loss.teacher = copy.deepcopy(model[0].model).eval().requires_grad_(False)
        trainer_of(model, loss, tmp_path, max_steps=1).train()
        assert loss.modes == [self.TRAINING]
        assert not any(module.training for module in loss.teacher.modules())


class TestLog:
    def test_terms_and_diagnostics_are_means_since_the_last_log(self, model, tmp_path):
        # Diagnostics are not added to the loss, and batches without a value do not count.
        trainer = trainer_of(model, Probe(model), tmp_path, max_steps=6, logging_steps=3)
        trainer.train()
        assert logged(trainer, "batch") == [2.0, 5.0]  # of batches 1 and 3, and of batch 5
        assert logged(trainer, "probe") == pytest.approx(logged(trainer, "loss"), abs=1e-4)

    def test_a_term_does_not_replace_the_loss_and_a_diagnostic_may_be_a_number(self, model, tmp_path):
        loss = Value(model, lambda number: {"loss": number, "b": 0 * number + 3}, {"infinite": float("inf")})
        trainer = trainer_of(model, loss, tmp_path)
        trainer.train()
        assert min(logged(trainer, "loss")) > 3
        assert {*trainer.terms} == {"loss", "b"}  # without the diagnostic
        assert logged(trainer, "infinite") == [None] * 4  # JSON has no infinity

    @pytest.mark.parametrize("kind", ["train", "eval"])
    def test_each_of_several_losses_has_means_over_its_own_batches(self, model, tmp_path, kind):
        # Also with terms of one name and datasets of other sizes.
        both = DatasetDict({name: ROWS.select(range(size)) for name, size in {"org/a": 8, "b": 4}.items()})
        values = {"org/a": 1.0, "b": 3.0}
        loss = {
            name: Value(model, lambda number, value=value: {"term": number - number.detach() + value})
            for name, value in values.items()
        }
        evaluation = {"eval_dataset": both, "eval_strategy": "epoch"} if kind == "eval" else {}
        epoch = {"max_steps": -1, "num_train_epochs": 1, "logging_strategy": "epoch"}
        trainer = trainer_of(model, loss, tmp_path, both, **epoch, **evaluation)
        trainer.train()
        prefix = "eval_" if kind == "eval" else ""
        assert {name: logged(trainer, f"{prefix}{name}/term") for name in values} == {
            "org/a": [1.0],
            "b": [3.0],
        }
        assert not logged(trainer, f"{prefix}term")


def test_one_dataset_under_two_names_trains_both_losses(model, tmp_path):
    loss = {"a": Probe(model), "b": Probe(model)}
    both = DatasetDict({"a": ROWS, "b": ROWS})
    trainer_of(model, loss, tmp_path, both, multi_dataset_batch_sampler="round_robin").train()
    assert [len(member.modes) for member in loss.values()] == [2, 2]
    assert ROWS[0] == {"anchor": SENTENCES[0]}  # unchanged


@pytest.mark.parametrize("trainer_class", BOTH_TRAINERS)
def test_losses_are_informed(tiny_encoder, tmp_path, trainer_class):
    # By the trainer, and by the callback for sentence-transformers' one.
    class Informed(Loss):
        def compute(self, encode, columns, labels):
            return {"norm": encode(columns)[0].vectors.norm()}

        def begin_training(self, *, steps, resumed):
            self.began = steps, resumed

    for resumed in (False, True):
        model = tiny_encoder()
        inner = Informed(model)
        loss = MatryoshkaLoss(model, inner, [32])
        callbacks = [] if trainer_class is BOTH_TRAINERS[0] else [training.LossStateCallback(loss)]
        options = {"trainer_class": trainer_class, "callbacks": callbacks, "max_steps": 3} | EVERY_SECOND
        trainer_of(model, loss, tmp_path, **options).train(
            str(tmp_path / "checkpoint-2") if resumed else None
        )
        assert inner.began == (3, resumed)
        assert inner.state_is_kept


def test_a_saved_mask_template_is_not_trained(model, tmp_path):
    # Its weights are 0 and 1, which loading makes trainable.
    apply_mask_template(model).save_pretrained(str(tmp_path / "model"))
    model = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    before = model[1].emb_layer.weight.detach().clone()
    pairs = Dataset.from_dict({"anchor": SENTENCES, "positive": SENTENCES[::-1]})
    trainer_of(model, MultipleNegativesRankingLoss(model), tmp_path, pairs, max_steps=2).train()
    assert torch.equal(model[1].emb_layer.weight, before)


def test_mixed_precision_ends_with_the_training(model, tmp_path):
    # The encoder then computes what the saved one computes elsewhere.
    trainer_of(model, losses.ConSERTLoss(model), tmp_path, bf16=True, max_steps=1).train()
    model.save_pretrained(str(tmp_path / "model"))
    saved = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    assert (model.encode(SENTENCES) == saved.encode(SENTENCES)).all()


@pytest.mark.parametrize(
    ("changes", "first", "notices"), [({}, "question", 1), ({"prompts": {"anchor": "Text: "}}, "text", 0)]
)
def test_the_default_prompt_is_used_as_in_encode(model, tmp_path, caplog, changes, first, notices):
    # Prompts of the arguments replace it.
    model.prompts, model.default_prompt_name = {"query": "Question: "}, "query"
    trainer = trainer_of(model, Probe(model), tmp_path, **changes)
    batch = next(iter(trainer.get_train_dataloader()))
    texts = model.tokenizer.batch_decode(batch["anchor_input_ids"], skip_special_tokens=True)
    assert {text.lower().split()[0] for text in texts} == {first}
    assert caplog.text.count("'Question: '") == notices


class TestRows:
    @pytest.mark.parametrize(
        ("columns", "column", "row"),
        [
            ({"anchor": ["a", "b", None]}, "anchor", 2),
            ({"anchor": ["a", "b", "c"], "__index_level_0__": [4, 5, 6]}, "__index_level_0__", 0),
            ({"anchor": ["a", "b", "c"], "positive": [0.5, 1.5, 2.5]}, "positive", 0),
        ],
    )
    def test_cells_that_are_not_text_are_named(self, model, tmp_path, columns, column, row):
        for rows in (Dataset.from_dict(columns), DatasetDict(x=Dataset.from_dict(columns))):
            with pytest.raises(ValueError, match=f"{column}', row {row}"):
                trainer_of(model, Probe(model), tmp_path, rows)

    def test_rows_that_were_left_out_and_labels_are_not_checked(self, model, tmp_path):
        rows = Dataset.from_dict({"anchor": ["a", None, "c"], "label": [1, None, 0]})
        trainer_of(model, Probe(model), tmp_path, rows.select([0, 2]), max_steps=1).train()


class TestMistakes:
    def test_a_loss_on_another_model(self, model, tmp_path):
        # The optimizer would update the other one.
        other = losses.ArcCSELoss(copy.deepcopy(model))
        with pytest.raises(ValueError, match="another model"):
            trainer_of(model, other, tmp_path).train()
        trainer_class = sentence_transformers.SentenceTransformerTrainer
        callbacks = [training.LossStateCallback(other)]
        with pytest.raises(ValueError, match="another model"):
            trainer_of(model, other, tmp_path, trainer_class=trainer_class, callbacks=callbacks).train()

    def test_an_optimizer_without_the_loss(self, model, tmp_path):
        loss = Probe(model)
        whole, encoder_only = (torch.optim.AdamW(part.parameters(), lr=1e-3) for part in (loss, model))
        trainer_of(model, loss, tmp_path, optimizers=(whole, None), max_steps=1).train()
        with pytest.raises(ValueError, match="optimizer lacks 2 weights"):
            trainer_of(model, loss, tmp_path, optimizers=(encoder_only, None)).train()

    def test_several_gpus_in_one_process(self, model, tmp_path):
        trainer = trainer_of(model, Probe(model), tmp_path)
        trainer.args._n_gpu = 2
        with pytest.raises(ValueError, match="torchrun --nproc_per_node 2"):
            trainer.train()

    @pytest.mark.parametrize("trainer_class", BOTH_TRAINERS)
    def test_processes_that_would_each_train_a_model(self, model, tmp_path, monkeypatch, trainer_class):
        # torchrun on CPUs without use_cpu: a group of two processes, of which the arguments see one.
        loss = Probe(model)
        callbacks = [training.LossStateCallback(loss)]
        trainer = trainer_of(model, loss, tmp_path, trainer_class=trainer_class, callbacks=callbacks)
        monkeypatch.setattr(training.loss_state, "get_world_size", lambda: 2)
        with pytest.raises(ValueError, match="use_cpu=True"):
            trainer.train()

    @pytest.mark.parametrize(
        ("build", "waits"),
        [
            (losses.PTBERTLoss, True),
            (Undeclared, True),
            (Alone, False),
            (lambda model: losses.WeightedSumLoss(model, {"a": (Undeclared(model), 1)}), True),
            (lambda model: losses.WeightedSumLoss(model, {"a": (Alone(model), 1)}), False),
            (lambda model: losses.WeightedSumLoss(model, {"a": (Alone(model), 1)}, balance=1.0), True),
            (lambda model: losses.SimCSELoss(model, gather_across_devices=True), True),
            (lambda model: MultipleNegativesRankingLoss(model, gather_across_devices=True), True),
            *((kind, False) for kind in (losses.SimCSELoss, losses.ConSERTLoss, losses.DenoSentLoss)),
        ],
    )
    def test_losses_that_would_wait_for_each_other(self, model, tmp_path, monkeypatch, build, waits):
        # One process may compute this loss while another computes that. A new class has to declare it.
        trainer = trainer_of(model, {"a": Probe(model), "b": build(model)}, tmp_path, {"a": ROWS, "b": ROWS})
        monkeypatch.setattr(training.trainer, "get_world_size", lambda: 2)
        monkeypatch.setattr(training.trainer, "require_processes_together", lambda arguments: None)
        with pytest.raises(ValueError, match="waits for the other processes") if waits else nullcontext():
            trainer._check_setup()

    def test_a_rank_without_other_processes(self, model, tmp_path, monkeypatch):
        # Left over in the environment: nothing would be written.
        monkeypatch.setenv("RANK", "1")
        with pytest.raises(ValueError, match="RANK=1"):
            trainer_of(model, Probe(model), tmp_path).train()

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("label_smoothing_factor", 0.1),
            ("neftune_noise_alpha", 5.0),
            ("train_sampling_strategy", "group_by_length"),
            ("resume_from_checkpoint", "checkpoint-2"),
            ("fsdp", "full_shard"),
            ("include_num_input_tokens_seen", "all"),
            ("optim_args", "betas=0.8"),
            ("dataloader_persistent_workers", True),
            ("prompts", {"text": "query: "}),  # the column is called anchor
        ],
    )
    def test_arguments_without_effect(self, model, tmp_path, name, value):
        trainer = trainer_of(model, Probe(model), tmp_path)
        setattr(trainer.args, name, value)  # FSDP cannot be built in one process
        with pytest.raises(ValueError, match=name):
            trainer.train()
