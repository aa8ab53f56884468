import math

import pytest
import torch
from datasets import Dataset
from encoders import SENTENCES
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import (
    AdaptiveLayerLoss,
    BatchAllTripletLoss,
    CachedMultipleNegativesRankingLoss,
    ContrastiveTensionLoss,
    DenoisingAutoEncoderLoss,
    GISTEmbedLoss,
    MatryoshkaLoss,
    MegaBatchMarginLoss,
    MultipleNegativesRankingLoss,
)

from sbert_plugins import data, losses, training
from sbert_plugins.training import load_loss_state, save_loss_state


@pytest.fixture
def encoder(tiny_encoder):
    return tiny_encoder()


def batch(model):
    """anchor, positive, negative, masked, phrase"""
    rows = data.paser_columns(SENTENCES, mask_token="<mask>", synonyms=None, top_k=1)[:]
    columns = [rows["anchor"], rows["anchor"][::-1], rows["phrase"], rows["masked"], rows["phrase"]]
    return [model.preprocess(column) for column in columns]


def supervised(model, alpha=0.5):
    phrases = losses.PaSeRLoss(model, token_weights=None, mlm_head="fresh", decoder_layers=1, decoder_heads=4)
    ranking = MultipleNegativesRankingLoss(model)
    return losses.WeightedSumLoss(model, {"contrastive": (ranking, 1.0, [0, 1, 2]), "paser": (phrases, alpha, [0, 3, 4])})


