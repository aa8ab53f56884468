import pytest

from sbert_plugins import recipes
from sbert_plugins.recipes import keywords


class TestRead:
    @pytest.mark.parametrize("text", ["false", "False", "0", "no"])
    def test_what_says_no_is_false(self, text):
        assert recipes.read_keywords("paser", [f"signed={text}"]) == {"signed": False}

    @pytest.mark.parametrize("text", ["true", "True", "1", "yes"])
    def test_what_says_yes_is_true(self, text):
        assert recipes.read_keywords("paser", [f"signed={text}"]) == {"signed": True}

    @pytest.mark.parametrize(
        ("method", "pair", "value"),
        [
            ("arccse", "min_words=5", 5),
            ("arccse", "temperature=1e-1", 0.1),
            ("paser", "decoder_feedforward=none", None),
            ("paser", "decoder_feedforward=64", 64),
            ("paser", "mlm_head=fresh", "fresh"),
            ("paser", "token_weights=None", None),
            ("denosent", "reconstruct=paraphrase", "paraphrase"),
            # Of the function that builds the loss, and of the loss that the function passes the rest to.
            ("slt-fai", "temperature=0.1", 0.1),
            ("slt-fai", "backbone=consert", "consert"),
            ("slt-fai", "frequencies=counts.npz", "counts.npz"),
            ("slt-fai", "masking_ratio=0.5", 0.5),
            ("paser-supervised", "alpha=0.3", 0.3),
        ],
    )
    def test_by_the_signature(self, method, pair, value):
        (read,) = recipes.read_keywords(method, [pair]).values()
        assert read == value
        assert type(read) is type(value)

    @pytest.mark.parametrize(
        ("text", "value"), [("a,b", ["a", "b"]), ("a", ["a"]), ('["a", "b"]', ["a", "b"]), ("", []), ("[]", [])]
    )
    def test_sequences_of_words(self, text, value, monkeypatch):
        monkeypatch.setattr(keywords, "known_keywords", lambda method: {"first_view": ("Sequence[str]",)})
        assert recipes.read_keywords("arccse", [f"first_view={text}"]) == {"first_view": value}

    @pytest.mark.parametrize(
        ("method", "pairs", "message"),
        [
            ("arccse", ["projection_head=maybe"], "projection_head takes true or false, got 'maybe'"),
            ("arccse", ["min_words=2.5"], "min_words takes a whole number, got '2.5'"),
            ("arccse", ["temperature=nan"], "temperature takes a finite number, got 'nan'"),
            ("arccse", ["temperature=true"], "temperature takes a finite number, got 'true'"),
            ("paser", ["decoder_feedforward=x"], "decoder_feedforward takes none or a whole number, got 'x'"),
            ("slt-fai", ["loss=1"], "keywords of slt-fai's loss must be among backbone, frequencies, .*; got loss"),
            (
                "paser-supervised",
                ["mlm_weight=1"],
                "must be among alpha, temperature, token_weights, .*; got mlm_weight",
            ),
            ("arccse", ["model=1"], "must be among margin_degrees, .*; got model"),
            ("arccse", ["margin_degrees"], "--loss takes KEY=VALUE, got 'margin_degrees'"),
            ("arccse", ["min_words=1", "min_words=2"], "must name a keyword once, got min_words twice"),
        ],
    )
    def test_anything_else_is_refused(self, method, pairs, message):
        with pytest.raises(ValueError, match=message):
            recipes.read_keywords(method, pairs)


class TestCheck:
    """The same for values from Python."""

    @pytest.mark.parametrize(
        ("method", "given", "message"),
        [
            ("arccse", {"projection_head": "maybe"}, "projection_head takes true or false, got 'maybe'"),
            ("arccse", {"temperature": float("inf")}, "temperature takes a finite number, got inf"),
            ("arccse", {"min_words": True}, "min_words takes a whole number, got True"),
            ("arccse", {"margins": 5}, "got margins"),
        ],
    )
    def test_refused_before_the_loss_is_built(self, method, given, message):
        with pytest.raises(ValueError, match=message):
            recipes.build_loss(method, None, **given)

    def test_what_a_reader_gives_is_accepted(self):
        for method, pair in (("paser", "signed=no"), ("slt-fai", "warmup_steps=3"), ("paser", "mlm_head=none")):
            keywords.check_keywords(method, recipes.read_keywords(method, [pair]))


def test_every_type_of_every_loss_is_known():
    """A keyword that takes anything would be read without its signature."""
    anything = {
        (method, name)
        for method in recipes.RECIPES
        for name, types in keywords.known_keywords(method).items()
        if "Any" in types
    }
    weighing = ("recommended", "bag-of-words", "denosent", "paser", "paser-supervised", "slt-fai")
    assert anything == {(method, "frequencies") for method in weighing}  # an object from Python, a path from a command line


@pytest.mark.parametrize(
    ("text", "value"), [("5", 5), ("False", False), ("true", True), ("None", None), ("a b", "a b"), ("[1]", [1]), ("", "")]
)
def test_values_without_a_signature(text, value):
    assert keywords.read_value(text) == value
