"""The authors' computations once more in numpy, from what the encoders gave."""

import numpy as np
import pytest
import reference
import torch
from encoders import SENTENCES, project_counts
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import nn

from sbert_plugins import data, losses
from sbert_plugins.encoder import VIEWS, apply_mask_template
from sbert_plugins.losses import official
from sbert_plugins.modules import BagOfWordsDecoder
from sbert_plugins.modules.denoising_decoder import Places

PARAPHRASES = SENTENCES[1:] + SENTENCES[:1]


def numpy(tensor):
    return tensor.detach().numpy()


def weights_of(module):
    return {name: numpy(tensor) for name, tensor in module.state_dict().items()}


def linear(weights, name, rows):
    return rows @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


class Recorder:
    """Keeps what each pass of a module was given and what it gave."""

    def __init__(self, module):
        self.inputs, self.outputs = [], []
        module.register_forward_hook(self.keep)

    def keep(self, module, inputs, output):
        self.inputs.append(inputs)
        self.outputs.append(dict(output) if isinstance(output, dict) else output)


def test_names_and_settings_say_what_it_is(tiny_encoder):
    model = tiny_encoder(pooling="mean")
    loss = official.PTBERTLoss(model, momentum=0.9)
    assert type(loss).__name__ == "PTBERTLoss"
    settings = loss.get_config_dict()
    assert settings["attend_to"] == "pooled"
    assert settings["momentum"] == 0.9
    assert not settings["enqueue_first"]
    assert losses.PTBERTLoss(model).get_config_dict()["enqueue_first"]
    with pytest.raises(TypeError, match="momentun"):
        official.PTBERTLoss(model, momentun=0.9)


def test_the_base_loss_has_nothing_of_it(tiny_encoder):
    model = tiny_encoder()
    for build, keyword in ((losses.PTBERTLoss, "enqueue_first"), (losses.PaSeRLoss, "project_masked")):
        with pytest.raises(TypeError, match=keyword):
            build(model, **{keyword: True})


class TestPaSeR:
    @staticmethod
    def build(model, **keywords):
        return official.PaSeRLoss(model, **({"decoder_layers": 2, "decoder_heads": 4, "mlm_head": "fresh"} | keywords))

    @staticmethod
    def columns(model, sentences=SENTENCES):
        rows = data.paser_columns(sentences, mask_token="<mask>", synonyms=None, top_k=1)[:]
        return rows, [model.preprocess(column) for column in rows.values()]

    def test_is_that_of_the_reference(self, tiny_encoder):
        """Embeddings of words, places and types; a signed memory; rows that were cut off left out; a head of its own."""
        model = tiny_encoder()
        model.max_seq_length = 20
        loss = self.build(model, mlm_weight=0).double()
        with torch.no_grad():
            loss.head.table.add_(torch.randn(loss.head.table.shape))  # not the encoder's any more
        model.eval()
        rows, columns = self.columns(model)
        value = loss(columns)["generative"].item()
        embeddings, decoder = weights_of(model.transformers_model.embeddings), weights_of(loss.decoder)
        projected = linear(weights_of(loss), "projection", model.encode(rows["masked"]))
        logits, targets, left_out = [], [], 0
        vectors = zip(rows["phrase"], model.encode(rows["anchor"]), projected, strict=True)
        for i, (phrase, sentence, masked) in enumerate(vectors):
            if max(int(column["attention_mask"][i].sum()) for column in columns[:2]) == 20:
                left_out += 1
                continue
            ids = model.tokenizer(phrase, add_special_tokens=False)["input_ids"]
            read = reference.bert_embeddings([model.tokenizer.cls_token_id, *ids], embeddings)
            memory = np.array([sentence, masked, sentence - masked, sentence * masked])
            hidden = reference.phrase_decoder(read, memory, decoder, num_layers=2, num_heads=4)
            logits += list(numpy(loss.head(torch.from_numpy(hidden))))
            targets += [*ids, model.tokenizer.sep_token_id]
        assert 2 <= left_out < len(SENTENCES)
        assert value == pytest.approx(reference.mean_negative_log_likelihood(logits, targets), rel=1e-6)
        assert loss.diagnostics["scored_share"] == pytest.approx(1 - left_out / len(rows["phrase"]))

    def test_the_output_matrix_is_trained_apart(self, tiny_encoder):
        """The encoder's table learns from what is read only; the copy learns at each word."""
        model = tiny_encoder()
        loss = self.build(model)
        table, output = model.transformers_model.get_input_embeddings().weight, loss.head.table
        assert torch.equal(table, output)
        assert table is not output
        model.train()
        _, columns = self.columns(model)
        sum(loss(columns).values()).backward()
        read = torch.cat([column["input_ids"].flatten() for column in columns]).unique()
        unread = torch.ones(len(table), dtype=torch.bool).index_fill(0, read, False) & loss.tokens.special.logical_not()
        changed = loss.mlm_probability * unread.sum()  # to another token that nothing else reads
        assert (table.grad[unread].abs().sum(dim=1) > 0).sum() < changed
        assert output.grad[unread].abs().sum(dim=1).min() > 0

    def test_start_and_dropouts(self, tiny_encoder):
        model = tiny_encoder(hidden_size=128, intermediate_size=128)
        loss = self.build(model, decoder_dropout=0.2)
        for part in (loss.decoder, loss.projection):
            for name, parameter in part.named_parameters():
                if name.endswith("bias"):
                    assert not parameter.any(), name
                elif parameter.ndim > 1:
                    assert parameter.std().item() == pytest.approx(0.02, rel=0.05), name
        layer = loss.decoder.layers.layers[1]
        assert layer.self_attn.dropout == layer.multihead_attn.dropout == layer.dropout.p == 0
        assert {each.p for each in (layer.dropout1, layer.dropout2, layer.dropout3, loss.decoder.dropout)} == {0.2}

    def test_without_layers_the_map_starts_as_ever(self, tiny_encoder):
        loss = self.build(tiny_encoder(), decoder_layers=0)
        assert isinstance(loss.decoder, BagOfWordsDecoder)
        assert torch.equal(loss.decoder.map.weight[:, :32], torch.eye(32))

    def test_writes(self, tiny_encoder):
        loss = self.build(tiny_encoder())
        assert len(loss.reconstruct(["A dog runs."], ["A <mask> runs."])) == 1


