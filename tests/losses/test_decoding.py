import pytest
import torch

from sbert_plugins import losses
from sbert_plugins.losses.decoding import word_scorer
from sbert_plugins.modules import MLMHead, WordEmbeddings


class TestWordScorer:
    @pytest.mark.parametrize("mlm_head", ["embeddings", "fresh"])
    def test_nothing_random_is_read_without_layers(self, tiny_encoder, mlm_head, caplog):
        assert isinstance(word_scorer(tiny_encoder(), mlm_head, reads_vectors=True), WordEmbeddings)
        assert caplog.text == ""

    def test_a_decoder_with_layers_may_learn_a_new_head(self, tiny_encoder):
        assert isinstance(word_scorer(tiny_encoder(), "fresh", reads_vectors=False), MLMHead)

    @pytest.mark.parametrize("layers", [0, 2])
    def test_a_pretrained_head(self, minilm_mlm, layers):
        head = word_scorer(minilm_mlm, "pretrained", reads_vectors=not layers)
        assert isinstance(head, MLMHead)
        assert head.is_pretrained

    def test_where_there_is_none_words_stand_in_without_layers(self, tiny_encoder, caplog):
        assert isinstance(word_scorer(tiny_encoder(), "pretrained", reads_vectors=True), WordEmbeddings)
        assert "so words are scored by their own embeddings: " in caplog.text
        assert "holds none. mlm_head='embeddings' asks for that" in caplog.text

    def test_and_a_new_head_behind_layers(self, tiny_encoder, caplog):
        assert isinstance(word_scorer(tiny_encoder(), "pretrained", reads_vectors=False), MLMHead)
        assert "so a new one starts from random weights" in caplog.text

    def test_a_named_checkpoint_out_of_reach_is_an_error(self, tiny_encoder):
        with pytest.raises(OSError, match="huggingface.co"):
            word_scorer(tiny_encoder(), "nobody/nothing", reads_vectors=True)

    @pytest.mark.parametrize("mlm_head", [None, 3, True])
    def test_what_is_no_text(self, tiny_encoder, mlm_head):
        with pytest.raises(ValueError, match=f"mlm_head must be 'embeddings', .* got {mlm_head!r}: 'pretrained' is"):
            word_scorer(tiny_encoder(), mlm_head, reads_vectors=True)

    def test_embeddings_of_another_width_behind_layers(self, tiny_encoder):
        with pytest.raises(ValueError, match="scores vectors of width .*, and a decoder with layers gives .*: 'pretrained'"):
            word_scorer(tiny_encoder("electra"), "embeddings", reads_vectors=False)
        word_scorer(tiny_encoder("electra"), "embeddings", reads_vectors=True)


def test_layers_may_be_scored_by_embeddings(tiny_encoder):
    """Without a head of any kind."""
    model = tiny_encoder(pooling="mean").train()
    loss = losses.DenoSentLoss(model, decoder_layers=1, decoder_feedforward=48, token_weights=None)
    assert not any(isinstance(module, MLMHead) for module in loss.modules())
    terms = loss([model.preprocess(["She plays the organ.", "It is raining again today."])])
    sum(terms.values()).backward()
    assert all(torch.isfinite(value) for value in terms.values())
    assert model.transformers_model.get_input_embeddings().weight.grad.any()


def test_a_language_model_beside_words_has_a_head_of_its_own(tiny_encoder):
    """PaSeR's second term needs one, whatever scores the phrase."""
    model = tiny_encoder(pooling="mean").train()
    loss = losses.PaSeRLoss(model, mlm_weight=1.0, mlm_head="embeddings", token_weights=None)
    assert isinstance(loss.head, WordEmbeddings)
    mask = model.tokenizer.mask_token
    columns = ["She plays the organ.", "It is raining again."], [f"She plays the {mask}.", f"It is {mask} again."]
    terms = loss([model.preprocess(list(column)) for column in (*columns, ["organ", "raining"])])
    terms["mlm"].backward()
    assert any(parameter.grad is not None and parameter.grad.any() for parameter in loss.language_model.full.cls.parameters())
