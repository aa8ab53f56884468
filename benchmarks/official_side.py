"""The authors' side of ``benchmarks/fidelity.py``, run by the Python that can import their code.

    python benchmarks/official_side.py METHOD CLONE inputs.npz outputs.npz

reads ids and draws, builds the authors' model from the clone on a tiny random BERT, makes five updates and writes the weights
that it began with, and each term and gradient. It imports nothing of this library, and no more of the clone than its model
files. What those need that has nothing to do with the computation (tokenizers, a logger, checks of versions) is stood in for.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import sys
import types
from importlib.machinery import ModuleSpec

import numpy as np
import torch
import torch.nn.functional as F

UPDATES = 5
LEARNING_RATE = 0.01
DENOSENT = {"contrastive": 5.0, "denoising": 7.0}  # the weights of its terms
# method -> the file of the clone that has its model
FILES = {
    "pt-bert": "ptbert/models.py",
    "paser": "paser/models.py",
    "denosent": "model.py",
    "slt-fai": "sentence_transformers/losses/AdvCLSoftmaxLoss.py",
}
# What transformers 3 and 4 ask for, and nothing here computes with.
OLD = {"tokenizers", "sacremoses", "pkg_resources", "six", "sentencepiece"}
STAND_INS = {"pt-bert": OLD, "paser": OLD, "slt-fai": OLD, "denosent": {"wandb"}}


def five_updates(parameters, watched, terms_of, after=lambda: None, weights=None):
    """Train, by plain gradient descent, and return arrays: ``0/value/term``, ``0/words/term``, ``0/last/term``, ...

    ``watched`` are the parameters, by name, whose gradients are kept for each term; ``terms_of`` an update are its terms, of
    which ``weights`` make the total.
    """
    optimizer = torch.optim.SGD(parameters, lr=LEARNING_RATE)
    found = {}
    for update in range(UPDATES):
        optimizer.zero_grad()
        terms = terms_of(update)
        for name, term in terms.items():
            found[f"{update}/value/{name}"] = np.array(term.item())
            for part, read in watched.items():
                gradients = torch.autograd.grad(term, read, retain_graph=True, allow_unused=True)
                pairs = zip(gradients, read)  # noqa: B905
                whole = [torch.zeros_like(w) if g is None else g for g, w in pairs]
                found[f"{update}/{part}/{name}"] = torch.cat([each.flatten() for each in whole]).numpy().astype("float32")
        sum((weights or {}).get(name, 1.0) * term for name, term in terms.items()).backward()
        optimizer.step()
        after()
    return found


def of_total(terms, total, weights=None):
    """Return the terms, if their weighted sum is what the authors' code returns: nothing of its loss is left out here."""
    ours = sum((weights or {}).get(name, 1.0) * term for name, term in terms.items()).item()
    if not abs(ours - total.item()) <= 1e-6 * abs(total.item()):
        raise SystemExit(f"The terms {', '.join(terms)} sum to {ours}, and the authors' code returns {total.item()}.")
    return terms


def watched(bert):
    """The parameters whose gradients are compared, of a BERT."""
    last = dict(bert.encoder.layer[-1].named_parameters())
    return {"words": [bert.embeddings.word_embeddings.weight], "last": [last[name] for name in sorted(last)]}


class CrossEntropies:
    """Keeps what each cross entropy of a forward is, in their order: the authors return sums."""

    def __enter__(self):
        self.values, self._real = [], F.cross_entropy

        def keep(*arguments, **keywords):
            self.values.append(self._real(*arguments, **keywords))
            return self.values[-1]

        F.cross_entropy = keep
        return self.values

    def __exit__(self, *_):
        F.cross_entropy = self._real


class _StandIn(types.ModuleType):
    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {}) if name[0].isupper() else lambda *_, **__: None


class _Finder:
    def __init__(self, names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self, is_package=True) if name.split(".")[0] in self.names else None

    def create_module(self, spec):
        return _StandIn(spec.name)

    def exec_module(self, module):
        pass


def stand_in(method):
    """Let what the model files import, but do not compute with, be imported; and skip the check of its versions."""
    sys.meta_path.insert(0, _Finder(STAND_INS[method]))
    if STAND_INS[method] is OLD:
        name = "transformers.dependency_versions_check"
        sys.modules[name] = types.ModuleType(name)


def settings(**given):
    return types.SimpleNamespace(**given)


def bert_config(arrays, kind):
    config = kind(**json.loads(str(arrays["config"])))
    config._attn_implementation = "eager"
    return config


def tensors(arrays, update, *names):
    return [torch.from_numpy(arrays[f"{update}/{name}"]) for name in names]


