"""``train --protocol``: each paper's training, a few updates of it, on a random encoder and without a network."""

import json
import re
from statistics import fmean

import pytest
from datasets import Dataset
from encoders import project_text
from sentence_transformers import SentenceTransformer
from transformers import EarlyStoppingCallback

from sbert_plugins import cli, recipes, training

FILES = [f"sts{year}" for year in range(12, 17)]
FILES += ["stsb_train", "stsb_dev", "stsb_test", "sick_train", "sick_trial", "sick_test"]
TASKS = ["STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R"]


@pytest.fixture(scope="module", autouse=True)
def no_data():
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SBERT_PLUGINS_DATA", raising=False)
        yield


@pytest.fixture(scope="module")
def folder(tiny_encoder, tmp_path_factory):
    """A plain transformer, texts of 200 rows, and the STS tasks with twenty pairs each."""
    folder, text = tmp_path_factory.mktemp("protocols"), project_text()
    tiny_encoder()[0].model.save_pretrained(folder / "plain")
    tiny_encoder().tokenizer.save_pretrained(folder / "plain")
    tiny_encoder().save_pretrained(str(folder / "cls"))
    (folder / "text.txt").write_text("\n".join(text[:200]), encoding="utf-8")
    (folder / "paraphrases.txt").write_text("\n".join(text[1:201]), encoding="utf-8")
    rows = [f"{text[i]}\t{text[i + 1]}\t{text[i + 2]}\n" for i in range(200)]
    (folder / "triplets.tsv").write_text("".join(rows), encoding="utf-8")
    (folder / "data" / "sts").mkdir(parents=True)
    for place, name in enumerate(FILES):
        rows = [f"x\t{1 + i % 4}\t{text[20 * place + i]}\t{text[300 + 20 * place + i]}\n" for i in range(20)]
        (folder / "data" / "sts" / f"{name}.tsv").write_text("".join(rows), encoding="utf-8")
    return folder


@pytest.fixture
def trainers(monkeypatch):
    """The trainers that have trained."""
    seen, train = [], training.SentenceTransformerTrainer.train
    monkeypatch.setattr(training.SentenceTransformerTrainer, "train", lambda self, **k: seen.append(self) or train(self, **k))
    return seen


def command(folder, output, method, name, *flags):
    text = {"paser-supervised": ["triplets.tsv"], "denosent": ["text.txt", "--paraphrases", str(folder / "paraphrases.txt")]}
    given = text.get(method, ["text.txt"])
    model = folder / ("cls" if method == "paser-supervised" else "plain")
    data = ["--data-dir", str(folder / "data")]
    first = ["train", method, str(folder / given[0]), *given[1:], "--protocol", name, "--model", str(model)]
    return [*first, "--output", str(output), *data, "--max-steps", "2", *flags]


SHALLOW = ["--loss", "decoder_layers=1"]  # where another part of the protocol is looked at

# What the papers and their code say, and what must arrive: rate, batch, accumulated, schedule, warm-up (of the two updates
# here), weight decay, patience, evaluated every, class of the loss.
ARRIVES = {
    ("paser", "paper"): (3e-5, 64, 1, "linear", 0, 0, None, 125, "losses.paser.PaSeRLoss"),
    ("paser", "official"): (3e-5, 64, 1, "linear", 0, 0, None, 125, "losses.official.PaSeRLoss"),
    ("paser-supervised", "paper"): (3e-5, 64, 1, "linear", 0, 0, None, 125, "losses.weighted_sum.WeightedSumLoss"),
    ("denosent", "paper"): (5e-5, 64, 1, "constant_with_warmup", 500, 0, None, 50, "losses.denosent.DenoSentLoss"),
    ("denosent", "official"): (4e-5, 64, 1, "constant_with_warmup", 500, 0, None, 50, "losses.official.DenoSentLoss"),
    ("pt-bert", "paper"): (3e-5, 64, 1, "linear", 0, 0, None, 125, "losses.pt_bert.PTBERTLoss"),
    ("pt-bert", "official"): (3e-5, 64, 1, "linear", 0, 0, None, 125, "losses.official.PTBERTLoss"),
    ("arccse", "paper"): (3e-5, 32, 2, "linear", 0, 0, None, 125, "losses.arccse.ArcCSELoss"),
    ("slt-fai", "paper"): (3e-5, 32, 1, "linear", 0, 0, None, 125, "losses.slt_fai.SLTFAILoss"),
    ("slt-fai", "paper-consert"): (5e-7, 32, 1, "linear", 1, 0.01, 10, 200, "losses.slt_fai.SLTFAILoss"),
    ("slt-fai", "official"): (5e-7, 32, 1, "linear", 1, 0.01, 10, 200, "losses.official.SLTFAILoss"),
}
# Of the loss, where a keyword is the point.
KEYWORDS = {
    ("paser", "paper"): {"signed": False, "difference_scale": 10, "decoder_layers": 6, "mlm_weight": 1, "token_weights": None},
    ("paser", "official"): {"signed": True, "difference_scale": 1, "project_masked": True},
    ("denosent", "paper"): {"temperature": 0.03, "decoder_layers": 16, "contrastive_weight": 1, "reconstruct": "anchor"},
    ("denosent", "official"): {
        "temperature": 0.05,
        "contrastive_weight": 5,
        "denoising_weight": 7,
        "reconstruct": "paraphrase",
    },
    ("pt-bert", "paper"): {"attend_to": "tokens", "queue_size": 256, "momentum": 0.885},
    ("pt-bert", "official"): {"attend_to": "pooled"},
    ("arccse", "paper"): {"margin_degrees": 10, "min_words": 25},
    ("slt-fai", "paper"): {"balance": None, "warmup_steps": 0.1},
    ("slt-fai", "paper-consert"): {"balance": None, "warmup_steps": 0.05, "adversarial_weight": 1},
    ("slt-fai", "official"): {"warmup_steps": 0.05, "adversarial_weight": pytest.approx(10 / 3), "masking_ratio": 0.5},
}


