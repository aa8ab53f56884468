"""Count the operations of a training step of each method, and time it: multiples of SimCSE and of its floor.

    python benchmarks/speed.py                        # writes results/speed.jsonl
    python benchmarks/speed.py --only SimCSE --print  # prints without a record
    python benchmarks/speed.py --against 6a995b3 --only SimCSE "recommended, keep=0"

A step is forward, backward and AdamW on 64 sentences of 32 tokens, in float32 on one CPU thread, with the six
layers of all-MiniLM-L6-v2, or what a name of ``SIZES`` says. A third of the sentences have 25 words or more.
The floor of a method is a plain step of what its definition asks for. Counts do not depend on the machine. In
each round SimCSE, the method and its floor make one step, so that a slow moment of the machine affects all; a
ratio is the median over the rounds. ``--against`` prints this tree's step divided by that of an earlier
commit, for methods that both have.
"""

import copy
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
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import records
import torch
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, flop_registry, sdpa_backward_flop, sdpa_flop
from transformers import BertConfig, BertModel

from sbert_plugins import functional, losses, recipes
from sbert_plugins.encoder import dropout_off
from sbert_plugins.modules import PseudoTokenAttention

ROWS, LENGTH = 64, 32
# torch itself does not count attention without dropout on a processor.
flop_registry[torch.ops.aten._scaled_dot_product_flash_attention_for_cpu] = sdpa_flop
flop_registry[torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward] = sdpa_backward_flop
Column = dict[str, Tensor]


def build(loss: str, **keywords: Any) -> Callable[[SentenceTransformer], torch.nn.Module]:
    """Return a function that builds a loss with those of the keywords that the installed version knows."""
    function = getattr(losses, loss, None) or getattr(recipes, loss)
    known = inspect.signature(function).parameters
    return lambda model: function(model, **{key: value for key, value in keywords.items() if key in known})


METHODS = {
    "SimCSE": build("ArcCSELoss", margin_degrees=0.0, triplet_weight=0.0),  # 6a995b3 has no SimCSELoss
    "ConSERT": build("ConSERTLoss"),
    "bag of words": build("BagOfWordsLoss"),
    "recommended, keep=0": build("recommended_loss", keep=0.0),
    "recommended": lambda model: recipes.recommended_loss(model, keep=0.1),
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
        decoder_layers=16,
        projector=True,
        token_weights=None,
        balance=None,
        mlm_head="fresh",
    ),
    # Around SimCSE without a projection head: the default of the class, and of a function at 6a995b3.
    "SLT-FAI": lambda model: getattr(recipes, "slt_fai_loss", losses.SLTFAILoss)(
        model, warmup_steps=0.0, balance=None
    ),
}


# Parts that a floor trains with the encoder: functions of the width.
PARTS: dict[str, Callable[[int], nn.Module]] = {
    "head": lambda width: nn.Sequential(nn.Linear(width, width), nn.Tanh()),
    "words": lambda width: nn.Linear(width, width),
    "words of four": lambda width: nn.Linear(4 * width, width),
    "attention": lambda width: PseudoTokenAttention(width, num_pseudo_tokens=128, attend_to="tokens"),
    "language": lambda width: nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width)),
    "writer": lambda width: nn.TransformerDecoder(
        nn.TransformerDecoderLayer(width, 16, width, activation="gelu", batch_first=True), 6
    ),
    "restorer": lambda width: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(width, 1, 2048, batch_first=True), 16, enable_nested_tensor=False
    ),
    "rare": lambda width: nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, 2)),
    "complete": lambda width: nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, 2)),
}


class Floor(nn.Module):
    """A plain step of what the definition of a method asks for.

    These are the passes of the encoder, the decoder, and the products. A floor leaves out what costs little:
    random draws, changed embeddings, limits of gradients, diagnostics.

    Args:
        model: The encoder.
        compute: Returns the loss, given the floor and the columns.
        *names: Keys of ``PARTS``.
    """

    def __init__(self, model: Any, compute: Callable[..., Tensor], *names: str) -> None:
        super().__init__()
        self.compute = compute
        self.table = model.transformers_model.get_input_embeddings().weight
        width = model.get_embedding_dimension()
        self.parts = nn.ModuleDict({"encoder": model} | {name: PARTS[name](width) for name in names})
        self.copies = copy.deepcopy(self.parts).requires_grad_(False)

    def forward(self, columns: list[Column]) -> dict[str, Tensor]:
        return {"floor": self.compute(self, *columns)}


