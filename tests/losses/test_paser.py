import math

import numpy as np
import pytest
import reference
import torch
from encoders import POOLED, SENTENCES, given, project_counts, project_text
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Dense
from updates import losses_of_updates

from sbert_plugins import data, losses, recipes
from sbert_plugins.encoder import apply_mask_template
from sbert_plugins.losses import paser

# The paper's objective, small.
SMALL = recipes.PASER.paper_keywords | {"decoder_layers": 2, "decoder_heads": 4, "mlm_head": "fresh"}
# The default, of any vocabulary.
WORDS = {"mlm_head": "embeddings", "token_weights": None}


@pytest.fixture
def encoder(tiny_encoder):
    return tiny_encoder()


def build(model, **keywords):
    torch.manual_seed(0)
    return losses.PaSeRLoss(model, **(SMALL | keywords))


def rows_of(sentences=SENTENCES, **keywords):
    return data.paser_columns(sentences, mask_token="<mask>", **{"synonyms": None, "top_k": 1, **keywords})[:]


def batch(model, rows=None, **keywords):
    return [model.preprocess(column) for column in (rows or rows_of(**keywords)).values()]


class Recorder:
    """Keeps what modules were given and what they returned."""

    def __init__(self, *modules):
        self.calls = []
        for module in modules:
            module.register_forward_hook(lambda module, inputs, output: self.calls.append((inputs, output)))


class TestValue:
    @pytest.mark.parametrize("architecture", ["bert", "electra"])
    def test_generative_is_that_of_the_reference(self, tiny_encoder, architecture):
        """From the sentence vectors on everything once more in numpy: signal, decoder, head, mean over tokens."""
        model = tiny_encoder(architecture)
        loss = build(model, mlm_weight=0).double()
        model.eval()
        rows = rows_of()
        value = loss(batch(model, rows))["generative"].item()

        weights = {name: tensor.detach().numpy() for name, tensor in loss.decoder.state_dict().items()}
        table = model.transformers_model.get_input_embeddings().weight.detach().numpy()
        words = table if architecture == "bert" else table @ weights["widen.weight"].T + weights["widen.bias"]
        signals = reference.decoding_signal(model.encode(rows["anchor"]), model.encode(rows["masked"]), m=10, n=10)
        logits, targets = [], []
        for phrase, signal in zip(rows["phrase"], signals, strict=True):
            ids = model.tokenizer(phrase, add_special_tokens=False)["input_ids"]
            start, end = model.tokenizer.cls_token_id, model.tokenizer.sep_token_id
            hidden = reference.phrase_decoder(words[[start, *ids]], signal, weights, num_layers=2, num_heads=4)
            logits += list(loss.head(torch.from_numpy(hidden)).detach().numpy())
            targets += [*ids, end]
        assert value == pytest.approx(reference.mean_negative_log_likelihood(logits, targets), rel=1e-6)

    def test_mlm_is_that_of_the_whole_model(self, encoder):
        """Labels of the chosen tokens, logits of the encoder's own ForMaskedLM class on the corrupted sentences."""
        loss = build(encoder, mlm_weight=0.5)
        encoder.eval()
        recorder = Recorder(encoder)
        anchor, masked, phrase = batch(encoder)
        torch.manual_seed(5)
        value = loss([anchor, masked, phrase])["mlm"].item()
        ((inputs,), _) = recorder.calls[0]
        corrupted = inputs["input_ids"][-len(SENTENCES) :, : anchor["input_ids"].shape[1]]
        torch.manual_seed(5)
        _, chosen = paser.mlm_mask(
            anchor["input_ids"], loss.tokens.content(anchor), mask_token_id=loss.mask_id, ordinary_ids=loss.ordinary_ids
        )
        tokens = encoder({**anchor, "input_ids": corrupted})["token_embeddings"]
        logits = loss.head(tokens[chosen]).detach().double().numpy()
        expected = reference.mean_negative_log_likelihood(logits, anchor["input_ids"][chosen].tolist())
        assert value == pytest.approx(0.5 * expected, rel=1e-4)

    def test_the_sign_changes_the_memory(self, encoder):
        columns = batch(encoder)
        sentences, copies = torch.randn(2, len(columns[0]["input_ids"]), 32)

        def memory(**keywords):
            loss = build(encoder, mlm_weight=0, **keywords)
            recorder = Recorder(loss.decoder)
            loss.compute_loss_from_passes(given(sentences, copies), columns)
            return loss, recorder.calls[-1][0][1]

        (_, plain), (_, signed) = memory(), memory(signed=True)
        assert torch.equal(signed.abs()[:, 2:], plain[:, 2:])
        assert (signed[:, 2:] < 0).any()

    def test_features_are_left_as_they_came(self, encoder):
        columns = batch(encoder)
        before = [dict(features) for features in columns]
        build(encoder)(columns)
        for features, copy in zip(columns, before, strict=True):
            assert set(features) == set(copy)
            assert all(features[key] is copy[key] for key in copy)


