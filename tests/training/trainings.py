"""Small trainings for the tests of the trainer."""

import torch
from datasets import Dataset
from encoders import SENTENCES
from torch import nn

from sbert_plugins import training

ROWS = Dataset.from_dict({"anchor": SENTENCES * 2})
EVERY_SECOND = {"save_strategy": "steps", "save_steps": 2}  # checkpoints


def trainer_of(
    model, loss, folder, dataset=ROWS, trainer_class=training.SentenceTransformerTrainer, **changes
):
    """Build a trainer of four updates of four rows; ``changes`` are its arguments or the training's."""
    names = ("eval_dataset", "evaluator", "callbacks", "optimizers", "data_collator")
    options = {name: changes.pop(name) for name in names if name in changes}
    defaults = {
        "max_steps": 4,
        "per_device_train_batch_size": 4,
        "logging_steps": 1,
        "learning_rate": 1e-3,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
    }
    return trainer_class(
        model=model,
        args=training.TrainingArguments(str(folder), **(defaults | changes)),
        train_dataset=dataset,
        loss=loss,
        **options,
    )


def logged(trainer, key):
    """Return the values that were logged under a key."""
    return [entry[key] for entry in trainer.state.log_history if key in entry]


class Probe(nn.Module):
    """A loss with a head that records the modes in which it is computed and counts its batches."""

    def __init__(self, model, scale=1.0):
        super().__init__()
        self.model = model
        self.head = nn.Sequential(nn.Linear(32, 32), nn.Dropout(0.1)).eval()
        self.scale = scale
        self.modes = []
        self.diagnostics = {}

    def forward(self, features, labels=None):
        self.modes.append((self.model.training, self.training, self.head[1].training))
        batch = len(self.modes)  # NaN in every other batch, as if there was nothing to measure
        self.diagnostics = {"batch": torch.tensor(float(batch) if batch % 2 else float("nan"))}
        vectors = self.model(dict(features[0]))["sentence_embedding"]
        return {"probe": self.scale * self.head(vectors).pow(2).mean()}


class Number(Probe):
    """The same as one number, which sentence-transformers' wrappers need."""

    def forward(self, features, labels=None):
        return super().forward(features)["probe"]


class Value(nn.Module):
    """A loss whose value is a function of a number with a gradient."""

    def __init__(self, model, value, diagnostics=None):
        super().__init__()
        self.model, self.value, self.diagnostics = model, value, diagnostics or {}

    def forward(self, features, labels=None):
        return self.value(self.model(dict(features[0]))["sentence_embedding"].pow(2).mean())
