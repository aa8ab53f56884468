import copy
import math

import numpy as np
import pytest
import reference
import torch
from encoders import ARCHITECTURES, SENTENCES, project_counts, project_text
from methods import METHODS
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.losses.merged_forward import column_merging_disabled
from sentence_transformers.sentence_transformer.losses import (
    CachedGISTEmbedLoss,
    CachedMultipleNegativesRankingLoss,
    ContrastiveTensionLoss,
    ContrastiveTensionLossInBatchNegatives,
    DenoisingAutoEncoderLoss,
    MatryoshkaLoss,
    MegaBatchMarginLoss,
    MultipleNegativesRankingLoss,
)
from sentence_transformers.sentence_transformer.modules import Dense, WordWeights
from sklearn.linear_model import LogisticRegression
from torch import nn

from sbert_plugins import data, functional, losses, modules, recipes, training
from sbert_plugins.encoder import VIEWS, dropout_off


@pytest.fixture
def encoder(tiny_encoder):
    return tiny_encoder("bert", "mean")


def counts(model):
    return project_counts(model.tokenizer)


def simcse(model):
    return losses.WeightedSumLoss(model, {"simcse": (MultipleNegativesRankingLoss(model), 1.0, [0, 0])})


def build(model, base=None, **keywords):
    keywords = {"warmup_steps": 0, "low_frequency_by": "mass", "balance": None} | keywords
    loss = losses.SLTFAILoss(model, base or simcse(model), frequencies=counts(model), **keywords)
    loss.state_is_kept = True
    return loss


def passes_of(model):
    """Copies of what each pass read and gave, and whether dropout was on."""
    found = []
    model.register_forward_hook(lambda module, arguments, output: found.append((dict(output), module.training)))
    return found


BASES = {
    "simcse": simcse,
    "simcse on pairs": MultipleNegativesRankingLoss,
    "consert": losses.ConSERTLoss,
    "consert with dropout": lambda model: losses.ConSERTLoss(model, first_view=("token_cutoff", "dropout")),
    "arccse": losses.ArcCSELoss,
    "arccse on pairs": losses.ArcCSELoss,
    "tsdae on pairs": DenoisingAutoEncoderLoss,
    "contrastive tension": ContrastiveTensionLossInBatchNegatives,
    "consert on pairs": lambda model: losses.ConSERTLoss(model, first_view=("feature_cutoff", "token_cutoff")),
}


def columns_for(name, features):
    """The positives are longer than the anchors, which a merged pass pads."""
    longer = {key: torch.cat([value, value], dim=1) for key, value in features.items() if torch.is_tensor(value)}
    return [features, {**features, **longer}] if name.endswith("on pairs") else [features]


def shown_differences(ids, copy, view):
    """Whether the encoder reads another word of each copy than of its original: place by place, as it embeds them."""
    usable = []
    for row, (original, changed) in enumerate(zip(ids.tolist(), copy.tolist(), strict=True)):
        places = range(len(original))
        source = list(places) if view is None or view.order is None else view.order[row].tolist()
        cut = [False for _ in places] if view is None or view.cut_tokens is None else view.cut_tokens[row].tolist()
        usable.append(any(original[source[i]] != changed[source[i]] and not cut[i] for i in places))
    return np.array(usable)


class TestValue:
    @pytest.mark.parametrize("name", BASES)
    def test_terms_are_those_of_the_reference(self, encoder, name):
        """With embeddings of the passes that were made and the discriminators in numpy, the loops give the same numbers."""
        loss = build(encoder.train(), BASES[name](encoder), adversarial_weight=0.5, filtering_weight=2.0).double()
        found = passes_of(encoder)
        features = encoder.preprocess(SENTENCES)
        terms = loss(columns_for(name, features))
        (original, *_), (copy, _) = found[0], found[-1]
        ids, rows, length = features["input_ids"], *features["input_ids"].shape
        assert torch.equal(original["input_ids"][:rows, :length], ids)

        def classify(module, x):
            w1, b1, w2, b2 = (parameter.detach().numpy() for parameter in module.parameters())
            return np.maximum(x.detach().numpy() @ w1.T + b1, 0) @ w2.T + b2

        content = features["attention_mask"].bool() & ~torch.isin(ids, torch.tensor(encoder.tokenizer.all_special_ids))
        low = np.isin(ids.numpy(), counts(encoder).low_frequency_ids(0.5, "mass"))
        logits = classify(loss.frequency_discriminator, original["token_embeddings"][:rows, :length])
        expected = 0.5 * reference.token_class_loss(logits, low.astype(int), content.numpy())
        assert terms["adversarial"].item() == pytest.approx(expected, rel=1e-9)
        pair = [classify(loss.completeness_discriminator, x["sentence_embedding"][:rows]) for x in (original, copy)]
        usable = shown_differences(ids, copy["input_ids"], copy.get(VIEWS, [None])[0])
        assert loss.diagnostics["masked_share"].item() == pytest.approx(sum(usable) / rows)
        expected = 2.0 * reference.incomplete_sentence_loss(*pair, usable)
        assert terms["filtering"].item() == pytest.approx(expected, rel=1e-9)
        assert set(terms) - {"adversarial", "filtering"} <= {
            "base",
            "base/simcse",
            "base/nt_xent",
            "base/arccon",
            "base/triplet",
        }

    @pytest.mark.parametrize("name", BASES)
    def test_one_pass_more_than_the_base(self, encoder, name):
        base = BASES[name](encoder.train())
        found = passes_of(encoder)
        features = encoder.preprocess(SENTENCES)
        base(columns_for(name, features), None)
        own = len(found)
        loss = build(encoder, base)
        loss(columns_for(name, features))
        assert len(found) == 2 * own + 1
        assert len(found[-1][0]["input_ids"]) == len(SENTENCES)

    def test_the_base_is_left_as_it_is(self, encoder):
        base, features = simcse(encoder.train()), encoder.preprocess(SENTENCES)
        loss = build(encoder, base)
        torch.manual_seed(0)
        alone = base([dict(features)])
        torch.manual_seed(0)
        assert loss([features])["base/simcse"] == alone["simcse"]

    def test_features_are_left_as_they_came(self, encoder):
        features = encoder.preprocess(SENTENCES)
        before = dict(features)
        build(encoder.train())([features])
        assert set(features) == set(before)
        assert all(features[key] is before[key] for key in before)