class TestPasses:
    @pytest.mark.parametrize(("mlm_weight", "passes"), [(1.0, 3), (0.0, 2)])
    def test_one_forward_of_all_copies(self, encoder, mlm_weight, passes):
        loss = build(encoder, mlm_weight=mlm_weight)
        recorder = Recorder(encoder)
        terms = loss(batch(encoder))
        ((inputs, _),) = recorder.calls
        assert len(inputs[0]["input_ids"]) == passes * len(SENTENCES)
        assert set(terms) == ({"generative", "mlm"} if mlm_weight else {"generative"})

    def test_columns_that_cannot_be_merged(self, encoder):
        """A prompt on one column only: a forward for each, and the same values."""
        loss = build(encoder, mlm_weight=0)
        encoder.eval()
        columns = batch(encoder)
        expected = loss(columns)["generative"]
        columns[0] = {**columns[0], "prompt_length": 0}
        recorder = Recorder(encoder)
        assert torch.allclose(loss(columns)["generative"], expected, rtol=1e-5)
        assert len(recorder.calls) == 2

    def test_the_vocabulary_is_met_at_scored_positions_only(self, encoder):
        loss = build(encoder)
        recorder = Recorder(loss.head)
        rows = rows_of()
        loss(batch(encoder, rows))
        phrase_tokens = sum(len(encoder.tokenizer(phrase)["input_ids"]) - 1 for phrase in rows["phrase"])  # with the end
        (generative,), (mlm,) = (inputs for inputs, _ in recorder.calls)
        assert len(generative) == phrase_tokens
        sentence_tokens = sum(len(encoder.tokenizer(sentence)["input_ids"]) - 2 for sentence in rows["anchor"])
        assert 0 < len(mlm) < 0.4 * sentence_tokens

    @pytest.mark.parametrize("side", ["left", "right"])
    def test_padding_side(self, encoder, side):
        loss = build(encoder, mlm_weight=0)
        encoder.eval()
        encoder.tokenizer.padding_side = "right"
        columns = batch(encoder)
        expected = loss(columns)["generative"]
        encoder.tokenizer.padding_side = side
        phrase = encoder.preprocess(rows_of()["phrase"])
        assert torch.equal(loss([*columns[:2], phrase])["generative"], expected)


