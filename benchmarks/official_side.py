"""Run the authors' code for ``benchmarks/fidelity.py``, in a Python that can import it.

    python benchmarks/official_side.py METHOD CLONE inputs.npz outputs.npz

builds the authors' model from a clone on a tiny random BERT, makes five updates, and writes the weights
before and after them, each term and its gradients. It imports nothing of this library.
"""

import importlib
import itertools
import json
import os
import random
import sys
import types
from contextlib import contextmanager

import numpy as np
import torch
import torch.nn.functional as F

UPDATES = 5
LEARNING_RATE = 0.01
# Weights of the terms in the sum, where they are not 1. SLT-FAI's contrastive loss is a sum over two
# directions, times 0.15.
WEIGHTS = {
    "denosent": {"contrastive": 5.0, "denoising": 7.0},
    "slt-fai": {"base": 0.3, "adversarial": 0.3, "filtering": 0.3},
}
# The file of each clone that has the model.
FILES = {
    "pt-bert": "ptbert/models.py",
    "paser": "paser/models.py",
    "denosent": "model.py",
    "slt-fai": "sentence_transformers/losses/AdvCLSoftmaxLoss.py",
}


def five_updates(parameters, bert, compute_terms, weights, after=None):
    """Make five updates of plain gradient descent on the weighted sum of the terms.

    Return arrays: ``UPDATE/value/TERM``, and the gradients at the word embeddings and in the last layer of
    the encoder, ``UPDATE/words/TERM`` and ``UPDATE/last/TERM``.
    """
    last = dict(bert.encoder.layer[-1].named_parameters())
    watched = {
        "words": [bert.embeddings.word_embeddings.weight],
        "last": [last[name] for name in sorted(last)],
    }
    optimizer = torch.optim.SGD(parameters, lr=LEARNING_RATE)
    found = {}
    for update in range(UPDATES):
        optimizer.zero_grad()
        terms = compute_terms(update)
        for name, term in terms.items():
            found[f"{update}/value/{name}"] = np.array(term.item())
            for place, read in watched.items():
                gradients = torch.autograd.grad(term, read, retain_graph=True, allow_unused=True)
                pairs = zip(gradients, read)  # noqa: B905
                parts = [torch.zeros_like(w) if g is None else g for g, w in pairs]
                found[f"{update}/{place}/{name}"] = torch.cat([part.flatten() for part in parts]).numpy()
        weighted_sum(terms, weights).backward()
        optimizer.step()
        if after is not None:
            after()
    return found


def weighted_sum(terms, weights):
    return sum(weights.get(name, 1.0) * term for name, term in terms.items())


def check_sum(terms, total, weights):
    """Return the terms if their weighted sum is what the authors' code returns, so that none is missing."""
    ours = weighted_sum(terms, weights).item()
    if abs(ours - total.item()) > 1e-6 * abs(total.item()):
        raise SystemExit(f"{', '.join(terms)} sum to {ours}, but the authors' code returns {total.item()}.")
    return terms


@contextmanager
def keep_cross_entropies():
    """Collect each cross-entropy inside the block, because the authors' code returns their sum."""
    values, original = [], F.cross_entropy
    F.cross_entropy = lambda *given, **named: values.append(original(*given, **named)) or values[-1]
    yield values
    F.cross_entropy = original


def read_config(arrays, kind):
    config = kind(**json.loads(str(arrays["config"])))
    config._attn_implementation = "eager"
    return config


def tensors(arrays, update, *names):
    return [torch.from_numpy(arrays[f"{update}/{name}"]) for name in names]


# Each function below returns the authors' model, its encoder, the function that computes the terms of an
# update, and what to do after an update.


