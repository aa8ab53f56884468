import pytest
import reference
import torch
from encoders import ARCHITECTURES, SENTENCES, given
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from tools import Recorder, batch, gradients, linear, numpy, restored_loss, weights_of, words_of
from transformers import BertConfig, BertModel, BertTokenizer

from sbert_plugins import data, losses
from sbert_plugins.encoder import apply_mask_template

pytestmark = pytest.mark.filterwarnings("ignore:.*owns weights")
SMALL = {"decoder_feedforward": 48}
PARAPHRASES = SENTENCES[1:] + SENTENCES[:1]


@pytest.fixture
def encoder(tiny_encoder):
    return apply_mask_template(tiny_encoder()).train()


def build(model, **keywords):
    torch.manual_seed(0)
    return losses.DenoSentLoss(model, **(SMALL | keywords))


class TestValue:
    @pytest.mark.parametrize("architecture", ["bert", "electra", "modernbert"])
    @pytest.mark.parametrize("is_default", [True, False])
    def test_is_that_of_the_reference(self, tiny_encoder, architecture, is_default):
        """From the sentence vectors on: projector, contrast, decoder, mean over the sentences' own tokens."""
        model = apply_mask_template(tiny_encoder(architecture)).eval()
        others = {"reconstruct": "paraphrase", "contrastive_weight": 5.0, "denoising_weight": 7.0}
        loss = losses.DenoSentLoss(model, **({} if is_default else SMALL | others)).double()
        for parameter in loss.decoder.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        terms = loss(batch(model, SENTENCES, PARAPHRASES))
        own, weights = weights_of(loss), weights_of(loss.decoder)
        anchors, positives = (
            linear(own, "projector", model.encode(column)) for column in (SENTENCES, PARAPHRASES)
        )
        expected = (1 if is_default else 5) * reference.info_nce(anchors, positives, temperature=0.03)
        assert terms["contrastive"].item() == pytest.approx(expected, rel=1e-6)
        restored, memories = (SENTENCES, positives) if is_default else (PARAPHRASES, anchors)
        ids, embedded = words_of(model, restored), []
        for row, sentence in zip(ids, restored, strict=True):
            read = model.transformers_model.embeddings(batch(model, [sentence])[0]["input_ids"])
            read = numpy(read)[0, 1 : len(row) + 1]  # without [CLS], the template and [SEP]
            if architecture == "modernbert":
                read = read + weights["positions.weight"][: len(row)]
            embedded.append(linear(weights, "widen", read) if architecture == "electra" else read)
        expected = (1 if is_default else 7) * restored_loss(loss, ids, embedded, memories)
        assert terms["denoising"].item() == pytest.approx(expected, rel=1e-6)

    def test_without_decoder_and_projector_it_is_simcse(self, encoder):
        loss = build(encoder.eval(), denoising_weight=0, projector=False)
        expected = MultipleNegativesRankingLoss(encoder, scale=1 / 0.03)(
            batch(encoder, SENTENCES, PARAPHRASES), None
        )
        terms = loss(batch(encoder, SENTENCES, PARAPHRASES))
        torch.testing.assert_close(dict(terms), {"contrastive": expected})
        assert {name.split(".")[0] for name, _ in loss.named_parameters()} == {"model"}


class TestNoise:
    def test_is_drawn_anew_in_training_and_off_in_evaluation(self, encoder):
        loss, read = build(encoder, contrastive_weight=0, decoder_dropout=0.0), torch.ones(200, 32)
        for mode in (True, False):
            encoder.train(mode)
            first, second = (loss(batch(encoder, SENTENCES))["denoising"] for _ in range(2))
            assert torch.equal(first, second) != mode
            share = (loss.decoder.noise(read) == 0).float().mean().item()
            assert share == pytest.approx(0.825 * mode, abs=0.02)

    @pytest.mark.parametrize("architecture", ARCHITECTURES)
    def test_embeddings_without_positions_get_learned_ones(self, tiny_encoder, architecture):
        """Otherwise the decoder would not know the order of the words."""
        decoder = build(tiny_encoder(architecture)).decoder
        assert (decoder.positions is None) == (architecture != "modernbert")


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
        left_out = {name.removesuffix("_weight") for name in keywords}
        assert set(terms) == {"contrastive", "denoising"} - left_out
        assert hasattr(loss, "decoder") == ("denoising" in terms)


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


class TestTheSumInTheDocstring:
    """SimCSE and a bag of words, which the default of this class computed once: the same numbers."""

    TEXTS = ("the old man counts the boats", "it rains on the old boats", "a dog sleeps", "the man sleeps")

    def model(self, folder):
        words = sorted({word for text in self.TEXTS for word in text.split()})
        vocabulary = {
            word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words])
        }
        BertTokenizer(vocab=vocabulary).save_pretrained(folder)
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


@pytest.mark.parametrize("layers", [12, 14, 16])
def test_the_numbers_of_layers_of_the_paper(encoder, layers):
    keywords = {} if layers == 16 else {"decoder_layers": layers}
    loss = losses.DenoSentLoss(encoder, decoder_feedforward=48, **keywords)
    assert len(loss.decoder.layers) == loss.get_config_dict()["decoder_layers"] == layers
