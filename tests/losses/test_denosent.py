import inspect
import math

import pytest
import reference
import torch
from encoders import ARCHITECTURES, SENTENCES, given, project_counts, project_text
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Dense
from updates import losses_of_updates

from sbert_plugins import functional, losses, recipes
from sbert_plugins.encoder import apply_mask_template, input_embeddings

# The paper's objective, small.
SMALL = recipes.DENOSENT.paper_keywords | {"decoder_layers": 2, "decoder_feedforward": 48, "mlm_head": "fresh"}
PARAPHRASES = SENTENCES[1:] + SENTENCES[:1]


@pytest.fixture
def encoder(tiny_encoder):
    return apply_mask_template(tiny_encoder())


def build(model, **keywords):
    torch.manual_seed(0)
    return losses.DenoSentLoss(model, **(SMALL | keywords))


def batch(model, *columns):
    return [model.preprocess(column) for column in columns or (SENTENCES,)]


class Recorder:
    """Keeps what a module was given and what it returned."""

    def __init__(self, module):
        self.calls = []
        module.register_forward_hook(lambda module, inputs, output: self.calls.append((inputs, output)))


class TestValue:
    @pytest.mark.parametrize("architecture", ["bert", "electra", "modernbert"])
    @pytest.mark.parametrize("reconstruct", ["anchor", "paraphrase"])
    def test_is_that_of_the_reference(self, tiny_encoder, architecture, reconstruct):
        """From the sentence vectors on everything once more in numpy: projector, contrast, decoder, mean over tokens."""
        model = apply_mask_template(tiny_encoder(architecture))
        loss = build(model, reconstruct=reconstruct, contrastive_weight=5.0, denoising_weight=7.0, temperature=0.05).double()
        for parameter in loss.decoder.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        model.eval()
        terms = loss(batch(model, SENTENCES, PARAPHRASES))

        def linear(module, rows):
            return rows @ module.weight.detach().numpy().T + module.bias.detach().numpy()

        anchors, positives = (linear(loss.projector, model.encode(column)) for column in (SENTENCES, PARAPHRASES))
        expected = 5 * reference.info_nce(anchors, positives, temperature=0.05)
        assert terms["contrastive"].item() == pytest.approx(expected, rel=1e-6)

        restored, memory = (SENTENCES, positives) if reconstruct == "anchor" else (PARAPHRASES, anchors)
        weights = {name: tensor.detach().numpy() for name, tensor in loss.decoder.state_dict().items()}
        logits, targets = [], []
        for sentence, vector in zip(restored, memory, strict=True):
            ids = model.tokenizer(sentence, add_special_tokens=False)["input_ids"]
            with torch.no_grad():
                embedded = model.transformers_model.embeddings(model.preprocess([sentence])["input_ids"])
            embedded = embedded[0, 1 : len(ids) + 1].numpy()  # without [CLS], the template and [SEP]
            if architecture == "modernbert":
                embedded = embedded + weights["positions.weight"][: len(ids)]
            if architecture == "electra":
                embedded = linear(loss.decoder.widen, embedded)
            hidden = reference.denoising_decoder(
                embedded, vector, weights, num_layers=2, num_heads=1, attended=[True] * len(ids)
            )
            logits += list(loss.head(torch.from_numpy(hidden)).detach().numpy())
            targets += ids
        expected = 7 * reference.mean_negative_log_likelihood(logits, targets)
        assert terms["denoising"].item() == pytest.approx(expected, rel=1e-6)

    def test_one_column_is_its_own_paraphrase(self, encoder):
        loss = build(encoder)
        encoder.eval()
        once, twice = loss(batch(encoder)), loss(batch(encoder, SENTENCES, SENTENCES))
        assert all(torch.equal(once[term], twice[term]) for term in ("contrastive", "denoising"))

    def test_without_decoder_and_projector_it_is_simcse(self, encoder):
        """sentence-transformers' own loss, without dropout and with it."""
        loss = build(encoder, denoising_weight=0, projector=False)
        theirs = MultipleNegativesRankingLoss(encoder, scale=1 / 0.03)
        encoder.eval()
        expected = theirs(batch(encoder, SENTENCES, PARAPHRASES), None)
        assert torch.allclose(loss(batch(encoder, SENTENCES, PARAPHRASES))["contrastive"], expected)
        assert not any(name.split(".")[0] != "model" for name, _ in loss.named_parameters())
        assert loss.state_is_kept

    def test_features_are_left_as_they_came(self, encoder):
        columns = batch(encoder, SENTENCES, PARAPHRASES)
        before = [dict(features) for features in columns]
        build(encoder)(columns)
        for features, copy in zip(columns, before, strict=True):
            assert set(features) == set(copy)
            assert all(features[key] is copy[key] for key in copy)


