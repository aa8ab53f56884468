"""Compare ``losses.official`` with the authors' code, term by term and gradient by gradient.

    git clone https://github.com/Namco0816/PT-BERT clone   # the others: REPOSITORIES
    python benchmarks/fidelity.py pt-bert --clone clone --python old/bin/python

The authors' model file runs in a process of its own (``official_side.py``) on a random BERT with two layers
of width 64 and without dropout. Its weights are copied into ours, both read the same ids and random draws,
and both make five updates of plain gradient descent. The result replaces the method's line in
``results/fidelity.jsonl``.

PaSeR and PT-BERT need transformers 4.2.1. Make an environment with ``pip install torch numpy scikit-learn
requests filelock tqdm regex packaging tokenizers sacremoses sentencepiece six "setuptools<81"`` and then
``pip install --no-deps transformers==4.2.1``, and name its interpreter with ``--python``. DenoSent and
SLT-FAI run in this library's environment, with ``sacremoses``.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import official_side
import records
import torch
from official_side import FILES, UPDATES, WEIGHTS
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from torch import Tensor, nn
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM, set_seed

from sbert_plugins import data, losses, modules, recipes
from sbert_plugins.encoder import TokenRoles, View, mlm_mask
from sbert_plugins.losses import consert, official, paser

ROWS = 24
WIDTH = 64
NOISE = 0.8425  # DenoSent's 0.825 and the encoder's dropout of 0.1
CONFIG = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
CONFIG |= {"vocab_size": 30522, "max_position_embeddings": 64, "initializer_range": 0.1}
CONFIG |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
REPOSITORIES = {
    "pt-bert": "Namco0816/PT-BERT",
    "paser": "chengzhipanpan/PaSeR",
    "denosent": "xinghaow99/DenoSent",
    "slt-fai": "wangbing1416/SLT-FAI",
}
Arrays = dict[str, np.ndarray]
State = dict[str, Tensor]


@dataclass
class Method:
    """Our side of a method.

    Attributes:
        build: Builds our loss.
        rules: Regular expressions for the names of the authors' weights, and their names in our loss.
        columns: Prefixes of the arrays of the text columns.
        make_inputs: Returns the arrays of an update from the encoder and sentences.
        convert: Changes weights that are stored in another way.
        use_draws: Replaces the random draws of our loss inside a block, given the loss and the inputs.
        cannot_agree: What differs on purpose.
    """

    build: Callable[[SentenceTransformer], nn.Module]
    rules: dict[str, str]
    cannot_agree: dict[str, str]
    columns: tuple[str, ...] = ("",)
    pooling: str = "cls"
    make_inputs: Callable[..., Arrays] = lambda model, texts: pad(model, {"": texts})
    convert: Callable[[State], State] = lambda weights: weights
    use_draws: Callable[[nn.Module, State], Any] = lambda loss, given: nullcontext()


def paser_inputs(model: SentenceTransformer, texts: list[str]) -> Arrays:
    """Return sentences, masked copies, phrases, and the draws of the masked language model."""
    model.max_seq_length = 32
    roles, mask_token = TokenRoles(model.tokenizer), model.tokenizer.mask_token
    rows = data.paser_columns(texts, mask_token=mask_token, synonyms=None, top_k=1)[:]
    found = pad(model, {"": rows["anchor"], "masked_": rows["masked"]}) | pad(
        model, {"phrase_": rows["phrase"]}
    )
    ids, mask = torch.from_numpy(found["ids"]), torch.from_numpy(found["mask"])
    found["corrupted"], found["chosen"] = mlm_mask(
        ids,
        roles.content({"input_ids": ids, "attention_mask": mask}),
        mask_token_id=model.tokenizer.mask_token_id,
        ordinary_ids=(~roles.special).nonzero().squeeze(1),
    )
    found["mlm_labels"] = np.where(found["chosen"], ids, -100)
    usable = np.maximum(found["mask"].sum(1), found["masked_mask"].sum(1)) < model.max_seq_length
    phrase, scored = found["phrase_ids"][:, 1:], found["phrase_mask"][:, 1:] * usable[:, None]
    found["labels"] = np.full_like(ids, -100)
    found["labels"][:, : phrase.shape[1]] = np.where(scored, phrase, -100)
    return found


def convert_paser(weights: State) -> State:
    """Join queries, keys and values, and leave out Bart's two first positions."""
    weights["decoder.positions.weight"] = weights["decoder.positions.weight"][2:130]
    for query in [name for name in weights if ".q_proj." in name]:
        parts = [weights.pop(query.replace("q_proj", f"{part}_proj")) for part in "qkv"]
        weights[query.replace("q_proj.", "in_proj_")] = torch.cat(parts)
    return weights