class TestIncompleteSentences:
    @pytest.mark.parametrize("architecture", ARCHITECTURES)
    @pytest.mark.parametrize("ratio", [0.2, 1.0])
    def test_only_rare_tokens_are_masked(self, tiny_encoder, architecture, ratio):
        model = tiny_encoder(architecture).train()
        found = passes_of(model)
        features = model.preprocess(SENTENCES)
        build(model, masking_ratio=ratio)([features])
        ids, copy = features["input_ids"], found[-1][0]["input_ids"]
        changed = ids != copy
        rare = torch.isin(ids, torch.as_tensor(counts(model).low_frequency_ids(0.5, "mass")))
        assert (copy[changed] == model.tokenizer.mask_token_id).all()
        assert (changed <= rare).all()
        wanted = [max(1, round(ratio * n)) if n else 0 for n in rare.sum(dim=1).tolist()]
        assert changed.sum(dim=1).tolist() == wanted

    def test_a_sentence_without_a_rare_token_is_left_out(self, encoder):
        """It would be labelled original and incomplete at once."""
        features = encoder.preprocess(SENTENCES)
        loss = build(encoder.eval())
        loss.low_frequency.zero_()
        rare = int(features["input_ids"][2, 4])
        holders = int((features["input_ids"] == rare).any(dim=1).sum())
        loss.low_frequency[rare] = 1
        loss([features])
        assert loss.diagnostics["masked_share"] == pytest.approx(holders / len(SENTENCES))
        loss.low_frequency.zero_()
        terms = loss([features])
        assert terms["filtering"] == 0
        assert loss.diagnostics["masked_share"] == 0

    @pytest.mark.parametrize("parts", [("token_cutoff",), ("token_cutoff", "token_shuffling")], ids=" ".join)
    def test_a_copy_that_reads_as_its_original_is_left_out(self, encoder, parts, monkeypatch):
        """The masked token may be one that the view cuts off: whole and incomplete would be labels of one vector."""
        loss = build(encoder.train(), losses.ConSERTLoss(encoder, first_view=parts), low_frequency_by="types")
        compared, left_out = [], 0
        compute = loss.completeness_discriminator.loss
        monkeypatch.setattr(loss.completeness_discriminator, "loss", lambda *given: compared.append(given) or compute(*given))
        for seed in range(10):
            torch.manual_seed(seed)
            loss([encoder.preprocess(SENTENCES)])
            whole, part, usable = compared[-1]
            assert torch.equal((whole - part).abs().amax(dim=1) > 1e-6, usable)
            left_out += int((~usable).sum())
        assert left_out > 0

    @pytest.mark.parametrize("name", BASES)
    def test_the_copy_is_seen_as_its_original(self, encoder, name, monkeypatch):
        """Nothing masked: the copy has the very view of the original, up to dropout."""
        monkeypatch.setattr("sbert_plugins.losses.slt_fai.random_subset", lambda candidates, *_, **__: candidates & False)
        loss = build(encoder.train(), BASES[name](encoder))
        found = passes_of(encoder)
        features = encoder.preprocess(SENTENCES)
        loss(columns_for(name, features))
        (original, with_dropout), (copy, copy_with_dropout) = found[0], found[-1]
        assert with_dropout == copy_with_dropout
        if not with_dropout:
            first = original["sentence_embedding"][: len(SENTENCES)]
            assert torch.allclose(first, copy["sentence_embedding"], atol=1e-5)
            with dropout_off(encoder):
                plain = encoder(dict(features))["sentence_embedding"]
            assert not torch.allclose(first, plain, atol=1e-3)

    def test_a_prompt_is_neither_masked_nor_counted(self, encoder):
        features = encoder.preprocess(SENTENCES, prompt="Represent this sentence for us: ")
        found = passes_of(encoder)
        loss = build(encoder.train(), masking_ratio=1.0)
        loss([features])
        length = features["prompt_length"]
        assert torch.equal(found[-1][0]["input_ids"][:, :length], features["input_ids"][:, :length])


class TestTokens:
    @pytest.mark.parametrize("shared", [False, True])
    def test_are_the_encoders_and_not_those_weighted_for_the_pooling(self, encoder, shared):
        """With a mask template all tokens but one weigh 0 behind the encoder; also where another loss made the pass."""
        size = len(encoder.tokenizer)
        weights = WordWeights([str(i) for i in range(size)], {}, unknown_word_weight=0.0)
        model = SentenceTransformer(modules=[encoder[0], weights, encoder[1]], device="cpu").eval()
        plain, weighted = build(encoder.eval(), filtering_weight=0), build(model, filtering_weight=0)
        weighted.load_state_dict(plain.state_dict(), strict=False)
        features = encoder.preprocess(SENTENCES)
        expected = plain([features])["adversarial"]
        if shared:
            ranking = MultipleNegativesRankingLoss(model)
            mix = losses.WeightedSumLoss(model, {"simcse": (ranking, 1, [0, 0]), "slt": (weighted, 1, [0])})
            assert torch.allclose(mix([features])["slt/adversarial"], expected)
        else:
            assert torch.allclose(weighted([features])["adversarial"], expected)

    @pytest.mark.parametrize("name", ["consert", "consert on pairs"])
    def test_labels_follow_the_words_of_a_view_that_shuffles(self, encoder, monkeypatch, name):
        loss = build(encoder.train(), losses.ConSERTLoss(encoder, first_view=("token_shuffling",)), filtering_weight=0)
        seen, orders = [], []
        monkeypatch.setattr(
            functional, "token_class_loss", lambda logits, targets, counted: seen.append(targets) or logits.sum()
        )
        encoder.register_forward_hook(lambda module, arguments, output: orders.append(output[VIEWS][0].order))
        features = encoder.preprocess(SENTENCES)
        loss(columns_for(name, features))
        ids = features["input_ids"]
        assert not torch.equal(ids.gather(1, orders[0]), ids)
        assert torch.equal(seen[0], loss.low_frequency[ids.gather(1, orders[0])].long())


