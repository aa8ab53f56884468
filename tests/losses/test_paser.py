import numpy as np
import pytest
import reference
import torch
from encoders import SENTENCES, project_counts, project_text
from tools import Recorder, batch, gradients, linear, numpy, phrase_loss, weights_of, words_of

from sbert_plugins import data, losses
from sbert_plugins.losses import paser

SMALL = {"decoder_layers": 2, "decoder_heads": 4, "mlm_head": "fresh"}


@pytest.fixture
def encoder(tiny_encoder):
    return tiny_encoder().train()


def build(model, **keywords):
    torch.manual_seed(0)
    return losses.PaSeRLoss(model, **(SMALL | keywords))


@pytest.fixture
def rows():
    return data.paser_columns(SENTENCES, mask_token="<mask>", synonyms=None, top_k=1)[:]


def columns_of(model, rows):
    return batch(model, *rows.values())


class TestValue:
    @pytest.mark.parametrize("architecture", ["bert", "electra"])
    @pytest.mark.parametrize("published", [False, True])
    def test_generative_is_that_of_the_reference(self, tiny_encoder, rows, architecture, published):
        # From the sentence vectors on. The default has signs and LayerNorm in the memory.
        model = tiny_encoder(architecture).eval()
        keywords = {"signed": False, "normalize_memory": False, "mlm_weight": 0} if published else {}
        loss = losses.PaSeRLoss(model, **keywords).double()
        value = loss(columns_of(model, rows))["generative"].item()
        weights = weights_of(loss.decoder)
        table = numpy(model.transformers_model.get_input_embeddings().weight)
        words = table if architecture == "bert" else linear(weights, "widen", table)
        pair = [model.encode(rows[name]) for name in ("anchor", "masked")]
        memories = reference.decoding_signal(*pair, m=10, n=10)
        if not published:
            memories = np.stack([*pair, 10 * (pair[0] - pair[1]), 10 * pair[0] * pair[1]], axis=1)
            norm = weights["norm_memory.weight"], weights["norm_memory.bias"]
            memories = [[reference.layer_norm(row, *norm) for row in memory] for memory in memories]
        memories = [np.array(memory) for memory in memories]
        assert value == pytest.approx(
            phrase_loss(loss, rows["phrase"], memories, lambda ids: words[ids]), rel=1e-6
        )

    def test_mlm_is_that_of_the_whole_model(self, encoder, rows):
        # The mean over the chosen tokens, on the corrupted sentences.
        loss, columns = losses.PaSeRLoss(encoder.eval()), columns_of(encoder, rows)
        recorder = Recorder(encoder)
        ids = columns[0]["input_ids"]
        torch.manual_seed(5)
        value = loss(columns)["mlm"].item()
        torch.manual_seed(5)
        masks = {"mask_token_id": loss.mask_id, "ordinary_ids": loss.ordinary_ids}
        _, chosen = paser.mlm_mask(ids, loss.tokens.content(columns[0]), **masks)
        tokens = recorder.outputs[0]["token_embeddings"][-len(SENTENCES) :, : ids.shape[1]]
        logits = numpy(loss.head(tokens[chosen]).double())
        expected = reference.mean_negative_log_likelihood(logits, ids[chosen].tolist())
        assert value == pytest.approx(expected, rel=1e-4)
        loss.mlm_weight = 0.5
        torch.manual_seed(5)
        assert loss(columns)["mlm"].item() == pytest.approx(0.5 * value, rel=1e-6)


@pytest.mark.parametrize(("mlm_weight", "passes"), [(1.0, 3), (0.0, 2)])
def test_one_forward_of_all_copies(encoder, rows, mlm_weight, passes):
    # Words are scored at the phrases' tokens and ends, and at the corrupted tokens.
    loss, recorder = build(encoder, mlm_weight=mlm_weight), Recorder(encoder)
    scored = Recorder(loss.head)
    loss(columns_of(encoder, rows))
    assert recorder.rows() == [passes * len(SENTENCES)]
    counts = [len(inputs[0]) for inputs in scored.inputs]
    assert counts[0] == sum(len(encoder.tokenizer(phrase)["input_ids"]) - 1 for phrase in rows["phrase"])
    assert len(counts) == passes - 1


