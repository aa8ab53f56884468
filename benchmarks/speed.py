"""A training step of each method as a multiple of the SimCSE floor, in one process, in turns.

    python benchmarks/speed.py

Floor: one merged forward of 2 x 64 sequences of length 32, InfoNCE, backward, fused AdamW; encoder 6 x 384, float32, one CPU
thread. A third of the sentences have 25 words or more. A method's own floor is a plain step of what its definition asks for,
which ours may undercut where it shares passes. Each round runs every step once, in turns, so that a machine that slows down
slows all of them; the numbers are medians over rounds, the ratios medians of the rounds' ratios. Writes
``benchmarks/results/speed.json``.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable, Collection
from typing import Any

import torch
import torch.nn.functional as F
from provenance import ROOT, provenance, refuse_changes
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from tqdm import trange

from sbert_plugins import functional, losses, recipes
from sbert_plugins.encoder import dropout_off
from sbert_plugins.modules import DenoisingDecoder
from sbert_plugins.recipes.output import write_json

BATCH, LENGTH, LONG = 64, 32, 21
PHRASE = 5  # tokens of a hidden phrase: what the three best of Wikipedia sentences have, and the two ends
DENOSENT_LAYERS, DENOSENT_FEEDFORWARD = 16, 2048
AS_PRINTED = " as in its paper"
TARGETS = {"ArcCSE": 1.70, "ArcCSE with SAM": 3.40, "PT-BERT": 0.90, "PT-BERT pooled": 0.75, "SLT-FAI": 1.65}
TARGETS |= {"PaSeR" + AS_PRINTED: 1.95, "DenoSent" + AS_PRINTED: 3.50}


def batch(model: SentenceTransformer, rows: int = BATCH, length: int = LENGTH) -> dict[str, Tensor]:
    """64 full rows of 32 tokens: 21 of 30 words, 43 whose tokens are mostly continuations."""
    long = rows // 3
    tokens = model.tokenizer.convert_ids_to_tokens(list(range(len(model.tokenizer))))
    words = [i for i, token in enumerate(tokens) if token.isalpha() and len(token) > 3]
    pieces = [i for i, token in enumerate(tokens) if token.startswith("##") and token[2:].isalpha()]
    generator = torch.Generator().manual_seed(0)

    def pick(ids: list[int], *shape: int) -> Tensor:
        return torch.tensor(ids)[torch.randint(len(ids), shape, generator=generator)]

    content = pick(words, rows, length - 2)
    content[long:, 1::2] = pick(pieces, rows - long, (length - 2) // 2)
    edge = torch.full((rows, 1), model.tokenizer.cls_token_id)
    ids = torch.cat([edge, content, torch.full_like(edge, model.tokenizer.sep_token_id)], dim=1)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}


def stacked(features: dict[str, Tensor], times: int, rows: int | None = None) -> dict[str, Tensor]:
    return {key: value[:rows].repeat(times, 1) for key, value in features.items()}


def stepper(parameters: list[Tensor], loss: Callable[[], Tensor]) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(parameters, lr=1e-5, fused=True)

    def step() -> None:
        loss().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def simcse_floor(model: SentenceTransformer, features: dict[str, Tensor]) -> Callable[[], Tensor]:
    def loss() -> Tensor:
        first, second = model(stacked(features, 2))["sentence_embedding"].chunk(2)
        return functional.info_nce(first, second, temperature=0.05)

    return loss


def arccse_floor(model: SentenceTransformer, features: dict[str, Tensor]) -> Callable[[], Tensor]:
    """SimCSE's floor and three passes of the long sentences without dropout."""
    base = simcse_floor(model, features)

    def loss() -> Tensor:
        total = base()
        with dropout_off(model):
            anchors, near, far = model(stacked(features, 3, LONG))["sentence_embedding"].chunk(3)
        return total + functional.order_triplet_loss(anchors, near, far)

    return loss