def denosent_inputs(model: SentenceTransformer, texts: list[str]) -> Arrays:
    """Return sentences, the same with their words in reverse order, and the noise."""
    if not hasattr(model, "has_template"):
        modules.apply_mask_template(model, '"[X]" means [MASK].')
        model.has_template = True
    found = pad(model, {"": texts, "paraphrase_": [" ".join(text.split()[::-1]) for text in texts]})
    kept = torch.rand(*found["paraphrase_ids"].shape, WIDTH) >= NOISE
    return found | {"noise": (kept / (1 - NOISE)).numpy()}


@contextmanager
def slt_fai_draws(loss: nn.Module, given: State) -> Iterator[None]:
    """Shuffle by one place, cut features 1 to 12, and mask every second frequent token."""

    class GivenView(View):
        def __init__(self, parts: Any, content: Tensor, **rates: float) -> None:
            super().__init__(parts, content, **rates)
            lengths = given["mask"].sum(dim=1, keepdim=True)
            places = torch.arange(content.shape[1]).expand(content.shape)
            if "token_shuffling" in parts:
                self.order = torch.where(places < lengths, (places - 1) % lengths, places)
            if "feature_cutoff" in parts:
                features = torch.arange(WIDTH).expand(len(content), WIDTH)
                self._cut_features = (features >= 1) & (features <= int(0.2 * WIDTH))

    frequent = loss.low_frequency[given["ids"]] == 0
    draws = (frequent.flatten().cumsum(0) % 2).view_as(frequent).float()
    rand = mock.patch.object(torch, "rand", lambda *_, **__: draws)
    with mock.patch.object(consert, "View", GivenView), rand:
        yield


METHODS = {
    "pt-bert": Method(
        build=lambda model: official.PTBERTLoss(model, queue_size=4 * ROWS),
        rules={
            r"bert\.": "model.0.model.",
            r"momentum_encoder\.": "momentum_encoder.copies.0.0.model.",
            r"polyEmbedding\.weight": "mapping.attention.pseudo_tokens",
            r"polyAttn\.": "mapping.attention.",
            r"mlp\.dense\.": "mapping.head.linear.",
            r"momentumPolyEmbedding\.weight": "momentum_encoder.copies.1.attention.pseudo_tokens",
            r"momentumPolyAttn\.": "momentum_encoder.copies.1.attention.",
            r"momentum_mlp\.dense\.": "momentum_encoder.copies.1.head.linear.",
        },
        cannot_agree={"start of the momentum encoder": "random in the code, a copy of the encoder here"},
        columns=("", ""),
    ),
    "paser": Method(
        build=lambda model: official.PaSeRLoss(model, decoder_dropout=0.0),
        rules={
            r"bert\.": "model.0.model.",
            r"lm_head\.": "head.full.cls.predictions.",
            r"projection\.": "projection.",
            r"decoder\.embed_positions\.": "decoder.positions.",
            r"decoder\.layernorm_embedding\.": "decoder.norm.",
            r"decoder\.layers\.(\d)\.self_attn\.": r"decoder.layers.layers.\1.self_attn.",
            r"decoder\.layers\.(\d)\.encoder_attn\.": r"decoder.layers.layers.\1.multihead_attn.",
            r"decoder\.layers\.(\d)\.fc(\d)": r"decoder.layers.layers.\1.linear\2",
            r"decoder\.layers\.(\d)\.self_attn_layer_norm": r"decoder.layers.layers.\1.norm1",
            r"decoder\.layers\.(\d)\.encoder_attn_layer_norm": r"decoder.layers.layers.\1.norm2",
            r"decoder\.layers\.(\d)\.final_layer_norm": r"decoder.layers.layers.\1.norm3",
        },
        cannot_agree={
            "masked language model": "the code may replace a token by a special one, ours never does"
        },
        columns=("", "masked_", "phrase_"),
        make_inputs=paser_inputs,
        convert=convert_paser,
        use_draws=lambda loss, given: mock.patch.object(
            paser, "mlm_mask", lambda *_, **__: (given["corrupted"], given["chosen"])
        ),
    ),
    "denosent": Method(
        build=lambda model: official.DenoSentLoss(
            model, decoder_dropout=0.0, contrastive_weight=1.0, denoising_weight=1.0
        ),
        rules={
            r"encoder\.": "model.0.model.",
            r"prediction_head\.": "head.full.cls.",
            r"sent_embedding_projector\.": "projector.",
            r"decoder\.(layers\.\d+\.)self_attn\.in_proj_": r"decoder.\1self_in.",
            r"decoder\.(layers\.\d+\.)self_attn\.out_proj": r"decoder.\1self_out",
            r"decoder\.(layers\.\d+\.)multihead_attn\.in_proj_": r"decoder.\1memory_value.",
            r"decoder\.(layers\.\d+\.)multihead_attn\.out_proj": r"decoder.\1memory_out",
            r"decoder\.(layers\.\d+\.)": r"decoder.\1",
        },
        cannot_agree={
            "noise": "a part of it is the draw of the encoder's own dropout in the code, ours is new"
        },
        columns=("", "paraphrase_"),
        make_inputs=denosent_inputs,
        convert=lambda found: {
            name: value[2 * WIDTH :] if "memory_value" in name else value for name, value in found.items()
        },
        use_draws=lambda loss, given: mock.patch.object(
            loss.decoder.noise, "forward", lambda x: x * given["noise"]
        ),
    ),
    "slt-fai": Method(
        build=lambda model: official.SLTFAILoss(
            model,
            losses.ConSERTLoss(model),
            frequencies=data.TokenFrequencies.bookcorpus(),
            warmup_steps=0,
        ),
        rules={
            r"model\.0\.auto_model\.": "model.0.model.",
            r"discrim\.ffnn\.": "frequency_discriminator.layers.",
            r"maskdiscrim\.ffnn\.": "completeness_discriminator.layers.",
        },
        cannot_agree={
            "views": "the code also shuffles [CLS] and [SEP]; of 768 features it cuts 153, ours 154",
            "warm-up": "half of each epoch in the code, once here",
        },
        pooling="mean",
        use_draws=slt_fai_draws,
    ),
}