class TestDenoSent:
    @staticmethod
    def build(model, **keywords):
        small = {"decoder_layers": 2, "decoder_feedforward": 48, "mlm_head": "fresh"}
        return official.DenoSentLoss(apply_mask_template(model, '"[X]" means [MASK].'), **(small | keywords))

    def test_is_that_of_the_reference(self, tiny_encoder):
        """All that the encoder reads is restored, template and special tokens, and counts."""
        model = tiny_encoder()
        loss = self.build(model).double()
        for parameter in loss.decoder.parameters():
            nn.init.normal_(parameter, std=0.3)
        model.eval()
        terms = loss([model.preprocess(column) for column in (SENTENCES, PARAPHRASES)])
        own, decoder = weights_of(loss), weights_of(loss.decoder)
        anchors, positives = (linear(own, "projector", model.encode(column)) for column in (SENTENCES, PARAPHRASES))
        expected = 5 * reference.info_nce(anchors, positives, temperature=0.05)
        assert terms["contrastive"].item() == pytest.approx(expected, rel=1e-6)
        embeddings = weights_of(model.transformers_model.embeddings)
        logits, targets = [], []
        for sentence, vector in zip(PARAPHRASES, anchors, strict=True):
            ids = model.tokenizer(sentence)["input_ids"]
            read = reference.bert_embeddings(ids, embeddings)
            hidden = reference.denoising_decoder(read, vector, decoder, num_layers=2, num_heads=1, attended=[True] * len(ids))
            logits += list(numpy(loss.head(torch.from_numpy(hidden))))
            targets += ids
        assert model.tokenizer.mask_token_id in targets
        expected = 7 * reference.mean_negative_log_likelihood(logits, targets)
        assert terms["denoising"].item() == pytest.approx(expected, rel=1e-6)

    def test_a_place_may_forget_the_memory(self, tiny_encoder):
        """Dropout of the one attention weight: a place reads 1 / (1 - p) times the memory, or nothing."""
        layer = self.build(tiny_encoder(), decoder_dropout=0.2).decoder.layers[0].train()
        memory, places = torch.randn(50, 32), Places.of(torch.ones(50, 40, dtype=torch.bool))
        nn.init.normal_(layer.memory_out.bias)
        value, forgotten = layer.memory_value(memory), layer.memory_out.bias
        kept = layer.memory_out(value / 0.8)
        read = layer._remember(memory, places)
        nothing, everything = (
            (read - places.each(each)).abs().amax(dim=1) < 1e-5 for each in (forgotten.expand(50, -1), kept)
        )
        assert (nothing ^ everything).all()
        assert nothing.float().mean().item() == pytest.approx(0.2, abs=0.03)
        torch.testing.assert_close(layer.eval()._remember(memory, places), places.each(layer.memory_out(value)))


