"""The examples in docstrings run, with a tiny encoder instead of models from the Hub."""

import doctest
import importlib
import pkgutil

import pytest
import sentence_transformers
from datasets import Dataset
from sentence_transformers import SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

import sbert_plugins
from sbert_plugins import losses, recipes

FINDER = doctest.DocTestFinder()
MODULES = [
    module.name
    for module in pkgutil.walk_packages(sbert_plugins.__path__, "sbert_plugins.")
    if not module.name.endswith("__main__")
]
EXAMPLES = {
    test.name: test
    for name in MODULES
    for test in FINDER.find(importlib.import_module(name))
    if test.examples
}
SentenceTransformer = sentence_transformers.SentenceTransformer


class Checker(doctest.OutputChecker):
    """Compares the output that an example shows. An example without output may print anything."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return not want or super().check_output(want, got, optionflags)


@pytest.fixture(scope="session")
def encoder(tmp_path_factory):
    """Build a small BERT with a masked-language-model head and the vocabulary of bert-base-uncased."""
    folder = tmp_path_factory.mktemp("bert")
    tokenizer = AutoTokenizer.from_pretrained(recipes.offline_encoder(num_layers=1).tokenizer.name_or_path)
    tokenizer.save_pretrained(folder)
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), **size)).save_pretrained(folder)

    def build(name: str) -> SentenceTransformer:
        return SentenceTransformer(modules=[Transformer(str(folder)), Pooling(32, "mean")], device="cpu")

    return build


@pytest.fixture(scope="session")
def short_tasks(tmp_path_factory, data_dir):
    """The STS tasks with their first fifty pairs, for the example that encodes all of them."""
    folder = tmp_path_factory.mktemp("short")
    (folder / "sts").mkdir()
    for file in (data_dir / "sts").glob("*.tsv"):
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        (folder / "sts" / file.name).write_text("".join(lines[:50]), encoding="utf-8")
    return folder


def test_each_loss_has_an_example():
    classes = {value for value in vars(losses).values() if isinstance(value, type)}
    assert {f"{loss.__module__}.{loss.__name__}" for loss in classes} <= set(EXAMPLES)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name, encoder, tmp_path, monkeypatch, wordnet, short_tasks):
    # A model, a dataset and arguments are defined.
    test = EXAMPLES[name]
    if name.endswith(".STSSuiteEvaluator"):
        monkeypatch.setenv("SBERT_PLUGINS_DATA", str(short_tasks))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sentence_transformers, "SentenceTransformer", encoder)
    model = encoder("bert-base-uncased")
    dataset = Dataset.from_dict({"anchor": ["It is raining.", "He plays the organ.", "Prices fell again."]})
    arguments = SentenceTransformerTrainingArguments("out", max_steps=1, use_cpu=True, report_to="none")
    given = {"SentenceTransformer": encoder, "model": model, "dataset": dataset, "arguments": arguments}
    test.globs = {**test.globs, **given}
    report: list[str] = []
    runner = doctest.DocTestRunner(Checker(), optionflags=doctest.ELLIPSIS)
    runner.run(test, out=report.append)
    assert not runner.failures, "".join(report)
