import json
from dataclasses import replace

import pytest
from datasets import Dataset
from recipe_inputs import anchors, interrupted, quick, texts
from sentence_transformers import SentenceTransformer

from sbert_plugins import data, losses, recipes


class TestPaSeR:
    def test_settings_are_the_papers(self):
        settings = recipes.PASER.settings
        assert (settings.learning_rate, settings.batch_size, settings.epochs) == (3e-5, 64, 5)
        assert (settings.max_seq_length, settings.pooling, settings.eval_steps) == (32, "cls", 125)

    def test_rows_with_synonyms(self, wordnet, tiny_encoder):
        rows, chosen = recipes.paser_rows(anchors(30), tiny_encoder(), seed=1)
        assert chosen == {"extractor": "rake", "top_k": 3, "synonyms": 0.5}
        assert rows.column_names == ["anchor", "masked", "phrase"]
        assert not set(rows["anchor"]) <= set(anchors(30)["anchor"])

    def test_rows_without_wordnet_say_what_that_costs(self, monkeypatch, tiny_encoder, caplog):
        monkeypatch.setattr("nltk.data.path", [])
        rows, chosen = recipes.paser_rows(anchors(30), tiny_encoder(), seed=1)
        assert chosen["synonyms"] is None
        assert "WITHOUT synonyms" in caplog.text
        assert "nltk.download('wordnet')" in caplog.text
        assert set(rows["anchor"]) <= set(anchors(30)["anchor"])

    @pytest.mark.parametrize("synonyms", [0.5, None])
    def test_a_training_goes_on_with_the_columns_that_it_was_begun_with(
        self, wordnet, synonyms, tiny_encoder, tmp_path, monkeypatch
    ):
        """And the record says whether they have synonyms, which WordNet decides."""
        output, how = tmp_path / "run", {"extractor": "rake", "top_k": 3, "synonyms": synonyms}
        given = {"output": output, "settings": quick(max_steps=4, eval_steps=2)}
        with monkeypatch.context() as patched, interrupted(3), pytest.raises(KeyboardInterrupt):
            if synonyms is None:
                patched.setattr("nltk.data.path", [])
            recipes.train("paser", anchors(30), tiny_encoder(), **given)
        assert json.loads((output / "run.json").read_text(encoding="utf-8"))["prepared"] == how
        if synonyms is not None:
            with monkeypatch.context() as patched, pytest.raises(FileNotFoundError, match="WordNet"):
                patched.setattr("nltk.data.path", [])
                recipes.train("paser", anchors(30), tiny_encoder(), **given, resume=True)
        assert recipes.train("paser", anchors(30), tiny_encoder(), **given, resume=True)["prepared"] == how
        card = (output / "model" / "README.md").read_text(encoding="utf-8")
        assert f"`columns`: extractor rake, top_k 3, synonyms {synonyms}" in card

    def test_a_protocol_says_how(self, wordnet, tiny_encoder, tmp_path):
        made = {"extractor": "rake", "top_k": 5, "synonyms": 0.5}
        given = {"settings": quick(max_steps=1, pooling="cls"), "protocol": "paper"}
        results = recipes.train("paser", anchors(30), tiny_encoder(pooling="cls"), output=tmp_path / "run", **given)
        assert (
            results["prepared"] == made == json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))["prepared"]
        )

    def test_seeds_are_all_with_synonyms_or_all_without(self, wordnet, tiny_encoder, tmp_path, monkeypatch):
        given = {"output": tmp_path / "runs", "settings": quick(max_steps=1)}
        recipes.train_seeds("paser", anchors(30), tiny_encoder, seeds=[0], **given)
        monkeypatch.setattr("nltk.data.path", [])
        with pytest.raises(ValueError, match=r"columns with synonyms 0.5 \(now None\).*NLTK_DATA says"):
            recipes.train_seeds("paser", anchors(30), tiny_encoder, seeds=[0, 1], **given)

    def test_its_own_columns_are_taken_as_they_are(self, tiny_encoder, tmp_path):
        model = tiny_encoder()
        rows = data.paser_columns(anchors(30)["anchor"][:], mask_token="<mask>", top_k=1, synonyms=None)
        results = recipes.train("paser", rows, model, output=tmp_path / "run", settings=quick())
        assert (results["rows"], results["columns"], results["prepared"]) == (len(rows), {}, {})

    @pytest.mark.parametrize(("columns", "epochs"), [(("anchor",), 2), (("anchor", "masked", "phrase"), 5)])
    def test_of_ready_columns_each_row_counts_once(self, columns, epochs, tiny_encoder, tmp_path, monkeypatch):
        monkeypatch.setitem(recipes.RECIPES, "paser", replace(recipes.PASER, rows_read=900))
        rows = Dataset.from_dict(dict.fromkeys(columns, anchors(150)["anchor"][:]))
        with interrupted(0), pytest.raises(KeyboardInterrupt):
            recipes.train("paser", rows, tiny_encoder(), output=tmp_path / "run")
        run = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))
        assert run["settings"]["epochs"] == epochs

    def test_supervised_it_reads_no_more_triplets_than_its_protocol(self):
        most = recipes.protocol_of("paser-supervised", "paper")
        cut = recipes.shortened(recipes.PASER_SUPERVISED, recipes.PASER_SUPERVISED.settings, 5_000_000)
        assert cut.epochs * 5_000_000 == pytest.approx(most["epochs"] * most["sentences"])

    def test_supervised_rows_keep_every_triplet(self, tiny_encoder):
        triplets = texts("paser-supervised", 30)
        rows, _ = recipes.paser_supervised_rows(triplets, tiny_encoder(), seed=1)
        assert rows.column_names == ["anchor", "positive", "negative", "masked", "phrase"]
        assert rows.select_columns(triplets.column_names).to_dict() == triplets.to_dict()

    def test_supervised_loss_is_eq_5(self, tiny_encoder):
        loss = recipes.paser_supervised_loss(tiny_encoder(), alpha=0.3, token_weights=None, mlm_head="fresh")
        assert isinstance(loss, losses.WeightedSumLoss)
        assert loss.weights == {"contrastive": 1.0, "paser": 0.3}
        assert loss.columns == {"contrastive": [0, 1, 2], "paser": [0, 3, 4]}
        assert loss.losses["contrastive"].scale == 20
        assert loss.losses["paser"].mlm_weight == 0
        with pytest.raises(ValueError, match="temperature must be"):
            recipes.paser_supervised_loss(tiny_encoder(), temperature=0.0)

    @pytest.mark.parametrize("method", ["paser", "paser-supervised"])
    def test_reconstructions(self, method, tiny_encoder, tmp_path):
        recipes.train(method, texts(method, 20), tiny_encoder(), output=tmp_path / "run", settings=quick(max_steps=1))
        model = SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu")
        table = recipes.reconstructions(tmp_path / "run", model, anchors(20), limit=5)
        assert len(table) == 5
        assert all(set(row) == {"masked", "phrase", "written"} and "<mask>" in row["masked"] for row in table)

    def test_reconstructions_of_another_method(self, tiny_encoder, tmp_path):
        recipes.train("arccse", anchors(20), tiny_encoder(), output=tmp_path / "run", settings=quick(max_steps=1))
        model = SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu")
        with pytest.raises(ValueError, match="must be a training of paser or paser-supervised, got one of arccse"):
            recipes.reconstructions(tmp_path / "run", model, anchors(5))
        with pytest.raises(ValueError, match="must be the output of a training"):
            recipes.reconstructions(tmp_path, model, anchors(5))