class TestPadding:
    def test_adding_padding_changes_no_term(self, encoder):
        loss = build(encoder.eval(), masking_ratio=1.0)  # all rare tokens: nothing is drawn
        features = encoder.preprocess(SENTENCES)
        fill = {"input_ids": encoder.tokenizer.pad_token_id}
        padded = {
            key: nn.functional.pad(value, (0, 7), value=fill.get(key, 0)) if torch.is_tensor(value) else value
            for key, value in features.items()
        }
        plain, wide = loss([features]), loss([padded])
        for name in plain:
            assert wide[name].item() == pytest.approx(plain[name].item(), rel=1e-5, abs=1e-6)
        assert plain["adversarial"] > 0

    def test_special_tokens_count_for_nothing(self, encoder):
        loss = build(encoder.eval())
        features = encoder.preprocess(SENTENCES)
        before = loss([features])["adversarial"]
        loss.low_frequency[encoder.tokenizer.all_special_ids] = 1
        assert loss([features])["adversarial"] == before


class TestReversal:
    @pytest.mark.parametrize("strength", [1.0, 0.3])
    def test_the_encoder_gets_minus_strength_times_the_discriminators_view(self, encoder, strength):
        loss = build(encoder.eval(), reversal_strength=strength, filtering_weight=0).double()
        features = encoder.preprocess(SENTENCES)
        loss([features])["adversarial"].backward()
        encoders = [(p, p.grad.clone()) for p in encoder.parameters() if p.grad is not None]
        own = [(p, p.grad.clone()) for p in loss.frequency_discriminator.parameters()]
        loss.zero_grad()
        tokens = encoder(dict(features))["token_embeddings"]
        module = loss.frequency_discriminator
        logits = module.outer(module.inner(tokens).relu())
        labels = loss.low_frequency[features["input_ids"]].long()
        functional.token_class_loss(logits, labels, loss.tokens.content(features)).backward()
        assert sum(bool(gradient.any()) for _, gradient in encoders) > 10
        for parameter, gradient in encoders:
            assert torch.allclose(gradient, -strength * parameter.grad, rtol=1e-9, atol=1e-15)
        for parameter, gradient in own:
            assert torch.allclose(gradient, parameter.grad, rtol=1e-9, atol=1e-15)

    def test_filtering_is_not_reversed(self, encoder):
        """A step of the encoder alone down its gradient makes the pair easier to tell apart."""
        loss = build(encoder.eval(), adversarial_weight=0, masking_ratio=1.0)
        features = encoder.preprocess(SENTENCES)
        before = loss([features])["filtering"]
        before.backward()
        with torch.no_grad():
            for parameter in encoder.parameters():
                if parameter.grad is not None:
                    parameter -= 0.01 * parameter.grad
        assert loss([features])["filtering"] < before


class TestEitherAlone:
    @pytest.mark.parametrize(
        ("keywords", "terms", "passes"),
        [
            ({"adversarial_weight": 0}, {"base/simcse", "filtering"}, 3),
            ({"filtering_weight": 0}, {"base/simcse", "adversarial"}, 2),
        ],
    )
    def test_what_is_left_out_costs_nothing(self, encoder, keywords, terms, passes):
        loss = build(encoder.train(), **keywords)
        found = passes_of(encoder)
        assert set(loss([encoder.preprocess(SENTENCES)])) == terms
        assert len(found) == passes
        assert len([name for name, _ in loss.named_children() if "discriminator" in name]) == 1

    def test_neither(self, encoder):
        with pytest.raises(ValueError, match="are both 0, which is the base loss"):
            build(encoder, adversarial_weight=0, filtering_weight=0)


