import copy
import itertools

import pytest
import torch
from recipe_inputs import anchors, train
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast

from sbert_plugins import recipes


@pytest.fixture
def plain(tiny_encoder, tmp_path):
    """A transformer without a pooling."""
    tiny_encoder()[0].save(str(tmp_path / "plain"))
    return str(tmp_path / "plain")


@pytest.fixture
def decoder(tokenizers, tmp_path):
    """A causal language model without a pooling."""
    tokenizer = tokenizers["bpe"]
    size = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 64,
        "head_dim": 8,
        "initializer_range": 0.2,
    }
    torch.manual_seed(0)
    AutoModel.from_config(AutoConfig.for_model("qwen3", vocab_size=len(tokenizer), **size)).save_pretrained(
        tmp_path
    )
    tokenizer.save_pretrained(tmp_path)
    return str(tmp_path)


@pytest.mark.parametrize("pooling", ["cls", "mean", "lasttoken", "mask"])
def test_a_plain_transformer_is_pooled(plain, pooling):
    model = recipes.build_encoder(plain, pooling=pooling, max_seq_length=12)
    assert recipes.pooling_of(model) == pooling
    assert model.max_seq_length == 12
    assert next(model.parameters()).dtype == torch.float32
    assert recipes.pooling_of(recipes.build_encoder(plain, default_pooling=pooling)) == pooling


def test_a_model_keeps_its_pooling(tiny_encoder, tmp_path):
    tiny_encoder(pooling="mean").save_pretrained(str(tmp_path))
    assert recipes.pooling_of(recipes.build_encoder(str(tmp_path), default_pooling="cls")) == "mean"
    with pytest.raises(ValueError, match="mean pooling of its own"):
        recipes.build_encoder(str(tmp_path), pooling="cls")


def test_a_folder_without_a_model(tmp_path):
    (tmp_path / "model").mkdir()
    with pytest.raises(FileNotFoundError, match="model of this training"):
        recipes.build_encoder(str(tmp_path))


class TestDecoders:
    def test_the_last_token_is_the_default(self, decoder):
        model = recipes.build_encoder(decoder, default_pooling="cls")
        assert recipes.pooling_of(model) == "lasttoken"
        first, second = model.encode(["a dog runs", "a dog sleeps"])
        assert abs(first - second).max() > 1e-3

    def test_the_first_token_raises(self, decoder, tmp_path):
        with pytest.raises(ValueError, match="decoder"):
            recipes.build_encoder(decoder, pooling="cls")
        model = SentenceTransformer(modules=[Transformer(decoder), Pooling(32, "cls")], device="cpu")
        with pytest.raises(ValueError, match="decoder"):
            train("simcse", model, tmp_path / "run", sentences=anchors(8))
        assert not (tmp_path / "run").exists()


class TestVocabularies:
    """Without any of the letters that a test could write: 3-mers of DNA."""

    @pytest.fixture(params=["bert", "gpt2"])
    def folder(self, request, tmp_path):
        words = ["<pad>", "<unk>", *map("".join, itertools.product("ACGT", repeat=3))]
        vocabulary = models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>")
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=Tokenizer(vocabulary), pad_token="<pad>", unk_token="<unk>", padding_side="left"
        )
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
        if request.param == "gpt2":
            size = {"n_embd": 32, "n_layer": 2, "n_head": 4}
        torch.manual_seed(0)
        config = AutoConfig.for_model(request.param, vocab_size=66, initializer_range=0.2, **size)
        AutoModel.from_config(config).save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
        return request.param, str(tmp_path)

    def test_the_architecture_decides_about_the_pooling(self, folder):
        name, path = folder
        model = recipes.build_encoder(path, default_pooling="cls")
        assert recipes.pooling_of(model) == ("cls" if name == "bert" else "lasttoken")

    def test_a_vector_does_not_depend_on_the_batch(self, folder):
        # Padding on the left would move the absolute positions of a short text.
        model = recipes.build_encoder(folder[1])
        alone = model.encode(["ACG TTT"])[0]
        assert model.encode(["ACG TTT", "GGA " * 9])[0] == pytest.approx(alone, abs=1e-5)


@pytest.mark.parametrize(
    ("name", "limit"), [("roberta", 158), ("mpnet", 158), ("bert", 160), ("modernbert", None)]
)
def test_the_limit_is_that_of_the_positions(name, limit, tiny_encoder, tmp_path):
    # RoBERTa has two fewer positions than rows. Its tokenizer may state no limit.
    model = tiny_encoder(name)
    model.tokenizer.model_max_length = 10**30
    model[0].model.save_pretrained(tmp_path)
    model.tokenizer.save_pretrained(tmp_path)
    built = recipes.build_encoder(str(tmp_path))
    assert torch.isfinite(built.encode(["word " * 500], convert_to_tensor=True)).all()
    assert limit is None or built.max_seq_length == limit
    assert recipes.build_encoder(str(tmp_path), max_seq_length=12).max_seq_length == 12


@pytest.mark.parametrize("share", [0.25, 1.0])
def test_weights_are_averaged_in_place(tiny_encoder, share):
    start, model = tiny_encoder(), tiny_encoder()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 1
    trained = copy.deepcopy(model)
    recipes.average_with_start(model, start, share)
    for mine, first, last in zip(model.parameters(), start.parameters(), trained.parameters(), strict=True):
        torch.testing.assert_close(mine, share * first + (1 - share) * last)
    buffers = zip(model.buffers(), trained.buffers(), strict=True)
    assert all(torch.equal(mine, theirs) for mine, theirs in buffers)


def test_the_offline_encoder(minilm):
    assert recipes.embeds_already(minilm)
    assert recipes.pooling_of(minilm) == "mean"
    assert [type(module).__name__ for module in minilm] == [
        "Transformer",
        "Pooling",
        "Normalize",
    ]  # as on the Hub
    cut = recipes.offline_encoder(num_layers=2, max_seq_length=16, device="cpu")
    assert cut.max_seq_length == 16
    assert len(cut[0].model.encoder.layer) == cut[0].model.config.num_hidden_layers == 2
    assert len(recipes.offline_encoder(num_layers=7)[0].model.encoder.layer) == 6


def test_graded_pairs():
    pairs = recipes.graded_pairs()
    assert len(pairs.scores) == 360
    assert sorted({*pairs.scores}) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(("pooling", "layers"), [("first-last", (1, 3)), ("last-two", (2, 3))])
@pytest.mark.parametrize("architecture", ["bert", "modernbert"])
def test_two_layers_are_averaged(tiny_encoder, tmp_path, pooling, layers, architecture):
    # Table 9 of PaSeR. The average is exact after a training, and after the model is saved and loaded.
    tiny_encoder(architecture, num_hidden_layers=3)[0].save(str(tmp_path / "plain"))
    model = recipes.build_encoder(str(tmp_path / "plain"), pooling=pooling)
    assert recipes.pooling_of(model) == pooling
    train("arccse", model, tmp_path / "run", sentences=anchors(16))
    again = recipes.build_encoder(str(tmp_path / "run" / "model"))
    assert recipes.pooling_of(again) == pooling
    assert not again[1].layer_weights.requires_grad
    texts = anchors(4)["anchor"][:]
    features = model.tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden = model.eval()[0].model(**features, output_hidden_states=True).hidden_states
    mask = features["attention_mask"].unsqueeze(2)
    expected = ((hidden[layers[0]] + hidden[layers[1]]) / 2 * mask).sum(dim=1) / mask.sum(dim=1)
    for one in (model, again):
        torch.testing.assert_close(torch.tensor(one.encode(texts)), expected, rtol=1e-5, atol=1e-5)
