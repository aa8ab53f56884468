"""Is ``losses.official`` the authors' computation? Their code and ours side by side, number by number.

    git clone https://github.com/Namco0816/PT-BERT clone
    python benchmarks/fidelity.py pt-bert --official clone --python old/bin/python

``METHOD`` is ``pt-bert``, ``paser``, ``denosent`` or ``slt-fai``; ``--official`` is a clone of the authors' repository, which
you make and of which nothing enters this one. Its model file is imported as it is, in a process of its own
(``official_side.py``), and built on a random BERT of two layers of 64, dropout 0. The weights that it starts with are copied
into ours, both sides are given the same ids and the same draws, and five updates of plain gradient descent are made on each
(the first steps of Adam have the size of the learning rate, whatever the gradient: rounding turns the smallest).

Written for transformers 4.2.1 are PT-BERT and PaSeR: ``--python`` names the interpreter of an environment with it
(``pip install --no-deps transformers==4.2.1`` beside numpy, torch, scikit-learn, requests, filelock, tqdm, regex and
packaging; it goes without tokenizers). DenoSent runs under the transformers of today, SLT-FAI carries its own.

``results/fidelity.json`` holds, for each method and term, the differences of the value, the cosines of the two gradients and
their largest difference, at the word embeddings and in the last layer, for each update; how far the weights are apart at the
end; and what cannot agree, with its size.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from official_side import DENOSENT, FILES, UPDATES, five_updates, watched
from provenance import provenance
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from torch import Tensor, nn
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM, set_seed

from sbert_plugins import data, losses, modules, recipes
from sbert_plugins.encoder import TokenRoles, View, mlm_mask
from sbert_plugins.losses import consert, official, paser
from sbert_plugins.recipes.output import write_json

RESULT = Path(__file__).parent / "results" / "fidelity.json"
ROWS = 24
CONFIG = {
    "vocab_size": 30522,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "max_position_embeddings": 64,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "initializer_range": 0.1,
}
Arrays = dict[str, np.ndarray]
State = dict[str, Tensor]


@dataclass
class Side:
    """What one method needs on our side."""

    loss: nn.Module
    terms_of: Callable[[int], Mapping[str, Tensor]]
    copies: list[tuple[nn.Module, Callable[[State], State]]]  # a module, and what the official weights are in its names
    own_start: list[tuple[nn.Module, Callable[[State], State]]] = field(default_factory=list)  # instead, where ours is another
    cannot: dict[str, str] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)  # of the terms in the total, where it is not 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("method", choices=list(FILES))
    parser.add_argument("--official", required=True, metavar="DIR", help="a clone of the authors' repository")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that runs the authors' side")
    parser.add_argument("--result", type=Path, default=RESULT, help="the file to write into")
    options = parser.parse_args()
    try:
        found = compare(options.method, Path(options.official), options.python)
    except (OSError, ValueError) as error:
        raise SystemExit(f"error: {error}") from error
    print_table(options.method, found)
    known = json.loads(options.result.read_text(encoding="utf-8")) if options.result.is_file() else {}
    known[options.method] = found
    write_json(options.result, dict(sorted(known.items())))


def compare(method: str, clone: Path, python: str) -> dict[str, Any]:
    """Run both sides and return the record of a method.

    Raises:
        ValueError: If the clone lacks the model file, or the authors' side fails.
    """
    file = clone / FILES[method]
    if not file.is_file():
        what = "has no such file" if clone.is_dir() else "is no directory"
        raise ValueError(
            f"--official must be a clone of the authors' repository with {FILES[method]}, got {clone}, which {what}."
        )
    set_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        model = tiny_encoder(Path(scratch) / "encoder", "mean" if method == "slt-fai" else "cls")
        inputs = {"config": np.array(json.dumps(CONFIG)), **INPUTS[method](model)}
        theirs = run_official(method, clone, python, inputs, Path(scratch))
        found, start, end = (part(theirs, name) for name in ("found", "start", "end"))
        own = SIDES[method](copy.deepcopy(model), inputs, found)
        side = SIDES[method](model, inputs, found)
        ours, apart, moved = our_updates(side, tensors(start), tensors(end))
        cannot = {"dropout": "0 on both sides: its draws are not the same", **side.cannot}
        if own.own_start:
            own.copies = own.own_start
            terms = differences(found, our_updates(own, tensors(start), tensors(end))[0])
            sizes = (max(map(abs, term["difference"])) for term in terms.values())
            cannot["ours, with its own start of the slow copy"] = f"values differ by up to {max(sizes):.2f}"
    return {
        "terms": differences(found, ours),
        "weights_after_five_updates": {"apart": apart, "moved": moved},
        "cannot_agree": cannot,
        "official": {"file": FILES[method], **identity(file), **json.loads(str(theirs["versions"]))},
        "rows": ROWS,
        **provenance(),
    }


def run_official(method: str, clone: Path, python: str, inputs: Arrays, scratch: Path) -> Arrays:
    """Run the authors' side in a process of its own and return its arrays."""
    np.savez(scratch / "inputs.npz", **inputs)
    script = str(Path(__file__).parent / "official_side.py")
    command = [python, script, method, str(clone.resolve()), str(scratch / "inputs.npz"), str(scratch / "outputs.npz")]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    except subprocess.CalledProcessError as error:
        last = "\n".join(error.stderr.strip().splitlines()[-8:])
        raise ValueError(
            f"the authors' code could not be run by {python}, which must be able to import {FILES[method]} of {clone} "
            f"(--python names another interpreter):\n{last}"
        ) from error
    return dict(np.load(scratch / "outputs.npz"))