class TestWarmUp:
    def step(self, loss, encoder, optimizer, micro_batches=1):
        for _ in range(micro_batches):
            terms = loss([encoder.preprocess(SENTENCES)])
            sum(terms.values()).backward()
        optimizer.step()
        optimizer.zero_grad()
        return terms["adversarial"].item(), terms["filtering"].item()

    @pytest.mark.parametrize("micro_batches", [1, 3])
    def test_once_and_counted_in_updates(self, encoder, micro_batches):
        loss = build(encoder.train(), warmup_steps=2)
        found = passes_of(encoder)
        optimizer = torch.optim.SGD(loss.parameters(), lr=1e-3)
        active = [all(self.step(loss, encoder, optimizer, micro_batches)) for _ in range(6)]
        assert active == [False, False, True, True, True, True]
        assert len(found) == micro_batches * (2 * 2 + 4 * 3)
        assert loss.updates == 6

    def test_whatever_is_frozen_after_the_loss_was_built(self, encoder):
        loss = build(encoder.train(), warmup_steps=2)
        encoder[0].model.embeddings.requires_grad_(False)
        optimizer = torch.optim.SGD([p for p in loss.parameters() if p.requires_grad], lr=1e-3)
        assert [all(self.step(loss, encoder, optimizer)) for _ in range(4)] == [False, False, True, True]

    def test_of_a_copy_of_the_loss(self, encoder):
        loss = copy.deepcopy(build(encoder.train(), warmup_steps=2))
        optimizer = torch.optim.SGD(loss.parameters(), lr=1e-3)
        assert [all(self.step(loss, encoder, optimizer)) for _ in range(4)] == [False, False, True, True]

    def test_the_counter_is_state(self, encoder):
        loss = build(encoder.train(), warmup_steps=2)
        optimizer = torch.optim.SGD(loss.parameters(), lr=1e-3)
        for _ in range(2):
            assert self.step(loss, encoder, optimizer) == (0, 0)
        resumed = build(encoder, warmup_steps=2)
        resumed.load_state_dict(loss.state_dict())
        assert resumed([encoder.preprocess(SENTENCES)])["adversarial"] > 0

    def test_an_earlier_state_brings_the_warm_up_back(self, encoder, tmp_path):
        """A notebook goes on with the loss that was interrupted."""
        loss = build(encoder.train(), warmup_steps=2)
        training.save_loss_state(loss, encoder, tmp_path)
        optimizer = torch.optim.SGD(loss.parameters(), lr=1e-3)
        assert [all(self.step(loss, encoder, optimizer)) for _ in range(3)] == [False, False, True]
        training.load_loss_state(loss, encoder, tmp_path)
        assert [all(self.step(loss, encoder, optimizer)) for _ in range(3)] == [False, False, True]

    def test_a_plain_state_brings_it_back_too(self, encoder):
        loss = build(encoder.train(), warmup_steps=2)
        start = copy.deepcopy(loss.state_dict())
        optimizer = torch.optim.SGD(loss.parameters(), lr=1e-3)
        for _ in range(2):
            assert [all(self.step(loss, encoder, optimizer)) for _ in range(3)] == [False, False, True]
            loss.load_state_dict(start)

    def test_another_number_of_updates_holds_from_then_on(self, encoder):
        loss = build(encoder.train(), warmup_steps=1)
        optimizer = torch.optim.SGD(loss.parameters(), lr=1e-3)
        assert [all(self.step(loss, encoder, optimizer)) for _ in range(2)] == [False, True]
        loss.warmup_steps = 4
        assert [all(self.step(loss, encoder, optimizer)) for _ in range(4)] == [False, False, True, True]

    def test_a_share_of_the_training(self, encoder, tmp_path):
        from datasets import Dataset
        from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments

        from sbert_plugins import training

        for trainer_class in (training.SentenceTransformerTrainer, SentenceTransformerTrainer):
            loss = build(encoder, warmup_steps=0.25)
            arguments = SentenceTransformerTrainingArguments(
                str(tmp_path),
                num_train_epochs=2,
                per_device_train_batch_size=4,
                logging_steps=1,
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                use_cpu=True,
            )
            trainer = trainer_class(
                model=encoder,
                args=arguments,
                train_dataset=Dataset.from_dict({"anchor": project_text()[:16]}),
                loss=loss,
                callbacks=[] if trainer_class is training.SentenceTransformerTrainer else [training.LossStateCallback(loss)],
            )
            trainer.train()
            logged = [entry["filtering"] > 0 for entry in trainer.state.log_history if "filtering" in entry]
            assert logged == [False] * 2 + [True] * 6  # a quarter of 8, once and not in each epoch

    def test_an_evaluation_has_all_terms_and_does_not_end_it(self, encoder):
        loss = build(encoder, warmup_steps=0.5)
        features = encoder.preprocess(SENTENCES)
        loss.training_steps = 4
        encoder.eval()
        assert all(term > 0 for term in loss([dict(features)]).values())
        encoder.train()
        terms = loss([dict(features)])
        assert terms["adversarial"] == terms["filtering"] == 0

    def test_a_share_of_what_nobody_told(self, encoder, caplog):
        loss = build(encoder.train(), warmup_steps=0.5)
        for _ in range(2):
            assert loss([encoder.preprocess(SENTENCES)])["adversarial"] > 0
        assert caplog.text.count("nobody told SLTFAILoss how long that is") == 1


