import pytest
import torch
from encoders import SENTENCES
from sentence_transformers.sentence_transformer.modules import WordWeights

from sbert_plugins.encoder import VIEWS, Encoder, GradientTap, MemberEncoder, SharedPasses, TokenRoles, View, dropout_off


@pytest.fixture
def model(tiny_encoder):
    return tiny_encoder(pooling="mean").train()


@pytest.fixture
def made(model):
    """The number of rows of each pass that was really made."""
    rows = []
    model[0].register_forward_hook(lambda module, arguments, output: rows.append(len(output["token_embeddings"])))
    return rows


def plain(model, features):
    return model(dict(features))["sentence_embedding"]


class TestEncoder:
    def test_columns_pass_in_one_forward_and_stay_as_they_are(self, model, made):
        """They differ in width: the merged pass is as wide as the wider one."""
        columns = [model.preprocess(SENTENCES), model.preprocess([text[:12] for text in SENTENCES])]
        before = [dict(column) for column in columns]
        with dropout_off(model):
            first, second = Encoder(model)(columns)
            assert made == [2 * len(SENTENCES)]
            for one, column in zip((first, second), columns, strict=True):
                torch.testing.assert_close(one.vectors, plain(model, column))
                torch.testing.assert_close(one.attended[:, : column["input_ids"].shape[1]], column["attention_mask"])
                assert one.tokens.shape[:2] == (len(SENTENCES), columns[0]["input_ids"].shape[1])
        assert not first.dropout
        assert [set(column) for column in columns] == [set(column) for column in before]

    def test_one_column_twice_is_two_dropout_views(self, model):
        column = model.preprocess(SENTENCES)
        first, second = Encoder(model)([column, column])
        assert not torch.equal(first.vectors, second.vectors)
        assert first.dropout

    def test_columns_that_do_not_merge(self, model, made):
        """Of other keys, of other dropout."""
        column = model.preprocess(SENTENCES)
        passes = Encoder(model)([column, {**column, "extra": 1}])
        assert made == [len(SENTENCES)] * 2
        passes = Encoder(model)([column, column], dropout=[False, True])
        assert made == [len(SENTENCES)] * 4
        assert [one.dropout for one in passes] == [False, True]
        with dropout_off(model):
            torch.testing.assert_close(passes[0].vectors, plain(model, column))

    def test_views(self, model, made):
        """Each column is seen in its own; whoever sees the pass from outside is told."""
        column, told = model.preprocess(SENTENCES), []
        model.register_forward_hook(lambda module, arguments, output: told.append(output[VIEWS]))
        content = TokenRoles(model.tokenizer).content(column)
        views = [View([part], content) for part in ("token_shuffling", "token_cutoff")]
        both = Encoder(model)([column, column], views=views, dropout=False)
        assert made == [2 * len(SENTENCES)]
        assert told == [tuple(views)]
        assert [one.view for one in both] == views
        for one, view in zip(both, views, strict=True):
            (alone,) = Encoder(model)([column], views=[view], dropout=False)
            torch.testing.assert_close(one.vectors, alone.vectors)

    @pytest.mark.parametrize("characters", [12, 1000])
    def test_views_of_two_columns_do_not_merge(self, model, made, characters):
        """Whatever their widths, which differ from process to process: those would wait for each other."""
        columns = [model.preprocess(SENTENCES), model.preprocess([text[:characters] for text in SENTENCES])]
        roles = TokenRoles(model.tokenizer)
        views = [View(["token_shuffling"], roles.content(column)) for column in columns]
        Encoder(model)(columns, views=views, dropout=False)
        assert made == [len(SENTENCES)] * 2

    def test_tokens_are_those_of_the_first_module(self, model):
        """Here a later one sets them all to 0."""
        weights = WordWeights([str(i) for i in range(len(model.tokenizer))], {}, unknown_word_weight=0.0)
        model.insert(1, weights)
        (kept,), (at_the_end,) = (Encoder(model)([model.preprocess(SENTENCES)], tokens=tokens) for tokens in (True, False))
        assert kept.tokens.abs().sum() > 0
        assert at_the_end.tokens.abs().sum() == 0

    def test_the_first_pass_is_remembered(self, model):
        column, other = model.preprocess(SENTENCES), model.preprocess(SENTENCES)
        encode = Encoder(model)
        first, _ = encode([column, column])
        encode([column])
        assert encode.over(column)[0] is first
        assert encode.over(other) == []  # equal, not the same


