import numpy as np
import pytest
import reference
import torch
from encoders import LONG, SENTENCES
from sentence_transformers.sentence_transformer.modules import Dense
from tools import Recorder, batch, gradients, is_same, linear, numpy, state, trained, weights_of

from sbert_plugins import functional, losses
from sbert_plugins.encoder import Encoder
from sbert_plugins.losses import official


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


def build(model, kind, **keywords):
    if kind == "official":
        return official.PTBERTLoss(model, **keywords)
    return losses.PTBERTLoss(model, attend_to=kind, **keywords)


class TestValue:
    @pytest.mark.parametrize("kind", ["default", "tokens", "pooled", "official"])
    def test_updates_are_those_of_the_reference(self, tiny_encoder, kind):
        # Eq. 1 to 5 from the outputs of both encoders: mapping, head, queue past its end, loss, momentum.
        #
        # The official form scores the batch's keys and the queue before them. On the slow side its second
        # attention is the trained one.
        encoder = tiny_encoder(attention_probs_dropout_prob=0.0).train()
        size = {} if kind == "default" else {"num_pseudo_tokens": 5, "queue_size": 10}
        kind = "tokens" if kind == "default" else kind
        loss = build(encoder, kind, **size).double()
        slow_encoder, slow_mapping = loss.momentum_encoder.copies
        fast, slow, optimizer, queue = Recorder(encoder), Recorder(slow_encoder), sgd(loss), []
        for sentences in (SENTENCES, SENTENCES[:3], SENTENCES[::-1]):
            now, before = weights_of(loss.mapping), weights_of(slow_mapping)
            averages = [numpy(parameter).copy() for parameter in loss.momentum_encoder.parameters()]
            value = step(loss, optimizer, sentences)
            queries = self.mapped(kind, fast.outputs[-1], now, now)
            keys = self.mapped(kind, slow.outputs[-1], before, now if kind == "official" else before)
            held, queue = queue, reference.last([queue, keys], size.get("queue_size", 256))
            rows = [*keys, *held] if kind == "official" else queue
            negatives = [[row for row in rows if row is not key] for key in keys]
            assert value == pytest.approx(
                reference.queue_info_nce(queries, keys, negatives, temperature=0.05), rel=1e-9
            )
            ends = [numpy(p) for module in (encoder, loss.mapping) for p in module.parameters()]
            wanted = reference.momentum_update(averages, ends, m=0.885)
            for parameter, average in zip(loss.momentum_encoder.parameters(), wanted, strict=True):
                np.testing.assert_allclose(numpy(parameter), average, rtol=1e-9, atol=1e-12)
        assert loss.queue.seen == 19

    @staticmethod
    def mapped(kind, output, forth, back):
        """Eq. 1 to 3 and the head, with the weights of the first and of the second attention."""
        rows, names = [], ("sentence_embedding", "token_embeddings", "attention_mask")
        pseudo_tokens = forth["attention.pseudo_tokens"]
        for sentence, tokens, mask in zip(*(numpy(output[name]) for name in names), strict=True):
            if kind == "official":
                pseudo = reference.attend(pseudo_tokens, sentence[None], forth, "attention", num_heads=4)
                rows.append(reference.attend(sentence[None], pseudo, back, "attention", num_heads=4)[0])
            else:
                maps = {name: forth[f"attention.{name}.weight"].T for name in ("query", "key", "value")}
                read = tokens[: mask.sum()] if kind == "tokens" else sentence[None]
                rows.append(reference.pseudo_token_mapping(pseudo_tokens, sentence, read, len(read), **maps))
        return list(np.tanh(linear(forth, "head.linear", np.array(rows))))

    def test_the_momentum_encoder_reads_the_second_column(self, encoder):
        loss = losses.PTBERTLoss(encoder.eval(), num_pseudo_tokens=0, projection_head=False)
        columns = batch(encoder, SENTENCES, SENTENCES[::-1])
        loss(columns)
        pair = [encoder(dict(column))["sentence_embedding"] for column in columns]
        expected = 2 - 2 * torch.cosine_similarity(*pair).mean()
        torch.testing.assert_close(loss.diagnostics["alignment"], expected, rtol=1e-5, atol=0)

    def test_alignment_and_uniformity_are_those_of_the_mapped_vectors(self, encoder):
        loss, columns = losses.PTBERTLoss(encoder.eval(), num_pseudo_tokens=16), batch(encoder, SENTENCES)
        loss(columns)
        mapped = loss.mapping(Encoder(encoder)(columns, tokens=True)[0])
        assert loss.diagnostics["alignment"] == pytest.approx(0, abs=1e-5)  # both branches start equal
        assert loss.diagnostics["uniformity"] == pytest.approx(functional.uniformity(mapped).item(), rel=1e-5)
        pooled = functional.uniformity(encoder(dict(columns[0]))["sentence_embedding"])
        assert loss.diagnostics["uniformity"] != pytest.approx(pooled.item(), rel=1e-2)
        loss(batch(encoder, SENTENCES[:1]))  # a last batch of one sentence has no uniformity
        assert "uniformity" not in loss.diagnostics


class TestState:
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
        # Also with several micro-batches, and not before the first update.
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

    def test_other_parameters_than_those_that_were_copied(self, encoder):
        # Added tokens, for instance.
        loss = losses.PTBERTLoss(encoder, num_pseudo_tokens=0)
        step(loss, sgd(loss))
        encoder.transformers_model.resize_token_embeddings(len(encoder.tokenizer) + 1)
        with pytest.raises(ValueError, match="build the loss after them"):
            step(loss, sgd(loss))


@pytest.mark.parametrize("attend_to", ["tokens", "pooled"])
def test_gradients_of_pseudo_tokens(encoder, attend_to):
    # Each of the 128 learns from the tokens. None learns from the pooled vector.
    loss = losses.PTBERTLoss(encoder, attend_to=attend_to)
    loss(batch(encoder, SENTENCES))["contrastive"].backward()
    moved = loss.mapping.attention.pseudo_tokens.grad.abs().sum(dim=1) > 0
    assert moved.all() if attend_to == "tokens" else not moved.any()
    assert loss.mapping.head.linear.weight.grad.any()
    assert not gradients(loss.momentum_encoder)


@pytest.mark.parametrize("size", [1, 8])
def test_any_batch(encoder, size):
    # One sentence and an empty queue have no negatives; eight sentences do not fit into a queue of five.
    value = losses.PTBERTLoss(encoder, queue_size=5)(batch(encoder, SENTENCES[:size]))["contrastive"]
    assert value.isfinite() and (value == 0) == (size == 1)


def test_tokens_of_another_width(encoder):
    encoder.append(Dense(32, 8))
    with pytest.raises(ValueError, match="attend_to='pooled'"):
        losses.PTBERTLoss(encoder)(batch(encoder, SENTENCES))
