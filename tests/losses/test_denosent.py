import pytest
import reference
import torch
from encoders import ARCHITECTURES, SENTENCES, given, project_text
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from tools import Recorder, batch, gradients, linear, numpy, weights_of
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from sbert_plugins import data, losses
from sbert_plugins.encoder import apply_mask_template, input_embeddings

pytestmark = pytest.mark.filterwarnings("ignore:.*owns weights")
SMALL = {"decoder_layers": 2, "decoder_feedforward": 48, "mlm_head": "fresh"}
PARAPHRASES = SENTENCES[1:] + SENTENCES[:1]


@pytest.fixture
def encoder(tiny_encoder):
    return apply_mask_template(tiny_encoder()).train()


def build(model, **keywords):
    torch.manual_seed(0)
    return losses.DenoSentLoss(model, **(SMALL | keywords))


class TestValue:
    @pytest.mark.parametrize("architecture", ["bert", "electra", "modernbert"])
    @pytest.mark.parametrize("reconstruct", ["anchor", "paraphrase"])
    def test_is_that_of_the_reference(self, tiny_encoder, architecture, reconstruct):
        """From the sentence vectors on: projector, contrast, decoder, mean over the sentences' own tokens."""
        model = apply_mask_template(tiny_encoder(architecture)).eval()
        loss = build(model, reconstruct=reconstruct, contrastive_weight=5.0, denoising_weight=7.0).double()
        for parameter in loss.decoder.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        terms = loss(batch(model, SENTENCES, PARAPHRASES))
        own, weights = weights_of(loss), weights_of(loss.decoder)
        anchors, positives = (
            linear(own, "projector", model.encode(column)) for column in (SENTENCES, PARAPHRASES)
        )
        expected = 5 * reference.info_nce(anchors, positives, temperature=0.03)
        assert terms["contrastive"].item() == pytest.approx(expected, rel=1e-6)
        restored, memory = (SENTENCES, positives) if reconstruct == "anchor" else (PARAPHRASES, anchors)
        logits, targets = [], []
        for sentence, vector in zip(restored, memory, strict=True):
            ids = model.tokenizer(sentence, add_special_tokens=False)["input_ids"]
            read = model.transformers_model.embeddings(batch(model, [sentence])[0]["input_ids"])
            read = numpy(read)[0, 1 : len(ids) + 1]  # without [CLS], the template and [SEP]
            if architecture == "modernbert":
                read = read + weights["positions.weight"][: len(ids)]
            if architecture == "electra":
                read = linear(weights, "widen", read)
            seen = {"num_layers": 2, "num_heads": 1, "attended": [True] * len(ids)}
            hidden = reference.denoising_decoder(read, vector, weights, **seen)
            logits += list(numpy(loss.head(torch.from_numpy(hidden))))
            targets += ids
        expected = 7 * reference.mean_negative_log_likelihood(logits, targets)
        assert terms["denoising"].item() == pytest.approx(expected, rel=1e-6)

    def test_without_decoder_and_projector_it_is_simcse(self, encoder):
        loss = build(encoder.eval(), denoising_weight=0, projector=False)
        expected = MultipleNegativesRankingLoss(encoder, scale=1 / 0.03)(
            batch(encoder, SENTENCES, PARAPHRASES), None
        )
        terms = loss(batch(encoder, SENTENCES, PARAPHRASES))
        torch.testing.assert_close(dict(terms), {"contrastive": expected})
        assert {name.split(".")[0] for name, _ in loss.named_parameters()} == {"model"}

    @pytest.mark.parametrize("side", ["left", "right"])
    def test_padding_side(self, tiny_encoder, side):
        encoder = tiny_encoder("modernbert").eval()  # relative positions
        loss = build(encoder)
        expected = loss(batch(encoder, SENTENCES))["denoising"]
        encoder.tokenizer.padding_side = side
        torch.testing.assert_close(loss(batch(encoder, SENTENCES))["denoising"], expected, rtol=1e-4, atol=0)


