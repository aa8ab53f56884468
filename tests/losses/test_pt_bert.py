import copy

import numpy as np
import pytest
import reference
import torch
from encoders import LONG, SENTENCES
from sentence_transformers.sentence_transformer.modules import Dense
from tools import Recorder, batch, gradients, is_same, numpy, state, trained

from sbert_plugins import data, losses, modules
from sbert_plugins.encoder import Pass

pytestmark = pytest.mark.filterwarnings("ignore:.*owns weights")
QUERY = "copies.0.0.model.encoder.layer.0.attention.self.query.weight"


@pytest.fixture
def encoder(tiny_encoder):
    return tiny_encoder().train()


def step(loss, optimizer, sentences=SENTENCES):
    value = loss(batch(loss.model, sentences))["contrastive"]
    optimizer.zero_grad()
    value.backward()
    optimizer.step()
    return value.item()


def sgd(loss, learning_rate=0.1):
    return torch.optim.SGD(trained(loss), lr=learning_rate)


class TestValue:
    @pytest.mark.parametrize("attend_to", ["tokens", "pooled"])
    def test_updates_are_those_of_the_reference(self, encoder, attend_to):
        """Eq. 1 to 5 from the outputs of both encoders: mapping, head, queue past its end, loss, momentum."""
        loss = losses.PTBERTLoss(encoder, num_pseudo_tokens=5, queue_size=10, attend_to=attend_to).double()
        slow_encoder, slow_mapping = loss.momentum_encoder.copies
        fast, slow, optimizer, batches = Recorder(encoder), Recorder(slow_encoder), sgd(loss), []
        for sentences in (SENTENCES, SENTENCES[:3], SENTENCES[::-1]):
            weights = [state(mapping) for mapping in (loss.mapping, slow_mapping)]
            averages = [numpy(parameter).copy() for parameter in loss.momentum_encoder.parameters()]
            value = step(loss, optimizer, sentences)
            queries = self.mapped(weights[0], fast.outputs[-1], attend_to)
            keys = self.mapped(weights[1], slow.outputs[-1], attend_to)
            batches.append(keys)
            held = reference.last(batches, 10)
            negatives = [[row for row in held if row is not key] for key in keys]
            expected = reference.queue_info_nce(queries, keys, negatives, temperature=0.05)
            assert value == pytest.approx(expected, rel=1e-9)
            now = [numpy(p) for module in (encoder, loss.mapping) for p in module.parameters()]
            wanted = reference.momentum_update(averages, now, m=0.885)
            for parameter, average in zip(loss.momentum_encoder.parameters(), wanted, strict=True):
                np.testing.assert_allclose(numpy(parameter), average, rtol=1e-9, atol=1e-12)
        assert loss.queue.seen == 19

    @staticmethod
    def mapped(weights, output, attend_to):
        """Eq. 1 to 3 and the head."""
        arrays = {name: numpy(tensor) for name, tensor in weights.items()}
        matrices = {name: arrays[f"attention.{name}.weight"].T for name in ("query", "key", "value")}
        rows = []
        names = ("sentence_embedding", "token_embeddings", "attention_mask")
        for sentence, tokens, mask in zip(*(numpy(output[name]) for name in names), strict=True):
            read, length = (sentence[None], 1) if attend_to == "pooled" else (tokens, int(mask.sum()))
            pseudo_tokens = arrays["attention.pseudo_tokens"]
            rows.append(reference.pseudo_token_mapping(pseudo_tokens, sentence, read, length, **matrices))
        head = arrays["head.linear.weight"], arrays["head.linear.bias"]
        return list(np.tanh(np.array(rows) @ head[0].T + head[1]))

    def test_negatives_at_batch_64_and_queue_256(self, encoder):
        """The paper's number is 255, once the queue is full."""
        loss = losses.PTBERTLoss(encoder, num_pseudo_tokens=0)
        counts, keys = [], torch.randn(64, 32)
        for _ in range(6):
            _, is_negative = loss.queue.candidates(keys, 0, 64, enqueue_first=loss.enqueue_first)
            counts.append(is_negative.sum(dim=1).unique().tolist())
            loss.queue.enqueue(keys)
        assert counts == [[63], [127], [191], [255], [255], [255]]

    def test_without_pseudo_tokens_it_is_moco(self, encoder):
        loss = losses.PTBERTLoss(encoder.eval(), num_pseudo_tokens=0)
        keys = list(numpy(loss.mapping.head(torch.from_numpy(encoder.encode(SENTENCES)))))
        negatives = [[row for row in keys if row is not key] for key in keys]
        expected = reference.queue_info_nce(keys, keys, negatives, temperature=0.05)
        assert loss(batch(encoder, SENTENCES))["contrastive"].item() == pytest.approx(expected, rel=1e-4)

    def test_the_momentum_encoder_reads_the_second_column(self, encoder):
        rows = data.positive_pairs(SENTENCES, "deletion", ratio=0.5)
        loss = losses.PTBERTLoss(encoder.eval(), num_pseudo_tokens=0, projection_head=False)
        slow, columns = (
            Recorder(loss.momentum_encoder.copies[0]),
            batch(encoder, rows["anchor"], rows["positive"]),
        )
        loss(columns)
        assert torch.equal(slow.outputs[0]["input_ids"], columns[1]["input_ids"])
        pair = [encoder(dict(column))["sentence_embedding"] for column in columns]
        expected = torch.cosine_similarity(*pair).mean().item()
        assert loss.diagnostics["positive_cosine"].item() == pytest.approx(expected, rel=1e-5)
        assert expected < 0.999

    def test_under_a_mask_template_all_tokens_are_read(self, encoder):
        """The template sets all token embeddings but one to 0 before the pooling."""
        loss = losses.PTBERTLoss(modules.apply_mask_template(encoder), num_pseudo_tokens=4, queue_size=8)
        recorder = Recorder(loss.mapping.attention)
        loss(batch(encoder, SENTENCES))
        tokens = recorder.inputs[0][1]
        assert (tokens.abs().sum(dim=2) > 0).sum(dim=1).min() > 1


