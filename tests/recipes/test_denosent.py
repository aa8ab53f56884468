from datasets import Dataset
from encoders import SENTENCES, project_text
from recipe_inputs import anchors, quick
from sentence_transformers import SentenceTransformer

from sbert_plugins import recipes
from sbert_plugins.encoder import has_mask_template


def pairs(count):
    text = project_text()
    return Dataset.from_dict({"anchor": text[:count], "paraphrase": text[1 : count + 1]})


def test_settings_are_the_papers_but_for_the_pooling():
    settings = recipes.DENOSENT.settings
    assert (settings.learning_rate, settings.max_seq_length, settings.pooling) == (5e-5, 32, "mean")


def test_a_model_is_given_the_template_once(tiny_encoder, tmp_path):
    """Trained, saved, loaded and trained further: the vectors stay those of the mask, in plain sentence-transformers."""
    model = tiny_encoder()
    model.max_seq_length = 32
    small = {"decoder_layers": 1, "mlm_head": "fresh"}
    for run in ("first", "second"):
        settings = quick(pooling="mask", max_steps=2)
        recipes.train("denosent", pairs(20), model, output=tmp_path / run, settings=settings, loss_keywords=small)
        assert has_mask_template(model)
        assert (len(model), model.max_seq_length) == (3, 36)  # means and its halves, mask, full stop
        assert model[1].emb_layer.weight.unique().tolist() == [0, 1]
        again = SentenceTransformer(str(tmp_path / run / "model"), device="cpu")
        assert (again.encode(SENTENCES) == model.encode(SENTENCES)).all()
        model = again


def test_pooling_of_ones_own(tiny_encoder, tmp_path):
    """The paper's ablation: CLS in place of the template."""
    model = tiny_encoder()
    results = recipes.train("denosent", anchors(20), model, output=tmp_path, settings=quick(pooling="cls", max_steps=1))
    assert not has_mask_template(model)
    assert results["settings"]["pooling"] == "cls"


def test_a_plain_transformer_gets_the_template(tiny_encoder, tmp_path):
    tiny_encoder()[0].model.save_pretrained(tmp_path)
    tiny_encoder().tokenizer.save_pretrained(tmp_path)
    model = recipes.build_encoder(str(tmp_path), pooling="mask", max_seq_length=16, device="cpu")
    assert has_mask_template(model)
    assert model.max_seq_length == 20


def test_the_trained_loss_comes_back(tiny_encoder, tmp_path):
    """With a loss's terms switched off as well."""
    for run, keywords in enumerate(({"denoising_weight": 0}, {"contrastive_weight": 0, "decoder_layers": 1})):
        output = tmp_path / str(run)
        settings = quick(max_steps=1, pooling="mask")
        recipes.train("denosent", pairs(20), tiny_encoder(), output=output, settings=settings, loss_keywords=keywords)
        loss = recipes.load_loss(output, SentenceTransformer(str(output / "model"), device="cpu"))
        assert loss.get_config_dict() | {"mlm_head": None} == loss.get_config_dict() | keywords | {"mlm_head": None}