def main() -> None:
    """Compare one method and replace its line of the record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("method", choices=list(METHODS))
    parser.add_argument("--clone", type=Path, required=True, help="a clone of the authors' repository")
    parser.add_argument("--python", default=sys.executable, help="interpreter for the authors' code")
    options = parser.parse_args()
    records.require_clean_tree()
    found = compare(options.method, options.clone.resolve(), options.python)
    print(json.dumps(found, indent=1))
    records.replace("fidelity", found, key="method")


def compare(method: str, clone: Path, python: str) -> dict[str, Any]:
    """Run both sides and return the differences."""
    side = METHODS[method]
    set_seed(0)
    torch.set_num_threads(1)
    texts = recipes.offline_sentences_path().read_text("utf-8").splitlines()
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_encoder(folder, side.pooling)
        vocabulary = model.tokenizer.convert_ids_to_tokens(list(range(CONFIG["vocab_size"])))
        inputs = {"config": np.array(json.dumps(CONFIG)), "vocabulary": np.array(vocabulary)}
        inputs["mask_token_id"] = np.array(model.tokenizer.mask_token_id)
        for update in range(UPDATES):
            batch = texts[update * ROWS : (update + 1) * ROWS]
            batch[-1] = " ".join(batch[-6:])  # a long sentence
            inputs |= {f"{update}/{name}": array for name, array in side.make_inputs(model, batch).items()}
        source, target = (f"{folder}/{name}.npz" for name in ("inputs", "outputs"))
        np.savez(source, **inputs)
        command = [python, official_side.__file__, method, str(clone), source, target]
        subprocess.run(command, check=True, env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"})
        outputs = dict(np.load(target))
        loss = side.build(model).train()
    start, end = (convert(side, select(outputs, part)) for part in ("start/", "end/"))
    ours = our_updates(side, loss, start, inputs, WEIGHTS.get(method, {}))
    state, commit = loss.state_dict(), ["git", "-C", str(clone), "rev-parse", "HEAD"]
    return {
        "method": method,
        "file": FILES[method],
        "official_commit": subprocess.run(commit, capture_output=True, text=True, check=True).stdout.strip(),
        "official_versions": json.loads(str(outputs["versions"])),
        "terms": differences(select(outputs, "found/"), ours),
        "weights_moved": max((end[name] - start[name]).abs().max().item() for name in end),
        "weights_apart": max((end[name] - state[name]).abs().max().item() for name in end),
        "cannot_agree": {"dropout": "0 on both sides, because the draws differ"} | side.cannot_agree,
    }


def select(arrays: Arrays, prefix: str) -> Arrays:
    """Return the arrays whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def convert(side: Method, arrays: Arrays) -> State:
    """Return the authors' weights by our names."""
    found = {}
    for name, array in arrays.items():
        rule = next((rule for rule in side.rules if re.match(rule, name)), None)
        if rule and not re.search("position_ids|pooler", name):
            found[re.sub(rule, side.rules[rule], name, count=1)] = torch.from_numpy(array)
    return side.convert(found)