class TestNoise:
    def test_off_in_eval_and_drawn_anew_in_training(self, encoder):
        loss = build(encoder, contrastive_weight=0)
        for module in encoder.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        values = {}
        for mode in (True, False):
            encoder.train(mode)
            values[mode] = [loss(batch(encoder))["denoising"].item() for _ in range(2)]
            assert loss.decoder.training == loss.head.training == loss.projector.training == mode
        assert values[False][0] == values[False][1]
        assert values[True][0] != values[True][1]

    def test_is_on_what_the_first_layer_reads(self, encoder):
        """The embeddings without their own dropout: all the noise is the decoder's."""
        encoder.train()
        encoder.transformers_model.config.output_hidden_states = True
        ids = batch(encoder)[0]["input_ids"]
        assert torch.equal(input_embeddings(encoder, ids), encoder.transformers_model.eval()(input_ids=ids).hidden_states[0])

    @pytest.mark.parametrize("architecture", ARCHITECTURES)
    def test_word_order_counts_in_every_architecture(self, tiny_encoder, architecture):
        """A decoder that is blind to order would give the reversed sentence the same rows, reversed."""
        model = tiny_encoder(architecture)
        loss = build(model, contrastive_weight=0)
        model.eval()
        recorder = Recorder(loss.decoder)
        features = model.preprocess(SENTENCES[:1])
        flipped = {**features, "input_ids": features["input_ids"].clone()}
        flipped["input_ids"][:, 1:-1] = features["input_ids"][:, 1:-1].flip(1)
        for each in (features, flipped):
            loss.compute_loss_from_passes(given(torch.zeros(1, 32)), [each])
        (_, forwards), (_, backwards) = recorder.calls
        assert (forwards - backwards.flip(1)).abs().max() > 1e-3
        assert (loss.decoder.positions is None) == (architecture not in ("modernbert",))


class TestPasses:
    @pytest.mark.parametrize(
        ("keywords", "columns", "rows"),
        [
            ({}, (SENTENCES,), 16),
            ({}, (SENTENCES, PARAPHRASES), 16),
            ({"contrastive_weight": 0}, (SENTENCES,), 8),
            ({"contrastive_weight": 0}, (SENTENCES, PARAPHRASES), 8),
        ],
    )
    def test_one_forward_of_what_is_needed(self, encoder, keywords, columns, rows):
        loss = build(encoder.train(), **keywords)
        recorder = Recorder(encoder)
        loss(batch(encoder, *columns))
        ((inputs, _),) = recorder.calls
        assert len(inputs[0]["input_ids"]) == rows

    @pytest.mark.parametrize("reconstruct", ["anchor", "paraphrase"])
    def test_without_contrast_the_other_column_is_encoded(self, encoder, reconstruct):
        loss = build(encoder, contrastive_weight=0, reconstruct=reconstruct)
        recorder = Recorder(encoder)
        columns = batch(encoder, SENTENCES, PARAPHRASES)
        loss(columns)
        (((inputs,), _),) = recorder.calls
        assert inputs["input_ids"] is columns[1 if reconstruct == "anchor" else 0]["input_ids"]

    def test_the_vocabulary_is_met_at_the_sentences_own_tokens(self, encoder):
        loss = build(encoder.train())
        recorder, decoded = Recorder(loss.head), Recorder(loss.decoder)
        sentences = [*SENTENCES, ""]
        loss(batch(encoder, sentences))
        lengths = [len(encoder.tokenizer(sentence, add_special_tokens=False)["input_ids"]) for sentence in sentences]
        (((hidden,), _),) = recorder.calls
        assert len(hidden) == sum(lengths)
        (_, output) = decoded.calls[0]
        assert output.shape[1] == max(lengths)

    @pytest.mark.parametrize("side", ["left", "right"])
    def test_padding_side(self, tiny_encoder, side):
        """Of an encoder that does not mind: one with relative positions."""
        encoder = tiny_encoder("modernbert")
        loss = build(encoder)
        encoder.eval()
        expected = loss(batch(encoder))["denoising"]
        encoder.tokenizer.padding_side = side
        assert torch.allclose(loss(batch(encoder))["denoising"], expected, rtol=1e-4)


