import copy
import gc
import math
import weakref

import numpy as np
import pytest
import reference
import torch
from encoders import LONG, POOLED, SENTENCES, given
from sentence_transformers.sentence_transformer.modules import Dense
from test_sam import trainer_of
from torch import nn
from updates import losses_of_updates

from sbert_plugins import data, losses, modules
from sbert_plugins.encoder import Pass
from sbert_plugins.losses import pt_bert


@pytest.fixture
def encoder(tiny_encoder):
    return tiny_encoder()


class Recorder:
    """Keeps what each pass of a module gave."""

    def __init__(self, module):
        self.outputs = []
        module.register_forward_hook(lambda _, __, output: self.outputs.append(output))


def numpy(tensor):
    return tensor.detach().numpy()


def state(loss):
    return {name: tensor.clone() for name, tensor in loss.state_dict().items()}


def trained_of(loss):
    return [parameter for parameter in loss.parameters() if parameter.requires_grad]


def step(loss, optimizer, sentences=SENTENCES):
    value = loss([loss.model.preprocess(sentences)])["contrastive"]
    optimizer.zero_grad()
    value.backward()
    optimizer.step()
    return value


class TestValue:
    @pytest.mark.parametrize("attend_to", ["tokens", "pooled"])
    def test_steps_are_those_of_the_reference(self, encoder, attend_to):
        """Eq. 1 to 5 in numpy from the outputs of both encoders: mapping, head, queue past its end, loss, momentum."""
        loss = losses.PTBERTLoss(encoder.train(), num_pseudo_tokens=5, queue_size=10, attend_to=attend_to).double()
        slow_encoder, slow_mapping = loss.momentum_encoder.copies
        fast, slow = Recorder(encoder), Recorder(slow_encoder)
        optimizer = torch.optim.SGD([p for p in loss.parameters() if p.requires_grad], lr=0.1)
        batches = []
        for sentences in (SENTENCES, SENTENCES[:3], SENTENCES[::-1]):
            mapped = [self.mapped(mapping, copy.deepcopy(mapping.state_dict())) for mapping in (loss.mapping, slow_mapping)]
            averages = [numpy(parameter).copy() for parameter in loss.momentum_encoder.parameters()]
            value = step(loss, optimizer, sentences).item()
            queries, keys = mapped[0](fast.outputs[-1]), mapped[1](slow.outputs[-1])
            batches.append(keys)
            held = reference.last(batches, 10)
            negatives = [[row for row in held if row is not keys[i]] for i in range(len(keys))]
            assert value == pytest.approx(reference.queue_info_nce(queries, keys, negatives, temperature=0.05), rel=1e-9)
            trained = [numpy(p) for module in (encoder, loss.mapping) for p in module.parameters()]
            expected = reference.momentum_update(averages, trained, m=0.885)
            for parameter, wanted in zip(loss.momentum_encoder.parameters(), expected, strict=True):
                assert (abs(numpy(parameter) - wanted) <= np.maximum(1e-9 * abs(wanted), 1e-12)).all()
        assert int(loss.queue.seen) == 19

    @staticmethod
    def mapped(mapping, weights):
        """Eq. 1 to 3 and the head with the weights of now."""
        arrays = {name.split(".", 1)[1]: tensor.numpy() for name, tensor in weights.items()}
        matrices = {name: arrays[f"{name}.weight"].T for name in ("query", "key", "value")}

        def run(output):
            rows = []
            for sentence, tokens, mask in zip(
                output["sentence_embedding"], output["token_embeddings"], output["attention_mask"], strict=True
            ):
                pooled = mapping.attention.attend_to == "pooled"
                tokens = sentence.unsqueeze(0) if pooled else tokens
                length = 1 if pooled else int(mask.sum())
                rows.append(
                    reference.pseudo_token_mapping(arrays["pseudo_tokens"], numpy(sentence), numpy(tokens), length, **matrices)
                )
            hidden = torch.tensor(np.array(rows)) @ weights["head.linear.weight"].T + weights["head.linear.bias"]
            return list(hidden.tanh().numpy())

        return run

    def test_negatives_at_batch_64_and_queue_256(self, encoder):
        """The paper's count."""
        loss = losses.PTBERTLoss(encoder.train(), num_pseudo_tokens=0)
        keys = torch.randn(64, 32)
        counts = []
        for _ in range(6):
            _, is_negative = loss.queue.candidates(keys, 0, 64, **loss.fixed)
            counts.append(is_negative.sum(dim=1).unique().tolist())
            loss.queue.enqueue(keys)
        assert counts[0] == [63]  # the queue is empty at first
        assert counts[1] == [127]
        assert counts[-1] == [255]

    @pytest.mark.parametrize("enqueue_first", [True, False])
    def test_the_keys_of_other_ranks_are_negatives(self, enqueue_first):
        """Eight keys came in, this rank's three are the last of them."""
        keys, queue = torch.randn(8, 32), modules.EmbeddingQueue(16, 32)
        candidates, is_negative = queue.candidates(keys, 5, 3, enqueue_first=enqueue_first)
        for row, own in zip(is_negative, keys[5:], strict=True):
            assert row.sum() == 7
            assert all(any(torch.equal(key, kept) for kept in candidates[row]) != torch.equal(key, own) for key in keys)

    def test_without_pseudo_tokens_it_is_moco(self, encoder):
        """The head's vector of each encoder, and nothing between."""
        loss = losses.PTBERTLoss(encoder.eval(), num_pseudo_tokens=0)
        assert not any("attention" in name for name, _ in loss.mapping.named_parameters())
        vectors = torch.from_numpy(encoder.encode(SENTENCES))
        keys = numpy(loss.mapping.head(vectors))
        negatives = [[row for j, row in enumerate(keys) if j != i] for i in range(len(keys))]
        expected = reference.queue_info_nce(keys, keys, negatives, temperature=0.05)
        assert loss([encoder.preprocess(SENTENCES)])["contrastive"].item() == pytest.approx(expected, rel=1e-4)

    def test_the_copy_reads_the_second_column(self, encoder):
        """The paper's discrete baselines: an altered copy is the positive."""
        rows = data.positive_pairs(SENTENCES, "deletion", ratio=0.5)
        loss = losses.PTBERTLoss(encoder.train(), num_pseudo_tokens=0)
        slow = Recorder(loss.momentum_encoder.copies[0])
        anchors, positives = (encoder.preprocess(rows[column][:]) for column in rows.column_names)
        loss([anchors, positives])["contrastive"].backward()
        assert torch.equal(slow.outputs[0]["input_ids"], positives["input_ids"])

    def test_padding_changes_nothing(self, encoder):
        loss = losses.PTBERTLoss(encoder.eval())
        features = encoder.preprocess(SENTENCES[:2])
        wider = {
            key: nn.functional.pad(value, (0, 9)) if isinstance(value, torch.Tensor) else value
            for key, value in features.items()
        }
        assert loss([features])["contrastive"].item() == pytest.approx(loss([wider])["contrastive"].item(), rel=1e-4)

    def test_features_are_left_as_they_came(self, encoder):
        features = encoder.preprocess(SENTENCES)
        before = dict(features)
        losses.PTBERTLoss(encoder.train())([features])
        assert set(features) == set(before)
        assert all(features[key] is before[key] for key in before)

    def test_behind_a_mask_template_the_encoders_tokens_are_read(self, encoder):
        """The template leaves one token embedding that is not 0: pseudo tokens would have nothing to choose from."""
        modules.apply_mask_template(encoder)
        loss = losses.PTBERTLoss(encoder.train(), num_pseudo_tokens=4, queue_size=8)
        seen = []
        loss.mapping.attention.register_forward_hook(lambda module, arguments, output: seen.append(arguments[1]))
        loss([encoder.preprocess(SENTENCES)])
        assert seen
        assert all((tokens.abs().sum(dim=2) > 0).sum(dim=1).min() > 1 for tokens in seen)


