import copy
import math

import numpy as np
import pytest
import reference
import torch
from encoders import ARCHITECTURES, SENTENCES
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling

from sbert_plugins import losses, modules


def weighted(model, power=1.0):
    return modules.apply_token_weights(model, modules.count_idf(model, SENTENCES) ** power)


def test_counts_are_numbers_of_documents(tiny_encoder):
    model = tiny_encoder(pooling="mean")
    found = modules.count_idf(model, ["a dog a dog", "a cat", "it"]).tolist()
    ids = {word: model.tokenizer(word, add_special_tokens=False)["input_ids"] for word in ("a", "it", "of")}
    assert all(len(pieces) == 1 for pieces in ids.values())
    for word, count in (("a", 2), ("it", 1), ("of", 0)):
        assert found[ids[word][0]] == pytest.approx(math.log(1 + (3.5 - count) / (count + 0.5)))
    edges = model.tokenizer.bos_token_id, model.tokenizer.eos_token_id
    assert [found[edge] for edge in edges] == [pytest.approx(math.log(8 / 7))] * 2
    model.prompts = {"query": "of"}  # a piece of every text that is read with its prompt
    assert modules.count_idf(model, ["a dog"] * 3)[ids["of"][0]] == pytest.approx(math.log(8 / 7))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_vector_is_the_weighted_mean(tiny_encoder, architecture):
    model = tiny_encoder(architecture, "mean")
    idf = modules.count_idf(model, SENTENCES) ** 0.5
    texts = [*SENTENCES, ""]
    features = model.preprocess(texts)
    with torch.no_grad():
        tokens = model[0].eval()(dict(features))["token_embeddings"].numpy()
    expected = [
        reference.weighted_mean(rows[attended], idf[ids].numpy()[attended])
        for rows, ids, attended in zip(
            tokens, features["input_ids"], features["attention_mask"].bool().numpy(), strict=True
        )
    ]
    assert modules.apply_token_weights(model, idf) is model
    np.testing.assert_allclose(model.encode(texts), np.stack(expected), atol=1e-5)


def test_modules_behind_the_pooling_stay(tiny_encoder):
    model = SentenceTransformer(
        modules=[*tiny_encoder(pooling="mean"), Dense(32, 12), Normalize()], device="cpu"
    )
    kinds = [type(part).__name__ for part in weighted(model)]
    assert kinds == ["Transformer", "WordWeights", "Pooling", "Dense", "Normalize"]
    assert np.linalg.norm(model.encode(SENTENCES), axis=1) == pytest.approx(1)
    assert len(repr(model)) < 2_000  # without the vocabulary


def test_other_models_are_refused(tiny_encoder):
    idf = modules.count_idf(tiny_encoder(pooling="mean"), SENTENCES)
    several, without_prompt = tiny_encoder(), tiny_encoder()
    several[1] = Pooling(32, ("mean", "cls"))
    without_prompt[1] = Pooling(32, "mean", include_prompt=False)
    alone = SentenceTransformer(modules=[tiny_encoder()[0], Dense(32, 12)], device="cpu")
    for model, word in (
        (tiny_encoder(), "cls"),
        (several, "mean"),
        (without_prompt, "include_prompt"),
        (modules.apply_mask_template(tiny_encoder()), "Transformer, WordWeights"),
        (weighted(tiny_encoder(pooling="mean")), "Transformer, WordWeights"),
        (alone, "Dense"),
    ):
        with pytest.raises(ValueError, match=word):
            modules.apply_token_weights(model, idf)
        with pytest.raises(ValueError, match=word):
            modules.count_idf(model, SENTENCES)
    with pytest.raises(ValueError, match="no documents"):
        modules.count_idf(tiny_encoder(pooling="mean"), [])


def test_weights_are_no_mask_template_and_not_trained(tiny_encoder, tmp_path):
    weighted(tiny_encoder(pooling="mean")).save_pretrained(str(tmp_path))
    model = SentenceTransformer(str(tmp_path), device="cpu")
    before = copy.deepcopy(model[1].emb_layer.weight)
    assert before.requires_grad and not modules.has_mask_template(model)
    loss = losses.ConSERTLoss(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sum(loss([model.train().preprocess(SENTENCES)]).values()).backward()
    optimizer.step()
    assert torch.equal(model[1].emb_layer.weight, before)
    assert model[0].model.get_input_embeddings().weight.grad.any()
