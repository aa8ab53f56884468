import numpy as np
import pytest
import reference
import torch
from encoders import SENTENCES, given, project_counts, project_text
from tools import Recorder, batch, gradients, numpy, weights_of

from sbert_plugins import data, losses
from sbert_plugins.encoder import apply_mask_template
from sbert_plugins.losses import paser

pytestmark = pytest.mark.filterwarnings("ignore:.*owns weights")
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
        """From the sentence vectors on: signal, decoder, head, mean over the tokens and ends of phrases.

        The default has signs and LayerNorm in the memory, for the reasons in the docstring.
        """
        model = tiny_encoder(architecture).eval()
        keywords = {"signed": False, "normalize_memory": False} if published else {}
        loss = build(model, mlm_weight=0, **keywords).double()
        value = loss(columns_of(model, rows))["generative"].item()
        weights = weights_of(loss.decoder)
        table = numpy(model.transformers_model.get_input_embeddings().weight)
        words = table if architecture == "bert" else table @ weights["widen.weight"].T + weights["widen.bias"]
        sentences, copies = (model.encode(rows[name]) for name in ("anchor", "masked"))
        signals = reference.decoding_signal(sentences, copies, m=10, n=10)
        logits, targets = [], []
        for phrase, signal, sentence, copy in zip(rows["phrase"], signals, sentences, copies, strict=True):
            if not published:
                signal = [sentence, copy, 10 * (sentence - copy), 10 * sentence * copy]
                norm = weights["norm_memory.weight"], weights["norm_memory.bias"]
                signal = np.array([reference.layer_norm(row, *norm) for row in signal])
            ids = model.tokenizer(phrase, add_special_tokens=False)["input_ids"]
            read = words[[model.tokenizer.cls_token_id, *ids]]
            hidden = reference.phrase_decoder(read, signal, weights, num_layers=2, num_heads=4)
            logits += list(numpy(loss.head(torch.from_numpy(hidden))))
            targets += [*ids, model.tokenizer.sep_token_id]
        assert value == pytest.approx(reference.mean_negative_log_likelihood(logits, targets), rel=1e-6)

    def test_mlm_is_that_of_the_whole_model(self, encoder, rows):
        """The mean over the chosen tokens, on the corrupted sentences."""
        loss, recorder = build(encoder.eval(), mlm_weight=0.5), Recorder(encoder)
        anchor, masked, phrase = columns_of(encoder, rows)
        ids = anchor["input_ids"]
        torch.manual_seed(5)
        value = loss([anchor, masked, phrase])["mlm"].item()
        corrupted = recorder.inputs[0][0]["input_ids"][-len(SENTENCES) :, : ids.shape[1]]
        torch.manual_seed(5)
        given = {"mask_token_id": loss.mask_id, "ordinary_ids": loss.ordinary_ids}
        _, chosen = paser.mlm_mask(ids, loss.tokens.content(anchor), **given)
        tokens = encoder({**anchor, "input_ids": corrupted})["token_embeddings"]
        logits = numpy(loss.head(tokens[chosen]).double())
        expected = reference.mean_negative_log_likelihood(logits, ids[chosen].tolist())
        assert value == pytest.approx(0.5 * expected, rel=1e-4)


class TestPasses:
    @pytest.mark.parametrize(("mlm_weight", "passes"), [(1.0, 3), (0.0, 2)])
    def test_one_forward_of_all_copies(self, encoder, rows, mlm_weight, passes):
        """Words are scored at the phrases' tokens and ends, and at the corrupted tokens."""
        loss, recorder = build(encoder, mlm_weight=mlm_weight), Recorder(encoder)
        scored = Recorder(loss.head)
        loss(columns_of(encoder, rows))
        assert recorder.rows() == [passes * len(SENTENCES)]
        counts = [len(inputs[0]) for inputs in scored.inputs]
        assert counts[0] == sum(len(encoder.tokenizer(phrase)["input_ids"]) - 1 for phrase in rows["phrase"])
        assert len(counts) == passes - 1