def our_updates(
    side: Method, loss: nn.Module, start: State, inputs: Arrays, weights: Mapping[str, float]
) -> Arrays:
    """Copy the authors' weights into our loss, train it, and return terms and gradients."""
    state = loss.state_dict(keep_vars=True)
    copied = {id(state[name]) for name in start}
    trained = {name: weight for name, weight in loss.named_parameters() if weight.requires_grad}
    assert all(id(weight) in copied or "pooler" in name for name, weight in trained.items())
    loss.load_state_dict(start, strict=False)
    loss.state_is_kept = True

    def compute_terms(update: int) -> State:
        given = {name: torch.as_tensor(array) for name, array in select(inputs, f"{update}/").items()}
        columns = [
            {"input_ids": given[f"{name}ids"], "attention_mask": given[f"{name}mask"]}
            for name in side.columns
        ]
        with side.use_draws(loss, given):
            return {name.partition("/")[0]: term for name, term in loss(columns).items()}

    encoder = loss.model[0].model
    return official_side.five_updates(trained.values(), encoder, compute_terms, weights)


def differences(theirs: Arrays, ours: Arrays) -> dict[str, dict[str, Any]]:
    """Return for each term the values, and the largest differences over the updates."""
    found: dict[str, dict[str, Any]] = {}
    for name in select(theirs, "0/value/"):
        values = [[float(side[f"{i}/value/{name}"]) for side in (theirs, ours)] for i in range(UPDATES)]
        found[name] = {"official": [a for a, _ in values], "difference": max(abs(a - b) for a, b in values)}
        for place in ("words", "last"):
            pairs = [
                [side[f"{i}/{place}/{name}"].astype("float64") for side in (theirs, ours)]
                for i in range(UPDATES)
            ]
            norms = [[float(np.linalg.norm(one)) for one in pair] for pair in pairs]
            cosines = [float(a @ b) / (n * m) for (a, b), (n, m) in zip(pairs, norms, strict=True)]
            found[name] |= {f"cosine_{place}": min(cosines), f"norm_{place}": min(n for n, _ in norms)}
            found[name][f"gradient_difference_{place}"] = max(float(abs(a - b).max()) for a, b in pairs)
    return found


def tiny_encoder(folder: str, pooling: str) -> SentenceTransformer:
    """Return a random BERT with a masked-language-model head and the vocabulary of bert-base-uncased."""
    AutoTokenizer.from_pretrained(
        recipes.offline_encoder(num_layers=1).tokenizer.name_or_path
    ).save_pretrained(folder)
    BertForMaskedLM(BertConfig(**CONFIG)).save_pretrained(folder)
    return SentenceTransformer(modules=[Transformer(folder), Pooling(WIDTH, pooling)], device="cpu")


def pad(model: SentenceTransformer, columns: dict[str, list[str]]) -> Arrays:
    """Return ids and mask of text columns, padded to one width as the authors' collators do."""
    tokenizer_inputs = {name: model.preprocess(texts) for name, texts in columns.items()}
    width = max(one["input_ids"].shape[1] for one in tokenizer_inputs.values())
    found = {}
    for name, one in tokenizer_inputs.items():
        for key, short in (("input_ids", "ids"), ("attention_mask", "mask")):
            found[f"{name}{short}"] = nn.functional.pad(one[key], (0, width - one[key].shape[1])).numpy()
    return found


if __name__ == "__main__":
    main()