def pt_bert(arrays, clone):
    from ptbert.models import BertForPolyMoCo
    from transformers import BertConfig

    wanted = settings(pooler_type="cls", temp=0.05, poly_m=128, queue_size=4, mo_beta=0.885)
    model = BertForPolyMoCo(bert_config(arrays, BertConfig), model_args=wanted).train()
    pairs = [
        (model.bert, model.momentum_encoder),
        (model.mlp, model.momentum_mlp),
        (model.polyEmbedding, model.momentumPolyEmbedding),
        (model.polyAttn, model.momentumPolyAttn),
    ]
    for _, slow in pairs:
        slow.requires_grad_(False)
    start = start_of(model)

    def terms_of(update):
        ids, mask = tensors(arrays, update, "ids", "mask")
        output = model(input_ids=torch.stack([ids, ids], 1), attention_mask=torch.stack([mask, mask], 1))
        return {"contrastive": output.loss}

    def after():  # as the trainer of the clone does after its optimizer's step
        for fast, slow in pairs:
            for new, old in zip(fast.parameters(), slow.parameters()):  # noqa: B905
                old.data = old.data * wanted.mo_beta + (1.0 - wanted.mo_beta) * new.data

    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return start, five_updates(trained, watched(model.bert), terms_of, after), start_of(model)


def paser(arrays, clone):
    from transformers import BertConfig

    read = BertConfig.from_pretrained
    BertConfig.from_pretrained = classmethod(lambda cls, *_, **__: cls())  # of it only the padding id is read
    from paser.models import BertForCL

    wanted = settings(pooler_type="cls_before_pooler", temp=0.05, do_mlm=True, mlm_weight=1.0, t_weight=1, k_weight=1)
    model = BertForCL(bert_config(arrays, BertConfig), model_args=wanted).train()
    BertConfig.from_pretrained = read
    # train.py copies the pretrained head into it: a matrix of its own, with the values of the word embeddings
    model.lm_head.decoder.weight.data = model.bert.embeddings.word_embeddings.weight.data.clone()
    for module in model.modules():
        if hasattr(module, "dropout") and isinstance(module.dropout, float):
            module.dropout = 0.0
    start = start_of(model)

    def terms_of(update):
        names = ("ids", "mask", "masked_ids", "masked_mask", "labels", "corrupted", "mlm_labels")
        ids, mask, masked_ids, masked_mask, labels, corrupted, mlm_labels = tensors(arrays, update, *names)
        with CrossEntropies() as values:
            output = model(
                input_ids=torch.stack([ids, masked_ids], 1),
                attention_mask=torch.stack([mask, masked_mask], 1),
                labels=labels,
                decode_input=labels.clone(),
                mlm_input_ids=corrupted,
                mlm_labels=mlm_labels,
            )
        return of_total({"generative": values[0], "mlm": values[1]}, output.loss)

    return start, five_updates(list(model.parameters()), watched(model.bert), terms_of), start_of(model)


def denosent(arrays, clone):
    import transformers
    from transformers import BertConfig, BertForMaskedLM

    theirs = bert_config(arrays, BertConfig)
    tokenizer = settings(mask_token_id=int(arrays["mask_token_id"]), pad_token_id=theirs.pad_token_id)
    transformers.PreTrainedModel.all_tied_weights_keys = {}  # their model sets its weights before transformers 5 is ready
    transformers.AutoTokenizer.from_pretrained = staticmethod(lambda *_, **__: tokenizer)
    BertForMaskedLM.from_pretrained = classmethod(lambda cls, *_, **__: cls(theirs))
    from config import DenoSentConfig
    from model import DenoSentModel

    wanted = DenoSentConfig(
        encoder_name_or_path="tiny",
        hidden_size=theirs.hidden_size,
        do_contrastive=True,
        do_generative=True,
        contrastive_weight=5,
        generative_weight=7,
        contrastive_temp=0.05,
    )
    model = DenoSentModel(wanted).train()
    for module in model.decoder.modules():
        if isinstance(module, torch.nn.MultiheadAttention):
            module.dropout = 0.0
        elif isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    noise = {}
    model.decoder_noise_dropout.forward = lambda x: x * noise["now"]
    start = start_of(model)

    def terms_of(update):
        ids, mask, other, other_mask, noise["now"] = tensors(
            arrays, update, "ids", "mask", "paraphrase_ids", "paraphrase_mask", "noise"
        )
        with CrossEntropies() as values:
            output = model(input_ids=ids, attention_mask=mask, positive_input_ids=other, positive_attention_mask=other_mask)
        return of_total({"denoising": values[0], "contrastive": values[1]}, output.loss, DENOSENT)

    found = five_updates(list(model.parameters()), watched(model.encoder), terms_of, weights=DENOSENT)
    return start, found, start_of(model)


