"""Count the operations of a training step of each method, and time it, as multiples of SimCSE's step.

    python benchmarks/speed.py                    # writes results/speed.jsonl
    python benchmarks/speed.py --against 6a995b3  # prints this tree's step divided by an earlier commit's
    python benchmarks/speed.py --only SimCSE --print  # prints one line of JSON in place of the record

A step is forward, backward and AdamW on 64 sentences of 32 tokens, in float32 on one CPU thread, with the six
layers of all-MiniLM-L6-v2, or what a name of ``SIZES`` says. A third of the sentences have 25 words or more.
Counts do not depend on the machine. In each round every method makes one step, so that a slow moment of the
machine affects all; the ratio is the median over the rounds.
"""

import inspect
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import records
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig, BertModel

from sbert_plugins import data, functional, losses, recipes

ROWS, LENGTH = 64, 32
Columns = list[dict[str, Tensor]]
Loss = Callable[[Columns], Mapping[str, Tensor]]


class PlainSimCSE(torch.nn.Module):
    """SimCSE as a user would write it: one pass of both views, and a cross-entropy."""

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, columns: Columns) -> dict[str, Tensor]:
        """Return the loss."""
        both = {name: value.repeat(2, 1) for name, value in columns[0].items()}
        first, second = self.model(both)["sentence_embedding"].chunk(2)
        return {"simcse": functional.info_nce(first, second, temperature=0.05)}


def build(loss: str, **keywords: Any) -> Callable[[SentenceTransformer], torch.nn.Module]:
    """Return a function that builds a loss with those of the keywords that the installed version knows."""
    function = getattr(losses, loss, None) or getattr(recipes, loss)
    known = inspect.signature(function).parameters
    return lambda model: function(model, **{key: value for key, value in keywords.items() if key in known})


METHODS = {
    "SimCSE": PlainSimCSE,
    "ConSERT": build("ConSERTLoss"),
    "bag of words": build("BagOfWordsLoss"),
    "recommended, keep=0": build("recommended_loss", keep=0.0),
    "recommended": build("recommended_loss", keep=0.1),
    "ArcCSE": build("ArcCSELoss"),
    "PT-BERT": build("PTBERTLoss"),
    "PaSeR": build(
        "PaSeRLoss", decoder_layers=6, token_weights=None, mlm_weight=1.0, mlm_head="fresh", signed=True
    ),
    "PaSeR, words only": build(
        "PaSeRLoss", decoder_layers=0, token_weights=1e-6, mlm_weight=0.0, mlm_head="fresh"
    ),
    "DenoSent": build(
        "DenoSentLoss",
        temperature=0.03,
        projector=True,
        token_weights=None,
        balance=None,
        mlm_head="fresh",
    ),
    "SLT-FAI": lambda model: losses.SLTFAILoss(
        model,
        losses.SimCSELoss(model, projection_head=False),
        frequencies=data.TokenFrequencies.bookcorpus(),
        warmup_steps=0.0,
        balance=None,
    ),
}

# The step of ``recommended`` in other sizes: keywords of build_step.
SIZES: dict[str, dict[str, Any]] = {
    "recommended, 64 tokens": {"length": 64},
    "recommended, 128 tokens": {"length": 128},
    "recommended, 12 layers of width 768": {"is_base": True},
    "recommended, bfloat16": {"bf16": True},
}


def make_columns(model: SentenceTransformer, name: str, rows: int = ROWS, length: int = LENGTH) -> Columns:
    """Return a method's columns with full rows: random words, and word pieces in two thirds of the rows."""
    tokens = model.tokenizer.convert_ids_to_tokens(list(range(len(model.tokenizer))))
    words = torch.tensor([i for i, token in enumerate(tokens) if token.isalpha() and len(token) > 3])
    pieces = torch.tensor([i for i, token in enumerate(tokens) if token.startswith("##")])
    generator, long = torch.Generator().manual_seed(0), rows // 3
    ids = words[torch.randint(len(words), (rows, length), generator=generator)]
    ids[long:, 2::2] = pieces[torch.randint(len(pieces), ids[long:, 2::2].shape, generator=generator)]
    ids[:, 0], ids[:, -1] = model.tokenizer.cls_token_id, model.tokenizer.sep_token_id
    if not name.startswith("PaSeR"):
        return [as_features(ids)]
    masked, phrase = ids.clone(), torch.cat([ids[:, :4], ids[:, -1:]], dim=1)
    masked[:, 1:4] = model.tokenizer.mask_token_id
    return [as_features(ids), as_features(masked), as_features(phrase)]


def as_features(ids: Tensor) -> dict[str, Tensor]:
    """Return the inputs of the encoder for rows without padding."""
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}