class TestState:
    def test_an_evaluation_changes_nothing(self, encoder):
        loss = losses.PTBERTLoss(encoder.train())
        loss([encoder.preprocess(SENTENCES)])
        before = state(loss)
        encoder.eval()
        values = [loss([encoder.preprocess(SENTENCES)])["contrastive"] for _ in range(2)]
        assert torch.equal(*values)  # no dropout in either encoder
        assert all(torch.equal(tensor, before[name]) for name, tensor in loss.state_dict().items())

    def test_one_pass_with_gradients_and_one_of_the_copy(self, encoder):
        loss = losses.PTBERTLoss(encoder.train())
        fast, slow = Recorder(encoder), Recorder(loss.momentum_encoder.copies[0])
        loss([encoder.preprocess([LONG, LONG])])
        assert len(fast.outputs) == len(slow.outputs) == 1
        first, second = slow.outputs[0]["sentence_embedding"]
        assert not torch.equal(first, second)  # dropout
        assert fast.outputs[0]["sentence_embedding"].requires_grad
        assert not slow.outputs[0]["sentence_embedding"].requires_grad

    def test_dropout_of_the_copy_can_be_off(self, encoder):
        loss = losses.PTBERTLoss(encoder.train(), momentum_dropout=False)
        slow = Recorder(loss.momentum_encoder.copies[0])
        loss([encoder.preprocess([LONG, LONG])])
        assert torch.equal(*slow.outputs[0]["sentence_embedding"])

    def test_the_copy_moves_once_an_update(self, encoder):
        """Also with micro-batches, and not before the first update."""
        loss = losses.PTBERTLoss(encoder.train(), momentum=0.5)
        optimizer = torch.optim.AdamW([p for p in loss.parameters() if p.requires_grad], lr=1e-2)
        start = state(loss.momentum_encoder)
        for _ in range(3):
            loss([encoder.preprocess(SENTENCES)])["contrastive"].backward()
        assert all(torch.equal(tensor, start[name]) for name, tensor in loss.momentum_encoder.state_dict().items())
        optimizer.step()
        for slow, fast, name in zip(
            loss.momentum_encoder.parameters(),
            [*encoder.parameters(), *loss.mapping.parameters()],
            dict(loss.momentum_encoder.named_parameters()),
            strict=True,
        ):
            torch.testing.assert_close(slow, (start[name] + fast) / 2)

    def test_the_copy_follows_an_encoder_that_is_partly_frozen(self, encoder):
        loss = losses.PTBERTLoss(encoder.train(), momentum=0.5)
        encoder[0].model.embeddings.requires_grad_(False)
        before = state(loss.momentum_encoder)
        step(loss, torch.optim.AdamW([p for p in encoder.parameters() if p.requires_grad], lr=1e-2))
        weight = "copies.0.0.model.encoder.layer.0.attention.self.query.weight"
        assert not torch.equal(loss.momentum_encoder.state_dict()[weight], before[weight])

    @pytest.mark.parametrize("frozen", ["model.0.model.embeddings", "model.0.model.pooler", "model"])
    def test_the_copy_follows_whatever_is_frozen_after_the_loss_was_built(self, encoder, frozen):
        loss = losses.PTBERTLoss(encoder.train(), momentum=0.5)
        loss.get_submodule(frozen).requires_grad_(False)
        before = state(loss.momentum_encoder)
        step(loss, torch.optim.AdamW([p for p in loss.parameters() if p.requires_grad], lr=1e-2))
        moved = [name for name, tensor in loss.momentum_encoder.state_dict().items() if not torch.equal(tensor, before[name])]
        assert any(name.startswith("copies.1.") for name in moved)
        assert any(name.startswith("copies.0.") for name in moved) == (frozen != "model")

    @pytest.mark.parametrize("after_an_update", [False, True])
    def test_a_copy_of_the_loss_has_a_copy_that_moves(self, encoder, after_an_update):
        loss = losses.PTBERTLoss(encoder.train(), momentum=0.5)
        if after_an_update:
            step(loss, torch.optim.SGD([p for p in loss.parameters() if p.requires_grad], lr=1e-2))
        copied = copy.deepcopy(loss)
        before, before_copied = state(loss.momentum_encoder), state(copied.momentum_encoder)
        step(copied, torch.optim.AdamW([p for p in copied.parameters() if p.requires_grad], lr=1e-2))
        weight = "copies.0.0.model.encoder.layer.0.attention.self.query.weight"
        assert not torch.equal(copied.momentum_encoder.state_dict()[weight], before_copied[weight])
        assert torch.equal(loss.momentum_encoder.state_dict()[weight], before[weight])

    def test_weights_that_the_copy_has_not_are_refused(self, encoder):
        """Adapters change the encoder in place."""
        loss = losses.PTBERTLoss(encoder.train())
        layer = encoder[0].model.encoder.layer[0].attention.self
        layer.query = nn.Sequential(layer.query, nn.Linear(32, 32, bias=False))
        encoder[0].model.embeddings.requires_grad_(False)
        with pytest.raises(
            ValueError, match="must keep the parameters that it had when the loss copied it, got others .*: build the loss"
        ):
            step(loss, torch.optim.SGD([p for p in loss.parameters() if p.requires_grad]))

    def test_an_earlier_loss_that_is_kept_stops_no_later_training(self, encoder):
        """A notebook keeps it, and the encoder that it has copied is given tokens."""
        earlier = losses.PTBERTLoss(encoder.train(), num_pseudo_tokens=0)
        step(earlier, torch.optim.SGD(trained_of(earlier), lr=0.1))
        encoder.tokenizer.add_tokens(["photosynthesis"])
        encoder.transformers_model.resize_token_embeddings(len(encoder.tokenizer))
        before, later = state(earlier.momentum_encoder), losses.PTBERTLoss(encoder, num_pseudo_tokens=0)
        optimizer = torch.optim.SGD(trained_of(later), lr=0.1)
        for _ in range(3):
            step(later, optimizer)
        assert state(earlier.momentum_encoder).keys() == before.keys()
        assert all(torch.equal(tensor, before[name]) for name, tensor in state(earlier.momentum_encoder).items())
        with pytest.raises(ValueError, match="the encoder must keep the parameters that it had"):
            step(earlier, optimizer)

    def test_the_trainer_leaves_the_copy_alone(self, encoder, tmp_path):
        """It puts its wrapper in the place of what is called ``model``, at any depth."""
        loss = losses.PTBERTLoss(encoder)
        slow, wrapper = loss.momentum_encoder.copies[0], nn.Sequential(encoder)
        trainer_of(encoder, loss, tmp_path, sam_rho=None).override_model_in_loss(loss, wrapper)
        assert loss.model is wrapper
        assert loss.momentum_encoder.copies[0] is slow

    def test_the_copy_follows_updates_before_the_losses_first_batch(self, encoder):
        """Of several datasets, each with a loss, another may be the first."""
        loss = losses.PTBERTLoss(encoder.train(), momentum=0.0)
        encoder(encoder.preprocess(SENTENCES))["sentence_embedding"].sum().backward()
        torch.optim.SGD(encoder.parameters(), lr=0.1).step()
        for slow, fast in zip(loss.momentum_encoder.copies[0].parameters(), encoder.parameters(), strict=True):
            torch.testing.assert_close(slow, fast)

    def test_nothing_keeps_a_loss_alive(self, encoder):
        alive = weakref.ref(losses.PTBERTLoss(encoder))
        gc.collect()
        assert alive() is None


