"""The papers' trainings, typed from their texts and their authors' code a second time; nothing is taken from the package."""

import re
import subprocess
import sys

import pytest
from recipe_inputs import anchors, interrupted, quick

from sbert_plugins import cli, recipes

# What most of them share: of the host where nobody says otherwise.
HOST = {
    "gradient_accumulation_steps": "1",
    "max_steps": "-1",
    "learning_rate_schedule": "linear",
    "learning_rate_warmup": "0",
    "weight_decay": "0",
    "gradient norm at most": "1",
    "group_by_length": "false",
    "sam_rho": "none",
    "loss_learning_rate": "none",
    "dropout": "none",
    "length at test": "the encoder's own",
    "selected by": "STS-B dev",
    "patience": "none",
    "seed": "42",
    "encoder": "bert-base-uncased",
}
WIKIPEDIA = {"text": "sentence-transformers/wiki1m-for-simcse", "sentences": "1,000,000"}
TASKS = {"text": "sts-sentences", "sentences": "29,510"}
CLS = {"pooling": "cls", "pooling at test": "cls"}
MEAN = {"pooling": "mean", "pooling at test": "mean"}
MASK = {"pooling": "mask", "pooling at test": "mask"}

PASER = {
    **HOST,
    **TASKS,
    **CLS,
    "printed": "76.16",
    "learning_rate": "3e-05",
    "batch_size": "64",
    "epochs": "5",
    "max_seq_length": "32",
    "eval_steps": "125",
    "bf16": "false",
    "columns.extractor": "rake",
    "columns.top_k": "5",
    "columns.synonyms": "0.5",
    "loss.mlm_head": "pretrained",
    "loss.decoder_layers": "6",
    "loss.decoder_heads": "16",
    "loss.decoder_feedforward": "none",
    "loss.decoder_dropout": "0.1",
    "loss.token_weights": "none",
    "loss.normalize_memory": "false",
    "loss.mlm_weight": "1",
    "loss.mlm_probability": "0.15",
    "updates": "up to 11,530",
}
DENOSENT = {
    **HOST,
    **WIKIPEDIA,
    **MASK,
    "printed": "79.33",
    "positives": "back-translation",
    "batch_size": "64",
    "epochs": "1",
    "max_steps": "5,000",
    "learning_rate_schedule": "constant",
    "learning_rate_warmup": "500",
    "max_seq_length": "32",
    "eval_steps": "50",
    "bf16": "false",
    "loss.decoder_layers": "16",
    "loss.decoder_heads": "1",
    "loss.decoder_feedforward": "2,048",
    "loss.decoder_dropout": "0.1",
    "loss.token_weights": "none",
    "loss.balance": "none",
    "loss.projector": "true",
    "loss.mlm_head": "pretrained",
    "updates": "up to 5,000",
}
PT_BERT = {
    **HOST,
    **WIKIPEDIA,
    **CLS,
    "printed": "77.74",
    "learning_rate": "3e-05",
    "batch_size": "64",
    "epochs": "1",
    "max_seq_length": "64",
    "eval_steps": "125",
    "bf16": "none",
    "loss.temperature": "0.05",
    "loss.momentum": "0.885",
    "loss.num_pseudo_tokens": "128",
    "loss.queue_size": "256",
    "loss.projection_head": "true",
    "loss.momentum_dropout": "true",
    "updates": "up to 15,625",
}
SLT_FAI = {
    **HOST,
    **MEAN,
    "batch_size": "32",
    "bf16": "none",
    "loss.adversarial_weight": "1",
    "loss.filtering_weight": "1",
    "loss.reversal_strength": "1",
    "loss.low_frequency_by": "types",
    "loss.low_frequency_share": "0.5",
    "loss.masking_ratio": "0.2",
    "loss.balance": "none",
}
CONSERT = {
    **SLT_FAI,
    **TASKS,
    "printed": "73.29",
    "learning_rate": "5e-07",
    "epochs": "10",
    "max_steps": "27,880",  # 10 x 2,788 batches of 32 of 89,192 sentences
    "learning_rate_warmup": "0.1",
    "weight_decay": "0.01",
    "patience": "10",
    "dropout": "0",
    "max_seq_length": "64",
    "eval_steps": "200",
    "loss.backbone": "consert",
    "loss.temperature": "0.1",
    "loss.warmup_steps": "0.05",  # half an epoch of ten
    "updates": "up to 27,880",
}
NOT_SUPERVISED = {"loss.mlm_weight", "loss.mlm_probability", "loss.decoder_feedforward"}
EXPECTED = {
    ("paser", "paper"): {
        **PASER,
        "loss.difference_scale": "10",
        "loss.product_scale": "10",
        "loss.signed": "false",
        "projection of the masked copy": "false",
    },
    ("paser", "official"): {
        **PASER,
        "printed": "75.9",  # Table 8: (5 x 77.6 + 78.7 + 64.8) / 7
        "loss.official": "true",
        "loss.difference_scale": "1",
        "loss.product_scale": "1",
        "loss.signed": "true",
        "projection of the masked copy": "true",
    },
    ("paser-supervised", "paper"): {
        **{key: value for key, value in PASER.items() if key not in NOT_SUPERVISED},
        "printed": "82.61",
        "encoder": "none",
        "text": "sentence-transformers/all-nli",
        "sentences": "557,850",
        "epochs": "3",
        "columns.top_k": "1",
        "columns.synonyms": "none",
        "loss.alpha": "0.1",
        "loss.temperature": "0.05",
        "loss.difference_scale": "10",
        "loss.product_scale": "10",
        "loss.signed": "false",
        "updates": "up to 26,151",  # 3 x 8,717
    },
    ("denosent", "paper"): {
        **DENOSENT,
        "template": "[X] means [MASK].",
        "learning_rate": "5e-05",
        "loss.noise_dropout": "0.825",
        "loss.contrastive_weight": "1",
        "loss.denoising_weight": "1",
        "loss.temperature": "0.03",
        "loss.reconstruct": "anchor",
    },
    ("denosent", "official"): {
        **DENOSENT,
        "printed": "79.56",
        "template": '"[X]" means [MASK].',
        "learning_rate": "4e-05",
        "loss.official": "true",
        "loss.noise_dropout": "0.8425",
        "loss.contrastive_weight": "5",
        "loss.denoising_weight": "7",
        "loss.temperature": "0.05",
        "loss.reconstruct": "paraphrase",
    },
    ("pt-bert", "paper"): {**PT_BERT, "loss.attend_to": "tokens", "negatives": "255"},
    ("pt-bert", "official"): {**PT_BERT, "loss.official": "true", "loss.attend_to": "pooled", "negatives": "319"},
    ("arccse", "paper"): {
        **HOST,
        **WIKIPEDIA,
        **CLS,
        "printed": "78.11",
        "learning_rate": "3e-05",
        "batch_size": "32",
        "gradient_accumulation_steps": "2",
        "epochs": "1",
        "group_by_length": "true",
        "sam_rho": "0.05",
        "max_seq_length": "none",
        "eval_steps": "125",
        "bf16": "none",
        "loss.margin_degrees": "10",
        "loss.temperature": "0.05",
        "loss.triplet_weight": "0.1",
        "loss.triplet_margin": "0",
        "loss.near_mask_ratio": "0.2",
        "loss.far_mask_ratio": "0.4",
        "loss.min_words": "25",
        "loss.projection_head": "true",
        "updates": "up to 15,625",
    },
    ("slt-fai", "paper"): {
        **SLT_FAI,
        **WIKIPEDIA,
        "printed": "76.18",
        "learning_rate": "3e-05",
        "epochs": "1",
        "max_seq_length": "32",
        "eval_steps": "125",
        "loss.backbone": "simcse",
        "projection head": "false",
        "loss.temperature": "0.05",
        "loss.warmup_steps": "0.1",
        "updates": "up to 31,250",
    },
    ("slt-fai", "paper-consert"): CONSERT,
    ("slt-fai", "official"): {
        **CONSERT,
        "loss.official": "true",
        "loss.adversarial_weight": "3.33333",  # 1 beside two directions times .15
        "loss.filtering_weight": "3.33333",
        "loss.masking_ratio": "0.5",
    },
}