class TestGradients:
    def test_reach_encoder_decoder_and_head(self, encoder, rows):
        loss = build(encoder)
        sum(loss(columns_of(encoder, rows)).values()).backward()
        found = gradients(loss)
        assert {name.split(".")[0] for name in found} == {"model", "decoder", "head"}
        for module in (encoder[0].model.encoder, loss.decoder, loss.head):
            assert all(parameter.grad.any() for parameter in module.parameters())

    def test_of_word_embeddings_come_from_both_uses(self, encoder):
        """As the decoder's input, at the phrase's words; as the head's output weights, at each word."""
        loss = build(encoder, mlm_weight=0).eval()
        embeddings, head = encoder.transformers_model.get_input_embeddings(), loss.head
        columns = batch(encoder, ["The old man sleeps."], ["The <mask> <mask> sleeps."], ["old man"])
        vectors = torch.randn(2, 1, 32)

        def gradient():
            embeddings.weight.grad = None
            sum(loss.compute(given(*vectors), columns).values()).backward()
            return embeddings.weight.grad.clone()

        both = gradient()
        assert (both.abs().sum(dim=1) > 0).sum() > 0.99 * len(embeddings.weight)  # through the softmax
        head.untie()
        from_input = gradient()
        words = encoder.tokenizer("old man", add_special_tokens=False)["input_ids"]
        read = {*words, encoder.tokenizer.cls_token_id}
        assert set(from_input.abs().sum(dim=1).nonzero().squeeze(1).tolist()) == read
        head.table.grad[embeddings.padding_idx] = 0  # in the tied table it stays as it is
        torch.testing.assert_close(from_input + head.table.grad, both, rtol=1e-4, atol=1e-6)


class TestRowsThatAreNotScored:
    def test_nothing_to_score(self, encoder, rows):
        """The loss is 0. All of the decoder has a gradient, which other ranks average."""
        loss = build(encoder, mlm_weight=0)
        for changed in ({"phrase": ["", " "] * 4}, {"masked": rows["anchor"]}):
            value = loss(columns_of(encoder, rows | changed))["generative"]
            value.backward()
            assert value == 0
            assert all(gradient.isfinite().all() for gradient in gradients(loss).values())
            assert loss.decoder.norm.weight.grad is not None
            assert loss.diagnostics["scored_share"] == 0
            assert loss.diagnostics["token_accuracy"].isnan()

    def test_masks_that_were_truncated(self, encoder, rows):
        """The other rows are scored as if they were alone."""
        loss = build(encoder.eval(), mlm_weight=0)
        half = rows | {"masked": rows["masked"][:4] + rows["anchor"][4:]}
        first = {name: values[:4] for name, values in rows.items()}
        found = [loss(columns_of(encoder, each))["generative"].item() for each in (half, first)]
        assert found[0] == pytest.approx(found[1], rel=1e-5)

    def test_phrases_that_are_too_long_for_the_decoder(self, encoder, rows):
        loss, columns = build(encoder), columns_of(encoder, rows)
        lengths = loss.tokens.content(columns[2]).sum(dim=1)
        loss.decoder.max_positions = int(lengths.max())
        loss(columns)
        assert 0 < loss.diagnostics["scored_share"] == (lengths < lengths.max()).float().mean() < 1

    def test_no_token_for_the_language_model(self, encoder, rows):
        loss = build(encoder, mlm_probability=1e-9)
        terms = loss(columns_of(encoder, rows))
        assert terms["mlm"] == 0
        sum(terms.values()).backward()
        assert all(gradient.isfinite().all() for gradient in gradients(loss).values())