class TestGradients:
    @pytest.mark.parametrize("attend_to", ["tokens", "pooled"])
    def test_pseudo_tokens(self, encoder, attend_to):
        """Each of the 128 learns from the tokens; from the pooled vector, the official code's reading, none does."""
        loss = losses.PTBERTLoss(encoder.train(), attend_to=attend_to)
        loss([encoder.preprocess(SENTENCES)])["contrastive"].backward()
        moved = loss.mapping.attention.pseudo_tokens.grad.abs().sum(dim=1) > 0
        assert moved.all() if attend_to == "tokens" else not moved.any()
        assert encoder[0].model.embeddings.word_embeddings.weight.grad.any()
        assert loss.mapping.head.linear.weight.grad.any()
        assert not any(parameter.grad is not None for parameter in loss.momentum_encoder.parameters())

    @pytest.mark.parametrize(("attend_to", "through_tokens"), [("tokens", True), ("pooled", False)])
    def test_what_is_trained(self, encoder, attend_to, through_tokens):
        """From the tokens' reading the sentence vector itself learns next to nothing at first: it is a query."""
        loss = losses.PTBERTLoss(encoder, attend_to=attend_to)
        output = encoder(encoder.preprocess(SENTENCES))
        sentence, tokens = (output[key].detach().requires_grad_() for key in ("sentence_embedding", "token_embeddings"))
        mapped = loss.mapping(Pass(sentence, tokens, output["attention_mask"], slice(None)))
        mapped.pow(2).sum().backward()
        if through_tokens:
            assert sentence.grad.norm() < 0.1 * tokens.grad.norm()
        else:
            assert sentence.grad.norm() > 0
            assert tokens.grad is None

    @pytest.mark.parametrize(("architecture", "pooling"), POOLED)
    def test_every_architecture_learns(self, tiny_encoder, architecture, pooling):
        model = tiny_encoder(architecture, pooling).train()
        loss = losses.PTBERTLoss(model, num_pseudo_tokens=16, queue_size=24)
        values = losses_of_updates(loss, [model.preprocess(SENTENCES)], learning_rate=1e-3, count=16)
        assert all(map(math.isfinite, values))
        assert sum(values[-3:]) < sum(values[3:6])  # once the queue is full

    def test_diagnostics(self, encoder):
        loss = losses.PTBERTLoss(encoder.train(), queue_size=16)
        for share in (0.5, 1.0, 1.0):
            loss([encoder.preprocess(SENTENCES)])
            assert loss.diagnostics["queue_filled"] == share
            assert 0 < loss.diagnostics["positive_cosine"] <= 1
            assert not any(value.requires_grad for value in loss.diagnostics.values())