@pytest.mark.slow
class TestEach:
    @pytest.mark.parametrize(("method", "name"), ARRIVES, ids=lambda part: part)
    def test_trains_as_it_says(self, method, name, folder, tmp_path, trainers, capsys, wordnet):
        output = tmp_path / "run"
        assert cli.main(command(folder, output, method, name)) == 0
        printed = capsys.readouterr().out
        (trainer,) = trainers
        rate, batch, accumulated, schedule, warmup, decay, patience, every, loss = ARRIVES[method, name]
        args = trainer.args
        assert (args.learning_rate, args.per_device_train_batch_size) == (rate, batch)
        assert (args.gradient_accumulation_steps, args.eval_steps) == (accumulated, every)
        assert (args.lr_scheduler_type, args.warmup_steps, args.weight_decay) == (schedule, warmup, decay)
        stopping = [c for c in trainer.callback_handler.callbacks if isinstance(c, EarlyStoppingCallback)]
        assert [callback.early_stopping_patience for callback in stopping] == ([] if patience is None else [patience])
        assert args.load_best_model_at_end
        assert f"{type(trainer.loss).__module__}.{type(trainer.loss).__name__}" == f"sbert_plugins.{loss}"
        assert re.search(
            rf"Printed is {trained(output)['printed']} \((paper|code: its README).*of the seven STS tasks.*\)\.", printed
        )
        results = json.loads((output / "results.json").read_text())
        assert results["protocol"] == name
        assert {key: results["loss"][key] for key in KEYWORDS.get((method, name), {})} == KEYWORDS.get((method, name), {})
        scores = results["after"]
        assert scores["average of the seven STS tasks"] == pytest.approx(fmean(scores[task] for task in TASKS))
        loss = recipes.load_loss(output, SentenceTransformer(str(output / "model"), device="cpu"))
        assert type(loss) is type(trainer.loss)


def trained(output):
    printed = {"paser": 76.16, "paser-supervised": 82.61, "denosent": 79.33, "pt-bert": 77.74, "arccse": 78.11}
    results = json.loads((output / "results.json").read_text())
    slt_fai = 76.18 if results["loss_keywords"].get("backbone") == "simcse" else 73.29
    if results["protocol"] == "official":
        printed |= {"paser": 75.9, "denosent": 79.56}
    return {"printed": printed.get(results["method"], slt_fai)}


