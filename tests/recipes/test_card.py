import pytest
from encoders import project_text
from recipe_inputs import anchors, pairs, train
from sentence_transformers import SentenceTransformer

from sbert_plugins import recipes


def card_of(output):
    return (output / "model" / "README.md").read_text(encoding="utf-8")


def test_what_a_card_says(tiny_encoder, tmp_path):
    (tmp_path / "secret-folder").mkdir()
    text = tmp_path / "secret-folder" / "notes.txt"
    text.write_text("\n".join(project_text()[:40]), encoding="utf-8")
    results = train(
        "arccse",
        tiny_encoder(),
        tmp_path / "run",
        evaluators=[pairs("graded")],
        loss_keywords={"temperature": 0.2},
        text=str(text),
    )
    card = card_of(tmp_path / "run")
    (change,) = results["changes"]
    for part in (
        "ArcCSE (Zhang et al., ACL 2022",
        "notes.txt",
        "temperature 0.2 (paper: 0.05)",
        f"| graded, Spearman | {change['before']:.2f} | {change['after']:.2f} |",
        results["verdict"][0],
        "@inproceedings",
    ):
        assert part in card
    assert "secret-folder" not in card


@pytest.mark.parametrize("share", [False, True])
def test_sentences_of_the_text_are_shown_if_they_may_be(share, tiny_encoder, tmp_path):
    train("arccse", tiny_encoder(), tmp_path / "run", share_examples=share)
    card = card_of(tmp_path / "run")
    assert any(sentence in card for sentence in anchors(40)["anchor"]) == share


@pytest.mark.parametrize(
    ("method", "backbone"), [("simcse", None), ("slt-fai", None), ("slt-fai", "consert")]
)
def test_the_base_loss_is_cited(method, backbone, tiny_encoder, tmp_path):
    keywords = {"backbone": backbone} if backbone else {}
    train(method, tiny_encoder(), tmp_path / "run", loss_keywords=keywords)
    card = card_of(tmp_path / "run")
    assert card.count("{gao-etal-2021-simcse,") == (backbone is None)
    assert ("wang-etal-2023-unsupervised" in card) == (method == "slt-fai")
    assert ("yan-etal-2021-consert" in card) == (backbone == "consert")


def test_a_model_in_a_folder_is_not_called_by_somebody_elses_name(tiny_encoder, tmp_path, monkeypatch):
    def ask(name):
        raise AssertionError(f"asked the Hub for {name}")

    monkeypatch.setattr("sentence_transformers.base.model_card.get_model_info", ask)
    folder = tmp_path / "somebody" / "model"
    tiny_encoder().save_pretrained(str(folder))
    train("arccse", SentenceTransformer(str(folder), device="cpu", local_files_only=True), tmp_path / "run")
    card = card_of(tmp_path / "run")
    assert "somebody, cls pooling" in card
    assert "huggingface.co/somebody" not in card


def test_the_offline_model_is_named(tmp_path):
    train("arccse", recipes.offline_encoder(num_layers=1, device="cpu"), tmp_path / "run", max_steps=1)
    card = card_of(tmp_path / "run")
    assert "sentence-transformers/all-MiniLM-L6-v2" in card
    assert "license: apache-2.0" in card