def build_pt_bert(arrays, clone):
    from ptbert.models import BertForPolyMoCo
    from transformers import BertConfig

    arguments = types.SimpleNamespace(pooler_type="cls", temp=0.05, poly_m=128, queue_size=4, mo_beta=0.885)
    model = BertForPolyMoCo(read_config(arrays, BertConfig), model_args=arguments)
    pairs = [
        (model.bert, model.momentum_encoder),
        (model.mlp, model.momentum_mlp),
        (model.polyEmbedding, model.momentumPolyEmbedding),
        (model.polyAttn, model.momentumPolyAttn),
    ]
    for _, slow in pairs:
        slow.requires_grad_(False)

    def compute_terms(update):
        both = [torch.stack([one, one], 1) for one in tensors(arrays, update, "ids", "mask")]
        return {"contrastive": model(input_ids=both[0], attention_mask=both[1]).loss}

    def after():  # as the clone's trainer does after its optimizer's step
        for fast, slow in pairs:
            for new, old in zip(fast.parameters(), slow.parameters()):  # noqa: B905
                old.data = old.data * arguments.mo_beta + (1.0 - arguments.mo_beta) * new.data

    return model, model.bert, compute_terms, after


def build_paser(arrays, clone):
    from transformers import BertConfig

    BertConfig.from_pretrained = classmethod(lambda cls, *_, **__: cls())  # only its padding id is read
    from paser.models import BertForCL

    settings = {"pooler_type": "cls_before_pooler", "temp": 0.05, "do_mlm": True, "mlm_weight": 1.0}
    arguments = types.SimpleNamespace(**settings, t_weight=1, k_weight=1)
    model = BertForCL(read_config(arrays, BertConfig), model_args=arguments)
    # train.py copies the pretrained head: an output matrix of its own with the values of the word embeddings.
    model.lm_head.decoder.weight.data = model.bert.embeddings.word_embeddings.weight.data.clone()
    for module in model.modules():
        if isinstance(getattr(module, "dropout", None), float):
            module.dropout = 0.0

    def compute_terms(update):
        names = ("ids", "mask", "masked_ids", "masked_mask", "labels", "corrupted", "mlm_labels")
        ids, mask, masked_ids, masked_mask, labels, corrupted, mlm_labels = tensors(arrays, update, *names)
        inputs = {"input_ids": torch.stack([ids, masked_ids], 1), "labels": labels}
        inputs |= {"attention_mask": torch.stack([mask, masked_mask], 1), "decode_input": labels.clone()}
        with keep_cross_entropies() as values:
            output = model(**inputs, mlm_input_ids=corrupted, mlm_labels=mlm_labels)
        return check_sum({"generative": values[0], "mlm": values[1]}, output.loss, {})

    return model, model.bert, compute_terms, None


def build_denosent(arrays, clone):
    import transformers
    from transformers import BertConfig, BertForMaskedLM

    sys.modules["wandb"] = types.SimpleNamespace(log=lambda *_, **__: None)
    config = read_config(arrays, BertConfig)
    ids = {"mask_token_id": int(arrays["mask_token_id"]), "pad_token_id": config.pad_token_id}
    transformers.PreTrainedModel.all_tied_weights_keys = {}  # read before transformers 5 sets it
    transformers.AutoTokenizer.from_pretrained = staticmethod(lambda *_, **__: types.SimpleNamespace(**ids))
    BertForMaskedLM.from_pretrained = classmethod(lambda cls, *_, **__: cls(config))
    from config import DenoSentConfig
    from model import DenoSentModel

    settings = {
        "do_contrastive": True,
        "do_generative": True,
        "contrastive_weight": 5,
        "generative_weight": 7,
    }
    settings |= {"encoder_name_or_path": "tiny", "hidden_size": config.hidden_size, "contrastive_temp": 0.05}
    model, noise = DenoSentModel(DenoSentConfig(**settings)), {}
    for module in model.decoder.modules():
        if isinstance(module, torch.nn.MultiheadAttention):
            module.dropout = 0.0
        elif isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    model.decoder_noise_dropout.forward = lambda x: x * noise["now"]

    def compute_terms(update):
        names = ("ids", "mask", "paraphrase_ids", "paraphrase_mask", "noise")
        ids, mask, other, other_mask, noise["now"] = tensors(arrays, update, *names)
        with keep_cross_entropies() as values:
            output = model(ids, mask, positive_input_ids=other, positive_attention_mask=other_mask)
        return check_sum({"denoising": values[0], "contrastive": values[1]}, output.loss, WEIGHTS["denosent"])

    return model, model.encoder, compute_terms, None


