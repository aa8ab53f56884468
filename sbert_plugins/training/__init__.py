"""Training with losses that own something. Generic: knows the host's trainer and no method."""

from .arguments import TrainingArguments
from .checkpoints import newest_complete_checkpoint
from .collator import AugmentingCollator, EpochCallback, LengthGroupedBatchSampler
from .finite import DivergedError, json_text
from .loss_state import LossStateCallback, load_loss_state, save_loss_state
from .trainer import SentenceTransformerTrainer

__all__ = [
    "AugmentingCollator",
    "DivergedError",
    "EpochCallback",
    "LengthGroupedBatchSampler",
    "LossStateCallback",
    "SentenceTransformerTrainer",
    "TrainingArguments",
    "json_text",
    "load_loss_state",
    "newest_complete_checkpoint",
    "save_loss_state",
]
