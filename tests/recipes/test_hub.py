"""What goes to the Hub, and what keeps it from going there."""

import pytest
from fake_hub import FakeHub
from recipe_inputs import anchors, quick
from sentence_transformers import SentenceTransformer

from sbert_plugins import recipes

ID = "somebody/their-model"


@pytest.fixture
def hub(monkeypatch):
    """The Hub, a token and the network."""
    hub = FakeHub()
    monkeypatch.setattr("huggingface_hub.HfApi", hub)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: "a token")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    return hub


@pytest.fixture(scope="module")
def finished(tiny_encoder, tmp_path_factory):
    """The directory of a finished training, and the vector of a sentence; the network is off."""
    output, model = tmp_path_factory.mktemp("finished") / "run", tiny_encoder()
    recipes.train("arccse", anchors(16), model, output=output, settings=quick(max_steps=1))
    return output, model.encode("It is raining.")


@pytest.mark.parametrize("private", [True, False])
def test_the_plain_model_is_pushed_with_its_card(private, finished, hub, tmp_path):
    output, vector = finished
    address = recipes.push_to_hub(output, ID, private=private)
    assert address == f"https://huggingface.co/{ID}"
    (pushed,) = hub.repositories.values()
    assert pushed.private is private
    assert set(pushed.files) - {".gitattributes"} == {
        str(path.relative_to(output / "model")) for path in (output / "model").rglob("*") if path.is_file()
    }
    assert f'SentenceTransformer("{ID}")'.encode() in pushed.files["README.md"]
    assert b"sentence_transformers_model_id" not in pushed.files["README.md"]
    for name, content in pushed.files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    assert (SentenceTransformer(str(tmp_path), device="cpu").encode("It is raining.") == vector).all()


def test_a_second_push_loads_what_it_pushed(finished, hub):
    output, _ = finished
    for name in ("me/first", "me/second"):
        recipes.push_to_hub(output, name)
        assert f'model = SentenceTransformer("{name}")'.encode() in hub.repositories[name].files["README.md"]


@pytest.mark.parametrize("name", ["", "model", "a/b/c", "me/", "/model", "me/my model", "me/a--b", "me/.model", "me/x.git"])
def test_an_id_that_the_hub_would_not_take(name, hub):
    with pytest.raises(ValueError, match="the ID of a model on the Hub"):
        recipes.check_hub(name)


def test_no_token(hub, monkeypatch):
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    with pytest.raises(OSError, match=r"needs a token .* hf auth login, or set HF_TOKEN"):
        recipes.prepare_push(ID)
    assert not hub.repositories


def test_no_network(hub, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(OSError, match=r"needs the network, which HF_HUB_OFFLINE switches off"):
        recipes.prepare_push(ID)
    assert not hub.repositories


@pytest.mark.parametrize("private", [True, False])
def test_the_repository_is_made_as_asked_and_once(private, hub):
    recipes.prepare_push(ID, private=private)
    recipes.prepare_push(ID, private=private)  # a second try, after a training that failed
    assert hub.repositories[ID].private is private


@pytest.mark.parametrize(
    ("private", "words"), [(True, "is public, .* make it private"), (False, "is private, .* make it public")]
)
def test_what_is_there_is_seen_by_others_than_was_asked(private, words, hub):
    """A push to a public repository would publish what was to be private."""
    recipes.prepare_push(ID, private=not private)
    with pytest.raises(ValueError, match=words):
        recipes.prepare_push(ID, private=private)


def test_a_repository_that_holds_a_model(finished, hub):
    recipes.push_to_hub(finished[0], ID)
    before = dict(hub.repositories[ID].files)
    with pytest.raises(FileExistsError, match=r"must be new or empty, and holds .*, \.\.\.: name another"):
        recipes.prepare_push(ID)
    assert hub.repositories[ID].files == before


@pytest.mark.parametrize("method", ["create_repo", "model_info"])
def test_no_right_to_write_there(method, hub):
    hub.refuses = {method}
    with pytest.raises(OSError, match=rf"cannot be made on the Hub: HfHubHTTPError: 403 Forbidden: {method}\."):
        recipes.prepare_push(ID)


@pytest.mark.parametrize("method", ["create_repo", "upload_folder"])
@pytest.mark.parametrize("private", [True, False])
def test_a_push_that_fails(method, private, finished, hub):
    hub.refuses = {method}
    with pytest.raises(OSError, match="the model is saved in") as caught:
        recipes.push_to_hub(finished[0], ID, private=private)
    by_hand = f"hf upload {ID} {finished[0] / 'model'}" + " --private" * private
    assert str(caught.value).endswith(f"Push it by hand: {by_hand}")


def test_a_directory_without_a_model(hub, tmp_path):
    with pytest.raises(FileNotFoundError, match="must be the output of a finished training"):
        recipes.push_to_hub(tmp_path, ID)
    assert not hub.repositories