def table(printed: str) -> dict[str, tuple[str, str]]:
    """Value and source by setting of a printed table."""
    first, *lines = printed.strip().splitlines()
    value, source = first.index("value"), first.index("source")
    return {line[:value].strip(): (line[value:source].strip(), line[source:].strip()) for line in lines}


def dry_run(capsys, *arguments: str) -> dict[str, tuple[str, str]]:
    assert cli.main(["train", *arguments, "--dry-run"]) == 0
    return table(capsys.readouterr().out)


class TestTable:
    @pytest.mark.parametrize(("method", "name"), EXPECTED, ids=lambda part: part)
    def test_is_what_the_paper_says(self, method, name, capsys):
        rows = dry_run(capsys, method, "--protocol", name)
        assert {setting: value for setting, (value, _) in rows.items()} == EXPECTED[method, name]

    def test_all_are_typed_here(self):
        assert set(recipes.PROTOCOLS) == set(EXPECTED)

    @pytest.mark.parametrize(("method", "name"), EXPECTED, ids=lambda part: part)
    def test_each_value_has_a_source(self, method, name):
        for row in recipes.protocol_table(method, name):
            assert re.match(r"(paper( \d|, | [A-Z]|: | eq\. | appendix )|code|silent: ours)", row.source), row

    def test_no_source_is_another_papers(self):
        """A part that nobody has replaced would have the placeholder of all."""
        assert {row.source for plan in recipes.PROTOCOLS.values() for row in plan.rows}.isdisjoint({"paper", ""})


