"""The authors' computations in numpy, from the outputs of the encoders. Each listed difference has a test."""

import numpy as np
import pytest
import reference
import torch
from datasets import Dataset
from encoders import SENTENCES, given, project_counts
from tools import Recorder, batch, linear, numpy, phrase_loss, restored_loss, weights_of
from torch import nn
from trainings import trainer_of

from sbert_plugins import data, losses
from sbert_plugins.encoder import View, apply_mask_template
from sbert_plugins.losses import consert, official
from sbert_plugins.modules.denoising_decoder import Places

PARAPHRASES = SENTENCES[1:] + SENTENCES[:1]


def embedded(model, ids):
    return reference.bert_embeddings(ids, weights_of(model.transformers_model.embeddings))


class TestPaSeR:
    @staticmethod
    def build(model, **keywords):
        small = {"decoder_layers": 2, "decoder_heads": 4, "mlm_head": "fresh"}
        return official.PaSeRLoss(model, **(small | keywords))

    @pytest.fixture
    def rows(self):
        return data.paser_columns(SENTENCES, mask_token="<mask>", synonyms=None, top_k=1)[:]

    def test_is_that_of_the_reference(self, tiny_encoder, rows):
        # The decoder's inputs, the memory, the head's own matrix, and the rows that count as truncated.
        model = tiny_encoder().eval()
        model.max_seq_length = 20
        loss = self.build(model, mlm_weight=0).double()
        with torch.no_grad():
            loss.head.table.add_(torch.randn(loss.head.table.shape))
        columns = batch(model, *rows.values())
        value = loss(columns)["generative"].item()
        length = np.maximum(*(numpy(column["attention_mask"].sum(dim=1)) for column in columns[:2]))
        sentence, masked = model.encode(rows["anchor"]), model.encode(rows["masked"])
        masked = linear(weights_of(loss), "projection", masked)
        memories = np.stack([sentence, masked, sentence - masked, sentence * masked], axis=1)[length < 20]
        phrases = np.array(rows["phrase"])[length < 20]
        expected = phrase_loss(loss, phrases, memories, lambda ids: embedded(model, ids))
        assert value == pytest.approx(expected, rel=1e-6)
        assert 0 < loss.diagnostics["scored_share"] == np.mean(length < 20) < 1

    def test_rows_that_the_data_loader_cuts(self, tiny_encoder, rows, tmp_path):
        # They count as truncated where the model itself could read more.
        model = tiny_encoder()
        loss = self.build(model, mlm_weight=0)
        trainer = trainer_of(model, loss, tmp_path, Dataset.from_dict(rows), max_steps=1)
        trainer.data_collator.max_length = 20
        trainer.train()
        columns = [model.preprocess(list(rows[name]), max_length=20) for name in ("anchor", "masked")]
        length = np.maximum(*(numpy(column["attention_mask"].sum(dim=1)) for column in columns))
        assert 0 < np.mean(length < 20) < 1
        expected = np.mean(length < 20)
        loss([model.preprocess(list(column), max_length=20) for column in rows.values()])
        assert loss.diagnostics["scored_share"].item() == pytest.approx(expected)

    def test_what_is_trained(self, tiny_encoder, rows):
        # The encoder's embedding module at what is read, and the output matrix apart, at each word.
        model = tiny_encoder().train()
        loss, columns = self.build(model, mlm_weight=0), batch(model, *rows.values())
        embeddings = model.transformers_model.embeddings
        assert torch.equal(embeddings.word_embeddings.weight, loss.head.table)
        loss.compute(given(*torch.randn(2, len(SENTENCES), 32)), columns)["generative"].backward()
        read = columns[2]["input_ids"].unique()
        unread = ~loss.tokens.special.index_fill(0, read, True)
        assert not embeddings.word_embeddings.weight.grad[unread].any()
        assert loss.head.table.grad[unread].abs().sum(dim=1).min() > 0
        assert embeddings.LayerNorm.weight.grad.any()

    def test_start_and_dropout(self, tiny_encoder):
        loss = self.build(tiny_encoder(hidden_size=128, intermediate_size=128), decoder_dropout=0.2)
        for name, parameter in (*loss.decoder.named_parameters(), *loss.projection.named_parameters()):
            if name.endswith("bias") or parameter.ndim > 1:
                expected = 0.0 if name.endswith("bias") else 0.02
                assert parameter.std().item() == pytest.approx(expected, rel=0.05), name
        layer = loss.decoder.layers.layers[1]
        assert layer.self_attn.dropout == layer.multihead_attn.dropout == layer.dropout.p == 0
        others = (layer.dropout1, layer.dropout2, layer.dropout3, loss.decoder.dropout)
        assert {each.p for each in others} == {0.2}