def build_step(
    name: str, *, length: int = LENGTH, is_base: bool = False, bf16: bool = False
) -> Callable[[], None]:
    """Return a function that makes one training step of a method."""
    torch.manual_seed(0)
    model = recipes.offline_encoder(num_layers=6, max_seq_length=length, device="cpu")
    if is_base:  # the size of bert-base, with random weights
        model[0].model = BertModel(BertConfig(vocab_size=len(model.tokenizer)))
        model[1] = Pooling(768)
    if bf16:
        model[0].model.set_attn_implementation("eager")  # as recipes.train does
    build_loss = METHODS.get(name, METHODS["recommended"])
    columns, loss = make_columns(model, name, length=length), build_loss(model.train()).train()
    loss.state_is_kept = True
    trained = [parameter for parameter in loss.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-6, fused=True)

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            terms = loss([dict(column) for column in columns])
        sum(terms.values()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


class TensorCounter(TorchDispatchMode):
    """Count operators, and the largest sum of bytes that tensors hold at once."""

    def __init__(self) -> None:
        super().__init__()
        self.operators = self.held = self.peak = 0
        self.known: set[int] = set()

    def release(self, key: int, size: int) -> None:
        """Subtract the bytes of a storage that is freed."""
        self.known.discard(key)
        self.held -= size

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator and count its results."""
        output = function(*args, **(kwargs or {}))
        self.operators += 1
        for tensor in tree_leaves(output):
            storage = tensor.untyped_storage() if isinstance(tensor, Tensor) else None
            if storage is not None and storage._cdata not in self.known:
                self.known.add(storage._cdata)
                self.held += storage.nbytes()
                self.peak = max(self.peak, self.held)
                weakref.finalize(storage, self.release, storage._cdata, storage.nbytes())
        return output


def count(step: Callable[[], None]) -> dict[str, int]:
    """Return floating-point operations, operators and the peak of bytes of a step."""
    torch.manual_seed(0)
    with FlopCounterMode(display=False) as flops:
        step()
    torch.manual_seed(0)
    with TensorCounter() as tensors:
        step()
    return {"flops": flops.get_total_flops(), "operators": tensors.operators, "peak_bytes": tensors.peak}


def measure(rounds: int, names: list[str]) -> dict[str, dict[str, Any]]:
    """Return counts and seconds by method."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    steps = {name: build_step(name, **SIZES.get(name, {})) for name in names}
    found: dict[str, dict[str, Any]] = {name: count(step) | {"seconds": []} for name, step in steps.items()}
    for _ in range(rounds):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            found[name]["seconds"].append(time.perf_counter() - start)
    return found


def measure_in(tree: Path, names: list[str]) -> dict[str, dict[str, Any]]:
    """Return :func:`measure` of one round with the package of a tree, from a process of its own."""
    command = [sys.executable, __file__, "--rounds", "1", "--print", "--only", *names]
    environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, env=environment, cwd=tree, capture_output=True, text=True, check=True)
    return json.loads(result.stdout.splitlines()[-1])


def compare(commit: str, rounds: int, names: list[str]) -> None:
    """Print this tree's counts and seconds divided by those of an earlier commit, processes in turns."""
    with tempfile.TemporaryDirectory() as folder:
        git, earlier = ["git", "-C", str(records.ROOT), "worktree"], Path(folder) / "earlier"
        subprocess.run([*git, "add", "--quiet", "--detach", str(earlier), commit], check=True)
        try:
            pairs = [(measure_in(earlier, names), measure_in(records.ROOT, names)) for _ in range(rounds)]
        finally:
            subprocess.run([*git, "remove", "--force", str(earlier)], check=True)
    for name in names:
        flops, operators = (pairs[0][1][name][key] / pairs[0][0][name][key] for key in ("flops", "operators"))
        seconds = [now[name]["seconds"][0] / old[name]["seconds"][0] for old, now in pairs]
        print(
            f"{name:36} operations {flops:.3f}, operators {operators:.3f}, seconds "
            f"{statistics.median(seconds):.3f}"
        )


def main() -> None:
    """Measure all methods."""
    defaults = {"rounds": 7, "only": [*METHODS, *SIZES], "against": "", "print": False}
    options = records.parser(__doc__, {"only": defaults["only"]}, **defaults).parse_args()
    if options.against:
        compare(options.against, options.rounds, options.only)
        return
    if options.print:
        print(json.dumps(measure(options.rounds, options.only)))
        return
    records.require_clean_tree()
    found = measure(options.rounds, list(dict.fromkeys(["SimCSE", *options.only])))
    base = found["SimCSE"]
    for name, one in found.items():
        ratio = statistics.median(a / b for a, b in zip(one["seconds"], base["seconds"], strict=True))
        line = {"method": name, "rounds": options.rounds, **one, "seconds": statistics.median(one["seconds"])}
        ratios = {"flops_ratio": one["flops"] / base["flops"], "seconds_ratio": ratio}
        records.replace("speed", line | ratios, key="method")
        print(f"{name:36} {ratios['flops_ratio']:.2f} x operations, {ratio:.2f} x seconds of SimCSE")


if __name__ == "__main__":
    main()