class TestState:
    def test_an_evaluation_changes_nothing(self, encoder):
        loss = losses.PTBERTLoss(encoder)
        loss(batch(encoder, SENTENCES))
        before = state(loss)
        encoder.eval()
        first, second = (loss(batch(encoder, SENTENCES))["contrastive"] for _ in range(2))
        assert torch.equal(first, second)  # no dropout in either encoder
        assert is_same(before, state(loss))

    @pytest.mark.parametrize("dropout", [True, False])
    def test_one_pass_with_gradients_and_one_of_the_momentum_encoder(self, encoder, dropout):
        loss = losses.PTBERTLoss(encoder, momentum_dropout=dropout, queue_size=4)
        fast, slow = Recorder(encoder), Recorder(loss.momentum_encoder.copies[0])
        for share in (0.5, 1.0, 1.0):
            loss(batch(encoder, [LONG, LONG]))
            assert loss.diagnostics["queue_filled"] == share
        assert fast.rows() == slow.rows() == [2, 2, 2]
        vectors = slow.outputs[0]["sentence_embedding"]
        assert torch.equal(*vectors) != dropout
        assert fast.outputs[0]["sentence_embedding"].requires_grad and not vectors.requires_grad

    def test_momentum_moves_once_per_update(self, encoder):
        """Also with several micro-batches, and not before the first update."""
        loss = losses.PTBERTLoss(encoder, momentum=0.5)
        optimizer, start = sgd(loss), state(loss.momentum_encoder)
        for _ in range(3):
            loss(batch(encoder, SENTENCES))["contrastive"].backward()
        assert is_same(start, state(loss.momentum_encoder))
        assert loss.queue.seen == 24
        optimizer.step()
        fast = [*encoder.parameters(), *loss.mapping.parameters()]
        for (name, slow), value in zip(loss.momentum_encoder.named_parameters(), fast, strict=True):
            torch.testing.assert_close(slow, (start[name] + value) / 2)

    @pytest.mark.parametrize("after_an_update", [False, True])
    def test_a_copy_of_the_loss_has_a_momentum_encoder_of_its_own(self, encoder, after_an_update):
        loss = losses.PTBERTLoss(encoder, momentum=0.5)
        if after_an_update:
            step(loss, sgd(loss))
        copied, before = copy.deepcopy(loss), state(loss.momentum_encoder)
        step(copied, sgd(copied))
        assert not torch.equal(copied.momentum_encoder.state_dict()[QUERY], before[QUERY])
        assert is_same(before, state(loss.momentum_encoder))

    def test_other_parameters_than_those_that_were_copied(self, encoder):
        """Added tokens, for instance. An earlier loss does not stop the training of a new one."""
        earlier = losses.PTBERTLoss(encoder, num_pseudo_tokens=0)
        step(earlier, sgd(earlier))
        encoder.transformers_model.resize_token_embeddings(len(encoder.tokenizer) + 1)
        later = losses.PTBERTLoss(encoder, num_pseudo_tokens=0)
        optimizer = sgd(later)
        for _ in range(2):
            step(later, optimizer)
        with pytest.raises(ValueError, match="build the loss after them"):
            step(earlier, optimizer)

    def test_updates_before_the_first_batch_count(self, encoder):
        """With several datasets, another loss may come first."""
        loss = losses.PTBERTLoss(encoder, momentum=0.0)
        encoder(*batch(encoder, SENTENCES))["sentence_embedding"].sum().backward()
        torch.optim.SGD(encoder.parameters(), lr=0.1).step()
        for slow, fast in zip(
            loss.momentum_encoder.copies[0].parameters(), encoder.parameters(), strict=True
        ):
            torch.testing.assert_close(slow, fast)