class TestGradients:
    def test_the_encoder_learns_through_the_vector_only(self, encoder):
        """And its word embeddings as the head's output weights; what the decoder reads is detached."""
        loss = build(encoder, contrastive_weight=0).train()
        features = batch(encoder)[0]
        vectors = encoder(dict(features))["sentence_embedding"]
        loss.compute_loss_from_passes(given(vectors.detach()), [features])["denoising"].backward()
        reached = {name for name, parameter in encoder.named_parameters() if parameter.grad is not None}
        assert [name.rsplit(".", 2)[-2] for name in reached] == ["word_embeddings"]
        loss.compute_loss_from_passes(given(vectors), [features])["denoising"].backward()
        reached = {name for name, parameter in encoder.named_parameters() if parameter.grad is not None}
        trained = {name for name, p in encoder.named_parameters() if p.requires_grad and "pooler" not in name}
        assert reached == trained

    def test_everything_that_the_loss_owns_learns(self, encoder):
        loss = build(encoder).train()
        sum(loss(batch(encoder, SENTENCES, PARAPHRASES)).values()).backward()
        for module in (loss.decoder, loss.projector, loss.head):
            assert all(parameter.grad.abs().sum() > 0 for parameter in module.parameters())

    @pytest.mark.parametrize("architecture", ARCHITECTURES)
    @pytest.mark.parametrize("template", [True, False])
    def test_every_architecture_learns(self, tiny_encoder, architecture, template):
        model = tiny_encoder(architecture).train()
        loss = build(apply_mask_template(model) if template else model)
        values = losses_of_updates(loss, batch(model, SENTENCES, PARAPHRASES), learning_rate=4e-3, count=6)
        assert all(map(math.isfinite, values))
        assert sum(values[-2:]) < 0.95 * sum(values[:2])

    def test_a_sentence_vector_of_another_width(self, encoder):
        model = SentenceTransformer(modules=[*encoder, Dense(32, 12)], device="cpu")
        loss = build(model).train()
        sum(loss(batch(model)).values()).backward()
        assert loss.decoder.read_memory.weight.grad.abs().sum() > 0


class TestTable3:
    """The paper's ablations are keywords, columns and the encoder's pooling."""

    @pytest.mark.parametrize("pooling", ["mask", "cls"])
    @pytest.mark.parametrize("columns", [(SENTENCES,), (SENTENCES, PARAPHRASES)], ids=["without discrete noise", "pairs"])
    @pytest.mark.parametrize(
        ("keywords", "terms"),
        [
            ({}, ["contrastive", "denoising"]),
            ({"denoising_weight": 0}, ["contrastive"]),
            ({"contrastive_weight": 0}, ["denoising"]),
        ],
        ids=str,
    )
    def test_each_runs(self, tiny_encoder, pooling, columns, keywords, terms):
        model = tiny_encoder().train()
        loss = build(apply_mask_template(model) if pooling == "mask" else model, **keywords)
        values = loss(batch(model, *columns))
        assert sorted(values) == terms
        sum(values.values()).backward()
        assert all(torch.isfinite(p.grad).all() for p in loss.parameters() if p.grad is not None)
        assert model.transformers_model.get_input_embeddings().weight.grad.abs().sum() > 0
        assert ("token_accuracy" in loss.diagnostics) == ("denoising" in terms)


@pytest.mark.slow
class TestOverfit:
    def test_the_vector_helps_the_decoder(self, tiny_encoder):
        """Noise of 90 %: with the sentence's own vector three times as many tokens come back as with another's."""
        no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        model = apply_mask_template(tiny_encoder(hidden_size=64, intermediate_size=128, **no_dropout))
        torch.manual_seed(0)
        for parameter in model.transformers_model.parameters():
            if parameter.ndim > 1:
                torch.nn.init.normal_(parameter, std=0.05)
        small = {"decoder_layers": 1, "decoder_feedforward": 128, "decoder_dropout": 0.0}
        loss = build(model, contrastive_weight=0, noise_dropout=0.9, **small)
        for parameter in (*loss.decoder.parameters(), *loss.projector.parameters()):
            if parameter.ndim > 1:  # at this width the official start, .02, would take hundreds of updates more
                torch.nn.init.xavier_uniform_(parameter)
        optimizer = torch.optim.AdamW(loss.parameters(), lr=5e-3, fused=True)
        sentences = project_text()[:16]
        columns = batch(model, sentences, sentences)
        model.train()
        for _ in range(60):
            optimizer.zero_grad()
            loss(columns)["denoising"].backward()
            optimizer.step()
        shares = []
        for vectors in (sentences, sentences[1:] + sentences[:1]):
            loss([columns[0], *batch(model, vectors)])
            shares.append(loss.diagnostics["token_accuracy"].item())
        assert shares[0] > 0.1
        assert shares[0] > 3 * shares[1]