class TestBases:
    @pytest.mark.parametrize("name", ["arccse", "simcse"])
    def test_a_mask_template(self, encoder, name):
        """Its vector is that of every mask: also of those that an objective puts in."""
        templated = modules.apply_mask_template(encoder)
        with pytest.raises(ValueError, match="the mean of all masks: pool by another way, or pass filtering_weight=0"):
            build(templated, simcse(templated))
        with pytest.raises(ValueError, match="the triplet term masks tokens, .* or pass triplet_weight=0"):
            losses.ArcCSELoss(templated)
        base = simcse(templated) if name == "simcse" else losses.ArcCSELoss(templated, triplet_weight=0)
        terms = build(templated.train(), base, filtering_weight=0)([templated.preprocess(SENTENCES)])
        assert torch.isfinite(terms["adversarial"])

    def test_counts_that_ship_or_of_a_file(self, encoder, tmp_path):
        with pytest.raises(ValueError, match="low_frequency_share needs to know how often each token occurs"):
            losses.SLTFAILoss(encoder, simcse(encoder))
        counts(encoder).save(tmp_path / "counts.npz")
        loss = losses.SLTFAILoss(encoder, simcse(encoder), frequencies=str(tmp_path / "counts.npz"))
        assert torch.equal(loss.low_frequency, build(encoder, low_frequency_by="types").low_frequency)

    @pytest.mark.parametrize(
        "method", [name for name in METHODS if not name.startswith("slt-fai") and name != "denosent with paraphrases"]
    )
    def test_round_every_method(self, encoder, method):
        """Each is embedded once more for the incomplete sentence, and learns with the rest."""
        method_loss, dataset = METHODS[method]
        rows = dataset(8)
        loss = build(encoder.train(), method_loss(encoder))
        columns = [encoder.preprocess(rows[column][:]) for column in rows.column_names]
        terms = loss(columns)
        assert {"adversarial", "filtering"} < set(terms)
        sum(terms.values()).backward()
        assert encoder[0].model.embeddings.word_embeddings.weight.grad.any()
        assert all(parameter.grad.any() for parameter in loss.frequency_discriminator.parameters())
        assert {key.split("/")[0] for key in loss.diagnostics} >= {"frequency_accuracy", "completeness_accuracy"}

    def test_inside_a_sum_and_round_one(self, encoder):
        inner = build(encoder.train(), losses.ArcCSELoss(encoder))
        mix = losses.WeightedSumLoss(
            encoder, {"slt": (inner, 0.5), "simcse": (MultipleNegativesRankingLoss(encoder), 1, [0, 0])}
        )
        found = passes_of(encoder)
        terms = mix([encoder.preprocess(SENTENCES)])
        assert {"slt/base/arccon", "slt/base/triplet", "slt/adversarial", "slt/filtering", "simcse"} == set(terms)
        sum(terms.values()).backward()
        # Two dropout views in one pass, which both losses read.
        views = found[0][0]["input_ids"]
        assert len(views) == 2 * len(SENTENCES)
        assert len([1 for output, _ in found if torch.equal(output["input_ids"], views)]) == 1

    def test_round_matryoshka_originals_and_copies_are_whole_vectors(self, encoder, monkeypatch):
        """Cut and normalised, as its inner loss reads them, the originals would be known by their length."""
        base = MatryoshkaLoss(encoder.eval(), losses.ConSERTLoss(encoder), [16, 8])
        loss = build(encoder, base, adversarial_weight=0)
        seen, tell = [], loss.completeness_discriminator.loss
        monkeypatch.setattr(loss.completeness_discriminator, "loss", lambda *texts: seen.extend(texts[:2]) or tell(*texts))
        features = encoder.preprocess(SENTENCES)
        loss([dict(features)])
        whole, part = seen
        assert whole.shape == part.shape == (len(SENTENCES), 32)
        assert (whole.norm(dim=1) / part.norm(dim=1)).mean().item() == pytest.approx(1, abs=0.2)

    @pytest.mark.parametrize("filtering", [0, 1])
    def test_inside_matryoshka_it_says_what_to_do(self, encoder, filtering):
        own = build(encoder, losses.ConSERTLoss(encoder), filtering_weight=filtering)
        loss = MatryoshkaLoss(encoder.train(), own, [32, 16])
        with pytest.raises(ValueError, match="tokens of a pass, which MatryoshkaLoss .*: put SLTFAILoss round MatryoshkaLoss"):
            loss([encoder.preprocess(SENTENCES)], None)

    def test_gradient_caches_are_refused(self, encoder):
        with pytest.raises(ValueError, match="got CachedMultipleNegativesRankingLoss, .*use MultipleNegativesRankingLoss"):
            build(encoder, CachedMultipleNegativesRankingLoss(encoder))
        nested = losses.WeightedSumLoss(encoder, {"a": (CachedMultipleNegativesRankingLoss(encoder), 1)})
        with pytest.raises(ValueError, match="got CachedMultipleNegativesRankingLoss"):
            build(encoder, nested)
        with pytest.raises(ValueError, match="got CachedGISTEmbedLoss, .*use GISTEmbedLoss with a smaller batch"):
            build(encoder, CachedGISTEmbedLoss(encoder, encoder))
        with pytest.raises(ValueError, match="got MegaBatchMarginLoss, .*build it without its cache .*, with a smaller batch"):
            build(encoder, MegaBatchMarginLoss(encoder))
        taken = build(encoder, MegaBatchMarginLoss(encoder, use_mini_batched_version=False))
        terms = taken([encoder.preprocess(SENTENCES), encoder.preprocess(SENTENCES[::-1])], None)
        sum(terms.values()).backward()
        assert encoder.transformers_model.get_input_embeddings().weight.grad.any()
        with pytest.raises(ValueError, match="got CachedMultipleNegativesRankingLoss"):
            build(encoder, MatryoshkaLoss(encoder, CachedMultipleNegativesRankingLoss(encoder), [32, 16]))

    def test_a_member_that_embeds_the_column_itself_is_told_from_a_wrong_order(self, encoder):
        ranking = MatryoshkaLoss(encoder.train(), MultipleNegativesRankingLoss(encoder), [32, 16])
        loss = build(encoder, losses.WeightedSumLoss(encoder, {"ranking": (ranking, 1, [0, 0])}))
        with pytest.raises(ValueError, match="stands in a sum .build this loss round that member"):
            loss([encoder.preprocess(SENTENCES)], None)

    def test_a_base_without_gradients_is_refused(self, encoder):
        class Frozen(nn.Module):
            def __init__(self):
                super().__init__()
                self.model = encoder

            def forward(self, features, labels):
                with torch.no_grad():
                    return self.model(features[0])["sentence_embedding"].sum()

        with pytest.raises(ValueError, match="with gradients, Frozen did without"):
            build(encoder.train(), Frozen())([encoder.preprocess(SENTENCES)])

    def test_a_base_that_reads_another_column_is_refused(self, encoder):
        base = losses.WeightedSumLoss(encoder.train(), {"simcse": (MultipleNegativesRankingLoss(encoder), 1, [1, 1])})
        features = [encoder.preprocess(SENTENCES), encoder.preprocess(SENTENCES[::-1])]
        with pytest.raises(
            ValueError, match="must embed the first column through its model, which WeightedSumLoss did not: its columns"
        ):
            build(encoder, base)(features)

    def test_the_anchor_may_come_later(self, encoder):
        """Its pass is found where the base makes it, also in later batches."""
        ranking = MultipleNegativesRankingLoss(encoder)
        loss = build(encoder.eval(), losses.WeightedSumLoss(encoder, {"simcse": (ranking, 1, [1, 0])}), filtering_weight=0)
        other = encoder.preprocess(SENTENCES[::-1])
        for sentences in (SENTENCES, SENTENCES[:5]):
            features = encoder.preprocess(sentences)
            value = loss([features, encoder.preprocess(sentences[::-1])])["adversarial"]
            expected = build(encoder, filtering_weight=0)
            expected.load_state_dict(loss.state_dict(), strict=False)
            assert value.item() == pytest.approx(expected([features])["adversarial"].item(), rel=1e-5)
        assert len(other["input_ids"]) == len(SENTENCES)