class TestPTBERT:
    def test_five_updates_are_those_of_the_reference(self, tiny_encoder):
        """Mapping, head, queue past its end, loss, momentum, the copy's second attention the trained one."""
        model = tiny_encoder(attention_probs_dropout_prob=0.0).train()
        loss = official.PTBERTLoss(model, num_pseudo_tokens=5, queue_size=10).double()
        slow_encoder, slow_mapping = loss.momentum_encoder.copies
        fast, slow = Recorder(model), Recorder(slow_encoder)
        optimizer = torch.optim.SGD([p for p in loss.parameters() if p.requires_grad], lr=0.1)
        queue = []
        for count in (8, 3, 8, 5, 8):
            trained, copied = ({k: v.copy() for k, v in weights_of(each).items()} for each in (loss.mapping, slow_mapping))
            averages = [numpy(parameter).copy() for parameter in loss.momentum_encoder.parameters()]
            value = loss([model.preprocess(SENTENCES[:count])])["contrastive"]
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            queries = self.mapped(fast.outputs[-1]["sentence_embedding"], forth=trained, back=trained)
            keys = self.mapped(slow.outputs[-1]["sentence_embedding"], forth=copied, back=trained)
            negatives = [[*(key for j, key in enumerate(keys) if j != i), *queue] for i in range(count)]
            queue = reference.last([queue, keys], 10)
            expected = reference.queue_info_nce(queries, keys, negatives, temperature=0.05)
            assert value.item() == pytest.approx(expected, rel=1e-9)
            now = [numpy(parameter) for module in (model, loss.mapping) for parameter in module.parameters()]
            for average, wanted in zip(
                loss.momentum_encoder.parameters(), reference.momentum_update(averages, now, m=0.885), strict=True
            ):
                np.testing.assert_allclose(numpy(average), wanted, rtol=1e-9, atol=1e-12)
        assert int(loss.queue.seen) == 32
        assert any((a != b).any() for a, b in zip(averages, now, strict=True))

    @staticmethod
    def mapped(sentences, *, forth, back):
        """With four heads and biases; the head is that of ``forth``."""
        rows = []
        for sentence in numpy(sentences):
            pseudo = reference.attend(forth["attention.pseudo_tokens"], sentence[None], forth, "attention", num_heads=4)
            rows.append(reference.attend(sentence[None], pseudo, back, "attention", num_heads=4)[0])
        return list(np.tanh(linear(forth, "head.linear", np.array(rows))))

    def test_negatives_at_batch_64_and_queue_256(self, tiny_encoder):
        loss = official.PTBERTLoss(tiny_encoder().train(), num_pseudo_tokens=0)
        counts = []
        for _ in range(6):
            keys = torch.randn(64, 32)
            _, is_negative = loss.queue.candidates(keys, 0, 64, **loss.fixed)
            counts.append(is_negative.sum(dim=1).unique().tolist())
            loss.queue.enqueue(keys)
        assert counts == [[63], [127], [191], [255], [319], [319]]

    def test_attention_drops_out_in_training(self, tiny_encoder):
        loss = official.PTBERTLoss(tiny_encoder(attention_probs_dropout_prob=0.3), num_pseudo_tokens=16)
        loss.model.train()
        loss([loss.model.preprocess(SENTENCES)])
        vectors = torch.randn(4, 32)
        assert not torch.equal(loss.mapping.attention(vectors), loss.mapping.attention(vectors))
        loss.model.eval()
        loss([loss.model.preprocess(SENTENCES)])
        assert torch.equal(loss.mapping.attention(vectors), loss.mapping.attention(vectors))

    def test_without_pseudo_tokens(self, tiny_encoder):
        model = tiny_encoder().train()
        loss = official.PTBERTLoss(model, num_pseudo_tokens=0)
        assert loss([model.preprocess(SENTENCES)])["contrastive"].isfinite()

    def test_tokens_are_not_attended_to(self, tiny_encoder):
        with pytest.raises(ValueError, match=r"attend_to must be 'pooled' .* got 'tokens': take losses.PTBERTLoss"):
            official.PTBERTLoss(tiny_encoder(), attend_to="tokens")