def our_updates(side: Side, start: State, end: State) -> tuple[Arrays, float, float]:
    """Copy the official weights into ours, train, and return terms and gradients, and how far weights are apart, and moved."""
    for module, of in side.copies:
        wanted = of(start)
        missing, unexpected = module.load_state_dict(wanted, strict=False)
        assert not unexpected, unexpected
        assert all("pooler" in name or "momentum" in name for name in missing), missing
    side.loss.state_is_kept = True  # of five updates
    encoder = side.loss.model.train()[0].model  # type: ignore[operator, union-attr]
    parameters = [parameter for parameter in side.loss.parameters() if parameter.requires_grad]
    ours = five_updates(parameters, watched(encoder), side.terms_of, weights=side.weights)
    apart = moved = 0.0
    for module, of in side.copies:
        now, before = module.state_dict(), of(start)
        for name, tensor in of(end).items():
            apart = max(apart, (now[name] - tensor).abs().max().item())
            moved = max(moved, (before[name] - tensor).abs().max().item())
    return ours, apart, moved


def differences(theirs: Arrays, ours: Arrays) -> dict[str, Any]:
    """Compare values and gradients of each term over the updates."""
    names = [name.removeprefix("0/value/") for name in theirs if name.startswith("0/value/")]
    found: dict[str, Any] = {}
    for name in names:
        values = [[float(side[f"{i}/value/{name}"]) for i in range(UPDATES)] for side in (theirs, ours)]
        found[name] = {"official": values[0], "difference": [b - a for a, b in zip(*values, strict=True)]}
        for place in ("words", "last"):
            pairs = [[side[f"{i}/{place}/{name}"].astype("float64") for side in (theirs, ours)] for i in range(UPDATES)]
            found[name][f"cosine_{place}"] = [cosine(a, b) for a, b in pairs]
            found[name][f"largest_{place}"] = [float(abs(a - b).max()) for a, b in pairs]
            found[name][f"norm_{place}"] = [float(np.linalg.norm(a)) for a, _ in pairs]
    return found


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / norms if norms else float(not a.any() and not b.any())


def print_table(method: str, found: dict[str, Any]) -> None:
    print(f"{method}, largest of {UPDATES} updates   value    difference  cos words  cos last   gradients apart")
    for name, term in found["terms"].items():
        cosines = (min(term[f"cosine_{place}"]) for place in ("words", "last"))
        largest = max(max(term[f"largest_{place}"]) for place in ("words", "last"))
        shown = "  ".join(f"{each:9.7f}" for each in cosines)
        apart = max(map(abs, term["difference"]))
        print(f"{name:32} {max(term['official']):10.6f}  {apart:10.1e}  {shown}  {largest:.1e}")
    weights = found["weights_after_five_updates"]
    print(f"weights moved by up to {weights['moved']:.2e}, apart by up to {weights['apart']:.1e}")
    for name, size in found["cannot_agree"].items():
        print(f"cannot agree: {name}: {size}")


