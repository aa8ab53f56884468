import numpy as np
import pytest
import torch
from evaluation_inputs import CountingEncoder, write_rows
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import evaluation as host

from sbert_plugins.evaluation import RerankingEvaluator, measure, own_reranking

ROWS = [
    ("a cat", "two dogs in the rain", 0),
    ("a cat", "one cat sleeps", 1),
    ("rain", "it is raining again", 2),
    ("a cat", "prices fell", 0),
    ("rain", "a small church", 0),
    ("rain", "rain in the village", 1),
    ("nothing relevant", "prices fell", 0),
]


class At(SentenceTransformer):
    """A model that puts each text at an angle of the plane, and has another prompt for queries."""

    def __init__(self, degrees):
        super().__init__(
            modules=[torch.nn.Identity()], device="cpu", prompts={"query": "q: ", "document": ""}
        )
        self.degrees = degrees

    def encode(self, texts, prompt_name=None, **options):
        angles = torch.deg2rad(torch.tensor([self.degrees[self.prompts[prompt_name] + t] for t in texts]))
        return torch.stack([angles.cos(), angles.sin()], dim=1)


def test_by_hand():
    """First query: the relevant candidate is second, 1 / log2(3). Second query: first of two."""
    model = At({"q: x": 0.0, "a": 10.0, "b": 20.0, "q: y": 90.0, "c": 80.0, "d": 0.0})
    samples = [
        {"query": "x", "positive": ["b"], "negative": ["a"]},
        {"query": "y", "positive": ["c"], "negative": ["d"]},
    ]
    evaluator = RerankingEvaluator(samples, name="mine", write_csv=False)
    metrics = evaluator(model)
    second = 100 / np.log2(3)
    assert evaluator.items == pytest.approx([second, 100])
    assert metrics == pytest.approx(
        {"mine_map": 75, "mine_mrr@10": 75, "mine_ndcg@10": (second + 100) / 2}, abs=1e-9
    )


def test_a_file_and_the_scores_of_sentence_transformers(tiny_encoder, tmp_path):
    counted = CountingEncoder(tiny_encoder(pooling="mean"))
    evaluator = own_reranking(write_rows(tmp_path / "mine.tsv", *ROWS))
    score = measure(counted.model, [evaluator])["mine"]
    assert max(counted.times.values()) == 1
    expected = host.RerankingEvaluator(
        [
            {"query": "a cat", "positive": [ROWS[1][1]], "negative": [ROWS[0][1], ROWS[3][1]]},
            {"query": "rain", "positive": [ROWS[2][1], ROWS[5][1]], "negative": [ROWS[4][1]]},
        ],
        write_csv=False,
    )(tiny_encoder(pooling="mean"))
    assert score.values == pytest.approx({"nDCG@10": 100 * expected["ndcg@10"]})
    assert score.items.mean() == pytest.approx(score.value)
    assert (score.labels, score.noun) == (2, "queries")


def test_the_similarity_of_the_model(tiny_encoder, tmp_path):
    model = tiny_encoder()
    model.similarity_fn_name = "dot"
    evaluator = own_reranking(write_rows(tmp_path / "mine.tsv", *ROWS))
    evaluator(model)
    assert evaluator.similarity == "dot"
    vectors = torch.tensor([[3.0, 4.0]])
    assert evaluator.similarity_fct(vectors, vectors).item() == 25


def test_bad_files(tmp_path):
    with pytest.raises(ValueError, match=r"mine\.tsv, line 1"):
        own_reranking(write_rows(tmp_path / "mine.tsv", ("query", "candidate", "label")))
    with pytest.raises(ValueError, match="irrelevant"):
        own_reranking(write_rows(tmp_path / "mine.tsv", ROWS[1]))
