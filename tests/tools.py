"""What the tests of the losses share."""

import torch


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


def batch(model, *columns):
    """Return the features of text columns."""
    return [model.preprocess(list(column)) for column in columns]


def numpy(tensor):
    return tensor.detach().numpy()


def weights_of(module):
    """Return copies of a module's weights as arrays."""
    return {name: numpy(tensor).copy() for name, tensor in module.state_dict().items()}


def linear(weights, name, rows):
    """Apply a Linear layer to rows in numpy."""
    return rows @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def gradients(model):
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


def trained(module):
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def state(module):
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def is_same(before, after):
    """Return whether two states are equal to the last bit."""
    return before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