class TestBadInput:
    @pytest.mark.parametrize(
        ("keywords", "message"),
        [
            ({"adversarial_weight": math.nan}, "adversarial_weight must be a finite number of at least 0, got nan"),
            ({"warmup_steps": math.inf}, "warmup_steps must be a number of updates or a share .* got inf"),
            ({"adversarial_weight": -1}, "adversarial_weight must be a finite number of at least 0, got -1"),
            ({"filtering_weight": -0.1}, "filtering_weight must be a finite number of at least 0, got -0.1"),
            ({"masking_ratio": 0}, r"masking_ratio must be in \(0, 1\], got 0"),
            ({"warmup_steps": -1}, "warmup_steps must be a number of updates or a share .* got -1"),
            ({"warmup_steps": 1.5}, "warmup_steps must be a number of updates or a share .* got 1.5"),
            ({"reversal_strength": -1}, "reversal_strength must be a finite number of at least 0, got -1"),
            ({"low_frequency_share": 1.0}, "share must be in"),
            ({"low_frequency_by": "count"}, "low_frequency_by must be 'mass' or 'types', got 'count'"),
        ],
    )
    def test_values(self, encoder, keywords, message):
        with pytest.raises(ValueError, match=message):
            build(encoder, **keywords)

    def test_another_vocabulary(self, encoder):
        with pytest.raises(
            ValueError, match=r"must be of the encoder's vocabulary \(1,\d+ tokens\), got .* \(30,522 tokens\)"
        ):
            losses.SLTFAILoss(encoder, simcse(encoder), frequencies=data.TokenFrequencies.bookcorpus())

    def test_a_base_that_reads_the_sentences_by_a_copy(self, encoder):
        """Contrastive tension embeds its first column with ``model1``."""
        columns = [encoder.preprocess(texts) for texts in (SENTENCES, SENTENCES[::-1])]
        with pytest.raises(ValueError, match="must embed the first column .* or this column by a copy of the model"):
            build(encoder, ContrastiveTensionLoss(encoder))(columns, torch.zeros(8))

    def test_another_model(self, encoder, tiny_encoder):
        with pytest.raises(ValueError, match="loss must be a loss around the same model, got WeightedSumLoss"):
            build(encoder, simcse(tiny_encoder()))

    def test_no_mask_token(self, encoder):
        frequencies = counts(encoder)
        encoder.tokenizer.mask_token = None
        with pytest.raises(ValueError, match="no mask token .* pass filtering_weight=0"):
            losses.SLTFAILoss(encoder, simcse(encoder), frequencies=frequencies)
        losses.SLTFAILoss(encoder, simcse(encoder), frequencies=frequencies, filtering_weight=0)

    def test_no_column(self, encoder):
        with pytest.raises(ValueError, match="reads the first text column, got none"):
            build(encoder)([])


class TestPrecision:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_losses_stay_float32(self, encoder, dtype):
        loss = build(encoder.train())
        loss.model.to(dtype)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.float32):
            terms = loss([encoder.preprocess(SENTENCES)])
        sum(terms.values()).backward()
        assert terms["adversarial"].dtype == terms["filtering"].dtype == torch.float32
        assert all(torch.isfinite(term) for term in terms.values())


def test_config_shows_every_setting(encoder):
    signature = dict(losses.SLTFAILoss.__init__.__kwdefaults__)
    frequencies = data.TokenFrequencies.from_corpus(project_text(), encoder.tokenizer, source="our text")
    config = losses.SLTFAILoss(encoder, losses.ConSERTLoss(encoder), frequencies=frequencies).get_config_dict()
    base = {"class": "ConSERTLoss", "settings": losses.ConSERTLoss(encoder).get_config_dict()}
    assert config == signature | {"frequencies": f"our text [{frequencies.mark}]", "loss": base}


@pytest.mark.slow
class TestBehaviour:
    """MiniLM's first two layers, real weights, on the project's own sentences; the last 200 are not trained on.

    Its 30,522 word embeddings stay as they are: to update them would be half of the time.
    """

    @staticmethod
    def train(*, discriminators=1e-3, steps=16, **keywords):
        torch.manual_seed(0)
        model = recipes.offline_encoder(num_layers=2, max_seq_length=24, device="cpu").train()
        text = project_text()
        given = {"warmup_steps": 0, "low_frequency_by": "mass", "balance": None} | keywords
        loss = losses.SLTFAILoss(model, simcse(model), frequencies=data.TokenFrequencies.bookcorpus(), **given)
        loss.state_is_kept = True
        own = [parameter for name, parameter in loss.named_parameters() if not name.startswith("model.")]
        model.transformers_model.get_input_embeddings().requires_grad_(False)
        groups = [{"params": model.parameters(), "lr": 2e-4}, {"params": own, "lr": discriminators}]
        optimizer = torch.optim.AdamW(groups, fused=True)
        for start in range(0, 16 * steps, 16):
            sum(loss([model.preprocess(text[start : start + 16])]).values()).backward()
            optimizer.step()
            optimizer.zero_grad()
        return model.eval(), loss, text[-200:]

    @pytest.fixture(scope="class")
    @classmethod
    def without(cls):
        """Trained with a discriminator that learns alone: nothing of its gradient reaches the encoder."""
        return cls.train(filtering_weight=0, reversal_strength=0)

    @torch.no_grad()
    def probed_errors(self, model, loss, text):
        """Share of tokens of unseen sentences whose frequency a freshly trained linear probe gets wrong."""
        features = model.preprocess(text)
        content = loss.tokens.content(features)
        x = model(dict(features))["token_embeddings"][content].numpy()
        y = loss.low_frequency[features["input_ids"]][content].numpy()
        half = len(x) // 2
        return 1 - LogisticRegression(max_iter=200).fit(x[:half], y[:half]).score(x[half:], y[half:])

    @torch.no_grad()
    def cosine_without_rare_words(self, model, loss, text):
        features = model.preprocess(text)
        rare = loss.low_frequency[features["input_ids"]].bool() & loss.tokens.content(features)
        mask = model.tokenizer.mask_token_id
        without = {**features, "input_ids": features["input_ids"].masked_fill(rare, mask)}
        vectors = [model(dict(part))["sentence_embedding"] for part in (features, without)]
        return torch.cosine_similarity(*vectors).mean().item()

    def test_a_fresh_probe_finds_less_of_the_frequency(self, without):
        with_it = self.train(discriminators=1e-2, filtering_weight=0)
        assert self.probed_errors(*with_it) > 2 * self.probed_errors(*without)  # .026 against .009

    def test_a_sentence_without_its_rare_words_is_further_away(self, without):
        with_it = self.train(adversarial_weight=0)
        cosines = [self.cosine_without_rare_words(*trained) for trained in (with_it, without)]
        assert cosines[0] < cosines[1] - 0.1  # -.33 against .31