class TestTerms:
    def test_eq_5(self, encoder):
        loss = supervised(encoder, alpha=0.25)
        encoder.eval()
        features = batch(encoder)
        terms = loss([dict(column) for column in features])
        assert list(terms) == ["contrastive", "paser/generative"]
        contrastive = loss.losses["contrastive"]([dict(features[i]) for i in (0, 1, 2)], None)
        generative = loss.losses["paser"]([features[i] for i in (0, 3, 4)])["generative"]
        assert torch.allclose(terms["contrastive"], contrastive)
        assert torch.allclose(terms["paser/generative"], 0.25 * generative)
        assert set(loss.diagnostics) == {"paser/scored_share", "paser/token_accuracy"}

    def test_diagnostics_of_one_loss_that_stands_twice(self, encoder):
        """Of each column its own."""
        words = losses.BagOfWordsLoss(encoder, token_weights=None, mlm_head="fresh")
        columns = [encoder.preprocess(texts) for texts in (SENTENCES, [text.split()[0] for text in SENTENCES])]
        encoder.eval()
        alone = []
        for column in columns:
            words([dict(column)])
            alone.append(dict(words.diagnostics))
        both = losses.WeightedSumLoss(encoder, {"a": (words, 1, [0]), "b": (words, 1, [1])})
        both([dict(column) for column in columns])
        assert alone[0] != alone[1]
        for name, found in zip("ab", alone, strict=True):
            for key, value in found.items():
                torch.testing.assert_close(both.diagnostics[f"{name}/{key}"], value)

    def test_one_loss_of_weight_one_is_that_loss(self, encoder):
        arccse = losses.ArcCSELoss(encoder.train())
        features = encoder.preprocess(SENTENCES)
        torch.manual_seed(0)
        alone = arccse([features])
        torch.manual_seed(0)
        summed = losses.WeightedSumLoss(encoder, {"arc": (arccse, 1)})([features])
        assert {f"arc/{name}": value for name, value in alone.items()} == summed

    def test_features_are_left_as_they_came(self, encoder):
        features = batch(encoder)
        keys = [set(column) for column in features]
        supervised(encoder)(features)
        assert [set(column) for column in features] == keys

    def test_a_column_twice_is_two_views_by_dropout(self, tiny_encoder):
        model = tiny_encoder(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        loss = losses.WeightedSumLoss(model, {"simcse": (MultipleNegativesRankingLoss(model), 1, [0, 0])})
        features = model.preprocess(SENTENCES)
        model.train()
        with pytest.raises(ValueError, match=r"losses\['simcse'\], which reads a column twice, makes its positive pairs by"):
            loss([features])
        for ranking in (
            MatryoshkaLoss(model, MultipleNegativesRankingLoss(model), [32, 8]),
            losses.WeightedSumLoss(model, {"inner": (MultipleNegativesRankingLoss(model), 1)}),
            GISTEmbedLoss(model, tiny_encoder()),
            MegaBatchMarginLoss(model, use_mini_batched_version=False),
        ):
            with pytest.raises(ValueError, match=r"losses\['around'\], which reads a column twice, makes its positive"):
                losses.WeightedSumLoss(model, {"around": (ranking, 1, [0, 0])})([features])
        inner = {"ranking": (MultipleNegativesRankingLoss(model), 1, [0, 1]), "consert": (losses.ConSERTLoss(model), 1, [2])}
        once = losses.WeightedSumLoss(model, {"inner": (losses.WeightedSumLoss(model, inner), 1, [0, 1, 0])})
        assert once([features, model.preprocess(SENTENCES[::-1])])["inner/ranking"].isfinite()
        consert = losses.WeightedSumLoss(model, {"views of its own": (losses.ConSERTLoss(model), 1, [0, 0])})
        assert consert([features])["views of its own/nt_xent"].isfinite()
        model.eval()
        assert loss([features])["simcse"].isfinite()

    @pytest.mark.parametrize(
        ("value", "got"), [(None, "None"), (1.5, "1.5"), ({"a": 1.5}, "1.5 under 'a'"), ({}, "an empty dict")]
    )
    def test_a_member_that_returns_no_number(self, encoder, value, got):
        class Wrong(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.model = encoder

            def forward(self, sentence_features, labels=None):
                return value

        loss = losses.WeightedSumLoss(encoder, {"own": (Wrong(), 1)})
        with pytest.raises(ValueError, match=rf"Wrong.forward must return a scalar tensor, or a dict .* got {got}\."):
            loss([encoder.preprocess(SENTENCES)])

    def test_labels_reach_every_loss(self, encoder):
        seen = []

        class Labelled(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.model = encoder

            def forward(self, sentence_features, labels):
                seen.append(labels)
                return torch.zeros(())

        mix = losses.WeightedSumLoss(encoder, {"a": (Labelled(), 1, [0]), "b": (Labelled(), 1, [0])})
        assert mix([encoder.preprocess(SENTENCES)], "labels") == {"a": 0, "b": 0}
        assert seen == ["labels", "labels"]
        assert mix.citation.strip() == ""
        assert mix.get_config_dict()["a"]["settings"] == {}


class TestSharedPasses:
    def mix(self, model, **keywords):
        ranking = MultipleNegativesRankingLoss(model)
        arccse = losses.ArcCSELoss(model, triplet_weight=0)
        consert = losses.ConSERTLoss(model)
        members = {"simcse": (ranking, 1, [0, 0]), "arccse": (arccse, 1, [0]), "consert": (consert, 1)}
        return losses.WeightedSumLoss(model, members, **keywords)

    def rows_of_passes(self, model, loss, features):
        rows = []
        hook = model[0].register_forward_hook(lambda module, arguments, output: rows.append(len(output["token_embeddings"])))
        loss(features)
        hook.remove()
        return rows

    def rows_encoded(self, model, loss, features):
        return sum(self.rows_of_passes(model, loss, features)) / len(SENTENCES)

    def test_what_a_loss_asks_for_at_once_stays_one_pass(self, encoder):
        """Also where another loss shares a part of it: it was torn into a pass a column."""
        features, bag = [encoder.train().preprocess(SENTENCES)], losses.BagOfWordsLoss(encoder, token_weights=None)
        members = {"arccse": (losses.ArcCSELoss(encoder), 1), "words": (bag, 1)}
        apart = self.rows_of_passes(encoder, losses.ArcCSELoss(encoder), features)
        assert len(apart) == 2
        assert self.rows_of_passes(encoder, losses.WeightedSumLoss(encoder, members), features) == apart

    def test_two_dropout_views_serve_two_losses(self, encoder):
        features = [encoder.train().preprocess(SENTENCES)]
        assert self.rows_encoded(encoder, self.mix(encoder), features) == 4  # two with dropout, two in ConSERT's views
        assert self.rows_encoded(encoder, self.mix(encoder, share_passes=False), features) == 6

    @pytest.mark.parametrize(
        ("names", "share_passes", "passes"),
        [("consert words", True, 2), ("consert words", False, 3), ("words consert", True, 3)],
    )
    def test_words_are_read_in_whatever_view_is_there(self, encoder, names, share_passes, passes):
        """In training; evaluated they are what they are alone, of the text as it is."""
        bag = losses.BagOfWordsLoss(encoder, token_weights=None)
        members = {"consert": (losses.ConSERTLoss(encoder), 1), "words": (bag, 1)}
        entries = {name: members[name] for name in names.split()}
        loss = losses.WeightedSumLoss(encoder, entries, balance=0.3, share_passes=share_passes)
        features = [encoder.train().preprocess(SENTENCES)]
        assert self.rows_encoded(encoder, loss, features) == passes
        encoder.eval()
        assert self.rows_encoded(encoder, loss, features) == 3
        assert torch.allclose(loss(features)["words/words"], bag(features)["words"], rtol=1e-5)

    def test_words_read_the_first_view(self, encoder):
        """Which here changes nothing, so that they weigh what they weigh alone."""
        contrast, bag = losses.ConSERTLoss(encoder, first_view=()), losses.BagOfWordsLoss(encoder, token_weights=None)
        loss = losses.WeightedSumLoss(encoder, {"contrast": (contrast, 1), "words": (bag, 1)})
        features = [encoder.train().preprocess(SENTENCES)]
        words = loss(features)["words/words"]
        encoder.eval()
        assert torch.allclose(words, bag(features)["words"], rtol=1e-5)

    def test_words_are_not_read_in_a_pass_without_gradients(self, encoder):
        class Looking(losses.ConSERTLoss):
            def compute_loss_from_passes(self, encode, columns, labels=None):
                with torch.no_grad():
                    encode(columns)
                return super().compute_loss_from_passes(encode, columns, labels)

        members = {"looking": (Looking(encoder), 1), "words": (losses.BagOfWordsLoss(encoder, token_weights=None), 1)}
        loss = losses.WeightedSumLoss(encoder, members)
        loss([encoder.preprocess(SENTENCES)])["words/words"].backward()
        assert encoder[0].model.embeddings.word_embeddings.weight.grad.abs().sum() > 0
        assert encoder[0].model.encoder.layer[0].output.dense.weight.grad.abs().sum() > 0

    def test_supervised_paser_embeds_its_anchor_once(self, encoder):
        loss, features = supervised(encoder.train()), batch(encoder)
        assert self.rows_encoded(encoder, loss, features) == 4
        loss.share_passes = False
        assert self.rows_encoded(encoder, loss, features) == 5

    def test_without_dropout_terms_and_gradients_are_the_same(self, encoder):
        features = batch(encoder.eval())
        found = []
        for share in (True, False):
            loss = supervised(encoder)
            loss.share_passes = share
            if found:
                loss.load_state_dict(found[0][0].state_dict())
            terms = loss(features)
            sum(terms.values()).backward()
            gradient = encoder[0].model.embeddings.word_embeddings.weight.grad.clone()
            encoder.zero_grad()
            found.append((loss, terms, gradient))
        (_, shared, gradient), (_, apart, expected) = found
        assert all(torch.allclose(shared[name], apart[name], rtol=1e-5) for name in apart)
        assert torch.allclose(gradient, expected, atol=1e-5)

    @pytest.mark.parametrize("members", [{"a": [0]}, {"a": [0], "b": [1]}])
    def test_nothing_to_share_nothing_changed(self, encoder, members):
        """Columns stay merged, and the draws those of the losses alone."""
        columns = [encoder.preprocess(SENTENCES), encoder.preprocess(SENTENCES[::-1])]
        entries = {name: (losses.ArcCSELoss(encoder.train()), 1, indices) for name, indices in members.items()}
        loss = losses.WeightedSumLoss(encoder, entries)
        merged = []
        encoder[0].register_forward_hook(lambda module, arguments, output: merged.append(len(output["token_embeddings"])))
        loss(columns)
        assert merged[0] == 2 * len(SENTENCES)

    def test_a_compiled_encoder_is_left_alone(self, encoder):
        """Its token embeddings cannot be kept for who asks later."""
        loss, passes = self.mix(encoder.train()), []
        loss.model = torch.compile(encoder, backend="eager")
        loss.model.register_forward_hook(lambda module, arguments, output: passes.append(len(output["sentence_embedding"])))
        loss.losses.pop("consert")  # refuses it
        loss([encoder.preprocess(SENTENCES)])
        assert sum(passes) == 4 * len(SENTENCES)

    def test_a_loss_that_embeds_by_itself_shares_nothing(self, encoder):
        """A subclass with a forward of its own gets to run it."""

        class Doubled(losses.ArcCSELoss):
            def forward(self, sentence_features, labels=None):
                return {name: 2 * term for name, term in super().forward(sentence_features, labels).items()}

        features = encoder.eval().preprocess(SENTENCES)
        plain, doubled = (kind(encoder, triplet_weight=0, projection_head=False) for kind in (losses.ArcCSELoss, Doubled))
        loss = losses.WeightedSumLoss(encoder, {"plain": (plain, 1), "doubled": (doubled, 1)})
        terms = loss([features])
        assert terms["doubled/arccon"].item() == pytest.approx(2 * terms["plain/arccon"].item())
        assert self.rows_encoded(encoder, loss, [features]) == 4


def test_the_parts_are_found(encoder, tmp_path):
    """Parameters, state and the nested ``model`` that a trainer wraps."""
    loss = supervised(encoder)
    names = {name.split(".")[0] for name, _ in loss.named_parameters()}
    assert names == {"model", "losses"}
    assert loss.losses["paser"].model is loss.model is loss.losses["contrastive"].model
    save_loss_state(loss, encoder, tmp_path)
    expected = loss.losses["paser"].decoder.norm.weight.detach().clone()
    with torch.no_grad():
        loss.losses["paser"].decoder.norm.weight.zero_()
    load_loss_state(loss, encoder, tmp_path)
    assert torch.equal(loss.losses["paser"].decoder.norm.weight, expected)


def test_card(encoder):
    loss = supervised(encoder)
    assert "wu-zhao-2022" in loss.citation
    assert loss.citation.count("@") == 2
    config = loss.get_config_dict()
    assert config["contrastive"] | {"settings": {}} == {
        "loss": "MultipleNegativesRankingLoss",
        "weight": 1.0,
        "columns": [0, 1, 2],
        "settings": {},
    }
    assert config["paser"]["settings"]["mlm_weight"] == 0


class TestBadInput:
    def test_no_loss(self, encoder):
        with pytest.raises(ValueError, match="at least one loss, got none"):
            losses.WeightedSumLoss(encoder, {})

    @pytest.mark.parametrize("name", ["", "a.b", "a/b", 3])
    def test_names(self, encoder, name):
        with pytest.raises(ValueError, match="must be a word without dot or slash"):
            losses.WeightedSumLoss(encoder, {name: (losses.ArcCSELoss(encoder), 1.0)})

    @pytest.mark.parametrize("weight", [0, -1, math.inf, math.nan, "1"])
    def test_weights(self, encoder, weight):
        with pytest.raises(ValueError, match=r"the weight of losses\['a'\] must be a finite number above 0"):
            losses.WeightedSumLoss(encoder, {"a": (losses.ArcCSELoss(encoder), weight)})

    @pytest.mark.parametrize("columns", [[], [-1], ["anchor"], [0.0], [True]])
    def test_columns(self, encoder, columns):
        with pytest.raises(ValueError, match=r"the columns of losses\['a'\] must be indices from 0"):
            losses.WeightedSumLoss(encoder, {"a": (losses.ArcCSELoss(encoder), 1.0, columns)})

    @pytest.mark.parametrize("entry", [1.0, (1.0,), "ab"])
    def test_entries(self, encoder, entry):
        with pytest.raises(ValueError, match=r"losses\['a'\] must be"):
            losses.WeightedSumLoss(encoder, {"a": entry})

    def test_another_model(self, encoder, tiny_encoder):
        with pytest.raises(ValueError, match=r"losses\['a'\] must be a loss around the same model, got ArcCSELoss"):
            losses.WeightedSumLoss(encoder, {"a": (losses.ArcCSELoss(tiny_encoder()), 1.0)})

    def test_a_batch_with_fewer_columns(self, encoder):
        with pytest.raises(ValueError, match=r"losses\['paser'\] reads the columns \[0, 3, 4\], got a batch with 3"):
            supervised(encoder)(batch(encoder)[:3])


class TestBalance:
    def sum_of(self, model, balance, **keywords):
        torch.manual_seed(0)
        words = losses.BagOfWordsLoss(model, token_weights=None, mlm_head="fresh")
        ranking = MultipleNegativesRankingLoss(model)
        members = {"simcse": (ranking, 1.0, [0, 0]), "words": (words, 3.0, [0])}
        return losses.WeightedSumLoss(model, members, balance=balance, **keywords)

    @pytest.mark.parametrize("share_passes", [True, False])
    def test_the_first_loss_leads(self, tiny_encoder, share_passes):
        """The sum's gradient is the first's plus the second's times the factor, at the encoder's weights."""
        model = tiny_encoder(pooling="mean").eval()
        features = model.preprocess(SENTENCES)
        loss = self.sum_of(model, 0.05, share_passes=share_passes)

        def gradient(balance, names):
            loss.balance = balance
            terms = loss([dict(features)])
            model.zero_grad()
            sum(terms[name] for name in names).backward()
            return model.transformers_model.encoder.layer[0].output.dense.weight.grad.clone()

        both = gradient(0.05, ["simcse", "words/words"])
        factor = loss.diagnostics["balance_factor"].item()
        assert 0 < factor < 1
        expected = gradient(None, ["simcse"]) + factor * gradient(None, ["words/words"])
        assert torch.allclose(both, expected, rtol=1e-3, atol=1e-4 * expected.abs().max())

    def test_without_it_nothing_changes(self, tiny_encoder):
        model = tiny_encoder(pooling="mean").train()
        values = []
        for balance in (None, 1e9):
            loss = self.sum_of(model, balance)
            torch.manual_seed(1)
            terms = loss([model.preprocess(SENTENCES)])
            model.zero_grad()
            sum(terms.values()).backward()
            values.append(model.transformers_model.encoder.layer[0].output.dense.weight.grad.clone())
        assert torch.allclose(*values, rtol=1e-5, atol=1e-8)

    def test_a_compiled_encoder(self, tiny_encoder):
        """What it gives is tapped; a loss that calls it by itself would be by a hook inside, which it leaves out."""
        model = tiny_encoder(pooling="mean").eval()
        features = [model.preprocess(SENTENCES)]
        loss = self.sum_of(model, 0.05)
        loss(features)
        expected = loss.diagnostics["balance_factor"]
        loss.model = torch.compile(model, backend="eager")
        loss(features)
        torch.testing.assert_close(loss.diagnostics["balance_factor"], expected)
        foreign = DenoisingAutoEncoderLoss(model)
        loss = losses.WeightedSumLoss(model, {"consert": (losses.ConSERTLoss(model), 1), "tsdae": (foreign, 1)}, balance=1.0)
        loss.model = torch.compile(model, backend="eager")
        loss.losses.pop("consert")
        loss.losses["words"] = losses.BagOfWordsLoss(model, token_weights=None, mlm_head="fresh")
        loss.weights["words"], loss.columns["words"] = 1, [0]
        with pytest.raises(ValueError, match="train without torch_compile, or with balance=None"):
            loss(features * 2)

    @pytest.mark.parametrize("name", ["values", "type", "train", "forward"])
    def test_names_that_torch_has(self, tiny_encoder, name):
        model = tiny_encoder()
        with pytest.raises(ValueError, match=f"none that torch's ModuleDict has for itself, got '{name}'"):
            losses.WeightedSumLoss(model, {name: (losses.ConSERTLoss(model), 1)})

    @pytest.mark.parametrize("balance", [0.0, -1.0, math.inf, math.nan])
    def test_values(self, tiny_encoder, balance):
        with pytest.raises(ValueError, match="balance must be a finite number above 0"):
            self.sum_of(tiny_encoder(), balance)

    def test_card(self, tiny_encoder):
        assert self.sum_of(tiny_encoder(), 0.5).get_config_dict()["balance"] == 0.5
        assert "share_passes" not in self.sum_of(tiny_encoder(), None).get_config_dict()
        assert self.sum_of(tiny_encoder(), None, share_passes=False).get_config_dict()["share_passes"] is False

    @pytest.mark.parametrize("wrapped", [(), ("words",), ("simcse",), ("simcse", "words")])
    @pytest.mark.parametrize("first", ["simcse", "words"])
    def test_round_matryoshka_the_gradient_is_bounded_where_the_vectors_are_whole(self, tiny_encoder, first, wrapped):
        """What it cuts and normalises, once for each dimension, is one vector of the encoder."""
        model = tiny_encoder(pooling="mean").eval()
        words = losses.ConSERTLoss(model)
        inner = {"simcse": (MultipleNegativesRankingLoss(model), [0, 0]), "words": (words, [0])}
        members = {
            name: (MatryoshkaLoss(model, loss, [32, 16, 8]) if name in wrapped else loss, 1.0, columns)
            for name, (loss, columns) in inner.items()
        }
        members = dict(sorted(members.items(), key=lambda item: item[0] != first))
        loss = losses.WeightedSumLoss(model, members, balance=0.05)
        vectors = []
        model[-1].register_forward_hook(lambda module, arguments, output: vectors.append(output["sentence_embedding"]))
        terms = loss([model.preprocess(SENTENCES)])
        norms = []
        for name in members:
            value = sum(term for key, term in terms.items() if key.split("/")[0] == name)
            gradients = torch.autograd.grad(value, vectors, retain_graph=True, allow_unused=True)
            norms.append(torch.cat([gradient.flatten() for gradient in gradients if gradient is not None]).norm().item())
        share = loss.diagnostics["balance_share"].item()
        assert norms[1] / norms[0] <= 0.05 * 1.001
        assert share == pytest.approx(norms[1] / sum(norms), rel=1e-3)

    def test_a_gradient_cache_is_refused(self, tiny_encoder):
        model = tiny_encoder()
        members = {"a": (CachedMultipleNegativesRankingLoss(model), 1, [0, 0]), "b": (losses.ConSERTLoss(model), 1, [0])}
        losses.WeightedSumLoss(model, members)
        with pytest.raises(ValueError, match=r"with balance losses\['a'\] must embed .*use MultipleNegativesRankingLoss"):
            losses.WeightedSumLoss(model, members, balance=0.5)

    def test_inside_matryoshka_a_loss_that_embeds_by_itself_is_refused(self, tiny_encoder):
        """Behind the first dimension there is no pass that it could be seen in."""
        model = tiny_encoder().train()

        class Own(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.model = model

            def forward(self, features, labels):
                return self.model(features[0])["sentence_embedding"].pow(2).sum()

        mix = losses.WeightedSumLoss(model, {"consert": (losses.ConSERTLoss(model), 1), "own": (Own(), 1)}, balance=0.5)
        with pytest.raises(ValueError, match="put MatryoshkaLoss round the member"):
            MatryoshkaLoss(model, mix, [32, 16])([model.preprocess(SENTENCES)], None)

    def test_a_cached_loss_inside_a_sum_inside_matryoshka_is_refused(self, tiny_encoder):
        """Its second pass would be of another width."""
        model = tiny_encoder()
        mix = losses.WeightedSumLoss(model, {"a": (CachedMultipleNegativesRankingLoss(model), 1, [0, 0])})
        with pytest.raises(ValueError, match=r"inside MatryoshkaLoss losses\['a'\] must embed .* got CachedMultipleNeg"):
            MatryoshkaLoss(model, mix, [32, 16])([model.preprocess(SENTENCES)], None)


def test_inside_adaptive_layers_it_is_refused(encoder):
    mix = losses.WeightedSumLoss(encoder, {"ranking": (MultipleNegativesRankingLoss(encoder), 1.0)})
    with pytest.raises(ValueError, match="WeightedSumLoss cannot be trained inside AdaptiveLayerLoss"):
        AdaptiveLayerLoss(encoder.train(), mix)([encoder.preprocess(SENTENCES), encoder.preprocess(SENTENCES)], None)


class TestWhereverALossKeepsTheModel:
    """As ``encoder`` (TSDAE), as ``model2`` beside a copy (contrastive tension), as ``sentence_embedder`` (triplets)."""

    @staticmethod
    def rows():
        texts = SENTENCES * 2
        return {
            "anchor": texts,
            "noisy": [" ".join(text.split()[::2]) for text in texts],
            "other": texts[:8] + texts[8:][::-1],
            "label": [1.0] * 8 + [0.0] * 8,
        }

    def train(self, model, loss, columns, tmp_path, *, trainer=SentenceTransformerTrainer, steps=3, **keywords):
        arguments = SentenceTransformerTrainingArguments(
            output_dir=str(tmp_path / type(loss).__name__),
            max_steps=steps,
            per_device_train_batch_size=8,
            learning_rate=1e-3,
            logging_steps=1,
            save_strategy="steps" if steps == 3 else "no",
            save_steps=2,
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        )
        dataset = Dataset.from_dict({name: self.rows()[name] for name in columns})
        run = trainer(model=model, args=arguments, train_dataset=dataset, loss=loss)
        run.train(**keywords)
        return [entry["loss"] for entry in run.state.log_history if "loss" in entry]

    @pytest.mark.parametrize("balance", [None, 0.5])
    def test_tsdae_and_consert_train_one_encoder(self, encoder, tmp_path, balance):
        tsdae, consert = DenoisingAutoEncoderLoss(encoder), losses.ConSERTLoss(encoder)
        mix = losses.WeightedSumLoss(encoder, {"tsdae": (tsdae, 1, [1, 0]), "consert": (consert, 1, [0])}, balance=balance)
        before = {name: parameter.detach().clone() for name, parameter in mix.named_parameters()}
        assert len(self.train(encoder, mix, ["anchor", "noisy"], tmp_path)) == 3
        assert tsdae.encoder is consert.model is encoder
        moved = {name for name, parameter in mix.named_parameters() if not torch.equal(parameter, before[name])}
        assert any(name.startswith("model.") for name in moved)
        assert any("crossattention" in name for name in moved)  # the decoder's own

    @pytest.mark.parametrize("kind", [ContrastiveTensionLoss, DenoisingAutoEncoderLoss, BatchAllTripletLoss])
    def test_alone_it_trains_as_without_a_sum(self, kind, tiny_encoder, tmp_path):
        columns = {
            ContrastiveTensionLoss: ["anchor", "other", "label"],
            DenoisingAutoEncoderLoss: ["noisy", "anchor"],
            BatchAllTripletLoss: ["anchor", "label"],
        }[kind]
        found = []
        for is_summed in (False, True):
            model = tiny_encoder()
            torch.manual_seed(1)
            loss = kind(model)
            loss = losses.WeightedSumLoss(model, {"one": (loss, 1)}) if is_summed else loss
            found.append((self.train(model, loss, columns, tmp_path), [*model.parameters()]))
        assert found[0][0] == found[1][0]
        assert all(map(torch.equal, found[0][1], found[1][1]))

    def test_contrastive_tension_trains_its_copy_beside_the_encoder(self, encoder, tmp_path):
        """Views and shared passes are the encoder's: what the copy gives is its own."""
        tension, consert = ContrastiveTensionLoss(encoder), losses.ConSERTLoss(encoder)
        mix = losses.WeightedSumLoss(encoder, {"ct": (tension, 1), "consert": (consert, 1, [0])})
        columns = [encoder.preprocess(self.rows()[name]) for name in ("anchor", "other")]
        labels = torch.tensor(self.rows()["label"])
        torch.nn.init.zeros_(tension.model1.transformers_model.get_input_embeddings().weight)
        encoder.eval()
        assert mix(columns, labels)["ct"] == tension([dict(column) for column in columns], labels)
        before = [parameter.detach().clone() for parameter in mix.parameters()]
        self.train(encoder, mix, ["anchor", "other", "label"], tmp_path)
        assert tension.model2 is encoder is not tension.model1
        changed = {id(p) for p, old in zip(mix.parameters(), before, strict=True) if not torch.equal(p, old)}
        for model in (tension.model1, tension.model2):
            assert any(id(parameter) in changed for parameter in model.parameters())

    def test_the_copy_survives_an_interruption(self, tiny_encoder, tmp_path):
        found = []
        for folder, resume in (("whole", False), ("whole", tmp_path / "whole" / "WeightedSumLoss" / "checkpoint-2")):
            model = tiny_encoder()
            torch.manual_seed(1)
            tension, consert = ContrastiveTensionLoss(model), losses.ConSERTLoss(model)
            if resume:
                torch.nn.init.zeros_(tension.model1.transformers_model.get_input_embeddings().weight)
            mix = losses.WeightedSumLoss(model, {"ct": (tension, 1), "consert": (consert, 1, [0])})
            keywords = {"trainer": training.SentenceTransformerTrainer, "resume_from_checkpoint": resume and str(resume)}
            self.train(model, mix, ["anchor", "other", "label"], tmp_path / folder, **keywords)
            found.append([*mix.parameters()])
        assert all(map(torch.equal, *found))

    def test_one_that_has_only_a_copy_is_refused(self, encoder):
        tension = ContrastiveTensionLoss(encoder)
        with pytest.raises(ValueError, match="must be a loss around the same model, got ContrastiveTensionLoss without it"):
            losses.WeightedSumLoss(tension.model1.__class__(modules=list(tension.model1)), {"ct": (tension, 1)})

    def test_several_processes_need_one_that_calls_the_wrapper(self, encoder):
        class Wrapped(torch.nn.parallel.DistributedDataParallel):
            def __init__(self, module):
                torch.nn.Module.__init__(self)
                self.module = module

            def forward(self, *arguments):
                return self.module(*arguments)

        tsdae, consert = DenoisingAutoEncoderLoss(encoder), losses.ConSERTLoss(encoder)
        columns = [encoder.preprocess(self.rows()[name]) for name in ("noisy", "anchor")]
        alone = losses.WeightedSumLoss(encoder, {"tsdae": (tsdae, 1)})
        alone.model = Wrapped(encoder)  # as the trainer does
        encoder.train()
        alone.model.train()
        with pytest.raises(ValueError, match="which DenoisingAutoEncoderLoss inside WeightedSumLoss does not: train in one"):
            alone(columns)
        both = losses.WeightedSumLoss(encoder, {"tsdae": (tsdae, 1), "consert": (consert, 1, [1])})
        both.model = consert.model = Wrapped(encoder)
        both.model.train()
        assert set(both(columns)) == {"tsdae", "consert/nt_xent"}


def test_two_columns_need_no_dropout(tiny_encoder):
    model = tiny_encoder(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0).train()
    loss = losses.WeightedSumLoss(model, {"pairs": (MultipleNegativesRankingLoss(model), 1.0, [0, 1])})
    assert torch.isfinite(loss([model.preprocess(side) for side in (SENTENCES, SENTENCES[::-1])])["pairs"])


def test_a_sum_of_the_hosts_losses_on_a_frozen_encoder_is_refused(encoder):
    loss = losses.WeightedSumLoss(encoder.train(), {"a": (MultipleNegativesRankingLoss(encoder), 1.0)})
    encoder.requires_grad_(False)
    with pytest.raises(ValueError, match="WeightedSumLoss trains the encoder, got one whose parameters are all frozen"):
        loss([encoder.preprocess(SENTENCES) for _ in range(2)])


def test_diagnostics_are_of_the_last_batch(encoder):
    """A number that a member has in some batches only is not told of the others."""
    member = MultipleNegativesRankingLoss(encoder)
    loss = losses.WeightedSumLoss(encoder.eval(), {"a": (member, 1.0)})
    for member.diagnostics, found in (({"x": 1.0}, {"a/x": 1.0}), ({}, {})):
        loss([encoder.preprocess(SENTENCES) for _ in range(2)])
        assert loss.diagnostics == found


def test_each_further_loss_is_bounded(tiny_encoder):
    model = tiny_encoder(pooling="mean").train()
    weights = (("a", 1.0), ("b", 5.0), ("c", 9.0))
    members = {name: (MultipleNegativesRankingLoss(model), weight, [0, 1]) for name, weight in weights}
    loss = losses.WeightedSumLoss(model, members, balance=0.5)
    loss([model.preprocess(side) for side in (SENTENCES, SENTENCES[1:] + SENTENCES[:1])])
    assert loss.diagnostics["b_balance_factor"] < 1
    assert loss.diagnostics["c_balance_factor"] < 1


@pytest.mark.parametrize("name", ["balance", "share_passes"])
def test_a_name_that_would_hide_a_setting(tiny_encoder, name):
    model = tiny_encoder()
    with pytest.raises(ValueError, match=f"must not be that of a keyword, got '{name}'"):
        losses.WeightedSumLoss(model, {name: (MultipleNegativesRankingLoss(model), 1.0)})
