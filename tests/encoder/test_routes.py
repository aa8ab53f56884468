import copy

import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer.modules import Dense, Pooling

from sbert_plugins.encoder import require_equal_routes, require_one_encoder


def test_routes_of_their_own_encoders_are_refused_by_name(tiny_encoder):
    query, document = tiny_encoder(), tiny_encoder()
    model = SentenceTransformer(modules=[Router.for_query_document(list(query), list(document))], device="cpu")
    with pytest.raises(ValueError, match="ThisLoss looks into one encoder.*'query' and 'document'.*sub_modules"):
        require_one_encoder(model, "ThisLoss")
    way_out = SentenceTransformer(modules=[*model[0].sub_modules["document"], *list(model)[1:]], device="cpu")
    require_one_encoder(way_out, "ThisLoss")
    assert way_out[0] is document[0]


def test_routes_that_share_one_are_taken(tiny_encoder):
    shared = tiny_encoder()
    wrapped = copy.copy(shared[0])  # two wrappers, say of two lengths, round one transformer
    routes = Router.for_query_document(list(shared), [wrapped, Pooling(shared.get_embedding_dimension(), "mean")])
    require_one_encoder(SentenceTransformer(modules=[routes], device="cpu"), "ThisLoss")
    require_one_encoder(shared, "ThisLoss")


def test_routes_with_weights_of_their_own_are_not_equal(tiny_encoder):
    """One transformer, and a layer behind it for each: only that of the route which is run would learn."""
    shared = tiny_encoder()
    last = [Dense(32, 32), Dense(32, 32)]
    routes = Router.for_query_document([*shared, last[0]], [*shared, last[1]])
    model = SentenceTransformer(modules=[routes], device="cpu")
    require_one_encoder(model, "ThisLoss")
    with pytest.raises(
        ValueError, match="ThisLoss trains one route, got a model with weights to train of each of 'query' and"
    ):
        require_equal_routes(model, "ThisLoss", "why")
    for layer in last:
        layer.requires_grad_(False)
    require_equal_routes(model, "ThisLoss", "why")