class TestHostileInput:
    @pytest.mark.parametrize("sentences", [["", " "], ["", "A dog runs."], ["word " * 300, "a"], ["😀", "[MASK] [X] <mask>"]])
    def test_odd_texts(self, encoder, sentences):
        loss = build(encoder).train()
        terms = loss(batch(encoder, sentences))
        sum(terms.values()).backward()
        assert all(torch.isfinite(value) for value in terms.values())
        assert all(torch.isfinite(p.grad).all() for p in loss.parameters() if p.grad is not None)
        assert loss.decoder.layers[0].norm1.weight.grad is not None  # every rank has a gradient to average

    def test_nothing_to_restore(self, encoder):
        loss = build(encoder).train()
        assert loss(batch(encoder, ["", " "]))["denoising"] == 0

    def test_a_batch_of_one(self, encoder):
        loss = build(encoder).train()
        with pytest.raises(ValueError, match="DenoSentLoss takes the other sentences .* got a batch of 1"):
            loss(batch(encoder, SENTENCES[:1]))
        loss(batch(encoder))
        terms = loss(batch(encoder, SENTENCES[:1]))
        assert terms["contrastive"] == 0
        assert terms["denoising"] > 0
        assert build(encoder, contrastive_weight=0).train()(batch(encoder, SENTENCES[:1]))["denoising"] > 0

    def test_columns(self, encoder):
        with pytest.raises(ValueError, match="reads one or two text columns .*, got 3"):
            build(encoder)(batch(encoder, SENTENCES, SENTENCES, SENTENCES))

    def test_one_column_without_dropout(self, tiny_encoder):
        model = tiny_encoder(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        loss = build(model)
        with pytest.raises(ValueError, match="DenoSentLoss with one column makes its positive pairs by dropout"):
            loss(batch(model))
        loss(batch(model, SENTENCES, PARAPHRASES))
        build(model, contrastive_weight=0)(batch(model))

    @pytest.mark.parametrize(
        ("keywords", "message"),
        [
            ({"temperature": 0.0}, "temperature must be a finite number above 0, got 0.0"),
            ({"denoising_weight": math.nan}, "must be finite numbers of at least 0, and one above, got 1.0 and nan"),
            ({"contrastive_weight": -1.0}, "must be finite numbers of at least 0, and one above, got -1.0 and 1.0"),
            (
                {"contrastive_weight": 0, "denoising_weight": 0},
                "of at least 0, and one above, got 0 and 0",
            ),
            ({"reconstruct": "positive"}, "reconstruct must be 'anchor' or 'paraphrase', got 'positive'"),
            ({"decoder_layers": -1}, "decoder_layers must be at least 0, got -1. 0 tells words; the paper uses 16"),
            ({"balance": 0.0}, "balance must be a finite number above 0, got 0.0"),
            ({"token_weights": 2.0}, r"token_weights must be a share of running text in \(0, 1\], got 2.0"),
            ({"token_weights": 1e-6}, "pass frequencies=data.TokenFrequencies.from_corpus"),
            ({"noise_dropout": 1.0}, r"noise_dropout must be in \[0, 1\), got 1.0. The paper uses 0.825"),
        ],
    )
    def test_bad_values(self, encoder, keywords, message):
        with pytest.raises(ValueError, match=message):
            build(encoder, **keywords)


class TestInTraining:
    @pytest.mark.parametrize("build", [build, losses.ConSERTLoss, losses.PTBERTLoss])
    def test_a_reloaded_template_is_frozen(self, encoder, tmp_path, build):
        encoder.save_pretrained(str(tmp_path))
        model = SentenceTransformer(str(tmp_path), device="cpu")
        build(model)
        assert not model[1].emb_layer.weight.requires_grad

    def test_gathering_in_one_process_changes_nothing(self, encoder):
        encoder.eval()
        values = [build(encoder, gather_across_devices=gather)(batch(encoder))["contrastive"] for gather in (False, True)]
        assert torch.equal(*values)

    def test_an_encoder_in_bfloat16(self, encoder):
        loss = build(encoder.bfloat16()).train()
        terms = loss(batch(encoder))
        assert {value.dtype for value in terms.values()} == {torch.float32}
        sum(terms.values()).backward()

    def test_config_holds_every_keyword(self, encoder):
        signature = {
            name: parameter.default
            for name, parameter in inspect.signature(losses.DenoSentLoss).parameters.items()
            if name != "model"
        }
        changed = SMALL | {"reconstruct": "paraphrase", "temperature": 0.05, "projector": False}
        assert losses.DenoSentLoss(encoder, **changed).get_config_dict() == signature | changed

    def test_the_papers_keywords(self):
        defaults = {name: p.default for name, p in inspect.signature(losses.DenoSentLoss).parameters.items()}
        paper = defaults | recipes.DENOSENT.paper_keywords
        assert (paper["noise_dropout"], paper["decoder_layers"], paper["decoder_heads"]) == (0.825, 16, 1)
        assert (paper["temperature"], paper["contrastive_weight"], paper["denoising_weight"]) == (0.03, 1.0, 1.0)
        assert (paper["reconstruct"], paper["token_weights"], paper["balance"]) == ("anchor", None, None)


class TestWords:
    """The default: no layers, words weighed by rarity, a bound on the second gradient."""

    @pytest.fixture
    def words(self, tiny_encoder):
        def build(**keywords):
            model = tiny_encoder(pooling="mean")
            frequencies = project_counts(model.tokenizer)
            torch.manual_seed(0)
            return losses.DenoSentLoss(model, **({"frequencies": frequencies, "mlm_head": "fresh"} | keywords))

        return build

    @pytest.mark.parametrize("reconstruct", ["anchor", "paraphrase"])
    def test_value(self, words, reconstruct):
        loss = words(reconstruct=reconstruct, token_weights=1e-3)
        model = loss.model.eval()
        terms = loss(batch(model, SENTENCES, PARAPHRASES))
        restored, read = (SENTENCES, PARAPHRASES) if reconstruct == "anchor" else (PARAPHRASES, SENTENCES)
        texts = [model.tokenizer(text, add_special_tokens=False)["input_ids"] for text in restored]
        table = model.transformers_model.get_input_embeddings().weight.detach()
        logits = torch.from_numpy(model.encode(read)) @ table.T  # the map starts as the identity, the head is not pretrained
        shares = project_counts(model.tokenizer).probabilities()
        weights = [reference.token_weight(share, 1e-3) for share in shares]
        expected = reference.bag_of_words_loss(texts, logits.double().tolist(), weights)
        assert terms["denoising"].item() == pytest.approx(expected, rel=1e-4)
        assert terms["contrastive"].item() == pytest.approx(
            functional.info_nce(
                *(torch.from_numpy(model.encode(column)) for column in (SENTENCES, PARAPHRASES)), temperature=0.1
            ).item(),
            rel=1e-5,
        )

    def test_keywords_that_only_layers_read_are_named(self, words, tiny_encoder, caplog):
        words(balance=0.1)
        assert not caplog.records
        words(noise_dropout=0.5, decoder_heads=2)
        (said,) = caplog.messages
        assert said.startswith(
            "decoder_heads=2 and noise_dropout=0.5 of DenoSentLoss would be read by a decoder with layers only"
        )
        caplog.clear()
        losses.official.DenoSentLoss(tiny_encoder(), decoder_layers=0, mlm_head="fresh")  # with defaults of its own
        words(noise_dropout=0.5, decoder_layers=1)
        assert "would be read" not in caplog.text

    @pytest.mark.parametrize("balance", [0.01, 1.0])
    def test_the_denoising_gradient_is_bounded_at_the_vectors(self, words, balance):
        loss = words(balance=balance)
        model = loss.model.eval()  # no dropout, so that the same vectors come twice

        def gradient(*terms):
            """At the encoder's weights, of the sum of some terms."""
            values = loss(batch(model, SENTENCES, PARAPHRASES))
            model.zero_grad()
            sum(values[term] for term in terms).backward(retain_graph=True)
            return torch.cat([p.grad.flatten() for n, p in model.named_parameters() if p.grad is not None and "layer" in n])

        both = gradient("contrastive", "denoising")
        factor = loss.diagnostics["balance_factor"].item()
        assert 0 < factor <= 1
        assert factor < 1 or balance == 1
        loss.balance = None
        expected = gradient("contrastive") + factor * gradient("denoising")
        assert (both - expected).abs().max() < 1e-4 * expected.abs().max()

    def test_what_the_loss_owns_learns_at_full_speed(self, words):
        gradients = []
        for balance in (1e-3, None):
            loss = words(balance=balance)
            loss.model.eval()
            sum(loss(batch(loss.model, SENTENCES, PARAPHRASES)).values()).backward()
            gradients.append(loss.decoder.map.weight.grad)
        assert torch.allclose(*gradients, rtol=1e-4)

    def test_diagnostics(self, words):
        loss = words().train()
        loss(batch(loss.model))
        assert loss.diagnostics.keys() == {
            "token_accuracy", "information", "balance_factor", "balance_share", "balance_cosine"
        }  # fmt: skip
        assert not any(value.requires_grad for value in loss.diagnostics.values())

    def test_an_evaluation_needs_no_gradient(self, words):
        loss = words()
        loss.model.eval()
        with torch.no_grad():
            terms = loss(batch(loss.model))
        assert all(torch.isfinite(value) for value in terms.values())
        assert "balance_factor" not in loss.diagnostics

    @pytest.mark.parametrize("sentences", [["", " "], ["", "A dog runs."], ["word " * 300, "a"]])
    def test_odd_texts(self, words, sentences):
        loss = words().train()
        sum(loss(batch(loss.model, sentences)).values()).backward()
        assert all(torch.isfinite(p.grad).all() for p in loss.parameters() if p.grad is not None)


def test_a_decoder_with_layers_is_probed_without_a_trace(encoder, monkeypatch):
    """The draws of a training that asks for information each time are those of one that never does."""
    values = []
    for every in (1, 10**9):
        monkeypatch.setattr("sbert_plugins.modules.decoding.EVERY", every)
        loss = build(encoder).train()
        torch.manual_seed(1)
        values.append([loss(batch(encoder))["denoising"].item() for _ in range(3)])
        assert ("information" in loss.diagnostics) == (every == 1)
    assert values[0] == values[1]


@pytest.mark.parametrize("reconstruct", ["anchor", "paraphrase"])
def test_the_bound_is_set_by_the_gradient_at_both_vectors(tiny_encoder, reconstruct):
    model = tiny_encoder(pooling="mean")
    loss = losses.DenoSentLoss(model, frequencies=project_counts(model.tokenizer), balance=0.01, reconstruct=reconstruct)
    columns = [model.preprocess(side) for side in (SENTENCES, SENTENCES[1:] + SENTENCES[:1])]
    vectors = [torch.randn(len(SENTENCES), 32).requires_grad_() for _ in columns]
    loss.compute_loss_from_passes(given(*vectors), columns)
    factor, loss.balance = loss.diagnostics["balance_factor"].item(), None
    terms = loss.compute_loss_from_passes(given(*vectors), columns)
    norms = {}
    for name, term in terms.items():
        found = torch.autograd.grad(term, vectors, retain_graph=True, allow_unused=True)
        norms[name] = torch.cat([gradient for gradient in found if gradient is not None]).norm().item()
    assert factor == pytest.approx(0.01 * norms["contrastive"] / norms["denoising"], rel=1e-4)


def test_the_bound_is_by_the_weighted_term(tiny_encoder):
    model = tiny_encoder(pooling="mean")
    counts, factors = project_counts(model.tokenizer), []
    columns = [model.preprocess(side) for side in (SENTENCES, SENTENCES[1:] + SENTENCES[:1])]
    vectors = [torch.randn(len(SENTENCES), 32).requires_grad_() for _ in columns]
    for weight in (1.0, 3.0):
        loss = losses.DenoSentLoss(model, frequencies=counts, balance=0.01, contrastive_weight=weight)
        loss.compute_loss_from_passes(given(*vectors), columns)
        factors.append(loss.diagnostics["balance_factor"].item())
    assert factors[1] == pytest.approx(3 * factors[0], rel=1e-4)
