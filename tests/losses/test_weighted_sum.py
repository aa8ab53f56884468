import pytest
import torch
from encoders import SENTENCES
from sentence_transformers.sentence_transformer.losses import (
    CosineSimilarityLoss,
    MultipleNegativesRankingLoss,
)
from sentence_transformers.util import cos_sim
from tools import Recorder, batch, gradients

from sbert_plugins import data, losses

OTHERS = SENTENCES[::-1]


@pytest.fixture
def rows():
    """anchor, positive, negative, masked, phrase"""
    found = data.paser_columns(SENTENCES, mask_token="<mask>", synonyms=None, top_k=1)[:]
    return [found["anchor"], found["anchor"][::-1], found["phrase"], found["masked"], found["phrase"]]


def supervised(model, weight=0.25):
    """PaSeR's eq. 5."""
    torch.manual_seed(0)
    phrases = losses.PaSeRLoss(model, mlm_weight=0, mlm_head="fresh", decoder_layers=1, decoder_heads=4)
    members = {
        "contrastive": (MultipleNegativesRankingLoss(model), 1.0, [0, 1, 2]),
        "paser": (phrases, weight, [0, 3, 4]),
    }
    return losses.WeightedSumLoss(model, members)


def words(model):
    return losses.BagOfWordsLoss(model, token_weights=None)


def sum_of(model, balance=None, **members):
    """Return a sum of losses by name, each with its weight and columns."""
    return losses.WeightedSumLoss(model, members, balance=balance)


class TestTerms:
    def test_are_those_of_the_losses(self, encoder, rows):
        loss, columns = supervised(encoder.eval()), batch(encoder, *rows)
        terms = loss(columns)
        contrastive = loss.losses["contrastive"]([columns[i] for i in (0, 1, 2)], None)
        generative = loss.losses["paser"]([columns[i] for i in (0, 3, 4)])["generative"]
        expected = {"contrastive": contrastive, "paser/generative": 0.25 * generative}
        torch.testing.assert_close(dict(terms), expected)
        assert set(loss.diagnostics) == {"paser/scored_share", "paser/token_accuracy"}

    def test_simcse_is_that_of_a_loop_by_hand(self, encoder):
        # Loss and gradients, with the same dropout.
        loss = sum_of(encoder, simcse=(MultipleNegativesRankingLoss(encoder), 1.0, [0, 0]))
        (column,), labels = batch(encoder, SENTENCES), torch.arange(len(SENTENCES))
        torch.manual_seed(0)
        value = loss([column])["simcse"]
        value.backward()
        found = gradients(encoder)
        encoder.zero_grad()
        torch.manual_seed(0)
        twice = {key: torch.cat([x, x]) for key, x in column.items() if isinstance(x, torch.Tensor)}
        views = encoder(twice)["sentence_embedding"].chunk(2)
        expected = torch.nn.functional.cross_entropy(20.0 * cos_sim(*views), labels)
        expected.backward()
        torch.testing.assert_close(value, expected)
        torch.testing.assert_close(found, gradients(encoder), rtol=1e-3, atol=1e-6)

    def test_of_a_loss_that_is_in_it_twice(self, encoder):
        # Each has the diagnostics of its own column.
        bag, columns = words(encoder.eval()), batch(encoder, SENTENCES, OTHERS)
        both = sum_of(encoder, a=(bag, 1, [0]), b=(bag, 1, [1]))
        both(columns)
        for name, column in zip("ab", columns, strict=True):
            bag([column])
            assert both.diagnostics[f"{name}/information"].item() == pytest.approx(
                bag.diagnostics["information"].item(), rel=1e-4
            )

    def test_labels_reach_each_loss(self, encoder):
        columns, labels = batch(encoder.eval(), SENTENCES, OTHERS), torch.rand(len(SENTENCES))
        cosine = CosineSimilarityLoss(encoder)
        loss = sum_of(encoder, a=(cosine, 1), b=(cosine, 2))
        value = cosine([dict(column) for column in columns], labels)
        torch.testing.assert_close(dict(loss(columns, labels)), {"a": value, "b": 2 * value})