class TestPrecision:
    def test_under_autocast_the_loss_stays_float32(self, encoder):
        loss = losses.PTBERTLoss(encoder.train())
        with torch.autocast("cpu", dtype=torch.bfloat16):
            terms = loss([encoder.preprocess(SENTENCES)])
        assert terms["contrastive"].dtype == torch.float32

    def test_the_copy_of_an_encoder_in_bfloat16_moves_by_small_steps(self, encoder):
        copied = modules.MomentumEncoder(encoder.bfloat16(), momentum=0.999)
        assert all(p.dtype == torch.float32 for p in copied.parameters())
        start = [p.clone() for p in copied.parameters()]
        for parameter in encoder.parameters():
            parameter.data += 0.01
        for _ in range(10):
            copied.update(encoder)
        for before, after, fast in zip(start, copied.parameters(), encoder.parameters(), strict=True):
            torch.testing.assert_close(after, before + (1 - 0.999**10) * (fast.float() - before))

    def test_an_encoder_in_bfloat16(self, encoder):
        loss = losses.PTBERTLoss(encoder.bfloat16().train())
        terms = loss([encoder.preprocess(SENTENCES)])
        terms["contrastive"].backward()
        assert torch.isfinite(terms["contrastive"])

    def test_identical_sentences(self, encoder):
        loss = losses.PTBERTLoss(encoder.eval())
        terms = loss([encoder.preprocess([LONG] * 4)])
        terms["contrastive"].backward()
        assert terms["contrastive"].item() == pytest.approx(math.log(4), rel=1e-4)
        assert torch.isfinite(loss.mapping.head.linear.weight.grad).all()

    @pytest.mark.parametrize("size", [1, 8])
    def test_any_batch(self, encoder, size):
        """One sentence and an empty queue: nothing to tell apart, no NaN; eight sentences and a queue of five."""
        loss = losses.PTBERTLoss(encoder.train(), queue_size=5)
        value = loss([encoder.preprocess(SENTENCES[:size])])["contrastive"]
        value.backward()
        assert (value == 0) == (size == 1)
        assert torch.isfinite(loss.mapping.head.linear.weight.grad).all()