class TestRowsThatAreNotScored:
    @pytest.mark.parametrize("phrases", [["", " "] * 4, None])
    def test_nothing_to_score(self, encoder, rows, phrases):
        # No phrase, or no mask. The loss is 0, and the decoder has gradients, which other ranks average.
        changed = {"phrase": phrases} if phrases else {"masked": rows["anchor"]}
        loss = build(encoder, mlm_weight=0)
        value = loss(columns_of(encoder, rows | changed))["generative"]
        value.backward()
        assert value == loss.diagnostics["scored_share"] == 0
        assert all(gradient.isfinite().all() for gradient in gradients(loss).values())
        assert loss.decoder.norm.weight.grad is not None

    def test_masks_that_were_truncated(self, encoder, rows):
        # The other rows are scored as if they were alone.
        loss = build(encoder.eval(), mlm_weight=0)
        half = rows | {"masked": rows["masked"][:4] + rows["anchor"][4:]}
        first = {name: values[:4] for name, values in rows.items()}
        found = [loss(columns_of(encoder, each))["generative"].item() for each in (half, first)]
        assert found[0] == pytest.approx(found[1], rel=1e-5)


class TestReconstruct:
    @pytest.mark.slow
    def test_writes_the_phrase_that_the_vectors_hold(self, tiny_encoder):
        # After training on 16 sentences phrases come back, but not from the vectors of other sentences.
        off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        model = tiny_encoder("bert", "mean", hidden_size=64, intermediate_size=128, **off).train()
        for parameter in model.parameters():
            if parameter.ndim > 1:
                torch.nn.init.normal_(parameter, std=0.05)
        loss = build(model, mlm_weight=0, decoder_layers=1, decoder_dropout=0.0)
        rows = data.paser_columns(project_text()[:20], mask_token="<mask>", synonyms=None, top_k=1)[:16]
        optimizer = torch.optim.AdamW(loss.parameters(), lr=3e-3, fused=True)
        columns = columns_of(model, rows)
        for _ in range(60):
            optimizer.zero_grad()
            loss(columns)["generative"].backward()
            optimizer.step()
        expected = np.array(model.tokenizer.batch_decode(words_of(model, rows["phrase"])))
        sentences, masked = rows["anchor"], rows["masked"]
        assert (np.array(loss.reconstruct(sentences, masked)) == expected).mean() >= 0.9
        others = loss.reconstruct(sentences[1:] + sentences[:1], masked[1:] + masked[:1])
        assert (np.array(others) == expected).mean() <= 0.1

    @pytest.mark.parametrize("layers", [0, 1])
    def test_leaves_modes_as_they_were_and_stops(self, encoder, layers):
        # The vectors are whole, also of a model that cuts those that ``encode`` returns.
        loss = build(encoder, decoder_layers=layers)
        texts = SENTENCES[:3], ["A <mask> <mask> <mask> runs."] * 3
        encoder.truncate_dim = 8
        loss.decoder.eval()
        before = [module.training for module in loss.modules()]
        first = loss.reconstruct(*texts, max_tokens=2)
        assert [module.training for module in loss.modules()] == before
        assert first == loss.reconstruct(*texts, max_tokens=2, batch_size=1)
        assert all(len(text.split()) <= 2 for text in first)


@pytest.fixture
def words(tiny_encoder):
    model = tiny_encoder(pooling="mean").train()
    counts = {"frequencies": project_counts(model.tokenizer), "token_weights": 1e-3}
    return build(model, decoder_layers=0, mlm_head="embeddings", **counts)


def test_without_layers(words, rows):
    # The map starts as a copy of the sentence vector, and words are scored by their embeddings.
    model = words.model.eval()
    table = numpy(model.transformers_model.get_input_embeddings().weight)
    texts = words_of(model, rows["phrase"])
    shares = project_counts(model.tokenizer).probabilities()
    weights = [reference.token_weight(share, 1e-3) for share in shares]
    expected = reference.bag_of_words_loss(texts, model.encode(rows["anchor"]) @ table.T, weights)
    terms = words(columns_of(model, rows))
    assert terms["generative"].item() == pytest.approx(expected, rel=1e-4)
    assert set(terms) == {"generative", "mlm"}  # by a head of its own


def test_the_end_of_a_phrase_has_the_smallest_weight(encoder):
    # It is in no text, so its count is 0, and as the rarest token it would have most of the loss.
    counts = project_counts(encoder.tokenizer)
    weights = build(encoder, token_weights=1e-3, frequencies=counts).weights
    assert weights[encoder.tokenizer.sep_token_id] == weights[counts.counts.argmax()] == weights.min()


def test_a_prompt_before_the_phrase_is_not_written(encoder, rows):
    loss, plain = build(encoder.eval(), mlm_weight=0), columns_of(encoder, rows)
    prompted = encoder.preprocess(rows["phrase"], prompt="query: ")
    assert prompted["input_ids"].shape[1] > plain[2]["input_ids"].shape[1]
    torch.testing.assert_close(dict(loss([*plain[:2], prompted])), dict(loss(plain)))
