"""The examples of the docstrings run, with a tiny encoder of the same vocabulary in the place of those from the Hub."""

import ast
import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest
import sentence_transformers
from datasets import Dataset
from sentence_transformers import SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

import sbert_plugins
from sbert_plugins import losses, recipes

ROOT = Path(sbert_plugins.__file__).parent
FINDER = doctest.DocTestFinder()
MODULES = [module.name for module in pkgutil.walk_packages(sbert_plugins.__path__, "sbert_plugins.")]
EXAMPLES = {
    test.name: test
    for name in MODULES
    if not name.endswith("__main__")
    for test in FINDER.find(importlib.import_module(name))
    if test.examples
}
SentenceTransformer = sentence_transformers.SentenceTransformer


class Checker(doctest.OutputChecker):
    """Compares what an example shows; one that shows nothing may print what it likes."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return not want or super().check_output(want, got, optionflags)


@pytest.fixture(scope="session")
def encoder(tmp_path_factory):
    """Build a small BERT with the vocabulary of bert-base-uncased and a masked-language-model head, the same every time."""
    folder = tmp_path_factory.mktemp("bert")
    tokenizer = AutoTokenizer.from_pretrained(recipes.offline_encoder(num_layers=1).tokenizer.name_or_path)
    tokenizer.save_pretrained(folder)
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), **size)).save_pretrained(folder)

    def build(name: str) -> SentenceTransformer:
        transformer = Transformer(str(folder))
        return SentenceTransformer(modules=[transformer, Pooling(32, "mean")], device="cpu")

    return build


@pytest.fixture(scope="session")
def short_tasks(tmp_path_factory, data_dir):
    """The STS tasks with their first fifty pairs, for the example that encodes all of them and shows no number."""
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
    """Models, a dataset and arguments that an example takes for given are there."""
    test = EXAMPLES[name]
    if name.endswith(".STSSuiteEvaluator"):
        monkeypatch.setenv("SBERT_PLUGINS_DATA", str(short_tasks))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sentence_transformers, "SentenceTransformer", encoder)
    model = encoder("bert-base-uncased")
    dataset = Dataset.from_dict({"anchor": ["It is raining.", "He plays the organ.", "Prices fell again."]})
    arguments = SentenceTransformerTrainingArguments(output_dir="out", max_steps=1, use_cpu=True, report_to="none")
    given = {"SentenceTransformer": encoder, "model": model, "dataset": dataset, "arguments": arguments}
    test = doctest.DocTest(test.examples, {**test.globs, **given}, test.name, test.filename, test.lineno, test.docstring)
    report: list[str] = []
    runner = doctest.DocTestRunner(Checker(), optionflags=doctest.ELLIPSIS)
    runner.run(test, out=report.append)
    assert not runner.failures, "".join(report)


DOCSTRINGS = {
    f"{path.relative_to(ROOT)} {getattr(node, 'name', '')}": ast.get_docstring(node)
    for path in sorted(ROOT.rglob("*.py"))
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and "+--" in (ast.get_docstring(node) or "")
}


@pytest.mark.parametrize("name", DOCSTRINGS)
def test_grid_tables_are_aligned(name):
    """A cell's border stands under the crossing of the lines: docutils refuses anything else."""
    lines = [line.strip() for line in DOCSTRINGS[name].splitlines() if line.strip().startswith(("+-", "+=", "|"))]
    crossings = [i for i, sign in enumerate(lines[0]) if sign == "+"]
    for line in lines:
        assert len(line) == len(lines[0]), line
        assert all(line[i] in "+|" for i in crossings), line