class TestReconstruct:
    @pytest.mark.slow
    def test_writes_the_phrase_that_the_vectors_hold(self, tiny_encoder):
        """After training on 16 sentences phrases come back, but not from the vectors of other sentences."""
        sizes = {"hidden_size": 64, "intermediate_size": 128}
        model = tiny_encoder(
            "bert", "mean", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **sizes
        )
        torch.manual_seed(0)
        for parameter in model.parameters():
            if parameter.ndim > 1:
                torch.nn.init.normal_(parameter, std=0.05)
        loss = build(model.train(), mlm_weight=0, decoder_layers=1, decoder_dropout=0.0)
        rows = data.paser_columns(project_text()[:20], mask_token="<mask>", synonyms=None, top_k=1)[:16]
        optimizer = torch.optim.AdamW(loss.parameters(), lr=3e-3, fused=True)
        columns = columns_of(model, rows)
        for _ in range(60):
            optimizer.zero_grad()
            loss(columns)["generative"].backward()
            optimizer.step()
        tokens = [model.tokenizer(phrase, add_special_tokens=False)["input_ids"] for phrase in rows["phrase"]]
        expected = model.tokenizer.batch_decode(tokens)
        shares = []
        for shift in (0, 1):
            moved = [rows[name][shift:] + rows[name][:shift] for name in ("anchor", "masked")]
            shares.append(np.mean([a == b for a, b in zip(loss.reconstruct(*moved), expected, strict=True)]))
        assert shares[0] >= 0.9
        assert shares[1] <= 0.1

    @pytest.mark.parametrize("layers", [0, 1])
    def test_leaves_modes_as_they_were_and_stops(self, encoder, layers):
        """The vectors are whole, also of a model that cuts those that ``encode`` returns."""
        loss = build(encoder, decoder_layers=layers)
        encoder.truncate_dim = 8
        loss.decoder.eval()
        before = [module.training for module in loss.modules()]
        masked = ["A <mask> <mask> <mask> runs."] * 3
        first = loss.reconstruct(SENTENCES[:3], masked, max_tokens=2)
        assert [module.training for module in loss.modules()] == before
        assert first == loss.reconstruct(SENTENCES[:3], masked, max_tokens=2, batch_size=1)
        assert all(len(text.split()) <= 2 for text in first)
        assert loss.reconstruct([], []) == []


class TestWithoutLayers:
    @pytest.fixture
    def words(self, tiny_encoder):
        model = tiny_encoder(pooling="mean").train()
        counts = {"frequencies": project_counts(model.tokenizer), "token_weights": 1e-3}
        return build(model, decoder_layers=0, mlm_head="embeddings", **counts)

    def test_value(self, words, rows):
        """The map starts as a copy of the sentence vector, and words are scored by their embeddings."""
        model = words.model.eval()
        table = numpy(model.transformers_model.get_input_embeddings().weight)
        texts = [model.tokenizer(phrase, add_special_tokens=False)["input_ids"] for phrase in rows["phrase"]]
        shares = project_counts(model.tokenizer).probabilities()
        weights = [reference.token_weight(share, 1e-3) for share in shares]
        expected = reference.bag_of_words_loss(texts, model.encode(rows["anchor"]) @ table.T, weights)
        terms = words(columns_of(model, rows))
        assert terms["generative"].item() == pytest.approx(expected, rel=1e-4)
        assert set(terms) == {"generative", "mlm"}  # by a head of its own

    def test_learns_from_all_of_the_memory(self, words, rows):
        words(columns_of(words.model, rows))["generative"].backward()
        assert all(block.any() for block in words.decoder.map.weight.grad.chunk(4, dim=1))

    def test_reconstruct_returns_as_many_words_as_masks(self, words, monkeypatch):
        asked = []
        monkeypatch.setattr(words.decoder, "most_likely", lambda *a: asked.extend(a[3]) or [[5]] * len(a[3]))
        words.reconstruct(
            ["It rains.", "A dog runs."], ["<mask> <mask> <mask>", "<mask> runs."], max_tokens=2
        )
        assert asked == [2, 1]


def test_the_end_of_a_phrase_has_the_smallest_weight(encoder):
    """It is in no text, so its count is 0, and as the rarest token it would have most of the loss."""
    counts = project_counts(encoder.tokenizer)
    weights = build(encoder, token_weights=1e-3, frequencies=counts).weights
    assert weights[encoder.tokenizer.sep_token_id] == weights[counts.counts.argmax()] == weights.min()


def test_prompts(encoder, rows):
    """Before sentences, but not before the phrase, which the decoder would have to write."""
    prompted = [encoder.preprocess(rows[name], prompt="query: ") for name in rows]
    loss, plain = build(encoder), columns_of(encoder, rows)
    assert all(term.isfinite() for term in loss([*prompted[:2], plain[2]]).values())
    with pytest.raises(ValueError, match="prompt"):
        loss([*plain[:2], prompted[2]])


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"mlm_weight": -1}, "mlm_weight .* got -1"),
        ({"mlm_probability": 0}, "mlm_probability .* got 0"),
        ({"decoder_heads": 5}, "decoder_heads must divide .* got 5"),
    ],
)
def test_values_out_of_range(encoder, keywords, message):
    with pytest.raises(ValueError, match=message):
        build(encoder, **keywords)


def test_a_mask_template_is_an_error(encoder):
    """Under it a mask token in a sentence is text."""
    with pytest.raises(ValueError, match="mask template"):
        build(apply_mask_template(encoder))