class TestDenoSent:
    @staticmethod
    def build(model, **keywords):
        small = {"decoder_feedforward": 48}
        return official.DenoSentLoss(apply_mask_template(model, '"[X]" means [MASK].'), **(small | keywords))

    def test_is_that_of_the_reference(self, tiny_encoder):
        # The paraphrase is restored, with the tokens of the template, from the sentence's vector.
        model = tiny_encoder().eval()
        loss = self.build(model).double()
        for parameter in loss.decoder.parameters():
            nn.init.normal_(parameter, std=0.3)
        terms = loss(batch(model, SENTENCES, PARAPHRASES))
        own = weights_of(loss)
        pair = [linear(own, "projector", model.encode(column)) for column in (SENTENCES, PARAPHRASES)]
        expected = 5 * reference.info_nce(*pair, temperature=0.05)
        assert terms["contrastive"].item() == pytest.approx(expected, rel=1e-6)
        ids = model.tokenizer(PARAPHRASES)["input_ids"]
        assert model.tokenizer.mask_token_id in ids[0]
        expected = 7 * restored_loss(loss, ids, [embedded(model, row) for row in ids], pair[0])
        assert terms["denoising"].item() == pytest.approx(expected, rel=1e-6)
        assert loss.decoder.noise.p == 0.8425

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_a_place_may_lose_the_memory(self, tiny_encoder, dtype):
        # Dropout of the single attention weight: a place reads 1 / (1 - p) times the memory, or nothing.
        layer = self.build(tiny_encoder(), decoder_dropout=0.1).decoder.layers[0].train().to(dtype)
        layer.memory_out = nn.Identity()
        memory, places = torch.randn(50, 32).to(dtype), Places.of(torch.ones(50, 40, dtype=torch.bool))
        value = places.repeated(layer.memory_value(memory)).float()
        share = layer._read_memory(memory, places).float() / value
        assert (share == 0).all(dim=1).float().mean().item() == pytest.approx(0.1, abs=0.03)
        assert share[share != 0].mean().item() == pytest.approx(1 / 0.9, abs=5e-4)


# Its values are in the tests of PTBERTLoss.
def test_start_and_dropout_of_pt_bert(tiny_encoder):
    loss = official.PTBERTLoss(tiny_encoder(attention_probs_dropout_prob=0.3))
    assert loss.mapping.head.linear.weight.std().item() == pytest.approx(0.02, rel=0.1)
    vectors, attention = torch.randn(4, 32), loss.mapping.attention
    for mode in (True, False):
        attention.train(mode)
        assert torch.equal(attention(vectors), attention(vectors)) != mode


class TestSLTFAI:
    @staticmethod
    def build(model, **keywords):
        counts = project_counts(model.tokenizer)
        base = losses.ConSERTLoss(model)
        return official.SLTFAILoss(model, base, frequencies=counts, warmup_steps=0, **keywords)

    @staticmethod
    def classify(weights, name, layers, x):
        """Apply linear maps, and a ReLU on the logits."""
        x = numpy(x)
        for layer in range(layers):
            x = linear(weights, f"{name}.layers.{layer}", x)
        return np.maximum(x, 0)

    def test_is_that_of_the_reference(self, tiny_encoder, monkeypatch):
        # All tokens of both views count; special ones are rare; the copy has no view.
        model, made = tiny_encoder("bert", "mean").train(), []
        monkeypatch.setattr(consert, "View", lambda *a, **k: made.append(View(*a, **k)) or made[-1])
        loss, recorder, columns = self.build(model).double(), Recorder(model), batch(model, SENTENCES)
        terms, ids = loss(columns), columns[0]["input_ids"]
        views, copy = recorder.outputs
        rare = np.isin(ids, project_counts(model.tokenizer).low_frequency_ids(0.5, "types"))
        rare |= np.isin(ids, model.tokenizer.all_special_ids)
        own = weights_of(loss)
        labels = np.concatenate([rare, np.take_along_axis(rare, numpy(made[1].order), axis=1)]).astype(int)
        logits = self.classify(own, "frequency_discriminator", 4, views["token_embeddings"])
        nats = [
            reference.class_loss(*each) for each in zip(logits.reshape(-1, 2), labels.ravel(), strict=True)
        ]
        assert terms["adversarial"].item() == pytest.approx(np.mean(nats) / 0.3, rel=1e-9)
        vectors = views["sentence_embedding"][: len(SENTENCES)], copy["sentence_embedding"]
        pair = [self.classify(own, "completeness_discriminator", 2, each) for each in vectors]
        expected = reference.incomplete_sentence_loss(*pair, [True] * len(SENTENCES)) / 0.3
        assert terms["filtering"].item() == pytest.approx(expected, rel=1e-9)
        model.eval()
        torch.testing.assert_close(model(dict(recorder.inputs[1][0]))["sentence_embedding"], vectors[1])

    def test_half_of_the_frequent_tokens_are_masked(self, tiny_encoder):
        # Each by itself, so sentences differ in the share. Nothing masked counts as incomplete, too.
        model = tiny_encoder("bert", "mean").train()
        loss, recorder, columns = self.build(model), Recorder(model), batch(model, SENTENCES * 8)
        frequent = loss.low_frequency[columns[0]["input_ids"]] == 0
        loss(columns)
        lacks = recorder.inputs[-1][0]["input_ids"] != columns[0]["input_ids"]
        assert not (lacks & ~frequent).any()
        assert (lacks.sum() / frequent.sum()).item() == pytest.approx(0.5, abs=0.05)
        assert len((lacks.sum(dim=1) / frequent.sum(dim=1)).unique()) > 5
        loss = self.build(model, masking_ratio=1e-9)
        assert loss(columns)["filtering"] > 0
        assert loss.diagnostics["masked_share"] == 1