class TestBalance:
    """The default: each objective's gradient is bounded by the base loss's where it reads the encoder."""

    @pytest.mark.parametrize("name", ["simcse", "consert"])
    @pytest.mark.parametrize("objective", ["adversarial", "filtering"])
    def test_is_bounded_at_what_the_objective_reads(self, encoder, name, objective):
        other = {"adversarial": "filtering", "filtering": "adversarial"}[objective]
        base = BASES[name](encoder)
        loss = build(encoder, base, balance=0.01, **{f"{other}_weight": 0.0})
        encoder.train()
        features = encoder.preprocess(SENTENCES)

        def gradient(balance, term):
            loss.balance = balance
            torch.manual_seed(3)
            terms = loss([dict(features)])
            values = [value for key, value in terms.items() if key.startswith("base")] if term == "base" else [terms[term]]
            encoder.zero_grad()
            sum(values).backward()
            return encoder.transformers_model.encoder.layer[0].output.dense.weight.grad.clone()

        unbounded, bounded = gradient(None, objective), gradient(0.01, objective)
        factor = loss.diagnostics[f"{objective}_balance_factor"].item()
        assert 0 < factor < 1
        assert torch.allclose(bounded, factor * unbounded, rtol=1e-3, atol=1e-4 * bounded.abs().max())
        assert torch.equal(gradient(None, "base"), gradient(0.01, "base"))

    def test_the_discriminators_learn_at_full_speed(self, encoder):
        gradients = []
        for balance in (None, 0.001):
            torch.manual_seed(0)
            loss = build(encoder, balance=balance)
            encoder.train()
            torch.manual_seed(3)
            sum(loss([encoder.preprocess(SENTENCES)]).values()).backward()
            gradients.append(loss.completeness_discriminator.outer.weight.grad.clone())
        assert torch.allclose(*gradients, rtol=1e-4)

    def factors(self, encoder, round_it, seed=3):
        """The bounds of both objectives, of the loss that ``round_it`` puts into another or round another."""
        torch.manual_seed(0)
        loss = build(encoder, losses.ConSERTLoss(encoder), balance=0.1)
        outer = round_it(loss)
        encoder.train()
        torch.manual_seed(seed)
        terms = outer([encoder.preprocess(SENTENCES)])
        sum(terms.values()).backward()
        return {name: loss.diagnostics[f"{name}_balance_factor"].item() for name in ("adversarial", "filtering")}

    def test_in_a_balanced_sum(self, encoder):
        """The sum's taps, one for each view, and for tokens and vectors, do not hide the base loss's gradient."""

        def in_a_sum(loss):
            words = losses.BagOfWordsLoss(encoder, frequencies=counts(encoder), mlm_head="fresh")
            return losses.WeightedSumLoss(encoder, {"slt-fai": (loss, 1.0), "words": (words, 1.0)}, balance=0.5)

        alone = self.factors(encoder, lambda loss: loss)
        assert alone == pytest.approx(self.factors(encoder, in_a_sum), rel=1e-4)
        assert min(alone.values()) > 0

    def on_pairs(self, encoder, outer=lambda loss: loss):
        """What balance says of both objectives round a loss on pairs of two lengths, inside what ``outer`` makes of it."""
        torch.manual_seed(0)
        loss = build(encoder, losses.ArcCSELoss(encoder, triplet_weight=0), balance=0.1)
        encoder.train()
        with dropout_off(encoder):
            whole = outer(loss)
            torch.manual_seed(3)
            whole(columns_for("on pairs", encoder.preprocess(SENTENCES)), None)
        return {key: value.item() for key, value in loss.diagnostics.items() if "balance" in key}

    def test_the_same_where_columns_pass_one_by_one(self, encoder):
        """Whether the host merges them is a matter of speed: an objective reads the first column's rows."""
        merged = self.on_pairs(encoder)
        with column_merging_disabled():
            assert self.on_pairs(encoder) == pytest.approx(merged, rel=1e-3)
        assert 0 < merged["adversarial_balance_factor"] < 1

    @pytest.mark.parametrize("share", [True, False])
    def test_the_same_in_a_sum(self, encoder, share):
        """With shared passes the first column's may be another loss's, without the further columns."""

        def in_a_sum(loss):
            words = losses.BagOfWordsLoss(encoder, frequencies=counts(encoder), mlm_head="fresh")
            members = {"words": (words, 1.0, [0]), "slt-fai": (loss, 1.0, [0, 1])}
            return losses.WeightedSumLoss(encoder, members, share_passes=share)

        assert self.on_pairs(encoder, in_a_sum) == pytest.approx(self.on_pairs(encoder), rel=1e-3)

    def test_behind_a_wrapper_that_gives_copies(self, encoder):
        """As DistributedDataParallel and automatic mixed precision do: then tokens are no longer on the way to the vectors."""

        class Copies(nn.Module):
            def __init__(self):
                super().__init__()
                self.module = encoder

            def forward(self, features):
                output = encoder(features)
                return {key: value.clone() if torch.is_tensor(value) else value for key, value in output.items()}

        def wrapped(loss):
            loss.model = loss.loss.model = Copies()
            return loss

        alone = self.factors(encoder, lambda loss: loss)
        assert alone == pytest.approx(self.factors(encoder, wrapped), rel=1e-4)

    def test_a_base_loss_seen_by_hooks_in_a_balanced_sum(self, encoder):
        class Own(nn.Module):
            def __init__(self):
                super().__init__()
                self.model = encoder

            def forward(self, columns, labels=None):
                one, other = (self.model(dict(columns[0]))["sentence_embedding"] for _ in range(2))
                return 1 - torch.cosine_similarity(one, other).mean()

        torch.manual_seed(0)
        loss = build(encoder, Own(), balance=0.1)
        words = losses.BagOfWordsLoss(encoder, frequencies=counts(encoder), mlm_head="fresh")
        outer = losses.WeightedSumLoss(encoder, {"slt-fai": (loss, 1.0), "words": (words, 1.0)}, balance=0.5)
        encoder.train()
        outer([encoder.preprocess(SENTENCES)])
        assert loss.diagnostics["adversarial_balance_factor"] > 0

    def test_a_base_loss_without_a_gradient_where_the_objectives_read(self, encoder):
        class OneSided(nn.Module):
            def __init__(self):
                super().__init__()
                self.model = encoder

            def forward(self, columns, labels=None):
                target, guess = (self.model(dict(columns[0]))["sentence_embedding"] for _ in range(2))
                return 1 - torch.cosine_similarity(target.detach(), guess).mean()

        loss = build(encoder.train(), OneSided(), balance=0.1)
        with pytest.raises(ValueError, match="got one that has none where the other reads .*: use balance=None"):
            loss([encoder.preprocess(SENTENCES)])

    @pytest.mark.parametrize("base", [None, losses.ConSERTLoss], ids=["simcse", "consert"])
    def test_a_frozen_transformer_under_a_trained_layer(self, encoder, base):
        """The tokens have no gradient, the sentence vectors have: there is one objective to bound."""
        encoder[0].requires_grad_(False)
        encoder.append(Dense(32, 32))
        loss = build(encoder, base and base(encoder), balance=0.1)
        encoder.train()
        terms = loss([encoder.preprocess(SENTENCES)])
        sum(terms.values()).backward()
        assert terms["adversarial"] > 0
        assert "adversarial_balance_factor" not in loss.diagnostics
        assert loss.diagnostics["filtering_balance_factor"] > 0
        assert encoder[-1].linear.weight.grad.norm() > 0

    def test_a_compiled_encoder(self, encoder):
        """Refused before the warm-up: tokens and sentence vectors come out side by side, and the base reads the vectors."""
        loss = build(encoder, balance=0.1, warmup_steps=2)
        encoder.train()
        loss.model = loss.loss.model = torch.compile(encoder, backend="aot_eager")
        for part in loss.loss.losses.values():
            part.model = loss.model
        with pytest.raises(ValueError, match="train without torch_compile, or with balance=None"):
            loss([encoder.preprocess(SENTENCES)])
        loss.adversarial_weight, loss.warmup_steps = 0, 0  # the vectors' gradient is there
        assert loss([encoder.preprocess(SENTENCES)])["filtering"] > 0
        assert loss.diagnostics["filtering_balance_factor"] > 0

    def test_round_a_balanced_sum(self, encoder):
        """Both measure at the same outputs: the inner taps do not hide them from the outer bound."""
        frequencies = counts(encoder)
        words = losses.BagOfWordsLoss(encoder, frequencies=frequencies, mlm_head="fresh")
        ranking = MultipleNegativesRankingLoss(encoder)
        base = losses.WeightedSumLoss(encoder, {"simcse": (ranking, 1.0, [0, 0]), "words": (words, 1.0, [0])}, balance=1.0)
        loss = build(encoder, base, balance=0.1)
        encoder.train()
        sum(loss([encoder.preprocess(SENTENCES)]).values()).backward()
        assert loss.diagnostics["adversarial_balance_factor"] > 0
        assert loss.diagnostics["filtering_balance_factor"] > 0