class TestGradients:
    def norms(self, module):
        return [0.0 if p.grad is None else p.grad.abs().sum().item() for p in module.parameters() if p.requires_grad]

    def test_they_reach_encoder_decoder_and_head_and_nothing_else(self, encoder):
        loss = build(encoder).train()
        sum(loss(batch(encoder)).values()).backward()
        for module in (encoder[0].model.encoder, encoder[0].model.embeddings, loss.decoder, loss.head):
            assert min(self.norms(module)) > 0
        reached = {name for name, parameter in loss.named_parameters() if parameter.grad is not None}
        assert {name.split(".")[0] for name in reached} == {"model", "decoder", "head"}
        assert not any("pooler" in name for name in reached)

    def test_the_word_embeddings_learn_from_both_uses(self, encoder):
        """As the decoder's input, at the phrase's own words; as the head's output weights, at every word."""
        loss = build(encoder, mlm_weight=0).eval()
        embeddings = encoder.transformers_model.get_input_embeddings()
        texts = (
            ["The old man sleeps.", "A wet field."],
            ["The <mask> <mask> sleeps.", "A <mask> <mask>."],
            ["old man", "wet field"],
        )
        columns, vectors = [encoder.preprocess(list(column)) for column in texts], torch.randn(2, 2, 32)

        def backward():
            sum(loss.compute_loss_from_passes(given(*vectors), columns).values()).backward()

        backward()
        assert (embeddings.weight.grad.abs().sum(dim=1) > 0).sum() > 0.99 * len(embeddings.weight)  # through the softmax
        both = embeddings.weight.grad.clone()

        gradients = []
        for detached in ("input", "output"):
            embeddings.weight.grad = None
            if detached == "input":
                handle = embeddings.register_forward_hook(lambda module, inputs, output: output.detach())
                backward()
                handle.remove()
            else:
                table = loss.head.full.get_output_embeddings()
                tied = table.weight
                loss.head.untie()
                backward()
                table.weight = tied
            gradients.append(embeddings.weight.grad.clone())
        from_output, from_input = gradients
        assert torch.allclose(from_output + from_input, both, atol=1e-6)
        words = set(encoder.tokenizer("old man wet field", add_special_tokens=False)["input_ids"])
        assert set(from_input.abs().sum(dim=1).nonzero().squeeze(1).tolist()) == {*words, encoder.tokenizer.cls_token_id}

    def test_the_vectors_alone_carry_the_phrase(self, encoder):
        """Teacher forcing aside, what the decoder knows of the sentence comes through the two sentence vectors."""
        loss = build(encoder, mlm_weight=0)
        encoder.eval()
        recorder = Recorder(encoder)
        loss(batch(encoder))["generative"].backward()
        (_, output) = recorder.calls[0]
        assert output["sentence_embedding"].requires_grad

    @pytest.mark.parametrize(("architecture", "pooling"), POOLED)
    def test_every_architecture_learns(self, tiny_encoder, architecture, pooling):
        model = tiny_encoder(architecture, pooling).train()
        loss = build(model)
        values = losses_of_updates(loss, batch(model), learning_rate=4e-3, count=6)
        assert all(map(math.isfinite, values))
        assert sum(values[-2:]) < 0.95 * sum(values[:2])

    def test_a_sentence_vector_of_another_width(self, encoder):
        model = SentenceTransformer(modules=[*encoder, Dense(32, 12)], device="cpu")
        loss = build(model)
        sum(loss(batch(model)).values()).backward()
        assert min(self.norms(loss.decoder.read_memory)) > 0
        assert len(loss.reconstruct(["A dog runs."], ["A <mask> runs."])) == 1