def build_slt_fai(arrays, clone):
    # The clone has its own old transformers and sentence-transformers. Import single files of them.
    packages = ("sentence_transformers", "sentence_transformers.losses", "sentence_transformers.models")
    for name in ("transformers", *packages):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [os.path.join(clone, *name.split("."))]
        sys.modules[name].__version__ = "3.4.0"
    stub = types.ModuleType("sentence_transformers.SentenceTransformer")
    stub.SentenceTransformer = object
    sys.modules[stub.__name__] = stub
    code = importlib.import_module("sentence_transformers.losses.AdvCLSoftmaxLoss")
    pooling = importlib.import_module("sentence_transformers.models.Pooling")
    bert = importlib.import_module("transformers.modeling_bert")
    config = read_config(arrays, bert.BertConfig)
    config.output_hidden_states = False
    width = config.hidden_size
    for discriminator in (code.freqDiscrim, code.maskDiscrim):  # their width is 768 by default
        defaults = discriminator.__init__.__defaults__
        discriminator.__init__.__defaults__ = tuple(width if value == 768 else value for value in defaults)

    class Words(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.auto_model = bert.BertModel(config)

        def forward(self, features):
            tokens = self.auto_model(**features)[0]
            features |= {"token_embeddings": tokens, "cls_token_embeddings": tokens[:, 0]}
            return features

    ids_of = {str(token): i for i, token in enumerate(arrays["vocabulary"])}
    model = torch.nn.Sequential(Words(), pooling.Pooling(width))
    model.tokenizer = types.SimpleNamespace(convert_tokens_to_ids=ids_of.__getitem__)
    model.tensorboard_writer = types.SimpleNamespace(add_scalar=lambda *_, **__: None)
    model.num_steps_total = model.global_step = 0
    os.chdir(clone)
    settings = {
        "use_contrastive_loss": True,
        "contrastive_loss_only": True,
        "no_pair": True,
        "temperature": 0.1,
    }
    settings |= {"contrastive_loss_rate": 0.15, "high_rank": 2, "cutoff_rate_final_1": 0.2}
    settings |= {
        f"data_augmentation_strategy_final_{i}": part for i, part in ((1, "feature_cutoff"), (2, "shuffle"))
    }
    loss = code.AdvCLSoftmaxLoss(model, width, 2, **settings)
    random.shuffle = lambda items: items.append(items.pop(0))  # the same order on both sides

    def compute_terms(update):
        np.random.uniform = itertools.cycle((1.0, 0.0)).__next__  # every second frequent token is masked
        ids, mask = tensors(arrays, update, "ids", "mask")
        features = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
        with keep_cross_entropies() as values:
            total = loss([features], None, 1)
        terms = {"base": (values[0] + values[1]) / 2, "adversarial": (values[2] + values[3]) / 0.6}
        return check_sum(terms | {"filtering": (values[4] + values[5]) / 0.3}, total, WEIGHTS["slt-fai"])

    return loss, model[0].auto_model, compute_terms, None


BUILD = {"pt-bert": build_pt_bert, "paser": build_paser, "denosent": build_denosent, "slt-fai": build_slt_fai}


def main(method, clone, source, target):
    """Run one method and write its arrays."""
    if method in ("pt-bert", "paser"):  # whose transformers rejects newer tokenizers
        sys.modules["transformers.dependency_versions_check"] = types.ModuleType("no_check")
    sys.path.insert(0, clone)
    torch.set_num_threads(1)
    for seed in (torch.manual_seed, np.random.seed, random.seed):
        seed(0)
    model, encoder, compute_terms, after = BUILD[method](dict(np.load(source)), clone)

    def weights(part):
        return {
            f"{part}/{name}": tensor.detach().numpy().copy() for name, tensor in model.state_dict().items()
        }

    start = weights("start")
    trained = [parameter for parameter in model.train().parameters() if parameter.requires_grad]
    found = five_updates(trained, encoder, compute_terms, WEIGHTS.get(method, {}), after)
    found = {f"found/{name}": value for name, value in found.items()}
    versions = {name: str(sys.modules[name].__version__) for name in ("torch", "transformers")}
    np.savez(target, versions=json.dumps(versions), **start, **found, **weights("end"))


if __name__ == "__main__":
    main(*sys.argv[1:])