class TestBadInput:
    @pytest.mark.parametrize("count", [0, 3])
    def test_columns(self, encoder, count):
        with pytest.raises(ValueError, match=rf"one text column \(anchor\) or two \(anchor, positive\), got {count}"):
            losses.PTBERTLoss(encoder)([encoder.preprocess(SENTENCES) for _ in range(count)])

    @pytest.mark.parametrize(
        ("keywords", "message"),
        [
            ({"temperature": 0}, "temperature must be a finite number above 0, got 0"),
            ({"num_pseudo_tokens": -1}, "num_pseudo_tokens must be at least 1, got -1"),
            ({"queue_size": 0}, "queue_size must be at least 1, got 0"),
            ({"momentum": 1}, r"momentum must be in \[0, 1\), got 1"),
            ({"attend_to": "cls"}, "attend_to must be 'tokens' or 'pooled', got 'cls'"),
        ],
    )
    def test_values(self, encoder, keywords, message):
        with pytest.raises(ValueError, match=message):
            losses.PTBERTLoss(encoder, **keywords)

    def test_a_model_without_dropout(self, tiny_encoder):
        model = tiny_encoder("modernbert", embedding_dropout=0.0, attention_dropout=0.0, mlp_dropout=0.0)
        loss = losses.PTBERTLoss(model)
        anchor, positive = model.preprocess(SENTENCES), model.preprocess(SENTENCES[::-1])
        with pytest.raises(ValueError, match="PTBERTLoss with one column makes its positive pairs by dropout"):
            loss([anchor])
        assert loss([anchor, positive])["contrastive"].isfinite()  # the second column is another view

    def test_sentence_vectors_of_another_width(self, encoder):
        encoder.append(Dense(32, 8))
        encoder.train()
        with pytest.raises(ValueError, match=r"as wide as the sentence vectors, got \(8, .*, 32\) for .* \(8, 8\)"):
            losses.PTBERTLoss(encoder)([encoder.preprocess(SENTENCES)])
        assert losses.PTBERTLoss(encoder, attend_to="pooled")([encoder.preprocess(SENTENCES)])["contrastive"] > 0

    def test_flattened_batches(self, encoder):
        loss = losses.PTBERTLoss(encoder.train())
        encode, column = given(torch.randn(2, 32), tokens=torch.randn(1, 9, 32)), encoder.preprocess(SENTENCES[:2])
        with pytest.raises(ValueError, match=r"without an attention_mask: set model\[0\].unpad_inputs = False"):
            loss.compute_loss_from_passes(encode, [column])

    def test_sam_is_refused(self, encoder, tmp_path):
        """Each batch would enter the queue twice."""
        with pytest.raises(ValueError, match=r"sam_rho must be 0.*queue\.rows"):
            trainer_of(encoder, losses.PTBERTLoss(encoder), tmp_path, sam_rho=0.05).train()