class TestNoise:
    def test_is_drawn_anew_in_training_and_off_in_evaluation(self, encoder):
        loss = build(encoder, contrastive_weight=0, decoder_dropout=0.0)
        loss.decoder.train()
        read = torch.randn(200, 32)
        assert (loss.decoder.noise(read) == 0).float().mean().item() == pytest.approx(0.825, abs=0.02)
        for mode in (True, False):
            encoder.train(mode)
            first, second = (loss(batch(encoder, SENTENCES))["denoising"] for _ in range(2))
            assert torch.equal(first, second) != mode

    def test_is_on_the_input_of_the_first_layer(self, encoder):
        """The embeddings without their own dropout."""
        encoder.transformers_model.config.output_hidden_states = True
        ids = batch(encoder, SENTENCES)[0]["input_ids"]
        read = input_embeddings(encoder, ids)
        assert torch.equal(read, encoder.transformers_model.eval()(input_ids=ids).hidden_states[0])

    @pytest.mark.parametrize("architecture", ARCHITECTURES)
    def test_word_order_counts(self, tiny_encoder, architecture):
        """A decoder without positions would return the rows of the reversed sentence, reversed."""
        model = tiny_encoder(architecture).eval()
        loss = build(model, contrastive_weight=0).eval()
        recorder, column = Recorder(loss.decoder), batch(model, SENTENCES[:1])[0]
        reversed_ids = column["input_ids"].clone()
        reversed_ids[:, 1:-1] = column["input_ids"][:, 1:-1].flip(1)
        for ids in (column["input_ids"], reversed_ids):
            loss.compute(given(torch.zeros(1, 32)), [{**column, "input_ids": ids}])
        forwards, backwards = recorder.outputs
        assert (forwards - backwards.flip(1)).abs().max() > 1e-3
        assert (loss.decoder.positions is None) == (architecture != "modernbert")


class TestPasses:
    @pytest.mark.parametrize(
        ("keywords", "columns", "rows"),
        [
            ({}, [SENTENCES], 16),
            ({}, [SENTENCES, PARAPHRASES], 16),
            ({"contrastive_weight": 0}, [SENTENCES, PARAPHRASES], 8),
            ({"denoising_weight": 0}, [SENTENCES], 16),
        ],
    )
    def test_one_forward(self, encoder, keywords, columns, rows):
        """A weight of 0 leaves out its term and all that only this term needs."""
        loss, recorder = build(encoder, **keywords), Recorder(encoder)
        terms = loss(batch(encoder, *columns))
        assert recorder.rows() == [rows]
        assert {f"{name}_weight" for name in terms} == {"contrastive_weight", "denoising_weight"} - set(
            keywords
        )
        assert hasattr(loss, "decoder") == ("denoising" in terms)

    @pytest.mark.parametrize("reconstruct", ["anchor", "paraphrase"])
    def test_without_contrast_only_the_other_column_is_encoded(self, encoder, reconstruct):
        loss = build(encoder, contrastive_weight=0, reconstruct=reconstruct)
        recorder, columns = Recorder(encoder), batch(encoder, SENTENCES, PARAPHRASES)
        loss(columns)
        other = columns[1 if reconstruct == "anchor" else 0]
        assert recorder.inputs[0][0]["input_ids"] is other["input_ids"]


class TestGradients:
    def test_the_encoder_learns_by_its_vector_only(self, encoder):
        """And its word embeddings as the head's output weights. The decoder's input is detached."""
        loss, columns = build(encoder, contrastive_weight=0), batch(encoder, SENTENCES)
        vectors = encoder(dict(columns[0]))["sentence_embedding"]
        loss.compute(given(vectors.detach()), columns)["denoising"].backward()
        assert [name.rsplit(".", 2)[-2] for name in gradients(encoder)] == ["word_embeddings"]
        loss.compute(given(vectors), columns)["denoising"].backward()
        trained = {name for name, p in encoder.named_parameters() if p.requires_grad and "pooler" not in name}
        assert set(gradients(encoder)) == trained

    def test_all_that_the_loss_owns_learns(self, encoder):
        loss = build(encoder)
        sum(loss(batch(encoder, SENTENCES, PARAPHRASES)).values()).backward()
        for module in (loss.decoder, loss.projector, loss.head):
            assert all(parameter.grad.any() for parameter in module.parameters())