class TestNothingToScore:
    @pytest.mark.parametrize("phrases", [[""] * 8, ["   "] * 8])
    def test_empty_phrases(self, encoder, phrases):
        loss = build(encoder, mlm_weight=0).train()
        value = loss(batch(encoder, rows_of() | {"phrase": phrases}))["generative"]
        assert value == 0
        value.backward()
        assert all(torch.isfinite(p.grad).all() for p in loss.parameters() if p.grad is not None)
        assert loss.decoder.norm.weight.grad is not None  # every rank has a gradient to average
        assert loss.diagnostics["scored_share"] == 0
        assert loss.diagnostics["token_accuracy"].isnan()

    def test_rows_without_a_mask_are_not_scored(self, encoder):
        """After the first batch: an epoch's last rows may be those whose mask was truncated away."""
        loss = build(encoder, mlm_weight=0)
        encoder.eval()
        rows = rows_of()
        whole = loss(batch(encoder, rows))["generative"]
        assert loss.diagnostics["scored_share"] == 1
        assert loss(batch(encoder, rows | {"masked": rows["anchor"]}))["generative"] == 0
        half = rows | {"masked": rows["masked"][:4] + rows["anchor"][4:]}
        first = {name: values[:4] for name, values in rows.items()}
        assert torch.allclose(loss(batch(encoder, half))["generative"], loss(batch(encoder, first))["generative"], rtol=1e-5)
        assert whole > 0

    def test_phrases_that_are_too_long_for_the_decoder(self, encoder):
        """They are not scored, and the share says so."""
        loss, features = build(encoder, mlm_weight=0), batch(encoder)
        lengths = loss.tokens.content(features[2]).sum(dim=1)
        loss.decoder.max_positions = int(lengths.max())
        loss(features)
        fits = lengths < lengths.max()
        assert 0 < loss.diagnostics["scored_share"] == fits.float().mean() < 1

    def test_no_token_for_the_language_model(self, encoder):
        loss = build(encoder, mlm_probability=1e-9).train()
        terms = loss(batch(encoder))
        assert terms["mlm"] == 0
        sum(terms.values()).backward()
        assert all(torch.isfinite(p.grad).all() for p in loss.parameters() if p.grad is not None)

    def test_a_batch_of_one(self, encoder):
        loss = build(encoder).train()
        assert loss(batch(encoder, sentences=SENTENCES[:1]))["generative"] > 0


@pytest.mark.slow
class TestOverfit:
    def test_the_phrase_is_in_the_sentence_vector(self, tiny_encoder):
        """16 sentences: phrases come back letter for letter, and no longer when the vectors belong to other sentences."""
        no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        model = tiny_encoder("bert", "mean", hidden_size=64, intermediate_size=128, **no_dropout)
        torch.manual_seed(0)
        for parameter in model.parameters():
            if parameter.ndim > 1:
                torch.nn.init.normal_(parameter, std=0.05)
        loss = build(model, mlm_weight=0, decoder_layers=1, decoder_dropout=0.0)
        rows = {name: values[:16] for name, values in rows_of(project_text()[:20]).items()}
        optimizer = torch.optim.AdamW(loss.parameters(), lr=3e-3, fused=True)
        model.train()
        columns = batch(model, rows)
        for _ in range(60):
            optimizer.zero_grad()
            loss(columns)["generative"].backward()
            optimizer.step()
        tokenizer = model.tokenizer
        expected = [tokenizer.decode(tokenizer(phrase, add_special_tokens=False)["input_ids"]) for phrase in rows["phrase"]]

        def share(sentences, masked):
            written = loss.reconstruct(sentences, masked)
            return np.mean([a == b for a, b in zip(written, expected, strict=True)])

        assert share(rows["anchor"], rows["masked"]) >= 0.9
        shifted = {name: values[1:] + values[:1] for name, values in rows.items()}
        assert share(shifted["anchor"], shifted["masked"]) <= 0.1
        assert loss.diagnostics["token_accuracy"] > 0.9