def encode(parts: nn.ModuleDict, *columns: Column, dropout: bool = True) -> Column:
    """Return the outputs of one forward over the rows of all columns."""
    merged = {name: torch.cat([column[name] for column in columns]) for name in columns[0]}
    with nullcontext() if dropout else dropout_off(parts["encoder"]):
        return parts["encoder"](merged)


def predict_words(floor: Floor, hidden: Tensor, column: Column) -> Tensor:
    """Return the loss of the words of texts, among the different words of the batch."""
    candidates, targets = column["input_ids"][:, 1:-1].unique(return_inverse=True)
    return -(hidden @ floor.table[candidates].T).log_softmax(dim=1).gather(1, targets).mean()


def predict_tokens(floor: Floor, hidden: Tensor, ids: Tensor) -> Tensor:
    """Return the loss of tokens among the whole vocabulary."""
    return F.cross_entropy(floor.parts["language"](hidden) @ floor.table.T, ids)


def simcse(floor: Floor, anchor: Column) -> Tensor:
    """Encode two views with different dropout in one pass."""
    vectors = floor.parts["head"](encode(floor.parts, anchor, anchor)["sentence_embedding"])
    return functional.info_nce(*vectors.chunk(2), temperature=0.05)


def consert(floor: Floor, anchor: Column) -> Tensor:
    """Encode two views without dropout in one pass, and add the part that ``recommended`` has."""
    vectors = encode(floor.parts, anchor, anchor, dropout=False)["sentence_embedding"]
    first, second = vectors.chunk(2)
    if "head" not in floor.parts:
        return functional.nt_xent(first, second, temperature=0.1)
    loss = functional.nt_xent(*floor.parts["head"](vectors).chunk(2), temperature=0.1)
    if "words" in floor.parts:
        return loss + predict_words(floor, floor.parts["words"](first), anchor)
    with torch.no_grad():
        taught = encode(floor.copies, anchor, dropout=False)["sentence_embedding"]
    return loss + functional.similarity_distillation(first, taught, temperature=0.1, teacher_temperature=0.05)


def bag_of_words(floor: Floor, anchor: Column) -> Tensor:
    """Encode once, and predict the words."""
    return predict_words(
        floor, floor.parts["words"](encode(floor.parts, anchor)["sentence_embedding"]), anchor
    )


