"""Tools for the tests of the losses: recorded passes, gradients, and decoders' losses in numpy."""

import reference
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Recorder:
    """Keeps the inputs and outputs of each call of a module, and whether it was in training mode."""

    def __init__(self, module):
        self.inputs, self.outputs, self.training = [], [], []
        module.register_forward_hook(self._keep)

    def _keep(self, module, inputs, output):
        self.inputs.append(inputs)
        self.outputs.append(dict(output) if isinstance(output, dict) else output)
        self.training.append(module.training)

    def rows(self):
        """Return the number of sentences in each pass of a model."""
        return [len(output["sentence_embedding"]) for output in self.outputs]


class Wrapper(DistributedDataParallel):
    """DistributedDataParallel without a group of processes."""

    def __init__(self, module):
        nn.Module.__init__(self)
        self.module = module

    def forward(self, features):
        return self.module(features)


def batch(model, *columns):
    """Return the features of text columns."""
    return [model.preprocess(list(column)) for column in columns]


def numpy(tensor):
    return tensor.detach().numpy()


def weights_of(module):
    """Return copies of a module's weights as arrays."""
    return {name: numpy(tensor).copy() for name, tensor in module.state_dict().items()}


def linear(weights, name, rows):
    return rows @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def trained(module):
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def gradients(model):
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


def state(module):
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def is_same(before, after):
    """Return whether two states are equal to the last bit."""
    return before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)


def words_of(model, texts):
    """Return the ids of each text without special tokens."""
    return [model.tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]


def phrase_loss(loss, phrases, memories, embed):
    """PaSeR eq. 3 in numpy: the mean over the tokens and ends of phrases. ``embed`` maps ids to vectors."""
    weights, tokenizer, logits, targets = weights_of(loss.decoder), loss.model.tokenizer, [], []
    for ids, memory in zip(words_of(loss.model, phrases), memories, strict=True):
        read = embed([tokenizer.cls_token_id, *ids])
        size = {"num_layers": loss.decoder_layers, "num_heads": loss.decoder_heads}
        hidden = reference.phrase_decoder(read, memory, weights, **size)
        logits += list(numpy(loss.head(torch.from_numpy(hidden))))
        targets += [*ids, tokenizer.sep_token_id]
    return reference.mean_negative_log_likelihood(logits, targets)


def restored_loss(loss, sentences, embedded, memories):
    """DenoSent eq. 4 in numpy. ``sentences`` are lists of ids, ``embedded`` what the decoder reads."""
    weights, logits, targets = weights_of(loss.decoder), [], []
    for ids, read, memory in zip(sentences, embedded, memories, strict=True):
        seen = {"num_layers": 16, "num_heads": 1, "attended": [True] * len(ids)}
        hidden = reference.denoising_decoder(read, memory, weights, **seen)
        logits += list(numpy(loss.head(torch.from_numpy(hidden))))
        targets += ids
    return reference.mean_negative_log_likelihood(logits, targets)