class TestSharedPasses:
    @pytest.mark.parametrize(
        ("names", "rows"),
        [
            ("simcse arccse", [16]),  # two dropout views serve both
            ("arccse simcse", [16]),
            ("simcse consert", [16, 16]),  # views are not shared
            ("consert words", [16]),  # words are read in any view
            ("words consert", [8, 16]),
            ("arccse words", [16]),
        ],
    )
    def test_sentences_per_pass(self, encoder, names, rows):
        members = {
            "simcse": (MultipleNegativesRankingLoss(encoder), 1, [0, 0]),
            "arccse": (losses.ArcCSELoss(encoder, triplet_weight=0), 1, [0]),
            "consert": (losses.ConSERTLoss(encoder), 1),
            "words": (words(encoder), 1, [0]),
        }
        loss, recorder = sum_of(encoder, **{name: members[name] for name in names.split()}), Recorder(encoder)
        loss(batch(encoder, SENTENCES))
        assert recorder.rows() == rows

    def test_of_supervised_paser(self, encoder, rows):
        # The anchor is encoded once for both losses.
        loss, recorder = supervised(encoder), Recorder(encoder)
        loss(batch(encoder, *rows))
        assert sum(recorder.rows()) == 4 * len(SENTENCES)

    def test_an_evaluation_reads_words_without_a_view(self, encoder):
        loss = sum_of(encoder, a=(losses.ConSERTLoss(encoder), 1), b=(words(encoder), 1))
        columns, bag = batch(encoder.eval(), SENTENCES), loss.losses["b"]
        torch.testing.assert_close(loss(columns)["b/words"], bag(columns)["words"])


def test_the_balance_is_at_the_sentence_vectors(encoder):
    # For each further loss. The first one, and weights that a loss owns, learn at full speed.
    further = {name: (words(encoder), weight) for name, weight in (("b", 1.0), ("c", 9.0))}
    loss = sum_of(encoder, None, a=(losses.ConSERTLoss(encoder), 1.0), **further)
    recorder, found, own = Recorder(encoder), [], []
    for loss.balance in (None, 0.05):
        torch.manual_seed(0)
        terms = loss(batch(encoder, SENTENCES))
        read = recorder.outputs[-1]["sentence_embedding"]
        found.append([torch.autograd.grad(term, read, retain_graph=True)[0] for term in terms.values()])
        own.append(torch.autograd.grad(terms["b/words"], loss.losses["b"].decoder.map.weight)[0])
    first, *others = found[1]
    assert torch.equal(first, found[0][0])
    assert torch.equal(*own)
    for name, gradient, unlimited in zip("bc", others, found[0][1:], strict=True):
        torch.testing.assert_close(gradient, loss.diagnostics[f"{name}_balance_factor"] * unlimited)
        assert (gradient.norm() / first.norm()).item() == pytest.approx(0.05, rel=1e-3)
        assert loss.diagnostics[f"{name}_balance_share"].item() == pytest.approx(0.05 / 1.05, rel=1e-3)


def test_card(encoder):
    loss = supervised(encoder)
    config = loss.get_config_dict()["losses"]["paser"]
    assert loss.citation.count("@") == 2
    assert (config["class"], config["columns"], config["weight"]) == ("PaSeRLoss", [0, 3, 4], 0.25)
    assert config["settings"] == loss.losses["paser"].get_config_dict()
    ranking = MultipleNegativesRankingLoss(encoder)
    for columns, is_simcse in (([0, 0], True), ([0, 1], False), (None, False)):
        loss = losses.WeightedSumLoss(encoder, {"a": (ranking, 1.0, columns)})
        assert ("gao-etal-2021-simcse" in loss.citation) == is_simcse


class TestErrors:
    def test_a_batch_with_too_few_columns(self, encoder, rows):
        with pytest.raises(ValueError, match=r"losses\['paser'\] .* \[0, 3, 4\], got .* 3 col"):
            supervised(encoder)(batch(encoder, *rows[:3]))

    def test_a_column_that_no_loss_reads(self, encoder):
        ranking = MultipleNegativesRankingLoss(encoder)
        loss = sum_of(encoder, a=(ranking, 1.0, [0, 2]), b=(words(encoder), 1.0, [0]))
        with pytest.raises(ValueError, match=r"\[1, 3\] of 4"):
            loss(batch(encoder, *[SENTENCES, OTHERS] * 2))
        loss = sum_of(encoder, a=(ranking, 1.0), b=(words(encoder), 1.0, [0]))  # without columns: all
        assert loss(batch(encoder, SENTENCES, OTHERS))["a"].isfinite()

    def test_a_negative_weight(self, encoder):
        with pytest.raises(ValueError, match="-0.1"):
            sum_of(encoder, a=(words(encoder), -0.1))

    def test_a_column_twice_without_dropout(self, tiny_encoder):
        model = tiny_encoder(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0).train()
        ranking = MultipleNegativesRankingLoss(model)
        with pytest.raises(ValueError, match=r"losses\['simcse'\].* dropout"):
            sum_of(model, simcse=(ranking, 1.0, [0, 0]))(batch(model, SENTENCES))
        assert sum_of(model, pairs=(ranking, 1.0))(batch(model, SENTENCES, OTHERS))["pairs"].isfinite()