def arccse(floor: Floor, anchor: Column) -> Tensor:
    """Add a pass of three copies of the long sentences without dropout to SimCSE."""
    long = {name: value[: ROWS // 3] for name, value in anchor.items()}
    vectors = floor.parts["head"](encode(floor.parts, long, long, long, dropout=False)["sentence_embedding"])
    return simcse(floor, anchor) + functional.order_triplet_loss(*vectors.chunk(3))


def pt_bert(floor: Floor, anchor: Column) -> Tensor:
    """Encode and map once, and once by copies that follow, without gradients; compare with 256 vectors."""

    def embed(parts: nn.ModuleDict) -> Tensor:
        found = encode(parts, anchor)
        mapped = parts["attention"](found["sentence_embedding"], found["token_embeddings"])
        return parts["head"](mapped)

    with torch.no_grad():
        torch._foreach_lerp_([*floor.copies.parameters()], [*floor.parts.parameters()], 0.115)
        keys = embed(floor.copies)
    queue = torch.randn(256 - ROWS, keys.shape[1])
    return functional.info_nce(embed(floor.parts), keys, queue, temperature=0.05)


def paser(floor: Floor, anchor: Column, masked: Column, phrase: Column) -> Tensor:
    """Encode three copies in one pass, write the phrase, and predict 15 % of the tokens of the third copy."""
    outputs, ids = encode(floor.parts, anchor, masked, anchor), phrase["input_ids"]
    sentences, copies, _ = outputs["sentence_embedding"].chunk(3)
    memory = functional.decoding_signal(sentences, copies, signed=True)
    causal = nn.Transformer.generate_square_subsequent_mask(ids.shape[1] - 1)
    read = F.embedding(ids[:, :-1], floor.table)
    written = floor.parts["writer"](read, memory, tgt_mask=causal, tgt_is_causal=True).flatten(0, 1)
    both = (outputs["token_embeddings"][-ROWS:], anchor["input_ids"])
    tokens, targets = (each[:, 1:-1].flatten(0, 1) for each in both)
    chosen = round(0.15 * len(targets))
    hidden = torch.cat([written, tokens[:chosen]])
    return predict_tokens(floor, hidden, torch.cat([ids[:, 1:].flatten(), targets[:chosen]]))


def paser_words(floor: Floor, anchor: Column, masked: Column, phrase: Column) -> Tensor:
    """Encode two copies in one pass, and predict the words of the phrase."""
    sentences, copies = encode(floor.parts, anchor, masked)["sentence_embedding"].chunk(2)
    memory = functional.decoding_signal(sentences, copies, signed=True).flatten(1)
    return predict_words(floor, floor.parts["words of four"](memory), phrase)


def denosent(floor: Floor, anchor: Column) -> Tensor:
    """Encode two views in one pass, and restore each token of the noisy sentence."""
    vectors = floor.parts["words"](encode(floor.parts, anchor, anchor)["sentence_embedding"])
    first, second = vectors.chunk(2)
    ids = anchor["input_ids"]
    with torch.no_grad():
        read = floor.parts["encoder"].transformers_model.embeddings(ids)[:, 1:-1]
    restored = floor.parts["restorer"](F.dropout(read, 0.825) + second.unsqueeze(1))
    contrast = functional.info_nce(first, second, temperature=0.03)
    return contrast + predict_tokens(floor, restored.flatten(0, 1), ids[:, 1:-1].flatten())


def slt_fai(floor: Floor, anchor: Column) -> Tensor:
    """Encode two views and the incomplete copies in one pass, and classify tokens and sentences."""
    outputs, ids = encode(floor.parts, anchor, anchor, anchor), anchor["input_ids"][:, 1:-1]
    first, second, incomplete = outputs["sentence_embedding"].chunk(3)
    rare = floor.parts["rare"](outputs["token_embeddings"][:ROWS, 1:-1].flatten(0, 1))
    complete = floor.parts["complete"](torch.cat([first, incomplete]))
    return (
        functional.info_nce(first, second, temperature=0.05)
        + F.cross_entropy(rare, ids.flatten() % 2)
        + F.cross_entropy(complete, torch.arange(2).repeat_interleave(ROWS))
    )


FLOORS: dict[str, Callable[[SentenceTransformer], nn.Module]] = {
    "SimCSE": lambda model: Floor(model, simcse, "head"),
    "ConSERT": lambda model: Floor(model, consert),
    "bag of words": lambda model: Floor(model, bag_of_words, "words"),
    "recommended, keep=0": lambda model: Floor(model, consert, "head", "words"),
    "recommended": lambda model: Floor(model, consert, "head"),
    "ArcCSE": lambda model: Floor(model, arccse, "head"),
    "PT-BERT": lambda model: Floor(model, pt_bert, "head", "attention"),
    "PaSeR": lambda model: Floor(model, paser, "writer", "language"),
    "PaSeR, words only": lambda model: Floor(model, paser_words, "words of four"),
    "DenoSent": lambda model: Floor(model, denosent, "words", "restorer", "language"),
    "SLT-FAI": lambda model: Floor(model, slt_fai, "rare", "complete"),
}

# The step of ``recommended`` in other sizes: keywords of build_step.
SIZES: dict[str, dict[str, Any]] = {
    "recommended, 64 tokens": {"length": 64},
    "recommended, 128 tokens": {"length": 128},
    "recommended, 12 layers of width 768": {"is_base": True},
    "recommended, bfloat16": {"bf16": True},
}


def make_columns(model: SentenceTransformer, name: str, length: int = LENGTH) -> list[Column]:
    """Return a method's columns with full rows: random words, and word pieces in two thirds of the rows."""
    tokens = model.tokenizer.convert_ids_to_tokens(list(range(len(model.tokenizer))))
    words = torch.tensor([i for i, token in enumerate(tokens) if token.isalpha() and len(token) > 3])
    pieces = torch.tensor([i for i, token in enumerate(tokens) if token.startswith("##")])
    generator, long = torch.Generator().manual_seed(0), ROWS // 3
    ids = words[torch.randint(len(words), (ROWS, length), generator=generator)]
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
    name: str,
    builders: Mapping[str, Callable[[SentenceTransformer], nn.Module]] = METHODS,
    *,
    length: int = LENGTH,
    is_base: bool = False,
    bf16: bool = False,
) -> Callable[[], None]:
    """Return a function that makes one training step of a method, or of its floor."""
    torch.manual_seed(0)
    model = recipes.offline_encoder(num_layers=6, max_seq_length=length, device="cpu")
    if is_base:  # the size of bert-base, with random weights
        model[0].model = BertModel(BertConfig(vocab_size=len(model.tokenizer)))
        model[1] = Pooling(768)
    if bf16:
        model[0].model.set_attn_implementation("eager")  # as recipes.train does
    build_loss = builders.get(name, builders["recommended"])
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


class MemoryCounter(TorchDispatchMode):
    """Find the largest sum of bytes that tensors hold at once."""

    def __init__(self) -> None:
        super().__init__()
        self.held = self.peak = 0
        self.known: set[int] = set()

    def release(self, key: int, size: int) -> None:
        """Subtract the bytes of a storage that is freed."""
        self.known.discard(key)
        self.held -= size

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator and add the bytes of its results."""
        output = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(output):
            storage = tensor.untyped_storage() if isinstance(tensor, Tensor) else None
            if storage is not None and storage._cdata not in self.known:
                self.known.add(storage._cdata)
                self.held += storage.nbytes()
                self.peak = max(self.peak, self.held)
                weakref.finalize(storage, self.release, storage._cdata, storage.nbytes())
        return output


def count(step: Callable[[], None]) -> dict[str, int]:
    """Return the floating-point operations and the peak of bytes of a step."""
    torch.manual_seed(0)
    with FlopCounterMode(display=False) as flops:
        step()
    torch.manual_seed(0)
    with MemoryCounter() as tensors:
        step()
    return {"flops": flops.get_total_flops(), "peak_bytes": tensors.peak}


def measure(rounds: int, name: str, *, has_floor: bool = True) -> dict[str, Any]:
    """Return counts and seconds of a method's step, divided by those of SimCSE and of its floor."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    steps = {"SimCSE": build_step("SimCSE"), name: build_step(name, **SIZES.get(name, {}))}
    if has_floor:
        steps["floor"] = build_step(name, FLOORS, **SIZES.get(name, {}))
    counts = {key: count(step) for key, step in steps.items()}
    seconds: dict[str, list[float]] = {key: [] for key in steps}
    for _ in range(rounds):
        for key, step in steps.items():
            start = time.perf_counter()
            step()
            seconds[key].append(time.perf_counter() - start)
    line = {"rounds": rounds, **counts[name], "seconds": statistics.median(seconds[name])}
    for prefix, other in {"": "SimCSE", "floor_": "floor"}.items():
        if other in steps:
            line[f"{prefix}flops_ratio"] = counts[name]["flops"] / counts[other]["flops"]
            line[f"{prefix}seconds_ratio"] = statistics.median(
                own / its for own, its in zip(seconds[name], seconds[other], strict=True)
            )
    return line


def measure_in(tree: Path, names: list[str]) -> dict[str, dict[str, Any]]:
    """Return :func:`measure` of one round with the package of a tree, from a process of its own."""
    command = [sys.executable, __file__, "--rounds", "1", "--print", "--no-floors", "--only", *names]
    environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, env=environment, cwd=tree, stdout=subprocess.PIPE, text=True, check=True)
    return {line["method"]: line for line in map(json.loads, result.stdout.splitlines())}


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
        flops, memory, seconds = (
            statistics.median(now[name][key] / old[name][key] for old, now in pairs)
            for key in ("flops", "peak_bytes", "seconds")
        )
        print(f"{name:36} operations {flops:.3f}, memory {memory:.3f}, seconds {seconds:.3f}")


def main() -> None:
    """Measure all methods."""
    defaults = {"rounds": 7, "only": [*METHODS, *SIZES], "against": "", "floors": True, "print": False}
    options = records.parser(__doc__, {"only": defaults["only"]}, **defaults).parse_args()
    if options.against:
        compare(options.against, options.rounds, options.only)
        return
    if not options.print:
        records.require_clean_tree()
    for name in options.only:
        line = {"method": name} | measure(options.rounds, name, has_floor=options.floors)
        print(json.dumps(line), flush=True)
        if not options.print:
            records.replace("speed", line, key="method")


if __name__ == "__main__":
    main()