class TestMembers:
    def test_the_same_pass_is_made_once(self, model, made):
        column, encode, shared = model.preprocess(SENTENCES), Encoder(model), SharedPasses()
        found = [MemberEncoder(encode, shared=shared)([column, column]) for _ in range(3)]
        assert made == [2 * len(SENTENCES)]
        assert found[0][0] is found[1][0] is found[2][0]
        assert found[0][1] is found[1][1]
        assert not torch.equal(found[0][0].vectors, found[0][1].vectors)  # two passes of one loss are two dropout views

    def test_in_any_order(self, model, made):
        encode, shared = Encoder(model), SharedPasses()
        columns = [model.preprocess(SENTENCES), model.preprocess(SENTENCES[::-1])]
        first, second = (MemberEncoder(encode, shared=shared)(each) for each in (columns, columns[::-1]))
        assert made == [2 * len(SENTENCES)]
        assert first == second[::-1]

    def test_only_what_is_missing_is_made(self, model, made):
        """One at a time, or in one forward with what else is missing."""
        encode, shared = Encoder(model), SharedPasses()
        column, other, third = (model.preprocess(SENTENCES) for _ in range(3))
        (one,) = MemberEncoder(encode, shared=shared)([column])
        found = MemberEncoder(encode, shared=shared)([other, column, third, column])
        assert made == [len(SENTENCES), 3 * len(SENTENCES)]
        assert found[1] is one
        alone = MemberEncoder(encode, shared=shared)
        assert [alone([each])[0] for each in (column, other, third, column)] == [one, found[0], found[2], found[3]]

    def test_what_differs_is_made_anew(self, model, made):
        column, encode, shared = model.preprocess(SENTENCES), Encoder(model), SharedPasses()
        view = View(["token_cutoff"], TokenRoles(model.tokenizer).content(column))
        for _ in range(2):
            member = MemberEncoder(encode, shared=shared)
            member([column])
            member([column], dropout=False)
            with torch.no_grad():
                assert not member([column])[0].vectors.requires_grad
            assert len(made) == 3  # the second member finds all three
            member([column], views=[view], dropout=False)
            assert len(made) == 4
            made.pop()

    def test_outputs_are_read_through_the_tap(self, model):
        column, tap = model.preprocess(SENTENCES), GradientTap()
        encode = Encoder(model)
        (one,) = MemberEncoder(encode, tap=tap)([column], tokens=True)
        tap.factor = torch.tensor(0.5)
        raw = encode.over(column)[0]
        assert torch.equal(one.vectors, raw.vectors)
        (seen,) = torch.autograd.grad(one.vectors.sum(), raw.all_vectors, retain_graph=True)
        assert torch.equal(seen, torch.full_like(seen, 0.5))
        (seen,) = torch.autograd.grad(one.tokens.sum(), raw.all_tokens)
        assert torch.equal(seen, torch.full_like(seen, 0.5))

    def test_a_loss_that_asks_nobody_is_read_through_all_taps(self, model):
        outer, inner = GradientTap(), GradientTap()
        encode = MemberEncoder(MemberEncoder(Encoder(model), tap=outer), tap=inner)
        with encode.seen_from_outside():
            vectors = plain(model, model.preprocess(SENTENCES))
        outer.factor, inner.factor = torch.tensor(0.5), torch.tensor(0.5)
        before = outer.tensors[-1][0]
        (seen,) = torch.autograd.grad(vectors.sum(), before)
        assert torch.equal(seen, torch.full_like(seen, 0.25))
        assert not model._forward_hooks


def test_passes_that_are_seen_otherwise_are_not_shared():
    shared, column = SharedPasses(), {}
    shared.over(column, True).append("a pass")
    assert shared.over(column, False) == []
    with torch.no_grad():
        assert shared.over(column, True) == []
    assert shared.over(column, True) == ["a pass"]