def test_config_shows_every_setting(encoder):
    signature = pt_bert.PTBERTLoss.__init__.__kwdefaults__ | {"enqueue_first": True}  # a keyword of earlier versions
    assert losses.PTBERTLoss(encoder).get_config_dict() == signature
    changed = {"num_pseudo_tokens": 8, "momentum": 0.99, "attend_to": "pooled", "momentum_dropout": False}
    assert losses.PTBERTLoss(encoder, **changed).get_config_dict() == signature | changed


def test_the_cosine_of_positives(encoder):
    loss = losses.PTBERTLoss(encoder.eval(), num_pseudo_tokens=0, projection_head=False)
    columns = [encoder.preprocess(side) for side in (SENTENCES, SENTENCES[::-1])]
    loss(columns)
    vectors = [encoder(dict(column))["sentence_embedding"] for column in columns]
    expected = torch.cosine_similarity(*vectors).mean().item()
    assert loss.diagnostics["positive_cosine"].item() == pytest.approx(expected, rel=1e-5)
    assert expected < 0.99


def test_a_momentum_that_is_set_is_checked(tiny_encoder):
    loss = losses.PTBERTLoss(tiny_encoder())
    with pytest.raises(ValueError, match=r"momentum must be in \[0, 1\), got 5.0"):
        loss.momentum = 5.0
    assert loss.momentum == 0.885


def test_attend_to_is_checked_without_pseudo_tokens(tiny_encoder):
    with pytest.raises(ValueError, match="attend_to must be 'tokens' or 'pooled', got 'nonsense'"):
        losses.PTBERTLoss(tiny_encoder(), num_pseudo_tokens=0, attend_to="nonsense")