@pytest.mark.slow
class TestParts:
    def test_the_tasks_sentences_are_the_text(self, folder, tmp_path, capsys):
        flags = ["--protocol", "paper-consert", "--model", str(folder / "plain"), "--data-dir", str(folder / "data")]
        assert cli.main(["train", "slt-fai", *flags, "--output", str(tmp_path / "run"), "--max-steps", "2"]) == 0
        printed = capsys.readouterr().out
        assert "of sts-sentences (transductive: the unlabelled sentences of the seven STS tasks), seed 42." in printed
        assert "Transductive: that training, too, read the sentences of these tasks, without scores." in printed

    def test_no_dropout_where_the_code_has_none(self, folder, tmp_path, trainers):
        from sbert_plugins.encoder import dropout_rates

        assert cli.main(command(folder, tmp_path / "run", "slt-fai", "official")) == 0
        assert max(dropout_rates(trainers[0].model)) == 0
        assert (
            max(dropout_rates(SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu"))) == 0.1
        )  # it is the training's

    def test_the_codes_template(self, folder, tmp_path):
        assert cli.main(command(folder, tmp_path / "run", "denosent", "official", *SHALLOW)) == 0
        model = SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu")
        ids = model.preprocess(["A dog runs."])["input_ids"][0]
        assert model.tokenizer.decode(ids).replace(" ", "") == '<s>"Adogruns."means<mask>.</s>'

    def test_flags_win(self, folder, tmp_path, trainers):
        flags = ["--learning-rate", "1e-3", "--batch-size", "8", "--weight-decay", "0.5", "--loss", "margin_degrees=5"]
        assert cli.main(command(folder, tmp_path / "run", "arccse", "paper", *flags)) == 0
        args = trainers[0].args
        assert (args.learning_rate, args.per_device_train_batch_size, args.weight_decay) == (1e-3, 8, 0.5)
        assert trainers[0].loss.margin_degrees == 5
        assert trainers[0].loss.min_words == 25

    def test_back_translation_where_no_paraphrases_are_given(self, folder, tmp_path, monkeypatch, capsys):
        """Its models are on the Hub: here they are two callables."""
        from sbert_plugins import data

        whole = data.back_translate

        def with_callables(sentences):
            return whole(sentences, forward=lambda texts: texts, backward=lambda texts: [text.upper() for text in texts])

        monkeypatch.setattr(data, "back_translate", with_callables)
        arguments = command(folder, tmp_path / "run", "denosent", "paper", "--limit", "70", *SHALLOW)
        place = arguments.index("--paraphrases")
        del arguments[place : place + 2]
        assert cli.main(arguments) == 0
        results = json.loads((tmp_path / "run" / "results.json").read_text())
        assert results["columns"] == {"positives": "back-translation"}

    @pytest.mark.parametrize("name", [None, "paper"])
    def test_tasks_from_the_hub(self, name, folder, tmp_path, monkeypatch, capsys):
        """Without a data directory a protocol selects by the Hub's STS-B dev; any training does with --hub."""
        asked, text = [], project_text()

        def load_dataset(dataset, split):
            asked.append((dataset, split))
            rows = {"sentence1": text[:20], "sentence2": text[20:40], "score": [float(i % 5) for i in range(20)]}
            return Dataset.from_dict(rows)

        monkeypatch.setattr("datasets.load_dataset", load_dataset)
        arguments = command(folder, tmp_path / "run", "arccse", "paper")
        place = arguments.index("--data-dir")
        arguments[place : place + 2] = [] if name else ["--hub"]
        if name is None:
            place = arguments.index("--protocol")
            del arguments[place : place + 2]
        assert cli.main([*arguments, "--eval-steps", "1"]) == 0
        printed = capsys.readouterr().out
        assert printed.count("update 1/2  STS-B dev") == 1
        if name is None:
            assert asked == [("mteb/stsbenchmark-sts", "validation")]
        else:
            assert ("mteb/sickr-sts", "test") in asked
            assert "SICK-R all" in printed
            assert "Its SICK-R is the 4,927 test pairs, this one all 9,927" in printed
            assert "average of the seven STS tasks" in printed

    def test_a_model_that_pools_otherwise(self, folder, tmp_path, capsys):
        arguments = command(folder, tmp_path / "run", "slt-fai", "paper")
        arguments[arguments.index("--model") + 1] = str(folder / "cls")
        assert cli.main(arguments) == 2
        assert "the protocol paper of slt-fai pools by mean, and the model by cls" in (error := capsys.readouterr().err)
        assert "or give settings with the model's own (--pooling cls)" in error
        assert not (tmp_path / "run").exists()
        assert cli.main([*arguments, "--pooling", "cls"]) == 0

    def test_synonyms_are_part_of_it(self, folder, tmp_path, monkeypatch, capsys):
        """A default does without, with a warning; a protocol does not."""
        monkeypatch.setattr("nltk.data.path", [])
        assert cli.main(command(folder, tmp_path / "run", "paser", "paper")) == 2
        assert "WordNet" in capsys.readouterr().err
        assert not (tmp_path / "run").exists()

    def test_seeds(self, folder, tmp_path, capsys):
        arguments = command(folder, tmp_path / "run", "arccse", "paper", "--seeds", "2", "--seed", "7")
        assert cli.main(arguments) == 0
        printed = capsys.readouterr().out
        header = next(line for line in printed.splitlines() if line.startswith("Spearman"))
        assert header.split()[-5:] == ["before", "mean", "deviation", "7", "8"]
        assert "Printed is 78.11 (paper Table 1, average of the seven STS tasks)." in printed
        results = json.loads((tmp_path / "run" / "results.json").read_text())
        assert results["seeds"] == [7, 8]
        assert len(results["after"]["average of the seven STS tasks"]["values"]) == 2
        assert cli.main(arguments) == 0
        assert capsys.readouterr().out.count("finished before") == 2


@pytest.mark.usefixtures("no_hub")
def test_sts_from_neither(folder, tmp_path, capsys):
    """Missed before a text is read or a model is loaded."""
    arguments = ["train", "arccse", "no-such-text.txt", "--protocol", "paper", "--model", "no-such", "--offline"]
    assert cli.main([*arguments, "--output", str(tmp_path / "run")]) == 2
    assert "STS-B dev is read from a data directory or from the Hub" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