class TestDryRun:
    def test_flags_win(self, capsys):
        flags = ["--batch-size", "8", "--epochs", "2", "--seeds", "3", "--limit", "1000", "--model", "mine", "--no-bf16"]
        rows = dry_run(capsys, "denosent", "--protocol", "paper", *flags)
        assert rows["batch_size"] == ("8", "--batch-size; else 64, code")
        assert rows["epochs"] == ("2", "--epochs; else 1, code: less, see max_steps")
        assert rows["max_steps"] == ("-1", "--epochs; else 5,000, code")
        assert rows["seed"][0] == "42 to 44"
        assert rows["encoder"] == ("mine", "--model; else bert-base-uncased, paper, Implementation Details")
        assert rows["sentences"][0] == "1,000"
        assert rows["bf16"] == ("false", "--no-bf16; else false, code: float32")
        assert rows["updates"][0] == "up to 250"
        assert rows["loss.temperature"][0] == "0.03"

    def test_keywords_of_the_loss_win_and_are_checked(self, capsys):
        rows = dry_run(capsys, "arccse", "--protocol", "paper", "--loss", "margin_degrees=5")
        assert rows["loss.margin_degrees"] == ("5", "--loss; else 10, paper 4.1")
        assert cli.main(["train", "arccse", "--dry-run", "--loss", "margin=5"]) == 2
        assert "must be among margin_degrees" in capsys.readouterr().err

    def test_a_text_of_ones_own(self, capsys, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "mine.txt").write_text("A dog.\n", encoding="utf-8")
        rows = dry_run(capsys, "paser", "mine.txt", "--protocol", "paper")
        assert rows["text"] == (
            "mine.txt",
            "TEXT; else sts-sentences, paper 4.2: all unlabelled texts of the seven STS data sets",
        )
        assert (rows["sentences"][0], rows["updates"][0]) == ("all", "by the text")

    @pytest.mark.parametrize(
        ("flags", "shown"),
        [
            (["sts-sentences"], ("29,510", "TEXT; else 1,000,000, paper 4.1")),
            (["sts-sentences", "--limit", "50"], ("50", "--limit; else 1,000,000, paper 4.1")),
        ],
    )
    def test_what_gives_the_number_of_sentences(self, flags, shown, capsys):
        assert dry_run(capsys, "arccse", *flags, "--protocol", "paper")["sentences"] == shown

    def test_without_a_protocol(self, capsys, caplog):
        """What would be trained, what the paper says in its place, and its number, which is not of this."""
        rows = dry_run(capsys, "paser")
        assert "5 epochs of 1,000,000 sentences would be up to 234,375 updates" in caplog.text
        assert rows["printed"][0] == "76.16"
        assert rows["printed"][1].endswith("not of this: --protocol paper")
        assert rows["text"][0] == "sentence-transformers/wiki1m-for-simcse"
        assert rows["text"][1].startswith("the method's default; sts-sentences by paper 4.2")
        assert rows["learning_rate"] == ("3e-05", "paper 4.2")
        assert rows["epochs"] == ("0.31099", "the method's default; 5 by paper 4.5.1")
        assert rows["updates"] == ("up to 14,578", "of the rows above")

    @pytest.mark.parametrize(("words", "shown"), [("0", "ConSERTLoss"), ("0.3", "ConSERTLoss + BagOfWordsLoss")])
    def test_a_loss_that_is_left_out_is_not_named(self, words, shown, capsys):
        assert dry_run(capsys, "recommended", "--loss", f"words={words}")["loss"][0] == shown

    @pytest.mark.parametrize("method", recipes.RECIPES)
    def test_each_method_has_one(self, method, capsys):
        rows = dry_run(capsys, method)
        assert {"encoder", "text", "learning_rate", "weight_decay", "seed", "updates"} <= set(rows)
        assert ("printed" in rows) == ((method, "paper") in EXPECTED)

    @pytest.mark.slow
    @pytest.mark.parametrize("arguments", [["--protocol", "paper"], ["--epochs", "2"]])
    def test_loads_nothing_and_writes_nothing(self, arguments, tmp_path):
        script = (
            "import sys\nfrom sbert_plugins import cli\n"
            f"assert cli.main(['train', 'slt-fai', '--output', 'run', '--dry-run', *{arguments}]) == 0\n"
            "heavy = {'torch', 'transformers', 'sentence_transformers', 'datasets', 'numpy', 'scipy'} & set(sys.modules)\n"
            "assert not heavy, heavy\n"
        )
        subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path, capture_output=True)
        assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["arccse", "--protocol", "official"], "protocol of arccse must be one of paper, got 'official'"),
        (["arccse", "--protocol", ""], "protocol of arccse must be one of paper, got ''"),
        (["slt-fai", "--protocol", "x"], "protocol of slt-fai must be one of paper, paper-consert, official, got 'x'"),
        (["simcse", "--protocol", "paper"], "simcse has no protocol, got 'paper': there are some of paser, paser-supervised"),
        (["slt-fai", "--protocol", "paper", "--backbone", "consert"], "goes round simcse, got --backbone consert"),
        (["paser-supervised", "--protocol", "paper"], "needs --model: paper 3.3: the best checkpoint of unsupervised PaSeR"),
        (["arccse", "--protocol", "paper", "--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["arccse", "--protocol", "paper", "--seeds", "2", "--resume"], "--seeds goes on by itself: leave out --resume"),
        (["arccse", "--protocol", "paper", "--paraphrases", "x"], "--paraphrases is for denosent"),
        (["arccse", "--backbone", "consert"], "--backbone is for slt-fai, which goes round another method, got arccse"),
    ],
)
def test_mistakes(arguments, message, tmp_path, capsys):
    assert cli.main(["train", *arguments, "--output", str(tmp_path / "run")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_an_output_is_needed_but_for_a_dry_run(capsys):
    assert cli.main(["train", "arccse", "--protocol", "paper"]) == 2
    assert "--output must name a new or empty directory" in capsys.readouterr().err


def test_a_protocol_from_python():
    plan = recipes.protocol_of("slt-fai", "official")
    assert plan.settings.weight_decay == 0.01
    assert plan.settings.patience == 10
    assert plan.loss_keywords["official"] is True
    assert plan.columns == {}
    assert recipes.PROTOCOLS["paser", "paper"].columns == {"extractor": "rake", "top_k": 5, "synonyms": 0.5}
    assert plan["no such row"] is None


@pytest.mark.slow
class TestFromPython:
    def test_one_call(self, tiny_encoder, tmp_path):
        """Settings and keywords are the protocol's, without a word of them."""
        model, dev = tiny_encoder(), recipes.graded_pairs()
        results = recipes.train("pt-bert", anchors(100), model, output=tmp_path / "run", protocol="official", dev=dev)
        plan = recipes.protocol_of("pt-bert", "official")
        assert results["protocol"] == "official"
        assert results["settings"] == vars(plan.settings)
        assert results["loss_keywords"] == plan.loss_keywords
        assert results["steps"] == 2

    def test_keywords_win(self, tiny_encoder, tmp_path):
        given = {"settings": quick(pooling="cls", max_steps=1), "loss_keywords": {"temperature": 0.2}}
        results = recipes.train("pt-bert", anchors(40), tiny_encoder(), output=tmp_path / "run", protocol="paper", **given)
        assert results["loss"]["temperature"] == 0.2
        assert results["loss"]["attend_to"] == "tokens"

    def test_what_it_lacks_is_said(self, tiny_encoder, tmp_path):
        arguments = {"output": tmp_path / "run", "protocol": "paper"}
        with pytest.raises(ValueError, match="the protocol paper of pt-bert pools by cls, and the model by mean"):
            recipes.train("pt-bert", anchors(40), tiny_encoder(pooling="mean"), **arguments)
        with pytest.raises(ValueError, match="of denosent has positives by back-translation, got sentences alone"):
            recipes.train("denosent", anchors(40), tiny_encoder(), **arguments)
        with pytest.raises(ValueError, match="simcse has no protocol"):
            recipes.train("simcse", anchors(40), tiny_encoder(), **arguments)
        with pytest.raises(ValueError, match="patience counts evaluations by STS-B dev, and there is none, got 10"):
            recipes.train("slt-fai", anchors(40), tiny_encoder(pooling="mean"), output=tmp_path / "run", protocol="official")
        assert not (tmp_path / "run").exists()

    def test_another_protocol_is_another_training(self, tiny_encoder, tmp_path):

        arguments = {"output": tmp_path / "run", "settings": quick(pooling="cls")}
        with interrupted(3), pytest.raises(KeyboardInterrupt):
            recipes.train("pt-bert", anchors(40), tiny_encoder(), protocol="paper", **arguments)
        with pytest.raises(ValueError, match=r"was begun with .*protocol paper \(now None\)"):
            recipes.train("pt-bert", anchors(40), tiny_encoder(), resume=True, **arguments)
        assert recipes.train("pt-bert", anchors(40), tiny_encoder(), resume=True, protocol="paper", **arguments)["steps"] == 4