class TestSLTFAI:
    @staticmethod
    def build(model, base=None, **keywords):
        base = base or losses.ConSERTLoss(model)
        return official.SLTFAILoss(model, base, frequencies=project_counts(model.tokenizer), warmup_steps=0, **keywords)

    def test_is_that_of_the_reference(self, tiny_encoder):
        """All tokens of both views have a label and count; the copy has no view; the ReLU stands behind the logits."""
        model = tiny_encoder("bert", "mean").train()
        loss = self.build(model).double()
        recorder = Recorder(model)
        features = model.preprocess(SENTENCES)
        terms = loss([features])
        views, copy = recorder.outputs
        ids, count = features["input_ids"].numpy(), len(SENTENCES)
        rare = np.isin(ids, project_counts(model.tokenizer).low_frequency_ids(0.5, "types"))
        rare |= np.isin(ids, model.tokenizer.all_special_ids)
        own = weights_of(loss)
        order = numpy(views[VIEWS][1].order)
        assert views[VIEWS][0].order is None
        labels = np.concatenate([rare, np.take_along_axis(rare, order, axis=1)]).astype(int)
        logits = self.classify(own, "frequency_discriminator", ("inner.0", "inner.1", "inner.2"), views["token_embeddings"])
        nats = [reference.class_loss(*each) for rows in zip(logits, labels, strict=True) for each in zip(*rows, strict=True)]
        assert len(nats) == 2 * ids.size
        assert terms["adversarial"].item() == pytest.approx(np.mean(nats) / 0.3, rel=1e-9)

        assert VIEWS not in copy
        vectors = views["sentence_embedding"][:count], copy["sentence_embedding"]
        pair = [self.classify(own, "completeness_discriminator", ("inner",), each) for each in vectors]
        nats = [reference.class_loss(whole, 0) + reference.class_loss(part, 1) for whole, part in zip(*pair, strict=True)]
        assert terms["filtering"].item() == pytest.approx(np.mean(nats) / 0.3, rel=1e-9)
        lacks = numpy(copy["input_ids"]) == model.tokenizer.mask_token_id
        assert not (lacks & rare).any()
        assert set(terms) == {"base/nt_xent", "adversarial", "filtering"}

    @staticmethod
    def classify(weights, name, inner, x):
        x = numpy(x)
        for each in (*inner, "outer"):
            x = linear(weights, f"{name}.{each}", x)
        return np.maximum(x, 0)

    def test_half_of_the_frequent_tokens_are_masked(self, tiny_encoder):
        """Each by itself: rows differ in the share, and one with nothing masked counts."""
        model = tiny_encoder("bert", "mean").train()
        loss, recorder = self.build(model), Recorder(model)
        features = model.preprocess(SENTENCES)
        shares = []
        for _ in range(30):
            loss([features])
            lacks = recorder.outputs[-1]["input_ids"] != features["input_ids"]
            shares.append(lacks.sum().item() / (loss.low_frequency[features["input_ids"]] == 0).sum().item())
        assert np.mean(shares) == pytest.approx(0.5, abs=0.03)
        assert len(set(shares)) > 5
        loss = self.build(model, masking_ratio=1e-9)
        assert loss([features])["filtering"] > 0
        assert loss.diagnostics["masked_share"] == 1

    def test_reads_both_passes_of_a_loss_that_asks_for_them(self, tiny_encoder):
        """Round SimCSE the two dropout views differ, and the term is the mean of both."""
        model = tiny_encoder("bert", "mean").train()
        base = losses.WeightedSumLoss(model, {"simcse": (MultipleNegativesRankingLoss(model), 1.0, [0, 0])})
        loss = self.build(model, base, filtering_weight=0)
        recorder = Recorder(loss.frequency_discriminator)
        value = loss([model.preprocess(SENTENCES)])["adversarial"]
        (first,), (second,) = recorder.inputs
        assert not torch.equal(first, second)
        value.backward()
        assert torch.isfinite(model.transformers_model.get_input_embeddings().weight.grad).all()


def test_bfloat16_does_not_round_the_scale_of_what_is_kept(tiny_encoder):
    layer = TestDenoSent().build(tiny_encoder(), decoder_dropout=0.1).decoder.layers[0].train().bfloat16()
    layer.memory_out = nn.Identity()
    memory, places = torch.randn(50, 32).bfloat16(), Places.of(torch.ones(50, 4, dtype=torch.bool))
    value = places.each(layer.memory_value(memory)).float()
    share = layer._remember(memory, places).float() / value
    assert share[share > 0].mean().item() == pytest.approx(1 / 0.9, abs=5e-4)