class TestReconstruct:
    def test_leaves_modes_as_they_were(self, encoder):
        loss = build(encoder).train()
        loss.decoder.layers.eval()
        before = [module.training for module in loss.modules()]
        first = loss.reconstruct(SENTENCES[:3], ["A <mask> runs."] * 3)
        assert [module.training for module in loss.modules()] == before
        assert first == loss.reconstruct(SENTENCES[:3], ["A <mask> runs."] * 3, batch_size=1)

    def test_stops(self, encoder):
        loss = build(encoder)
        written = loss.reconstruct(SENTENCES, SENTENCES, max_tokens=3)
        assert len(written) == len(SENTENCES)
        assert all(len(encoder.tokenizer(text, add_special_tokens=False)["input_ids"]) <= 6 for text in written)
        assert loss.reconstruct([], []) == []

    @pytest.mark.parametrize(("layers", "most"), [(1, 0), (1, 129), (0, -1)])
    def test_more_tokens_than_a_decoder_writes(self, encoder, layers, most):
        loss = build(encoder, decoder_layers=layers, **({} if layers else WORDS))
        with pytest.raises(ValueError, match=f"max_tokens must be at least 1 and, .* at most 128, got {most}"):
            loss.reconstruct(["A dog runs."], ["A <mask> runs."], max_tokens=most)

    def test_as_many_as_a_decoder_writes(self, encoder):
        assert len(build(encoder).reconstruct(["A dog runs."], ["A <mask> runs."], max_tokens=128)) == 1

    def test_lengths(self, encoder):
        with pytest.raises(ValueError, match="must be of one length, got 2 and 1"):
            build(encoder).reconstruct(["a", "b"], ["a"])


class TestMode:
    def test_parts_follow_the_encoder(self, encoder):
        loss = build(encoder)
        for mode in (False, True):
            encoder.train(mode)
            loss(batch(encoder))
            parts = [*loss.head.modules(), *loss.decoder.modules()]
            assert {module.training for module in parts} == {mode}

    def test_eval_is_deterministic(self, encoder):
        loss = build(encoder, mlm_weight=0).train()
        encoder.eval()
        assert loss(batch(encoder))["generative"] == loss(batch(encoder))["generative"]


class TestPrecision:
    def test_under_autocast_the_losses_stay_float32(self, encoder):
        loss = build(encoder).train()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            terms = loss(batch(encoder))
        sum(terms.values()).backward()
        assert all(term.dtype == torch.float32 and torch.isfinite(term) for term in terms.values())

    def test_an_encoder_in_bfloat16(self, encoder):
        loss = build(encoder.bfloat16()).train()
        terms = loss(batch(encoder))
        sum(terms.values()).backward()
        assert all(torch.isfinite(term) for term in terms.values())


class TestBadInput:
    @pytest.mark.parametrize("count", [0, 1, 2, 4])
    def test_columns(self, encoder, count):
        with pytest.raises(ValueError, match=rf"reads three text columns \(anchor, masked, phrase\), got {count}"):
            build(encoder)([encoder.preprocess(SENTENCES) for _ in range(count)])

    def test_a_first_batch_without_a_mask(self, encoder):
        rows = rows_of()
        with pytest.raises(ValueError, match="hidden by '<mask>', got phrases, and none of them hidden: data"):
            build(encoder)(batch(encoder, rows | {"masked": rows["anchor"]}))

    def test_a_first_batch_without_a_phrase_has_nothing_to_hide(self, encoder):
        rows = {"anchor": ["It is.", "He was."], "masked": ["It is.", "He was."], "phrase": ["", ""]}
        loss = build(encoder, mlm_weight=0)
        assert loss(batch(encoder, rows))["generative"].item() == 0
        with pytest.raises(ValueError, match="got phrases, and none of them hidden"):
            loss(batch(encoder, rows | {"phrase": ["it", "he"]}))

    def test_a_mask_template(self, encoder):
        """Under it a mask token in a sentence is text."""
        with pytest.raises(ValueError, match="PaSeRLoss reads sentences in which '<mask>' hides words, got a tokenizer"):
            build(apply_mask_template(encoder))

    def test_a_prompt_before_the_phrase(self, encoder):
        columns = batch(encoder)
        columns[2] = encoder.preprocess(rows_of()["phrase"], prompt="query: ")
        with pytest.raises(ValueError, match="phrase must be the hidden words alone, got a prompt before it"):
            build(encoder)(columns)

    def test_a_prompt_before_the_sentences_is_fine(self, encoder):
        rows = rows_of()
        columns = [encoder.preprocess(rows[name], prompt="query: ") for name in ("anchor", "masked")]
        terms = build(encoder)([*columns, encoder.preprocess(rows["phrase"])])
        assert all(torch.isfinite(term) for term in terms.values())

    @pytest.mark.parametrize(
        ("keywords", "message"),
        [
            ({"mlm_weight": -1}, "mlm_weight must be a finite number of at least 0, got -1"),
            ({"mlm_weight": math.nan}, "mlm_weight must be a finite number of at least 0, got nan"),
            ({"difference_scale": math.inf}, "difference_scale must be a finite number, got inf"),
            ({"product_scale": math.nan}, "product_scale must be a finite number, got nan"),
            ({"mlm_probability": 0}, r"mlm_probability must be in \(0, 1\), got 0"),
            ({"decoder_layers": -1}, "decoder_layers must be at least 0, got -1"),
            ({"decoder_heads": 5}, r"num_heads \(a loss's decoder_heads\) must divide the encoder's width 32, got 5"),
        ],
    )
    def test_values(self, encoder, keywords, message):
        with pytest.raises(ValueError, match=message):
            build(encoder, **keywords)

    def test_a_tokenizer_without_a_mask_token(self, encoder):
        encoder.tokenizer.mask_token = None
        with pytest.raises(ValueError, match="needs a tokenizer with mask_token, which this model's has not"):
            build(encoder)