def slt_fai(arrays, clone):
    """The clone carries its own old transformers and sentence-transformers: their packages, without what those load."""
    for name in ("transformers", "sentence_transformers", "sentence_transformers.losses", "sentence_transformers.models"):
        package = types.ModuleType(name)
        package.__path__ = [os.path.join(clone, *name.split("."))]
        package.__version__ = "3.4.0"
        sys.modules[name] = package
    stub = types.ModuleType("sentence_transformers.SentenceTransformer")
    stub.SentenceTransformer = object
    sys.modules[stub.__name__] = stub
    code = importlib.import_module("sentence_transformers.losses.AdvCLSoftmaxLoss")
    pooling = importlib.import_module("sentence_transformers.models.Pooling")
    bert = importlib.import_module("transformers.modeling_bert")
    config = bert_config(arrays, importlib.import_module("transformers.configuration_bert").BertConfig)
    config.output_hidden_states = False
    width = config.hidden_size
    for discriminator in (code.freqDiscrim, code.maskDiscrim):  # 768 is written into them
        defaults = discriminator.__init__.__defaults__
        discriminator.__init__.__defaults__ = tuple(width if value == 768 else value for value in defaults)
    ids_of = {str(token): i for i, token in enumerate(arrays["vocabulary"])}

    class Words(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.auto_model = bert.BertModel(config)

        def forward(self, features):
            tokens = self.auto_model(**features)[0]
            features.update(token_embeddings=tokens, cls_token_embeddings=tokens[:, 0])
            return features

    model = torch.nn.Sequential(Words(), pooling.Pooling(width))
    model.tokenizer = settings(convert_tokens_to_ids=ids_of.__getitem__)
    model.tensorboard_writer = settings(add_scalar=lambda *_, **__: None)
    model.num_steps_total = model.global_step = 0
    os.chdir(clone)
    loss = code.AdvCLSoftmaxLoss(
        model,
        width,
        2,
        use_contrastive_loss=True,
        contrastive_loss_only=True,
        no_pair=True,
        contrastive_loss_rate=0.15,
        temperature=0.1,
        data_augmentation_strategy_final_1="feature_cutoff",
        data_augmentation_strategy_final_2="shuffle",
        cutoff_rate_final_1=0.2,
        high_rank=2,
    ).train()
    start, drawn, shuffled, copies = start_of(loss), {}, [], []
    shuffle = random.shuffle
    random.shuffle = lambda items: (shuffle(items), shuffled.append(list(items)))[0]
    encoder = model[0].auto_model
    encoder.register_forward_pre_hook(lambda _, __, given: copies.append(given["input_ids"]), with_kwargs=True)

    def terms_of(update):
        ids, mask = tensors(arrays, update, "ids", "mask")
        shuffled.clear()
        copies.clear()
        features = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
        with CrossEntropies() as values:
            total = loss([features], None, 1)
        places = np.tile(np.arange(ids.shape[1]), (len(ids), 1))
        for row, order in enumerate(shuffled[len(ids) :]):
            places[row, : len(order)] = order
        drawn[f"{update}/cut"] = np.array(shuffled[: len(ids)])[:, : int(0.2 * width)]
        drawn[f"{update}/places"] = places
        drawn[f"{update}/copy"] = copies[-1].numpy()
        terms = {
            "base": 0.15 * (values[0] + values[1]),
            "adversarial": (values[2] + values[3]) / 2,
            "filtering": values[4] + values[5],
        }
        return of_total(terms, total)

    parameters = [parameter for name, parameter in loss.named_parameters() if "pooler" not in name]
    found = five_updates(parameters, watched(encoder), terms_of)
    drawn["labels"] = np.array([loss.labels[i] for i in range(len(ids_of))])
    return start, {**found, **drawn}, start_of(loss)


def start_of(model):
    return {name: tensor.detach().numpy().copy() for name, tensor in model.state_dict().items()}


def main(method, clone, source, target):
    stand_in(method)
    sys.path.insert(0, clone)
    torch.set_num_threads(1)
    for seed in (torch.manual_seed, np.random.seed, random.seed):
        seed(0)
    arrays = dict(np.load(source))
    start, found, end = {"pt-bert": pt_bert, "paser": paser, "denosent": denosent, "slt-fai": slt_fai}[method](arrays, clone)
    versions = {name: str(getattr(sys.modules[name], "__version__", "")) for name in ("torch", "transformers")}
    np.savez(
        target,
        versions=json.dumps({"python": sys.version.split()[0], **versions}),
        **{f"start/{name}": value for name, value in start.items()},
        **{f"found/{name}": value for name, value in found.items()},
        **{f"end/{name}": value for name, value in end.items()},
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