def paser_columns(model: SentenceTransformer, features: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    """The sentences, copies with three words hidden, and these words between the two ends."""
    ids = features["input_ids"]
    masked = ids.clone()
    masked[:, 1:4] = model.tokenizer.mask_token_id
    phrase = torch.cat([ids[:, :4], ids[:, -1:]], dim=1)
    short = {"input_ids": phrase, "attention_mask": torch.ones_like(phrase), "token_type_ids": torch.zeros_like(phrase)}
    return [features, {**features, "input_ids": masked}, short]


def paser_floor(model: SentenceTransformer, features: dict[str, Tensor]) -> tuple[list[Tensor], Callable[[], Tensor]]:
    """One merged forward of three copies, six decoder layers, the vocabulary at phrase and at masked tokens."""
    width, vocabulary = model.get_embedding_dimension(), len(model.tokenizer)
    layer = torch.nn.TransformerDecoderLayer(width, 16, width, activation="gelu", batch_first=True)
    decoder = torch.nn.TransformerDecoder(layer, 6)
    table = model.transformers_model.get_input_embeddings()
    anchor, masked, phrase = paser_columns(model, features)
    chosen = torch.rand(BATCH, LENGTH, generator=torch.Generator().manual_seed(0)) < 0.15
    causal = torch.nn.Transformer.generate_square_subsequent_mask(PHRASE - 1)

    def loss() -> Tensor:
        stack = {key: torch.cat([anchor[key], masked[key], anchor[key]]) for key in anchor}
        output = model(stack)
        first, second, _ = output["sentence_embedding"].chunk(3)
        memory = functional.decoding_signal(first, second)
        hidden = decoder(table(phrase["input_ids"][:, :-1]), memory, tgt_mask=causal, tgt_is_causal=True)
        tokens = output["token_embeddings"][-BATCH:][chosen]
        logits = torch.cat([hidden.flatten(0, 1), tokens]) @ table.weight.T
        targets = torch.cat([phrase["input_ids"][:, 1:].flatten(), anchor["input_ids"][chosen]])
        return torch.nn.functional.cross_entropy(logits.view(-1, vocabulary), targets)

    return [*model.parameters(), *decoder.parameters()], loss


def paser(**keywords: Any) -> Callable:
    def built(model: SentenceTransformer, features: dict[str, Tensor]) -> tuple[list[Tensor], Callable[[], Tensor]]:
        loss = losses.PaSeRLoss(model, **keywords).train()
        loss.state_is_kept = True
        columns = paser_columns(model, features)
        return list(loss.parameters()), lambda: sum(loss([dict(column) for column in columns]).values())

    return built


def pt_bert_floor(model: SentenceTransformer, features: dict[str, Tensor]) -> tuple[list[Tensor], Callable[[], Tensor]]:
    """One forward with and, of a copy, one without gradients, 256 further negatives, the copy moved once a step."""
    slow = copy.deepcopy(model).requires_grad_(False)
    queue = torch.randn(4 * BATCH, model.get_embedding_dimension())

    def loss() -> Tensor:
        torch._foreach_lerp_(list(slow.parameters()), list(model.parameters()), 0.115)
        queries = model(dict(features))["sentence_embedding"]
        with torch.no_grad():
            keys = slow(dict(features))["sentence_embedding"]
        return functional.info_nce(queries, keys, queue, temperature=0.05)

    return list(model.parameters()), loss


def slt_fai_floor(model: SentenceTransformer, features: dict[str, Tensor]) -> tuple[list[Tensor], Callable[[], Tensor]]:
    """One merged forward of two views and a copy with tokens masked; both classifiers, of tokens and of sentences."""
    width = model.get_embedding_dimension()
    of_tokens, of_sentences = (
        torch.nn.Sequential(torch.nn.Linear(width, 2 * width), torch.nn.ReLU(), torch.nn.Linear(2 * width, 2)) for _ in "ab"
    )
    labels = (torch.rand(BATCH, LENGTH, generator=torch.Generator().manual_seed(0)) < 0.5).long().flatten()
    ids = features["input_ids"].masked_fill(labels.view(BATCH, LENGTH).bool(), model.tokenizer.mask_token_id)
    complete = torch.arange(2).repeat_interleave(BATCH)

    def loss() -> Tensor:
        stack = stacked(features, 3)
        stack["input_ids"] = torch.cat([features["input_ids"], features["input_ids"], ids])
        output = model(stack)
        first, second, incomplete = output["sentence_embedding"].chunk(3)
        entropy = torch.nn.functional.cross_entropy
        total = functional.info_nce(first, second, temperature=0.05)
        total = total + entropy(of_tokens(output["token_embeddings"][:BATCH].flatten(0, 1)), labels)
        return total + 2 * entropy(of_sentences(torch.cat([first, incomplete])), complete)

    return [*model.parameters(), *of_tokens.parameters(), *of_sentences.parameters()], loss


def sam(parameters: list[Tensor], loss: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """Two passes, the arithmetic of the perturbation included."""

    def perturbed() -> Tensor:
        loss().backward()
        with torch.no_grad():
            trained = [parameter for parameter in parameters if parameter.grad is not None]
            saved = [parameter.clone() for parameter in trained]
            norm = torch.stack(torch._foreach_norm([parameter.grad for parameter in trained])).norm()
            torch._foreach_add_(trained, torch._foreach_mul([parameter.grad for parameter in trained], 0.05 / norm))
        for parameter in trained:
            parameter.grad = None
        value = loss()
        value.backward()
        with torch.no_grad():
            torch._foreach_copy_(trained, saved)
        return torch.zeros((), requires_grad=True)  # its gradients are in place

    return perturbed


def of_sentences(build: Callable[..., Any], **keywords: Any) -> Callable:
    """A loss that reads one column of sentences."""

    def built(model: SentenceTransformer, features: dict[str, Tensor]) -> tuple[list[Tensor], Callable[[], Tensor]]:
        loss = build(model, **keywords)
        loss.state_is_kept = True
        trained = [parameter for parameter in loss.parameters() if parameter.requires_grad]
        return trained, lambda: value_of(loss([dict(features)]))

    return built


def value_of(value: Tensor | dict[str, Tensor]) -> Tensor:
    return sum(value.values()) if isinstance(value, dict) else value


def denosent_floor(model: SentenceTransformer, features: dict[str, Tensor]) -> tuple[list[Tensor], Callable[[], Tensor]]:
    """SimCSE's floor, sixteen layers of self-attention over the noisy sentence, the vocabulary at its tokens."""
    encoder, size = model.transformers_model, model.get_embedding_dimension()
    layer = nn.TransformerEncoderLayer(size, 1, DENOSENT_FEEDFORWARD, batch_first=True)
    layers = nn.TransformerEncoder(layer, DENOSENT_LAYERS, enable_nested_tensor=False)
    head = nn.Sequential(nn.Linear(size, size), nn.GELU(), nn.LayerNorm(size)).train()
    targets = features["input_ids"][:, 1:-1]

    def loss() -> Tensor:
        first, second = model(stacked(features, 2))["sentence_embedding"].chunk(2)
        with torch.no_grad():
            embedded = encoder.embeddings(features["input_ids"])[:, 1:-1]
        hidden = layers(F.dropout(embedded, 0.825) + second.unsqueeze(1)).flatten(0, 1)
        logits = head(hidden) @ encoder.get_input_embeddings().weight.T
        return functional.info_nce(first, second, temperature=0.03) + F.cross_entropy(logits, targets.flatten())

    return [*model.parameters(), *layers.parameters(), *head.parameters()], loss


def decoder_passes(*, is_ragged: bool) -> dict[str, tuple[nn.Module, Callable[[], Tensor]]]:
    """Sixteen layers over 64 sentences and a memory of one vector: here, and with torch's own layers.

    The sentences have 30 tokens each or, ``is_ragged``, 5 to 30.
    """
    own = DenoisingDecoder(
        384,
        num_layers=DENOSENT_LAYERS,
        num_heads=1,
        feedforward_dimension=DENOSENT_FEEDFORWARD,
        dropout=0.1,
        noise_dropout=0.0,
    )
    layer = nn.TransformerDecoderLayer(384, 1, DENOSENT_FEEDFORWARD, batch_first=True)
    theirs = nn.TransformerDecoder(layer, DENOSENT_LAYERS)
    embedded, memory = torch.randn(BATCH, LENGTH - 2, 384), torch.randn(BATCH, 384, requires_grad=True)
    lengths = torch.linspace(5 if is_ragged else LENGTH - 2, LENGTH - 2, BATCH).round()
    seen = torch.arange(LENGTH - 2) < lengths[:, None]
    return {
        "here": (own, lambda: own(embedded, memory, seen).sum()),
        "torch.nn.TransformerDecoder": (
            theirs,
            lambda: theirs(embedded, memory.unsqueeze(1), tgt_key_padding_mask=~seen).sum(),
        ),
    }


def places_of(module: nn.Module) -> set[int]:
    return {tensor.untyped_storage().data_ptr() for tensor in (*module.parameters(), *module.buffers())}


def kept_bytes(forward: Callable[[], Tensor], own: Collection[int] = ()) -> int:
    """Return the bytes of all storages that a forward keeps for its backward pass, but for those that start at ``own``."""
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept.setdefault(storage.data_ptr(), storage)  # held, so that its place is given to no other; a tensor holds the graph
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        value = forward()
    del value
    return sum(storage.nbytes() for place, storage in kept.items() if place not in own)


def decoder_record(rounds: int, *, is_ragged: bool) -> dict[str, dict[str, float]]:
    """Seconds of a forward and backward in turns, parameters, and what the forward keeps for the backward."""
    passes = decoder_passes(is_ragged=is_ragged)
    times: dict[str, list[float]] = {name: [] for name in passes}
    for _ in trange(1 + rounds, desc="decoders"):
        for name, (module, forward) in passes.items():
            start = time.perf_counter()
            forward().backward()
            times[name].append(time.perf_counter() - start)
            module.zero_grad()
    record = {}
    for name, (module, forward) in passes.items():
        record[name] = {
            "median_seconds": statistics.median(times[name][1:]),
            "parameters": sum(parameter.numel() for parameter in module.parameters()),
            "activations_mib": round(kept_bytes(forward, places_of(module)) / 2**20, 1),
        }
    return record


def with_sam(build: Callable) -> Callable:
    def built(model: SentenceTransformer, features: dict[str, Tensor]) -> tuple[list[Tensor], Callable[[], Tensor]]:
        parameters, loss = build(model, features)
        return parameters, sam(parameters, loss)

    return built


def plain(build: Callable) -> Callable:
    return lambda model, features: (list(model.parameters()), build(model, features))


DENOSENT, PASER = recipes.DENOSENT.paper_keywords, recipes.PASER.paper_keywords
# The offline encoder has no head of its own: the parts of one stand in, whose weights change no time.
HEAD = {"mlm_head": "saved"}
STEPS = {
    "SimCSE floor": plain(simcse_floor),
    "ConSERT": of_sentences(losses.ConSERTLoss),
    "recommended": of_sentences(recipes.recommended_loss),
    "bag of words": of_sentences(losses.BagOfWordsLoss),
    "ArcCSE floor": plain(arccse_floor),
    "ArcCSE": of_sentences(losses.ArcCSELoss),
    "ArcCSE without a long sentence": of_sentences(losses.ArcCSELoss, min_words=LENGTH),
    "ArcCSE with SAM": with_sam(of_sentences(losses.ArcCSELoss)),
    "PaSeR": paser(**HEAD),
    f"PaSeR{AS_PRINTED} floor": paser_floor,
    f"PaSeR{AS_PRINTED}": paser(**(PASER | HEAD)),
    "DenoSent": of_sentences(losses.DenoSentLoss),
    f"DenoSent{AS_PRINTED} floor": denosent_floor,
    f"DenoSent{AS_PRINTED}": of_sentences(losses.DenoSentLoss, **(DENOSENT | HEAD)),
    "PT-BERT floor": pt_bert_floor,
    "PT-BERT": of_sentences(losses.PTBERTLoss),
    "PT-BERT pooled": of_sentences(losses.PTBERTLoss, attend_to="pooled"),
    "SLT-FAI floor": slt_fai_floor,
    "SLT-FAI": of_sentences(recipes.slt_fai_loss, backbone="simcse", warmup_steps=0),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", nargs="+", default=[""], help="steps whose names begin so; the result file stays as it is")
    options = parser.parse_args()
    is_whole = options.only == [""]
    if is_whole:
        refuse_changes()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    steps = {}
    for name, build in STEPS.items():
        if name.startswith(("SimCSE floor", *options.only)):
            model = recipes.offline_encoder(num_layers=6, max_seq_length=LENGTH, device="cpu").train()
            steps[name] = stepper(*build(model, batch(model)))
    times: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        step()  # warm-up
    for _ in trange(options.rounds, desc="rounds"):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - start)

    def ratio(name: str, floor: str) -> float:
        return statistics.median(a / b for a, b in zip(times[name], times[floor], strict=True))

    record = {
        "rounds": options.rounds,
        "median_seconds": {name: statistics.median(values) for name, values in times.items()},
        "multiple_of_simcse_floor": {name: ratio(name, "SimCSE floor") for name in steps},
        "multiple_of_own_floor": {name: ratio(name, f"{name} floor") for name in steps if f"{name} floor" in steps},
        "denosent_decoder": decoder_record(options.rounds, is_ragged=False),
        "denosent_decoder_ragged": decoder_record(options.rounds, is_ragged=True),
        "target": TARGETS,
        **provenance(),
    }
    if is_whole:
        path = ROOT / "benchmarks" / "results" / "speed.json"
        write_json(path, record)
    show(record)


def show(record: dict) -> None:
    for name, seconds in record["median_seconds"].items():
        target = f"  target {TARGETS[name]:.2f}" if name in TARGETS else ""
        own = record["multiple_of_own_floor"].get(name)
        own = f"  {own:.2f} x its own floor" if own else ""
        print(f"{name:24}  {seconds:.3f} s  {record['multiple_of_simcse_floor'][name]:.2f} x SimCSE floor{target}{own}")
    for kind in ("denosent_decoder", "denosent_decoder_ragged"):
        for name, values in record[kind].items():
            print(f"{kind}, {name}: {values}")


if __name__ == "__main__":
    main()