def test_config_shows_every_setting(encoder):
    signature = losses.PaSeRLoss.__init__.__kwdefaults__ | {"project_masked": False}  # a keyword of earlier versions
    frequencies = data.TokenFrequencies.from_corpus(project_text(), encoder.tokenizer, source="our text")
    assert losses.PaSeRLoss(encoder, frequencies=frequencies).get_config_dict() == signature | {
        "frequencies": f"our text [{frequencies.mark}]"
    }
    changed = SMALL | {"difference_scale": 1.0, "mlm_weight": 0.0, "signed": True, "decoder_dropout": 0.0}
    assert losses.PaSeRLoss(encoder, **changed).get_config_dict() == signature | changed


def test_the_end_of_a_phrase_weighs_what_the_most_frequent_word_does(encoder):
    """No text counts it: as a word that never occurs it had most of the loss."""
    frequencies = project_counts(encoder.tokenizer)
    loss = build(encoder, token_weights=1e-3, frequencies=frequencies)
    rows = rows_of()
    tokens = [encoder.tokenizer(phrase, add_special_tokens=False)["input_ids"] for phrase in rows["phrase"]]
    words = sum(loss.weights[ids].sum().item() for ids in tokens)
    ends = len(tokens) * loss.weights[encoder.tokenizer.sep_token_id].item()
    assert loss.weights[encoder.tokenizer.sep_token_id] == loss.weights[frequencies.counts.argmax()]
    assert ends / (ends + words) < len(tokens) / (len(tokens) + sum(map(len, tokens)))