@pytest.mark.slow
def test_the_vector_helps_the_decoder(tiny_encoder):
    """At noise of 90 % three times as many tokens are restored from the own vector as from another one."""
    sizes = {"hidden_size": 64, "intermediate_size": 128}
    model = tiny_encoder(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **sizes)
    model = apply_mask_template(model).train()
    torch.manual_seed(0)
    for parameter in model.transformers_model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.05)
    small = {"decoder_layers": 1, "decoder_feedforward": 128, "decoder_dropout": 0.0}
    loss = build(model, contrastive_weight=0, noise_dropout=0.9, **small)
    for parameter in (*loss.decoder.parameters(), *loss.projector.parameters()):
        if parameter.ndim > 1:  # at this width the official start would need hundreds of updates more
            torch.nn.init.xavier_uniform_(parameter)
    optimizer = torch.optim.AdamW(loss.parameters(), lr=5e-3, fused=True)
    sentences = project_text()[:16]
    for _ in range(60):
        optimizer.zero_grad()
        loss(batch(model, sentences, sentences))["denoising"].backward()
        optimizer.step()
    shares = []
    for other in (sentences, sentences[1:] + sentences[:1]):
        loss(batch(model, sentences, other))
        shares.append(loss.diagnostics["token_accuracy"].item())
    assert shares[0] > 0.1
    assert shares[0] > 3 * shares[1]


def test_a_probe_leaves_no_trace(encoder, monkeypatch):
    """A training that measures ``information`` in each batch draws what one without it draws."""
    values = []
    for share in (1, 10**9):
        monkeypatch.setattr("sbert_plugins.modules.decoding.PROBE_EVERY", share)
        loss = build(encoder)
        torch.manual_seed(1)
        values.append([loss(batch(encoder, SENTENCES))["denoising"].item() for _ in range(3)])
        assert ("information" in loss.diagnostics) == (share == 1)
    assert values[0] == values[1]


@pytest.mark.parametrize(
    ("keywords", "error"),
    [
        ({"denoising_weight": -1.0}, ValueError),
        ({"contrastive_weight": 0, "denoising_weight": 0}, ValueError),
        ({"reconstruct": "positive"}, ValueError),
        ({"decoder_heads": 5}, ValueError),
        ({"mlm_head": "embeddings"}, OSError),  # as any name of a checkpoint
        ({"token_weights": None}, TypeError),
    ],
)
def test_values_out_of_range(encoder, keywords, error):
    with pytest.raises(error):
        build(encoder, **keywords)


class TestTheSumInTheDocstring:
    """SimCSE and a bag of words, which the default of this class computed once: the same numbers."""

    TEXTS = ("the old man counts the boats", "it rains on the old boats", "a dog sleeps", "the man sleeps")

    def model(self, folder):
        words = sorted({word for text in self.TEXTS for word in text.split()})
        vocabulary = {
            word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words])
        }
        tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
        names = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
        special = {f"{name}_token": token for name, token in names.items()}
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)
        size = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
        bert = BertModel(BertConfig(vocab_size=len(vocabulary), max_position_embeddings=16, **size))
        for i, parameter in enumerate(bert.parameters()):
            if parameter.ndim > 1:
                numbers = torch.arange(parameter.numel(), dtype=torch.float64)
                parameter.data = torch.sin(7.0 * i + 1.3 * numbers).view(parameter.shape).float()
        bert.save_pretrained(folder)
        modules = [Transformer(str(folder)), Pooling(8, "mean")]
        return SentenceTransformer(modules=modules, device="cpu").eval()

    def test_the_numbers(self, tmp_path):
        model = self.model(tmp_path)
        counts = data.TokenFrequencies.from_corpus(self.TEXTS, model.tokenizer)
        simcse = MultipleNegativesRankingLoss(model, scale=10)
        words = losses.BagOfWordsLoss(model, frequencies=counts)
        members = {"simcse": (simcse, 1.0, [0, 0]), "words": (words, 1.0, [0])}
        loss = losses.WeightedSumLoss(model, members, balance=0.3)
        terms = loss(batch(model, self.TEXTS))
        sum(terms.values()).backward()
        norm = torch.cat([gradient.flatten() for gradient in gradients(model).values()]).norm()
        found = [*terms.values(), loss.diagnostics["balance_factor"], norm]
        # Contrastive loss, bag of words, factor, and norm of the gradient, as the class computed them.
        before = [0.3478929, 2.6705394, 0.3391208, 9.3619566]
        assert [number.item() for number in found] == pytest.approx(before, rel=1e-5)