def identity(file: Path) -> dict[str, str | None]:
    """Return the commit of a clone, if it is one, and a sum of the file."""
    command = ["git", "-C", str(file.parent), "rev-parse", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return {"commit": commit or None, "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}


def tensors(arrays: Arrays) -> State:
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def part(arrays: Arrays, name: str) -> Arrays:
    return {key.removeprefix(f"{name}/"): array for key, array in arrays.items() if key.startswith(f"{name}/")}


def tiny_encoder(folder: Path, pooling: str) -> SentenceTransformer:
    """Build a random BERT with the vocabulary of bert-base-uncased and a masked-language-model head."""
    name = recipes.offline_encoder(num_layers=1).tokenizer.name_or_path
    AutoTokenizer.from_pretrained(name).save_pretrained(folder)
    BertForMaskedLM(BertConfig(**CONFIG)).save_pretrained(folder)
    transformer = Transformer(str(folder))
    return SentenceTransformer(modules=[transformer, Pooling(CONFIG["hidden_size"], pooling)], device="cpu")  # type: ignore


def batches() -> list[list[str]]:
    """Five batches of the project's own sentences, one of them a sentence that is long."""
    texts = recipes.offline_sentences_path().read_text(encoding="utf-8").splitlines()
    found = [texts[i * ROWS : (i + 1) * ROWS] for i in range(UPDATES)]
    return [[*batch[:-1], " ".join(batch[-6:])] for batch in found]


def padded(model: SentenceTransformer, *columns: list[str]) -> list[dict[str, Tensor]]:
    """Tokenize columns to one width, as the authors' collators do."""
    found = [{key: each[key] for key in ("input_ids", "attention_mask")} for each in map(model.preprocess, columns)]
    width = max(each["input_ids"].shape[1] for each in found)
    return [{key: nn.functional.pad(value, (0, width - value.shape[1])) for key, value in each.items()} for each in found]


def features(inputs: Arrays, update: int, prefix: str = "") -> dict[str, Tensor]:
    ids, mask = (torch.from_numpy(inputs[f"{update}/{prefix}{name}"]) for name in ("ids", "mask"))
    return {"input_ids": ids, "attention_mask": mask}


def arrays_of(update: int, prefix: str, column: dict[str, Tensor]) -> Arrays:
    names = {"input_ids": "ids", "attention_mask": "mask"}
    return {f"{update}/{prefix}{name}": column[key].numpy() for key, name in names.items()}


def below(prefix: str, *skipped: str) -> Callable[[State], State]:
    """What of the official weights begins so, without that."""

    def of(weights: State) -> State:
        found = {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}
        return {name: tensor for name, tensor in found.items() if not name.endswith(("position_ids", *skipped))}

    return of


def renamed(names: Mapping[str, str]) -> Callable[[State], State]:
    """Ours by theirs: ``{"linear.": "mlp.dense."}``."""

    def of(weights: State) -> State:
        return {
            ours + name.removeprefix(theirs): tensor
            for ours, theirs in names.items()
            for name, tensor in weights.items()
            if name.startswith(theirs)
        }

    return of


# PT-BERT


def pt_bert_inputs(model: SentenceTransformer) -> Arrays:
    found: Arrays = {}
    for update, texts in enumerate(batches()):
        (column,) = padded(model, texts)
        found |= arrays_of(update, "", column)
    return found


def pt_bert_side(model: SentenceTransformer, inputs: Arrays, theirs: Arrays) -> Side:
    loss = official.PTBERTLoss(model, queue_size=4 * ROWS)
    slow, slow_mapping = loss.momentum_encoder.copies
    mapping = {"attention.pseudo_tokens": "polyEmbedding.weight", "attention.": "polyAttn.", "head.linear.": "mlp.dense."}
    copied = {
        "attention.pseudo_tokens": "momentumPolyEmbedding.weight",
        "attention.": "momentumPolyAttn.",
        "head.linear.": "momentum_mlp.dense.",
    }
    copies: list[Any] = [
        (model[0].model, below("bert.")),
        (slow[0].model, below("momentum_encoder.")),
        (loss.mapping, renamed(mapping)),
        (slow_mapping, renamed(copied)),
    ]

    def terms_of(update: int) -> Mapping[str, Tensor]:
        column = features(inputs, update)
        return loss([column, dict(column)])

    return Side(loss, terms_of, copies, [*copies, (slow[0].model, below("bert.")), (slow_mapping, renamed(mapping))])


# PaSeR


def paser_inputs(model: SentenceTransformer) -> Arrays:
    model.max_seq_length = 32
    roles, found = TokenRoles(model.tokenizer), Arrays()
    ordinary = (~roles.special).nonzero().squeeze(1)
    for update, texts in enumerate(batches()):
        rows = data.paser_columns(texts, mask_token=model.tokenizer.mask_token, synonyms=None, top_k=1)[:]
        anchor, masked = padded(model, rows["anchor"], rows["masked"])
        (phrase,) = padded(model, rows["phrase"])
        usable = torch.maximum(anchor["attention_mask"].sum(1), masked["attention_mask"].sum(1)) < 32
        labels = torch.full_like(anchor["input_ids"], -100)
        shifted = phrase["input_ids"][:, 1:].masked_fill(phrase["attention_mask"][:, 1:] == 0, -100)
        labels[:, : shifted.shape[1]] = torch.where(usable.unsqueeze(1), shifted, -100)
        corrupted, chosen = mlm_mask(
            anchor["input_ids"],
            roles.content(anchor),
            mask_token_id=model.tokenizer.mask_token_id,
            ordinary_ids=ordinary,
        )
        found |= arrays_of(update, "", anchor) | arrays_of(update, "masked_", masked) | arrays_of(update, "phrase_", phrase)
        extra = {"labels": labels, "corrupted": corrupted, "chosen": chosen}
        extra["mlm_labels"] = anchor["input_ids"].masked_fill(~chosen, -100)
        found |= {f"{update}/{name}": tensor.numpy() for name, tensor in extra.items()}
    return found


def paser_side(model: SentenceTransformer, inputs: Arrays, theirs: Arrays) -> Side:
    loss = official.PaSeRLoss(model, decoder_dropout=0.0)

    def decoder(weights: State) -> State:
        own = {name.removeprefix("decoder."): tensor for name, tensor in weights.items() if name.startswith("decoder.")}
        parts = {
            "self_attn.out_proj.": "self_attn.out_proj.",
            "multihead_attn.out_proj.": "encoder_attn.out_proj.",
            "linear1.": "fc1.",
            "linear2.": "fc2.",
            "norm1.": "self_attn_layer_norm.",
            "norm2.": "encoder_attn_layer_norm.",
            "norm3.": "final_layer_norm.",
        }
        found = renamed({"norm.": "layernorm_embedding."})(own)
        found["positions.weight"] = own["embed_positions.weight"][2 : 2 + loss.decoder.max_positions]  # type: ignore
        for layer in range(6):
            names = {f"layers.layers.{layer}.{mine}": f"layers.{layer}.{yours}" for mine, yours in parts.items()}
            found |= renamed(names)(own)
            for mine, yours in (("self_attn", "self_attn"), ("multihead_attn", "encoder_attn")):
                for kind in ("weight", "bias"):
                    joint = [own[f"layers.{layer}.{yours}.{each}_proj.{kind}"] for each in "qkv"]
                    found[f"layers.layers.{layer}.{mine}.in_proj_{kind}"] = torch.cat(joint)
        return found

    copies: list[Any] = [
        (model[0].model, below("bert.")),
        (loss.head.full.cls.predictions, head_of("lm_head.")),  # type: ignore
        (loss.projection, below("projection.")),
        (loss.decoder, decoder),
    ]

    def terms_of(update: int) -> Mapping[str, Tensor]:
        drawn = torch.from_numpy(inputs[f"{update}/corrupted"]), torch.from_numpy(inputs[f"{update}/chosen"])
        with mock.patch.object(paser, "mlm_mask", lambda *_, **__: drawn):
            return loss([features(inputs, update, prefix) for prefix in ("", "masked_", "phrase_")])

    special = len(model.tokenizer.all_special_ids) / len(model.tokenizer)
    random = f"{0.1 * special:.1e} of the tokens to predict turn into a special one, ours never"
    return Side(loss, terms_of, copies, cannot={"draws of the masked language model": random})


def head_of(prefix: str) -> Callable[[State], State]:
    """The head, its output bias under both of its names."""

    def of(weights: State) -> State:
        found = below(prefix)(weights)
        return {**found, "decoder.bias": found["bias"]}

    return of


# DenoSent


def denosent_inputs(model: SentenceTransformer) -> Arrays:
    modules.apply_mask_template(model, '"[X]" means [MASK].')
    found: Arrays = {"mask_token_id": np.array(model.tokenizer.mask_token_id)}
    for update, texts in enumerate(batches()):
        anchor, paraphrase = padded(model, texts, [" ".join(text.split()[::-1]) for text in texts])
        kept = torch.rand(*paraphrase["input_ids"].shape, CONFIG["hidden_size"]) >= 0.8425  # type: ignore
        found |= arrays_of(update, "", anchor) | arrays_of(update, "paraphrase_", paraphrase)
        found[f"{update}/noise"] = (kept / (1 - 0.8425)).numpy().astype("float32")
    return found


def denosent_side(model: SentenceTransformer, inputs: Arrays, theirs: Arrays) -> Side:
    loss = official.DenoSentLoss(model, decoder_dropout=0.0)
    width = int(CONFIG["hidden_size"])  # type: ignore

    def decoder(weights: State) -> State:
        found: State = {}
        for layer in range(16):
            ours, yours = f"layers.{layer}.", f"decoder.layers.{layer}."
            same = ["linear1.", "linear2.", "norm1.", "norm2.", "norm3."]
            names = {ours + name: yours + name for name in same}
            names |= {
                ours + "self_out.": yours + "self_attn.out_proj.",
                ours + "memory_out.": yours + "multihead_attn.out_proj.",
            }
            found |= renamed(names)(weights)
            for kind in ("weight", "bias"):
                found[f"{ours}self_in.{kind}"] = weights[f"{yours}self_attn.in_proj_{kind}"]
                found[f"{ours}memory_value.{kind}"] = weights[f"{yours}multihead_attn.in_proj_{kind}"][2 * width :]
        return found

    copies: list[Any] = [
        (model[0].model, below("encoder.")),
        (loss.head.full.cls.predictions, head_of("prediction_head.predictions.")),  # type: ignore
        (loss.projector, below("sent_embedding_projector.")),
        (loss.decoder, decoder),
    ]

    def terms_of(update: int) -> Mapping[str, Tensor]:
        noise = torch.from_numpy(inputs[f"{update}/noise"])
        with mock.patch.object(loss.decoder.noise, "forward", lambda x: x * noise):
            found = loss([features(inputs, update, prefix) for prefix in ("", "paraphrase_")])
        return {name: term / DENOSENT[name] for name, term in found.items()}

    shared = "of the .8425 zeros .1 are those of the encoder's own dropout, ours are drawn apart"
    return Side(loss, terms_of, copies, cannot={"noise": shared}, weights=DENOSENT)


# SLT-FAI


def slt_fai_inputs(model: SentenceTransformer) -> Arrays:
    vocabulary = model.tokenizer.convert_ids_to_tokens(list(range(CONFIG["vocab_size"])))  # type: ignore
    return {"vocabulary": np.array(vocabulary), **pt_bert_inputs(model)}


def slt_fai_side(model: SentenceTransformer, inputs: Arrays, theirs: Arrays) -> Side:
    base = losses.ConSERTLoss(model)
    loss = official.SLTFAILoss(model, base, frequencies=data.TokenFrequencies.bookcorpus(), warmup_steps=0)
    tell_rare = {f"inner.{i}.": f"discrim.ffnn.{i}." for i in range(3)} | {"outer.": "discrim.ffnn.3."}
    copies: list[Any] = [
        (model[0].model, below("model.0.auto_model.")),
        (loss.frequency_discriminator, renamed(tell_rare)),
        (loss.completeness_discriminator, renamed({"inner.": "maskdiscrim.ffnn.0.", "outer.": "maskdiscrim.ffnn.1."})),
    ]

    def terms_of(update: int) -> Mapping[str, Tensor]:
        column = features(inputs, update)
        cut, places, lacking = (torch.from_numpy(theirs[f"{update}/{name}"]) for name in ("cut", "places", "copy"))

        class GivenView(View):
            """The authors' draws: features to cut; places, where ours has the word that comes to each."""

            def __init__(self, parts: Any, content: Tensor, **rates: float) -> None:
                super().__init__(parts, content, **rates)
                if self.order is not None:
                    self.order = places.argsort(dim=1)
                if "feature_cutoff" in parts:
                    self._cut_features = torch.zeros(len(cut), CONFIG["hidden_size"]).scatter(1, cut, 1).bool()  # type: ignore

        kept = torch.where(lacking == column["input_ids"], 1.0, 0.0)
        with mock.patch.object(consert, "View", GivenView), mock.patch.object(torch, "rand", lambda *_, **__: kept):
            found = loss([column])
        # The official total is .3 times ours: its NT-Xent is a sum over two directions, times .15.
        return {name.removesuffix("/nt_xent"): 0.3 * term for name, term in found.items()}

    length = np.mean([inputs[f"{update}/mask"].sum() / ROWS for update in range(UPDATES)])
    differ = int((theirs["labels"] != loss.low_frequency.numpy()).sum())
    cannot = {
        "views": f"the code also shuffles [CLS] and [SEP], 2 of {length:.1f} tokens, and cuts 153 of 768 features, ours 154",
        "warm-up": "half of each epoch, ours once",
        "labels": f"{differ} of {len(theirs['labels']):,} differ",
    }
    return Side(loss, terms_of, copies, cannot=cannot)


INPUTS = {"pt-bert": pt_bert_inputs, "paser": paser_inputs, "denosent": denosent_inputs, "slt-fai": slt_fai_inputs}
SIDES = {"pt-bert": pt_bert_side, "paser": paser_side, "denosent": denosent_side, "slt-fai": slt_fai_side}


if __name__ == "__main__":
    main()