class TestWords:
    """The default: no layers, the phrase's words from the sentence's vector, rare ones above all."""

    @pytest.fixture
    def words(self, tiny_encoder):
        model = tiny_encoder(pooling="mean")
        frequencies = project_counts(model.tokenizer)
        torch.manual_seed(0)
        return losses.PaSeRLoss(model, frequencies=frequencies, mlm_head="fresh", token_weights=1e-3)

    def test_value(self, words):
        """The map starts by reading the sentence, its words by their own embeddings: the head is not pretrained."""
        model, rows = words.model.eval(), rows_of()
        table = model.transformers_model.get_input_embeddings().weight.detach()
        logits = (torch.from_numpy(model.encode(rows["anchor"])) @ table.T).double().tolist()
        texts = [model.tokenizer(phrase, add_special_tokens=False)["input_ids"] for phrase in rows["phrase"]]
        shares = project_counts(model.tokenizer).probabilities()
        expected = reference.bag_of_words_loss(texts, logits, [reference.token_weight(share, 1e-3) for share in shares])
        assert words(batch(model, rows))["generative"].item() == pytest.approx(expected, rel=1e-4)

    def test_learns_to_read_the_difference(self, words):
        words.model.train()
        words(batch(words.model))["generative"].backward()
        blocks = words.decoder.map.weight.grad.chunk(4, dim=1)
        assert all(block.abs().sum() > 0 for block in blocks)

    def test_rows_that_hide_nothing_are_not_scored(self, words):
        rows = rows_of()
        rows["masked"][0] = rows["anchor"][0]
        rows["phrase"][1] = ""
        words.model.eval()
        words(batch(words.model, rows))
        assert words.diagnostics["scored_share"].item() == pytest.approx(1 - 2 / len(rows["anchor"]))

    def test_reconstruct_names_as_many_words_as_are_hidden(self, words):
        written = words.reconstruct(["The old man sleeps.", "It rains."], ["The <mask> <mask> sleeps.", "It <mask>."])
        assert len(written) == 2
        assert all(text for text in written)

    def test_a_bounded_second_objective(self, words):
        """Beside SimCSE on the same rows: one pass of the anchor for both, and each its own gradient."""
        model = words.model.train()
        ranking = MultipleNegativesRankingLoss(model)
        members = {"simcse": (ranking, 1.0, [0, 0]), "paser": (words, 1.0, [0, 1, 2])}
        loss = losses.WeightedSumLoss(model, members, balance=0.01)
        terms = loss(batch(model))
        sum(terms.values()).backward()
        assert set(terms) == {"simcse", "paser/generative"}
        assert 0 < loss.diagnostics["balance_factor"] < 1
        assert loss.diagnostics["balance_share"].item() == pytest.approx(0.01 / 1.01, rel=1e-3)


def test_each_scale_is_its_own(encoder):
    loss = losses.PaSeRLoss(encoder, difference_scale=2.0, product_scale=5.0, **WORDS)
    sentences, copies = torch.randn(2, 4, 32)
    expected = torch.stack([sentences, copies, 2 * (sentences - copies), 5 * sentences * copies], dim=1)
    torch.testing.assert_close(loss.memory(sentences, copies), expected)


def test_a_copy_that_is_longer_changes_no_other_term(encoder):
    """Of the pass that is merged the sentences' own places are read."""
    rows = data.paser_columns(SENTENCES, mask_token="<mask>", synonyms=None, top_k=1)[:]
    loss = losses.PaSeRLoss(encoder.eval(), mlm_weight=1.0, **WORDS)
    values = []
    for more in ("", " and so on and on" * 8):
        torch.manual_seed(5)
        columns = [rows["anchor"], [text + more for text in rows["masked"]], rows["phrase"]]
        values.append(loss([encoder.preprocess(column) for column in columns])["mlm"].item())
    assert values[0] == pytest.approx(values[1], rel=1e-5)


@pytest.mark.parametrize("most", [2, 16])
def test_no_more_words_than_asked_for(encoder, monkeypatch, most):
    loss, asked = losses.PaSeRLoss(encoder, **WORDS), []
    monkeypatch.setattr(loss.decoder, "likeliest", lambda *of: asked.extend(of[3]) or [[5]] * len(of[3]))
    loss.reconstruct(["It rains.", "A dog runs."], ["<mask> <mask> <mask>", "<mask> runs."], max_tokens=most)
    assert asked == [min(3, most), 1]


def test_reconstruct_of_a_model_that_cuts_its_vectors(tiny_encoder):
    model = tiny_encoder(pooling="mean")
    loss = losses.PaSeRLoss(model, mlm_head="embeddings", token_weights=None)
    model.truncate_dim = 8  # of what encode gives, as for a search
    assert loss.reconstruct(["A dog runs."], ["A <mask> runs."])[0]