def test_the_weighted_terms_are_bounded_where_they_read(tiny_encoder):
    """At tokens of the first view, and at vectors of both passes: this share of the base loss's norm in that view's rows."""
    encoder, found = tiny_encoder("bert", "mean").train(), []
    torch.manual_seed(0)
    keywords = {"warmup_steps": 0, "low_frequency_by": "mass", "balance": 0.001}
    loss = losses.SLTFAILoss(
        encoder,
        losses.ConSERTLoss(encoder),
        frequencies=project_counts(encoder.tokenizer),
        adversarial_weight=2.0,
        filtering_weight=4.0,
        **keywords,
    )
    loss.state_is_kept = True
    encoder.register_forward_hook(lambda module, arguments, output: found.append(output))
    terms = loss([encoder.preprocess(SENTENCES)])
    outputs = {"adversarial": [found[0]["token_embeddings"]], "filtering": [one["sentence_embedding"] for one in found]}
    for name, read in outputs.items():
        (main,) = torch.autograd.grad(terms["base/nt_xent"], read[:1], retain_graph=True)
        main = main[: len(SENTENCES)]  # the second view's are in the same pass, and no objective reads them
        own = torch.autograd.grad(terms[name], read, retain_graph=True)
        assert torch.cat(own).norm().item() == pytest.approx(0.001 * main.norm().item(), rel=1e-3), name
