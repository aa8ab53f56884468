import pytest
import reference
import torch
from encoders import ARCHITECTURES, SENTENCES, given
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from tools import Recorder, batch, gradients, linear, numpy, restored_loss, weights_of, words_of

from sbert_plugins import losses
from sbert_plugins.encoder import apply_mask_template

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
        # From the sentence vectors on: projector, contrast, decoder, mean over the sentences' own tokens.
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
        # Otherwise the decoder would not know the order of the words.
        assert (build(tiny_encoder(architecture)).decoder.positions is None) == (architecture != "modernbert")


@pytest.mark.parametrize(
    ("keywords", "columns", "rows"),
    [
        ({}, [SENTENCES], 16),
        ({}, [SENTENCES, PARAPHRASES], 16),
        ({"contrastive_weight": 0}, [SENTENCES, PARAPHRASES], 8),
        ({"denoising_weight": 0}, [SENTENCES], 16),
    ],
)
def test_one_forward(encoder, keywords, columns, rows):
    # A weight of 0 leaves out its term and all that only this term needs.
    loss, recorder = build(encoder, **keywords), Recorder(encoder)
    terms = loss(batch(encoder, *columns))
    assert recorder.rows() == [rows]
    left_out = {name.removesuffix("_weight") for name in keywords}
    assert set(terms) == {"contrastive", "denoising"} - left_out
    assert hasattr(loss, "decoder") == ("denoising" in terms)


def test_the_encoder_learns_by_its_vector_only(encoder):
    # And its word embeddings as the head's output weights. The decoder's input is detached.
    loss, columns = build(encoder, contrastive_weight=0), batch(encoder, SENTENCES)
    vectors = encoder(dict(columns[0]))["sentence_embedding"]
    loss.compute(given(vectors.detach()), columns)["denoising"].backward()
    assert [name.rsplit(".", 2)[-2] for name in gradients(encoder)] == ["word_embeddings"]
    loss.compute(given(vectors), columns)["denoising"].backward()
    trained = {name for name, p in encoder.named_parameters() if p.requires_grad and "pooler" not in name}
    assert set(gradients(encoder)) == trained