class TestGradients:
    @pytest.mark.parametrize("attend_to", ["tokens", "pooled"])
    def test_of_pseudo_tokens(self, encoder, attend_to):
        """Each of the 128 learns from the tokens. None learns from the pooled vector."""
        loss = losses.PTBERTLoss(encoder, attend_to=attend_to)
        loss(batch(encoder, SENTENCES))["contrastive"].backward()
        moved = loss.mapping.attention.pseudo_tokens.grad.abs().sum(dim=1) > 0
        assert moved.all() if attend_to == "tokens" else not moved.any()
        assert loss.mapping.head.linear.weight.grad.any()
        assert not gradients(loss.momentum_encoder)

    def test_of_the_sentence_vector_are_small_with_tokens(self, encoder):
        """It is only a query there."""
        loss, output = losses.PTBERTLoss(encoder), encoder(*batch(encoder, SENTENCES))
        sentence, tokens = (
            output[key].detach().requires_grad_() for key in ("sentence_embedding", "token_embeddings")
        )
        mapped = loss.mapping(Pass(sentence, tokens, output["attention_mask"], slice(None)))
        mapped.pow(2).sum().backward()
        assert sentence.grad.norm() < 0.1 * tokens.grad.norm()


@pytest.mark.parametrize("size", [1, 8])
def test_any_batch(encoder, size):
    """One sentence and an empty queue have no negatives; eight sentences do not fit into a queue of five."""
    loss = losses.PTBERTLoss(encoder, queue_size=5)
    value = loss(batch(encoder, SENTENCES[:size]))["contrastive"]
    value.backward()
    assert (value == 0) == (size == 1)
    assert all(gradient.isfinite().all() for gradient in gradients(loss).values())


def test_tokens_of_another_width(encoder):
    encoder.append(Dense(32, 8))
    with pytest.raises(ValueError, match="attend_to='pooled'"):
        losses.PTBERTLoss(encoder)(batch(encoder, SENTENCES))


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"queue_size": 0}, "queue_size .* got 0"),
        ({"momentum": 1}, "momentum .* got 1"),
        ({"attend_to": "cls"}, "attend_to .* got 'cls'"),
    ],
)
def test_values_out_of_range(encoder, keywords, message):
    with pytest.raises(ValueError, match=message):
        losses.PTBERTLoss(encoder, **keywords)
